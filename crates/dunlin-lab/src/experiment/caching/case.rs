//! What is measured: two connections, one after the other, and all that is the same for both.

use std::time::Duration;

use dunlin::Side;
use dunlin::cache::CacheMode;
use dunlin_pki::{Authority, CaSpec, Identity, KeyPair, KeyType, LeafSpec, Subject, Validity};
use pki_types::{CertificateDer, PrivateKeyDer};

use super::SERVER_NAME;
use crate::Error;
use crate::report::Row;

/// Root, intermediate and leaf; the root is not sent.
const CHAIN_LENGTH: usize = 3;
const ROOT: &str = "Dunlin root";
const INTERMEDIATE: &str = "Dunlin intermediate";
/// How long the certificates are valid, in days.
const DAYS: u32 = 30;
/// Longer than any connection here takes, even where keys are large and the machine is busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The two connections of a case.
pub(super) const CONNECTIONS: [&str; 2] = ["initial", "repeat"];

/// What is the same for two connections.
pub(super) struct Case<'a> {
    pub(super) keys: &'a Keys,
    pub(super) protocol: Protocol,
    pub(super) mode: Mode,
}

/// The version that both sides are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tls12,
    Tls13,
    Dtls13,
}

/// The types of keys, and what brings them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    /// Certificates.
    X509(KeyType),
    /// Certificates with keys of different types.
    Mixed { client: KeyType, server: KeyType },
    /// No certificates, but the keys themselves (RFC 7250), which each side knows of the other.
    RawKey(KeyType),
}

/// How the second connection makes use of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not at all; no ticket is sent.
    Vanilla,
    /// By a session: a ticket in each connection, in TLS 1.2 a session ID.
    Resumption,
    /// By the handshake cache in this mode (docs/handshake-cache.md); no session is kept.
    Cache(CacheMode),
    /// By a session, with the handshake cache in this mode kept beside it for the time after the session.
    ResumptionWithCache(CacheMode),
}

/// What a handshake is, as both sides see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// Both sides send their certificates.
    Full,
    /// Of an earlier session.
    Resumed,
    /// As fresh and mutual as a full one, but the server leaves out its certificates.
    ServerCached,
    /// As fresh and mutual as a full one, but both sides leave out their certificates.
    Cached,
}

impl Handshake {
    /// Whether it was resumed, and whether server and client have left out their certificates.
    pub(super) const fn parts(self) -> [bool; 3] {
        match self {
            Self::Full => [false; 3],
            Self::Resumed => [true, false, false],
            Self::ServerCached => [false, true, false],
            Self::Cached => [false, true, true],
        }
    }
}

/// The keys of both sides.
pub(super) struct Keys {
    pub(super) credential: Credential,
    /// Root, intermediates and leaf, the root included.
    pub(super) chain_length: usize,
    pub(super) client: End,
    pub(super) server: End,
}

/// The credential of one side, and the trust anchor by which the peer verifies it.
pub(super) struct End {
    /// Its key, and below its root the certificates that it sends.
    pub(super) identity: Identity,
    /// The root of its chain.
    pub(super) root: CertificateDer<'static>,
}

impl Protocol {
    /// Over TCP.
    pub(super) const STREAMS: [Self; 2] = [Self::Tls12, Self::Tls13];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "tls1.2",
            Self::Tls13 => "tls1.3",
            Self::Dtls13 => "dtls1.3",
        }
    }
}

impl Credential {
    pub(super) const RSA2048: Self = Self::X509(KeyType::Rsa2048);
    pub(super) const P256: Self = Self::X509(KeyType::P256);
    pub(super) const RAW_P256: Self = Self::RawKey(KeyType::P256);
    /// That of a server which is to last longer than its clients; the paper has it.
    pub(super) const MIXED: Self = Self::Mixed { client: KeyType::Rsa2048, server: KeyType::Rsa4096 };

    pub(super) fn named(name: &str) -> Option<Self> {
        let x509 = name.parse().ok().map(Self::X509);
        x509.or_else(|| (name == Self::RAW_P256.name()).then_some(Self::RAW_P256))
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::X509(key_type) => key_type.name(),
            Self::Mixed { .. } => "mixed",
            Self::RawKey(KeyType::P256) => "raw_p256",
            Self::RawKey(_) => "raw_key",
        }
    }

    pub(super) const fn key_type(self, side: Side) -> KeyType {
        match (self, side) {
            (Self::X509(key_type) | Self::RawKey(key_type), _) => key_type,
            (Self::Mixed { client, .. }, Side::Client) => client,
            (Self::Mixed { server, .. }, Side::Server) => server,
        }
    }

    /// How many certificates are in its chains, the root included.
    pub(super) const fn chain_length(self) -> usize {
        match self {
            Self::X509(_) | Self::Mixed { .. } => CHAIN_LENGTH,
            Self::RawKey(_) => 1,
        }
    }

    /// Whether the version has signatures of these keys.
    pub(super) const fn suits(self, protocol: Protocol) -> bool {
        // draft-ietf-tls-mldsa §3: in TLS 1.3 only.
        !matches!((self, protocol), (Self::X509(KeyType::MlDsa44), Protocol::Tls12))
    }
}

impl Mode {
    pub(super) const COMPACT: Self = Self::Cache(CacheMode::Compact);
    pub(super) const RESUMPTION_COMPACT: Self = Self::ResumptionWithCache(CacheMode::Compact);
    pub(super) const ALL: [Self; 6] = [
        Self::Vanilla,
        Self::Cache(CacheMode::Rfc7924),
        Self::Cache(CacheMode::Bithac),
        Self::COMPACT,
        Self::Resumption,
        Self::RESUMPTION_COMPACT,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Resumption => "resumption",
            Self::Cache(CacheMode::Rfc7924) => "rfc7924",
            Self::Cache(CacheMode::Bithac) => "bithac",
            Self::Cache(_) => "compact",
            Self::ResumptionWithCache(_) => "resumption_compact",
        }
    }

    /// What the two connections are.
    pub(super) const fn handshakes(self) -> [Handshake; CONNECTIONS.len()] {
        let repeat = match self {
            Self::Vanilla => Handshake::Full,
            Self::Resumption | Self::ResumptionWithCache(_) => Handshake::Resumed,
            Self::Cache(CacheMode::Rfc7924) => Handshake::ServerCached,
            Self::Cache(_) => Handshake::Cached,
        };
        [Handshake::Full, repeat]
    }
}

impl Keys {
    /// New ones.
    pub(super) fn new(credential: Credential, chain_length: usize) -> Result<Self, Error> {
        let made = || {
            let validity = Validity::from_now_days(DAYS)?;
            let server = LeafSpec::server([SERVER_NAME.parse()?, "127.0.0.1".parse()?], validity);
            let client = LeafSpec::client(Subject::common_name("device-1")?, validity);
            let end = |side, leaf| End::new(credential.key_type(side), chain_length, leaf);
            let (client, server) = (end(Side::Client, client)?, end(Side::Server, server)?);
            Ok(Self { credential, chain_length, client, server })
        };
        made().map_err(|error: dunlin_pki::Error| Error::new("certificates", &error, error.advice()))
    }
}

impl End {
    /// A chain of so many certificates. That of one is a leaf that its own key has signed.
    fn new(key_type: KeyType, chain_length: usize, leaf: LeafSpec) -> Result<Self, dunlin_pki::Error> {
        let ca =
            |name: &str| Ok::<_, dunlin_pki::Error>(CaSpec::new(Subject::common_name(name)?, leaf.validity));
        let root = Authority::root(&ca(ROOT)?, KeyPair::generate(key_type)?)?;
        if chain_length == 1 {
            let key = KeyPair::from_der(&PrivateKeyDer::Pkcs8(root.key().to_pkcs8()?.as_slice().into()))?;
            let identity = root.issue(&LeafSpec { subject: Subject::common_name(ROOT)?, ..leaf }, key)?;
            let root = identity.chain.first().cloned().ok_or(dunlin_pki::Error::Missing("certificate"))?;
            return Ok(Self { identity, root });
        }
        let mut issuer = None;
        for number in 2..chain_length {
            let above = issuer.as_ref().unwrap_or(&root);
            // Two of one name would be one that has issued itself, which nobody sends.
            let name = if number == 2 { INTERMEDIATE.to_owned() } else { format!("{INTERMEDIATE} {number}") };
            issuer = Some(above.intermediate(&ca(&name)?, KeyPair::generate(key_type)?)?);
        }
        let identity = issuer.as_ref().unwrap_or(&root).issue(&leaf, KeyPair::generate(key_type)?)?;
        Ok(Self { identity, root: root.certificate().clone() })
    }
}

impl<'a> Case<'a> {
    /// Its names, by which [`Case::named`] finds it again.
    pub(super) fn words(&self) -> [&'static str; 3] {
        [self.protocol.name(), self.keys.credential.name(), self.mode.name()]
    }

    /// The case of these names.
    pub(super) fn named(protocol: &str, mode: &str, keys: &'a Keys) -> Option<Self> {
        let protocol = Protocol::STREAMS.into_iter().find(|known| known.name() == protocol)?;
        let mode = Mode::ALL.into_iter().find(|known| known.name() == mode)?;
        Some(Self { keys, protocol, mode })
    }

    /// A row about it.
    pub(super) fn row(&self, stack: &str) -> Row {
        let row = Row::new().with("stack", stack).with("protocol", self.protocol.name());
        let row = match self.keys.credential {
            Credential::Mixed { client, server } => {
                row.with("client_credential", client.name()).with("server_credential", server.name())
            }
            credential => row.with("credential", credential.name()),
        };
        row.with("chain_length", self.keys.chain_length).with("mode", self.mode.name())
    }

    /// In a few words.
    pub(super) fn name(&self) -> String {
        self.words().join(" ")
    }

    /// Adds the total that the paper's saving leaves of OpenSSL's full handshake in the same run, or of the one that was
    /// measured by the paper's method if OpenSSL is not in this run.
    pub(super) fn with_paper(&self, row: Row, mtu: u16, connection: usize, openssl: Option<f64>) -> Row {
        let measured = match (self.protocol, mtu) {
            (Protocol::Tls12, 1500) => Some(6026.0),
            (Protocol::Tls12, 576) => Some(6620.0),
            (Protocol::Tls12, 127) => Some(11042.0),
            // The paper's own: see below.
            (Protocol::Tls13, 1500) => Some(6043.0),
            _ => None,
        };
        let full = openssl.or(measured).filter(|_| self.is_the_papers());
        match (full, self.paper_saved_percent(mtu, connection)) {
            (Some(full), Some(saved)) => row.paper("total_bytes", (full * (1.0 - saved / 100.0)).round()),
            (Some(full), None) if self.mode == Mode::Vanilla => row.paper("total_bytes", full),
            _ => row,
        }
    }

    /// Adds what this mode saves of a full handshake of `full` bytes, and what the paper saves.
    pub(super) fn with_saving(
        &self,
        row: Row,
        mtu: u16,
        connection: usize,
        full: f64,
        totals: &[f64],
    ) -> Row {
        let saved: Vec<_> = totals.iter().map(|total| (1.0 - total / full) * 100.0).collect();
        let row = row.figure("saved_percent", &saved);
        match self.paper_saved_percent(mtu, connection).filter(|_| self.is_the_papers()) {
            Some(percent) => row.paper("saved_percent", percent),
            None => row,
        }
    }

    /// Whether the paper has bytes of these keys.
    fn is_the_papers(&self) -> bool {
        self.keys.credential == Credential::RSA2048
    }

    /// What the paper saves of a full handshake, in percent (section V-A). Its "decreased to between 43.25 % and 38.86 %" is what
    /// remains: the abstract says "up to 61.1 %". In TLS 1.3 its cache saves 54.89 %; a resumption takes 452 bytes less, which are
    /// 16.58 % of what the cache leaves.
    fn paper_saved_percent(&self, mtu: u16, connection: usize) -> Option<f64> {
        match (self.protocol, mtu, self.mode) {
            _ if connection == 0 => None,
            (Protocol::Tls12, 1500, Mode::Cache(CacheMode::Rfc7924)) => Some(27.58),
            (Protocol::Tls12, 127, Mode::Cache(CacheMode::Rfc7924)) => Some(31.67),
            (Protocol::Tls12, 1500, Mode::Cache(CacheMode::Bithac)) => Some(56.75),
            (Protocol::Tls12, 127, Mode::Cache(CacheMode::Bithac)) => Some(61.14),
            (Protocol::Tls13, 1500, Mode::Cache(CacheMode::Bithac)) => Some(54.89),
            (Protocol::Tls13, 1500, Mode::Resumption) => Some(62.37),
            _ => None,
        }
    }

    /// The bytes of TLS that the paper has for different keys, data and close included.
    pub(super) fn paper_tls(&self, connection: usize) -> Option<f64> {
        match (self.keys.credential, self.protocol, self.mode) {
            (Credential::MIXED, Protocol::Tls12, Mode::Vanilla) => Some(5667.0),
            (Credential::MIXED, Protocol::Tls12, Mode::Cache(CacheMode::Bithac)) if connection == 1 => {
                Some(1494.0)
            }
            _ => None,
        }
    }
}
