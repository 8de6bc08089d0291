//! What signatures can be verified: webpki's algorithms over AWS-LC.

use dunlin::crypto::SignatureAlgorithms;
use dunlin::wire::SignatureScheme;
use webpki::aws_lc_rs::{
    ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, ED25519, ML_DSA_44,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256_LEGACY_KEY, RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
};

/// Every algorithm of this provider. RSA keys have 2048 to 8192 bits.
pub static SIGNATURES: SignatureAlgorithms = SignatureAlgorithms {
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
    ],
    // TLS 1.3 binds the curve to the hash (RFC 8446 §4.2.3), so every scheme has one algorithm.
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
    ],
};
