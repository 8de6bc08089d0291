//! What both sides do with a message that the receiver has in its cache (docs/handshake-cache.md §3, §4).

use alloc::vec::Vec;

use crate::cache::{CacheOutcome, Fingerprint};
use crate::crypto::Tls12CipherSuite;
use crate::error::Error;
use crate::message;
use crate::schedule::Transcript;
use crate::wire::HandshakeType;

/// What a handshake can use of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing: it proves nobody by a certificate that signs (docs/handshake-cache.md §5.7).
    Nothing,
    /// What TLS 1.2 has, with its CertificateRequest.
    Tls12,
    /// Certificates.
    Tls13,
}

impl Use {
    /// In a full handshake of TLS 1.2. Without extended master secret its secrets do not depend on the certificates; where RSA
    /// carries the secret, the server's key does not sign; and a pre-shared key replaces the certificates.
    pub(crate) fn in_tls12(suite: &Tls12CipherSuite, extended: bool) -> Self {
        match extended && suite.is_signed() {
            true => Self::Tls12,
            false => Self::Nothing,
        }
    }

    /// What a side that has a cache says of it; `agreed` is whether the peer has one, too.
    pub(crate) const fn outcome(self, agreed: bool) -> CacheOutcome {
        match (self, agreed) {
            (Self::Nothing, _) => CacheOutcome::NotUsable,
            (_, false) => CacheOutcome::NotAnswered,
            (_, true) => CacheOutcome::Agreed,
        }
    }
}

/// How a message of TLS 1.2 says that it is one that the receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It has no body, and its fingerprint follows it in the transcript.
    Empty,
    /// Its body is the fingerprint (RFC 7924 §4.1, §4.2).
    Fingerprint,
}

impl Form {
    /// The message.
    pub(crate) fn write(self, typ: HandshakeType, fingerprint: &Fingerprint) -> Result<Vec<u8>, Error> {
        message::encode(typ, |w| match self {
            Self::Empty => {}
            Self::Fingerprint => w.vec8(|w| w.put(fingerprint.as_bytes())),
        })
    }

    /// Whether a message with this body is the one with this fingerprint; otherwise it is in full.
    pub(crate) fn is(self, body: &[u8], fingerprint: &Fingerprint) -> bool {
        match self {
            Self::Empty => body.is_empty(),
            Self::Fingerprint => body.split_first() == Some((&32, fingerprint.as_bytes())),
        }
    }

    /// Adds what binds a message in this form, which was added before.
    pub(crate) fn bind(self, transcript: &mut Transcript, fingerprint: &Fingerprint) {
        match self {
            Self::Empty => transcript.add(&fingerprint.cached_object()),
            // The body has it already.
            Self::Fingerprint => {}
        }
    }
}
