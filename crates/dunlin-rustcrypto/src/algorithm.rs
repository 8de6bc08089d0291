//! A signature algorithm as webpki calls it.

use dunlin::crypto::CryptoError;
use pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};

/// An algorithm that webpki selects by the identifiers in a certificate.
#[derive(Debug)]
pub(crate) struct Algorithm {
    pub(crate) key: AlgorithmIdentifier,
    pub(crate) signature: AlgorithmIdentifier,
    pub(crate) verify: Verify,
}

/// Arguments: the BIT STRING of the SubjectPublicKeyInfo, the message and the signature.
type Verify = fn(&[u8], &[u8], &[u8]) -> Result<(), CryptoError>;

impl SignatureVerificationAlgorithm for Algorithm {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        (self.verify)(public_key, message, signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.key
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}
