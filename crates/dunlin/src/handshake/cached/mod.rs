//! Abbreviated messages: the receiver has the full message in its cache (docs/handshake-cache.md §3, §4).
//! [`client`] and [`server`] are the interfaces to the caches of both sides.

use alloc::vec::Vec;

use crate::cache::{CacheOutcome, Fingerprint};
use crate::crypto::Tls12CipherSuite;
use crate::error::Error;
use crate::message;
use crate::schedule::Running;
use crate::wire::HandshakeType;

pub(crate) mod client;
pub(crate) mod server;

/// Which cached messages a handshake can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// None: no certificate authenticates a peer by a signature (docs/handshake-cache.md §5, rule 7).
    Nothing,
    /// The messages of TLS 1.2: Certificate and CertificateRequest.
    Tls12,
    /// The message of TLS 1.3: Certificate.
    Tls13,
}

impl Use {
    /// For a full TLS 1.2 handshake. The cache is unusable in three cases. Without the extended master
    /// secret, the secrets do not depend on the certificates. With static RSA, the server's key does not
    /// sign. A pre-shared key replaces the certificates.
    pub(crate) fn in_tls12(suite: &Tls12CipherSuite, extended: bool) -> Self {
        if extended && suite.is_signed() { Self::Tls12 } else { Self::Nothing }
    }

    /// The outcome that a side with a cache reports. `agreed` tells whether the peer supports the cache, too.
    pub(crate) const fn outcome(self, agreed: bool) -> CacheOutcome {
        match (self, agreed) {
            (Self::Nothing, _) => CacheOutcome::NotUsable,
            (_, false) => CacheOutcome::NotAnswered,
            (_, true) => CacheOutcome::Agreed,
        }
    }
}

/// The form of an abbreviated TLS 1.2 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The body is empty. The transcript contains the fingerprint after the message.
    Empty,
    /// The body is the fingerprint (RFC 7924 §4.1, §4.2).
    Fingerprint,
}

impl Form {
    /// Writes the abbreviated message.
    pub(crate) fn write(self, typ: HandshakeType, fingerprint: &Fingerprint) -> Result<Vec<u8>, Error> {
        message::encode(typ, |w| match self {
            Self::Empty => {}
            Self::Fingerprint => w.vec8(|w| w.put(fingerprint.as_bytes())),
        })
    }

    /// Whether `body` abbreviates the message with this fingerprint. Otherwise the message is in full.
    pub(crate) fn is(self, body: &[u8], fingerprint: &Fingerprint) -> bool {
        match self {
            Self::Empty => body.is_empty(),
            Self::Fingerprint => body.split_first() == Some((&32, fingerprint.as_bytes())),
        }
    }

    /// Binds the fingerprint into the transcript, after the caller has added the abbreviated message.
    pub(crate) fn bind(self, transcript: &mut impl Running, fingerprint: &Fingerprint) {
        match self {
            Self::Empty => transcript.add_bytes(&fingerprint.cached_object()),
            // The body contains the fingerprint already.
            Self::Fingerprint => {}
        }
    }
}
