//! The rules of docs/handshake-cache.md §5.

use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::{Acceptance, PeerIdentity, Psk, PskTable, RawKeyTrust, X509Trust};
use dunlin::cache::{CacheMode, CacheOutcome, DEFAULT_MAX_AGE, Known, ServerCache};
use dunlin::error::{AuthenticationFailure, PeerMisbehaved};
use dunlin::pki_types::ServerName;
use dunlin::wire::{HandshakeType, SignatureScheme};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Error, Now, Profile, ProfileBuilder, PskSource, Question,
    ServerAddress, ServerConfig, TlsConnection, Trust,
};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::tamper::{Secrets, extension, rewrite};
use dunlin_tests::{ForeignKey, KeyType, NOW, Pair, Pki, awslc, carry};

use crate::tickets::shown;
use crate::{Ends, cached, connect, lengths, of_version, setups};

#[test]
fn second_handshake_omits_the_certificates() {
    for setup in setups() {
        for typ in [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519] {
            let client = setup.client(setup.profile(typ, true));
            let (server, store) = setup.server(setup.profile(typ, false), ClientAuth::Required);
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
                // The abbreviated Certificate has 9 bytes in a TLS 1.2 record; the server's may also hold its
                // fingerprint.
                let client = if setup.is_tls12() { 4 } else { 13 };
                let server = match (setup.is_tls12(), setup.mode) {
                    (true, CacheMode::Bithac) => 4 + 33,
                    _ => client,
                };
                assert_eq!(lengths(&pair, HandshakeType::CERTIFICATE), [server, client]);
                assert_eq!(names(&pair), names(&first));
                assert_eq!(store.len(), 1);
            }
        }
    }
}

#[test]
fn second_handshake_omits_raw_keys() {
    for setup in setups() {
        let pki = Pki::shared(KeyType::P256);
        let raw = |is_client: bool| {
            let (own, peer) = if is_client { (&pki.client, &pki.server) } else { (&pki.server, &pki.client) };
            let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![peer.public_key.clone()])) };
            let profile = Profile::builder(awslc()).trust(trust).credentials(vec![own.raw_key(&awslc())]);
            of_version(setup.version, profile)
        };
        let (client, (server, _)) = (setup.client(raw(true)), setup.server(raw(false), ClientAuth::Required));
        assert_eq!(connect(&client, &server).1, [false; 2]);
        assert_eq!(connect(&client, &server).1, [true; 2]);
    }
}

#[test]
fn server_without_client_authentication_caches_no_client() {
    for setup in setups() {
        let client = setup.client(setup.profile(KeyType::P256, true));
        let (server, store) = setup.server(setup.profile(KeyType::P256, false), ClientAuth::None);
        assert_eq!(connect(&client, &server).1, [false; 2]);
        assert_eq!(connect(&client, &server).1, [true, false]);
        assert!(store.is_empty());
    }
}

/// Rule 3: a side sends in full what the peer does not have, without another round trip.
#[test]
fn either_side_may_lose_its_cache() {
    for setup in setups() {
        let one = setup.client(setup.profile(KeyType::P256, true));
        let other = setup.client(setup.profile(KeyType::P256, true));
        let (server_one, _) = setup.server(setup.profile(KeyType::P256, false), ClientAuth::Required);
        let (server_other, _) = setup.server(setup.profile(KeyType::P256, false), ClientAuth::Required);
        connect(&one, &server_one);
        // A new client meets a server that has cached another client with the same certificate.
        assert_eq!(connect(&other, &server_one).1, [false; 2]);
        // A client that has cached the server meets a server with an empty cache.
        assert_eq!(connect(&one, &server_other).1, [true, false]);
        assert_eq!(connect(&one, &server_other).1, [true; 2]);
    }
}

/// Rule 1: use does not renew an entry. Rule 2: an entry from the future is not used, as after a clock was
/// set back.
#[test]
fn entry_ages_from_the_last_full_verification() {
    for setup in setups() {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let clients = Arc::new(MemoryClientCache::default());
        let servers = Arc::new(MemoryServerCache::new(4));
        let ends = |client_age, server_age| {
            let client = ClientConfig::new(setup.profile(KeyType::P256, true).build().unwrap());
            let client = client.with_handshake_cache(setup.mode, clients.clone(), client_age);
            let server = ServerConfig::new(setup.profile(KeyType::P256, false).build().unwrap()).unwrap();
            let server = server.with_handshake_cache(setup.mode, servers.clone(), server_age).unwrap();
            (Arc::new(client), Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
        };
        let at = |(client, server): &Ends, days: u32| {
            let mut pair =
                Pair::at(client, server, Now::from_unix_ms(NOW.unix_ms + (DAY * days).as_millis() as u64));
            pair.connect().unwrap();
            [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().is_peer_cached())
        };
        let both = ends(3 * DAY, 3 * DAY);
        for (day, cached) in [(0, false), (1, true), (2, true), (3, false), (4, true), (5, true), (6, false)]
        {
            assert_eq!(at(&both, day), [cached; 2], "day {day}");
        }
        assert_eq!(at(&both, 1), [false; 2]);
        assert_eq!(at(&both, 2), [true; 2]);
        // Only the server has the shorter maximum age.
        assert_eq!(at(&ends(3 * DAY, DAY), 3), [true, false]);
    }
}

/// Rule 2: thirty days.
#[test]
fn entry_is_usable_for_thirty_days_by_default() {
    const MAX_AGE_MS: u64 = 30 * 24 * 3_600_000;
    for setup in setups() {
        for (age_ms, is_cached) in [(MAX_AGE_MS - 1, true), (MAX_AGE_MS, false)] {
            let (client, server, _) = setup.ends(KeyType::P256);
            connect(&client, &server);
            let mut pair = Pair::at(&client, &server, Now::from_unix_ms(NOW.unix_ms + age_ms));
            pair.connect().unwrap();
            assert_eq!(cached(&pair), [is_cached; 2], "{setup:?}, {age_ms}");
        }
    }
}

/// Stores use the issuer to keep the peers of one issuer from evicting those of another.
#[test]
fn entries_differ_by_issuer() {
    for setup in setups() {
        let issuer = |typ| {
            let (client, server, store) = setup.ends(typ);
            connect(&client, &server);
            let tickets = shown(Pair::new(&client, &server).client.transmit());
            *store.find(&tickets[0]).unwrap().issuer()
        };
        let [one, other] = [KeyType::P256, KeyType::P384].map(issuer);
        assert_eq!(one, issuer(KeyType::P256));
        assert_ne!(one, other);
    }
}

/// Rule 2: a peer verified under other settings is verified anew, from its full certificates.
#[test]
fn changed_settings_require_a_new_verification() {
    for setup in setups() {
        let typ = KeyType::P256;
        let store = Arc::new(MemoryServerCache::new(4));
        let one = Arc::new(setup.server_config(setup.profile(typ, false), ClientAuth::Required, &store));
        let client = setup.client(setup.profile(typ, true));
        connect(&client, &one);
        let optional = Arc::new(setup.server_config(setup.profile(typ, false), ClientAuth::Optional, &store));
        assert_eq!(connect(&client, &optional).1, [true, false]);
        // The server now has an entry under the new settings.
        assert_eq!(connect(&client, &optional).1, [true; 2]);
        // A server with other anchors refuses the client despite the entry.
        let trust = Trust { x509: Some(Pki::shared(KeyType::P384).trust()), raw_key: None };
        let strict = Arc::new(setup.server_config(
            setup.profile(typ, false).trust(trust),
            ClientAuth::Required,
            &store,
        ));
        let error = Pair::new(&client, &strict).run().unwrap_err();
        assert_eq!(error, Error::Authentication(AuthenticationFailure::UnknownIssuer));
    }
}

/// Rule 2: an entry serves every profile of equal trust, whatever its name, rank, suites and groups.
#[test]
fn entry_serves_every_profile_of_equal_trust() {
    for setup in setups() {
        let typ = KeyType::P256;
        let clients = Arc::new(MemoryClientCache::default());
        let servers = Arc::new(MemoryServerCache::new(4));
        let other = |profile: ProfileBuilder| {
            profile
                .name("other")
                .rank(7)
                .groups(vec![dunlin_awslc::SECP384R1, dunlin_awslc::SECP256R1])
                .alpn(vec![b"mqtt".to_vec()])
        };
        let client = |profile: ProfileBuilder| Arc::new(setup.client_config(profile, &clients));
        let server =
            |profile: ProfileBuilder| Arc::new(setup.server_config(profile, ClientAuth::Required, &servers));
        let one = (client(setup.profile(typ, true)), server(setup.profile(typ, false)));
        let two = (client(other(setup.profile(typ, true))), server(other(setup.profile(typ, false))));
        assert_eq!(connect(&one.0, &one.1).1, [false; 2]);
        assert_eq!(connect(&two.0, &two.1).1, [true; 2]);
        assert_eq!(connect(&one.0, &one.1).1, [true; 2]);
        // Other schemes verify the peer in another way, so this client does not use the entry.
        let schemes = vec![SignatureScheme::ECDSA_SECP256R1_SHA256];
        let narrow = client(setup.profile(typ, true).signature_schemes(schemes));
        assert_eq!(connect(&narrow, &one.1).1, [false; 2]);
    }
}

/// Rule 2: both dates are checked again when the peer authenticates, because the clock may leave the validity
/// after the ClientHello. RFC 5280 §4.1.2.5: the validity includes notBefore and notAfter.
#[test]
fn checks_both_dates_of_a_cached_certificate_during_the_handshake() {
    // The validity of the test certificates, in milliseconds: from 2025 to the first second of 2035.
    let begin = 1_735_689_600_000;
    let end = 2_051_222_400_000;
    for setup in setups() {
        for (start, late, verdict) in [
            (begin, begin - 1, "not valid yet"),
            (begin + 1000, begin, "valid"),
            (end, end + 999, "valid"),
            (end, end + 1000, "expired"),
        ] {
            for is_client_late in [true, false] {
                let (client, server, _) = setup.ends(KeyType::P256);
                let [start, late] = [start, late].map(Now::from_unix_ms);
                let mut pair = Pair::at(&client, &server, start);
                pair.connect().unwrap();
                pair.echo(b"hello").unwrap();
                let mut pair = Pair::at(&client, &server, start);
                let [of_client, of_server] = if is_client_late { [late, start] } else { [start, late] };
                carry(&mut pair.client, &mut pair.server, start).1.unwrap();
                let result = carry(&mut pair.server, &mut pair.client, of_client).1;
                let result = result.and_then(|()| carry(&mut pair.client, &mut pair.server, of_server).1);
                let actual = match result {
                    Ok(()) => "valid",
                    Err(Error::Authentication(AuthenticationFailure::NotValidYet(_))) => "not valid yet",
                    Err(Error::Authentication(AuthenticationFailure::Expired(_))) => "expired",
                    Err(error) => panic!("{setup:?}: {error}"),
                };
                assert_eq!(actual, verdict, "{setup:?}, {late:?}, client: {is_client_late}");
                if verdict == "valid" {
                    pair.run().unwrap();
                    assert_eq!(cached(&pair), [true; 2]);
                } else {
                    let side = if is_client_late { &pair.client } else { &pair.server };
                    assert!(side.negotiated().is_none(), "{setup:?}");
                }
            }
        }
    }
}

/// Rule 5: a peer that cannot prove its key is refused, and the next handshake with any server is full.
#[test]
fn next_handshake_is_full_after_a_failed_proof() {
    for setup in setups() {
        let (client, server, store) = setup.ends(KeyType::P256);
        connect(&client, &server);
        assert_eq!(connect(&client, &server).1, [true; 2]);
        let pki = Pki::shared(KeyType::P256);
        let claims = pki.server.public_key.clone();
        let key = pki.client.signing_key(&awslc());
        let credential = ForeignKey::x509(pki.server.chain.clone(), claims, key);
        let thief = setup.profile(KeyType::P256, false).credentials(vec![credential]);
        let thief = Arc::new(setup.server_config(thief, ClientAuth::Required, &store));
        let shows = || shown(Pair::new(&client, &server).client.transmit());
        let before = shows();
        let error = Pair::new(&client, &thief).run().unwrap_err();
        assert_eq!(error, PeerMisbehaved::BadSignature.into());
        // The server keeps the client's entry under the previous ticket.
        assert!(shows().is_empty() && store.len() == 1 && store.find(&before[0]).is_some());
        assert_eq!(connect(&client, &server).1, [false; 2]);
        assert_eq!(connect(&client, &server).1, [true; 2]);
    }
}

/// Rule 1: a client with a wrong Finished gets no entry, although its chain and signature are valid. Only TLS
/// 1.3: its key log has the keys to write a changed Finished.
#[test]
fn wrong_finished_creates_no_entry() {
    for setup in setups().filter(|setup| !setup.is_tls12()) {
        let (server, store) = setup.server(setup.profile(KeyType::P256, false), ClientAuth::Required);
        for is_wrong in [true, false] {
            let secrets = Arc::new(Secrets::default());
            let client = setup.client(setup.profile(KeyType::P256, true).key_log(Some(secrets.clone())));
            let mut pair = Pair::new(&client, &server);
            carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
            carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
            let flight = pair.client.transmit().to_vec();
            let suite = pair.client.negotiated().unwrap().cipher_suite.unwrap();
            let secret = secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET");
            let flight = rewrite(&awslc(), suite, &secret, &flight, |mut messages| {
                let finished = messages.last_mut().unwrap();
                assert_eq!(finished[0], HandshakeType::FINISHED.0);
                *finished.last_mut().unwrap() ^= u8::from(is_wrong);
                messages
            });
            assert_eq!(pair.server.receive(NOW, &flight).is_err(), is_wrong);
            assert_eq!(store.is_empty(), is_wrong, "{setup:?}");
        }
    }
}

/// Rule 6: another name or port is another server, and the client sends it no ticket.
#[test]
fn client_sends_tickets_only_to_the_same_name_and_port() {
    for setup in setups() {
        let (client, server, _) = setup.ends(KeyType::P256);
        connect(&client, &server);
        let says = |name: &str, port| {
            let address = ServerAddress::new(ServerName::try_from(name.to_owned()).unwrap(), port);
            let connection = TlsConnection::client(&client, address, NOW).unwrap();
            let hello = connection.transmit();
            [0xff20, 25].map(|typ| extension(hello, typ).is_some_and(|body| !body.is_empty()))
        };
        let in_info = setup.mode == CacheMode::Bithac;
        assert_eq!(says("localhost", 4433), [true, in_info], "{setup:?}");
        for (name, port) in [("localhost", 4434), ("localhost.example", 4433), ("127.0.0.1", 4433)] {
            assert_eq!(says(name, port), [false; 2], "{setup:?}: {name}");
        }
    }
}

/// Rules 5 and 8: an observer that replays a ticket without the key changes nothing.
#[test]
fn replayed_ticket_changes_nothing() {
    for setup in setups() {
        let (client, server, store) = setup.ends(KeyType::P256);
        connect(&client, &server);
        let mut pair = Pair::new(&client, &server);
        let hello = pair.client.transmit().to_vec();
        for _ in 0..100 {
            let mut observed = TlsConnection::server(&server, NOW);
            observed.receive(NOW, &hello).unwrap();
            // An invalid record ends the handshake.
            observed
                .receive(NOW, &[23, 3, 3, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
                .unwrap_err();
        }
        assert_eq!(store.len(), 1);
        pair.connect().unwrap();
        assert!(pair.server.negotiated().unwrap().is_peer_cached());
    }
}

/// Rule 7: a resumption neither uses nor changes the cache.
#[test]
fn resumption_leaves_the_cache_alone() {
    for setup in setups() {
        for tickets in dunlin_tests::ends::tickets() {
            let store = Arc::new(MemoryServerCache::new(4));
            let server = ServerConfig::new(setup.profile(KeyType::P256, false).build().unwrap()).unwrap();
            let server = server.with_handshake_cache(setup.mode, store.clone(), DEFAULT_MAX_AGE).unwrap();
            let server =
                Arc::new(server.with_tickets(tickets).with_client_auth(ClientAuth::Required).unwrap());
            let client = ClientConfig::new(setup.profile(KeyType::P256, true).build().unwrap());
            let known = Arc::new(MemoryClientCache::default());
            let client = client.with_handshake_cache(setup.mode, known, DEFAULT_MAX_AGE);
            let without = Arc::new(client.clone());
            let with = Arc::new(client.with_sessions(dunlin_tests::ends::with_sessions()));
            connect(&with, &server);
            for _ in 0..2 {
                let mut pair = Pair::new(&with, &server);
                pair.connect().unwrap();
                for end in [&pair.client, &pair.server] {
                    let negotiated = end.negotiated().unwrap();
                    assert!(negotiated.is_resumed() && !negotiated.is_peer_cached());
                }
            }
            assert_eq!(connect(&without, &server).1, [true; 2]);
        }
    }
}

/// Rule 7: an external PSK authenticates both sides, and the client sends no ticket with it. For TLS 1.2 see
/// `modes::psk_handshakes_of_tls12_leave_the_cache_alone`.
#[test]
fn external_psk_leaves_the_cache_alone() {
    for setup in setups().filter(|setup| !setup.is_tls12()) {
        let psk = || Psk::new("device-1", &[7; 32]).unwrap();
        let store = Arc::new(MemoryServerCache::new(4));
        let server = setup.server_config(setup.profile(KeyType::P256, false), ClientAuth::Required, &store);
        let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
        let server = Arc::new(server.with_psks(keys));
        let known = Arc::new(MemoryClientCache::default());
        let client = setup.client_config(setup.profile(KeyType::P256, true), &known);
        let by_key = Arc::new(client.clone().with_psks(vec![Arc::new(psk())]));
        let client = Arc::new(client);
        let tickets = |client| shown(Pair::new(client, &server).client.transmit());
        connect(&client, &server);
        let before = tickets(&client);
        assert_eq!(before.len(), 1);
        assert_eq!(tickets(&by_key), [[0; 8]; 0]);
        let mut pair = Pair::new(&by_key, &server);
        pair.connect().unwrap();
        let [c, s] = [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone());
        assert!(matches!(c.peer, Some(PeerIdentity::Psk(_))) && !c.is_peer_cached());
        assert!(matches!(s.peer, Some(PeerIdentity::Psk(_))) && !s.is_peer_cached());
        assert_eq!((tickets(&client), store.len()), (before, 1));
        assert_eq!(connect(&client, &server).1, [true; 2], "{setup:?}");
    }
}

/// Rule 2: a caller that verifies certificates is asked in every handshake, because its verdict may change.
#[test]
fn caller_is_asked_in_every_handshake() {
    for setup in setups() {
        let ask = || Trust { x509: Some(X509Trust::Ask), raw_key: None };
        let client = setup.client(setup.profile(KeyType::P256, true).trust(ask()));
        let (server, store) = setup.server(setup.profile(KeyType::P256, false), ClientAuth::Required);
        let run = |verdict: Result<(), AuthenticationFailure>| {
            let mut pair = Pair::new(&client, &server);
            pair.run().unwrap();
            let (id, question) = pair.client_question().expect("a question");
            assert!(matches!(question, Question::Verify { .. }));
            pair.client.answer(NOW, id, Answer::Verified(verdict.map(|()| Acceptance::once())))?;
            pair.connect()
        };
        assert_eq!(run(Ok(())), Ok(()));
        assert_eq!(store.len(), 1);
        assert_eq!(run(Ok(())), Ok(()));
        let revoked = AuthenticationFailure::Revoked;
        assert_eq!(run(Err(revoked.clone())), Err(revoked.into()));
    }
}

/// Rule 2: trust settings may change at run time. A cached peer is then verified anew, and refused if the new
/// settings do not trust it.
#[test]
fn changed_trust_applies_at_once() {
    for setup in setups() {
        let (client, server, _) = setup.ends(KeyType::P256);
        connect(&client, &server);
        let anchors = |types: &[KeyType]| {
            let roots = types.iter().flat_map(|typ| match Pki::shared(*typ).trust() {
                X509Trust::Anchors(anchors) => anchors,
                other => panic!("no anchors: {other:?}"),
            });
            Trust { x509: Some(X509Trust::Anchors(roots.collect())), raw_key: None }
        };
        let with_client = |trust| Arc::new((*client).clone().with_trust(trust).unwrap());
        let with_server = |trust| Arc::new((*server).clone().with_trust(trust).unwrap());
        let more = [KeyType::P256, KeyType::P384];
        assert_eq!(connect(&client, &with_server(anchors(&more))).1, [true, false]);
        assert!(!connect(&with_client(anchors(&more)), &server).1[0]);
        assert!(connect(&client, &server).1[0], "the entry under the old trust is still valid");
        let unknown = Error::Authentication(AuthenticationFailure::UnknownIssuer);
        let others = [KeyType::P384];
        let refused = Pair::new(&client, &with_server(anchors(&others))).run().unwrap_err();
        assert_eq!(refused, unknown);
        let refused = Pair::new(&with_client(anchors(&others)), &server).run().unwrap_err();
        assert_eq!(refused, unknown);
        // A server cannot require client certificates without any trust anchor.
        assert!((*server).clone().with_trust(Trust::default()).is_err());
    }
}

/// Each side reports the state of its cache.
#[test]
fn both_sides_report_the_outcome_of_the_cache() {
    for setup in setups() {
        let profile = |is_client| setup.profile(KeyType::P256, is_client);
        let told = |client: &Arc<ClientConfig>, server: &Arc<ServerConfig>| {
            let (pair, _) = connect(client, server);
            let [c, s] = [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone());
            ([c.cache, s.cache], c.known_server)
        };
        let (client, server, _) = setup.ends(KeyType::P256);
        assert_eq!(told(&client, &server), ([CacheOutcome::Agreed; 2], Known::Nothing));
        assert_eq!(told(&client, &server), ([CacheOutcome::Agreed; 2], Known::Usable));
        let without_client = Arc::new(ClientConfig::new(profile(true).build().unwrap()));
        let without_server = ServerConfig::new(profile(false).build().unwrap()).unwrap();
        let without_server = Arc::new(without_server.with_client_auth(ClientAuth::Required).unwrap());
        let [no, unanswered] = [CacheOutcome::Disabled, CacheOutcome::NotAnswered];
        assert_eq!(told(&without_client, &server).0, [no, unanswered]);
        let client = setup.client(profile(true));
        // A server whose cache is for RFC 7924 only does not answer the client's extension either.
        let of_client = if setup.mode == CacheMode::Compact { unanswered } else { CacheOutcome::Agreed };
        assert_eq!(told(&client, &without_server).0, [of_client, no]);
        assert_eq!(told(&without_client, &without_server).0, [no; 2]);
    }
}
