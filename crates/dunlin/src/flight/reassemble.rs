//! Joins received fragments to messages, and delivers these in the order of their numbers (RFC 9147 §5.2, §5.5).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::message::hello_verify_request::MAX_VERIFY_REQUESTS;
use crate::message::{self, Message};
use crate::wire::{HandshakeType, Reader, What};

/// The most messages from the next expected one on, more than any flight has.
const MAX_MESSAGES: usize = 16;
/// The most bytes that other messages than the next expected one may take. The peer retransmits what exceeds the limit.
const MAX_EARLY: usize = 64 * 1024;
/// The most separate pieces of one message: enough for a large one that arrives in pieces of a few bytes and in random order.
const MAX_PIECES: usize = 512;
/// The most messages of one number that are assembled side by side. All but one are forged.
const MAX_RIVALS: usize = 8;

/// The memory for one piece, in bytes.
const PIECE_LEN: usize = size_of::<Range<usize>>();

const WHAT: What = What::DtlsHandshake;

/// Messages that have arrived in part.
#[derive(Clone, Default)]
pub(crate) struct Reassembler {
    /// The number of the next message to deliver.
    next: usize,
    /// Whether the first message may have a higher number than 0 ([`Self::forget`]).
    forgets: bool,
    /// The messages from `next` on, by their numbers. Several with the same number differ in type or length. Only fragments that
    /// anyone can send begin more than one.
    messages: VecDeque<Vec<Partial>>,
    /// The end of the message before `next` has arrived again.
    repeated: bool,
    /// The type and length of the latest delivered message.
    latest: Option<(HandshakeType, usize)>,
}

#[derive(Clone)]
struct Partial {
    typ: HandshakeType,
    /// The length of the body, which every fragment announces, in bytes.
    len: usize,
    /// The message with its header, up to the last received byte.
    bytes: Vec<u8>,
    /// The received ranges of the body, with gaps between them.
    pieces: Vec<Range<usize>>,
}

/// A received fragment.
struct Fragment<'a> {
    typ: HandshakeType,
    /// The length of the whole body, in bytes.
    len: usize,
    offset: usize,
    piece: &'a [u8],
}

/// Who can have sent a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Only the peer.
    Peer,
    /// Anyone. So fragments that contradict each other are not the peer's fault.
    Anyone,
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
    /// The reassembler of an association that has begun elsewhere, which has delivered the messages before number `next`.
    pub(crate) fn continuing(next: usize) -> Self {
        Self { next, ..Self::default() }
    }

    /// The number of the next message to deliver.
    pub(crate) const fn next_number(&self) -> usize {
        self.next
    }

    /// Lets the first message have any number up to [`MAX_VERIFY_REQUESTS`], whichever is whole first: this side has perhaps sent a
    /// HelloRetryRequest or several HelloVerifyRequests and kept nothing.
    pub(crate) const fn forget(&mut self) {
        self.forgets = true;
    }

    /// Whether the number of the first message is still open.
    const fn awaits_first(&self) -> bool {
        self.forgets && self.latest.is_none()
    }

    /// How many numbers the next message may have.
    const fn places(&self) -> usize {
        if self.awaits_first() { MAX_VERIFY_REQUESTS + 1 } else { 1 }
    }

    /// Takes the fragments in the content of a record. Only a record of the current epoch (`is_present`) may have new ones:
    /// no message spans a change of keys (RFC 8446 §5.1), and the peer sends no message with the previous keys after a
    /// KeyUpdate (draft-ietf-tls-rfc9147bis §8).
    ///
    /// # Errors
    /// The content does not parse, has new fragments in a previous epoch, or contradicts earlier fragments of the peer.
    pub(crate) fn insert(
        &mut self,
        content: &[u8],
        origin: Origin,
        is_present: bool,
    ) -> Result<Taken, Error> {
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
            if offset + piece.len() > len {
                return Err(r.bad_length().into());
            }
            // RFC 9147 §5.2: a fragment of a message that was already delivered "MUST be discarded".
            if let Some(at) = number.checked_sub(self.next) {
                if !is_present {
                    return Err(PeerMisbehaved::NotAlignedAtKeyChange.into());
                }
                if !self.insert_piece(at, &Fragment { typ, len, offset, piece }, origin)? {
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
    fn insert_piece(&mut self, at: usize, fragment: &Fragment<'_>, origin: Origin) -> Result<bool, Error> {
        // Nothing follows a first ClientHello before its answer.
        let most = if self.awaits_first() { self.places() } else { MAX_MESSAGES };
        if at >= most {
            return Ok(false);
        }
        if at >= self.messages.len() {
            self.messages.resize_with(at + 1, Vec::new);
        }
        let rivals = self.messages.get(at).map_or(&[][..], Vec::as_slice);
        let known = rivals.iter().find(|partial| partial.is_of(fragment));
        // RFC 9147 §5.5: all fragments of a message announce the same type and length.
        if known.is_none() && !rivals.is_empty() && origin == Origin::Peer {
            return Err(Malformed::Value(WHAT).into());
        }
        // An empty piece brings nothing, unless the message is empty.
        if fragment.piece.is_empty() && fragment.len > 0 {
            return Ok(true);
        }
        let is_new = known.is_none();
        let has = known.map_or(0, Partial::size);
        let (bytes, pieces) = known.map_or((0, 0), |partial| (partial.bytes.len(), partial.pieces.len()));
        let end = message::HEADER_LEN + fragment.offset + fragment.piece.len();
        let size = bytes.max(end) + (pieces + 1) * PIECE_LEN;
        if is_new && rivals.len() >= MAX_RIVALS {
            self.evict_rival(at);
        }
        while !self.fits(at, has, size) {
            if origin == Origin::Peer || !self.evict_least(at, fragment) {
                return Ok(false);
            }
        }
        let Some(rivals) = self.messages.get_mut(at) else { return Ok(false) };
        if is_new {
            rivals.push(Partial::new(fragment, end));
        }
        let partial = rivals.iter_mut().find(|partial| partial.is_of(fragment));
        Ok(partial.is_some_and(|partial| partial.insert(fragment.offset, fragment.piece)))
    }

    /// Whether there is room for a message `at` places after the next one to grow from `has` to `size` bytes. The next message always
    /// has room, or the largest one of those with its number.
    fn fits(&self, at: usize, has: usize, size: usize) -> bool {
        let next = self.messages.front().into_iter().flatten().map(Partial::size).max().unwrap_or(0);
        let next = if at == 0 { next.max(size) } else { next };
        let all: usize = self.messages.iter().flatten().map(Partial::size).sum();
        all + (size - has) - next <= MAX_EARLY
    }

    /// Drops one of the messages at this place: among the older half, the one of which the fewest bytes have arrived. So small
    /// forged fragments displace each other and not what the peer has sent, and no forger can keep the peer's message out.
    fn evict_rival(&mut self, at: usize) {
        let Some(rivals) = self.messages.get_mut(at) else { return };
        let older = rivals.iter().take(rivals.len().div_ceil(2)).enumerate();
        if let Some((least, _)) = older.min_by_key(|(_, partial)| partial.received()) {
            rivals.remove(least);
        }
    }

    /// Drops the message of which the fewest bytes have arrived, except that of `fragment`, which is `at` places after the next one,
    /// and those before it. `false` if there is none.
    fn evict_least(&mut self, at: usize, fragment: &Fragment<'_>) -> bool {
        let slots = self.messages.iter().enumerate().skip(at);
        let rivals = slots.flat_map(|(place, rivals)| {
            rivals.iter().enumerate().map(move |(i, partial)| (place, i, partial))
        });
        let others = rivals.filter(|(place, _, partial)| *place != at || !partial.is_of(fragment));
        let least = others.min_by_key(|(place, _, partial)| (partial.received(), Reverse(*place)));
        let Some((place, i)) = least.map(|(place, i, _)| (place, i)) else { return false };
        if let Some(rivals) = self.messages.get_mut(place) {
            rivals.remove(i);
        }
        true
    }

    /// The next message; `None` if it is incomplete. Drops whole messages for which `is_readable` is false, so that a forged one does
    /// not take the place of the peer's.
    pub(crate) fn next_message(&mut self, mut is_readable: impl FnMut(&Message) -> bool) -> Option<Message> {
        for at in 0..self.places() {
            let number = u16::try_from(self.next + at).ok()?;
            let rivals = self.messages.get_mut(at)?;
            while let Some(whole) = rivals.iter().position(Partial::is_whole) {
                let Partial { typ, len, bytes, .. } = rivals.remove(whole);
                let message = Message::new(typ, bytes).with_number(number);
                if is_readable(&message) {
                    self.messages.drain(..=at);
                    if self.messages.is_empty() {
                        // A connection after its handshake keeps no memory for messages.
                        self.messages = VecDeque::new();
                    }
                    self.next += at + 1;
                    self.latest = Some((typ, len));
                    return Some(message);
                }
            }
        }
        None
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
        self.messages.iter().all(Vec::is_empty)
    }

    /// Whether there are fragments of the next message.
    pub(crate) fn has_next(&self) -> bool {
        self.messages.front().is_some_and(|rivals| !rivals.is_empty())
    }

    /// The bytes of incomplete messages that have arrived.
    pub(crate) fn received(&self) -> usize {
        self.messages.iter().flatten().map(Partial::received).sum()
    }

    /// Drops all fragments.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }
}

impl Partial {
    /// The message of this fragment, without its piece. Allocates `end` bytes.
    fn new(&Fragment { typ, len, .. }: &Fragment<'_>, end: usize) -> Self {
        let [_, a, b, c] = (len as u32).to_be_bytes();
        let mut bytes = Vec::with_capacity(end);
        bytes.extend_from_slice(&[typ.0, a, b, c]);
        Self { typ, len, bytes, pieces: Vec::new() }
    }

    /// Whether the fragment belongs to this message.
    fn is_of(&self, fragment: &Fragment<'_>) -> bool {
        (self.typ, self.len) == (fragment.typ, fragment.len)
    }

    /// The memory that the message takes, in bytes.
    fn size(&self) -> usize {
        self.bytes.len() + self.pieces.len() * PIECE_LEN
    }

    /// The bytes of the body that have arrived.
    fn received(&self) -> usize {
        self.pieces.iter().map(Range::len).sum()
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

    /// Takes a fragment of the peer in the current epoch.
    fn take(reassembler: &mut Reassembler, fragment: &[u8]) -> Taken {
        reassembler.insert(fragment, Origin::Peer, true).unwrap()
    }

    /// Takes a fragment that anyone can have sent.
    fn take_forged(reassembler: &mut Reassembler, fragment: &[u8]) -> Taken {
        reassembler.insert(fragment, Origin::Anyone, true).unwrap()
    }

    fn next(reassembler: &mut Reassembler) -> Option<Message> {
        reassembler.next_message(|_| true)
    }

    #[test]
    fn joins_overlapping_pieces_in_any_order() {
        let pieces = [0..40, 30..60, 55..100, 10..20, 90..100, 50..50];
        for turn in 0..pieces.len() {
            let mut reassembler = Reassembler::default();
            let mut message = None;
            for i in 0..pieces.len() {
                let piece = pieces[(i + turn) % pieces.len()].clone();
                assert_eq!(take(&mut reassembler, &fragment(0, 100, piece)), Taken::All);
                message = message.or_else(|| next(&mut reassembler));
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
        assert_eq!(take(&mut reassembler, &two), Taken::All);
        assert!(next(&mut reassembler).is_none());
        take(&mut reassembler, &fragment(0, 3, 0..3));
        for (number, len) in [(0, 3), (1, 5), (2, 0)] {
            let message = next(&mut reassembler).unwrap();
            assert_eq!((message.number, message.body().len()), (number, len));
        }
        // A delivered message may arrive again, also in an earlier epoch. A new message may not arrive in an earlier epoch.
        assert_eq!(take(&mut reassembler, &two), Taken::All);
        assert_eq!(reassembler.insert(&two, Origin::Peer, false).unwrap(), Taken::All);
        assert!(reassembler.take_repeated() && !reassembler.take_repeated());
        assert_eq!(take(&mut reassembler, &fragment(1, 5, 0..5)), Taken::All);
        assert!(!reassembler.take_repeated(), "message 2 is the latest");
        assert!(reassembler.insert(&fragment(3, 1, 0..1), Origin::Peer, false).is_err());
        assert!(next(&mut reassembler).is_none() && reassembler.is_empty());
    }

    #[test]
    fn rejects_malformed_and_contradictory_fragments() {
        let mut reassembler = Reassembler::default();
        let mut insert = |fragment: &[u8]| reassembler.insert(fragment, Origin::Peer, true);
        assert!(insert(&[]).is_err());
        assert!(insert(&fragment(0, 10, 0..10)[..20]).is_err());
        assert!(insert(&fragment(0, 10, 5..11)).is_err());
        assert!(insert(&fragment(0, 10, 11..11)).is_err());
        assert!(insert(&fragment(0, message::MAX_CERTIFICATE + 1, 0..1)).is_err());
        insert(&fragment(0, 10, 0..5)).unwrap();
        assert!(insert(&fragment(0, 11, 5..11)).is_err());
        insert(&fragment(0, 10, 5..10)).unwrap();
        assert_eq!(next(&mut reassembler).unwrap().body(), body(10));
    }

    #[test]
    fn limits_the_memory_for_fragments() {
        let mut reassembler = Reassembler::default();
        let far = fragment(MAX_MESSAGES as u16, 1, 0..1);
        assert_eq!(take(&mut reassembler, &far), Taken::NotAll);
        // Early messages share a limit; the next message always has room.
        let len = message::MAX_CERTIFICATE;
        for number in 1..4 {
            let taken = if number == 1 { Taken::All } else { Taken::NotAll };
            let end = fragment(number, len, len - 50..len - 49);
            assert_eq!(take(&mut reassembler, &end), taken);
        }
        assert_eq!(take(&mut reassembler, &fragment(0, len, 0..len)), Taken::All);
        assert!(next(&mut reassembler).is_some());
        // The number of separate pieces has a limit, too.
        let mut reassembler = Reassembler::default();
        for i in 0..MAX_PIECES {
            let piece = fragment(0, 4000, 2 * i..2 * i + 1);
            assert_eq!(take(&mut reassembler, &piece), Taken::All);
        }
        assert_eq!(take(&mut reassembler, &fragment(0, 4000, 3999..4000)), Taken::NotAll);
        assert_eq!(take(&mut reassembler, &fragment(0, 4000, 1..2)), Taken::All);
    }

    #[test]
    fn forged_fragments_do_not_displace_those_of_the_peer() {
        let mut reassembler = Reassembler::default();
        // A forger is first, and then sends small fragments of other messages with the same number.
        take_forged(&mut reassembler, &fragment(0, 99, 0..10));
        take_forged(&mut reassembler, &fragment(0, 100, 0..40));
        for len in 101..200 {
            take_forged(&mut reassembler, &fragment(0, len, 0..39));
        }
        take_forged(&mut reassembler, &fragment(0, 100, 40..100));
        assert_eq!(next(&mut reassembler).unwrap().body(), body(100));
        assert!(reassembler.is_empty());
    }

    #[test]
    fn limits_the_memory_for_forged_fragments() {
        let mut reassembler = Reassembler::default();
        for number in 0..MAX_MESSAGES as u16 {
            for len in 0..100 {
                let (len, end) = (message::MAX_CERTIFICATE - len, 60_000);
                take_forged(&mut reassembler, &fragment(number, len, end - 1..end));
            }
        }
        let sizes = reassembler.messages.iter().flatten().map(Partial::size);
        let (count, all) = sizes.fold((0, 0), |(count, all), size| (count + 1, all + size));
        assert!(count >= 2 && all <= MAX_EARLY + 60_100, "{count} messages take {all} bytes");
        // The peer's message still finds room, although it is small.
        assert_eq!(take_forged(&mut reassembler, &fragment(0, 9, 0..4)), Taken::All);
        assert_eq!(take_forged(&mut reassembler, &fragment(0, 9, 4..9)), Taken::All);
        assert_eq!(next(&mut reassembler).unwrap().body(), body(9));
    }

    #[test]
    fn drops_whole_messages_that_nobody_can_read() {
        let mut reassembler = Reassembler::default();
        let readable = |message: &Message| message.body().len() == 7;
        take_forged(&mut reassembler, &fragment(0, 5, 0..5));
        take_forged(&mut reassembler, &fragment(0, 7, 0..4));
        assert!(reassembler.next_message(readable).is_none());
        assert_eq!(reassembler.received(), 4, "the forged message is gone");
        take_forged(&mut reassembler, &fragment(0, 7, 4..7));
        let message = reassembler.next_message(readable).unwrap();
        assert_eq!((message.number, message.body().len()), (0, 7));
    }

    #[test]
    fn the_first_message_may_have_several_numbers_after_a_forgotten_hello() {
        const BEYOND: u16 = MAX_VERIFY_REQUESTS as u16 + 1;
        for numbers in [[0, 1], [1, 0], [BEYOND - 1, BEYOND - 2]] {
            let mut reassembler = Reassembler::default();
            reassembler.forget();
            let [whole, part] = numbers;
            take_forged(&mut reassembler, &fragment(whole, 6, 0..3));
            take_forged(&mut reassembler, &fragment(part, 6, 0..3));
            assert_eq!(take_forged(&mut reassembler, &fragment(BEYOND, 6, 0..6)), Taken::NotAll);
            take_forged(&mut reassembler, &fragment(whole, 6, 3..6));
            assert_eq!(next(&mut reassembler).unwrap().number, whole);
            assert!(next(&mut reassembler).is_none());
            // Only a later ClientHello follows.
            take_forged(&mut reassembler, &fragment(part, 6, 3..6));
            assert_eq!(next(&mut reassembler).map(|message| message.number), (part > whole).then_some(part));
        }
    }
}
