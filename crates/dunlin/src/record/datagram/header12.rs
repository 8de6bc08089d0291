//! The header of DTLS 1.2 (RFC 6347 §4.1), which DTLS 1.3 uses for unprotected records (`DTLSPlaintext`, RFC
//! 9147 §4):
//!
//! ```text
//! ContentType type; ProtocolVersion version; uint16 epoch; uint48 sequence_number; uint16 length;
//! ```
//!
//! In records of the type tls12_cid a connection ID precedes the length (RFC 9146 §4).

use alloc::vec::Vec;

use crate::error::{Error, Internal};
use crate::wire::{ContentType, HandshakeType, ProtocolVersion};

/// The length of the header without a connection ID, in bytes.
pub(super) const LEN: usize = 13;

/// The position of the length, and of the connection ID before it.
const LENGTH_AT: usize = 11;

/// The largest sequence number, which has 48 bits.
pub(super) const MAX_SEQUENCE: u64 = (1 << 48) - 1;

/// A header as received. It is not authentic before the record is open.
pub(super) struct Header {
    pub(super) typ: ContentType,
    /// The version is checked as additional data only: RFC 9147 §4 says that it "MUST be ignored for all
    /// purposes".
    version: [u8; 2],
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    /// The length of the connection ID, in bytes.
    pub(super) id_len: usize,
    /// The length of the body, in bytes.
    pub(super) length: usize,
}

impl Header {
    /// Whether a record that begins with this byte has this header (RFC 9147 §4.1).
    pub(super) const fn begins_with(first: u8) -> bool {
        matches!(
            ContentType(first),
            ContentType::CHANGE_CIPHER_SPEC
                | ContentType::ALERT
                | ContentType::HANDSHAKE
                | ContentType::APPLICATION_DATA
                | ContentType::TLS12_CID
                | ContentType::ACK
                | ContentType::RETURN_ROUTABILITY_CHECK
                | ContentType::ASSOCIATION_PORT
        )
    }

    /// The header at the front of `bytes`; `None` if it is incomplete. Connection IDs of this side have
    /// `id_len` bytes.
    pub(super) fn read(bytes: &[u8], id_len: usize) -> Option<Self> {
        let [typ, v0, v1, e0, e1, s0, s1, s2, s3, s4, s5] = *bytes.first_chunk::<LENGTH_AT>()?;
        let typ = ContentType(typ);
        let id_len = if typ == ContentType::TLS12_CID { id_len } else { 0 };
        let [l0, l1] = *bytes.get(LENGTH_AT + id_len..)?.first_chunk()?;
        Some(Self {
            typ,
            version: [v0, v1],
            epoch: u64::from(u16::from_be_bytes([e0, e1])),
            sequence: u64::from_be_bytes([0, 0, s0, s1, s2, s3, s4, s5]),
            id_len,
            length: usize::from(u16::from_be_bytes([l0, l1])),
        })
    }

    /// The length of the header, in bytes.
    pub(super) const fn len(&self) -> usize {
        LEN + self.id_len
    }

    /// The connection ID of `record`, which begins with this header.
    pub(super) fn id<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        record.get(LENGTH_AT..LENGTH_AT + self.id_len).unwrap_or_default()
    }

    /// Type and version, as they enter the additional data.
    pub(super) const fn authenticated(&self) -> [u8; 3] {
        let [major, minor] = self.version;
        [self.typ.0, major, minor]
    }
}

/// The record number of a cipher: epoch and sequence number (RFC 6347 §4.1.2.1).
pub(super) const fn number(epoch: u64, sequence: u64) -> u64 {
    epoch << 48 | sequence
}

/// The version in records with a ClientHello before the server has chosen a version. RFC 9147 §4 allows it
/// for compatibility with servers that know only DTLS 1.0, except after a HelloRetryRequest. A
/// HelloVerifyRequest chooses no version (RFC 6347 §4.2.1).
const FIRST_VERSION: ProtocolVersion = ProtocolVersion::DTLS1_0;

/// Appends an unprotected record. `is_initial` says that no version is chosen yet.
pub(super) fn write_plain(
    typ: ContentType,
    sequence: u64,
    content: &[u8],
    is_initial: bool,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let start = out.len();
    write(typ, (0, sequence), &[], content.len(), out)?;
    if is_initial
        && typ == ContentType::HANDSHAKE
        && content.first() == Some(&HandshakeType::CLIENT_HELLO.0)
        && let Some(version) = out.get_mut(start + 1..start + 3)
    {
        version.copy_from_slice(&FIRST_VERSION.0.to_be_bytes());
    }
    out.extend_from_slice(content);
    Ok(())
}

/// Appends a header. A body of `length` bytes follows it. `id` is empty except in records of the type
/// tls12_cid.
pub(super) fn write(
    typ: ContentType,
    (epoch, sequence): (u64, u64),
    id: &[u8],
    length: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    // RFC 6347 §4.1, RFC 9147 §4.2.1: neither number may wrap.
    if sequence > MAX_SEQUENCE || epoch > u64::from(u16::MAX) {
        return Err(Internal::KeyExhausted.into());
    }
    out.reserve(LEN + id.len() + length);
    out.push(typ.0);
    out.extend_from_slice(&ProtocolVersion::DTLS1_2.0.to_be_bytes());
    out.extend_from_slice(&number(epoch, sequence).to_be_bytes());
    out.extend_from_slice(id);
    out.extend_from_slice(&(length as u16).to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_header_as_written() {
        let mut bytes = Vec::new();
        write(ContentType::HANDSHAKE, (1, 3), &[], 5, &mut bytes).unwrap();
        assert_eq!(bytes, [22, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 3, 0, 5]);
        let header = Header::read(&bytes, 2).unwrap();
        assert_eq!(header.authenticated(), [22, 0xfe, 0xfd]);
        assert_eq!((header.epoch, header.sequence, header.length, header.len()), (1, 3, 5, LEN));
        assert!(Header::read(&bytes[..LEN - 1], 0).is_none());
        assert!(write(ContentType::ALERT, (0, 1 << 48), &[], 0, &mut bytes).is_err());
        assert!(write(ContentType::ALERT, (1 << 16, 0), &[], 0, &mut bytes).is_err());
    }

    #[test]
    fn reads_a_header_with_a_connection_id_as_written() {
        let mut bytes = Vec::new();
        write(ContentType::TLS12_CID, (1, 3), &[7, 8], 5, &mut bytes).unwrap();
        assert_eq!(bytes, [25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 3, 7, 8, 0, 5]);
        let header = Header::read(&bytes, 2).unwrap();
        assert_eq!((header.id(&bytes), header.length, header.len()), (&[7, 8][..], 5, LEN + 2));
        assert!(Header::read(&bytes[..LEN + 1], 2).is_none());
    }
}
