//! Dunlin's crypto provider for microcontrollers, over RustCrypto: `no_std`, no C, no `unsafe` of its own.
//!
//! [`provider`] returns the default algorithms. It takes the random source, which only the device knows;
//! `OsRandom` (feature `getrandom`) is the operating system's. [`TLS13_AES_128_CCM_8_SHA256`] has to be added
//! by name.
//!
//! Every algorithm is a `static`, so a program that builds its own [`CryptoProvider`] links only the
//! algorithms that it names. [`P256_SIGNATURES`] and [`P256_KEY_LOADER`] limit signatures to P-256;
//! [`NO_SIGNATURES`] and [`NO_KEY_LOADER`] suit devices with pre-shared keys only. RSA is large and slow on
//! such devices: it needs the feature `rsa` (on by default). ML-DSA-44 takes about 100 kB of stack: ML-DSA
//! needs the feature `ml-dsa` (off by default), and P-521 the feature `p521` (off by default).
//!
//! All randomness comes from the caller's source: ephemeral keys, salts and blinding of RSA, and the hedging
//! of ML-DSA and ECDSA, whose nonces also depend on key and message (RFC 6979 §3.6). So equal random bytes
//! give equal handshakes.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules           what they contain
//! 3    tls12           | the cipher suites of TLS 1.2
//! 2    kem sign verify | hybrids over the groups; signatures of all key types
//! 1    rsa             | signatures of RSA, which a feature adds
//! 0    aead algorithm group hash random | one algorithm each; the source of randomness
//! ```
//! <!-- end of layers -->
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

extern crate alloc;

use alloc::vec;

use dunlin::crypto::{CryptoProvider, SecureRandom, Tls13CipherSuite};
use dunlin::sync::Arc;
use dunlin::wire::CipherSuite;

mod aead;
mod algorithm;
mod group;
mod hash;
#[cfg(feature = "ml-kem")]
mod kem;
mod random;
#[cfg(feature = "rsa")]
mod rsa;
mod sign;
pub mod tls12;
mod verify;

pub use aead::{AES_128_CCM, AES_128_CCM_8, AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305};
#[cfg(feature = "p521")]
pub use group::SECP521R1;
pub use group::{SECP256R1, SECP384R1, X25519};
pub use hash::{SHA256, SHA384};
#[cfg(feature = "ml-kem")]
pub use kem::{ML_KEM_512, ML_KEM_768, SECP256R1MLKEM768, X25519MLKEM768};
#[cfg(feature = "getrandom")]
pub use random::OsRandom;
pub use sign::{ED25519_KEY_LOADER, KEY_LOADER, NO_KEY_LOADER, P256_KEY_LOADER};
pub use verify::{ALL_SIGNATURES, ED25519_SIGNATURES, NO_SIGNATURES, P256_SIGNATURES, SIGNATURES};

/// The library's name, as in [`CryptoProvider::name`].
pub const NAME: &str = "RustCrypto";

/// `TLS_AES_128_GCM_SHA256` (RFC 8446 §B.4).
pub static TLS13_AES_128_GCM_SHA256: Tls13CipherSuite =
    Tls13CipherSuite { id: CipherSuite::TLS_AES_128_GCM_SHA256, hash: SHA256, aead: AES_128_GCM };

/// `TLS_AES_256_GCM_SHA384` (RFC 8446 §B.4).
pub static TLS13_AES_256_GCM_SHA384: Tls13CipherSuite =
    Tls13CipherSuite { id: CipherSuite::TLS_AES_256_GCM_SHA384, hash: SHA384, aead: AES_256_GCM };

/// `TLS_CHACHA20_POLY1305_SHA256` (RFC 8446 §B.4).
pub static TLS13_CHACHA20_POLY1305_SHA256: Tls13CipherSuite =
    Tls13CipherSuite { id: CipherSuite::TLS_CHACHA20_POLY1305_SHA256, hash: SHA256, aead: CHACHA20_POLY1305 };

/// `TLS_AES_128_CCM_SHA256` (RFC 8446 §B.4).
pub static TLS13_AES_128_CCM_SHA256: Tls13CipherSuite =
    Tls13CipherSuite { id: CipherSuite::TLS_AES_128_CCM_SHA256, hash: SHA256, aead: AES_128_CCM };

/// `TLS_AES_128_CCM_8_SHA256` (RFC 8446 §B.4), for devices that need its short tag. No default list has it.
/// DTLS must not use it without further safeguards against forgery (RFC 9147 §4.5.3).
pub static TLS13_AES_128_CCM_8_SHA256: Tls13CipherSuite =
    Tls13CipherSuite { id: CipherSuite::TLS_AES_128_CCM_8_SHA256, hash: SHA256, aead: AES_128_CCM_8 };

/// The default algorithms, in the order of preference. Others have to be added by name:
/// `TLS_AES_128_CCM_8_SHA256`, post-quantum groups such as `X25519MLKEM768` (feature `ml-kem`), whose shares
/// are 2 kB longer than X25519's, `SECP521R1` (feature `p521`), and the signatures that [`ALL_SIGNATURES`]
/// adds.
///
/// Every secret comes from `random`, so it must be well seeded before the first handshake.
pub fn provider(random: Arc<dyn SecureRandom>) -> CryptoProvider {
    CryptoProvider {
        name: NAME,
        cipher_suites: vec![
            &TLS13_AES_128_GCM_SHA256,
            &TLS13_AES_256_GCM_SHA384,
            &TLS13_CHACHA20_POLY1305_SHA256,
            &TLS13_AES_128_CCM_SHA256,
        ],
        groups: vec![X25519, SECP256R1, SECP384R1],
        sha256: SHA256,
        signatures: SIGNATURES,
        random,
        key_loader: KEY_LOADER,
    }
}
