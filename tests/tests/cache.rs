//! The handshake cache (docs/handshake-cache.md): repeated handshakes are as mutual and fresh as full ones, without the
//! certificates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::RawKeyTrust;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::error::{AuthenticationFailure, PeerMisbehaved};
use dunlin::wire::{HandshakeType, ProtocolVersion};
use dunlin::{
    ClientAuth, ClientConfig, Credential, Error, Now, Profile, ProfileBuilder, ServerConfig, TlsConnection,
    Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};

/// The rules are those of both versions: each test is of both.
const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::TLS1_2, ProtocolVersion::TLS1_3];

fn of_version(version: ProtocolVersion, profile: ProfileBuilder) -> ProfileBuilder {
    match version {
        ProtocolVersion::TLS1_2 => {
            profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        }
        _ => profile,
    }
}

fn profile(version: ProtocolVersion, typ: KeyType, is_client: bool) -> ProfileBuilder {
    let pki = Pki::shared(typ);
    let own = if is_client { &pki.client } else { &pki.server };
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let profile = Profile::builder(awslc()).trust(trust).credentials(vec![own.x509(&awslc())]);
    of_version(version, profile)
}

fn client(profile: ProfileBuilder) -> Arc<ClientConfig> {
    client_with(profile, &Arc::new(MemoryClientCache::default()))
}

fn client_with(profile: ProfileBuilder, store: &Arc<MemoryClientCache>) -> Arc<ClientConfig> {
    let config = ClientConfig::new(profile.build().unwrap());
    Arc::new(config.with_handshake_cache(CacheMode::Compact, store.clone(), DEFAULT_MAX_AGE))
}

fn server(profile: ProfileBuilder, auth: ClientAuth) -> (Arc<ServerConfig>, Arc<MemoryServerCache>) {
    let store = Arc::new(MemoryServerCache::new(16));
    (server_with(profile, auth, &store), store)
}

fn server_with(
    profile: ProfileBuilder,
    auth: ClientAuth,
    store: &Arc<MemoryServerCache>,
) -> Arc<ServerConfig> {
    let config = ServerConfig::new(profile.build().unwrap()).unwrap();
    let config = config.with_handshake_cache(CacheMode::Compact, store.clone(), DEFAULT_MAX_AGE).unwrap();
    Arc::new(config.with_client_auth(auth).unwrap())
}

fn pair_of(
    version: ProtocolVersion,
    typ: KeyType,
) -> (Arc<ClientConfig>, Arc<ServerConfig>, Arc<MemoryServerCache>) {
    let (server, store) = server(profile(version, typ, false), ClientAuth::Required);
    (client(profile(version, typ, true)), server, store)
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

fn lengths(pair: &Pair, typ: HandshakeType) -> Vec<usize> {
    pair.client.messages().iter().filter(|m| m.typ == typ).map(|m| m.len).collect()
}

#[test]
fn the_second_handshake_leaves_the_certificates_out() {
    for version in VERSIONS {
        for typ in [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519] {
            let client = client(profile(version, typ, true));
            let (server, store) = server(profile(version, typ, false), ClientAuth::Required);
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
                // With the header of a record, which is 5 bytes: 9 and 9, or 18 and 18.
                let len = if version == ProtocolVersion::TLS1_2 { 4 } else { 13 };
                assert_eq!(lengths(&pair, HandshakeType::CERTIFICATE), [len, len]);
                if version == ProtocolVersion::TLS1_2 {
                    assert_eq!(lengths(&pair, HandshakeType::CERTIFICATE_REQUEST), [4]);
                }
                assert_eq!(names(&pair), names(&first));
                assert_eq!(store.len(), 1);
            }
        }
    }
}

#[test]
fn raw_keys_too() {
    for version in VERSIONS {
        let pki = Pki::shared(KeyType::P256);
        let raw = |is_client: bool| {
            let (own, peer) = if is_client { (&pki.client, &pki.server) } else { (&pki.server, &pki.client) };
            let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![peer.public_key.clone()])) };
            let profile = Profile::builder(awslc()).trust(trust).credentials(vec![own.raw_key(&awslc())]);
            of_version(version, profile)
        };
        let (client, (server, _)) = (client(raw(true)), server(raw(false), ClientAuth::Required));
        assert_eq!(connect(&client, &server).1, [false; 2]);
        assert_eq!(connect(&client, &server).1, [true; 2]);
    }
}

#[test]
fn a_server_that_asks_for_nothing_is_cached_alone() {
    for version in VERSIONS {
        let client = client(profile(version, KeyType::P256, true));
        let (server, store) = server(profile(version, KeyType::P256, false), ClientAuth::None);
        assert_eq!(connect(&client, &server).1, [false; 2]);
        assert_eq!(connect(&client, &server).1, [true, false]);
        assert!(store.is_empty());
    }
}

/// Rule 3: what the other side does not have is sent in full, without another trip.
#[test]
fn either_side_may_have_lost_its_cache() {
    for version in VERSIONS {
        let (one, other) =
            (client(profile(version, KeyType::P256, true)), client(profile(version, KeyType::P256, true)));
        let (server_one, _) = server(profile(version, KeyType::P256, false), ClientAuth::Required);
        let (server_other, _) = server(profile(version, KeyType::P256, false), ClientAuth::Required);
        connect(&one, &server_one);
        // A new client meets a server that knows its certificate.
        assert_eq!(connect(&other, &server_one).1, [false; 2]);
        // A client that knows the server's meets one that has forgotten it.
        assert_eq!(connect(&one, &server_other).1, [true, false]);
        assert_eq!(connect(&one, &server_other).1, [true; 2]);
    }
}

/// Rule 1: what is used grows no younger. Rule 2: nor is a clock believed that went back.
#[test]
fn an_entry_ages_from_the_last_full_verification() {
    for version in VERSIONS {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let (clients, servers) =
            (Arc::new(MemoryClientCache::default()), Arc::new(MemoryServerCache::new(4)));
        let ends = |client_age, server_age| {
            let client = ClientConfig::new(profile(version, KeyType::P256, true).build().unwrap());
            let client = client.with_handshake_cache(CacheMode::Compact, clients.clone(), client_age);
            let server = ServerConfig::new(profile(version, KeyType::P256, false).build().unwrap()).unwrap();
            let server =
                server.with_handshake_cache(CacheMode::Compact, servers.clone(), server_age).unwrap();
            (Arc::new(client), Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
        };
        let at = |(client, server): &(Arc<ClientConfig>, Arc<ServerConfig>), days: u32| {
            let mut pair =
                Pair::at(client, server, Now::from_unix_ms(NOW.unix_ms + (DAY * days).as_millis() as u64));
            pair.connect().unwrap();
            [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().peer_certificate_cached)
        };
        let both = ends(3 * DAY, 3 * DAY);
        for (day, cached) in [(0, false), (1, true), (2, true), (3, false), (4, true), (5, true), (6, false)]
        {
            assert_eq!(at(&both, day), [cached; 2], "day {day}");
        }
        assert_eq!(at(&both, 1), [false; 2]);
        assert_eq!(at(&both, 2), [true; 2]);
        // Only one of them wants it younger.
        assert_eq!(at(&ends(3 * DAY, DAY), 3), [true, false]);
    }
}

/// Rule 2: whom today's settings would have to verify anew sends what they need for that.
#[test]
fn other_settings_verify_anew() {
    for version in VERSIONS {
        let typ = KeyType::P256;
        let store = Arc::new(MemoryServerCache::new(4));
        let one = server_with(profile(version, typ, false), ClientAuth::Required, &store);
        let client = client(profile(version, typ, true));
        connect(&client, &one);
        let renamed = server_with(profile(version, typ, false).name("other"), ClientAuth::Required, &store);
        assert_eq!(connect(&client, &renamed).1, [true, false]);
        // Now it is known under those.
        assert_eq!(connect(&client, &renamed).1, [true; 2]);
        // Other anchors refuse it, whatever the cache says.
        let trust = Trust { x509: Some(Pki::shared(KeyType::P384).trust()), raw_key: None };
        let strict = server_with(profile(version, typ, false).trust(trust), ClientAuth::Required, &store);
        let error = Pair::new(&client, &strict).run().unwrap_err();
        assert_eq!(error, Error::Authentication(AuthenticationFailure::UnknownIssuer));
    }
}

/// Rule 5: who cannot prove the key is refused, and the next handshake is full, whoever it is with.
#[test]
fn a_failed_proof_makes_the_next_handshake_full() {
    for version in VERSIONS {
        let (client, server, store) = pair_of(version, KeyType::P256);
        connect(&client, &server);
        assert_eq!(connect(&client, &server).1, [true; 2]);
        let pki = Pki::shared(KeyType::P256);
        let (Credential::X509 { chain, .. }, Credential::X509 { key, .. }) =
            (pki.server.x509(&awslc()), pki.client.x509(&awslc()))
        else {
            panic!("no X.509")
        };
        let thief = profile(version, KeyType::P256, false).credentials(vec![Credential::X509 { chain, key }]);
        let thief = server_with(thief, ClientAuth::Required, &store);
        let error = Pair::new(&client, &thief).run().unwrap_err();
        assert_eq!(error, PeerMisbehaved::BadSignature.into());
        assert_eq!(connect(&client, &server).1, [false; 2]);
        assert_eq!(connect(&client, &server).1, [true; 2]);
    }
}

/// Rules 5 and 8: an observer that shows a ticket again, without the key, changes nothing.
#[test]
fn a_ticket_shown_again_flushes_nothing() {
    for version in VERSIONS {
        let (client, server, store) = pair_of(version, KeyType::P256);
        connect(&client, &server);
        let mut pair = Pair::new(&client, &server);
        let hello = pair.client.transmit().to_vec();
        for _ in 0..100 {
            let mut observed = TlsConnection::server(&server, NOW);
            observed.receive(NOW, &hello).unwrap();
            // What is no message of this handshake ends it.
            observed
                .receive(NOW, &[23, 3, 3, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
                .unwrap_err();
        }
        assert_eq!(store.len(), 1);
        pair.connect().unwrap();
        assert!(pair.server.negotiated().unwrap().peer_certificate_cached);
    }
}

/// A passive observer: no two connections of one client show the same ticket.
#[test]
fn no_ticket_is_shown_twice() {
    for version in VERSIONS {
        let (client, server, _) = pair_of(version, KeyType::Ed25519);
        connect(&client, &server);
        let mut seen = BTreeSet::new();
        for _ in 0..1000 {
            let mut pair = Pair::new(&client, &server);
            let hello = pair.client.transmit().to_vec();
            // Flags, the server's fingerprint, in TLS 1.2 that of its CertificateRequest, and one ticket.
            let (flags, len) = if version == ProtocolVersion::TLS1_2 { (3, 25) } else { (1, 17) };
            let at = hello.windows(5).position(|w| w == [0xff, 0x20, 0, len, flags]).expect("the extension");
            assert!(seen.insert(hello[at + len as usize - 4..at + len as usize + 4].to_vec()));
            pair.connect().unwrap();
            assert!(pair.server.negotiated().unwrap().peer_certificate_cached);
        }
    }
}

/// Rule 7: a session that is resumed uses nothing of the cache, and leaves nothing in it.
#[test]
fn a_resumption_leaves_the_cache_alone() {
    for version in VERSIONS {
        for tickets in dunlin_tests::ends::tickets() {
            let store = Arc::new(MemoryServerCache::new(4));
            let server = ServerConfig::new(profile(version, KeyType::P256, false).build().unwrap()).unwrap();
            let server =
                server.with_handshake_cache(CacheMode::Compact, store.clone(), DEFAULT_MAX_AGE).unwrap();
            let server =
                Arc::new(server.with_tickets(tickets).with_client_auth(ClientAuth::Required).unwrap());
            let client = ClientConfig::new(profile(version, KeyType::P256, true).build().unwrap());
            let known = Arc::new(MemoryClientCache::default());
            let client = client.with_handshake_cache(CacheMode::Compact, known, DEFAULT_MAX_AGE);
            let without = Arc::new(client.clone());
            let with = Arc::new(client.with_sessions(dunlin_tests::ends::with_sessions()));
            connect(&with, &server);
            for _ in 0..2 {
                let mut pair = Pair::new(&with, &server);
                pair.connect().unwrap();
                for end in [&pair.client, &pair.server] {
                    let negotiated = end.negotiated().unwrap();
                    assert!(negotiated.resumed && !negotiated.peer_certificate_cached);
                }
            }
            assert_eq!(connect(&without, &server).1, [true; 2]);
        }
    }
}
