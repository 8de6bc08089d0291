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
use dunlin::wire::ProtocolVersion;
use dunlin::{
    ClientAuth, ClientConfig, Ended, EndpointLimits, NodeIds, Profile, PskSource, ServerConfig, Side, Trust,
};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost};

/// The `n`th address of another host.
fn other(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from([198, 51, 100, host]), port)
}

#[test]
fn limits_associations() {
    let configs = Configs::of_version(ProtocolVersion::DTLS1_2);
    let mut limits = EndpointLimits::default();
    limits.associations = 4;
    let mut net = Net::new(&configs, limits);
    for n in 1..=5 {
        net.connect(&configs, client(n));
        net.run();
    }
    assert_eq!((net.server().len(), net.served().len()), (4, 4));
    assert!(net.server().discarded().full > 0);
    let config = Arc::new(configs.client.clone());
    let full = net.server().connect(&config, localhost(), client(9), NOW);
    assert_eq!(full, Err(Error::Misuse(Misuse::EndpointFull)));
    // An association that is removed leaves room.
    let one = net.served()[0];
    net.server().remove(NOW, one);
    net.pass(Duration::from_secs(3));
    assert_eq!(net.served().len(), 4);
}

/// Silent clients do not keep others out, and those that send something stay.
#[test]
fn new_clients_displace_the_stalest_associations_of_a_full_endpoint() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut limits = EndpointLimits::default();
        (limits.associations, limits.stale) = (4, Some(Duration::from_secs(600)));
        let mut net = Net::new(&configs, limits);
        let ids: Vec<_> = (1..=4).map(|n| net.connect(&configs, client(n))).collect();
        net.run();
        let served = net.served();
        assert_eq!(served.len(), 4);
        // All clients are young, so the endpoint is full.
        net.pass(Duration::from_secs(599));
        net.connect(&configs, client(5));
        net.run();
        assert_eq!((net.server().len(), net.server().discarded().displaced), (4, 0));
        net.endpoints.remove(&client(5));
        // Forged ClientHellos displace nothing.
        net.send(client(1), ids[0], b"here");
        net.pass(Duration::from_secs(2));
        for n in 6..=9 {
            net.connect(&configs, client(n));
            let now = net.now;
            let hello = net.at(client(n)).poll_transmit(now).unwrap().datagram;
            (0..3).for_each(|_| net.server().receive(now, client(n), &hello));
            net.endpoints.remove(&client(n));
        }
        assert_eq!(net.server().discarded().displaced, 0);
        // The second client is the one that was silent for longest, after the first has sent something.
        net.send(client(3), ids[2], b"here, too");
        net.connect(&configs, client(10));
        net.run();
        let ended: Vec<_> = served.iter().map(|id| net.server().association(*id).unwrap().ended()).collect();
        assert_eq!(ended, [None, Some(Ended::Stale), None, None], "{version}");
        let peer = net.at(client(2)).association(ids[1]).unwrap();
        assert!(peer.connection().peer_has_closed(), "{version}: the client hears of it");
        // The new client connects when the caller has removed the displaced association. It makes room for the next one in advance.
        let now = net.now;
        net.server().remove(now, served[1]);
        net.pass(Duration::from_secs(1));
        assert_eq!((net.served().len(), net.server().len()), (3, 4), "{version}");
        assert_eq!(net.server().association(served[3]).unwrap().ended(), Some(Ended::Stale), "{version}");
        net.server().remove(now, served[3]);
        let last = net.connect(&configs, client(11));
        net.run();
        assert!(net.is_connected(client(11), last), "{version}");
        assert_eq!((net.served().len(), net.server().discarded().displaced), (4, 2), "{version}");
    }
}

#[test]
fn limits_the_associations_of_one_host() {
    let configs = Configs::of_version(ProtocolVersion::DTLS1_3);
    let mut limits = EndpointLimits::default();
    limits.associations_per_host = 2;
    let mut net = Net::new(&configs, limits);
    for n in 1..=3 {
        net.connect(&configs, client(n));
        net.run();
    }
    assert_eq!((net.server().len(), net.server().discarded().full), (2, 1));
    let elsewhere = net.connect(&configs, other(1, 1));
    net.run();
    assert!(net.is_connected(other(1, 1), elsewhere));
    // A client that begins anew takes the place of its own association.
    net.endpoints.remove(&client(1));
    let again = net.connect(&configs, client(1));
    net.run();
    assert!(net.is_connected(client(1), again));
    // Removed associations do not count.
    for (_, id) in net.incoming.clone() {
        net.server().remove(NOW, id);
    }
    net.pass(Duration::from_secs(1));
    assert_eq!(net.served().len(), 1, "the third client");
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
        assert_eq!(association.ended(), Some(Ended::Displaced));
        assert!(association.connection().error().is_some());
        let error = net.at(*first).association(*first_id).unwrap().connection().error().cloned();
        assert!(matches!(error, Some(Error::AlertReceived(_))), "{version}: {error:?}");
        assert_eq!((net.server().half_open(), net.served().len()), (0, 2));
    }
}

/// Somebody who sees a server's answers to a client can return the cookies of handshakes in the client's name.
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

/// RFC 9147 §5.11: another host that receives at a client's address must not end its association, unless it proves an identity, too.
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
            // What this side sends says nothing of its peer.
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
