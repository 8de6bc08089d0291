//! Resumption: the binding, the lifetime and the single use of tickets.

use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::{Psk, RawKeyTrust};
use dunlin::error::PeerMisbehaved;
use dunlin::resume::{
    ClientSession, ClientSessions, SealTickets, ServerSessions, Session, SessionKey, Tickets,
};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Event, Now, PeerIdentity, Profile, ProfileBuilder, Question,
    ServerConfig, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, RotatingTickets};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, localhost};
use zeroize::Zeroizing;

fn later(time: Duration) -> Now {
    Now::from_unix_ms(NOW.unix_ms + u64::try_from(time.as_millis()).unwrap())
}

fn trust() -> Trust {
    Trust { x509: Some(Pki::shared(KeyType::P256).trust()), raw_key: None }
}

fn client_profile() -> ProfileBuilder {
    Profile::builder(awslc())
        .trust(trust())
        .credentials(vec![Pki::shared(KeyType::P256).client.x509(&awslc())])
}

fn server_profile() -> ProfileBuilder {
    Profile::builder(awslc())
        .trust(trust())
        .credentials(vec![Pki::shared(KeyType::P256).server.x509(&awslc())])
}

fn client_with_store() -> (Arc<ClientConfig>, Arc<MemoryClientSessions>) {
    let store = Arc::new(MemoryClientSessions::new(8, 8));
    (Arc::new(ClientConfig::new(client_profile().build().unwrap()).with_sessions(store.clone())), store)
}

fn client() -> Arc<ClientConfig> {
    client_with_store().0
}

fn server(tickets: &Tickets) -> Arc<ServerConfig> {
    let config = ServerConfig::new(server_profile().build().unwrap()).unwrap().with_tickets(tickets.clone());
    Arc::new(config.with_client_auth(ClientAuth::Required).unwrap())
}

fn stateless() -> Tickets {
    Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()))
}

fn stateful() -> Tickets {
    Tickets::stateful(Arc::new(MemoryServerSessions::new(16)))
}

/// The key under which this client stores the tickets of the test server.
fn key(client: &ClientConfig) -> SessionKey {
    SessionKey {
        transport: dunlin::TransportKind::Stream,
        name: "localhost".into(),
        port: localhost().port,
        settings: *client.session_settings().as_bytes(),
    }
}

/// Connects, and returns whether the connection resumed, and the pair.
fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, now: Now) -> (bool, Pair) {
    let mut pair = Pair::at(client, server, now);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    let ours = pair.client.negotiated().unwrap();
    let theirs = pair.server.negotiated().unwrap();
    assert_eq!(ours.is_resumed(), theirs.is_resumed());
    (ours.is_resumed(), pair)
}

/// Two devices share a store, or one has a new certificate: only the credential that made a session resumes
/// it.
#[test]
fn session_is_resumed_only_with_its_credential() {
    let pki = Pki::shared(KeyType::P256);
    for is_tls12 in [false, true] {
        let version = |profile: ProfileBuilder| {
            if is_tls12 {
                profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            } else {
                profile
            }
        };
        for tickets in [stateless(), stateful()] {
            let profile = version(server_profile()).build().unwrap();
            let server = ServerConfig::new(profile).unwrap().with_tickets(tickets);
            let server = Arc::new(server.with_client_auth(ClientAuth::Optional).unwrap());
            let store = Arc::new(MemoryClientSessions::new(8, 8));
            let client = |credentials| {
                let profile = version(Profile::builder(awslc()).trust(trust()).credentials(credentials));
                Arc::new(ClientConfig::new(profile.build().unwrap()).with_sessions(store.clone()))
            };
            let device = client(vec![pki.client.x509(&awslc())]);
            assert!(!connect(&device, &server, NOW).0);
            let other = client(vec![Pki::shared(KeyType::Ed25519).client.x509(&awslc())]);
            assert_ne!(other.session_settings(), device.session_settings());
            assert!(!connect(&client(vec![]), &server, NOW).0);
            let (resumed, pair) = connect(&device, &server, NOW);
            assert!(resumed && pair.server.negotiated().unwrap().peer.is_some());
        }
    }
}

/// Makes tickets so long that a ClientHello has no room for them.
#[derive(Debug)]
struct Bloated;

impl SealTickets for Bloated {
    fn seal(&self, _: Now, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        Some(vec![7; 65_450])
    }

    fn open(&self, _: Now, _: &[u8], _: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        None
    }
}

#[test]
fn client_does_not_keep_a_too_long_ticket() {
    for is_tls12 in [false, true] {
        let version = |profile: ProfileBuilder| {
            if is_tls12 {
                profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            } else {
                profile
            }
        };
        let server = ServerConfig::new(version(server_profile()).build().unwrap()).unwrap();
        let server = Arc::new(server.with_tickets(Tickets::stateless(Arc::new(Bloated))));
        let store = Arc::new(MemoryClientSessions::new(8, 8));
        let client = ClientConfig::new(version(client_profile()).build().unwrap()).with_sessions(store);
        let client = Arc::new(client);
        for _ in 0..2 {
            assert!(!connect(&client, &server, NOW).0);
        }
    }
}

#[test]
fn both_identities_survive_repeated_resumptions() {
    for tickets in [stateless(), stateful()] {
        let client = client();
        let server = server(&tickets);
        for round in 0..5 {
            let (resumed, pair) = connect(&client, &server, NOW);
            assert_eq!(resumed, round > 0);
            let seen = pair.server.negotiated().unwrap().peer.clone().unwrap();
            assert_eq!(seen.to_string(), "X.509 device-1");
            assert_eq!(
                pair.client.negotiated().unwrap().peer.as_ref().unwrap().to_string(),
                "X.509 localhost"
            );
            let PeerIdentity::X509(id) = seen else { panic!() };
            assert_ne!(id.fingerprint, [0; 32]);
        }
    }
}

#[test]
fn stored_sessions_keep_the_chain_and_tickets_do_not() {
    for (tickets, kept) in [(stateful(), 2), (stateless(), 0)] {
        let client = client();
        let server = server(&tickets);
        connect(&client, &server, NOW);
        let (_, pair) = connect(&client, &server, NOW);
        let Some(PeerIdentity::X509(id)) = pair.server.negotiated().unwrap().peer.clone() else { panic!() };
        assert_eq!(id.chain.len(), kept);
    }
}

#[test]
fn raw_keys_are_resumed() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::Ed25519);
    let trust = |key: &dunlin_tests::Leaf| Trust {
        x509: None,
        raw_key: Some(RawKeyTrust::Keys(vec![key.public_key.clone()])),
    };
    let client = Profile::builder(provider.clone())
        .trust(trust(&pki.server))
        .credentials(vec![pki.client.raw_key(&provider)]);
    let store = Arc::new(MemoryClientSessions::new(1, 1));
    let client = Arc::new(ClientConfig::new(client.build().unwrap()).with_sessions(store));
    let server = Profile::builder(provider.clone())
        .trust(trust(&pki.client))
        .credentials(vec![pki.server.raw_key(&provider)]);
    let server = ServerConfig::new(server.build().unwrap()).unwrap().with_tickets(stateless());
    let server = Arc::new(server.with_client_auth(ClientAuth::Required).unwrap());
    connect(&client, &server, NOW);
    let (resumed, pair) = connect(&client, &server, NOW);
    assert!(resumed);
    assert_eq!(
        pair.server.negotiated().unwrap().peer,
        Some(PeerIdentity::RawKey(pki.client.public_key.clone()))
    );
}

#[test]
fn server_sends_the_configured_number_of_tickets() {
    for count in [0u8, 1, 4] {
        let (client, store) = client_with_store();
        let server = server(&stateless().count(count));
        let (_, pair) = connect(&client, &server, NOW);
        let got = pair.client_events.iter().filter(|e| matches!(e, Event::TicketReceived)).count();
        // Consecutive tickets give one event.
        assert_eq!(got, usize::from(count > 0));
        let key = key(&client);
        let kept = std::iter::from_fn(|| store.take(&key, NOW)).count();
        assert_eq!(kept, usize::from(count));
    }
}

/// RFC 8446 §4.6.1: a lifetime of zero means that the ticket is unusable at once. So a lifetime excludes its
/// end.
#[test]
fn tickets_expire_at_the_end_of_their_lifetime() {
    let hour = Duration::from_secs(3600);
    let moment = Duration::from_millis(1);
    for tickets in [stateless().lifetime(hour), stateful().lifetime(hour)] {
        for (age, resumes) in [(hour - moment, true), (hour, false)] {
            let client = client();
            let server = server(&tickets);
            connect(&client, &server, NOW);
            assert_eq!(connect(&client, &server, later(age)).0, resumes, "{age:?}");
        }
        // The server does not rely on the client's clock.
        let client = client();
        let server = server(&tickets);
        connect(&client, &server, NOW);
        let mut pair = Pair::at(&client, &server, later(hour - moment));
        pair.now = later(hour);
        pair.connect().unwrap();
        assert!(!pair.server.negotiated().unwrap().is_resumed());
    }
}

#[test]
fn renewed_tickets_expire_a_week_after_authentication() {
    let day = Duration::from_secs(24 * 3600);
    for tickets in [stateless().lifetime(day * 7), stateful().lifetime(day * 7)] {
        let client = client();
        let server = server(&tickets);
        connect(&client, &server, NOW);
        for days in 1..7 {
            assert!(connect(&client, &server, later(day * days)).0, "day {days}");
        }
        assert!(!connect(&client, &server, later(day * 7)).0, "the seventh day");
    }
}

/// RFC 5280 §4.1.2.5: the validity includes notAfter, here the first second of 2035.
#[test]
fn resumption_ends_with_the_certificate() {
    let end = |offset_ms: i64| Now::from_unix_ms(2_051_222_400_000u64.saturating_add_signed(offset_ms));
    for tickets in [stateless(), stateful()] {
        let client = client();
        let server = server(&tickets);
        connect(&client, &server, end(-60_000));
        assert!(connect(&client, &server, end(999)).0);
        let mut pair = Pair::at(&client, &server, end(1000));
        use dunlin::error::AuthenticationFailure::Expired;
        assert!(matches!(pair.run(), Err(dunlin::Error::Authentication(Expired(_)))));
    }
}

#[test]
fn stored_session_resumes_once() {
    let (client, store) = client_with_store();
    let server = server(&stateful());
    connect(&client, &server, NOW);
    let key = key(&client);
    let session = store.take(&key, NOW).unwrap();
    // A thief who saw the ticket but lacks the secret does not use it up.
    for resumed in [true, false] {
        store.put(key.clone(), session.clone());
        assert_eq!(connect(&client, &server, NOW).0, resumed);
        while store.take(&key, NOW).is_some() {}
    }
}

#[test]
fn ticket_is_bound_to_the_server_settings() {
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    let store = Arc::new(MemoryServerSessions::new(16));
    for tickets in [Tickets::stateless(seal), Tickets::stateful(store)] {
        let strict = server(&tickets);
        let optional = ServerConfig::new(server_profile().build().unwrap())
            .unwrap()
            .with_tickets(tickets.clone())
            .with_client_auth(ClientAuth::Optional)
            .unwrap();
        let other = Pki::shared(KeyType::Ed25519);
        let other_trust = Profile::builder(awslc())
            .trust(Trust { x509: Some(other.trust()), raw_key: None })
            .credentials(vec![Pki::shared(KeyType::P256).server.x509(&awslc())]);
        let other_trust = ServerConfig::new(other_trust.build().unwrap())
            .unwrap()
            .with_tickets(tickets.clone())
            .with_client_auth(ClientAuth::Optional)
            .unwrap();
        let ranked = ServerConfig::new(server_profile().rank(5).build().unwrap())
            .unwrap()
            .with_tickets(tickets.clone())
            .with_client_auth(ClientAuth::Required)
            .unwrap();
        for elsewhere in [optional, ranked] {
            let client = client();
            connect(&client, &strict, NOW);
            assert!(!connect(&client, &Arc::new(elsewhere), NOW).0);
        }
        // A ticket does not admit a client that these settings would refuse.
        let client = client();
        connect(&client, &strict, NOW);
        let mut pair = Pair::new(&client, &Arc::new(other_trust));
        pair.run().unwrap_err();
        assert!(pair.server.negotiated().is_none());
    }
}

/// Profiles of equal trust share sessions, but a resumption never lifts a client above the rank that it has
/// earned.
#[test]
fn session_serves_only_profiles_of_its_rank_or_below() {
    for is_tls12 in [false, true] {
        let version = |profile: ProfileBuilder| {
            if is_tls12 {
                profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            } else {
                profile
            }
        };
        for tickets in [stateless(), stateful()] {
            let server = |rank: i32| {
                let profile = version(server_profile()).name(format!("rank {rank}")).rank(rank);
                let config = ServerConfig::new(profile.build().unwrap()).unwrap();
                let config = config.with_tickets(tickets.clone());
                Arc::new(config.with_client_auth(ClientAuth::Required).unwrap())
            };
            let client = || {
                let store = Arc::new(MemoryClientSessions::new(8, 8));
                let profile = version(client_profile()).rank(-5).build().unwrap();
                Arc::new(ClientConfig::new(profile).with_sessions(store))
            };
            let weak = client();
            assert!(!connect(&weak, &server(1), NOW).0);
            assert!(!connect(&weak, &server(2), NOW).0);
            let strong = client();
            assert!(!connect(&strong, &server(2), NOW).0);
            assert!(connect(&strong, &server(2), NOW).0);
            assert!(connect(&strong, &server(1), NOW).0);
            // In TLS 1.3 the renewed session has rank 1. TLS 1.2 resumes the same session again, without a
            // key exchange.
            assert_eq!(connect(&strong, &server(2), NOW).0, is_tls12);
            assert!(connect(&strong, &server(-3), NOW).0);
        }
    }
}

/// A client's profiles of equal trust share its sessions by the same rule.
#[test]
fn client_resumes_only_sessions_of_its_rank_or_above() {
    for tickets in [stateless(), stateful()] {
        let server = server(&tickets);
        let store = Arc::new(MemoryClientSessions::new(8, 8));
        let client = |rank: i32| {
            let profile = client_profile().name(format!("rank {rank}")).rank(rank).build().unwrap();
            Arc::new(ClientConfig::new(profile).with_sessions(store.clone()))
        };
        assert!(!connect(&client(1), &server, NOW).0);
        // A session that is too weak for one profile stays for the others.
        drop(Pair::new(&client(2), &server));
        assert!(connect(&client(0), &server, NOW).0);
        // The renewed session has rank 0.
        assert!(!connect(&client(1), &server, NOW).0);
    }
}

#[test]
fn ticket_is_bound_to_name_port_and_client_settings() {
    let tickets = stateless();
    let server = server(&tickets);
    let store = Arc::new(MemoryClientSessions::new(8, 8));
    let config = |profile: ProfileBuilder| {
        Arc::new(ClientConfig::new(profile.build().unwrap()).with_sessions(store.clone()))
    };
    let client = config(client_profile());
    connect(&client, &server, NOW);
    let mut other_port = Pair::new(&client, &server);
    let address = dunlin::ServerAddress::new(localhost().name, 5555);
    other_port.client = dunlin::TlsConnection::client(&client, address, NOW).unwrap();
    other_port.connect().unwrap();
    assert!(!other_port.client.negotiated().unwrap().is_resumed());
    assert!(!connect(&config(client_profile().name("another")), &server, NOW).0);
    connect(&client, &server, NOW);
    assert!(connect(&client, &server, NOW).0);
}

#[test]
fn forged_tickets_are_ignored() {
    for tickets in [stateless(), stateful()] {
        let (client, store) = client_with_store();
        let server = server(&tickets);
        connect(&client, &server, NOW);
        let key = key(&client);
        let session = store.take(&key, NOW).unwrap();
        let bytes = session.to_bytes().unwrap();
        for at in [3, 4, 11, 18] {
            let mut forged = bytes.to_vec();
            forged[at] ^= 1;
            let forged = ClientSession::from_bytes(&forged).unwrap();
            store.put(key.clone(), forged);
            assert!(!connect(&client, &server, NOW).0, "byte {at}");
            while store.take(&key, NOW).is_some() {}
        }
        assert!(ClientSession::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        assert!(Session::from_bytes(&bytes).is_err());
    }
}

/// A store in which another connection is always first.
#[derive(Debug)]
struct Raced(MemoryServerSessions);

impl ServerSessions for Raced {
    fn put(&self, id: &[u8], session: Session) {
        self.0.put(id, session);
    }

    fn find(&self, id: &[u8]) -> Option<Session> {
        let found = self.0.find(id);
        self.0.remove(id);
        found
    }

    fn remove(&self, id: &[u8]) -> bool {
        self.0.remove(id)
    }
}

#[test]
fn one_of_two_simultaneous_connections_resumes() {
    let client = client();
    let server = server(&Tickets::stateful(Arc::new(Raced(MemoryServerSessions::new(16)))));
    connect(&client, &server, NOW);
    let mut pair = Pair::new(&client, &server);
    assert_eq!(pair.run(), Err(PeerMisbehaved::SessionUsedTwice.into()));
    assert!(pair.server.negotiated().is_none());
}

#[test]
fn connects_despite_another_hash_or_a_retry() {
    let server_of = |suites, tickets: &Tickets| {
        let profile = server_profile().cipher_suites(suites).build().unwrap();
        let config = ServerConfig::new(profile).unwrap().with_tickets(tickets.clone());
        Arc::new(config.with_client_auth(ClientAuth::Required).unwrap())
    };
    let tickets = stateful();
    let client = client();
    let sha384 = server_of(vec![&dunlin_awslc::TLS13_AES_256_GCM_SHA384], &tickets);
    let sha256 = server_of(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256], &tickets);
    connect(&client, &sha384, NOW);
    assert!(connect(&client, &sha384, NOW).0);
    // The server has no suite with the session's hash, so the handshake is full.
    assert!(!connect(&client, &sha256, NOW).0);
    let config = (*sha256).clone().with_cookies(true);
    let (resumed, pair) = connect(&client, &Arc::new(config), NOW);
    assert!(resumed && pair.server.negotiated().unwrap().retried);
}

/// RFC 8446 §4.1.2: the second ClientHello keeps psk_key_exchange_modes even if no PSK remains.
#[test]
fn second_client_hello_keeps_the_psk_modes() {
    let psk = Arc::new(Psk::new("d1", &[7; 32]).unwrap());
    let client = ClientConfig::new(client_profile().build().unwrap()).with_psks(vec![psk]);
    let suites = vec![&dunlin_awslc::TLS13_AES_256_GCM_SHA384];
    let server = ServerConfig::new(server_profile().cipher_suites(suites).build().unwrap()).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap().with_cookies(true);
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.connect().unwrap();
    assert!(pair.server.negotiated().unwrap().retried);
}

#[test]
fn resumes_sessions_that_the_caller_keeps() {
    let client = client();
    let server = server(&Tickets::ask());
    let mut kept: Vec<(Vec<u8>, Session)> = Vec::new();
    for resumed in [false, true, true] {
        let mut pair = Pair::new(&client, &server);
        pair.run().unwrap();
        while let Some((id, question)) = pair.server_question() {
            let Question::FindSession { id: name } = question else { panic!() };
            let found = kept.iter().find(|(n, _)| *n == name).map(|(_, s)| Box::new(s.clone()));
            pair.server.answer(pair.now, id, Answer::Session(found)).unwrap();
            pair.run().unwrap();
        }
        pair.echo(b"hello").unwrap();
        assert_eq!(pair.server.negotiated().unwrap().is_resumed(), resumed);
        for event in pair.server_events.drain(..) {
            match event {
                // The test encodes and decodes the session, as a store would.
                Event::NewSession(name, session) => {
                    kept.push((name, Session::from_bytes(&session.to_bytes().unwrap()).unwrap()));
                }
                Event::SessionUsed(name) => kept.retain(|(n, _)| *n != name),
                _ => {}
            }
        }
        assert_eq!(kept.len(), 1);
    }
}
