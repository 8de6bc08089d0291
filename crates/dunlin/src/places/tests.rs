//! Places in virtual time.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::IpAddr;

use super::*;

const HOUR: i64 = 3_600_000;
/// More than the unit in which turns count time.
const SECOND: i64 = 1000;

/// A server whose clients have places. Its clock is a number, and it numbers the clients that come.
#[derive(Default)]
struct Server {
    seats: Seats<Peer>,
    present: BTreeMap<u32, (Seat, Host, Rc<Cell<i64>>)>,
    begun: u32,
    now: i64,
}

/// A client: its number, and when it was heard.
#[derive(Debug)]
struct Peer(u32, Rc<Cell<i64>>);

impl Client for Peer {
    fn heard_ms(&self) -> i64 {
        self.1.get()
    }
}

const LIMITS: PlaceLimits =
    PlaceLimits { all: 4, per_host: 100, per_network: 100, silence: Some(Duration::from_secs(3600)) };

impl Server {
    /// A client whose handshake has ended: its number, or the limit that refuses it. Those that give way are
    /// gone.
    fn come(
        &mut self,
        address: &str,
        identity: Option<u64>,
        limits: &PlaceLimits,
    ) -> Result<(u32, Option<(u32, GivesWay)>), PlaceLimit> {
        self.begun += 1;
        let number = self.begun;
        let host = Host::of(address.parse().unwrap());
        let heard = Rc::new(Cell::new(self.now));
        let peer = Peer(number, heard.clone());
        let (seat, gone) = self.seats.take((host, identity, peer), limits, self.now)?;
        self.present.insert(number, (seat, host, heard));
        let gone = gone.map(|(Peer(other, _), why)| {
            let (seat, ..) = self.present.remove(&other).unwrap();
            assert!(self.seats.leave(seat).is_none(), "its place is not its own any more");
            (other, why)
        });
        Ok((number, gone))
    }

    /// Adds a client to which no other client gives way. Returns its number.
    fn fill(&mut self, address: &str, identity: Option<u64>, limits: &PlaceLimits) -> u32 {
        let (number, gone) = self.come(address, identity, limits).unwrap();
        assert_eq!(gone, None);
        number
    }

    fn leave(&mut self, number: u32) {
        let (seat, ..) = self.present.remove(&number).unwrap();
        assert_eq!(self.seats.leave(seat).unwrap().0, number);
    }

    fn hear(&mut self, number: u32) {
        self.present[&number].2.set(self.now);
    }

    /// The client that gives way to this one, and the reason.
    fn gone(&mut self, address: &str, identity: Option<u64>) -> Result<Option<(u32, GivesWay)>, PlaceLimit> {
        self.come(address, identity, &LIMITS).map(|(_, gone)| gone)
    }
}

/// An address of a host of its own.
fn host(n: u8) -> alloc::string::String {
    alloc::format!("192.0.2.{n}")
}

#[test]
fn hosts_are_ipv4_addresses_and_ipv6_networks_of_64_bits() {
    let of = |text: &str| Host::of(text.parse::<IpAddr>().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    assert_eq!(of("2001:db8:0:1::1").network(), of("2001:db8:0:ffff::1").network());
    assert_ne!(of("2001:db8:0:1::1").network(), of("2001:db8:1:1::1").network());
    assert_ne!(of("192.0.2.1").network(), of("192.0.2.2").network());
    assert_ne!(of("::1").network(), of("0.0.0.0").network());
}

#[test]
fn devices_that_come_back_take_the_places_of_their_own_connections() {
    let mut server = Server::default();
    let old: Vec<_> = (1..=4).map(|n| server.fill(&host(n), Some(n.into()), &LIMITS)).collect();
    // All at once, in another order, and from other addresses.
    for n in [3, 1, 4, 2] {
        let gone = server.gone(&host(100 + n), Some(n.into()));
        assert_eq!(gone, Ok(Some((old[usize::from(n) - 1], GivesWay::Double))));
    }
    assert_eq!(server.seats.len(), 4);
    // A stranger with an identity finds no place, because all are young and none is a double.
    assert_eq!(server.gone(&host(9), Some(9)), Err(PlaceLimit::All));
}

#[test]
fn clients_give_way_in_order() {
    let mut server = Server::default();
    let known = server.fill(&host(1), Some(1), &LIMITS);
    server.now += SECOND;
    let double = server.fill(&host(2), Some(2), &LIMITS);
    server.now += SECOND;
    let anonymous = server.fill(&host(3), None, &LIMITS);
    server.now += 2 * HOUR;
    let newest = server.fill(&host(2), Some(2), &LIMITS);
    server.now += SECOND;
    // The silent one has waited for longer, but the anonymous one goes first, and then the double.
    assert_eq!(server.gone(&host(4), Some(4)), Ok(Some((anonymous, GivesWay::Anonymous))));
    assert_eq!(server.gone(&host(5), Some(5)), Ok(Some((double, GivesWay::Double))));
    // The host with two places: none of its clients is silent.
    assert_eq!(server.gone(&host(5), Some(6)), Ok(Some((known, GivesWay::Silent))));
    let share = server.gone(&host(7), Some(7)).unwrap().unwrap();
    assert_eq!(share.1, GivesWay::Share);
    assert_ne!(share.0, newest);
    assert_eq!(server.gone(&host(8), Some(8)), Err(PlaceLimit::All));
    // After its idle time, each may give way.
    server.now += HOUR;
    assert_eq!(server.gone(&host(8), Some(8)), Ok(Some((newest, GivesWay::Silent))));
}

#[test]
fn a_client_with_an_identity_never_gives_way_to_one_without() {
    let mut server = Server::default();
    let known: Vec<_> = (1..=2).map(|n| server.fill(&host(1), Some(n), &LIMITS)).collect();
    server.fill(&host(1), Some(1), &LIMITS);
    server.fill(&host(1), Some(1), &LIMITS);
    server.now += 100 * HOUR;
    assert_eq!(server.gone(&host(2), None), Err(PlaceLimit::All));
    assert_eq!(server.gone(&host(2), Some(5)), Ok(Some((known[0], GivesWay::Double))));
}

#[test]
fn clients_without_an_identity_give_way_to_each_other_by_share_and_silence() {
    let mut server = Server::default();
    let first: Vec<_> = (0..3).map(|_| server.fill(&host(1), None, &LIMITS)).collect();
    let second = server.fill(&host(2), None, &LIMITS);
    // The host with the most places gives some away until both have as many.
    assert_eq!(server.gone(&host(2), None), Ok(Some((first[0], GivesWay::Share))));
    assert_eq!(server.gone(&host(2), None), Err(PlaceLimit::All));
    assert_eq!(server.gone(&host(1), None), Err(PlaceLimit::All));
    assert_eq!(server.gone(&host(3), None), Ok(Some((second, GivesWay::Share))));
    server.now += HOUR - 1;
    server.hear(first[2]);
    assert_eq!(server.gone(&host(3), None), Err(PlaceLimit::All));
    assert_eq!(server.gone(&host(4), None), Ok(Some((first[1], GivesWay::Share))));
    server.now += 1;
    assert_eq!(server.gone(&host(2), None).unwrap().unwrap().1, GivesWay::Silent);
    assert!(server.present.contains_key(&first[2]), "it was heard a moment ago");
}

/// A site with many IPv6 hosts has the share of one host.
#[test]
fn a_site_with_many_hosts_has_the_share_of_one() {
    let mut server = Server::default();
    for n in 0..4 {
        server.fill(&alloc::format!("2001:db8:0:{n}::1"), None, &LIMITS);
    }
    for n in 1..=2 {
        assert_eq!(server.gone(&host(n), None).unwrap().unwrap().1, GivesWay::Share);
    }
    assert_eq!(server.gone("2001:db8:0:9::1", None), Err(PlaceLimit::All));
}

#[test]
fn limits_of_hosts_and_networks_make_room_among_their_own_clients() {
    let limits = PlaceLimits { all: 100, per_host: 2, per_network: 3, ..LIMITS };
    let mut server = Server::default();
    let other = server.fill(&host(1), None, &limits);
    let silent = server.fill("2001:db8::1", Some(1), &limits);
    server.now += HOUR;
    server.fill("2001:db8::2", Some(2), &limits);
    let anonymous = server.fill("2001:db8:0:1::1", None, &limits);
    // Without an identity nothing gives way: neither in the host nor in the network.
    assert_eq!(server.come("2001:db8::3", None, &limits), Err(PlaceLimit::PerHost));
    assert_eq!(server.come("2001:db8:0:2::1", None, &limits), Err(PlaceLimit::PerNetwork));
    // In the host only the silent client; the anonymous one is of another host.
    assert_eq!(server.come("2001:db8::4", Some(4), &limits).unwrap().1, Some((silent, GivesWay::Silent)));
    let gone = server.come("2001:db8:0:3::1", Some(5), &limits).unwrap().1;
    assert_eq!(gone, Some((anonymous, GivesWay::Anonymous)));
    assert_eq!(server.come("2001:db8:0:4::1", Some(6), &limits), Err(PlaceLimit::PerNetwork));
    // IPv4 addresses have no network.
    for _ in 0..2 {
        server.fill(&host(2), Some(7), &limits);
    }
    assert!(server.present.contains_key(&other));
}

#[test]
fn the_last_connection_of_an_identity_is_no_double() {
    let mut server = Server::default();
    let [a, b, c] = [1, 2, 3].map(|n| server.fill(&host(n), Some(1), &LIMITS));
    server.fill(&host(4), Some(2), &LIMITS);
    server.leave(c);
    server.leave(a);
    server.fill(&host(5), Some(3), &LIMITS);
    server.fill(&host(6), Some(4), &LIMITS);
    assert_eq!(server.gone(&host(7), Some(5)), Err(PlaceLimit::All));
    assert!(server.present.contains_key(&b));
}

#[test]
fn a_connection_heard_before_the_clock_began_is_silent() {
    let limits = PlaceLimits { all: 1, ..LIMITS };
    let mut server = Server { now: -2 * HOUR, ..Server::default() };
    let thawed = server.fill(&host(1), Some(1), &limits);
    server.now = 0;
    assert_eq!(server.come(&host(2), Some(2), &limits).unwrap().1, Some((thawed, GivesWay::Silent)));
}

/// Random histories: no limit is exceeded, no known client gives way to an unknown one, and nothing is left
/// at the end.
#[test]
fn random_histories_keep_the_limits_and_leave_nothing() {
    let limits = PlaceLimits { all: 12, per_host: 4, per_network: 6, ..LIMITS };
    let mut state = 1_u64;
    let mut random = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut server = Server::default();
    let mut known = BTreeMap::new();
    for _ in 0..20_000 {
        server.now += i64::try_from(random(HOUR as u64 / 4)).unwrap();
        let numbers: Vec<_> = server.present.keys().copied().collect();
        match (random(4), numbers.get(random(12) as usize)) {
            (0, Some(number)) => server.leave(*number),
            (1, Some(number)) => server.hear(*number),
            _ => {
                let address = alloc::format!("2001:db8:{}:{}::1", random(3), random(3));
                let identity = Some(random(6) + 1).filter(|identity| *identity < 5);
                if let Ok((number, gone)) = server.come(&address, identity, &limits) {
                    known.insert(number, identity.is_some());
                    assert!(gone.is_none_or(|(other, _)| identity.is_some() || !known[&other]));
                }
            }
        }
        let mut hosts = BTreeMap::<Host, usize>::new();
        let mut networks = BTreeMap::<u64, usize>::new();
        for (_, host, _) in server.present.values() {
            *hosts.entry(*host).or_default() += 1;
            *networks.entry(host.network()).or_default() += 1;
        }
        assert!(hosts.values().all(|count| *count <= 4) && networks.values().all(|count| *count <= 6));
        assert!(server.seats.len() == server.present.len() && server.seats.len() <= 12);
    }
    server.present.keys().copied().collect::<Vec<_>>().into_iter().for_each(|number| server.leave(number));
    let Places { all, of_networks, of_identities, counts, shares, of_hosts, host_counts } =
        &server.seats.places;
    assert!(all.is_empty() && of_networks.is_empty() && of_identities.is_empty());
    assert!(of_hosts.is_empty() && host_counts.is_empty() && counts.is_empty() && shares.is_empty());
}

/// Clients by their numbers. It counts how often one is looked up.
struct Counted {
    clients: Vec<(Place, Host, i64)>,
    looked_up: usize,
}

impl Holders for Counted {
    fn holder(&mut self, number: u32) -> Option<Holder<'_>> {
        self.looked_up += 1;
        let (place, host, heard_ms) = self.clients.get_mut(number as usize)?;
        Some(Holder { place, host: *host, heard_ms: *heard_ms })
    }
}

impl Counted {
    fn new() -> Self {
        Self { clients: Vec::new(), looked_up: 0 }
    }

    fn enter(&mut self, places: &mut Places, address: &str, heard_ms: i64) -> u32 {
        let number = self.clients.len() as u32;
        let host = Host::of(address.parse().unwrap());
        let place = places.enter(number, host, Some(u64::from(number) << 32), heard_ms, self);
        self.clients.push((place, host, heard_ms));
        number
    }
}

/// A host fills its places beside the places of its network, and every client sends something before another
/// one comes.
#[test]
fn a_newcomer_costs_little_however_many_clients_were_heard() {
    let mut places = Places::new();
    let mut clients = Counted::new();
    let limits = PlaceLimits { all: 10_000, per_host: 1000, per_network: 10_000, ..LIMITS };
    for n in 0..2000 {
        let address = if n % 2 == 0 { "2001:db8:0:1::1" } else { "2001:db8:0:2::1" };
        clients.enter(&mut places, address, 0);
    }
    let now = 2 * HOUR;
    clients.clients.iter_mut().for_each(|(_, _, heard_ms)| *heard_ms = now);
    // One has been silent. The search comes to it in a few steps, each of which a newcomer pays.
    clients.clients[1998].2 = 0;
    let mut refused = 0;
    loop {
        let newcomer = clients.enter(&mut places, "2001:db8:0:1::2", now);
        clients.looked_up = 0;
        let made = places.make_room(newcomer, &limits, now, &mut clients);
        assert!(clients.looked_up <= 4 * MAX_REORDERED, "{}", clients.looked_up);
        match made {
            Ok(gone) => break assert_eq!(gone, Some((1998, GivesWay::Silent))),
            Err(limit) => assert_eq!(limit, PlaceLimit::PerHost),
        }
        refused += 1;
    }
    assert_eq!(refused, 1000 / MAX_REORDERED);
}

#[test]
fn nobody_gives_way_to_a_thawed_connection() {
    let mut places = Places::new();
    let mut clients = Counted::new();
    let limits = PlaceLimits { all: 1, ..LIMITS };
    let first = clients.enter(&mut places, "192.0.2.1", 0);
    assert_eq!(places.refuse_beyond(first, &limits, &mut clients), Ok(()));
    let second = clients.enter(&mut places, "192.0.2.2", 2 * HOUR);
    assert_eq!(places.refuse_beyond(second, &limits, &mut clients), Err(PlaceLimit::All));
    assert_eq!(places.len(), 1);
}
