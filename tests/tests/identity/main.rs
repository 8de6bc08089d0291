//! The peer's identity: chains of certificates, the names in them, revocation, and certificate types of an
//! application.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod chains;
mod credentials;
mod identifiers;
mod knowledge;
mod links;
mod names;
mod own_types;
mod revocation;
mod ssi;
mod ssi_hostile;
mod status_staples;
mod verifiable;
mod wallet;
