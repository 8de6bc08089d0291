//! Private keys that every provider must load.

use std::sync::Arc;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::SignatureScheme;
use pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};

/// The encoding of a private key.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// `PrivateKeyInfo` (RFC 5208)
    Pkcs8,
    /// `RSAPrivateKey` (RFC 8017)
    Pkcs1,
    /// `ECPrivateKey` (RFC 5915)
    Sec1,
}

impl Form {
    /// `der` as a key of this form.
    pub fn key(self, der: &[u8]) -> PrivateKeyDer<'_> {
        match self {
            Self::Pkcs8 => PrivatePkcs8KeyDer::from(der).into(),
            Self::Pkcs1 => PrivatePkcs1KeyDer::from(der).into(),
            Self::Sec1 => PrivateSec1KeyDer::from(der).into(),
        }
    }
}

/// A private key that every provider must load.
#[derive(Clone, Copy, Debug)]
pub struct Fixture {
    /// The form of `private`.
    pub form: Form,
    /// The private key.
    pub private: &'static [u8],
    /// The SubjectPublicKeyInfo of its public key.
    pub public: &'static [u8],
    /// The signature schemes, in order of preference.
    pub schemes: &'static [SignatureScheme],
}

/// Every key type in every encoding. OpenSSL made the keys, except one of GnuTLS and the ML-DSA keys.
pub const FIXTURES: [Fixture; 14] = [
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/rsa2048.pkcs8.der"),
        public: include_bytes!("../fixtures/rsa2048.spki.der"),
        schemes: RSA,
    },
    Fixture {
        form: Form::Pkcs1,
        private: include_bytes!("../fixtures/rsa2048.pkcs1.der"),
        public: include_bytes!("../fixtures/rsa2048.spki.der"),
        schemes: RSA,
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/rsapss2048.pkcs8.der"),
        public: include_bytes!("../fixtures/rsapss2048.spki.der"),
        schemes: &[
            SignatureScheme::RSA_PSS_PSS_SHA256,
            SignatureScheme::RSA_PSS_PSS_SHA384,
            SignatureScheme::RSA_PSS_PSS_SHA512,
        ],
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/rsapss2048_sha384.pkcs8.der"),
        public: include_bytes!("../fixtures/rsapss2048_sha384.spki.der"),
        schemes: &[SignatureScheme::RSA_PSS_PSS_SHA384],
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/rsapss2048_sha512.pkcs8.der"),
        public: include_bytes!("../fixtures/rsapss2048_sha512.spki.der"),
        schemes: &[SignatureScheme::RSA_PSS_PSS_SHA512],
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/p256.pkcs8.der"),
        public: include_bytes!("../fixtures/p256.spki.der"),
        schemes: &[SignatureScheme::ECDSA_SECP256R1_SHA256],
    },
    Fixture {
        form: Form::Sec1,
        private: include_bytes!("../fixtures/p256.sec1.der"),
        public: include_bytes!("../fixtures/p256.spki.der"),
        schemes: &[SignatureScheme::ECDSA_SECP256R1_SHA256],
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/p384.pkcs8.der"),
        public: include_bytes!("../fixtures/p384.spki.der"),
        schemes: &[SignatureScheme::ECDSA_SECP384R1_SHA384],
    },
    Fixture {
        form: Form::Sec1,
        private: include_bytes!("../fixtures/p384.sec1.der"),
        public: include_bytes!("../fixtures/p384.spki.der"),
        schemes: &[SignatureScheme::ECDSA_SECP384R1_SHA384],
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/p521.pkcs8.der"),
        public: include_bytes!("../fixtures/p521.spki.der"),
        schemes: &[SignatureScheme::ECDSA_SECP521R1_SHA512],
    },
    Fixture {
        form: Form::Sec1,
        private: include_bytes!("../fixtures/p521.sec1.der"),
        public: include_bytes!("../fixtures/p521.spki.der"),
        schemes: &[SignatureScheme::ECDSA_SECP521R1_SHA512],
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/ed25519.pkcs8.der"),
        public: include_bytes!("../fixtures/ed25519.spki.der"),
        schemes: &[SignatureScheme::ED25519],
    },
    // The examples of RFC 9881 appendix C.
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/mldsa44.pkcs8.der"),
        public: include_bytes!("../fixtures/mldsa44.spki.der"),
        schemes: &[SignatureScheme::MLDSA44],
    },
    Fixture {
        form: Form::Pkcs8,
        private: include_bytes!("../fixtures/mldsa65.pkcs8.der"),
        public: include_bytes!("../fixtures/mldsa65.spki.der"),
        schemes: &[SignatureScheme::MLDSA65],
    },
];

const RSA: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_RSAE_SHA256,
    SignatureScheme::RSA_PSS_RSAE_SHA384,
    SignatureScheme::RSA_PSS_RSAE_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

impl Fixture {
    /// Loads the key with the provider.
    pub fn load(&self, provider: &CryptoProvider) -> Arc<dyn SigningKey> {
        load(provider, self.form, self.private).unwrap_or_else(|| panic!("{:?} not loaded", self.form))
    }
}

/// Loads a private key with the provider, if it can.
pub(crate) fn load(provider: &CryptoProvider, form: Form, der: &[u8]) -> Option<Arc<dyn SigningKey>> {
    provider.key_loader.load(&form.key(der)).ok()
}
