//! The state that outlives a reload: keys of tickets and cookies, sessions, handshake caches, frozen
//! associations and the memories of clients.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dunlin::cache::ServerCache;
use dunlin::crypto::CryptoProvider;
use dunlin::resume::Tickets;
use dunlin::{ConnectionIds, CookieKeys, NodeIds, ServerConfig};
use dunlin_setup::files::REPORT;
use dunlin_store::cache::{CacheFault, CacheStore};
use dunlin_store::{
    MemoryServerCache, MemoryServerSessions, RotatingTickets, SharedLog, SharedTickets, StoreUrl,
};
use zeroize::Zeroizing;

use crate::config::{CacheConfig, Fault, FrozenConfig, ListenerConfig, SharedConfig};
use crate::frozen::FrozenPlace;
use crate::known::Learned;
use crate::memory::Memory;
use crate::nodes::NodeKeys;
use crate::policy_file::PolicyFile;
use crate::shared_clients::SharedClients;

/// The number of clients in a handshake cache in memory.
const MAX_CACHED: usize = 100_000;

/// The number of sessions in memory of a listener.
const MAX_SESSIONS: usize = 10_000;

/// The length of connection IDs, in bytes: unique, and hard to guess.
const CONNECTION_ID: usize = 8;

/// Values that outlive a reload, by their names.
struct Kept<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    fn get(&self, name: &K) -> Option<V> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The value of this name. `open` makes a missing one.
    fn open<E>(&self, name: K, open: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = all.get(&name) {
            return Ok(kept.clone());
        }
        let value = open(&name)?;
        all.insert(name, value.clone());
        Ok(value)
    }
}

/// The tickets of a gateway's listeners.
#[derive(Default)]
struct TicketStores {
    /// The keys of listeners by their names.
    keys: Kept<String, Arc<RotatingTickets>>,
    /// Keys that other gateways have, too.
    shared: Kept<SharedName, Arc<SharedTickets>>,
    /// Sessions in memory by the names of listeners.
    sessions: Kept<String, Arc<MemoryServerSessions>>,
}

/// A gateway's memories of clients.
#[derive(Default)]
struct Memories {
    /// By the files of policies.
    all: Kept<PathBuf, Arc<Memory>>,
    /// Messages between gateways with the same policy.
    logs: Kept<SharedName, Arc<SharedLog>>,
}

/// The state that outlives a reload. A gateway has one.
pub(crate) struct Stores {
    pub(crate) provider: Arc<CryptoProvider>,
    /// The keys that the gateway shares with others that serve the same clients, if there are others.
    pub(crate) nodes: OnceLock<Arc<NodeKeys>>,
    /// The keys of cookies: a cookie of one configuration is valid for the next one.
    cookies: Kept<(), CookieKeys>,
    tickets: TicketStores,
    /// Caches by their stores; those in memory by the names of listeners.
    caches: Kept<CacheName, Arc<dyn ServerCache>>,
    memories: Memories,
    /// Files of frozen associations.
    frozen: Kept<PathBuf, Arc<FrozenPlace>>,
    /// The knowledge from issuers and registries.
    pub(crate) learned: Learned,
}

/// The store, the key file, and the name of a listener or policy.
type SharedName = (String, PathBuf, String);

#[derive(PartialEq, Eq, Hash)]
enum CacheName {
    Memory(String),
    Store(StoreUrl),
}

impl Stores {
    pub(crate) fn new() -> Self {
        Self {
            provider: Arc::new(dunlin_awslc::provider()),
            nodes: OnceLock::new(),
            cookies: Kept::default(),
            tickets: TicketStores::default(),
            caches: Kept::default(),
            memories: Memories::default(),
            frozen: Kept::default(),
            learned: Learned::default(),
        }
    }

    /// The memory of the clients of this policy. Listeners with the same policy share it.
    pub(crate) fn memory(&self, policy: &Path) -> Arc<Memory> {
        let Ok(memory) = self.memories.all.open(policy.to_owned(), |_| Ok::<_, Infallible>(Arc::default()));
        memory
    }

    /// The file of frozen associations with its store. Files that are open stay open.
    pub(crate) fn frozen(&self, config: &FrozenConfig) -> Result<Arc<FrozenPlace>, Fault> {
        let open = |_: &PathBuf| FrozenPlace::open(config, &self.provider).map(Arc::new);
        self.frozen.open(config.file.value.clone(), open)
    }

    fn cookies(&self) -> Result<CookieKeys, dunlin::Error> {
        if let Some(nodes) = self.nodes.get() {
            return Ok(nodes.cookies.clone());
        }
        self.cookies.open((), |()| {
            let mut key = Zeroizing::new([0; 32]);
            self.provider.random.fill(&mut *key)?;
            CookieKeys::new(&*key)
        })
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
        let provider = &self.provider;
        let name = listener.name.clone();
        let tickets = if listener.tickets == 0 {
            return Ok(Tickets::none());
        } else if listener.needs_certificates() {
            // A stateless ticket does not carry the client's certificates.
            let open = |_: &String| Ok(Arc::new(MemoryServerSessions::new(MAX_SESSIONS)));
            Tickets::stateful(self.tickets.sessions.open(name, open)?)
        } else if let Some(shared) = &listener.shared {
            let store = &shared.store.value;
            let key = &shared.key.value;
            let open = |name: &SharedName| {
                let opened = SharedTickets::open(store, &name.2, key, provider.clone());
                opened.map(Arc::new).map_err(|error| shared.fault(&error))
            };
            Tickets::stateless(self.tickets.shared.open(shared_name(shared, name), open)?)
        } else {
            let open = |_: &String| {
                let seal = RotatingTickets::new(provider.clone());
                seal.map(Arc::new).map_err(|error| listener.place.fault(error.to_string(), REPORT))
            };
            Tickets::stateless(self.tickets.keys.open(name, open)?)
        };
        Ok(tickets.count(listener.tickets))
    }

    /// The ticket keys that the listener shares with other gateways, once its configurations are made.
    pub(crate) fn shared_tickets(&self, listener: &ListenerConfig) -> Option<Arc<SharedTickets>> {
        self.tickets.shared.get(&shared_name(listener.shared.as_ref()?, listener.name.clone()))
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
        let log = self.memories.logs.open(shared_name(shared, file.into_owned()), |name| {
            let opened =
                SharedLog::open(&shared.store.value, &name.2, &shared.key.value, self.provider.clone());
            opened.map(Arc::new).map_err(|error| shared.fault(&error))
        })?;
        let memory = policy.memory().clone();
        memory.addresses.share();
        Ok(Some(SharedClients { log, memory }))
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
        self.caches.open(name, |_| match &config.store {
            None => Ok(Arc::new(MemoryServerCache::new(MAX_CACHED)) as _),
            Some(store) => {
                let opened =
                    store_at(&store.value, config).open_server(&self.provider, Box::new(report_cache));
                // The text of the store may contain a password, so only its error is shown.
                let opened = opened.map_err(|error| store.place.fault(error.to_string(), error.advice()))?;
                Ok(Arc::new(opened) as _)
            }
        })
    }
}

fn shared_name(shared: &SharedConfig, name: String) -> SharedName {
    (shared.store.value.clone(), shared.key.value.clone(), name)
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
