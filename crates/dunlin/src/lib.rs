//! Dunlin: TLS and DTLS that travel light.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

extern crate alloc;

pub mod crypto;
pub mod error;
mod time;
pub mod wire;

pub use error::Error;
pub use pki_types;
pub use time::{Instant, Now};
