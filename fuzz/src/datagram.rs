//! The target `datagram`: a record layer of DTLS 1.2 or 1.3, with and without connection IDs, that receives
//! honest datagrams between others of any content.
//!
//! No other datagram has a right tag. So none of them ends the connection, moves the replay window or
//! delivers data, and each honest one arrives once, as it was sent.

use std::collections::BTreeSet;

use dunlin::fuzzing::{Carried, RecordLayer};
use dunlin_null::TAG;

use crate::MEMORY;
use crate::script::Script;

/// The memory that both record layers may use, in bytes.
const MAX_HELD: isize = 512 * 1024;
/// The most honest datagrams.
const MAX_SENT: usize = 128;
/// A datagram is lost if this many others have overtaken it: without encryption, it opens under every number
/// that its header can stand for (RFC 9147 §4.2.2).
const MAX_LATE: usize = 60;

struct Play<'s> {
    script: Script<'s>,
    sender: RecordLayer,
    receiver: RecordLayer,
    /// The honest datagrams, with their data.
    sent: Vec<(Vec<u8>, Vec<u8>)>,
    /// The numbers of those that have arrived.
    arrived: BTreeSet<usize>,
    latest: usize,
}

/// Runs the target. Returns whether data arrived.
pub fn run(input: &[u8]) -> bool {
    let before = MEMORY.allocated() as isize;
    let provider = dunlin_null::null_provider();
    let mut script = Script::new(input);
    let is_dtls12 = script.flag();
    let is_complete = !script.flag();
    let suite = provider.cipher_suites[usize::from(script.u8()) % provider.cipher_suites.len()];
    let id = |len: u8| (0..len).map(|i| 0xc0 | i).collect::<Vec<u8>>();
    let own = id(script.u8() % 33);
    let peers = id(script.u8() % 33);
    let mut sender = RecordLayer::datagram(1200, is_dtls12, peers.clone(), own.clone());
    let mut receiver = RecordLayer::datagram(1200, is_dtls12, own, peers);
    if is_complete {
        for application in if is_dtls12 { &[true][..] } else { &[false, true] } {
            sender.keys(suite, *application, true).unwrap();
            receiver.keys(suite, *application, false).unwrap();
        }
        sender.complete();
        receiver.complete();
    }
    let sent = Vec::new();
    let arrived = BTreeSet::new();
    let mut play = Play { script, sender, receiver, sent, arrived, latest: 0 };
    while !play.script.is_empty() {
        play.step(is_complete);
        let own: usize = play.sent.iter().map(|(a, b)| a.capacity() + b.capacity() + 64).sum();
        let held = MEMORY.allocated() as isize - before - own as isize;
        assert!(held < MAX_HELD, "{held} bytes are held");
    }
    !play.arrived.is_empty() || !is_complete
}

impl Play<'_> {
    fn step(&mut self, is_complete: bool) {
        match self.script.u8() % 8 {
            0 | 1 if is_complete && self.sent.len() < MAX_SENT => {
                // Each has its number, so that no two are equal.
                let data = [&[self.sent.len() as u8], self.script.bytes()].concat();
                self.sender.data(&data).unwrap();
                let datagram = self.sender.transmit().unwrap();
                self.sent.push((datagram, data));
            }
            2 | 3 => {
                let which = self.script.below(self.sent.len());
                self.deliver(which);
            }
            // A piece of an honest datagram, or one with a changed header.
            4 => {
                let which = self.script.below(self.sent.len());
                let at = self.script.u8();
                let value = self.script.u8();
                if let Some((datagram, _)) = self.sent.get(which) {
                    let mut forged = datagram.clone();
                    if let Some(byte) = forged.get_mut(usize::from(at)) {
                        *byte = value;
                    }
                    self.forge(&forged);
                }
            }
            _ => {
                let bytes = self.script.bytes().to_vec();
                self.forge(&bytes);
            }
        }
    }

    /// Delivers an honest datagram, perhaps again.
    fn deliver(&mut self, which: usize) {
        let Some((datagram, data)) = self.sent.get(which).cloned() else { return };
        if self.latest.saturating_sub(which) > MAX_LATE || which.saturating_sub(self.latest) > MAX_LATE {
            return;
        }
        self.latest = self.latest.max(which);
        let is_new = self.arrived.insert(which);
        self.receiver.push(&datagram);
        assert!(self.receiver.next().unwrap().is_none(), "an honest datagram is refused");
        assert_eq!(self.receiver.read(), is_new.then_some(data), "datagram {which}");
        assert_eq!(self.receiver.read(), None);
    }

    /// Delivers a datagram without a right tag.
    fn forge(&mut self, datagram: &[u8]) {
        let forged: Vec<u8> =
            datagram.iter().map(|byte| if *byte == TAG[0] { byte ^ 1 } else { *byte }).collect();
        self.receiver.push(&forged);
        loop {
            match self.receiver.next() {
                Ok(None) => break,
                // Before there are keys, a message in the clear may be the peer's.
                Ok(Some(Carried::Message(_))) => {}
                Ok(Some(other)) => panic!("{other:?} from a forged datagram"),
                Err(error) => panic!("a forged datagram ends the connection: {error:?}"),
            }
        }
        assert_eq!(self.receiver.read(), None, "data from a forged datagram");
    }
}
