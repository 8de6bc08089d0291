//! Obsolete algorithms of TLS 1.2, for measurements in a laboratory: static RSA, anonymous Diffie-Hellman,
//! DSA, RSA keys of 512 and 1024 bits, finite fields from 512 bits. **They protect nothing.** A profile must
//! allow these algorithms besides naming them:
//!
//! ```
//! # use std::sync::Arc;
//! let profile = || {
//!     dunlin::Profile::builder(Arc::new(dunlin_legacy::lab::provider()))
//!         .cipher_suites(vec![])
//!         .tls12_cipher_suites(dunlin_legacy::lab::TLS12_LEGACY_CIPHER_SUITES.to_vec())
//!         .groups(vec![dunlin_legacy::lab::LAB_1024])
//!         .rsa_encryption(dunlin_legacy::lab::ENCRYPTION)
//! };
//! assert!(profile().build().unwrap_err().to_string().contains("for the laboratory only"));
//! assert!(profile().danger_legacy_lab().build().is_ok());
//! ```
//!
//! There is no CBC here either. For each CBC suite, the suite with AES-GCM and the same key exchange takes
//! its place.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::LazyLock;

use dunlin::crypto::{CryptoError, CryptoProvider, KeyLoader, SignatureAlgorithms, SigningKey};
use dunlin::wire::SignatureScheme;
use pki_types::{PrivateKeyDer, SignatureVerificationAlgorithm};

mod dsa;
mod groups;
pub mod identity;
mod rsa;
mod suites;

pub use groups::{LAB_512, LAB_1024, LAB_2048};
pub use rsa::ENCRYPTION;
pub use suites::{
    TLS12_DH_ANON_WITH_AES_128_GCM_SHA256, TLS12_DH_ANON_WITH_AES_256_GCM_SHA384,
    TLS12_DHE_DSS_WITH_AES_128_GCM_SHA256, TLS12_DHE_DSS_WITH_AES_256_GCM_SHA384, TLS12_LEGACY_CIPHER_SUITES,
    TLS12_RSA_WITH_AES_128_CCM, TLS12_RSA_WITH_AES_128_CCM_8, TLS12_RSA_WITH_AES_128_GCM_SHA256,
    TLS12_RSA_WITH_AES_256_GCM_SHA384,
};

/// The warning that a program with such a profile shows.
pub const WARNING: &str = "LEGACY LAB: static RSA, anonymous key exchange, DSA and short keys are allowed; this connection \
                           protects nothing";

/// The provider of [`dunlin_awslc`], which here also signs and verifies with DSA and with short RSA keys.
pub fn provider() -> CryptoProvider {
    CryptoProvider { signatures: signatures(), key_loader: KEY_LOADER, ..dunlin_awslc::provider() }
}

type Algorithm = &'static dyn SignatureVerificationAlgorithm;
type Scheme = (SignatureScheme, &'static [Algorithm]);

/// The provider's algorithms and this module's. The RSA algorithm here accepts keys of any length, and
/// replaces the provider's.
fn signatures() -> SignatureAlgorithms {
    const OURS: [Scheme; 2] = [
        (SignatureScheme::RSA_PKCS1_SHA256, &[rsa::PKCS1_SHA256]),
        (SignatureScheme::DSA_SHA256, dsa::ALGORITHMS),
    ];
    static ALL: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
        let ours = OURS.iter().flat_map(|(_, algorithms)| algorithms.iter().copied());
        let others = dunlin_awslc::SIGNATURES.all.iter().copied();
        let mixed = |a: &Algorithm| (a.public_key_alg_id(), a.signature_alg_id());
        others.filter(|a| mixed(a) != mixed(&rsa::PKCS1_SHA256)).chain(ours).collect()
    });
    static SCHEMES: LazyLock<Vec<Scheme>> = LazyLock::new(|| {
        let others = dunlin_awslc::SIGNATURES.schemes.iter().copied();
        others.filter(|(scheme, _)| OURS.iter().all(|(ours, _)| ours != scheme)).chain(OURS).collect()
    });
    SignatureAlgorithms { all: &ALL, schemes: &SCHEMES }
}

/// Loads the keys that [`crate::rsa::KEY_LOADER`] loads, RSA keys from 512 bits, and DSA keys.
pub static KEY_LOADER: &dyn KeyLoader = &Loader;

#[derive(Debug)]
struct Loader;

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        crate::rsa::KEY_LOADER.load(der).or_else(|_| rsa::load(der)).or_else(|_| dsa::load(der))
    }
}
