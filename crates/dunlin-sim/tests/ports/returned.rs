//! Clients of TCS that have heard nothing at the announced port, and have returned to the welcome port. Each
//! finds its server again, wherever the server is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin::{DtlsConnection, Endpoint, EndpointLimits, Local, Path, PortScheme};
use dunlin_sim::{Change, Delay, NatKind};
use dunlin_tests::localhost;

use super::common::{Configs, VERSIONS};
use super::{Client, DELAY, POOL, PORT, TIMEOUT, World, bytes_to, configs, ip, links};

/// Longer than the client takes to return.
const RETURN: Duration = Duration::from_secs(20);
/// Longer than it takes a client that hears its server from the port to speak there and get an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// The longest pause between two records about the port.
const LONGEST: Duration = Duration::from_secs(61);

const TCS: [PortScheme; 2] = [PortScheme::Tcs, PortScheme::TcsMessage];

/// The records about the port, and data, that the client has sent to the port.
fn spoken(world: &World) -> usize {
    world.network.sent.iter().filter(|sent| sent.to.port() == POOL).count()
}

/// The client sends data each second.
fn talk(world: &mut World, client: Client, seconds: u32) {
    for _ in 0..seconds {
        let endpoint = &mut world.network.host(client.host).endpoint;
        endpoint.update(client.id, |connection| connection.send(b"data")).unwrap().unwrap();
        world.network.run_for(Duration::from_secs(1)).unwrap();
    }
    world.pass(1);
}

/// The server's address of the client, and its own socket.
fn path_at_server(world: &mut World) -> Path {
    let served = world.served()[0];
    world.server().association(served).unwrap().connection().path()
}

/// A client behind this kind of NAT, which has moved to the port and returned from it: nothing that the
/// server sends arrives while the switch is on.
fn returned(configs: &Configs, kind: Option<NatKind>) -> (World, Client, Arc<AtomicBool>) {
    let mut world = World::new(configs, kind, 1);
    let is_silent = Arc::new(AtomicBool::new(false));
    let silenced = Arc::clone(&is_silent);
    let back = move |_: Duration, datagram: Vec<u8>| {
        if silenced.load(Ordering::Relaxed) { Vec::new() } else { vec![(DELAY, datagram)] }
    };
    let client = world.begin_over(configs, 1, [Box::new(Delay(DELAY)), Box::new(back)]);
    while world.port(client) != POOL {
        world.network.run_for(DELAY / 4).unwrap();
    }
    is_silent.store(true, Ordering::Relaxed);
    world.network.run_for(RETURN).unwrap();
    world.pass(1);
    assert_eq!((world.port(client), path_at_server(&mut world).local), (PORT, Local(POOL.into())));
    (world, client, is_silent)
}

/// An attacker forwards all four records about the port from another host, faster than the network. The
/// server sends to the attacker, and does not know the client's address at the welcome port, whether that
/// changes or not.
#[test]
fn a_client_that_an_attacker_has_separated_from_its_server_finds_it_again() {
    for version in VERSIONS {
        for scheme in TCS {
            for moves in [false, true] {
                let what = format!("{version} {scheme:?}, moves: {moves}");
                let configs = configs(version, scheme);
                let mut world = World::new(&configs, None, 4);
                let client = world.begin_over(&configs, 1, links());
                while bytes_to(&world, POOL) == 0 {
                    world.pass(1);
                }
                let forger = Path { local: Local(POOL.into()), ..SocketAddr::new(ip(9, 9), 9).into() };
                for n in 0..4 {
                    while spoken(&world) <= n {
                        world.pass(1);
                    }
                    let mut to_port = world.network.sent.iter().filter(|sent| sent.to.port() == POOL);
                    let record = to_port.nth(n).unwrap().datagram.clone();
                    let now = world.network.now;
                    world.server().receive(now, forger, &record);
                    assert_eq!(path_at_server(&mut world), forger, "{what}");
                }
                while world.port(client) == POOL {
                    world.pass(1);
                }
                if moves {
                    world.network.change(Change::Address(client.interface, Some(ip(7, 9))));
                }
                let served = world.served()[0];
                assert_eq!(world.exchange(client, served), [false; 2], "{what}");
                world.network.run_for(RETURN).unwrap();
                assert_eq!((world.exchange(client, served), world.port(client)), ([true; 2], POOL), "{what}");
            }
        }
    }
}

/// A symmetric NAT gives the client another port towards the welcome port. The server is at the association's
/// port, and knows only the client's port towards that one, which the NAT has forgotten.
#[test]
fn a_client_behind_a_symmetric_nat_finds_its_server_again() {
    for version in VERSIONS {
        for scheme in TCS {
            let configs = configs(version, scheme);
            let (mut world, client, is_silent) = returned(&configs, Some(NatKind::Symmetric));
            world.network.run_for(TIMEOUT + LONGEST).unwrap();
            let served = world.served()[0];
            is_silent.store(false, Ordering::Relaxed);
            assert_eq!(world.exchange(client, served), [false; 2], "{version} {scheme:?}");
            world.network.run_for(LONGEST).unwrap();
            assert_eq!(world.exchange(client, served), [true; 2], "{version} {scheme:?}");
            assert_eq!(world.port(client), POOL, "{version} {scheme:?}");
        }
    }
}

/// No server listens at the port. The client speaks to it again only after unanswered data, with longer and
/// longer pauses.
#[test]
fn a_client_speaks_to_a_dead_port_only_while_it_hears_nothing() {
    for version in VERSIONS {
        for scheme in TCS {
            let what = format!("{version} {scheme:?}");
            let configs = configs(version, scheme);
            let mut world = World::new(&configs, None, 0);
            world.server().add_ports([(Local(7), POOL)]).unwrap();
            let client = world.connect(&configs, 1);
            // Without data, the client speaks to the port once more after its return.
            world.network.run_for(Duration::from_secs(600)).unwrap();
            let before = spoken(&world);
            assert!((4..=5).contains(&before), "{what}: {before}");
            let served = world.served()[0];
            for _ in 0..60 {
                assert_eq!(world.exchange(client, served), [true; 2], "{what}");
                world.network.run_for(Duration::from_secs(1)).unwrap();
            }
            assert_eq!((spoken(&world), world.port(client)), (before, PORT), "{what}");
            talk(&mut world, client, 200);
            let unanswered = spoken(&world) - before;
            assert!((2..=4).contains(&unanswered), "{what}: {unanswered}");
            while world.server().update(served, |connection| connection.read()).unwrap().is_some() {}
            assert_eq!((world.exchange(client, served), world.port(client)), ([true; 2], PORT), "{what}");
        }
    }
}

/// The client is frozen after its return, and thawed in another process. It still takes records from the
/// port.
#[test]
fn a_frozen_client_remembers_the_port_from_which_it_has_returned() {
    for version in VERSIONS {
        for scheme in TCS {
            let configs = configs(version, scheme);
            let (mut world, client, is_silent) = returned(&configs, None);
            let now = world.network.now;
            let endpoint = &mut world.network.host(client.host).endpoint;
            let frozen = endpoint.freeze(now, client.id).unwrap().unwrap();
            let config = Arc::new(configs.client.clone());
            let thawed = DtlsConnection::thaw_client(&config, localhost(), &frozen, now).unwrap();
            *endpoint = Endpoint::new(EndpointLimits::default());
            let id = endpoint.adopt(now, thawed).unwrap();
            let client = Client { id, ..client };
            is_silent.store(false, Ordering::Relaxed);
            let served = world.served()[0];
            assert_eq!(world.exchange(client, served), [true; 2], "{version} {scheme:?}");
            world.network.run_for(ANSWER).unwrap();
            assert_eq!(world.port(client), POOL, "{version} {scheme:?}");
        }
    }
}

/// The client's first records about the port are lost, and an attacker sends it a copy of the server's record
/// from there. That proves nothing: the server is still at the welcome port, or its announcement itself was
/// copied.
#[test]
fn a_copy_from_the_port_does_not_bring_the_client_there() {
    for version in VERSIONS {
        for scheme in TCS {
            let what = format!("{version} {scheme:?}");
            let configs = configs(version, scheme);
            let mut world = World::new(&configs, None, 1);
            let is_cut = Arc::new(AtomicBool::new(false));
            let cut = Arc::clone(&is_cut);
            let there = move |_: Duration, datagram: Vec<u8>| {
                if cut.load(Ordering::Relaxed) { Vec::new() } else { vec![(DELAY, datagram)] }
            };
            let client = world.begin_over(&configs, 1, [Box::new(there), Box::new(Delay(DELAY))]);
            while world.port(client) != POOL {
                world.network.run_for(DELAY / 4).unwrap();
                let served = world.served();
                let has_finished = |id| {
                    world
                        .server()
                        .association(id)
                        .is_some_and(|served| served.connection().negotiated().is_some())
                };
                is_cut.store(served.into_iter().any(has_finished), Ordering::Relaxed);
                world.pass(0);
            }
            world.pass(1);
            let served = world.served()[0];
            world.server().update(served, |connection| connection.send(b"data")).unwrap().unwrap();
            let now = world.network.now;
            let record = world.server().poll_transmit(now).unwrap();
            let from_port = Path::from(SocketAddr::new(super::SERVER.ip(), POOL));
            world.network.host(client.host).endpoint.receive(now, from_port, &record.datagram);
            is_cut.store(false, Ordering::Relaxed);
            world.network.run_for(RETURN).unwrap();
            world.network.host(client.host).endpoint.update(client.id, |connection| connection.read());
            assert_eq!((world.exchange(client, served), world.port(client)), ([true; 2], POOL), "{what}");
        }
    }
}
