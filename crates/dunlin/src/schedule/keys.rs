//! The keys of one direction, which the key schedule gives to the record layer.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::crypto::{Aead, MAX_KEY_LEN, NONCE_LEN};
use crate::wire::{Malformed, Reader, Writer};

/// The form of protected records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordForm {
    /// TLS 1.3 and DTLS 1.3: the record encrypts its content type and does not carry its nonce.
    Tls13,
    /// TLS 1.2: the header shows the content type, and a ChangeCipherSpec activates the keys.
    Tls12 {
        /// Whether every record carries the variable part of its nonce (RFC 5288 §3, RFC 6655 §3). Otherwise
        /// both sides compute the nonce as in TLS 1.3 (RFC 7905 §2).
        explicit_nonce: bool,
        /// Whether the first record that decrypts proves that the peer has the pre-shared key.
        proves_psk: bool,
    },
}

/// The keys for the records of one direction and epoch (RFC 8446 §7.3, RFC 5246 §6.3).
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct TrafficKeys {
    #[zeroize(skip)]
    pub(crate) aead: &'static dyn Aead,
    #[zeroize(skip)]
    pub(crate) form: RecordForm,
    key: [u8; MAX_KEY_LEN],
    record_number_key: [u8; MAX_KEY_LEN],
    /// The IV. With an explicit nonce, it is the four fixed bytes followed by zeros.
    pub(crate) iv: [u8; NONCE_LEN],
}

impl TrafficKeys {
    pub(crate) const fn zeros(aead: &'static dyn Aead, form: RecordForm) -> Self {
        let key = [0; MAX_KEY_LEN];
        let record_number_key = [0; MAX_KEY_LEN];
        Self { aead, form, key, record_number_key, iv: [0; NONCE_LEN] }
    }

    /// The same keys, for a connection that expands them again after a rest.
    pub(crate) const fn duplicate(&self) -> Self {
        let Self { aead, form, key, record_number_key, iv } = self;
        Self { aead: *aead, form: *form, key: *key, record_number_key: *record_number_key, iv: *iv }
    }

    /// Writes the keys for a connection that continues elsewhere.
    pub(crate) fn freeze(&self, w: &mut Writer) {
        w.put(self.key());
        w.put(self.record_number_key());
        w.put(&self.iv);
    }

    /// Reads the output of [`Self::freeze`].
    pub(crate) fn thaw(
        r: &mut Reader<'_>,
        aead: &'static dyn Aead,
        form: RecordForm,
    ) -> Result<Self, Malformed> {
        let mut keys = Self::zeros(aead, form);
        let len = keys.key_len();
        for key in [&mut keys.key, &mut keys.record_number_key] {
            key.iter_mut().zip(r.take(len)?).for_each(|(to, from)| *to = *from);
        }
        keys.iv = r.array()?;
        Ok(keys)
    }

    fn key_len(&self) -> usize {
        self.aead.algorithm().key_len().min(MAX_KEY_LEN)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.key.get(..self.key_len()).unwrap_or(&self.key)
    }

    pub(crate) fn key_mut(&mut self) -> &mut [u8] {
        let len = self.key_len();
        self.key.get_mut(..len).unwrap_or_default()
    }

    /// `sn_key` (RFC 9147 §4.2.3).
    pub(crate) fn record_number_key(&self) -> &[u8] {
        self.record_number_key.get(..self.key_len()).unwrap_or(&self.record_number_key)
    }

    pub(crate) fn record_number_key_mut(&mut self) -> &mut [u8] {
        let len = self.key_len();
        self.record_number_key.get_mut(..len).unwrap_or_default()
    }
}
