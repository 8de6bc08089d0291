//! ServerHellos that a client of IPC may have to tell apart: forged, copied and split ones, and unsolicited
//! answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dunlin::error::{Error, Misuse};
use dunlin::wire::ProtocolVersion;
use dunlin::{DtlsConnection, Endpoint, EndpointLimits, PortScheme, ServerConfig, Side};
use dunlin_sim::{Delay, Link, Pooled};
use dunlin_tests::{KeyType, NOW, awslc, localhost};

use super::common::{Configs, VERSIONS, profile};
use super::{
    CLIENT_PORT, Client, DELAY, POOL, PORT, SERVER, World, before_the_hello, bytes_to, configs, ip, links,
};

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

/// Lets a datagram arrive at the client from a port of the server's address. Returns its length.
fn forge(world: &mut World, client: Client, port: u16, datagram: &[u8]) -> usize {
    let now = world.network.now;
    let peer = SocketAddr::new(SERVER.ip(), port);
    world.network.host(client.host).endpoint.receive(now, peer, datagram);
    datagram.len()
}

/// A forged ServerHello that fails, one that leads nowhere, a copy of the true one, and several: the client
/// finds its server, and no forged port gets more than three times what it has sent.
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

/// Forged ServerHellos from two ports arrive before the true one. Afterwards, datagrams that are not
/// authentic arrive from all three ports, each more often than the client loses patience with a port.
#[test]
fn forged_datagrams_do_not_keep_a_client_from_the_next_port() {
    for version in VERSIONS {
        let (mut world, client) = before_the_hello(&configs(version, PortScheme::Ipc));
        for (n, port) in [7001, 7002].into_iter().enumerate() {
            let hello = server_hello(&world, |hello| hello[31] ^= 1 + n as u8);
            forge(&mut world, client, port, &hello);
        }
        for _ in 0..10 {
            world.network.run_for(Duration::from_secs(3)).unwrap();
            [7001, 7002, POOL].into_iter().for_each(|port| {
                forge(&mut world, client, port, &[0xff; 40]);
            });
        }
        world.pass(1);
        assert!(world.is_connected(client), "{version}");
        assert_eq!(world.port(client), POOL, "{version}");
    }
}

/// Random forgeries: ServerHellos of three other ports, before the true one or later, and datagrams that are
/// not authentic, from all ports and at any time. `DUNLIN_SEEDS` sets how many seeds run.
#[test]
fn a_client_finds_its_server_among_random_forgeries() {
    let seeds = std::env::var("DUNLIN_SEEDS").map_or(20, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let scheme = random.choice([PortScheme::Ipc, PortScheme::IpcUnannounced]).unwrap();
        let (mut world, client) = before_the_hello(&configs(random.choice(VERSIONS).unwrap(), scheme));
        let forged_hello = |world: &mut World, random: &mut fastrand::Rng| {
            let hello = match random.u8(0..3) {
                0 => server_hello(world, other_suite),
                _ => server_hello(world, |hello| hello[31] ^= random.u8(1..)),
            };
            forge(world, client, random.u16(7001..=7003), &hello);
        };
        (0..random.u8(0..4)).for_each(|_| forged_hello(&mut world, &mut random));
        for _ in 0..40 {
            world.network.run_for(Duration::from_millis(random.u64(0..4000))).unwrap();
            if random.u8(0..3) == 0 {
                forged_hello(&mut world, &mut random);
            } else {
                let junk = [random.choice([0xff, 22, 23, 0x2e]).unwrap(); 40];
                forge(&mut world, client, random.choice([7001, 7002, 7003, POOL]).unwrap(), &junk);
            }
        }
        world.network.run_for(Duration::from_secs(60)).unwrap();
        world.pass(1);
        assert!(world.is_connected(client), "seed {seed}");
        assert_eq!(world.port(client), POOL, "seed {seed}");
        let served = world.served()[0];
        assert_eq!(world.exchange(client, served), [true; 2], "seed {seed}");
    }
}

/// Many ServerHellos from one port lead to attempts that fail at once, each with keys of its own. The keys
/// that are left suffice for the server.
#[test]
fn failed_attempts_with_one_port_leave_keys_for_the_server() {
    let configs = configs(ProtocolVersion::DTLS1_3, PortScheme::Ipc).cookies(false);
    let mut world = World::new(&configs, None, 4);
    let client = world.begin_over(&configs, 1, links());
    world.pass(3);
    let hello = world.network.sent.iter().find(|sent| sent.host == client.host).unwrap().datagram.clone();
    // The client does not trust its certificate.
    let rogue = profile(&awslc(), Side::Server, KeyType::Ed25519).build().unwrap();
    let rogue = Arc::new(ServerConfig::new(rogue).unwrap().with_cookies(false));
    for _ in 0..20 {
        let now = world.network.now;
        let address = SocketAddr::new(ip(7, 1), CLIENT_PORT);
        let mut rogue = DtlsConnection::server(&rogue, address, now);
        rogue.receive(now, address, &hello).unwrap();
        while let Some(sent) = rogue.poll_transmit(now) {
            forge(&mut world, client, 7001, &sent.datagram);
        }
    }
    world.pass(30);
    assert!(world.is_connected(client));
    assert_eq!(world.port(client), PORT);
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

/// The network loses the rest of the server's flight and falls silent for 20 s, and a forged ServerHello has
/// arrived after the genuine one. The client tries the forged port, and still completes its handshake with
/// the server.
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

/// An attacker copies the ServerHello to another port. An authentic datagram from the server leads the client
/// away from there; one that is not authentic does not lead it back, even in the same instant.
#[test]
fn only_an_authentic_datagram_leads_to_another_port_of_an_attempt() {
    let (mut world, client) = before_the_hello(&configs(ProtocolVersion::DTLS1_3, PortScheme::Ipc).mtu(600));
    let last = world.network.sent.iter().rfind(|sent| sent.host == world.server);
    let protected = last.unwrap().datagram.clone();
    assert_eq!(protected[0] >> 5, 1);
    let hello = server_hello(&world, |_| ());
    for port in [7001, POOL] {
        forge(&mut world, client, port, &hello);
    }
    // The attacker's port is silent.
    for _ in 0..100 {
        let now = &mut world.network.now;
        now.monotonic = now.monotonic + Duration::from_millis(100);
        let now = *now;
        let endpoint = &mut world.network.host(client.host).endpoint;
        endpoint.handle_timeout(now);
        while endpoint.poll_transmit(now).is_some() {}
        if world.port(client) == POOL {
            break;
        }
    }
    for (port, datagram) in [(POOL, &protected[..]), (7001, &[0xff; 40])] {
        forge(&mut world, client, port, datagram);
        assert_eq!(world.port(client), POOL);
    }
}

/// Splits the ServerHello in a record into two records, each with a fragment. The first one has `len` bytes
/// of it.
fn in_fragments(record: &[u8], len: usize) -> Vec<u8> {
    let body = &record[25..];
    let fragment = |number: u8, offset: usize, part: &[u8]| {
        let length = ((12 + part.len()) as u16).to_be_bytes();
        let offset = (offset as u32).to_be_bytes();
        let len = (part.len() as u32).to_be_bytes();
        let numbers = [&[0; 5][..], &[0x40 + number], &length].concat();
        [&record[..3], &numbers, &record[13..19], &offset[1..], &len[1..], part].concat()
    };
    [fragment(0, 0, &body[..len]), fragment(1, len, &body[len..])].concat()
}

/// An attacker who sees the genuine ServerHello sends it from two ports, under two labels. Each attempt would
/// begin at record number 0 with the same keys.
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
        let now = world.network.now;
        let peer = SocketAddr::new(SERVER.ip(), 7001);
        let endpoint = &mut world.network.host(host).endpoint;
        endpoint.receive(now, peer, &demand);
        assert_eq!((endpoint.poll_transmit(now), endpoint.discarded().unknown), (None, 1), "{version}");
        world.pass(30);
        assert_eq!(world.network.host(host).endpoint.association(id).unwrap().connection().error(), None);
        assert_eq!(world.served().len(), 1);
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

/// An answer without an offer, or to another one, ends the handshake with the alert of RFC 5246 §7.4.1.4 or
/// illegal_parameter. One that does not parse is forged, as far as the client knows.
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
