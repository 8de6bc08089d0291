//! Decrypts recorded traffic with the secrets of a key log (RFC 9850). It is for protocol analysers only.
//!
//! In contrast to a connection, the caller supplies the secrets, and a record that does not open is not the
//! peer's error. No connection can reach this module.

use core::ops::Range;

use crate::crypto::{CryptoError, HashOutput, Tls13CipherSuite};
use crate::protocol::Protocol;
use crate::record::datagram::{EpochKey, Header};
use crate::record::protect::RecordKey;
use crate::schedule::tls13::{RestingSecret, TrafficSecret};
use crate::wire::ContentType;

/// The inner plaintext of an opened record: `TLSInnerPlaintext` or `DTLSInnerPlaintext` (RFC 8446 §5.2, RFC
/// 9147 §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The content type; 0 if the plaintext has only zeros, which a correct peer never sends.
    pub typ: ContentType,
    /// The range of the content in the decrypted buffer: in `body` of [`StreamKeys::open`], in `record` of
    /// [`DatagramKeys::open`]. The type, the padding and the tag follow it.
    pub content: Range<usize>,
    /// The record's number in its epoch.
    pub number: u64,
}

/// The keys of one direction of TLS 1.3, derived from a logged traffic secret.
pub struct StreamKeys {
    secret: RestingSecret,
    key: RecordKey,
}

impl StreamKeys {
    /// Derives the keys from a logged `secret`.
    ///
    /// # Errors
    /// The length of `secret` is not the length of the suite's hash, or the provider failed.
    pub fn new(suite: &'static Tls13CipherSuite, secret: &[u8]) -> Result<Self, CryptoError> {
        Self::from_secret(logged(suite, Protocol::Tls13, secret)?)
    }

    /// The keys after a KeyUpdate (RFC 8446 §7.2).
    ///
    /// # Errors
    /// The provider failed.
    pub fn next(&self) -> Result<Self, CryptoError> {
        Self::from_secret(self.secret.next())
    }

    fn from_secret(secret: TrafficSecret) -> Result<Self, CryptoError> {
        let key = RecordKey::new(&secret.keys(Protocol::Tls13))?;
        Ok(Self { secret: secret.rest(), key })
    }

    /// Opens the record with this number in place. `header` is its authenticated header, and `body` the rest.
    ///
    /// # Errors
    /// The record has other keys or another number. The content of `body` is then undefined.
    pub fn open(&self, number: u64, header: &[u8], body: &mut [u8]) -> Result<Opened, CryptoError> {
        let len = self.key.open(number, header, body)?;
        Ok(inner(body.get(..len).unwrap_or_default(), 0, number))
    }
}

/// The keys of one direction of DTLS 1.3, derived from a logged traffic secret.
pub struct DatagramKeys {
    secret: RestingSecret,
    key: EpochKey,
}

impl DatagramKeys {
    /// Derives the keys from a logged `secret`.
    ///
    /// # Errors
    /// The length of `secret` is not the length of the suite's hash, or the provider failed.
    pub fn new(suite: &'static Tls13CipherSuite, secret: &[u8]) -> Result<Self, CryptoError> {
        Self::from_secret(logged(suite, Protocol::Dtls13, secret)?)
    }

    /// The keys after a KeyUpdate, for the next epoch.
    ///
    /// # Errors
    /// The provider failed.
    pub fn next(&self) -> Result<Self, CryptoError> {
        Self::from_secret(self.secret.next())
    }

    fn from_secret(secret: TrafficSecret) -> Result<Self, CryptoError> {
        let key = EpochKey::new(&secret.keys(Protocol::Dtls13))?;
        Ok(Self { secret: secret.rest(), key })
    }

    /// Opens a whole record with a unified header in place. The record's number must be close to `expected`.
    /// If the record has a connection ID, the ID has `id_len` bytes.
    ///
    /// # Errors
    /// The record has other keys, or an ID of another length. The content of `record` is then undefined.
    pub fn open(&self, expected: u64, id_len: usize, record: &mut [u8]) -> Result<Opened, CryptoError> {
        let header = Header::read(record, id_len).ok_or(CryptoError)?;
        let (number, range) = self.key.open13(expected, &header, record)?;
        Ok(inner(record.get(range.clone()).unwrap_or_default(), range.start, number))
    }
}

fn logged(
    suite: &'static Tls13CipherSuite,
    protocol: Protocol,
    secret: &[u8],
) -> Result<TrafficSecret, CryptoError> {
    if secret.len() != suite.hash.algorithm().output_len() {
        return Err(CryptoError);
    }
    Ok(TrafficSecret::logged(suite, protocol, HashOutput::new(secret)))
}

/// Splits an inner plaintext: content, type, zeros.
fn inner(plaintext: &[u8], start: usize, number: u64) -> Opened {
    let len = plaintext.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let typ = ContentType(plaintext.get(len).copied().unwrap_or(0));
    Opened { typ, content: start..start + len, number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_no_content_in_a_plaintext_of_zeros() {
        assert_eq!(inner(&[0, 0], 5, 1), Opened { typ: ContentType(0), content: 5..5, number: 1 });
        assert_eq!(inner(&[], 5, 1).content, 5..5);
        assert_eq!(
            inner(&[7, 0, 23, 0], 5, 1),
            Opened { typ: ContentType::APPLICATION_DATA, content: 5..7, number: 1 }
        );
    }
}
