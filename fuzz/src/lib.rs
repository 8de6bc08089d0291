//! What is fuzzed, and what must hold. Each target is a function over bytes that panics where something does not hold.
//!
//! libFuzzer calls them from `fuzz/targets`, the test `replay` with the corpus and all that was ever found. The peers of a
//! handshake use [`dunlin_null`], so what cryptography would refuse goes on, and both outcomes of every check are within
//! reach.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a target says by panicking that something does not hold"
)]

pub mod api;
mod edit;
mod end;
pub mod files;
pub mod handshake;
pub mod record;
mod script;
pub mod seeds;
pub mod setting;
mod traffic;
pub mod wire;

use std::alloc::System;

use cap::Cap;

/// Counts what is allocated, for the bounds.
#[global_allocator]
pub static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// A target, by its name.
pub type Target = (&'static str, fn(&[u8]) -> bool);

/// All targets. Each gives whether the input led to what it is there for, which the corpora are tested by.
pub const TARGETS: [Target; 6] = [
    ("wire", wire::run),
    ("record", record::run),
    ("client", handshake::client),
    ("server", handshake::server),
    ("api", api::run),
    ("files", files::run),
];
