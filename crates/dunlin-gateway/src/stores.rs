//! The state that outlives a reload: keys of tickets and cookies, sessions, handshake caches, frozen
//! associations and the memories of clients.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dunlin::cache::ServerCache;
use dunlin::crypto::CryptoProvider;
use dunlin::resume::Tickets;
use dunlin::{ConnectionIds, CookieKeys, NodeIds, ServerConfig};
use dunlin_store::cache::{CacheFault, CacheStore};
use dunlin_store::{
    MemoryServerCache, MemoryServerSessions, RotatingTickets, SharedLog, SharedTickets, StoreUrl,
};
use zeroize::Zeroizing;

use crate::config::{CacheConfig, Fault, FrozenConfig, ListenerConfig, SharedConfig};
use crate::files::REPORT;
use crate::frozen::FrozenPlace;
use crate::learned::Learnt;
use crate::memory::{Memory, PolicyFile};
use crate::nodes::NodeKeys;
use crate::shared_clients::SharedClients;

/// The number of clients in a handshake cache in memory.
const MAX_CACHED: usize = 100_000;

/// The number of sessions in memory of a listener.
const MAX_SESSIONS: usize = 10_000;

/// The length of connection IDs, in bytes: unique, and hard to guess.
const CONNECTION_ID: usize = 8;

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

    pub(crate) fn tickets(&self, listener: &ListenerConfig) -> Result<Tickets, Fault> {
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
        policy: &PolicyFile,
    ) -> Result<Option<SharedClients>, Fault> {
        let Some(shared) = &listener.shared else { return Ok(None) };
        let file = policy.path().file_name().unwrap_or_default().to_string_lossy();
        let name = (shared.store.value.clone(), shared.key.value.clone(), file.into_owned());
        let mut all = self.shared_logs.lock().unwrap_or_else(PoisonError::into_inner);
        let log = match all.get(&name) {
            Some(log) => log.clone(),
            None => {
                let opened =
                    SharedLog::open(&shared.store.value, &name.2, &shared.key.value, self.provider.clone());
                let log = Arc::new(opened.map_err(|error| shared.fault(&error))?);
                all.insert(name, log.clone());
                log
            }
        };
        let memory = policy.memory().clone();
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
        let tickets = Arc::new(opened.map_err(|error| shared.fault(&error))?);
        all.insert(name, tickets.clone());
        Ok(tickets)
    }

    pub(crate) fn cache(
        &self,
        listener: &ListenerConfig,
        config: &CacheConfig,
    ) -> Result<Arc<dyn ServerCache>, Fault> {
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

fn shared_name(listener: &ListenerConfig, shared: &SharedConfig) -> SharedName {
    (shared.store.value.clone(), shared.key.value.clone(), listener.name.clone())
}

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
