//! Joins received fragments to messages, and delivers these in the order of their numbers (RFC 9147 §5.2, §5.5).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::message::{self, Message};
use crate::wire::{HandshakeType, Reader, What};

/// The most messages from the next expected one on, more than any flight has.
const MAX_MESSAGES: usize = 16;
/// The most bytes that messages after the next expected one may take. The peer retransmits what exceeds the limit.
const MAX_EARLY: usize = 64 * 1024;
/// The most separate pieces of one message, enough for the gaps of a flight under heavy loss.
const MAX_PIECES: usize = 64;

const WHAT: What = What::DtlsHandshake;

/// Messages that have arrived in part.
#[derive(Default)]
pub(crate) struct Reassembler {
    /// The number of the next message to deliver.
    next: usize,
    /// The messages from `next` on; `None` for one without fragments.
    messages: VecDeque<Option<Partial>>,
    /// The end of the message before `next` has arrived again.
    repeated: bool,
    /// The type and length of the latest delivered message.
    latest: Option<(HandshakeType, usize)>,
}

struct Partial {
    typ: HandshakeType,
    /// The length of the body, which every fragment announces, in bytes.
    len: usize,
    /// The message with its header, up to the last received byte.
    bytes: Vec<u8>,
    /// The received ranges of the body, with gaps between them.
    pieces: Vec<Range<usize>>,
}

/// Whether the reassembler has taken the fragments of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It has all fragments now, so the receiver may acknowledge the record.
    All,
    /// It has no room for some, so the receiver must not acknowledge the record (RFC 9147 §7).
    NotAll,
}

impl Reassembler {
    /// As [`Self::insert`], for unprotected content. With `forgets`, the first message may have number 1: this side has sent a
    /// HelloRetryRequest or HelloVerifyRequest and kept nothing.
    pub(crate) fn insert_first(
        &mut self,
        content: &[u8],
        forgets: bool,
        is_present: bool,
    ) -> Result<Taken, Error> {
        let number = content.get(4..).and_then(|rest| rest.first_chunk()).copied().map(u16::from_be_bytes);
        // Until a first message is whole, the network or an attacker decides which number comes first.
        if let Some(number @ (0 | 1)) = number
            && forgets
            && self.latest.is_none()
            && (self.is_empty() || number == 0)
        {
            if usize::from(number) != self.next {
                self.messages.clear();
            }
            self.next = number.into();
        }
        self.insert(content, is_present)
    }

    /// Takes the fragments in the content of a record. Only a record of the current epoch (`is_present`) may have new ones:
    /// no message spans a change of keys (RFC 8446 §5.1), and the peer sends no message with the previous keys after a
    /// KeyUpdate (draft-ietf-tls-rfc9147bis §8).
    ///
    /// # Errors
    /// The content does not parse, contradicts earlier fragments, or has new fragments in a previous epoch.
    pub(crate) fn insert(&mut self, content: &[u8], is_present: bool) -> Result<Taken, Error> {
        let mut taken = Taken::All;
        let mut r = Reader::new(content, WHAT);
        // RFC 8446 §5.1: a handshake record is never empty, so there is a first fragment.
        loop {
            let typ = HandshakeType(r.u8()?);
            let len = r.u24()?;
            let number = usize::from(r.u16()?);
            let offset = r.u24()?;
            let piece = r.vec24(0)?;
            if len > message::limit(typ) {
                return Err(message::too_long(typ).into());
            }
            // Only an empty message may have an empty fragment.
            if offset + piece.len() > len || (piece.is_empty() && len > 0) {
                return Err(r.bad_length().into());
            }
            // RFC 9147 §5.2: a fragment of a message that was already delivered "MUST be discarded".
            if let Some(at) = number.checked_sub(self.next) {
                if !is_present {
                    return Err(PeerMisbehaved::NotAlignedAtKeyChange.into());
                }
                if !self.insert_piece((typ, len), at, offset, piece)? {
                    taken = Taken::NotAll;
                }
            } else if number + 1 == self.next
                && self.latest == Some((typ, len))
                && offset + piece.len() == len
            {
                self.repeated = true;
            }
            if r.is_empty() {
                return Ok(taken);
            }
        }
    }

    /// Takes a piece of the message `at` places after the next one. `false` if there is no room for it.
    fn insert_piece(
        &mut self,
        (typ, len): (HandshakeType, usize),
        at: usize,
        offset: usize,
        piece: &[u8],
    ) -> Result<bool, Error> {
        if at >= MAX_MESSAGES {
            return Ok(false);
        }
        if at >= self.messages.len() {
            self.messages.resize_with(at + 1, || None);
        }
        let early: usize = self.messages.iter().skip(1).flatten().map(|m| m.bytes.len()).sum();
        let Some(slot) = self.messages.get_mut(at) else { return Ok(false) };
        let have = slot.as_ref().map_or(0, |m| m.bytes.len());
        let growth = (message::HEADER_LEN + offset + piece.len()).saturating_sub(have);
        if at > 0 && early + growth > MAX_EARLY {
            return Ok(false);
        }
        let partial = slot.get_or_insert_with(|| Partial::new(typ, len));
        // RFC 9147 §5.5: all fragments of a message announce the same type and length.
        if (partial.typ, partial.len) != (typ, len) {
            return Err(Malformed::Value(WHAT).into());
        }
        Ok(partial.insert(offset, piece))
    }

    /// The next message; `None` if it is incomplete.
    pub(crate) fn next_message(&mut self) -> Option<Message> {
        if !self.messages.front()?.as_ref()?.is_whole() {
            return None;
        }
        let number = u16::try_from(self.next).ok()?;
        let partial = self.messages.pop_front()??;
        self.next += 1;
        self.latest = Some((partial.typ, partial.len));
        Some(Message::new(partial.typ, partial.bytes).with_number(number))
    }

    /// Whether the end of the latest delivered message has arrived again since the last call.
    pub(crate) const fn take_repeated(&mut self) -> bool {
        core::mem::replace(&mut self.repeated, false)
    }

    /// Whether a whole message has arrived.
    pub(crate) const fn has_delivered(&self) -> bool {
        self.latest.is_some()
    }

    /// Whether there are no fragments of further messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.iter().all(Option::is_none)
    }

    /// Drops all fragments.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }
}

impl Partial {
    fn new(typ: HandshakeType, len: usize) -> Self {
        let [_, a, b, c] = (len as u32).to_be_bytes();
        Self { typ, len, bytes: [typ.0, a, b, c].to_vec(), pieces: Vec::new() }
    }

    fn is_whole(&self) -> bool {
        self.len == 0 || matches!(self.pieces[..], [Range { start: 0, end }] if end == self.len)
    }

    /// Takes a piece of the body. `false` if there is no room for it.
    fn insert(&mut self, offset: usize, piece: &[u8]) -> bool {
        if self.is_whole() {
            return true;
        }
        // Stored pieces never touch each other, so the new piece can join all that it touches in one pass.
        let mut joined = offset..offset + piece.len();
        let touches = |old: &Range<usize>, new: &Range<usize>| old.start <= new.end && new.start <= old.end;
        if self.pieces.len() >= MAX_PIECES && !self.pieces.iter().any(|old| touches(old, &joined)) {
            return false;
        }
        let (start, end) = (message::HEADER_LEN + joined.start, message::HEADER_LEN + joined.end);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        if let Some(place) = self.bytes.get_mut(start..end) {
            place.copy_from_slice(piece);
        }
        self.pieces.retain(|old| {
            let apart = !touches(old, &joined);
            if !apart {
                joined = joined.start.min(old.start)..joined.end.max(old.end);
            }
            apart
        });
        self.pieces.push(joined);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn fragment(number: u16, len: usize, range: Range<usize>) -> Vec<u8> {
        let uint24 = |v: usize| (v as u32).to_be_bytes()[1..].to_vec();
        let mut bytes = vec![HandshakeType::CERTIFICATE.0];
        bytes.extend(uint24(len));
        bytes.extend(number.to_be_bytes());
        bytes.extend(uint24(range.start));
        bytes.extend(uint24(range.len()));
        bytes.extend(range.map(|i| i as u8));
        bytes
    }

    fn body(len: usize) -> Vec<u8> {
        (0..len).map(|i| i as u8).collect()
    }

    #[test]
    fn joins_overlapping_pieces_in_any_order() {
        let pieces = [0..40, 30..60, 55..100, 10..20, 90..100];
        for turn in 0..pieces.len() {
            let mut reassembler = Reassembler::default();
            let mut message = None;
            for i in 0..pieces.len() {
                let piece = pieces[(i + turn) % pieces.len()].clone();
                assert_eq!(reassembler.insert(&fragment(0, 100, piece), true).unwrap(), Taken::All);
                message = message.or_else(|| reassembler.next_message());
                assert!(message.is_none() || i >= 2, "{} pieces are not all", i + 1);
            }
            let message = message.unwrap();
            assert_eq!(message.body(), body(100));
            assert_eq!(message.bytes()[..4], [HandshakeType::CERTIFICATE.0, 0, 0, 100]);
            assert!(reassembler.is_empty());
        }
    }

    #[test]
    fn delivers_messages_in_order_and_once() {
        let mut reassembler = Reassembler::default();
        let two = [fragment(1, 5, 0..5), fragment(2, 0, 0..0)].concat();
        assert_eq!(reassembler.insert(&two, true).unwrap(), Taken::All);
        assert!(reassembler.next_message().is_none());
        reassembler.insert(&fragment(0, 3, 0..3), true).unwrap();
        for (number, len) in [(0, 3), (1, 5), (2, 0)] {
            let message = reassembler.next_message().unwrap();
            assert_eq!((message.number, message.body().len()), (number, len));
        }
        // A delivered message may arrive again, also in an earlier epoch. A new message may not arrive in an earlier epoch.
        assert_eq!(reassembler.insert(&two, true).unwrap(), Taken::All);
        assert_eq!(reassembler.insert(&two, false).unwrap(), Taken::All);
        assert!(reassembler.take_repeated() && !reassembler.take_repeated());
        assert_eq!(reassembler.insert(&fragment(1, 5, 0..5), true).unwrap(), Taken::All);
        assert!(!reassembler.take_repeated(), "message 2 is the latest");
        assert!(reassembler.insert(&fragment(3, 1, 0..1), false).is_err());
        assert!(reassembler.next_message().is_none() && reassembler.is_empty());
    }

    #[test]
    fn rejects_malformed_and_contradictory_fragments() {
        let mut reassembler = Reassembler::default();
        assert!(reassembler.insert(&[], true).is_err());
        assert!(reassembler.insert(&fragment(0, 10, 0..10)[..20], true).is_err());
        assert!(reassembler.insert(&fragment(0, 10, 5..11), true).is_err());
        assert!(reassembler.insert(&fragment(0, 10, 5..5), true).is_err());
        assert!(reassembler.insert(&fragment(0, message::MAX_CERTIFICATE + 1, 0..1), true).is_err());
        reassembler.insert(&fragment(0, 10, 0..5), true).unwrap();
        assert!(reassembler.insert(&fragment(0, 11, 5..11), true).is_err());
        reassembler.insert(&fragment(0, 10, 5..10), true).unwrap();
        assert_eq!(reassembler.next_message().unwrap().body(), body(10));
    }

    #[test]
    fn limits_the_memory_for_fragments() {
        let mut reassembler = Reassembler::default();
        let far = fragment(MAX_MESSAGES as u16, 1, 0..1);
        assert_eq!(reassembler.insert(&far, true).unwrap(), Taken::NotAll);
        // Early messages share a limit; the next message always has room.
        let len = message::MAX_CERTIFICATE;
        for number in 1..4 {
            let taken = if number == 1 { Taken::All } else { Taken::NotAll };
            let end = fragment(number, len, len - 5..len - 4);
            assert_eq!(reassembler.insert(&end, true).unwrap(), taken);
        }
        assert_eq!(reassembler.insert(&fragment(0, len, 0..len), true).unwrap(), Taken::All);
        assert!(reassembler.next_message().is_some());
        // The number of separate pieces has a limit, too.
        let mut reassembler = Reassembler::default();
        for i in 0..MAX_PIECES {
            assert_eq!(reassembler.insert(&fragment(0, 1000, 2 * i..2 * i + 1), true).unwrap(), Taken::All);
        }
        assert_eq!(reassembler.insert(&fragment(0, 1000, 999..1000), true).unwrap(), Taken::NotAll);
        assert_eq!(reassembler.insert(&fragment(0, 1000, 1..2), true).unwrap(), Taken::All);
    }
}
