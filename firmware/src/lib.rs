//! TLS clients for a microcontroller, QEMU's `mps2-an386`. They measure how much memory Dunlin needs on a
//! device.
//!
//! Each program under `src/bin` connects over a serial line, completes a TLS 1.3 handshake, sends a line,
//! expects it back, closes, and prints its memory usage. A real device has an identity, a clock and a random
//! source. Here the host provides them over a second serial line, so that every run uses the same image.
#![no_std]

extern crate alloc;

mod board;
pub mod cache;
mod client;
pub mod did;
pub mod ecdsa;
pub mod parameters;
mod random;

pub use board::print;
pub use client::{Configure, run, run_and_report};
