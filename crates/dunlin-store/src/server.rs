//! A server's sessions.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::Now;
use dunlin::resume::{ServerSessions, Session};
use hashlink::LinkedHashMap;

/// A server's sessions in memory, the oldest first. They are forgotten once they were resumed, when room is needed,
/// or when they have expired.
pub struct MemoryServerSessions {
    sessions: Mutex<LinkedHashMap<Vec<u8>, Session>>,
    capacity: usize,
}

impl MemoryServerSessions {
    /// Room for so many sessions, at least one. When it is full, the oldest goes: with one lifetime for all, it is
    /// the one that would expire first.
    pub fn new(capacity: usize) -> Self {
        Self { sessions: Mutex::default(), capacity: capacity.max(1) }
    }

    /// Forgets the sessions that cannot be used any more. They are never resumed; this only gives their memory back
    /// and wipes their secrets early.
    pub fn remove_expired(&self, now: Now) {
        self.lock().retain(|_, session| session.is_fresh(now));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, LinkedHashMap<Vec<u8>, Session>> {
        // Nothing that runs under the lock leaves the map half changed.
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
