//! The handshake cache (docs/handshake-cache.md): repeated handshakes are as mutual and fresh as full ones, without the
//! certificates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::sync::Arc;

use dunlin::auth::RawKeyTrust;
use dunlin::cache::DEFAULT_MAX_AGE;
use dunlin::wire::HandshakeType;
use dunlin::{ClientAuth, ClientConfig, Profile, ProfileBuilder, ServerConfig, Trust};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::{KeyType, Pair, Pki, awslc};

fn profile(typ: KeyType, is_client: bool) -> ProfileBuilder {
    let pki = Pki::shared(typ);
    let own = if is_client { &pki.client } else { &pki.server };
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    Profile::builder(awslc()).trust(trust).credentials(vec![own.x509(&awslc())])
}

fn client(profile: ProfileBuilder) -> Arc<ClientConfig> {
    let store = Arc::new(MemoryClientCache::default());
    let config = ClientConfig::new(profile.build().unwrap());
    Arc::new(config.with_handshake_cache(store, DEFAULT_MAX_AGE))
}

fn server(profile: ProfileBuilder, auth: ClientAuth) -> (Arc<ServerConfig>, Arc<MemoryServerCache>) {
    let store = Arc::new(MemoryServerCache::new(16));
    let config = ServerConfig::new(profile.build().unwrap()).unwrap();
    let config = config.with_handshake_cache(store.clone(), DEFAULT_MAX_AGE).unwrap();
    (Arc::new(config.with_client_auth(auth).unwrap()), store)
}

/// Connects, and tells whether the server's and the client's certificates were left out.
fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (Pair, [bool; 2]) {
    let mut pair = Pair::new(client, server);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    let [c, s] = [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone());
    assert_eq!(c.peer_certificate_cached, s.own_certificate_cached);
    assert_eq!(s.peer_certificate_cached, c.own_certificate_cached);
    assert!(c.peer_signature.is_some() && s.own_signature == c.peer_signature);
    assert!(!c.resumed && !s.resumed);
    let cached = [c.peer_certificate_cached, s.peer_certificate_cached];
    (pair, cached)
}

fn certificate_lengths(pair: &Pair) -> Vec<usize> {
    let messages = pair.client.messages();
    messages.iter().filter(|m| m.typ == HandshakeType::CERTIFICATE).map(|m| m.len).collect()
}

#[test]
fn the_second_handshake_leaves_the_certificates_out() {
    for typ in [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519] {
        let client = client(profile(typ, true));
        let (server, store) = server(profile(typ, false), ClientAuth::Required);
        let (first, cached) = connect(&client, &server);
        assert_eq!(cached, [false; 2]);
        assert_eq!(store.len(), 1);
        let names = |pair: &Pair| {
            [&pair.client, &pair.server]
                .map(|end| end.negotiated().unwrap().peer.as_ref().unwrap().to_string())
        };
        for _ in 0..3 {
            let (pair, cached) = connect(&client, &server);
            assert_eq!(cached, [true; 2]);
            assert_eq!(certificate_lengths(&pair), [13, 13]);
            assert_eq!(names(&pair), names(&first));
            assert_eq!(store.len(), 1);
        }
    }
}

#[test]
fn raw_keys_too() {
    let pki = Pki::shared(KeyType::P256);
    let raw = |is_client: bool| {
        let (own, peer) = if is_client { (&pki.client, &pki.server) } else { (&pki.server, &pki.client) };
        let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![peer.public_key.clone()])) };
        Profile::builder(awslc()).trust(trust).credentials(vec![own.raw_key(&awslc())])
    };
    let (client, (server, _)) = (client(raw(true)), server(raw(false), ClientAuth::Required));
    assert_eq!(connect(&client, &server).1, [false; 2]);
    assert_eq!(connect(&client, &server).1, [true; 2]);
}

#[test]
fn a_server_that_asks_for_nothing_is_cached_alone() {
    let client = client(profile(KeyType::P256, true));
    let (server, store) = server(profile(KeyType::P256, false), ClientAuth::None);
    assert_eq!(connect(&client, &server).1, [false; 2]);
    assert_eq!(connect(&client, &server).1, [true, false]);
    assert!(store.is_empty());
}

/// Rule 3: what the other side does not have is sent in full, without another trip.
#[test]
fn either_side_may_have_lost_its_cache() {
    let (one, other) = (client(profile(KeyType::P256, true)), client(profile(KeyType::P256, true)));
    let (server_one, _) = server(profile(KeyType::P256, false), ClientAuth::Required);
    let (server_other, _) = server(profile(KeyType::P256, false), ClientAuth::Required);
    connect(&one, &server_one);
    // A new client meets a server that knows its certificate.
    assert_eq!(connect(&other, &server_one).1, [false; 2]);
    // A client that knows the server's meets one that has forgotten it.
    assert_eq!(connect(&one, &server_other).1, [true, false]);
    assert_eq!(connect(&one, &server_other).1, [true; 2]);
}
