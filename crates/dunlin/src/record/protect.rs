//! Record protection with the key of one direction: nonces and sequence numbers (RFC 8446 §5.3).

use alloc::boxed::Box;
use core::ops::Range;

use super::limits;
use crate::crypto::{AeadAlgorithm, AeadKey, CryptoError, MAX_TAG_LEN, NONCE_LEN};
use crate::error::{Error, Internal};
use crate::schedule::keys::{RecordForm, TrafficKeys};
use zeroize::Zeroizing;

/// An AEAD key with its IV.
pub(crate) struct RecordKey {
    /// The expanded key; `None` while the connection rests.
    key: Option<Box<dyn AeadKey>>,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    algorithm: AeadAlgorithm,
    form: RecordForm,
}

/// The length of the explicit nonce, which the record carries (RFC 5288 §3, RFC 6655 §3), in bytes.
pub(super) const EXPLICIT_NONCE_LEN: usize = 8;

impl RecordKey {
    pub(crate) fn new(keys: &TrafficKeys) -> Result<Self, CryptoError> {
        let aead = keys.aead;
        let form = keys.form;
        let key = Some(aead.key(keys.key())?);
        Ok(Self { key, iv: Zeroizing::new(keys.iv), algorithm: aead.algorithm(), form })
    }

    /// A key that rests until [`Self::wake`].
    pub(crate) fn resting(keys: &TrafficKeys) -> Self {
        Self { key: None, iv: Zeroizing::new(keys.iv), algorithm: keys.aead.algorithm(), form: keys.form }
    }

    /// Whether the key is expanded. Only then it can seal and open.
    pub(crate) const fn is_expanded(&self) -> bool {
        self.key.is_some()
    }

    /// Drops the expanded key.
    pub(crate) fn rest(&mut self) {
        self.key = None;
    }

    /// Expands the key again.
    pub(crate) fn wake(&mut self, keys: &TrafficKeys) -> Result<(), CryptoError> {
        self.key = Some(keys.aead.key(keys.key())?);
        Ok(())
    }

    fn expanded(&self) -> Result<&dyn AeadKey, CryptoError> {
        self.key.as_deref().ok_or(CryptoError)
    }

    pub(crate) const fn form(&self) -> RecordForm {
        self.form
    }

    pub(crate) const fn tag_len(&self) -> usize {
        self.algorithm.tag_len()
    }

    /// The record number, padded on the left, XOR the IV (RFC 8446 §5.3).
    fn nonce(&self, number: u64) -> [u8; NONCE_LEN] {
        let mut nonce = *self.iv;
        for (n, s) in nonce.iter_mut().rev().zip(number.to_be_bytes().iter().rev()) {
            *n ^= s;
        }
        nonce
    }

    /// Seals `data` in place and writes the tag to `tag`.
    pub(crate) fn seal(
        &self,
        number: u64,
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8; MAX_TAG_LEN],
    ) -> Result<(), CryptoError> {
        let tag = tag.get_mut(..self.tag_len()).ok_or(CryptoError)?;
        self.expanded()?.seal(&self.nonce(number), aad, data, tag)
    }

    /// Opens `data`, which ends with the tag, in place, and returns the length of the plaintext.
    pub(crate) fn open(&self, number: u64, aad: &[u8], data: &mut [u8]) -> Result<usize, CryptoError> {
        let len = data.len().checked_sub(self.tag_len()).ok_or(CryptoError)?;
        let (text, tag) = data.split_at_mut_checked(len).ok_or(CryptoError)?;
        self.expanded()?.open(&self.nonce(number), aad, text, tag)?;
        Ok(len)
    }

    /// The explicit nonce of a TLS 1.2 record, if its form has one. It is the record number, so that no nonce
    /// repeats.
    pub(crate) fn explicit_nonce(&self, number: u64) -> Option<[u8; EXPLICIT_NONCE_LEN]> {
        matches!(self.form, RecordForm::Tls12 { explicit_nonce: true, .. }).then(|| number.to_be_bytes())
    }

    /// The length of the explicit nonce, in bytes; 0 without one.
    pub(crate) const fn explicit_nonce_len(&self) -> usize {
        match self.form {
            RecordForm::Tls12 { explicit_nonce: true, .. } => EXPLICIT_NONCE_LEN,
            _ => 0,
        }
    }

    /// Opens the body of a record of version 1.2 in place, and returns the range of the plaintext in it.
    /// `additional_data` makes the additional data from the length of the plaintext.
    pub(crate) fn open_tls12<A: AsRef<[u8]>>(
        &self,
        number: u64,
        additional_data: impl FnOnce(usize) -> Result<A, CryptoError>,
        body: &mut [u8],
    ) -> Result<Range<usize>, CryptoError> {
        let (start, nonce) = match self.form {
            RecordForm::Tls12 { explicit_nonce: true, .. } => {
                let explicit = body.first_chunk::<EXPLICIT_NONCE_LEN>().ok_or(CryptoError)?;
                // The IV has zeros in place of the explicit nonce, so XOR inserts it.
                (EXPLICIT_NONCE_LEN, u64::from_be_bytes(*explicit))
            }
            _ => (0, number),
        };
        let data = body.get_mut(start..).ok_or(CryptoError)?;
        let len = data.len().checked_sub(self.tag_len()).ok_or(CryptoError)?;
        let (text, tag) = data.split_at_mut_checked(len).ok_or(CryptoError)?;
        self.expanded()?.open(&self.nonce(nonce), additional_data(len)?.as_ref(), text, tag)?;
        Ok(start..start + len)
    }

    pub(crate) const fn confidentiality_limit(&self) -> u64 {
        limits::confidentiality(self.algorithm)
    }
}

/// The additional data of a TLS 1.2 record (RFC 5246 §6.2.3.3): its number, type, version and plaintext
/// length.
pub(crate) fn additional_data(number: u64, [typ, major, minor]: [u8; 3], len: usize) -> [u8; 13] {
    let [n0, n1, n2, n3, n4, n5, n6, n7] = number.to_be_bytes();
    let [high, low] = (len as u16).to_be_bytes();
    [n0, n1, n2, n3, n4, n5, n6, n7, typ, major, minor, high, low]
}

/// The sequence numbers of one key, each used once.
#[derive(Default)]
pub(crate) struct Sequence {
    next: u64,
}

impl Sequence {
    pub(crate) const fn starting_at(next: u64) -> Self {
        Self { next }
    }

    /// The number of the next record. RFC 8446 §5.3: sequence numbers must not wrap.
    pub(crate) fn next(&mut self) -> Result<u64, Error> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or(Internal::KeyExhausted)?;
        Ok(number)
    }

    pub(crate) const fn used(&self) -> u64 {
        self.next
    }
}
