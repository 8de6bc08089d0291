//! The statements and proofs of a registry, and how a verifier checks them without asking the registry.
//!
//! A registry appends every operation to a log, a [Merkle tree](crate::merkle). [`map`] has the current state
//! of every DID under one root, which the log states after the operations ([`proof`]). A [`checkpoint`] is
//! the registry's signed statement of the log's root, a [`note`] in the field's format. A [`staple`] proves
//! the current document of one DID; its holder sends it along.
//!
//! Several operators can replicate a registry. Then a block of their [`chain`] takes the place of the
//! registry's signature.

pub mod chain;
pub mod checkpoint;
pub mod map;
pub mod note;
pub mod proof;
pub mod staple;
