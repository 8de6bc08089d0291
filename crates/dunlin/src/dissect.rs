//! Recorded traffic, read with the secrets of a key log (RFC 9850): for analysers, never for a connection.
//!
//! A connection derives its secrets; here they are given, and what does not open is not an error of the peer. Nothing
//! of it can be reached from a connection.

use core::ops::Range;

use crate::crypto::{CryptoError, HashOutput, Tls13CipherSuite};
use crate::protocol::Protocol;
use crate::record::datagram::{EpochKey, Header};
use crate::record::protect::RecordKey;
use crate::schedule::tls13::{RestingSecret, TrafficSecret};
use crate::wire::ContentType;

/// The inside of an opened record, `TLSInnerPlaintext` or `DTLSInnerPlaintext` (RFC 8446 §5.2, RFC 9147 §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What it carries; 0 where there are only zeros, which no honest peer sends.
    pub typ: ContentType,
    /// Where the content stands in what was decrypted in place: in `body` of [`StreamKeys::open`], in `record` of
    /// [`DatagramKeys::open`]. The type, the padding and the tag follow.
    pub content: Range<usize>,
    /// The record's number in its epoch.
    pub number: u64,
}

/// The keys of one direction of TLS 1.3, from a logged traffic secret on.
pub struct StreamKeys {
    secret: RestingSecret,
    key: RecordKey,
}

impl StreamKeys {
    /// The keys of a logged `secret`.
    ///
    /// # Errors
    /// The secret has not the length of the suite's hash.
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

    /// Opens the record with this number in place: `header`, which is authenticated, and what follows it.
    ///
    /// # Errors
    /// It is not of these keys or has another number; `body` is of no use any more.
    pub fn open(&self, number: u64, header: &[u8], body: &mut [u8]) -> Result<Opened, CryptoError> {
        let len = self.key.open(number, header, body)?;
        Ok(inner(body.get(..len).unwrap_or_default(), 0, number))
    }
}

/// The keys of one direction of DTLS 1.3, from a logged traffic secret on.
pub struct DatagramKeys {
    secret: RestingSecret,
    key: EpochKey,
}

impl DatagramKeys {
    /// The keys of a logged `secret`.
    ///
    /// # Errors
    /// The secret has not the length of the suite's hash.
    pub fn new(suite: &'static Tls13CipherSuite, secret: &[u8]) -> Result<Self, CryptoError> {
        Self::from_secret(logged(suite, Protocol::Dtls13, secret)?)
    }

    /// The keys after a KeyUpdate, of the next epoch.
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

    /// Opens a whole record with a unified header in place. `expected` is the number that it is close to.
    ///
    /// # Errors
    /// It is not of these keys, or has a connection ID; `record` is of no use any more.
    pub fn open(&self, expected: u64, record: &mut [u8]) -> Result<Opened, CryptoError> {
        let header = Header::read(record).ok_or(CryptoError)?;
        let start = header.len();
        let (number, plaintext) = self.key.open(expected, &header, record)?;
        Ok(inner(plaintext, start, number))
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

/// Content, type, zeros.
fn inner(plaintext: &[u8], start: usize, number: u64) -> Opened {
    let len = plaintext.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let typ = ContentType(plaintext.get(len).copied().unwrap_or(0));
    Opened { typ, content: start..start + len, number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_alone_have_no_content() {
        assert_eq!(inner(&[0, 0], 5, 1), Opened { typ: ContentType(0), content: 5..5, number: 1 });
        assert_eq!(inner(&[], 5, 1).content, 5..5);
        assert_eq!(
            inner(&[7, 0, 23, 0], 5, 1),
            Opened { typ: ContentType::APPLICATION_DATA, content: 5..7, number: 1 }
        );
    }
}
