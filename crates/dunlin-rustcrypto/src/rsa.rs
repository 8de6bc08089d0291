//! RSA signatures: verifying and signing.

use alloc::vec::Vec;

use dunlin::crypto::{CryptoError, SecureRandom, rsa_pss};
use pki_types::{SignatureVerificationAlgorithm, alg_id};
use rsa::pkcs1::DecodeRsaPublicKey;
use rsa::sha2::digest::const_oid::AssociatedOid;
use rsa::traits::{PublicKeyParts, SignatureScheme};
use rsa::{Pkcs1v15Sign, PrivateKey, Pss, PublicKey};
use sha2::digest::FixedOutputReset;
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::algorithm::Algorithm;
use crate::random::Rng;

/// The shortest modulus accepted, in bits (NIST SP 800-131A §3). The `rsa` crate sets the upper bound.
const MIN_BITS: u32 = 2048;

pub(crate) static RSA_PSS_SHA256: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PSS_SHA256,
    verify: pss_verify::<Sha256>,
};

pub(crate) static RSA_PSS_SHA384: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PSS_SHA384,
    verify: pss_verify::<Sha384>,
};

pub(crate) static RSA_PSS_SHA512: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PSS_SHA512,
    verify: pss_verify::<Sha512>,
};

pub(crate) static RSA_PKCS1_SHA256: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PKCS1_SHA256,
    verify: pkcs1_verify::<Sha256>,
};

pub(crate) static RSA_PKCS1_SHA384: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PKCS1_SHA384,
    verify: pkcs1_verify::<Sha384>,
};

pub(crate) static RSA_PKCS1_SHA512: &dyn SignatureVerificationAlgorithm = &Algorithm {
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PKCS1_SHA512,
    verify: pkcs1_verify::<Sha512>,
};

/// Algorithms for keys of the type id-RSASSA-PSS: the valid combinations of the identifiers of key and
/// signature for one hash (RFC 8446 §4.2.3).
macro_rules! with_pss_keys {
    ($name:ident, $with_null:ident, $without_null:ident, $hash:ident) => {
        pub(crate) static $name: [&dyn SignatureVerificationAlgorithm; 4] = [
            &Algorithm { key: rsa_pss::ANY_HASH, signature: alg_id::$with_null, verify: pss_verify::<$hash> },
            &Algorithm {
                key: rsa_pss::ANY_HASH,
                signature: rsa_pss::$without_null,
                verify: pss_verify::<$hash>,
            },
            &Algorithm {
                key: alg_id::$with_null,
                signature: alg_id::$with_null,
                verify: pss_verify::<$hash>,
            },
            &Algorithm {
                key: rsa_pss::$without_null,
                signature: rsa_pss::$without_null,
                verify: pss_verify::<$hash>,
            },
        ];
    };
}

with_pss_keys!(PSS_SHA256, RSA_PSS_SHA256, SHA256_WITHOUT_NULL, Sha256);
with_pss_keys!(PSS_SHA384, RSA_PSS_SHA384, SHA384_WITHOUT_NULL, Sha384);
with_pss_keys!(PSS_SHA512, RSA_PSS_SHA512, SHA512_WITHOUT_NULL, Sha512);

/// The salt is as long as the hash (RFC 8446 §4.2.3).
fn pss_verify<D>(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError>
where
    D: Digest + FixedOutputReset,
{
    Pss::<D>::new().verify(&public_key(key)?, &D::digest(message), signature).map_err(|_| CryptoError)
}

fn pkcs1_verify<D>(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError>
where
    D: Digest + AssociatedOid,
{
    Pkcs1v15Sign::new::<D>()
        .verify(&public_key(key)?, &D::digest(message), signature)
        .map_err(|_| CryptoError)
}

fn public_key(pkcs1: &[u8]) -> Result<PublicKey, CryptoError> {
    let key = PublicKey::from_pkcs1_der(pkcs1).map_err(|_| CryptoError)?;
    if is_long_enough(&key) { Ok(key) } else { Err(CryptoError) }
}

/// Whether the modulus has at least [`MIN_BITS`].
pub(crate) fn is_long_enough(key: &PublicKey) -> bool {
    key.n().bit_width() >= MIN_BITS
}

/// Signs with PSS. The salt, as long as the hash, and the blinding come from `random`.
pub(crate) fn pss_sign<D>(
    key: &PrivateKey,
    message: &[u8],
    random: &dyn SecureRandom,
) -> Result<Vec<u8>, CryptoError>
where
    D: Digest + FixedOutputReset,
{
    Pss::<D>::new().sign(Some(&mut Rng(random)), key, &D::digest(message)).map_err(|_| CryptoError)
}

/// Signs with PKCS#1 v1.5. The blinding comes from `random`.
pub(crate) fn pkcs1_sign<D>(
    key: &PrivateKey,
    message: &[u8],
    random: &dyn SecureRandom,
) -> Result<Vec<u8>, CryptoError>
where
    D: Digest + AssociatedOid,
{
    Pkcs1v15Sign::new::<D>().sign(Some(&mut Rng(random)), key, &D::digest(message)).map_err(|_| CryptoError)
}
