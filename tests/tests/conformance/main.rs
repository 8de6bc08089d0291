//! Input that breaks the rules of the RFCs, and findings of outside suites.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod after;
mod bogo;
mod connection_ids;
mod decoder;
mod hostile;
mod parts;
mod records;
mod return_routability;
