//! Sorts packets into flows: TCP connections, and pairs of UDP endpoints.

use std::collections::HashMap;
use std::net::SocketAddr;

use pcap_file::DataLink;

use crate::bytes::{Bytes, Layer};
use crate::capture::Capture;
use crate::dtls;
use crate::packet::{self, Packet, Segment, Tcp};
use crate::stream::Stream;

/// The most flows to keep. Each takes about a thousand bytes of memory; captures of handshakes have far
/// fewer.
const MAX_FLOWS: usize = 1 << 16;

/// A packet of a flow. Lengths are in bytes.
pub(crate) struct FlowPacket {
    /// The number of its frame in the capture, from 1.
    pub(crate) frame: usize,
    pub(crate) time_us: u64,
    /// The end that sent it: its index in [`Flow::ends`].
    pub(crate) from: usize,
    pub(crate) link: usize,
    pub(crate) ip: usize,
    pub(crate) transport: usize,
    pub(crate) payload: usize,
    pub(crate) tcp: Option<Tcp>,
}

/// The payload of a flow.
pub(crate) enum Content<'a> {
    /// One stream for each end that sends.
    Tcp(Box<[Stream<'a>; 2]>),
    /// Datagrams in the order of the capture, each with its index in the list of packets.
    Udp(Vec<(usize, &'a [u8])>),
}

pub(crate) struct Flow<'a> {
    /// The end that sent the first packet, then the other one.
    pub(crate) ends: [SocketAddr; 2],
    pub(crate) packets: Vec<FlowPacket>,
    pub(crate) content: Content<'a>,
    /// The end that opened the TCP connection, if the capture has a SYN.
    pub(crate) opened_by: Option<usize>,
    /// The bytes of headers, retransmissions and anything else besides the new payload.
    pub(crate) bytes: Bytes,
    /// The sequence number of the SYN that opened the connection. A different one opens another connection.
    syn: Option<u32>,
    /// The random of the DTLS ClientHello. A different one begins another association.
    random: Option<[u8; 32]>,
}

/// The flows of a capture, and the bytes of frames outside all flows.
#[derive(Default)]
pub(crate) struct Flows<'a> {
    pub(crate) flows: Vec<Flow<'a>>,
    pub(crate) elsewhere: Bytes,
    /// How many packets belong to flows beyond the limit.
    beyond_limit: usize,
    /// How many frames hold a fragment of an IP packet.
    pieces: usize,
    /// How many frames hold each encapsulation that is not read, in the order of the first ones.
    wrapped: Vec<(&'static str, usize)>,
    /// The number of frames that the capture cut short, and the longest kept part of such a frame, in bytes.
    cut: usize,
    kept: usize,
    /// A link type that is not supported.
    foreign: Option<DataLink>,
    /// The newest flow between two ends: whether it is TCP, the lower address, the higher one.
    newest: HashMap<(bool, SocketAddr, SocketAddr), usize>,
}

impl<'a> Flows<'a> {
    pub(crate) fn of(capture: &Capture<'a>) -> Self {
        let mut flows = Self::default();
        for (index, frame) in capture.frames.iter().enumerate() {
            let packet = Packet::read(frame);
            let mut bytes = Bytes::default();
            bytes.add(Layer::Link, packet.link);
            bytes.add(Layer::Ip, packet.ip);
            bytes.add(Layer::Transport, packet.transport);
            bytes.add(Layer::Other, packet.other);
            bytes.add(Layer::NotCaptured, packet.not_captured);
            let segment = packet.segment.as_ref();
            match segment.and_then(|segment| Some((segment, flows.flow(segment)?))) {
                Some((segment, flow)) => {
                    flow.bytes += bytes;
                    flow.take(index + 1, frame.time_us, &packet, segment);
                }
                None => {
                    flows.elsewhere += bytes;
                    flows.elsewhere.add(Layer::Other, segment.map_or(0, |segment| segment.payload.len()));
                    flows.beyond_limit += usize::from(segment.is_some());
                }
            }
            flows.pieces += usize::from(packet.is_piece);
            if let Some(name) = packet.wrapped {
                match flows.wrapped.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, frames)) => *frames += 1,
                    None => flows.wrapped.push((name, 1)),
                }
            }
            if packet.not_captured > 0 {
                (flows.cut, flows.kept) = (flows.cut + 1, flows.kept.max(frame.data.len()));
            }
            flows.foreign = flows.foreign.or(Some(frame.link).filter(|link| !packet::is_read(*link)));
        }
        flows
    }

    /// The problem of a capture in which no flow has TLS or DTLS.
    pub(crate) fn nothing(&self) -> String {
        let wrapped: Vec<_> =
            self.wrapped.iter().map(|(name, frames)| format!("{name} (frames: {frames})")).collect();
        if wrapped.is_empty() {
            "it holds neither TLS nor DTLS".into()
        } else {
            format!("it holds {}, which is not read, and outside neither TLS nor DTLS", wrapped.join(", "))
        }
    }

    /// Describes the frames that were not read.
    pub(crate) fn unread(&self) -> impl Iterator<Item = String> {
        let foreign =
            self.foreign.map(|link| format!("frames of link type {} are not supported", u32::from(link)));
        let pieces = Some(self.pieces).filter(|pieces| *pieces > 0);
        let pieces =
            pieces.map(|n| format!("{n} frames hold fragments of IP packets, which are not reassembled"));
        let beyond = Some(self.beyond_limit).filter(|beyond| *beyond > 0);
        let beyond =
            beyond.map(|n| format!("{n} packets exceed the limit of {MAX_FLOWS} flows and were not read"));
        // The cause of most problems in the flows, so it comes first.
        let cut = Some(self.cut).filter(|cut| *cut > 0).map(|n| {
            let kept = self.kept;
            format!("{n} packets were cut at {kept} bytes; capture whole packets (tcpdump -s 0)")
        });
        cut.into_iter().chain(foreign).chain(pieces).chain(beyond)
    }

    /// The flow of a segment. A new one is made up to the limit.
    fn flow(&mut self, segment: &Segment<'_>) -> Option<&mut Flow<'a>> {
        let low = segment.from.min(segment.to);
        let high = segment.from.max(segment.to);
        let key = (segment.tcp.is_some(), low, high);
        let known = self.newest.get(&key).copied();
        let flows = &mut self.flows;
        let at = match known.filter(|at| flows.get(*at).is_some_and(|flow| flow.continues(segment))) {
            Some(at) => at,
            None if flows.len() == MAX_FLOWS => return None,
            None => {
                flows.push(Flow::new(segment));
                self.newest.insert(key, flows.len() - 1);
                flows.len() - 1
            }
        };
        flows.get_mut(at)
    }
}

impl<'a> Flow<'a> {
    fn new(segment: &Segment<'_>) -> Self {
        Self {
            ends: [segment.from, segment.to],
            packets: Vec::new(),
            content: match segment.tcp {
                Some(_) => Content::Tcp(Box::default()),
                None => Content::Udp(Vec::new()),
            },
            opened_by: None,
            bytes: Bytes::default(),
            syn: None,
            random: None,
        }
    }

    /// Whether these are datagrams without a ClientHello, which may belong to an association that has begun
    /// between other ends.
    pub(crate) const fn may_continue_another(&self) -> bool {
        matches!(self.content, Content::Udp(_)) && self.random.is_none()
    }

    /// Whether a segment belongs to this flow. Otherwise it begins another one between the same ports.
    fn continues(&self, segment: &Segment<'_>) -> bool {
        match segment.tcp {
            Some(Tcp { syn: true, ack: false, sequence, .. }) => {
                self.packets.is_empty() || self.syn == Some(sequence)
            }
            Some(_) => true,
            None => match (dtls::client_random(segment.payload), self.random) {
                // A ClientHello that returns a cookie repeats the first one's random (RFC 9147 §5.1, RFC 6347
                // §4.2.1).
                (Some(new), Some(known)) => new == known,
                _ => true,
            },
        }
    }

    fn take(&mut self, frame: usize, time_us: u64, packet: &Packet<'a>, segment: &Segment<'a>) {
        let from = usize::from(segment.from != self.ends[0]);
        let place = self.packets.len();
        self.packets.push(FlowPacket {
            frame,
            time_us,
            from,
            link: packet.link,
            ip: packet.ip,
            transport: packet.transport,
            payload: segment.payload.len(),
            tcp: segment.tcp,
        });
        match (&mut self.content, segment.tcp) {
            (Content::Tcp(streams), Some(tcp)) => {
                let mut sequence = tcp.sequence;
                if tcp.syn {
                    // A SYN occupies one sequence number (RFC 9293 §3.4).
                    sequence = sequence.wrapping_add(1);
                    streams[from].begin(sequence);
                    self.opened_by.get_or_insert(if tcp.ack { 1 - from } else { from });
                    if !tcp.ack {
                        self.syn = Some(tcp.sequence);
                    }
                }
                let repeated = streams[from].push(sequence, segment.payload, place);
                self.bytes.add(Layer::Retransmitted, repeated);
            }
            (Content::Udp(datagrams), _) => {
                datagrams.push((place, segment.payload));
                self.random = self.random.or_else(|| dtls::client_random(segment.payload));
            }
            (Content::Tcp(_), None) => self.bytes.add(Layer::Other, segment.payload.len()),
        }
    }
}
