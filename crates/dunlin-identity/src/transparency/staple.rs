//! The staple `did_proof`: the document of a DID, and the proof that it is the latest one. The holder of a
//! credential sends it in the handshake, so that the peer need not ask a registry.

use alloc::string::String;
use alloc::vec::Vec;

use dunlin::crypto::CryptoProvider;

use super::chain::ChainError;
use super::checkpoint::{CheckpointError, FreshCheckpoint, RegistryTrust, SignedCheckpoint};
use super::map::{MapError, map_key};
use super::proof::{MAX_STATE_PROOF, StateProof};
use crate::did::Did;
use crate::document::{DidDocument, DocumentError};
use crate::hash::Sha256Hash;
use crate::key::KeyError;
use crate::merkle::Hasher;
use crate::method::dunlin::{MAX_DOCUMENT, OperationError, registry_of};
use crate::trust::MAX_MEMBERSHIP;

/// The longest staple, in bytes: the longest document, and 4.5 KiB for the checkpoint and the proof.
pub const MAX_STAPLE: usize = MAX_DOCUMENT + 4608;

/// Why a staple is refused or cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StapleError {
    /// The staple is longer than [`MAX_STAPLE`].
    #[error("proof of a DID: longer than {MAX_STAPLE} bytes")]
    TooLong,
    /// A field ends early, is empty or too long, or bytes follow the last one.
    #[error("proof of a DID: the field {0} is missing, empty or too long, or data follows it")]
    Field(&'static str),
    /// The document is refused.
    #[error("proof of a DID: {0}")]
    Document(#[from] DocumentError),
    /// The document is not one of a registry.
    #[error("proof of a DID: {0}")]
    Registry(#[from] OperationError),
    /// The document names another registry than the checkpoint.
    #[error("proof of a DID: its document belongs to another registry, {0:?}")]
    OtherRegistry(String),
    /// The checkpoint is refused.
    #[error("proof of a DID: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The proof is wrong, for example because the document is no longer the latest.
    #[error("proof of a DID: {0}")]
    Map(#[from] MapError),
    /// The DID is deactivated, for ever.
    #[error("proof of a DID: {0} is deactivated")]
    Deactivated(Did),
    /// The provider lacks SHA-256.
    #[error("proof of a DID: {0}")]
    Key(#[from] KeyError),
}

impl StapleError {
    /// Whether the staple was right once, but this side knows or demands something newer.
    pub const fn is_old(&self) -> bool {
        use {ChainError as B, CheckpointError as C};
        matches!(
            self,
            Self::Checkpoint(
                C::Stale { .. }
                    | C::Unwatched { .. }
                    | C::Rollback { .. }
                    | C::Chain(B::Expired | B::Unsupported)
            )
        )
    }
}

/// A staple: `document<1..2^16-1>; checkpoint<1..2^16-1>; proof<0..2^12-1>; membership<0..2^12-1>`, each with
/// its length in two bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staple {
    /// The latest document.
    pub document: Vec<u8>,
    /// The registry's checkpoint, a signed note.
    pub checkpoint: Vec<u8>,
    /// The proof that the state map of the checkpoint has the document ([`StateProof`]).
    pub proof: Vec<u8>,
    /// The proof that the DID is a member of a list ([`TrustList::check`](crate::TrustList::check)); empty if there is
    /// none.
    pub membership: Vec<u8>,
}

/// The fields in order, with their bounds.
const FIELDS: [(&str, usize, usize); 4] = [
    ("document", 1, 0xffff),
    ("checkpoint", 1, 0xffff),
    ("proof", 0, MAX_STATE_PROOF),
    ("membership", 0, MAX_MEMBERSHIP),
];

/// The current state of a DID, as a staple proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The latest document.
    pub document: DidDocument,
    /// Its hash.
    pub hash: Sha256Hash,
    /// The number of operations after the creation.
    pub sequence: u64,
    /// The checkpoint, and until when the verifier believes it. The verifier keeps the largest one of each
    /// registry.
    pub checkpoint: FreshCheckpoint,
}

impl Staple {
    /// Reads a staple.
    ///
    /// # Errors
    /// [`StapleError::TooLong`], [`StapleError::Field`].
    pub fn read(bytes: &[u8]) -> Result<Self, StapleError> {
        if bytes.len() > MAX_STAPLE {
            return Err(StapleError::TooLong);
        }
        let mut rest = bytes;
        let [document, checkpoint, proof, membership] = FIELDS.map(|(name, min, max)| {
            let field = rest.split_first_chunk().and_then(|(length, after)| {
                let (field, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
                rest = after;
                (min..=max).contains(&field.len()).then(|| field.to_vec())
            });
            field.ok_or(StapleError::Field(name))
        });
        let staple =
            Self { document: document?, checkpoint: checkpoint?, proof: proof?, membership: membership? };
        if rest.is_empty() { Ok(staple) } else { Err(StapleError::Field("membership")) }
    }

    /// Writes the staple.
    ///
    /// # Errors
    /// [`StapleError::TooLong`], [`StapleError::Field`].
    pub fn write(&self) -> Result<Vec<u8>, StapleError> {
        let fields = [&self.document, &self.checkpoint, &self.proof, &self.membership];
        let mut bytes = Vec::new();
        for (field, (name, min, max)) in fields.into_iter().zip(FIELDS) {
            let length = u16::try_from(field.len()).ok();
            let length = length.filter(|_| (min..=max).contains(&field.len()));
            bytes.extend(length.ok_or(StapleError::Field(name))?.to_be_bytes());
            bytes.extend(field);
        }
        if bytes.len() > MAX_STAPLE { Err(StapleError::TooLong) } else { Ok(bytes) }
    }

    /// Checks that the document is the latest one of `did`, an active DID, under a checkpoint that `trust`
    /// accepts. `newest` is the largest checkpoint of the registry that the verifier has accepted, and
    /// `now_s` the time in seconds since 1970. Whether the DID itself is trusted is another question, which
    /// [`TrustList`](crate::TrustList) answers.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn verify(
        &self,
        provider: &CryptoProvider,
        did: &Did,
        trust: &RegistryTrust,
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Result<Resolved, StapleError> {
        self.verify_with(provider, did, trust.origin(), |note| trust.verify(provider, note, newest, now_s))
    }

    /// The same, for the registry with this origin, whose checkpoint `accepted` checks.
    pub(crate) fn verify_with(
        &self,
        provider: &CryptoProvider,
        did: &Did,
        origin: &str,
        accepted: impl FnOnce(&[u8]) -> Result<FreshCheckpoint, CheckpointError>,
    ) -> Result<Resolved, StapleError> {
        let document = DidDocument::read(&self.document, did)?;
        let registry = registry_of(&document)?;
        if registry != origin {
            return Err(StapleError::OtherRegistry(registry));
        }
        let checkpoint = accepted(&self.checkpoint)?;
        let hash = Sha256Hash::of(provider, document.canonical().as_bytes())?;
        let proof = StateProof::read(&self.proof)?;
        let key = map_key(provider, did)?;
        let stated = checkpoint.checkpoint.checkpoint();
        let leaf = proof.verify_presence(Hasher(provider.sha256), &key, hash, stated)?;
        if !leaf.active {
            return Err(StapleError::Deactivated(did.clone()));
        }
        Ok(Resolved { document, hash, sequence: leaf.sequence, checkpoint })
    }
}
