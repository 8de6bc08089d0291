//! The target `record`: two record layers without a handshake, and a path between them that drops,
//! duplicates, delays, damages and forges records.
//!
//! Without forgeries, everything that arrives was sent: messages in order, over datagrams with gaps only at
//! the end, and data at most once. Whatever arrives, a record layer stores no more than its limits allow.

use dunlin::TransportKind;
use dunlin::crypto::Tls13CipherSuite;
use dunlin::fuzzing::{Carried, RecordLayer};

use crate::MEMORY;
use crate::script::Script;

/// The memory that the two record layers may use, in bytes: 64 kB each of records, of data and of early
/// messages, a message of 64 kB, and what the script has given to the sender: 192 kB of messages and 64
/// datagrams of 2 kB.
const MAX_HELD: isize = 1 << 20;
/// The number of messages and pieces of data that a script can send.
const MAX_SENT: usize = 32;
/// The number of datagrams on the way.
const MAX_FLYING: usize = 64;
/// A datagram is lost if this many records have overtaken it, and confuses the receiver if it arrives this
/// many records too early. Without encryption, a datagram opens under every number that its header can stand
/// for, and a header may have only eight bits of the number (RFC 9147 §4.2.2).
const MAX_DISORDER: usize = 100;
/// The shortest record: two bytes of header, the header of a fragment, its type, and a tag of eight bytes.
const MIN_RECORD: usize = 23;

struct Path<'s> {
    script: Script<'s>,
    kind: TransportKind,
    suite: &'static Tls13CipherSuite,
    sender: RecordLayer,
    receiver: RecordLayer,
    /// Datagrams on the way, each with the greatest number of records that can have been sent by its end.
    flying: Vec<(usize, Vec<u8>)>,
    sent: usize,
    /// The highest of these numbers among the delivered datagrams.
    delivered: usize,
    messages: Vec<Vec<u8>>,
    data: Vec<Vec<u8>>,
    /// The number of messages that have arrived.
    arrived: usize,
    /// The bytes of data that have arrived, on a stream.
    bytes: usize,
    /// Whether a delivered packet differs from what the sender sent.
    is_forged: bool,
    /// Whether both ends use the same keys.
    in_step: bool,
    may_send_data: bool,
    is_over: bool,
}

/// Runs the target. Returns whether a message or data arrived.
pub fn run(input: &[u8]) -> bool {
    let before = MEMORY.allocated() as isize;
    let provider = dunlin_null::null_provider();
    let mut script = Script::new(input);
    let kind = if script.flag() { TransportKind::Datagram } else { TransportKind::Stream };
    let suite = provider.cipher_suites[usize::from(script.u8()) % provider.cipher_suites.len()];
    let mtu = 64 + usize::from(script.u8()) * 8;
    let mut path = Path {
        script,
        kind,
        suite,
        sender: RecordLayer::new(kind, mtu),
        receiver: RecordLayer::new(kind, mtu),
        flying: Vec::new(),
        sent: 0,
        delivered: 0,
        messages: Vec::new(),
        data: Vec::new(),
        arrived: 0,
        bytes: 0,
        is_forged: false,
        in_step: true,
        may_send_data: false,
        is_over: false,
    };
    // Data are sent only under keys, so most scripts begin with keys.
    if path.script.flag() {
        for application in [false, true] {
            path.keys(application);
        }
        path.sender.complete();
        path.receiver.complete();
    }
    while !path.script.is_empty() && !path.is_over {
        path.step();
        path.collect();
        let held = MEMORY.allocated() as isize - before - path.own();
        assert!(held < MAX_HELD, "{held} bytes are held");
    }
    while !path.flying.is_empty() && !path.is_over {
        path.deliver(0);
        path.collect();
    }
    path.arrived > 0 || path.bytes > 0
}

impl Path<'_> {
    /// The memory that the script itself uses, in bytes.
    fn own(&self) -> isize {
        let flying = self.flying.iter().map(|(_, packet)| packet);
        flying.chain(&self.messages).chain(&self.data).map(Vec::capacity).sum::<usize>() as isize
    }

    fn step(&mut self) {
        match self.script.u8() % 16 {
            0 | 1 => self.message(),
            2 => {
                let data = self.script.bytes().to_vec();
                if self.may_send_data
                    && self.data.len() < MAX_SENT
                    && let Ok(taken) = self.sender.data(&data)
                    && taken > 0
                {
                    self.data.push(data[..taken].to_vec());
                }
            }
            3 => {
                let _ = self.sender.flush();
            }
            4 | 5 => {
                let which = self.script.below(self.flying.len());
                self.deliver(which);
            }
            // Delivers a copy later.
            6 => {
                let which = self.script.below(self.flying.len());
                if let Some(packet) = self.flying.get(which).cloned()
                    && self.kind == TransportKind::Datagram
                {
                    self.flying.push(packet);
                }
            }
            // Loses a packet. On a stream, that is a forgery.
            7 => {
                let which = self.script.below(self.flying.len());
                if which < self.flying.len() {
                    self.is_forged |= self.kind == TransportKind::Stream;
                    self.flying.remove(which);
                }
            }
            8 => {
                let which = self.script.below(self.flying.len());
                let at = self.script.u16();
                let value = self.script.u8();
                if let Some((_, packet)) = self.flying.get_mut(which)
                    && let Some(at) = usize::from(at).checked_rem(packet.len())
                {
                    self.is_forged = true;
                    packet[at] = value;
                }
            }
            9 => {
                self.is_forged = true;
                let bytes = self.script.bytes().to_vec();
                self.flying.push((self.sent, bytes));
            }
            10 => {
                let application = self.script.flag();
                self.keys(application);
            }
            11 => {
                let content = usize::from(self.script.u16()).clamp(63, 1 << 14);
                self.sender.limit(content, true);
                self.receiver.limit(content, false);
                // Packets that are already on the way may be longer.
                self.is_forged |= !self.flying.is_empty() || self.kind == TransportKind::Stream;
            }
            12 => {
                let _ = self.sender.alert(self.script.u8());
            }
            13 => self.receiver.skip_early_data(),
            14 => {
                self.sender.complete();
                self.receiver.complete();
            }
            _ => self.acknowledge(),
        }
    }

    /// Sends a message of any type except KeyUpdate, which belongs to a change of keys.
    fn message(&mut self) {
        const KEY_UPDATE: u8 = 24;
        let typ = self.script.u8();
        let typ = if typ == KEY_UPDATE { 1 } else { typ };
        let len = usize::from(self.script.u16()) % 0x1800;
        let [_, _, a, b] = (len as u32).to_be_bytes();
        let body: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ typ).collect();
        let message = [&[typ, 0, a, b], &body[..]].concat();
        if self.messages.len() < MAX_SENT && self.sender.message(message.clone()).is_ok() {
            self.messages.push(message);
        }
    }

    /// Sets new keys at both ends between flights, as the handshake does. If packets are on the way, the two
    /// ends do not have the same keys any more.
    fn keys(&mut self, application: bool) {
        if self.kind == TransportKind::Datagram && !self.sender.may_change_keys() {
            return;
        }
        self.in_step &= self.flying.is_empty() && self.sender.flush().is_ok();
        self.collect();
        while !self.flying.is_empty() && !self.is_over {
            self.deliver(0);
            self.collect();
        }
        // A flight of more datagrams than may be late has lost some.
        self.in_step &= self.arrived == self.messages.len();
        if self.is_over || self.sender.keys(self.suite, application, true).is_err() {
            self.is_over = true;
            return;
        }
        self.is_over |= self.receiver.keys(self.suite, application, false).is_err();
        self.may_send_data = application;
        // After the first application keys, the sender uses new keys once the KeyUpdate is acknowledged.
        self.in_step &= self.sender.may_change_keys();
    }

    /// Sends the receiver's acknowledgements.
    fn acknowledge(&mut self) {
        while let Some(packet) = self.receiver.transmit() {
            self.sender.push(&packet);
            if self.sender.next().is_err() {
                self.is_over = true;
                return;
            }
        }
    }

    /// Puts the sender's output on its way.
    fn collect(&mut self) {
        while self.flying.len() < MAX_FLYING
            && let Some(packet) = self.sender.transmit()
        {
            self.sent += 1 + packet.len() / MIN_RECORD;
            self.flying.push((self.sent, packet));
        }
    }

    fn deliver(&mut self, which: usize) {
        if which >= self.flying.len() {
            return;
        }
        // A stream keeps its order.
        let which = if self.kind == TransportKind::Stream { 0 } else { which };
        let (number, packet) = self.flying.remove(which);
        if self.kind == TransportKind::Datagram {
            if self.delivered.saturating_sub(number) > MAX_DISORDER {
                return;
            }
            self.in_step &= number.saturating_sub(self.delivered) <= MAX_DISORDER;
            self.delivered = self.delivered.max(number);
        }
        let mut rest = &packet[..];
        while !rest.is_empty() && !self.is_over {
            let taken = self.receiver.push(rest);
            rest = &rest[taken..];
            self.receive();
            assert!(taken > 0 || self.is_over, "all received data are read, but there is no room");
        }
        if packet.is_empty() {
            self.receive();
        }
    }

    fn receive(&mut self) {
        let is_honest = !self.is_forged && self.in_step;
        loop {
            match self.receiver.next() {
                Ok(Some(Carried::Message(message))) => {
                    let sent = self.messages.get(self.arrived);
                    assert!(!is_honest || sent == Some(&message), "a message changed or was never sent");
                    self.arrived += 1;
                }
                Ok(Some(Carried::Alert(_) | Carried::Acknowledgement)) => {}
                Ok(Some(Carried::PeerMoved)) => panic!("every record came from the same address"),
                Ok(None) => match self.receiver.read() {
                    Some(data) => self.data(&data, is_honest),
                    None => return,
                },
                Err(error) => {
                    assert!(!is_honest, "an unchanged record is refused: {error:?}");
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    fn data(&mut self, data: &[u8], is_honest: bool) {
        if !is_honest {
            self.bytes += data.len();
            return;
        }
        match self.kind {
            TransportKind::Stream => {
                let sent = self.data.concat();
                let end = self.bytes + data.len();
                assert_eq!(sent.get(self.bytes..end), Some(data), "data changed on the way");
                self.bytes = end;
            }
            TransportKind::Datagram => {
                let found = self.data.iter().position(|sent| sent == data);
                assert!(found.is_some() || data.is_empty(), "data that arrived before, or were never sent");
                found.map(|at| self.data.remove(at));
                self.bytes += data.len().max(1);
            }
        }
    }
}
