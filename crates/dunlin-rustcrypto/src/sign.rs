//! Signing keys and their loaders.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

#[cfg(feature = "rsa")]
use dunlin::crypto::rsa_pss;
use dunlin::crypto::{CryptoError, KeyLoader, SecureRandom, SigningKey};
use dunlin::sync::Arc;
use dunlin::wire::SignatureScheme;
use ed25519_dalek::Signer;
use p256::ecdsa::signature::RandomizedSigner;
use p256::pkcs8::{DecodePrivateKey, EncodePublicKey};
#[cfg(feature = "rsa")]
use p256::pkcs8::{
    PrivateKeyInfoRef,
    der::{Encode, asn1::BitStringRef},
    spki::SubjectPublicKeyInfoRef,
};
#[cfg(feature = "ml-dsa")]
use p256::pkcs8::{der::AnyRef, spki::AssociatedAlgorithmIdentifier};
use pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
#[cfg(feature = "rsa")]
use rsa::PrivateKey as RsaPrivateKey;
#[cfg(feature = "rsa")]
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPublicKey};
#[cfg(feature = "rsa")]
use sha2::{Sha256, Sha384, Sha512};

use crate::random::Rng;
#[cfg(feature = "rsa")]
use crate::rsa::{is_long_enough, pkcs1_sign, pss_sign};

/// Loads P-256, P-384 and Ed25519 keys. The feature `rsa` adds RSA and RSA-PSS keys of 2048 to 8192 bits, the
/// feature `ml-dsa` seeds of ML-DSA-44 and ML-DSA-65, the feature `p521` P-521 keys.
pub static KEY_LOADER: &dyn KeyLoader = &Loader(&[
    load::<p256::ecdsa::SigningKey>,
    load::<p384::ecdsa::SigningKey>,
    #[cfg(feature = "p521")]
    load::<p521::ecdsa::SigningKey>,
    load::<ed25519_dalek::SigningKey>,
    #[cfg(feature = "ml-dsa")]
    load::<ml_dsa::SigningKey<ml_dsa::MlDsa44>>,
    #[cfg(feature = "ml-dsa")]
    load::<ml_dsa::SigningKey<ml_dsa::MlDsa65>>,
    #[cfg(feature = "rsa")]
    load::<RsaPrivateKey>,
    #[cfg(feature = "rsa")]
    load::<PssPair>,
]);

/// Loads P-256 keys only, so that other algorithms are not linked.
pub static P256_KEY_LOADER: &dyn KeyLoader = &Loader(&[load::<p256::ecdsa::SigningKey>]);

/// Loads Ed25519 keys only, so that other algorithms are not linked.
pub static ED25519_KEY_LOADER: &dyn KeyLoader = &Loader(&[load::<ed25519_dalek::SigningKey>]);

/// Loads no keys, for devices with pre-shared keys only.
pub static NO_KEY_LOADER: &dyn KeyLoader = &Loader(&[]);

/// One function for each key type, tried in this order.
struct Loader(&'static [Load]);

type Load = fn(&PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError>;

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        self.0.iter().find_map(|load| load(der).ok()).ok_or(CryptoError)
    }
}

/// Omits the addresses of functions.
impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loader")
    }
}

fn load<P: Pair>(der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
    let pair = P::from_der(der).ok_or(CryptoError)?;
    let public = pair.public_key().ok_or(CryptoError)?;
    // `Arc::new` makes no `Arc<dyn SigningKey>` on targets without atomic pointers.
    Ok(Arc::from(Box::new(Key { pair, public }) as Box<dyn SigningKey>))
}

/// A key pair of one kind, which wipes itself on drop.
trait Pair: Send + Sync + Sized + 'static {
    /// The signature schemes, in order of preference.
    fn schemes(&self) -> &'static [SignatureScheme];
    /// The key, if it is of this kind.
    fn from_der(der: &PrivateKeyDer<'_>) -> Option<Self>;
    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>>;
    /// Signs with one of its schemes.
    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError>;
}

fn spki(key: &impl EncodePublicKey) -> Option<SubjectPublicKeyInfoDer<'static>> {
    key.to_public_key_der().ok().map(|der| der.into_vec().into())
}

/// ECDSA on one curve, for which the library has a module.
macro_rules! ecdsa {
    ($curve:ident, $scheme:ident) => {
        impl Pair for $curve::ecdsa::SigningKey {
            fn schemes(&self) -> &'static [SignatureScheme] {
                &[SignatureScheme::$scheme]
            }

            fn from_der(der: &PrivateKeyDer<'_>) -> Option<Self> {
                let key = match der {
                    PrivateKeyDer::Pkcs8(der) => {
                        $curve::SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()?
                    }
                    PrivateKeyDer::Sec1(der) => {
                        $curve::SecretKey::from_sec1_der(der.secret_sec1_der()).ok()?
                    }
                    _ => return None,
                };
                Some(key.into())
            }

            fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
                spki(self.verifying_key())
            }

            fn sign(
                &self,
                _: SignatureScheme,
                message: &[u8],
                random: &dyn SecureRandom,
            ) -> Result<Vec<u8>, CryptoError> {
                let signature: $curve::ecdsa::DerSignature =
                    self.try_sign_with_rng(&mut Rng(random), message).map_err(|_| CryptoError)?;
                Ok(signature.as_bytes().to_vec())
            }
        }
    };
}

ecdsa!(p256, ECDSA_SECP256R1_SHA256);
ecdsa!(p384, ECDSA_SECP384R1_SHA384);
#[cfg(feature = "p521")]
ecdsa!(p521, ECDSA_SECP521R1_SHA512);

impl Pair for ed25519_dalek::SigningKey {
    fn schemes(&self) -> &'static [SignatureScheme] {
        &[SignatureScheme::ED25519]
    }

    fn from_der(der: &PrivateKeyDer<'_>) -> Option<Self> {
        let PrivateKeyDer::Pkcs8(der) = der else { return None };
        Self::from_pkcs8_der(der.secret_pkcs8_der()).ok()
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
        spki(&self.verifying_key())
    }

    fn sign(&self, _: SignatureScheme, message: &[u8], _: &dyn SecureRandom) -> Result<Vec<u8>, CryptoError> {
        let signature = self.try_sign(message).map_err(|_| CryptoError)?;
        Ok(signature.to_bytes().to_vec())
    }
}

/// A set of parameters of ML-DSA and its scheme.
#[cfg(feature = "ml-dsa")]
trait MlDsa: ml_dsa::MlDsaParams + AssociatedAlgorithmIdentifier<Params = AnyRef<'static>> + 'static {
    const SCHEMES: &'static [SignatureScheme];
}

#[cfg(feature = "ml-dsa")]
impl MlDsa for ml_dsa::MlDsa44 {
    const SCHEMES: &'static [SignatureScheme] = &[SignatureScheme::MLDSA44];
}

#[cfg(feature = "ml-dsa")]
impl MlDsa for ml_dsa::MlDsa65 {
    const SCHEMES: &'static [SignatureScheme] = &[SignatureScheme::MLDSA65];
}

#[cfg(feature = "ml-dsa")]
impl<P: MlDsa> Pair for ml_dsa::SigningKey<P> {
    fn schemes(&self) -> &'static [SignatureScheme] {
        P::SCHEMES
    }

    fn from_der(der: &PrivateKeyDer<'_>) -> Option<Self> {
        let PrivateKeyDer::Pkcs8(der) = der else { return None };
        Self::from_pkcs8_der(der.secret_pkcs8_der()).ok()
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
        spki(&self.expanded_key().verifying_key())
    }

    fn sign(
        &self,
        _: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        // Pure ML-DSA with an empty context (draft-ietf-tls-mldsa §3).
        let signature = self.expanded_key().sign_randomized(message, &[], &mut Rng(random));
        Ok(signature.map_err(|_| CryptoError)?.encode().to_vec())
    }
}

#[cfg(feature = "rsa")]
impl Pair for RsaPrivateKey {
    fn schemes(&self) -> &'static [SignatureScheme] {
        // RSA PKCS#1 v1.5 is for TLS 1.2 only: TLS 1.3 must not sign handshakes with it (RFC 8446 §4.2.3).
        &[
            SignatureScheme::RSA_PSS_RSAE_SHA256,
            SignatureScheme::RSA_PSS_RSAE_SHA384,
            SignatureScheme::RSA_PSS_RSAE_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ]
    }

    fn from_der(der: &PrivateKeyDer<'_>) -> Option<Self> {
        let key = match der {
            PrivateKeyDer::Pkcs8(der) => {
                // The library also reads RSA-PSS keys, which sign with other schemes.
                let info = PrivateKeyInfoRef::try_from(der.secret_pkcs8_der()).ok()?;
                let is_general = info.algorithm.oid == rsa::pkcs1::ALGORITHM_OID;
                is_general.then(|| Self::from_pkcs8_der(der.secret_pkcs8_der()).ok())??
            }
            PrivateKeyDer::Pkcs1(der) => Self::from_pkcs1_der(der.secret_pkcs1_der()).ok()?,
            _ => return None,
        };
        is_long_enough(key.as_public_key()).then_some(key)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
        spki(self.as_public_key())
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        match scheme {
            SignatureScheme::RSA_PSS_RSAE_SHA256 => pss_sign::<Sha256>(self, message, random),
            SignatureScheme::RSA_PSS_RSAE_SHA384 => pss_sign::<Sha384>(self, message, random),
            SignatureScheme::RSA_PSS_RSAE_SHA512 => pss_sign::<Sha512>(self, message, random),
            SignatureScheme::RSA_PKCS1_SHA256 => pkcs1_sign::<Sha256>(self, message, random),
            SignatureScheme::RSA_PKCS1_SHA384 => pkcs1_sign::<Sha384>(self, message, random),
            SignatureScheme::RSA_PKCS1_SHA512 => pkcs1_sign::<Sha512>(self, message, random),
            _ => Err(CryptoError),
        }
    }
}

/// A key of the type id-RSASSA-PSS.
#[cfg(feature = "rsa")]
struct PssPair {
    key: RsaPrivateKey,
    schemes: &'static [SignatureScheme],
    public: SubjectPublicKeyInfoDer<'static>,
}

#[cfg(feature = "rsa")]
impl PssPair {
    fn new(info: &PrivateKeyInfoRef<'_>) -> Option<Self> {
        /// Tag and length of an AlgorithmIdentifier of less than 128 bytes.
        const HEADER: usize = 2;
        let schemes = rsa_pss::schemes(info.algorithm.to_der().ok()?.get(HEADER..)?)?;
        let key = RsaPrivateKey::from_pkcs1_der(info.private_key.as_bytes()).ok()?;
        let public = key.as_public_key().to_pkcs1_der().ok()?;
        let subject_public_key = BitStringRef::from_bytes(public.as_bytes()).ok()?;
        let public =
            SubjectPublicKeyInfoRef { algorithm: info.algorithm, subject_public_key }.to_der().ok()?;
        is_long_enough(key.as_public_key()).then(|| Self { key, schemes, public: public.into() })
    }
}

#[cfg(feature = "rsa")]
impl Pair for PssPair {
    fn schemes(&self) -> &'static [SignatureScheme] {
        self.schemes
    }

    fn from_der(der: &PrivateKeyDer<'_>) -> Option<Self> {
        let PrivateKeyDer::Pkcs8(der) = der else { return None };
        Self::new(&PrivateKeyInfoRef::try_from(der.secret_pkcs8_der()).ok()?)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
        Some(self.public.clone())
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        match scheme {
            SignatureScheme::RSA_PSS_PSS_SHA256 => pss_sign::<Sha256>(&self.key, message, random),
            SignatureScheme::RSA_PSS_PSS_SHA384 => pss_sign::<Sha384>(&self.key, message, random),
            SignatureScheme::RSA_PSS_PSS_SHA512 => pss_sign::<Sha512>(&self.key, message, random),
            _ => Err(CryptoError),
        }
    }
}

struct Key<P> {
    pair: P,
    public: SubjectPublicKeyInfoDer<'static>,
}

impl<P: Pair> SigningKey for Key<P> {
    fn schemes(&self) -> &[SignatureScheme] {
        self.pair.schemes()
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
        if !self.schemes().contains(&scheme) {
            return Err(CryptoError);
        }
        self.pair.sign(scheme, message, random)
    }
}

/// Shows the signature schemes of the key, never the key itself.
impl<P: Pair> fmt::Debug for Key<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("schemes", &self.schemes()).finish_non_exhaustive()
    }
}
