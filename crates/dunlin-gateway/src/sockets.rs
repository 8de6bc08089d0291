//! The options of TCP connections, and sockets that a service manager has opened before the gateway began
//! (socket activation, sd_listen_fds(3)).

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use listenfd::ListenFd;
use tokio::net::TcpStream;

/// The most unsent data that the kernel keeps for a peer that does not read, beside the data on the way, in
/// bytes. By itself it would take several megabytes for each such peer, and the time to fill them.
#[cfg(target_os = "linux")]
const MAX_UNSENT: u32 = 256 << 10;

/// Whether the error says that this process or the system has too many open files (`EMFILE`, `ENFILE`).
pub(crate) fn lacks_files(error: &io::Error) -> bool {
    /// The numbers are the same on all systems of the Unix family.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Sets the options of a connection, as far as the system has them.
pub(crate) fn prepare(tcp: &TcpStream) {
    // Data is sent when it is complete; waiting for more would only delay it.
    let _ = tcp.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(tcp).set_tcp_notsent_lowat(MAX_UNSENT);
}

/// Sockets that the process has inherited. A gateway takes those with the addresses of its listeners instead
/// of binding them.
#[derive(Debug, Default)]
pub struct Sockets {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Sockets {
    /// The sockets that the environment names (`LISTEN_FDS`, `LISTEN_PID`); none without these variables,
    /// which it removes. A program calls it before it starts threads, and once.
    ///
    /// # Errors
    /// One of the descriptors is no listening TCP socket and no UDP socket over IP.
    pub fn inherited() -> io::Result<Self> {
        let mut inherited = ListenFd::from_env();
        let mut sockets = Self::default();
        for at in 0..inherited.len() {
            // The type of a socket decides which of the two takes it.
            if let Ok(Some(socket)) = inherited.take_tcp_listener(at) {
                socket.set_nonblocking(true)?;
                sockets.tcp.push(socket);
            } else if let Some(socket) = inherited.take_udp_socket(at)? {
                socket.set_nonblocking(true)?;
                sockets.udp.push(socket);
            }
        }
        Ok(sockets)
    }

    /// The addresses of the sockets.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let tcp = self.tcp.iter().map(TcpListener::local_addr);
        tcp.chain(self.udp.iter().map(UdpSocket::local_addr)).filter_map(Result::ok)
    }

    pub(crate) fn take_tcp(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let at = self.tcp.iter().position(|socket| serves(socket.local_addr(), address))?;
        Some(self.tcp.swap_remove(at))
    }

    pub(crate) fn take_udp(&mut self, address: SocketAddr) -> Option<UdpSocket> {
        let at = self.udp.iter().position(|socket| serves(socket.local_addr(), address))?;
        Some(self.udp.swap_remove(at))
    }
}

/// Whether a socket with this local address serves a listener at `address`. A unit that names only a port
/// opens it at `[::]`, which Linux serves in both families.
fn serves(local: io::Result<SocketAddr>, address: SocketAddr) -> bool {
    local.is_ok_and(|local| {
        let covers = local.ip() == Ipv6Addr::UNSPECIFIED && address.ip().is_unspecified();
        local.port() == address.port() && (local.ip() == address.ip() || covers)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_takes_the_socket_with_its_address() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let [tcp_at, udp_at] = [tcp.local_addr().unwrap(), udp.local_addr().unwrap()];
        let mut sockets = Sockets { tcp: vec![tcp], udp: vec![udp] };
        assert_eq!(sockets.addresses().collect::<Vec<_>>(), [tcp_at, udp_at]);
        assert!(sockets.take_tcp(SocketAddr::from(([127, 0, 0, 2], tcp_at.port()))).is_none());
        assert!(sockets.take_tcp(SocketAddr::from(([0, 0, 0, 0], tcp_at.port()))).is_none());
        assert!(sockets.take_udp(udp_at).is_some());
        assert!(sockets.take_udp(udp_at).is_none());
        assert!(sockets.take_tcp(tcp_at).is_some());
        assert_eq!(sockets.addresses().count(), 0);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_keeps_little_for_a_peer_that_does_not_read() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = async |is_prepared: bool| {
            let sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let _receiver = listener.accept().await.unwrap();
            if is_prepared {
                prepare(&sender);
            }
            let mut taken = 0;
            let patience = std::time::Duration::from_millis(200);
            while tokio::time::timeout(patience, sender.writable()).await.is_ok() {
                taken += sender.try_write(&[0; 16 << 10]).unwrap_or(0);
            }
            taken
        };
        let prepared = taken(true).await;
        let other = taken(false).await;
        assert!(prepared < 1 << 20 && other > 2 * prepared, "{prepared} and {other} bytes");
    }

    #[test]
    fn a_socket_for_all_addresses_serves_both_families() {
        let all_v4 = "0.0.0.0:443".parse().unwrap();
        let all_v6 = "[::]:443".parse().unwrap();
        assert!(serves(Ok(all_v6), all_v4) && serves(Ok(all_v4), all_v4));
        assert!(!serves(Ok(all_v4), all_v6) && !serves(Ok(all_v6), "[::]:444".parse().unwrap()));
        assert!(!serves(Ok(all_v6), "127.0.0.1:443".parse().unwrap()));
    }
}
