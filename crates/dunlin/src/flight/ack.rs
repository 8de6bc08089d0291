//! The content of ACK records: the numbers of received records with handshake messages (RFC 9147 §7).

use alloc::vec::Vec;

use crate::error::Error;
use crate::wire::{Field, Reader, Writer};

/// The number of a record within its connection and direction. Numbers increase in the order of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordNumber {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
}

/// The length of a record number in an ACK, in bytes.
pub(crate) const NUMBER_LEN: usize = 16;

/// The length of an ACK without numbers, in bytes.
pub(crate) const EMPTY_LEN: usize = 2;

pub(crate) fn read(content: &[u8]) -> Result<Vec<RecordNumber>, Error> {
    Reader::all(content, Field::Ack, |r| {
        let numbers = r.vec16(0)?;
        Reader::items(numbers, Field::Ack, |r| Ok(RecordNumber { epoch: r.u64()?, sequence: r.u64()? }))
    })
}

/// Writes an ACK. `numbers` must be in increasing order.
pub(crate) fn write(numbers: &[RecordNumber]) -> Result<Vec<u8>, Error> {
    let mut w = Writer::new();
    w.vec16(|w| {
        for number in numbers {
            w.u64(number.epoch);
            w.u64(number.sequence);
        }
    });
    Ok(w.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_ack_as_written() {
        let numbers = [RecordNumber { epoch: 2, sequence: 7 }, RecordNumber { epoch: 3, sequence: 0 }];
        let content = write(&numbers).unwrap();
        assert_eq!(content.len(), EMPTY_LEN + 2 * NUMBER_LEN);
        assert_eq!(read(&content).unwrap(), numbers);
        assert!(read(&content[..content.len() - 1]).is_err());
        assert!(read(&[0, 1, 0]).is_err());
        assert_eq!(read(&[0, 0]).unwrap(), []);
    }
}
