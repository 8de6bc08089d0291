//! Authentication by pre-shared key: keys provisioned outside TLS (RFC 8446 §2.2, §4.2.11).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroizing;

use crate::crypto::HashAlgorithm;
use crate::error::{Error, Misuse};

/// RFC 9257 §6: at least 128 bits of entropy.
pub const MIN_PSK_LEN: usize = 16;

/// A pre-shared key with the name that both sides know it by. The key wipes itself.
pub struct Psk {
    identity: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
    hash: HashAlgorithm,
}

impl Psk {
    /// A key for suites with SHA-256, the default of RFC 8446 §4.2.11.
    ///
    /// # Errors
    /// The identity is empty or longer than 65535 bytes, or the key is shorter than [`MIN_PSK_LEN`].
    pub fn new(identity: impl Into<Vec<u8>>, key: &[u8]) -> Result<Self, Error> {
        if key.len() < MIN_PSK_LEN {
            return Err(Misuse::Config(alloc::format!(
                "a pre-shared key needs at least {MIN_PSK_LEN} bytes, this one has {}",
                key.len()
            ))
            .into());
        }
        Self::new_allow_short(identity, key)
    }

    /// As [`Psk::new`], for a key below the length that RFC 9257 §6 asks for, which can be guessed.
    ///
    /// # Errors
    /// The identity is empty or longer than 65535 bytes, or the key is empty.
    pub fn new_allow_short(identity: impl Into<Vec<u8>>, key: &[u8]) -> Result<Self, Error> {
        let identity = identity.into();
        if identity.is_empty() || identity.len() > usize::from(u16::MAX) {
            return Err(Misuse::Config("a PSK identity has 1 to 65535 bytes".into()).into());
        }
        if key.is_empty() {
            return Err(Misuse::Config("a pre-shared key must not be empty".into()).into());
        }
        Ok(Self { identity, key: Zeroizing::new(key.to_vec()), hash: HashAlgorithm::Sha256 })
    }

    /// The same key for suites with another hash: a key belongs to one (RFC 8446 §4.2.11).
    #[must_use]
    pub const fn with_hash(mut self, hash: HashAlgorithm) -> Self {
        self.hash = hash;
        self
    }

    /// The name that goes over the wire, in the clear.
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// The hash of the suites that it can be used with.
    pub const fn hash(&self) -> HashAlgorithm {
        self.hash
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk")
            .field("identity", &self.identity)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Where a server finds the key for an identity, at once. A server that has to wait for it asks
/// [`crate::Question::FindPsk`] instead.
pub trait FindPsk: Send + Sync + fmt::Debug {
    /// The key for `identity`, which came from an unauthenticated peer.
    fn find(&self, identity: &[u8]) -> Option<Arc<Psk>>;
}

/// A fixed set of keys.
#[derive(Debug, Default)]
pub struct PskTable {
    keys: BTreeMap<Vec<u8>, Arc<Psk>>,
}

impl FromIterator<Psk> for PskTable {
    fn from_iter<I: IntoIterator<Item = Psk>>(keys: I) -> Self {
        Self { keys: keys.into_iter().map(|k| (k.identity.clone(), Arc::new(k))).collect() }
    }
}

impl FindPsk for PskTable {
    fn find(&self, identity: &[u8]) -> Option<Arc<Psk>> {
        self.keys.get(identity).cloned()
    }
}
