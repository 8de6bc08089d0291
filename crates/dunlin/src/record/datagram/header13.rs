//! The unified header of protected records (RFC 9147 §4):
//!
//! ```text
//!  0 1 2 3 4 5 6 7
//! +-+-+-+-+-+-+-+-+
//! |0|0|1|C|S|L|E E|   C: a connection ID follows
//! +-+-+-+-+-+-+-+-+   S: 16 bits of the record number, else 8
//! | connection ID |   L: has a length field, else the record ends with the datagram
//! | record number |   E: the low bits of the epoch
//! |    length     |
//! +-+-+-+-+-+-+-+-+
//! ```

use alloc::vec::Vec;
use core::ops::Range;

const FIXED_MASK: u8 = 0b1110_0000;
const FIXED: u8 = 0b0010_0000;
const CONNECTION_ID: u8 = 0b0001_0000;
const LONG_NUMBER: u8 = 0b0000_1000;
const LENGTH: u8 = 0b0000_0100;
const EPOCH: u8 = 0b0000_0011;

/// The longest header without its connection ID, in bytes: flags, 16 bits of the number, length.
pub(super) const MAX_LEN: usize = 5;

/// The sender writes numbers below this in 8 bits. The receiver then expects a number from 0 to 128, whatever
/// got lost, and the closest number with these bits is the right one. Later numbers need 16 bits to survive a
/// long loss.
pub(super) const SHORT_NUMBERS: u64 = 128;

/// A header as on the wire, without the record number, which is masked there.
pub(crate) struct Header {
    flags: u8,
    /// The length of the connection ID, in bytes.
    id_len: usize,
    /// The length of the body; `None` if the body is the rest of the datagram.
    pub(super) length: Option<usize>,
}

impl Header {
    /// Whether a record that begins with this byte has a unified header (RFC 9147 §4.1).
    pub(super) const fn begins_with(first: u8) -> bool {
        first & FIXED_MASK == FIXED
    }

    /// The header at the front of `bytes`; `None` if it is incomplete, or has a connection ID although this
    /// side has none. Connection IDs of this side have `id_len` bytes.
    pub(crate) fn read(bytes: &[u8], id_len: usize) -> Option<Self> {
        let flags = *bytes.first()?;
        let has_id = flags & CONNECTION_ID != 0;
        if !Self::begins_with(flags) || (has_id && id_len == 0) {
            return None;
        }
        let header = Self { flags, id_len: if has_id { id_len } else { 0 }, length: None };
        let rest = bytes.get(header.number_at().end..)?;
        if flags & LENGTH == 0 {
            return Some(header);
        }
        let [a, b] = rest.first_chunk()?;
        Some(Self { length: Some(usize::from(u16::from_be_bytes([*a, *b]))), ..header })
    }

    /// Appends the header of the record with this number, unmasked. The last record of a datagram has no
    /// length. With `is_long`, the number has 16 bits even if 8 would do. `id` is the peer's connection ID,
    /// or empty.
    pub(super) fn write(
        (epoch, number): (u64, u64),
        is_long: bool,
        id: &[u8],
        length: Option<u16>,
        out: &mut Vec<u8>,
    ) -> Self {
        let long = is_long || number >= SHORT_NUMBERS;
        let mut flags = FIXED | (epoch as u8 & EPOCH);
        flags |= if id.is_empty() { 0 } else { CONNECTION_ID };
        flags |= if long { LONG_NUMBER } else { 0 };
        flags |= if length.is_some() { LENGTH } else { 0 };
        out.push(flags);
        out.extend_from_slice(id);
        if long {
            out.extend_from_slice(&(number as u16).to_be_bytes());
        } else {
            out.push(number as u8);
        }
        if let Some(length) = length {
            out.extend_from_slice(&length.to_be_bytes());
        }
        Self { flags, id_len: id.len(), length: length.map(usize::from) }
    }

    /// The length of the header, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.number_at().end + if self.flags & LENGTH == 0 { 0 } else { 2 }
    }

    /// The position of the record number.
    pub(super) const fn number_at(&self) -> Range<usize> {
        let start = 1 + self.id_len;
        start..start + if self.flags & LONG_NUMBER == 0 { 1 } else { 2 }
    }

    /// The connection ID of `record`, which begins with this header.
    pub(super) fn id<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        record.get(1..1 + self.id_len).unwrap_or_default()
    }

    /// Whether the header has the low bits of `epoch`.
    pub(super) const fn is_of(&self, epoch: u64) -> bool {
        self.flags & EPOCH == epoch as u8 & EPOCH
    }
}

/// The record number closest to `expected` whose low 8 or 16 bits are `low` (RFC 9147 §4.2.2).
pub(super) fn reconstruct(expected: u64, low: &[u8]) -> u64 {
    let size = 1 << (8 * low.len());
    let low = low.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let near = (expected & !(size - 1)) | low;
    let half = size / 2;
    if near.saturating_add(half) < expected {
        near.saturating_add(size)
    } else if near > expected.saturating_add(half) {
        near.checked_sub(size).unwrap_or(near)
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_shortest_and_the_longest_header_as_written() {
        let mut bytes = Vec::new();
        let header = Header::write((2, 5), false, &[], None, &mut bytes);
        assert_eq!(bytes, [0b0010_0010, 5]);
        assert_eq!((header.len(), header.number_at()), (2, 1..2));
        let header = Header::write((7, 0x1234), false, &[], Some(16), &mut bytes);
        assert_eq!(bytes[2..], [0b0010_1111, 0x12, 0x34, 0, 16]);
        assert_eq!((header.len(), header.number_at()), (MAX_LEN, 1..3));
        assert!(header.is_of(3) && !header.is_of(4));
        let read = Header::read(&bytes[2..], 3).unwrap();
        assert_eq!((read.length, read.len()), (Some(16), 5));
    }

    #[test]
    fn reads_a_header_with_a_connection_id_as_written() {
        let mut bytes = Vec::new();
        let header = Header::write((3, 5), false, &[7, 8], Some(16), &mut bytes);
        assert_eq!(bytes, [0b0011_0111, 7, 8, 5, 0, 16]);
        assert_eq!((header.len(), header.number_at()), (6, 3..4));
        let read = Header::read(&bytes, 2).unwrap();
        assert_eq!((read.id(&bytes), read.length, read.number_at()), (&[7, 8][..], Some(16), 3..4));
    }

    #[test]
    fn rejects_incomplete_headers_and_connection_ids() {
        assert!(Header::read(&[], 0).is_none());
        assert!(Header::read(&[0b0100_0000, 0], 0).is_none());
        assert!(Header::read(&[0b0011_0000, 0, 0], 0).is_none(), "a connection ID");
        assert!(Header::read(&[0b0010_1000, 0], 0).is_none(), "half a number");
        assert!(Header::read(&[0b0010_0100, 0, 0], 0).is_none(), "half a length");
        assert!(Header::read(&[0b0011_0000, 7, 8, 0], 3).is_none(), "half a connection ID");
    }

    #[test]
    fn reconstructs_the_closest_number() {
        for (expected, low, number) in
            [(0, 0, 0), (0, 255, 255), (128, 0, 0), (129, 0, 256), (300, 0x20, 0x120), (300, 0xff, 0xff)]
        {
            assert_eq!(reconstruct(expected, &[low]), number, "{low} where {expected} is expected");
        }
        assert_eq!(reconstruct(0x1_ffff, &[0, 1]), 0x2_0001);
        assert_eq!(reconstruct(0x2_0001, &[0xff, 0xff]), 0x1_ffff);
    }

    /// The sender relies on this when it chooses between 8 and 16 bits.
    #[test]
    fn short_numbers_are_never_ambiguous() {
        for expected in 0..=SHORT_NUMBERS {
            for number in 0..SHORT_NUMBERS {
                assert_eq!(reconstruct(expected, &[number as u8]), number);
            }
        }
    }
}
