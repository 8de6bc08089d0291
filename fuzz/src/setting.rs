//! Who meets whom: the two configurations of a handshake, chosen by the first bytes of a script.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use dunlin::auth::{PrivateKey, Psk, PskTable, RawKeyTrust, X509Trust};
use dunlin::compression::{CertificateCompressor, CompressionFailed};
use dunlin::crypto::{CryptoProvider, HashAlgorithm};
use dunlin::resume::{Session, Tickets};
use dunlin::wire::CertificateCompressionAlgorithm;
use dunlin::wire::{CipherSuite, PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, EarlyDataProtocols, Now, Profile, PskSource, Question,
    ServerAddress, ServerConfig, Side, SingleUse, TransportKind, Trust,
};
use dunlin_compress::{ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR};
use dunlin_null::SIGNATURE;
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, MemoryUseOnce, RotatingTickets};
use pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer};

use crate::script::Script;

/// 2027-01-01T00:00:00Z, when the certificates of the fixtures are valid.
pub(crate) const NOW: Now = Now::from_unix_ms(1_798_761_600_000);

const ROOT: &[u8] = include_bytes!("../fixtures/root.der");
const INTERMEDIATE: &[u8] = include_bytes!("../fixtures/intermediate.der");
const LEAVES: [(&[u8], &[u8]); 2] = [
    (include_bytes!("../fixtures/client.der"), include_bytes!("../fixtures/client.spki.der")),
    (include_bytes!("../fixtures/server.der"), include_bytes!("../fixtures/server.spki.der")),
];
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
    /// Suites: 0 all, 1 AES-256-GCM with SHA-384, 2 AES-128-CCM_8.
    pub(crate) suites: u8,
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
            suites: (second >> 2) % 3,
            flags: script.u16(),
        };
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
        let [client, server] = [Side::Client, Side::Server].map(|side| profile(&setting, side, asks(side)));
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
        let mut server = ServerConfig::new(server)
            .and_then(|server| server.with_client_auth(setting.client_auth))
            .and_then(|server| server.with_mtu(mtu(Side::Server)))
            .unwrap()
            .with_cookies(setting.cookies())
            .with_tickets(tickets(&setting, provider));
        if setting.is_psk() {
            // Where PSKs are asked for, their sessions do not resume; early data would be refused then, and under keys
            // that hide nothing it cannot be told from what opens.
            server = server.with_psks(match asks(Side::Server) && !setting.early() {
                true => PskSource::Ask,
                false => PskSource::Here(Arc::new(PskTable::from_iter([Psk::new(PSK_IDENTITY, &PSK)
                    .unwrap()
                    .with_hash(psk.hash())]))),
            });
        }
        let server = server.with_profile_choice(setting.chooses() && tested == Side::Server);
        let (client, server) = match setting.early() {
            true => with_early_data(client, server, &setting, asks(Side::Server)),
            false => (client, server),
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

fn profile(setting: &Setting, side: Side, asks: bool) -> Profile {
    let provider = Arc::new(dunlin_null::null_provider());
    let mut builder = Profile::builder(provider.clone()).danger_skip_provider_check();
    let only = match setting.suites {
        1 => Some(CipherSuite::TLS_AES_256_GCM_SHA384),
        2 => Some(CipherSuite::TLS_AES_128_CCM_8_SHA256),
        _ => None,
    };
    if let Some(only) = only {
        builder = builder.cipher_suites(vec![provider.suite(only).unwrap()]);
    }
    builder = match setting.way {
        Way::X509 => {
            let root = X509Trust::anchors([CertificateDer::from(ROOT)]).unwrap();
            let trust = if asks { X509Trust::Ask } else { root };
            builder.trust(Trust { x509: Some(trust), raw_key: None })
        }
        Way::RawKey => {
            let keys = LEAVES.iter().map(|(_, key)| SubjectPublicKeyInfoDer::from(*key).into_owned());
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
    let (leaf, spki) = LEAVES[usize::from(side == Side::Server)];
    let key = match asks {
        false => PrivateKey::Here(provider.key_loader.load(&PrivatePkcs8KeyDer::from(spki).into()).unwrap()),
        true => PrivateKey::Elsewhere {
            schemes: vec![SignatureScheme::ECDSA_SECP256R1_SHA256],
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
