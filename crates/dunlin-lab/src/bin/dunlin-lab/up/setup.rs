//! Fresh keys and certificates for the gateway, the devices, and a client that connects by hand.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::sync::Arc;

use dunlin::auth::{Psk as PskKey, RawKeyTrust, X509Trust};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::{CryptoProvider, Tls13CipherSuite};
use dunlin::wire::{PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, Credential, Migration, Multihoming, NodeIds, PeerIdentity, PortScheme, Profile,
    ProfileBuilder, ServerConfig, SsiMessages, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_command::error::Error;
use dunlin_command::files::Access;
use dunlin_command::report::identity;
use dunlin_identity::handshake::Holding;
use dunlin_pki::{
    AltName, Form, Identity, KeyPair, KeyType, LeafSpec, Subject, Tree, TreeSpec, Validity,
    certificates_to_pem,
};
use dunlin_store::psk::{Identity as PskName, PskRecord, PskRecords, PskSet, psktool};
use dunlin_store::{MemoryClientCache, MemoryClientSessions};
use pki_types::ServerName;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::authority::{Authority, Holder};
use super::site::Listeners;

/// The validity of the certificates, in days.
const DAYS: u32 = 30;
/// The length of a pre-shared key, in bytes.
const PSK_LEN: usize = 32;
/// The name of the client that connects by hand.
pub(super) const GUEST: &str = "guest";
/// The names of files.
pub(super) const ROOT: &str = "root.pem";
pub(super) const PSKS: &str = "keys.psk";
pub(super) const RAW_KEYS: &str = "devices.pub";
pub(super) const ISSUERS: &str = "issuers";
pub(super) const DIDS: &str = "devices.dids";
pub(super) const REGISTRY: &str = "registry.pub";
/// The name of the gateway.
pub(super) const SERVER: &str = "localhost";

/// Defines the ways, each with its name in tables and JSON, the noun in the names of its devices, at which the
/// policy's rules look, and its protocol.
macro_rules! ways {
    ($($(#[$doc:meta])* $way:ident = $name:literal, $noun:literal, $link:ident;)*) => {
        /// How a device authenticates.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Way { $($(#[$doc])* $way,)* }

        impl Way {
            /// All ways; devices use them in turn. The ways with MQTT need a broker, and TCS needs a build with
            /// association ports.
            const ALL: [Self; [$($name),*].len()] = [$(Self::$way),*];

            /// The name in tables and JSON.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$way => $name,)* }
            }

            /// The noun in the names of devices of this way.
            const fn noun(self) -> &'static str {
                match self { $(Self::$way => $noun,)* }
            }

            /// The protocol of devices of this way.
            pub(super) const fn link(self) -> Link {
                match self { $(Self::$way => Link::$link,)* }
            }
        }
    };
}

ways! {
    /// A certificate with a P-256 key.
    X509P256 = "X.509 P-256", "sensor", Http;
    /// A certificate with an Ed25519 key.
    X509Ed25519 = "X.509 Ed25519", "camera", Http;
    /// A raw public key (RFC 7250).
    RawKey = "raw key", "lock", Http;
    /// A pre-shared key, with ECDHE.
    PskEcdhe = "PSK + ECDHE", "lamp", Http;
    /// A plain pre-shared key, without forward secrecy.
    Psk = "PSK", "meter", Http;
    /// A certificate once, then tickets.
    X509Resumed = "X.509, resumed", "display", Http;
    /// A certificate once, then the handshake cache: it is proven each time, but not sent again.
    X509Cached = "X.509, cached", "pump", Lines;
    /// A pre-shared key with ECDHE, over DTLS with connection IDs: the device moves to another address during
    /// each connection.
    Moving = "PSK, moving", "tracker", Coap;
    /// TLS 1.2: the gateway learns who the device is, and gives it a faster profile by renegotiation, or at
    /// once when it knows its address.
    Tls12 = "X.509, TLS 1.2", "turbine", Http;
    /// A certificate, over DTLS without connection IDs: the server gives the association a port of its own,
    /// at which it goes on when the device moves to another address.
    Tcs = "X.509, TCS", "truck", Coap;
    /// A program that knows no TLS speaks HTTP to a tunnel beside it.
    Tunnel = "plain, tunnel", "boiler", Http;
    /// A certificate with a P-256 key, to a broker of MQTT.
    Mqtt = "X.509", "valve", Mqtt;
    /// A program that knows no TLS speaks MQTT to a tunnel beside it.
    MqttTunnel = "plain, tunnel", "fridge", Mqtt;
    /// A verifiable credential about a `did:dunlin`, whose key is another one in each connection. A registry
    /// knows the keys, and the device sends the proof along.
    Vc = "VC, did:dunlin", "robot", Lines;
    /// A bare DID, which the key of a `did:key` proves; the gateway has a list of them.
    Did = "DID, did:key", "drone", Lines;
}

impl Way {
    /// The ways with a broker or without one.
    pub(super) fn all(has_broker: bool) -> impl Iterator<Item = Self> + Clone {
        let has_ports = |way: &Self| PortScheme::AVAILABLE || *way != Self::Tcs;
        Self::ALL.into_iter().filter(has_ports).filter(move |way| has_broker || way.link() != Link::Mqtt)
    }

    /// Whether the device connects through a tunnel.
    pub(super) const fn has_tunnel(self) -> bool {
        matches!(self, Self::Tunnel | Self::MqttTunnel)
    }
}

/// The protocol of a device, which determines the listener to which the device connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// HTTP over TLS.
    Http,
    /// Lines over TLS.
    Lines,
    /// CoAP over DTLS.
    Coap,
    /// MQTT over TLS.
    Mqtt,
}

impl Link {
    /// The name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Lines => "TCP",
            Self::Coap => "CoAP",
            Self::Mqtt => "MQTT",
        }
    }

    /// The port of its listener, among the gateway's listeners; `None` if the gateway has no such listener.
    pub(super) fn of<T: Copy>(self, listeners: &Listeners<T>) -> Option<T> {
        match self {
            Self::Http => Some(listeners.web),
            Self::Lines => Some(listeners.lines),
            Self::Coap => Some(listeners.coap),
            Self::Mqtt => listeners.mqtt,
        }
    }
}

/// A device: its configuration, and the expected identities of both sides.
pub(super) struct Device {
    /// Its name.
    pub(super) name: String,
    /// How it authenticates.
    pub(super) way: Way,
    /// Its side of TLS or DTLS, which a device with a tunnel does not use.
    pub(super) config: Arc<ClientConfig>,
    /// The expected identity of the device, as the gateway tells it the servers.
    pub(super) as_client: String,
    /// The expected identity of the gateway, in the form of [`identity`].
    pub(super) as_server: String,
    /// Makes the configuration of each connection of a device with a DID.
    pub(super) holder: Option<Mutex<Holder>>,
}

/// All keys before the first connection.
pub(super) struct Setup {
    /// The devices.
    pub(super) devices: Vec<Device>,
    /// The files that the gateway needs, and those to connect by hand.
    pub(super) files: Vec<KeyFile>,
    /// The CoAP server that speaks DTLS itself.
    pub(super) coaps: Arc<ServerConfig>,
    /// The registry of the devices with a DID.
    pub(super) authority: Authority,
}

/// A file with keys or certificates.
pub(super) struct KeyFile {
    /// Its name.
    pub(super) name: String,
    /// Its content.
    pub(super) content: Zeroizing<String>,
    /// The users that may read it.
    pub(super) access: Access,
}

impl KeyFile {
    fn public(name: &str, content: String) -> Self {
        Self { name: name.into(), content: content.into(), access: Access::Public }
    }

    fn secret(name: &str, content: Zeroizing<String>) -> Self {
        Self { name: name.into(), content, access: Access::Secret }
    }
}

impl Setup {
    /// Makes all keys and certificates for `count` devices, or for one of each way.
    pub(super) fn new(count: Option<usize>, has_broker: bool) -> Result<Self, Error> {
        let mut maker = Maker::new()?;
        let ways = Way::all(has_broker);
        let count = count.unwrap_or_else(|| ways.clone().count());
        let ways = ways.cycle().take(count).enumerate();
        let devices = ways.map(|(index, way)| maker.device(index, way)).collect::<Result<_, _>>()?;
        Ok(Self { devices, coaps: maker.coaps()?, files: maker.files()?, authority: maker.authority })
    }

    /// Two devices of one way; the gateway knows only the first.
    #[cfg(test)]
    pub(super) fn with_unknown(way: Way) -> Result<Self, Error> {
        let mut maker = Maker::new()?;
        let known = maker.device(0, way)?;
        let coaps = maker.coaps()?;
        let files = maker.files()?;
        Ok(Self { devices: vec![known, maker.device(1, way)?], coaps, files, authority: maker.authority })
    }
}

/// The configuration of a device, and the expected identities of the device and of the gateway.
type Sides = (ClientConfig, String, String);

/// Makes devices, and collects what the gateway must know about them.
struct Maker {
    provider: Arc<CryptoProvider>,
    validity: Validity,
    tree: Tree,
    raw_keys: String,
    dids: String,
    psks: PskSet,
    /// The certificates and keys of tunnels.
    tunnels: Vec<KeyFile>,
    authority: Authority,
}

impl Maker {
    fn new() -> Result<Self, Error> {
        let provider = Arc::new(dunlin_awslc::provider());
        let mut spec = TreeSpec::new(KeyType::P256, DAYS)?;
        spec.form = Form::Lean;
        spec.server_names = server_names()?;
        let validity = spec.validity;
        let tree = Tree::generate(&spec)?;
        let roots = X509Trust::anchors([tree.root.certificate().clone()]).map_err(setup_failed)?;
        let authority = Authority::new(&provider, &tree.server, roots)?;
        Ok(Self {
            provider,
            validity,
            tree,
            raw_keys: String::new(),
            dids: String::new(),
            psks: PskSet::default(),
            tunnels: vec![],
            authority,
        })
    }

    fn device(&mut self, index: usize, way: Way) -> Result<Device, Error> {
        let name = format!("{}-{}", way.noun(), index + 1);
        let mut holder = None;
        let (config, as_client, as_server) = match way {
            Way::X509P256 | Way::Mqtt => self.x509(&name, KeyType::P256)?,
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
            Way::Tls12 => self.tls12(&name)?,
            Way::Tcs => {
                let (config, _, as_server) = self.x509(&name, KeyType::P256)?;
                (config.with_port_scheme(PortScheme::Tcs), format!("X.509 {name}"), as_server)
            }
            Way::Tunnel | Way::MqttTunnel => {
                let identity = self.leaf(&name, KeyType::P256)?;
                self.tunnels
                    .push(KeyFile::public(&format!("{name}.pem"), certificates_to_pem(&identity.chain)?));
                self.tunnels.push(KeyFile::secret(&format!("{name}.key"), identity.key.to_pem()?));
                self.x509_with(&name, identity)?
            }
            Way::Vc => {
                let made = self.authority.holder(&name)?;
                let as_client = format!("vc:{}", made.did());
                holder = Some(Mutex::new(made));
                // Each connection has a configuration of its own.
                let profile = Profile::builder(self.provider.clone()).trust(self.trust()?);
                (client(profile)?, as_client, format!("X.509 {SERVER}"))
            }
            Way::Did => self.bare_did()?,
            Way::RawKey => self.raw_key()?,
            Way::PskEcdhe | Way::Psk => self.psk(&name, way)?,
            Way::Moving => {
                let (config, as_client, as_server) = self.psk(&name, way)?;
                let ids = NodeIds::new(&[], 0, Arc::clone(&self.provider.random)).map_err(setup_failed)?;
                let config = config.with_connection_ids(Arc::new(ids));
                let config = config.with_multihoming(Multihoming::linkable()).map_err(setup_failed)?;
                (config, as_client, as_server)
            }
        };
        // The gateway has one name, so the devices need not send it.
        let config = Arc::new(config.with_server_name_sent(false));
        Ok(Device { name, way, config, as_client, as_server, holder })
    }

    /// A certificate of this key type; the device verifies P-256 alone, and so the gateway's fast
    /// certificate.
    fn x509(&self, name: &str, key_type: KeyType) -> Result<Sides, Error> {
        self.x509_with(name, self.leaf(name, key_type)?)
    }

    fn x509_with(&self, name: &str, identity: Identity) -> Result<Sides, Error> {
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        self.certified(name, identity, self.lean(&dunlin_awslc::TLS13_AES_128_GCM_SHA256, scheme))
    }

    /// As [`Self::x509`], with TLS 1.2 and renegotiation.
    fn tls12(&self, name: &str) -> Result<Sides, Error> {
        let profile = Profile::builder(self.provider.clone())
            .cipher_suites(vec![])
            .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            .renegotiation(true);
        self.certified(name, self.leaf(name, KeyType::P256)?, profile)
    }

    fn certified(&self, name: &str, identity: Identity, profile: ProfileBuilder) -> Result<Sides, Error> {
        let key = identity.key.signing_key(&self.provider)?;
        let profile = profile.trust(self.trust()?).credentials(vec![Credential::x509(identity.chain, key)]);
        Ok((client(profile)?, format!("x509:dns:{name}"), format!("X.509 {SERVER}")))
    }

    /// A lean certificate for a client with this name.
    fn leaf(&self, name: &str, key_type: KeyType) -> Result<Identity, Error> {
        let mut spec = LeafSpec::client(Subject::default(), self.validity);
        spec.names = vec![name.parse()?];
        spec.form = Form::Lean;
        Ok(self.tree.intermediate.issue(&spec, KeyPair::generate(key_type)?)?)
    }

    fn raw_key(&mut self) -> Result<Sides, Error> {
        let pair = KeyPair::generate(KeyType::Ed25519)?;
        self.raw_keys.push_str(&pair.public_key_pem()?);
        let key = pair.signing_key(&self.provider)?;
        let server = self.tree.server.key.public_key().clone();
        let as_client =
            base16ct::lower::encode_string(dunlin_awslc::SHA256.hash(&[pair.public_key()]).as_ref());
        let as_server = identity(&PeerIdentity::RawKey(server.clone()));
        let profile = self
            .lean(&dunlin_awslc::TLS13_AES_128_CCM_SHA256, SignatureScheme::ECDSA_SECP256R1_SHA256)
            .trust(Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![server])) })
            .credentials(vec![Credential::raw_key(key)]);
        Ok((client(profile)?, format!("raw_key:sha256:{as_client}"), as_server))
    }

    fn bare_did(&mut self) -> Result<Sides, Error> {
        let key = KeyPair::generate(KeyType::P256)?.signing_key(&self.provider)?;
        let holding = Holding::of_key(key, &[]).map_err(setup_failed)?;
        self.dids.push_str(&format!("{}\n", holding.did()));
        let as_client = holding.did().to_string();
        let own = holding.to_tls(&self.provider);
        let profile = Profile::builder(self.provider.clone())
            .trust(self.trust()?)
            .credentials(own.into_iter().collect())
            .ssi_messages(SsiMessages::Beside);
        Ok((client(profile)?, as_client, format!("X.509 {SERVER}")))
    }

    fn psk(&mut self, name: &str, way: Way) -> Result<Sides, Error> {
        let key = self.psk_key(name)?;
        let mut profile = self.lean(&dunlin_awslc::TLS13_AES_128_CCM_SHA256, SignatureScheme::ED25519);
        if way == Way::Psk {
            profile = profile.groups(vec![]).psk_modes(vec![PskKeyExchangeMode::PSK_KE]);
        }
        let psk = Arc::new(PskKey::new(name, &key).map_err(setup_failed)?);
        Ok((client(profile)?.with_psks(vec![psk]), format!("psk:{name}"), format!("PSK {name}")))
    }

    fn lean(&self, suite: &'static Tls13CipherSuite, scheme: SignatureScheme) -> ProfileBuilder {
        Profile::lean(self.provider.clone(), suite, dunlin_awslc::X25519, scheme)
    }

    fn trust(&self) -> Result<Trust, Error> {
        let roots = X509Trust::anchors([self.tree.root.certificate().clone()]).map_err(setup_failed)?;
        Ok(Trust { x509: Some(roots), raw_key: None })
    }

    /// Makes a pre-shared key with this identity, which the gateway knows.
    fn psk_key(&mut self, name: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut key = Zeroizing::new(vec![0; PSK_LEN]);
        self.provider.random.fill(&mut key).map_err(setup_failed)?;
        let identity = PskName::parse(name.as_bytes()).map_err(setup_failed)?;
        self.psks.put(PskRecord::new(identity, key.clone())).map_err(setup_failed)?;
        Ok(key)
    }

    /// A server with TCS for devices with certificates. An association with a port of its own has no checks
    /// of addresses, so the server follows its client without one.
    fn coaps(&self) -> Result<Arc<ServerConfig>, Error> {
        let key = self.tree.server.key.signing_key(&self.provider)?;
        let profile = Profile::builder(self.provider.clone())
            .trust(self.trust()?)
            .credentials(vec![Credential::x509(self.tree.server.chain.clone(), key)]);
        let config = ServerConfig::new(profile.build().map_err(setup_failed)?).map_err(setup_failed)?;
        let config = config.with_client_auth(ClientAuth::Required).map_err(setup_failed)?;
        let migration = Migration::never().with_unchecked(true);
        let config = if PortScheme::AVAILABLE { config.with_port_scheme(PortScheme::Tcs) } else { config };
        Ok(Arc::new(config.with_migration(migration)))
    }

    /// The files for all devices so far, and for a client that connects by hand.
    fn files(&mut self) -> Result<Vec<KeyFile>, Error> {
        self.psk_key(GUEST)?;
        let guest = self.leaf(GUEST, KeyType::P256)?;
        let mut spec = LeafSpec::server(server_names()?, self.validity);
        spec.form = Form::Lean;
        let strong = self.tree.intermediate.issue(&spec, KeyPair::generate(KeyType::P384)?)?;
        let fast = &self.tree.server;
        let mut files = vec![
            KeyFile::public(ROOT, certificates_to_pem(self.tree.root.chain())?),
            KeyFile::public(ISSUERS, self.authority.issuers()),
            KeyFile::public(REGISTRY, self.authority.keys()?),
            KeyFile::public("strong.pem", certificates_to_pem(&strong.chain)?),
            KeyFile::secret("strong.key", strong.key.to_pem()?),
            KeyFile::public("fast.pem", certificates_to_pem(&fast.chain)?),
            KeyFile::secret("fast.key", fast.key.to_pem()?),
            KeyFile::secret(PSKS, psktool::render(&self.psks).map_err(setup_failed)?),
            KeyFile::public("client.pem", certificates_to_pem(&guest.chain)?),
            KeyFile::secret("client.key", guest.key.to_pem()?),
        ];
        if !self.raw_keys.is_empty() {
            files.push(KeyFile::public(RAW_KEYS, self.raw_keys.clone()));
        }
        if !self.dids.is_empty() {
            files.push(KeyFile::public(DIDS, self.dids.clone()));
        }
        files.append(&mut self.tunnels);
        Ok(files)
    }
}

fn client(profile: ProfileBuilder) -> Result<ClientConfig, Error> {
    profile.build().map(ClientConfig::new).map_err(setup_failed)
}

pub(super) fn setup_failed(error: impl Display) -> Error {
    Error::failed("keys and configurations", error, "start again; if it stays, this is a fault in dunlin")
}

/// The names in the gateway's certificates.
fn server_names() -> Result<Vec<AltName>, Error> {
    Ok(vec![SERVER.parse()?, AltName::Ip(Ipv4Addr::LOCALHOST.into())])
}

/// The name under which devices know the gateway.
pub(super) fn server_name() -> Result<ServerName<'static>, Error> {
    ServerName::try_from(SERVER).map_err(setup_failed)
}
