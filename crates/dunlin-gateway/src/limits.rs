//! Places for connections and handshakes, of which there are as many as the configuration says.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::metrics::Limit;

/// The hosts of a listener, and its handshakes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    hosts: Mutex<HashMap<IpAddr, Host>>,
    handshakes: Mutex<Handshakes>,
}

/// The handshakes in progress, by numbers in the order of their beginning. Each can be told to give way.
#[derive(Debug, Default)]
struct Handshakes {
    next: u64,
    open: BTreeMap<u64, Arc<Notify>>,
    /// When one gave way to another for the last time.
    displaced: Option<Instant>,
}

/// How long handshakes are still expected to crowd after the last one that gave way.
const CROWDED: Duration = Duration::from_secs(10);

/// A place for a handshake. It is free again when the value is dropped.
pub(crate) struct HandshakePlace {
    places: Arc<Places>,
    address: IpAddr,
    number: u64,
    displaced: Arc<Notify>,
}

impl HandshakePlace {
    /// Whether another handshake has got the place.
    pub(crate) fn is_displaced(&self) -> bool {
        !self.places.handshakes().open.contains_key(&self.number)
    }

    /// Waits until another handshake has got the place.
    pub(crate) fn displaced(&self) -> impl Future<Output = ()> + use<> {
        let displaced = self.displaced.clone();
        async move { displaced.notified().await }
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.places.handshakes().open.remove(&self.number);
        self.places.leave(self.address, |host| &mut host.handshakes);
    }
}

/// How many connections a host has, and how many handshakes of them are in progress.
#[derive(Debug, Default)]
struct Host {
    connections: usize,
    handshakes: usize,
}

/// A place for something that is counted. It is free again when the value is dropped.
pub(crate) struct Place<F: Fn()>(F);

impl<F: Fn()> Drop for Place<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Takes a place of at most `max`.
pub(crate) fn take(
    count: &Arc<AtomicUsize>,
    max: usize,
    limit: Limit,
) -> Result<Place<impl Fn() + use<>>, Limit> {
    let add = |n: usize| (n < max).then_some(n + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| limit)?;
    let count = count.clone();
    Ok(Place(move || {
        count.fetch_sub(1, Ordering::Relaxed);
    }))
}

impl Places {
    /// Takes a place for a connection from this address.
    pub(crate) fn connection(
        self: &Arc<Self>,
        address: IpAddr,
        max_per_host: usize,
    ) -> Result<Place<impl Fn() + use<>>, Limit> {
        let address = host(address);
        self.enter(address, max_per_host, Limit::ConnectionsPerHost, |host| &mut host.connections)?;
        let places = self.clone();
        Ok(Place(move || places.leave(address, |host| &mut host.connections)))
    }

    /// Takes a place for a handshake with this address. One host cannot take all places. If all are taken, the oldest handshake gives way:
    /// hosts that begin handshakes and leave them do not keep the others out.
    pub(crate) fn handshake(
        self: &Arc<Self>,
        address: IpAddr,
        max_per_host: usize,
        max: usize,
    ) -> Result<HandshakePlace, Limit> {
        let address = host(address);
        self.enter(address, max_per_host, Limit::HandshakesPerHost, |host| &mut host.handshakes)?;
        let mut handshakes = self.handshakes();
        if handshakes.open.len() >= max
            && let Some((_, oldest)) = handshakes.open.pop_first()
        {
            oldest.notify_one();
            handshakes.displaced = Some(Instant::now());
        }
        let number = handshakes.next;
        handshakes.next = number.wrapping_add(1);
        let displaced = Arc::<Notify>::default();
        handshakes.open.insert(number, displaced.clone());
        drop(handshakes);
        Ok(HandshakePlace { places: self.clone(), address, number, displaced })
    }

    /// Whether handshakes have recently had to give way. Most of them then come from clients that go no further than their ClientHello.
    pub(crate) fn are_crowded(&self, now: Instant) -> bool {
        self.handshakes().displaced.is_some_and(|at| now.saturating_duration_since(at) < CROWDED)
    }

    fn handshakes(&self) -> MutexGuard<'_, Handshakes> {
        // No code panics halfway through a change under this lock.
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(
        &self,
        address: IpAddr,
        max: usize,
        limit: Limit,
        counter: fn(&mut Host) -> &mut usize,
    ) -> Result<(), Limit> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counter(hosts.entry(address).or_default());
        if *count >= max {
            return Err(limit);
        }
        *count += 1;
        Ok(())
    }

    fn leave(&self, address: IpAddr, counter: fn(&mut Host) -> &mut usize) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut host) = hosts.entry(address) {
            let count = counter(host.get_mut());
            *count = count.saturating_sub(1);
            if let Host { connections: 0, handshakes: 0 } = host.get() {
                host.remove();
            }
        }
    }
}

/// The host behind an address. A host with IPv6 usually has a whole network of 64 bits.
pub(crate) fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_places_only() {
        let places = Arc::new(Places::default());
        let [a, same, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let first = places.connection(a, 2).ok().unwrap();
        let second = places.connection(same, 2).ok().unwrap();
        assert_eq!(places.connection(a, 2).err(), Some(Limit::ConnectionsPerHost));
        assert!(places.connection(other, 2).is_ok());
        drop(first);
        assert!(places.connection(a, 2).is_ok());
        drop(second);
        assert!(places.hosts.lock().unwrap().is_empty());
    }

    #[test]
    fn a_host_cannot_take_all_handshakes() {
        let places = Arc::new(Places::default());
        let [greedy, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let take = |address| places.handshake(address, 2, 3);
        let mut taken = vec![take(greedy).ok().unwrap(), take(greedy).ok().unwrap()];
        assert_eq!(take(greedy).err(), Some(Limit::HandshakesPerHost));
        taken.push(take(other).ok().unwrap());
        taken.remove(0);
        taken.push(take(greedy).ok().unwrap());
        assert!(taken.iter().all(|place| !place.is_displaced()));
        drop(taken);
        assert!(places.handshakes().open.is_empty());
        assert!(places.hosts.lock().unwrap().is_empty());
    }

    #[test]
    fn the_oldest_handshake_gives_way() {
        let places = Arc::new(Places::default());
        let take = |last| places.handshake(IpAddr::from([192, 0, 2, last]), 1, 3).ok().unwrap();
        let [oldest, younger, youngest] = [take(1), take(2), take(3)];
        let begin = Instant::now();
        assert!(!places.are_crowded(begin));
        let new = take(4);
        assert!(places.are_crowded(begin) && !places.are_crowded(Instant::now() + CROWDED));
        let displaced = [&oldest, &younger, &youngest, &new].map(HandshakePlace::is_displaced);
        assert_eq!(displaced, [true, false, false, false]);
        // Its end frees no second place.
        drop(oldest);
        let next = take(5);
        assert!(younger.is_displaced() && !youngest.is_displaced() && !next.is_displaced());
    }

    #[test]
    fn an_ipv4_host_is_the_same_on_an_ipv6_socket() {
        let places = Arc::new(Places::default());
        let [plain, mapped] = ["192.0.2.1", "::ffff:192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        let _first = places.connection(plain, 1).ok().unwrap();
        assert_eq!(places.connection(mapped, 1).err(), Some(Limit::ConnectionsPerHost));
    }
}
