//! Signatures that anyone can make.

use std::sync::Arc;

use dunlin::crypto::{CryptoError, KeyLoader, SecureRandom, SignatureAlgorithms, SigningKey};
use dunlin::wire::SignatureScheme;
use pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, alg_id,
};

/// The signature in every handshake.
pub const SIGNATURE: [u8; 8] = *b"unsigned";

/// The signatures that a verifier accepts.
#[derive(Debug)]
enum Accepts {
    /// Any signature in certificates and CRLs, because the tests' certificates have real signatures. In the
    /// handshake, which TLS 1.2 verifies by the same algorithms, only the constant.
    Chains,
    /// The signature in TLS 1.3 handshakes.
    TheConstant,
}

/// Whether the message is one SEQUENCE, like the signed part of certificates and CRLs. The signed content of
/// a TLS 1.2 handshake begins with a random value or a message type.
const fn is_sequence(message: &[u8]) -> bool {
    match message {
        [0x30, 0x81, a, rest @ ..] => rest.len() == *a as usize,
        [0x30, 0x82, a, b, rest @ ..] => rest.len() == (*a as usize) << 8 | *b as usize,
        [0x30, a, rest @ ..] => rest.len() == *a as usize,
        _ => false,
    }
}

#[derive(Debug)]
struct NullVerifier {
    key: AlgorithmIdentifier,
    signature: AlgorithmIdentifier,
    accepts: Accepts,
}

impl SignatureVerificationAlgorithm for NullVerifier {
    fn verify_signature(&self, _: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        match self.accepts {
            Accepts::Chains if is_sequence(message) => Ok(()),
            Accepts::Chains | Accepts::TheConstant if signature == SIGNATURE => Ok(()),
            Accepts::Chains | Accepts::TheConstant => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.key
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

/// A row of the table of schemes, and its algorithms for chains.
macro_rules! verifier {
    ($key:ident, $signature:ident, $accepts:ident) => {
        &NullVerifier { key: alg_id::$key, signature: alg_id::$signature, accepts: Accepts::$accepts }
    };
}

pub(crate) static SIGNATURES: SignatureAlgorithms = SignatureAlgorithms {
    all: &[
        verifier!(ECDSA_P256, ECDSA_SHA256, Chains),
        verifier!(ECDSA_P256, ECDSA_SHA384, Chains),
        verifier!(ECDSA_P384, ECDSA_SHA256, Chains),
        verifier!(ECDSA_P384, ECDSA_SHA384, Chains),
        verifier!(ED25519, ED25519, Chains),
        verifier!(RSA_ENCRYPTION, RSA_PSS_SHA256, Chains),
        verifier!(RSA_ENCRYPTION, RSA_PSS_SHA384, Chains),
        verifier!(RSA_ENCRYPTION, RSA_PSS_SHA512, Chains),
        verifier!(RSA_ENCRYPTION, RSA_PKCS1_SHA256, Chains),
        verifier!(RSA_ENCRYPTION, RSA_PKCS1_SHA384, Chains),
        verifier!(RSA_ENCRYPTION, RSA_PKCS1_SHA512, Chains),
    ],
    schemes: &[
        (SignatureScheme::ECDSA_SECP256R1_SHA256, &[verifier!(ECDSA_P256, ECDSA_SHA256, TheConstant)]),
        (SignatureScheme::ECDSA_SECP384R1_SHA384, &[verifier!(ECDSA_P384, ECDSA_SHA384, TheConstant)]),
        (SignatureScheme::ED25519, &[verifier!(ED25519, ED25519, TheConstant)]),
        (SignatureScheme::RSA_PSS_RSAE_SHA256, &[verifier!(RSA_ENCRYPTION, RSA_PSS_SHA256, TheConstant)]),
        (SignatureScheme::RSA_PSS_RSAE_SHA384, &[verifier!(RSA_ENCRYPTION, RSA_PSS_SHA384, TheConstant)]),
        (SignatureScheme::RSA_PSS_RSAE_SHA512, &[verifier!(RSA_ENCRYPTION, RSA_PSS_SHA512, TheConstant)]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[verifier!(RSA_ENCRYPTION, RSA_PKCS1_SHA256, TheConstant)]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[verifier!(RSA_ENCRYPTION, RSA_PKCS1_SHA384, TheConstant)]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[verifier!(RSA_ENCRYPTION, RSA_PKCS1_SHA512, TheConstant)]),
    ],
};

/// Accepts a SubjectPublicKeyInfo in place of a private key of any format.
#[derive(Debug)]
pub(crate) struct Loader;

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        const KINDS: [(AlgorithmIdentifier, &[SignatureScheme]); 4] = [
            (alg_id::ECDSA_P256, &[SignatureScheme::ECDSA_SECP256R1_SHA256]),
            (alg_id::ECDSA_P384, &[SignatureScheme::ECDSA_SECP384R1_SHA384]),
            (alg_id::ED25519, &[SignatureScheme::ED25519]),
            (
                alg_id::RSA_ENCRYPTION,
                &[
                    SignatureScheme::RSA_PSS_RSAE_SHA256,
                    SignatureScheme::RSA_PSS_RSAE_SHA384,
                    SignatureScheme::RSA_PSS_RSAE_SHA512,
                ],
            ),
        ];
        let spki = der.secret_der();
        for (kind, schemes) in KINDS {
            if spki.windows(kind.len()).any(|window| window == kind.as_ref()) {
                let public = SubjectPublicKeyInfoDer::from(spki).into_owned();
                return Ok(Arc::new(NullSigner { public, schemes }));
            }
        }
        Err(CryptoError)
    }
}

#[derive(Debug)]
struct NullSigner {
    public: SubjectPublicKeyInfoDer<'static>,
    schemes: &'static [SignatureScheme],
}

impl SigningKey for NullSigner {
    fn schemes(&self) -> &[SignatureScheme] {
        self.schemes
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        &self.public
    }

    fn sign(&self, scheme: SignatureScheme, _: &[u8], _: &dyn SecureRandom) -> Result<Vec<u8>, CryptoError> {
        if self.schemes.contains(&scheme) { Ok(SIGNATURE.to_vec()) } else { Err(CryptoError) }
    }
}
