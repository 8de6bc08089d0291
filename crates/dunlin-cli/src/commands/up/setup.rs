//! Fresh keys and certificates for the server, the devices, and a client that connects by hand.

use std::fmt::Display;
use std::mem::take;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::auth::{Psk as PskKey, PskTable, RawKeyTrust, X509Trust};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::{CryptoProvider, SigningKey, Tls13CipherSuite};
use dunlin::resume::Tickets;
use dunlin::wire::{PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, Credential, Multihoming, NodeIds, PeerIdentity, Profile, ProfileBuilder,
    PskSource, ServerConfig, Trust,
};
use dunlin_pki::{
    AltName, Authority, Form, Identity, KeyPair, KeyType, LeafSpec, Subject, Tree, TreeSpec, Validity,
    certificates_to_pem,
};
use dunlin_store::psk::{Identity as PskName, PskRecord, PskRecords, PskSet, psktool};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryServerSessions};
use dunlin_tokio::TlsConnector;
use pki_types::{PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::files::{self, Access, Existing};
use crate::tls::report::identity;

/// The validity of the certificates, in days.
const DAYS: u32 = 30;
/// The length of the server's connection IDs, in bytes.
const ID_LEN: usize = 8;
/// The length of a pre-shared key, in bytes.
const PSK_LEN: usize = 32;
/// The name of the client that connects by hand.
const GUEST: &str = "guest";
/// The name of the server.
const SERVER: &str = "localhost";

/// How a device authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A certificate with a P-256 key.
    X509P256,
    /// A certificate with an Ed25519 key.
    X509Ed25519,
    /// A raw public key (RFC 7250).
    RawKey,
    /// A pre-shared key, with ECDHE.
    PskEcdhe,
    /// A plain pre-shared key, without forward secrecy.
    Psk,
    /// A certificate once, then tickets.
    X509Resumed,
    /// A certificate once, then the handshake cache: it is proven each time, but not sent again.
    X509Cached,
    /// A pre-shared key with ECDHE, over DTLS with connection IDs: the device moves to another address during each connection.
    Moving,
}

impl Way {
    /// All ways; devices use them in turn.
    const ALL: [Self; 8] = [
        Self::X509P256,
        Self::X509Ed25519,
        Self::RawKey,
        Self::PskEcdhe,
        Self::Psk,
        Self::X509Resumed,
        Self::X509Cached,
        Self::Moving,
    ];

    /// The name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::X509P256 => "X.509 P-256",
            Self::X509Ed25519 => "X.509 Ed25519",
            Self::RawKey => "raw key",
            Self::PskEcdhe => "PSK + ECDHE",
            Self::Psk => "PSK",
            Self::X509Resumed => "X.509, resumed",
            Self::X509Cached => "X.509, cached",
            Self::Moving => "PSK, moving",
        }
    }
}

/// A device: its configuration, and the expected identities of both sides.
pub(super) struct Device {
    /// Its name.
    pub(super) name: String,
    /// How it authenticates.
    pub(super) way: Way,
    /// The connector.
    pub(super) connector: TlsConnector,
    /// The configuration of a device that uses DTLS.
    pub(super) datagrams: Option<Arc<ClientConfig>>,
    /// The expected identity of the device as the server sees it, in the form of [`identity`].
    pub(super) as_client: String,
    /// The expected identity of the server.
    pub(super) as_server: String,
}

/// All configurations before the first connection.
pub(super) struct Setup {
    /// The server's configuration.
    pub(super) server: Arc<ServerConfig>,
    /// The devices.
    pub(super) devices: Vec<Device>,
    /// The material to connect by hand.
    pub(super) guest: Guest,
}

impl Setup {
    /// Makes all keys and certificates for `count` devices.
    pub(super) fn new(count: usize) -> Result<Self, Error> {
        let mut maker = Maker::new()?;
        let devices =
            (0..count).map(|i| maker.device(i, Way::ALL[i % Way::ALL.len()])).collect::<Result<_, _>>()?;
        let guest = maker.guest()?;
        let server = Arc::new(maker.server(count)?);
        Ok(Self { server, devices, guest })
    }

    /// Two devices of one way; the server knows only the first.
    #[cfg(test)]
    pub(super) fn with_unknown(way: Way) -> Result<Self, Error> {
        let mut maker = Maker::new()?;
        let known = maker.device(0, way)?;
        let guest = maker.guest()?;
        let server = Arc::new(maker.server(1)?);
        Ok(Self { server, devices: vec![known, maker.device(1, way)?], guest })
    }
}

/// Makes devices, and collects what the server must know about them.
struct Maker {
    provider: Arc<CryptoProvider>,
    validity: Validity,
    tree: Tree,
    /// The server's raw key.
    raw: Arc<dyn SigningKey>,
    /// The devices' raw keys.
    raw_keys: Vec<SubjectPublicKeyInfoDer<'static>>,
    psks: Vec<PskKey>,
}

impl Maker {
    fn new() -> Result<Self, Error> {
        let provider = Arc::new(dunlin_awslc::provider());
        let mut spec = TreeSpec::new(KeyType::P256, DAYS)?;
        spec.form = Form::Lean;
        spec.server_names = vec![SERVER.parse()?, AltName::Ip(Ipv4Addr::LOCALHOST.into())];
        let raw = signing_key(&provider, &KeyPair::generate(KeyType::Ed25519)?)?;
        let (validity, tree) = (spec.validity, Tree::generate(&spec)?);
        Ok(Self { provider, validity, tree, raw, raw_keys: vec![], psks: vec![] })
    }

    fn device(&mut self, index: usize, way: Way) -> Result<Device, Error> {
        let name = format!("device-{}", index + 1);
        let (config, as_client, as_server) = match way {
            Way::X509P256 => self.x509(&name, KeyType::P256)?,
            Way::X509Ed25519 => self.x509(&name, KeyType::Ed25519)?,
            Way::X509Resumed => {
                let (config, as_client, as_server) = self.x509(&name, KeyType::P256)?;
                (config.with_sessions(Arc::new(MemoryClientSessions::new(1, 1))), as_client, as_server)
            }
            Way::X509Cached => {
                let (config, as_client, as_server) = self.x509(&name, KeyType::P256)?;
                let cache = Arc::new(MemoryClientCache::default());
                (
                    config.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE),
                    as_client,
                    as_server,
                )
            }
            Way::RawKey => self.raw_key()?,
            Way::PskEcdhe | Way::Psk => self.psk(&name, way)?,
            Way::Moving => {
                let (config, as_client, as_server) = self.psk(&name, way)?;
                let config = config.with_connection_ids(self.connection_ids(0)?);
                let config = config.with_multihoming(Multihoming::linkable()).map_err(setup_failed)?;
                (config, as_client, as_server)
            }
        };
        // The server has one name, so the devices need not send it.
        let config = Arc::new(config.with_server_name_sent(false));
        let datagrams = (way == Way::Moving).then(|| Arc::clone(&config));
        Ok(Device { name, way, connector: TlsConnector::new(config), datagrams, as_client, as_server })
    }

    /// A certificate of this key type; the server's chain is P-256 in any case.
    fn x509(&self, name: &str, key_type: KeyType) -> Result<(ClientConfig, String, String), Error> {
        let identity = leaf(&self.tree.intermediate, name, self.validity, KeyPair::generate(key_type)?)?;
        let key = signing_key(&self.provider, &identity.key)?;
        let profile = self
            .lean(&dunlin_awslc::TLS13_AES_128_GCM_SHA256, SignatureScheme::ECDSA_SECP256R1_SHA256)
            .trust(Trust { x509: Some(self.trust()?), raw_key: None })
            .credentials(vec![Credential::x509(identity.chain, key)]);
        Ok((client(profile)?, format!("X.509 {name}"), format!("X.509 {SERVER}")))
    }

    fn raw_key(&mut self) -> Result<(ClientConfig, String, String), Error> {
        let key = signing_key(&self.provider, &KeyPair::generate(KeyType::Ed25519)?)?;
        let public = |key: &Arc<dyn SigningKey>| key.public_key().clone();
        self.raw_keys.push(public(&key));
        let names = [&key, &self.raw].map(|key| identity(&PeerIdentity::RawKey(public(key))));
        let profile = self
            .lean(&dunlin_awslc::TLS13_AES_128_CCM_SHA256, SignatureScheme::ED25519)
            .trust(Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![public(&self.raw)])) })
            .credentials(vec![Credential::raw_key(key)]);
        let [as_client, as_server] = names;
        Ok((client(profile)?, as_client, as_server))
    }

    fn psk(&mut self, name: &str, way: Way) -> Result<(ClientConfig, String, String), Error> {
        let key = self.psk_key()?;
        self.psks.push(PskKey::new(name, &key).map_err(setup_failed)?);
        let mut profile = self.lean(&dunlin_awslc::TLS13_AES_128_CCM_SHA256, SignatureScheme::ED25519);
        if way == Way::Psk {
            profile = profile.groups(vec![]).psk_modes(vec![PskKeyExchangeMode::PSK_KE]);
        }
        let psk = Arc::new(PskKey::new(name, &key).map_err(setup_failed)?);
        let seen = format!("PSK {name}");
        Ok((client(profile)?.with_psks(vec![psk]), seen.clone(), seen))
    }

    fn lean(&self, suite: &'static Tls13CipherSuite, scheme: SignatureScheme) -> ProfileBuilder {
        Profile::lean(self.provider.clone(), suite, dunlin_awslc::X25519, scheme)
    }

    fn trust(&self) -> Result<X509Trust, Error> {
        X509Trust::anchors([self.tree.root.certificate().clone()]).map_err(setup_failed)
    }

    /// Random connection IDs of this length, in bytes.
    fn connection_ids(&self, len: usize) -> Result<Arc<NodeIds>, Error> {
        NodeIds::new(&[], len, Arc::clone(&self.provider.random)).map(Arc::new).map_err(setup_failed)
    }

    fn psk_key(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut key = Zeroizing::new(vec![0; PSK_LEN]);
        self.provider.random.fill(&mut key).map_err(setup_failed)?;
        Ok(key)
    }

    fn guest(&mut self) -> Result<Guest, Error> {
        let key = KeyPair::generate(KeyType::P256)?;
        let identity = leaf(&self.tree.intermediate, GUEST, self.validity, key)?;
        let psk = self.psk_key()?;
        self.psks.push(PskKey::new(GUEST, &psk).map_err(setup_failed)?);
        let name = PskName::parse(GUEST.as_bytes()).map_err(setup_failed)?;
        let psk = PskRecord::new(name, psk);
        Ok(Guest { root: certificates_to_pem(self.tree.root.chain())?, identity, psk })
    }

    /// The server for all devices so far: every way on one port.
    fn server(&mut self, devices: usize) -> Result<ServerConfig, Error> {
        let trust = Trust {
            x509: Some(self.trust()?),
            // Without trusted raw keys, the server requests none.
            raw_key: (!self.raw_keys.is_empty()).then_some(RawKeyTrust::Keys(take(&mut self.raw_keys))),
        };
        let key = signing_key(&self.provider, &self.tree.server.key)?;
        let profile = Profile::builder(self.provider.clone())
            .credentials(vec![
                Credential::x509(self.tree.server.chain.clone(), key),
                Credential::raw_key(self.raw.clone()),
            ])
            .trust(trust)
            // The server prefers ECDHE; psk_ke is for the devices that offer only that.
            .psk_modes(vec![PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE])
            .build()
            .map_err(setup_failed)?;
        // Other devices also get tickets, which they do not use. The store has room for several rounds.
        let sessions = Arc::new(MemoryServerSessions::new(8 * devices.max(128)));
        let config = ServerConfig::new(profile).map_err(setup_failed)?;
        let config = config.with_connection_ids(self.connection_ids(ID_LEN)?);
        let config = config.with_client_auth(ClientAuth::Required).map_err(setup_failed)?;
        let cache = Arc::new(MemoryServerCache::new(devices.max(128)));
        let config =
            config.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE).map_err(setup_failed)?;
        Ok(config
            .with_psks(PskSource::Here(Arc::new(PskTable::from_iter(take(&mut self.psks)))))
            .with_tickets(Tickets::stateful(sessions)))
    }
}

/// A lean certificate for a client named `name`.
fn leaf(issuer: &Authority, name: &str, validity: Validity, key: KeyPair) -> Result<Identity, Error> {
    let mut spec = LeafSpec::client(Subject::default(), validity);
    spec.names = vec![name.parse()?];
    spec.form = Form::Lean;
    Ok(issuer.issue(&spec, key)?)
}

fn signing_key(provider: &CryptoProvider, key: &KeyPair) -> Result<Arc<dyn SigningKey>, Error> {
    let der = key.to_pkcs8()?;
    let der = PrivateKeyDer::Pkcs8(der.as_slice().into());
    provider.key_loader.load(&der).map_err(setup_failed)
}

fn client(profile: ProfileBuilder) -> Result<ClientConfig, Error> {
    profile.build().map(ClientConfig::new).map_err(setup_failed)
}

fn setup_failed(error: impl Display) -> Error {
    Error::failed("keys and configurations", error, "start again; if it stays, this is a fault in dunlin")
}

/// The name in the server's certificate.
pub(super) fn server_name() -> Result<ServerName<'static>, Error> {
    ServerName::try_from(SERVER).map_err(setup_failed)
}

/// The material to connect by hand.
pub(super) struct Guest {
    root: String,
    identity: Identity,
    psk: PskRecord,
}

impl Guest {
    /// The paths of the files in `dir`: root, certificate, key, PSK.
    pub(super) fn paths(dir: &Path) -> [PathBuf; 4] {
        ["root.pem", "client.pem", "client.key", "psk.txt"].map(|name| dir.join(name))
    }

    /// Writes the files.
    pub(super) fn write(&self, dir: &Path, existing: Existing) -> Result<(), Error> {
        let [root, certificate, key, psk] = Self::paths(dir);
        let mut keys = PskSet::default();
        keys.put(self.psk.clone()).map_err(setup_failed)?;
        let keys = psktool::render(&keys).map_err(setup_failed)?;
        files::check_new(&[&root, &certificate, &key, &psk], existing)?;
        files::create_directory(dir)?;
        files::write(&root, self.root.as_bytes(), Access::Public, existing)?;
        files::write(&key, self.identity.key.to_pem()?.as_bytes(), Access::Secret, existing)?;
        let chain = certificates_to_pem(&self.identity.chain)?;
        files::write(&certificate, chain.as_bytes(), Access::Public, existing)?;
        files::write(&psk, keys.as_bytes(), Access::Secret, existing)
    }
}
