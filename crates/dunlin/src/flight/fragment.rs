//! Cuts outgoing handshake messages into fragments, and packs these into as few datagrams and records as
//! possible (RFC 9147 §5.2, §5.5).

use alloc::vec::Vec;
use core::ops::Range;

use super::outgoing::Piece;
use crate::error::{Error, Internal};
use crate::message;
use crate::wire::{ContentType, Field};

/// The length of a fragment's header, in bytes: type, length, message number, fragment offset and fragment
/// length (RFC 9147 §5.2).
pub(crate) const HEADER_LEN: usize = 12;

/// The smallest piece of a message, in bytes, for which the packer uses the rest of a datagram. A smaller
/// rest is not worth a fragment of its own.
const MIN_PIECE: usize = 2;

/// The least room for content that a record in an empty datagram must have, in bytes.
pub(crate) const MIN_ROOM: usize = HEADER_LEN + 16;

/// The properties of an epoch's records that the packer needs.
#[derive(Clone, Copy)]
pub(crate) struct Records {
    pub(crate) epoch: u64,
    /// The most bytes that a record has beside its content.
    pub(crate) overhead: usize,
    /// The bytes that the last record of a datagram saves, because it needs no length.
    pub(crate) saved_by_last: usize,
    /// How many of the next records save a byte, because their numbers are short.
    pub(crate) short_numbers: u64,
    /// The longest content, in bytes.
    pub(crate) limit: usize,
}

/// A record that the sender must seal.
pub(crate) struct Planned {
    pub(crate) epoch: u64,
    pub(crate) typ: ContentType,
    pub(crate) content: Vec<u8>,
    /// The pieces of messages in the content.
    pub(crate) pieces: Vec<Piece>,
}

/// Fills datagrams with records.
pub(crate) struct Packer {
    mtu: usize,
    datagrams: Vec<Vec<Planned>>,
    /// The length that the last datagram will have, in bytes.
    used: usize,
    /// Whether no message follows a fragment of another one in a record.
    fragments_end_records: bool,
    /// Whether the last record ends with a fragment.
    after_fragment: bool,
    /// The bytes that its last record saves as long as no record follows.
    saved: usize,
    /// How many records each epoch has so far.
    counts: Vec<(u64, u64)>,
}

impl Packer {
    pub(crate) const fn new(mtu: usize) -> Self {
        Self {
            mtu,
            datagrams: Vec::new(),
            used: 0,
            fragments_end_records: false,
            after_fragment: false,
            saved: 0,
            counts: Vec::new(),
        }
    }

    /// Begins a new record after the last fragment of a message. Scandium 3.14 and Mbed TLS 3.6 drop what
    /// follows it in the same record.
    pub(crate) const fn end_records_with_fragments(mut self, is_wanted: bool) -> Self {
        self.fragments_end_records = is_wanted;
        self
    }

    pub(crate) fn into_datagrams(self) -> Vec<Vec<Planned>> {
        self.datagrams
    }

    /// Adds a record that must not be fragmented.
    pub(crate) fn record(
        &mut self,
        records: Records,
        typ: ContentType,
        content: Vec<u8>,
    ) -> Result<(), Error> {
        self.begin_record(records, typ, content.len())?;
        self.append(&content);
        Ok(())
    }

    /// Adds a range of the body of a message. `message` is the whole message, header included, and `number`
    /// its number. The range may become several fragments, and shares records with its neighbours of the same
    /// epoch.
    pub(crate) fn message(
        &mut self,
        records: Records,
        number: u16,
        message: &[u8],
        range: &Range<usize>,
    ) -> Result<(), Error> {
        let (header, body) =
            message.split_at_checked(message::HEADER_LEN).ok_or(Internal::Bug(Field::NoHeader))?;
        let mut offset = range.start;
        loop {
            let rest = body.get(offset..range.end).unwrap_or_default();
            let least = HEADER_LEN + rest.len().min(MIN_PIECE);
            let is_closed = self.fragments_end_records && self.after_fragment;
            let room = match self.room(records) {
                Some(room) if room >= least && !is_closed => room,
                _ => self.begin_record(records, ContentType::HANDSHAKE, least)?,
            };
            let piece = rest.get(..rest.len().min(room.saturating_sub(HEADER_LEN))).unwrap_or_default();
            self.reserve(HEADER_LEN + piece.len());
            self.append(header);
            self.append(&number.to_be_bytes());
            self.append(&uint24(offset));
            self.append(&uint24(piece.len()));
            self.append(piece);
            let end = offset + piece.len();
            if let Some(record) = self.datagrams.last_mut().and_then(|records| records.last_mut()) {
                record.pieces.push(Piece { number, range: offset..end });
            }
            self.after_fragment = piece.len() < body.len();
            offset = end;
            if offset >= range.end {
                return Ok(());
            }
        }
    }

    /// The room for handshake content in the last record, in bytes; `None` if it is not a handshake record of
    /// this epoch.
    fn room(&self, records: Records) -> Option<usize> {
        let last = self.datagrams.last()?.last()?;
        if last.epoch != records.epoch || last.typ != ContentType::HANDSHAKE {
            return None;
        }
        let in_record = records.limit.saturating_sub(last.content.len());
        Some(in_record.min(self.mtu.saturating_sub(self.used)))
    }

    /// Begins a record with room for at least `least` bytes, in a new datagram if necessary; returns the
    /// room, in bytes.
    fn begin_record(&mut self, records: Records, typ: ContentType, least: usize) -> Result<usize, Error> {
        let is_short = self.count(records.epoch) < records.short_numbers;
        let overhead = records.overhead.saturating_sub(records.saved_by_last + usize::from(is_short));
        // A record that another one follows needs its length.
        self.used += self.saved;
        if self.datagrams.is_empty() || self.mtu.saturating_sub(self.used) < overhead + least {
            self.datagrams.push(Vec::new());
            self.used = 0;
        }
        self.used += overhead;
        self.saved = records.saved_by_last;
        self.after_fragment = false;
        let room = records.limit.min(self.mtu.saturating_sub(self.used));
        // The smallest MTU and the smallest record size limit both guarantee this room.
        if room < least {
            return Err(Internal::Bug(Field::NoRoom).into());
        }
        if let Some(datagram) = self.datagrams.last_mut() {
            datagram.push(Planned { epoch: records.epoch, typ, content: Vec::new(), pieces: Vec::new() });
        }
        Ok(room)
    }

    /// Counts a record of this epoch. Returns how many there were before it.
    fn count(&mut self, epoch: u64) -> u64 {
        match self.counts.iter_mut().find(|(counted, _)| *counted == epoch) {
            Some((_, count)) => {
                *count += 1;
                *count - 1
            }
            None => {
                self.counts.push((epoch, 1));
                0
            }
        }
    }

    /// Allocates memory for a fragment at once.
    fn reserve(&mut self, len: usize) {
        if let Some(record) = self.datagrams.last_mut().and_then(|records| records.last_mut()) {
            record.content.reserve(len);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        if let Some(record) = self.datagrams.last_mut().and_then(|records| records.last_mut()) {
            record.content.extend_from_slice(bytes);
            self.used += bytes.len();
        }
    }
}

/// Encodes a length in 24 bits. The limits on messages are far below 2^24.
const fn uint24(value: usize) -> [u8; 3] {
    let [_, a, b, c] = (value as u32).to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const PLAIN: Records =
        Records { epoch: 0, overhead: 13, saved_by_last: 0, short_numbers: 0, limit: 1 << 14 };
    const SEALED: Records = Records { epoch: 2, overhead: 22, ..PLAIN };

    fn message(len: usize) -> Vec<u8> {
        let mut message = vec![11, 0, (len >> 8) as u8, len as u8];
        message.extend((0..len).map(|i| i as u8));
        message
    }

    #[test]
    fn packs_neighbours_into_one_record_and_one_datagram() {
        let mut packer = Packer::new(1200);
        packer.message(PLAIN, 0, &message(100), &(0..100)).unwrap();
        packer.message(SEALED, 1, &message(10), &(0..10)).unwrap();
        packer.message(SEALED, 2, &message(0), &(0..0)).unwrap();
        let [datagram] = &packer.into_datagrams()[..] else { panic!("more than one datagram") };
        let [plain, sealed] = &datagram[..] else { panic!("not two records") };
        assert_eq!((plain.epoch, plain.content.len()), (0, 112));
        assert_eq!((sealed.epoch, sealed.content.len()), (2, 34));
        assert_eq!(plain.content[..HEADER_LEN], [11, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 100]);
        assert_eq!(sealed.content[22..], [11, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn fragments_messages_so_that_no_datagram_exceeds_the_mtu() {
        for mtu in [64, 65, 100, 256] {
            let mut packer = Packer::new(mtu);
            let first = message(300);
            let second = message(777);
            packer.message(PLAIN, 0, &first, &(0..300)).unwrap();
            packer.message(SEALED, 1, &second, &(0..777)).unwrap();
            let mut bodies = [Vec::new(), Vec::new()];
            for datagram in packer.into_datagrams() {
                let mut len = 0;
                for record in datagram {
                    len += record.content.len() + if record.epoch == 0 { 13 } else { 22 };
                    let (header, piece) = record.content.split_at(HEADER_LEN);
                    let body = &mut bodies[usize::from(header[5])];
                    assert_eq!(usize::from(header[7]) << 8 | usize::from(header[8]), body.len());
                    assert_eq!(usize::from(header[10]) << 8 | usize::from(header[11]), piece.len());
                    body.extend_from_slice(piece);
                }
                assert!(len <= mtu, "{len} bytes at an MTU of {mtu}");
            }
            assert_eq!(bodies, [first[4..].to_vec(), second[4..].to_vec()]);
        }
    }

    /// A record at the end of a datagram needs no length, and the first numbers are short.
    #[test]
    fn fills_datagrams_to_the_last_byte() {
        let records = Records { saved_by_last: 2, short_numbers: 3, ..SEALED };
        let mut packer = Packer::new(100);
        packer.message(PLAIN, 0, &message(10), &(0..10)).unwrap();
        packer.message(records, 1, &message(500), &(0..500)).unwrap();
        let datagrams = packer.into_datagrams();
        // The first datagram has a plaintext record before it.
        let first = &datagrams[0];
        assert_eq!((first.len(), first[1].content.len()), (2, 100 - (13 + 22) - (22 - 3)));
        for (i, datagram) in datagrams.iter().enumerate().skip(1).take(5) {
            let [record] = &datagram[..] else { panic!("not one record") };
            assert_eq!(record.content.len(), 100 - if i < 3 { 19 } else { 20 }, "datagram {i}");
        }
        // A record that another one follows has a length.
        let mut packer = Packer::new(100);
        let small = Records { limit: 30, ..records };
        packer.message(small, 0, &message(100), &(0..100)).unwrap();
        let lengths: Vec<Vec<_>> = packer
            .into_datagrams()
            .iter()
            .map(|records| records.iter().map(|record| record.content.len()).collect())
            .collect();
        // The second record has 100 - (30 + 21) - 19 bytes, and the third one is alone.
        assert_eq!(lengths[0], [30, 30]);
        assert_eq!(30 + 21 + 30 + 19, 100);
    }

    #[test]
    fn no_message_shares_a_record_with_the_last_fragment_before_it() {
        let packed = |is_wanted| {
            let mut packer = Packer::new(256).end_records_with_fragments(is_wanted);
            for (number, len) in [(0, 20), (1, 300), (2, 30), (3, 40)] {
                packer.message(PLAIN, number, &message(len), &(0..len)).unwrap();
            }
            let numbers =
                |record: &Planned| record.pieces.iter().map(|piece| piece.number).collect::<Vec<_>>();
            let datagrams = packer.into_datagrams();
            datagrams
                .iter()
                .map(|records| records.iter().map(numbers).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(packed(false), [vec![vec![0, 1]], vec![vec![1, 2, 3]]]);
        assert_eq!(packed(true), [vec![vec![0, 1]], vec![vec![1], vec![2, 3]]]);
    }

    #[test]
    fn keeps_the_record_size_limit() {
        let mut packer = Packer::new(1200);
        packer.message(Records { limit: 63, ..SEALED }, 0, &message(200), &(0..200)).unwrap();
        let datagrams = packer.into_datagrams();
        assert_eq!(datagrams.len(), 1);
        assert!(datagrams[0].iter().all(|record| record.content.len() <= 63));
    }
}
