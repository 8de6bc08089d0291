//! How a side proves who it is: an ordered list of typed credentials, one file a way, and the trust in the
//! peer's.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use crate::crypto::{Hash, RsaDecryption, SigningKey};
use crate::wire::{CertificateType, SignatureScheme};

pub(crate) mod cached;
mod chain;
pub(crate) mod der;
mod psk;
pub(crate) mod raw_key;
pub(crate) mod revocation;
pub(crate) mod select;
pub(crate) mod verifier;
pub(crate) mod x509;

pub(crate) use psk::PSK_DIGEST_LEN;
pub use psk::{ChoosePsk, ExternalPsk, FindPsk, MIN_PSK_LEN, Psk, PskTable};
pub use raw_key::RawKeyTrust;
pub use revocation::Revocation;
pub use x509::X509Trust;

/// A private key, here or elsewhere.
#[derive(Clone, Debug)]
pub enum PrivateKey {
    /// It signs when asked.
    Here(Arc<dyn SigningKey>),
    /// It is in hardware or on another machine: the connection asks [`crate::Question::Sign`].
    Elsewhere {
        /// What it can sign with, in order of preference.
        schemes: Vec<SignatureScheme>,
        /// What the question calls it.
        label: String,
    },
}

impl PrivateKey {
    /// What it can sign with, in order of preference.
    pub fn schemes(&self) -> &[SignatureScheme] {
        match self {
            Self::Here(key) => key.schemes(),
            Self::Elsewhere { schemes, .. } => schemes,
        }
    }

    /// The key as one that decrypts; one that is elsewhere only signs.
    pub(crate) fn decryption(&self) -> Option<&dyn RsaDecryption> {
        match self {
            Self::Here(key) => key.decryption(),
            Self::Elsewhere { .. } => None,
        }
    }
}

/// One way to prove who this side is.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A chain of X.509 certificates, leaf first, without the root.
    X509 {
        /// The chain.
        chain: Vec<CertificateDer<'static>>,
        /// The leaf's key.
        key: PrivateKey,
    },
    /// A raw public key (RFC 7250).
    RawKey {
        /// The public key.
        public_key: SubjectPublicKeyInfoDer<'static>,
        /// Its private key.
        key: PrivateKey,
    },
}

impl Credential {
    /// A raw public key of a key that is here.
    pub fn raw_key(key: Arc<dyn SigningKey>) -> Self {
        Self::RawKey { public_key: key.public_key().clone(), key: PrivateKey::Here(key) }
    }

    /// A chain, leaf first, with its key here.
    pub const fn x509(chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> Self {
        Self::X509 { chain, key: PrivateKey::Here(key) }
    }

    pub(crate) const fn certificate_type(&self) -> CertificateType {
        match self {
            Self::X509 { .. } => CertificateType::X509,
            Self::RawKey { .. } => CertificateType::RAW_PUBLIC_KEY,
        }
    }

    /// Its private key.
    pub const fn key(&self) -> &PrivateKey {
        match self {
            Self::X509 { key, .. } | Self::RawKey { key, .. } => key,
        }
    }

    /// The entries of its Certificate message.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let (chain, raw): (&[CertificateDer<'static>], _) = match self {
            Self::X509 { chain, .. } => (chain, None),
            Self::RawKey { public_key, .. } => (&[], Some(&**public_key)),
        };
        chain.iter().map(|c| &**c).chain(raw)
    }
}

/// Whom this side believes, for each certificate type. A type without settings is not accepted.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// For chains of certificates.
    pub x509: Option<X509Trust>,
    /// For raw public keys.
    pub raw_key: Option<RawKeyTrust>,
}

/// Who the peer is, by whichever way it proved that. Seen only after its Finished was verified.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// By a chain of X.509 certificates.
    X509(X509Identity),
    /// By a raw public key.
    RawKey(SubjectPublicKeyInfoDer<'static>),
    /// By a pre-shared key.
    Psk(PskIdentity),
}

/// The identity of a peer that has a pre-shared key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PskIdentity {
    /// The name of the key, as it went over the wire.
    pub identity: Vec<u8>,
    /// The name of the device that has the key, where this side gave it one ([`Psk::with_name`]). Tickets do not carry
    /// it: it is that of the key today.
    pub name: Option<String>,
    /// Which key it was: another one under the same identity is not the same proof.
    pub(crate) digest: [u8; PSK_DIGEST_LEN],
}

impl PskIdentity {
    pub(crate) fn new(identity: Vec<u8>, psk: &Psk, hash: &dyn Hash) -> Self {
        Self { identity, name: psk.name().map(String::from), digest: psk.digest(hash) }
    }
}

/// The identity in a chain of certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct X509Identity {
    /// The chain as received, leaf first; empty after a resumption by a stateless ticket, which does not carry it.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's DNS names and URIs.
    pub names: Vec<String>,
    /// The common name of a leaf without such names, for logs: it is not what a name is verified by (RFC 9525 §2).
    pub common_name: Option<String>,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// When the first certificate of the chain expires, in seconds since 1970: no session resumes after it.
    pub not_after_s: u64,
}

impl PeerIdentity {
    /// Whether it is the same proof of the same identity. A chain may be missing from one of them: a stateless ticket does
    /// not carry it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::X509(a), Self::X509(b)) => a.fingerprint == b.fingerprint,
            (Self::RawKey(a), Self::RawKey(b)) => a == b,
            (Self::Psk(a), Self::Psk(b)) => a.identity == b.identity && a.digest == b.digest,
            _ => false,
        }
    }
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex =
            |f: &mut fmt::Formatter<'_>, bytes: &[u8]| bytes.iter().try_for_each(|b| write!(f, "{b:02x}"));
        match self {
            Self::X509(id) => {
                f.write_str("X.509 ")?;
                match (id.names.first(), &id.common_name) {
                    (Some(name), _) => f.write_str(name),
                    (None, Some(name)) => write!(f, "CN={name}"),
                    (None, None) => {
                        f.write_str("sha256:")?;
                        hex(f, &id.fingerprint)
                    }
                }
            }
            Self::RawKey(key) => {
                f.write_str("raw key ")?;
                hex(f, key)
            }
            Self::Psk(PskIdentity { identity, name, .. }) => {
                f.write_str("PSK ")?;
                if let Some(name) = name {
                    write!(f, "{}", name.escape_debug())?;
                    if name.as_bytes() == identity {
                        return Ok(());
                    }
                    f.write_str(", identity ")?;
                }
                match core::str::from_utf8(identity) {
                    Ok(text) if text.chars().all(|c| !c.is_control()) => f.write_str(text),
                    _ => {
                        f.write_str("0x")?;
                        hex(f, identity)
                    }
                }
            }
        }
    }
}
