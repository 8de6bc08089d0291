//! Counts the bytes of a connection by layer, from its first packet on the link to its last.
//!
//! This module stops where TLS begins: inside `tls_bytes`, it reads only record headers. A dissector can read
//! the messages in the same frames.

use std::net::SocketAddrV4;
use std::ops::AddAssign;

use etherparse::{EtherType, Ethernet2Slice, IpNumber, Ipv4Slice, TcpHeaderSlice, UdpHeader, UdpHeaderSlice};

use crate::capture::Frame;

/// RFC 5246 §6.2.1: record types.
const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;

/// Bytes by layer. Their sum is all bytes on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// The number of frames, including pure acknowledgements and each fragment of an IP packet.
    pub packets: u64,
    /// Ethernet headers and padding.
    pub link_bytes: u64,
    /// IP headers.
    pub ip_bytes: u64,
    /// TCP or UDP headers, including options.
    pub transport_bytes: u64,
    /// The payload of TCP or UDP: TLS or DTLS records.
    pub tls_bytes: u64,
    /// The number of frames that carry a fragment of an IP packet, because the whole packet exceeds the MTU.
    pub ip_fragments: u64,
}

impl Layers {
    /// The sum of all layers.
    pub fn total_bytes(&self) -> u64 {
        self.link_bytes + self.ip_bytes + self.transport_bytes + self.tls_bytes
    }
}

impl AddAssign for Layers {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.link_bytes += other.link_bytes;
        self.ip_bytes += other.ip_bytes;
        self.transport_bytes += other.transport_bytes;
        self.tls_bytes += other.tls_bytes;
        self.ip_fragments += other.ip_fragments;
    }
}

/// The transport of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TLS.
    Tcp,
    /// DTLS.
    Udp,
}

/// A TCP connection, or the datagrams between two UDP ports.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The transport.
    pub transport: Transport,
    /// The sender of the first packet.
    pub client: SocketAddrV4,
    /// The receiver of the first packet.
    pub server: SocketAddrV4,
    /// The bytes that the client sent.
    pub to_server: Layers,
    /// The bytes that the server sent.
    pub to_client: Layers,
    /// The TCP payload in records of handshake messages and ChangeCipherSpec, with their headers: in TLS 1.2
    /// up to the last Finished, in TLS 1.3 only the plaintext records.
    pub handshake_bytes: u64,
    /// The number of packets with bytes that TCP had sent before. They are counted, so a figure with such
    /// packets is not exact.
    pub resent_packets: u64,
    reset: bool,
    sides: [Side; 2],
    /// The identifications of IP packets whose first fragment has passed, of the client and of the server.
    fragmented: [Option<u16>; 2],
}

/// The state of one side of a TCP connection.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// The sequence number after all sent data.
    next: Option<u32>,
    /// The sequence number after the FIN.
    end: Option<u32>,
    /// The last acknowledgement.
    acknowledged: Option<u32>,
    records: Records,
}

/// The position of one side in its stream of records.
#[derive(Clone, Copy, Debug, Default)]
struct Records {
    header: [u8; 5],
    /// The number of header bytes received.
    has: usize,
    /// The number of bytes of the current record still missing.
    left: u16,
}

impl Records {
    /// Adds the next bytes. Returns the bytes of handshake and ChangeCipherSpec records whose header ends in
    /// them.
    fn handshake_bytes(&mut self, part: &[u8]) -> u64 {
        let mut bytes = 0;
        for byte in part {
            if self.left > 0 {
                self.left -= 1;
                continue;
            }
            self.header[self.has] = *byte;
            self.has += 1;
            // RFC 5246 §6.2.1: type, version and length.
            if let ([typ, _, _, high, low], true) = (self.header, self.has == 5) {
                self.left = u16::from_be_bytes([high, low]);
                self.has = 0;
                if [CHANGE_CIPHER_SPEC, HANDSHAKE].contains(&typ) {
                    bytes += 5 + u64::from(self.left);
                }
            }
        }
        bytes
    }
}

impl Connection {
    /// Both directions together.
    pub fn layers(&self) -> Layers {
        let mut both = self.to_server;
        both += self.to_client;
        both
    }

    /// Returns whether the connection has ended: both sides have closed TCP and acknowledged it, or it was
    /// reset. UDP never ends.
    pub fn is_closed(&self) -> bool {
        let [client, server] = &self.sides;
        let finished = |side: &Side, other: &Side| {
            side.end.zip(other.acknowledged).is_some_and(|(end, acknowledged)| !is_before(acknowledged, end))
        };
        self.reset || finished(client, server) && finished(server, client)
    }

    /// Adds a segment.
    fn segment(&mut self, from_server: bool, header: &TcpHeaderSlice<'_>, data: &[u8]) {
        self.reset |= header.rst();
        let side = &mut self.sides[usize::from(from_server)];
        if header.ack() {
            side.acknowledged = Some(header.acknowledgment_number());
        }
        let first = header.sequence_number();
        // RFC 9293 §3.4: SYN and FIN take a sequence number each.
        let end = first.wrapping_add(data.len() as u32 + u32::from(header.syn()) + u32::from(header.fin()));
        if header.fin() {
            side.end = Some(end);
        }
        if end != first && side.next.is_some_and(|next| is_before(first, next)) {
            self.resent_packets += 1;
        } else {
            self.handshake_bytes += side.records.handshake_bytes(data);
        }
        if side.next.is_none_or(|next| is_before(next, end)) {
            side.next = Some(end);
        }
    }
}

/// RFC 9293 §3.4: sequence numbers are compared modulo 2³².
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > 1 << 31
}

/// Returns the captured IPv4 connections in the order of their first packets. Other frames, such as ARP, are
/// ignored.
pub fn connections(frames: &[Frame]) -> Vec<Connection> {
    let mut connections = Vec::new();
    for frame in frames {
        count(&mut connections, &frame.bytes);
    }
    connections
}

fn count(connections: &mut Vec<Connection>, frame: &[u8]) -> Option<()> {
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).ok()?;
    if ethernet.ether_type() != EtherType::IPV4 {
        return None;
    }
    let ip = Ipv4Slice::from_slice(ethernet.payload_slice()).ok()?;
    let header = ip.header();
    let payload = ip.payload().payload;
    let transport = match ip.payload_ip_number() {
        IpNumber::TCP => Transport::Tcp,
        IpNumber::UDP => Transport::Udp,
        _ => return None,
    };
    let total = usize::from(header.total_len());
    let mut layers = Layers {
        packets: 1,
        link_bytes: (frame.len() - total) as u64,
        ip_bytes: (total - payload.len()) as u64,
        ip_fragments: u64::from(header.is_fragmenting_payload()),
        ..Layers::default()
    };
    let from = header.source_addr();
    let to = header.destination_addr();
    if header.fragments_offset().value() > 0 {
        // A later fragment names its connection only by its identification.
        layers.tls_bytes = payload.len() as u64;
        let identification = Some(header.identification());
        let (connection, from_server) = connections.iter_mut().rev().find_map(|connection| {
            let ips = (*connection.client.ip(), *connection.server.ip());
            let from_server = if ips == (from, to) { false } else { (ips == (to, from)).then_some(true)? };
            let ours = connection.transport == transport
                && connection.fragmented[usize::from(from_server)] == identification;
            ours.then_some((connection, from_server))
        })?;
        *connection.direction(from_server) += layers;
        return Some(());
    }
    let tcp = (transport == Transport::Tcp).then(|| TcpHeaderSlice::from_slice(payload)).transpose().ok()?;
    let (source, destination, len) = match &tcp {
        Some(tcp) => (tcp.source_port(), tcp.destination_port(), tcp.slice().len()),
        None => {
            let udp = UdpHeaderSlice::from_slice(payload).ok()?;
            (udp.source_port(), udp.destination_port(), UdpHeader::LEN)
        }
    };
    layers.transport_bytes = len as u64;
    layers.tls_bytes = (payload.len() - len) as u64;
    let from = SocketAddrV4::new(from, source);
    let to = SocketAddrV4::new(to, destination);
    let begins = tcp.as_ref().is_some_and(|tcp| tcp.syn() && !tcp.ack());
    let (connection, from_server) = find(connections, transport, from, to, begins);
    *connection.direction(from_server) += layers;
    if header.more_fragments() {
        connection.fragmented[usize::from(from_server)] = Some(header.identification());
    }
    if let Some(tcp) = tcp {
        connection.segment(from_server, &tcp, payload.get(len..).unwrap_or_default());
    }
    Some(())
}

/// Finds the connection of a packet, and whether the packet comes from the server. A packet that `begins` a
/// connection never belongs to a closed one between the same ports.
fn find(
    connections: &mut Vec<Connection>,
    transport: Transport,
    from: SocketAddrV4,
    to: SocketAddrV4,
    begins: bool,
) -> (&mut Connection, bool) {
    let known = connections.iter().rposition(|connection| {
        let ends = (connection.client, connection.server);
        connection.transport == transport
            && (ends == (from, to) || ends == (to, from))
            && !(begins && connection.is_closed())
    });
    let index = known.unwrap_or_else(|| {
        connections.push(Connection {
            transport,
            client: from,
            server: to,
            to_server: Layers::default(),
            to_client: Layers::default(),
            handshake_bytes: 0,
            resent_packets: 0,
            reset: false,
            sides: Default::default(),
            fragmented: [None; 2],
        });
        connections.len() - 1
    });
    let connection = &mut connections[index];
    let from_server = connection.server == from;
    (connection, from_server)
}

impl Connection {
    fn direction(&mut self, from_server: bool) -> &mut Layers {
        if from_server { &mut self.to_client } else { &mut self.to_server }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etherparse::{PacketBuilder, PacketBuilderStep, TcpHeader};

    use super::*;
    use crate::capture::Direction;

    const CLIENT: ([u8; 4], u16) = ([10, 77, 0, 1], 50000);
    const SERVER: ([u8; 4], u16) = ([10, 77, 0, 2], 4433);

    fn frame(bytes: Vec<u8>) -> Frame {
        Frame { time: Duration::ZERO, direction: Direction::Sent, bytes }
    }

    fn ip(from: [u8; 4], to: [u8; 4]) -> PacketBuilderStep<etherparse::IpHeaders> {
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64)
    }

    /// A segment of one side; `flags` consists of the letters S, F, R and A.
    fn tcp(from_client: bool, flags: &str, sequence: u32, acknowledgement: u32, payload: &[u8]) -> Frame {
        let (from, to) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let mut header = TcpHeader::new(from.1, to.1, sequence, 64000);
        header.syn = flags.contains('S');
        header.fin = flags.contains('F');
        header.rst = flags.contains('R');
        header.ack = flags.contains('A');
        header.acknowledgment_number = acknowledgement;
        let mut bytes = Vec::new();
        ip(from.0, to.0).tcp_header(header).write(&mut bytes, payload).unwrap();
        frame(bytes)
    }

    fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Frame {
        let mut bytes = Vec::new();
        ip(from.0, to.0).udp(from.1, to.1).write(&mut bytes, payload).unwrap();
        frame(bytes)
    }

    #[test]
    fn counts_a_connection_from_syn_to_the_last_acknowledgement() {
        // The client's numbers begin just below 2³², so that they wrap.
        let c = u32::MAX - 2;
        let frames = [
            tcp(true, "S", c, 0, b""),
            tcp(false, "SA", 100, c.wrapping_add(1), b""),
            tcp(true, "A", c.wrapping_add(1), 101, b"hello"),
            tcp(false, "FA", 101, c.wrapping_add(6), b"good bye"),
            tcp(true, "FA", c.wrapping_add(6), 110, b""),
            tcp(false, "A", 110, c.wrapping_add(7), b""),
        ];
        let all = connections(&frames);
        let [connection] = &all[..] else { panic!("{all:?}") };
        assert_eq!(connection.client.ip().octets(), CLIENT.0);
        assert_eq!(connection.server.port(), 4433);
        let expected = |packets, tls_bytes| Layers {
            packets,
            link_bytes: packets * 14,
            ip_bytes: packets * 20,
            transport_bytes: packets * 20,
            tls_bytes,
            ip_fragments: 0,
        };
        assert_eq!((connection.to_server, connection.to_client), (expected(3, 5), expected(3, 8)));
        assert_eq!(
            connection.layers().total_bytes(),
            frames.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>()
        );
        assert_eq!(connection.resent_packets, 0);
        assert!(connection.is_closed());
        assert!(!connections(&frames[..5])[0].is_closed(), "the FIN of the client is not acknowledged");
    }

    #[test]
    fn detects_retransmissions() {
        let again = tcp(true, "A", 2, 1, b"hello");
        let frames = [tcp(true, "S", 1, 0, b""), again.clone(), tcp(true, "A", 7, 1, b""), again];
        assert_eq!(connections(&frames)[0].resent_packets, 1);
    }

    #[test]
    fn recognises_handshake_records_across_segments() {
        let record = |typ, len: u8| [&[typ, 3, 3, 0, len][..], &vec![HANDSHAKE; len.into()]].concat();
        let stream = [record(22, 40), record(20, 1), record(22, 0), record(23, 22), record(21, 26)].concat();
        for size in [1, 4, 5, 7, stream.len()] {
            let frames = stream
                .chunks(size)
                .enumerate()
                .map(|(number, part)| tcp(true, "A", (size * number) as u32, 1, part));
            let all = connections(&frames.chain([tcp(false, "A", 1, 9, &record(22, 9))]).collect::<Vec<_>>());
            assert_eq!(all[0].handshake_bytes, 3 * 5 + 41 + 5 + 9, "in segments of {size}");
        }
    }

    #[test]
    fn reset_ends_a_connection() {
        let syn = tcp(true, "S", 1, 0, b"");
        let frames = [syn.clone(), tcp(false, "RA", 0, 2, b""), syn];
        let all = connections(&frames);
        assert_eq!(all.iter().map(Connection::is_closed).collect::<Vec<_>>(), [true, false]);
        assert_eq!(all.iter().map(|connection| connection.layers().packets).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn separates_datagrams_by_ports() {
        let other = (CLIENT.0, 50001);
        let frames = [udp(CLIENT, SERVER, b"one"), udp(other, SERVER, b"three"), udp(SERVER, CLIENT, b"two")];
        let all = connections(&frames);
        let [first, second] = &all[..] else { panic!("{all:?}") };
        assert_eq!((first.to_server.tls_bytes, first.to_client.tls_bytes), (3, 3));
        assert_eq!((second.to_server.tls_bytes, second.to_client), (5, Layers::default()));
        assert_eq!(first.to_server.transport_bytes, 8);
        assert!(!first.is_closed());
    }

    #[test]
    fn assigns_fragments_to_their_datagram() {
        let mut first = udp(CLIENT, SERVER, &[0; 40]);
        let more = 0x20;
        first.bytes[14 + 4..][..4].copy_from_slice(&[0, 9, more, 0]);
        let mut rest = udp(CLIENT, SERVER, &[0; 4]);
        // 48 bytes of the datagram, including its UDP header, precede this fragment: six units of eight.
        rest.bytes[14 + 4..][..4].copy_from_slice(&[0, 9, 0, 6]);
        let all = connections(&[first.clone(), rest.clone()]);
        let [connection] = &all[..] else { panic!("{all:?}") };
        let expected = Layers {
            packets: 2,
            link_bytes: 28,
            ip_bytes: 40,
            transport_bytes: 8,
            tls_bytes: 52,
            ip_fragments: 2,
        };
        assert_eq!(connection.to_server, expected);
        rest.bytes[14 + 5] = 10;
        assert_eq!(connections(&[first, rest])[0].to_server.packets, 1, "a fragment of another datagram");
    }

    #[test]
    fn counts_padding_for_the_link() {
        let mut padded = udp(CLIENT, SERVER, b"x");
        padded.bytes.resize(60, 0);
        let counted = connections(&[padded])[0].to_server;
        assert_eq!(
            counted,
            Layers {
                packets: 1,
                link_bytes: 31,
                ip_bytes: 20,
                transport_bytes: 8,
                tls_bytes: 1,
                ip_fragments: 0
            }
        );
    }

    #[test]
    fn ignores_other_frames() {
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        let whole = tcp(true, "S", 1, 0, b"").bytes;
        let cut = (0..whole.len()).map(|len| frame(whole[..len].to_vec()));
        let frames: Vec<_> = cut.chain([frame(arp)]).collect();
        assert!(connections(&frames).is_empty());
    }
}
