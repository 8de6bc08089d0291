//! The keys of one epoch and direction.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::sealing::Sealing;
use super::{ciphertext12, ciphertext13, header12, header13};
use crate::crypto::{Aead, AeadAlgorithm, CryptoError, RecordNumberKey};
use crate::error::{Error, Internal};
use crate::record::limits;
use crate::record::protect::{RecordKey, Sequence};
use crate::schedule::keys::{RecordForm, TrafficKeys};
use crate::wire::{ContentType, Reader, Writer};

/// The keys of one epoch and direction.
///
/// An expanded key takes up to a kilobyte, which adds up in a server with many idle connections. So a
/// connection can rest: it then keeps only the keys of the schedule, and expands them again for the next
/// record.
pub(crate) struct EpochKey {
    record: RecordKey,
    /// The key that masks record numbers. `None` in DTLS 1.2, which shows them, and while the connection
    /// rests.
    number: Option<Box<dyn RecordNumberKey>>,
    keys: Box<TrafficKeys>,
    algorithm: AeadAlgorithm,
}

/// The common properties of all keys of an association: the algorithm, and the form of its records.
pub(crate) type Kind = (&'static dyn Aead, RecordForm);

impl EpochKey {
    pub(crate) fn new(keys: &TrafficKeys) -> Result<Self, CryptoError> {
        let number = Self::number_key(keys)?;
        let record = RecordKey::new(keys)?;
        let algorithm = keys.aead.algorithm();
        Ok(Self { record, number, keys: Box::new(keys.duplicate()), algorithm })
    }

    fn number_key(keys: &TrafficKeys) -> Result<Option<Box<dyn RecordNumberKey>>, CryptoError> {
        match keys.form {
            RecordForm::Tls13 => keys.aead.record_number_key(keys.record_number_key()).map(Some),
            RecordForm::Tls12 { .. } => Ok(None),
        }
    }

    /// Writes the keys for an association that continues elsewhere.
    pub(super) fn freeze(&self, w: &mut Writer) {
        self.keys.freeze(w);
    }

    /// Reads the output of [`Self::freeze`]. The keys rest: a server that thaws many associations expands
    /// those that it uses.
    pub(super) fn thaw(r: &mut Reader<'_>, (aead, form): Kind) -> Result<Self, Error> {
        let keys = TrafficKeys::thaw(r, aead, form)?;
        let record = RecordKey::resting(&keys);
        let algorithm = aead.algorithm();
        Ok(Self { record, number: None, keys: Box::new(keys), algorithm })
    }

    /// Whether the keys are expanded.
    pub(super) const fn is_awake(&self) -> bool {
        self.record.is_expanded()
    }

    /// Drops the expanded keys.
    pub(super) fn rest(&mut self) {
        self.record.rest();
        self.number = None;
    }

    /// Expands the keys again after a rest. [`Self::seal`] and the functions that open need that.
    pub(super) fn wake(&mut self) -> Result<(), CryptoError> {
        if !self.is_awake() {
            self.record.wake(&self.keys)?;
            self.number = Self::number_key(&self.keys)?;
        }
        Ok(())
    }

    /// Whether records have the form of DTLS 1.3.
    fn is_tls13(&self) -> bool {
        self.keys.form == RecordForm::Tls13
    }

    /// The most bytes that a record has beside its content, without its connection ID: header, explicit
    /// nonce, type and tag.
    pub(super) fn overhead(&self, has_id: bool) -> usize {
        let (header, has_type) = if self.is_tls13() {
            (header13::MAX_LEN, true)
        } else {
            (header12::LEN + self.record.explicit_nonce_len(), has_id)
        };
        header + usize::from(has_type) + self.record.tag_len()
    }

    /// As [`Self::overhead`], for the last record of a datagram. In DTLS 1.3 that has no length field unless
    /// headers are full.
    pub(super) fn overhead_of_last(&self, has_id: bool, is_full: bool) -> usize {
        self.overhead(has_id) - if self.is_tls13() && !is_full { 2 } else { 0 }
    }

    /// How many of the next records have a number of 8 bits, one byte less than [`Self::overhead`].
    pub(super) const fn short_numbers(&self, sequence: &Sequence, is_full: bool) -> u64 {
        if self.number.is_some() && !is_full {
            header13::SHORT_NUMBERS.saturating_sub(sequence.used())
        } else {
            0
        }
    }

    pub(super) const fn confidentiality_limit(&self) -> u64 {
        self.record.confidentiality_limit()
    }

    pub(super) const fn integrity_limit(&self) -> u64 {
        limits::integrity(self.algorithm)
    }

    /// Appends a sealed record to `out` and returns its number.
    pub(super) fn seal(
        &self,
        sealing: &Sealing<'_>,
        sequence: &mut Sequence,
        content: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        // RFC 9147 §4.5.3: stop at the limit; a KeyUpdate should have replaced the key long before.
        if sequence.used() >= self.record.confidentiality_limit() {
            return Err(Internal::KeyExhausted.into());
        }
        let number = sequence.next()?;
        let start = out.len();
        let sealed = match &self.number {
            Some(masks) => ciphertext13::seal(&self.record, &**masks, sealing, number, content, out),
            None => ciphertext12::seal(&self.record, sealing, number, content, out),
        };
        if let Err(e) = sealed {
            // Never transmit a partly sealed record.
            out.truncate(start);
            return Err(e);
        }
        Ok(number)
    }

    /// Opens a whole record of DTLS 1.3 in place; returns its number and the position of its inner plaintext.
    /// The number must be close to `expected`.
    pub(crate) fn open13(
        &self,
        expected: u64,
        header: &header13::Header,
        record: &mut [u8],
    ) -> Result<(u64, Range<usize>), CryptoError> {
        let masks = self.number.as_deref().ok_or(CryptoError)?;
        ciphertext13::open(&self.record, masks, expected, header, record)
    }

    /// Opens a whole record of DTLS 1.2 in place; returns the position of its plaintext.
    pub(super) fn open12(
        &self,
        header: &header12::Header,
        record: &mut [u8],
    ) -> Result<Range<usize>, CryptoError> {
        match self.number {
            None => ciphertext12::open(&self.record, header, record),
            Some(_) => Err(CryptoError),
        }
    }
}

/// One epoch of this side's records.
pub(super) struct WriteEpoch {
    pub(super) number: u64,
    /// `None` in epoch 0.
    pub(super) key: Option<EpochKey>,
    pub(super) sequence: Sequence,
    /// In epoch 0, whether the server has not chosen a version yet.
    pub(super) is_initial: bool,
}

impl WriteEpoch {
    pub(super) fn with_key(number: u64, key: EpochKey) -> Self {
        Self { number, key: Some(key), sequence: Sequence::default(), is_initial: false }
    }

    /// Appends a record to `out` and returns its number. `is_last` and `is_full` are those of [`Sealing`].
    pub(super) fn seal(
        &mut self,
        typ: ContentType,
        id: &[u8],
        content: &[u8],
        (is_last, is_full): (bool, bool),
        out: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        match &mut self.key {
            Some(key) => {
                key.wake()?;
                let sealing = Sealing { epoch: self.number, typ, id, is_last, is_full };
                key.seal(&sealing, &mut self.sequence, content, out)
            }
            None => {
                let number = self.sequence.next()?;
                header12::write_plain(typ, number, content, self.is_initial, out)?;
                Ok(number)
            }
        }
    }
}
