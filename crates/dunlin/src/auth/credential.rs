//! Verifiable credentials and bare decentralised identifiers (docs/identity.md). The engine carries them; it
//! reads neither. A [`super::Verifier`] does that, for example the one of the crate `dunlin-identity`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::extension::credential_status::MAX_CREDENTIAL_STATUS;
use crate::extension::did_proof::{KnownRegistry, MAX_DID_PROOF};
use crate::message::{MAX_IDENTIFIER, MAX_VERIFIABLE_CREDENTIAL};
use crate::sync::Arc;
use crate::wire::{DidMethod, ExtensionType};

/// A verifiable credential that this side shows, in TLS 1.3 and DTLS 1.3: as a certificate
/// (draft-vesco-vcauthtls), or in the message VC ([`crate::SsiMessages`]).
#[derive(Clone, Debug)]
pub struct VerifiableCredential {
    /// The credential, at most 16 KiB.
    pub bytes: Vec<u8>,
    /// The method of the identifier that it is about. This side sends it only to a peer that resolves the
    /// method.
    pub did_method: DidMethod,
    /// The issuer's entry in certificate_authorities, which a peer that trusts the issuer sends. Of several
    /// suitable credentials this side prefers one whose issuer the peer has named.
    pub issuer: Option<Vec<u8>>,
    /// Where the proof of what the identifier resolves to comes from. Without it the peer asks a registry, or
    /// uses what it knows.
    pub proofs: Option<Arc<dyn DidProofs>>,
    /// The status lists of the issuer, at most 16 KiB in the form that verifiers read. This side sends them
    /// to peers that accept them, so that these need not fetch them. Empty if there are none.
    pub status: Vec<u8>,
}

/// The staples that a side accepts beside a decentralised identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct AcceptedStaples {
    /// The registries whose proofs it accepts.
    pub(crate) registries: Vec<KnownRegistry>,
    /// Whether it accepts the status lists of a credential.
    pub(crate) status: bool,
}

impl AcceptedStaples {
    /// The extensions in which they come with a certificate.
    pub(crate) fn extensions(&self) -> Vec<ExtensionType> {
        let proofs = (!self.registries.is_empty()).then_some(ExtensionType::DID_PROOF);
        proofs.into_iter().chain(self.status.then_some(ExtensionType::CREDENTIAL_STATUS)).collect()
    }
}

/// The source of stapled proofs, which its owner keeps fresh while the credential is in use. The handshake
/// waits for it, so it must not block.
pub trait DidProofs: Send + Sync + fmt::Debug {
    /// The newest proof that a peer with these registries accepts, at most 16 KiB. `None` if there is none;
    /// the peer then resolves the identifier itself.
    fn latest(&self, accepted: &[KnownRegistry]) -> Option<Vec<u8>>;
}

impl VerifiableCredential {
    /// A credential about an identifier of this method, without an issuer's name, proofs and status lists.
    pub const fn new(bytes: Vec<u8>, did_method: DidMethod) -> Self {
        Self { bytes, did_method, issuer: None, proofs: None, status: Vec::new() }
    }

    /// Why a profile cannot have it.
    pub(crate) fn fault(&self) -> Option<String> {
        let len = self.bytes.len();
        if !(1..=MAX_VERIFIABLE_CREDENTIAL).contains(&len) {
            return Some(alloc::format!("a verifiable credential has 1 to 16384 bytes, one here has {len}"));
        }
        let len = self.status.len();
        let fits = len <= MAX_CREDENTIAL_STATUS;
        (!fits)
            .then(|| alloc::format!("status lists have at most 16384 bytes together, those here have {len}"))
    }
}

/// A bare decentralised identifier that this side shows, in the message DID ([`crate::SsiMessages`]).
#[derive(Clone, Debug)]
pub struct Identifier {
    /// The identifier, `did:` and so on, at most 2048 bytes.
    pub did: String,
    /// Its method, which has a number in ssi_parameters. This side sends it only to a peer that resolves the
    /// method.
    pub did_method: DidMethod,
    /// Where the proof of what it resolves to comes from. Without it the peer asks a registry, or uses what
    /// it knows.
    pub proofs: Option<Arc<dyn DidProofs>>,
}

impl Identifier {
    /// An identifier of this method, without proofs.
    pub fn new(did: impl Into<String>, did_method: DidMethod) -> Self {
        Self { did: did.into(), did_method, proofs: None }
    }

    /// Why a profile cannot have it.
    pub(crate) fn fault(&self) -> Option<String> {
        let Self { did, did_method, .. } = self;
        if !(1..=MAX_IDENTIFIER).contains(&did.len()) {
            let len = did.len();
            return Some(alloc::format!(
                "a decentralised identifier has 1 to {MAX_IDENTIFIER} bytes, one here has {len}"
            ));
        }
        let fits = did_method.to_byte().is_some() && did_method.may_have(did.as_bytes());
        (!fits).then(|| alloc::format!("{did} is no identifier of a method {did_method} in ssi_parameters"))
    }
}

/// The newest proof from this source for a peer that accepts proofs from these registries.
pub(super) fn proof(source: Option<&Arc<dyn DidProofs>>, accepted: &[KnownRegistry]) -> Option<Vec<u8>> {
    let proof = source.filter(|_| !accepted.is_empty())?.latest(accepted)?;
    (1..=MAX_DID_PROOF).contains(&proof.len()).then_some(proof)
}
