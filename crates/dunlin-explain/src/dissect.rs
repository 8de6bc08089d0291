//! Turns flows into an explanation: finds client and server, reads the records of both directions, counts all
//! bytes.

use std::collections::HashMap;

use dunlin::Side;
use dunlin::wire::HandshakeType;

use crate::Error;
use crate::bytes::{Bytes, Layer};
use crate::capture::Capture;
use crate::content;
use crate::dtls;
use crate::flow::{self, Content, FlowPacket, Flows};
use crate::keylog::KeyLog;
use crate::lines::Lines;
use crate::message::Dialect;
use crate::model::{Carrier, Explanation, Flow, FlowPath, MessageTotal, Packet, Record, side_name};
use crate::paths::{Joined, Paths};
use crate::session::Session;
use crate::stream::Stream;
use crate::tls;

/// The state that all flows of a capture share.
struct Dissector<'k> {
    key_logs: &'k [&'k KeyLog],
    lines: Lines,
    /// The time of the first frame, in microseconds since 1970.
    start_us: u64,
    problems: Vec<String>,
}

/// Explains a capture.
pub(crate) fn capture(capture: &Capture<'_>, key_logs: &[&KeyLog]) -> Explanation {
    let flows = Flows::of(capture);
    let mut dissector = Dissector {
        key_logs,
        lines: Lines::default(),
        start_us: capture.frames.first().map_or(0, |frame| frame.time_us),
        problems: capture.stopped.iter().cloned().chain(flows.unread()).collect(),
    };
    let mut explanation =
        Explanation { frames: capture.frames.len(), elsewhere: flows.elsewhere, ..Explanation::default() };
    explanation.bytes += flows.elsewhere;
    let mut paths = Paths::new(&flows.flows);
    for index in 0..flows.flows.len() {
        if let Some(flow) = dissector.flow(index, &mut paths) {
            explanation.bytes += flow.bytes;
            explanation.flows.push(flow);
        }
    }
    if explanation.flows.iter().all(|flow| flow.protocol.is_none()) {
        dissector.problems.push(flows.nothing());
    }
    explanation.problems = dissector.problems;
    explanation
}

/// Explains bytes that were given without packets.
pub(crate) fn bytes(bytes: &[u8], key_logs: &[&KeyLog]) -> Result<Explanation, Error> {
    let mut dissector = Dissector { key_logs, lines: Lines::default(), start_us: 0, problems: Vec::new() };
    let mut flow = Flow {
        carrier: Carrier::Bytes,
        client: None,
        server: None,
        protocol: None,
        version: None,
        cipher_suite: None,
        bytes: Bytes::default(),
        messages: Vec::new(),
        paths: Vec::new(),
        packets: Vec::new(),
        records: Vec::new(),
    };
    if tls::header(bytes).is_some() {
        let plain = [tls::plain_handshake(bytes), Vec::new()];
        let side = sender(&plain[0]).unwrap_or(Side::Client);
        let session = dissector.session(false, &plain);
        let mut stream = bytes.to_vec();
        let direction = tls::dissect(&session, side, &mut stream, &mut dissector.lines);
        dissector.report(&mut flow, side, &session, &direction);
        flow.records = direction.records.into_iter().map(|(_, record)| record).collect();
        flow.describe("TLS", &session);
    } else if dtls::begins(bytes) {
        let session = dissector.datagram_session([[bytes].as_slice(), &[]]);
        let side = if dtls::is_client_hello(bytes) { Side::Client } else { Side::Server };
        let mut direction = dtls::Direction::new(&session, side);
        let (records, rest) = direction.datagram(bytes, &mut dissector.lines);
        flow.records = records;
        flow.bytes.add(Layer::Other, rest);
        if rest > 0 {
            dissector.problems.push(format!("the last {rest} bytes are not a record"));
        }
        flow.describe("DTLS", &session);
    } else {
        let mut messages = content::Joiner::default();
        let is_message = bytes.first().is_some_and(|typ| is_message(HandshakeType(*typ)));
        let mut record = Record::new(sender(bytes).unwrap_or(Side::Server), "none".into(), 0);
        record.parts = messages.take(bytes, Dialect { is_13: true, is_datagram: false });
        if !is_message || messages.incomplete() > 0 {
            return Err(Error::NotTls);
        }
        flow.protocol = Some("TLS");
        flow.records = vec![record];
    }
    flow.account();
    Ok(Explanation {
        bytes: flow.bytes,
        flows: vec![flow],
        problems: dissector.problems,
        ..Explanation::default()
    })
}

/// Whether a message of this type can be on the wire: IANA's registry "TLS HandshakeType" has it, or
/// docs/identity.md. Names for display do not decide it.
const fn is_message(typ: HandshakeType) -> bool {
    matches!(typ.0, 0..=5 | 8..=16 | 20..=25 | 30..=35)
}

/// The side that sends these handshake bytes, judged by their first message.
pub(crate) fn sender(plain: &[u8]) -> Option<Side> {
    match HandshakeType(*plain.first()?) {
        HandshakeType::CLIENT_HELLO => Some(Side::Client),
        HandshakeType::SERVER_HELLO | HandshakeType(0) => Some(Side::Server),
        _ => None,
    }
}

impl<'k> Dissector<'k> {
    fn session(&self, is_datagram: bool, plain: &[Vec<u8>; 2]) -> Session<'k> {
        Session::new(is_datagram, plain, self.key_logs)
    }

    fn datagram_session(&self, datagrams: [&[&[u8]]; 2]) -> Session<'k> {
        let mut session = self.session(true, &[Vec::new(), Vec::new()]);
        for direction in datagrams {
            dtls::read_hellos(&mut session, direction.iter().copied());
        }
        session
    }

    /// Explains a flow, unless it belongs to an earlier one.
    fn flow(&mut self, index: usize, paths: &mut Paths<'_, '_>) -> Option<Flow> {
        let raw = paths.flows.get(index).filter(|_| !paths.is_joined(index))?;
        Some(match &raw.content {
            Content::Tcp(streams) => self.tcp(raw, streams),
            Content::Udp(datagrams) => self.udp(index, raw, datagrams, paths),
        })
    }

    fn tcp(&mut self, raw: &flow::Flow<'_>, streams: &[Stream<'_>; 2]) -> Flow {
        // Where records begin. A connection captured from its first byte is either TLS from there on, or not
        // TLS at all.
        let starts = streams.each_ref().map(|stream| match (tls::header(&stream.data), raw.opened_by) {
            (Some(_), _) => Some(0),
            (None, None) => tls::first_record(&stream.data),
            (None, Some(_)) => None,
        });
        let plain = [0, 1].map(|end| {
            let start = starts[end].unwrap_or(streams[end].data.len());
            tls::plain_handshake(streams[end].data.get(start..).unwrap_or_default())
        });
        let client = match plain.each_ref().map(|plain| sender(plain)) {
            [Some(Side::Client), _] | [_, Some(Side::Server)] => 0,
            [_, Some(Side::Client)] | [Some(Side::Server), _] => 1,
            _ => raw.client_by_ports(),
        };
        let mut flow = self.empty(raw, client, Carrier::Tcp);
        if starts == [None, None] {
            flow.bytes.add(Layer::Other, streams.iter().map(Stream::payload).sum());
            return flow;
        }
        let session = self.session(false, &plain);
        flow.describe("TLS", &session);
        let mut records = Vec::new();
        for (end, stream) in streams.iter().enumerate() {
            let side = side_of(end, client);
            let start = starts[end].unwrap_or(0);
            let mut data = stream.data.get(start..).unwrap_or_default().to_vec();
            if start > 0 {
                flow.bytes.add(Layer::Other, start);
                let cut = format!("the first {start} bytes belong to a record whose beginning is missing");
                self.problem(&flow, side, &cut);
            }
            let direction = tls::dissect(&session, side, &mut data, &mut self.lines);
            self.report(&mut flow, side, &session, &direction);
            if let Some((missing, waiting)) = stream.stranded() {
                flow.bytes.add(Layer::Other, waiting);
                let lost = format!("{missing} bytes are missing, and the {waiting} after them were not read");
                self.problem(&flow, side, &lost);
            }
            for (offset, record) in direction.records {
                records.push((stream.packet(start + offset), record));
            }
        }
        records.sort_by_key(|(packet, _)| *packet);
        flow.records = records.into_iter().map(|(place, record)| self.at(raw, place, record)).collect();
        flow.account();
        flow
    }

    fn udp(
        &mut self,
        index: usize,
        raw: &flow::Flow<'_>,
        datagrams: &[(usize, &[u8])],
        paths: &mut Paths<'_, '_>,
    ) -> Flow {
        let from = |place: usize| raw.packets.get(place).map_or(0, |packet| packet.from);
        let of = |end| -> Vec<&[u8]> {
            datagrams.iter().filter(|(place, _)| from(*place) == end).map(|(_, bytes)| *bytes).collect()
        };
        let hello = datagrams.iter().find(|(_, bytes)| dtls::is_client_hello(bytes));
        let client = hello.map_or_else(|| raw.client_by_ports(), |(place, _)| from(*place));
        let mut flow = self.empty(raw, client, Carrier::Udp);
        if !datagrams.iter().any(|(_, bytes)| dtls::begins(bytes)) {
            flow.bytes.add(Layer::Other, datagrams.iter().map(|(_, bytes)| bytes.len()).sum());
            return flow;
        }
        let first = of(0);
        let second = of(1);
        let mut session = self.datagram_session([&first, &second]);
        let answer =
            hello.filter(|_| session.awaits_server_hello()).and_then(|_| paths.answer(index, client));
        let answer = answer.and_then(|(at, client)| Some((at, client, paths.flows.get(at)?)));
        if let Some((_, client, raw)) = answer
            && let Content::Udp(datagrams) = &raw.content
        {
            let is_from_server =
                |place: usize| raw.packets.get(place).is_some_and(|packet| packet.from != client);
            let by_server = datagrams.iter().filter(|(place, _)| is_from_server(*place));
            dtls::read_hellos(&mut session, by_server.map(|(_, bytes)| *bytes));
        }
        flow.describe("DTLS", &session);
        let mut directions = [Side::Client, Side::Server].map(|side| dtls::Direction::new(&session, side));
        let mut unread = [0; 2];
        let mut joined = Joined::new(index, client, raw);
        if let Some((at, client, raw)) = answer {
            joined.decide(at, Some(client), raw);
        }
        for (of_flow, place, bytes) in paths.datagrams(index, hello.is_some()) {
            let Some(raw) = paths.flows.get(of_flow) else { continue };
            let Some(side) = joined.side(of_flow, raw, place, bytes, &mut directions) else { continue };
            let (records, rest) = directions[side as usize].datagram(bytes, &mut self.lines);
            flow.records.extend(records.into_iter().map(|record| self.at(raw, place, record)));
            flow.bytes.add(Layer::Other, rest);
            unread[side as usize] += usize::from(rest > 0);
        }
        self.join(&mut flow, &joined, paths);
        for (side, direction) in [Side::Client, Side::Server].into_iter().zip(&directions) {
            if unread[side as usize] > 0 {
                let what = format!("{} datagrams end in bytes that are not a record", unread[side as usize]);
                self.problem(&flow, side, &what);
            }
            self.sealed(&flow, side, &session, direction.sealed);
        }
        flow.account();
        flow
    }

    /// Adds the packets of further paths to a flow.
    fn join(&self, flow: &mut Flow, joined: &Joined, paths: &mut Paths<'_, '_>) {
        let mut others = joined.paths.iter().filter_map(|(of_flow, client)| Some((*of_flow, (*client)?)));
        let Some((main, client)) = others.next() else { return };
        let all: Vec<_> = [(main, client)].into_iter().chain(others).collect();
        if all.len() == 1 {
            return;
        }
        flow.packets.clear();
        for (number, (of_flow, client)) in all.into_iter().enumerate() {
            let Some(raw) = paths.flows.get(of_flow) else { continue };
            flow.paths.push(FlowPath { client: raw.ends[client], server: raw.ends[1 - client] });
            let packets = raw.packets.iter().map(|packet| self.packet(packet, client));
            flow.packets.extend(packets.map(|packet| Packet { path: Some(number + 1), ..packet }));
            if of_flow != main {
                flow.bytes += raw.bytes;
                paths.joined.insert(of_flow);
            }
        }
        flow.packets.sort_by_key(|packet| packet.frame);
    }

    /// A flow with its packets, before their payload is explained.
    fn empty(&self, raw: &flow::Flow<'_>, client: usize, carrier: Carrier) -> Flow {
        Flow {
            carrier,
            client: Some(raw.ends[client]),
            server: Some(raw.ends[1 - client]),
            protocol: None,
            version: None,
            cipher_suite: None,
            bytes: raw.bytes,
            messages: Vec::new(),
            paths: Vec::new(),
            packets: raw.packets.iter().map(|packet| self.packet(packet, client)).collect(),
            records: Vec::new(),
        }
    }

    fn packet(&self, packet: &FlowPacket, client: usize) -> Packet {
        let flags = packet.tcp.map_or_else(String::new, |tcp| {
            let begins_or_ends = tcp.syn || tcp.fin || tcp.rst;
            let flags =
                [(tcp.syn, "SYN"), (tcp.fin, "FIN"), (tcp.rst, "RST"), (tcp.ack && begins_or_ends, "ACK")];
            let set: Vec<_> = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
            set.join(" ")
        });
        Packet {
            frame: packet.frame,
            time_us: packet.time_us.saturating_sub(self.start_us),
            from: side_of(packet.from, client),
            path: None,
            link_bytes: packet.link,
            ip_bytes: packet.ip,
            transport_bytes: packet.transport,
            payload_bytes: packet.payload,
            flags,
        }
    }

    /// Enters into the record the packet that completed it.
    fn at(&self, raw: &flow::Flow<'_>, place: usize, mut record: Record) -> Record {
        if let Some(packet) = raw.packets.get(place) {
            record.frame = packet.frame;
            record.time_us = packet.time_us.saturating_sub(self.start_us);
        }
        record
    }

    /// Reports the problems of a direction, and counts the bytes that were not read.
    fn report(&mut self, flow: &mut Flow, side: Side, session: &Session<'_>, direction: &tls::Direction) {
        if let Some((rest, why)) = direction.rest {
            flow.bytes.add(Layer::Other, rest);
            self.problem(flow, side, &format!("{why}; the last {rest} bytes were not read"));
        }
        if direction.incomplete > 0 {
            self.problem(flow, side, "the stream ends in the middle of a handshake message");
        }
        self.sealed(flow, side, session, direction.sealed);
    }

    fn sealed(&mut self, flow: &Flow, side: Side, session: &Session<'_>, sealed: usize) {
        if sealed > 0
            && let Some(why) = session.why_sealed(side)
        {
            let records = if sealed == 1 { "record was" } else { "records were" };
            self.problem(flow, side, &format!("{sealed} {records} not decrypted: {why}"));
        }
    }

    fn problem(&mut self, flow: &Flow, side: Side, what: &str) {
        // A capture by an attacker may hold any number of flows. People read far fewer problems than this.
        const MAX_PROBLEMS: usize = 1 << 12;
        if self.problems.len() < MAX_PROBLEMS {
            let place = flow.ends().map_or_else(String::new, |ends| format!("{ends}, "));
            self.problems.push(format!("{place}from the {}: {what}", side_name(side)));
        }
    }
}

const fn side_of(end: usize, client: usize) -> Side {
    if end == client { Side::Client } else { Side::Server }
}

impl flow::Flow<'_> {
    /// Guesses the client where no hello tells: the end that sent the first SYN, else the one with the higher
    /// port.
    fn client_by_ports(&self) -> usize {
        self.opened_by.unwrap_or(usize::from(self.ends[0].port() < self.ends[1].port()))
    }
}

impl Flow {
    fn describe(&mut self, protocol: &'static str, session: &Session<'_>) {
        self.protocol = Some(protocol);
        self.version = session.version().map(|version| version.to_string());
        self.cipher_suite = session.suite_name();
    }

    /// Counts the bytes of the records, and sums up their messages.
    fn account(&mut self) {
        let mut places: HashMap<(Side, &str), usize> = HashMap::new();
        for record in &self.records {
            self.bytes.add(Layer::RecordHeader, record.header_bytes);
            self.bytes.add(Layer::Protection, record.protection_bytes);
            for part in &record.parts {
                self.bytes.add(part.layer, part.bytes);
                let place = *places.entry((record.from, &part.name)).or_insert_with(|| {
                    let name = part.name.clone();
                    self.messages.push(MessageTotal { from: record.from, name, count: 0, bytes: 0 });
                    self.messages.len() - 1
                });
                if let Some(total) = self.messages.get_mut(place) {
                    let is_whole = part.handshake_type.is_none() || part.message_bytes.is_some();
                    total.count += usize::from(is_whole);
                    total.bytes += part.bytes;
                }
            }
        }
    }
}
