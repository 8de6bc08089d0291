//! TLS 1.2: sessions that are resumed; with OpenSSL, handshakes within a connection, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::{Psk, PskTable, X509Trust};
use dunlin::crypto::Tls12CipherSuite;
use dunlin::error::{AuthenticationFailure, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::{ClientSession, ClientSessions, SessionKey, Tickets};
use dunlin::wire::{HandshakeType, ProtocolVersion};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Error, Event, Now, Profile, ProfileBuilder, PskSource, Question,
    ServerConfig, Trust,
};
use dunlin_awslc::tls12::{
    TLS12_CIPHER_SUITES, TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS12_PSK_CIPHER_SUITES,
};
use dunlin_tests::ends::{self, with_sessions};
use dunlin_tests::peer::{Files, Link, Process, Server, listen};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};

fn suites() -> Vec<&'static Tls12CipherSuite> {
    [TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES].concat()
}

fn tls12() -> ProfileBuilder {
    Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(suites())
}

fn both() -> ProfileBuilder {
    Profile::builder(awslc()).tls12_cipher_suites(suites())
}

fn x509() -> Trust {
    Trust { x509: Some(Pki::shared(KeyType::P256).trust()), raw_key: None }
}

fn client(profile: ProfileBuilder, sessions: &Arc<dyn ClientSessions>) -> ClientConfig {
    let credentials = vec![Pki::shared(KeyType::P256).client.x509(&awslc())];
    let profile = profile.trust(x509()).credentials(credentials).build().unwrap();
    ClientConfig::new(profile).with_sessions(sessions.clone())
}

fn server(profile: ProfileBuilder, tickets: &Tickets) -> ServerConfig {
    let credentials = vec![Pki::shared(KeyType::P256).server.x509(&awslc())];
    let profile = profile.trust(x509()).credentials(credentials).build().unwrap();
    let server = ServerConfig::new(profile).unwrap().with_tickets(tickets.clone());
    server.with_client_auth(ClientAuth::Required).unwrap()
}

/// Whether a connection of these resumed.
fn resumed(client: &ClientConfig, server: &ServerConfig, now: Now) -> bool {
    let mut pair = Pair::at(&Arc::new(client.clone()), &Arc::new(server.clone()), now);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    for (end, peer) in [(&pair.server, "X.509 device-1"), (&pair.client, "X.509 localhost")] {
        let negotiated = end.negotiated().unwrap();
        assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), peer);
        assert_eq!(negotiated.server_name.as_deref(), Some("localhost"));
    }
    let resumed = pair.client.negotiated().unwrap().resumed;
    assert_eq!(pair.server.negotiated().unwrap().resumed, resumed);
    let certificate = pair.client.messages().iter().any(|m| m.typ == HandshakeType::CERTIFICATE);
    assert_eq!(certificate, !resumed);
    resumed
}

#[test]
fn sessions_are_resumed_more_than_once() {
    for tickets in ends::tickets() {
        for profile in [tls12, both] {
            let sessions = with_sessions();
            let (client, server) = (client(profile(), &sessions), server(tls12(), &tickets));
            for expected in [false, true, true] {
                assert_eq!(resumed(&client, &server, NOW), expected, "{tickets:?}");
            }
        }
    }
}

#[test]
fn a_session_is_for_its_version_settings_suite_and_time() {
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let version = |client: &ClientConfig, server: &ServerConfig| {
            let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
            pair.connect().unwrap();
            let negotiated = pair.client.negotiated().unwrap();
            (negotiated.version.unwrap(), negotiated.resumed)
        };
        let both_client = client(both(), &sessions);
        // Of TLS 1.2, shown to a server that has learnt TLS 1.3; and back.
        let (old, new) = (server(tls12(), &tickets), server(both(), &tickets));
        assert_eq!(version(&both_client, &old), (ProtocolVersion::TLS1_2, false));
        assert_eq!(version(&both_client, &new), (ProtocolVersion::TLS1_3, false));
        assert_eq!(version(&both_client, &old), (ProtocolVersion::TLS1_2, false));

        let sessions = with_sessions();
        let (client12, server12) = (client(tls12(), &sessions), server(tls12(), &tickets));
        assert!(!resumed(&client12, &server12, NOW));
        assert!(resumed(&client12, &server12, NOW));
        // Other settings of the server.
        assert!(!resumed(&client12, &server(tls12().rank(7), &tickets), NOW));
        // The server has the suite no more.
        assert!(!resumed(&client12, &server12, NOW));
        let other = tls12().tls12_cipher_suites(vec![&TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]);
        assert!(!resumed(&client12, &server(other, &tickets), NOW));
        // Too late.
        assert!(resumed(&client12, &server12, NOW));
        let later = Now::from_unix_ms(NOW.unix_ms + Duration::from_secs(25 * 60 * 60).as_millis() as u64);
        assert!(!resumed(&client12, &server12, later));
    }
}

/// Hands out a session that an earlier store got, as a thief or a confused store would.
#[derive(Debug)]
struct Fixed(std::sync::Mutex<Option<ClientSession>>);

impl ClientSessions for Fixed {
    fn put(&self, _: SessionKey, session: ClientSession) {
        *self.0.lock().unwrap() = Some(session);
    }

    fn take(&self, _: &SessionKey, _: Now) -> Option<ClientSession> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn a_session_survives_a_store_of_bytes() {
    for tickets in ends::tickets() {
        let first: Arc<dyn ClientSessions> = Arc::new(Fixed(std::sync::Mutex::default()));
        let server = server(tls12(), &tickets);
        let config = client(tls12(), &first);
        assert!(!resumed(&config, &server, NOW));
        let key = SessionKey {
            transport: dunlin::TransportKind::Stream,
            name: "localhost".into(),
            port: 4433,
            settings: *config.session_settings().as_bytes(),
        };
        let session = first.take(&key, NOW).unwrap();
        let bytes = session.to_bytes().unwrap();
        let second: Arc<dyn ClientSessions> = Arc::new(Fixed(std::sync::Mutex::default()));
        second.put(key, ClientSession::from_bytes(&bytes).unwrap());
        assert!(resumed(&client(tls12(), &second), &server, NOW));
    }
}

#[test]
fn sessions_may_be_asked_for() {
    let sessions = with_sessions();
    let (client, server) = (client(tls12(), &sessions), server(tls12(), &Tickets::ask()));
    let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
    pair.connect().unwrap();
    let (id, session) = pair
        .server_events
        .into_iter()
        .find_map(|e| match e {
            Event::NewSession(id, session) => Some((id, session)),
            _ => None,
        })
        .unwrap();
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.run().unwrap();
    let (question, asked) = pair.server_question().unwrap();
    assert!(matches!(asked, Question::FindSession { id: asked } if asked == id));
    pair.server.answer(NOW, question, Answer::Session(Some(Box::new(session)))).unwrap();
    pair.connect().unwrap();
    assert!(pair.client.negotiated().unwrap().resumed);
}

#[test]
fn a_resumed_server_may_be_verified_again() {
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let ask = Trust { x509: Some(X509Trust::Ask), raw_key: None };
        let profile = tls12().trust(ask).build().unwrap();
        let client = ClientConfig::new(profile).with_sessions(sessions.clone()).with_reverification(true);
        let server = server(tls12(), &tickets).with_client_auth(ClientAuth::None).unwrap();
        for verdict in [Ok(()), Ok(()), Err(AuthenticationFailure::Revoked)] {
            let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
            pair.run().unwrap();
            let (id, question) = pair.client_question().unwrap();
            assert!(matches!(question, Question::Verify { .. }));
            let result = pair.client.answer(NOW, id, Answer::Verified(verdict.clone()));
            assert_eq!(result, verdict.map_err(Error::from));
            assert_eq!(pair.run().is_ok() && pair.client.negotiated().is_some(), result.is_ok());
        }
    }
}

#[test]
fn a_psk_that_was_taken_away_takes_its_sessions_along() {
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let psk = || Psk::new("d1", &[7; 32]).unwrap();
        let profile = || tls12().build().unwrap();
        let client =
            ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]).with_sessions(sessions.clone());
        let server = |keys: Vec<Psk>| {
            let keys = PskSource::Here(Arc::new(PskTable::from_iter(keys)));
            Arc::new(ServerConfig::new(profile()).unwrap().with_psks(keys).with_tickets(tickets.clone()))
        };
        let client = Arc::new(client);
        for expected in [false, true] {
            let mut pair = Pair::new(&client, &server(vec![psk()]));
            pair.connect().unwrap();
            assert_eq!(pair.client.negotiated().unwrap().resumed, expected);
            assert_eq!(pair.server.negotiated().unwrap().peer.as_ref().unwrap().to_string(), "PSK d1");
        }
        assert_eq!(Pair::new(&client, &server(vec![])).run(), Err(PeerMisbehaved::BadFinished.into()));
    }
}

/// A server that has forgotten all sessions.
fn server_without(profile: ProfileBuilder) -> ServerConfig {
    server(profile, &Tickets::none()).with_client_auth(ClientAuth::None).unwrap()
}

/// RFC 7627 §5.3.
#[test]
fn nothing_is_resumed_without_extended_master_secret() {
    let hide = |bytes: &mut [u8]| {
        let at = bytes.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
        bytes[at] = 0x7a;
    };
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let profile = || tls12().extended_master_secret_required(false);
        let (client, server) = (client(profile(), &sessions), server(profile(), &tickets));
        // Without it nothing is kept: neither in a first handshake …
        let server = server.with_client_auth(ClientAuth::None).unwrap();
        let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
        let mut hello = pair.client.transmit().to_vec();
        pair.client.transmitted(hello.len());
        hide(&mut hello);
        pair.server.receive(NOW, &hello).unwrap();
        // (The transcripts differ, so this one fails at the end; what counts is what the server promised.)
        let answer = pair.server.transmit().to_vec();
        let hello = &dunlin_tests::tamper::records(&answer)[0];
        assert_eq!(hello[5 + 4 + 2 + 32], 0, "a session ID");
        assert!(!hello.windows(4).any(|w| w == [0, 35, 0, 0]), "a ticket is promised");
        // … nor is one with it resumed without.
        for expected in [false, true] {
            let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
            pair.connect().unwrap();
            assert_eq!(pair.client.negotiated().unwrap().resumed, expected);
        }
        let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
        let hello = pair.client.transmit().to_vec();
        pair.client.transmitted(hello.len());
        pair.server.receive(NOW, &hello).unwrap();
        let mut answer = pair.server.transmit().to_vec();
        pair.server.transmitted(answer.len());
        // The server's answer does not have it any more: its bytes become those of another answer that was asked for.
        let at = answer.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
        answer[at + 1] = 35;
        let result = pair.client.receive(NOW, &answer).map(drop);
        assert_eq!(result, Err(PeerIncompatible::ExtendedMasterSecret.into()));
        // A server cuts a client off that has such a session and shows it without; a session that is unknown is none.
        for (second, cut_off) in [(&server, true), (&server_without(profile()), false)] {
            Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone())).connect().unwrap();
            let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(second.clone()));
            let mut hello = pair.client.transmit().to_vec();
            pair.client.transmitted(hello.len());
            hide(&mut hello);
            let result = pair.server.receive(NOW, &hello).map(drop);
            let refused = Err(PeerIncompatible::ExtendedMasterSecret.into());
            assert_eq!(result, if cut_off { refused } else { Ok(()) });
            pair.run().unwrap_err();
        }
    }
}

fn openssl_identity(files: &Files, is_server: bool) -> Vec<String> {
    let pki = Pki::shared(KeyType::P256);
    let own = if is_server { &pki.server } else { &pki.client };
    let (cert, key) = (files.write("cert.pem", own.chain_pem()), files.write("key.pem", own.key_pem()));
    let root = files.write("root.pem", pki.root_pem());
    ["-cert", &cert, "-cert_chain", &cert, "-key", &key, "-CAfile", &root, "-tls1_2"]
        .map(str::to_owned)
        .to_vec()
}

fn s_server(more: &[&str]) -> Server {
    let files = Files::default();
    let identity = openssl_identity(&files, true);
    let mut args = vec!["s_server", "-accept", "127.0.0.1:4433"];
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    Server::start(files, "openssl", &args)
}

fn s_client(port: &str, more: &[&str]) -> (Process, Files) {
    let files = Files::default();
    let identity = openssl_identity(&files, false);
    let connect = format!("127.0.0.1:{port}");
    let mut args = vec!["s_client", "-connect", &connect, "-servername", "localhost"];
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    (Process::client("openssl", &args), files)
}

#[test]
fn resumption_with_openssl() {
    for more in [&["-Verify", "3", "-quiet"][..], &["-Verify", "3", "-quiet", "-no_ticket"]] {
        let peer = s_server(more);
        let sessions = with_sessions();
        for expected in [false, true, true] {
            let connection =
                ends::client_with(ends::client_profile(KeyType::P256).tls12_cipher_suites(suites()), |c| {
                    c.with_sessions(sessions.clone())
                });
            let mut link = Link::to_server(connection, &peer);
            link.handshake().unwrap_or_else(|e| panic!("{more:?}: {e} / {}", peer.process.errors()));
            let negotiated = link.connection.negotiated().unwrap();
            assert_eq!((negotiated.version, negotiated.resumed), (Some(ProtocolVersion::TLS1_2), expected));
            assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), "X.509 localhost");
            link.close();
        }
    }
    for tickets in ends::tickets() {
        let (listener, port) = listen();
        let profile = ends::server_profile(KeyType::P256).tls12_cipher_suites(suites());
        let config = ends::server_config_with(profile, |s| s.with_tickets(tickets.clone()));
        let kept = Files::default();
        let session = kept.path("session.pem");
        for expected in [false, true, true] {
            let file = if expected { "-sess_in" } else { "-sess_out" };
            let (mut peer, _files) = s_client(&port, &[file, &session]);
            let connection = dunlin::TlsConnection::server(&config, dunlin_tests::peer::now());
            let mut link = Link::accept(connection, &listener);
            link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
            let negotiated = link.connection.negotiated().unwrap();
            assert_eq!(negotiated.resumed, expected);
            assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), "X.509 device-1");
            if !expected {
                ends::wait_for_file(&session);
            }
            peer.type_line("Q");
            link.wait_for(|e| matches!(e, Event::PeerClosed)).unwrap();
        }
    }
}

fn renegotiating_profile(profile: ProfileBuilder) -> ProfileBuilder {
    profile.cipher_suites(vec![]).tls12_cipher_suites(suites()).renegotiation(true)
}

#[test]
fn renegotiation_with_openssls_server() {
    let mut peer = s_server(&["-Verify", "3", "-client_renegotiation"]);
    let profile = renegotiating_profile(ends::client_profile(KeyType::P256));
    let mut link = Link::to_server(ends::client_with(profile, |c| c), &peer);
    link.handshake().unwrap();
    // Ours.
    link.connection.renegotiate(dunlin_tests::peer::now()).unwrap();
    link.wait_for(|e| matches!(e, Event::Renegotiated)).unwrap();
    link.send(b"after ours\n").unwrap();
    peer.process.output_until("data", |o| o.windows(10).any(|w| w == b"after ours"));
    // Its own: `r` as before, `R` with another demand for a certificate.
    for command in ["r", "R"] {
        link.events.clear();
        peer.process.type_line(command);
        link.wait_for(|e| matches!(e, Event::Renegotiated)).unwrap();
        let data = format!("after {command}\n");
        link.send(data.as_bytes()).unwrap();
        peer.process.output_until("data", |o| o.windows(data.len()).any(|w| w == data.as_bytes()));
    }
}

#[test]
fn openssls_server_refuses_renegotiation_and_goes_on() {
    let mut peer = s_server(&["-Verify", "3"]);
    let profile = renegotiating_profile(ends::client_profile(KeyType::P256));
    let mut link = Link::to_server(ends::client_with(profile, |c| c), &peer);
    link.handshake().unwrap();
    link.connection.renegotiate(dunlin_tests::peer::now()).unwrap();
    link.wait_for(|e| matches!(e, Event::RenegotiationRefused)).unwrap();
    link.send(b"all the same\n").unwrap();
    peer.process.output_until("data", |o| o.windows(12).any(|w| w == b"all the same"));
}

#[test]
fn renegotiation_with_openssls_client() {
    let (listener, port) = listen();
    let profile = renegotiating_profile(ends::server_profile(KeyType::P256));
    let config = ends::server_config_with(profile, |s| s);
    let (mut peer, _files) = s_client(&port, &[]);
    let connection = dunlin::TlsConnection::server(&config, dunlin_tests::peer::now());
    let mut link = Link::accept(connection, &listener);
    link.handshake().unwrap();
    // Ours.
    link.connection.renegotiate(dunlin_tests::peer::now()).unwrap();
    link.wait_for(|e| matches!(e, Event::Renegotiated)).unwrap();
    link.send(b"after ours\n").unwrap();
    peer.output_until("data", |o| o.windows(10).any(|w| w == b"after ours"));
    // Its own.
    link.events.clear();
    peer.type_line("R");
    link.wait_for(|e| matches!(e, Event::Renegotiated)).unwrap();
    link.send(b"after its own\n").unwrap();
    peer.output_until("data", |o| o.windows(13).any(|w| w == b"after its own"));
}
