//! RSA key exchange of TLS 1.2, over AWS-LC. The client encrypts a secret with the server's key (RFC 5246
//! §7.4.7.1), here together with a pre-shared key (RFC 4279 §4). There is no forward secrecy: an attacker who
//! later obtains both keys can decrypt recorded connections. Prefer ECDHE_PSK if the peer supports it.
//!
//! A client needs the suites, a pre-shared key, trust in the server's certificate, and [`ENCRYPTION`]. A
//! server needs the suites, the pre-shared key, and a credential whose key [`KEY_LOADER`] has loaded:
//!
//! ```
//! # use std::sync::Arc;
//! let mut provider = dunlin_awslc::provider();
//! provider.key_loader = dunlin_legacy::rsa::KEY_LOADER;
//! let client = dunlin::Profile::builder(Arc::new(provider))
//!     .tls12_cipher_suites(dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES.to_vec())
//!     .rsa_encryption(dunlin_legacy::rsa::ENCRYPTION)
//!     .build();
//! assert!(client.is_ok());
//! ```

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use dunlin::crypto::{
    CryptoError, KeyLoader, RsaDecryption, RsaEncryption, RsaPublicKey, SecureRandom, SigningKey,
};
use dunlin::wire::SignatureScheme;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::Decode;
use pkcs8::spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};
use pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use zeroize::Zeroizing;

pub(crate) mod raw;
mod suites;

pub use suites::{
    TLS12_RSA_PSK_CIPHER_SUITES, TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256,
    TLS12_RSA_PSK_WITH_AES_256_GCM_SHA384, TLS12_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256,
};

/// rsaEncryption (RFC 8017 §A.1).
pub(crate) const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// The shortest accepted modulus, in bytes: 2048 bits.
const MIN_MODULUS_LEN: usize = 256;
/// The longest accepted modulus, in bytes: 8192 bits, as for signatures.
const MAX_MODULUS_LEN: usize = 1024;

/// Encrypts with the RSA key of a certificate, of 2048 to 8192 bits.
pub static ENCRYPTION: &dyn RsaEncryption = &Encryption;

#[derive(Debug)]
struct Encryption;

impl RsaEncryption for Encryption {
    fn public_key(&self, spki: &SubjectPublicKeyInfoDer<'_>) -> Result<Box<dyn RsaPublicKey>, CryptoError> {
        Ok(Box::new(fit(public_key(spki)?)?))
    }
}

/// The RSA key in `spki`, of any length.
pub(crate) fn public_key(spki: &SubjectPublicKeyInfoDer<'_>) -> Result<raw::Key, CryptoError> {
    let spki = SubjectPublicKeyInfoRef::from_der(spki).map_err(|_| CryptoError)?;
    if spki.algorithm.oid != RSA_ENCRYPTION {
        return Err(CryptoError);
    }
    raw::Key::public(spki.subject_public_key.as_bytes().ok_or(CryptoError)?)
}

/// Returns the key if its length is accepted.
fn fit(key: raw::Key) -> Result<raw::Key, CryptoError> {
    if (MIN_MODULUS_LEN..=MAX_MODULUS_LEN).contains(&key.modulus_len()) { Ok(key) } else { Err(CryptoError) }
}

impl RsaPublicKey for raw::Key {
    fn modulus_len(&self) -> usize {
        self.modulus_len()
    }

    fn encrypt(&self, block: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.public_power(block)
    }
}

impl RsaDecryption for raw::Key {
    fn modulus_len(&self) -> usize {
        self.modulus_len()
    }

    fn decrypt(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        self.private_power(ciphertext)
    }
}

/// Loads the keys that [`dunlin_awslc::KEY_LOADER`] loads. RSA keys (2048 to 8192 bits) can also decrypt.
pub static KEY_LOADER: &dyn KeyLoader = &Loader;

#[derive(Debug)]
struct Loader;

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        let signs = dunlin_awslc::KEY_LOADER.load(der)?;
        let pkcs1 = match der {
            PrivateKeyDer::Pkcs1(pkcs1) => pkcs1.secret_pkcs1_der(),
            PrivateKeyDer::Pkcs8(pkcs8) => match PrivateKeyInfoRef::from_der(pkcs8.secret_pkcs8_der()) {
                Ok(info) if info.algorithm.oid == RSA_ENCRYPTION => info.private_key.as_bytes(),
                _ => return Ok(signs),
            },
            _ => return Ok(signs),
        };
        Ok(Arc::new(PrivateKey { signs, decrypts: fit(raw::Key::private(pkcs1)?)? }))
    }
}

/// An RSA key that signs and decrypts.
struct PrivateKey {
    signs: Arc<dyn SigningKey>,
    decrypts: raw::Key,
}

impl SigningKey for PrivateKey {
    fn schemes(&self) -> &[SignatureScheme] {
        self.signs.schemes()
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        self.signs.public_key()
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        self.signs.sign(scheme, message, random)
    }

    fn decryption(&self) -> Option<&dyn RsaDecryption> {
        Some(&self.decrypts)
    }
}

/// Shows the signature schemes of the key, never the key itself.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("schemes", &self.schemes()).finish_non_exhaustive()
    }
}
