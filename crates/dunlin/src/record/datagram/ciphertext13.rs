//! Protected records of DTLS 1.3: seals and opens `DTLSCiphertext` (RFC 9147 §4).

use alloc::vec::Vec;
use core::ops::Range;

use super::header13::{self, Header};
use super::sealing::Sealing;
use crate::crypto::{CryptoError, MAX_TAG_LEN, RecordNumberKey};
use crate::error::{Error, Internal};
use crate::record::protect::RecordKey;
use crate::wire::Field;

/// The number of ciphertext bytes from which the mask of the record number is derived (RFC 9147 §4.2.3).
const SAMPLE_LEN: usize = 16;

/// The shortest body of a record whose number can be unmasked. Shorter ones are not authentic (RFC 9147
/// §4.2.3).
pub(super) const MIN_BODY: usize = SAMPLE_LEN;

/// Appends the sealed record with this number to `out`. Without full headers, the last record of a datagram
/// has no length field.
pub(super) fn seal(
    key: &RecordKey,
    masks: &dyn RecordNumberKey,
    sealing: &Sealing<'_>,
    number: u64,
    content: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let tag_len = key.tag_len();
    // RFC 9147 §4.2.3: "Senders MUST pad short plaintexts out".
    let inner = (content.len() + 1).max(SAMPLE_LEN.saturating_sub(tag_len));
    let length = u16::try_from(inner + tag_len).map_err(|_| Internal::Bug(Field::AboveRecordLimit))?;
    let start = out.len();
    let has_length = sealing.is_full || !sealing.is_last;
    let header = Header::write(
        (sealing.epoch, number),
        sealing.is_full,
        sealing.id,
        has_length.then_some(length),
        out,
    );
    out.reserve(usize::from(length));
    out.extend_from_slice(content);
    out.push(sealing.typ.0);
    out.resize(start + header.len() + inner, 0);
    let mut tag = [0; MAX_TAG_LEN];
    // RFC 9147 §4: the additional data is the header with the unmasked number.
    let (head, data) = split(out, start, &header)?;
    key.seal(number, head, data, &mut tag)?;
    out.extend_from_slice(tag.get(..tag_len).unwrap_or(&tag));
    let (head, body) = split(out, start, &header)?;
    mask(masks, &header, head, body)?;
    Ok(())
}

/// Opens a whole record in place; returns its number and the position of the inner plaintext. The number must
/// be close to `expected`.
pub(super) fn open(
    key: &RecordKey,
    masks: &dyn RecordNumberKey,
    expected: u64,
    header: &Header,
    record: &mut [u8],
) -> Result<(u64, Range<usize>), CryptoError> {
    let (head, body) = record.split_at_mut_checked(header.len()).ok_or(CryptoError)?;
    let number = header13::reconstruct(expected, mask(masks, header, head, body)?);
    let len = key.open(number, head, body)?;
    Ok((number, header.len()..header.len() + len))
}

/// Masks or unmasks the record number in `head` with a sample of `body`; returns the number's bytes.
fn mask<'a>(
    masks: &dyn RecordNumberKey,
    header: &Header,
    head: &'a mut [u8],
    body: &[u8],
) -> Result<&'a [u8], CryptoError> {
    let mask = masks.mask(body.first_chunk::<SAMPLE_LEN>().ok_or(CryptoError)?);
    let number = head.get_mut(header.number_at()).ok_or(CryptoError)?;
    number.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    Ok(number)
}

/// Splits the record that begins at `start` into header and body.
fn split<'a>(
    out: &'a mut [u8],
    start: usize,
    header: &Header,
) -> Result<(&'a mut [u8], &'a mut [u8]), CryptoError> {
    out.get_mut(start..).and_then(|record| record.split_at_mut_checked(header.len())).ok_or(CryptoError)
}
