//! No server accepts early data that another server has refused (RFC 8446 §8.2), and a ticket can expire
//! while a question is open.

use std::time::Duration;

use dunlin::PskSource;
use dunlin::auth::{Psk, PskTable, X509Trust};
use dunlin::error::PeerIncompatible;
use dunlin::wire::{ProtocolVersion, PskKeyExchangeMode, SignatureScheme};

use super::*;

/// The time `seconds` after the first connection.
fn at(seconds: u64) -> Now {
    Now::from_unix_ms(NOW.unix_ms + 1000 * seconds)
}

/// Returns the first flight of a client at this time, with a ticket of the first connection.
fn flight(site: &Site, now: Now) -> Vec<u8> {
    site.first(&site.client(), &site.server());
    let mut pair = Pair::at(&site.client(), &site.server(), now);
    send_early(&mut pair.client);
    take(&mut pair.client)
}

fn outcome(server: &mut TlsConnection) -> EarlyDataOutcome {
    let outcome = std::iter::from_fn(|| server.poll_event()).find_map(|event| match event {
        Event::EarlyData(outcome) => Some(outcome),
        _ => None,
    });
    outcome.expect("no event about early data")
}

/// Returns the outcome of early data on a new connection of this server.
fn given(server: ServerConfig, flight: &[u8], now: Now) -> EarlyDataOutcome {
    let mut server = TlsConnection::server(&Arc::new(server), now);
    server.receive(now, flight).unwrap();
    outcome(&mut server)
}

/// RFC 8446 §8.2, note: early data from a fast clock is refused now, and again when its time has come.
#[test]
fn early_data_from_a_fast_clock_is_refused_for_good() {
    use NoEarlyData as N;
    for (site, later) in Site::all().into_iter().zip([N::NotResumed, N::NotSingleUse]) {
        let flight = flight(&site, at(90));
        for (seconds, why) in [(0, N::TicketAge), (60, later), (150, later), (151, later)] {
            let why = if seconds > 150 && later == N::NotSingleUse { N::TicketAge } else { why };
            let outcome = given(site.server_with(|p| p), &flight, at(seconds));
            assert_eq!(outcome, EarlyDataOutcome::Rejected(why), "{seconds}");
        }
    }
}

/// Servers that share ticket keys may differ in suites and protocols.
#[test]
fn flight_refused_for_suite_or_protocol_is_refused_everywhere() {
    type Edit = fn(ProfileBuilder) -> ProfileBuilder;
    let cases: [(Edit, NoEarlyData); 4] = [
        (|p| p.alpn(vec![]), NoEarlyData::ApplicationProtocol),
        (|p| p.cipher_suites(vec![CHACHA20]), NoEarlyData::CipherSuite),
        (|p| p.name("other"), NoEarlyData::Profile),
        (|p| p.rank(-1), NoEarlyData::Profile),
    ];
    for (edit, why) in cases {
        let site = Site::stateless(MemoryUseOnce::with_new_keys(16));
        let flight = flight(&site, NOW);
        assert_eq!(given(site.server_with(edit), &flight, NOW), EarlyDataOutcome::Rejected(why));
        let again = given(site.server_with(|p| p), &flight, NOW);
        assert_eq!(again, EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse));
    }
}

/// RFC 8446 §8.2: after a server has refused early data for any reason, every server refuses a copy of the
/// flight.
#[test]
fn flight_refused_for_any_reason_is_refused_everywhere() {
    type Make = fn(&Site) -> ServerConfig;
    let refusing: [(&str, Make); 9] = [
        ("the server asks for a cookie", |site| site.server_with(|p| p).with_cookies(true)),
        ("the server asks for another group", |site| {
            site.server_with(|p| p.groups(vec![dunlin_awslc::SECP384R1]))
        }),
        ("early data is off", |site| site.plain_server(|p| p)),
        ("early data is off, and the server asks for a cookie", |site| {
            site.plain_server(|p| p).with_cookies(true)
        }),
        ("the sides share no application protocol", |site| {
            site.server_with(|p| p.alpn(vec![b"heater".to_vec()]))
        }),
        ("the trust settings have changed", |site| {
            site.server_with(|p| p.signature_schemes(vec![SignatureScheme::ED25519]))
        }),
        ("the profile has a higher rank", |site| site.server_with(|p| p.rank(5))),
        ("the profile has another name", |site| site.server_with(|p| p.name("other"))),
        ("the sides share no PSK mode", |site| {
            site.server_with(|p| p.psk_modes(vec![PskKeyExchangeMode::PSK_KE]))
        }),
    ];
    for (what, make) in refusing {
        for (site, why) in Site::all().into_iter().zip([NoEarlyData::NotResumed, NoEarlyData::NotSingleUse]) {
            let flight = flight(&site, NOW);
            let mut server = TlsConnection::server(&Arc::new(make(&site)), NOW);
            let _ = server.receive(NOW, &flight);
            assert!(server.early_data().is_none() && server.received().is_empty(), "{what}");
            let copy = given(site.server_with(|p| p), &flight, NOW);
            assert_eq!(copy, EarlyDataOutcome::Rejected(why), "{what}");
        }
    }
}

/// The server that sent the cookie keeps no state and does not know the keys of the tickets.
#[test]
fn second_client_hello_uses_up_the_ticket() {
    let site = Site::stateless(MemoryUseOnce::with_new_keys(16));
    let flight = {
        site.first(&site.client(), &site.server());
        let mut client = TlsConnection::client(&site.client(), localhost(), NOW).unwrap();
        send_early(&mut client);
        let flight = take(&mut client);
        let asks_for_cookie = site.plain_server(|p| p).with_cookies(true);
        let ignorant = asks_for_cookie.clone().with_tickets(Tickets::none());
        let mut server = TlsConnection::server(&Arc::new(ignorant), NOW);
        server.receive(NOW, &flight).unwrap();
        client.receive(NOW, &take(&mut server)).unwrap();
        let mut server = TlsConnection::server(&Arc::new(asks_for_cookie), NOW);
        server.receive(NOW, &take(&mut client)).unwrap();
        flight
    };
    let copy = given(site.server_with(|p| p), &flight, NOW);
    assert_eq!(copy, EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse));
}

#[test]
fn ticket_used_up_before_a_retry_still_resumes() {
    for site in Site::all() {
        site.first(&site.client(), &site.server());
        let mut pair = early(&site.client(), &Arc::new(site.server_with(|p| p).with_cookies(true)));
        assert_refused(&mut pair, NoEarlyData::Retry, NoEarlyData::Retry);
        let negotiated = pair.server.negotiated().unwrap();
        assert!(negotiated.is_resumed() && negotiated.retried);
    }
}

#[test]
fn server_without_early_data_asks_once_about_the_first_use() {
    let site = Site::asked();
    site.first(&site.client(), &site.server());
    let server = site.plain_server(|p| p).with_cookies(true);
    let mut pair = early(&site.client(), &Arc::new(server));
    pair.run().unwrap();
    let Some((id, Question::FirstUse { .. })) = pair.server_question() else { panic!("no question") };
    pair.server.answer(NOW, id, Answer::FirstUse(true)).unwrap();
    assert_refused(&mut pair, NoEarlyData::Disabled, NoEarlyData::Retry);
    assert!(pair.server.negotiated().unwrap().is_resumed());
}

/// A wrong binder must not use up another client's ticket.
#[test]
fn wrong_binder_uses_up_no_ticket() {
    for site in Site::all() {
        let flight = flight(&site, NOW);
        let hello = dunlin_tests::tamper::records(&flight)[0].len();
        let mut wrong = flight.clone();
        // The binder ends the ClientHello.
        wrong[hello - 1] ^= 1;
        for server in [site.server_with(|p| p), site.server_with(|p| p).with_cookies(true)] {
            let _ = TlsConnection::server(&Arc::new(server), NOW).receive(NOW, &wrong);
        }
        assert_eq!(given(site.server_with(|p| p), &flight, NOW), EarlyDataOutcome::Accepted);
    }
}

/// The register must remember a ticket while the flight can be fresh, at most for the ticket's lifetime.
#[test]
fn question_states_how_long_to_remember_the_ticket() {
    let live = |seconds| Tickets::lifetime(Site::asked().tickets, Duration::from_secs(seconds));
    for (fast, lifetime, until) in [(0, 3600, 60), (30, 3600, 90), (90, 3600, 150), (90, 100, 100)] {
        let site = Site::new(live(lifetime));
        let flight = flight(&site, at(fast));
        let mut server = TlsConnection::server(&site.server(), NOW);
        server.receive(NOW, &flight).unwrap();
        let Some(Event::Question(_, Question::FirstUse { until_ms, .. })) = server.poll_event() else {
            panic!("no question")
        };
        assert_eq!(until_ms, at(until).unix_ms, "{fast}");
    }
    let site = Site::asked();
    let flight = flight(&site, NOW);
    let mut server = TlsConnection::server(&site.server(), at(30));
    server.receive(at(30), &flight).unwrap();
    let Some(Event::Question(_, Question::FirstUse { until_ms, .. })) = server.poll_event() else {
        panic!("no question")
    };
    assert_eq!(until_ms, at(90).unix_ms, "late");
}

#[test]
fn server_refuses_early_data_if_the_answer_comes_too_late() {
    for (seconds, taken) in [(60, true), (61, false)] {
        let site = Site::asked();
        let flight = flight(&site, NOW);
        let mut server = TlsConnection::server(&site.server(), NOW);
        server.receive(NOW, &flight).unwrap();
        let Some(Event::Question(id, _)) = server.poll_event() else { panic!("no question") };
        server.answer(at(seconds), id, Answer::FirstUse(true)).unwrap();
        let refused = EarlyDataOutcome::Rejected(NoEarlyData::TicketAge);
        assert_eq!(outcome(&mut server), if taken { EarlyDataOutcome::Accepted } else { refused });
        assert_eq!(server.early_data().is_some(), taken);
    }
}

/// RFC 8446 §4.6.1: the client uses no ticket after its lifetime, even if the server was verified in time.
#[test]
fn client_does_not_resume_a_session_that_expired_during_verification() {
    let ask = |p: ProfileBuilder| p.trust(Trust { x509: Some(X509Trust::Ask), raw_key: None });
    let live = |tickets| Tickets::lifetime(tickets, Duration::from_secs(100));
    let site = Site::stateful();
    let site = Site { tickets: live(site.tickets.clone()), ..site };
    let client = Arc::new(site.client_with(ask).with_reverification(true));
    let believe = |pair: &mut Pair| {
        pair.run().unwrap();
        let (id, _) = pair.client_question().unwrap();
        pair.client.answer(pair.now, id, Answer::Verified(Ok(dunlin::auth::Acceptance::once()))).unwrap();
    };
    for (seconds, offers) in [(99, true), (100, false)] {
        let mut pair = Pair::new(&client, &site.server());
        believe(&mut pair);
        pair.connect().unwrap();
        let mut pair = Pair::new(&client, &site.server());
        pair.now = at(seconds);
        believe(&mut pair);
        assert_eq!(pair.client.early_data().is_some(), offers);
        if !offers {
            believe(&mut pair);
        }
        pair.connect().unwrap();
        let negotiated = pair.client.negotiated().unwrap();
        assert_eq!(negotiated.is_resumed(), offers);
        let none = EarlyDataOutcome::NotOffered(NoEarlyData::NoSession);
        assert_eq!(negotiated.early_data == none, !offers);
        while site.store.take(&key(&site), at(seconds)).is_some() {}
    }
}

/// Server and client look up the PSK of a session again before they use early data.
#[test]
fn early_data_is_refused_after_the_psk_is_removed_or_replaced() {
    let psk = |byte| Psk::new("d1", &[byte; 32]).unwrap();
    for now_known in [None, Some(2)] {
        for site in Site::all() {
            let client = |psks| Arc::new(site.client_with(|p| p).with_psks(psks));
            let server = |psk: Option<Psk>| {
                let table = PskSource::Here(Arc::new(PskTable::from_iter(psk)));
                Arc::new(site.server_with(|p| p).with_psks(table))
            };
            let known = client(vec![Arc::new(psk(1))]);
            site.first(&known, &server(Some(psk(1))));
            let mut pair = early(&known, &server(Some(psk(1))));
            pair.run().unwrap();
            assert_eq!(take_early(&mut pair.server).unwrap(), REQUEST);
            pair.connect().unwrap();

            let mut pair = early(&known, &server(now_known.map(psk)));
            let replaced = now_known.is_some();
            assert_eq!(pair.run().is_err(), replaced, "the new PSK has another key");
            assert!(pair.server.early_data().is_none() && pair.server.received().is_empty());
            if !replaced {
                let refused = EarlyDataOutcome::Rejected(NoEarlyData::NotResumed);
                assert_eq!(pair.server.negotiated().unwrap().early_data, refused);
            }

            while site.store.take(&key(&site), NOW).is_some() {}
            site.first(&known, &server(Some(psk(1))));
            let mut pair =
                Pair::new(&client(now_known.map(psk).map(Arc::new).into_iter().collect()), &server(None));
            assert!(pair.client.early_data().is_none(), "the client no longer has the PSK");
        }
    }
}

/// RFC 8446 §D.3: a server that now supports only TLS 1.2 cannot read early data.
#[test]
fn client_rejects_a_downgrade_to_tls12_after_early_data() {
    use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
    let site = Site::stateful();
    let client = || Arc::new(site.client_with(|p| p.tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())));
    site.first(&client(), &site.server());
    let old = |p: ProfileBuilder| p.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec());
    let mut pair = Pair::new(&client(), &Arc::new(site.plain_server(old)));
    send_early(&mut pair.client);
    // The server answers the ClientHello alone.
    let flight = take(&mut pair.client);
    let hello = &dunlin_tests::tamper::records(&flight)[0];
    pair.server.receive(NOW, hello).unwrap();
    let answer = take(&mut pair.server);
    let result = pair.client.receive(NOW, &answer).map(drop);
    assert_eq!(result, Err(PeerIncompatible::Version(Some(ProtocolVersion::TLS1_2)).into()));
    assert_eq!(outcome(&mut pair.client), EarlyDataOutcome::Rejected(NoEarlyData::Declined));
    assert!(pair.client.early_data().is_none());
}
