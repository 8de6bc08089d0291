//! The keys of a run: one chain for the servers, one for the clients, below a common root.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::{ClientConfig, Profile};
use dunlin_pki::{Form, KeyPair, KeyType, certificates_to_pem};
use dunlin_store::MemoryClientCache;
use pki_types::PrivateKeyDer;
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::super::keys::{CHAIN_LENGTH, Issuer, SERVER_NAME, credential, schemes, trust};
use crate::Error;
use crate::error::failed;

/// The keys of both sides.
pub(super) struct Keys {
    pub(super) key_type: KeyType,
    issuer: Issuer,
    /// The key of all clients without a cache, in PKCS #8.
    client_key: Zeroizing<Vec<u8>>,
    files: TempDir,
}

impl Keys {
    /// Makes new keys, and writes those of the servers to files.
    pub(super) fn new(key_type: KeyType) -> Result<Self, Error> {
        let issuer = Issuer::new(Form::Full, key_type, CHAIN_LENGTH)?;
        let server = issuer.server(&[SERVER_NAME], KeyPair::generate(key_type)?)?;
        let root = certificates_to_pem(std::slice::from_ref(&issuer.root))?;
        let chain = certificates_to_pem(&server.chain)?;
        let key = server.key.to_pem()?;
        let client_key = KeyPair::generate(key_type)?.to_pkcs8()?;
        let keys = Self { key_type, issuer, client_key, files: tempfile::tempdir().map_err(unwritten)? };
        for (path, text) in keys.files().iter().zip([&*root, &chain, &key, &[&*chain, &*key].concat()]) {
            fs::write(path, text).map_err(unwritten)?;
        }
        Ok(keys)
    }

    /// The trusted certificate, the server's chain, leaf first, its key, and both in one file.
    pub(super) fn files(&self) -> [PathBuf; 4] {
        ["root.pem", "server.pem", "server.key", "pair.pem"].map(|name| self.files.path().join(name))
    }

    /// The configuration of a new client of TLS 1.3. With a handshake cache, it has a key of its own: a
    /// server's cache takes clients with the same key for one.
    pub(super) fn client(&self, number: usize, is_cached: bool) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(dunlin_awslc::provider());
        let pair = if is_cached {
            KeyPair::generate(self.key_type)?
        } else {
            KeyPair::from_der(&PrivateKeyDer::Pkcs8(self.client_key.as_slice().into()))?
        };
        let own = self.issuer.client(&format!("device-{number}"), pair)?;
        let profile = Profile::builder(provider.clone())
            .groups(vec![dunlin_awslc::SECP256R1])
            .cipher_suites(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256])
            .signature_schemes(schemes(self.key_type))
            .credentials(vec![credential(&provider, &own)?])
            .trust(trust([self.issuer.root.clone()])?);
        let config = ClientConfig::new(profile.build().map_err(failed)?).with_server_name_sent(false);
        Ok(Arc::new(if is_cached {
            let store = Arc::new(MemoryClientCache::new(1));
            config.with_handshake_cache(CacheMode::Compact, store, DEFAULT_MAX_AGE)
        } else {
            config
        }))
    }
}

fn unwritten(why: impl Display) -> Error {
    Error::new("keys of the lab", why, "free some space for temporary files (TMPDIR)")
}
