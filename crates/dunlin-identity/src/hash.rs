//! SHA-256 hashes, and their text.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use dunlin::crypto::CryptoProvider;

use crate::key::{self, KeyError, PublicKey};

/// A SHA-256 hash: of a key's SubjectPublicKeyInfo, of an operation, of a document, or of a DID. Its text is
/// multibase in base58btc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sha256Hash([u8; 32]);

impl Sha256Hash {
    /// The hash of `bytes`.
    ///
    /// # Errors
    /// [`KeyError::Provider`] if the provider's SHA-256 does not have 32 bytes.
    pub fn of(provider: &CryptoProvider, bytes: &[u8]) -> Result<Self, KeyError> {
        let hash = provider.sha256.hash(&[bytes]);
        hash.as_ref().try_into().map(Self).map_err(|_| KeyError::Provider("SHA-256"))
    }

    /// The hash with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash by which a document commits to a key.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_key(provider: &CryptoProvider, key: &PublicKey) -> Result<Self, KeyError> {
        Self::of(provider, key.spki())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Sha256Hash {
    type Err = KeyError;

    /// Reads multibase in base58btc.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = if text.starts_with('z') { key::multibase_decode(text)? } else { Vec::new() };
        bytes.try_into().map(Self).map_err(|_| KeyError::Multibase)
    }
}

impl fmt::Display for Sha256Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&key::base58btc(&self.0))
    }
}
