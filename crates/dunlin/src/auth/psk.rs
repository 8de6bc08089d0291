//! Authentication by pre-shared key: keys provisioned outside TLS (RFC 8446 §2.2, §4.2.11).

use crate::sync::Arc;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroizing;

use crate::crypto::{CryptoProvider, Hash, HashAlgorithm, MAX_HASH_LEN};
use crate::error::{Error, Misuse};
use crate::protocol::{Protocol, TransportKind};
use crate::schedule::binder::PskKind;
use crate::schedule::hkdf::Prk;
use crate::time::Now;
use crate::wire::{ProtocolVersion, Writer};

/// The shortest key that [`Psk::new`] accepts, in bytes. RFC 9257 §6 requires at least 128 bits of entropy.
pub const MIN_PSK_LEN: usize = 16;

/// The length of [`Psk::digest`], in bytes.
pub(crate) const PSK_DIGEST_LEN: usize = 8;

/// A pre-shared key with the identity by which both sides know it. The key wipes itself on drop.
pub struct Psk {
    identity: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
    hash: HashAlgorithm,
    /// The transport for which the key was imported; `None` if it was not imported.
    imported: Option<TransportKind>,
    name: Option<String>,
}

/// A key from outside TLS, from which [`Psk::import`] derives keys for TLS (RFC 9258).
#[derive(Clone, Copy)]
pub struct ExternalPsk<'a> {
    /// The identity by which both sides know the key: 1 to 65535 bytes.
    pub identity: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// The hash that belongs to the key; SHA-256 if nothing specifies one (RFC 9258 §4.1).
    pub hash: HashAlgorithm,
    /// Further data to bind the key to, such as the identities of both sides (RFC 9258 §B); may be empty.
    pub context: &'a [u8],
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

    /// As [`Psk::new`], but accepts keys below the length that RFC 9257 §6 requires. An attacker may guess
    /// such a key.
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
        Ok(Self {
            identity,
            key: Zeroizing::new(key.to_vec()),
            hash: HashAlgorithm::Sha256,
            imported: None,
            name: None,
        })
    }

    /// Sets the hash of the suites that may use this key. A key belongs to one hash (RFC 8446 §4.2.11).
    #[must_use]
    pub const fn with_hash(mut self, hash: HashAlgorithm) -> Self {
        self.hash = hash;
        self
    }

    /// Sets the name of the device that has the key. The name never goes over the wire; policies and logs see
    /// it in [`super::PskIdentity`]. It can stay the same when the device gets a new key under another
    /// identity.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Derives keys for TLS 1.3 or DTLS 1.3 from an external key, one for each hash of the provider's suites
    /// (RFC 9258). In contrast to [`Psk::new`], the external key then works with any suite, and with other
    /// protocols. The wire shows an `ImportedIdentity` for each key. Both sides must import the key. TLS 1.2
    /// cannot use imported keys.
    ///
    /// # Errors
    /// The key is shorter than [`MIN_PSK_LEN`], the identity is empty, a field is longer than 65535 bytes, or
    /// the provider has no suite with the hash.
    pub fn import(
        provider: &CryptoProvider,
        psk: &ExternalPsk<'_>,
        transport: TransportKind,
    ) -> Result<Vec<Self>, Error> {
        let mut hashes: Vec<&'static dyn Hash> = Vec::new();
        for hash in provider.cipher_suites.iter().map(|s| s.hash) {
            if !hashes.iter().any(|h| h.algorithm() == hash.algorithm()) {
                hashes.push(hash);
            }
        }
        let own = hashes.iter().copied().find(|h| h.algorithm() == psk.hash);
        let own = own.ok_or_else(|| Misuse::Config("no suite has the hash of the pre-shared key".into()))?;
        // Checks the external key itself: derived keys always have a valid length and identity.
        Self::new(psk.identity, psk.key)?;
        // RFC 9258 §4.1: HKDF-Extract(0, epsk).
        let secret = Prk::extract(own, Protocol::newest(transport), &[], psk.key);
        let import = |target: &&'static dyn Hash| {
            let target = target.algorithm();
            let identity = imported_identity(psk, transport, target)?;
            let mut key = Zeroizing::new([0; MAX_HASH_LEN]);
            let key = key.get_mut(..target.output_len()).unwrap_or_default();
            secret.expand_label(b"derived psk", own.hash(&[&identity]).as_ref(), key);
            Ok(Self { hash: target, imported: Some(transport), ..Self::new(identity, key)? })
        };
        hashes.iter().map(import).collect()
    }

    /// The PSK identity, which the client sends in the clear.
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// The hash of the suites that can use the key.
    pub const fn hash(&self) -> HashAlgorithm {
        self.hash
    }

    /// The name of the device that has the key, if set.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// A digest of the key, by which a session recognises the key it stems from. It need not resist a search
    /// for a second key with the same digest, because only this side chooses keys. It is only long enough to
    /// exclude accidents.
    pub(crate) fn digest(&self, hash: &dyn Hash) -> [u8; PSK_DIGEST_LEN] {
        let mut digest = [0; PSK_DIGEST_LEN];
        let full = hash.hmac(&self.key).sign(&[b"dunlin psk of session"]);
        for (to, from) in digest.iter_mut().zip(full.as_ref()) {
            *to = *from;
        }
        digest
    }

    pub(crate) const fn kind(&self) -> PskKind {
        match self.imported {
            Some(_) => PskKind::Imported,
            None => PskKind::External,
        }
    }

    /// Whether this version can use the key. An imported key is for the version in its identity (RFC 9258
    /// §4.1), which is never TLS 1.2.
    pub(crate) fn is_for(&self, version: ProtocolVersion) -> bool {
        self.imported.is_none_or(|transport| Protocol::newest(transport).version() == version)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

/// `ImportedIdentity` (RFC 9258 §4.1).
fn imported_identity(
    psk: &ExternalPsk<'_>,
    transport: TransportKind,
    target: HashAlgorithm,
) -> Result<Vec<u8>, Error> {
    // RFC 9258 §8.2.
    let target_kdf = match target {
        HashAlgorithm::Sha256 => 1,
        HashAlgorithm::Sha384 => 2,
    };
    let mut w = Writer::new();
    w.vec16(|w| w.put(psk.identity));
    w.vec16(|w| w.put(psk.context));
    w.u16(Protocol::newest(transport).version().0);
    w.u16(target_kdf);
    Ok(w.finish()?)
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk")
            .field("identity", &self.identity)
            .field("hash", &self.hash)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Finds the key for an identity at once. A server that has to wait for its key store uses
/// [`crate::Question::FindPsk`] instead.
///
/// A closure implements this trait:
///
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::Psk;
/// use dunlin::{Now, PskSource};
///
/// # fn look_up(_: &[u8]) -> Option<[u8; 32]> { None }
/// const END_OF_TRIAL_MS: u64 = 1_798_761_600_000;
/// let keys = PskSource::Here(Arc::new(|identity: &[u8], now: Now| {
///     let key = look_up(identity).filter(|_| now.unix_ms < END_OF_TRIAL_MS)?;
///     Psk::new(identity, &key).ok().map(Arc::new)
/// }));
/// ```
pub trait FindPsk: Send + Sync {
    /// The key for `identity`, which came from an unauthenticated peer. `None` if there is no key, or it is
    /// not valid `now`.
    ///
    /// The server calls it for each new connection. It also calls it when a client resumes a session that
    /// stems from a PSK: without its key, the server does not resume the session.
    fn find(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>>;

    /// As [`Self::find`], for a frozen association that thaws ([`crate::DtlsConnection::thaw_server`]): a
    /// fault must not look as if the key had been removed.
    ///
    /// # Errors
    /// The keys cannot be read now: [`crate::error::Internal::QuestionFailed`].
    fn find_for_thaw(&self, identity: &[u8], now: Now) -> Result<Option<Arc<Psk>>, Error> {
        Ok(self.find(identity, now))
    }
}

impl<F: Fn(&[u8], Now) -> Option<Arc<Psk>> + Send + Sync> FindPsk for F {
    fn find(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>> {
        self(identity, now)
    }
}

/// Chooses a TLS 1.2 client's key at once. A client that has to wait for the choice uses
/// [`crate::Question::ChoosePsk`] instead. (A TLS 1.3 client offers all its keys.)
///
/// A closure implements this trait.
pub trait ChoosePsk: Send + Sync {
    /// The key for the server's hint, which is empty if the server sent none. The issuer of the keys defines
    /// what hints mean (RFC 4279 §5.2). The hint is not authenticated. `None` ends the handshake.
    fn choose(&self, hint: &[u8], now: Now) -> Option<Arc<Psk>>;
}

impl<F: Fn(&[u8], Now) -> Option<Arc<Psk>> + Send + Sync> ChoosePsk for F {
    fn choose(&self, hint: &[u8], now: Now) -> Option<Arc<Psk>> {
        self(hint, now)
    }
}

/// A fixed set of keys, valid at any time.
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
    fn find(&self, identity: &[u8], _: Now) -> Option<Arc<Psk>> {
        self.keys.get(identity).cloned()
    }
}
