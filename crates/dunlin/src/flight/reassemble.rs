//! Received fragments: joined to messages, which are handed on in the order of their numbers (RFC 9147 §5.2, §5.5).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::message::{self, Message};
use crate::wire::{HandshakeType, Reader, What};

/// Messages that are kept from the next expected one on: more than any flight has.
const MAX_MESSAGES: usize = 16;
/// Bytes that messages after the next expected one may take: what comes early is welcome, not owed a place.
const MAX_EARLY: usize = 64 * 1024;
/// Pieces with gaps between them that are kept of one message: the gaps of a flight under heavy loss.
const MAX_PIECES: usize = 64;

const WHAT: What = What::DtlsHandshake;

/// Messages of which parts have come.
#[derive(Default)]
pub(crate) struct Reassembler {
    /// The number of the next message that is handed on.
    next: usize,
    /// From the next message on.
    messages: VecDeque<Option<Partial>>,
}

struct Partial {
    typ: HandshakeType,
    /// The length of the body that every fragment announces.
    len: usize,
    /// The whole message, header included, up to the last byte that has come.
    bytes: Vec<u8>,
    /// What of the body has come: ranges with gaps between them.
    pieces: Vec<Range<usize>>,
}

/// What became of the fragments of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All are kept, or had come before: the record may be acknowledged.
    All,
    /// There is no room for some: the record must not be acknowledged (RFC 9147 §7).
    NotAll,
}

impl Reassembler {
    /// Takes the fragments in the content of a record. Only one of the present epoch may have new ones: no
    /// message spans a change of keys (RFC 8446 §5.1), and none follows a KeyUpdate with the old ones
    /// (draft-ietf-tls-rfc9147bis §8).
    ///
    /// # Errors
    /// The content does not parse, contradicts what came before, or has something new where that is not possible.
    pub(crate) fn insert(&mut self, content: &[u8], is_present: bool) -> Result<Taken, Error> {
        let mut taken = Taken::All;
        let mut r = Reader::new(content, WHAT);
        // A record of handshake is never empty (RFC 8446 §5.1).
        loop {
            let typ = HandshakeType(r.u8()?);
            let len = r.u24()?;
            let number = usize::from(r.u16()?);
            let offset = r.u24()?;
            let piece = r.vec24(0)?;
            if len > message::limit(typ) {
                return Err(message::too_long(typ).into());
            }
            // Only an empty message has an empty fragment.
            if offset + piece.len() > len || (piece.is_empty() && len > 0) {
                return Err(r.bad_length().into());
            }
            // RFC 9147 §5.2: what was handed on already "MUST be discarded".
            if let Some(at) = number.checked_sub(self.next) {
                if !is_present {
                    return Err(PeerMisbehaved::NotAlignedAtKeyChange.into());
                }
                if !self.insert_piece((typ, len), at, offset, piece)? {
                    taken = Taken::NotAll;
                }
            }
            if r.is_empty() {
                return Ok(taken);
            }
        }
    }

    /// Whether the piece of the message `at` places after the next one is kept, or had come before.
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
        // RFC 9147 §5.5: all fragments of a message announce the same.
        if (partial.typ, partial.len) != (typ, len) {
            return Err(Malformed::Value(WHAT).into());
        }
        Ok(partial.insert(offset, piece))
    }

    /// The next message, once it is whole.
    pub(crate) fn next_message(&mut self) -> Option<Message> {
        if !self.messages.front()?.as_ref()?.is_whole() {
            return None;
        }
        let partial = self.messages.pop_front()??;
        self.next += 1;
        Some(Message::new(partial.typ, partial.bytes))
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.iter().all(Option::is_none)
    }

    /// Forgets what is kept.
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

    /// Whether the piece is kept, or had come before.
    fn insert(&mut self, offset: usize, piece: &[u8]) -> bool {
        if self.is_whole() {
            return true;
        }
        // Pieces have gaps between them, so one that touches the new one touches no other.
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
    fn overlapping_pieces_in_any_order() {
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
    fn messages_come_in_order_and_once() {
        let mut reassembler = Reassembler::default();
        let two = [fragment(1, 5, 0..5), fragment(2, 0, 0..0)].concat();
        assert_eq!(reassembler.insert(&two, true).unwrap(), Taken::All);
        assert!(reassembler.next_message().is_none());
        reassembler.insert(&fragment(0, 3, 0..3), true).unwrap();
        for len in [3, 5, 0] {
            assert_eq!(reassembler.next_message().unwrap().body().len(), len);
        }
        // They can come again, even in an epoch that is over; new ones cannot.
        assert_eq!(reassembler.insert(&two, true).unwrap(), Taken::All);
        assert_eq!(reassembler.insert(&two, false).unwrap(), Taken::All);
        assert!(reassembler.insert(&fragment(3, 1, 0..1), false).is_err());
        assert!(reassembler.next_message().is_none() && reassembler.is_empty());
    }

    #[test]
    fn what_does_not_parse_or_contradicts() {
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
    fn memory_is_bounded() {
        let mut reassembler = Reassembler::default();
        let far = fragment(MAX_MESSAGES as u16, 1, 0..1);
        assert_eq!(reassembler.insert(&far, true).unwrap(), Taken::NotAll);
        // Messages that come early share a bound; the next one is owed its place.
        let len = message::MAX_CERTIFICATE;
        for number in 1..4 {
            let taken = if number == 1 { Taken::All } else { Taken::NotAll };
            let end = fragment(number, len, len - 5..len - 4);
            assert_eq!(reassembler.insert(&end, true).unwrap(), taken);
        }
        assert_eq!(reassembler.insert(&fragment(0, len, 0..len), true).unwrap(), Taken::All);
        assert!(reassembler.next_message().is_some());
        // So do pieces with gaps between them.
        let mut reassembler = Reassembler::default();
        for i in 0..MAX_PIECES {
            assert_eq!(reassembler.insert(&fragment(0, 1000, 2 * i..2 * i + 1), true).unwrap(), Taken::All);
        }
        assert_eq!(reassembler.insert(&fragment(0, 1000, 999..1000), true).unwrap(), Taken::NotAll);
        assert_eq!(reassembler.insert(&fragment(0, 1000, 1..2), true).unwrap(), Taken::All);
    }
}
