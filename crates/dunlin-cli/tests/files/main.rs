//! The subcommands that read and write files: `pki`, `psk`, `did`, `vc`, `explain`, `gateway explain`,
//! `completions` and `man`; the Debian package.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod deb;
mod did;
mod explain;
mod gateway_explain;
mod generate;
#[path = "../common/peers.rs"]
mod peers;
mod pki;
mod psk;
mod verify;
