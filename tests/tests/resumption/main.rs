//! Resumption of sessions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod tls12;
mod tls13;
