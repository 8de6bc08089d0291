//! The keys of a run: one chain for the servers, one for the clients, below a common root.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::wire::SignatureScheme;
use dunlin::{ClientConfig, Profile, Trust};
use dunlin_pki::{
    Authority, CaSpec, Item, KeyPair, KeyType, LeafSpec, Subject, Validity, certificates_to_pem, parse,
};
use dunlin_store::MemoryClientCache;
use pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use crate::Error;

/// The name in the server's certificate. Clients check it, but do not send it.
pub(super) const SERVER_NAME: &str = "localhost";
/// The validity of certificates, in days.
const DAYS: u32 = 30;

/// The keys of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Credential {
    P256,
    Rsa2048,
}

impl Credential {
    pub(super) const ALL: [Self; 2] = [Self::P256, Self::Rsa2048];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::Rsa2048 => "rsa2048",
        }
    }

    const fn key_type(self) -> KeyType {
        match self {
            Self::P256 => KeyType::P256,
            Self::Rsa2048 => KeyType::Rsa2048,
        }
    }

    fn schemes(self) -> Vec<SignatureScheme> {
        match self {
            Self::P256 => vec![SignatureScheme::ECDSA_SECP256R1_SHA256],
            // RFC 8446 §4.2.3: RSASSA-PKCS1-v1_5 signs certificates, but not handshakes.
            Self::Rsa2048 => vec![SignatureScheme::RSA_PSS_RSAE_SHA256, SignatureScheme::RSA_PKCS1_SHA256],
        }
    }
}

/// The chains of three (leaf and intermediate are sent) and their keys.
pub(super) struct Keys {
    pub(super) credential: Credential,
    root: CertificateDer<'static>,
    between: Authority,
    /// The key of all clients without a cache, in PEM.
    client_key: String,
    files: TempDir,
}

impl Keys {
    /// Makes new keys, and writes those of the servers to files.
    pub(super) fn new(credential: Credential) -> Result<Self, Error> {
        let failed = |error: dunlin_pki::Error| Error::new("certificates", &error, error.advice());
        let issued = || {
            let validity = Validity::from_now_days(DAYS)?;
            let key = || KeyPair::generate(credential.key_type());
            let root = CaSpec::new(Subject::common_name("Dunlin root")?, validity);
            let root = Authority::root(&root, key()?)?;
            let between = CaSpec::new(Subject::common_name("Dunlin intermediate")?, validity);
            let between = root.intermediate(&between, key()?)?;
            let server = LeafSpec::server([SERVER_NAME.parse()?], validity);
            let server = between.issue(&server, key()?)?;
            let pem = certificates_to_pem(std::slice::from_ref(root.certificate()))?;
            let texts = [pem, certificates_to_pem(&server.chain)?, server.key.to_pem()?.to_string()];
            Ok((root.certificate().clone(), between, key()?.to_pem()?.to_string(), texts))
        };
        let (root, between, client_key, [anchor, chain, key]) = issued().map_err(failed)?;
        let files = tempfile::tempdir().map_err(unwritten)?;
        let keys = Self { credential, root, between, client_key, files };
        for (path, text) in [
            (keys.root_file(), &anchor),
            (keys.chain_file(), &chain),
            (keys.key_file(), &key),
            (keys.pair_file(), &[&*chain, &*key].concat()),
        ] {
            fs::write(path, text).map_err(unwritten)?;
        }
        Ok(keys)
    }

    /// The trusted certificate.
    pub(super) fn root_file(&self) -> PathBuf {
        self.files.path().join("root.pem")
    }

    /// The server's chain, leaf first.
    pub(super) fn chain_file(&self) -> PathBuf {
        self.files.path().join("server.pem")
    }

    /// The server's key.
    pub(super) fn key_file(&self) -> PathBuf {
        self.files.path().join("server.key")
    }

    /// The server's chain and key in one file.
    pub(super) fn pair_file(&self) -> PathBuf {
        self.files.path().join("pair.pem")
    }

    /// The configuration of a new client of TLS 1.3. With a handshake cache, it has a key of its own: a
    /// server's cache takes clients with the same key for one.
    pub(super) fn client(&self, number: usize, is_cached: bool) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(dunlin_awslc::provider());
        let pair = if is_cached {
            KeyPair::generate(self.credential.key_type()).map_err(unusable)?
        } else {
            let items = parse(self.client_key.as_bytes()).map_err(unusable)?;
            let keys = items.into_iter().filter_map(|item| match item {
                Item::PrivateKey(pair) => Some(pair),
                _ => None,
            });
            keys.last().ok_or_else(|| unusable("a key is missing"))?
        };
        let der = pair.to_pkcs8().map_err(unusable)?;
        let issued = || {
            let name = Subject::common_name(&format!("device-{number}"))?;
            self.between.issue(&LeafSpec::client(name, Validity::from_now_days(DAYS)?), pair)
        };
        let chain = issued().map_err(unusable)?.chain;
        let key = provider.key_loader.load(&PrivateKeyDer::Pkcs8(der.as_slice().into())).map_err(unusable)?;
        let trust = X509Trust::anchors([self.root.clone()]).map_err(unusable)?;
        let profile = Profile::builder(provider)
            .groups(vec![dunlin_awslc::SECP256R1])
            .cipher_suites(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256])
            .signature_schemes(self.credential.schemes())
            .credentials(vec![dunlin::Credential::x509(chain, key)])
            .trust(Trust { x509: Some(trust), raw_key: None });
        let config = ClientConfig::new(profile.build().map_err(unusable)?).with_server_name_sent(false);
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

fn unusable(why: impl Display) -> Error {
    Error::new("keys of the lab", why, "run it again; if it stays, this is a fault in dunlin")
}
