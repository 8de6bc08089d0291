//! Turns named sources (files, texts and URLs) into one side of a connection: trust, own credentials, and
//! clients of registries.
//!
//! A source is a [`Field`](place::Field): its value, and the place that sets it, which is a key of a file or
//! an option of a command line. Every [`Fault`](place::Fault) names that place. Gateway and tunnel read TOML,
//! `dunlin client` and `server` read options, and both get the same types.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules              what they contain
//! 5    credentials        | verifiable credentials and bare DIDs of both sides
//! 4    registry           | registries and web servers that have documents; proofs of own DIDs
//! 3    https learned      | TLS of HTTPS; knowledge from issuers, registries and peers
//! 2    did                | own DIDs, documents, trust lists and status lists
//! 3    psk                | pre-shared keys in files and databases
//! 2    trust              | trust anchors, CRLs, raw public keys, and own certificates
//! 2    known              | a file of permanent knowledge
//! 1    files              | files that settings name, and their faults
//! 0    place              | where values come from: keys of files, and options
//! ```
//! <!-- end of layers -->
#![forbid(unsafe_code)]

pub mod credentials;
pub mod did;
pub mod files;
pub mod https;
pub mod known;
pub mod learned;
pub mod place;
pub mod psk;
pub mod registry;
pub mod trust;
