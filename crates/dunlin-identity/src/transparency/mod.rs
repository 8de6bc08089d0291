//! The statements and proofs of a registry, and how a verifier checks them without asking the registry.
//!
//! A registry is a transparency log. It appends every operation to a Merkle tree ([`Tree`]). [`StateMap`] has
//! the current state of every DID under one root, which the log states after the operations ([`StateProof`]).
//! A [`SignedCheckpoint`] is the registry's statement of the log's root, a [`Note`] in the field's format.
//! [`RegistryTrust`] says whose signatures it needs. A [`Staple`] proves the current document of one DID; its
//! holder sends it along.
//!
//! Several operators can replicate a registry. Then a block of their [`Chain`] takes the place of the
//! registry's signature.

mod chain;
mod checkpoint;
mod map;
mod note;
mod proof;
mod staple;

pub use chain::{
    Chain, ChainError, ChainTrust, DEFAULT_TRUSTING_PERIOD, LightBlock, MAX_CHAIN_ID, MAX_GENESIS,
    MAX_VALIDATORS, ValidatorSet,
};
pub use checkpoint::{
    Checkpoint, CheckpointError, DEFAULT_CHECKPOINT_AGE, FreshCheckpoint, RegistryTrust, SignedCheckpoint,
    TrustTextError,
};
pub use map::{MAX_MAP_DEPTH, MapError, MapLeaf, MapProof, StateMap, map_key};
pub use note::{
    MAX_KEY_NAME, MAX_NOTE, MAX_NOTE_SIGNATURES, MAX_WITNESS_CLOCK_SKEW, Note, NoteError, NoteKey,
    NoteKeyKind, NoteSignature, NoteSigner, Signed,
};
pub use proof::{LogEntry, MAX_STATE_PROOF, StateProof, root_entry};
pub use staple::{MAX_STAPLE, Resolved, Staple, StapleError};

pub use crate::merkle::{Hasher, MAX_PROOF_HASHES, MerkleError, NodeHash, Nodes, Tree};
