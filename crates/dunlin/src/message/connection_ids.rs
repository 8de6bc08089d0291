//! `NewConnectionId` and `RequestConnectionId` (RFC 9147 §9), with which DTLS 1.3 replaces connection IDs.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{Field, HandshakeType, Reader};

/// How soon the receiver must use a new connection ID (`ConnectionIdUsage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// `cid_immediate`: from now on.
    Immediate = 0,
    /// `cid_spare`: whenever it needs one.
    Spare = 1,
}

/// The IDs that the sender of the message wants to receive, at most `most` of them, and their usage.
pub(crate) fn read_new(body: &[u8], most: usize) -> Result<(Vec<Vec<u8>>, Usage), Error> {
    decode(body, HandshakeType::NEW_CONNECTION_ID, |r| {
        let what = Field::Message(HandshakeType::NEW_CONNECTION_ID);
        let ids = Reader::items(r.vec16(0)?, what, |r| Ok::<_, Error>(r.vec8(0)?.to_vec()))?;
        r.limit(ids.len(), most)?;
        let usage = match r.u8()? {
            0 => Usage::Immediate,
            1 => Usage::Spare,
            _ => return Err(PeerMisbehaved::IllegalParameter(what).into()),
        };
        Ok::<_, Error>((ids, usage))
    })
}

pub(crate) fn write_new(ids: &[Vec<u8>], usage: Usage) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::NEW_CONNECTION_ID, |w| {
        w.vec16(|w| ids.iter().for_each(|id| w.vec8(|w| w.put(id))));
        w.u8(usage as u8);
    })
}

/// The number of requested IDs.
pub(crate) fn read_request(body: &[u8]) -> Result<u8, Error> {
    decode(body, HandshakeType::REQUEST_CONNECTION_ID, |r| Ok::<_, Error>(r.u8()?))
}

pub(crate) fn write_request(count: u8) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::REQUEST_CONNECTION_ID, |w| w.u8(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn reads_new_connection_ids_as_written() {
        let ids = [vec![1, 2], vec![3]];
        let message = write_new(&ids, Usage::Spare).unwrap();
        assert_eq!(message, [10, 0, 0, 8, 0, 5, 2, 1, 2, 1, 3, 1]);
        assert_eq!(read_new(&message[4..], 2).unwrap(), (ids.to_vec(), Usage::Spare));
        assert!(read_new(&message[4..], 1).is_err(), "too many");
        assert!(read_new(&[0, 0, 2], 1).is_err(), "an unknown usage");
        assert!(read_new(&[0, 0], 1).is_err() && read_new(&[0, 0, 0, 0], 1).is_err());
    }

    #[test]
    fn reads_a_request_as_written() {
        let message = write_request(3).unwrap();
        assert_eq!(message, [9, 0, 0, 1, 3]);
        assert_eq!(read_request(&message[4..]).unwrap(), 3);
        assert!(read_request(&[]).is_err());
    }
}
