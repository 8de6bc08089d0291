//! Signature verification: webpki's algorithms over AWS-LC.

use dunlin::crypto::{SignatureAlgorithms, rsa_pss};
use dunlin::wire::SignatureScheme;
use pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use webpki::aws_lc_rs::{
    ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, ECDSA_P521_SHA256,
    ECDSA_P521_SHA384, ECDSA_P521_SHA512, ED25519, ML_DSA_44, ML_DSA_65, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    RSA_PSS_2048_8192_SHA384_LEGACY_KEY, RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
};

/// The algorithms of every list, and the additional ones that are given: first for chains, then for signature
/// schemes.
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

/// Every algorithm: [`SIGNATURES`], and ECDSA on P-521, ML-DSA-65, and RSA-PSS with keys of the type
/// id-RSASSA-PSS. Few certificates have such keys, but offering a scheme
/// makes every ClientHello longer. A profile can choose among the schemes.
pub static ALL_SIGNATURES: SignatureAlgorithms = signatures!(
    [
        ECDSA_P521_SHA256,
        ECDSA_P521_SHA384,
        ECDSA_P521_SHA512,
        ML_DSA_65,
        PSS_SHA256[0],
        PSS_SHA256[1],
        PSS_SHA256[2],
        PSS_SHA256[3],
        PSS_SHA384[0],
        PSS_SHA384[1],
        PSS_SHA384[2],
        PSS_SHA384[3],
        PSS_SHA512[0],
        PSS_SHA512[1],
        PSS_SHA512[2],
        PSS_SHA512[3]
    ],
    [
        (SignatureScheme::ECDSA_SECP521R1_SHA512, &[ECDSA_P521_SHA512]),
        (SignatureScheme::MLDSA65, &[ML_DSA_65]),
        (SignatureScheme::RSA_PSS_PSS_SHA256, &PSS_SHA256),
        (SignatureScheme::RSA_PSS_PSS_SHA384, &PSS_SHA384),
        (SignatureScheme::RSA_PSS_PSS_SHA512, &PSS_SHA512)
    ]
);

/// RSA-PSS with a key of the type id-RSASSA-PSS. webpki has the same algorithm for keys of the type
/// rsaEncryption.
#[derive(Debug)]
struct WithPssKey {
    key: AlgorithmIdentifier,
    signature: AlgorithmIdentifier,
    algorithm: &'static dyn SignatureVerificationAlgorithm,
}

impl SignatureVerificationAlgorithm for WithPssKey {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        self.algorithm.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.key
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }

    fn fips(&self) -> bool {
        self.algorithm.fips()
    }
}

/// The valid combinations of the identifiers of key and signature for one hash (RFC 8446 §4.2.3).
macro_rules! with_pss_keys {
    ($name:ident, $with_null:ident, $without_null:ident, $algorithm:ident) => {
        static $name: [&dyn SignatureVerificationAlgorithm; 4] = [
            &WithPssKey { key: rsa_pss::ANY_HASH, signature: alg_id::$with_null, algorithm: $algorithm },
            &WithPssKey { key: rsa_pss::ANY_HASH, signature: rsa_pss::$without_null, algorithm: $algorithm },
            &WithPssKey { key: alg_id::$with_null, signature: alg_id::$with_null, algorithm: $algorithm },
            &WithPssKey {
                key: rsa_pss::$without_null,
                signature: rsa_pss::$without_null,
                algorithm: $algorithm,
            },
        ];
    };
}

with_pss_keys!(PSS_SHA256, RSA_PSS_SHA256, SHA256_WITHOUT_NULL, RSA_PSS_2048_8192_SHA256_LEGACY_KEY);
with_pss_keys!(PSS_SHA384, RSA_PSS_SHA384, SHA384_WITHOUT_NULL, RSA_PSS_2048_8192_SHA384_LEGACY_KEY);
with_pss_keys!(PSS_SHA512, RSA_PSS_SHA512, SHA512_WITHOUT_NULL, RSA_PSS_2048_8192_SHA512_LEGACY_KEY);
