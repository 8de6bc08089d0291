//! A UDP socket that receives and sends several datagrams in one system call, for the servers and the client.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};

/// The room for what the kernel receives at once: the largest datagram, or several that it has joined. A
/// power of two would put the beginnings of all datagrams into the same few lines of the processor's cache.
const ROOM: usize = 65_536 + 4096 + 64;
/// The most datagrams that one system call sends.
const SEND_BATCH: usize = 64;

pub(super) struct Wire {
    pub(super) socket: UdpSocket,
    batches: UdpSocketState,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn new(address: &str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        let batches = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
        Self { socket, batches, buffer: vec![0; BATCH_SIZE * ROOM] }
    }

    /// Receives what is there: the sender, this side's address, the datagram. Waits up to 10 ms for a first
    /// one. Returns whether there was any.
    pub(super) fn receive(&mut self, mut f: impl FnMut(SocketAddr, Option<IpAddr>, &[u8])) -> bool {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut parts = self.buffer.chunks_mut(ROOM);
        let mut slices: [_; BATCH_SIZE] = std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap()));
        let Ok(count) = self.batches.recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas) else {
            let mut readable = [PollFd::new(&self.socket, PollFlags::IN)];
            let _ = poll(&mut readable, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
            return false;
        };
        for (meta, bytes) in metas[..count].iter().zip(self.buffer.chunks(ROOM)) {
            bytes[..meta.len].chunks(meta.stride.max(1)).for_each(|bytes| f(meta.addr, meta.dst_ip, bytes));
        }
        true
    }

    /// Sends datagrams to many peers.
    pub(super) fn send(&self, datagrams: &[(SocketAddr, Vec<u8>)]) {
        for datagrams in datagrams.chunks(SEND_BATCH) {
            let addresses: Vec<SocketAddrAny> = datagrams.iter().map(|(to, _)| to.as_any()).collect();
            let slices: Vec<_> = datagrams.iter().map(|(_, datagram)| [IoSlice::new(datagram)]).collect();
            let mut controls: Vec<_> = datagrams.iter().map(|_| SendAncillaryBuffer::default()).collect();
            let parts = addresses.iter().zip(&slices).zip(&mut controls);
            let mut messages: Vec<_> =
                parts.map(|((to, slice), control)| MMsgHdr::new_with_addr(to, slice, control)).collect();
            let mut rest = &mut messages[..];
            while !rest.is_empty() {
                // The socket does not take the first one, which is lost.
                let sent = sendmmsg(&self.socket, rest, SendFlags::empty()).unwrap_or(1).max(1);
                rest = &mut rest[sent..];
            }
        }
    }

    /// Sends a datagram from this address, which belongs to this machine.
    pub(super) fn send_from(&self, from: IpAddr, to: SocketAddr, datagram: &[u8]) {
        let sent = Transmit {
            destination: to,
            ecn: None,
            contents: datagram,
            segment_size: None,
            src_ip: Some(from),
        };
        while self.batches.try_send(UdpSockRef::from(&self.socket), &sent).is_err() {
            std::thread::yield_now();
        }
    }
}
