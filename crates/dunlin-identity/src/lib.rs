//! Decentralised identifiers (DIDs) and verifiable credentials.
//!
//! The crate does no I/O and knows no clock: texts, keys and the time are arguments, and the
//! [crypto provider](dunlin::crypto::CryptoProvider) of the connection verifies signatures.
//!
//! [`json`] and [`cbor`] read what strangers send, strictly, and write the canonical forms, which signatures
//! cover. [`did`] has the syntax of DIDs, [`document`] their documents, [`key`] the public keys in them.
//! [`credential`] issues and verifies credentials, and [`trust`] says whose count. [`directory`] names the
//! files of an own DID. [`registry`] proves what a `did:dunlin` resolves to, and [`knowledge`] keeps what has
//! ended. [`handshake`] joins them with the engine. [`method`] makes and resolves DIDs:
//!
//! ```
//! use dunlin_identity::{did::Did, document::Relationship, method::Methods};
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
//! Without the feature `std` it is `no_std` with `alloc`, for devices: DIDs, their documents and methods,
//! trust lists, and the proofs of a registry. Credentials, and the verifiers of [`handshake`], need `std`.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                   what they contain
//! 6    handshake               | the engine's verifiers
//! 5    holding                 | the DIDs and credentials that a program shows
//! 4    credential directory registry | credentials; files of an own DID; proofs of a registry
//! 3    method                  | how a DID leads to its document
//! 2    document trust          | documents of DIDs; lists of trusted DIDs
//! 1    cbor hash knowledge     | hashes, and what has ended
//! 0    did gzip json key merkle protobuf | syntax, encodings, keys, trees of hashes
//! ```
//! <!-- end of layers -->

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
pub mod cbor;
#[cfg(feature = "std")]
pub mod credential;
pub mod did;
pub mod directory;
pub mod document;
#[cfg(feature = "std")]
pub mod gzip;
#[cfg(feature = "std")]
pub mod handshake;
mod hash;
#[cfg(feature = "std")]
pub mod holding;
pub mod json;
pub mod key;
pub mod knowledge;
pub mod merkle;
pub mod method;
pub mod protobuf;
pub mod registry;
pub mod trust;
