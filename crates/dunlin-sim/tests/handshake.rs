//! Handshakes between two ends of our own.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;

use common::{App, Configs, close, connect, events, exchange, longest, profile, sent};
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

/// So many one-way delays have passed.
fn trips(now: Now) -> u128 {
    now.monotonic.since(NOW.monotonic).as_millis() / common::DELAY.as_millis()
}

#[test]
fn mutual_ecdsa() {
    for provider in providers() {
        let mut pair = Configs::ecdsa(&provider).pair();
        connect(&mut pair);
        // ClientHello, the server's flight, the client's flight, its acknowledgement.
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

/// docs/handshake-cache.md §3.4: that the server has this client's Finished it hears of an acknowledgement, too, if nothing
/// else comes, and forgets the ticket of before.
#[test]
fn an_acknowledgement_of_finished_is_heard() {
    let mut configs = Configs::ecdsa(&awslc());
    let (clients, servers) = (Arc::new(MemoryClientCache::default()), Arc::new(MemoryServerCache::new(4)));
    configs.client = configs.client.with_handshake_cache(CacheMode::Compact, clients, DEFAULT_MAX_AGE);
    configs.server =
        configs.server.with_handshake_cache(CacheMode::Compact, servers, DEFAULT_MAX_AGE).unwrap();
    connect(&mut configs.pair());
    let hello = || configs.client().poll_transmit().unwrap().len();
    let before = hello();
    for _ in 0..3 {
        let mut pair = configs.pair();
        connect(&mut pair);
        assert!(pair.server.negotiated().unwrap().peer_certificate_cached);
        drop(pair);
        assert_eq!(hello(), before);
    }
}

#[test]
fn with_a_cookie() {
    let mut pair = Configs::ecdsa(&awslc()).cookies(true).pair();
    connect(&mut pair);
    assert_eq!(trips(pair.now), 6);
    assert!(pair.client.negotiated().unwrap().retried && pair.server.negotiated().unwrap().retried);
    exchange(&mut pair);
}

/// A ClientHello that no datagram holds, and a ServerHello that fills one.
#[test]
fn with_post_quantum_key_exchange() {
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
fn with_a_retry_for_a_group() {
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
fn every_cipher_suite() {
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
            // Short ones are padded where the tag is short, so that there is something to make the mask of the
            // record number of.
            for data in [&b""[..], b"x"] {
                pair.client.send(data).unwrap();
                pair.run().unwrap();
                assert_eq!(pair.server.received(), [data]);
            }
        }
    }
}

/// Small datagrams and small records, and chains that fill many of them.
#[test]
fn fragments() {
    let provider = awslc();
    for keys in KEY_TYPES {
        for (mtu, limit) in [(64, None), (100, None), (300, Some(64)), (1200, Some(64)), (65507, None)] {
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

/// As few datagrams as fit: hellos and acknowledgements take one each, the flights with certificates are full.
#[test]
fn datagrams_are_filled() {
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
fn everything_follows_from_the_seed() {
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
fn external_psk() {
    let key = [7; 32];
    let profile = Profile::builder(awslc()).build().unwrap();
    let client = ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(Psk::new("d1", &key).unwrap())]);
    let table = PskTable::from_iter([Psk::new("d1", &key).unwrap()]);
    let server = ServerConfig::new(profile).unwrap().with_psks(PskSource::Here(Arc::new(table)));
    let mut pair = Configs::new(client, server).cookies(true).pair();
    connect(&mut pair);
    exchange(&mut pair);
}

/// Tickets have no answer: the client acknowledges them.
#[test]
fn resumption() {
    let provider = awslc();
    let seal = Arc::new(RotatingTickets::new(Arc::clone(&provider)).unwrap());
    let mut configs = Configs::ecdsa(&provider);
    configs.client = configs.client.with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
    configs.server = configs.server.with_tickets(Tickets::stateless(seal));
    for resumed in [false, true] {
        let mut pair = configs.pair();
        connect(&mut pair);
        assert_eq!(pair.client.negotiated().unwrap().resumed, resumed);
        assert!(events(&mut pair.client).iter().any(|event| matches!(event, Event::TicketReceived)));
        // The last datagram is the client's acknowledgement.
        assert_eq!(pair.sent.last().unwrap().by, Side::Client);
        exchange(&mut pair);
        configs.now = pair.now;
    }
}

/// Early data is neither offered nor taken over datagrams, whatever the configuration says.
#[test]
fn no_early_data() {
    let provider = awslc();
    let seal = Arc::new(RotatingTickets::new(Arc::clone(&provider)).unwrap());
    let sessions = Arc::new(MemoryClientSessions::new(1, 4));
    let mut configs = Configs::ecdsa(&provider);
    let any = EarlyDataProtocols::unnamed();
    configs.client = configs.client.with_sessions(sessions.clone()).with_early_data(any.clone());
    let register = SingleUse::Register(Arc::new(MemoryUseOnce::with_new_keys(4)));
    let server = configs.server.with_tickets(Tickets::stateless(seal));
    configs.server = server.with_early_data(any, 1000, register).unwrap();
    let off = EarlyDataOutcome::NotOffered(NoEarlyData::Disabled);
    for resumed in [false, true] {
        let mut pair = configs.pair();
        connect(&mut pair);
        for negotiated in [pair.client.negotiated().unwrap(), pair.server.negotiated().unwrap()] {
            assert_eq!((negotiated.resumed, negotiated.early_data), (resumed, off));
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

/// What comes while a question is open is worked on afterwards.
#[test]
fn questions() {
    let mut configs = Configs::ecdsa(&awslc()).mtu(300);
    let answer = Arc::new(configs.server.clone());
    configs.server = configs.server.with_profile_choice(true);
    configs.client = {
        let trust = Trust { x509: Some(dunlin::auth::X509Trust::Ask), raw_key: None };
        let profile = profile(&awslc(), Side::Client, KeyType::P256).trust(trust).build().unwrap();
        ClientConfig::new(profile).with_mtu(300).unwrap()
    };
    let mut pair = configs.pair();
    pair.run().unwrap();
    let [Event::Question(id, Question::ChooseProfile(_))] = events(&mut pair.server)[..] else {
        panic!("not asked");
    };
    pair.server.answer(pair.now, id, Answer::Profile(Some(answer))).unwrap();
    pair.run().unwrap();
    let [Event::Question(id, Question::Verify { .. })] = events(&mut pair.client)[..] else {
        panic!("not asked");
    };
    assert!(pair.client.is_handshaking());
    pair.client.answer(pair.now, id, Answer::Verified(Ok(()))).unwrap();
    connect(&mut pair);
    exchange(&mut pair);
    assert_eq!(pair.client.discarded(), Default::default());
}

/// A peer that is refused hears of it, protected as soon as there are keys.
#[test]
fn alerts_arrive() {
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
