//! Random journeys: each seed chooses how a client uses its interfaces, their networks and NATs, and what happens to them and to the
//! server's address. `DUNLIN_SEEDS` sets how many seeds run (`make soak` runs 10,000), `DUNLIN_SEED` runs a single one and prints it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Configs, VERSIONS};
use dunlin::wire::ProtocolVersion;
use dunlin::{
    AssociationId, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, Event, Instant, Migration,
    Multihoming, NodeIds, Now, PathCheck, Transmit,
};
use dunlin_sim::{
    Change, Conditions, Host, HostId, Impaired, InterfaceId, Link, MultiHomed, Nat, NatId, NatKind, Network,
    OneSocket,
};
use dunlin_tests::{NOW, awslc, localhost};

const PORT: u16 = 5684;
/// The events of a journey.
const EVENTS: usize = 12;
/// The time in which every check of a path ends.
const QUIET: Duration = Duration::from_secs(3);
/// The attempts, half a second each, in which an association must go on after an event.
const ATTEMPTS: usize = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linking {
    Unlinkable,
    Linkable,
    Duplicated,
}

/// What a seed chooses.
#[derive(Debug)]
struct World {
    version: ProtocolVersion,
    linking: Linking,
    /// `None`: the server follows newer records without a check.
    check: Option<PathCheck>,
    nats: Vec<Option<NatKind>>,
    conditions: Conditions,
}

impl World {
    fn new(random: &mut fastrand::Rng) -> Self {
        let version = random.choice(VERSIONS).unwrap();
        let linking = match version {
            ProtocolVersion::DTLS1_2 => random.choice([Linking::Linkable, Linking::Duplicated]),
            _ => random.choice([Linking::Unlinkable, Linking::Linkable, Linking::Duplicated]),
        };
        let kinds: Vec<_> = [None, None].into_iter().chain(NatKind::ALL.map(Some)).collect();
        let nats = (0..random.usize(1..=3)).map(|_| *random.choice(&kinds).unwrap()).collect();
        Self {
            version,
            linking: linking.unwrap(),
            check: random.choice([Some(PathCheck::Basic), Some(PathCheck::Enhanced), None]).unwrap(),
            nats,
            conditions: Conditions {
                delay: Duration::from_millis(random.u64(1..60)),
                jitter: Duration::from_millis(random.u64(0..20)),
                loss: random.f64() * 0.2,
                reorder: random.f64() * 0.2,
                duplicate: random.f64() * 0.3,
                ..Conditions::default()
            },
        }
    }

    fn configs(&self) -> Configs {
        let mut configs = Configs::of_version(self.version);
        let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
        let migration = match self.check {
            Some(check) => Migration::new(check).with_timeout(Duration::from_millis(600)).unwrap(),
            None => Migration::never().with_unchecked(true),
        };
        let multihoming = match self.linking {
            Linking::Unlinkable => Multihoming::unlinkable(),
            Linking::Linkable => Multihoming::linkable(),
            Linking::Duplicated => Multihoming::duplicated(),
        };
        configs.client = configs.client.with_connection_ids(ids()).with_migration(migration);
        configs.client = configs.client.with_multihoming(multihoming).unwrap();
        configs.server = configs.server.with_connection_ids(ids()).with_migration(migration);
        configs
    }
}

/// The hosts of the network.
enum Side {
    Client(Box<MultiHomed>),
    Server(Box<OneSocket<Endpoint>>),
}

impl Side {
    fn host(&mut self) -> &mut dyn Host {
        match self {
            Self::Client(client) => &mut **client,
            Self::Server(server) => &mut **server,
        }
    }
}

impl Host for Side {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        self.host().receive(now, at, from, datagram);
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        self.host().poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Client(client) => client.poll_timeout(),
            Self::Server(server) => server.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.host().handle_timeout(now);
    }

    fn set_addresses(&mut self, now: Now, addresses: &[Option<IpAddr>]) {
        self.host().set_addresses(now, addresses);
    }
}

/// An interface of the client.
struct Home {
    id: InterfaceId,
    nat: Option<NatId>,
    is_open: bool,
    is_up: bool,
    /// Whether its network carries anything.
    carries: Arc<AtomicBool>,
    /// How many addresses it has had.
    addresses: u8,
}

impl Home {
    fn works(&self) -> bool {
        self.is_up && self.carries.load(Ordering::Relaxed)
    }
}

struct Journey {
    network: Network<Side>,
    client: HostId,
    server: HostId,
    homes: Vec<Home>,
    of_server: (InterfaceId, u8),
    served: Option<AssociationId>,
    /// Whether the client needs a connection ID for each interface.
    needs_ids: bool,
    /// The number of the next message of each side, and what each side has received.
    next: u32,
    received: [BTreeSet<u32>; 2],
}

const fn ip(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, network, host))
}

impl Journey {
    fn new(world: &World, random: &mut fastrand::Rng) -> Self {
        let configs = world.configs();
        let server_address = SocketAddr::new(ip(0, 1), PORT);
        let mut network = Network::new(NOW);
        let client = DtlsConnection::client(&Arc::new(configs.client), localhost(), server_address, NOW);
        let client = MultiHomed::attentive(client.unwrap(), 40_000);
        let client = network.add(Side::Client(Box::new(client)));
        let mut endpoint = Endpoint::new(EndpointLimits::default());
        endpoint.set_server(Some(Arc::new(configs.server)));
        let server = network.add(Side::Server(Box::new(OneSocket::new(endpoint, PORT))));
        let mut links = |carries: &Arc<AtomicBool>| {
            [(); 2].map(|()| {
                let (carries, mut link) =
                    (Arc::clone(carries), Impaired::new(world.conditions, random.u64(..)));
                let link = move |at: Duration, datagram: Vec<u8>| match carries.load(Ordering::Relaxed) {
                    true => link.carry(at, datagram),
                    false => Vec::new(),
                };
                Box::new(link) as Box<dyn Link>
            })
        };
        let always = Arc::new(AtomicBool::new(true));
        let of_server = network.attach(server, server_address.ip(), None, links(&always));
        let mut homes = Vec::new();
        for (n, kind) in world.nats.iter().enumerate() {
            let n = n as u8;
            let nat = kind.map(|kind| {
                network.add_nat(Nat::new(kind, ip(0, 10 + n), Duration::from_secs(300), u64::from(n)))
            });
            let carries = Arc::new(AtomicBool::new(true));
            let id = network.attach(client, ip(10 + n, 1), nat, links(&carries));
            let is_open = matches!(kind, None | Some(NatKind::FullCone));
            homes.push(Home { id, nat, is_open, is_up: true, carries, addresses: 1 });
        }
        let mut journey = Self {
            network,
            client,
            server,
            homes,
            of_server: (of_server, 1),
            served: None,
            needs_ids: world.linking == Linking::Unlinkable && world.nats.len() > 1,
            next: 0,
            received: Default::default(),
        };
        journey.connect();
        journey
    }

    fn connect(&mut self) {
        for _ in 0..ATTEMPTS {
            self.network.run_for(Duration::from_secs(1)).unwrap();
            let endpoint = self.endpoint();
            while let Some(event) = endpoint.poll_event() {
                if let EndpointEvent::Incoming(id) = event {
                    self.served = Some(id);
                    return self.connected();
                }
            }
        }
        panic!("no connection");
    }

    fn connected(&mut self) {
        while self.connection().is_handshaking() {
            self.network.run_for(Duration::from_secs(1)).unwrap();
        }
        self.go_on("the handshake");
    }

    fn connection(&mut self) -> &mut DtlsConnection {
        match self.network.host(self.client) {
            Side::Client(client) => &mut client.connection,
            Side::Server(_) => panic!("the server"),
        }
    }

    fn endpoint(&mut self) -> &mut Endpoint {
        match self.network.host(self.server) {
            Side::Server(server) => &mut server.endpoint,
            Side::Client(_) => panic!("the client"),
        }
    }

    /// Each side sends a message that it has not sent before. Returns their number.
    fn send(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        let _ = self.connection().send(&number.to_be_bytes());
        let served = self.served.unwrap();
        let _ = self.endpoint().update(served, |connection| connection.send(&number.to_be_bytes()));
        number
    }

    /// Takes what has arrived. Nothing may arrive twice. Returns the latest message to the server and to the client.
    fn receive(&mut self) -> [Option<u32>; 2] {
        let (served, mut arrived) = (self.served.unwrap(), [Vec::new(), Vec::new()]);
        self.endpoint().update(served, |connection| {
            arrived[0].extend(std::iter::from_fn(|| connection.read()));
        });
        arrived[1].extend(std::iter::from_fn(|| self.connection().read()));
        let mut latest = [None; 2];
        for (side, records) in arrived.into_iter().enumerate() {
            // An empty record of DTLS 1.2 only tells an address.
            for record in records.into_iter().filter(|record| !record.is_empty()) {
                let number = u32::from_be_bytes(record.try_into().unwrap());
                assert!(self.received[side].insert(number), "message {number} arrived twice");
                latest[side] = latest[side].max(Some(number));
            }
        }
        latest
    }

    /// The association goes on: a message of each side arrives.
    fn go_on(&mut self, after: &str) {
        let first = self.next;
        let mut has_arrived = [false; 2];
        for _ in 0..ATTEMPTS {
            self.send();
            self.network.run_for(Duration::from_millis(500)).unwrap();
            for (has_arrived, latest) in has_arrived.iter_mut().zip(self.receive()) {
                *has_arrived |= latest.is_some_and(|latest| latest >= first);
            }
            if has_arrived == [true; 2] {
                return self.settle();
            }
        }
        let served = self.served.unwrap();
        let error = self.connection().error().cloned();
        let path = self.connection().path();
        let peer = self.endpoint().association(served).map(|served| served.connection().peer_address());
        panic!(
            "stuck after {after}: {has_arrived:?}, {error:?}, the client at {path:?}, for the server at {peer:?}"
        );
    }

    /// Waits until both sides know where the other one is: while nothing is checked, a message of each arrives. Two ends that move
    /// before that may lose each other. Waits also until an unlinkable client has spare connection IDs again. What both sides keep is
    /// bounded.
    fn settle(&mut self) {
        let is_known = (0..ATTEMPTS).any(|_| {
            self.network.run_for(QUIET).unwrap();
            self.receive();
            let number = self.send();
            self.network.run_for(Duration::from_millis(500)).unwrap();
            self.receive() == [Some(number); 2]
        });
        assert!(is_known, "both sides know where the other one is");
        for _ in 0..ATTEMPTS {
            if !self.needs_ids || self.connection().spare_connection_ids() > 0 {
                break;
            }
            self.network.run_for(Duration::from_secs(1)).unwrap();
            self.receive();
        }
        let served = self.served.unwrap();
        assert_eq!(self.endpoint().len(), 1);
        let of_server = self.endpoint().update(served, |connection| connection.connection_ids().count());
        assert!(of_server.unwrap() <= 8 && self.connection().connection_ids().count() <= 8);
    }

    /// Lets something happen. Returns what it was.
    fn happen(&mut self, world: &World, random: &mut fastrand::Rng) -> String {
        for _ in 0..random.u8(0..4) {
            self.send();
            self.network.run_for(Duration::from_millis(random.u64(0..80))).unwrap();
        }
        let n = random.usize(0..self.homes.len());
        let others_work = self.homes.iter().enumerate().any(|(other, home)| other != n && home.works());
        // Packets from a new address of the server pass no other NATs.
        let can_server_move = self.homes.iter().all(|home| !home.is_up || home.is_open && home.works());
        let home = &mut self.homes[n];
        let address = |home: &mut Home| {
            home.addresses += 1;
            ip(10 + n as u8, home.addresses)
        };
        match random.u8(0..6) {
            0 if others_work => {
                home.is_up = false;
                self.network.change(Change::Address(home.id, None));
                format!("interface {n} went down")
            }
            0 | 1 => {
                home.is_up = true;
                home.carries.store(true, Ordering::Relaxed);
                let address = address(home);
                self.network.change(Change::Address(home.id, Some(address)));
                format!("interface {n} got the address {address}")
            }
            2 if world.check.is_some() && others_work => {
                home.carries.store(false, Ordering::Relaxed);
                format!("the network of interface {n} failed")
            }
            2 | 3 => {
                home.carries.store(true, Ordering::Relaxed);
                format!("the network of interface {n} works")
            }
            4 if can_server_move => {
                self.of_server.1 += 1;
                let address = ip(0, 100 + self.of_server.1);
                self.network.change(Change::Address(self.of_server.0, Some(address)));
                format!("the server got the address {address}")
            }
            _ => match home.nat {
                Some(nat) => {
                    self.network.change(Change::Restart(nat));
                    format!("the NAT of interface {n} restarted")
                }
                None => "nothing happened".to_owned(),
            },
        }
    }

    /// The interfaces from which the client's protected records of DTLS 1.3 come, by their connection IDs.
    fn sources(&self) -> BTreeMap<Vec<u8>, BTreeSet<u8>> {
        let mut sources = BTreeMap::<_, BTreeSet<_>>::new();
        for sent in self.network.sent.iter().filter(|sent| sent.host == self.client) {
            if let [0x30..=0x3f, id @ ..] = &sent.datagram[..] {
                let IpAddr::V4(from) = sent.from.ip() else { panic!("{}", sent.from) };
                sources.entry(id[..8].to_vec()).or_default().insert(from.octets()[2]);
            }
        }
        sources
    }
}

fn travel(seed: u64, is_shown: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(&mut random);
    if is_shown {
        println!("{world:#?}");
    }
    let mut journey = Journey::new(&world, &mut random);
    for _ in 0..EVENTS {
        let what = journey.happen(&world, &mut random);
        if is_shown {
            println!("after {:?}: {what}", journey.network.elapsed());
        }
        journey.go_on(&what);
    }
    if world.linking == Linking::Unlinkable {
        if is_shown {
            println!("{:02x?}", journey.sources());
        }
        let mut events = std::iter::from_fn(|| journey.connection().poll_event());
        if events.any(|event| matches!(event, Event::PathChanged(change) if change.is_linked)) {
            // It had no spare ID.
            return;
        }
        let linked: Vec<_> = journey.sources().into_iter().filter(|(_, sources)| sources.len() > 1).collect();
        assert!(linked.is_empty(), "the same ID on several interfaces: {linked:?}");
    }
}

#[test]
fn associations_go_on_wherever_their_ends_move() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("DUNLIN_SEED") {
        return travel(seed, true);
    }
    for seed in 0..number("DUNLIN_SEEDS").unwrap_or(240) {
        let travelled = std::panic::catch_unwind(|| travel(seed, false));
        assert!(travelled.is_ok(), "seed {seed}: repeat it with DUNLIN_SEED={seed}");
    }
}
