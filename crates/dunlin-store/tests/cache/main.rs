//! The stores of the handshake cache that outlive the process (docs/handshake-cache.md, rules 5, 8 and 9),
//! and the files of frozen associations.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;
mod file;
mod frozen;
mod full;
mod open;
#[cfg(feature = "redis")]
mod redis;
mod sealed;
#[cfg(feature = "redis")]
mod shared;
#[cfg(feature = "sqlite")]
mod sqlite;
