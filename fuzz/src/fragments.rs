//! The target `fragments`: the reassembly of messages from fragments in any order, with overlaps, copies and
//! forgeries.
//!
//! Messages are delivered in order, once, and as they were sent. Forged fragments of other messages cannot
//! keep them out. Whatever arrives, the memory has a limit.

use dunlin::fuzzing::Fragments;

use crate::MEMORY;
use crate::script::Script;

/// The memory that fragments may take, in bytes: 64 kB of early messages and pieces, the next message, and
/// the slack of growing vectors.
const MAX_HELD: isize = 384 * 1024;
/// The highest number of the first message after forgotten hellos.
const MAX_FIRST: u16 = 4;
/// The most messages of a script.
const MAX_MESSAGES: u8 = 20;

/// A message that the peer sends.
struct Sent {
    typ: u8,
    number: u16,
    body: Vec<u8>,
}

struct Play<'s> {
    script: Script<'s>,
    fragments: Fragments,
    /// Whether anyone can have sent the fragments.
    is_forgeable: bool,
    /// Whether the first message may have any number up to [`MAX_FIRST`].
    forgets: bool,
    sent: Vec<Sent>,
    delivered: usize,
    /// Whether fragments with other content, but the same announcement, were forged.
    is_disturbed: bool,
}

/// Runs the target. Returns whether a message was delivered before its whole was sent at the end.
pub fn run(input: &[u8]) -> bool {
    let before = MEMORY.allocated() as isize;
    let mut script = Script::new(input);
    let first = script.u8();
    let forgets = first & 1 != 0;
    let is_forgeable = first & 2 != 0;
    // After forgotten hellos, the first message has a higher number.
    let begin = if forgets { u16::from(first >> 2) % (MAX_FIRST + 1) } else { 0 };
    let sent: Vec<Sent> = (0..=u16::from(script.u8() % MAX_MESSAGES))
        .map(|i| {
            let typ = script.u8();
            let len = usize::from(script.u16()) % 0x1800;
            let body = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ typ ^ i as u8).collect();
            Sent { typ, number: begin + i, body }
        })
        .collect();
    let own: usize = sent.iter().map(|sent| sent.body.capacity() + size_of::<Sent>()).sum();
    let forgets = forgets && is_forgeable;
    let fragments = Fragments::new(forgets);
    let mut play = Play { script, fragments, is_forgeable, forgets, sent, delivered: 0, is_disturbed: false };
    // Only forgotten hellos let the first message have another number than 0.
    if begin > 0 && !is_forgeable {
        return false;
    }
    while !play.script.is_empty() {
        play.step();
        play.collect();
        let held = MEMORY.allocated() as isize - before - own as isize;
        assert!(held < MAX_HELD, "{held} bytes are held");
    }
    let arrived = play.delivered;
    play.finish();
    arrived > 0
}

/// Returns a fragment: its header and its piece (RFC 9147 §5.2).
fn fragment(typ: u8, len: usize, number: u16, offset: usize, piece: &[u8]) -> Vec<u8> {
    let uint24 = |value: usize| (value as u32).to_be_bytes().into_iter().skip(1);
    let mut bytes = vec![typ];
    bytes.extend(uint24(len));
    bytes.extend(number.to_be_bytes());
    bytes.extend(uint24(offset));
    bytes.extend(uint24(piece.len()));
    bytes.extend_from_slice(piece);
    bytes
}

impl Play<'_> {
    fn step(&mut self) {
        match self.script.u8() % 16 {
            0..=9 => {
                let count = self.script.u8() % 4;
                let content = (0..=count).flat_map(|_| self.piece()).collect::<Vec<_>>();
                self.insert(&content);
            }
            10..=13 => self.forge(),
            14 => {
                let bytes = self.script.bytes();
                self.is_disturbed = true;
                let _ = self.fragments.insert(bytes, self.is_forgeable);
            }
            _ => {
                let which = self.script.below(self.sent.len());
                let sent = &self.sent[which];
                self.insert(&fragment(sent.typ, sent.body.len(), sent.number, 0, &sent.body));
            }
        }
    }

    /// A fragment of a message of the peer.
    fn piece(&mut self) -> Vec<u8> {
        let which = self.script.below(self.sent.len());
        let len = self.sent[which].body.len();
        let offset = self.script.below(len + 1);
        let end = offset + self.script.below(len - offset + 1);
        let sent = &self.sent[which];
        fragment(sent.typ, len, sent.number, offset, &sent.body[offset..end])
    }

    fn insert(&mut self, content: &[u8]) {
        let result = self.fragments.insert(content, self.is_forgeable);
        assert!(result.is_ok() || self.is_disturbed, "the peer's fragment is refused: {result:?}");
    }

    /// Forges a fragment of another message, with a number of the peer's.
    fn forge(&mut self) {
        let which = self.script.below(self.sent.len());
        let typ = self.script.u8();
        let len = usize::from(self.script.u16());
        let offset = self.script.below(len + 1);
        let piece = vec![7; usize::from(self.script.u16()).min(len - offset)];
        let sent = &self.sent[which];
        let is_same = (typ, len) == (sent.typ, sent.body.len());
        self.is_disturbed |= is_same || !self.is_forgeable;
        let _ = self.fragments.insert(&fragment(typ, len, sent.number, offset, &piece), self.is_forgeable);
    }

    /// Takes the messages that are whole.
    fn collect(&mut self) {
        let sent = &self.sent;
        let is_sent = |number: u16, bytes: &[u8]| {
            let sent = sent.iter().find(|sent| sent.number == number);
            sent.is_some_and(|sent| bytes[0] == sent.typ && bytes[4..] == sent.body[..])
        };
        while let Some((number, bytes)) = self.fragments.next(|number, bytes| {
            // Without forgeries there is nothing to tell apart.
            !self.is_forgeable || is_sent(number, bytes)
        }) {
            if self.forgets && self.delivered == 0 {
                self.delivered = self.sent.iter().position(|sent| sent.number == number).unwrap_or(0);
            }
            let Some(sent) = self.sent.get(self.delivered) else {
                assert!(self.is_disturbed, "a message that was never sent");
                return;
            };
            let is_right = number == sent.number && bytes[0] == sent.typ && bytes[4..] == sent.body[..];
            assert!(is_right || self.is_disturbed, "message {number} changed or came out of order");
            self.delivered += 1;
        }
    }

    /// Sends what is missing. All messages arrive, whatever was forged before.
    fn finish(&mut self) {
        for i in 0..self.sent.len() {
            let sent = &self.sent[i];
            let whole = fragment(sent.typ, sent.body.len(), sent.number, 0, &sent.body);
            let _ = self.fragments.insert(&whole, self.is_forgeable);
            self.collect();
        }
        assert!(
            self.delivered == self.sent.len() || self.is_disturbed,
            "{} messages arrived",
            self.delivered
        );
    }
}
