//! Handshakes: late answers to questions, choices, failures and timeouts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{PSK, data, profile, psk_client, psk_server, x509};
use dunlin::auth::{PrivateKey, Psk, RawKeyTrust, X509Trust};
use dunlin::crypto::SigningKey;
use dunlin::early::NoEarlyData;
use dunlin::error::{AuthenticationFailure, Internal, Misuse, PeerIncompatible};
use dunlin::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use dunlin::resume::{Session, Tickets};
use dunlin::wire::{AlertDescription, CipherSuite, HandshakeType};
use dunlin::{
    Answer, ClientAuth, ClientConfig, ClientHelloInfo, Credential, EarlyDataOutcome, EarlyDataProtocols,
    Error, Profile, PskSource, Question, ServerConfig, ServerProfiles, SingleUse, Trust,
};
use dunlin_store::{MemoryClientSessions, MemoryUseOnce, RotatingTickets};
use dunlin_tests::{KeyType, Pki, awslc, localhost};
use dunlin_tokio::{Answers, DEFAULT_TIMEOUT, HandshakeError, TlsAcceptor, TlsConnector, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

type Side = Result<TlsStream<DuplexStream>, HandshakeError>;

async fn handshake(connector: &TlsConnector, acceptor: &TlsAcceptor) -> (Side, Side) {
    let (client, server) = duplex(4096);
    tokio::join!(connector.connect(client, localhost()), acceptor.accept(server))
}

async fn connect(
    connector: &TlsConnector,
    acceptor: &TlsAcceptor,
) -> (TlsStream<DuplexStream>, TlsStream<DuplexStream>) {
    let (client, server) = handshake(connector, acceptor).await;
    let mut client = client.unwrap();
    let mut server = server.unwrap();
    let sent = data(100, 1);
    client.write_all(&sent).await.unwrap();
    let mut received = vec![0; sent.len()];
    server.read_exact(&mut received).await.unwrap();
    assert_eq!(received, sent);
    (client, server)
}

fn tls(side: Side) -> Error {
    match side {
        Err(HandshakeError::Tls(e)) => e,
        other => panic!("{other:?}"),
    }
}

/// Asserts that the handshake fails with these errors.
async fn assert_fails(connector: &TlsConnector, acceptor: &TlsAcceptor, client: Error, server: Error) {
    let (client_side, server_side) = handshake(connector, acceptor).await;
    assert_eq!(tls(server_side), server);
    // A client may complete its handshake before the server refuses it. Then its next read fails.
    let error = match client_side {
        Ok(mut stream) => common::tls_error(&stream.read(&mut [0]).await.unwrap_err()).clone(),
        side => tls(side),
    };
    assert_eq!(error, client);
}

/// Answers questions with a function after a delay, and records them.
struct Late<F> {
    after: Duration,
    answer: F,
    asked: Mutex<Vec<String>>,
}

impl<F> Late<F> {
    fn new(answer: F) -> Arc<Self> {
        Arc::new(Self { after: Duration::from_secs(3), answer, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl<F: Fn(Question) -> Answer + Send + Sync> Answers for Late<F> {
    async fn answer(&self, question: Question) -> Answer {
        let name = format!("{question:?}");
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
        sleep(self.after).await;
        self.asked.lock().unwrap().push(name);
        (self.answer)(question)
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_late_key() {
    let answers = Late::new(|question| match question {
        Question::FindPsk { identity } if identity == b"d1" => {
            Answer::Psk(Some(Arc::new(Psk::new("d1", &PSK).unwrap())))
        }
        other => panic!("{other:?}"),
    });
    let acceptor =
        TlsAcceptor::new(Arc::new(psk_server().with_psks(PskSource::Ask))).with_answers(answers.clone());
    let began = Instant::now();
    connect(&TlsConnector::new(Arc::new(psk_client())), &acceptor).await;
    assert_eq!(answers.asked(), ["FindPsk"]);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

/// The client begins 2 seconds after the server, which then waits 3 seconds for a key.
#[tokio::test(start_paused = true)]
async fn the_handshake_time_begins_with_the_first_byte() {
    let answers = Late::new(|_| Answer::Psk(Some(Arc::new(Psk::new("d1", &PSK).unwrap()))));
    let acceptor = TlsAcceptor::new(Arc::new(psk_server().with_psks(PskSource::Ask))).with_answers(answers);
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let (client, server) = duplex(4096);
    let late = async {
        sleep(Duration::from_secs(2)).await;
        connector.connect(client, localhost()).await
    };
    let (_client, server) = tokio::try_join!(late, acceptor.accept(server)).unwrap();
    assert_eq!(server.handshake_time(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_late_profile() {
    let chosen = Arc::new(psk_server());
    let answers = Late::new(move |question| match question {
        Question::ChooseProfile(hello) => {
            assert_eq!(hello.server_name.as_deref(), Some("localhost"));
            Answer::Profile(Some(chosen.clone()))
        }
        other => panic!("{other:?}"),
    });
    let undecided = ServerConfig::choosing(profile().build().unwrap()).unwrap();
    let acceptor = TlsAcceptor::new(Arc::new(undecided)).with_answers(answers.clone());
    connect(&TlsConnector::new(Arc::new(psk_client())), &acceptor).await;
    assert_eq!(answers.asked(), ["ChooseProfile"]);
}

/// Both sides ask whether to trust the peer's certificate, or its raw public key.
#[tokio::test(start_paused = true)]
async fn waits_for_a_late_verification() {
    let pki = Pki::shared(KeyType::P256);
    let asks = [
        Trust { x509: Some(X509Trust::Ask), raw_key: None },
        Trust { x509: None, raw_key: Some(RawKeyTrust::Ask) },
    ];
    for trust in asks {
        let raw = trust.x509.is_none();
        let config = |leaf: &dunlin_tests::Leaf| {
            let credential = if raw { leaf.raw_key(&awslc()) } else { leaf.x509(&awslc()) };
            profile().trust(trust.clone()).credentials(vec![credential]).build().unwrap()
        };
        let server = ServerConfig::new(config(&pki.server)).unwrap();
        let server = Arc::new(server.with_client_auth(ClientAuth::Required).unwrap());
        let client = Arc::new(ClientConfig::new(config(&pki.client)));
        let verifies = |result: Result<(), AuthenticationFailure>| {
            Late::new(move |question| match question {
                Question::Verify { .. } => {
                    Answer::Verified(result.clone().map(|()| dunlin::auth::Acceptance::once()))
                }
                other => panic!("{other:?}"),
            })
        };
        let of_client = verifies(Ok(()));
        let of_server = verifies(Ok(()));
        let connector = TlsConnector::new(client.clone()).with_answers(of_client.clone());
        let acceptor = TlsAcceptor::new(server.clone()).with_answers(of_server.clone());
        connect(&connector, &acceptor).await;
        assert_eq!((of_client.asked(), of_server.asked()), (vec!["Verify".into()], vec!["Verify".into()]));

        let no = AuthenticationFailure::Revoked;
        let acceptor = acceptor.with_answers(verifies(Err(no.clone())));
        let alert = Error::AlertReceived(AlertDescription::CERTIFICATE_REVOKED);
        assert_fails(&connector, &acceptor, alert, Error::Authentication(no)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_late_signature() {
    let pki = Pki::shared(KeyType::P256);
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pki.server.key.clone()));
    let key: Arc<dyn SigningKey> = awslc().key_loader.load(&der).unwrap();
    let elsewhere = PrivateKey::Elsewhere { schemes: key.schemes().to_vec(), label: "vault 1".into() };
    let credential = Credential::X509 { chain: pki.server.chain.clone(), key: elsewhere };
    let answers = Late::new(move |question| match question {
        Question::Sign { label, scheme, message } => {
            assert_eq!(label, "vault 1");
            Answer::Signature(key.sign(scheme, &message, &*awslc().random).unwrap())
        }
        other => panic!("{other:?}"),
    });
    let server = ServerConfig::new(profile().credentials(vec![credential]).build().unwrap()).unwrap();
    let acceptor = TlsAcceptor::new(Arc::new(server)).with_answers(answers.clone());
    connect(&TlsConnector::new(Arc::new(x509().0)), &acceptor).await;
    assert_eq!(answers.asked(), ["Sign"]);
}

/// A slow session store.
#[derive(Default)]
struct RemoteSessions {
    kept: Mutex<Vec<(Vec<u8>, Session)>>,
    forgotten: Mutex<usize>,
}

impl Answers for RemoteSessions {
    async fn answer(&self, question: Question) -> Answer {
        let Question::FindSession { id } = question else { panic!("{question:?}") };
        sleep(Duration::from_secs(1)).await;
        let kept = self.kept.lock().unwrap();
        Answer::Session(kept.iter().find(|(name, _)| *name == id).map(|(_, s)| Box::new(s.clone())))
    }

    async fn keep_session(&self, name: Vec<u8>, session: Session) {
        sleep(Duration::from_secs(1)).await;
        self.kept.lock().unwrap().push((name, session));
    }

    async fn forget_session(&self, name: Vec<u8>) {
        self.kept.lock().unwrap().retain(|(n, _)| *n != name);
        *self.forgotten.lock().unwrap() += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_late_session() {
    let (client, server) = x509();
    let tickets = Arc::new(MemoryClientSessions::default());
    let connector = TlsConnector::new(Arc::new(client.with_sessions(tickets)));
    let store = Arc::new(RemoteSessions::default());
    let acceptor =
        TlsAcceptor::new(Arc::new(server.with_tickets(Tickets::ask()))).with_answers(store.clone());
    for resumed in [false, true, true] {
        let (mut client, mut server) = connect(&connector, &acceptor).await;
        assert_eq!(server.negotiated().is_resumed(), resumed);
        assert_eq!(server.negotiated().peer.as_ref().unwrap().to_string(), "X.509 device-1");
        // The ticket arrives before the end of the stream.
        tokio::try_join!(server.shutdown(), client.read_u8()).unwrap_err();
        assert_eq!(store.kept.lock().unwrap().len(), 1);
    }
    assert_eq!(*store.forgotten.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn unanswered_questions_end_the_handshake() {
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let config = Arc::new(psk_server().with_psks(PskSource::Ask));
    let alert = Error::AlertReceived(AlertDescription::INTERNAL_ERROR);
    let failed = Error::Internal(Internal::QuestionFailed);
    assert_fails(&connector, &TlsAcceptor::new(config.clone()), alert.clone(), failed.clone()).await;
    let acceptor = TlsAcceptor::new(config.clone()).with_answers(Late::new(|_| Answer::Failed));
    assert_fails(&connector, &acceptor, alert.clone(), failed).await;
    let acceptor = TlsAcceptor::new(config).with_answers(Late::new(|_| Answer::Profile(None)));
    assert_fails(&connector, &acceptor, alert, Error::Misuse(Misuse::WrongAnswer)).await;
}

#[tokio::test]
async fn chooses_a_profile_by_the_client_hello() {
    let with_suite = |suite: CipherSuite| {
        let suites = awslc().cipher_suites.iter().copied().filter(|s| s.id == suite).collect();
        let built = profile().name(suite.to_string()).cipher_suites(suites).build().unwrap();
        Arc::new(ServerConfig::psk_only(built, psk_source()).unwrap())
    };
    let aes = with_suite(CipherSuite::TLS_AES_128_GCM_SHA256);
    let chacha = with_suite(CipherSuite::TLS_CHACHA20_POLY1305_SHA256);
    let choose = move |hello: &ClientHelloInfo| match hello.alpn.first().map(Vec::as_slice) {
        Some(b"a") => Some(aes.clone()),
        Some(b"c") => Some(chacha.clone()),
        _ => None,
    };
    let acceptor = TlsAcceptor::new(Arc::new(psk_server())).with_profiles(choose);
    let connector = |alpn: &[u8]| {
        let profile: Profile = profile().alpn(vec![alpn.to_vec()]).build().unwrap();
        let psk = Arc::new(Psk::new("d1", &PSK).unwrap());
        TlsConnector::new(Arc::new(ClientConfig::new(profile).with_psks(vec![psk])))
    };
    for (alpn, suite) in
        [(b"a", CipherSuite::TLS_AES_128_GCM_SHA256), (b"c", CipherSuite::TLS_CHACHA20_POLY1305_SHA256)]
    {
        let (client, server) = connect(&connector(alpn), &acceptor).await;
        assert_eq!(client.negotiated().cipher_suite, Some(suite));
        assert_eq!(server.negotiated().profile, suite.to_string());
    }
    let alert = Error::AlertReceived(AlertDescription::ACCESS_DENIED);
    let refused = Error::PeerIncompatible(PeerIncompatible::Refused);
    assert_fails(&connector(b"x"), &acceptor, alert, refused).await;
}

#[tokio::test]
async fn the_profile_of_the_identity_decides() {
    let server = |name: &str, rank| {
        ServerConfig::psk_only(profile().name(name).rank(rank).build().unwrap(), psk_source()).unwrap()
    };
    let profiles = Arc::new(ServerProfiles::new(server("strong", 2), vec![server("weak", 1)], 1).unwrap());
    let acceptor = |proven: Option<&'static str>| {
        let hinted = profiles.clone();
        let known = profiles.clone();
        TlsAcceptor::new(profiles.server().clone())
            .with_profiles(move |_| hinted.get("weak").cloned())
            .with_client_profiles(move |client| {
                assert_eq!((client.identity.to_string(), &*client.profile), ("PSK d1".into(), "weak"));
                known.get(proven?).cloned()
            })
    };
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let (_client, server) = connect(&connector, &acceptor(Some("weak"))).await;
    assert_eq!(server.negotiated().profile, "weak");
    for (proven, why) in [(Some("strong"), PeerIncompatible::Rank), (None, PeerIncompatible::Refused)] {
        let alert = Error::AlertReceived(AlertDescription::ACCESS_DENIED);
        assert_fails(&connector, &acceptor(proven), alert, why.into()).await;
    }
    // Without an answer the handshake fails.
    let hinted = profiles.clone();
    let acceptor =
        TlsAcceptor::new(profiles.server().clone()).with_profiles(move |_| hinted.get("weak").cloned());
    let alert = Error::AlertReceived(AlertDescription::INTERNAL_ERROR);
    assert_fails(&connector, &acceptor, alert, Error::Internal(Internal::QuestionFailed)).await;
}

fn psk_source() -> PskSource {
    PskSource::Here(Arc::new(dunlin::auth::PskTable::from_iter([Psk::new("d1", &PSK).unwrap()])))
}

#[tokio::test]
async fn each_side_learns_why_it_failed() {
    let (_, server) = x509();
    let acceptor = TlsAcceptor::new(Arc::new(server));
    // A client with another trust anchor.
    let stranger = Pki::shared(KeyType::P256).client.chain[0].clone();
    let other = Trust { x509: Some(X509Trust::anchors([stranger]).unwrap()), raw_key: None };
    let client = |trust: Trust| {
        let own = Pki::shared(KeyType::P256).client.x509(&awslc());
        let profile = profile().trust(trust).credentials(vec![own]).build().unwrap();
        TlsConnector::new(Arc::new(ClientConfig::new(profile)))
    };
    let (client_side, server_side) = handshake(&client(other), &acceptor).await;
    assert_eq!(tls(client_side), Error::Authentication(AuthenticationFailure::UnknownIssuer));
    assert_eq!(tls(server_side), Error::AlertReceived(AlertDescription::UNKNOWN_CA));
    // A client without a certificate.
    let trust = Trust { x509: Some(Pki::shared(KeyType::P256).trust()), raw_key: None };
    let anonymous = TlsConnector::new(Arc::new(ClientConfig::new(profile().trust(trust).build().unwrap())));
    let alert = Error::AlertReceived(AlertDescription::CERTIFICATE_REQUIRED);
    let missing = Error::Authentication(AuthenticationFailure::NoCertificate);
    assert_fails(&anonymous, &acceptor, alert, missing).await;
}

#[tokio::test(start_paused = true)]
async fn handshakes_time_out() {
    let began = Instant::now();
    let (client, mut silent) = duplex(4096);
    let error = TlsConnector::new(Arc::new(psk_client())).connect(client, localhost()).await.unwrap_err();
    assert!(matches!(error, HandshakeError::Timeout(DEFAULT_TIMEOUT)), "{error}");
    assert_eq!(began.elapsed(), DEFAULT_TIMEOUT);
    let mut hello = Vec::new();
    silent.read_to_end(&mut hello).await.unwrap();
    assert!(!hello.is_empty(), "the transport was closed");

    let timeout = Duration::from_millis(1500);
    let (_client, server) = duplex(4096);
    let acceptor = TlsAcceptor::new(Arc::new(psk_server())).with_timeout(timeout);
    let error = io::Error::from(acceptor.accept(server).await.unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(error.to_string(), "the handshake was not complete after 1.5s");
}

/// Servers tell probes from clients that break off.
#[tokio::test]
async fn a_client_that_sends_nothing_is_a_probe() {
    let acceptor = TlsAcceptor::new(Arc::new(psk_server()));
    for (sent, is_probe) in [(&b""[..], true), (b"\x16", false)] {
        let (mut client, server) = duplex(4096);
        client.write_all(sent).await.unwrap();
        drop(client);
        let failed = acceptor.accept(server).await.unwrap_err();
        assert_eq!(matches!(failed, HandshakeError::Probe(_)), is_probe, "{failed}");
        assert_eq!(io::Error::from(failed).kind(), io::ErrorKind::UnexpectedEof);
    }
}

/// The peer gets a close_notify (RFC 8446 §6.1).
#[tokio::test]
async fn an_abandoned_handshake_ends_with_close_notify() {
    let (mut client, server) = duplex(4096);
    let acceptor = TlsAcceptor::new(Arc::new(psk_server()));
    let given_up = acceptor.accept_until(server, std::future::ready(())).await.unwrap_err();
    assert!(matches!(given_up, HandshakeError::Stopped), "{given_up}");
    let mut record = Vec::new();
    client.read_to_end(&mut record).await.unwrap();
    assert_eq!((record[0], &record[3..]), (21, &[0, 2, 1, 0][..]));
}

/// A failed handshake lingers until its peer closes. A caller that stops it then still learns why it failed.
#[tokio::test(start_paused = true)]
async fn a_failed_handshake_that_is_stopped_keeps_its_error() {
    let (mut client, server) = duplex(4096);
    client.write_all(&[99, 3, 3, 0, 1, 0]).await.unwrap();
    let (lingers, begun) = oneshot::channel();
    let lingers = Mutex::new(Some(lingers));
    let acceptor = TlsAcceptor::new(Arc::new(psk_server()))
        .with_on_linger(move || lingers.lock().unwrap().take().unwrap().send(()).unwrap());
    let began = Instant::now();
    let stop = async { begun.await.unwrap() };
    let failed = acceptor.accept_until(server, stop).await.unwrap_err();
    assert!(matches!(failed, HandshakeError::Tls(Error::PeerMisbehaved(_))), "{failed}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    let mut alert = Vec::new();
    client.read_to_end(&mut alert).await.unwrap();
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, AlertDescription::UNEXPECTED_MESSAGE.0]);
}

#[tokio::test(start_paused = true)]
async fn slow_answers_make_the_handshake_time_out() {
    let answers = Late::new(|_| Answer::Psk(None));
    let acceptor = TlsAcceptor::new(Arc::new(psk_server().with_psks(PskSource::Ask)))
        .with_answers(answers)
        .with_timeout(Duration::from_secs(2));
    let (client, server) = handshake(&TlsConnector::new(Arc::new(psk_client())), &acceptor).await;
    assert!(matches!(server, Err(HandshakeError::Timeout(_))));
    let error = client.unwrap_err();
    assert!(matches!(&error, HandshakeError::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof), "{error}");
}

#[tokio::test]
async fn a_dropped_handshake_closes_the_transport() {
    let (client, mut server) = duplex(4096);
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let mut hello = [0; 5];
    tokio::select! {
        _ = connector.connect(client, localhost()) => panic!("no server answers"),
        read = server.read_exact(&mut hello) => { read.unwrap(); }
    }
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    assert_eq!(usize::from(u16::from_be_bytes([hello[3], hello[4]])), rest.len(), "all of the ClientHello");
}

#[tokio::test]
async fn resumes_with_tickets() {
    let (client, server) = x509();
    let connector =
        TlsConnector::new(Arc::new(client.with_sessions(Arc::new(MemoryClientSessions::default()))));
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    let acceptor = TlsAcceptor::new(Arc::new(server.with_tickets(Tickets::stateless(seal))));
    for resumed in [false, true] {
        let (mut client, mut server) = connect(&connector, &acceptor).await;
        assert_eq!((client.negotiated().is_resumed(), server.negotiated().is_resumed()), (resumed, resumed));
        tokio::try_join!(server.shutdown(), client.read_u8()).unwrap_err();
    }
}

#[tokio::test]
async fn reports_messages_as_they_come() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let connector = TlsConnector::new(Arc::new(psk_client()))
        .with_on_message(move |m| note.lock().unwrap().push((m.sent, m.typ)));
    let (mut client, mut server) = connect(&connector, &TlsAcceptor::new(Arc::new(psk_server()))).await;
    let expected = [
        (true, HandshakeType::CLIENT_HELLO),
        (false, HandshakeType::SERVER_HELLO),
        (false, HandshakeType::ENCRYPTED_EXTENSIONS),
        (false, HandshakeType::FINISHED),
        (true, HandshakeType::FINISHED),
    ];
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), expected);
    // It also reports messages after the handshake.
    client.update_keys(true).unwrap();
    client.write_u8(1).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), 1);
    server.write_u8(2).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), 2);
    let expected = [(true, HandshakeType::KEY_UPDATE), (false, HandshakeType::KEY_UPDATE)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// The server keeps early data apart from later data, and the client learns how much was accepted.
#[tokio::test]
async fn sends_early_data_and_tells_how_much_was_accepted() {
    let any = EarlyDataProtocols::unnamed;
    let sessions = Arc::new(MemoryClientSessions::new(1, 4));
    let client = psk_client().with_sessions(sessions).with_early_data(any());
    let register = SingleUse::Register(Arc::new(MemoryUseOnce::with_new_keys(4)));
    let keys = RotatingTickets::new(awslc()).unwrap().with_single_use(register);
    let plain = psk_server().with_tickets(Tickets::stateless(Arc::new(keys)));
    let server = plain.clone().with_early_data(any(), 3000).unwrap();
    let connector = TlsConnector::new(Arc::new(client));
    let request = data(4000, 3);
    for (config, expected) in [(&server, 0), (&server, 3000), (&plain, 0)] {
        let acceptor = TlsAcceptor::new(Arc::new(config.clone()));
        let (client, server) = duplex(100);
        let (client, server) = tokio::join!(
            connector.connect_with_early_data(client, localhost(), &request),
            acceptor.accept(server)
        );
        let ((mut client, taken), mut server) = (client.unwrap(), server.unwrap());
        assert_eq!(taken, expected);
        assert_eq!(server.take_early_data(), &request[..expected]);
        assert!(server.take_early_data().is_empty(), "it was taken already");
        let accepted = server.negotiated().early_data == EarlyDataOutcome::Accepted;
        assert_eq!(accepted, expected > 0);
        let rest = &request[taken..];
        let mut received = vec![0; request.len() - taken];
        let sent = async {
            client.write_all(rest).await.unwrap();
            client.shutdown().await.unwrap();
            let mut end = Vec::new();
            client.read_to_end(&mut end).await.unwrap();
        };
        let read = async {
            server.read_exact(&mut received).await.unwrap();
            server.shutdown().await.unwrap();
        };
        tokio::join!(sent, read);
        assert!(received == rest);
    }
}

/// Without an answer to `FirstUse` the server continues without early data.
#[tokio::test]
async fn refuses_early_data_if_its_question_is_not_answered() {
    let any = EarlyDataProtocols::unnamed;
    let sessions = Arc::new(MemoryClientSessions::new(1, 4));
    let client = TlsConnector::new(Arc::new(psk_client().with_sessions(sessions).with_early_data(any())));
    let keys = RotatingTickets::new(awslc()).unwrap().with_single_use(SingleUse::Ask);
    let server = psk_server().with_tickets(Tickets::stateless(Arc::new(keys)));
    let server = TlsAcceptor::new(Arc::new(server.with_early_data(any(), 100).unwrap()));
    for offered in [false, true] {
        let (ours, theirs) = duplex(4096);
        let (client, server) =
            tokio::join!(client.connect_with_early_data(ours, localhost(), b"x"), server.accept(theirs));
        let ((mut client, taken), mut server) = (client.unwrap(), server.unwrap());
        assert_eq!((taken, server.take_early_data()), (0, Vec::new()));
        let refused = EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse);
        assert_eq!(server.negotiated().early_data == refused, offered);
        // Reading takes the ticket in.
        drop(server);
        let _ = client.read_u8().await;
    }
}
