//! Counts the signatures of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dunlin::crypto::{CryptoError, SecureRandom, SigningKey};
use dunlin::wire::SignatureScheme;
use pki_types::SubjectPublicKeyInfoDer;

static SIGNATURES: AtomicU32 = AtomicU32::new(0);

/// A key that counts its signatures.
#[derive(Debug)]
pub(super) struct Counted(Arc<dyn SigningKey>);

impl Counted {
    pub(super) const fn of(key: Arc<dyn SigningKey>) -> Self {
        Self(key)
    }
}

/// The number of signatures since the last call.
pub(super) fn signatures() -> u32 {
    SIGNATURES.swap(0, Ordering::Relaxed)
}

impl SigningKey for Counted {
    fn schemes(&self) -> &[SignatureScheme] {
        self.0.schemes()
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        self.0.public_key()
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        SIGNATURES.fetch_add(1, Ordering::Relaxed);
        self.0.sign(scheme, message, random)
    }
}
