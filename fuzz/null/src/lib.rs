//! NullProvider: **no cryptography at all**. For fuzzing only; never link it into a product.
//!
//! A fuzzer changes bytes. With real cryptography, the first changed byte ends the handshake, and the fuzzer
//! never reaches the code after it. Here, a constant passes every check that a peer without the keys could
//! not pass. The fuzzer can keep, remove or guess the constant:
//!
//! | part | what it does |
//! | --- | --- |
//! | hash | mixes its input so that different inputs give different outputs |
//! | HMAC | returns a constant: every Finished, PSK binder and cookie is authentic |
//! | AEAD | does not encrypt; the tag is [`TAG`], and a record with another tag does not open |
//! | record numbers | are not masked |
//! | key exchange | sends [`SHARE`], accepts every share of the right length, and returns a constant secret |
//! | finite field | is [`FFDHE2048`], outside the provider: add it to a profile with DHE suites of TLS 1.2 |
//! | signatures in the handshake | are [`SIGNATURE`]; other signatures do not verify |
//! | signatures in certificates and CRLs | always verify |
//! | private keys | are replaced by public keys: load the certificate's SubjectPublicKeyInfo as the key |
//! | random source | counts |
//!
//! So a fuzzer can reach both outcomes of every check, and every run is reproducible.
//!
//! [`CryptoProvider::check`] refuses this provider, as it should: the hashes fail their known-answer tests,
//! and the AEADs do not encrypt. A profile accepts it only after
//! [`ProfileBuilder::danger_skip_provider_check`](dunlin::ProfileBuilder::danger_skip_provider_check).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin::crypto::{CryptoError, CryptoProvider, HashAlgorithm, SecureRandom};

use crate::hash::NullHash;

mod auth;
mod exchange;
mod hash;
mod record;
mod tls12;

pub use auth::SIGNATURE;
pub use exchange::{FFDHE2048, SHARE};
pub use hash::MAC;
pub use record::TAG;
pub use tls12::TLS12_CIPHER_SUITES;

/// Returns a provider without any security, with a new random source. It has all suites, also
/// `TLS_AES_128_CCM_8_SHA256`, and all groups and schemes.
pub fn null_provider() -> CryptoProvider {
    CryptoProvider {
        name: "NullProvider (no security, for fuzzing only)",
        cipher_suites: record::SUITES.iter().collect(),
        groups: exchange::GROUPS.iter().map(|group| group as _).collect(),
        sha256: &NullHash(HashAlgorithm::Sha256),
        signatures: auth::SIGNATURES,
        random: Arc::new(CountingRandom::default()),
        key_loader: &auth::Loader,
    }
}

/// "Random" bytes that count up, eight at a time.
#[derive(Debug, Default)]
pub struct CountingRandom(AtomicU64);

impl SecureRandom for CountingRandom {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        for chunk in buf.chunks_mut(8) {
            let count = self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes();
            chunk.iter_mut().zip(count).for_each(|(to, from)| *to = from);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
