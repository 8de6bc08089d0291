//! Places of a server over TCP: for handshakes in progress, and for clients that have completed theirs.
//!
//! [`dunlin::places`] decides which client gives way to which. A [`crate::DtlsEndpoint`] has places of its
//! own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin::PeerIdentity;
use dunlin::places::{
    Client, GivesWay, HandshakeLimit, Handshakes, Host, PlaceLimit, PlaceLimits, Seat, Seats,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::addresses;

/// How long a server waits after the system could not accept a connection, for example for lack of open
/// files.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts the next client of a server. After each failure, of which it tells `failed`, it waits for
/// [`ACCEPT_PAUSE`].
pub async fn accept(socket: &TcpListener, failed: impl Fn(&io::Error)) -> (TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            // A socket for both families shows IPv4 clients in IPv6.
            Ok((tcp, from)) => return (tcp, addresses::plain(from)),
            Err(error) => failed(&error),
        }
        sleep(ACCEPT_PAUSE).await;
    }
}

/// The places of a server.
#[derive(Debug)]
pub struct Places {
    /// The beginning of the clock by which clients are heard.
    begin: Instant,
    handshakes: Mutex<InProgress>,
    /// Clients that have completed their handshake.
    clients: Mutex<Seats<Connected>>,
}

impl Default for Places {
    fn default() -> Self {
        let (handshakes, clients) = Default::default();
        Self { begin: Instant::now(), handshakes, clients }
    }
}

/// A client that has a place, as the decision about places sees it.
#[derive(Debug)]
struct Connected(Arc<Tie>);

/// The state that a connection shares with the decision about its place.
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
#[derive(Debug)]
pub struct Seated {
    places: Arc<Places>,
    seat: Seat,
    tie: Arc<Tie>,
}

impl Seated {
    /// Notes that the client has sent something.
    pub fn hear(&self) {
        self.tie.heard_ms.store(self.places.now_ms(), Ordering::Relaxed);
    }

    /// Why the client gives way, if it has to.
    pub fn gives_way(&self) -> Option<GivesWay> {
        *self.tie.gives_way.borrow()
    }

    /// Waits until the client has to give way.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
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
struct InProgress {
    next: u64,
    counted: Handshakes,
    open: BTreeMap<u64, (Host, Arc<Notify>)>,
    /// Those that have failed and wait for their client to close, as many as open ones.
    lingering: BTreeMap<u64, Arc<Notify>>,
    /// When one gave way to another for the last time.
    displaced: Option<Instant>,
}

impl InProgress {
    /// Lets a handshake give way. `false` if there is none.
    fn displace(&mut self) -> bool {
        let open = self.counted.gives_way().and_then(|number| self.end(number));
        open.inspect(|displaced| displaced.notify_one()).is_some()
    }

    /// Removes an open handshake.
    fn end(&mut self, number: u64) -> Option<Arc<Notify>> {
        let (host, displaced) = self.open.remove(&number)?;
        self.counted.end(host, number);
        Some(displaced)
    }
}

/// How long handshakes are still expected to crowd after the last one that gave way.
const CROWDED: Duration = Duration::from_secs(10);

/// A place for a handshake. It is free again when the value is dropped.
#[derive(Debug)]
pub struct HandshakePlace {
    places: Arc<Places>,
    number: u64,
    max: usize,
    displaced: Arc<Notify>,
}

impl HandshakePlace {
    /// Whether another handshake has got the place, before [`Self::end`].
    pub fn is_displaced(&self) -> bool {
        let handshakes = self.places.handshakes();
        !handshakes.open.contains_key(&self.number) && !handshakes.lingering.contains_key(&self.number)
    }

    /// Gives the place back. A second call has no effect.
    pub fn end(&self) {
        let mut handshakes = self.places.handshakes();
        handshakes.end(self.number);
        handshakes.lingering.remove(&self.number);
    }

    /// The handshake has failed, and its connection waits for the client to close. Its place is free for
    /// another handshake.
    pub fn linger(&self) {
        let mut handshakes = self.places.handshakes();
        if let Some(displaced) = handshakes.end(self.number) {
            handshakes.lingering.insert(self.number, displaced);
        }
        if handshakes.lingering.len() > self.max
            && let Some((_, oldest)) = handshakes.lingering.pop_first()
        {
            oldest.notify_one();
        }
    }

    /// Waits until another handshake has got the place.
    pub fn displaced(&self) -> impl Future<Output = ()> + Send + use<> {
        let displaced = self.displaced.clone();
        async move { displaced.notified().await }
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.end();
    }
}

impl Places {
    /// Gives a place to a client that has completed its handshake, or that needs none. At a limit, another
    /// one gives way.
    ///
    /// # Errors
    /// The limit that was reached, if no client gave way.
    pub fn settle(
        self: &Arc<Self>,
        address: IpAddr,
        identity: Option<&PeerIdentity>,
        limits: &PlaceLimits,
    ) -> Result<Seated, PlaceLimit> {
        let now_ms = self.now_ms();
        let tie = Arc::new(Tie { heard_ms: AtomicI64::new(now_ms), gives_way: watch::Sender::new(None) });
        let client = (Host::of(address), identity.map(PeerIdentity::label), Connected(tie.clone()));
        let (seat, gone) = self.clients().take(client, limits, now_ms)?;
        if let Some((Connected(other), why)) = gone {
            other.gives_way.send_replace(Some(why));
        }
        Ok(Seated { places: self.clone(), seat, tie })
    }

    /// Takes a place for a handshake with this address. Of `max` places, one host has at most `max_per_host`.
    /// If all are taken, another handshake gives way ([`Handshakes`]): hosts that begin handshakes and leave
    /// them do not keep the others out.
    ///
    /// # Errors
    /// The host has too many.
    pub fn handshake(
        self: &Arc<Self>,
        address: IpAddr,
        max_per_host: usize,
        max: usize,
    ) -> Result<HandshakePlace, HandshakeLimit> {
        let host = Host::of(address);
        let mut handshakes = self.handshakes();
        if handshakes.counted.of_host(host) >= max_per_host {
            return Err(HandshakeLimit::PerHost);
        }
        while handshakes.counted.len() >= max && handshakes.displace() {
            handshakes.displaced = Some(Instant::now());
        }
        let number = handshakes.next;
        handshakes.next = number.wrapping_add(1);
        let displaced = Arc::<Notify>::default();
        handshakes.counted.begin(host, number);
        handshakes.open.insert(number, (host, displaced.clone()));
        drop(handshakes);
        Ok(HandshakePlace { places: self.clone(), number, max, displaced })
    }

    /// Whether handshakes have recently had to give way. Most of them then come from clients that go no
    /// further than their ClientHello.
    pub fn are_crowded(&self, now: Instant) -> bool {
        self.handshakes().displaced.is_some_and(|at| now.saturating_duration_since(at) < CROWDED)
    }

    /// Lets a connection end that has not completed its handshake, for lack of open files.
    pub fn relieve(&self) {
        let mut handshakes = self.handshakes();
        match handshakes.lingering.pop_first() {
            Some((_, oldest)) => oldest.notify_one(),
            None => drop(handshakes.displace()),
        }
    }

    /// The time by the server's clock, in milliseconds.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.begin.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn clients(&self) -> MutexGuard<'_, Seats<Connected>> {
        // No code panics halfway through a change under this lock.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handshakes(&self) -> MutexGuard<'_, InProgress> {
        // The same holds for this lock.
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_empty(places: &Places) -> bool {
        let handshakes = places.handshakes();
        handshakes.open.is_empty() && handshakes.lingering.is_empty() && handshakes.counted.is_empty()
    }

    #[test]
    fn a_host_cannot_take_all_handshakes() {
        let places = Arc::new(Places::default());
        let [greedy, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let take = |address| places.handshake(address, 2, 3);
        let mut taken = vec![take(greedy).unwrap(), take(greedy).unwrap()];
        assert_eq!(take(greedy).err(), Some(HandshakeLimit::PerHost));
        taken.push(take(other).unwrap());
        taken.remove(0);
        taken.push(take(greedy).unwrap());
        assert!(taken.iter().all(|place| !place.is_displaced()));
        drop(taken);
        assert!(is_empty(&places));
    }

    #[test]
    fn the_oldest_handshake_gives_way() {
        let places = Arc::new(Places::default());
        let take = |last| places.handshake(IpAddr::from([192, 0, 2, last]), 1, 3).unwrap();
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

    /// A network of 60 bits has 16 hosts, each with its own places.
    #[tokio::test]
    async fn a_flood_from_one_site_displaces_no_handshake_of_another() {
        let places = Arc::new(Places::default());
        let take = |address| places.handshake(address, 9, 100).unwrap();
        let honest = take([192, 0, 2, 1].into());
        let mut flood = Vec::new();
        for n in 0..1000 {
            flood.push(take([0x2001, 0xdb8, 0, 0xaf0 + n % 16, 0, 0, 0, n].into()));
            let (gone, left) = flood.into_iter().partition::<Vec<_>, _>(HandshakePlace::is_displaced);
            assert_eq!(gone.len(), usize::from(n >= 99));
            for place in gone {
                place.displaced().await;
            }
            flood = left;
        }
        assert!(!honest.is_displaced());
    }

    /// A failed handshake leaves its place, and those that wait for their clients to close are no more than
    /// the handshakes.
    #[test]
    fn lingering_connections_are_bounded() {
        let places = Arc::new(Places::default());
        let mut all: Vec<_> =
            (1..=3).map(|last| places.handshake([192, 0, 2, last].into(), 1, 2).unwrap()).collect();
        let is_displaced =
            |all: &[HandshakePlace]| all.iter().map(HandshakePlace::is_displaced).collect::<Vec<_>>();
        assert_eq!(is_displaced(&all), [true, false, false]);
        all[1].linger();
        all[1].linger();
        // The host has its place again, and no other host gives way.
        let again = places.handshake([192, 0, 2, 2].into(), 1, 2).unwrap();
        assert_eq!(is_displaced(&all), [true, false, false]);
        all[2].linger();
        all.push(again);
        all[3].linger();
        assert_eq!(is_displaced(&all), [true, true, false, false]);
        // Without open files, those give way that wait for their clients, and then the others.
        all.push(places.handshake([192, 0, 2, 5].into(), 1, 2).unwrap());
        (0..2).for_each(|_| places.relieve());
        assert_eq!(is_displaced(&all), [true, true, true, true, false]);
        places.relieve();
        assert!(all[4].is_displaced());
        drop(all);
        assert!(is_empty(&places));
    }

    #[tokio::test]
    async fn a_client_that_gives_way_learns_it() {
        let places = Arc::new(Places::default());
        let limits = |silence| PlaceLimits { all: 1, per_host: 1, per_network: 1, silence };
        let settle = |last, limits| places.settle([192, 0, 2, last].into(), None, &limits);
        let first = settle(1, limits(Some(Duration::ZERO))).unwrap();
        let second = settle(2, limits(Some(Duration::ZERO))).unwrap();
        first.gone().await;
        assert_eq!((first.gives_way(), second.gives_way()), (Some(GivesWay::Silent), None));
        drop(first);
        assert_eq!(settle(3, limits(None)).err(), Some(PlaceLimit::All));
        drop(second);
        let _third = settle(3, limits(None)).unwrap();
        // The same host on an IPv6 socket.
        let mapped = places.settle("::ffff:192.0.2.3".parse().unwrap(), None, &limits(None));
        assert_eq!(mapped.err(), Some(PlaceLimit::PerHost));
    }
}
