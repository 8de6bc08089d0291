//! Dunlin's crypto provider for microcontrollers, over RustCrypto: `no_std`, no C, no `unsafe` of its own.
//!
//! [`provider`] has everything that is on by default and takes the source of randomness, which only the device knows;
//! `OsRandom` (feature `getrandom`) is the operating system's. Every part is a `static`, so a program that names only
//! some of them in its own [`CryptoProvider`] links only those ([`P256_SIGNATURES`] and [`P256_KEY_LOADER`] in place of
//! all kinds of keys, [`NO_SIGNATURES`] and [`NO_KEY_LOADER`] with pre-shared keys alone); [`TLS13_AES_128_CCM_8_SHA256`]
//! has to be added by name. RSA, which is large and slow on such devices, is behind the feature `rsa` (on by default), ML-DSA, which takes
//! some 100 kB of stack, behind `ml-dsa` (off).
//!
//! Everything is drawn from the caller's randomness: ephemeral keys, the salts and blinding of RSA-PSS, and the
//! hedging of ML-DSA and ECDSA, whose nonces also depend on key and message (RFC 6979 §3.6). So the same randomness gives the
//! same handshake.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec;

use dunlin::crypto::{CryptoProvider, SecureRandom, Tls13CipherSuite};
use dunlin::wire::CipherSuite;

mod aead;
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
pub use group::{SECP256R1, SECP384R1, X25519};
pub use hash::{SHA256, SHA384};
#[cfg(feature = "ml-kem")]
pub use kem::{ML_KEM_768, X25519MLKEM768};
#[cfg(feature = "getrandom")]
pub use random::OsRandom;
pub use sign::{KEY_LOADER, NO_KEY_LOADER, P256_KEY_LOADER};
pub use verify::{NO_SIGNATURES, P256_SIGNATURES, SIGNATURES};

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

/// `TLS_AES_128_CCM_8_SHA256` (RFC 8446 §B.4). Its short tag is for devices that need it; no default list has
/// it, and DTLS must not use it without further safeguards against forgery (RFC 9147 §4.5.3).
pub static TLS13_AES_128_CCM_8_SHA256: Tls13CipherSuite =
    Tls13CipherSuite { id: CipherSuite::TLS_AES_128_CCM_8_SHA256, hash: SHA256, aead: AES_128_CCM_8 };

/// All parts, in the order of preference, without what is to be asked for by name: `TLS_AES_128_CCM_8_SHA256`, and
/// `X25519MLKEM768` (feature `ml-kem`), whose shares are 2 kB longer than X25519's.
///
/// `random` must be seeded well before the first handshake: every secret comes from it.
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
