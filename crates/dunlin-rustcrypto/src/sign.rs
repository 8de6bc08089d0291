//! Private keys that sign, and their loader.

#[cfg(any(feature = "rsa", feature = "ml-dsa"))]
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use dunlin::crypto::{CryptoError, KeyLoader, SecureRandom, SigningKey};
use dunlin::wire::SignatureScheme;
use ed25519_dalek::Signer;
use p256::ecdsa::signature::RandomizedSigner;
use p256::pkcs8::{DecodePrivateKey, EncodePublicKey};
use pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
#[cfg(feature = "rsa")]
use rsa::{RsaPrivateKey, pkcs1::DecodeRsaPrivateKey};
#[cfg(feature = "rsa")]
use sha2::{Sha256, Sha384, Sha512};

use crate::random::Rng;
#[cfg(feature = "rsa")]
use crate::rsa::{is_long_enough, pss_sign};

/// Loads P-256, P-384 and Ed25519 keys, with the feature `rsa` RSA keys of 2048 to 8192 bits, and with the feature
/// `ml-dsa` seeds of ML-DSA-44.
pub static KEY_LOADER: &dyn KeyLoader = &Loader;

#[derive(Debug)]
struct Loader;

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        let key = match der {
            PrivateKeyDer::Pkcs8(der) => from_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Sec1(der) => from_sec1(der.secret_sec1_der()),
            #[cfg(feature = "rsa")]
            PrivateKeyDer::Pkcs1(der) => RsaPrivateKey::from_pkcs1_der(der.secret_pkcs1_der())
                .map_err(|_| CryptoError)
                .and_then(Key::rsa),
            _ => Err(CryptoError),
        }?;
        Ok(Arc::new(key))
    }
}

fn from_pkcs8(der: &[u8]) -> Result<Key, CryptoError> {
    if let Ok(key) = p256::SecretKey::from_pkcs8_der(der) {
        return Key::p256(key);
    }
    if let Ok(key) = p384::SecretKey::from_pkcs8_der(der) {
        return Key::p384(key);
    }
    if let Ok(key) = ed25519_dalek::SigningKey::from_pkcs8_der(der) {
        return Key::ed25519(key);
    }
    #[cfg(feature = "ml-dsa")]
    if let Ok(key) = ml_dsa::SigningKey::from_pkcs8_der(der) {
        return Key::mldsa44(key);
    }
    #[cfg(feature = "rsa")]
    if let Ok(key) = RsaPrivateKey::from_pkcs8_der(der) {
        return Key::rsa(key);
    }
    Err(CryptoError)
}

fn from_sec1(der: &[u8]) -> Result<Key, CryptoError> {
    if let Ok(key) = p256::SecretKey::from_sec1_der(der) {
        return Key::p256(key);
    }
    let key = p384::SecretKey::from_sec1_der(der).map_err(|_| CryptoError)?;
    Key::p384(key)
}

/// A key pair, which wipes itself on drop.
enum Pair {
    P256(p256::ecdsa::SigningKey),
    P384(p384::ecdsa::SigningKey),
    Ed25519(ed25519_dalek::SigningKey),
    #[cfg(feature = "rsa")]
    Rsa(Box<RsaPrivateKey>),
    #[cfg(feature = "ml-dsa")]
    MlDsa44(Box<ml_dsa::SigningKey<ml_dsa::MlDsa44>>),
}

struct Key {
    pair: Pair,
    schemes: &'static [SignatureScheme],
    public: SubjectPublicKeyInfoDer<'static>,
}

impl Key {
    fn p256(key: p256::SecretKey) -> Result<Self, CryptoError> {
        let public = spki(&key.public_key())?;
        let pair = Pair::P256(key.into());
        Ok(Self { pair, schemes: &[SignatureScheme::ECDSA_SECP256R1_SHA256], public })
    }

    fn p384(key: p384::SecretKey) -> Result<Self, CryptoError> {
        let public = spki(&key.public_key())?;
        let pair = Pair::P384(key.into());
        Ok(Self { pair, schemes: &[SignatureScheme::ECDSA_SECP384R1_SHA384], public })
    }

    fn ed25519(key: ed25519_dalek::SigningKey) -> Result<Self, CryptoError> {
        let public = spki(&key.verifying_key())?;
        Ok(Self { pair: Pair::Ed25519(key), schemes: &[SignatureScheme::ED25519], public })
    }

    #[cfg(feature = "ml-dsa")]
    fn mldsa44(key: ml_dsa::SigningKey<ml_dsa::MlDsa44>) -> Result<Self, CryptoError> {
        let public = spki(&key.expanded_key().verifying_key())?;
        Ok(Self { pair: Pair::MlDsa44(Box::new(key)), schemes: &[SignatureScheme::MLDSA44], public })
    }

    #[cfg(feature = "rsa")]
    fn rsa(key: RsaPrivateKey) -> Result<Self, CryptoError> {
        // RSA PKCS#1 v1.5 signs no handshake of TLS 1.3 (RFC 8446 §4.2.3).
        const SCHEMES: &[SignatureScheme] = &[
            SignatureScheme::RSA_PSS_RSAE_SHA256,
            SignatureScheme::RSA_PSS_RSAE_SHA384,
            SignatureScheme::RSA_PSS_RSAE_SHA512,
        ];
        if !is_long_enough(key.as_public_key()) {
            return Err(CryptoError);
        }
        let public = spki(key.as_public_key())?;
        Ok(Self { pair: Pair::Rsa(Box::new(key)), schemes: SCHEMES, public })
    }
}

fn spki(key: &impl EncodePublicKey) -> Result<SubjectPublicKeyInfoDer<'static>, CryptoError> {
    let der = key.to_public_key_der().map_err(|_| CryptoError)?;
    Ok(der.into_vec().into())
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        self.schemes
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        &self.public
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        if !self.schemes.contains(&scheme) {
            return Err(CryptoError);
        }
        match &self.pair {
            Pair::P256(key) => {
                let signature: p256::ecdsa::DerSignature =
                    key.try_sign_with_rng(&mut Rng(random), message).map_err(|_| CryptoError)?;
                Ok(signature.as_bytes().to_vec())
            }
            Pair::P384(key) => {
                let signature: p384::ecdsa::DerSignature =
                    key.try_sign_with_rng(&mut Rng(random), message).map_err(|_| CryptoError)?;
                Ok(signature.as_bytes().to_vec())
            }
            Pair::Ed25519(key) => {
                let signature = key.try_sign(message).map_err(|_| CryptoError)?;
                Ok(signature.to_bytes().to_vec())
            }
            #[cfg(feature = "ml-dsa")]
            Pair::MlDsa44(key) => {
                // draft-ietf-tls-mldsa §3: pure ML-DSA, the context is empty.
                let signature = key.expanded_key().sign_randomized(message, &[], &mut Rng(random));
                Ok(signature.map_err(|_| CryptoError)?.encode().to_vec())
            }
            #[cfg(feature = "rsa")]
            Pair::Rsa(key) => match scheme {
                SignatureScheme::RSA_PSS_RSAE_SHA256 => pss_sign::<Sha256>(key, message, random),
                SignatureScheme::RSA_PSS_RSAE_SHA384 => pss_sign::<Sha384>(key, message, random),
                SignatureScheme::RSA_PSS_RSAE_SHA512 => pss_sign::<Sha512>(key, message, random),
                _ => Err(CryptoError),
            },
        }
    }
}

/// Shows what kind of key it is, never the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}
