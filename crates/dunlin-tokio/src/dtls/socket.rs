//! A UDP socket that takes and gives several datagrams in one system call.

use std::array;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use dunlin::Transmit;
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The room for one received datagram, or several that the kernel has joined, in bytes: the largest UDP payload.
const MAX_DATAGRAM: usize = 65_536;

/// The most datagrams that one system call takes.
pub(super) const SEND_BATCH: usize = 32;

/// The most datagrams that one system call gives, or groups of datagrams that the kernel has joined. A stranger's ClientHello costs some
/// ten microseconds, and in a flood of them other tasks wait for all that one call has given.
const RECEIVE_BATCH: usize = 8;
const _: () = assert!(RECEIVE_BATCH <= quinn_udp::BATCH_SIZE);

pub(super) struct Socket {
    socket: UdpSocket,
    batches: UdpSocketState,
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
        let socket = Self { socket, batches };
        socket.allow_fragments();
        Ok(socket)
    }

    /// Lets the system fragment IPv4 datagrams again, which quinn-udp forbids for QUIC. Here the MTU of the configuration decides.
    fn allow_fragments(&self) {
        #[cfg(target_os = "linux")]
        {
            use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
            // Without it, datagrams above the MTU of the interface are lost.
            let _ = set_ip_mtu_discover(&self.socket, Ipv4PathMtuDiscovery::WANT);
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The address to which the socket is connected.
    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// Ends the connection of the socket, which keeps its port. While it is connected, it sends only from the address that the system
    /// chose then, also after the machine has lost that address.
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

    /// Receives the datagrams that are there, as many as one system call gives. Returns their number.
    pub(super) fn receive(
        &self,
        buffers: &mut Buffers,
        mut f: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<usize> {
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
            let bytes = bytes.get(..meta.len).unwrap_or_default();
            if bytes.is_empty() {
                f(meta.addr, bytes);
                datagrams += 1;
            }
            // The kernel joins datagrams of equal length from one address; the last one may be shorter.
            for datagram in bytes.chunks(meta.stride.max(1)) {
                f(meta.addr, datagram);
                datagrams += 1;
            }
        }
        Ok(datagrams)
    }

    /// Sends datagrams, as many as one system call takes. Returns their number. An error is that of the first one.
    pub(super) fn send(&self, transmits: &[Transmit]) -> io::Result<usize> {
        match transmits {
            [] => Ok(0),
            [one] => self.socket.try_send_to(&one.datagram, one.to).map(|_| 1),
            several => self.send_several(several),
        }
    }

    #[cfg(target_os = "linux")]
    fn send_several(&self, transmits: &[Transmit]) -> io::Result<usize> {
        use rustix::net::SocketAddrAny;
        use rustix::net::addr::SocketAddrArg;
        use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
        let addresses: Vec<SocketAddrAny> = transmits.iter().map(|transmit| transmit.to.as_any()).collect();
        let slices: Vec<_> = transmits.iter().map(|t| [io::IoSlice::new(&t.datagram)]).collect();
        let mut controls: Vec<_> = transmits.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let parts = addresses.iter().zip(&slices).zip(&mut controls);
        let mut messages: Vec<_> =
            parts.map(|((to, slice), control)| MMsgHdr::new_with_addr(to, slice, control)).collect();
        self.socket
            .try_io(Interest::WRITABLE, || Ok(sendmmsg(&self.socket, &mut messages, SendFlags::empty())?))
    }

    #[cfg(not(target_os = "linux"))]
    fn send_several(&self, transmits: &[Transmit]) -> io::Result<usize> {
        let mut sent = 0;
        for transmit in transmits {
            match self.socket.try_send_to(&transmit.datagram, transmit.to) {
                Ok(_) => sent += 1,
                Err(e) if sent == 0 => return Err(e),
                // The next call returns the error.
                Err(_) => break,
            }
        }
        Ok(sent)
    }
}
