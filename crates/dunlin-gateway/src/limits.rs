//! Places for connections and handshakes, of which each listener has as many as the configuration says.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin::PeerIdentity;
use dunlin::places::{Client, GivesWay, Host, Seat, Seats};
use tokio::sync::{Notify, watch};

use crate::config::Limits;
use crate::metrics::Limit;

/// The places of a listener.
#[derive(Debug)]
pub(crate) struct Places {
    /// The beginning of the clock by which clients are heard.
    begin: Instant,
    hosts: Mutex<Hosts>,
    handshakes: Mutex<Handshakes>,
    /// TLS clients whose handshake is complete. A DTLS endpoint has its own.
    clients: Mutex<Seats<Connected>>,
}

impl Default for Places {
    fn default() -> Self {
        let (hosts, handshakes, clients) = Default::default();
        Self { begin: Instant::now(), hosts, handshakes, clients }
    }
}

/// A client that has a place, as the decision about places sees it.
#[derive(Debug)]
struct Connected(Arc<Tie>);

/// What a connection and the decision about its place share.
#[derive(Debug)]
struct Tie {
    /// When the client has sent something last.
    heard_ms: AtomicI64,
    /// Why the client gives way to another one, once it has to.
    gives_way: watch::Sender<Option<GivesWay>>,
}

impl Client for Connected {
    fn heard_ms(&self) -> i64 {
        self.0.heard_ms.load(Ordering::Relaxed)
    }
}

/// The place of a connection. It is free again when the value is dropped, or when the client has given way.
pub(crate) struct Seated {
    places: Arc<Places>,
    seat: Seat,
    tie: Arc<Tie>,
}

impl Seated {
    /// Notes that the client has sent something.
    pub(crate) fn hear(&self) {
        self.tie.heard_ms.store(self.places.now_ms(), Ordering::Relaxed);
    }

    /// Why the client gives way, if it has to.
    pub(crate) fn gives_way(&self) -> Option<GivesWay> {
        *self.tie.gives_way.borrow()
    }

    /// Waits until the client has to give way.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut gives_way = self.tie.gives_way.subscribe();
        let tie = self.tie.clone();
        async move {
            // It fails only if the sender is gone, which this has.
            let _ = gives_way.wait_for(Option::is_some).await;
            drop(tie);
        }
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.places.clients().leave(self.seat);
    }
}

/// The handshakes in progress, by numbers in the order of their beginning. Each can be told to give way.
#[derive(Debug, Default)]
struct Handshakes {
    next: u64,
    open: BTreeMap<u64, Arc<Notify>>,
    /// Those that have failed and wait for their client to close, as many as open ones.
    lingering: BTreeMap<u64, Arc<Notify>>,
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
    max: usize,
    displaced: Arc<Notify>,
    is_lingering: bool,
}

impl HandshakePlace {
    /// Whether another handshake has got the place.
    pub(crate) fn is_displaced(&self) -> bool {
        let handshakes = self.places.handshakes();
        !handshakes.open.contains_key(&self.number) && !handshakes.lingering.contains_key(&self.number)
    }

    /// The handshake has failed, and its connection waits for the client to close. Its place is free for another handshake.
    pub(crate) fn linger(&mut self) {
        if !std::mem::replace(&mut self.is_lingering, true) {
            self.places.leave(self.address, |host| &mut host.handshakes);
            let mut handshakes = self.places.handshakes();
            if handshakes.open.remove(&self.number).is_some() {
                handshakes.lingering.insert(self.number, self.displaced.clone());
            }
            if handshakes.lingering.len() > self.max
                && let Some((_, oldest)) = handshakes.lingering.pop_first()
            {
                oldest.notify_one();
            }
        }
    }

    /// Waits until another handshake has got the place.
    pub(crate) fn displaced(&self) -> impl Future<Output = ()> + use<> {
        let displaced = self.displaced.clone();
        async move { displaced.notified().await }
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        let mut handshakes = self.places.handshakes();
        handshakes.open.remove(&self.number);
        handshakes.lingering.remove(&self.number);
        drop(handshakes);
        if !self.is_lingering {
            self.places.leave(self.address, |host| &mut host.handshakes);
        }
    }
}

/// Connections that give way to no other one.
#[derive(Debug, Default)]
struct Hosts {
    connections: usize,
    hosts: HashMap<IpAddr, Counts>,
}

/// How many such connections a host has, and how many handshakes are in progress.
#[derive(Debug, Default)]
struct Counts {
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

impl Places {
    /// Takes a place for a connection from this address that gives way to no other one.
    pub(crate) fn connection(
        self: &Arc<Self>,
        address: IpAddr,
        max: usize,
        max_per_host: usize,
    ) -> Result<Place<impl Fn() + use<>>, Limit> {
        let address = host(address);
        {
            let mut hosts = self.hosts();
            if hosts.connections >= max {
                return Err(Limit::Connections);
            }
            hosts.connections += 1;
        }
        let entered =
            self.enter(address, max_per_host, Limit::ConnectionsPerHost, |host| &mut host.connections);
        if entered.is_err() {
            self.hosts().connections -= 1;
        }
        entered?;
        let places = self.clone();
        Ok(Place(move || {
            places.leave(address, |host| &mut host.connections);
            places.hosts().connections -= 1;
        }))
    }

    /// Gives a place to a client that has completed its handshake. At a limit, another one gives way.
    pub(crate) fn settle(
        self: &Arc<Self>,
        address: IpAddr,
        identity: Option<&PeerIdentity>,
        limits: &Limits,
    ) -> Result<Seated, Limit> {
        let now_ms = self.now_ms();
        let tie = Arc::new(Tie { heard_ms: AtomicI64::new(now_ms), gives_way: watch::Sender::new(None) });
        let client = (Host::of(address), identity.map(PeerIdentity::label), Connected(tie.clone()));
        let (seat, gone) = self.clients().take(client, &limits.places(), now_ms).map_err(Limit::of)?;
        if let Some((Connected(other), why)) = gone {
            other.gives_way.send_replace(Some(why));
        }
        Ok(Seated { places: self.clone(), seat, tie })
    }

    /// Lets a connection end that has not completed its handshake, for lack of open files.
    pub(crate) fn relieve(&self) {
        let mut handshakes = self.handshakes();
        let oldest = handshakes.lingering.pop_first().or_else(|| handshakes.open.pop_first());
        oldest.into_iter().for_each(|(_, oldest)| oldest.notify_one());
    }

    /// The time by the listener's clock, in milliseconds.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.begin.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn clients(&self) -> MutexGuard<'_, Seats<Connected>> {
        // No code panics halfway through a change under this lock.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        // The same holds for this lock.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
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
        Ok(HandshakePlace { places: self.clone(), address, number, max, displaced, is_lingering: false })
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
        counter: fn(&mut Counts) -> &mut usize,
    ) -> Result<(), Limit> {
        let mut hosts = self.hosts();
        let count = counter(hosts.hosts.entry(address).or_default());
        if *count >= max {
            return Err(limit);
        }
        *count += 1;
        Ok(())
    }

    fn leave(&self, address: IpAddr, counter: fn(&mut Counts) -> &mut usize) {
        let mut hosts = self.hosts();
        if let Entry::Occupied(mut host) = hosts.hosts.entry(address) {
            let count = counter(host.get_mut());
            *count = count.saturating_sub(1);
            if let Counts { connections: 0, handshakes: 0 } = host.get() {
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
        let take = |address| places.connection(address, 4, 2);
        let first = take(a).ok().unwrap();
        let second = take(same).ok().unwrap();
        assert_eq!(take(a).err(), Some(Limit::ConnectionsPerHost));
        assert!(take(other).is_ok());
        drop(first);
        assert!(take(a).is_ok());
        let all = [take(other).ok().unwrap(), take(other).ok().unwrap(), take(a).ok().unwrap()];
        assert_eq!(places.connection([192, 0, 2, 1].into(), 4, 2).err(), Some(Limit::Connections));
        drop((second, all));
        assert!(places.hosts().hosts.is_empty());
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
        assert!(places.hosts().hosts.is_empty());
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

    /// A failed handshake leaves its place, and those that wait for their clients to close are no more than the handshakes.
    #[test]
    fn lingering_connections_are_bounded() {
        let places = Arc::new(Places::default());
        let mut all: Vec<_> =
            (1..=3).map(|last| places.handshake([192, 0, 2, last].into(), 1, 2).ok().unwrap()).collect();
        let is_displaced =
            |all: &[HandshakePlace]| all.iter().map(HandshakePlace::is_displaced).collect::<Vec<_>>();
        assert_eq!(is_displaced(&all), [true, false, false]);
        all[1].linger();
        all[1].linger();
        // The host has its place again, and nobody else gives way.
        let again = places.handshake([192, 0, 2, 2].into(), 1, 2).ok().unwrap();
        assert_eq!(is_displaced(&all), [true, false, false]);
        all[2].linger();
        all.push(again);
        all[3].linger();
        assert_eq!(is_displaced(&all), [true, true, false, false]);
        // Without open files, those give way that wait for their clients, and then the others.
        all.push(places.handshake([192, 0, 2, 5].into(), 1, 2).ok().unwrap());
        (0..2).for_each(|_| places.relieve());
        assert_eq!(is_displaced(&all), [true, true, true, true, false]);
        places.relieve();
        assert!(all[4].is_displaced());
        drop(all);
        assert!(places.hosts().hosts.is_empty() && places.handshakes().lingering.is_empty());
    }

    #[tokio::test]
    async fn a_client_that_gives_way_learns_it() {
        let places = Arc::new(Places::default());
        let limits = Limits { connections: 1, silent_time: Duration::ZERO, ..Limits::default() };
        let settle = |last| places.settle([192, 0, 2, last].into(), None, &limits);
        let first = settle(1).ok().unwrap();
        let second = settle(2).ok().unwrap();
        first.gone().await;
        assert_eq!((first.gives_way(), second.gives_way()), (Some(GivesWay::Silent), None));
        drop(first);
        let never = Limits { silent_time: Duration::MAX, ..limits.clone() };
        assert_eq!(places.settle([192, 0, 2, 3].into(), None, &never).err(), Some(Limit::Connections));
        drop(second);
        assert!(places.settle([192, 0, 2, 3].into(), None, &never).is_ok());
    }

    #[test]
    fn an_ipv4_host_is_the_same_on_an_ipv6_socket() {
        let places = Arc::new(Places::default());
        let [plain, mapped] = ["192.0.2.1", "::ffff:192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        let _first = places.connection(plain, 9, 1).ok().unwrap();
        assert_eq!(places.connection(mapped, 9, 1).err(), Some(Limit::ConnectionsPerHost));
    }
}
