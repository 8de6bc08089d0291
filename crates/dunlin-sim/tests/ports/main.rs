//! Associations with a port of their own at the server: IPC and TCS, behind NATs, with clients that move.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "../common/mod.rs"]
mod common;
mod hellos;
mod returned;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
        let client = self.begin_over(configs, number, links);
        self.pass(30);
        client
    }

    /// The same, but the network has carried nothing yet.
    fn begin_over(&mut self, configs: &Configs, number: u8, links: [Box<dyn Link>; 2]) -> Client {
        let endpoint = Endpoint::new(EndpointLimits::default());
        let host = self.network.add(Pooled::new(endpoint, CLIENT_PORT, None).unwrap());
        let interface = self.network.attach(host, ip(7, number), self.nat, links);
        let config = Arc::new(configs.client.clone());
        let now = self.network.now;
        let id = self.network.host(host).endpoint.connect(&config, localhost(), SERVER, now).unwrap();
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

/// The bytes that the client has sent to a port of the server's address.
fn bytes_to(world: &World, port: u16) -> usize {
    let to_port = |sent: &&dunlin_sim::SentBy| sent.to == SocketAddr::new(SERVER.ip(), port);
    world.network.sent.iter().filter(to_port).map(|sent| sent.datagram.len()).sum()
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

/// A server answers a client as the client's offer allows. Only the unannounced IPC excludes clients that do
/// not know it.
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

/// Without return routability, a peer moves only where the server's configuration accepts the risk. The move
/// to the announced port, for which a NAT may use another mapping, is no migration.
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

/// No server listens at the announced port: the client returns to the path that still works.
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

/// The server is at the port, but nothing that it sends arrives until the client has returned. The next
/// answer brings the client back.
#[test]
fn a_client_that_has_returned_follows_the_server_after_all() {
    for version in VERSIONS {
        for scheme in [PortScheme::Tcs, PortScheme::TcsMessage] {
            let configs = configs(version, scheme);
            let mut world = World::new(&configs, None, 1);
            let is_silent = Arc::new(AtomicBool::new(false));
            let silenced = Arc::clone(&is_silent);
            let back = move |_: Duration, datagram: Vec<u8>| {
                if silenced.load(Ordering::Relaxed) { Vec::new() } else { vec![(DELAY, datagram)] }
            };
            let client = world.begin_over(&configs, 1, [Box::new(Delay(DELAY)), Box::new(back)]);
            while world.port(client) != POOL {
                world.network.run_for(DELAY / 4).unwrap();
            }
            is_silent.store(true, Ordering::Relaxed);
            world.network.run_for(Duration::from_secs(20)).unwrap();
            world.pass(1);
            let served = world.served()[0];
            let local = world.server().association(served).unwrap().connection().path().local;
            assert_eq!((world.port(client), local), (PORT, Local(POOL.into())), "{version} {scheme:?}");
            is_silent.store(false, Ordering::Relaxed);
            assert_eq!(world.exchange(client, served), [true; 2], "{version} {scheme:?}");
            // The client speaks to the port again, and gets an answer.
            world.network.run_for(Duration::from_secs(2)).unwrap();
            assert_eq!(world.port(client), POOL, "{version} {scheme:?}");
        }
    }
}

/// The announcement and the client's answer to it may be lost: both sides repeat what they say until the
/// other one is there.
#[test]
fn an_announcement_that_is_lost_leaves_again() {
    for version in VERSIONS {
        for scheme in [PortScheme::Tcs, PortScheme::TcsMessage] {
            for lost in 0..12 {
                let configs = configs(version, scheme);
                let mut world = World::new(&configs, Some(NatKind::Symmetric), 4);
                // Both directions of the client's interface share a count, and lose one datagram.
                let count = Arc::new(AtomicUsize::new(0));
                let link = || {
                    let count = Arc::clone(&count);
                    Box::new(move |_: Duration, datagram: Vec<u8>| {
                        let number = count.fetch_add(1, Ordering::Relaxed);
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

/// A server, and a client of TCS that `is_ready` interrupts, with its address. Nothing has arrived at the
/// port yet.
fn interrupted(
    version: ProtocolVersion,
    scheme: PortScheme,
    migration: Migration,
    is_ready: impl Fn(&mut World, Client) -> bool,
) -> (World, Client, SocketAddr) {
    let mut configs = configs(version, scheme);
    configs.server = configs.server.with_migration(migration);
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

/// An attacker copies a record of the client from the welcome port to the association's port, and gives it
/// another address: another port of the client, or the address of another host. The record says nothing about
/// the port, so the server stays with the client.
#[test]
fn a_copied_record_at_the_port_does_not_move_the_server() {
    let cases = [(ip(7, 1), Migration::never()), (ip(9, 9), Migration::never().with_unchecked(true))];
    for (scheme, (forger, migration)) in [PortScheme::Tcs, PortScheme::TcsMessage]
        .into_iter()
        .flat_map(|scheme| cases.map(|case| (scheme, case)))
    {
        let what = format!("{scheme:?} {forger}");
        let is_ready = |world: &mut World, client| world.is_connected(client);
        let (mut world, client, truth) = interrupted(ProtocolVersion::DTLS1_3, scheme, migration, is_ready);
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
        let forged = Path { local: Local(POOL.into()), ..SocketAddr::new(forger, 9).into() };
        world.server().receive(now, forged, &copied);
        let read = world.server().update(served, |connection| connection.read()).unwrap();
        assert_eq!(read.as_deref(), Some(&b"early"[..]), "{what}: the copy is authentic");
        let connection = world.server().association(served).unwrap().connection();
        assert_eq!(connection.peer_address(), truth, "{what}");
        world.pass(30);
        assert_eq!(world.exchange(client, served), [true; 2], "{what}");
        assert_eq!(world.port(client), POOL, "{what}");
    }
}

/// An attacker forwards the client's first records about the port from another port of the client's address,
/// faster than the network. The server goes there, and comes back with the next record of the client that
/// arrives first.
#[test]
fn a_forwarded_record_about_the_port_does_not_keep_the_server() {
    for version in VERSIONS {
        for scheme in [PortScheme::Tcs, PortScheme::TcsMessage] {
            for most in [1, 3] {
                let what = format!("{version} {scheme:?} {most}");
                let (mut world, client, truth) =
                    interrupted(version, scheme, Migration::never(), |world, _| bytes_to(world, POOL) > 0);
                let forged = Path { local: Local(POOL.into()), ..SocketAddr::new(truth.ip(), 9).into() };
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

/// Datagrams from anywhere at the ports of the pool: the server does not answer, and the association goes on.
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
                    server.receive(now, Path { local: Local(port.into()), ..peer.into() }, datagram);
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

/// The risk of following a peer without a check: a forwarder that is faster than the network gets what the
/// server sends, until the next newer record comes from the true address. Old and repeated records move
/// nothing.
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
            let old = send(&mut world);
            let new = send(&mut world);
            let now = world.network.now;
            let truth = SocketAddr::new(ip(7, 1), CLIENT_PORT);
            let forwarder = SocketAddr::new(ip(9, 9), 9);
            let mut arrive = |peer: SocketAddr, datagram: &[u8]| {
                let server = world.server();
                server.receive(now, Path { local: Local(POOL.into()), ..peer.into() }, datagram);
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

/// A client that begins anew at the same address gets another port, and the server takes the previous one
/// back.
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

/// The port belongs to the process, so the association cannot continue in another one. That of the client
/// can.
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
        let now = world.network.now;
        let peer = SocketAddr::new(SERVER.ip(), 7001);
        let endpoint = &mut world.network.host(client.host).endpoint;
        endpoint.set_server(Some(config));
        endpoint.receive(now, peer, &hello);
        assert_eq!(endpoint.poll_transmit(now).map(|transmit| transmit.to), Some(peer), "{version}");
        world.pass(30);
        assert!(world.is_connected(client), "{version}");
    }
}
