//! Joins received fragments to messages, and delivers these in the order of their numbers (RFC 9147 §5.2,
//! §5.5).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::message::hello_verify_request::MAX_VERIFY_REQUESTS;
use crate::message::{self, Message, Reading};
use crate::wire::{Field, HandshakeType, Reader};

/// The most messages from the next expected one on, more than any flight has.
const MAX_MESSAGES: usize = 16;
/// The most bytes that other messages than the next expected one may take. The peer retransmits what exceeds
/// the limit.
const MAX_EARLY: usize = 64 * 1024;
/// The most bytes that all incomplete or early messages may take after the handshake, unless the next one may
/// be a ticket: enough for the longest one that a server then reads. So an association costs at most twice as
/// much, whatever its client sends.
const MAX_AFTER: usize = 4480;
/// The most separate pieces of one message: enough for a large one that arrives in pieces of a few bytes and
/// in random order.
const MAX_PIECES: usize = 512;
/// The most messages of one number that are assembled side by side. All but one are forged.
const MAX_RIVALS: usize = 8;

/// The memory for one piece, in bytes.
const PIECE_LEN: usize = size_of::<Range<usize>>();
/// The memory for the place of one number, in bytes.
const PLACE_LEN: usize = size_of::<Vec<Partial>>();

const WHAT: Field = Field::DtlsHandshake;

/// Messages that have arrived in part.
#[derive(Clone, Default)]
pub(crate) struct Reassembler {
    /// The number of the next message to deliver.
    next: usize,
    /// Whether the first message may have a higher number than 0 ([`Self::forget`]).
    forgets: bool,
    /// The messages from `next` on, by their numbers. Several with the same number differ in type or length.
    /// Only fragments that anyone can send begin more than one.
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
    /// The header of the message, and the received bytes of its body in the order of their offsets, without
    /// the gaps.
    bytes: Vec<u8>,
    /// The received ranges of the body in this order, with gaps between them.
    pieces: Vec<Range<usize>>,
    /// Whether to keep the bytes of the body, since this side reads them.
    keeps_body: bool,
}

/// A received fragment.
struct Fragment<'a> {
    typ: HandshakeType,
    /// The length of the whole body, in bytes.
    len: usize,
    offset: usize,
    piece: &'a [u8],
    /// Whether this side reads the body.
    is_read: bool,
}

/// The possible senders of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Only the peer.
    Peer,
    /// Anyone. So fragments that contradict each other are not the peer's fault.
    Anyone,
}

/// The circumstances in which a record with messages has come.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) origin: Origin,
    /// Whether it is a record of the current epoch. Only such a record may have new fragments: no message
    /// spans a change of keys (RFC 8446 §5.1), and the peer sends no message with the previous keys after a
    /// KeyUpdate (draft-ietf-tls-rfc9147bis §8).
    pub(crate) is_present: bool,
    /// The part of a message that this side can still read, by the type of the message. `None` during the
    /// handshake, whose flights may arrive in any order.
    pub(crate) established: Option<&'a dyn Fn(HandshakeType) -> Reading>,
}

impl Terms<'_> {
    /// The most bytes of incomplete and early messages, and whether they include the next one.
    fn room(&self) -> (usize, bool) {
        match self.established {
            Some(reading) if reading(HandshakeType::NEW_SESSION_TICKET) == Reading::Nothing => {
                (MAX_AFTER, true)
            }
            _ => (MAX_EARLY, false),
        }
    }
}

/// Whether the reassembler has taken the fragments of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It has all fragments now, so the receiver may acknowledge the record.
    All,
    /// The same after the handshake, when the receiver may still drop fragments. It acknowledges the record
    /// once the message of this number is delivered (RFC 9147 §7).
    Until(usize),
    /// It has no room for some, so the receiver must not acknowledge the record (RFC 9147 §7).
    NotAll,
}

impl Reassembler {
    /// The reassembler of an association that has begun elsewhere, which has delivered the messages before
    /// number `next`.
    pub(crate) fn continuing(next: usize) -> Self {
        Self { next, ..Self::default() }
    }

    /// The number of the next message to deliver.
    pub(crate) const fn next_number(&self) -> usize {
        self.next
    }

    /// Lets the first message have any number up to [`MAX_VERIFY_REQUESTS`], whichever is whole first: this
    /// side has perhaps sent a HelloRetryRequest or several HelloVerifyRequests and kept nothing.
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

    /// Takes the fragments in the content of a record.
    ///
    /// # Errors
    /// The content does not parse, has new fragments in a previous epoch or of a message that this side does
    /// not read, or contradicts earlier fragments of the peer.
    pub(crate) fn insert(&mut self, content: &[u8], terms: Terms<'_>) -> Result<Taken, Error> {
        let mut has_all = true;
        let mut last = None;
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
                if !terms.is_present {
                    return Err(PeerMisbehaved::NotAlignedAtKeyChange.into());
                }
                let is_read = match terms.established.map(|reading| reading(typ)) {
                    // The rest of the message would only be refused.
                    Some(Reading::Nothing) => return Err(message::unexpected_after_handshake(typ)),
                    Some(Reading::Body(most)) if len > most && piece.len() < len => {
                        return Err(message::above(typ, most).into());
                    }
                    reading => reading != Some(Reading::Header),
                };
                has_all &= self.insert_piece(at, &Fragment { typ, len, offset, piece, is_read }, terms)?;
                last = last.max(terms.established.map(|_| number));
            } else if number + 1 == self.next
                && self.latest == Some((typ, len))
                && offset + piece.len() == len
            {
                self.repeated = true;
            }
            if r.is_empty() {
                return Ok(if has_all { last.map_or(Taken::All, Taken::Until) } else { Taken::NotAll });
            }
        }
    }

    /// Takes a piece of the message `at` places after the next one. `false` if there is no room for it.
    fn insert_piece(&mut self, at: usize, fragment: &Fragment<'_>, terms: Terms<'_>) -> Result<bool, Error> {
        // Nothing follows a first ClientHello before its answer.
        let most = if self.awaits_first() { self.places() } else { MAX_MESSAGES };
        if at >= most {
            return Ok(false);
        }
        let rivals = self.messages.get(at).map_or(&[][..], Vec::as_slice);
        let known = rivals.iter().find(|partial| partial.is_of(fragment));
        // RFC 9147 §5.5: all fragments of a message announce the same type and length.
        if known.is_none() && !rivals.is_empty() && terms.origin == Origin::Peer {
            return Err(Malformed::Value(WHAT).into());
        }
        // An empty piece brings nothing, unless the message is empty.
        if fragment.piece.is_empty() && fragment.len > 0 {
            return Ok(true);
        }
        let is_new = known.is_none();
        let has = known.map_or(0, Partial::size);
        let more = if fragment.is_read {
            known.map_or(fragment.piece.len(), |partial| partial.lacks(fragment))
        } else {
            0
        };
        let size = known.map_or(Partial::LEAST, Partial::size) + more + PIECE_LEN;
        if is_new && rivals.len() >= MAX_RIVALS {
            self.evict_rival(at);
        }
        // The next message leaves at once if it is whole.
        let is_kept = at > 0 || fragment.piece.len() < fragment.len;
        while is_kept && !self.fits(at, has, size, terms.room()) {
            if terms.origin == Origin::Peer || !self.evict_least(at, fragment) {
                return Ok(false);
            }
        }
        if let Some(missing) = (at + 1).checked_sub(self.messages.len()) {
            self.messages.reserve_exact(missing);
            self.messages.resize_with(at + 1, Vec::new);
        }
        let Some(rivals) = self.messages.get_mut(at) else { return Ok(false) };
        if is_new {
            rivals.reserve_exact(1);
            rivals.push(Partial::new(fragment));
        }
        let partial = rivals.iter_mut().find(|partial| partial.is_of(fragment));
        Ok(partial.is_some_and(|partial| partial.insert(fragment.offset, fragment.piece)))
    }

    /// Whether there is room for a message `at` places after the next one to grow from `has` to `size` bytes.
    /// During the handshake the next message always has room, or the largest one of those with its number.
    fn fits(&self, at: usize, has: usize, size: usize, (most, with_next): (usize, bool)) -> bool {
        let next = self.messages.front().into_iter().flatten().map(Partial::size).max().unwrap_or(0);
        let next = if at == 0 { next.max(size) } else { next };
        let all: usize = self.messages.iter().flatten().map(Partial::size).sum();
        let places = self.messages.len().max(at + 1) * PLACE_LEN;
        all + (size - has) + places - if with_next { 0 } else { next } <= most
    }

    /// Drops one of the messages at this place: among the older half, the one of which the fewest bytes have
    /// arrived. So small forged fragments displace each other and not what the peer has sent, and no forger
    /// can keep the peer's message out.
    fn evict_rival(&mut self, at: usize) {
        let Some(rivals) = self.messages.get_mut(at) else { return };
        let older = rivals.iter().take(rivals.len().div_ceil(2)).enumerate();
        if let Some((least, _)) = older.min_by_key(|(_, partial)| partial.received()) {
            rivals.remove(least);
        }
    }

    /// Drops the message with the fewest received bytes, except the message of `fragment`, which is `at`
    /// places after the next one, and the messages before it. `false` if there is none.
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

    /// The next message; `None` if it is incomplete. Drops whole messages for which `is_readable` is false,
    /// so that a forged one does not take the place of the peer's.
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

    /// Drops whole messages.
    pub(crate) fn drop_whole(&mut self) {
        self.messages.iter_mut().for_each(|rivals| rivals.retain(|partial| !partial.is_whole()));
    }

    /// Drops all fragments.
    pub(crate) fn clear(&mut self) {
        self.messages = VecDeque::new();
    }
}

impl Partial {
    /// The memory that a message takes before the first byte of its body, in bytes.
    const LEAST: usize = size_of::<Self>() + message::HEADER_LEN;

    /// The message of this fragment, without its piece. Allocates memory for that, not for the length that
    /// the fragment announces.
    fn new(&Fragment { typ, len, piece, is_read, .. }: &Fragment<'_>) -> Self {
        let [_, a, b, c] = (len as u32).to_be_bytes();
        let mut bytes = Vec::with_capacity(message::HEADER_LEN + if is_read { piece.len() } else { 0 });
        bytes.extend_from_slice(&[typ.0, a, b, c]);
        Self { typ, len, bytes, pieces: Vec::new(), keeps_body: is_read }
    }

    /// Whether the fragment belongs to this message.
    fn is_of(&self, fragment: &Fragment<'_>) -> bool {
        (self.typ, self.len) == (fragment.typ, fragment.len)
    }

    /// The memory that the message takes, in bytes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + self.pieces.len() * PIECE_LEN
    }

    /// The bytes of the body that have arrived.
    fn received(&self) -> usize {
        self.pieces.iter().map(Range::len).sum()
    }

    /// How many bytes of this piece have not arrived yet.
    fn lacks(&self, &Fragment { offset, piece, .. }: &Fragment<'_>) -> usize {
        let end = offset + piece.len();
        let has = |old: &Range<usize>| old.end.min(end).saturating_sub(old.start.max(offset));
        piece.len() - self.pieces.iter().map(has).sum::<usize>()
    }

    fn is_whole(&self) -> bool {
        self.len == 0 || matches!(self.pieces[..], [Range { start: 0, end }] if end == self.len)
    }

    /// Takes a piece of the body. `false` if there is no room for it.
    fn insert(&mut self, offset: usize, piece: &[u8]) -> bool {
        if self.is_whole() {
            return true;
        }
        let start = offset;
        let end = offset + piece.len();
        // Stored pieces never touch each other, so the new piece joins all that it touches, which follow each
        // other.
        let first = self.pieces.partition_point(|old| old.end < start);
        let last = self.pieces.partition_point(|old| old.start <= end);
        if first == last && self.pieces.len() >= MAX_PIECES {
            return false;
        }
        let touched = self.pieces.get(first..last).unwrap_or_default();
        let (before, after) = match touched {
            [only] => (only, only),
            [before, .., after] => (before, after),
            [] => (&(start..start), &(end..end)),
        };
        let joined = start.min(before.start)..end.max(after.end);
        if self.keeps_body {
            // The bytes of the touched pieces before and after the new one stay.
            let at = self.pieces.iter().take(first).map(Range::len).sum::<usize>() + message::HEADER_LEN;
            let from = at + start.saturating_sub(before.start);
            let until = at + touched.iter().map(Range::len).sum::<usize>() - after.end.saturating_sub(end);
            self.reserve((piece.len() + from).saturating_sub(until));
            self.bytes.splice(from..until, piece.iter().copied());
        }
        if first == last {
            self.pieces.reserve_exact(1);
        }
        self.pieces.splice(first..last, [joined]);
        true
    }

    /// Allocates memory for `more` bytes of the body and a thirty-second beyond them. A vector would double
    /// itself, and an association can wait long for the rest. Without the surplus, each small piece would
    /// copy the message.
    fn reserve(&mut self, more: usize) {
        if more > self.bytes.capacity() - self.bytes.len() {
            self.bytes.reserve_exact(more + self.bytes.len() / 32);
        }
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

    /// Terms during the handshake.
    fn terms(origin: Origin, is_present: bool) -> Terms<'static> {
        Terms { origin, is_present, established: None }
    }

    /// Takes a fragment of the peer in the current epoch.
    fn take(reassembler: &mut Reassembler, fragment: &[u8]) -> Taken {
        reassembler.insert(fragment, terms(Origin::Peer, true)).unwrap()
    }

    /// Takes a fragment that anyone can have sent.
    fn take_forged(reassembler: &mut Reassembler, fragment: &[u8]) -> Taken {
        reassembler.insert(fragment, terms(Origin::Anyone, true)).unwrap()
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
        // A delivered message may arrive again, also in an earlier epoch. A new message may not arrive in an
        // earlier epoch.
        assert_eq!(take(&mut reassembler, &two), Taken::All);
        assert_eq!(reassembler.insert(&two, terms(Origin::Peer, false)).unwrap(), Taken::All);
        assert!(reassembler.take_repeated() && !reassembler.take_repeated());
        assert_eq!(take(&mut reassembler, &fragment(1, 5, 0..5)), Taken::All);
        assert!(!reassembler.take_repeated(), "message 2 is the latest");
        assert!(reassembler.insert(&fragment(3, 1, 0..1), terms(Origin::Peer, false)).is_err());
        assert!(next(&mut reassembler).is_none() && reassembler.is_empty());
    }

    #[test]
    fn rejects_malformed_and_contradictory_fragments() {
        let mut reassembler = Reassembler::default();
        let mut insert = |fragment: &[u8]| reassembler.insert(fragment, terms(Origin::Peer, true));
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
            assert_eq!(take(&mut reassembler, &fragment(number, len, 1000..len)), taken);
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
            for len in 0..20 {
                let len = message::MAX_CERTIFICATE - len;
                take_forged(&mut reassembler, &fragment(number, len, 1..50_000));
            }
        }
        let (count, all) = memory(&reassembler);
        assert!(count >= 2 && all <= MAX_EARLY + 60_000, "{count} messages take {all} bytes");
        // The peer's message still finds room, although it is small.
        assert_eq!(take_forged(&mut reassembler, &fragment(0, 9, 0..4)), Taken::All);
        assert_eq!(take_forged(&mut reassembler, &fragment(0, 9, 4..9)), Taken::All);
        assert_eq!(next(&mut reassembler).unwrap().body(), body(9));
    }

    /// The number of incomplete messages, and the memory that they have allocated.
    fn memory(reassembler: &Reassembler) -> (usize, usize) {
        let all = reassembler.messages.iter().flatten();
        let size = |partial: &Partial| {
            size_of::<Partial>() + partial.bytes.capacity() + partial.pieces.capacity() * PIECE_LEN
        };
        all.map(size).fold((0, 0), |(count, all), size| (count + 1, all + size))
    }

    /// The length of a message and the offset of a piece are only words of the sender.
    #[test]
    fn memory_follows_the_received_bytes() {
        for origin in [Origin::Peer, Origin::Anyone] {
            let mut reassembler = Reassembler::default();
            for number in 0..MAX_MESSAGES as u16 {
                let far = fragment(number, 65_000, 64_999..65_000);
                assert_eq!(reassembler.insert(&far, terms(origin, true)).unwrap(), Taken::All);
            }
            let (count, all) = memory(&reassembler);
            assert_eq!(count, MAX_MESSAGES);
            assert!(all <= MAX_MESSAGES * 256, "{all} bytes");
        }
    }

    /// The order of the pieces does not matter, nor how often a byte comes.
    #[test]
    fn joins_random_pieces() {
        let mut state = 1_u64;
        let mut random = move |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for _ in 0..200 {
            let len = 1 + random(400);
            let mut reassembler = Reassembler::default();
            let mut message = None;
            while message.is_none() {
                let start = random(len);
                let end = (start + 1 + random(40)).min(len);
                take(&mut reassembler, &fragment(0, len, start..end));
                message = next(&mut reassembler);
            }
            assert_eq!(message.unwrap().body(), body(len));
        }
    }

    /// After the handshake a server keeps next to nothing of what will never be whole, and refuses what it
    /// would not read.
    #[test]
    fn keeps_little_after_the_handshake() {
        let reads = |typ| match typ {
            HandshakeType::CERTIFICATE => Reading::Body(16_000),
            _ => Reading::Nothing,
        };
        let mut reassembler = Reassembler::default();
        let refused = reassembler.insert(&fragment(0, 9, 0..1), after(&|_| Reading::Nothing));
        assert_eq!(refused, Err(message::unexpected_after_handshake(HandshakeType::CERTIFICATE)));
        for number in 0..MAX_MESSAGES as u16 {
            for at in 0..100 {
                let piece = fragment(number, 16_000, 16 * at..16 * at + 15);
                reassembler.insert(&piece, after(&reads)).unwrap();
            }
        }
        let (count, all) = memory(&reassembler);
        assert!(count > 0 && all <= MAX_AFTER * 33 / 32, "{count} messages take {all} bytes");
        // A message that did not fit takes no place among the others.
        assert_eq!(reassembler.messages.capacity(), count);
        // A message in one piece has room, since nothing keeps it. A ticket has the room of a handshake.
        reassembler.clear();
        let whole = reassembler.insert(&fragment(0, 16_000, 0..16_000), after(&reads));
        assert_eq!(whole.unwrap(), Taken::Until(0));
        assert_eq!(next(&mut reassembler).unwrap().body().len(), 16_000);
        let part = reassembler.insert(&fragment(1, 60_000, 0..50_000), after(&|_| Reading::Body(60_000)));
        assert_eq!(part.unwrap(), Taken::Until(1));
    }

    fn after(established: &dyn Fn(HandshakeType) -> Reading) -> Terms<'_> {
        Terms { established: Some(established), ..terms(Origin::Peer, true) }
    }

    #[test]
    fn refuses_the_part_of_a_message_that_is_longer_than_what_is_read() {
        let mut reassembler = Reassembler::default();
        let short = |_: HandshakeType| Reading::Body(100);
        let mut insert = |fragment: &[u8]| reassembler.insert(fragment, after(&short));
        assert_eq!(
            insert(&fragment(0, 101, 0..100)),
            Err(message::above(HandshakeType::CERTIFICATE, 100).into())
        );
        assert_eq!(insert(&fragment(0, 100, 0..99)), Ok(Taken::Until(0)));
        // The state refuses a whole one, which nothing keeps.
        assert_eq!(insert(&fragment(1, 101, 0..101)), Ok(Taken::Until(1)));
    }

    /// A peer may fragment a message in another way when it sends it again.
    #[test]
    fn joins_the_longest_message_after_the_handshake_from_overlapping_pieces() {
        let longest = MAX_AFTER - PLACE_LEN - Partial::LEAST - 2 * PIECE_LEN;
        for step in [1, 7, 600, longest - 1] {
            let mut reassembler = Reassembler::default();
            let reads = |typ| match typ {
                HandshakeType::CERTIFICATE => Reading::Body(longest),
                _ => Reading::Nothing,
            };
            for end in (step..longest).step_by(step).chain([longest]) {
                let piece = fragment(0, longest, end.saturating_sub(900)..end);
                assert_eq!(reassembler.insert(&piece, after(&reads)), Ok(Taken::Until(0)), "{step} {end}");
            }
            if step > 900 {
                let rest = fragment(0, longest, 0..longest - 900);
                assert_eq!(reassembler.insert(&rest, after(&reads)), Ok(Taken::Until(0)));
            }
            assert_eq!(next(&mut reassembler).unwrap().body(), body(longest), "{step}");
        }
    }

    #[test]
    fn keeps_nothing_of_a_body_that_is_not_read() {
        let mut reassembler = Reassembler::default();
        for at in (1..60).chain([0]) {
            assert!(next(&mut reassembler).is_none());
            let piece = fragment(0, 60_000, 1000 * at..1000 * (at + 1));
            assert_eq!(reassembler.insert(&piece, after(&|_| Reading::Header)), Ok(Taken::Until(0)));
            assert!(memory(&reassembler).1 <= 128);
        }
        let message = next(&mut reassembler).unwrap();
        assert_eq!(message.bytes(), [HandshakeType::CERTIFICATE.0, 0, 0xea, 0x60]);
        assert!(reassembler.is_empty());
    }

    #[test]
    fn memory_grows_with_the_received_bytes() {
        let mut reassembler = Reassembler::default();
        for at in 0..30_000 {
            take(&mut reassembler, &fragment(0, 60_000, at..at + 1));
            let (_, all) = memory(&reassembler);
            assert!(all <= 128 + (at + 1) * 33 / 32 + 1, "{all} bytes for {at}");
        }
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
