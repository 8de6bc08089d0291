//! The engine's configurations of a listener, made from its files and stores.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use dunlin::auth::{FindPsk, RawKeyTrust, Revocation, X509Trust};
use dunlin::cache::{CacheMode, ServerCache};
use dunlin::crypto::CryptoProvider;
use dunlin::pki_types::{CertificateDer, CertificateRevocationListDer, SubjectPublicKeyInfoDer};
use dunlin::resume::Tickets;
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{
    ClientAuth, CookieKeys, Credential, NodeIds, Profile, ProfileBuilder, PskSource, ServerConfig, Side,
    Trust,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_pki::{Item, LoadedCredential};
use dunlin_store::cache::{CacheFault, CacheStore};
use dunlin_store::psk::file::{Format, PskFile};
use dunlin_store::psk::sqlite::{LiveSqlitePsks, SqlitePsks};
use dunlin_store::psk::{PskError, ShortKeys};
use dunlin_store::{MemoryServerCache, MemoryServerSessions, RotatingTickets};

use zeroize::Zeroizing;

use crate::config::{
    CacheConfig, CertificateFiles, Fault, FileField, ListenerConfig, RouteConfig, RouteProtocol, Verify,
};
use crate::listener::Password;
use crate::policed::{Maker, Memory, Policed, PolicyFile};

/// The number of clients in a handshake cache in memory.
const MAX_CACHED: usize = 100_000;

/// The number of sessions in memory of a listener.
const MAX_SESSIONS: usize = 10_000;

/// The length of connection IDs, in bytes: unique, and hard to guess.
const CONNECTION_ID: usize = 8;

/// The largest file of certificates, keys or CRLs, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The state that outlives a reload: ticket keys and handshake caches. A gateway has one.
pub(crate) struct Stores {
    pub(crate) provider: Arc<CryptoProvider>,
    /// The keys of cookies: a cookie of one configuration is valid for the next one.
    cookies: Mutex<Option<CookieKeys>>,
    /// Ticket keys by the names of listeners.
    tickets: Mutex<HashMap<String, Arc<RotatingTickets>>>,
    /// Sessions in memory by the names of listeners.
    sessions: Mutex<HashMap<String, Arc<MemoryServerSessions>>>,
    /// Caches by their stores; those in memory by the names of listeners.
    caches: Mutex<HashMap<CacheName, Arc<dyn ServerCache>>>,
    /// What the gateway remembers about clients, by the files of policies.
    memories: Mutex<HashMap<PathBuf, Arc<Memory>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum CacheName {
    Memory(String),
    Store(String),
}

impl Stores {
    pub(crate) fn new() -> Self {
        let provider = Arc::new(dunlin_awslc::provider());
        Self {
            provider,
            cookies: Mutex::default(),
            tickets: Mutex::default(),
            sessions: Mutex::default(),
            caches: Mutex::default(),
            memories: Mutex::default(),
        }
    }

    /// What the gateway remembers about the clients of this policy. Listeners with the same policy share it.
    pub(crate) fn memory(&self, policy: &Path) -> Arc<Memory> {
        let mut all = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(policy.to_owned()).or_default().clone()
    }

    fn cookies(&self) -> Result<CookieKeys, dunlin::Error> {
        let mut cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = &*cookies {
            return Ok(keys.clone());
        }
        let mut key = Zeroizing::new([0; 32]);
        self.provider.random.fill(&mut *key)?;
        let keys = CookieKeys::new(&*key)?;
        *cookies = Some(keys.clone());
        Ok(keys)
    }

    /// The settings of datagrams, without an effect on streams.
    pub(crate) fn over_datagrams(&self, config: ServerConfig) -> Result<ServerConfig, dunlin::Error> {
        let ids = NodeIds::new(&[], CONNECTION_ID, self.provider.random.clone())?;
        Ok(config.with_cookie_keys(self.cookies()?).with_connection_ids(Arc::new(ids)))
    }

    fn tickets(&self, listener: &ListenerConfig) -> Result<Tickets, Fault> {
        if listener.tickets == 0 {
            return Ok(Tickets::none());
        }
        if listener.routes.iter().any(|route| matches!(route.protocol, RouteProtocol::Http)) {
            // A stateless ticket does not carry the client's certificates, which servers over HTTP get.
            let mut all = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let sessions = all
                .entry(listener.name.clone())
                .or_insert_with(|| Arc::new(MemoryServerSessions::new(MAX_SESSIONS)));
            return Ok(Tickets::stateful(sessions.clone()).count(listener.tickets));
        }
        let mut all = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let seal = match all.get(&listener.name) {
            Some(seal) => seal.clone(),
            None => {
                let seal = RotatingTickets::new(self.provider.clone());
                let seal = Arc::new(seal.map_err(|error| listener.place.fault(error.to_string(), REPORT))?);
                all.insert(listener.name.clone(), seal.clone());
                seal
            }
        };
        Ok(Tickets::stateless(seal).count(listener.tickets))
    }

    fn cache(&self, listener: &ListenerConfig, config: &CacheConfig) -> Result<Arc<dyn ServerCache>, Fault> {
        let name = match &config.store {
            None => CacheName::Memory(listener.name.clone()),
            Some(store) => CacheName::Store(store.value.clone()),
        };
        let mut all = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache) = all.get(&name) {
            return Ok(cache.clone());
        }
        let cache: Arc<dyn ServerCache> = match &config.store {
            None => Arc::new(MemoryServerCache::new(MAX_CACHED)),
            Some(place) => {
                let opened =
                    store_at(&place.value, config).open_server(&self.provider, Box::new(report_cache));
                // The text of the store may contain a password, so only its error is shown.
                Arc::new(opened.map_err(|error| place.place.fault(error.to_string(), error.advice()))?)
            }
        };
        all.insert(name, cache.clone());
        Ok(cache)
    }
}

const REPORT: &str = "report this error";

/// The store at this place, with the settings of `config`.
pub(crate) fn store_at(place: &str, config: &CacheConfig) -> CacheStore {
    let store = match place.split_once(':') {
        Some(("sqlite", file)) => CacheStore::sqlite(file),
        Some(("redis" | "redis+unix", _)) => CacheStore::redis(place),
        _ => CacheStore::file(place),
    };
    let store = store.with_max_age(config.max_age);
    match &config.key {
        Some(key) => store.with_key_file(&key.value),
        None => store,
    }
}

/// Logs a failure of a store.
pub(crate) fn report_cache(fault: &CacheFault) {
    tracing::warn!(%fault, "handshake cache");
}

/// A listener's configurations for the engine.
pub(crate) enum ServerConfigs {
    /// Each route has one for all its clients.
    ByRoute {
        /// Chooses one of the others for each ClientHello.
        choosing: Arc<ServerConfig>,
        /// One for each route.
        routes: Vec<Arc<ServerConfig>>,
    },
    /// The listener's policy chooses.
    ByPolicy(Arc<Policed>),
}

impl ServerConfigs {
    /// The configuration with which connections begin. It asks for another one. `None` for a listener without routes, which the
    /// configuration refuses.
    pub(crate) fn choosing(&self) -> Option<Arc<ServerConfig>> {
        match self {
            Self::ByRoute { choosing, .. } => Some(choosing.clone()),
            Self::ByPolicy(policed) => policed.choosing(),
        }
    }

    pub(crate) const fn policed(&self) -> Option<&Arc<Policed>> {
        match self {
            Self::ByRoute { .. } => None,
            Self::ByPolicy(policed) => Some(policed),
        }
    }
}

/// Reads the passwords of the routes.
pub(crate) fn passwords(listener: &ListenerConfig, faults: &mut Vec<Fault>) -> Vec<Option<Password>> {
    let mut password = |route: &RouteConfig| {
        let RouteProtocol::Mqtt(mqtt) = &route.protocol else { return None };
        let file = mqtt.password.as_ref()?;
        let mut told = |what: String| {
            let advice = "write the password into it, in 1 to 65535 bytes and without a line break";
            faults.push(file.place.fault(format!("{}: {what}", file.value.display()), advice));
            None
        };
        match read(&file.value).map(Zeroizing::new) {
            Ok(mut content) => {
                while content.last().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
                    content.pop();
                }
                match content.len() {
                    1..=65_535 => Some(content),
                    len => told(format!("{len} bytes")),
                }
            }
            Err(error) => told(error.to_string()),
        }
    };
    listener.routes.iter().map(&mut password).collect()
}

/// A certificate of a listener, and its key as a raw public key.
pub(crate) struct Own {
    /// The name under which profiles of a policy list it.
    pub(crate) name: Option<String>,
    chain: Credential,
    raw: Credential,
}

/// What the files of a listener contain.
pub(crate) struct Files {
    pub(crate) own: Vec<Own>,
    pub(crate) trust: Trust,
    pub(crate) psks: Option<Arc<dyn FindPsk>>,
}

impl Files {
    /// These certificates. With `raw_public_key`, their keys as raw public keys come first.
    pub(crate) fn credentials<'a>(
        raw_public_key: bool,
        own: impl Iterator<Item = &'a Own> + Clone,
    ) -> Vec<Credential> {
        let raw = own.clone().filter(|_| raw_public_key).map(|own| own.raw.clone());
        raw.chain(own.map(|own| own.chain.clone())).collect()
    }

    /// Whether certificates or raw public keys of clients are trusted.
    pub(crate) const fn trusts(&self) -> bool {
        self.trust.x509.is_some() || self.trust.raw_key.is_some()
    }
}

/// The handshake cache of a listener.
pub(crate) struct Cache {
    pub(crate) mode: CacheMode,
    pub(crate) store: Arc<dyn ServerCache>,
    pub(crate) max_age: Duration,
}

/// Reads the files of `listener` and makes its configurations. With `stores` it also opens the handshake cache. `policy` is the content
/// of the listener's policy file.
///
/// Faults are added to `faults`, and `None` is returned. Problems with which the gateway can go on are added to `warnings`.
pub(crate) fn server_configs(
    listener: &ListenerConfig,
    policy: Option<Arc<PolicyFile>>,
    stores: &Arc<Stores>,
    opens_stores: bool,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Option<ServerConfigs> {
    let (before, clients) = (faults.len(), &listener.clients);
    let files = Files {
        own: credentials(&listener.certificates, Side::Server, &stores.provider, faults, warnings),
        trust: trust([&clients.ca, &clients.crl, &clients.raw_keys], faults),
        psks: psks(listener, &stores.provider, faults),
    };
    let cache = listener.cache.as_ref().filter(|_| opens_stores);
    let cache = cache.and_then(|config| match stores.cache(listener, config) {
        Ok(store) => Some(Cache { mode: config.mode, store, max_age: config.max_age }),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    let tickets = stores.tickets(listener).map_err(|fault| faults.push(fault)).ok()?;
    if faults.len() > before {
        return None;
    }
    if let Some(policy) = policy {
        let maker = Maker { listener: listener.clone(), files, tickets, cache, stores: stores.clone() };
        let policed = Policed::new(policy, maker);
        return policed
            .map_err(|found| faults.extend(found))
            .ok()
            .map(|policed| ServerConfigs::ByPolicy(Arc::new(policed)));
    }
    let make = |route: &RouteConfig| {
        let config = server_config(listener, route, &files, &stores.provider)?.with_tickets(tickets.clone());
        let config = stores.over_datagrams(config)?;
        match &cache {
            Some(Cache { mode, store, max_age }) => {
                config.with_handshake_cache(*mode, store.clone(), *max_age)
            }
            None => Ok(config),
        }
    };
    let mut routes = vec![];
    for route in &listener.routes {
        match make(route) {
            Ok(config) => routes.push(Arc::new(config)),
            Err(error) => {
                faults.push(listener.place.fault(reason(&error), "change the settings or files named here"));
            }
        }
    }
    // Before a client has returned its cookie, this profile chooses version, suite and group, so it is that of the routes.
    let base = profile(listener, &files, &stores.provider).build().and_then(ServerConfig::choosing);
    let base = base.and_then(|config| stores.over_datagrams(config));
    let choosing = base.map_err(|error| faults.push(listener.place.fault(reason(&error), REPORT))).ok()?;
    (faults.len() == before).then(|| ServerConfigs::ByRoute { choosing: Arc::new(choosing), routes })
}

/// The engine's words for settings that contradict each other.
pub(crate) fn reason(error: &dunlin::Error) -> String {
    match error {
        dunlin::Error::Misuse(dunlin::error::Misuse::Config(why)) => why.clone(),
        error => error.to_string(),
    }
}

/// The part of a profile that all routes of a listener share.
fn profile(listener: &ListenerConfig, files: &Files, provider: &Arc<CryptoProvider>) -> ProfileBuilder {
    let mut profile = Profile::builder(provider.clone())
        .credentials(Files::credentials(listener.raw_public_key, files.own.iter()))
        .trust(files.trust.clone());
    if listener.versions.tls12 {
        let mut suites = TLS12_CIPHER_SUITES.to_vec();
        if listener.clients.psk_without_dhe {
            suites.extend(TLS12_PSK_CIPHER_SUITES);
        }
        // A suite with a pre-shared key authenticates the client, as in TLS 1.3, so it comes first.
        suites.sort_by_key(|suite| files.psks.is_some() != suite.has_psk());
        profile = profile.tls12_cipher_suites(suites);
    }
    if !listener.versions.tls13 {
        profile = profile.cipher_suites(vec![]);
    }
    if listener.clients.psk_without_dhe {
        profile = profile.psk_modes(vec![PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE]);
    }
    profile
}

fn server_config(
    listener: &ListenerConfig,
    route: &RouteConfig,
    files: &Files,
    provider: &Arc<CryptoProvider>,
) -> Result<ServerConfig, dunlin::Error> {
    let profile = profile(listener, files, provider).alpn(route.alpn.clone()).build()?;
    let source = files.psks.clone().map(PskSource::Here);
    let config = match source {
        Some(source) if files.own.is_empty() => ServerConfig::psk_only(profile, source)?,
        Some(source) => ServerConfig::new(profile)?.with_psks(source),
        None => ServerConfig::new(profile)?,
    };
    config.with_client_auth(match listener.clients.verify {
        Verify::None => ClientAuth::None,
        // With pre-shared keys alone, every client proves one.
        _ if !files.trusts() => ClientAuth::None,
        Verify::Optional => ClientAuth::Optional,
        Verify::Required => ClientAuth::Required,
    })
}

/// Reads the certificates that `side` presents.
pub(crate) fn credentials(
    certificates: &[CertificateFiles],
    side: Side,
    provider: &CryptoProvider,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Vec<Own> {
    let mut own = vec![];
    for files in certificates {
        let key = files.key.as_ref().map(|key| key.value.as_path());
        let now = SystemTime::now();
        match LoadedCredential::load(&files.chain.value, key, side, now, provider) {
            Ok(loaded) => {
                if let Some(refusal) = &loaded.refusal {
                    let what = format!("{}: {refusal}", files.chain.value.display());
                    let advice = match side {
                        Side::Server => "clients will refuse it: renew it",
                        Side::Client => "servers will refuse it: renew it",
                    };
                    warnings.push(files.chain.place.fault(what, advice));
                }
                let name = files.name.as_ref().map(|name| name.value.clone());
                own.push(Own { name, chain: loaded.credential, raw: Credential::raw_key(loaded.key) });
            }
            Err(error) => {
                let of_key = files.key.as_ref().filter(|key| key.value == error.file);
                let place = of_key.map_or(&files.chain.place, |key| &key.place);
                faults.push(in_file(place, &error.file, &error.error));
            }
        }
    }
    own
}

fn in_file(place: &crate::config::Place, file: &Path, error: &dunlin_pki::Error) -> Fault {
    place.fault(format!("{}: {error}", file.display()), error.advice())
}

/// Reads the items of these files that `choose` returns; each file must have one.
fn items<T>(
    files: &[FileField],
    name: &'static str,
    faults: &mut Vec<Fault>,
    choose: impl Fn(Item) -> Option<T>,
) -> Vec<T> {
    let mut all = vec![];
    for file in files {
        let read = read(&file.value).map_err(|error| dunlin_pki::Error::Unreadable(error.kind()));
        match read.and_then(|content| dunlin_pki::parse(&content)) {
            Ok(items) => {
                let before = all.len();
                all.extend(items.into_iter().filter_map(&choose));
                if all.len() == before {
                    faults.push(in_file(&file.place, &file.value, &dunlin_pki::Error::Missing(name)));
                }
            }
            Err(error) => faults.push(in_file(&file.place, &file.value, &error)),
        }
    }
    all
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut content = vec![];
    std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MAX_FILE {
        true => Err(std::io::ErrorKind::FileTooLarge.into()),
        false => Ok(content),
    }
}

/// Reads certificates of trusted authorities, their CRLs, and trusted raw public keys.
pub(crate) fn trust([ca, crl, raw_keys]: [&[FileField]; 3], faults: &mut Vec<Fault>) -> Trust {
    let certificates: Vec<CertificateDer<'static>> = items(ca, "certificate", faults, |item| match item {
        Item::Certificate(der) => Some(der),
        _ => None,
    });
    let lists: Vec<CertificateRevocationListDer<'static>> = items(crl, "CRL", faults, |item| match item {
        Item::RevocationList(der) => Some(der),
        _ => None,
    });
    let keys: Vec<SubjectPublicKeyInfoDer<'static>> =
        items(raw_keys, "public key", faults, |item| match item {
            Item::PublicKey(der) => Some(der),
            Item::PrivateKey(pair) => Some(pair.public_key().clone()),
            _ => None,
        });
    let mut x509 = None;
    if let Some(file) = ca.first().filter(|_| !certificates.is_empty()) {
        let trust = X509Trust::anchors(certificates).and_then(|trust| match lists.is_empty() {
            true => Ok(trust),
            false => trust.with_revocation(Revocation::new(lists)?.refuse_overdue()),
        });
        let advice = "give certificates of authorities in ca, and their CRLs of version 2 in crl";
        x509 = trust.map_err(|error| faults.push(file.place.fault(reason(&error), advice))).ok();
    }
    Trust { x509, raw_key: (!keys.is_empty()).then_some(RawKeyTrust::Keys(keys)) }
}

fn psks(
    listener: &ListenerConfig,
    provider: &Arc<CryptoProvider>,
    faults: &mut Vec<Fault>,
) -> Option<Arc<dyn FindPsk>> {
    let file = listener.clients.psk.as_ref()?;
    let path = &file.value;
    let report = |then: &'static str| {
        let path = path.display().to_string();
        Box::new(move |error: &PskError| tracing::warn!(file = path, %error, "pre-shared keys: {then}"))
    };
    let opened: Result<Arc<dyn FindPsk>, PskError> = match Format::of(path) == Format::Sqlite && path.exists()
    {
        true => SqlitePsks::open(path).map(|psks| {
            let report = report("the gateway refuses all keys until it can read them");
            Arc::new(LiveSqlitePsks::new(psks, provider.clone(), report)) as _
        }),
        false => {
            let report = report("the previous keys stay in force");
            PskFile::open(path, ShortKeys::Refuse, provider.clone(), report).map(|psks| Arc::new(psks) as _)
        }
    };
    let fault = |error: PskError| {
        let what = format!("{}: {error}", path.display());
        file.place.fault(what, "make keys with `dunlin psk new`, or correct the file")
    };
    opened.map_err(|error| faults.push(fault(error))).ok()
}
