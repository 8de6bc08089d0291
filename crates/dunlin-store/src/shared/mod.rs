//! State that several servers share through Redis: ticket keys, and messages. Each server has a copy of the
//! key file that seals this state.

mod log;
mod tickets;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::crypto::{Aead, AeadKey, CryptoError, CryptoProvider, MAX_TAG_LEN, NONCE_LEN};
use dunlin::error::Misuse;
use redis::{ConnectionInfo, IntoConnectionInfo, RedisResult};
use zeroize::Zeroizing;

use crate::cache::redis_connection::RedisConnection;
use crate::cache::{CacheFault, OpenError, key_file, sealing_aead};

pub use log::{MAX_KEPT_MESSAGE, MAX_MESSAGE, MAX_SENT, SharedLog};
pub use tickets::SharedTickets;

/// How long an exchange with Redis may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The overhead of a seal, in bytes.
const SEAL_LEN: usize = NONCE_LEN + MAX_TAG_LEN;

/// A key of Redis, and the key that seals its content.
struct Sealed {
    provider: Arc<CryptoProvider>,
    aead: &'static dyn Aead,
    place: ConnectionInfo,
    /// The key of Redis.
    record: String,
    seal: Box<dyn AeadKey>,
}

impl Sealed {
    /// The place at a URL that servers with the same `label` and `name` share. Nothing is asked of Redis yet.
    ///
    /// # Errors
    /// The URL is malformed, or the key file cannot be used.
    fn open(
        url: &str,
        (prefix, label, name): (&str, &[u8], &str),
        key_file: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, OpenError> {
        let place = url.into_connection_info().map_err(|error| {
            // The URL may have a password in it.
            let why = format!("not a Redis URL: {error}");
            OpenError::Store(CacheFault::Unusable { store: "Redis".to_owned(), why })
        })?;
        let opened = key_file::open(key_file, &provider, false);
        let (root, _) = opened.map_err(|fault| OpenError::Key { file: key_file.to_owned(), fault })?;
        let no_aead = || Misuse::Config("no AEAD to seal shared records with".into());
        let aead = sealing_aead(&provider).ok_or_else(|| OpenError::Provider(no_aead().into()))?;
        let root = provider.sha256.hmac(&*root);
        let seal = root.sign(&[label, b" seal ", name.as_bytes()]);
        // Servers with other keys have other records, so they do not replace each other's.
        let id = root.sign(&[label, b" name ", name.as_bytes()]);
        let id: String = id.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let seal = aead.key(seal.as_ref()).map_err(|error| OpenError::Provider(error.into()))?;
        Ok(Self { provider, aead, place, record: format!("{prefix}{id}"), seal })
    }

    fn connection(&self) -> RedisResult<RedisConnection> {
        RedisConnection::new(&self.place, Instant::now() + PATIENCE)
    }

    fn fault(&self, why: String) -> CacheFault {
        CacheFault::Unusable { store: format!("Redis at {}", self.place.addr()), why }
    }

    fn seal(&self, content: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let mut content = Zeroizing::new(content.to_vec());
        let mut nonce = [0; NONCE_LEN];
        let mut tag = [0; MAX_TAG_LEN];
        self.provider.random.fill(&mut nonce)?;
        self.seal.seal(&nonce, self.record.as_bytes(), &mut content, &mut tag)?;
        Ok([&nonce[..], &content, &tag].concat())
    }

    /// The content; `None` if it is not authentic.
    fn unseal(&self, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let (ciphertext, tag) = rest.split_last_chunk::<MAX_TAG_LEN>()?;
        let mut content = Zeroizing::new(ciphertext.to_vec());
        self.seal.open(nonce, self.record.as_bytes(), &mut content, tag).ok()?;
        Some(content)
    }
}
