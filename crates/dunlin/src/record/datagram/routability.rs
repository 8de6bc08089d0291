//! The content of return_routability_check records (RFC 9853 §4): a type, and a cookie of 8 bytes.

use alloc::vec::Vec;

use crate::error::Error;
use crate::wire::{ContentType, Field, Reader};

/// The random number by which the sender of a challenge recognises the answer.
pub(super) type Cookie = [u8; 8];

/// The challenges of one stage of a check. RFC 9853 §5.3 asks for pauses between them, since they may get
/// lost.
pub(super) const CHALLENGES: u32 = 3;

/// The length of a message, in bytes.
pub(super) const LEN: usize = 1 + size_of::<Cookie>();

/// A message about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathMessage {
    /// `path_challenge`: its receiver answers at once.
    Challenge(Cookie),
    /// `path_response`: the challenge arrived over a path that its receiver prefers.
    Response(Cookie),
    /// `path_drop`: the challenge arrived over a path that its receiver has left.
    Drop(Cookie),
}

/// Reads a message; `None` if its type is unknown, which the receiver ignores (RFC 9853 §4).
pub(super) fn read(content: &[u8]) -> Result<Option<PathMessage>, Error> {
    Reader::all(content, Field::Record(ContentType::RETURN_ROUTABILITY_CHECK), |r| {
        Ok(Some(match r.u8()? {
            0 => PathMessage::Challenge(r.array()?),
            1 => PathMessage::Response(r.array()?),
            2 => PathMessage::Drop(r.array()?),
            _ => {
                r.rest();
                return Ok(None);
            }
        }))
    })
}

pub(super) fn write(message: PathMessage) -> Vec<u8> {
    let (typ, cookie) = match message {
        PathMessage::Challenge(cookie) => (0, cookie),
        PathMessage::Response(cookie) => (1, cookie),
        PathMessage::Drop(cookie) => (2, cookie),
    };
    [&[typ], &cookie[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_messages_as_written() {
        let cookie = *b"8 bytes.";
        for message in
            [PathMessage::Challenge(cookie), PathMessage::Response(cookie), PathMessage::Drop(cookie)]
        {
            let content = write(message);
            assert_eq!((content.len(), read(&content).unwrap()), (LEN, Some(message)));
            assert!(read(&content[..LEN - 1]).is_err());
            assert!(read(&[&content[..], &[0]].concat()).is_err());
        }
        assert!(read(&[]).is_err());
    }

    #[test]
    fn ignores_messages_of_unknown_types() {
        assert_eq!(read(&[3]).unwrap(), None);
        assert_eq!(read(&[255; 40]).unwrap(), None);
    }
}
