//! Packets sorted into flows: connections of TCP, and pairs of ends that exchange UDP.

use std::collections::HashMap;
use std::net::SocketAddr;

use pcap_file::DataLink;

use crate::bytes::{Bytes, Layer};
use crate::capture::Capture;
use crate::dtls;
use crate::packet::{self, Packet, Segment, Tcp};
use crate::stream::Stream;

/// More flows than a capture of handshakes has; each takes a thousand bytes of memory.
const MAX_FLOWS: usize = 1 << 16;

/// A packet of a flow. Lengths are in bytes.
pub(crate) struct FlowPacket {
    /// The number of its frame in the capture, from 1.
    pub(crate) frame: usize,
    pub(crate) time_us: u64,
    /// Which of the ends sent it.
    pub(crate) from: usize,
    pub(crate) link: usize,
    pub(crate) ip: usize,
    pub(crate) transport: usize,
    pub(crate) payload: usize,
    pub(crate) tcp: Option<Tcp>,
}

/// What a flow carries, by the end that sent it.
pub(crate) enum Content<'a> {
    Tcp(Box<[Stream<'a>; 2]>),
    /// Datagrams in the order of the capture, with their place in the list of packets.
    Udp(Vec<(usize, &'a [u8])>),
}

pub(crate) struct Flow<'a> {
    /// Who sent the first packet, and the other one.
    pub(crate) ends: [SocketAddr; 2],
    pub(crate) packets: Vec<FlowPacket>,
    pub(crate) content: Content<'a>,
    /// Which end opened the connection, where TCP says it.
    pub(crate) opened_by: Option<usize>,
    /// Headers, and what is not the payload of a stream.
    pub(crate) bytes: Bytes,
    /// The sequence number of the first SYN of the end that opened it: another one begins another connection.
    syn: Option<u32>,
    /// The same of DTLS: the random of its ClientHello.
    random: Option<[u8; 32]>,
}

/// The flows of a capture, and the bytes of the frames that belong to none.
#[derive(Default)]
pub(crate) struct Flows<'a> {
    pub(crate) flows: Vec<Flow<'a>>,
    pub(crate) elsewhere: Bytes,
    /// How many packets are of flows beyond the limit.
    untold: usize,
    /// How many frames hold a piece of an IP packet.
    pieces: usize,
    /// A link whose frames are not read.
    foreign: Option<DataLink>,
    /// The newest flow between two ends, the lower one first.
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
                    flows.untold += usize::from(segment.is_some());
                }
            }
            flows.pieces += usize::from(packet.is_piece);
            flows.foreign = flows.foreign.or(Some(frame.link).filter(|link| !packet::is_read(*link)));
        }
        flows
    }

    /// What of the frames is not read, in words.
    pub(crate) fn unread(&self) -> impl Iterator<Item = String> {
        let foreign =
            self.foreign.map(|link| format!("frames of the link type {} are not read", u32::from(link)));
        let pieces = Some(self.pieces).filter(|pieces| *pieces > 0);
        let pieces =
            pieces.map(|n| format!("{n} frames hold pieces of IP packets, which are not put together"));
        let untold = Some(self.untold).filter(|untold| *untold > 0);
        let untold =
            untold.map(|n| format!("{n} packets are of more than {MAX_FLOWS} flows and were not read"));
        foreign.into_iter().chain(pieces).chain(untold)
    }

    /// The flow of a segment, or a new one while there may be more.
    fn flow(&mut self, segment: &Segment<'_>) -> Option<&mut Flow<'a>> {
        let (low, high) = (segment.from.min(segment.to), segment.from.max(segment.to));
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

    /// Whether a segment belongs to this connection, and does not begin another one between the same ports.
    fn continues(&self, segment: &Segment<'_>) -> bool {
        match segment.tcp {
            Some(Tcp { syn: true, ack: false, sequence, .. }) => {
                self.packets.is_empty() || self.syn == Some(sequence)
            }
            Some(_) => true,
            None => match (dtls::client_random(segment.payload), self.random) {
                // RFC 9147 §5.1, RFC 6347 §4.2.1: a ClientHello that answers a cookie has the random of the first.
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
                    // RFC 9293 §3.4: a SYN takes a sequence number of its own.
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
