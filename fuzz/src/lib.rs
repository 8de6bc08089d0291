//! The fuzz targets and the rules that they check. Each target is a function over bytes that panics if a rule
//! is broken.
//!
//! libFuzzer calls them from `fuzz/targets`, and the test `replay` calls them with the corpora and all
//! findings. The peers of a handshake use [`dunlin_null`], so the fuzzer can pass and fail every
//! cryptographic check.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a target panics if a rule is broken"
)]

pub mod api;
pub mod datagram;
mod edit;
mod end;
pub mod endpoint;
pub mod files;
pub mod fragments;
pub mod handshake;
pub mod identity;
pub mod operations;
pub mod record;
mod registry;
mod script;
pub mod seeds;
pub mod setting;
mod shape;
mod traffic;
mod wallet;
pub mod wire;

use std::alloc::System;

use cap::Cap;

/// Counts the allocated memory, for the limits.
#[global_allocator]
pub static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// A target and its name.
pub type Target = (&'static str, fn(&[u8]) -> bool);

/// All targets. Each returns whether the input reached the code that the target is for. The test of the
/// corpora uses it.
pub const TARGETS: [Target; 13] = [
    ("wire", wire::run),
    ("record", record::run),
    ("datagram", datagram::run),
    ("fragments", fragments::run),
    ("endpoint", endpoint::run),
    ("client", handshake::client),
    ("server", handshake::server),
    ("api", api::run),
    ("files", files::run),
    ("documents", identity::documents),
    ("credentials", identity::credentials),
    ("proofs", identity::proofs),
    ("operations", operations::run),
];
