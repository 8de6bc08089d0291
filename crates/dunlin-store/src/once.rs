//! Which tickets early data came with.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use dunlin::Now;
use dunlin::early::EARLY_DATA_WINDOW;
use dunlin::resume::UseOnce;

/// A register of used tickets in memory, for the servers of one process. When it is full it refuses rather than forgets:
/// a flood of early data costs other clients a round trip and opens nobody to replays.
pub struct MemoryUseOnce {
    /// Until when each is remembered, in milliseconds since 1970.
    used: Mutex<HashMap<[u8; 32], u64>>,
    capacity: usize,
    /// From when on it knows all that can come again, in milliseconds since 1970.
    ready_ms: u64,
}

impl MemoryUseOnce {
    /// Room for so many tickets at once, 32 bytes and a date each. What came before `started` is not known, so nothing is
    /// taken for new until it would be refused for its age (RFC 8446 §8.2).
    pub fn new(capacity: usize, started: Now) -> Self {
        let window = u64::try_from(2 * EARLY_DATA_WINDOW.as_millis()).unwrap_or(u64::MAX);
        Self { used: Mutex::default(), capacity, ready_ms: started.unix_ms.saturating_add(window) }
    }

    /// The same where no ticket from before can be opened: the keys of the tickets were made with it.
    pub fn with_new_keys(capacity: usize) -> Self {
        Self { used: Mutex::default(), capacity, ready_ms: 0 }
    }
}

impl UseOnce for MemoryUseOnce {
    fn first_use(&self, now: Now, id: &[u8; 32], until_ms: u64) -> bool {
        if now.unix_ms < self.ready_ms {
            return false;
        }
        // Nothing that runs under the lock leaves the map half changed.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains_key(id) {
            return false;
        }
        if used.len() >= self.capacity {
            used.retain(|_, until| *until >= now.unix_ms);
        }
        used.len() < self.capacity && used.insert(*id, until_ms).is_none()
    }
}

impl fmt::Debug for MemoryUseOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryUseOnce").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
