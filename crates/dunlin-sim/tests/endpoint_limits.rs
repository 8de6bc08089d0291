//! The limits of endpoints, and what a hostile host cannot do to the others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::net::{Net, client, half_open};
use common::{Configs, VERSIONS, profile};
use dunlin::auth::{Psk, PskTable};
use dunlin::error::{Error, Misuse};
use dunlin::places::{GivesWay, HandshakeLimit, PlaceLimit};
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{
    AssociationId, ClientAuth, ClientConfig, Ended, EndpointLimits, NodeIds, Profile, PskSource,
    ServerConfig, Side, Trust,
};
use dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES;
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost};

/// The `n`th address of another host.
fn other(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from([198, 51, 100, host]), port)
}

/// A server that knows devices by pre-shared keys and negotiates connection IDs, and so many of its devices.
fn fleet(version: ProtocolVersion, count: usize) -> (Configs, Vec<Configs>) {
    let builder = Profile::builder(awslc());
    let builder = match version {
        ProtocolVersion::DTLS1_2 => {
            builder.cipher_suites(vec![]).tls12_cipher_suites(TLS12_PSK_CIPHER_SUITES.to_vec())
        }
        _ => builder,
    };
    let profile = builder.build().unwrap();
    let key = |n: usize| Psk::new(format!("device-{n}"), &[7; 32]).unwrap();
    let keys = PskSource::Here(Arc::new((0..count).map(key).collect::<PskTable>()));
    let ids = |len| Arc::new(NodeIds::new(&[], len, awslc().random.clone()).unwrap());
    let server = ServerConfig::psk_only(profile.clone(), keys).unwrap().with_connection_ids(ids(8));
    let device = |n| {
        let client = ClientConfig::psk_only(profile.clone(), vec![Arc::new(key(n))]).unwrap();
        Configs::new(client.with_connection_ids(ids(0)), server.clone()).cookies(true)
    };
    (device(0), (0..count).map(device).collect())
}

/// Why the endpoint has ended the association of the `n`th client that came, if it has.
fn ended(net: &mut Net, n: usize) -> Option<Ended> {
    let (_, id) = net.incoming[n];
    net.server().association(id).unwrap().ended()
}

/// Removes the associations that have ended, as the caller of an endpoint does.
fn sweep(net: &mut Net) {
    let now = net.now;
    let server = net.server();
    let ids: Vec<AssociationId> = server.associations().collect();
    for id in ids {
        if server.association(id).unwrap().ended().is_some() {
            server.remove(now, id);
        }
    }
}

/// Power fails, the devices forget their associations, and their provider gives them new addresses. Neither
/// side has said a word.
#[test]
fn devices_that_have_lost_power_get_in_again_at_the_limit() {
    for version in VERSIONS {
        let (server, devices) = fleet(version, 10);
        let mut limits = EndpointLimits::default();
        limits.associations = 10;
        let mut net = Net::new(&server, limits);
        for round in 0..3 {
            for (n, device) in devices.iter().enumerate() {
                let address = other(n as u8, 1000 + round);
                let id = net.connect(device, address);
                net.run();
                assert!(net.is_connected(address, id), "{version}");
                sweep(&mut net);
            }
            assert_eq!((net.served().len(), net.server().len()), (10, 10), "{version}");
            net.endpoints.retain(|address, _| *address == SERVER_ADDRESS);
            net.incoming.retain(|(address, _)| *address == SERVER_ADDRESS);
            net.incoming.drain(..net.incoming.len() - 10);
        }
        let discarded = net.server().discarded();
        assert_eq!((discarded.gave_way, discarded.refused), (20, 0), "{version}");
    }
}

/// A host begins associations at one address, one after the other. With connection IDs, none replaces the
/// previous one.
#[test]
fn a_host_holds_no_more_associations_than_its_limit() {
    for version in VERSIONS {
        let (server, devices) = fleet(version, 40);
        let mut limits = EndpointLimits::default();
        limits.associations_per_host = 2;
        let mut net = Net::new(&server, limits);
        for device in &devices {
            net.endpoints.remove(&CLIENT_ADDRESS);
            net.connect(device, CLIENT_ADDRESS);
            net.run();
        }
        assert_eq!(net.served().len(), 2, "{version}");
        assert_eq!(ended(&mut net, 39), Some(Ended::Refused(PlaceLimit::PerHost)), "{version}");
        assert_eq!(net.server().discarded().refused_per_host, 38, "{version}");
    }
}

#[test]
fn limits_associations() {
    let (configs, devices) = fleet(ProtocolVersion::DTLS1_2, 6);
    let mut limits = EndpointLimits::default();
    limits.associations = 4;
    let mut net = Net::new(&configs, limits);
    for (device, n) in devices[1..].iter().zip(1..) {
        net.connect(device, client(n));
        net.run();
    }
    assert_eq!((net.served().len(), net.server().discarded().refused), (4, 1));
    assert_eq!(ended(&mut net, 4), Some(Ended::Refused(PlaceLimit::All)));
    let config = Arc::new(configs.client.clone());
    let full = net.server().connect(&config, localhost(), client(9), NOW);
    assert_eq!(full, Err(Error::Misuse(Misuse::EndpointFull)));
    // An association that is removed leaves room, and so does one that its peer has ended.
    for n in [0, 1] {
        let (_, one) = net.incoming[n];
        if n == 0 {
            net.server().remove(NOW, one);
        } else {
            let alert = AlertDescription::USER_CANCELED;
            net.server().update(one, |connection| connection.abort(alert)).unwrap();
        }
        net.endpoints.remove(&client(7 + n as u16));
        let again = net.connect(&devices[n * 5], client(7 + n as u16));
        net.run();
        assert!(net.is_connected(client(7 + n as u16), again));
        assert_eq!(net.served().len(), 4);
    }
}

/// Associations that the caller does not remove keep their memory, so the endpoint takes no more handshakes.
#[test]
fn associations_that_have_ended_bound_the_handshakes() {
    let (configs, devices) = fleet(ProtocolVersion::DTLS1_3, 9);
    let mut limits = EndpointLimits::default();
    (limits.associations, limits.half_open) = (1, 2);
    let mut net = Net::new(&configs, limits);
    for (n, device) in devices.iter().enumerate() {
        net.connect(device, client(n as u16));
        net.run();
    }
    assert_eq!((net.server().len(), net.served().len()), (5, 1));
    assert_eq!((net.server().discarded().refused, net.server().discarded().full), (4, 4));
    sweep(&mut net);
    net.pass(Duration::from_secs(1));
    assert_eq!(net.server().len(), 5);
}

/// Silent clients do not keep others out, and those that send something stay.
#[test]
fn new_clients_displace_the_stalest_associations_of_a_full_endpoint() {
    for version in VERSIONS {
        let (configs, devices) = fleet(version, 12);
        let mut limits = EndpointLimits::default();
        (limits.associations, limits.stale) = (4, Some(Duration::from_secs(600)));
        let mut net = Net::new(&configs, limits);
        let ids: Vec<_> = (1..=4).map(|n| net.connect(&devices[usize::from(n)], client(n))).collect();
        net.run();
        assert_eq!(net.served().len(), 4);
        // All clients are young, so the endpoint is full.
        net.pass(Duration::from_secs(599));
        net.connect(&devices[5], client(5));
        net.run();
        assert_eq!(ended(&mut net, 4), Some(Ended::Refused(PlaceLimit::All)), "{version}");
        let error = net.endpoints.remove(&client(5)).unwrap();
        assert!(error.associations().all(|id| error.association(id).unwrap().connection().error().is_some()));
        // Forged ClientHellos and handshakes that are not complete displace nothing.
        net.send(client(1), ids[0], b"here");
        net.pass(Duration::from_secs(2));
        for n in 6..=9 {
            half_open(&mut net, &devices[usize::from(n)], client(n));
            net.endpoints.remove(&client(n));
        }
        assert_eq!(net.server().discarded().gave_way, 0);
        // The second client is the one that was silent for longest, after the first has sent something.
        net.send(client(3), ids[2], b"here, too");
        let last = net.connect(&devices[10], client(10));
        net.run();
        assert!(net.is_connected(client(10), last), "{version}");
        let silent = Some(Ended::GaveWay(GivesWay::Silent));
        let reasons: Vec<_> = (0..4).map(|n| ended(&mut net, n)).collect();
        assert_eq!(reasons, [None, silent, None, None], "{version}");
        let peer = net.at(client(2)).association(ids[1]).unwrap();
        assert!(peer.connection().peer_has_closed(), "{version}: the client hears of it");
        assert_eq!((net.served().len(), net.server().discarded().gave_way), (4, 1), "{version}");
    }
}

#[test]
fn limits_the_associations_of_one_host_and_of_one_network() {
    let (configs, devices) = fleet(ProtocolVersion::DTLS1_3, 12);
    let mut limits = EndpointLimits::default();
    (limits.associations_per_host, limits.associations_per_network) = (2, 3);
    let mut net = Net::new(&configs, limits);
    let v6 = |subnet: u16, port| {
        SocketAddr::from((std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, subnet, 0, 0, 0, 1), port))
    };
    let addresses =
        [client(1), client(2), client(3), other(1, 1), v6(1, 1), v6(1, 2), v6(1, 3), v6(2, 1), v6(3, 1)];
    for (device, address) in devices.iter().zip(addresses) {
        net.connect(device, address);
        net.run();
    }
    let reasons: Vec<_> = (0..addresses.len()).map(|n| ended(&mut net, n)).collect();
    let [host, network] =
        [PlaceLimit::PerHost, PlaceLimit::PerNetwork].map(|limit| Some(Ended::Refused(limit)));
    assert_eq!(reasons, [None, None, host, None, None, None, host, None, network]);
    let discarded = net.server().discarded();
    assert_eq!((discarded.refused_per_host, discarded.refused_per_network), (2, 1));
    // A device that begins anew takes the place of its own association.
    net.endpoints.remove(&client(1));
    let again = net.connect(&devices[0], client(1));
    net.run();
    assert!(net.is_connected(client(1), again));
    // Removed associations do not count, and neither do they beyond a new limit.
    for (_, id) in net.incoming.clone() {
        net.server().remove(NOW, id);
    }
    limits.associations_per_host = 3;
    net.server().set_limits(limits);
    for n in 1..=4 {
        net.endpoints.remove(&client(n));
        net.connect(&devices[usize::from(n)], client(n));
        net.run();
    }
    assert_eq!(net.served().len(), 3);
}

/// Clients without an identity give way to the others, and never the other way round.
#[test]
fn anonymous_clients_give_way_to_authenticated_ones() {
    for version in VERSIONS {
        let (configs, anonymous) = known_and_anonymous(version);
        let mut limits = EndpointLimits::default();
        limits.associations = 2;
        let mut net = Net::new(&configs, limits);
        net.connect(&anonymous, client(1));
        net.connect(&anonymous, client(2));
        net.run();
        for n in [3, 4] {
            let known = net.connect(&configs, client(n));
            net.run();
            assert!(net.is_connected(client(n), known), "{version}");
        }
        let gave_way = Some(Ended::GaveWay(GivesWay::Anonymous));
        assert_eq!([0, 1].map(|n| ended(&mut net, n)), [gave_way; 2], "{version}");
        net.pass(Duration::from_secs(100_000));
        net.connect(&anonymous, client(5));
        net.run();
        assert_eq!(ended(&mut net, 4), Some(Ended::Refused(PlaceLimit::All)), "{version}");
        assert_eq!([2, 3].map(|n| ended(&mut net, n)), [None; 2], "{version}");
    }
}

#[test]
fn a_new_handshake_displaces_the_oldest_incomplete_one() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut limits = EndpointLimits::default();
        limits.half_open = 2;
        let mut net = Net::new(&configs, limits);
        let clients: Vec<_> =
            (1..=3).map(|n| (other(n, 1), half_open(&mut net, &configs, other(n, 1)))).collect();
        assert_eq!((net.server().half_open(), net.server().discarded().displaced), (2, 1));
        // The others continue, and the displaced one hears of its end.
        net.run();
        net.pass(Duration::from_secs(1));
        net.pass(Duration::from_secs(2));
        let [(first, first_id), rest @ ..] = &clients[..] else { panic!("three clients") };
        for (address, id) in rest {
            assert!(net.is_connected(*address, *id), "{version}");
        }
        let oldest = net.incoming[0].1;
        let association = net.server().association(oldest).unwrap();
        assert_eq!(association.ended(), Some(Ended::Displaced(HandshakeLimit::All)));
        assert!(association.connection().error().is_some());
        let error = net.at(*first).association(*first_id).unwrap().connection().error().cloned();
        assert!(matches!(error, Some(Error::AlertReceived(_))), "{version}: {error:?}");
        assert_eq!((net.server().half_open(), net.served().len()), (0, 2));
    }
}

/// An attacker that sees a server's answers to a client can return the cookies of handshakes in the client's
/// name.
#[test]
fn handshakes_in_the_name_of_a_client_do_not_end_its_own() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = half_open(&mut net, &configs, CLIENT_ADDRESS);
        let own = net.endpoints.remove(&CLIENT_ADDRESS).unwrap();
        for n in 1..=3 {
            half_open(&mut net, &configs, CLIENT_ADDRESS);
            net.endpoints.remove(&CLIENT_ADDRESS);
            assert_eq!(net.server().half_open(), 2, "{version} {n}");
        }
        net.endpoints.insert(CLIENT_ADDRESS, own);
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, id), "{version}");
        assert_eq!((net.served(), net.server().half_open()), (vec![net.incoming[0].1], 0), "{version}");
        net.send(CLIENT_ADDRESS, id, b"mine");
        let (_, served) = net.incoming[0];
        assert_eq!(net.read(SERVER_ADDRESS, served).as_deref(), Some(&b"mine"[..]), "{version}");
    }
}

/// A host that begins handshakes without end displaces only its own.
#[test]
fn a_host_with_many_incomplete_handshakes_does_not_stop_the_others() {
    let configs = Configs::of_version(ProtocolVersion::DTLS1_3);
    let mut limits = EndpointLimits::default();
    limits.half_open = 8;
    limits.half_open_per_host = 4;
    let mut net = Net::new(&configs, limits);
    let slow = half_open(&mut net, &configs, other(1, 1));
    for n in 1..=50 {
        half_open(&mut net, &configs, client(n));
        assert!(net.server().half_open() <= 5);
    }
    let late = net.connect(&configs, other(2, 1));
    let hello = |address: SocketAddr| address.ip() == CLIENT_ADDRESS.ip();
    net.endpoints.retain(|address, _| !hello(*address));
    net.run();
    net.pass(Duration::from_secs(1));
    assert!(net.is_connected(other(1, 1), slow) && net.is_connected(other(2, 1), late));
    assert_eq!((net.server().half_open(), net.server().discarded().displaced), (4, 46));
}

/// A network of 60 bits has 16 hosts. It begins handshakes from all of them, more than the server keeps.
#[test]
fn a_site_with_many_incomplete_handshakes_does_not_stop_the_others() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut limits = EndpointLimits::default();
        limits.half_open = 8;
        let mut net = Net::new(&configs, limits);
        let slow = half_open(&mut net, &configs, other(1, 1));
        let site =
            |n: u16| SocketAddr::new(IpAddr::from([0x2001, 0xdb8, 0, 0xaf0 + n % 16, 0, 0, 0, 1]), 1000 + n);
        for n in 0..50 {
            half_open(&mut net, &configs, site(n));
            assert!(net.server().half_open() <= 8, "{version}");
        }
        net.endpoints.retain(|address, _| address.is_ipv4());
        let late = net.connect(&configs, other(2, 1));
        net.run();
        net.pass(Duration::from_secs(1));
        assert!(net.is_connected(other(1, 1), slow), "{version}");
        assert!(net.is_connected(other(2, 1), late), "{version}");
        assert_eq!(net.server().discarded().displaced, 43, "{version}");
    }
}

#[test]
fn a_handshake_that_fails_at_once_leaves_nothing() {
    let provider = awslc();
    let stranger = Profile::builder(Arc::clone(&provider)).credentials(vec![]).build().unwrap();
    let server = ServerConfig::new(profile(&provider, Side::Server, KeyType::P256).build().unwrap()).unwrap();
    let key = |secret| Arc::new(Psk::new("d1", &[secret; 32]).unwrap());
    let table = PskTable::from_iter([Psk::new("d1", &[1; 32]).unwrap()]);
    let server = server.with_psks(PskSource::Here(Arc::new(table)));
    let wrong = ClientConfig::new(stranger).with_psks(vec![key(2)]);
    let configs = Configs::new(wrong, server).cookies(true);
    let mut net = Net::new(&configs, EndpointLimits::default());
    net.connect(&configs, CLIENT_ADDRESS);
    net.run();
    // The client repeats its ClientHello before it believes an alert that nothing protects.
    net.pass(Duration::from_secs(1));
    net.pass(Duration::from_secs(2));
    assert!(net.server().is_empty() && net.incoming.is_empty());
    assert_eq!(net.server().poll_timeout(), None);
    let failed = net.server().discarded().failed;
    assert!(failed > 1 && net.failed.len() as u64 == failed, "{failed}");
    assert!(
        net.failed
            .iter()
            .all(|(peer, error)| *peer == CLIENT_ADDRESS && matches!(error, Error::PeerMisbehaved(_)))
    );
    // The endpoint keeps a bounded number of events for a caller that takes none.
    let again = net.sent.iter().rfind(|(from, ..)| *from == CLIENT_ADDRESS).unwrap().2.clone();
    let now = net.now;
    (0..100).for_each(|_| net.server().receive(now, CLIENT_ADDRESS, &again));
    net.failed.clear();
    net.run();
    assert_eq!((net.failed.len(), net.server().discarded().failed), (64, failed + 100));
}

/// A client with a certificate and one without, and a server that takes both.
fn known_and_anonymous(version: ProtocolVersion) -> (Configs, Configs) {
    let mut configs = Configs::of_version(version);
    configs.server = configs.server.with_client_auth(ClientAuth::Optional).unwrap();
    let trust = Trust { x509: Some(Pki::shared(KeyType::P256).trust()), raw_key: None };
    let builder = Profile::builder(awslc()).trust(trust);
    let builder = match version {
        ProtocolVersion::DTLS1_2 => builder
            .cipher_suites(vec![])
            .tls12_cipher_suites(dunlin_awslc::tls12::TLS12_CIPHER_SUITES.to_vec()),
        _ => builder,
    };
    let anonymous = Configs { client: ClientConfig::new(builder.build().unwrap()), ..configs_of(&configs) };
    (configs, anonymous)
}

/// A NAT may give the address of a sleeping client to another one. Connection IDs tell the two apart.
#[test]
fn a_client_with_another_identity_at_the_same_address_ends_no_association_with_ids() {
    for version in VERSIONS {
        let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
        let (mut configs, mut anonymous) = known_and_anonymous(version);
        configs.server = configs.server.with_connection_ids(ids());
        for configs in [&mut configs, &mut anonymous] {
            configs.client = configs.client.clone().with_connection_ids(ids());
        }
        let mut net = Net::new(&configs, EndpointLimits::default());
        let known = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        let [served] = net.served()[..] else { panic!("one client") };
        let asleep = net.endpoints.remove(&CLIENT_ADDRESS).unwrap();
        let stranger = net.connect(&anonymous, CLIENT_ADDRESS);
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, stranger), "{version}");
        assert_eq!(net.served().len(), 2, "{version}");
        let (_, second) = net.incoming[1];
        net.send(CLIENT_ADDRESS, stranger, b"new here");
        assert_eq!(net.read(SERVER_ADDRESS, second).as_deref(), Some(&b"new here"[..]));
        // The NAT gives the first client another address.
        net.endpoints.insert(client(9), asleep);
        net.send(client(9), known, b"awake");
        assert_eq!(net.read(SERVER_ADDRESS, served).as_deref(), Some(&b"awake"[..]));
    }
}

/// RFC 9147 §5.11: another host that receives at a client's address must not end its association, unless it
/// proves an identity, too.
#[test]
fn an_anonymous_client_does_not_supersede_an_authenticated_one() {
    for version in VERSIONS {
        let (configs, anonymous) = known_and_anonymous(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let known = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        let [served] = net.served()[..] else { panic!("one client") };
        let victim = net.endpoints.remove(&CLIENT_ADDRESS).unwrap();
        let stranger = net.connect(&anonymous, CLIENT_ADDRESS);
        net.run();
        let (_, second) = net.incoming[1];
        assert_eq!(net.server().association(second).unwrap().ended(), Some(Ended::Anonymous), "{version}");
        let error = net.at(CLIENT_ADDRESS).association(stranger).unwrap().connection().error().cloned();
        assert!(matches!(error, Some(Error::AlertReceived(_))), "{version}: {error:?}");
        // The known client goes on.
        net.endpoints.insert(CLIENT_ADDRESS, victim);
        net.send(CLIENT_ADDRESS, known, b"still here");
        assert_eq!(net.read(SERVER_ADDRESS, served).as_deref(), Some(&b"still here"[..]));
        net.send(SERVER_ADDRESS, served, b"good");
        assert_eq!(net.read(CLIENT_ADDRESS, known).as_deref(), Some(&b"good"[..]));
        // An anonymous client supersedes an anonymous one, and so does the known client.
        net.server().remove(NOW, served);
        for configs in [&anonymous, &anonymous, &configs] {
            net.endpoints.remove(&CLIENT_ADDRESS);
            let id = net.connect(configs, CLIENT_ADDRESS);
            net.run();
            assert!(net.is_connected(CLIENT_ADDRESS, id), "{version}");
            assert_eq!(net.served().len(), 1);
        }
    }
}

/// The same server.
fn configs_of(configs: &Configs) -> Configs {
    Configs { client: configs.client.clone(), server: configs.server.clone(), now: configs.now }
}

#[test]
fn an_idle_association_ends() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut limits = EndpointLimits::default();
        limits.idle = Some(Duration::from_secs(600));
        let mut net = Net::new(&configs, limits);
        let ids = [1, 2].map(|n| net.connect(&configs, client(n)));
        net.run();
        let [talks, sleeps] = net.served()[..] else { panic!("two clients") };
        for _ in 0..3 {
            net.pass(Duration::from_secs(300));
            net.send(client(1), ids[0], b"here");
            // This side's datagrams say nothing about its peer.
            let _ = net.server().update(sleeps, |connection| connection.send(b"there?"));
            net.run();
        }
        let ended = |net: &mut Net, id| net.server().association(id).unwrap().ended();
        assert_eq!((ended(&mut net, talks), ended(&mut net, sleeps)), (None, Some(Ended::Idle)), "{version}");
        let peer = net.at(client(2)).association(ids[1]).unwrap();
        assert!(peer.connection().peer_has_closed(), "{version}: the peer hears of it");
        net.pass(Duration::from_secs(599));
        assert_eq!(ended(&mut net, talks), None);
        net.pass(Duration::from_secs(1));
        assert_eq!(ended(&mut net, talks), Some(Ended::Idle));
        assert_eq!(net.server().poll_timeout(), None);
    }
}
