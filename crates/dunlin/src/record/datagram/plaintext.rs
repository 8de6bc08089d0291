//! Unprotected records: `DTLSPlaintext` (RFC 9147 §4), in epoch 0 only.

use alloc::vec::Vec;

use crate::error::{Error, Internal};
use crate::wire::{ContentType, ProtocolVersion};

/// The length of type, legacy version, epoch, 48-bit record number and length, in bytes.
pub(super) const HEADER_LEN: usize = 13;

/// The largest record number, which has 48 bits (RFC 9147 §4).
const MAX_NUMBER: u64 = (1 << 48) - 1;

/// The header, without the version, which "MUST be ignored for all purposes" (RFC 9147 §4).
pub(super) struct Header {
    pub(super) typ: ContentType,
    pub(super) epoch: u16,
    pub(super) length: usize,
}

impl Header {
    /// Whether a record that begins with this byte is a `DTLSPlaintext` of DTLS 1.3 (RFC 9147 §4.1).
    pub(super) const fn begins_with(first: u8) -> bool {
        matches!(ContentType(first), ContentType::ALERT | ContentType::HANDSHAKE | ContentType::ACK)
    }

    /// The header at the front of `bytes`; `None` if it is incomplete.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [typ, _, _, epoch_a, epoch_b, _, _, _, _, _, _, a, b] = bytes.first_chunk::<HEADER_LEN>()?;
        Some(Self {
            typ: ContentType(*typ),
            epoch: u16::from_be_bytes([*epoch_a, *epoch_b]),
            length: usize::from(u16::from_be_bytes([*a, *b])),
        })
    }
}

/// Appends a record. `content` must be within the limits.
pub(super) fn write(typ: ContentType, number: u64, content: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    // RFC 9147 §4.2.1: the number must not wrap.
    if number > MAX_NUMBER {
        return Err(Internal::KeyExhausted.into());
    }
    out.reserve(HEADER_LEN + content.len());
    out.push(typ.0);
    out.extend_from_slice(&ProtocolVersion::DTLS1_2.0.to_be_bytes());
    // The upper 16 bits are the epoch, which is 0.
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&(content.len() as u16).to_be_bytes());
    out.extend_from_slice(content);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_header_as_written() {
        let mut bytes = Vec::new();
        write(ContentType::HANDSHAKE, 3, b"hello", &mut bytes).unwrap();
        assert_eq!(bytes[..HEADER_LEN], [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 3, 0, 5]);
        let header = Header::read(&bytes).unwrap();
        assert_eq!((header.typ, header.epoch, header.length), (ContentType::HANDSHAKE, 0, 5));
        assert!(Header::read(&bytes[..HEADER_LEN - 1]).is_none());
        assert!(write(ContentType::ALERT, 1 << 48, b"", &mut bytes).is_err());
    }
}
