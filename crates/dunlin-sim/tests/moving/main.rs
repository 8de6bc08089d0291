//! Random journeys: each seed chooses a scheme, how a client uses its interfaces, their networks and NATs,
//! and what happens to them, to the server's address and to both processes. `DUNLIN_SEEDS` sets which seeds
//! run (a number, or `5000..10000`; `make soak` runs 10,000), `DUNLIN_SEED` runs a single one and prints it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "../common/mod.rs"]
mod common;
mod world;

use std::alloc::System;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cap::Cap;
use dunlin::error::{Error, Misuse};
use dunlin::wire::ProtocolVersion;
use dunlin::{
    AssociationId, ClientConfig, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, Event, Local,
    ServerConfig,
};
use dunlin_sim::{Change, Host, HostId, InterfaceId, MultiHomed, Nat, NatId, NatKind, Network, Pooled};
use dunlin_tests::{NOW, localhost};
use world::{Driver, Scheme, Side, World, endpoint_host};

/// Counts the memory of both sides.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

const PORT: u16 = 5684;
const CLIENT_PORT: u16 = 40_000;
/// The first port of the server's pool.
const POOL: u16 = 6000;
/// An attacker, which forwards records faster than the network.
const FORWARDER: SocketAddr = SocketAddr::new(ip(66, 6), 6666);
/// The events of a journey.
const EVENTS: usize = 14;
/// The time in which every check of a path ends.
const QUIET: Duration = Duration::from_secs(3);
/// The attempts, half a second each, in which an association must go on after an event.
const ATTEMPTS: usize = 120;
const COOKIE_LIFETIME: Duration = Duration::from_secs(120);
/// The time in seconds in which a handshake ends. Each demand for a cookie lets a client of DTLS 1.2 begin
/// again.
const LONGEST_HANDSHAKE: usize = 1800;
/// The time in seconds in which an association takes its port.
const PATIENCE: usize = 600;
/// The most connection IDs that a side keeps of each kind.
const MAX_IDS: usize = 16;
/// The most other clients of a journey.
const MAX_GUESTS: usize = 3;
/// The most datagrams in [`LONG`] without data: what a bad network makes both sides send again. Then nothing
/// follows.
const MAX_IDLE_DATAGRAMS: usize = 64;
const LONG: Duration = Duration::from_secs(3600);
/// The memory that the client and the server keep at the end of a journey, in bytes.
const MAX_HELD: usize = 32 << 10;
/// Times what came from an unproven address (docs/security.md, `MAX_AMPLIFICATION`).
const MAX_AMPLIFICATION: usize = 3;

/// An interface of the client.
struct Home {
    id: InterfaceId,
    nat: Option<NatId>,
    is_open: bool,
    address: Option<IpAddr>,
    /// Whether its network carries anything.
    carries: Arc<AtomicBool>,
    /// How many addresses it has had.
    addresses: u8,
}

impl Home {
    fn works(&self) -> bool {
        self.address.is_some() && self.carries.load(Ordering::Relaxed)
    }
}

struct Journey<'w> {
    world: &'w World,
    client_config: Arc<ClientConfig>,
    server_config: Arc<ServerConfig>,
    network: Network<Side>,
    client: HostId,
    /// The association of a client that is an endpoint.
    asked: Option<AssociationId>,
    server: HostId,
    homes: Vec<Home>,
    of_server: (InterfaceId, IpAddr, u8),
    served: Option<AssociationId>,
    /// The associations of other clients.
    guests: Vec<AssociationId>,
    guest_hosts: Vec<HostId>,
    /// The number of the next message of each side, and what each side has received.
    next: u32,
    received: [BTreeSet<u32>; 2],
    /// Whether a client without spare IDs has taken one along.
    is_linked: bool,
    /// The bytes that the attacker has forwarded to the client and to the server.
    forwarded: [usize; 2],
}

const fn ip(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, network, host))
}

impl<'w> Journey<'w> {
    /// `None` if the network loses so much that the handshake ends.
    fn new(world: &'w World, random: &mut fastrand::Rng) -> Option<Self> {
        let configs = world.configs();
        let client_config = Arc::new(configs.client);
        let server_config = Arc::new(configs.server);
        let server_address = SocketAddr::new(ip(0, 1), PORT);
        let mut network = Network::new(NOW);
        let client = match world.driver {
            Driver::System { .. } => endpoint_host(CLIENT_PORT),
            _ => {
                let connection = DtlsConnection::client(&client_config, localhost(), server_address, NOW);
                Side::Connection(Box::new(MultiHomed::attentive(connection.unwrap(), CLIENT_PORT)))
            }
        };
        let client = network.add(client);
        let mut endpoint = Endpoint::new(EndpointLimits::default());
        endpoint.set_server(Some(Arc::clone(&server_config)));
        let pool = matches!(world.scheme, Scheme::Port(_)).then(|| POOL..=POOL + world.ports - 1);
        let server = network.add(Side::Endpoint(Box::new(Pooled::new(endpoint, PORT, pool).unwrap())));
        let always = Arc::new(AtomicBool::new(true));
        let of_server = network.attach(server, server_address.ip(), None, world.links(random, &always));
        let mut homes = Vec::new();
        for (n, kind) in world.nats.iter().enumerate() {
            let n = n as u8;
            let nat =
                kind.map(|kind| network.add_nat(Nat::new(kind, ip(0, 10 + n), world.mapping, u64::from(n))));
            let carries = Arc::new(AtomicBool::new(true));
            let address = ip(10 + n, 1);
            let id = network.attach(client, address, nat, world.links(random, &carries));
            let is_open = matches!(kind, None | Some(NatKind::FullCone));
            homes.push(Home { id, nat, is_open, address: Some(address), carries, addresses: 1 });
        }
        let mut journey = Self {
            world,
            client_config,
            server_config,
            network,
            client,
            asked: None,
            server,
            homes,
            of_server: (of_server, server_address.ip(), 1),
            served: None,
            guests: Vec::new(),
            guest_hosts: Vec::new(),
            next: 0,
            received: Default::default(),
            is_linked: false,
            forwarded: [0; 2],
        };
        journey.connect(server_address).then_some(journey)
    }

    /// Returns `false` if the network has lost too much.
    fn connect(&mut self, server: SocketAddr) -> bool {
        let config = Arc::clone(&self.client_config);
        let now = self.network.now;
        let is_newest = self.world.version == ProtocolVersion::DTLS1_3;
        if let Side::Endpoint(client) = self.network.host(self.client) {
            self.asked = Some(client.endpoint.connect(&config, localhost(), server, now).unwrap());
        }
        for _ in 0..LONGEST_HANDSHAKE {
            self.network.run_for(Duration::from_secs(1)).unwrap();
            let begun = self.begun();
            self.guests.extend(begun);
            let (error, is_handshaking) =
                self.with_client(|client| (client.error().cloned(), client.is_handshaking()));
            match error {
                Some(Error::TimedOut) => return false,
                // The client's cookie is too old by now. DTLS 1.3 cannot demand another one (RFC 8446
                // §4.1.4).
                Some(_) if is_newest && self.network.elapsed() > COOKIE_LIFETIME => return false,
                error => assert_eq!(error, None, "the handshake"),
            }
            let guests = std::mem::take(&mut self.guests);
            let (served, others): (Vec<_>, Vec<_>) =
                guests.into_iter().partition(|id| !is_handshaking && self.is_served(*id));
            self.guests = others;
            if let [served] = served[..] {
                self.served = Some(served);
                self.dismiss();
                return self.go_on("the handshake");
            }
        }
        panic!("no connection");
    }

    /// Whether both sides keep the association when the client moves. One that has not got its port through a
    /// bad network in time is an ordinary association.
    fn is_mobile(&mut self) -> bool {
        matches!(self.world.scheme, Scheme::Ids { .. })
            || (0..PATIENCE).any(|_| {
                // Otherwise a NAT might forget a client that waits for the announcement.
                self.send();
                self.network.run_for(Duration::from_secs(1)).unwrap();
                self.receive();
                // A client that has got no answer from the port returns from it.
                self.uses_port() && {
                    self.settle();
                    self.uses_port()
                }
            })
    }

    fn uses_port(&mut self) -> bool {
        let client = self.with_client(|client| client.path().peer.port() >= POOL);
        client && self.with_served(|served| served.path().local != Local::default())
    }

    /// The associations that clients have begun since the last call.
    fn begun(&mut self) -> Vec<AssociationId> {
        let events = std::iter::from_fn(|| self.endpoint().poll_event());
        let begun = events.filter_map(|event| match event {
            EndpointEvent::Incoming(id) => Some(id),
            _ => None,
        });
        begun.collect()
    }

    fn is_served(&mut self, id: AssociationId) -> bool {
        self.endpoint().association(id).is_some_and(|association| {
            let connection = association.connection();
            association.ended().is_none() && connection.negotiated().is_some() && connection.error().is_none()
        })
    }

    /// The server ends the associations of other clients.
    fn dismiss(&mut self) {
        let now = self.network.now;
        for id in std::mem::take(&mut self.guests) {
            self.endpoint().remove(now, id);
        }
    }

    fn with_client<R>(&mut self, f: impl FnOnce(&mut DtlsConnection) -> R) -> R {
        let asked = self.asked;
        match self.network.host(self.client) {
            Side::Connection(client) => f(&mut client.connection),
            Side::Endpoint(client) => client.endpoint.update(asked.unwrap(), f).unwrap(),
            Side::Gone => panic!("the client is gone"),
        }
    }

    fn endpoint(&mut self) -> &mut Endpoint {
        match self.network.host(self.server) {
            Side::Endpoint(server) => &mut server.endpoint,
            _ => panic!("not the server"),
        }
    }

    fn with_served<R>(&mut self, f: impl FnOnce(&mut DtlsConnection) -> R) -> R {
        let served = self.served.unwrap();
        self.endpoint().update(served, f).unwrap()
    }

    /// Each side sends a message that it has not sent before. Returns their number.
    fn send(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        let _ = self.with_client(|connection| connection.send(&number.to_be_bytes()));
        let _ = self.with_served(|connection| connection.send(&number.to_be_bytes()));
        number
    }

    /// Takes what has arrived. Nothing may arrive twice. Returns the latest message to the server and to the
    /// client.
    fn receive(&mut self) -> [Option<u32>; 2] {
        let mut is_linked = false;
        let to_client = self.with_client(|client| {
            is_linked = std::iter::from_fn(|| client.poll_event())
                .any(|event| matches!(event, Event::PathChanged(change) if change.is_linked));
            std::iter::from_fn(|| client.read()).collect::<Vec<_>>()
        });
        self.is_linked |= is_linked;
        let to_server = self.with_served(|served| {
            while served.poll_event().is_some() {}
            std::iter::from_fn(|| served.read()).collect::<Vec<_>>()
        });
        let begun = self.begun();
        self.guests.extend(begun);
        let mut latest = [None; 2];
        for (side, records) in [to_server, to_client].into_iter().enumerate() {
            // An empty record of DTLS 1.2 only tells an address.
            for record in records.into_iter().filter(|record| !record.is_empty()) {
                let number = u32::from_be_bytes(record.try_into().unwrap());
                assert!(number < self.next, "message {number} is another client's");
                assert!(self.received[side].insert(number), "message {number} arrived twice");
                latest[side] = latest[side].max(Some(number));
            }
        }
        latest
    }

    /// The association goes on: a message of each side arrives. Returns `false` if the client gave up because
    /// the network has lost all acknowledgements of its Finished, which takes minutes.
    fn go_on(&mut self, after: &str) -> bool {
        let first = self.next;
        let mut has_arrived = [false; 2];
        for _ in 0..ATTEMPTS {
            self.choose_interface();
            self.send();
            self.network.run_for(Duration::from_millis(500)).unwrap();
            for (has_arrived, latest) in has_arrived.iter_mut().zip(self.receive()) {
                *has_arrived |= latest.is_some_and(|latest| latest >= first);
            }
            if has_arrived == [true; 2] {
                self.settle();
                return true;
            }
        }
        let (error, path) = self.with_client(|client| (client.error().cloned(), client.path()));
        if error == Some(Error::TimedOut) {
            return false;
        }
        let peer = self.with_served(|served| (served.error().cloned(), served.path()));
        panic!(
            "stuck after {after}: {has_arrived:?}, {error:?}, the client at {path:?}, for the server {peer:?}"
        );
    }

    /// A caller that chooses the interface takes the first one that works.
    fn choose_interface(&mut self) {
        if self.world.driver == Driver::Caller
            && let Some(first) = self.homes.iter().position(Home::works)
        {
            let local = Local(first as u32);
            let now = self.network.now;
            self.with_client(|client| {
                if client.path().local != local {
                    client.set_local(local);
                    let _ = client.address_changed(now, local);
                }
            });
        }
    }

    /// Waits until both sides know where the other one is: while nothing is checked, a message of each
    /// arrives. Two ends that move before that may lose each other. Waits also until an unlinkable client has
    /// spare connection IDs again. Checks that the state of both sides is bounded.
    fn settle(&mut self) {
        let is_known = (0..ATTEMPTS).any(|_| {
            self.network.run_for(QUIET).unwrap();
            self.receive();
            let number = self.send();
            self.network.run_for(Duration::from_millis(500)).unwrap();
            self.receive() == [Some(number); 2]
        });
        assert!(is_known, "both sides know where the other one is");
        let needs_ids = self.world.driver == Driver::Unlinkable && self.homes.len() > 1;
        for _ in 0..ATTEMPTS {
            if !needs_ids || self.with_client(|client| client.spare_connection_ids()) > 0 {
                break;
            }
            self.send();
            self.network.run_for(Duration::from_secs(1)).unwrap();
            self.receive();
        }
        self.check_counts();
    }

    fn check_counts(&mut self) {
        let most = 1 + self.guests.len();
        let ports = usize::from(self.world.ports);
        assert!(self.guests.len() <= 2, "{} other associations", self.guests.len());
        let endpoint = self.endpoint();
        let associations = endpoint.len();
        let used = endpoint.ports().used;
        assert!(associations <= most, "{associations} associations");
        assert!(used <= ports && used <= associations, "{used} of {ports} ports");
        let count = |connection: &mut DtlsConnection| {
            (connection.connection_ids().count(), connection.spare_connection_ids())
        };
        for (own, spare) in [self.with_client(count), self.with_served(count)] {
            assert!(
                own <= MAX_IDS && spare <= MAX_IDS,
                "{own} connection IDs, {spare} spare ones of the peer"
            );
        }
    }

    /// Lets something happen. Returns what it was.
    fn happen(&mut self, random: &mut fastrand::Rng) -> String {
        for _ in 0..random.u8(0..4) {
            self.send();
            self.network.run_for(Duration::from_millis(random.u64(0..80))).unwrap();
        }
        let n = random.usize(0..self.homes.len());
        match random.u8(0..18) {
            0..4 => self.change_address(n, random),
            4..6 => self.change_network(n),
            6 => self.move_server(),
            7..9 => match self.homes[n].nat {
                Some(nat) => {
                    self.network.change(Change::Restart(nat));
                    format!("the NAT of interface {n} restarted")
                }
                None => "nothing happened".to_owned(),
            },
            9 => {
                self.network.run_for(self.world.mapping + Duration::from_secs(1)).unwrap();
                "both sides were silent for longer than the NATs remember".to_owned()
            }
            10..12 => self.freeze_server(random),
            12..14 => self.freeze_client(random),
            14 if self.guest_hosts.len() < MAX_GUESTS => self.greet(random),
            15 => self.renew(random),
            _ => self.forward(random),
        }
    }

    fn others_work(&self, n: usize) -> bool {
        self.homes.iter().enumerate().any(|(other, home)| other != n && home.works())
    }

    fn set_address(&mut self, n: usize, address: Option<IpAddr>) {
        let home = &mut self.homes[n];
        home.address = address;
        self.network.change(Change::Address(home.id, address));
        if self.world.driver == (Driver::System { reports: true }) {
            let now = self.network.now;
            let _ = self.with_client(|client| client.address_changed(now, Local::default()));
        }
    }

    fn change_address(&mut self, n: usize, random: &mut fastrand::Rng) -> String {
        let is_down = random.u8(0..3) == 0;
        if is_down && self.others_work(n) {
            self.set_address(n, None);
            return format!("interface {n} went down");
        }
        let downtime = Duration::from_millis(random.u64(0..3000));
        if is_down && downtime > Duration::from_secs(1) {
            self.set_address(n, None);
            for _ in 0..random.u8(0..4) {
                self.send();
                self.network.run_for(downtime / 4).unwrap();
            }
        }
        let home = &mut self.homes[n];
        home.addresses += 1;
        home.carries.store(true, Ordering::Relaxed);
        let address = ip(10 + n as u8, home.addresses);
        self.set_address(n, Some(address));
        format!("interface {n} got the address {address}")
    }

    fn change_network(&mut self, n: usize) -> String {
        let notices = match self.world.driver {
            Driver::Caller => true,
            Driver::System { .. } => false,
            _ => self.world.check.is_some(),
        };
        let others_work = self.others_work(n);
        let carries = &self.homes[n].carries;
        if carries.load(Ordering::Relaxed) && others_work && notices {
            carries.store(false, Ordering::Relaxed);
            return format!("the network of interface {n} failed");
        }
        carries.store(true, Ordering::Relaxed);
        format!("the network of interface {n} works")
    }

    fn move_server(&mut self) -> String {
        // Packets from a new address of the server pass no other NATs.
        let is_open = self.homes.iter().all(|home| home.address.is_none() || home.is_open && home.works());
        if !is_open || !self.world.follows_server() {
            return "nothing happened".to_owned();
        }
        self.of_server.2 += 1;
        self.of_server.1 = ip(0, 100 + self.of_server.2);
        self.network.change(Change::Address(self.of_server.0, Some(self.of_server.1)));
        format!("the server got the address {}", self.of_server.1)
    }

    /// Checks the result of [`DtlsConnection::freeze`]. An association that cannot be frozen continues
    /// unchanged.
    fn frozen(&self, frozen: Result<Vec<u8>, Error>) -> Result<Vec<u8>, String> {
        frozen.map_err(|error| {
            let has_port = matches!(self.world.scheme, Scheme::Port(_));
            let is_expected = match error {
                Error::Misuse(Misuse::FlightWaits) => true,
                Error::Misuse(Misuse::NotSupported(_)) => has_port,
                _ => false,
            };
            assert!(is_expected, "{error}");
            format!("nothing was frozen: {error}")
        })
    }

    /// Another process goes on with the server's association, after a while.
    fn freeze_server(&mut self, random: &mut fastrand::Rng) -> String {
        self.receive();
        self.dismiss();
        let now = self.network.now;
        let served = self.served.unwrap();
        let frozen = self.endpoint().freeze(now, served).unwrap().map(|bytes| bytes.to_vec());
        let bytes = match self.frozen(frozen) {
            Ok(bytes) => bytes,
            Err(why) => return why,
        };
        *self.endpoint() = Endpoint::new(EndpointLimits::default());
        self.network.run_for(Duration::from_millis(random.u64(0..2000))).unwrap();
        let now = self.network.now;
        let connection = DtlsConnection::thaw_server(&self.server_config, &bytes, now).unwrap();
        let config = Arc::clone(&self.server_config);
        self.endpoint().set_server(Some(config));
        self.served = Some(self.endpoint().adopt(now, connection).unwrap());
        "the server's association was frozen".to_owned()
    }

    fn freeze_client(&mut self, random: &mut fastrand::Rng) -> String {
        self.receive();
        let now = self.network.now;
        let asked = self.asked;
        let frozen = match self.network.host(self.client) {
            Side::Endpoint(client) => client.endpoint.freeze(now, asked.unwrap()).unwrap(),
            _ => self.with_client(|client| client.freeze(now)),
        };
        let bytes = match self.frozen(frozen.map(|bytes| bytes.to_vec())) {
            Ok(bytes) => bytes,
            Err(why) => return why,
        };
        self.network.run_for(Duration::from_millis(random.u64(0..2000))).unwrap();
        let now = self.network.now;
        let connection = DtlsConnection::thaw_client(&self.client_config, localhost(), &bytes, now).unwrap();
        match self.network.host(self.client) {
            Side::Endpoint(client) => {
                client.endpoint = Endpoint::new(EndpointLimits::default());
                self.asked = Some(client.endpoint.adopt(now, connection).unwrap());
            }
            Side::Connection(client) => client.connection = connection,
            Side::Gone => panic!("the client is gone"),
        }
        // The new process looks at its interfaces.
        let first = &self.homes[0];
        self.network.change(Change::Address(first.id, first.address));
        "the client's association was frozen".to_owned()
    }

    /// Another client comes, and takes a port of the pool if there is one. Those before it have left.
    fn greet(&mut self, random: &mut fastrand::Rng) -> String {
        self.dismiss();
        let host = self.network.add(endpoint_host(CLIENT_PORT));
        self.guest_hosts.push(host);
        let always = Arc::new(AtomicBool::new(true));
        // The hosts behind a NAT share its public address. IPC does not pass all of them.
        let nat = self.homes[0].nat.filter(|_| random.bool());
        let links = self.world.links(random, &always);
        self.network.attach(host, ip(40 + self.guest_hosts.len() as u8, 1), nat, links);
        let server = SocketAddr::new(self.of_server.1, PORT);
        let config = Arc::clone(&self.client_config);
        let now = self.network.now;
        let Side::Endpoint(guest) = self.network.host(host) else { panic!("not an endpoint") };
        let id = guest.endpoint.connect(&config, localhost(), server, now).unwrap();
        for _ in 0..ATTEMPTS {
            self.network.run_for(Duration::from_millis(500)).unwrap();
            self.receive();
            let Side::Endpoint(guest) = self.network.host(host) else { panic!("not an endpoint") };
            let sent = guest
                .endpoint
                .update(id, |guest| (guest.send(&u32::MAX.to_be_bytes()), guest.error().cloned()));
            match sent.unwrap() {
                (Ok(()), _) => break,
                // The network has lost too much.
                (Err(_), Some(Error::TimedOut)) => break,
                (Err(_), error) => assert_eq!(error, None, "another client"),
            }
        }
        self.receive();
        let newest = self.guests.pop();
        self.dismiss();
        self.guests.extend(newest);
        format!("another client came, after {:?}", self.endpoint().ports())
    }

    /// New keys or connection IDs.
    fn renew(&mut self, random: &mut fastrand::Rng) -> String {
        let renew = |connection: &mut DtlsConnection, has_new_id: bool| {
            if has_new_id { connection.replace_connection_id() } else { connection.update_keys(true) }
        };
        let of_client = random.bool();
        let has_new_id = random.bool();
        // A new ID of the server ends the IDs of the client's other interfaces.
        let has_new_id = has_new_id && (of_client || self.world.driver != Driver::Unlinkable);
        let renewed = if of_client {
            self.with_client(|client| renew(client, has_new_id))
        } else {
            self.with_served(|served| renew(served, has_new_id))
        };
        format!("renewed: {renewed:?}, the client {of_client}, an ID {has_new_id}")
    }

    /// An attacker forwards a record from its own address, before the network delivers it.
    fn forward(&mut self, random: &mut fastrand::Rng) -> String {
        self.send();
        self.network.run_for(Duration::ZERO).unwrap();
        let to_server = random.bool();
        let (by, target) = if to_server { (self.client, self.server) } else { (self.server, self.client) };
        let Some(sent) = self.network.sent.iter().rev().find(|sent| sent.host == by).cloned() else {
            return "nothing happened".to_owned();
        };
        let at = match (to_server, self.homes.iter().find(|home| home.works())) {
            (false, Some(Home { address: Some(address), .. })) => SocketAddr::new(*address, CLIENT_PORT),
            _ => sent.to,
        };
        self.forwarded[usize::from(to_server)] += sent.datagram.len();
        let now = self.network.now;
        self.network.host(target).receive(now, at, FORWARDER, &sent.datagram);
        format!("an attacker forwarded {} bytes to {at}", sent.datagram.len())
    }

    /// The interfaces from which the client's protected records of DTLS 1.3 come, by their connection IDs.
    fn sources(&self, id_len: usize) -> BTreeMap<Vec<u8>, BTreeSet<u8>> {
        let mut sources = BTreeMap::<_, BTreeSet<_>>::new();
        for sent in self.network.sent.iter().filter(|sent| sent.host == self.client) {
            if let [0x30..=0x3f, id @ ..] = &sent.datagram[..] {
                let IpAddr::V4(from) = sent.from.ip() else { panic!("{}", sent.from) };
                sources.entry(id[..id_len].to_vec()).or_default().insert(from.octets()[2]);
            }
        }
        sources
    }

    /// Checks the invariants of the whole journey, and ends both sides.
    fn check(mut self) {
        if let (Driver::Unlinkable, Scheme::Ids { server, .. }) = (self.world.driver, self.world.scheme)
            && !self.is_linked
        {
            let sources = self.sources(server);
            let linked: Vec<_> = sources.into_iter().filter(|(_, sources)| sources.len() > 1).collect();
            assert!(linked.is_empty(), "the same ID on several interfaces: {linked:?}");
        }
        for (side, forwarded) in [self.client, self.server].into_iter().zip(self.forwarded) {
            let sent = self.network.sent.iter().filter(|sent| sent.host == side && sent.to == FORWARDER);
            let sent: usize = sent.map(|sent| sent.datagram.len()).sum();
            let is_bounded = sent <= forwarded * MAX_AMPLIFICATION;
            assert!(self.world.check.is_none() || is_bounded, "{sent} bytes for {forwarded}");
        }
        self.dismiss();
        for guest in &self.guest_hosts {
            *self.network.host(*guest) = Side::Gone;
        }
        for most in [MAX_IDLE_DATAGRAMS, 0] {
            self.network.sent = Vec::new();
            self.network.run_for(LONG).unwrap();
            let sent = self.network.sent.len();
            assert!(sent <= most, "{sent} datagrams without data");
        }
        for (who, host) in [("client", self.client), ("server", self.server)] {
            let before = MEMORY.allocated();
            *self.network.host(host) = Side::Gone;
            let held = before - MEMORY.allocated();
            assert!(held <= MAX_HELD, "the {who} keeps {held} bytes");
        }
    }
}

/// Returns the row and the column of the matrix.
fn travel(seed: u64, is_shown: bool) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(&mut random);
    if is_shown {
        println!("{world:#?}");
    }
    let Some(mut journey) = Journey::new(&world, &mut random) else { return "no connection".to_owned() };
    if !journey.is_mobile() {
        journey.go_on("the port was out of reach");
        return "no port".to_owned();
    }
    for _ in 0..EVENTS {
        let what = journey.happen(&mut random);
        if is_shown {
            println!("until {:?}: {what}", journey.network.elapsed());
        }
        if !journey.go_on(&what) {
            return "no acknowledgement".to_owned();
        }
    }
    journey.check();
    world.name()
}

#[test]
fn associations_go_on_wherever_their_ends_move() {
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(seed) = variable("DUNLIN_SEED") {
        println!("{}", travel(seed.parse().unwrap(), true));
        return;
    }
    let seeds = variable("DUNLIN_SEEDS").unwrap_or_else(|| "160".to_owned());
    let (first, end) = seeds.split_once("..").unwrap_or(("0", &seeds));
    let (mut failed, mut matrix) = (Vec::new(), BTreeMap::<_, usize>::new());
    for seed in first.parse().unwrap()..end.parse().unwrap() {
        match std::panic::catch_unwind(|| travel(seed, false)) {
            Ok(name) => *matrix.entry(name).or_default() += 1,
            Err(_) => {
                eprintln!("seed {seed} failed");
                failed.push(seed);
            }
        }
    }
    matrix.iter().for_each(|(name, count)| println!("{count:5} {name}"));
    assert!(failed.is_empty(), "repeat them, for example with DUNLIN_SEED={}: {failed:?}", failed[0]);
}
