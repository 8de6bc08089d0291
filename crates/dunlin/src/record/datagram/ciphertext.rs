//! Protected records: seals and opens `DTLSCiphertext` (RFC 9147 §4) with the keys of one epoch.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::header13::{self, Header};
use crate::crypto::{AeadAlgorithm, CryptoError, MAX_TAG_LEN, RecordNumberKey};
use crate::error::{Error, Internal};
use crate::record::limits;
use crate::record::protect::{RecordKey, Sequence};
use crate::schedule::keys::TrafficKeys;
use crate::wire::{ContentType, What};

/// The number of ciphertext bytes from which the mask of the record number is derived (RFC 9147 §4.2.3).
const SAMPLE_LEN: usize = 16;

/// The shortest body of a record whose number can be unmasked. Shorter ones are not authentic (RFC 9147 §4.2.3).
pub(super) const MIN_BODY: usize = SAMPLE_LEN;

/// The keys of one epoch and direction.
pub(crate) struct EpochKey {
    record: RecordKey,
    number: Box<dyn RecordNumberKey>,
    algorithm: AeadAlgorithm,
}

impl EpochKey {
    pub(crate) fn new(keys: &TrafficKeys) -> Result<Self, CryptoError> {
        let aead = keys.aead;
        Ok(Self {
            record: RecordKey::new(keys)?,
            number: aead.record_number_key(keys.record_number_key())?,
            algorithm: aead.algorithm(),
        })
    }

    /// The most bytes that a record has beside its content: header, type and tag.
    pub(super) const fn overhead(&self) -> usize {
        header13::MAX_LEN + 1 + self.record.tag_len()
    }

    /// As [`Self::overhead`], for the last record of a datagram, which has no length field.
    pub(super) const fn overhead_of_last(&self) -> usize {
        self.overhead() - 2
    }

    pub(super) const fn confidentiality_limit(&self) -> u64 {
        self.record.confidentiality_limit()
    }

    pub(super) const fn integrity_limit(&self) -> u64 {
        limits::integrity(self.algorithm)
    }

    /// Appends a sealed record to `out` and returns its number. The last record of a datagram has no length field.
    pub(super) fn seal(
        &self,
        (epoch, sequence): (u64, &mut Sequence),
        typ: ContentType,
        content: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        // RFC 9147 §4.5.3: stop at the limit; a KeyUpdate should have replaced the key long before.
        if sequence.used() >= self.record.confidentiality_limit() {
            return Err(Internal::KeyExhausted.into());
        }
        let number = sequence.next()?;
        let tag_len = self.record.tag_len();
        // RFC 9147 §4.2.3: "Senders MUST pad short plaintexts out".
        let inner = (content.len() + 1).max(SAMPLE_LEN.saturating_sub(tag_len));
        let length = u16::try_from(inner + tag_len).map_err(|_| Internal::Bug(What::AboveRecordLimit))?;
        let start = out.len();
        let header = Header::write(epoch, number, (!is_last).then_some(length), out);
        out.reserve(usize::from(length));
        out.extend_from_slice(content);
        out.push(typ.0);
        out.resize(start + header.len() + inner, 0);
        let mut tag = [0; MAX_TAG_LEN];
        // RFC 9147 §4: the additional data is the header with the unmasked number.
        let sealed = split(out, start, &header)
            .and_then(|(header, data)| self.record.seal(number, header, data, &mut tag));
        if let Err(e) = sealed {
            // Never transmit a partly sealed record.
            out.truncate(start);
            return Err(e.into());
        }
        out.extend_from_slice(tag.get(..tag_len).unwrap_or(&tag));
        let (head, body) = split(out, start, &header)?;
        self.mask(&header, head, body)?;
        Ok(number)
    }

    /// Opens a whole record in place; returns its number and the inner plaintext in `record`. The number must be close to
    /// `expected`.
    pub(crate) fn open<'a>(
        &self,
        expected: u64,
        header: &Header,
        record: &'a mut [u8],
    ) -> Result<(u64, &'a [u8]), CryptoError> {
        let (head, body) = record.split_at_mut_checked(header.len()).ok_or(CryptoError)?;
        let number = header13::reconstruct(expected, self.mask(header, head, body)?);
        let len = self.record.open(number, head, body)?;
        Ok((number, body.get(..len).unwrap_or_default()))
    }

    /// Masks or unmasks the record number in `head` with a sample of `body`; returns the number's bytes.
    fn mask<'a>(&self, header: &Header, head: &'a mut [u8], body: &[u8]) -> Result<&'a [u8], CryptoError> {
        let mask = self.number.mask(body.first_chunk::<SAMPLE_LEN>().ok_or(CryptoError)?);
        let number = head.get_mut(1..1 + header.number_len()).ok_or(CryptoError)?;
        number.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        Ok(number)
    }
}

/// Splits the record that begins at `start` into header and body.
fn split<'a>(
    out: &'a mut [u8],
    start: usize,
    header: &Header,
) -> Result<(&'a mut [u8], &'a mut [u8]), CryptoError> {
    out.get_mut(start..).and_then(|record| record.split_at_mut_checked(header.len())).ok_or(CryptoError)
}
