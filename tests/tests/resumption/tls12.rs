//! TLS 1.2 sessions: resumption, and renegotiation with OpenSSL.

use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::{Psk, PskTable, X509Trust};
use dunlin::crypto::Tls12CipherSuite;
use dunlin::error::{AuthenticationFailure, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::{ClientSession, ClientSessions, ServerSessions, SessionKey, Tickets};
use dunlin::wire::{AlertDescription, HandshakeType, ProtocolVersion};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Error, Event, Now, Profile, ProfileBuilder, PskSource, Question,
    ServerConfig, Side, Trust,
};
use dunlin_awslc::tls12::{
    TLS12_CIPHER_SUITES, TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS12_PSK_CIPHER_SUITES,
};
use dunlin_store::{MemoryServerSessions, RotatingTickets};
use dunlin_tests::ends::{self, with_sessions};
use dunlin_tests::peer::{Files, Link, Process, Server, listen};
use dunlin_tests::tamper::{message, messages, records};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, carry, null_psk_suite};

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

/// Returns whether a connection of these sides resumes.
fn resumed(client: &ClientConfig, server: &ServerConfig, now: Now) -> bool {
    let mut pair = Pair::at(&Arc::new(client.clone()), &Arc::new(server.clone()), now);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    for (end, peer) in [(&pair.server, "X.509 device-1"), (&pair.client, "X.509 localhost")] {
        let negotiated = end.negotiated().unwrap();
        assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), peer);
        assert_eq!(negotiated.server_name.as_deref(), Some("localhost"));
    }
    let resumed = pair.client.negotiated().unwrap().is_resumed();
    assert_eq!(pair.server.negotiated().unwrap().is_resumed(), resumed);
    let certificate = pair.client.messages().iter().any(|m| m.typ == HandshakeType::CERTIFICATE);
    assert_eq!(certificate, !resumed);
    resumed
}

#[test]
fn sessions_resume_more_than_once() {
    for tickets in ends::tickets() {
        for profile in [tls12, both] {
            let sessions = with_sessions();
            let client = client(profile(), &sessions);
            let server = server(tls12(), &tickets);
            for expected in [false, true, true] {
                assert_eq!(resumed(&client, &server, NOW), expected, "{tickets:?}");
            }
        }
    }
}

#[test]
fn session_is_bound_to_version_settings_suite_and_lifetime() {
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let version = |client: &ClientConfig, server: &ServerConfig| {
            let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
            pair.connect().unwrap();
            let negotiated = pair.client.negotiated().unwrap();
            (negotiated.version.unwrap(), negotiated.is_resumed())
        };
        let both_client = client(both(), &sessions);
        // A TLS 1.2 session, offered to a server that now supports TLS 1.3, and back.
        let old = server(tls12(), &tickets);
        let new = server(both(), &tickets);
        assert_eq!(version(&both_client, &old), (ProtocolVersion::TLS1_2, false));
        assert_eq!(version(&both_client, &new), (ProtocolVersion::TLS1_3, false));
        assert_eq!(version(&both_client, &old), (ProtocolVersion::TLS1_2, false));

        let sessions = with_sessions();
        let client12 = client(tls12(), &sessions);
        let server12 = server(tls12(), &tickets);
        assert!(!resumed(&client12, &server12, NOW));
        assert!(resumed(&client12, &server12, NOW));
        // Other settings of the server.
        assert!(!resumed(&client12, &server(tls12().rank(7), &tickets), NOW));
        // The session of rank 7 serves a lower rank, too.
        assert!(resumed(&client12, &server12, NOW));
        // The server no longer supports the suite.
        let other = tls12().tls12_cipher_suites(vec![&TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]);
        assert!(!resumed(&client12, &server(other, &tickets), NOW));
        // The session has expired.
        assert!(resumed(&client12, &server12, NOW));
        let later = Now::from_unix_ms(NOW.unix_ms + Duration::from_secs(25 * 60 * 60).as_millis() as u64);
        assert!(!resumed(&client12, &server12, later));
    }
}

/// Returns a stored session to any client, as a thief or a faulty store would.
#[derive(Debug)]
struct Fixed(std::sync::Mutex<Option<ClientSession>>);

impl ClientSessions for Fixed {
    fn put(&self, _: SessionKey, session: ClientSession) {
        *self.0.lock().unwrap() = Some(session);
    }

    fn take(&self, _: &SessionKey, _: Now) -> Option<ClientSession> {
        self.0.lock().unwrap().clone()
    }

    fn forget(&self, _: &SessionKey, _: &[u8]) {}
}

#[test]
fn session_survives_encoding() {
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
fn server_asks_the_caller_for_sessions() {
    let sessions = with_sessions();
    let client = client(tls12(), &sessions);
    let server = server(tls12(), &Tickets::ask());
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
    assert!(pair.client.negotiated().unwrap().is_resumed());
}

fn tls13() -> ProfileBuilder {
    Profile::builder(awslc())
}

/// Connects, and exchanges data so that the connection is settled.
fn settled(client: &ClientConfig, server: &ServerConfig) -> Pair {
    let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    pair
}

/// Ends a connection by a fatal alert: one side gets an invalid record.
fn fail(pair: &mut Pair, found_by: Side) {
    let (finder, other) = match found_by {
        Side::Client => (&mut pair.client, &mut pair.server),
        Side::Server => (&mut pair.server, &mut pair.client),
    };
    finder.receive(NOW, &[&[23, 3, 3, 0, 40][..], &[0; 40]].concat()).unwrap_err();
    let told = carry(finder, other, NOW).1;
    assert_eq!(told, Err(Error::AlertReceived(AlertDescription::BAD_RECORD_MAC)));
}

/// RFC 5246 §7.2.2, RFC 8446 §6: each side forgets its session, whichever side finds the fault.
#[test]
fn fatal_alert_invalidates_the_session() {
    let renegotiate = |pair: &mut Pair| {
        pair.client.renegotiate(NOW).unwrap();
        pair.run().unwrap();
        pair.echo(b"hello").unwrap();
    };
    for (profile, histories) in [(tls12 as fn() -> ProfileBuilder, 3), (tls13, 2)] {
        for (tickets, history) in ends::tickets().iter().flat_map(|t| (0..histories).map(move |h| (t, h))) {
            for found_by in [Side::Client, Side::Server] {
                // First the client forgets; then only the server does.
                let unforgetting: Arc<dyn ClientSessions> = Arc::new(Fixed(std::sync::Mutex::default()));
                for (sessions, forgets) in [(with_sessions(), true), (unforgetting, false)] {
                    let client = client(profile(), &sessions);
                    let server = server(profile().renegotiation(histories == 3), tickets);
                    let mut pair = settled(&client, &server);
                    if history == 1 {
                        pair = settled(&client, &server);
                        assert!(pair.client.negotiated().unwrap().is_resumed());
                    } else if history == 2 {
                        renegotiate(&mut pair);
                    }
                    fail(&mut pair, found_by);
                    // A server cannot revoke a stateless ticket.
                    let is_stateless = format!("{tickets:?}").contains("Stateless");
                    let expected = !forgets && is_stateless;
                    let resumed = settled(&client, &server).client.negotiated().unwrap().is_resumed();
                    assert_eq!(resumed, expected, "{tickets:?} {history} {found_by:?} {forgets}");
                }
            }
        }
    }
}

/// A session survives an end without an alert, and an observer that replays its ID.
#[test]
fn session_survives_ends_without_a_fatal_alert() {
    for tickets in ends::tickets() {
        let sessions: Arc<dyn ClientSessions> = Arc::new(Fixed(std::sync::Mutex::default()));
        let client = client(tls12(), &sessions);
        let server = server(tls12(), &tickets);
        let mut pair = settled(&client, &server);
        assert_eq!(pair.client.receive_end(), Err(Error::Truncated));
        assert_eq!(pair.server.receive_end(), Err(Error::Truncated));
        let mut pair = settled(&client, &server);
        assert!(pair.client.negotiated().unwrap().is_resumed());
        pair.client.close();
        pair.run().unwrap();
        // The Hello of an attacker that does not know the secret.
        let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
        carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
        pair.server.receive(NOW, &[22, 3, 3, 0, 4, 20, 0, 0, 12]).unwrap_err();
        assert!(resumed(&client, &server, NOW), "{tickets:?}");
    }
}

/// Returns a first flight with this session ID.
fn with_session_id(flight: &[u8], id: &[u8]) -> Vec<u8> {
    let (first, others) = flight.split_at(records(flight)[0].len());
    let mut all = messages(&first[5..]);
    let at = 4 + 2 + 32;
    let start = &all[0][4..at];
    let rest = &all[0][at + 1 + usize::from(all[0][at])..];
    all[0] = message(all[0][0], &[start, &[id.len() as u8], id, rest].concat());
    let content = all.concat();
    [&first[..3], &(content.len() as u16).to_be_bytes(), &content, others].concat()
}

/// A client resumes with its ticket, names another client's session by ID, and fails. The server must not
/// forget that session. The test has no real cryptography.
#[test]
fn failed_ticket_resumption_forgets_no_other_session() {
    let provider = Arc::new(dunlin_null::null_provider());
    let profile = || {
        let profile = Profile::builder(provider.clone()).danger_skip_provider_check();
        profile.cipher_suites(vec![]).tls12_cipher_suites(vec![null_psk_suite()]).build().unwrap()
    };
    let psk = || Psk::new("d1", &[7; 32]).unwrap();
    let store = Arc::new(MemoryServerSessions::new(4));
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let server = ServerConfig::psk_only(profile(), keys).unwrap();
    let server = Arc::new(server.with_tickets(Tickets::stateless(seal).or_session_ids(store.clone())));
    // A client that accepts no tickets.
    let client = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]);
    let mut pair = Pair::new(&Arc::new(client.clone()), &server);
    carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
    let hello = messages(&pair.server.transmit()[5..]).remove(0);
    let id = hello[4 + 2 + 32 + 1..][..usize::from(hello[4 + 2 + 32])].to_vec();
    pair.connect().unwrap();
    assert!(store.find(&id).is_some());

    let client = Arc::new(client.with_sessions(with_sessions()));
    Pair::new(&client, &server).connect().unwrap();
    let mut pair = Pair::new(&client, &server);
    let flight = pair.client.transmit().to_vec();
    pair.client.transmitted(flight.len());
    let own = flight[5 + 4 + 2 + 32 + 1..][..32].to_vec();
    pair.server.receive(NOW, &with_session_id(&flight, &id)).unwrap();
    let flight = pair.server.transmit().to_vec();
    pair.server.transmitted(flight.len());
    pair.client.receive(NOW, &with_session_id(&flight, &own)).unwrap();
    pair.connect().unwrap();
    assert!(pair.server.negotiated().unwrap().is_resumed());
    fail(&mut pair, Side::Server);
    assert!(store.find(&id).is_some());
}

#[test]
fn caller_is_told_to_forget_a_failed_session() {
    for profile in [tls12, tls13] {
        let client = client(profile(), &with_sessions());
        let server = server(profile(), &Tickets::ask());
        let mut pair = settled(&client, &server);
        let is_new =
            |event: &Event| if let Event::NewSession(id, _) = event { Some(id.clone()) } else { None };
        let id = pair.server_events.iter().find_map(is_new).unwrap();
        fail(&mut pair, Side::Server);
        let events: Vec<_> = std::iter::from_fn(|| pair.server.poll_event()).collect();
        assert!(matches!(&events[..], [Event::SessionUsed(used)] if *used == id), "{events:?}");
    }
}

#[test]
fn client_can_verify_a_resumed_server_again() {
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
            let result = pair.client.answer(
                NOW,
                id,
                Answer::Verified(verdict.clone().map(|()| dunlin::auth::Acceptance::once())),
            );
            assert_eq!(result, verdict.map_err(Error::from));
            assert_eq!(pair.run().is_ok() && pair.client.negotiated().is_some(), result.is_ok());
        }
    }
}

#[test]
fn removing_a_psk_invalidates_its_sessions() {
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let psk = || Psk::new("d1", &[7; 32]).unwrap();
        let profile = || tls12().build().unwrap();
        let client =
            ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]).with_sessions(sessions.clone());
        let server = |keys: Vec<Psk>| {
            let keys = PskSource::Here(Arc::new(PskTable::from_iter(keys)));
            Arc::new(ServerConfig::psk_only(profile(), keys).unwrap().with_tickets(tickets.clone()))
        };
        let client = Arc::new(client);
        for expected in [false, true] {
            let mut pair = Pair::new(&client, &server(vec![psk()]));
            pair.connect().unwrap();
            assert_eq!(pair.client.negotiated().unwrap().is_resumed(), expected);
            assert_eq!(pair.server.negotiated().unwrap().peer.as_ref().unwrap().to_string(), "PSK d1");
        }
        assert_eq!(Pair::new(&client, &server(vec![])).run(), Err(PeerMisbehaved::BadFinished.into()));
    }
}

/// A server that has lost all sessions.
fn server_without(profile: ProfileBuilder) -> ServerConfig {
    server(profile, &Tickets::none()).with_client_auth(ClientAuth::None).unwrap()
}

/// RFC 7627 §5.3.
#[test]
fn sessions_require_extended_master_secret() {
    let hide = |bytes: &mut [u8]| {
        let at = bytes.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
        bytes[at] = 0x7a;
    };
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let profile = || tls12().extended_master_secret_required(false);
        let client = client(profile(), &sessions);
        let server = server(profile(), &tickets);
        // Without it, neither side keeps a session of a full handshake …
        let server = server.with_client_auth(ClientAuth::None).unwrap();
        let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
        let mut hello = pair.client.transmit().to_vec();
        pair.client.transmitted(hello.len());
        hide(&mut hello);
        pair.server.receive(NOW, &hello).unwrap();
        // (The transcripts differ, so the handshake fails at the end; the test checks the server's promise.)
        let answer = pair.server.transmit().to_vec();
        let hello = &records(&answer)[0];
        assert_eq!(hello[5 + 4 + 2 + 32], 0, "a session ID");
        assert!(!hello.windows(4).any(|w| w == [0, 35, 0, 0]), "a ticket is promised");
        // … nor resumes without it a session that was made with it.
        for expected in [false, true] {
            let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
            pair.connect().unwrap();
            assert_eq!(pair.client.negotiated().unwrap().is_resumed(), expected);
        }
        let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server.clone()));
        let hello = pair.client.transmit().to_vec();
        pair.client.transmitted(hello.len());
        pair.server.receive(NOW, &hello).unwrap();
        let mut answer = pair.server.transmit().to_vec();
        pair.server.transmitted(answer.len());
        // The server's answer lacks the extension: another offered extension replaces it.
        let at = answer.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
        answer[at + 1] = 35;
        let result = pair.client.receive(NOW, &answer).map(drop);
        assert_eq!(result, Err(PeerIncompatible::ExtendedMasterSecret.into()));
        // A server aborts if it knows the session, and ignores an unknown session.
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
    let cert = files.write("cert.pem", own.chain_pem());
    let key = files.write("key.pem", own.key_pem());
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
fn resumes_with_openssl() {
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
            assert_eq!(
                (negotiated.version, negotiated.is_resumed()),
                (Some(ProtocolVersion::TLS1_2), expected)
            );
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
            assert_eq!(negotiated.is_resumed(), expected);
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
fn renegotiates_with_openssls_server() {
    let mut peer = s_server(&["-Verify", "3", "-client_renegotiation"]);
    let profile = renegotiating_profile(ends::client_profile(KeyType::P256));
    let mut link = Link::to_server(ends::client_with(profile, |c| c), &peer);
    link.handshake().unwrap();
    // The client's renegotiation.
    link.connection.renegotiate(dunlin_tests::peer::now()).unwrap();
    link.wait_for(|e| matches!(e, Event::Renegotiated)).unwrap();
    link.send(b"after ours\n").unwrap();
    peer.process.output_until("data", |o| o.windows(10).any(|w| w == b"after ours"));
    // The server's renegotiation: `r` as before, `R` with another certificate request.
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
fn continues_after_openssls_server_refused_renegotiation() {
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
fn renegotiates_with_openssls_client() {
    let (listener, port) = listen();
    let profile = renegotiating_profile(ends::server_profile(KeyType::P256));
    let config = ends::server_config_with(profile, |s| s);
    let (mut peer, _files) = s_client(&port, &[]);
    let connection = dunlin::TlsConnection::server(&config, dunlin_tests::peer::now());
    let mut link = Link::accept(connection, &listener);
    link.handshake().unwrap();
    // The server's renegotiation.
    link.connection.renegotiate(dunlin_tests::peer::now()).unwrap();
    link.wait_for(|e| matches!(e, Event::Renegotiated)).unwrap();
    link.send(b"after ours\n").unwrap();
    peer.output_until("data", |o| o.windows(10).any(|w| w == b"after ours"));
    // The client's renegotiation.
    link.events.clear();
    peer.type_line("R");
    link.wait_for(|e| matches!(e, Event::Renegotiated)).unwrap();
    link.send(b"after its own\n").unwrap();
    peer.output_until("data", |o| o.windows(13).any(|w| w == b"after its own"));
}
