//! Handshakes between a client and a server of the engine.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;

use common::{App, Configs, DELAY, close, connect, events, exchange, longest, profile, sent};
use dunlin::auth::{Psk, PskTable};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::CryptoProvider;
use dunlin::early::NoEarlyData;
use dunlin::error::{AuthenticationFailure, Error};
use dunlin::resume::{ClientSessions, SessionKey, Tickets};
use dunlin::wire::{AlertDescription, NamedGroup, ProtocolVersion};
use dunlin::{
    Answer, ClientConfig, EarlyDataOutcome, EarlyDataProtocols, Event, Now, Profile, PskSource, Question,
    ServerConfig, Side, SingleUse, TransportKind, Trust,
};
use dunlin_sim::SeededRandom;
use dunlin_store::{
    MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryUseOnce, RotatingTickets,
};
use dunlin_tests::{KEY_TYPES, KeyType, NOW, awslc, localhost, providers};

/// The number of one-way delays since the beginning.
fn trips(now: Now) -> u128 {
    now.monotonic.since(NOW.monotonic).as_millis() / DELAY.as_millis()
}

#[test]
fn authenticates_both_sides_by_ecdsa() {
    for provider in providers() {
        let mut pair = Configs::ecdsa(&provider).pair();
        connect(&mut pair);
        // ClientHello, the server's flight, the client's flight, the server's acknowledgement.
        assert_eq!(trips(pair.now), 4);
        let client = pair.client.negotiated().unwrap();
        assert_eq!(client.version, Some(ProtocolVersion::DTLS1_3));
        assert!(!client.retried);
        let peer = pair.server.negotiated().unwrap().peer.clone().unwrap();
        assert_eq!(peer.to_string(), "X.509 device-1");
        exchange(&mut pair);
        close(&mut pair);
        for side in [&mut pair.client, &mut pair.server] {
            assert!(matches!(events(side)[..], [Event::Connected, Event::PeerClosed]));
            assert_eq!(side.discarded(), Default::default());
        }
    }
}

/// An acknowledgement tells the client that the server has its Finished, even if no data follows. Then the
/// client forgets the previous ticket (docs/handshake-cache.md §3.4).
#[test]
fn forgets_the_previous_ticket_once_finished_is_acknowledged() {
    let mut configs = Configs::ecdsa(&awslc());
    let clients = Arc::new(MemoryClientCache::default());
    let servers = Arc::new(MemoryServerCache::new(4));
    configs.client = configs.client.with_handshake_cache(CacheMode::Compact, clients, DEFAULT_MAX_AGE);
    configs.server =
        configs.server.with_handshake_cache(CacheMode::Compact, servers, DEFAULT_MAX_AGE).unwrap();
    connect(&mut configs.pair());
    let hello = || configs.client().poll_transmit(configs.now).unwrap().datagram.len();
    let before = hello();
    for _ in 0..3 {
        let mut pair = configs.pair();
        connect(&mut pair);
        assert!(pair.server.negotiated().unwrap().is_peer_cached());
        drop(pair);
        assert_eq!(hello(), before);
    }
}

#[test]
fn connects_with_a_cookie() {
    let mut pair = Configs::ecdsa(&awslc()).cookies(true).pair();
    connect(&mut pair);
    assert_eq!(trips(pair.now), 6);
    assert!(pair.client.negotiated().unwrap().retried && pair.server.negotiated().unwrap().retried);
    exchange(&mut pair);
}

/// The ClientHello does not fit one datagram, and the ServerHello fills one.
#[test]
fn connects_with_post_quantum_key_exchange() {
    let provider = awslc();
    let groups = vec![dunlin_awslc::X25519MLKEM768, provider.group(NamedGroup::X25519).unwrap()];
    for cookie in [false, true] {
        let configs = Configs::with(&provider, |profile| profile.groups(groups.clone())).cookies(cookie);
        let mut pair = configs.pair();
        connect(&mut pair);
        assert_eq!(pair.server.negotiated().unwrap().group, Some(NamedGroup::X25519MLKEM768));
        exchange(&mut pair);
    }
}

#[test]
fn connects_after_a_retry_for_a_group() {
    for cookie in [false, true] {
        let mut configs = Configs::ecdsa(&awslc()).cookies(cookie);
        configs.client = configs.client.with_key_shares(vec![]).unwrap();
        let mut pair = configs.pair();
        connect(&mut pair);
        assert_eq!(trips(pair.now), 6);
        exchange(&mut pair);
    }
}

#[test]
fn connects_with_every_cipher_suite() {
    let own = |mut provider: CryptoProvider, short_tag| {
        provider.cipher_suites.push(short_tag);
        Arc::new(provider)
    };
    let random = Arc::new(SeededRandom::new(1));
    let awslc = own(dunlin_awslc::provider(), &dunlin_awslc::TLS13_AES_128_CCM_8_SHA256);
    let rustcrypto = own(dunlin_rustcrypto::provider(random), &dunlin_rustcrypto::TLS13_AES_128_CCM_8_SHA256);
    for provider in [awslc, rustcrypto] {
        for suite in provider.cipher_suites.clone() {
            let mut pair = Configs::with(&provider, |profile| profile.cipher_suites(vec![suite])).pair();
            connect(&mut pair);
            assert_eq!(pair.client.negotiated().unwrap().cipher_suite, Some(suite.id));
            exchange(&mut pair);
            // With a short tag, short records are padded, because masking the record number needs 16 bytes.
            for data in [&b""[..], b"x"] {
                pair.client.send(data).unwrap();
                pair.run().unwrap();
                assert_eq!(pair.server.received(), [data]);
            }
        }
    }
}

/// Chains of every key type take many datagrams and records.
#[test]
fn fragments_messages_to_small_datagrams_and_records() {
    let provider = awslc();
    for keys in KEY_TYPES {
        for (mtu, limit) in [(80, None), (100, None), (300, Some(64)), (1200, Some(64)), (65507, None)] {
            let profile = |side| profile(&provider, side, keys).record_size_limit(limit).build().unwrap();
            let configs = Configs::of(profile(Side::Client), profile(Side::Server)).mtu(mtu).cookies(true);
            let mut pair = configs.pair();
            connect(&mut pair);
            for side in [Side::Client, Side::Server] {
                assert!(longest(&pair, side) <= mtu, "{keys:?} at {mtu}");
            }
            for side in [&mut pair.client, &mut pair.server] {
                assert_eq!(side.discarded(), Default::default());
            }
        }
    }
}

/// Hellos and acknowledgements take one datagram each; flights with certificates fill theirs.
#[test]
fn sends_as_few_datagrams_as_possible() {
    for mtu in [300, 600, 1200] {
        let mut pair = Configs::ecdsa(&awslc()).mtu(mtu).pair();
        connect(&mut pair);
        for side in [Side::Client, Side::Server] {
            let flight = sent(&pair, side, 1);
            let flight = &flight[..flight.len() - usize::from(side == Side::Server)];
            let (last, full) = flight.split_last().unwrap();
            assert!(full.iter().all(|datagram| datagram.len() > mtu - 32), "{side:?} at {mtu}");
            assert!(last.len() <= mtu);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_datagrams() {
    let run = |seed: u64| {
        let random = |offset| Arc::new(SeededRandom::new(seed + offset));
        let provider = |offset| Arc::new(dunlin_rustcrypto::provider(random(offset)));
        let profile = |side, offset| profile(&provider(offset), side, KeyType::P256).build().unwrap();
        let configs = Configs::of(profile(Side::Client, 0), profile(Side::Server, 1)).cookies(true);
        let mut pair = configs.pair();
        connect(&mut pair);
        exchange(&mut pair);
        pair.sent
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(3));
}

#[test]
fn connects_with_an_external_psk() {
    let key = [7; 32];
    let profile = Profile::builder(awslc()).build().unwrap();
    let client = ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(Psk::new("d1", &key).unwrap())]);
    let table = PskTable::from_iter([Psk::new("d1", &key).unwrap()]);
    let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(table))).unwrap();
    let mut pair = Configs::new(client, server).cookies(true).pair();
    connect(&mut pair);
    exchange(&mut pair);
}

/// No message answers a ticket, so the client acknowledges it.
#[test]
fn acknowledges_tickets_and_resumes() {
    let provider = awslc();
    let seal = Arc::new(RotatingTickets::new(Arc::clone(&provider)).unwrap());
    let mut configs = Configs::ecdsa(&provider);
    configs.client = configs.client.with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
    configs.server = configs.server.with_tickets(Tickets::stateless(seal));
    for resumed in [false, true] {
        let mut pair = configs.pair();
        connect(&mut pair);
        assert_eq!(pair.client.negotiated().unwrap().is_resumed(), resumed);
        assert!(events(&mut pair.client).iter().any(|event| matches!(event, Event::TicketReceived)));
        // The last datagram is the client's acknowledgement.
        assert_eq!(pair.sent.last().unwrap().by, Side::Client);
        exchange(&mut pair);
        configs.now = pair.now;
    }
}

/// Whatever the configuration says, neither side offers or accepts early data over datagrams.
#[test]
fn dtls_has_no_early_data() {
    let provider = awslc();
    let register = SingleUse::Register(Arc::new(MemoryUseOnce::with_new_keys(4)));
    let seal = Arc::new(RotatingTickets::new(Arc::clone(&provider)).unwrap().with_single_use(register));
    let sessions = Arc::new(MemoryClientSessions::new(1, 4));
    let mut configs = Configs::ecdsa(&provider);
    let any = EarlyDataProtocols::unnamed();
    configs.client = configs.client.with_sessions(sessions.clone()).with_early_data(any.clone());
    let server = configs.server.with_tickets(Tickets::stateless(seal));
    configs.server = server.with_early_data(any, 1000).unwrap();
    let off = EarlyDataOutcome::NotOffered(NoEarlyData::Disabled);
    for resumed in [false, true] {
        let mut pair = configs.pair();
        connect(&mut pair);
        for negotiated in [pair.client.negotiated().unwrap(), pair.server.negotiated().unwrap()] {
            assert_eq!((negotiated.is_resumed(), negotiated.early_data), (resumed, off));
        }
        configs.now = pair.now;
    }
    let key = SessionKey {
        transport: TransportKind::Datagram,
        name: "localhost".into(),
        port: localhost().port,
        settings: *configs.client.session_settings().as_bytes(),
    };
    assert_eq!(sessions.take(&key, configs.now).unwrap().max_early_data(), 0);
}

/// Datagrams that arrive while a question is open are processed after its answer.
#[test]
fn continues_after_questions_are_answered() {
    let mut configs = Configs::ecdsa(&awslc()).mtu(300);
    let answer = Arc::new(configs.server.clone());
    configs.server = configs.server.with_profile_choice(true);
    configs.client = {
        let trust = Trust { x509: Some(dunlin::auth::X509Trust::Ask), raw_key: None };
        let profile = profile(&awslc(), Side::Client, KeyType::P256).trust(trust).build().unwrap();
        ClientConfig::new(profile).with_mtu(300).unwrap()
    };
    let mut pair = configs.pair();
    pair.run_for(DELAY * 10).unwrap();
    let [Event::Question(id, Question::ChooseProfile(_))] = events(&mut pair.server)[..] else {
        panic!("not asked");
    };
    pair.server.answer(pair.now, id, Answer::Profile(Some(answer))).unwrap();
    pair.run_for(DELAY * 10).unwrap();
    let [Event::Question(id, Question::Verify { .. })] = events(&mut pair.client)[..] else {
        panic!("not asked");
    };
    assert!(pair.client.is_handshaking());
    pair.client.answer(pair.now, id, Answer::Verified(Ok(dunlin::auth::Acceptance::once()))).unwrap();
    connect(&mut pair);
    exchange(&mut pair);
    assert_eq!(pair.client.discarded(), Default::default());
}

/// The alert is protected if there are keys.
#[test]
fn sends_an_alert_to_a_refused_peer() {
    let provider = awslc();
    let stranger = Trust { x509: Some(dunlin_tests::Pki::new(KeyType::P256).trust()), raw_key: None };
    for distrusting in [Side::Client, Side::Server] {
        let profile = |side| {
            let profile = profile(&provider, side, KeyType::P256);
            let profile = if side == distrusting { profile.trust(stranger.clone()) } else { profile };
            profile.build().unwrap()
        };
        let mut pair = Configs::of(profile(Side::Client), profile(Side::Server)).pair();
        pair.run().unwrap();
        let (refusing, refused) = match distrusting {
            Side::Client => (&pair.client, &pair.server),
            Side::Server => (&pair.server, &pair.client),
        };
        assert_eq!(refusing.error(), Some(&Error::Authentication(AuthenticationFailure::UnknownIssuer)));
        assert_eq!(refused.error(), Some(&Error::AlertReceived(AlertDescription::UNKNOWN_CA)));
    }
}
