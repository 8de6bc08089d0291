//! Two ends of a connection over datagrams: on real sockets, or as frames from virtual time.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dunlin::{DtlsConnection, Side};
use dunlin_sim::{Endpoint, Sent};
use etherparse::{Ethernet2Slice, IpNumber, Ipv4Slice, PacketBuilder, UdpHeader, UdpHeaderSlice};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::Error;
use crate::capture::{Direction, Frame};
use crate::error::socket_failed;
use crate::net::{Namespace, Pair};

/// The bytes of the headers of IPv4 and UDP.
pub(super) const IP_AND_UDP: u16 = 20 + 8;
/// More than the largest datagram.
const BUFFER: usize = 1 << 16;
/// Room for the largest flight in the smallest datagrams, each of which takes hundreds of bytes in the
/// kernel.
const KERNEL_BUFFER: usize = 4 << 20;
/// Longer than any connection, even with large keys on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shorter than the first timeout of each stack.
const PAUSE: Duration = Duration::from_millis(900);

/// One end of a connection.
pub(super) trait Talking: Endpoint {
    fn connection(&self) -> &DtlsConnection;

    /// Whether it has nothing more to do.
    fn has_ended(&self) -> bool;
}

/// A connection that only completes its handshake.
impl Talking for DtlsConnection {
    fn connection(&self) -> &DtlsConnection {
        self
    }

    fn has_ended(&self) -> bool {
        // While a timer runs, the peer has not acknowledged everything.
        self.negotiated().is_some() && Self::poll_timeout(self).is_none()
    }
}

/// The sockets of both ends of a connection.
pub(super) struct Sockets {
    client: UdpSocket,
    server: UdpSocket,
    /// The addresses of client and server.
    pub(super) addresses: [SocketAddr; 2],
}

impl Sockets {
    /// Opens a socket in each namespace.
    pub(super) fn new(pair: &Pair) -> Result<Self, Error> {
        let open = |namespace: &Namespace, address| {
            let opened = namespace.run(|| {
                let socket = UdpSocket::bind((address, 0))?;
                setsockopt(&socket, sockopt::RcvBufForce, &KERNEL_BUFFER)?;
                socket.set_nonblocking(true)?;
                Ok::<_, std::io::Error>((socket.local_addr()?, socket))
            })?;
            opened.map_err(socket_failed)
        };
        let ((from, client), (to, server)) =
            (open(&pair.client, Pair::CLIENT)?, open(&pair.server, Pair::SERVER)?);
        Ok(Self { client, server, addresses: [from, to] })
    }

    /// Carries datagrams until both ends have ended.
    ///
    /// # Errors
    /// An end has failed, or does not end.
    pub(super) fn carry(
        &self,
        client: &mut impl Talking,
        server: &mut impl Talking,
        failed_end: impl Fn(&dyn std::fmt::Display) -> Error,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let mut buffer = vec![0; BUFFER];
        loop {
            flush(&self.client, client)?;
            flush(&self.server, server)?;
            let errors = [client.connection().error(), server.connection().error()];
            if let Some(error) = errors.into_iter().flatten().next() {
                return Err(failed_end(error));
            }
            if client.has_ended() && server.has_ended() {
                return Ok(());
            }
            let left = PATIENCE.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(failed_end(&"a connection does not end"));
            }
            let timers = [client.poll_timeout(), server.poll_timeout()].into_iter().flatten().min();
            let timer = timers.map(|at| at.since(dunlin_tokio::now().monotonic));
            self.wait(timer.map_or(left, |timer| timer.min(left)))?;
            step(&self.client, client, &mut buffer)?;
            step(&self.server, server, &mut buffer)?;
        }
    }

    /// Waits for a datagram.
    fn wait(&self, most: Duration) -> Result<(), Error> {
        let mut polled =
            [&self.client, &self.server].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        match ppoll(&mut polled, Some(TimeSpec::from(most)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(socket_failed(errno)),
        }
    }
}

/// Sends all waiting output.
fn flush(socket: &UdpSocket, end: &mut impl Endpoint) -> Result<(), Error> {
    while let Some(transmit) = end.poll_transmit(dunlin_tokio::now()) {
        socket.send_to(&transmit.datagram, transmit.to).map_err(socket_failed)?;
    }
    Ok(())
}

/// Handles the next datagram, if there is one, and the timers that have expired.
fn step(socket: &UdpSocket, end: &mut impl Endpoint, buffer: &mut [u8]) -> Result<(), Error> {
    match socket.recv_from(buffer) {
        Ok((len, from)) => end.receive(dunlin_tokio::now(), from, buffer.get(..len).unwrap_or_default()),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(socket_failed(error)),
    }
    let now = dunlin_tokio::now();
    if end.poll_timeout().is_some_and(|at| at <= now.monotonic) {
        end.handle_timeout(now);
    }
    Ok(())
}

/// Returns whether no stack has sent a datagram again. Each waits for a while before it does, and DTLS 1.2
/// shows which messages it repeats.
pub(super) fn is_undisturbed(frames: &[Frame]) -> bool {
    let is_brisk = frames.windows(2).all(|two| two[1].time.saturating_sub(two[0].time) < PAUSE);
    let mut seen = BTreeSet::new();
    is_brisk
        || frames.iter().filter_map(|frame| datagram(&frame.bytes)).all(|(ends, datagram)| {
            match (datagram.first(), datagram.get(3..5)) {
                // RFC 9147 §4: a record of DTLS 1.3 that hides its content.
                (Some(first), _) if first & 0b1110_0000 == 0b0010_0000 => false,
                (Some(22), Some([0, 0])) => {
                    // RFC 6347 §4.2.2: the type of the message, its number, and the offset of the fragment.
                    let message = [datagram.get(13..14), datagram.get(17..22)];
                    seen.insert((ends, message.into_iter().flatten().flatten().copied().collect::<Vec<_>>()))
                }
                // ChangeCipherSpec begins the last flight.
                (Some(20), Some([0, 0])) => seen.insert((ends, vec![])),
                _ => true,
            }
        })
}

/// The addresses of the datagram that begins in a frame, and its content.
fn datagram(frame: &[u8]) -> Option<([SocketAddr; 2], Vec<u8>)> {
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).ok()?;
    let ip = Ipv4Slice::from_slice(ethernet.payload_slice()).ok()?;
    let header = ip.header();
    let payload = ip.payload().payload;
    if ip.payload_ip_number() != IpNumber::UDP || header.fragments_offset().value() > 0 {
        return None;
    }
    let udp = UdpHeaderSlice::from_slice(payload).ok()?;
    let ends =
        [(header.source_addr(), udp.source_port()), (header.destination_addr(), udp.destination_port())];
    Some((ends.map(SocketAddr::from), payload.get(UdpHeader::LEN..)?.to_vec()))
}

/// Returns the frames of the datagrams that two ends have sent in virtual time, on Ethernet from the time
/// `start` on.
///
/// # Errors
/// A datagram is larger than the MTU, so that IP would split it.
pub(super) fn frames(
    sent: &[Sent],
    [client, server]: [SocketAddr; 2],
    start: Duration,
    mtu: u16,
) -> Result<Vec<Frame>, Error> {
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    let frame = |sent: &Sent| {
        let ((from, to), direction) = match sent.by {
            Side::Client => ((client, server), Direction::Sent),
            Side::Server => ((server, client), Direction::Received),
        };
        let packet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4(octets(from), octets(to), 64)
            .udp(from.port(), to.port());
        let too_large = |why: &dyn std::fmt::Display| Error::new("a datagram", why, "report this as a bug");
        if sent.packet.len() + usize::from(IP_AND_UDP) > usize::from(mtu) {
            return Err(too_large(&format_args!("of {} bytes exceeds MTU {mtu}", sent.packet.len())));
        }
        let mut bytes = Vec::new();
        packet.write(&mut bytes, &sent.packet).map_err(|error| too_large(&error))?;
        Ok(Frame { time: start + sent.after, direction, bytes })
    };
    sent.iter().map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::{Layers, connections};

    const ENDS: [SocketAddr; 2] = [dunlin_sim::CLIENT_ADDRESS, dunlin_sim::SERVER_ADDRESS];

    fn sent(by: Side, after: u64, len: usize) -> Sent {
        Sent { after: Duration::from_millis(after), by, packet: vec![7; len] }
    }

    #[test]
    fn frames_of_virtual_time_count_as_captured_ones() {
        let all = [sent(Side::Client, 0, 99), sent(Side::Server, 5, 20)];
        let frames = frames(&all, ENDS, Duration::from_secs(1), 127).unwrap();
        let counted = connections(&frames);
        let [connection] = &counted[..] else { panic!("{counted:?}") };
        let expected = |tls_bytes| Layers {
            packets: 1,
            link_bytes: 14,
            ip_bytes: 20,
            transport_bytes: 8,
            tls_bytes,
            ip_fragments: 0,
        };
        assert_eq!((connection.to_server, connection.to_client), (expected(99), expected(20)));
        assert!(super::frames(&[sent(Side::Client, 0, 100)], ENDS, Duration::ZERO, 127).is_err());
    }

    #[test]
    fn repeated_messages_and_hidden_ones_after_a_pause_disturb_a_measurement() {
        let frames = |after, packets: [&[u8]; 2]| {
            let sent = [(0, packets[0]), (after, packets[1])].map(|(after, packet)| Sent {
                after: Duration::from_millis(after),
                by: Side::Client,
                packet: packet.to_vec(),
            });
            frames(&sent, ENDS, Duration::ZERO, 127).unwrap()
        };
        let fragment = |number, offset| {
            let record = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 7, 0, 13];
            [&record[..], &[1, 0, 0, 50, 0, number, 0, 0, offset, 0, 0, 1, 9]].concat()
        };
        let first = fragment(0, 0);
        for other in [fragment(1, 0), fragment(0, 1), vec![23; 20]] {
            assert!(is_undisturbed(&frames(900, [&first, &other])));
        }
        for (one, two) in [
            (&first, &first),
            (&first, &vec![0x22; 20]),
            (&vec![20, 0xfe, 0xfd, 0, 0], &vec![20, 0xfe, 0xfd, 0, 0]),
        ] {
            assert!(!is_undisturbed(&frames(900, [one, two])));
            assert!(is_undisturbed(&frames(899, [one, two])));
        }
    }
}
