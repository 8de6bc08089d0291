//! Verifiable credentials as certificates (draft-vesco-vcauthtls, docs/identity.md). The engine carries them; it reads neither
//! credentials nor identifiers. A [`super::Verifier`] does that, for example the one of the crate `dunlin-identity`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::extension::did_proof::{KnownRegistry, MAX_DID_PROOF};
use crate::message::MAX_VERIFIABLE_CREDENTIAL;
use crate::sync::Arc;
use crate::wire::DidMethod;

/// A verifiable credential that this side shows. TLS 1.3 and DTLS 1.3 alone have the certificate type for it.
#[derive(Clone, Debug)]
pub struct VerifiableCredential {
    /// The credential, at most 16 KiB.
    pub bytes: Vec<u8>,
    /// The method of the identifier that it is about. This side sends it only to a peer that resolves the method.
    pub did_method: DidMethod,
    /// What a peer that trusts the issuer writes into certificate_authorities. Of several suitable credentials this side prefers
    /// one whose issuer the peer has named.
    pub issuer: Option<Vec<u8>>,
    /// Where the proof of what the identifier resolves to comes from. Without it the peer asks a registry, or uses what it knows.
    pub proofs: Option<Arc<dyn DidProofs>>,
}

/// The source of stapled proofs, which its owner keeps fresh while the credential is in use. The handshake waits for it, so it must
/// not block.
pub trait DidProofs: Send + Sync + fmt::Debug {
    /// The newest proof that a peer with these registries accepts, at most 16 KiB. `None` if there is none; the peer then resolves
    /// the identifier itself.
    fn latest(&self, accepted: &[KnownRegistry]) -> Option<Vec<u8>>;
}

impl VerifiableCredential {
    /// A credential about an identifier of this method, without an issuer's name and without proofs.
    pub const fn new(bytes: Vec<u8>, did_method: DidMethod) -> Self {
        Self { bytes, did_method, issuer: None, proofs: None }
    }

    /// Why a profile cannot have it.
    pub(crate) fn fault(&self) -> Option<String> {
        let len = self.bytes.len();
        let fits = (1..=MAX_VERIFIABLE_CREDENTIAL).contains(&len);
        (!fits).then(|| alloc::format!("a verifiable credential has 1 to 16384 bytes, one here has {len}"))
    }

    /// The proof for a peer that accepts those of these registries.
    pub(crate) fn proof(&self, accepted: &[KnownRegistry]) -> Option<Vec<u8>> {
        let proof = self.proofs.as_ref().filter(|_| !accepted.is_empty())?.latest(accepted)?;
        (proof.len() <= MAX_DID_PROOF).then_some(proof)
    }
}
