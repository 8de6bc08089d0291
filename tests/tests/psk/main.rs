//! Pre-shared keys.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod hint;
mod validity;
mod with_certificate;
