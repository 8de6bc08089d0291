//! Protected records, `DTLSCiphertext` (RFC 9147 §4): sealing and opening with the keys of one epoch.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::header13::{self, Header};
use crate::crypto::{AeadAlgorithm, CryptoError, MAX_TAG_LEN, RecordNumberKey};
use crate::error::{Error, Internal};
use crate::record::limits;
use crate::record::protect::{RecordKey, Sequence};
use crate::schedule::keys::TrafficKeys;
use crate::wire::{ContentType, What};

/// What of the ciphertext the mask of the record number is made of (RFC 9147 §4.2.3).
const SAMPLE_LEN: usize = 16;

/// The shortest record whose number can be unmasked; shorter ones count as not authentic (RFC 9147 §4.2.3).
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

    /// By how much a record is longer than its content at most: header, type and tag. In bytes.
    pub(super) const fn overhead(&self) -> usize {
        header13::MAX_LEN + 1 + self.record.tag_len()
    }

    /// The same for the last record of a datagram, which has no length.
    pub(super) const fn overhead_of_last(&self) -> usize {
        self.overhead() - 2
    }

    pub(super) const fn confidentiality_limit(&self) -> u64 {
        self.record.confidentiality_limit()
    }

    pub(super) const fn integrity_limit(&self) -> u64 {
        limits::integrity(self.algorithm)
    }

    /// Appends a sealed record to `out` and gives its number. The last record of a datagram has no length.
    pub(super) fn seal(
        &self,
        (epoch, sequence): (u64, &mut Sequence),
        typ: ContentType,
        content: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        // RFC 9147 §4.5.3: a KeyUpdate was due long before.
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
        // The additional data is the header before its number is masked (RFC 9147 §4).
        let sealed = split(out, start, &header)
            .and_then(|(header, data)| self.record.seal(number, header, data, &mut tag));
        if let Err(e) = sealed {
            // Nothing half-sealed may leave.
            out.truncate(start);
            return Err(e.into());
        }
        out.extend_from_slice(tag.get(..tag_len).unwrap_or(&tag));
        let (head, body) = split(out, start, &header)?;
        self.mask(&header, head, body)?;
        Ok(number)
    }

    /// Opens a whole record in place; gives its number and its inner plaintext, in `record`. `expected` is the
    /// number that it is close to.
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

    /// Masks or unmasks the record number in `head`, by a sample of `body`; gives its bytes.
    fn mask<'a>(&self, header: &Header, head: &'a mut [u8], body: &[u8]) -> Result<&'a [u8], CryptoError> {
        let mask = self.number.mask(body.first_chunk::<SAMPLE_LEN>().ok_or(CryptoError)?);
        let number = head.get_mut(1..1 + header.number_len()).ok_or(CryptoError)?;
        number.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        Ok(number)
    }
}

/// Header and body of the record that begins at `start`.
fn split<'a>(
    out: &'a mut [u8],
    start: usize,
    header: &Header,
) -> Result<(&'a mut [u8], &'a mut [u8]), CryptoError> {
    out.get_mut(start..).and_then(|record| record.split_at_mut_checked(header.len())).ok_or(CryptoError)
}
