//! `dunlin client`, `dunlin server`, and the programs that run until a signal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod addresses;
mod cache;
mod credentials;
mod dtls;
mod fleet;
mod gateway;
mod interfaces;
#[cfg(feature = "legacy-lab")]
mod legacy;
mod nodes;
#[path = "../common/peers.rs"]
mod peers;
mod places;
mod reasons;
mod registry;
mod reload;
mod replica;
mod server_log;
mod service;
mod tls;
mod tls12;
mod tunnel;
