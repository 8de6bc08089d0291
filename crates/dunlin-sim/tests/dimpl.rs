//! Handshakes and data with dimpl as client and as server.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use common::peer::Peer;
use common::{App, Configs, DELAY, close, connect, epoch_bits, events, exchange, longest, profile, sent};
use dimpl::{Config, ConfigBuilder};
use dunlin::auth::X509Trust;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::{CipherSuite, ProtocolVersion};
use dunlin::{
    AssociationId, DtlsConnection, EndpointEvent, EndpointLimits, Event, ProfileBuilder, Side, Trust,
};
use dunlin_sim::{Endpoint, Pair};
use dunlin_tests::peer::now;
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost, providers};

/// The engine's configurations. dimpl sends no intermediate, so the trust anchor is the issuer of its leaf.
fn configs(provider: &Arc<CryptoProvider>, change: impl Fn(ProfileBuilder) -> ProfileBuilder) -> Configs {
    let issuer = Pki::shared(KeyType::P256).server.chain[1].clone();
    let trust = Trust { x509: Some(X509Trust::anchors([issuer]).unwrap()), raw_key: None };
    let profile = |side| change(profile(provider, side, KeyType::P256)).trust(trust.clone()).build().unwrap();
    Configs::of(profile(Side::Client), profile(Side::Server))
}

fn plain(provider: &Arc<CryptoProvider>) -> Configs {
    configs(provider, |profile| profile)
}

fn dimpl(side: Side, change: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> Peer {
    Peer::new(change(Config::builder()).build().unwrap(), side)
}

/// Connects the engine's client to a dimpl server.
fn to_dimpl(configs: &Configs, server: Peer) -> Pair<DtlsConnection, Peer> {
    let mut pair = Pair::new(configs.client(), server, NOW, DELAY);
    connect(&mut pair);
    assert_eq!(pair.client.negotiated().unwrap().version, Some(ProtocolVersion::DTLS1_3));
    let ours = &Pki::shared(KeyType::P256).client.chain[0];
    assert_eq!(pair.server.peer_certificate.as_deref(), Some(&ours[..]));
    assert_eq!(pair.client.discarded(), Default::default());
    pair
}

/// Connects a dimpl client to the engine's server.
fn from_dimpl(client: Peer, configs: &Configs) -> Pair<Peer, DtlsConnection> {
    let mut pair = Pair::new(client, configs.server(), NOW, DELAY);
    connect(&mut pair);
    let negotiated = pair.server.negotiated().unwrap();
    assert_eq!(negotiated.version, Some(ProtocolVersion::DTLS1_3));
    assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), "X.509 device-1");
    let ours = &Pki::shared(KeyType::P256).server.chain[0];
    assert_eq!(pair.client.peer_certificate.as_deref(), Some(&ours[..]));
    assert_eq!(pair.server.discarded(), Default::default());
    pair
}

#[test]
fn client_connects_to_dimpl() {
    for provider in providers() {
        for cookie in [false, true] {
            let server = dimpl(Side::Server, |config| config.use_server_cookie(cookie));
            let mut pair = to_dimpl(&plain(&provider), server);
            assert_eq!(pair.client.negotiated().unwrap().retried, cookie);
            exchange(&mut pair);
            close(&mut pair);
        }
    }
}

#[test]
fn server_accepts_dimpl() {
    for provider in providers() {
        for cookie in [false, true] {
            let configs = plain(&provider).cookies(cookie);
            let mut pair = from_dimpl(dimpl(Side::Client, |config| config), &configs);
            assert_eq!(pair.server.negotiated().unwrap().retried, cookie);
            exchange(&mut pair);
            close(&mut pair);
        }
    }
}

/// The suites mask record numbers in different ways, and their key schedules use different hashes.
#[test]
fn interoperates_with_dimpl_in_every_common_cipher_suite() {
    let common = [
        CipherSuite::TLS_AES_128_GCM_SHA256,
        CipherSuite::TLS_AES_256_GCM_SHA384,
        CipherSuite::TLS_CHACHA20_POLY1305_SHA256,
    ];
    for provider in providers() {
        for id in common {
            let suite = provider.suite(id).unwrap();
            let configs = configs(&provider, |profile| profile.cipher_suites(vec![suite]));
            exchange(&mut to_dimpl(&configs, dimpl(Side::Server, |config| config)));
            exchange(&mut from_dimpl(dimpl(Side::Client, |config| config), &configs));
        }
    }
}

#[test]
fn interoperates_with_dimpl_in_fragments() {
    // dimpl's default queues hold 10 outgoing and 30 incoming datagrams. At 256 bytes our flights need fewer.
    for mtu in [256, 400, 700] {
        for cookie in [false, true] {
            let configs = plain(&awslc()).mtu(mtu).cookies(cookie);
            let server = dimpl(Side::Server, |config| config.mtu(mtu).use_server_cookie(cookie));
            let pair = to_dimpl(&configs, server);
            assert!(longest(&pair, Side::Client) <= mtu && sent(&pair, Side::Client, 0).len() > 2);
            let mut pair = from_dimpl(dimpl(Side::Client, |config| config.mtu(mtu)), &configs);
            assert!(longest(&pair, Side::Server) <= mtu && sent(&pair, Side::Server, 0).len() > 2);
            pair.client.send(b"ping");
            pair.run().unwrap();
            assert_eq!(pair.server.received(), [b"ping"]);
        }
    }
}

#[test]
fn dimpl_answers_our_key_updates() {
    let mut pair = to_dimpl(&plain(&awslc()), dimpl(Side::Server, |config| config));
    // Continue past the point where the two bits of the epoch wrap.
    for generation in 1..=6 {
        pair.client.update_keys(true).unwrap();
        pair.run().unwrap();
        assert!(events(&mut pair.client).iter().any(|event| matches!(event, Event::PeerUpdatedKeys)));
        let before = pair.sent.len();
        exchange(&mut pair);
        for side in [Side::Client, Side::Server] {
            let epochs: Vec<_> = sent(&pair, side, before).iter().map(|record| epoch_bits(record)).collect();
            assert_eq!(epochs, [(3 + generation) as u8 & 3; 2], "{side:?}, generation {generation}");
        }
    }
}

#[test]
fn answers_key_updates_of_dimpl() {
    let client = dimpl(Side::Client, |config| config.aead_encryption_limit(4));
    let mut pair = from_dimpl(client, &plain(&awslc()));
    for _ in 0..10 {
        exchange(&mut pair);
    }
    assert!(events(&mut pair.server).iter().any(|event| matches!(event, Event::PeerUpdatedKeys)));
}

/// Lets two endpoints exchange datagrams over real sockets, until both are done.
fn run_on_sockets<A: Endpoint, B: Endpoint>(
    (a, a_socket): (&mut A, &UdpSocket),
    (b, b_socket): (&mut B, &UdpSocket),
    mut done: impl FnMut(&mut A, &mut B) -> bool,
) {
    fn step(endpoint: &mut impl Endpoint, socket: &UdpSocket, peer: SocketAddr) {
        while let Some(transmit) = endpoint.poll_transmit(now()) {
            socket.send_to(&transmit.datagram, peer).unwrap();
        }
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut buffer = [0; 2048];
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => endpoint.receive(now(), from, &buffer[..len]),
            Err(_) => endpoint.handle_timeout(now()),
        }
    }
    let at_a = a_socket.local_addr().unwrap();
    let at_b = b_socket.local_addr().unwrap();
    let end = now().monotonic + Duration::from_secs(30);
    while !done(a, b) {
        assert!(now().monotonic < end, "the endpoints are stuck");
        step(a, a_socket, at_b);
        step(b, b_socket, at_a);
    }
}

/// The name of the endpoint's association, once its handshake is complete.
fn association(endpoint: &mut dunlin::Endpoint) -> Option<AssociationId> {
    let id = std::iter::from_fn(|| endpoint.poll_event()).find_map(|event| match event {
        EndpointEvent::Changed(id) => Some(id),
        _ => None,
    })?;
    endpoint.association(id)?.connection().negotiated().map(|_| id)
}

#[test]
fn an_endpoint_talks_with_dimpl_over_sockets_in_both_roles() {
    let configs = Configs { now: now(), ..plain(&awslc()) }.cookies(true);
    for side in [Side::Client, Side::Server] {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [ours, theirs] = &sockets;
        let mut endpoint = dunlin::Endpoint::new(EndpointLimits::default());
        let mut peer = dimpl(side.peer(), |config| config);
        match side {
            Side::Client => {
                let config = Arc::new(configs.client.clone());
                let to = theirs.local_addr().unwrap();
                endpoint.connect(&config, localhost(), to, now()).unwrap();
            }
            Side::Server => endpoint.set_server(Some(Arc::new(configs.server.clone()))),
        }
        let mut id = None;
        run_on_sockets((&mut endpoint, ours), (&mut peer, theirs), |endpoint, _| {
            id = association(endpoint);
            id.is_some()
        });
        let id = id.unwrap();
        endpoint.update(id, |connection| connection.send(b"ping")).unwrap().unwrap();
        run_on_sockets((&mut endpoint, ours), (&mut peer, theirs), |_, peer| peer.received() == [b"ping"]);
        peer.assert_connected();
        App::send(&mut peer, b"pong");
        run_on_sockets((&mut endpoint, ours), (&mut peer, theirs), |endpoint, _| {
            let data = endpoint.update(id, |connection| connection.read()).flatten();
            data.as_deref() == Some(b"pong")
        });
    }
}
