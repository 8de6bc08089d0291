//! TLS clients for a microcontroller that measure themselves, in QEMU's `mps2-an386`: what Dunlin takes on a device.
//!
//! Each of the programs under `src/bin` connects over a serial line, completes a handshake of TLS 1.3, sends a line,
//! expects it back, closes, and prints how much memory that took. What a device has of its own (an identity, a clock,
//! a source of randomness) the host passes over a second serial line, so that the image is the same for all.
#![no_std]

extern crate alloc;

mod board;
mod client;
pub mod parameters;
mod random;

pub use client::{Configure, run};
