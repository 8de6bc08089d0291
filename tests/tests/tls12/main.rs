//! TLS 1.2 between two ends of this engine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod hostile;
mod renegotiation;
mod suites;
