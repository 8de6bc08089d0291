//! Signature verification.

use dunlin::crypto::{CryptoError, SignatureAlgorithms};
use dunlin::wire::SignatureScheme;
use ed25519_dalek::VerifyingKey;
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use pki_types::{SignatureVerificationAlgorithm, alg_id};
use sha2::{Digest, Sha256, Sha384};

use crate::algorithm::Algorithm;
#[cfg(feature = "rsa")]
use crate::rsa::{
    PSS_SHA256, PSS_SHA384, PSS_SHA512, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512,
};

/// The algorithms of every list, and the additional ones that are given: first for chains, then for signature
/// schemes.
macro_rules! signatures {
    ([$($chains:tt)*], [$($schemes:tt)*]) => { SignatureAlgorithms {
    all: &[
        ECDSA_P256_SHA256,
        ECDSA_P256_SHA384,
        ECDSA_P384_SHA256,
        ECDSA_P384_SHA384,
        ED25519,
        #[cfg(feature = "rsa")]
        RSA_PSS_SHA256,
        #[cfg(feature = "rsa")]
        RSA_PSS_SHA384,
        #[cfg(feature = "rsa")]
        RSA_PSS_SHA512,
        #[cfg(feature = "rsa")]
        RSA_PKCS1_SHA256,
        #[cfg(feature = "rsa")]
        RSA_PKCS1_SHA384,
        #[cfg(feature = "rsa")]
        RSA_PKCS1_SHA512,
        #[cfg(feature = "ml-dsa")]
        ML_DSA_44,
        $($chains)*
    ],
    // TLS 1.3 binds the curve to the hash, so every scheme has one algorithm (RFC 8446 §4.2.3).
    schemes: &[
        (SignatureScheme::ECDSA_SECP256R1_SHA256, &[ECDSA_P256_SHA256]),
        (SignatureScheme::ECDSA_SECP384R1_SHA384, &[ECDSA_P384_SHA384]),
        (SignatureScheme::ED25519, &[ED25519]),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PSS_RSAE_SHA256, &[RSA_PSS_SHA256]),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PSS_RSAE_SHA384, &[RSA_PSS_SHA384]),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PSS_RSAE_SHA512, &[RSA_PSS_SHA512]),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PKCS1_SHA256, &[RSA_PKCS1_SHA256]),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PKCS1_SHA384, &[RSA_PKCS1_SHA384]),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PKCS1_SHA512, &[RSA_PKCS1_SHA512]),
        #[cfg(feature = "ml-dsa")]
        (SignatureScheme::MLDSA44, &[ML_DSA_44]),
        $($schemes)*
    ],
    } };
}

/// The default algorithms. RSA keys must have 2048 to 8192 bits.
pub static SIGNATURES: SignatureAlgorithms = signatures!([], []);

/// Every algorithm: [`SIGNATURES`], and with the features `p521`, `ml-dsa` and `rsa` ECDSA on P-521,
/// ML-DSA-65, and RSA-PSS with keys of the type id-RSASSA-PSS. Few certificates have such keys, but offering
/// a scheme makes every ClientHello longer. A profile can choose among the schemes.
pub static ALL_SIGNATURES: SignatureAlgorithms = signatures!(
    [
        #[cfg(feature = "p521")]
        ECDSA_P521_SHA256,
        #[cfg(feature = "p521")]
        ECDSA_P521_SHA384,
        #[cfg(feature = "p521")]
        ECDSA_P521_SHA512,
        #[cfg(feature = "ml-dsa")]
        ML_DSA_65,
        #[cfg(feature = "rsa")]
        PSS_SHA256[0],
        #[cfg(feature = "rsa")]
        PSS_SHA256[1],
        #[cfg(feature = "rsa")]
        PSS_SHA256[2],
        #[cfg(feature = "rsa")]
        PSS_SHA256[3],
        #[cfg(feature = "rsa")]
        PSS_SHA384[0],
        #[cfg(feature = "rsa")]
        PSS_SHA384[1],
        #[cfg(feature = "rsa")]
        PSS_SHA384[2],
        #[cfg(feature = "rsa")]
        PSS_SHA384[3],
        #[cfg(feature = "rsa")]
        PSS_SHA512[0],
        #[cfg(feature = "rsa")]
        PSS_SHA512[1],
        #[cfg(feature = "rsa")]
        PSS_SHA512[2],
        #[cfg(feature = "rsa")]
        PSS_SHA512[3],
    ],
    [
        #[cfg(feature = "p521")]
        (SignatureScheme::ECDSA_SECP521R1_SHA512, &[ECDSA_P521_SHA512]),
        #[cfg(feature = "ml-dsa")]
        (SignatureScheme::MLDSA65, &[ML_DSA_65]),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PSS_PSS_SHA256, &PSS_SHA256),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PSS_PSS_SHA384, &PSS_SHA384),
        #[cfg(feature = "rsa")]
        (SignatureScheme::RSA_PSS_PSS_SHA512, &PSS_SHA512),
    ]
);

/// ECDSA on P-256 with SHA-256 only, so that other algorithms are not linked.
pub static P256_SIGNATURES: SignatureAlgorithms = SignatureAlgorithms {
    all: &[ECDSA_P256_SHA256],
    schemes: &[(SignatureScheme::ECDSA_SECP256R1_SHA256, &[ECDSA_P256_SHA256])],
};

/// Ed25519 only, so that other algorithms are not linked.
pub static ED25519_SIGNATURES: SignatureAlgorithms =
    SignatureAlgorithms { all: &[ED25519], schemes: &[(SignatureScheme::ED25519, &[ED25519])] };

/// No algorithm, for devices with pre-shared keys only.
pub static NO_SIGNATURES: SignatureAlgorithms = SignatureAlgorithms { all: &[], schemes: &[] };

static ECDSA_P256_SHA256: &dyn SignatureVerificationAlgorithm =
    &Algorithm { key: alg_id::ECDSA_P256, signature: alg_id::ECDSA_SHA256, verify: p256_verify::<Sha256> };

static ECDSA_P256_SHA384: &dyn SignatureVerificationAlgorithm =
    &Algorithm { key: alg_id::ECDSA_P256, signature: alg_id::ECDSA_SHA384, verify: p256_verify::<Sha384> };

static ECDSA_P384_SHA256: &dyn SignatureVerificationAlgorithm =
    &Algorithm { key: alg_id::ECDSA_P384, signature: alg_id::ECDSA_SHA256, verify: p384_verify::<Sha256> };

static ECDSA_P384_SHA384: &dyn SignatureVerificationAlgorithm =
    &Algorithm { key: alg_id::ECDSA_P384, signature: alg_id::ECDSA_SHA384, verify: p384_verify::<Sha384> };

#[cfg(feature = "p521")]
static ECDSA_P521_SHA256: &dyn SignatureVerificationAlgorithm =
    &Algorithm { key: alg_id::ECDSA_P521, signature: alg_id::ECDSA_SHA256, verify: p521_verify::<Sha256> };

#[cfg(feature = "p521")]
static ECDSA_P521_SHA384: &dyn SignatureVerificationAlgorithm =
    &Algorithm { key: alg_id::ECDSA_P521, signature: alg_id::ECDSA_SHA384, verify: p521_verify::<Sha384> };

#[cfg(feature = "p521")]
static ECDSA_P521_SHA512: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::ECDSA_P521,
    signature: alg_id::ECDSA_SHA512,
    verify: p521_verify::<sha2::Sha512>,
};

static ED25519: &dyn SignatureVerificationAlgorithm =
    &Algorithm { key: alg_id::ED25519, signature: alg_id::ED25519, verify: ed25519_verify };

#[cfg(feature = "ml-dsa")]
static ML_DSA_44: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::ML_DSA_44,
    signature: alg_id::ML_DSA_44,
    verify: mldsa_verify::<ml_dsa::MlDsa44>,
};

#[cfg(feature = "ml-dsa")]
static ML_DSA_65: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::ML_DSA_65,
    signature: alg_id::ML_DSA_65,
    verify: mldsa_verify::<ml_dsa::MlDsa65>,
};

/// ECDSA on one curve, for which the library has a module.
macro_rules! ecdsa {
    ($verify:ident, $curve:ident) => {
        fn $verify<D: Digest>(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
            let key = $curve::ecdsa::VerifyingKey::from_sec1_bytes(key).map_err(|_| CryptoError)?;
            let signature = $curve::ecdsa::Signature::from_der(signature).map_err(|_| CryptoError)?;
            key.verify_prehash(&D::digest(message), &signature).map_err(|_| CryptoError)
        }
    };
}

ecdsa!(p256_verify, p256);
ecdsa!(p384_verify, p384);
#[cfg(feature = "p521")]
ecdsa!(p521_verify, p521);

fn ed25519_verify(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
    let key = VerifyingKey::try_from(key).map_err(|_| CryptoError)?;
    let signature = ed25519_dalek::Signature::from_slice(signature).map_err(|_| CryptoError)?;
    // Strict verification rejects public keys of small order, under which almost any signature would verify.
    key.verify_strict(message, &signature).map_err(|_| CryptoError)
}

#[cfg(feature = "ml-dsa")]
fn mldsa_verify<P: ml_dsa::MlDsaParams>(
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), CryptoError> {
    let key = key.try_into().map_err(|_| CryptoError)?;
    let key = ml_dsa::VerifyingKey::<P>::decode(key);
    let signature = ml_dsa::Signature::<P>::try_from(signature).map_err(|_| CryptoError)?;
    // Pure ML-DSA with an empty context (RFC 9881 §3, draft-ietf-tls-mldsa §3).
    if key.verify_with_context(message, &[], &signature) { Ok(()) } else { Err(CryptoError) }
}
