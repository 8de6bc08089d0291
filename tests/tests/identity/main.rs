//! Who the peer is: chains of certificates, the names in them, and revocation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod chains;
mod names;
mod revocation;
