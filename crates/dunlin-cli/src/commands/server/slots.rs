//! The slots of connections over TCP, and the log of refused clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::Ended;
use dunlin::places::{Client, Host, PlaceLimit, PlaceLimits, Seat, Seats};
use dunlin_tokio::{AssociationEnded, HandshakeError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Explanation, count};

/// The time for which the log has one line about refused clients.
const PERIOD: Duration = Duration::from_secs(60);

/// The slots of --max-connections and --max-connections-per-host.
pub(super) struct Slots {
    all: Arc<Semaphore>,
    lingering: Arc<Semaphore>,
    hosts: Hosts,
    limits: PlaceLimits,
}

/// The clients by host. None gives way to another one: `--idle-timeout` ends silent ones.
type Hosts = Arc<Mutex<Seats<Connected>>>;

struct Connected;

impl Client for Connected {
    fn heard_ms(&self) -> i64 {
        0
    }
}

impl Slots {
    pub(super) fn new(max: usize, per_host: usize) -> Self {
        let [all, lingering] = [(); 2].map(|()| Arc::new(Semaphore::new(max)));
        let limits = PlaceLimits { all: usize::MAX, per_host, per_network: per_host, silence: None };
        Self { all, lingering, hosts: Arc::default(), limits }
    }

    /// Waits for a free slot.
    pub(super) async fn free(&self) -> Option<OwnedSemaphorePermit> {
        // Only `close` makes this fail, and it is never called.
        self.all.clone().acquire_owned().await.ok()
    }

    /// Gives a free slot to a client of this host, unless the host has too many.
    pub(super) fn take(&self, free: OwnedSemaphorePermit, from: IpAddr) -> Option<Slot> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let (seat, _) = hosts.take((Host::of(from), None, Connected), &self.limits, 0).ok()?;
        let of_host = OfHost { hosts: self.hosts.clone(), seat };
        Some(Slot { held: Mutex::new((free, Some(of_host))), lingering: self.lingering.clone() })
    }
}

/// A client counted at its host until the value is dropped.
struct OfHost {
    hosts: Hosts,
    seat: Seat,
}

impl Drop for OfHost {
    fn drop(&mut self) {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).leave(self.seat);
    }
}

/// The slot of a connection.
pub(super) struct Slot {
    held: Mutex<(OwnedSemaphorePermit, Option<OfHost>)>,
    /// The slots for connections that have failed and only drop their client's input.
    lingering: Arc<Semaphore>,
}

impl Slot {
    /// The connection has failed. It frees its slot for another one if there is a free slot for failed ones.
    pub(super) fn linger(&self) {
        if let Ok(place) = self.lingering.clone().try_acquire_owned() {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = (place, None);
        }
    }
}

/// When the log told of each limit, and how many clients it has left out since then.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<&'static str, (Instant, u64)>>);

impl Refusals {
    /// Notes a refused client. Returns how many earlier ones the log has left out, if it is to have a line now.
    pub(super) fn note(&self, limit: PlaceLimit, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match told.get_mut(option(limit)) {
            Some((at, left_out)) if now.saturating_duration_since(*at) < PERIOD => {
                *left_out += 1;
                None
            }
            _ => told.insert(option(limit), (now, 0)).map(|(_, left_out)| left_out).or(Some(0)),
        }
    }
}

/// The option with this limit.
const fn option(limit: PlaceLimit) -> &'static str {
    match limit {
        PlaceLimit::All => "--max-connections",
        PlaceLimit::PerHost | PlaceLimit::PerNetwork => "--max-connections-per-host",
    }
}

/// The limit that has kept a client out at the end of its handshake.
pub(super) fn refused(error: &HandshakeError) -> Option<PlaceLimit> {
    match error {
        HandshakeError::Io(error) => match AssociationEnded::of(error)? {
            Ended::Refused(limit) => Some(limit),
            _ => None,
        },
        _ => None,
    }
}

/// Explains why a client was refused, after others of which the log has no line.
pub(super) fn explain(limit: PlaceLimit, left_out: u64) -> Explanation {
    let option = option(limit);
    let before = match left_out {
        0 => String::new(),
        n => format!(", as {} before it", count(n, "client")),
    };
    let why = format!("the limit {option} was reached{before}");
    Explanation::new(why, format!("raise {option}, or wait until other clients have ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Slots, from: &str) -> Option<Slot> {
        let free = slots.all.clone().try_acquire_owned().unwrap();
        slots.take(free, from.parse().unwrap())
    }

    #[test]
    fn failed_connections_free_their_slots_within_a_bound() {
        let mut slots = Slots::new(2, 2);
        slots.lingering = Arc::new(Semaphore::new(1));
        let [first, second] = [(); 2].map(|()| take(&slots, "192.0.2.1").unwrap());
        assert_eq!(slots.all.available_permits(), 0);
        first.linger();
        assert_eq!((slots.all.available_permits(), slots.lingering.available_permits()), (1, 0));
        second.linger();
        assert_eq!(slots.all.available_permits(), 1, "the second keeps its slot: there is no room to linger");
        let third = take(&slots, "192.0.2.1").unwrap();
        drop((first, second, third));
        assert_eq!((slots.all.available_permits(), slots.lingering.available_permits()), (2, 1));
    }

    #[test]
    fn a_host_leaves_slots_to_others() {
        let slots = Slots::new(8, 2);
        let taken = [(); 2].map(|()| take(&slots, "2001:db8::1").unwrap());
        assert!(take(&slots, "2001:db8::1").is_none(), "one host");
        assert!(take(&slots, "2001:db8:0:9::1").is_none(), "one site");
        assert_eq!(slots.all.available_permits(), 6);
        let other = take(&slots, "192.0.2.1");
        drop(taken);
        assert!(other.is_some() && take(&slots, "2001:db8::1").is_some());
    }

    #[test]
    fn the_log_tells_of_a_limit_once_a_minute() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.note(PlaceLimit::All, begin), Some(0));
        assert_eq!(refusals.note(PlaceLimit::All, begin), None);
        assert_eq!(refusals.note(PlaceLimit::PerHost, begin), Some(0));
        assert_eq!(refusals.note(PlaceLimit::All, begin + PERIOD - Duration::from_millis(1)), None);
        assert_eq!(refusals.note(PlaceLimit::All, begin + PERIOD), Some(2));
        assert!(
            explain(PlaceLimit::All, 2)
                .why
                .ends_with("--max-connections was reached, as 2 clients before it")
        );
    }
}
