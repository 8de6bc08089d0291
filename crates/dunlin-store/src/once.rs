//! Which tickets early data came with.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dunlin::early::EARLY_DATA_WINDOW;
use dunlin::resume::UseOnce;
use dunlin::{Instant, Now};

/// A register of used tickets in memory, for the servers of one process. What it says no to does not come again either: a
/// ticket for which it has no room closes it until the first flight that brought the ticket is too old. So a flood of early
/// data costs other clients a round trip, and opens nobody to replays.
pub struct MemoryUseOnce {
    register: Mutex<Register>,
    capacity: usize,
    /// When it began to know, if something came before.
    started: Option<Instant>,
}

type Id = [u8; 32];

/// All times are in milliseconds since 1970.
#[derive(Default)]
struct Register {
    /// Until when each is remembered.
    known: HashMap<Id, u64>,
    /// The same, soonest first.
    by_date: BTreeSet<(u64, Id)>,
    /// The last moment at which a flight may be fresh whose ticket has come and is not known: it came before the start, or
    /// was refused for lack of room, or was forgotten, which matters where the clock goes back.
    unknown_until: u64,
}

impl Register {
    /// Remembers the ticket if there is room; whether it comes for the first time.
    fn is_new(&mut self, now: u64, id: Id, until: u64, capacity: usize) -> bool {
        while let Some((date, old)) = self.by_date.first().copied()
            && date < now
        {
            self.by_date.pop_first();
            self.known.remove(&old);
            self.unknown_until = self.unknown_until.max(date);
        }
        let known = self.known.get(&id).copied();
        if known.is_none() && self.known.len() >= capacity {
            self.unknown_until = self.unknown_until.max(until);
            return false;
        }
        // One ticket can come with flights that are fresh at different times.
        if known.is_none_or(|date| date < until) {
            if let Some(date) = self.known.insert(id, until) {
                self.by_date.remove(&(date, id));
            }
            self.by_date.insert((until, id));
        }
        known.is_none() && now > self.unknown_until
    }
}

/// So long after its arrival a first flight that was taken can be fresh: its sender's clock may be ahead by a window.
const TWO_WINDOWS: Duration = EARLY_DATA_WINDOW.saturating_mul(2);

impl MemoryUseOnce {
    /// Room for so many tickets at once, twice 32 bytes and a date each. What came before `started` is not known, so nothing
    /// is taken for new until what was taken then would be refused for its age (RFC 8446 §8.2), by both clocks: one that is
    /// put forward makes nothing older. What was refused then because its sender's clock was ahead by more than
    /// [`EARLY_DATA_WINDOW`] is not known after a start; with [`Self::with_new_keys`] it is never taken.
    pub fn new(capacity: usize, started: Now) -> Self {
        let window = u64::try_from(TWO_WINDOWS.as_millis()).unwrap_or(u64::MAX);
        let register =
            Register { unknown_until: started.unix_ms.saturating_add(window), ..Register::default() };
        Self { register: Mutex::new(register), capacity, started: Some(started.monotonic) }
    }

    /// The same where no ticket from before can be opened: the keys of the tickets were made with it.
    pub fn with_new_keys(capacity: usize) -> Self {
        Self { register: Mutex::default(), capacity, started: None }
    }
}

impl UseOnce for MemoryUseOnce {
    fn first_use(&self, now: Now, id: &[u8; 32], until_ms: u64) -> bool {
        let is_ready = self.started.is_none_or(|started| now.monotonic.since(started) > TWO_WINDOWS);
        // Nothing that runs under the lock leaves the register half changed.
        let mut register = self.register.lock().unwrap_or_else(PoisonError::into_inner);
        register.is_new(now.unix_ms, *id, until_ms, self.capacity) && is_ready
    }
}

impl fmt::Debug for MemoryUseOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryUseOnce").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
