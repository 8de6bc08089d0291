//! The two configurations of a handshake, chosen by the first bytes of a script.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex};

use dunlin::auth::{PrivateKey, Psk, PskTable, RawKeyTrust, Revocation, X509Trust};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::compression::{CertificateCompressor, CompressionFailed, ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR};
use dunlin::crypto::{
    AeadAlgorithm, CryptoProvider, HashAlgorithm, Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange,
};
use dunlin::resume::{Session, Tickets};
use dunlin::wire::CertificateCompressionAlgorithm;
use dunlin::wire::{CipherSuite, PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, EarlyDataProtocols, NodeIds, Now, Profile, PskSource,
    Question, ServerAddress, ServerConfig, Side, SingleUse, SsiMessages, TransportKind, Trust,
};
use dunlin_null::{FFDHE2048, SIGNATURE, TLS12_CIPHER_SUITES};
use dunlin_store::{
    MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryServerSessions, MemoryUseOnce,
    RotatingTickets,
};
use pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
};

use crate::script::Script;
use crate::traffic::{ID_LEN, Protection};
use crate::wallet;

/// 2027-01-01T00:00:00Z, a time at which the fixtures' certificates are valid.
pub(crate) const NOW: Now = Now::from_unix_ms(1_798_761_600_000);

const ROOT: &[u8] = include_bytes!("../fixtures/root.der");
const INTERMEDIATE: &[u8] = include_bytes!("../fixtures/intermediate.der");
/// Certificate and public key of the client, and of the server.
type Leaves = [(&'static [u8], &'static [u8]); 2];
const ECDSA_LEAVES: Leaves = [
    (include_bytes!("../fixtures/client.der"), include_bytes!("../fixtures/client.spki.der")),
    (include_bytes!("../fixtures/server.der"), include_bytes!("../fixtures/server.spki.der")),
];
const RSA_LEAVES: Leaves = [
    (include_bytes!("../fixtures/client-rsa.der"), include_bytes!("../fixtures/client-rsa.spki.der")),
    (include_bytes!("../fixtures/server-rsa.der"), include_bytes!("../fixtures/server-rsa.spki.der")),
];
/// The CRLs of root and intermediate. They revoke no certificate.
const REVOCATION_LISTS: [&[u8]; 2] =
    [include_bytes!("../fixtures/root.crl.der"), include_bytes!("../fixtures/intermediate.crl.der")];
/// The engine passes it on without reading it.
const OCSP_RESPONSE: &[u8] = b"an OCSP response";
const PSK_IDENTITY: &[u8] = b"device-1";
const PSK: [u8; 32] = [7; 32];

/// How the two sides authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By chains of certificates.
    X509,
    /// By raw public keys.
    RawKey,
    /// By decentralised identities in messages of their own.
    Ssi,
    /// By an external PSK, with a key exchange.
    Psk,
    /// By an external PSK alone.
    PskAlone,
}

/// The configuration of both sides for TLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tls12 {
    /// The key exchange of the preferred suites, besides plain PSK: on curves or in finite fields.
    pub(crate) exchange: Tls12KeyExchange,
    /// Whether the certificates have RSA keys.
    is_rsa: bool,
    /// The side that also has TLS 1.3.
    with_tls13: WithTls13,
}

/// The side that has TLS 1.3 besides TLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithTls13 {
    Nobody,
    Tested,
    Peer,
}

impl Tls12 {
    /// Reads three bits; zero means no TLS 1.2.
    fn read(bits: u8) -> Option<Self> {
        let (exchange, is_rsa) = match bits {
            0 => return None,
            2 | 5 => (Tls12KeyExchange::Dhe, true),
            3 | 6 => (Tls12KeyExchange::Ecdhe, true),
            _ => (Tls12KeyExchange::Ecdhe, false),
        };
        let with_tls13 = match bits {
            4..=6 => WithTls13::Tested,
            7 => WithTls13::Peer,
            _ => WithTls13::Nobody,
        };
        Some(Self { exchange, is_rsa, with_tls13 })
    }

    /// Whether this side also has TLS 1.3.
    fn has_tls13(self, side: Side, tested: Side) -> bool {
        match self.with_tls13 {
            WithTls13::Nobody => false,
            WithTls13::Tested => side == tested,
            WithTls13::Peer => side != tested,
        }
    }
}

/// How a session is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// No resumption.
    None,
    /// A ticket that contains the session.
    Stateless,
    /// A ticket that names the session in a store.
    Stateful,
    /// A ticket that names the session in a store that answers later.
    Ask,
}

/// A bit of the setting.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl Setting {
            $($(#[$doc])* pub(crate) const fn $name(&self) -> bool { self.flags & 1 << $bit != 0 })*
        }
    };
}

/// The choices that make the two configurations.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// TLS or DTLS.
    pub(crate) kind: TransportKind,
    /// How the two sides authenticate.
    pub(crate) way: Way,
    /// How a session is resumed.
    pub(crate) resumption: Resumption,
    /// Whether the server requests the client's certificate.
    pub(crate) client_auth: ClientAuth,
    /// The cipher suites: 0 all of TLS 1.3 or the suites of TLS 1.2 with AES-128-GCM, 1 AES-256-GCM with
    /// SHA-384, 2 AES-128-CCM_8, 3 ChaCha20-Poly1305.
    pub(crate) suites: u8,
    /// The mode of the handshake cache on both sides.
    pub(crate) cache: Option<CacheMode>,
    /// The configuration for TLS 1.2 or DTLS 1.2; `None` for TLS 1.3 or DTLS 1.3 only.
    pub(crate) tls12: Option<Tls12>,
    flags: u16,
}

flags! {
    /// The client sends no share of the server's group.
    retries = 0;
    /// The server demands a cookie.
    cookies = 1;
    /// Certificates are compressed.
    compresses = 2;
    /// The client requests an OCSP response. In TLS 1.3, decentralised identities take the place of raw
    /// public keys.
    ocsp = 3;
    /// The compatibility mode is off.
    is_plain = 4;
    /// The engine asks its caller for everything that it can: keys, verdicts, signatures.
    asks = 5;
    /// The server asks for its configuration.
    chooses = 6;
    /// Records are small.
    is_small = 7;
    /// Both sides negotiate an application protocol.
    alpn = 8;
    /// The names of authorities are sent. Decentralised identities come with proofs.
    authorities = 9;
    /// Keys are updated after every few records.
    updates = 10;
    /// The tested side's datagrams have the smallest size.
    is_narrow = 11;
    /// A session allows early data.
    early = 12;
    /// The master secret is not bound to the handshake: in TLS 1.2, the tested side sees no
    /// extended_master_secret.
    unbound = 13;
    /// TLS 1.2 connections may renegotiate; over datagrams, both sides have connection IDs.
    special = 14;
    /// Both sides check CRLs. Decentralised identities are bare identifiers.
    revokes = 15;
}

impl Setting {
    /// Reads a setting from a script. Zeros mean TLS with X.509 and no special feature.
    pub(crate) fn read(script: &mut Script<'_>) -> Self {
        let first = script.u8();
        let second = script.u8();
        let mut setting = Self {
            kind: if first & 1 == 0 { TransportKind::Stream } else { TransportKind::Datagram },
            way: [Way::X509, Way::RawKey, Way::Psk, Way::PskAlone][usize::from(first >> 1 & 3)],
            resumption: [Resumption::None, Resumption::Stateless, Resumption::Stateful, Resumption::Ask]
                [usize::from(first >> 3 & 3)],
            client_auth: [ClientAuth::None, ClientAuth::Optional, ClientAuth::Required, ClientAuth::None]
                [usize::from(second & 3)],
            suites: second >> 2 & 3,
            cache: [None, Some(CacheMode::Compact), Some(CacheMode::Bithac), Some(CacheMode::Rfc7924)]
                [usize::from(second >> 4 & 3)],
            tls12: Tls12::read(first >> 5),
            flags: script.u16(),
        };
        if setting.way == Way::RawKey && setting.tls12.is_none() && setting.ocsp() {
            setting.way = Way::Ssi;
        }
        // A PSK already identifies the client.
        if setting.is_psk() {
            setting.client_auth = ClientAuth::None;
        }
        setting
    }

    /// Reads the setting of an endpoint: datagrams, cookies and connection IDs, and no questions.
    pub(crate) fn of_endpoint(script: &mut Script<'_>) -> Self {
        const COOKIES: u16 = 1 << 1;
        const SPECIAL: u16 = 1 << 14;
        const ASKS: u16 = 1 << 5;
        const CHOOSES: u16 = 1 << 6;
        const UNBOUND: u16 = 1 << 13;
        let mut setting = Self { kind: TransportKind::Datagram, ..Self::read(script) };
        if setting.resumption == Resumption::Ask {
            setting.resumption = Resumption::Stateful;
        }
        setting.flags = (setting.flags | COOKIES | SPECIAL) & !(ASKS | CHOOSES | UNBOUND);
        setting
    }

    /// The same without connection IDs.
    pub(crate) const fn without_ids(mut self) -> Self {
        self.flags &= !(1 << 14);
        self
    }

    /// The same without a limit for records.
    pub(crate) const fn without_small_records(mut self) -> Self {
        self.flags &= !(1 << 7);
        self
    }

    /// Writes the setting as the beginning of a script.
    pub fn write(first: u8, second: u8, flags: u16) -> Vec<u8> {
        let [a, b] = flags.to_be_bytes();
        vec![first, second, a, b]
    }

    /// Whether TLS 1.2 connections may renegotiate.
    pub(crate) fn renegotiates(&self) -> bool {
        self.special() && self.kind == TransportKind::Stream
    }

    /// Whether both sides have connection IDs.
    pub(crate) fn has_ids(&self) -> bool {
        self.special() && self.kind == TransportKind::Datagram
    }

    /// Whether the two sides share an external PSK.
    pub(crate) const fn is_psk(&self) -> bool {
        matches!(self.way, Way::Psk | Way::PskAlone)
    }

    /// Whether the two sides connect once before, so that both store sessions and certificates. Without
    /// extended_master_secret, neither side resumes its session, and both fail (RFC 7627 §5.3).
    pub(crate) fn is_rehearsed(&self) -> bool {
        (self.resumption != Resumption::None || self.cache.is_some()) && !self.is_unbound()
    }

    /// Whether the tested side's peer omits its certificates if nothing is changed.
    pub(crate) fn is_peer_cached(&self, tested: Side) -> bool {
        let is_kept = match (tested, self.cache) {
            (_, None) => false,
            (Side::Client, Some(_)) => true,
            // RFC 7924 does not cover certificates of clients.
            (Side::Server, Some(mode)) => self.client_auth != ClientAuth::None && mode != CacheMode::Rfc7924,
        };
        // The cache keeps no peer that the caller has to judge each time, and a resumption has no
        // certificates.
        is_kept
            && self.is_rehearsed()
            && self.resumption == Resumption::None
            && !self.is_psk()
            && self.way != Way::Ssi
            && !self.asks()
    }

    /// Whether the master secret is not bound to the handshake.
    pub(crate) const fn is_unbound(&self) -> bool {
        self.tls12.is_some() && self.unbound()
    }

    /// Returns how records are protected in TLS 1.2 and DTLS 1.2, without a connection ID.
    pub(crate) const fn tls12_protection(&self) -> Protection {
        let (tag_len, nonce_len) = match self.suites {
            2 => (8, 8),
            3 => (16, 0),
            _ => (16, 8),
        };
        Protection { tag_len, epoch: 1, tls12: Some(nonce_len), id: None }
    }

    /// Returns the keys of the certificates.
    fn leaves(&self) -> Leaves {
        match self.tls12 {
            Some(Tls12 { is_rsa: true, .. }) => RSA_LEAVES,
            _ => ECDSA_LEAVES,
        }
    }

    /// Returns the longest content of a record that both sides accept, in bytes.
    pub(crate) const fn content_limit(&self) -> usize {
        if self.is_small() { SMALL_RECORDS as usize - 1 } else { 1 << 14 }
    }
}

/// The most early data that a server accepts, in bytes.
pub(crate) const MAX_EARLY_DATA: u32 = 1000;

const SMALL_RECORDS: u16 = 100;

/// The two configurations, and the answers to the questions of both sides.
pub(crate) struct World {
    /// The setting that it was made from.
    pub(crate) setting: Setting,
    /// The client's configuration.
    pub(crate) client: Arc<ClientConfig>,
    /// The server's configuration.
    pub(crate) server: Arc<ServerConfig>,
    psk: Arc<Psk>,
    /// The sessions that the tested server asked to store.
    pub(crate) sessions: HashMap<Vec<u8>, Session>,
}

impl World {
    /// Makes the world of this setting. In it `tested` asks questions and the other side does not.
    pub(crate) fn new(setting: Setting, tested: Side) -> Self {
        let psk = Arc::new(Psk::new(PSK_IDENTITY, &PSK).unwrap().with_hash(match setting.suites {
            1 => HashAlgorithm::Sha384,
            _ => HashAlgorithm::Sha256,
        }));
        let asks = |side| setting.asks() && side == tested;
        let mtu = |side| if side == tested && setting.is_narrow() { 80 } else { 65507 };
        let [client, server] = [Side::Client, Side::Server].map(|side| profile(&setting, side, tested));
        let provider = server.provider().clone();
        let mut client = ClientConfig::new(client).with_mtu(mtu(Side::Client)).unwrap();
        if setting.retries() {
            client = client.with_key_shares(Vec::new()).unwrap();
        }
        if setting.is_psk() {
            client = client.with_psks(vec![psk.clone()]);
        }
        if setting.resumption != Resumption::None {
            client = client.with_sessions(Arc::new(MemoryClientSessions::new(2, 4)));
        }
        // Where the engine asks for PSKs, sessions from PSKs do not resume. Early data would then be refused,
        // and without encryption the engine cannot distinguish them from records that open.
        let keys = || {
            if asks(Side::Server) && !setting.early() {
                PskSource::Ask
            } else {
                PskSource::Here(Arc::new(PskTable::from_iter([Psk::new(PSK_IDENTITY, &PSK)
                    .unwrap()
                    .with_hash(psk.hash())])))
            }
        };
        let server =
            if setting.is_psk() { ServerConfig::psk_only(server, keys()) } else { ServerConfig::new(server) };
        let server = server
            .and_then(|server| server.with_client_auth(setting.client_auth))
            .and_then(|server| server.with_mtu(mtu(Side::Server)))
            .unwrap()
            .with_cookies(setting.cookies())
            .with_tickets(tickets(&setting, provider, asks(Side::Server)));
        let server = server.with_profile_choice(setting.chooses() && tested == Side::Server);
        let (client, server) =
            if setting.early() { with_early_data(client, server) } else { (client, server) };
        let (client, server) = match setting.cache {
            Some(mode) => with_cache(client, server, mode),
            None => (client, server),
        };
        let (client, server) = if setting.has_ids() {
            let ids =
                || Arc::new(NodeIds::new(&[], ID_LEN, server.profile().provider().random.clone()).unwrap());
            (client.with_connection_ids(ids()), server.clone().with_connection_ids(ids()))
        } else {
            (client, server)
        };
        let client = Arc::new(client);
        let server = Arc::new(server);
        Self { setting, client, server, psk, sessions: HashMap::new() }
    }

    /// Returns the answer that continues the handshake.
    pub(crate) fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::ChooseProfile(_) => Answer::Profile(Some(self.server.clone())),
            Question::FindPsk { identity } => {
                Answer::Psk((identity == PSK_IDENTITY).then(|| self.psk.clone()))
            }
            Question::FindSession { id } => Answer::Session(self.sessions.get(id).cloned().map(Box::new)),
            Question::FirstUse { .. } => Answer::FirstUse(true),
            Question::Verify { .. } => Answer::Verified(Ok(dunlin::auth::Acceptance::once())),
            Question::Sign { .. } => Answer::Signature(SIGNATURE.to_vec()),
            other => panic!("a question without answer: {other:?}"),
        }
    }
}

/// The server that the client connects to.
pub(crate) fn localhost() -> ServerAddress {
    ServerAddress::new(ServerName::try_from("localhost").unwrap(), 4433)
}

fn tickets(setting: &Setting, provider: Arc<CryptoProvider>, asks: bool) -> Tickets {
    let tickets = match setting.resumption {
        Resumption::None => return Tickets::none(),
        Resumption::Stateless => {
            let single_use = if asks {
                SingleUse::Ask
            } else {
                SingleUse::Register(Arc::new(MemoryUseOnce::new(8, Now::default())))
            };
            let keys = RotatingTickets::new(provider).unwrap().with_single_use(single_use);
            Tickets::stateless(Arc::new(keys))
        }
        Resumption::Stateful => Tickets::stateful(Arc::new(MemoryServerSessions::new(4))),
        Resumption::Ask => Tickets::ask(),
    };
    tickets.count(2)
}

fn with_early_data(client: ClientConfig, server: ServerConfig) -> (ClientConfig, ServerConfig) {
    let protocols = EarlyDataProtocols::named(vec![b"mqtt".to_vec()]).and_unnamed();
    let server = server.with_early_data(protocols.clone(), MAX_EARLY_DATA).unwrap();
    (client.with_early_data(protocols), server)
}

fn with_cache(client: ClientConfig, server: ServerConfig, mode: CacheMode) -> (ClientConfig, ServerConfig) {
    let servers = Arc::new(MemoryClientCache::new(2));
    let clients = Arc::new(MemoryServerCache::new(2));
    let server = server.with_handshake_cache(mode, clients, DEFAULT_MAX_AGE).unwrap();
    (client.with_handshake_cache(mode, servers, DEFAULT_MAX_AGE), server)
}

/// Returns the cipher suites of TLS 1.2, those with the preferred key exchange first.
fn tls12_suites(setting: &Setting, exchange: Tls12KeyExchange) -> Vec<&'static Tls12CipherSuite> {
    let aead = match setting.suites {
        1 => AeadAlgorithm::Aes256Gcm,
        2 => AeadAlgorithm::Aes128Ccm8,
        3 => AeadAlgorithm::ChaCha20Poly1305,
        _ => AeadAlgorithm::Aes128Gcm,
    };
    let first = if setting.way == Way::PskAlone { Tls12KeyExchange::Psk } else { exchange };
    let is_psk = |suite: &Tls12CipherSuite| suite.authentication == Tls12Authentication::Psk;
    let mut suites: Vec<_> = TLS12_CIPHER_SUITES
        .iter()
        .filter(|suite| suite.aead.algorithm() == aead && is_psk(suite) == setting.is_psk())
        .collect();
    suites.sort_by_key(|suite| suite.key_exchange != first);
    suites
}

fn profile(setting: &Setting, side: Side, tested: Side) -> Profile {
    let asks = setting.asks() && side == tested;
    let provider = Arc::new(dunlin_null::null_provider());
    let mut builder = Profile::builder(provider.clone()).danger_skip_provider_check();
    let only = match setting.suites {
        1 => Some(CipherSuite::TLS_AES_256_GCM_SHA384),
        2 => Some(CipherSuite::TLS_AES_128_CCM_8_SHA256),
        3 => Some(CipherSuite::TLS_CHACHA20_POLY1305_SHA256),
        _ => None,
    };
    if let Some(only) = only {
        builder = builder.cipher_suites(vec![provider.suite(only).unwrap()]);
    }
    if let Some(tls12) = setting.tls12 {
        builder = builder
            .groups([&provider.groups[..], &[FFDHE2048]].concat())
            .tls12_cipher_suites(tls12_suites(setting, tls12.exchange))
            .extended_master_secret_required(!setting.is_unbound())
            .renegotiation(setting.renegotiates());
        if !tls12.has_tls13(side, tested) {
            builder = builder.cipher_suites(Vec::new());
        }
    }
    builder = match setting.way {
        Way::X509 => {
            let root = X509Trust::anchors([CertificateDer::from(ROOT)]).unwrap();
            let trust = match (asks, setting.revokes()) {
                (true, _) => X509Trust::Ask,
                (false, false) => root,
                (false, true) => root.with_revocation(revocation()).unwrap(),
            };
            builder.trust(Trust { x509: Some(trust), raw_key: None })
        }
        Way::RawKey => {
            let keys =
                setting.leaves().into_iter().map(|(_, key)| SubjectPublicKeyInfoDer::from(key).into_owned());
            let trust = if asks { RawKeyTrust::Ask } else { RawKeyTrust::Keys(keys.collect()) };
            builder.trust(Trust { x509: None, raw_key: Some(trust) })
        }
        Way::Ssi => {
            let keys = setting.leaves().map(|(_, key)| key);
            let trust = wallet::trust(setting.revokes(), asks, setting.authorities(), keys);
            builder.trust(trust).ssi_messages(SsiMessages::Alone)
        }
        Way::Psk => builder,
        Way::PskAlone => builder.psk_modes(vec![PskKeyExchangeMode::PSK_KE]),
    };
    if !setting.is_psk() {
        builder = builder.credentials(vec![credential(setting, side, asks, &provider)]);
        if setting.way == Way::X509 && side == Side::Server && setting.ocsp() {
            builder = builder.ocsp_response(0, OCSP_RESPONSE.to_vec());
        }
    }
    if setting.compresses() {
        builder = builder
            .certificate_compressors(vec![&Remembered])
            .certificate_decompressors(vec![ZLIB_DECOMPRESSOR]);
    }
    if setting.alpn() {
        builder = builder.alpn(vec![b"mqtt".to_vec(), b"coap".to_vec()]);
    }
    builder
        .request_ocsp(setting.ocsp())
        .compatibility_mode(!setting.is_plain())
        .send_authorities(setting.authorities())
        .record_size_limit(setting.is_small().then_some(SMALL_RECORDS))
        .key_update_after(setting.updates().then_some(4))
        .build()
        .unwrap()
}

/// Read once, because profiles are built for every input.
fn revocation() -> Revocation {
    static LISTS: LazyLock<Revocation> =
        LazyLock::new(|| Revocation::new(REVOCATION_LISTS.map(CertificateRevocationListDer::from)).unwrap());
    LISTS.clone()
}

/// Zlib that compresses each message only once, because profiles are built for every input, always with the
/// same few chains.
#[derive(Debug)]
struct Remembered;

impl CertificateCompressor for Remembered {
    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        ZLIB_COMPRESSOR.algorithm()
    }

    fn compress(&self, message: &[u8]) -> Result<Vec<u8>, CompressionFailed> {
        static KNOWN: Mutex<BTreeMap<Vec<u8>, Vec<u8>>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap();
        if let Some(compressed) = known.get(message) {
            return Ok(compressed.clone());
        }
        let compressed = ZLIB_COMPRESSOR.compress(message)?;
        known.insert(message.to_vec(), compressed.clone());
        Ok(compressed)
    }
}

fn credential(setting: &Setting, side: Side, asks: bool, provider: &CryptoProvider) -> Credential {
    let (leaf, spki) = setting.leaves()[usize::from(side == Side::Server)];
    let key = if asks {
        PrivateKey::Elsewhere {
            schemes: vec![match setting.tls12 {
                Some(Tls12 { is_rsa: true, .. }) => SignatureScheme::RSA_PSS_RSAE_SHA256,
                _ => SignatureScheme::ECDSA_SECP256R1_SHA256,
            }],
            label: "key".into(),
        }
    } else {
        PrivateKey::Here(provider.key_loader.load(&PrivatePkcs8KeyDer::from(spki).into()).unwrap())
    };
    match setting.way {
        Way::RawKey => {
            Credential::RawKey { public_key: SubjectPublicKeyInfoDer::from(spki).into_owned(), key }
        }
        Way::Ssi => wallet::credential(setting.revokes(), side, key),
        _ => {
            let chain = [leaf, INTERMEDIATE].map(|der| CertificateDer::from(der).into_owned());
            Credential::X509 { chain: chain.to_vec(), key }
        }
    }
}
