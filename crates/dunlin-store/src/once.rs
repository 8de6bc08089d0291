//! The register of tickets that were used for early data.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dunlin::early::EARLY_DATA_WINDOW;
use dunlin::resume::UseOnce;
use dunlin::{Instant, Now};

/// A register of used tickets in memory, for the servers of one process. A full register refuses the early
/// data of every new ticket until the flight with the ticket that it could not record is too old. So a flood
/// of early data costs other clients a round trip, but allows no replay.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::crypto::CryptoProvider;
/// use dunlin::resume::Tickets;
/// use dunlin::{EarlyDataProtocols, ServerConfig, SingleUse};
/// use dunlin_store::{MemoryUseOnce, RotatingTickets};
///
/// # fn early(server: ServerConfig, provider: Arc<CryptoProvider>) -> Result<ServerConfig, dunlin::Error> {
/// // The ticket keys are as new as the register, so no earlier flight can be repeated.
/// let once = SingleUse::Register(Arc::new(MemoryUseOnce::with_new_keys(100_000)));
/// let keys = RotatingTickets::new(provider)?.with_single_use(once);
/// let server = server.with_tickets(Tickets::stateless(Arc::new(keys)));
/// server.with_early_data(EarlyDataProtocols::named(vec![b"coap".to_vec()]), 4096)
/// # }
/// ```
pub struct MemoryUseOnce {
    register: Mutex<Register>,
    capacity: usize,
    /// When the register started, if tickets could have come before.
    started: Option<Instant>,
}

type Id = [u8; 32];

/// All times are in milliseconds since 1970.
#[derive(Default)]
struct Register {
    /// When each ticket may be forgotten.
    known: HashMap<Id, u64>,
    /// The same, earliest first.
    by_date: BTreeSet<(u64, Id)>,
    /// Until this moment a flight may be fresh although its ticket came before and is not recorded: it came
    /// before the start, the register was full, or the ticket was forgotten and then the clock went back.
    unknown_until: u64,
}

impl Register {
    /// Records the ticket if there is room. Returns whether this is its first use.
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
        // Flights with the same ticket can be fresh at different times.
        if known.is_none_or(|date| date < until) {
            if let Some(date) = self.known.insert(id, until) {
                self.by_date.remove(&(date, id));
            }
            self.by_date.insert((until, id));
        }
        known.is_none() && now > self.unknown_until
    }
}

/// How long a flight can stay fresh after its arrival: the client's clock may be one window ahead.
const TWO_WINDOWS: Duration = EARLY_DATA_WINDOW.saturating_mul(2);

impl MemoryUseOnce {
    /// Room for `capacity` tickets at once, each with two copies of 32 bytes and a date.
    ///
    /// The register does not know which tickets came before `started`. So it refuses every ticket until those
    /// would be refused for their age (RFC 8446 §8.2), by both clocks: a wall clock that is put forward does
    /// not shorten the wait. It also does not know flights that were refused before the start because the
    /// client's clock was more than [`EARLY_DATA_WINDOW`] ahead. A register made by [`Self::with_new_keys`]
    /// never accepts those.
    pub fn new(capacity: usize, started: Now) -> Self {
        let window = u64::try_from(TWO_WINDOWS.as_millis()).unwrap_or(u64::MAX);
        let register =
            Register { unknown_until: started.unix_ms.saturating_add(window), ..Register::default() };
        Self { register: Mutex::new(register), capacity, started: Some(started.monotonic) }
    }

    /// A register for new ticket keys. It accepts tickets at once, because tickets from before the start
    /// cannot be opened.
    pub fn with_new_keys(capacity: usize) -> Self {
        Self { register: Mutex::default(), capacity, started: None }
    }
}

impl UseOnce for MemoryUseOnce {
    fn first_use(&self, now: Now, id: &[u8; 32], until_ms: u64) -> bool {
        let is_ready = self.started.is_none_or(|started| now.monotonic.since(started) > TWO_WINDOWS);
        // No code panics halfway through a change under this lock.
        let mut register = self.register.lock().unwrap_or_else(PoisonError::into_inner);
        register.is_new(now.unix_ms, *id, until_ms, self.capacity) && is_ready
    }
}

impl fmt::Debug for MemoryUseOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryUseOnce").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
