//! The mark of a ticket belongs to the server: whatever profile the caller chooses for a client, and even if
//! it chooses none, no server accepts a copy of the refused early data (RFC 8446 §8.2).

use dunlin::ServerProfiles;
use dunlin::wire::SignatureScheme;

use super::*;

/// Sets another trust than that of [`Site::server`].
fn other_trust(profile: ProfileBuilder) -> ProfileBuilder {
    profile.signature_schemes(vec![SignatureScheme::ECDSA_SECP256R1_SHA256, SignatureScheme::ED25519])
}

/// All kinds of tickets, with the outcome of a copy of a first flight.
fn sites() -> [(Site, NoEarlyData); 2] {
    let [stateful, stateless] = Site::all();
    [(stateful, NoEarlyData::NotResumed), (stateless, NoEarlyData::NotSingleUse)]
}

/// The first flight of a client with a ticket of `issuer`.
fn flight(site: &Site, issuer: &Arc<ServerConfig>) -> Vec<u8> {
    site.first(&site.client(), issuer);
    let mut client = TlsConnection::client(&site.client(), localhost(), NOW).unwrap();
    send_early(&mut client);
    take(&mut client)
}

/// Gives the flight to a connection of `server`, and answers its choice of a profile. Returns the outcome of
/// the early data, and the data that the connection delivers early.
fn give(
    server: &Arc<ServerConfig>,
    flight: &[u8],
    answer: Option<Arc<ServerConfig>>,
) -> (Option<EarlyDataOutcome>, Option<Vec<u8>>) {
    let mut server = TlsConnection::server(server, NOW);
    let _ = server.receive(NOW, flight);
    let mut outcome = None;
    while let Some(event) = server.poll_event() {
        match event {
            Event::Question(id, Question::ChooseProfile(_) | Question::ProfileOf(_)) => {
                let _ = server.answer(NOW, id, Answer::Profile(answer.clone()));
            }
            Event::EarlyData(told) => outcome = Some(told),
            _ => {}
        }
    }
    assert!(server.received().is_empty(), "early data was delivered as ordinary data");
    (outcome, take_early(&mut server))
}

/// The server refuses the flight in this way once, and then every copy of it. It would have accepted the
/// flight.
fn assert_marks(what: &str, refuse: impl Fn(&Site, &[u8])) {
    for (site, why) in sites() {
        let accepting = site.server();
        let copy = flight(&site, &accepting);
        assert_eq!(give(&accepting, &copy, None).1.as_deref(), Some(REQUEST), "{what}");
        let flight = flight(&site, &accepting);
        refuse(&site, &flight);
        let again = give(&accepting, &flight, None);
        assert_eq!(again, (Some(EarlyDataOutcome::Rejected(why)), None), "{what}");
    }
}

#[test]
fn profile_of_another_trust_marks_the_ticket() {
    assert_marks("another trust", |site, flight| {
        let other = Arc::new(site.server_with(other_trust));
        assert_eq!(give(&other, flight, None).1, None);
    });
    assert_marks("a profile of another trust", |site, flight| {
        let named = |name: &'static str| site.server_with(move |p| other_trust(p).name(name));
        let profiles = ServerProfiles::new(site.server_with(|p| p), vec![named("other")], 0).unwrap();
        let other = profiles.get("other").cloned();
        assert_eq!(give(profiles.server(), flight, other).1, None);
    });
}

#[test]
fn ticket_of_another_profile_is_marked_by_the_default() {
    for (site, why) in sites() {
        let named = |name: &'static str| site.server_with(move |p| other_trust(p).name(name));
        let profiles = ServerProfiles::new(site.server_with(|p| p), vec![named("other")], 0).unwrap();
        let issuer = Arc::new(named("other"));
        let flight = flight(&site, &issuer);
        assert_eq!(give(profiles.server(), &flight, Some(profiles.server().clone())).1, None);
        let again = give(profiles.server(), &flight, profiles.get("other").cloned());
        assert_eq!(again, (Some(EarlyDataOutcome::Rejected(why)), None));
    }
}

/// The provider of the default profile has fewer suites than that of another one, which has issued the
/// ticket.
#[test]
fn ticket_with_a_suite_of_another_provider_is_marked_by_the_default() {
    for (site, why) in sites() {
        let few = CryptoProvider {
            cipher_suites: vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256],
            ..CryptoProvider::clone(&awslc())
        };
        let default = || site.plain_server_of(site.profile_by(Arc::new(few.clone()), false));
        let issuer =
            Arc::new(site.server_with(|p| other_trust(p).name("other").cipher_suites(vec![CHACHA20])));
        let others = || vec![ServerConfig::clone(&issuer)];
        let profiles = ServerProfiles::new(default(), others(), 0).unwrap();
        let replacing = Arc::new(default().with_marks_of(&issuer));
        let asking = Arc::new(default().with_profile_choice(true));
        let member = profiles.server();
        for (refusing, answer) in [(member, member), (&replacing, member), (&asking, &issuer)] {
            let flight = flight(&site, &issuer);
            assert_eq!(give(refusing, &flight, Some(answer.clone())).1, None);
            assert_eq!(give(&issuer, &flight, None), (Some(EarlyDataOutcome::Rejected(why)), None));
        }
        // Without a refusal, the server takes the data.
        assert_eq!(give(&issuer, &flight(&site, &issuer), None).1.as_deref(), Some(REQUEST));
    }
}

#[test]
fn refusal_of_the_client_marks_the_ticket() {
    assert_marks("the caller refuses the client", |site, flight| {
        let asking = Arc::new(site.server_with(|p| p).with_profile_choice(true));
        assert_eq!(give(&asking, flight, None), (None, None));
    });
    assert_marks("a configuration that only chooses", |site, flight| {
        let profile = site.profile(false).build().unwrap();
        let choosing = ServerConfig::choosing(profile).unwrap().with_tickets(site.tickets.clone());
        assert_eq!(give(&Arc::new(choosing), flight, None), (None, None));
    });
}

#[test]
fn chosen_configuration_without_tickets_marks_the_ticket() {
    assert_marks("the chosen configuration has no tickets", |site, flight| {
        let asking = Arc::new(site.server_with(|p| p).with_profile_choice(true));
        let without = Arc::new(site.server_with(|p| p).with_tickets(Tickets::none()));
        assert_eq!(give(&asking, flight, Some(without)).1, None);
    });
    assert_marks("the tickets belong to another profile", |site, flight| {
        let default = site.server_with(|p| p.name("without tickets")).with_tickets(Tickets::none());
        let profiles = ServerProfiles::new(default, vec![site.server_with(|p| p)], 0).unwrap();
        let chosen = Some(profiles.server().clone());
        assert_eq!(give(profiles.server(), flight, chosen).1, None);
    });
}

/// The version of the chosen configuration does not matter either.
#[test]
fn configuration_without_tls13_marks_the_ticket() {
    assert_marks("TLS 1.2 alone", |site, flight| {
        let old = |p: ProfileBuilder| {
            p.cipher_suites(vec![]).tls12_cipher_suites(dunlin_awslc::tls12::TLS12_CIPHER_SUITES.to_vec())
        };
        assert_eq!(give(&Arc::new(site.plain_server(old)), flight, None).1, None);
    });
}

/// A reload changes the trust while a connection of the previous configuration still waits for its
/// ClientHello.
#[test]
fn reload_between_a_flight_and_its_copy_changes_nothing() {
    for (site, why) in sites() {
        for is_reverse in [false, true] {
            let before = site.server();
            let after = Arc::new(site.server_with(other_trust));
            let (issuer, refusing) = if is_reverse { (&after, &before) } else { (&before, &after) };
            let mut early = TlsConnection::server(issuer, NOW);
            let flight = flight(&site, issuer);
            assert_eq!(give(refusing, &flight, None).1, None);
            let _ = early.receive(NOW, &flight);
            assert_eq!(take_early(&mut early), None, "{why:?}");
        }
    }
}

/// Only one of many settings fits, and the keys remember all of them.
#[test]
fn ticket_of_the_first_of_many_settings_is_marked() {
    let site = Site::stateless(MemoryUseOnce::with_new_keys(16));
    let server = |rounds: usize| {
        let sizes = vec![SignatureScheme::ECDSA_SECP256R1_SHA256; rounds + 1];
        Arc::new(site.server_with(|p| p.signature_schemes(sizes)))
    };
    let issuer = server(0);
    let flight = flight(&site, &issuer);
    for rounds in 1..80 {
        let store = Arc::new(MemoryClientSessions::new(8, 8));
        let client = Arc::new(site.client_with(|p| p).with_sessions(store));
        site.first(&client, &server(rounds));
    }
    assert_eq!(give(&server(80), &flight, None).1, None);
    let again = give(&issuer, &flight, None);
    assert_eq!(again, (Some(EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse)), None));
}

/// If the caller answers with tickets that the asking configuration does not know, a refusal could not have
/// marked them.
#[test]
fn early_data_needs_tickets_that_the_asking_configuration_knows() {
    for (site, why) in sites() {
        let profile = || site.profile(false).build().unwrap();
        let asking = || ServerConfig::choosing(profile()).unwrap();
        let answer = site.server();
        for (asking, is_known) in [
            (asking(), false),
            (asking().with_tickets(site.tickets.clone()), true),
            (asking().with_marks_of(&answer), true),
        ] {
            let asking = Arc::new(asking);
            let flight = flight(&site, &answer);
            let (outcome, data) = give(&asking, &flight, Some(answer.clone()));
            let expected = if is_known {
                (EarlyDataOutcome::Accepted, Some(REQUEST.to_vec()))
            } else {
                (EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse), None)
            };
            assert_eq!((outcome.unwrap(), data), expected);
            let copy = give(&answer, &flight, None);
            assert_eq!(copy, (Some(EarlyDataOutcome::Rejected(why)), None));
        }
    }
}

/// Keys without a register issue no tickets for early data, and a server with such keys accepts none.
#[test]
fn keys_without_a_register_have_no_early_data() {
    let bare = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
    let site = Site::new(bare);
    site.first(&site.client(), &site.server());
    let mut pair = Pair::new(&site.client(), &site.server());
    assert!(pair.client.early_data().is_none(), "the ticket allows no early data");
    pair.connect().unwrap();
    assert!(pair.server.negotiated().unwrap().is_resumed());
}
