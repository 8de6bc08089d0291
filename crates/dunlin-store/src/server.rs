//! A server's sessions.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::Now;
use dunlin::resume::{ServerSessions, Session};
use hashlink::LinkedHashMap;

/// A server's sessions in memory, oldest first. A session is removed when it is resumed, when the store is
/// full, or when it has expired.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::ServerConfig;
/// use dunlin::resume::Tickets;
/// use dunlin_store::MemoryServerSessions;
///
/// # fn resuming(server: ServerConfig) -> ServerConfig {
/// server.with_tickets(Tickets::stateful(Arc::new(MemoryServerSessions::new(10_000))))
/// # }
/// ```
pub struct MemoryServerSessions {
    sessions: Mutex<LinkedHashMap<Vec<u8>, Session>>,
    capacity: usize,
}

impl MemoryServerSessions {
    /// Room for `capacity` sessions, at least one. A full store drops the oldest session, which would expire
    /// first if all sessions have the same lifetime.
    pub fn new(capacity: usize) -> Self {
        Self { sessions: Mutex::default(), capacity: capacity.max(1) }
    }

    /// Removes the sessions that have expired. The engine never resumes them; this frees their memory and
    /// wipes their secrets early.
    pub fn remove_expired(&self, now: Now) {
        self.lock().retain(|_, session| session.is_fresh(now));
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, LinkedHashMap<Vec<u8>, Session>> {
        // No code panics halfway through a change under this lock.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerSessions for MemoryServerSessions {
    fn put(&self, id: &[u8], session: Session) {
        let mut sessions = self.lock();
        sessions.insert(id.to_vec(), session);
        if sessions.len() > self.capacity {
            sessions.pop_front();
        }
    }

    fn find(&self, id: &[u8]) -> Option<Session> {
        self.lock().get(id).cloned()
    }

    fn remove(&self, id: &[u8]) -> bool {
        self.lock().remove(id).is_some()
    }
}

impl fmt::Debug for MemoryServerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServerSessions").field("sessions", &self.len()).finish_non_exhaustive()
    }
}
