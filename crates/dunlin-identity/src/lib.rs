//! Decentralised identifiers (DIDs) and verifiable credentials.
//!
//! The crate does no I/O and knows no clock: texts, keys and the time are arguments.
//!
//! [`json`] reads JSON from strangers and writes its canonical form, which signatures cover.

pub mod json;
