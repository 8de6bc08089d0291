//! Signature verification: webpki's algorithms over AWS-LC.

use dunlin::crypto::SignatureAlgorithms;
use dunlin::wire::SignatureScheme;
use webpki::aws_lc_rs::{
    ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, ECDSA_P521_SHA256,
    ECDSA_P521_SHA384, ECDSA_P521_SHA512, ED25519, ML_DSA_44, ML_DSA_65, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    RSA_PSS_2048_8192_SHA384_LEGACY_KEY, RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
};

/// The algorithms of every list, and the additional ones that are given: first for chains, then for signature schemes.
macro_rules! signatures {
    ([$($chains:expr),*], [$($schemes:expr),*]) => { SignatureAlgorithms {
    all: &[
        ECDSA_P256_SHA256,
        ECDSA_P256_SHA384,
        ECDSA_P384_SHA256,
        ECDSA_P384_SHA384,
        ED25519,
        RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384,
        RSA_PKCS1_2048_8192_SHA512,
        ML_DSA_44,
        $($chains),*
    ],
    // TLS 1.3 binds the curve to the hash, so every scheme has one algorithm (RFC 8446 §4.2.3).
    schemes: &[
        (SignatureScheme::ECDSA_SECP256R1_SHA256, &[ECDSA_P256_SHA256]),
        (SignatureScheme::ECDSA_SECP384R1_SHA384, &[ECDSA_P384_SHA384]),
        (SignatureScheme::ED25519, &[ED25519]),
        (SignatureScheme::RSA_PSS_RSAE_SHA256, &[RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_RSAE_SHA384, &[RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_RSAE_SHA512, &[RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[RSA_PKCS1_2048_8192_SHA256]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[RSA_PKCS1_2048_8192_SHA512]),
        (SignatureScheme::MLDSA44, &[ML_DSA_44]),
        $($schemes),*
    ],
    } };
}

/// The default algorithms. RSA keys must have 2048 to 8192 bits.
pub static SIGNATURES: SignatureAlgorithms = signatures!([], []);

/// Every algorithm: [`SIGNATURES`], and ECDSA on P-521 and ML-DSA-65. Few certificates have such keys, but offering a scheme
/// makes every ClientHello longer. A profile can choose among the schemes.
pub static ALL_SIGNATURES: SignatureAlgorithms = signatures!(
    [ECDSA_P521_SHA256, ECDSA_P521_SHA384, ECDSA_P521_SHA512, ML_DSA_65],
    [
        (SignatureScheme::ECDSA_SECP521R1_SHA512, &[ECDSA_P521_SHA512]),
        (SignatureScheme::MLDSA65, &[ML_DSA_65])
    ]
);
