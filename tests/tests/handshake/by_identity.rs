//! Renegotiation in TLS 1.2 to the profile of the identity that the first handshake has proven.

use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::error::{AuthenticationFailure, Misuse, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription, Field, SignatureScheme};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Error, Event, ProfileBuilder, Question, ServerConfig, ServerProfiles,
    Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_tests::ends::{self, with_sessions};
use dunlin_tests::tamper::records;
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, carry};

/// Two authorities, with leaves for both roles.
fn pkis() -> [&'static Pki; 2] {
    [Pki::shared(KeyType::P256), Pki::shared(KeyType::P384)]
}

/// A profile of TLS 1.2 that trusts both authorities.
fn builder(own: &[&Leaf]) -> ProfileBuilder {
    let roots = pkis().map(|pki| pki.root.clone());
    let trust = Trust { x509: Some(X509Trust::anchors(roots).unwrap()), raw_key: None };
    dunlin::Profile::builder(awslc())
        .cipher_suites(vec![])
        .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        .trust(trust)
        .credentials(own.iter().map(|leaf| leaf.x509(&awslc())).collect())
}

fn server(name: &str, rank: i32, edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ServerConfig {
    let profile = edit(builder(&[&pkis()[0].server]).name(name).rank(rank)).build().unwrap();
    ServerConfig::new(profile).unwrap().with_client_auth(ClientAuth::Required).unwrap()
}

/// The profiles "low", "middle" and "high" with the ranks 1, 2 and 3. "middle" is the default.
fn profiles(tickets: &Tickets) -> ServerProfiles {
    let of = |name, rank| server(name, rank, |profile| profile).with_tickets(tickets.clone());
    ServerProfiles::new(of("middle", 2), vec![of("low", 1), of("high", 3)], 1).unwrap()
}

fn client(edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ClientConfig {
    ClientConfig::new(edit(builder(&[&pkis()[0].client]).renegotiation(true)).build().unwrap())
}

/// Answers the server's questions until it has none. The profile of the ClientHello is `hinted`, and the
/// identity's profile is `proven`.
fn answer(pair: &mut Pair, profiles: &ServerProfiles, hinted: &str, proven: &str) -> Result<(), Error> {
    loop {
        pair.run()?;
        let Some((id, question)) = pair.server_question() else { return Ok(()) };
        let name = match question {
            Question::ChooseProfile(_) => hinted,
            Question::ProfileOf(_) => proven,
            _ => panic!("an unexpected question"),
        };
        let answered = pair.server.answer(NOW, id, Answer::Profile(profiles.get(name).cloned()));
        if answered.is_err() {
            pair.run().unwrap_err();
            return answered;
        }
    }
}

fn connect(
    client: &Arc<ClientConfig>,
    profiles: &ServerProfiles,
    hinted: &str,
    proven: &str,
) -> (Pair, Result<(), Error>) {
    let mut pair = Pair::new(client, profiles.server());
    let result = answer(&mut pair, profiles, hinted, proven);
    (pair, result)
}

/// How often the server has reported that it is connected, and a renegotiation complete or refused.
fn counts(pair: &Pair) -> [usize; 3] {
    let count = |is_it: fn(&Event) -> bool| pair.server_events.iter().filter(|event| is_it(event)).count();
    [
        count(|event| matches!(event, Event::Connected)),
        count(|event| matches!(event, Event::Renegotiated)),
        count(|event| matches!(event, Event::RenegotiationRefused)),
    ]
}

fn name_in_use(pair: &Pair) -> &str {
    &pair.server.negotiated().unwrap().profile
}

fn denied(pair: &Pair) {
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::ACCESS_DENIED)));
}

#[test]
fn a_connection_goes_once_up_or_down_to_the_profile_of_the_client() {
    const NAMES: [&str; 3] = ["low", "middle", "high"];
    for tickets in ends::tickets() {
        for (used, hinted) in NAMES.into_iter().enumerate() {
            for (needed, proven) in NAMES.into_iter().enumerate() {
                let profiles = profiles(&tickets);
                let client = Arc::new(client(|profile| profile).with_sessions(with_sessions()));
                let (mut pair, result) = connect(&client, &profiles, hinted, proven);
                result.unwrap();
                assert_eq!(name_in_use(&pair), proven);
                let peer = pair.server.negotiated().unwrap().peer.as_ref().unwrap().to_string();
                assert_eq!(peer, "X.509 device-1");
                // Below the client's profile, the connection begins only with the second handshake.
                assert_eq!(counts(&pair), [1, usize::from(used > needed), 0]);
                pair.echo(b"hello").unwrap();
                // Neither side can begin another renegotiation.
                let closed = Err(Misuse::NotSupported(Field::Renegotiation).into());
                assert_eq!(pair.server.renegotiate(NOW), closed);
                pair.client.renegotiate(NOW).unwrap();
                pair.run().unwrap();
                assert!(pair.client_events.iter().any(|e| matches!(e, Event::RenegotiationRefused)));
                pair.echo(b"hello").unwrap();
                // The first session serves the client's profile if it is strong enough. This engine's clients
                // keep no session of a renegotiation (those of OpenSSL do, see `peers/by_identity`).
                let (pair, result) = connect(&client, &profiles, proven, proven);
                result.unwrap();
                assert_eq!(pair.server.negotiated().unwrap().is_resumed(), used >= needed);
                // A resumption never renegotiates.
                assert_eq!((name_in_use(&pair), counts(&pair)), (proven, [1, 0, 0]));
                if let Some(above) = NAMES.get(needed + 1).filter(|_| used <= needed) {
                    let (pair, result) = connect(&client, &profiles, above, above);
                    result.unwrap();
                    assert!(!pair.server.negotiated().unwrap().is_resumed());
                }
            }
        }
    }
}

#[test]
fn a_client_that_refuses_stays_where_it_is_strong_enough() {
    for (hinted, proven, is_strong) in [("high", "low", true), ("low", "high", false)] {
        let client = Arc::new(client(|profile| profile.renegotiation(false)));
        let (mut pair, result) = connect(&client, &profiles(&Tickets::none()), hinted, proven);
        if is_strong {
            result.unwrap();
            assert_eq!((name_in_use(&pair), counts(&pair)), (hinted, [1, 0, 1]));
            pair.echo(b"hello").unwrap();
            assert!(pair.server.renegotiate(NOW).is_err());
        } else {
            assert_eq!(result, Err(PeerIncompatible::Rank.into()));
            assert!(pair.server.negotiated().is_none());
            denied(&pair);
        }
    }
}

/// The client's data crosses the server's HelloRequest.
#[test]
fn data_is_read_only_under_a_profile_that_is_strong_enough() {
    for (hinted, proven, is_strong) in [("high", "low", true), ("low", "high", false)] {
        let profiles = profiles(&Tickets::none());
        let mut pair = Pair::new(&Arc::new(client(|profile| profile)), profiles.server());
        let questions = [hinted, proven];
        for name in questions {
            pair.run().unwrap();
            let (id, _) = pair.server_question().unwrap();
            pair.server.answer(NOW, id, Answer::Profile(profiles.get(name).cloned())).unwrap();
        }
        assert_eq!(pair.server.is_handshaking(), !is_strong);
        assert_eq!(pair.server.negotiated().is_some(), is_strong);
        assert_eq!(pair.server.send(b"data").is_ok(), is_strong);
        let output = pair.server.transmit().to_vec();
        pair.server.transmitted(output.len());
        let mut last = records(&output);
        let request = last.split_off(2);
        for record in last {
            pair.client.receive(NOW, &record).unwrap();
        }
        pair.client.send(b"early").unwrap();
        let (_, result) = carry(&mut pair.client, &mut pair.server, NOW);
        if is_strong {
            result.unwrap();
            assert_eq!(pair.server.received(), b"early");
            pair.server.consume(NOW, 5).unwrap();
            for record in request {
                pair.client.receive(NOW, &record).unwrap();
            }
            let n = pair.client.received().len();
            pair.client.consume(NOW, n).unwrap();
            pair.run().unwrap();
            assert_eq!(name_in_use(&pair), proven);
            pair.echo(b"hello").unwrap();
        } else {
            assert_eq!(result, Err(PeerIncompatible::DataBeforeRenegotiation.into()));
            assert!(pair.server.received().is_empty());
            for record in request {
                pair.client.receive(NOW, &record).unwrap();
            }
            carry(&mut pair.server, &mut pair.client, NOW).1.unwrap_err();
            denied(&pair);
        }
    }
}

/// The two profiles verify different signature schemes, so the client chooses another certificate, or finds
/// none.
#[test]
fn the_second_handshake_demands_the_same_certificate() {
    let other: PeerMisbehaved = PeerMisbehaved::IllegalParameter(Field::OtherIdentity);
    for (has_both, error) in
        [(true, Error::from(other)), (false, AuthenticationFailure::NoCertificate.into())]
    {
        for (hinted, proven) in [("high", "low"), ("low", "high")] {
            let scheme = |name: &str| {
                if name == hinted {
                    vec![SignatureScheme::ECDSA_SECP256R1_SHA256]
                } else {
                    vec![SignatureScheme::ECDSA_SECP384R1_SHA384]
                }
            };
            let chains =
                || vec![SignatureScheme::ECDSA_SECP256R1_SHA256, SignatureScheme::ECDSA_SECP384R1_SHA384];
            let of = |name: &str, rank| {
                let edit = |profile: ProfileBuilder| {
                    profile.signature_schemes(scheme(name)).certificate_signature_schemes(Some(chains()))
                };
                server(name, rank, edit)
            };
            let profiles = ServerProfiles::new(of("high", 3), vec![of("low", 1)], 1).unwrap();
            let mut own = vec![&pkis()[0].client];
            own.extend(has_both.then_some(&pkis()[1].client));
            let own: Vec<_> = own.iter().map(|leaf| leaf.x509(&awslc())).collect();
            let client = Arc::new(client(|profile| profile.credentials(own)));
            let (pair, result) = connect(&client, &profiles, hinted, proven);
            assert_eq!(result, Err(error.clone()), "{hinted} {proven}");
            assert_eq!(counts(&pair)[1], 0);
        }
    }
}

/// This engine's clients end a connection whose server changes its certificate, as BoringSSL's do.
#[test]
fn the_server_shows_its_first_certificate_again_unless_the_profile_changes_it() {
    for changes in [false, true] {
        let other = server("low", 1, |profile| profile.credentials(vec![pkis()[1].server.x509(&awslc())]));
        let other = other.with_certificate_change(changes);
        let profiles = ServerProfiles::new(server("high", 3, |profile| profile), vec![other], 1).unwrap();
        let (mut pair, result) = connect(&Arc::new(client(|profile| profile)), &profiles, "high", "low");
        if changes {
            let illegal = PeerMisbehaved::IllegalParameter(Field::OtherIdentity);
            assert_eq!(pair.client.error(), Some(&illegal.into()));
        } else {
            result.unwrap();
            assert_eq!(name_in_use(&pair), "low");
            let signed = pair.server.negotiated().unwrap().own_signature;
            assert_eq!(signed, Some(SignatureScheme::ECDSA_SECP256R1_SHA256));
            pair.echo(b"hello").unwrap();
        }
    }
}

/// RFC 9113 §9.2.1.
#[test]
fn http2_is_not_renegotiated() {
    for (alpn, is_renegotiated) in [("http/1.1", true), ("h2", false)] {
        for (hinted, proven) in [("high", "low"), ("low", "high")] {
            let alpn = |profile: ProfileBuilder| profile.alpn(vec![alpn.into()]);
            let profiles =
                ServerProfiles::new(server("high", 3, alpn), vec![server("low", 1, alpn)], 1).unwrap();
            let (pair, result) = connect(&Arc::new(client(alpn)), &profiles, hinted, proven);
            match (is_renegotiated, hinted) {
                (true, _) => assert_eq!((result, name_in_use(&pair)), (Ok(()), proven)),
                (false, "high") => assert_eq!((result, counts(&pair)), (Ok(()), [1, 0, 0])),
                (false, _) => assert_eq!(result, Err(PeerIncompatible::Rank.into())),
            }
        }
    }
}
