//! The measured cases: two consecutive connections and their common parameters.

use std::time::Duration;

use dunlin::Side;
use dunlin::cache::CacheMode;
use dunlin_pki::{Form, Identity, KeyPair, KeyType};
use pki_types::CertificateDer;

use super::super::keys::{CHAIN_LENGTH, CLIENT_NAME, Issuer, SERVER_NAME};
use crate::Error;
use crate::report::Row;

/// Longer than any connection, even with large keys on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The two connections of a case.
pub(super) const CONNECTIONS: [&str; 2] = ["initial", "repeat"];

/// The common parameters of two connections.
pub(super) struct Case<'a> {
    pub(super) keys: &'a Keys,
    pub(super) protocol: Protocol,
    pub(super) mode: Mode,
}

named! {
    /// The version of both sides.
    pub(super) enum Protocol {
        Tls12 = "tls1.2",
        Tls13 = "tls1.3",
        Dtls12 = "dtls1.2",
        Dtls13 = "dtls1.3",
    }
}

/// The types of keys, and their form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    /// Certificates.
    X509(KeyType),
    /// Certificates with keys of different types.
    Mixed { client: KeyType, server: KeyType },
    /// Raw public keys without certificates (RFC 7250), which each side knows in advance.
    RawKey(KeyType),
}

/// How the second connection uses the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It does not; the server sends no ticket.
    Vanilla,
    /// It resumes a session: a ticket in each connection, or a session ID in TLS 1.2.
    Resumption,
    /// It uses the handshake cache in this mode (docs/handshake-cache.md), without sessions.
    Cache(CacheMode),
    /// It resumes a session, while the handshake cache in this mode is kept for later.
    ResumptionWithCache(CacheMode),
}

/// The kind of a handshake as both sides see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// Both sides send their certificates.
    Full,
    /// It resumes an earlier session.
    Resumed,
    /// It is as fresh and mutual as a full one, but the server omits its certificates.
    ServerCached,
    /// It is as fresh and mutual as a full one, but both sides omit their certificates.
    Cached,
}

impl Handshake {
    /// Whether it was resumed, and whether server and client omitted their certificates.
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
    /// Root, intermediates and leaf, including the root.
    pub(super) chain_length: usize,
    pub(super) client: End,
    pub(super) server: End,
}

/// The credential of one side, and the trust anchor that verifies it.
pub(super) struct End {
    /// The key, and the certificates that are sent.
    pub(super) identity: Identity,
    /// The root of the chain.
    pub(super) root: CertificateDer<'static>,
}

impl Protocol {
    /// Over TCP.
    pub(super) const STREAMS: [Self; 2] = [Self::Tls12, Self::Tls13];
    /// Over UDP.
    pub(super) const DATAGRAMS: [Self; 2] = [Self::Dtls12, Self::Dtls13];

    pub(super) const fn is_over_datagrams(self) -> bool {
        matches!(self, Self::Dtls12 | Self::Dtls13)
    }

    /// Whether it is TLS 1.2 or DTLS 1.2.
    pub(super) const fn is_version_12(self) -> bool {
        matches!(self, Self::Tls12 | Self::Dtls12)
    }
}

impl Credential {
    pub(super) const RSA2048: Self = Self::X509(KeyType::Rsa2048);
    pub(super) const P256: Self = Self::X509(KeyType::P256);
    pub(super) const RAW_P256: Self = Self::RawKey(KeyType::P256);
    /// The key types of a server that must outlast its clients, as in the paper.
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

    /// The number of certificates in the chains, including the root.
    pub(super) const fn chain_length(self) -> usize {
        match self {
            Self::X509(_) | Self::Mixed { .. } => CHAIN_LENGTH,
            Self::RawKey(_) => 1,
        }
    }

    /// Returns whether the version supports signatures of these keys.
    pub(super) const fn suits(self, protocol: Protocol) -> bool {
        // draft-ietf-tls-mldsa §3: in TLS 1.3 only.
        !(protocol.is_version_12() && matches!(self, Self::X509(KeyType::MlDsa44 | KeyType::MlDsa65)))
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

    /// Returns the kinds of the two connections.
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
    /// Makes new keys.
    pub(super) fn new(credential: Credential, chain_length: usize) -> Result<Self, Error> {
        let [client, server] =
            [Side::Client, Side::Server].map(|side| End::new(side, credential.key_type(side), chain_length));
        Ok(Self { credential, chain_length, client: client?, server: server? })
    }
}

impl End {
    /// Makes a chain of this many certificates. A chain of one is a self-signed leaf.
    fn new(side: Side, key_type: KeyType, chain_length: usize) -> Result<Self, Error> {
        let issuer = Issuer::new(Form::Full, key_type, chain_length)?;
        let key = KeyPair::generate(key_type)?;
        let identity = match side {
            Side::Client => issuer.client(CLIENT_NAME, key)?,
            Side::Server => issuer.server(&[SERVER_NAME, "127.0.0.1"], key)?,
        };
        Ok(Self { root: issuer.anchor_of(&identity), identity })
    }
}

impl<'a> Case<'a> {
    /// The names by which [`Case::named`] finds the case.
    pub(super) fn words(&self) -> [&'static str; 3] {
        [self.protocol.name(), self.keys.credential.name(), self.mode.name()]
    }

    /// Finds the case of these names.
    pub(super) fn named(protocol: &str, mode: &str, keys: &'a Keys) -> Option<Self> {
        let protocol = Protocol::STREAMS.into_iter().find(|known| known.name() == protocol)?;
        let mode = Mode::ALL.into_iter().find(|known| known.name() == mode)?;
        Some(Self { keys, protocol, mode })
    }

    /// Makes a row for the case.
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

    /// A short name.
    pub(super) fn name(&self) -> String {
        self.words().join(" ")
    }

    /// Adds the total that results from applying the paper's saving to OpenSSL's full handshake of this run,
    /// or without OpenSSL to the one measured by the paper's method.
    pub(super) fn with_paper(&self, row: Row, mtu: u16, connection: usize, openssl: Option<f64>) -> Row {
        let measured = match (self.protocol, mtu) {
            (Protocol::Tls12, 1500) => Some(6026.0),
            (Protocol::Tls12, 576) => Some(6620.0),
            (Protocol::Tls12, 127) => Some(11042.0),
            // The paper's own figures follow below.
            (Protocol::Tls13, 1500) => Some(6043.0),
            _ => None,
        };
        let full = openssl.or(measured).filter(|_| self.is_the_papers());
        let total = match self.paper_saved_percent(mtu, connection) {
            Some(saved) => full.map(|full| (full * (1.0 - saved / 100.0)).round()),
            None if self.mode == Mode::Vanilla => full,
            None => None,
        };
        row.paper("total_bytes", total)
    }

    /// Adds this mode's saving against a full handshake of `full` bytes, and the paper's saving.
    pub(super) fn with_saving(
        &self,
        row: Row,
        mtu: u16,
        connection: usize,
        full: f64,
        totals: &[f64],
    ) -> Row {
        let saved: Vec<_> = totals.iter().map(|total| (1.0 - total / full) * 100.0).collect();
        let paper = if self.is_the_papers() { self.paper_saved_percent(mtu, connection) } else { None };
        row.figure("saved_percent", &saved).paper("saved_percent", paper)
    }

    /// Returns whether the paper gives bytes for these keys over this transport.
    fn is_the_papers(&self) -> bool {
        self.keys.credential == Credential::RSA2048 && !self.protocol.is_over_datagrams()
    }

    /// The paper's saving against a full handshake, in percent (section V-A). Its "decreased to between 43.25
    /// % and 38.86 %" is the remainder: the abstract says "up to 61.1 %". In TLS 1.3 its cache saves 54.89 %;
    /// a resumption takes 452 bytes less, which are 16.58 % of what the cache leaves.
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

    /// The paper's TLS bytes for different keys, including data and close.
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
