//! A key of one direction at work: nonces, sequence numbers and their end (RFC 8446 §5.3).

use alloc::boxed::Box;

use super::limits;
use crate::crypto::{AeadAlgorithm, AeadKey, CryptoError, MAX_TAG_LEN, NONCE_LEN};
use crate::error::{Error, Internal};
use crate::schedule::tls13::TrafficKeys;
use zeroize::Zeroizing;

/// An AEAD key with its IV.
pub(crate) struct RecordKey {
    key: Box<dyn AeadKey>,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    algorithm: AeadAlgorithm,
}

impl RecordKey {
    pub(crate) fn new(keys: &TrafficKeys) -> Result<Self, CryptoError> {
        let aead = keys.suite.aead;
        Ok(Self { key: aead.key(keys.key())?, iv: Zeroizing::new(keys.iv), algorithm: aead.algorithm() })
    }

    pub(crate) const fn tag_len(&self) -> usize {
        self.algorithm.tag_len()
    }

    /// The record number, padded to the left, xor the IV (RFC 8446 §5.3).
    fn nonce(&self, number: u64) -> [u8; NONCE_LEN] {
        let mut nonce = *self.iv;
        for (n, s) in nonce.iter_mut().rev().zip(number.to_be_bytes().iter().rev()) {
            *n ^= s;
        }
        nonce
    }

    /// Seals the whole of `data` in place and gives the tag.
    pub(crate) fn seal(
        &self,
        number: u64,
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8; MAX_TAG_LEN],
    ) -> Result<(), CryptoError> {
        let tag = tag.get_mut(..self.tag_len()).ok_or(CryptoError)?;
        self.key.seal(&self.nonce(number), aad, data, tag)
    }

    /// Opens `data`, which ends with the tag, in place; gives the length of the plaintext.
    pub(crate) fn open(&self, number: u64, aad: &[u8], data: &mut [u8]) -> Result<usize, CryptoError> {
        let len = data.len().checked_sub(self.tag_len()).ok_or(CryptoError)?;
        let (text, tag) = data.split_at_mut_checked(len).ok_or(CryptoError)?;
        self.key.open(&self.nonce(number), aad, text, tag)?;
        Ok(len)
    }

    pub(crate) const fn confidentiality_limit(&self) -> u64 {
        limits::confidentiality(self.algorithm)
    }
}

/// The numbers of the records of one key, each given once.
#[derive(Default)]
pub(crate) struct Sequence {
    next: u64,
}

impl Sequence {
    /// The number for the next record. RFC 8446 §5.3: sequence numbers must not wrap.
    pub(crate) fn next(&mut self) -> Result<u64, Error> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or(Internal::KeyExhausted)?;
        Ok(number)
    }

    pub(crate) const fn used(&self) -> u64 {
        self.next
    }
}
