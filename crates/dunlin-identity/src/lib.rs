//! Decentralised identifiers (DIDs) and verifiable credentials.
//!
//! A program that verifies peers begins with [`handshake::CredentialVerifier`], which trusts issuers, or
//! [`handshake::IdentifierVerifier`], which trusts the DIDs on a [`TrustList`]. A program that shows an
//! identity begins with [`handshake::Holding`]. A program without connections begins with [`method`]:
//!
//! ```
//! use dunlin_identity::method::Methods;
//! use dunlin_identity::{Did, Relationship};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let did: Did = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp".parse()?;
//! let document = Methods::default().resolve(&did)?;
//! let (_, key) = document.keys(Relationship::Authentication).next().ok_or("no key")?;
//! assert_eq!(key.spki().len(), 44);
//! # Ok(())
//! # }
//! ```
//!
//! The root has DIDs, their documents, and lists of trusted DIDs. The modules:
//!
//! * [`handshake`]: the engine's verifiers of credentials and DIDs, and the identities that a program shows.
//! * [`credential`]: issues and verifies credentials, and their status.
//! * [`method`]: makes DIDs, resolves them, and names the files of an own one.
//! * [`transparency`]: the proofs of what a registry says about a `did:dunlin`.
//! * [`knowledge`]: remembers ended DIDs and replaced keys.
//! * [`key`]: public keys in documents.
//! * [`encoding`]: reads what strangers send, strictly, and writes the canonical forms that signatures cover.
//!
//! The crate does no I/O and knows no clock: texts, keys and the time are arguments, and the
//! [crypto provider](dunlin::crypto::CryptoProvider) of the connection verifies signatures.
//!
//! Without the feature `std` it is `no_std` with `alloc`, for devices: DIDs, their documents and methods,
//! trust lists, and the proofs of a registry. Credentials, and the verifiers of [`handshake`], need `std`.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                   what they contain
//! 5    handshake               | the engine's verifiers, and the identities that a program shows
//! 4    credential transparency | credentials; proofs of a registry
//! 3    method                  | how a DID leads to its document
//! 2    document trust          | documents of DIDs; lists of trusted DIDs
//! 1    hash knowledge          | hashes; ended DIDs and replaced keys
//! 0    did encoding key merkle | syntax, encodings, keys, trees of hashes
//! ```
//! <!-- end of layers -->

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
pub mod credential;
mod did;
mod document;
pub mod encoding;
#[cfg(feature = "std")]
pub mod handshake;
mod hash;
pub mod key;
pub mod knowledge;
mod merkle;
pub mod method;
pub mod transparency;
mod trust;

pub use did::{Did, DidError, DidUrl, MAX_DID, did_method};
pub use document::{
    DID_CONTEXT, DidDocument, DocumentError, JWS_2020_CONTEXT, MAX_RELATIONSHIP_ENTRIES,
    MAX_VERIFICATION_METHODS, MULTIKEY_CONTEXT, Relationship, VerificationMethod,
};
pub use hash::Sha256Hash;
pub use trust::{
    MAX_MEMBERSHIP, MemberRoot, Members, TrustError, TrustList, TrustListError, TrustListFault,
    read_membership,
};
