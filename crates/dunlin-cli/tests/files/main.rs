//! The subcommands that read and write files: `pki`, `psk`, `explain`, `gateway explain`, `completions` and `man`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

#[path = "../common/mod.rs"]
mod common;
mod explain;
mod gateway_explain;
mod generate;
mod pki;
mod psk;
