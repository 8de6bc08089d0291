//! Associations with a port of their own at the server: IPC and TCS, behind NATs, with clients that move.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::{Configs, VERSIONS};
use dunlin::error::{Error, Misuse};
use dunlin::wire::ProtocolVersion;
use dunlin::{
    AssociationId, Ended, Endpoint, EndpointEvent, EndpointLimits, Local, Migration, NoPort, NodeIds, Path,
    PortScheme,
};
use dunlin_sim::{Change, Delay, HostId, InterfaceId, Link, Nat, NatId, NatKind, Network, Pooled};
use dunlin_tests::{NOW, awslc, localhost};

const DELAY: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(60);
const PORT: u16 = 5684;
/// The first port of the server's pool.
const POOL: u16 = 6000;
const CLIENT_PORT: u16 = 40_000;

const SCHEMES: [PortScheme; 4] =
    [PortScheme::Ipc, PortScheme::IpcUnannounced, PortScheme::Tcs, PortScheme::TcsMessage];

const fn ip(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(198, 51, network, host))
}

const SERVER: SocketAddr = SocketAddr::new(ip(0, 1), PORT);
const PUBLIC: IpAddr = ip(0, 2);

fn is_ipc(scheme: PortScheme) -> bool {
    matches!(scheme, PortScheme::Ipc | PortScheme::IpcUnannounced)
}

fn links() -> [Box<dyn Link>; 2] {
    [Box::new(Delay(DELAY)), Box::new(Delay(DELAY))]
}

/// Configurations with this scheme on both sides. The server follows clients.
fn configs(version: ProtocolVersion, scheme: PortScheme) -> Configs {
    let mut configs = Configs::of_version(version);
    configs.client = configs.client.with_port_scheme(scheme);
    configs.server =
        configs.server.with_port_scheme(scheme).with_migration(Migration::never().with_unchecked(true));
    configs
}

/// A server with a pool, and clients, perhaps behind a NAT.
struct World {
    network: Network<Pooled>,
    server: HostId,
    nat: Option<NatId>,
    events: Vec<EndpointEvent>,
}

/// A client of a [`World`].
#[derive(Clone, Copy)]
struct Client {
    host: HostId,
    interface: InterfaceId,
    id: AssociationId,
}

impl World {
    /// The pool has this many ports.
    fn new(configs: &Configs, kind: Option<NatKind>, ports: u16) -> Self {
        let mut network = Network::new(NOW);
        let pool = (ports > 0).then(|| POOL..=POOL + ports - 1);
        let mut server = Endpoint::new(EndpointLimits::default());
        server.set_server(Some(Arc::new(configs.server.clone())));
        let server = network.add(Pooled::new(server, PORT, pool).unwrap());
        network.attach(server, SERVER.ip(), None, links());
        let nat = kind.map(|kind| network.add_nat(Nat::new(kind, PUBLIC, TIMEOUT, 3)));
        Self { network, server, nat, events: Vec::new() }
    }

    /// Adds a client at the address with this number, and lets it connect.
    fn connect(&mut self, configs: &Configs, number: u8) -> Client {
        self.connect_over(configs, number, links())
    }

    /// The same over these links.
    fn connect_over(&mut self, configs: &Configs, number: u8, links: [Box<dyn Link>; 2]) -> Client {
        let endpoint = Endpoint::new(EndpointLimits::default());
        let host = self.network.add(Pooled::new(endpoint, CLIENT_PORT, None).unwrap());
        let interface = self.network.attach(host, ip(7, number), self.nat, links);
        let (config, now) = (Arc::new(configs.client.clone()), self.network.now);
        let id = self.network.host(host).endpoint.connect(&config, localhost(), SERVER, now).unwrap();
        self.pass(30);
        Client { host, interface, id }
    }

    fn server(&mut self) -> &mut Endpoint {
        &mut self.network.host(self.server).endpoint
    }

    /// Lets so many delays of a direction pass.
    fn pass(&mut self, delays: u32) {
        self.network.run_for(DELAY * delays).unwrap();
        while let Some(event) = self.server().poll_event() {
            self.events.push(event);
        }
    }

    fn is_connected(&mut self, client: Client) -> bool {
        let association = self.network.host(client.host).endpoint.association(client.id).unwrap();
        association.connection().negotiated().is_some() && association.connection().error().is_none()
    }

    /// The port at the server to which the client sends.
    fn port(&mut self, client: Client) -> u16 {
        let association = self.network.host(client.host).endpoint.association(client.id).unwrap();
        association.connection().peer_address().port()
    }

    /// The server's associations, in the order of their beginning.
    fn served(&mut self) -> Vec<AssociationId> {
        let begun = self.events.iter().filter_map(|event| match event {
            EndpointEvent::Incoming(id) => Some(*id),
            _ => None,
        });
        let begun: Vec<_> = begun.collect();
        let server = self.server();
        begun.into_iter().filter(|id| server.association(*id).is_some_and(|a| a.ended().is_none())).collect()
    }

    /// Sends data in both directions, the client first. Returns whether each arrives.
    fn exchange(&mut self, client: Client, served: AssociationId) -> [bool; 2] {
        let to = &mut self.network.host(client.host).endpoint;
        to.update(client.id, |connection| connection.send(b"ping")).unwrap().unwrap();
        self.pass(3);
        let there = self.server().update(served, |connection| connection.read()).unwrap();
        self.server().update(served, |connection| connection.send(b"pong")).unwrap().unwrap();
        self.pass(3);
        let back = self.network.host(client.host).endpoint.update(client.id, |connection| connection.read());
        [there.as_deref() == Some(b"ping"), back.unwrap().as_deref() == Some(b"pong")]
    }
}

/// The matrix of docs/association-ports.md: where each scheme works, before and after the client has moved.
#[test]
fn each_scheme_works_behind_the_nats_that_the_documentation_names() {
    for version in VERSIONS {
        for scheme in SCHEMES {
            for kind in [None].into_iter().chain(NatKind::ALL.map(Some)) {
                let what = format!("{version} {scheme:?} {kind:?}");
                let configs = configs(version, scheme);
                let mut world = World::new(&configs, kind, 4);
                let client = world.connect(&configs, 1);
                let blocks = matches!(kind, Some(NatKind::PortRestricted | NatKind::Symmetric));
                assert_eq!(world.is_connected(client), !(is_ipc(scheme) && blocks), "{what}");
                if !world.is_connected(client) {
                    continue;
                }
                let served = world.served()[0];
                assert_eq!(world.port(client), POOL, "{what}");
                assert_eq!(world.exchange(client, served), [true; 2], "{what}");
                let here = world.network.host(client.host).endpoint.association(client.id).unwrap();
                let announced = if is_ipc(scheme) { PortScheme::Ipc } else { PortScheme::Tcs };
                assert_eq!(here.connection().association_port(), Some((announced, POOL)), "{what}");
                let there = world.server().association(served).unwrap().connection();
                assert_eq!(there.association_port(), Some((scheme, POOL)), "{what}");
                let before = there.peer_address();
                // A handover: another address, and with it another mapping of the NAT.
                world.network.change(Change::Address(client.interface, Some(ip(7, 9))));
                assert_eq!(world.exchange(client, served), [true; 2], "{what}: moved");
                let after = world.server().association(served).unwrap().connection().peer_address();
                assert!(before != after, "{what}: {before}, {after}");
                // The NAT restarts, and maps the client to another port.
                if let Some(nat) = world.nat {
                    world.network.change(Change::Restart(nat));
                    assert_eq!(world.exchange(client, served), [true; 2], "{what}: NAT restarted");
                }
                let ports = world.server().ports();
                assert_eq!((ports.ports, ports.used, ports.given), (4, 1, 1), "{what}");
            }
        }
    }
}

/// The server's associations, and why each that was to have a port has none.
fn refusals(world: &World) -> Vec<NoPort> {
    let refused = world.events.iter().filter_map(|event| match event {
        EndpointEvent::NoPort(_, why) => Some(*why),
        _ => None,
    });
    refused.collect()
}

#[test]
fn without_a_free_port_an_association_is_an_ordinary_one() {
    for scheme in SCHEMES {
        let configs = configs(ProtocolVersion::DTLS1_3, scheme);
        let mut world = World::new(&configs, None, 1);
        let clients = [1, 2].map(|number| world.connect(&configs, number));
        let served = world.served();
        for (n, client) in clients.into_iter().enumerate() {
            assert!(world.is_connected(client), "{scheme:?}");
            assert_eq!(world.exchange(client, served[n]), [true; 2]);
            assert_eq!(world.port(client), if n == 0 { POOL } else { PORT });
        }
        assert_eq!((refusals(&world), world.server().ports().empty), (vec![NoPort::Empty], 1), "{scheme:?}");
        // An association that has ended gives its port back.
        let now = world.network.now;
        world.server().remove(now, served[0]);
        world.pass(3);
        assert_eq!(world.server().ports().used, 0);
        let third = world.connect(&configs, 3);
        assert_eq!(world.port(third), POOL);
    }
}

#[test]
fn a_server_without_a_pool_or_without_cookies_serves_ordinary_associations() {
    for (ports, cookies, why) in [(0, true, NoPort::Empty), (4, false, NoPort::NoCookie)] {
        for version in VERSIONS {
            let configs = configs(version, PortScheme::Tcs).cookies(cookies);
            let mut world = World::new(&configs, None, ports);
            let client = world.connect(&configs, 1);
            let served = world.served()[0];
            assert_eq!(world.exchange(client, served), [true; 2]);
            assert_eq!((world.port(client), refusals(&world)), (PORT, vec![why]));
            assert_eq!(world.server().ports().used, 0);
        }
    }
}

#[test]
fn one_host_gets_at_most_eight_ports() {
    let configs = configs(ProtocolVersion::DTLS1_3, PortScheme::Tcs);
    let mut world = World::new(&configs, Some(NatKind::Symmetric), 20);
    let clients: Vec<_> = (1..=10).map(|number| world.connect(&configs, number)).collect();
    assert!(clients.iter().all(|client| world.is_connected(*client)));
    assert_eq!(refusals(&world), [NoPort::HostLimit; 2]);
    let ports = world.server().ports();
    assert_eq!((ports.used, ports.host_limit), (8, 2));
}

/// Connection IDs do more than ports, so associations with them use no port.
#[test]
fn associations_with_connection_ids_take_no_port() {
    for version in VERSIONS {
        for scheme in SCHEMES {
            let mut configs = configs(version, scheme);
            let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
            configs.client = configs.client.with_connection_ids(ids());
            configs.server = configs.server.with_connection_ids(ids());
            let mut world = World::new(&configs, None, 4);
            let client = world.connect(&configs, 1);
            let served = world.served()[0];
            assert_eq!((world.exchange(client, served), world.port(client)), ([true; 2], PORT));
            assert_eq!((world.server().ports().given, refusals(&world)), (0, vec![]), "{scheme:?}");
        }
    }
}

/// A server answers a client as the client's offer allows. Only the unannounced IPC excludes clients that do not know it.
#[test]
fn sides_with_different_schemes_get_along() {
    let schemes = [None, Some(PortScheme::Ipc), Some(PortScheme::Tcs)];
    for version in VERSIONS {
        for ours in schemes {
            for theirs in SCHEMES {
                let mut configs = configs(version, theirs);
                configs.client = Configs::of_version(version).client;
                if let Some(ours) = ours {
                    configs.client = configs.client.with_port_scheme(ours);
                }
                let mut world = World::new(&configs, None, 4);
                let client = world.connect(&configs, 1);
                let what = format!("{version} {ours:?} {theirs:?}");
                let is_lost = ours.is_none() && theirs == PortScheme::IpcUnannounced;
                assert_eq!(world.is_connected(client), !is_lost, "{what}");
                let agree = ours.is_some_and(|ours| is_ipc(ours) == is_ipc(theirs));
                let port = if agree { POOL } else { PORT };
                assert_eq!(world.port(client), port, "{what}");
                assert_eq!(refusals(&world), [], "{what}");
            }
        }
    }
}

/// Without return routability, a peer moves only where the server's configuration accepts the risk. The move to the announced port, for
/// which a NAT may use another mapping, is no migration.
#[test]
fn a_server_that_never_migrates_stays_with_the_first_address() {
    for version in VERSIONS {
        for scheme in SCHEMES {
            let mut configs = configs(version, scheme);
            configs.server = configs.server.with_migration(Migration::never());
            let kinds: &[_] = if is_ipc(scheme) { &[None] } else { &[None, Some(NatKind::Symmetric)] };
            for kind in kinds {
                let mut world = World::new(&configs, *kind, 4);
                let client = world.connect(&configs, 1);
                let served = world.served()[0];
                assert_eq!(world.exchange(client, served), [true; 2]);
                let before = world.server().association(served).unwrap().connection().peer_address();
                // Until then, the server also takes records from other ports of the client's host.
                world.network.run_for(Duration::from_secs(20)).unwrap();
                world.network.change(Change::Address(client.interface, Some(ip(7, 9))));
                assert_eq!(world.exchange(client, served), [false; 2]);
                let connection = world.server().association(served).unwrap().connection();
                assert_eq!(connection.peer_address(), before);
                assert_eq!(connection.discarded().other_address, 1);
            }
        }
    }
}

/// Nobody listens at the announced port: the client returns to the path that still works.
#[test]
fn a_client_returns_to_the_old_path_if_the_announced_port_is_dead() {
    for version in VERSIONS {
        for scheme in [PortScheme::Tcs, PortScheme::TcsMessage] {
            let configs = configs(version, scheme);
            let mut world = World::new(&configs, None, 0);
            world.server().add_ports([(Local(7), POOL)]).unwrap();
            let client = world.connect(&configs, 1);
            let served = world.served()[0];
            assert_eq!(world.exchange(client, served), [false, true], "{version} {scheme:?}");
            assert_eq!(world.port(client), POOL);
            // The client speaks to the port four times in 15 s.
            world.network.run_for(Duration::from_secs(20)).unwrap();
            let spoken = world.network.sent.iter().filter(|sent| sent.to.port() == POOL).count();
            assert_eq!((world.port(client), spoken), (PORT, 5), "one datagram was data");
            // The server repeats its announcement, which changes nothing any more.
            world.network.run_for(Duration::from_secs(600)).unwrap();
            assert_eq!(world.exchange(client, served), [true; 2]);
            let announced = world.network.sent.iter().filter(|sent| sent.host == world.server).count();
            assert!(announced < 30, "{announced}");
        }
    }
}

/// The announcement and the client's answer to it may be lost: both sides repeat what they say until the other one is there.
#[test]
fn an_announcement_that_is_lost_leaves_again() {
    for version in VERSIONS {
        for scheme in [PortScheme::Tcs, PortScheme::TcsMessage] {
            for lost in 0..12 {
                let configs = configs(version, scheme);
                let mut world = World::new(&configs, Some(NatKind::Symmetric), 4);
                // Both directions of the client's interface share a count, and lose one datagram.
                let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
                let link = || {
                    let count = Arc::clone(&count);
                    Box::new(move |_: Duration, datagram: Vec<u8>| {
                        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if number == lost { Vec::new() } else { vec![(DELAY, datagram)] }
                    }) as Box<dyn Link>
                };
                let client = world.connect_over(&configs, 1, [link(), link()]);
                world.network.run_for(Duration::from_secs(20)).unwrap();
                world.pass(1);
                let served = *world.served().last().unwrap();
                // The datagram that is lost may have this data.
                world.exchange(client, served);
                world.exchange(client, served);
                assert_eq!(world.exchange(client, served), [true; 2], "{version} {scheme:?} {lost}");
                assert_eq!(world.port(client), POOL, "{version} {scheme:?} {lost}");
                let association = world.server().association(served).unwrap();
                assert_eq!(
                    association.connection().path().local,
                    Local(POOL.into()),
                    "{version} {scheme:?} {lost}"
                );
            }
        }
    }
}

/// A server that never migrates, and a client of TCS that `is_ready` interrupts, with its address. Nothing has arrived at the port yet.
fn interrupted(
    version: ProtocolVersion,
    scheme: PortScheme,
    is_ready: impl Fn(&mut World, Client) -> bool,
) -> (World, Client, SocketAddr) {
    let mut configs = configs(version, scheme);
    configs.server = configs.server.with_migration(Migration::never());
    let mut world = World::new(&configs, None, 4);
    let endpoint = Endpoint::new(EndpointLimits::default());
    let host = world.network.add(Pooled::new(endpoint, CLIENT_PORT, None).unwrap());
    let interface = world.network.attach(host, ip(7, 1), None, links());
    let config = Arc::new(configs.client);
    let id = world.network.host(host).endpoint.connect(&config, localhost(), SERVER, NOW).unwrap();
    let client = Client { host, interface, id };
    while !is_ready(&mut world, client) {
        world.pass(1);
    }
    (world, client, SocketAddr::new(ip(7, 1), CLIENT_PORT))
}

/// An attacker copies a record of the client from the welcome port to the association's port, and gives it another port of the client's
/// address. The record says nothing about the port, so the server stays with the client.
#[test]
fn a_copied_record_at_the_port_does_not_move_the_server() {
    for scheme in [PortScheme::Tcs, PortScheme::TcsMessage] {
        let is_ready = |world: &mut World, client| world.is_connected(client);
        let (mut world, client, truth) = interrupted(ProtocolVersion::DTLS1_3, scheme, is_ready);
        let now = world.network.now;
        let endpoint = &mut world.network.host(client.host).endpoint;
        endpoint.update(client.id, |connection| connection.send(b"early")).unwrap().unwrap();
        let copied = endpoint.poll_transmit(now).unwrap().datagram;
        let served = world.served()[0];
        // The client's Finished arrives, and the server's answer is on its way.
        while world.server().association(served).unwrap().connection().negotiated().is_none() {
            world.pass(1);
        }
        let now = world.network.now;
        let forged = Path { local: Local(POOL.into()), peer: SocketAddr::new(truth.ip(), 9) };
        world.server().receive(now, forged, &copied);
        let read = world.server().update(served, |connection| connection.read()).unwrap();
        assert_eq!(read.as_deref(), Some(&b"early"[..]), "{scheme:?}: the copy is authentic");
        let connection = world.server().association(served).unwrap().connection();
        assert_eq!(connection.peer_address(), truth, "{scheme:?}");
        world.pass(30);
        assert_eq!(world.exchange(client, served), [true; 2], "{scheme:?}");
        assert_eq!(world.port(client), POOL, "{scheme:?}");
    }
}

/// An attacker forwards the client's first records about the port from another port of the client's address, faster than the network.
/// The server goes there, and comes back with the next record of the client that arrives first.
#[test]
fn a_forwarded_record_about_the_port_does_not_keep_the_server() {
    for version in VERSIONS {
        for scheme in [PortScheme::Tcs, PortScheme::TcsMessage] {
            for most in [1, 3] {
                let what = format!("{version} {scheme:?} {most}");
                let (mut world, client, truth) =
                    interrupted(version, scheme, |world, _| bytes_to(world, POOL) > 0);
                let forged = Path { local: Local(POOL.into()), peer: SocketAddr::new(truth.ip(), 9) };
                let served = world.served()[0];
                for n in 0..most {
                    let to_port = |sent: &&dunlin_sim::SentBy| sent.to.port() == POOL;
                    while world.network.sent.iter().filter(to_port).count() <= n {
                        world.pass(1);
                    }
                    let record = world.network.sent.iter().filter(to_port).nth(n).unwrap().datagram.clone();
                    let now = world.network.now;
                    world.server().receive(now, forged, &record);
                    let connection = world.server().association(served).unwrap().connection();
                    assert_eq!(connection.peer_address(), forged.peer, "{what}");
                }
                world.network.run_for(Duration::from_secs(20)).unwrap();
                world.pass(1);
                world.exchange(client, served);
                assert_eq!(world.exchange(client, served), [true; 2], "{what}");
                assert_eq!(world.port(client), POOL, "{what}");
            }
        }
    }
}

/// The first record of a datagram with a ServerHello of the server, after a change.
fn server_hello(world: &World, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let is_hello = |datagram: &[u8]| datagram[0] == 22 && datagram[13] == 2;
    let is_retry = |datagram: &[u8]| datagram[27..31] == [0xcf, 0x21, 0xad, 0x74];
    let mut sent = world.network.sent.iter().filter(|sent| sent.host == world.server);
    let sent = sent.find(|sent| is_hello(&sent.datagram) && !is_retry(&sent.datagram)).unwrap();
    let len = usize::from(u16::from_be_bytes([sent.datagram[11], sent.datagram[12]]));
    let mut hello = sent.datagram[..13 + len].to_vec();
    change(&mut hello);
    hello
}

/// Changes the random of a ServerHello: the client derives other keys than the server.
fn other_random(hello: &mut [u8]) {
    hello[30] ^= 1;
}

/// Changes the cipher suite of a ServerHello to one that the client does not know.
fn other_suite(hello: &mut [u8]) {
    let at = 13 + 12 + 34;
    let suite = at + 1 + usize::from(hello[at]);
    hello[suite..suite + 2].copy_from_slice(&[0x5a, 0x5a]);
}

/// A client whose server has just sent its ServerHello, which has not arrived yet.
fn before_the_hello(configs: &Configs) -> (World, Client) {
    let mut world = World::new(configs, None, 4);
    let endpoint = Endpoint::new(EndpointLimits::default());
    let host = world.network.add(Pooled::new(endpoint, CLIENT_PORT, None).unwrap());
    let interface = world.network.attach(host, ip(7, 1), None, links());
    let id = world.network.host(host).endpoint.connect(
        &Arc::new(configs.client.clone()),
        localhost(),
        SERVER,
        NOW,
    );
    world.pass(7);
    (world, Client { host, interface, id: id.unwrap() })
}

/// Lets a datagram arrive at the client from a port of the server's address. Returns its length.
fn forge(world: &mut World, client: Client, port: u16, datagram: &[u8]) -> usize {
    let (now, peer) = (world.network.now, SocketAddr::new(SERVER.ip(), port));
    world.network.host(client.host).endpoint.receive(now, peer, datagram);
    datagram.len()
}

/// The bytes that the client has sent to a port of the server's address.
fn bytes_to(world: &World, port: u16) -> usize {
    let to_port = |sent: &&dunlin_sim::SentBy| sent.to == SocketAddr::new(SERVER.ip(), port);
    world.network.sent.iter().filter(to_port).map(|sent| sent.datagram.len()).sum()
}

/// A forged ServerHello that fails, one that leads nowhere, a copy of the true one, and several: the client finds its server, and no
/// forged port gets more than three times what it has sent.
#[test]
fn a_client_finds_its_server_among_forged_hellos() {
    type Forge = fn(&mut [u8]);
    let cases: [(&str, &[(u16, Forge)]); 5] = [
        ("it fails", &[(7001, other_suite)]),
        ("it is silent", &[(7001, other_random)]),
        ("a copy", &[(7001, |_| {})]),
        ("three", &[(7001, other_random), (7002, other_suite), (7003, |hello| hello[31] ^= 2)]),
        ("from the welcome port", &[(PORT, other_random)]),
    ];
    for version in VERSIONS {
        for scheme in [PortScheme::Ipc, PortScheme::IpcUnannounced] {
            for (name, forged) in cases {
                let what = format!("{version} {scheme:?}: {name}");
                let configs = configs(version, scheme);
                let (mut world, client) = before_the_hello(&configs);
                let before = bytes_to(&world, PORT);
                let mut ports = Vec::new();
                for (port, change) in forged {
                    let hello = server_hello(&world, change);
                    let len = forge(&mut world, client, *port, &hello);
                    ports.push((*port, len));
                }
                world.network.run_for(Duration::from_secs(60)).unwrap();
                world.pass(1);
                assert!(world.is_connected(client), "{what}");
                assert_eq!(world.port(client), POOL, "{what}");
                let served = world.served()[0];
                assert_eq!(world.exchange(client, served), [true; 2], "{what}");
                for (port, len) in ports {
                    let sent = bytes_to(&world, port) - if port == PORT { before } else { 0 };
                    assert!(sent <= 3 * len, "{what}: {sent} bytes to {port} for {len}");
                }
            }
        }
    }
}

/// A pause of the network on the way to the client, after the first datagram of the server's flight.
struct Outage {
    has_hello: bool,
}

impl Link for Outage {
    fn carry(&mut self, clock: Duration, datagram: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
        let is_hello = datagram[0] == 22 && datagram[13] == 2 && datagram[27..31] != [0xcf, 0x21, 0xad, 0x74];
        let is_lost = self.has_hello && clock < Duration::from_secs(20);
        self.has_hello |= is_hello;
        if is_lost { Vec::new() } else { vec![(DELAY, datagram)] }
    }
}

/// The network loses the rest of the server's flight and falls silent for 20 s, and a forged ServerHello has arrived after the genuine
/// one. The client tries the forged port, and still completes its handshake with the server.
#[test]
fn a_forged_hello_does_not_end_a_handshake_that_has_begun() {
    type Forge = fn(&mut [u8]);
    let cases: [(&str, Forge); 2] = [("another", other_random), ("a copy", |_| {})];
    for version in VERSIONS {
        for (name, change) in cases {
            let what = format!("{version}: {name}");
            let configs = configs(version, PortScheme::Ipc).mtu(600);
            let mut world = World::new(&configs, None, 4);
            let endpoint = Endpoint::new(EndpointLimits::default());
            let host = world.network.add(Pooled::new(endpoint, CLIENT_PORT, None).unwrap());
            let to_client = Box::new(Outage { has_hello: false });
            let interface = world.network.attach(host, ip(7, 1), None, [Box::new(Delay(DELAY)), to_client]);
            let config = Arc::new(configs.client.clone());
            let id = world.network.host(host).endpoint.connect(&config, localhost(), SERVER, NOW).unwrap();
            let client = Client { host, interface, id };
            world.pass(10);
            assert_eq!((world.port(client), world.is_connected(client)), (POOL, false), "{what}");
            let hello = server_hello(&world, change);
            let len = forge(&mut world, client, 7001, &hello);
            world.network.run_for(Duration::from_secs(15)).unwrap();
            assert_eq!(world.port(client), 7001, "{what}: the client tries the forged port");
            world.network.run_for(Duration::from_secs(60)).unwrap();
            world.pass(1);
            assert!(world.is_connected(client), "{what}");
            assert_eq!(world.port(client), POOL, "{what}");
            let served = *world.served().last().unwrap();
            assert_eq!(world.exchange(client, served), [true; 2], "{what}");
            assert!(bytes_to(&world, 7001) <= 3 * len, "{what}: {} for {len}", bytes_to(&world, 7001));
        }
    }
}

/// Splits the ServerHello in a record into two records, each with a fragment. The first one has `len` bytes of it.
fn in_fragments(record: &[u8], len: usize) -> Vec<u8> {
    let body = &record[25..];
    let fragment = |number: u8, offset: usize, part: &[u8]| {
        let length = ((12 + part.len()) as u16).to_be_bytes();
        let (offset, len) = ((offset as u32).to_be_bytes(), (part.len() as u32).to_be_bytes());
        let numbers = [&[0; 5][..], &[0x40 + number], &length].concat();
        [&record[..3], &numbers, &record[13..19], &offset[1..], &len[1..], part].concat()
    };
    [fragment(0, 0, &body[..len]), fragment(1, len, &body[len..])].concat()
}

/// An attacker who sees the genuine ServerHello sends it from two ports, under two labels. Each attempt would begin at record number 0
/// with the same keys.
#[test]
fn two_attempts_of_a_client_never_seal_with_the_same_nonce() {
    type Forge = fn(&[u8]) -> Vec<Vec<u8>>;
    let cases: [(&str, Forge, Forge); 4] = [
        (
            "behind another message",
            |hello| vec![hello.to_vec()],
            |hello| {
                let mut other = hello.to_vec();
                (other[18], other[30]) = (9, 1);
                vec![[&other, hello].concat()]
            },
        ),
        ("then in fragments", |hello| vec![hello.to_vec()], |hello| vec![in_fragments(hello, 40)]),
        ("first in fragments", |hello| vec![in_fragments(hello, 40)], |hello| vec![hello.to_vec()]),
        (
            "behind a rival fragment",
            |hello| vec![hello.to_vec()],
            |hello| {
                let mut rival = hello.to_vec();
                other_random(&mut rival);
                let fragments = in_fragments(&rival, 40);
                vec![fragments[..13 + 12 + 40].to_vec(), hello.to_vec()]
            },
        ),
    ];
    for (name, first, second) in cases {
        let (mut world, client) = before_the_hello(&configs(ProtocolVersion::DTLS1_3, PortScheme::Ipc));
        let hello = server_hello(&world, |_| ());
        let mut now = world.network.now;
        let endpoint = &mut world.network.host(client.host).endpoint;
        for (port, forge) in [(7001, first), (7002, second)] {
            for datagram in forge(&hello) {
                endpoint.receive(now, SocketAddr::new(SERVER.ip(), port), &datagram);
            }
        }
        let mut sealed = Vec::new();
        for _ in 0..600 {
            now.monotonic = now.monotonic + Duration::from_millis(100);
            endpoint.handle_timeout(now);
            while let Some(transmit) = endpoint.poll_transmit(now) {
                if transmit.datagram[0] >> 5 == 1 {
                    sealed.push(transmit.datagram);
                }
            }
        }
        assert!(!sealed.is_empty(), "{name}: the first attempt has sealed an ACK");
        let count = sealed.len();
        sealed.sort();
        sealed.dedup();
        assert_eq!(sealed.len(), count, "{name}: two records with the same key and number");
    }
}

/// A client considers four ports. If they are all forged, the handshake fails, and keeps nothing.
#[test]
fn a_client_considers_at_most_four_ports() {
    for version in VERSIONS {
        let configs = configs(version, PortScheme::Ipc);
        let (mut world, client) = before_the_hello(&configs);
        for port in 7001..=7004 {
            let hello = server_hello(&world, other_suite);
            forge(&mut world, client, port, &hello);
        }
        world.pass(10);
        let endpoint = &mut world.network.host(client.host).endpoint;
        assert!(endpoint.association(client.id).unwrap().connection().error().is_some());
        assert_eq!(endpoint.ports().retried, 0, "each attempt failed before the next hello came");
        // The same address can be tried again.
        let config = Arc::new(configs.client.clone());
        let now = world.network.now;
        let endpoint = &mut world.network.host(client.host).endpoint;
        endpoint.remove(now, client.id);
        let id = endpoint.connect(&config, localhost(), SERVER, now).unwrap();
        let in_use = Err(Error::Misuse(Misuse::AddressInUse));
        assert_eq!(endpoint.connect(&config, localhost(), SocketAddr::new(SERVER.ip(), 1), now), in_use);
        world.pass(30);
        assert!(world.is_connected(Client { id, ..client }), "{version}");
    }
}

/// Demands for cookies count only from the port that the client has asked.
#[test]
fn a_client_ignores_demands_for_cookies_from_other_ports() {
    for version in VERSIONS {
        let configs = configs(version, PortScheme::Ipc);
        let mut world = World::new(&configs, None, 4);
        let endpoint = Endpoint::new(EndpointLimits::default());
        let host = world.network.add(Pooled::new(endpoint, CLIENT_PORT, None).unwrap());
        world.network.attach(host, ip(7, 1), None, links());
        let config = Arc::new(configs.client.clone());
        let id = world.network.host(host).endpoint.connect(&config, localhost(), SERVER, NOW).unwrap();
        world.pass(3);
        let demand =
            world.network.sent.iter().find(|sent| sent.host == world.server).unwrap().datagram.clone();
        let (now, peer) = (world.network.now, SocketAddr::new(SERVER.ip(), 7001));
        let endpoint = &mut world.network.host(host).endpoint;
        endpoint.receive(now, peer, &demand);
        assert_eq!((endpoint.poll_transmit(now), endpoint.discarded().unknown), (None, 1), "{version}");
        world.pass(30);
        assert_eq!(world.network.host(host).endpoint.association(id).unwrap().connection().error(), None);
        assert_eq!(world.served().len(), 1);
    }
}

/// Datagrams from anywhere at the ports of the pool: nobody answers, and the association goes on.
#[test]
fn a_flood_on_the_pool_gets_no_answer() {
    for version in VERSIONS {
        for scheme in SCHEMES {
            let configs = configs(version, scheme);
            let mut world = World::new(&configs, None, 4);
            let client = world.connect(&configs, 1);
            let served = world.served()[0];
            let recorded: Vec<_> = world.network.sent.iter().map(|sent| sent.datagram.clone()).collect();
            let now = world.network.now;
            let server = world.server();
            let stray = server.ports().stray;
            for (n, datagram) in recorded.iter().cycle().take(2000).enumerate() {
                let peer = SocketAddr::new(ip(9, (n % 200) as u8), 1000 + n as u16);
                for port in POOL..POOL + 4 {
                    server.receive(now, Path { local: Local(port.into()), peer }, datagram);
                }
            }
            assert_eq!(server.poll_transmit(now), None, "{version} {scheme:?}");
            assert_eq!((server.len(), server.ports().stray - stray), (1, 6000));
            let peer = server.association(served).unwrap().connection().peer_address();
            assert_eq!(peer.ip(), ip(7, 1), "{version} {scheme:?}");
            assert_eq!(world.exchange(client, served), [true; 2], "{version} {scheme:?}");
        }
    }
}

/// The risk of following a peer without a check: a forwarder that is faster than the network gets what the server sends, until the next
/// newer record comes from the true address. Old and repeated records move nothing.
#[test]
fn a_forwarded_record_moves_the_server_until_the_next_one() {
    for version in VERSIONS {
        for scheme in SCHEMES {
            let configs = configs(version, scheme);
            let mut world = World::new(&configs, None, 4);
            let client = world.connect(&configs, 1);
            let served = world.served()[0];
            let send = |world: &mut World| {
                let now = world.network.now;
                let endpoint = &mut world.network.host(client.host).endpoint;
                endpoint.update(client.id, |connection| connection.send(b"data")).unwrap().unwrap();
                endpoint.poll_transmit(now).unwrap().datagram
            };
            let (old, new) = (send(&mut world), send(&mut world));
            let now = world.network.now;
            let truth = SocketAddr::new(ip(7, 1), CLIENT_PORT);
            let forwarder = SocketAddr::new(ip(9, 9), 9);
            let mut arrive = |peer, datagram: &[u8]| {
                let server = world.server();
                server.receive(now, Path { local: Local(POOL.into()), peer }, datagram);
                server.association(served).unwrap().connection().peer_address()
            };
            assert_eq!(arrive(forwarder, &new), forwarder, "{version} {scheme:?}");
            // The true copy is a repetition, and the older record is not newer.
            assert_eq!((arrive(truth, &new), arrive(truth, &old)), (forwarder, forwarder));
            while world.server().update(served, |connection| connection.read()).unwrap().is_some() {}
            assert_eq!(world.exchange(client, served), [true; 2], "{version} {scheme:?}");
            let peer = world.server().association(served).unwrap().connection().peer_address();
            assert_eq!(peer, truth, "{version} {scheme:?}");
        }
    }
}

/// A client that begins anew at the same address gets another port, and the server takes the previous one back.
#[test]
fn a_client_that_begins_anew_gives_its_port_back() {
    for scheme in SCHEMES {
        let configs = configs(ProtocolVersion::DTLS1_3, scheme);
        let mut world = World::new(&configs, None, 4);
        let client = world.connect(&configs, 1);
        let config = Arc::new(configs.client.clone());
        let now = world.network.now;
        let mut restarted = Endpoint::new(EndpointLimits::default());
        let id = restarted.connect(&config, localhost(), SERVER, now).unwrap();
        world.network.host(client.host).endpoint = restarted;
        world.pass(30);
        let again = Client { id, ..client };
        assert_eq!(world.port(again), POOL + 1, "{scheme:?}");
        let old = world.events.iter().find_map(|event| match event {
            EndpointEvent::Incoming(id) => Some(*id),
            _ => None,
        });
        let server = world.server();
        assert_eq!(server.association(old.unwrap()).unwrap().ended(), Some(Ended::Superseded));
        assert_eq!((server.ports().used, server.ports().given), (1, 2));
        let served = world.served()[0];
        assert_eq!(world.exchange(again, served), [true; 2]);
    }
}

/// A ServerHello of DTLS 1.2 alone in a record, with one more extension.
fn with_extension(world: &World, typ: u16, body: &[u8]) -> Vec<u8> {
    let record = server_hello(world, |_| ());
    let len = u32::from_be_bytes([0, record[14], record[15], record[16]]) as usize;
    let mut hello = record[25..25 + len].to_vec();
    let list = 2 + 32 + 1 + usize::from(hello[34]) + 3;
    let extension = [&typ.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat();
    let extensions = u16::from_be_bytes([hello[list], hello[list + 1]]) as usize + extension.len();
    hello[list..list + 2].copy_from_slice(&(extensions as u16).to_be_bytes());
    hello.extend(extension);
    let len = (hello.len() as u32).to_be_bytes();
    let header = [&record[13..14], &len[1..], &record[17..22], &len[1..]].concat();
    let content = [header, hello].concat();
    [&record[..11], &(content.len() as u16).to_be_bytes(), &content].concat()
}

/// An answer without an offer, or to another one, ends the handshake with the alert of RFC 5246 §7.4.1.4 or illegal_parameter. One that
/// does not parse is forged, as far as the client knows.
#[test]
fn an_answer_that_was_not_asked_for_is_refused() {
    use dunlin::wire::AlertDescription as Alert;
    let cases: [(Option<PortScheme>, &[u8], Option<Alert>); 5] = [
        (None, &[2, 0x17, 0x70], Some(Alert::UNSUPPORTED_EXTENSION)),
        (Some(PortScheme::Tcs), &[1, 0, 0], Some(Alert::ILLEGAL_PARAMETER)),
        (Some(PortScheme::Tcs), &[2, 0x17, 0x70], None),
        (Some(PortScheme::Tcs), &[2, 0, 0], None),
        (Some(PortScheme::Tcs), &[3, 0x17, 0x70], None),
    ];
    for (scheme, body, alert) in cases {
        let mut configs = Configs::of_version(ProtocolVersion::DTLS1_2);
        if let Some(scheme) = scheme {
            configs.client = configs.client.with_port_scheme(scheme);
        }
        let (mut world, client) = before_the_hello(&configs);
        let hello = with_extension(&world, 0xff23, body);
        forge(&mut world, client, PORT, &hello);
        let now = world.network.now;
        let endpoint = &mut world.network.host(client.host).endpoint;
        let connection = endpoint.association(client.id).unwrap().connection();
        let sent = connection.error().and_then(Error::alert);
        let forged = connection.discarded().malformed;
        assert_eq!(
            (sent, forged),
            (alert, u64::from(alert.is_none() && body[1..] != [0x17, 0x70] || body[0] == 3)),
            "{body:?}"
        );
        if let Some(alert) = alert {
            assert_eq!(endpoint.poll_transmit(now).unwrap().datagram[13..], [2, alert.0]);
        }
    }
}

/// The port belongs to the process, so the association cannot continue in another one. That of the client can.
#[test]
fn an_association_with_a_port_is_not_frozen_at_the_server() {
    for scheme in SCHEMES {
        let configs = configs(ProtocolVersion::DTLS1_3, scheme);
        let mut world = World::new(&configs, None, 4);
        let client = world.connect(&configs, 1);
        let served = world.served()[0];
        assert_eq!(world.exchange(client, served), [true; 2]);
        let now = world.network.now;
        let frozen = world.server().freeze(now, served).unwrap();
        assert!(matches!(frozen, Err(Error::Misuse(Misuse::NotSupported(_)))), "{scheme:?}");
        assert_eq!(world.exchange(client, served), [true; 2], "{scheme:?}: it goes on");
        let endpoint = &mut world.network.host(client.host).endpoint;
        assert!(endpoint.freeze(now, client.id).unwrap().is_ok(), "{scheme:?}");
    }
}

/// A client of IPC that is also a server still serves clients on its server's host.
#[test]
fn a_client_that_follows_its_server_still_serves_others() {
    for version in VERSIONS {
        let configs = configs(version, PortScheme::Ipc);
        let (mut world, client) = before_the_hello(&configs);
        let hello = world.network.sent.iter().find(|sent| sent.host == client.host).unwrap().datagram.clone();
        let config = Arc::new(configs.server.clone());
        let (now, peer) = (world.network.now, SocketAddr::new(SERVER.ip(), 7001));
        let endpoint = &mut world.network.host(client.host).endpoint;
        endpoint.set_server(Some(config));
        endpoint.receive(now, peer, &hello);
        assert_eq!(endpoint.poll_transmit(now).map(|transmit| transmit.to), Some(peer), "{version}");
        world.pass(30);
        assert!(world.is_connected(client), "{version}");
    }
}
