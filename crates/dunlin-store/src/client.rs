//! A client's sessions.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::Now;
use dunlin::resume::{ClientSession, ClientSessions, SessionKey};
use hashlink::LruCache;

type Servers = LruCache<SessionKey, VecDeque<ClientSession>>;

/// A client's sessions in memory: a few for each of the most recently used servers.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::ClientConfig;
/// use dunlin_store::MemoryClientSessions;
///
/// # fn resuming(client: ClientConfig) -> ClientConfig {
/// // Four sessions for each of 100 servers.
/// client.with_sessions(Arc::new(MemoryClientSessions::new(100, 4)))
/// # }
/// ```
pub struct MemoryClientSessions {
    servers: Mutex<Servers>,
    tickets: usize,
}

impl MemoryClientSessions {
    /// Room for `servers` servers with `tickets` sessions each; at least one of each.
    pub fn new(servers: usize, tickets: usize) -> Self {
        Self { servers: Mutex::new(LruCache::new(servers.max(1))), tickets: tickets.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Servers> {
        // No code panics halfway through a change under this lock.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryClientSessions {
    /// Room for 256 servers with 4 sessions each.
    fn default() -> Self {
        Self::new(256, 4)
    }
}

impl ClientSessions for MemoryClientSessions {
    fn put(&self, key: SessionKey, session: ClientSession) {
        let mut servers = self.lock();
        if let Some(tickets) = servers.get_mut(&key) {
            tickets.push_back(session);
            if tickets.len() > self.tickets {
                tickets.pop_front();
            }
        } else {
            servers.insert(key, VecDeque::from([session]));
        }
    }

    fn take(&self, key: &SessionKey, now: Now) -> Option<ClientSession> {
        let mut servers = self.lock();
        let tickets = servers.get_mut(key)?;
        tickets.retain(|t| t.is_fresh(now));
        let newest = tickets.pop_back();
        if tickets.is_empty() {
            servers.remove(key);
        }
        newest
    }

    fn forget(&self, key: &SessionKey, ticket: &[u8]) {
        let mut servers = self.lock();
        let Some(tickets) = servers.get_mut(key) else { return };
        tickets.retain(|t| t.ticket() != ticket);
        if tickets.is_empty() {
            servers.remove(key);
        }
    }
}

impl fmt::Debug for MemoryClientSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryClientSessions").field("servers", &self.lock().len()).finish_non_exhaustive()
    }
}
