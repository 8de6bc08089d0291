//! RSA with keys of any length from 512 bits: PKCS#1 v1.5 (RFC 8017 §8.2) with SHA-256, the scheme that fits
//! into 512 bits.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use dunlin::crypto::{CryptoError, RsaDecryption, RsaEncryption, RsaPublicKey, SecureRandom, SigningKey};
use dunlin::wire::SignatureScheme;
use pkcs1::RsaPrivateKeyRef;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::asn1::BitStringRef;
use pkcs8::der::{Decode, Encode};
use pkcs8::spki::SubjectPublicKeyInfoRef;
use pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, alg_id,
};
use sha2::{Digest, Sha256};

use crate::rsa::{RSA_ENCRYPTION, public_key, raw};

/// Encrypts with RSA keys of any length.
pub static ENCRYPTION: &dyn RsaEncryption = &Encryption;

#[derive(Debug)]
struct Encryption;

impl RsaEncryption for Encryption {
    fn public_key(&self, spki: &SubjectPublicKeyInfoDer<'_>) -> Result<Box<dyn RsaPublicKey>, CryptoError> {
        Ok(Box::new(public_key(spki)?))
    }

    fn is_legacy(&self) -> bool {
        true
    }
}

/// The `DigestInfo` before a SHA-256 hash (RFC 8017 §9.2).
const DIGEST_INFO: [u8; 19] =
    [0x30, 0x31, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 5, 0, 4, 32];

/// The block to sign: the padded hash of `message` (RFC 8017 §9.2).
fn encode(message: &[u8], len: usize) -> Result<Vec<u8>, CryptoError> {
    let info = [&DIGEST_INFO[..], &Sha256::digest(message)].concat();
    // The padding is 00 01, at least eight bytes of ff, and 00.
    let padding_len = len.checked_sub(info.len()).filter(|len| *len >= 11).ok_or(CryptoError)?;
    let mut block = vec![0xff; padding_len];
    block.extend(info);
    for (at, byte) in [(0, 0), (1, 1), (padding_len - 1, 0)] {
        block[at] = byte;
    }
    Ok(block)
}

/// Verifies with keys of any length.
pub(crate) const PKCS1_SHA256: &dyn SignatureVerificationAlgorithm = &Pkcs1Sha256;

#[derive(Debug)]
struct Pkcs1Sha256;

impl SignatureVerificationAlgorithm for Pkcs1Sha256 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = raw::Key::public(public_key).map_err(|_| InvalidSignature)?;
        let signed = key.public_power(signature).map_err(|_| InvalidSignature)?;
        match encode(message, key.modulus_len()) {
            Ok(expected) if signed == expected => Ok(()),
            _ => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_PKCS1_SHA256
    }
}

/// Loads the RSA key in `der`.
pub(crate) fn load(der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
    let PrivateKeyDer::Pkcs8(der) = der else { return Err(CryptoError) };
    let info = PrivateKeyInfoRef::from_der(der.secret_pkcs8_der()).map_err(|_| CryptoError)?;
    if info.algorithm.oid != RSA_ENCRYPTION {
        return Err(CryptoError);
    }
    let pkcs1 = info.private_key.as_bytes();
    let public = RsaPrivateKeyRef::from_der(pkcs1).and_then(|key| key.public_key().to_der());
    let public = public.map_err(|_| CryptoError)?;
    let subject_public_key = BitStringRef::from_bytes(&public).map_err(|_| CryptoError)?;
    let spki = SubjectPublicKeyInfoRef { algorithm: info.algorithm, subject_public_key };
    let public = SubjectPublicKeyInfoDer::from(spki.to_der().map_err(|_| CryptoError)?);
    Ok(Arc::new(PrivateKey { key: raw::Key::private(pkcs1)?, public }))
}

/// An RSA key that signs and decrypts.
struct PrivateKey {
    key: raw::Key,
    public: SubjectPublicKeyInfoDer<'static>,
}

impl SigningKey for PrivateKey {
    fn schemes(&self) -> &[SignatureScheme] {
        &[SignatureScheme::RSA_PKCS1_SHA256]
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
        if !self.schemes().contains(&scheme) {
            return Err(CryptoError);
        }
        let block = encode(message, self.key.modulus_len())?;
        self.key.private_power(&block).map(|signature| signature.to_vec())
    }

    fn decryption(&self) -> Option<&dyn RsaDecryption> {
        Some(&self.key)
    }
}

/// Shows the signature schemes of the key, never the key itself.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("schemes", &self.schemes()).finish_non_exhaustive()
    }
}
