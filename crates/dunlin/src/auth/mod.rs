//! Authentication: the credentials by which a side proves its identity, and the trust in the peer's
//! credentials. Each way of authentication has a file.

use crate::sync::Arc;
use alloc::string::String;
use alloc::vec::Vec;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use crate::crypto::{RsaDecryption, SigningKey};
use crate::wire::{CertificateType, DidMethod, SignatureScheme};

mod certificate;
mod chain;
pub(crate) mod codec;
mod constraints;
mod credential;
pub(crate) mod der;
mod failure;
mod identity;
mod psk;
pub(crate) mod raw_key;
pub(crate) mod revocation;
pub(crate) mod select;
mod spelling;
pub(crate) mod verifier;
pub(crate) mod x509;

pub use crate::extension::did_proof::KnownRegistry;
pub use chain::Anchor;
pub(crate) use credential::AcceptedStaples;
pub use credential::{DidProofs, Identifier, VerifiableCredential};
pub use identity::{
    MAX_OTHER_DETAILS, MAX_OTHER_ID, MAX_OTHER_TEXT, MAX_X509_DETAILS, OtherIdentity, PeerIdentity,
    PskIdentity, SubjectName, X509Details, X509Identity,
};
pub use psk::{ChoosePsk, ExternalPsk, FindPsk, MIN_PSK_LEN, Psk, PskTable};
pub use raw_key::RawKeyTrust;
pub use revocation::Revocation;
pub use verifier::{
    Acceptance, AskAgain, Belief, Claim, KeyUse, Validity, Verdict, Verified, Verifier, Verifiers,
};
pub use x509::X509Trust;

/// A private key in this process, or elsewhere.
#[derive(Clone, Debug)]
pub enum PrivateKey {
    /// The engine signs with this key.
    Here(Arc<dyn SigningKey>),
    /// The key is in hardware or on another machine. The connection asks the caller by
    /// [`crate::Question::Sign`].
    Elsewhere {
        /// The schemes that the key can sign with, in order of preference.
        schemes: Vec<SignatureScheme>,
        /// The label of the key in the question.
        label: String,
    },
}

impl PrivateKey {
    /// The schemes that the key can sign with, in order of preference.
    pub fn schemes(&self) -> &[SignatureScheme] {
        match self {
            Self::Here(key) => key.schemes(),
            Self::Elsewhere { schemes, .. } => schemes,
        }
    }

    /// The key's RSA decryption; `None` if it has none. A key elsewhere only signs.
    pub(crate) fn decryption(&self) -> Option<&dyn RsaDecryption> {
        match self {
            Self::Here(key) => key.decryption(),
            Self::Elsewhere { .. } => None,
        }
    }
}

/// A credential by which this side proves its identity.
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
    /// A verifiable credential (docs/identity.md).
    Verifiable {
        /// The credential.
        credential: VerifiableCredential,
        /// The private key of the identifier that the credential is about. The engine cannot check that it
        /// belongs to it.
        key: PrivateKey,
    },
    /// A bare decentralised identifier (docs/identity.md). It needs [`crate::SsiMessages`].
    Identifier {
        /// The identifier.
        identifier: Identifier,
        /// Its private key. The engine cannot check that it belongs to it.
        key: PrivateKey,
    },
    /// A certificate of a type that the engine does not know. The peer needs a [`Verifier`] for it.
    Other {
        /// The type (RFC 7250).
        certificate_type: CertificateType,
        /// The entries of the Certificate message.
        entries: Vec<Vec<u8>>,
        /// The private key. The engine cannot check that it belongs to the entries.
        key: PrivateKey,
    },
}

impl Credential {
    /// A raw public key whose private key is in this process.
    pub fn raw_key(key: Arc<dyn SigningKey>) -> Self {
        Self::RawKey { public_key: key.public_key().clone(), key: PrivateKey::Here(key) }
    }

    /// A certificate chain, leaf first, whose private key is in this process.
    pub const fn x509(chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> Self {
        Self::X509 { chain, key: PrivateKey::Here(key) }
    }

    pub(crate) const fn certificate_type(&self) -> CertificateType {
        match self {
            Self::X509 { .. } => CertificateType::X509,
            Self::RawKey { .. } => CertificateType::RAW_PUBLIC_KEY,
            Self::Verifiable { .. } => CertificateType::VERIFIABLE_CREDENTIAL,
            Self::Identifier { .. } => CertificateType::DECENTRALISED_IDENTIFIER,
            Self::Other { certificate_type, .. } => *certificate_type,
        }
    }

    /// Whether the private key belongs to the certificate or raw key, by a comparison of the public keys. A
    /// key elsewhere, or for another type of certificate, passes: the engine cannot check it, and a wrong one
    /// fails in every handshake.
    pub(crate) fn has_its_own_key(&self) -> bool {
        match self {
            Self::X509 { key: PrivateKey::Elsewhere { .. }, .. }
            | Self::RawKey { key: PrivateKey::Elsewhere { .. }, .. }
            | Self::Verifiable { .. }
            | Self::Identifier { .. }
            | Self::Other { .. } => true,
            Self::X509 { chain, key: PrivateKey::Here(key) } => {
                // An empty chain passes here, because another rule of the profile rejects it.
                chain
                    .first()
                    .is_none_or(|leaf| certificate::public_key_info(leaf) == Some(&**key.public_key()))
            }
            Self::RawKey { public_key, key: PrivateKey::Here(key) } => public_key == key.public_key(),
        }
    }

    /// Its private key.
    pub const fn key(&self) -> &PrivateKey {
        match self {
            Self::X509 { key, .. }
            | Self::RawKey { key, .. }
            | Self::Verifiable { key, .. }
            | Self::Identifier { key, .. }
            | Self::Other { key, .. } => key,
        }
    }

    /// The method of the decentralised identifier that the peer must resolve.
    pub(crate) const fn did_method(&self) -> Option<DidMethod> {
        match self {
            Self::Verifiable { credential, .. } => Some(credential.did_method),
            Self::Identifier { identifier, .. } => Some(identifier.did_method),
            _ => None,
        }
    }

    /// The proof of what its identifier resolves to, for a peer that accepts proofs from these registries.
    pub(crate) fn did_proof(&self, accepted: &[KnownRegistry]) -> Option<Vec<u8>> {
        let source = match self {
            Self::Verifiable { credential, .. } => credential.proofs.as_ref(),
            Self::Identifier { identifier, .. } => identifier.proofs.as_ref(),
            _ => None,
        };
        credential::proof(source, accepted)
    }

    /// The status lists of its issuer, if it is a verifiable credential that has some.
    pub(crate) fn status(&self) -> Option<&[u8]> {
        match self {
            Self::Verifiable { credential, .. } => {
                Some(&*credential.status).filter(|lists| !lists.is_empty())
            }
            _ => None,
        }
    }

    /// The entries of its Certificate message, or the content of its VC or DID.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let (chain, raw, others): (&[CertificateDer<'static>], _, &[Vec<u8>]) = match self {
            Self::X509 { chain, .. } => (chain, None, &[]),
            Self::RawKey { public_key, .. } => (&[], Some(&**public_key), &[]),
            Self::Verifiable { credential, .. } => (&[], Some(&*credential.bytes), &[]),
            Self::Identifier { identifier, .. } => (&[], Some(identifier.did.as_bytes()), &[]),
            Self::Other { entries, .. } => (&[], None, entries),
        };
        chain.iter().map(|c| &**c).chain(raw).chain(others.iter().map(Vec::as_slice))
    }
}

/// The trust settings for the certificate types that the engine knows. This side rejects a type without
/// settings. [`Verifiers`] adds verifiers of the application.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// For X.509 certificate chains.
    pub x509: Option<X509Trust>,
    /// For raw public keys.
    pub raw_key: Option<RawKeyTrust>,
}
