//! The engine's configurations of a listener, made from its files and stores.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dunlin::auth::{FindPsk, Psk, RawKeyTrust, Revocation, Verifier, Verifiers, X509Trust};
use dunlin::cache::{CacheMode, ServerCache};
use dunlin::crypto::CryptoProvider;
use dunlin::pki_types::{CertificateDer, CertificateRevocationListDer, SubjectPublicKeyInfoDer};
use dunlin::resume::Tickets;
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{
    ClientAuth, ConnectionIds, CookieKeys, NodeIds, Profile, ProfileBuilder, PskSource, ServerConfig, Trust,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_pki::Item;
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_registry::stapler::Stapler;
use dunlin_store::cache::{CacheFault, CacheStore, OpenError};
use dunlin_store::psk::file::{Format, PskFile};
use dunlin_store::psk::sqlite::{LiveSqlitePsks, SqlitePsks};
use dunlin_store::psk::{PskError, ShortKeys};
use dunlin_store::text;
use dunlin_store::{
    MemoryServerCache, MemoryServerSessions, RememberedVerdicts, RotatingTickets, SharedLog, SharedTickets,
    StoreUrl,
};

use zeroize::Zeroizing;

use crate::config::{
    CacheConfig, CredentialTrust, Fault, Faults, FileField, FrozenConfig, ListenerConfig, RouteConfig,
    RouteProtocol, SharedConfig, Verify,
};
use crate::credentials::Learnt;
use crate::frozen::FrozenPlace;
use crate::listener::Password;
use crate::nodes::NodeKeys;
use crate::own::{self, Own};
use crate::policed::{self, Maker, Memory, Policed, PolicyFile, ProfileDigest};
use crate::shared::SharedClients;

/// The number of clients in a handshake cache in memory.
const MAX_CACHED: usize = 100_000;

/// The number of certificate chains of clients that a listener has verified and remembers, some 500 bytes
/// each.
const MAX_VERDICTS: usize = 10_000;

/// The number of sessions in memory of a listener.
const MAX_SESSIONS: usize = 10_000;

/// The length of connection IDs, in bytes: unique, and hard to guess.
const CONNECTION_ID: usize = 8;

/// The largest file of certificates, keys or CRLs, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The state that outlives a reload: ticket keys and handshake caches. A gateway has one.
pub(crate) struct Stores {
    pub(crate) provider: Arc<CryptoProvider>,
    /// The keys that the gateway shares with others that serve the same clients, if there are others.
    pub(crate) nodes: OnceLock<Arc<NodeKeys>>,
    /// The keys of cookies: a cookie of one configuration is valid for the next one.
    cookies: Mutex<Option<CookieKeys>>,
    /// Ticket keys by the names of listeners.
    tickets: Mutex<HashMap<String, Arc<RotatingTickets>>>,
    /// Ticket keys that other gateways have, too.
    shared_tickets: Mutex<HashMap<SharedName, Arc<SharedTickets>>>,
    /// Messages between gateways with the same policy.
    shared_logs: Mutex<HashMap<SharedName, Arc<SharedLog>>>,
    /// Sessions in memory by the names of listeners.
    sessions: Mutex<HashMap<String, Arc<MemoryServerSessions>>>,
    /// Caches by their stores; those in memory by the names of listeners.
    caches: Mutex<HashMap<CacheName, Arc<dyn ServerCache>>>,
    /// The memories of clients, by the files of policies.
    memories: Mutex<HashMap<PathBuf, Arc<Memory>>>,
    /// Files of frozen associations.
    frozen: Mutex<HashMap<PathBuf, Arc<FrozenPlace>>>,
    /// The knowledge from issuers and registries.
    pub(crate) learnt: Learnt,
}

/// The store, the key file and the name of a listener.
type SharedName = (String, PathBuf, String);

#[derive(Clone, PartialEq, Eq, Hash)]
enum CacheName {
    Memory(String),
    Store(StoreUrl),
}

impl Stores {
    pub(crate) fn new() -> Self {
        let provider = Arc::new(dunlin_awslc::provider());
        Self {
            provider,
            nodes: OnceLock::new(),
            cookies: Mutex::default(),
            tickets: Mutex::default(),
            shared_tickets: Mutex::default(),
            shared_logs: Mutex::default(),
            sessions: Mutex::default(),
            caches: Mutex::default(),
            memories: Mutex::default(),
            frozen: Mutex::default(),
            learnt: Learnt::default(),
        }
    }

    /// The memory of the clients of this policy. Listeners with the same policy share it.
    pub(crate) fn memory(&self, policy: &Path) -> Arc<Memory> {
        let mut all = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(policy.to_owned()).or_default().clone()
    }

    /// The file of frozen associations with its store. Files that are open stay open.
    pub(crate) fn frozen(&self, config: &FrozenConfig) -> Result<Arc<FrozenPlace>, Fault> {
        let mut all = self.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get(&config.file.value) {
            return Ok(place.clone());
        }
        let place = Arc::new(FrozenPlace::open(config, &self.provider)?);
        all.insert(config.file.value.clone(), place.clone());
        Ok(place)
    }

    fn cookies(&self) -> Result<CookieKeys, dunlin::Error> {
        if let Some(nodes) = self.nodes.get() {
            return Ok(nodes.cookies.clone());
        }
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
        let random = self.provider.random.clone();
        let ids: Arc<dyn ConnectionIds> = match self.nodes.get() {
            Some(nodes) => Arc::new(nodes.mask.ids(nodes.own, random)),
            None => Arc::new(NodeIds::new(&[], CONNECTION_ID, random)?),
        };
        Ok(config.with_cookie_keys(self.cookies()?).with_connection_ids(ids))
    }

    fn tickets(&self, listener: &ListenerConfig) -> Result<Tickets, Fault> {
        if listener.tickets == 0 {
            return Ok(Tickets::none());
        }
        if listener.needs_certificates() {
            // A stateless ticket does not carry the client's certificates.
            let mut all = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let sessions = all
                .entry(listener.name.clone())
                .or_insert_with(|| Arc::new(MemoryServerSessions::new(MAX_SESSIONS)));
            return Ok(Tickets::stateful(sessions.clone()).count(listener.tickets));
        }
        if let Some(shared) = &listener.shared {
            return Ok(Tickets::stateless(self.open_shared(listener, shared)?).count(listener.tickets));
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

    /// The ticket keys that the listener shares with other gateways, once its configurations are made.
    pub(crate) fn shared_tickets(&self, listener: &ListenerConfig) -> Option<Arc<SharedTickets>> {
        let all = self.shared_tickets.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&shared_name(listener, listener.shared.as_ref()?)).cloned()
    }

    /// The memory of the clients of the listener's policy, with the messages to other gateways whose policies
    /// have files of the same name.
    ///
    /// # Errors
    /// The table `[shared]` cannot be used.
    pub(crate) fn shared_clients(
        &self,
        listener: &ListenerConfig,
        policed: &Policed,
    ) -> Result<Option<SharedClients>, Fault> {
        let Some(shared) = &listener.shared else { return Ok(None) };
        let file = policed.path().file_name().unwrap_or_default().to_string_lossy();
        let name = (shared.store.value.clone(), shared.key.value.clone(), file.into_owned());
        let mut all = self.shared_logs.lock().unwrap_or_else(PoisonError::into_inner);
        let log = match all.get(&name) {
            Some(log) => log.clone(),
            None => {
                let opened =
                    SharedLog::open(&shared.store.value, &name.2, &shared.key.value, self.provider.clone());
                let log = Arc::new(opened.map_err(|error| fault_of(shared, &error))?);
                all.insert(name, log.clone());
                log
            }
        };
        let memory = policed.memory().clone();
        memory.addresses.share();
        Ok(Some(SharedClients { log, memory }))
    }

    fn open_shared(
        &self,
        listener: &ListenerConfig,
        shared: &SharedConfig,
    ) -> Result<Arc<SharedTickets>, Fault> {
        let mut all = self.shared_tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let name = shared_name(listener, shared);
        if let Some(tickets) = all.get(&name) {
            return Ok(tickets.clone());
        }
        let (store, key) = (&shared.store, &shared.key);
        let opened = SharedTickets::open(&store.value, &listener.name, &key.value, self.provider.clone());
        let tickets = Arc::new(opened.map_err(|error| fault_of(shared, &error))?);
        all.insert(name, tickets.clone());
        Ok(tickets)
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

/// The fault of the key that the error is about.
pub(crate) fn fault_of(shared: &SharedConfig, error: &OpenError) -> Fault {
    let place = if matches!(error, OpenError::Key { .. }) { &shared.key.place } else { &shared.store.place };
    place.fault(error.to_string(), error.advice())
}

fn shared_name(listener: &ListenerConfig, shared: &SharedConfig) -> SharedName {
    (shared.store.value.clone(), shared.key.value.clone(), listener.name.clone())
}

pub(crate) const REPORT: &str = "report this error";

/// The handshake cache in this store, with the settings of `config`.
pub(crate) fn store_at(store: &StoreUrl, config: &CacheConfig) -> CacheStore {
    let store = store.cache().with_max_age(config.max_age);
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
    ByRoute(Box<Routed>),
    /// The listener's policy chooses.
    ByPolicy(Arc<Policed>),
}

impl ServerConfigs {
    /// The configuration with which connections begin. It asks for another one. `None` for a listener without
    /// routes, which the configuration refuses.
    pub(crate) fn choosing(&self) -> Option<Arc<ServerConfig>> {
        match self {
            Self::ByRoute(routed) => Some(routed.made.load().choosing.clone()),
            Self::ByPolicy(policed) => policed.choosing(),
        }
    }

    /// The configurations for frozen associations that have begun with this profile, each with its route.
    pub(crate) fn thawing(&self, profile: ProfileDigest) -> Vec<(usize, Arc<ServerConfig>)> {
        match self {
            Self::ByRoute(routed) if profile == ProfileDigest::default() => {
                routed.made.load().routes.iter().cloned().enumerate().collect()
            }
            Self::ByRoute(_) => vec![],
            Self::ByPolicy(policed) => policed.thawing(profile),
        }
    }

    pub(crate) const fn policed(&self) -> Option<&Arc<Policed>> {
        match self {
            Self::ByRoute(_) => None,
            Self::ByPolicy(policed) => Some(policed),
        }
    }

    /// The sources of proofs of the listener's DIDs.
    pub(crate) fn staplers(&self) -> Vec<Arc<Stapler>> {
        self.maker().files.own.load().iter().filter_map(|own| own.stapler.clone()).collect()
    }

    fn maker(&self) -> &Maker {
        match self {
            Self::ByRoute(routed) => &routed.maker,
            Self::ByPolicy(policed) => policed.maker(),
        }
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        self.maker().stores.provider.clone()
    }

    /// The answers about clients whose documents are in a registry.
    pub(crate) fn answers(&self) -> Option<LookUpAnswers> {
        self.maker().files.answers.clone()
    }

    /// Whether this is the certificate with this number.
    pub(crate) fn is_in_force(&self, at: usize, own: &Own) -> bool {
        let all = self.maker().files.own.load();
        all.get(at).is_some_and(|other| !other.is_pending && other.leaf() == own.leaf())
    }

    /// Replaces the certificate with this number, for new connections.
    ///
    /// # Errors
    /// Requirements of the settings that the certificate does not meet. The previous certificate then stays
    /// in force.
    pub(crate) fn renew(&self, at: usize, own: Own) -> Result<(), Faults> {
        let maker = self.maker();
        let _change = maker.change();
        let mut all = maker.files.own.load().to_vec();
        if let Some(place) = all.get_mut(at) {
            *place = own;
        }
        match self {
            Self::ByRoute(routed) => {
                routed.made.store(Arc::new(Made::new(maker, &all).map_err(Faults::sorted)?));
            }
            Self::ByPolicy(policed) => policed.remake(&all).map_err(Faults::sorted)?,
        }
        maker.files.own.store(Arc::new(all));
        Ok(())
    }
}

/// The configurations of a listener without a policy.
pub(crate) struct Routed {
    maker: Maker,
    made: ArcSwap<Made>,
}

impl Routed {
    /// # Errors
    /// Settings that contradict each other.
    fn new(maker: Maker) -> Result<Self, Vec<Fault>> {
        let made = Made::new(&maker, &maker.files.own.load())?;
        Ok(Self { maker, made: ArcSwap::from_pointee(made) })
    }

    /// The configuration of the route with this number. `None` while it has no certificate.
    pub(crate) fn route(&self, number: usize) -> Option<Arc<ServerConfig>> {
        self.made.load().routes.get(number).cloned()
    }
}

/// The configurations made from a set of certificates.
struct Made {
    /// Chooses one of the others for each ClientHello.
    choosing: Arc<ServerConfig>,
    /// One for each route; none as long as clients would get neither a certificate nor a pre-shared key.
    routes: Vec<Arc<ServerConfig>>,
}

impl Made {
    fn new(maker: &Maker, own: &[Own]) -> Result<Self, Vec<Fault>> {
        let Maker { listener, files, tickets, cache, stores, .. } = maker;
        let mut faults = vec![];
        let own: Vec<_> = own.iter().filter(|own| !own.is_pending).collect();
        let profile = || profile(listener, files, &own, &stores.provider);
        let make = |route: &RouteConfig| {
            let config = server_config(listener, route, files, own.is_empty(), profile())?;
            let config = stores.over_datagrams(config.with_tickets(tickets.clone()))?;
            match cache {
                Some(Cache { mode, store, max_age }) => {
                    config.with_handshake_cache(*mode, store.clone(), *max_age)
                }
                None => Ok(config),
            }
        };
        let mut routes = vec![];
        let has_credentials = !own.is_empty() || files.psks.is_some();
        for route in listener.routes.iter().filter(|_| has_credentials) {
            match make(route) {
                Ok(config) => routes.push(Arc::new(config)),
                Err(error) => {
                    faults.push(
                        listener.place.fault(reason(&error), "change the settings or files named here"),
                    );
                }
            }
        }
        // Before a client has returned its cookie, this profile chooses version, suite and group, so it is
        // the profile of the routes.
        let base = profile().build().and_then(ServerConfig::choosing);
        match base.and_then(|config| stores.over_datagrams(config)) {
            Ok(choosing) if faults.is_empty() => Ok(Self { choosing: Arc::new(choosing), routes }),
            Ok(_) => Err(faults),
            Err(error) => {
                faults.push(listener.place.fault(reason(&error), REPORT));
                Err(faults)
            }
        }
    }
}

/// Reads the passwords of the routes.
pub(crate) fn passwords(
    listener: &ListenerConfig,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Vec<Option<Password>> {
    let mut password = |route: &RouteConfig| {
        let RouteProtocol::Mqtt(mqtt) = &route.protocol else { return None };
        let file = mqtt.password.as_ref()?;
        warnings.extend(open_to_others(&file.place, &file.value, "the password"));
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
            Err(error) => told(text::unreadable(&error, "").0),
        }
    };
    listener.routes.iter().map(&mut password).collect()
}

/// The content of a listener's files.
pub(crate) struct Files {
    /// In the order of the configuration. Certificates by ACME change.
    pub(crate) own: ArcSwap<Vec<Own>>,
    pub(crate) trust: Verifiers,
    /// The registry's answers about clients with verifiable credentials.
    answers: Option<LookUpAnswers>,
    /// Whether certificates, raw public keys or credentials of clients are trusted.
    pub(crate) trusts: bool,
    pub(crate) psks: Option<Arc<dyn FindPsk>>,
}

/// The handshake cache of a listener.
pub(crate) struct Cache {
    pub(crate) mode: CacheMode,
    pub(crate) store: Arc<dyn ServerCache>,
    pub(crate) max_age: Duration,
}

/// Reads the files of `listener` and makes its configurations. With `stores` it also opens the handshake
/// cache. `policy` is the content of the listener's policy file, unless that has a fault.
///
/// Faults are added to `faults`, and `None` is returned. Problems with which the gateway can go on are added
/// to `warnings`.
pub(crate) fn server_configs(
    listener: &ListenerConfig,
    policy: Option<Arc<PolicyFile>>,
    stores: &Arc<Stores>,
    opens_stores: bool,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Option<ServerConfigs> {
    let (before, clients) = (faults.len(), &listener.clients);
    let is_readable = |part| !faults.iter().any(|fault| listener.place.is_hidden_by(fault, part));
    let (is_complete, has_clients) = (is_readable(""), is_readable(".cert") && is_readable(".clients"));
    let own = own::of_listener(listener, stores, faults, warnings);
    let x509 = trust([&clients.ca, &clients.crl, &clients.raw_keys], faults);
    let (trust, answers) =
        verifiers(x509, &clients.credentials, &stores.provider, &stores.learnt, faults, warnings);
    let files = Files {
        own: ArcSwap::from_pointee(own),
        trust,
        answers,
        trusts: clients.trusts(),
        psks: psks(listener, &stores.provider, faults, warnings),
    };
    warnings.extend(listener.idle_cache());
    let cache = listener.cache.as_ref().filter(|_| opens_stores);
    let cache = cache.and_then(|config| match stores.cache(listener, config) {
        Ok(store) => Some(Cache { mode: config.mode, store, max_age: config.max_age }),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    let tickets = stores.tickets(listener).map_err(|fault| faults.push(fault)).ok();
    let is_complete = is_complete && faults.len() == before && listener.policy.is_some() == policy.is_some();
    let Some(tickets) = tickets.filter(|_| is_complete) else {
        // The engine would refuse missing parts, but these faults do not depend on them.
        if let Some(policy) = policy.filter(|_| has_clients) {
            faults.extend(policed::mismatches(listener, &policy.current()));
        }
        return None;
    };
    let maker = Maker {
        listener: listener.clone(),
        files,
        tickets,
        cache,
        stores: stores.clone(),
        change: Mutex::default(),
    };
    let made = match policy {
        Some(policy) => Policed::new(policy, maker).map(|policed| ServerConfigs::ByPolicy(Arc::new(policed))),
        None => Routed::new(maker).map(|routed| ServerConfigs::ByRoute(Box::new(routed))),
    };
    made.map_err(|found| faults.extend(found)).ok()
}

/// The engine's words for settings that contradict each other.
pub(crate) fn reason(error: &dunlin::Error) -> String {
    match error {
        dunlin::Error::Misuse(dunlin::error::Misuse::Config(why)) => why.clone(),
        error => error.to_string(),
    }
}

/// The part of a profile that all routes of a listener share.
fn profile(
    listener: &ListenerConfig,
    files: &Files,
    own: &[&Own],
    provider: &Arc<CryptoProvider>,
) -> ProfileBuilder {
    let mut profile = Profile::builder(provider.clone())
        .credentials(Own::credentials(listener.raw_public_key, own.iter().copied()))
        .trust(files.trust.clone())
        .ssi_messages(listener.messages())
        .x509_details(listener.needs_details());
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
    is_psk_only: bool,
    profile: ProfileBuilder,
) -> Result<ServerConfig, dunlin::Error> {
    let profile = profile.alpn(route.alpn.clone()).send_authorities(route.names_authorities()).build()?;
    let source = files.psks.clone().map(PskSource::Here);
    let config = match source {
        Some(source) if is_psk_only => ServerConfig::psk_only(profile, source)?,
        Some(source) => ServerConfig::new(profile)?.with_psks(source),
        None => ServerConfig::new(profile)?,
    };
    config.with_client_auth(match listener.clients.verify {
        Verify::None => ClientAuth::None,
        // With pre-shared keys alone, every client proves one.
        _ if !files.trusts => ClientAuth::None,
        Verify::Optional => ClientAuth::Optional,
        Verify::Required => ClientAuth::Required,
    })
}

pub(crate) fn in_file(place: &crate::config::Place, file: &Path, error: &dunlin_pki::Error) -> Fault {
    place.fault(format!("{}: {error}", file.display()), error.advice())
}

/// A warning if users outside of its group can access a file with `secrets` in it, such as "the key", or if
/// its group can write it. The group of the service may read it. Pipes are private.
pub(crate) fn open_to_others(place: &crate::config::Place, file: &Path, secrets: &str) -> Option<Fault> {
    let found = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
    let (mode, file) = (found.permissions().mode() & 0o777, file.display());
    (mode & 0o027 != 0).then(|| {
        let what = format!("{file}: other users can access {secrets} in it (mode {mode:04o})");
        place.fault(what, format!("chmod o=,g-w {file}"))
    })
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
        match read.and_then(|content| dunlin_pki::parse_for(&content, name, &choose)) {
            Ok(items) => all.extend(items),
            Err(error) => faults.push(in_file(&file.place, &file.value, &error)),
        }
    }
    all
}

pub(crate) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut content = vec![];
    std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MAX_FILE {
        true => Err(std::io::ErrorKind::FileTooLarge.into()),
        false => Ok(content),
    }
}

/// Adds trust in verifiable credentials and bare DIDs, and returns the look-ups that answer questions about
/// them.
pub(crate) fn verifiers(
    trust: Trust,
    credentials: &CredentialTrust,
    provider: &Arc<CryptoProvider>,
    learnt: &Learnt,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> (Verifiers, Option<LookUpAnswers>) {
    let Trust { x509, raw_key } = trust;
    let x509 =
        x509.map(|x509| Arc::new(RememberedVerdicts::new(Arc::new(x509), MAX_VERDICTS)) as Arc<dyn Verifier>);
    let raw_key = raw_key.map(|trust| Arc::new(trust) as Arc<dyn Verifier>);
    // The type with the smaller messages comes first, which is the last one that is added.
    let verifiers = x509.into_iter().chain(raw_key).fold(Verifiers::default(), Verifiers::with);
    let (judges, answers) = credentials.verifiers(provider, learnt, faults, warnings);
    (judges.into_iter().fold(verifiers, Verifiers::with), answers)
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
        // The error counts certificates or CRLs over all files.
        let mut fault = |files: &[FileField], file: &FileField, error: &dunlin::Error, advice| {
            let names: Vec<_> = files.iter().map(|file| file.value.display().to_string()).collect();
            faults.push(file.place.fault(format!("{}: {}", names.join(", "), reason(error)), advice));
        };
        x509 = X509Trust::anchors(certificates)
            .map_err(|error| fault(ca, file, &error, "give certificates of authorities in ca"))
            .ok();
        if let Some(file) = crl.first().filter(|_| !lists.is_empty()) {
            let checked = Revocation::new(lists).map(Revocation::refuse_overdue);
            let checked = checked
                .and_then(|revocation| x509.take().map(|x509| x509.with_revocation(revocation)).transpose());
            x509 = checked
                .map_err(|error| fault(crl, file, &error, "give one complete CRL of each issuer in crl"))
                .ok()
                .flatten();
        }
    }
    Trust { x509, raw_key: (!keys.is_empty()).then_some(RawKeyTrust::Keys(keys)) }
}

impl ListenerConfig {
    /// The pre-shared key that the listener finds now under this identity.
    ///
    /// # Errors
    /// The keys cannot be read.
    pub fn find_psk(&self, identity: &[u8]) -> Result<Option<Arc<Psk>>, Faults> {
        let mut faults = vec![];
        let keys = psks(self, &Arc::new(dunlin_awslc::provider()), &mut faults, &mut vec![]);
        Faults::none_in(faults)?;
        Ok(keys.and_then(|keys| keys.find(identity, dunlin_tokio::now())))
    }
}

fn psks(
    listener: &ListenerConfig,
    provider: &Arc<CryptoProvider>,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Option<Arc<dyn FindPsk>> {
    let file = listener.clients.psk.as_ref()?;
    let path = &file.value;
    warnings.extend(open_to_others(&file.place, path, "the keys"));
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
