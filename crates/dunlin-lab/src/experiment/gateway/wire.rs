//! A UDP socket that sends from many addresses of the loopback network.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

/// The room for the data that the kernel receives at once: the largest datagram, or several that it has
/// joined.
const ROOM: usize = 1 << 16;
/// The kernel's buffer, in bytes: it holds the datagrams that arrive while this process does other things.
const KERNEL_BUFFER: usize = 16 << 20;
/// The first of the addresses.
const FIRST: u32 = Ipv4Addr::new(127, 1, 0, 0).to_bits();

/// The socket. The number of a client is that of its address.
pub(super) struct Wire {
    socket: UdpSocket,
    batches: UdpSocketState,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        setsockopt(&socket, sockopt::RcvBufForce, &KERNEL_BUFFER)?;
        let batches = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { socket, batches, buffer: vec![0; BATCH_SIZE * ROOM] })
    }

    /// Waits up to `time` for datagrams, and passes each on with the number of its client.
    pub(super) fn receive(&mut self, time: Duration, mut f: impl FnMut(usize, &[u8])) -> io::Result<()> {
        let time = PollTimeout::from(u16::try_from(time.as_millis()).unwrap_or(u16::MAX));
        if poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], time)? == 0 {
            return Ok(());
        }
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut slices: Vec<_> = self.buffer.chunks_mut(ROOM).map(IoSliceMut::new).collect();
        let count = match self.batches.recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        for (meta, bytes) in metas.iter().take(count).zip(self.buffer.chunks(ROOM)) {
            let Some(IpAddr::V4(to)) = meta.dst_ip else { continue };
            let client = to.to_bits().wrapping_sub(FIRST) as usize;
            let bytes = bytes.get(..meta.len).unwrap_or_default();
            bytes.chunks(meta.stride.max(1)).for_each(|datagram| f(client, datagram));
        }
        Ok(())
    }

    /// Sends a datagram of a client.
    pub(super) fn send(&self, client: usize, to: SocketAddr, datagram: &[u8]) {
        let from = Ipv4Addr::from_bits(FIRST + u32::try_from(client).unwrap_or_default());
        let sent = Transmit {
            destination: to,
            ecn: None,
            contents: datagram,
            segment_size: None,
            src_ip: Some(from.into()),
        };
        // Other errors lose the datagram, as a network may.
        while let Err(error) = self.batches.try_send(UdpSockRef::from(&self.socket), &sent)
            && error.kind() == io::ErrorKind::WouldBlock
        {
            thread::yield_now();
        }
    }
}
