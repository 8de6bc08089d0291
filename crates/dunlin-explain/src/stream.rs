//! Reassembles one direction of a TCP connection from its segments (RFC 9293 §3.4).

use std::collections::BTreeMap;

/// The bytes of a direction in order, and the packets that brought them.
#[derive(Default)]
pub(crate) struct Stream<'a> {
    pub(crate) data: Vec<u8>,
    /// Offsets in `data`, each with the packet that made the bytes from there on readable (its index in the
    /// list).
    marks: Vec<(usize, usize)>,
    /// The sequence number of the first byte.
    base: Option<u32>,
    /// Segments after a gap, by their offset.
    waiting: BTreeMap<u64, (&'a [u8], usize)>,
}

impl<'a> Stream<'a> {
    /// Sets the sequence number of the first byte, the one after the SYN.
    pub(crate) fn begin(&mut self, sequence: u32) {
        self.base.get_or_insert(sequence);
    }

    /// Takes a segment. Returns how many bytes of it, and of waiting segments, are repetitions. Where bytes
    /// come twice, the first ones are kept.
    pub(crate) fn push(&mut self, sequence: u32, payload: &'a [u8], packet: usize) -> usize {
        if payload.is_empty() {
            return 0;
        }
        let base = *self.base.get_or_insert(sequence);
        let next = base.wrapping_add(self.data.len() as u32);
        // Sequence numbers wrap and are compared modulo 2^32 (RFC 9293 §3.4).
        let distance = sequence.wrapping_sub(next) as i32;
        if distance > 0 {
            return self.wait(self.data.len() as u64 + u64::from(distance.unsigned_abs()), payload, packet);
        }
        let mut repeated = self.append(distance.unsigned_abs() as usize, payload, packet);
        while let Some(entry) = self.waiting.first_entry() {
            let known = (self.data.len() as u64).checked_sub(*entry.key());
            let Some(known) = known else { break };
            let (payload, packet) = entry.remove();
            repeated += self.append(known as usize, payload, packet);
        }
        repeated
    }

    /// Appends `payload` without its first `known` bytes. Returns how many bytes it left out.
    fn append(&mut self, known: usize, payload: &[u8], packet: usize) -> usize {
        let known = known.min(payload.len());
        let new = payload.get(known..).unwrap_or_default();
        if !new.is_empty() {
            // Waiting bytes become readable with the packet that fills the gap before them.
            let packet = self.marks.last().map_or(packet, |(_, last)| packet.max(*last));
            self.marks.push((self.data.len(), packet));
            self.data.extend_from_slice(new);
        }
        known
    }

    fn wait(&mut self, offset: u64, payload: &'a [u8], packet: usize) -> usize {
        match self.waiting.get_mut(&offset) {
            Some((first, _)) if first.len() >= payload.len() => payload.len(),
            Some(shorter) => core::mem::replace(shorter, (payload, packet)).0.len(),
            None => {
                self.waiting.insert(offset, (payload, packet));
                0
            }
        }
    }

    /// The index of the packet that made all bytes up to and including `offset` available.
    pub(crate) fn packet(&self, offset: usize) -> usize {
        let after = self.marks.partition_point(|(start, _)| *start <= offset);
        after.checked_sub(1).and_then(|at| self.marks.get(at)).map_or(0, |(_, packet)| *packet)
    }

    /// The number of bytes, both in order and after a gap.
    pub(crate) fn payload(&self) -> usize {
        self.data.len() + self.stranded().map_or(0, |(_, waiting)| waiting)
    }

    /// The first gap that was never filled: its length, and the number of bytes after it.
    pub(crate) fn stranded(&self) -> Option<(u64, usize)> {
        let (offset, _) = self.waiting.first_key_value()?;
        let waiting = self.waiting.values().map(|(payload, _)| payload.len()).sum();
        Some((offset.saturating_sub(self.data.len() as u64), waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes the segments. Returns the data, the number of repeated bytes, and the gap that is left.
    fn joined(begin: Option<u32>, segments: &[(u32, &[u8])]) -> (Vec<u8>, usize, Option<(u64, usize)>) {
        let mut stream = Stream::default();
        begin.into_iter().for_each(|sequence| stream.begin(sequence));
        let repeated =
            segments.iter().enumerate().map(|(i, (seq, bytes))| stream.push(*seq, bytes, i)).sum::<usize>();
        let stranded = stream.stranded();
        // Every byte is accounted for.
        let all: usize = segments.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(stream.data.len() + repeated + stranded.map_or(0, |(_, n)| n), all);
        (stream.data, repeated, stranded)
    }

    #[test]
    fn joins_segments_that_overlap_repeat_wrap_or_come_out_of_order() {
        let whole = (b"abcdef".to_vec(), 0, None);
        assert_eq!(joined(Some(5), &[(5, b"abc"), (8, b"def")]), whole);
        assert_eq!(joined(Some(5), &[(8, b"def"), (5, b"abc")]), whole, "out of order");
        assert_eq!(joined(Some(u32::MAX - 1), &[(1, b"def"), (u32::MAX - 1, b"abc")]), whole, "wraps");
        assert_eq!(joined(None, &[(70, b"abc"), (73, b"def")]), whole, "joined late");
        assert_eq!(joined(Some(5), &[(5, b"abc"), (5, b"abc"), (7, b"cdef")]).1, 4, "repeated");
        assert_eq!(
            joined(Some(5), &[(8, b"de"), (8, b"def"), (8, b"d"), (5, b"abc")]).1,
            3,
            "repeated ahead"
        );
        assert_eq!(joined(Some(5), &[(7, b"cde"), (8, b"def"), (5, b"ab")]), (b"abcdef".to_vec(), 2, None));
        assert_eq!(joined(Some(5), &[(5, b"abc"), (9, b"ef")]), (b"abc".to_vec(), 0, Some((1, 2))), "a gap");
    }

    #[test]
    fn byte_is_available_after_all_earlier_bytes() {
        let mut stream = Stream::default();
        stream.begin(0);
        stream.push(0, b"ab", 3);
        stream.push(4, b"ef", 7);
        stream.push(2, b"cd", 9);
        stream.push(6, b"gh", 11);
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|offset| stream.packet(offset)), [3, 3, 9, 9, 9, 9, 11]);
    }
}
