//! Protected records of DTLS 1.2 (RFC 6347 §4.1.2), with connection IDs (RFC 9146 §4).

use alloc::vec::Vec;
use core::ops::Range;

use super::header12::{self, Header};
use super::sealing::Sealing;
use crate::crypto::{CryptoError, MAX_TAG_LEN};
use crate::error::Error;
use crate::record::protect::{self, RecordKey};
use crate::wire::{ContentType, ProtocolVersion};

/// Appends the sealed record with this sequence number to `out`. With a connection ID, the record encrypts
/// its content type.
pub(super) fn seal(
    key: &RecordKey,
    sealing: &Sealing<'_>,
    sequence: u64,
    content: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let Sealing { epoch, typ, id, .. } = *sealing;
    let has_id = !id.is_empty();
    let number = header12::number(epoch, sequence);
    let nonce = key.explicit_nonce(number);
    let nonce: &[u8] = nonce.as_ref().map_or(&[], |nonce| nonce);
    let inner = content.len() + usize::from(has_id);
    let length = nonce.len() + inner + key.tag_len();
    let shown = if has_id { ContentType::TLS12_CID } else { typ };
    header12::write(shown, (epoch, sequence), id, length, out)?;
    out.extend_from_slice(nonce);
    let data = out.len();
    out.extend_from_slice(content);
    if has_id {
        out.push(typ.0);
    }
    let [major, minor] = ProtocolVersion::DTLS1_2.0.to_be_bytes();
    let aad = additional_data(number, [shown.0, major, minor], id, inner)?;
    let mut tag = [0; MAX_TAG_LEN];
    key.seal(number, aad.as_ref(), out.get_mut(data..).ok_or(CryptoError)?, &mut tag)?;
    out.extend_from_slice(tag.get(..key.tag_len()).unwrap_or(&tag));
    Ok(())
}

/// Opens a whole record in place; returns the position of the plaintext.
pub(super) fn open(key: &RecordKey, header: &Header, record: &mut [u8]) -> Result<Range<usize>, CryptoError> {
    let (head, body) = record.split_at_mut_checked(header.len()).ok_or(CryptoError)?;
    let number = header12::number(header.epoch, header.sequence);
    let id = header.id(head);
    let range =
        key.open_tls12(number, |len| additional_data(number, header.authenticated(), id, len), body)?;
    Ok(header.len() + range.start..header.len() + range.end)
}

/// The additional data of a record (RFC 6347 §4.1.2.1), or of one with a connection ID (RFC 9146 §5.3).
/// `header` is type and version, `len` the length of the plaintext.
fn additional_data(
    number: u64,
    header: [u8; 3],
    id: &[u8],
    len: usize,
) -> Result<AdditionalData, CryptoError> {
    let plain = protect::additional_data(number, header, len);
    let mut data = AdditionalData { bytes: [0; ADDITIONAL_DATA_ROOM], len: 0 };
    if id.is_empty() {
        data.put(&plain)?;
        return Ok(data);
    }
    // seq_num_placeholder, tls12_cid, cid_length, tls12_cid, version, epoch, sequence_number, cid, length.
    let (number, rest) = plain.split_at(8);
    let (header, len) = rest.split_at(3);
    for part in [&[0xff; 8][..], &[ContentType::TLS12_CID.0, id.len() as u8], header, number, id, len] {
        data.put(part)?;
    }
    Ok(data)
}

/// Room for additional data with the longest connection ID, in bytes.
const ADDITIONAL_DATA_ROOM: usize = 23 + u8::MAX as usize;

/// Additional data on the stack, since every record needs some.
struct AdditionalData {
    bytes: [u8; ADDITIONAL_DATA_ROOM],
    len: usize,
}

impl AdditionalData {
    fn put(&mut self, part: &[u8]) -> Result<(), CryptoError> {
        let end = self.len + part.len();
        self.bytes.get_mut(self.len..end).ok_or(CryptoError)?.copy_from_slice(part);
        self.len = end;
        Ok(())
    }
}

impl AsRef<[u8]> for AdditionalData {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
