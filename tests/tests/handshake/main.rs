//! Handshakes between two ends of this engine: versions, ways of authentication, roles, providers, and every
//! parameter.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod by_identity;
mod compression;
mod established;
mod family;
mod matrix;
mod profiles;
mod record_size;
mod server_names;
