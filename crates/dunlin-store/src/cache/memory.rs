//! The handshake cache ([`dunlin::cache`]) in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::cache::{CacheKey, CachedPeer, CachedServer, ClientCache, Fingerprint, ServerCache, Ticket};
use hashlink::{LinkedHashMap, LruCache};

/// What a client knows of servers, in memory: those that were used last.
pub struct MemoryClientCache {
    servers: Mutex<LruCache<CacheKey, CachedServer>>,
}

impl MemoryClientCache {
    /// Room for so many servers, at least one.
    pub fn new(servers: usize) -> Self {
        Self { servers: Mutex::new(LruCache::new(servers.max(1))) }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<CacheKey, CachedServer>> {
        // Nothing that runs under the lock leaves an entry half changed.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryClientCache {
    /// Room for 256 servers.
    fn default() -> Self {
        Self::new(256)
    }
}

impl ClientCache for MemoryClientCache {
    fn get(&self, key: &CacheKey) -> Option<CachedServer> {
        self.lock().get(key).cloned()
    }

    fn put(&self, key: CacheKey, entry: CachedServer) {
        self.lock().insert(key, entry);
    }
}

impl fmt::Debug for MemoryClientCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryClientCache").field("servers", &self.lock().len()).finish_non_exhaustive()
    }
}

/// A client under the settings that verified it.
type ClientKey = (Fingerprint, [u8; 32]);

/// What is kept of one client: its newest ticket, and the one before.
struct Client {
    peer: CachedPeer,
    tickets: [Option<Ticket>; 2],
}

#[derive(Default)]
struct Clients {
    /// Those that proved their key last stand last.
    entries: LinkedHashMap<ClientKey, Client>,
    by_ticket: HashMap<Ticket, ClientKey>,
}

/// What a server knows of clients, in memory: those that have proven their key last. A question for a ticket, which anybody can
/// put, keeps nobody in it.
pub struct MemoryServerCache {
    clients: Mutex<Clients>,
    capacity: usize,
}

impl MemoryServerCache {
    /// Room for so many clients, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { clients: Mutex::default(), capacity: capacity.max(1) }
    }

    /// How many clients there are.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        // Nothing that runs under the lock can fail half-way.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCache for MemoryServerCache {
    fn find(&self, ticket: &Ticket) -> Option<CachedPeer> {
        let clients = self.lock();
        clients.entries.get(clients.by_ticket.get(ticket)?).map(|client| client.peer.clone())
    }

    fn put(&self, ticket: Ticket, peer: CachedPeer, proven: Option<Ticket>) {
        let mut clients = self.lock();
        let key = (*peer.fingerprint(), *peer.settings().as_bytes());
        let before = clients.entries.remove(&key).map_or([None; 2], |client| client.tickets);
        for old in before.into_iter().flatten() {
            clients.by_ticket.remove(&old);
        }
        let older = proven.or(before[0]).filter(|older| *older != ticket);
        for name in [Some(ticket), older].into_iter().flatten() {
            // Of two clients with one ticket, which is chance, the later one has it.
            clients.by_ticket.insert(name, key);
        }
        clients.entries.insert(key, Client { peer, tickets: [Some(ticket), older] });
        if clients.entries.len() > self.capacity
            && let Some((key, client)) = clients.entries.pop_front()
        {
            for name in client.tickets.into_iter().flatten() {
                if clients.by_ticket.get(&name) == Some(&key) {
                    clients.by_ticket.remove(&name);
                }
            }
        }
    }
}

impl fmt::Debug for MemoryServerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServerCache").field("clients", &self.len()).finish_non_exhaustive()
    }
}
