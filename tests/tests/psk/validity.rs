//! The lifetime of pre-shared keys: validity, replacement and removal, and their effect on the sessions of a
//! key.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::auth::{ExternalPsk, Psk};
use dunlin::crypto::HashAlgorithm;
use dunlin::error::{Misuse, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::{ClientSessions, Tickets};
use dunlin::{
    Answer, ClientConfig, Error, Now, PeerIdentity, Profile, PskSource, Question, ServerConfig,
    TlsConnection, TransportKind,
};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, RotatingTickets};
use dunlin_tests::{NOW, Pair, awslc, localhost, null_psk_suite};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The server's only key, for "d1", which tests replace.
#[derive(Clone, Default)]
struct Known(Arc<Mutex<Option<Arc<Psk>>>>);

impl Known {
    fn set(&self, psk: Option<Psk>) {
        *self.0.lock().unwrap() = psk.map(Arc::new);
    }

    fn source(&self) -> PskSource {
        let keys = self.0.clone();
        PskSource::Here(Arc::new(move |identity: &[u8], _: Now| {
            keys.lock().unwrap().clone().filter(|psk| psk.identity() == identity)
        }))
    }
}

fn psk(byte: u8) -> Psk {
    Psk::new("d1", &[byte; 32]).unwrap()
}

fn profile() -> Profile {
    Profile::builder(awslc()).build().unwrap()
}

fn client(psk: Psk, sessions: &Arc<MemoryClientSessions>) -> Arc<ClientConfig> {
    let sessions = Arc::clone(sessions) as Arc<dyn ClientSessions>;
    Arc::new(ClientConfig::new(profile()).with_psks(vec![Arc::new(psk)]).with_sessions(sessions))
}

fn server(psks: PskSource, tickets: Tickets) -> Arc<ServerConfig> {
    Arc::new(ServerConfig::psk_only(profile(), psks).unwrap().with_tickets(tickets))
}

fn every_kind_of_ticket() -> [Tickets; 2] {
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    [Tickets::stateless(seal), Tickets::stateful(Arc::new(MemoryServerSessions::new(16)))]
}

fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Pair {
    let mut pair = Pair::new(client, server);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    pair
}

fn resumed(pair: &Pair) -> bool {
    pair.server.negotiated().unwrap().is_resumed()
}

#[test]
fn replacing_a_key_invalidates_its_sessions() {
    for tickets in every_kind_of_ticket() {
        let known = Known::default();
        let sessions = Arc::default();
        let server = server(known.source(), tickets);
        known.set(Some(psk(1)));
        assert!(!resumed(&connect(&client(psk(1), &sessions), &server)));
        assert!(resumed(&connect(&client(psk(1), &sessions), &server)));

        // The thief of the first key has only a session of it.
        known.set(Some(psk(2)));
        let mut pair = Pair::new(&client(psk(1), &sessions), &server);
        assert_eq!(pair.run(), Err(PeerMisbehaved::BadBinder.into()));
    }
}

#[test]
fn removing_a_key_invalidates_its_sessions() {
    for tickets in every_kind_of_ticket() {
        let known = Known::default();
        let sessions = Arc::default();
        let server = server(known.source(), tickets);
        known.set(Some(psk(1)));
        connect(&client(psk(1), &sessions), &server);
        known.set(None);
        let mut pair = Pair::new(&client(psk(1), &sessions), &server);
        assert_eq!(pair.run(), Err(PeerIncompatible::NoPsk.into()));
    }
}

/// A client that has replaced its key does not use old sessions, so a server with only the old key cannot
/// authenticate.
#[test]
fn client_drops_sessions_of_replaced_keys() {
    for tickets in every_kind_of_ticket() {
        let known = Known::default();
        let sessions = Arc::default();
        let server = server(known.source(), tickets);
        known.set(Some(psk(1)));
        connect(&client(psk(1), &sessions), &server);
        let mut pair = Pair::new(&client(psk(2), &sessions), &server);
        assert_eq!(pair.run(), Err(PeerMisbehaved::BadBinder.into()));
    }
}

/// A peer cannot distinguish an expired key from an unknown or a wrong one.
#[test]
fn expired_keys_look_like_unknown_ones() {
    let end = NOW.unix_ms + u64::try_from(HOUR.as_millis()).unwrap();
    let keys = PskSource::Here(Arc::new(move |identity: &[u8], now: Now| {
        (identity == b"d1" && now.unix_ms < end).then(|| Arc::new(psk(1)))
    }));
    for tickets in every_kind_of_ticket() {
        let sessions = Arc::default();
        let server = server(keys.clone(), tickets);
        let run = |psk: Psk, now: Now| {
            let mut pair = Pair::at(&client(psk, &sessions), &server, now);
            let run = pair.run();
            (run.is_ok() && resumed(&pair), pair.client.error().cloned())
        };
        let last = Now::from_unix_ms(end - 1);
        assert_eq!(run(psk(1), NOW), (false, None));
        assert_eq!(run(psk(1), last), (true, None));
        let wrong = run(psk(2), last).1;
        let expired = run(psk(1), Now::from_unix_ms(end)).1;
        let unknown = run(Psk::new("d2", &[1; 32]).unwrap(), last).1;
        assert!(matches!(wrong, Some(Error::AlertReceived(_))), "{wrong:?}");
        assert_eq!((&expired, &unknown), (&wrong, &wrong));
    }
}

#[test]
fn names_of_keys_are_looked_up_on_resumption() {
    for tickets in every_kind_of_ticket() {
        let known = Known::default();
        let sessions = Arc::default();
        let server = server(known.source(), tickets);
        let client = client(psk(1).with_name("gateway"), &sessions);
        for (round, name) in ["pump 7", "pump 8"].into_iter().enumerate() {
            known.set(Some(psk(1).with_name(name)));
            let pair = connect(&client, &server);
            assert_eq!(resumed(&pair), round > 0);
            let peer = pair.server.negotiated().unwrap().peer.clone().unwrap();
            assert_eq!(peer.to_string(), format!("PSK {name}, identity d1"));
            let PeerIdentity::Psk(peer) = peer else { panic!() };
            assert_eq!((peer.identity, peer.name.as_deref()), (b"d1".to_vec(), Some(name)));
            let server = pair.client.negotiated().unwrap().peer.clone().unwrap();
            assert_eq!(server.to_string(), "PSK gateway, identity d1");
        }
    }
}

#[test]
fn caller_is_asked_for_the_key_of_a_session() {
    for tickets in every_kind_of_ticket() {
        let server = server(PskSource::Ask, tickets);
        let sessions = Arc::default();
        // In the last round, the server declines the session and asks for the key itself.
        for (known, asked, want) in
            [(1, 1, Ok(false)), (1, 1, Ok(true)), (2, 2, Err(PeerMisbehaved::BadBinder.into()))]
        {
            let mut pair = Pair::new(&client(psk(1), &sessions), &server);
            let mut run = pair.run();
            let mut of_key = 0;
            while let Some((id, question)) = pair.server_question() {
                let Question::FindPsk { identity } = question else { panic!() };
                let found = (identity == b"d1").then(|| Arc::new(psk(known)));
                of_key += usize::from(found.is_some());
                run = pair.server.answer(pair.now, id, Answer::Psk(found)).and_then(|()| pair.run());
            }
            assert_eq!((run.map(|()| resumed(&pair)), of_key), (want, asked));
        }
    }
}

/// RFC 9258 §4.1: the identity of an imported key names the version, so that other versions refuse the key.
#[test]
fn imported_key_serves_one_version() {
    let import = |transport| {
        let external =
            ExternalPsk { identity: b"d1", key: &[7; 32], hash: HashAlgorithm::Sha256, context: b"" };
        Psk::import(&awslc(), &external, transport).unwrap().swap_remove(0).with_name("imported")
    };
    let (tls, dtls) = (|| import(TransportKind::Stream), || import(TransportKind::Datagram));
    let always = |psk: Psk| {
        let psk = Arc::new(psk);
        PskSource::Here(Arc::new(move |_: &[u8], _: Now| Some(Arc::clone(&psk))))
    };
    let client = |psk| Arc::new(ClientConfig::new(profile()).with_psks(vec![Arc::new(psk)]));
    Pair::new(&client(tls()), &server(always(tls()), Tickets::none())).connect().unwrap();
    let result = Pair::new(&client(tls()), &server(always(dtls()), Tickets::none())).run();
    assert_eq!(result, Err(PeerIncompatible::NoPsk.into()));
    let result = TlsConnection::client(&client(dtls()), localhost(), NOW).map(drop);
    assert!(matches!(result, Err(Error::Misuse(Misuse::Config(_)))), "{result:?}");

    // Without real cryptography every key fits; the peer's name shows which key the server used.
    let provider = Arc::new(dunlin_null::null_provider());
    let profile = || {
        let profile = Profile::builder(provider.clone()).danger_skip_provider_check().cipher_suites(vec![]);
        profile.tls12_cipher_suites(vec![null_psk_suite()]).build().unwrap()
    };
    for (psk, name) in [(psk(7).with_name("external"), Some("external")), (tls(), None), (dtls(), None)] {
        let client =
            ClientConfig::new(profile()).with_psks(vec![Arc::new(Psk::new("d1", &[7; 32]).unwrap())]);
        let server = ServerConfig::psk_only(profile(), always(psk)).unwrap();
        let pair = connect(&Arc::new(client), &Arc::new(server));
        let Some(PeerIdentity::Psk(peer)) = &pair.server.negotiated().unwrap().peer else { panic!("no PSK") };
        assert_eq!(peer.name.as_deref(), name);
    }
    // A client does not offer them in TLS 1.2 either.
    let offers = |psks: Vec<Psk>| {
        let config = ClientConfig::new(profile()).with_psks(psks.into_iter().map(Arc::new).collect());
        TlsConnection::client(&Arc::new(config), localhost(), NOW).is_ok()
    };
    assert!(!offers(vec![tls(), dtls()]) && offers(vec![tls(), psk(7)]));
}
