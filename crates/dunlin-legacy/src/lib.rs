//! Obsolete parts of TLS 1.2 for Dunlin. Each feature adds one module; without features, the crate is empty.
//!
//! | feature | module | contents |
//! | --- | --- | --- |
//! | `ffdhe` | `ffdhe` | the finite fields of RFC 7919, for TLS 1.2, TLS 1.3 and every provider; `no_std` |
//! | `rsa` | `rsa` | RSA key exchange together with a pre-shared key (RSA_PSK), over AWS-LC |
//! | `lab` | `lab` | static RSA, anonymous Diffie-Hellman, DSA, short keys; **they are insecure** |
//!
//! A product offers the first two to peers that have nothing better. draft-ietf-tls-deprecate-obsolete-kex
//! forbids RSA key exchange and discourages finite fields in TLS 1.2. Only the feature `lab` switches the
//! engine's feature `legacy-lab` on.
#![no_std]

extern crate alloc;
#[cfg(feature = "lab")]
extern crate std;

// The manifest denies unsafe code, and only `rsa/raw.rs` allows it.
#[cfg(feature = "ffdhe")]
#[forbid(unsafe_code)]
pub mod ffdhe;
#[cfg(feature = "lab")]
#[forbid(unsafe_code)]
pub mod lab;
#[cfg(feature = "rsa")]
pub mod rsa;
#[cfg(feature = "rsa")]
mod suites;
#[cfg(feature = "rsa")]
use suites::suites;
