//! Who meets whom: the two configurations of a handshake, chosen by the first bytes of a script.

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
    Answer, ClientAuth, ClientConfig, Credential, EarlyDataProtocols, Now, Profile, PskSource, Question,
    ServerAddress, ServerConfig, Side, SingleUse, TransportKind, Trust,
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
use crate::traffic::Protection;

/// 2027-01-01T00:00:00Z, when the certificates of the fixtures are valid.
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
/// Of root and intermediate, with nobody on them.
const REVOCATION_LISTS: [&[u8]; 2] =
    [include_bytes!("../fixtures/root.crl.der"), include_bytes!("../fixtures/intermediate.crl.der")];
/// Nobody looks into it: the engine hands it on.
const OCSP_RESPONSE: &[u8] = b"an OCSP response";
const PSK_IDENTITY: &[u8] = b"device-1";
const PSK: [u8; 32] = [7; 32];

/// How the two prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By chains of certificates.
    X509,
    /// By raw public keys.
    RawKey,
    /// By an external PSK, with a key exchange.
    Psk,
    /// By an external PSK alone.
    PskAlone,
}

/// What two that meet in TLS 1.2 have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tls12 {
    /// The key exchange of the suites that are preferred, beside a PSK alone: on curves or in finite fields.
    pub(crate) exchange: Tls12KeyExchange,
    /// Whether the keys of certificates are RSA keys.
    is_rsa: bool,
    /// Who has TLS 1.3, too.
    with_tls13: WithTls13,
}

/// Who has TLS 1.3 beside TLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithTls13 {
    Nobody,
    Tested,
    Peer,
}

impl Tls12 {
    /// From three bits; zero is none.
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

    /// Whether this side has TLS 1.3, too.
    fn has_tls13(self, side: Side, tested: Side) -> bool {
        match self.with_tls13 {
            WithTls13::Nobody => false,
            WithTls13::Tested => side == tested,
            WithTls13::Peer => side != tested,
        }
    }
}

/// What a session is resumed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// There is none.
    None,
    /// A ticket that carries it.
    Stateless,
    /// A ticket that names it.
    Stateful,
    /// A ticket that names it, in a store that answers later.
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

/// What the two configurations are made of.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// TLS or DTLS.
    pub(crate) kind: TransportKind,
    /// How the two prove who they are.
    pub(crate) way: Way,
    /// What a session is resumed by.
    pub(crate) resumption: Resumption,
    /// Whether the server asks who the client is.
    pub(crate) client_auth: ClientAuth,
    /// Suites: 0 all of TLS 1.3 or those of TLS 1.2 with AES-128-GCM, 1 AES-256-GCM with SHA-384, 2 AES-128-CCM_8,
    /// 3 ChaCha20-Poly1305.
    pub(crate) suites: u8,
    /// Of the handshake cache of both sides.
    pub(crate) cache: Option<CacheMode>,
    /// Of TLS 1.2; with nothing it is TLS 1.3.
    pub(crate) tls12: Option<Tls12>,
    flags: u16,
}

flags! {
    /// The client has no share of the server's group.
    retries = 0;
    /// The server wants a cookie.
    cookies = 1;
    /// Certificates are compressed.
    compresses = 2;
    /// The client asks for an OCSP response.
    ocsp = 3;
    /// The compatibility mode is off.
    is_plain = 4;
    /// What can be asked is asked: keys, verdicts, signatures.
    asks = 5;
    /// The server asks for its configuration.
    chooses = 6;
    /// Records are small.
    is_small = 7;
    /// Application protocols are agreed.
    alpn = 8;
    /// The names of authorities are sent.
    authorities = 9;
    /// Keys are replaced after every few records.
    updates = 10;
    /// Datagrams of the tested side are as small as can be.
    is_narrow = 11;
    /// Early data goes with a session.
    early = 12;
    /// The master secret is not bound to the handshake: in TLS 1.2, who is tested sees no extended_master_secret.
    unbound = 13;
    /// TLS 1.2 may be renegotiated.
    renegotiates = 14;
    /// Revocation lists are looked at.
    revokes = 15;
}

impl Setting {
    /// From a script. Zeros are TLS with X.509, and nothing special.
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
        // There is no DTLS 1.2.
        if setting.kind == TransportKind::Datagram {
            setting.tls12 = None;
        }
        // A PSK says who the client is already.
        if setting.is_psk() {
            setting.client_auth = ClientAuth::None;
        }
        setting
    }

    /// The setting as it stands at the beginning of a script.
    pub fn write(first: u8, second: u8, flags: u16) -> Vec<u8> {
        let [a, b] = flags.to_be_bytes();
        vec![first, second, a, b]
    }

    /// Whether the two have an external PSK.
    pub(crate) const fn is_psk(&self) -> bool {
        matches!(self.way, Way::Psk | Way::PskAlone)
    }

    /// Whether the two meet once before for what both keep of it. RFC 7627 §5.3: neither side takes its session up again where
    /// extended_master_secret is gone, and both end there.
    pub(crate) fn is_rehearsed(&self) -> bool {
        (self.resumption != Resumption::None || self.cache.is_some()) && !self.is_unbound()
    }

    /// Whether the peer of the tested side leaves its certificates out where nothing is changed.
    pub(crate) fn is_peer_cached(&self, tested: Side) -> bool {
        let is_kept = match (tested, self.cache) {
            (_, None) => false,
            (Side::Client, Some(_)) => true,
            // RFC 7924 has nothing for the certificates of clients.
            (Side::Server, Some(mode)) => self.client_auth != ClientAuth::None && mode != CacheMode::Rfc7924,
        };
        // Whom somebody else has to be asked about is not kept, and a resumption shows no certificates.
        is_kept
            && self.is_rehearsed()
            && self.resumption == Resumption::None
            && !self.is_psk()
            && !self.asks()
    }

    /// Whether what is agreed is not bound to the handshake.
    pub(crate) const fn is_unbound(&self) -> bool {
        self.tls12.is_some() && self.unbound()
    }

    /// How records are protected in TLS 1.2.
    pub(crate) const fn tls12_protection(&self) -> Protection {
        let (tag_len, nonce_len) = match self.suites {
            2 => (8, 8),
            3 => (16, 0),
            _ => (16, 8),
        };
        Protection { tag_len, epoch: 0, tls12: Some(nonce_len) }
    }

    /// The keys of certificates.
    fn leaves(&self) -> Leaves {
        match self.tls12 {
            Some(Tls12 { is_rsa: true, .. }) => RSA_LEAVES,
            _ => ECDSA_LEAVES,
        }
    }

    /// The longest content of a record that both take, in bytes.
    pub(crate) const fn content_limit(&self) -> usize {
        if self.is_small() { SMALL_RECORDS as usize - 1 } else { 1 << 14 }
    }
}

/// The most early data that a server takes, in bytes.
pub(crate) const MAX_EARLY_DATA: u32 = 1000;

const SMALL_RECORDS: u16 = 100;

/// The two configurations, and what the questions of both are answered from.
pub(crate) struct World {
    /// What it was made of.
    pub(crate) setting: Setting,
    /// The client's.
    pub(crate) client: Arc<ClientConfig>,
    /// The server's.
    pub(crate) server: Arc<ServerConfig>,
    psk: Arc<Psk>,
    /// The sessions that the tested server asked to keep.
    pub(crate) sessions: HashMap<Vec<u8>, Session>,
}

impl World {
    /// The world of this setting, in which `tested` asks its questions and the other side has none.
    pub(crate) fn new(setting: Setting, tested: Side) -> Self {
        let psk = Arc::new(Psk::new(PSK_IDENTITY, &PSK).unwrap().with_hash(match setting.suites {
            1 => HashAlgorithm::Sha384,
            _ => HashAlgorithm::Sha256,
        }));
        let asks = |side| setting.asks() && side == tested;
        let mtu = |side| match side == tested && setting.is_narrow() {
            true => 64,
            false => 65507,
        };
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
        // Where PSKs are asked for, their sessions do not resume; early data would be refused then, and under keys
        // that hide nothing it cannot be told from what opens.
        let keys = || match asks(Side::Server) && !setting.early() {
            true => PskSource::Ask,
            false => PskSource::Here(Arc::new(PskTable::from_iter([Psk::new(PSK_IDENTITY, &PSK)
                .unwrap()
                .with_hash(psk.hash())]))),
        };
        let server = match setting.is_psk() {
            true => ServerConfig::psk_only(server, keys()),
            false => ServerConfig::new(server),
        };
        let server = server
            .and_then(|server| server.with_client_auth(setting.client_auth))
            .and_then(|server| server.with_mtu(mtu(Side::Server)))
            .unwrap()
            .with_cookies(setting.cookies())
            .with_tickets(tickets(&setting, provider));
        let server = server.with_profile_choice(setting.chooses() && tested == Side::Server);
        let (client, server) = match setting.early() {
            true => with_early_data(client, server, &setting, asks(Side::Server)),
            false => (client, server),
        };
        let (client, server) = match setting.cache {
            Some(mode) => with_cache(client, server, mode),
            None => (client, server),
        };
        let (client, server) = (Arc::new(client), Arc::new(server));
        Self { setting, client, server, psk, sessions: HashMap::new() }
    }

    /// The answer that lets the handshake go on.
    pub(crate) fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::ChooseProfile(_) => Answer::Profile(Some(self.server.clone())),
            Question::FindPsk { identity } => {
                Answer::Psk((identity == PSK_IDENTITY).then(|| self.psk.clone()))
            }
            Question::FindSession { id } => Answer::Session(self.sessions.get(id).cloned().map(Box::new)),
            Question::FirstUse { .. } => Answer::FirstUse(true),
            Question::Verify { .. } => Answer::Verified(Ok(())),
            Question::Sign { .. } => Answer::Signature(SIGNATURE.to_vec()),
            other => panic!("a question without answer: {other:?}"),
        }
    }
}

/// The server that the client connects to.
pub(crate) fn localhost() -> ServerAddress {
    ServerAddress::new(ServerName::try_from("localhost").unwrap(), 4433)
}

fn tickets(setting: &Setting, provider: Arc<CryptoProvider>) -> Tickets {
    let tickets = match setting.resumption {
        Resumption::None => return Tickets::none(),
        Resumption::Stateless => Tickets::stateless(Arc::new(RotatingTickets::new(provider).unwrap())),
        Resumption::Stateful => Tickets::stateful(Arc::new(MemoryServerSessions::new(4))),
        Resumption::Ask => Tickets::ask(),
    };
    tickets.count(2)
}

fn with_early_data(
    client: ClientConfig,
    server: ServerConfig,
    setting: &Setting,
    asks: bool,
) -> (ClientConfig, ServerConfig) {
    let protocols = EarlyDataProtocols::named(vec![b"mqtt".to_vec()]).and_unnamed();
    let single_use = match setting.resumption {
        Resumption::Stateful => SingleUse::Sessions,
        _ if asks => SingleUse::Ask,
        _ => SingleUse::Register(Arc::new(MemoryUseOnce::new(8, Now::default()))),
    };
    let server = server.with_early_data(protocols.clone(), MAX_EARLY_DATA, single_use).unwrap();
    (client.with_early_data(protocols), server)
}

fn with_cache(client: ClientConfig, server: ServerConfig, mode: CacheMode) -> (ClientConfig, ServerConfig) {
    let (servers, clients) = (Arc::new(MemoryClientCache::new(2)), Arc::new(MemoryServerCache::new(2)));
    let server = server.with_handshake_cache(mode, clients, DEFAULT_MAX_AGE).unwrap();
    (client.with_handshake_cache(mode, servers, DEFAULT_MAX_AGE), server)
}

/// The suites of TLS 1.2, those with the preferred key exchange first.
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

/// Read once: profiles are built for every input.
fn revocation() -> Revocation {
    static LISTS: LazyLock<Revocation> =
        LazyLock::new(|| Revocation::new(REVOCATION_LISTS.map(CertificateRevocationListDer::from)).unwrap());
    LISTS.clone()
}

/// Zlib that works once for each message: profiles are built for every input, always with the same few chains.
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
    let key = match asks {
        false => PrivateKey::Here(provider.key_loader.load(&PrivatePkcs8KeyDer::from(spki).into()).unwrap()),
        true => PrivateKey::Elsewhere {
            schemes: vec![match setting.tls12 {
                Some(Tls12 { is_rsa: true, .. }) => SignatureScheme::RSA_PSS_RSAE_SHA256,
                _ => SignatureScheme::ECDSA_SECP256R1_SHA256,
            }],
            label: "key".into(),
        },
    };
    match setting.way {
        Way::RawKey => {
            Credential::RawKey { public_key: SubjectPublicKeyInfoDer::from(spki).into_owned(), key }
        }
        _ => {
            let chain = [leaf, INTERMEDIATE].map(|der| CertificateDer::from(der).into_owned());
            Credential::X509 { chain: chain.to_vec(), key }
        }
    }
}
