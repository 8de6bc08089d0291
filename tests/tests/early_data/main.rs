//! Early data (0-RTT): when a server accepts it, when not and why. No data is delivered twice, or as ordinary
//! data.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::sync::Arc;

use dunlin::crypto::{CryptoProvider, Tls13CipherSuite};
use dunlin::early::{EARLY_DATA_WINDOW, MAX_EARLY_DATA, NoEarlyData};
use dunlin::error::{AuthenticationFailure, Misuse};
use dunlin::resume::{ClientSessions, SessionKey, Tickets, UseOnce};
use dunlin::wire::NamedGroup;
use dunlin::{
    Answer, ClientAuth, ClientConfig, EarlyDataOutcome, EarlyDataProtocols, Event, Now, Profile,
    ProfileBuilder, Question, ServerConfig, SingleUse, TlsConnection, TransportKind, Trust,
};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, MemoryUseOnce, RotatingTickets};
use dunlin_tests::tamper::Secrets;
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, localhost};

mod hostile;
mod marks;
mod refused;

/// Tickets that hold the session. Their keys have this register.
fn sealed(single_use: SingleUse) -> Tickets {
    Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap().with_single_use(single_use)))
}

/// The client's early data.
const REQUEST: &[u8] = b"switch the lamp on";
/// The server's answer.
const ANSWER: &[u8] = b"it is on";

/// A suite with the same hash as the preferred suite.
static CHACHA20: &Tls13CipherSuite = &dunlin_awslc::TLS13_CHACHA20_POLY1305_SHA256;

/// The application protocol of these tests.
fn alpn() -> Vec<Vec<u8>> {
    vec![b"lamp".to_vec()]
}

fn lamps() -> EarlyDataProtocols {
    EarlyDataProtocols::named(alpn())
}

/// A client and a server that share sessions and allow early data. The tests edit their settings.
struct Site {
    store: Arc<MemoryClientSessions>,
    secrets: Arc<Secrets>,
    tickets: Tickets,
}

impl Site {
    /// Tickets that name a session.
    fn stateful() -> Self {
        Self::new(Tickets::stateful(Arc::new(MemoryServerSessions::new(16))))
    }

    /// Tickets that hold the session, with this register of used tickets.
    fn stateless(register: impl UseOnce + 'static) -> Self {
        Self::new(sealed(SingleUse::Register(Arc::new(register))))
    }

    fn asked() -> Self {
        Self::new(sealed(SingleUse::Ask))
    }

    fn new(tickets: Tickets) -> Self {
        let store = Arc::new(MemoryClientSessions::new(8, 8));
        Self { store, secrets: Arc::default(), tickets }
    }

    /// Both kinds of tickets that allow early data without a question.
    fn all() -> [Self; 2] {
        [Self::stateful(), Self::stateless(MemoryUseOnce::with_new_keys(16))]
    }

    fn profile(&self, is_client: bool) -> ProfileBuilder {
        self.profile_by(awslc(), is_client)
    }

    fn profile_by(&self, provider: Arc<CryptoProvider>, is_client: bool) -> ProfileBuilder {
        let pki = Pki::shared(KeyType::P256);
        let own = if is_client { &pki.client } else { &pki.server };
        Profile::builder(provider)
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![own.x509(&awslc())])
            .alpn(alpn())
            .key_log(Some(self.secrets.clone()))
    }

    fn client_with(&self, edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ClientConfig {
        let profile = edit(self.profile(true)).build().unwrap();
        ClientConfig::new(profile).with_sessions(self.store.clone()).with_early_data(lamps())
    }

    fn client(&self) -> Arc<ClientConfig> {
        Arc::new(self.client_with(|p| p))
    }

    /// A server without early data.
    fn plain_server(&self, edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ServerConfig {
        self.plain_server_of(edit(self.profile(false)))
    }

    fn plain_server_of(&self, profile: ProfileBuilder) -> ServerConfig {
        let config = ServerConfig::new(profile.build().unwrap()).unwrap();
        config.with_tickets(self.tickets.clone()).with_client_auth(ClientAuth::Required).unwrap()
    }

    fn server_with(&self, edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ServerConfig {
        self.plain_server(edit).with_early_data(lamps(), MAX_EARLY_DATA).unwrap()
    }

    fn server(&self) -> Arc<ServerConfig> {
        Arc::new(self.server_with(|p| p))
    }

    /// Makes a connection that gives the client a ticket.
    fn first(&self, client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) {
        let mut pair = Pair::new(client, server);
        pair.connect().unwrap();
        let outcome = pair.client.negotiated().unwrap().early_data;
        assert_eq!(outcome, EarlyDataOutcome::NotOffered(NoEarlyData::NoSession));
    }

    /// A client with a ticket that has sent [`REQUEST`] as early data, and a server before its first byte.
    fn early(&self) -> Pair {
        self.first(&self.client(), &self.server());
        early(&self.client(), &self.server())
    }
}

fn early(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Pair {
    let mut pair = Pair::new(client, server);
    send_early(&mut pair.client);
    pair
}

fn send_early(client: &mut TlsConnection) {
    let mut early = client.early_data().expect("early data is offered");
    assert_eq!(early.send(REQUEST), Ok(REQUEST.len()));
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

/// Takes all early data that the server has received.
fn take_early(server: &mut TlsConnection) -> Option<Vec<u8>> {
    let mut early = server.early_data()?;
    let data = early.received().to_vec();
    early.consume(NOW, data.len()).unwrap();
    Some(data)
}

/// Completes the handshake without early data: the server delivers none, and both sides report why.
fn assert_refused(pair: &mut Pair, server_says: NoEarlyData, client_says: NoEarlyData) {
    pair.connect().unwrap();
    assert!(pair.client.early_data().is_none() && pair.server.early_data().is_none());
    assert!(pair.server.received().is_empty(), "early data was delivered as ordinary data");
    for (connection, events, why) in
        [(&pair.client, &pair.client_events, client_says), (&pair.server, &pair.server_events, server_says)]
    {
        let rejected = EarlyDataOutcome::Rejected(why);
        assert_eq!(connection.negotiated().unwrap().early_data, rejected, "{:?}", connection.side());
        let told = events.iter().filter(|e| matches!(e, Event::EarlyData(o) if *o == rejected)).count();
        assert_eq!(told, 1, "{:?}", connection.side());
    }
    pair.echo(b"and now properly").unwrap();
}

#[test]
fn early_data_is_delivered_and_answered() {
    for site in Site::all() {
        let mut pair = site.early();
        let flight = take(&mut pair.client);
        pair.server.receive(NOW, &flight).unwrap();
        assert!(pair.server.is_handshaking() && pair.server.received().is_empty());
        // Neither side can send ordinary data yet, and `consume` does not touch early data.
        assert_eq!(pair.client.send(b"x"), Err(Misuse::HandshakeNotComplete.into()));
        assert_eq!(pair.server.send(b"x"), Err(Misuse::HandshakeNotComplete.into()));
        pair.server.consume(NOW, REQUEST.len()).unwrap();

        let mut early = pair.server.early_data().unwrap();
        assert_eq!((early.alpn(), early.room()), (Some(&b"lamp"[..]), None));
        assert_eq!(early.peer().unwrap().to_string(), "X.509 device-1");
        assert_eq!(early.received(), REQUEST);
        early.consume(NOW, 6).unwrap();
        assert_eq!(early.received(), &REQUEST[6..]);
        early.consume(NOW, usize::MAX).unwrap();
        assert_eq!(early.send(ANSWER), Ok(ANSWER.len()));

        // The client may send early data until it receives the server's Finished.
        let mut early = pair.client.early_data().unwrap();
        assert_eq!(early.alpn(), Some(&b"lamp"[..]));
        assert_eq!(early.peer().unwrap().to_string(), "X.509 localhost");
        early.send(b", please").unwrap();
        let more = take(&mut pair.client);
        pair.server.receive(NOW, &more).unwrap();
        assert_eq!(take_early(&mut pair.server).unwrap(), b", please");

        pair.connect().unwrap();
        assert_eq!(pair.client.received(), ANSWER);
        pair.client.consume(NOW, ANSWER.len()).unwrap();
        assert!(pair.client.early_data().is_none() && pair.server.early_data().is_none());
        for connection in [&pair.client, &pair.server] {
            let negotiated = connection.negotiated().unwrap();
            assert!(negotiated.is_resumed() && !negotiated.retried);
            assert_eq!(negotiated.early_data, EarlyDataOutcome::Accepted);
        }
        pair.echo(b"and now properly").unwrap();
        // The ticket of this connection also allows early data.
        let mut next = early_again(&site);
        let flight = take(&mut next.client);
        next.server.receive(NOW, &flight).unwrap();
        assert_eq!(take_early(&mut next.server).unwrap(), REQUEST);
        next.connect().unwrap();
    }
}

fn early_again(site: &Site) -> Pair {
    early(&site.client(), &site.server())
}

#[test]
fn slow_server_pauses_the_handshake_and_loses_nothing() {
    let mut pair = Site::stateful().early();
    let chunks: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; 2000]).collect();
    for chunk in &chunks {
        assert_eq!(pair.client.early_data().unwrap().send(chunk), Ok(chunk.len()));
    }
    let mut wire = take(&mut pair.client);
    let mut received = Vec::new();
    let expected = [&[REQUEST.to_vec()], &chunks[..]].concat().concat();
    while received.len() < expected.len() {
        let taken = pair.server.receive(NOW, &wire).unwrap();
        wire.drain(..taken);
        let mut early = pair.server.early_data().unwrap();
        let n = early.received().len().min(333);
        received.extend_from_slice(&early.received()[..n]);
        early.consume(NOW, n).unwrap();
        wire.extend(take(&mut pair.client));
    }
    assert!(received == expected);
    pair.connect().unwrap();
}

#[test]
fn early_data_is_delivered_before_an_end_of_the_transport() {
    let mut pair = Site::stateful().early();
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    pair.server.receive_end().unwrap();
    let mut early = pair.server.early_data().unwrap();
    assert_eq!(early.received(), REQUEST);
    assert_eq!(early.consume(NOW, REQUEST.len()), Err(dunlin::Error::Truncated));
}

#[test]
fn early_exporters_agree_and_differ_from_later_exporters() {
    let mut pair = Site::stateful().early();
    let export = |connection: &mut TlsConnection| {
        let mut out = [0; 32];
        connection.early_data().unwrap().export(b"EXPORTER-test", b"", &mut out).unwrap();
        out
    };
    let ours = export(&mut pair.client);
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    assert_eq!(export(&mut pair.server), ours);
    let mut later = [[0; 32]; 3];
    // The server has sent its Finished.
    pair.server.export(b"EXPORTER-test", None, &mut later[0]).unwrap();
    take_early(&mut pair.server);
    assert_eq!(
        pair.client.export(b"EXPORTER-test", None, &mut [0; 32]),
        Err(Misuse::HandshakeNotComplete.into())
    );
    pair.connect().unwrap();
    pair.server.export(b"EXPORTER-test", None, &mut later[1]).unwrap();
    pair.client.export(b"EXPORTER-test", None, &mut later[2]).unwrap();
    assert!(later.iter().all(|l| *l == later[0]) && later[0] != ours);
}

#[test]
fn client_reports_why_it_offers_no_early_data() {
    let not_offered = |client: &Arc<ClientConfig>, site: &Site| {
        let mut pair = Pair::new(client, &site.server());
        assert!(pair.client.early_data().is_none());
        pair.connect().unwrap();
        match pair.client.negotiated().unwrap().early_data {
            EarlyDataOutcome::NotOffered(why) => why,
            other => panic!("{other:?}"),
        }
    };
    let site = Site::stateful();
    let off = ClientConfig::new(site.profile(true).build().unwrap()).with_sessions(site.store.clone());
    assert_eq!(not_offered(&Arc::new(off), &site), NoEarlyData::Disabled);
    // The session of that connection allows early data to a client that offers it.
    assert!(early_again(&site).client.early_data().is_some());

    let site = Site::stateful();
    let plain = Arc::new(site.plain_server(|p| p));
    site.first(&site.client(), &plain);
    assert_eq!(not_offered(&site.client(), &site), NoEarlyData::NotForSession);

    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let other = Arc::new(site.client_with(|p| p).with_early_data(EarlyDataProtocols::unnamed()));
    assert_eq!(not_offered(&other, &site), NoEarlyData::ApplicationProtocol);

    let site = Site::stateful();
    let both = |p: ProfileBuilder| p.alpn(vec![b"lamp".to_vec(), b"fan".to_vec()]);
    let server = Arc::new(site.server_with(both));
    site.first(&site.client(), &server);
    let fan = Arc::new(site.client_with(|p| p.alpn(vec![b"fan".to_vec()])));
    let mut pair = Pair::new(&fan, &server);
    assert!(pair.client.early_data().is_none());
    pair.connect().unwrap();

    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let other = Arc::new(site.client_with(|p| p.cipher_suites(vec![CHACHA20])));
    assert_eq!(not_offered(&other, &site), NoEarlyData::CipherSuite);
}

#[test]
fn early_data_works_without_alpn_if_both_sides_allow_it() {
    let site = Site::stateful();
    let unnamed = || EarlyDataProtocols::unnamed();
    let client = Arc::new(site.client_with(|p| p.alpn(vec![])).with_early_data(unnamed()));
    let server = site.plain_server(|p| p.alpn(vec![]));
    let server = Arc::new(server.with_early_data(unnamed(), 100).unwrap());
    site.first(&client, &server);
    let mut pair = early(&client, &server);
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    assert_eq!(pair.server.early_data().unwrap().alpn(), None);
    assert_eq!(take_early(&mut pair.server).unwrap(), REQUEST);
    pair.connect().unwrap();
}

#[test]
fn server_reports_why_it_refuses_early_data() {
    use NoEarlyData as N;
    type Edit = fn(&Site) -> ServerConfig;
    let cases: [(Edit, N, N); 7] = [
        (|site| site.plain_server(|p| p), N::Disabled, N::Declined),
        (
            |site| {
                let other = EarlyDataProtocols::named(vec![b"fan".to_vec()]).and_unnamed();
                site.plain_server(|p| p).with_early_data(other, 1).unwrap()
            },
            N::ApplicationProtocol,
            N::Declined,
        ),
        (
            |site| site.server_with(|p| p.alpn(vec![b"fan".to_vec(), b"lamp".to_vec()])),
            N::ApplicationProtocol,
            N::Declined,
        ),
        (|site| site.server_with(|p| p.alpn(vec![])), N::ApplicationProtocol, N::Declined),
        (|site| site.server_with(|p| p.cipher_suites(vec![CHACHA20])), N::CipherSuite, N::Declined),
        (
            |site| {
                let p256 = awslc().group(NamedGroup::SECP256R1).unwrap();
                site.server_with(|p| p.groups(vec![p256]))
            },
            N::Retry,
            N::Retry,
        ),
        (|site| site.server_with(|p| p).with_cookies(true), N::Retry, N::Retry),
    ];
    for (i, (edit, server_says, client_says)) in cases.into_iter().enumerate() {
        for site in Site::all() {
            println!("case {i}");
            let both = |p: ProfileBuilder| p.alpn(vec![b"lamp".to_vec(), b"fan".to_vec()]);
            let client = Arc::new(site.client_with(both));
            site.first(&client, &site.server());
            let mut pair = early(&client, &Arc::new(edit(&site)));
            assert_refused(&mut pair, server_says, client_says);
            assert!(pair.server.negotiated().unwrap().is_resumed());
        }
    }
}

#[test]
fn server_refuses_early_data_of_an_unknown_session() {
    for (site, other) in Site::all().into_iter().zip(Site::all()) {
        site.first(&site.client(), &site.server());
        let mut pair = early(&site.client(), &other.server());
        assert_refused(&mut pair, NoEarlyData::NotResumed, NoEarlyData::NotResumed);
    }
    // The same keys and store, but other settings.
    for site in Site::all() {
        site.first(&site.client(), &site.server());
        let stronger = Arc::new(site.server_with(|p| p.rank(1)));
        let mut pair = early(&site.client(), &stronger);
        assert_refused(&mut pair, NoEarlyData::NotResumed, NoEarlyData::NotResumed);
    }
}

#[test]
fn server_refuses_early_data_outside_the_age_window() {
    let window = i64::try_from(EARLY_DATA_WINDOW.as_millis()).unwrap();
    for (late, taken) in
        [(0, true), (window, true), (-window, true), (window + 1, false), (-window - 1, false)]
    {
        let site = Site::stateful();
        site.first(&site.client(), &site.server());
        let sent = Now::from_unix_ms(NOW.unix_ms + 600_000);
        let mut pair = Pair::at(&site.client(), &site.server(), sent);
        send_early(&mut pair.client);
        pair.now = Now::from_unix_ms(sent.unix_ms.checked_add_signed(late).unwrap());
        let flight = take(&mut pair.client);
        pair.server.receive(pair.now, &flight).unwrap();
        assert_eq!(take_early(&mut pair.server).is_some(), taken, "{late}");
        pair.connect().unwrap();
        let negotiated = pair.server.negotiated().unwrap();
        assert_eq!(negotiated.ticket_age_skew_ms, Some(-late));
        let refused = EarlyDataOutcome::Rejected(NoEarlyData::TicketAge);
        assert_eq!(negotiated.early_data, if taken { EarlyDataOutcome::Accepted } else { refused });
    }
}

/// RFC 8446 §8: a replay of the first flight, to another connection and to another server with the same
/// memory.
#[test]
fn server_refuses_a_replayed_first_flight() {
    for (site, why) in Site::all().into_iter().zip([NoEarlyData::NotResumed, NoEarlyData::NotSingleUse]) {
        let mut pair = site.early();
        let flight = take(&mut pair.client);
        pair.server.receive(NOW, &flight).unwrap();
        assert_eq!(take_early(&mut pair.server).unwrap(), REQUEST);
        for at in [NOW.unix_ms, NOW.unix_ms + 59_000, NOW.unix_ms + 61_000] {
            let mut again = TlsConnection::server(&site.server(), Now::from_unix_ms(at));
            again.receive(Now::from_unix_ms(at), &flight).unwrap();
            assert!(again.early_data().is_none() && again.received().is_empty());
            let event = std::iter::from_fn(|| again.poll_event()).find_map(|e| match e {
                Event::EarlyData(EarlyDataOutcome::Rejected(why)) => Some(why),
                _ => None,
            });
            // After the window the ticket is too old, so that the register need not remember it.
            let late = at > NOW.unix_ms + 60_000 && why == NoEarlyData::NotSingleUse;
            assert_eq!(event, Some(if late { NoEarlyData::TicketAge } else { why }));
        }
        pair.connect().unwrap();
    }
}

/// The key under which the client stores its tickets.
fn key(site: &Site) -> SessionKey {
    SessionKey {
        transport: TransportKind::Stream,
        name: "localhost".into(),
        port: localhost().port,
        settings: *site.client().session_settings().as_bytes(),
    }
}

#[test]
fn server_accepts_early_data_once_for_each_ticket() {
    let site = Site::stateless(MemoryUseOnce::with_new_keys(16));
    site.first(&site.client(), &site.server());
    let key = key(&site);
    let session = site.store.take(&key, NOW).unwrap();
    for taken in [true, false] {
        site.store.put(key.clone(), session.clone());
        let mut pair = early_again(&site);
        let flight = take(&mut pair.client);
        pair.server.receive(NOW, &flight).unwrap();
        assert_eq!(take_early(&mut pair.server).is_some(), taken);
        pair.connect().unwrap();
        while site.store.take(&key, NOW).is_some() {}
    }
}

/// A register that no connection may use.
#[derive(Debug)]
struct Untouched;

impl UseOnce for Untouched {
    fn first_use(&self, _: Now, _: &[u8; 32], _: u64) -> bool {
        panic!("the client offered no early data");
    }
}

/// The client offers no early data, or resumes after a HelloRetryRequest a session that allows none.
#[test]
fn resumption_without_early_data_leaves_the_register_alone() {
    for is_retried in [false, true] {
        let site = Site::stateless(Untouched);
        let client =
            || ClientConfig::new(site.profile(true).build().unwrap()).with_sessions(site.store.clone());
        let (issuer, client) = if is_retried {
            (Arc::new(site.plain_server(|p| p)), client().with_key_shares(vec![]).unwrap())
        } else {
            (site.server(), client())
        };
        let client = Arc::new(client);
        Pair::new(&client, &issuer).connect().unwrap();
        let mut pair = Pair::new(&client, &site.server());
        pair.connect().unwrap();
        let outcome = pair.server.negotiated().unwrap();
        assert!(outcome.is_resumed() && outcome.retried == is_retried);
    }
}

#[test]
fn server_refuses_early_data_with_stateless_tickets_and_no_register() {
    let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
    let site = Site::new(tickets);
    site.first(&site.client(), &site.server());
    let mut pair = Pair::new(&site.client(), &site.server());
    assert!(pair.client.early_data().is_none(), "the ticket allows no early data");
}

#[test]
fn full_or_new_register_refuses_early_data() {
    for register in [MemoryUseOnce::with_new_keys(0), MemoryUseOnce::new(16, NOW)] {
        let mut pair = Site::stateless(register).early();
        assert_refused(&mut pair, NoEarlyData::NotSingleUse, NoEarlyData::Declined);
    }
}

#[test]
fn server_asks_the_caller_about_the_first_use() {
    for (answer, taken) in
        [(Answer::FirstUse(true), true), (Answer::FirstUse(false), false), (Answer::Failed, false)]
    {
        let mut pair = Site::asked().early();
        let flight = take(&mut pair.client);
        pair.server.receive(NOW, &flight).unwrap();
        assert!(pair.server.early_data().is_none() && pair.server.transmit().is_empty());
        let Some(Event::Question(id, Question::FirstUse { until_ms, .. })) = pair.server.poll_event() else {
            panic!("no question")
        };
        assert_eq!(until_ms, NOW.unix_ms + 60_000);
        let wrong = pair.server.answer(NOW, id, Answer::Psk(None));
        assert_eq!(wrong, Err(Misuse::WrongAnswer.into()));
        pair.server.answer(NOW, id, answer).unwrap();
        assert_eq!(take_early(&mut pair.server), taken.then(|| REQUEST.to_vec()));
        pair.connect().unwrap();
        let outcome = pair.server.negotiated().unwrap().early_data;
        let refused = EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse);
        assert_eq!(outcome, if taken { EarlyDataOutcome::Accepted } else { refused });
    }
}

#[test]
fn client_sends_at_most_what_the_ticket_allows() {
    let site = Site::stateful();
    let server = site.plain_server(|p| p).with_early_data(lamps(), 20).unwrap();
    let server = Arc::new(server);
    site.first(&site.client(), &server);
    let mut pair = Pair::new(&site.client(), &server);
    let mut early = pair.client.early_data().unwrap();
    assert_eq!((early.room(), early.send(&[7; 15])), (Some(20), Ok(15)));
    assert_eq!((early.room(), early.send(&[8; 15])), (Some(5), Ok(5)));
    assert_eq!((early.room(), early.send(&[9; 15])), (Some(0), Ok(0)));
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    assert_eq!(take_early(&mut pair.server).unwrap(), [7; 15]);
    assert_eq!(take_early(&mut pair.server).unwrap(), [8; 5]);
    pair.connect().unwrap();

    let sizes = [(0, false), (1, true), (MAX_EARLY_DATA, true), (MAX_EARLY_DATA + 1, false)];
    for (size, possible) in sizes {
        let config = site.plain_server(|p| p).with_early_data(lamps(), size);
        assert_eq!(config.is_ok(), possible, "{size}");
    }
}

/// The maximum of early data in small writes fits in what a refusing server skips.
#[test]
fn server_can_refuse_the_maximum_of_early_data() {
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let mut pair = Pair::new(&site.client(), &Arc::new(site.plain_server(|p| p)));
    for chunk in [7; MAX_EARLY_DATA as usize].chunks(100) {
        assert_eq!(pair.client.early_data().unwrap().send(chunk), Ok(chunk.len()));
    }
    assert_refused(&mut pair, NoEarlyData::Disabled, NoEarlyData::Declined);
}

#[test]
fn client_verifies_the_server_again_before_it_sends_early_data() {
    use dunlin::auth::X509Trust;
    let ask = |p: ProfileBuilder| p.trust(Trust { x509: Some(X509Trust::Ask), raw_key: None });
    for believed in [true, false] {
        let site = Site::stateful();
        let client = Arc::new(site.client_with(ask).with_reverification(true));
        let mut pair = Pair::new(&client, &site.server());
        pair.run().unwrap();
        let (id, _) = pair.client_question().unwrap();
        pair.client.answer(NOW, id, Answer::Verified(Ok(dunlin::auth::Acceptance::once()))).unwrap();
        pair.connect().unwrap();

        let mut pair = Pair::new(&client, &site.server());
        assert!(pair.client.transmit().is_empty() && pair.client.early_data().is_none());
        pair.run().unwrap();
        let (id, question) = pair.client_question().unwrap();
        assert!(matches!(question, Question::Verify { .. }));
        if believed {
            pair.client.answer(NOW, id, Answer::Verified(Ok(dunlin::auth::Acceptance::once()))).unwrap();
            send_early(&mut pair.client);
            let flight = take(&mut pair.client);
            pair.server.receive(NOW, &flight).unwrap();
            assert_eq!(take_early(&mut pair.server).unwrap(), REQUEST);
            // The client asks only once.
            pair.connect().unwrap();
        } else {
            let why = AuthenticationFailure::Revoked;
            let result = pair.client.answer(NOW, id, Answer::Verified(Err(why.clone())));
            assert_eq!(result, Err(why.into()));
            assert!(pair.client.early_data().is_none());
        }
    }
}

#[test]
fn key_log_contains_the_early_secrets() {
    let site = Site::stateful();
    let mut pair = site.early();
    let flight = take(&mut pair.client);
    let [traffic, exporter] =
        ["CLIENT_EARLY_TRAFFIC_SECRET", "EARLY_EXPORTER_SECRET"].map(|l| site.secrets.get(l));
    assert!(traffic.len() == 32 && exporter.len() == 32 && traffic != exporter);
    let records = dunlin_tests::tamper::records(&flight);
    let keys = dunlin_tests::tamper::Keys::new(awslc().cipher_suites[0], &traffic);
    assert_eq!(keys.open(0, records.last().unwrap()), [REQUEST, &[23]].concat());
}
