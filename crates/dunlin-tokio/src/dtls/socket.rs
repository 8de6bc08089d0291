//! A UDP socket that takes and gives several datagrams in one system call, and answers from the address that
//! was asked.

use std::array;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll};

use dunlin::{Path, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::addresses::plain;

/// The room for one received datagram, or several that the kernel has joined, in bytes: the largest UDP
/// payload.
const MAX_DATAGRAM: usize = 65_536;

/// The most datagrams that one system call takes.
pub(super) const SEND_BATCH: usize = 32;

/// The most datagrams that one system call gives, or groups of datagrams that the kernel has joined. A
/// stranger's ClientHello costs some ten microseconds, and in a flood of them other tasks wait for all that
/// one call has given. Some systems give one at a time.
const RECEIVE_BATCH: usize = if quinn_udp::BATCH_SIZE < 8 { quinn_udp::BATCH_SIZE } else { 8 };

pub(super) struct Socket {
    socket: UdpSocket,
    batches: UdpSocketState,
    is_ipv6: bool,
    /// Whether it is bound to the unspecified address, so that its datagrams can leave from any address of
    /// this machine.
    is_wildcard: bool,
}

/// The memory for received datagrams. The system provides it as far as it is used.
pub(super) struct Buffers(Vec<u8>);

impl Buffers {
    pub(super) fn new() -> Self {
        Self(vec![0; RECEIVE_BATCH * MAX_DATAGRAM])
    }
}

impl Socket {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let batches = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let local = socket.local_addr()?;
        let is_ipv6 = local.is_ipv6();
        let is_wildcard = local.ip().is_unspecified();
        let socket = Self { socket, batches, is_ipv6, is_wildcard };
        socket.allow_fragments();
        Ok(socket)
    }

    /// Lets the system fragment datagrams again, which quinn-udp forbids for QUIC. Here the MTU of the
    /// configuration decides.
    fn allow_fragments(&self) {
        #[cfg(target_os = "linux")]
        {
            use nix::sys::socket::{setsockopt, sockopt::Ipv6DontFrag};
            use rustix::net::sockopt::{
                Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
            };
            // Without it, datagrams above the MTU of the interface or the path are lost. A socket for both
            // families needs it for both.
            let _ = set_ip_mtu_discover(&self.socket, Ipv4PathMtuDiscovery::WANT);
            if self.is_ipv6 {
                let _ = set_ipv6_mtu_discover(&self.socket, Ipv6PathMtuDiscovery::WANT);
                // RFC 3542 §11.2: the option loses what the interface cannot take whole.
                let _ = setsockopt(&self.socket, Ipv6DontFrag, &false);
            }
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The address to which the socket is connected.
    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok().map(plain)
    }

    /// Ends the connection of the socket, which keeps its port. While it is connected, it sends only from the
    /// address that the system chose then, also after the machine has lost that address.
    #[cfg(target_os = "linux")]
    pub(super) fn disconnect(&self) -> io::Result<()> {
        let port = self.local_addr()?.port();
        rustix::net::connect_unspec(&self.socket)?;
        let now = self.local_addr()?;
        if now.port() != port {
            // The system takes back a port that the program did not choose itself.
            rustix::net::bind(&self.socket, &SocketAddr::new(now.ip(), port))?;
        }
        Ok(())
    }

    /// Other systems do not tell when addresses change.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(super) fn disconnect(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the socket can be read; otherwise registers the task of `cx`.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_recv_ready(cx).map(drop)
    }

    /// Whether the socket takes datagrams; otherwise registers the task of `cx`.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_send_ready(cx).map(drop)
    }

    /// Waits until the socket takes datagrams. Several tasks may wait.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Waits until an error waits at the socket.
    pub(super) async fn failed(&self) {
        let _ = self.socket.ready(Interest::ERROR).await;
    }

    /// Takes the error that waits at the socket.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        // Without an error, the socket is not ready any more.
        let taken = self.socket.try_io(Interest::ERROR, || {
            self.socket.take_error()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        });
        taken.ok()
    }

    /// Receives the datagrams that are there, as many as one system call gives. Returns their number. Paths
    /// have no socket yet.
    pub(super) fn receive(&self, buffers: &mut Buffers, mut f: impl FnMut(Path, &[u8])) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); RECEIVE_BATCH];
        let received = {
            let mut parts = buffers.0.chunks_mut(MAX_DATAGRAM);
            let mut slices: [_; RECEIVE_BATCH] =
                array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
            self.socket.try_io(Interest::READABLE, || {
                self.batches.recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas)
            })?
        };
        let mut datagrams = 0;
        for (meta, bytes) in metas.iter().zip(buffers.0.chunks(MAX_DATAGRAM)).take(received) {
            let path = self.path(meta);
            let bytes = bytes.get(..meta.len).unwrap_or_default();
            if bytes.is_empty() {
                f(path, bytes);
                datagrams += 1;
            }
            // The kernel joins datagrams of equal length between the same two addresses; the last one may be
            // shorter.
            for datagram in bytes.chunks(meta.stride.max(1)) {
                f(path, datagram);
                datagrams += 1;
            }
        }
        Ok(datagrams)
    }

    /// The path of a received datagram.
    fn path(&self, meta: &RecvMeta) -> Path {
        // A socket for both families shows IPv4 addresses in their IPv6 form (RFC 4291 §2.5.5.2).
        let asked = meta.dst_ip.map(|ip| ip.to_canonical());
        Path { source: asked.filter(|ip| self.is_wildcard && is_source(*ip)), ..plain(meta.addr).into() }
    }

    /// The form in which the system takes this address of a peer.
    fn to(&self, peer: SocketAddr) -> SocketAddr {
        match peer {
            SocketAddr::V4(v4) if self.is_ipv6 => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            _ => peer,
        }
    }

    /// Sends datagrams, as many as one system call takes. Returns their number. An error is about the first
    /// datagram.
    pub(super) fn send(&self, transmits: &[Transmit]) -> io::Result<usize> {
        let Some(first) = transmits.first() else { return Ok(0) };
        let source = if self.is_wildcard { first.source } else { None };
        // One system call has one source address.
        let same = transmits.iter().take_while(|transmit| transmit.source == first.source).count();
        let sent = match transmits.get(..same) {
            Some(several @ [_, _, ..]) => self.send_several(several, source),
            _ => self.send_one(first, source),
        };
        match sent {
            // This machine has lost the address, so the system chooses another one. Linux has two errors for
            // that.
            Err(e) if source.is_some() && is_gone(&e) => self.send_one(first, None),
            sent => sent,
        }
    }

    fn send_one(&self, transmit: &Transmit, source: Option<IpAddr>) -> io::Result<usize> {
        if source.is_none() {
            return self.socket.try_send_to(&transmit.datagram, self.to(transmit.to)).map(|_| 1);
        }
        let datagram = quinn_udp::Transmit {
            destination: self.to(transmit.to),
            ecn: None,
            contents: &transmit.datagram,
            segment_size: None,
            src_ip: source,
        };
        let send = || self.batches.try_send(UdpSockRef::from(&self.socket), &datagram);
        self.socket.try_io(Interest::WRITABLE, send).map(|()| 1)
    }

    #[cfg(target_os = "linux")]
    fn send_several(&self, transmits: &[Transmit], source: Option<IpAddr>) -> io::Result<usize> {
        use std::os::fd::AsRawFd;

        use nix::libc;
        use nix::sys::socket::{ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg};
        let addresses: Vec<_> =
            transmits.iter().map(|t| Some(SockaddrStorage::from(self.to(t.to)))).collect();
        let slices: Vec<_> = transmits.iter().map(|t| [io::IoSlice::new(&t.datagram)]).collect();
        let send = |control: &[ControlMessage<'_>], room: Option<Vec<u8>>| {
            let mut headers = MultiHeaders::preallocate(transmits.len(), room);
            let fd = self.socket.as_raw_fd();
            let flags = MsgFlags::empty();
            let write = || Ok(sendmmsg(fd, &mut headers, &slices, &addresses, control, flags)?.count());
            self.socket.try_io(Interest::WRITABLE, write)
        };
        match source {
            None => send(&[], None),
            Some(IpAddr::V4(ip)) => {
                let ipi_spec_dst = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
                let ipi_addr = libc::in_addr { s_addr: 0 };
                let from = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr };
                let room = nix::cmsg_space!(libc::in_pktinfo);
                send(&[ControlMessage::Ipv4PacketInfo(&from)], Some(room))
            }
            Some(IpAddr::V6(ip)) => {
                let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
                let from = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                let room = nix::cmsg_space!(libc::in6_pktinfo);
                send(&[ControlMessage::Ipv6PacketInfo(&from)], Some(room))
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn send_several(&self, transmits: &[Transmit], source: Option<IpAddr>) -> io::Result<usize> {
        let mut sent = 0;
        for transmit in transmits {
            match self.send_one(transmit, source) {
                Ok(_) => sent += 1,
                Err(e) if sent == 0 => return Err(e),
                // The next call returns the error.
                Err(_) => break,
            }
        }
        Ok(sent)
    }
}

/// Whether this is how systems say that a source address is not this machine's.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, InvalidInput, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | InvalidInput | NetworkUnreachable)
}

/// Whether datagrams can leave from an address to which datagrams came: groups and networks have addresses,
/// too.
fn is_source(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_multicast() && !ip.is_unspecified() && !is_broadcast
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use dunlin::Local;

    use super::*;

    /// A socket at this address, which peers at 127.0.0.1 reach.
    async fn socket(listen: &str) -> Socket {
        Socket::new(UdpSocket::bind(listen).await.unwrap()).unwrap()
    }

    async fn peer() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").await.unwrap()
    }

    fn loopback(host: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, host).into()
    }

    fn transmit(source: Option<IpAddr>, to: &UdpSocket, byte: u8) -> Transmit {
        Transmit { local: Local::default(), source, to: to.local_addr().unwrap(), datagram: vec![byte] }
    }

    /// Sends all datagrams.
    async fn send(socket: &Socket, mut transmits: &[Transmit]) {
        while !transmits.is_empty() {
            std::future::poll_fn(|cx| socket.poll_writable(cx)).await;
            match socket.send(transmits) {
                Ok(sent) => transmits = &transmits[sent..],
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    /// The next datagram, and the address from which it came.
    async fn received(peer: &UdpSocket) -> (u8, IpAddr) {
        let mut byte = [0];
        let (_, from) = peer.recv_from(&mut byte).await.unwrap();
        (byte[0], from.ip())
    }

    #[tokio::test]
    async fn says_which_address_was_asked_and_shows_ipv4_addresses_as_such() {
        let mut buffers = Buffers::new();
        for (listen, tells) in [("0.0.0.0:0", true), ("[::]:0", true), ("127.0.0.2:0", false)] {
            let socket = socket(listen).await;
            let peer = peer().await;
            let port = socket.local_addr().unwrap().port();
            peer.send_to(&[7], (loopback(2), port)).await.unwrap();
            let mut paths = vec![];
            while paths.is_empty() {
                std::future::poll_fn(|cx| socket.poll_readable(cx)).await;
                let _ = socket.receive(&mut buffers, |path, _| paths.push(path));
            }
            let expected = Path { source: tells.then(|| loopback(2)), ..peer.local_addr().unwrap().into() };
            assert_eq!(paths, [expected], "{listen}");
        }
    }

    #[tokio::test]
    async fn sends_batches_from_several_addresses() {
        for listen in ["0.0.0.0:0", "[::]:0"] {
            let socket = socket(listen).await;
            let peers = [peer().await, peer().await];
            let of = |n: u8| {
                (Some(loopback(2 + n / 3 % 3)).filter(|_| !n.is_multiple_of(7)), &peers[usize::from(n % 2)])
            };
            let transmits: Vec<_> = (0..60).map(|n| transmit(of(n).0, of(n).1, n)).collect();
            send(&socket, &transmits).await;
            for n in 0..60 {
                assert_eq!(received(of(n).1).await, (n, of(n).0.unwrap_or(loopback(1))), "{listen}");
            }
        }
    }

    /// The loopback interface takes IPv6 datagrams of up to 65,488 bytes whole.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_system_fragments_long_datagrams_of_both_families() {
        for (listen, host) in [("0.0.0.0:0", "127.0.0.1:0"), ("[::]:0", "127.0.0.1:0"), ("[::]:0", "[::1]:0")]
        {
            let socket = socket(listen).await;
            let peer = UdpSocket::bind(host).await.unwrap();
            let from = peer.local_addr().unwrap().ip();
            for (source, several) in [(None, 1), (Some(from), 1), (Some(from), 2)] {
                let mut one = transmit(source, &peer, 7);
                one.datagram = vec![7; 65_507];
                send(&socket, &vec![one; several]).await;
                for _ in 0..several {
                    let mut received = vec![0; 65_536];
                    let receiving =
                        tokio::time::timeout(std::time::Duration::from_secs(10), peer.recv(&mut received));
                    assert_eq!(receiving.await.unwrap().unwrap(), 65_507, "{listen} {host}");
                }
            }
        }
    }

    #[tokio::test]
    async fn the_system_chooses_once_an_address_is_gone() {
        let gone = Some(Ipv4Addr::new(192, 0, 2, 1).into());
        for listen in ["0.0.0.0:0", "[::]:0"] {
            let socket = socket(listen).await;
            let peer = peer().await;
            let sources = [gone, Some(loopback(2)), gone, gone, Some(loopback(3))];
            let transmits: Vec<_> = (0..5).zip(sources).map(|(n, from)| transmit(from, &peer, n)).collect();
            send(&socket, &transmits).await;
            for (n, host) in (0..5).zip([1, 2, 1, 1, 3]) {
                assert_eq!(received(&peer).await, (n, loopback(host)), "{listen}");
            }
        }
    }
}
