//! Dunlin's crypto provider for servers and PCs, over AWS-LC.
//!
//! [`provider`] returns the default algorithms. Every algorithm is a `static`, so a program can also choose
//! some of them for its own [`CryptoProvider`]. Some have to be added by name, such
//! as [`TLS13_AES_128_CCM_8_SHA256`]:
//!
//! ```
//! let mut provider = dunlin_awslc::provider();
//! provider.cipher_suites.push(&dunlin_awslc::TLS13_AES_128_CCM_8_SHA256);
//! assert_eq!(provider.check(), Ok(()));
//! ```
//!
//! AES-CCM comes from RustCrypto, because aws-lc-rs does not support it with the 12-byte nonce of TLS.
//!
//! Ephemeral ECDHE keys come from the caller's random source. ML-KEM, ECDSA, RSA-PSS and ML-DSA use AWS-LC's
//! own random generator.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                     what they contain
//! 1    kem tls12                 | hybrids over the groups; the cipher suites of TLS 1.2
//! 0    aead group hash sign verify | one kind of algorithm each
//! ```
//! <!-- end of layers -->

use std::sync::Arc;

use dunlin::crypto::{CryptoError, CryptoProvider, SecureRandom, Tls13CipherSuite};
use dunlin::wire::CipherSuite;

mod aead;
mod group;
mod hash;
mod kem;
mod sign;
pub mod tls12;
mod verify;

pub use aead::{AES_128_CCM, AES_128_CCM_8, AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305};
pub use group::{SECP256R1, SECP384R1, SECP521R1, X25519};
pub use hash::{SHA256, SHA384};
pub use kem::{ML_KEM_512, ML_KEM_768, ML_KEM_1024, SECP256R1MLKEM768, X25519MLKEM768};
pub use sign::KEY_LOADER;
pub use verify::{ALL_SIGNATURES, SIGNATURES};

/// The library's name, as in [`CryptoProvider::name`].
pub const NAME: &str = "AWS-LC";

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

/// The default algorithms, in the order of preference for a server or PC. Others have to be added by name:
/// `TLS_AES_128_CCM_8_SHA256`, post-quantum groups such as [`X25519MLKEM768`], whose shares are 2 kB longer
/// than X25519's, the group [`SECP521R1`], and the verification of P-521, ML-DSA-65 and RSA-PSS keys
/// ([`ALL_SIGNATURES`]). Their private keys can be loaded, and sign for peers that verify them.
pub fn provider() -> CryptoProvider {
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
        random: Arc::new(SystemRandom),
        key_loader: KEY_LOADER,
    }
}

/// AWS-LC's random generator, seeded by the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemRandom;

impl SecureRandom for SystemRandom {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        aws_lc_rs::rand::fill(buf).map_err(|_| CryptoError)
    }
}
