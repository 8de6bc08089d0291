//! DSA with SHA-256 (FIPS 186-4 §4).
//!
//! The AlgorithmIdentifier of a DSA key contains its domain parameters, and webpki compares it as a whole.
//! Therefore the parameters are fixed here, as for curves. Keys and certificates with other parameters do not
//! verify. [`super::identity`] uses them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dsa::{Signature, SigningKey as DsaKey, VerifyingKey};
use dunlin::crypto::{CryptoError, SecureRandom, SigningKey};
use dunlin::wire::SignatureScheme;
use pkcs8::DecodePrivateKey;
use pkcs8::EncodePublicKey;
use pkcs8::der::asn1::{AnyRef, BitStringRef, UintRef};
use pkcs8::der::{Decode, Encode, Reader, SliceReader};
use pkcs8::spki::{AlgorithmIdentifierRef, ObjectIdentifier, SubjectPublicKeyInfoRef};
use pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer,
};
use sha2::{Digest, Sha256};
use signature::hazmat::PrehashVerifier;

/// Verifies with keys that use the laboratory's parameters.
pub(crate) const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    &Sha256With { parameters: include_bytes!("../../data/dsa-1024-algorithm.der") },
    &Sha256With { parameters: include_bytes!("../../data/dsa-2048-algorithm.der") },
];

/// id-dsa-with-sha256 (RFC 5758 §3.1), without parameters.
const DSA_WITH_SHA256: AlgorithmIdentifier =
    AlgorithmIdentifier::from_slice(&[6, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x02]);

/// The length of a limb, in bytes. The library measures the length of numbers in limbs.
const LIMB_LEN: usize = size_of::<usize>();

#[derive(Debug)]
struct Sha256With {
    /// The AlgorithmIdentifier of the keys, without its header.
    parameters: &'static [u8],
}

impl Sha256With {
    /// The key with the public number `y`, in DER.
    fn key(&self, y: &[u8]) -> pkcs8::spki::Result<VerifyingKey> {
        let mut r = SliceReader::new(self.parameters)?;
        let oid = ObjectIdentifier::decode(&mut r)?;
        let parameters = AnyRef::decode(&mut r)?;
        r.finish()?;
        // The library accepts any number, but panics if the number is much shorter or longer than the prime.
        let prime = parameters.sequence(|r| {
            let prime = UintRef::decode(r)?;
            let _q = UintRef::decode(r)?;
            let _g = UintRef::decode(r)?;
            pkcs8::spki::Result::Ok(prime.as_bytes())
        })?;
        let number = UintRef::from_der(y)?.as_bytes();
        let limbs = |number: &[u8]| number.len().div_ceil(LIMB_LEN);
        if limbs(number) != limbs(prime) || (number.len(), number) >= (prime.len(), prime) {
            return Err(pkcs8::spki::Error::KeyMalformed);
        }
        let algorithm = AlgorithmIdentifierRef { oid, parameters: Some(parameters) };
        VerifyingKey::try_from(SubjectPublicKeyInfoRef {
            algorithm,
            subject_public_key: BitStringRef::from_bytes(y)?,
        })
    }
}

impl SignatureVerificationAlgorithm for Sha256With {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = self.key(public_key).map_err(|_| InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.verify_prehash(&Sha256::digest(message), &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        AlgorithmIdentifier::from_slice(self.parameters)
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        DSA_WITH_SHA256
    }
}

/// Loads the DSA key in `der`.
pub(crate) fn load(der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
    let key = DsaKey::from_pkcs8_der(der.secret_der()).map_err(|_| CryptoError)?;
    let public = key.verifying_key().to_public_key_der().and_then(|der| Ok(der.to_der()?));
    let public = SubjectPublicKeyInfoDer::from(public.map_err(|_| CryptoError)?);
    Ok(Arc::new(PrivateKey { key, public }))
}

/// A DSA key, whose `Debug` output does not show the key.
#[derive(Debug)]
struct PrivateKey {
    key: DsaKey,
    public: SubjectPublicKeyInfoDer<'static>,
}

impl SigningKey for PrivateKey {
    fn schemes(&self) -> &[SignatureScheme] {
        &[SignatureScheme::DSA_SHA256]
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
        // The nonce, which must not repeat, is derived from the key and the message (RFC 6979).
        let signature = self.key.sign_prehashed_rfc6979::<Sha256>(&Sha256::digest(message));
        signature.map_err(|_| CryptoError)?.to_der().map_err(|_| CryptoError)
    }
}
