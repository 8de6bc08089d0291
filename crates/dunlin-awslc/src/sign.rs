//! Signing keys and their loader.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, ML_DSA_44_SIGNING, ML_DSA_65_SIGNING,
    PqdsaKeyPair, PqdsaSigningAlgorithm, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
};
use dunlin::crypto::{CryptoError, KeyLoader, SecureRandom, SigningKey, rsa_pss};
use dunlin::wire::SignatureScheme;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::asn1::BitStringRef;
use pkcs8::der::{Decode, Encode};
use pkcs8::spki::SubjectPublicKeyInfoRef;
use pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};

/// Loads RSA and RSA-PSS (2048 to 8192 bits), P-256, P-384, P-521, Ed25519, ML-DSA-44 and ML-DSA-65 keys.
pub static KEY_LOADER: &dyn KeyLoader = &Loader;

#[derive(Debug)]
struct Loader;

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        let bytes = der.secret_der();
        if !is_one_sequence(bytes) {
            return Err(CryptoError);
        }
        let key = match der {
            PrivateKeyDer::Pkcs1(_) => Key::rsa(rsa::KeyPair::from_der(bytes).map_err(|_| CryptoError)?),
            PrivateKeyDer::Sec1(_) => Key::ecdsa(bytes),
            PrivateKeyDer::Pkcs8(_) => Key::ecdsa(bytes)
                .or_else(|_| Key::ed25519(bytes))
                .or_else(|_| Key::mldsa(bytes))
                .or_else(|_| Key::rsa_pss(bytes))
                .or_else(|_| Key::rsa(rsa::KeyPair::from_pkcs8(bytes).map_err(|_| CryptoError)?)),
            _ => Err(CryptoError),
        }?;
        Ok(Arc::new(key))
    }
}

/// Whether `der` is exactly one SEQUENCE with a definite length. AWS-LC itself ignores trailing bytes.
fn is_one_sequence(der: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    let (len, content) = match der {
        [SEQUENCE, len @ 0..=0x7f, content @ ..] => (usize::from(*len), content),
        [SEQUENCE, 0x81, len, content @ ..] => (usize::from(*len), content),
        [SEQUENCE, 0x82, high, low, content @ ..] => {
            (usize::from(u16::from_be_bytes([*high, *low])), content)
        }
        _ => return false,
    };
    content.len() == len
}

/// A key pair, which AWS-LC wipes on drop.
enum Pair {
    Rsa(rsa::KeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    MlDsa(PqdsaKeyPair),
}

struct Key {
    pair: Pair,
    schemes: &'static [SignatureScheme],
    public: SubjectPublicKeyInfoDer<'static>,
}

impl Key {
    fn rsa(pair: rsa::KeyPair) -> Result<Self, CryptoError> {
        // RSA PKCS#1 v1.5 is for TLS 1.2 only: TLS 1.3 must not sign handshakes with it (RFC 8446 §4.2.3).
        const SCHEMES: &[SignatureScheme] = &[
            SignatureScheme::RSA_PSS_RSAE_SHA256,
            SignatureScheme::RSA_PSS_RSAE_SHA384,
            SignatureScheme::RSA_PSS_RSAE_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ];
        let public = spki(pair.public_key())?;
        Ok(Self { pair: Pair::Rsa(pair), schemes: SCHEMES, public })
    }

    /// A key of the type id-RSASSA-PSS, which AWS-LC knows but aws-lc-rs does not.
    fn rsa_pss(pkcs8: &[u8]) -> Result<Self, CryptoError> {
        /// Tag and length of an AlgorithmIdentifier of less than 128 bytes.
        const HEADER: usize = 2;
        let info = PrivateKeyInfoRef::from_der(pkcs8).map_err(|_| CryptoError)?;
        let algorithm = info.algorithm.to_der().map_err(|_| CryptoError)?;
        let schemes = algorithm.get(HEADER..).and_then(rsa_pss::schemes).ok_or(CryptoError)?;
        let pkcs1 = info.private_key.as_bytes();
        if !is_one_sequence(pkcs1) {
            return Err(CryptoError);
        }
        let pair = rsa::KeyPair::from_der(pkcs1).map_err(|_| CryptoError)?;
        let key = BitStringRef::from_bytes(pair.public_key().as_ref()).map_err(|_| CryptoError)?;
        let spki = SubjectPublicKeyInfoRef { algorithm: info.algorithm, subject_public_key: key };
        let public = spki.to_der().map_err(|_| CryptoError)?.into();
        Ok(Self { pair: Pair::Rsa(pair), schemes, public })
    }

    fn ecdsa(der: &[u8]) -> Result<Self, CryptoError> {
        const CURVES: [(&EcdsaSigningAlgorithm, &[SignatureScheme]); 3] = [
            (&ECDSA_P256_SHA256_ASN1_SIGNING, &[SignatureScheme::ECDSA_SECP256R1_SHA256]),
            (&ECDSA_P384_SHA384_ASN1_SIGNING, &[SignatureScheme::ECDSA_SECP384R1_SHA384]),
            (&ECDSA_P521_SHA512_ASN1_SIGNING, &[SignatureScheme::ECDSA_SECP521R1_SHA512]),
        ];
        for (curve, schemes) in CURVES {
            if let Ok(pair) = EcdsaKeyPair::from_private_key_der(curve, der) {
                let public = spki(pair.public_key())?;
                return Ok(Self { pair: Pair::Ecdsa(pair), schemes, public });
            }
        }
        Err(CryptoError)
    }

    fn ed25519(pkcs8: &[u8]) -> Result<Self, CryptoError> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8).map_err(|_| CryptoError)?;
        let public = spki(pair.public_key())?;
        Ok(Self { pair: Pair::Ed25519(pair), schemes: &[SignatureScheme::ED25519], public })
    }

    /// Takes the seed, the expanded key or both (RFC 9881 §6).
    fn mldsa(pkcs8: &[u8]) -> Result<Self, CryptoError> {
        const LEVELS: [(&PqdsaSigningAlgorithm, &[SignatureScheme]); 2] = [
            (&ML_DSA_44_SIGNING, &[SignatureScheme::MLDSA44]),
            (&ML_DSA_65_SIGNING, &[SignatureScheme::MLDSA65]),
        ];
        for (level, schemes) in LEVELS {
            if let Ok(pair) = PqdsaKeyPair::from_pkcs8(level, pkcs8) {
                let public = spki(pair.public_key())?;
                return Ok(Self { pair: Pair::MlDsa(pair), schemes, public });
            }
        }
        Err(CryptoError)
    }
}

fn spki(
    key: &impl AsDer<PublicKeyX509Der<'static>>,
) -> Result<SubjectPublicKeyInfoDer<'static>, CryptoError> {
    let der = key.as_der().map_err(|_| CryptoError)?;
    Ok(SubjectPublicKeyInfoDer::from(der.as_ref()).into_owned())
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
        _random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        if !self.schemes.contains(&scheme) {
            return Err(CryptoError);
        }
        // aws-lc-rs takes a random source only to match ring's interface; it always uses AWS-LC's own.
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match scheme {
                    SignatureScheme::RSA_PSS_RSAE_SHA256 | SignatureScheme::RSA_PSS_PSS_SHA256 => {
                        &RSA_PSS_SHA256
                    }
                    SignatureScheme::RSA_PSS_RSAE_SHA384 | SignatureScheme::RSA_PSS_PSS_SHA384 => {
                        &RSA_PSS_SHA384
                    }
                    SignatureScheme::RSA_PSS_RSAE_SHA512 | SignatureScheme::RSA_PSS_PSS_SHA512 => {
                        &RSA_PSS_SHA512
                    }
                    SignatureScheme::RSA_PKCS1_SHA256 => &RSA_PKCS1_SHA256,
                    SignatureScheme::RSA_PKCS1_SHA384 => &RSA_PKCS1_SHA384,
                    SignatureScheme::RSA_PKCS1_SHA512 => &RSA_PKCS1_SHA512,
                    _ => return Err(CryptoError),
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).map_err(|_| CryptoError)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair) => {
                let signature = pair.sign(&random, message).map_err(|_| CryptoError)?;
                Ok(signature.as_ref().to_vec())
            }
            Pair::Ed25519(pair) => {
                let signature = pair.try_sign(message).map_err(|_| CryptoError)?;
                Ok(signature.as_ref().to_vec())
            }
            Pair::MlDsa(pair) => {
                // Pure ML-DSA with an empty context (draft-ietf-tls-mldsa §3).
                let mut signature = vec![0; pair.algorithm().signature_len()];
                pair.sign(message, &mut signature).map_err(|_| CryptoError)?;
                Ok(signature)
            }
        }
    }
}

/// Shows the signature schemes of the key, never the key itself.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}
