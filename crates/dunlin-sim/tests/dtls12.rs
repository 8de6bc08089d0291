//! DTLS 1.2 (RFC 6347): handshakes of every kind, lost datagrams, and the choice of the version.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{App, Configs, DELAY, OwnPair, close, connect, exchange, longest, sent};
use dunlin::auth::{Psk, PskTable};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::error::{Error, Field, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{
    ClientConfig, DtlsConnection, Now, Profile, ProfileBuilder, PskSource, Retransmission, ServerConfig, Side,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_sim::{Conditions, Delay, Impaired, Link, Pair};
use dunlin_store::{
    MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryServerSessions, RotatingTickets,
};
use dunlin_tests::{KeyType, NOW, awslc};

/// Only DTLS 1.2.
fn only(profile: ProfileBuilder) -> ProfileBuilder {
    both(profile).cipher_suites(vec![])
}

/// DTLS 1.2 and DTLS 1.3.
fn both(profile: ProfileBuilder) -> ProfileBuilder {
    profile.tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
}

fn configs() -> Configs {
    Configs::with(&awslc(), only)
}

fn version(pair: &OwnPair) -> ProtocolVersion {
    let [client, server] = [&pair.client, &pair.server].map(|side| side.negotiated().unwrap().version);
    assert_eq!(client, server);
    client.unwrap()
}

/// The number of one-way delays since the beginning.
fn trips(pair: &OwnPair) -> u128 {
    trips_since(pair, NOW)
}

fn trips_since(pair: &OwnPair, beginning: Now) -> u128 {
    pair.now.monotonic.since(beginning.monotonic).as_millis() / DELAY.as_millis()
}

/// A first connection. The next one begins after it.
fn first(configs: &mut Configs) {
    let mut pair = configs.pair();
    connect(&mut pair);
    configs.now = pair.now;
}

/// A link with [`DELAY`] that loses the packets with these indexes.
fn losing(lost: impl Fn(usize) -> bool + 'static) -> Box<dyn Link> {
    let mut index = 0;
    Box::new(move |_: Duration, packet: Vec<u8>| {
        index += 1;
        if lost(index - 1) { vec![] } else { vec![(DELAY, packet)] }
    })
}

fn with_tickets(configs: Configs) -> Configs {
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    Configs {
        client: configs.client.with_sessions(Arc::new(MemoryClientSessions::new(1, 4))),
        server: configs.server.with_tickets(Tickets::stateless(seal)),
        now: configs.now,
    }
}

fn psk(suites: &[u16]) -> Configs {
    let suites: Vec<_> =
        TLS12_PSK_CIPHER_SUITES.iter().copied().filter(|suite| suites.contains(&suite.id.0)).collect();
    assert!(!suites.is_empty());
    let profile: Profile =
        Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(suites).build().unwrap();
    let key = || Psk::new("d1", &[7; 32]).unwrap();
    let client = ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(key())]);
    let table = PskSource::Here(Arc::new(PskTable::from_iter([key()])));
    Configs::new(client, ServerConfig::psk_only(profile, table).unwrap())
}

#[test]
fn authenticates_both_sides_by_certificates_of_every_type() {
    let provider = awslc();
    for keys in [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519] {
        let profile = |side| only(common::profile(&provider, side, keys)).build().unwrap();
        let mut pair = Configs::of(profile(Side::Client), profile(Side::Server)).pair();
        connect(&mut pair);
        assert_eq!(version(&pair), ProtocolVersion::DTLS1_2);
        assert_eq!(trips(&pair), 4);
        assert_eq!(pair.server.negotiated().unwrap().peer.clone().unwrap().to_string(), "X.509 device-1");
        exchange(&mut pair);
        close(&mut pair);
        for side in [&pair.client, &pair.server] {
            assert_eq!(side.discarded(), Default::default());
        }
    }
}

#[test]
fn connects_with_every_cipher_suite() {
    for suite in TLS12_CIPHER_SUITES.iter().copied().filter(|suite| !suite.has_psk()) {
        let keys = match suite.authentication {
            dunlin::crypto::Tls12Authentication::Rsa => KeyType::Rsa2048,
            _ => KeyType::P256,
        };
        let provider = awslc();
        let profile = |side| {
            let profile = common::profile(&provider, side, keys);
            profile.cipher_suites(vec![]).tls12_cipher_suites(vec![suite]).build().unwrap()
        };
        let mut pair = Configs::of(profile(Side::Client), profile(Side::Server)).pair();
        pair.run().unwrap();
        assert_eq!(pair.server.error(), None, "{}", suite.id);
        connect(&mut pair);
        exchange(&mut pair);
    }
    for suite in TLS12_PSK_CIPHER_SUITES.iter().filter(|suite| !suite.has_certificate()) {
        let mut pair = psk(&[suite.id.0]).pair();
        connect(&mut pair);
        assert_eq!(pair.client.negotiated().unwrap().cipher_suite, Some(suite.id));
        exchange(&mut pair);
    }
}

#[test]
fn resumes_by_ticket_and_by_session_id() {
    let stateful = || {
        let configs = configs();
        Configs {
            client: configs.client.with_sessions(Arc::new(MemoryClientSessions::new(1, 4))),
            server: configs.server.with_tickets(Tickets::stateful(Arc::new(MemoryServerSessions::new(4)))),
            now: configs.now,
        }
    };
    for mut configs in [with_tickets(configs()), stateful()] {
        for resumed in [false, true, true] {
            let mut pair = configs.pair();
            connect(&mut pair);
            assert_eq!(pair.client.negotiated().unwrap().is_resumed(), resumed);
            assert_eq!(trips_since(&pair, configs.now), if resumed { 3 } else { 4 });
            exchange(&mut pair);
            configs.now = pair.now;
        }
    }
}

#[test]
fn chooses_the_newest_common_version() {
    let new = ProtocolVersion::DTLS1_3;
    let old = ProtocolVersion::DTLS1_2;
    let none = |profile: ProfileBuilder| profile;
    let profile = |side, change: fn(ProfileBuilder) -> ProfileBuilder| {
        change(common::profile(&awslc(), side, KeyType::P256)).build().unwrap()
    };
    for (client, server, expected) in [
        (both as fn(_) -> _, both as fn(_) -> _, new),
        (both, only, old),
        (only, both, old),
        (both, none, new),
    ] {
        for cookies in [false, true] {
            let configs = Configs::of(profile(Side::Client, client), profile(Side::Server, server));
            let mut pair = with_tickets(configs.cookies(cookies)).pair();
            connect(&mut pair);
            assert_eq!(version(&pair), expected);
            exchange(&mut pair);
        }
    }
    for (client, server, offered) in [(only as fn(_) -> _, none as fn(_) -> _, old), (none, only, new)] {
        let mut pair = Configs::of(profile(Side::Client, client), profile(Side::Server, server)).pair();
        pair.run().unwrap();
        let refused = Error::PeerIncompatible(PeerIncompatible::Version(Some(offered)));
        assert_eq!(pair.server.error(), Some(&refused));
        // Nothing protects the alert, so the client waits for a better answer first.
        let alert = Error::AlertReceived(AlertDescription::PROTOCOL_VERSION);
        assert_eq!(pair.client.error(), Some(&alert));
        assert_eq!(trips(&pair), 150);
    }
}

/// A client that remembers a session of DTLS 1.2 and offers both versions resumes it, or gets DTLS 1.3 from a
/// newer server.
#[test]
fn offers_a_session_of_the_older_version_beside_the_newer_version() {
    let profile = |side, change: fn(ProfileBuilder) -> ProfileBuilder| {
        change(common::profile(&awslc(), side, KeyType::P256)).build().unwrap()
    };
    let mut older = with_tickets(Configs::of(profile(Side::Client, both), profile(Side::Server, only)));
    first(&mut older);
    let mut pair = older.pair();
    connect(&mut pair);
    assert!(pair.client.negotiated().unwrap().is_resumed());
    let newer = Configs::of(profile(Side::Client, both), profile(Side::Server, both));
    let newer = Configs { client: older.client.clone(), now: pair.now, ..newer };
    let mut pair = newer.pair();
    connect(&mut pair);
    assert_eq!(version(&pair), ProtocolVersion::DTLS1_3);
}

#[test]
fn fragments_messages_to_small_datagrams() {
    for mtu in [80, 100, 300, 1200] {
        let mut pair = configs().mtu(mtu).pair();
        connect(&mut pair);
        for side in [Side::Client, Side::Server] {
            assert!(longest(&pair, side) <= mtu, "{side:?} at {mtu}");
        }
        exchange_small(&mut pair);
    }
}

fn exchange_small(pair: &mut OwnPair) {
    pair.client.send(b"ping").unwrap();
    pair.server.send(b"pong").unwrap();
    pair.run().unwrap();
    assert_eq!(
        (pair.client.received(), pair.server.received()),
        (vec![b"pong".to_vec()], vec![b"ping".to_vec()])
    );
}

/// Every datagram of a handshake can be lost, once. The last flight has no answer and no timer.
#[test]
fn replaces_each_lost_datagram() {
    for resumed in [false, true] {
        let mut configs = with_tickets(configs().mtu(400).cookies(true));
        let ready = |configs: &mut Configs| {
            if resumed {
                first(configs);
            }
        };
        ready(&mut configs);
        let mut whole = configs.pair();
        connect(&mut whole);
        assert_eq!(whole.client.negotiated().unwrap().is_resumed(), resumed);
        for by in [Side::Client, Side::Server] {
            for lost in 0..sent(&whole, by, 0).len() {
                ready(&mut configs);
                let mut links = [losing(move |i| i == lost), Box::new(Delay(DELAY)) as Box<dyn Link>];
                if by == Side::Client {
                    links.reverse();
                }
                let [to_client, to_server] = links;
                let mut pair =
                    Pair::with_links(configs.client(), configs.server(), configs.now, to_client, to_server);
                connect(&mut pair);
                let took = trips_since(&pair, configs.now);
                assert!((50..59).contains(&took), "{by:?} {lost}: {took} one-way delays");
                exchange(&mut pair);
                assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
            }
        }
    }
}

#[test]
fn connects_over_lossy_links() {
    for (i, loss) in [0.1, 0.2, 0.3].into_iter().enumerate() {
        for mtu in [300, 600, 1200] {
            let mut configs = with_tickets(configs().mtu(mtu).cookies(true));
            // With the default, some handshakes that lose 30% of their datagrams give up.
            let [first, longest, give_up] = [1, 60, 3600].map(Duration::from_secs);
            let retransmission = Retransmission::new(first, longest, give_up).unwrap();
            configs.client = configs.client.with_retransmission(retransmission);
            configs.server = configs.server.with_retransmission(retransmission);
            for seed in 0..8 {
                let conditions =
                    Conditions { delay: DELAY, loss, reorder: 0.1, duplicate: 0.1, ..Conditions::default() };
                let link = |to| Box::new(Impaired::new(conditions, seed * 100 + i as u64 * 10 + to));
                let mut pair =
                    Pair::with_links(configs.client(), configs.server(), configs.now, link(0), link(1));
                connect(&mut pair);
                assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
            }
        }
    }
}

#[test]
fn uses_the_handshake_cache() {
    for mode in [CacheMode::Rfc7924, CacheMode::Bithac, CacheMode::Compact] {
        let mut configs = configs();
        let clients = Arc::new(MemoryClientCache::default());
        let servers = Arc::new(MemoryServerCache::new(4));
        configs.client = configs.client.with_handshake_cache(mode, clients, DEFAULT_MAX_AGE);
        configs.server = configs.server.with_handshake_cache(mode, servers, DEFAULT_MAX_AGE).unwrap();
        for is_cached in [false, true, true] {
            let mut pair = configs.pair();
            connect(&mut pair);
            assert_eq!(pair.client.negotiated().unwrap().is_peer_cached(), is_cached);
            assert_eq!(
                pair.server.negotiated().unwrap().is_peer_cached(),
                is_cached && mode != CacheMode::Rfc7924
            );
            exchange(&mut pair);
        }
    }
}

/// Data can overtake the Finished of its epoch. The application gets it only after the handshake.
#[test]
fn data_before_finished_waits() {
    let mut configs = with_tickets(configs());
    first(&mut configs);
    // The client's last flight of a resumption is late, and its data is not.
    let mut index = 0;
    let late = Box::new(move |_: Duration, packet: Vec<u8>| {
        index += 1;
        vec![(if index == 2 { DELAY * 20 } else { DELAY }, packet)]
    });
    let mut pair =
        Pair::with_links(configs.client(), configs.server(), configs.now, Box::new(Delay(DELAY)), late);
    pair.run_for(DELAY * 2).unwrap();
    pair.client.assert_connected();
    pair.client.send(b"early").unwrap();
    pair.run_for(DELAY * 2).unwrap();
    assert!(pair.server.is_handshaking());
    assert_eq!(pair.server.received(), Vec::<Vec<u8>>::new());
    pair.run().unwrap();
    pair.server.assert_connected();
    assert_eq!(pair.server.received(), [b"early"]);
}

/// No renegotiation over datagrams.
#[test]
fn does_not_renegotiate() {
    let mut pair = configs().pair();
    connect(&mut pair);
    for side in [&mut pair.client, &mut pair.server] {
        assert!(matches!(side.renegotiate(NOW), Err(Error::Misuse(_))));
    }
    exchange(&mut pair);
}

/// A plaintext record of 12 bytes for each message that a server of DTLS 1.2 could have sent.
fn plain(typ: u8, number: u16, body: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (body.len() as u32).to_be_bytes();
    let message = [&[typ, a, b, c][..], &number.to_be_bytes(), &[0, 0, 0, a, b, c], body].concat();
    let record = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 99, 0, message.len() as u8];
    [&record[..], &message].concat()
}

/// An attacker who only guesses numbers gets one repetition of a flight in a quarter of the timeout, and no
/// shorter datagrams.
#[test]
fn forged_repetitions_repeat_little() {
    let configs = configs().cookies(true);
    // After the second ClientHello, the server hears only the attacker.
    let good = Box::new(Delay(DELAY));
    let bad = losing(|i| i > 1);
    let mut pair = Pair::with_links(configs.client(), configs.server(), configs.now, good, bad);
    pair.run_for(DELAY * 5).unwrap();
    let flight: usize = sent(&pair, Side::Server, 2).iter().map(|datagram| datagram.len()).sum();
    let before = pair.sent.len();
    let hello = sent(&pair, Side::Client, 0)[1].to_vec();
    for _ in 0..100 {
        // Another message with the number of the ClientHello, and the ClientHello itself.
        pair.inject(Side::Server, plain(16, 1, &[]));
        pair.inject(Side::Server, hello.clone());
    }
    pair.run_for(DELAY).unwrap();
    let repeated: usize = sent(&pair, Side::Server, before).iter().map(|datagram| datagram.len()).sum();
    assert!(flight > 1000 && repeated == flight, "{repeated} bytes after {flight}");
}

/// Sends a client HelloVerifyRequests with this cookie. Returns the number of its ClientHellos, and the
/// alerts that it has sent.
fn demand_cookies(client: &mut DtlsConnection, cookie: &[u8]) -> (usize, Vec<Vec<u8>>) {
    let address = client.peer_address();
    let mut hellos = 0;
    let mut alerts = Vec::new();
    for number in 0..100 {
        while let Some(sent) = client.poll_transmit(NOW) {
            match sent.datagram[0] {
                22 => hellos += 1,
                _ => alerts.push(sent.datagram[13..].to_vec()),
            }
        }
        let _ = client.receive(NOW, address, &plain(3, number, cookie));
    }
    (hellos, alerts)
}

const NO_COOKIE: [u8; 3] = [0xfe, 0xff, 0];
const COOKIE: [u8; 5] = [0xfe, 0xff, 2, 7, 7];

/// A HelloVerifyRequest has a cookie. Further ones are forged, as far as the client knows, and do not end the
/// handshake.
#[test]
fn a_client_answers_at_most_four_hello_verify_requests() {
    for (cookie, most) in [(&NO_COOKIE[..], 1), (&COOKIE[..], 5)] {
        let mut client = configs().client();
        assert_eq!(demand_cookies(&mut client, cookie), (most, vec![]));
        assert_eq!(client.error(), None);
    }
    // A client without DTLS 1.2 answers none.
    let configs = Configs::ecdsa(&awslc());
    let mut pair = configs.pair();
    assert_eq!(demand_cookies(&mut pair.client, &COOKIE), (1, vec![]));
    assert_eq!(pair.client.error(), None);
}

/// Over a transport on which only the server can have sent them, a server that demands cookies for ever ends
/// the handshake.
#[test]
fn a_fifth_demand_for_a_cookie_ends_the_handshake_if_nobody_can_have_forged_it() {
    let mut configs = configs();
    configs.client = configs.client.with_unforgeable_transport(true);
    let mut client = configs.client();
    let alert = vec![2, AlertDescription::UNEXPECTED_MESSAGE.0];
    assert_eq!(demand_cookies(&mut client, &COOKIE), (5, vec![alert]));
    let flood = Error::PeerMisbehaved(PeerMisbehaved::Flood(Field::HelloVerifyRequests));
    assert_eq!(client.error(), Some(&flood));
}

/// A forged alert counts only if nothing else arrives for some time.
#[test]
fn a_forged_alert_does_not_end_a_handshake_that_loses_a_datagram() {
    let configs = configs().mtu(400);
    for lost in 0..4 {
        let mut pair = Pair::with_links(
            configs.client(),
            configs.server(),
            configs.now,
            losing(move |i| i == lost),
            Box::new(Delay(DELAY)),
        );
        let alert = [21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 99, 0, 2, 2, 40];
        pair.inject(Side::Client, alert.to_vec());
        pair.run().unwrap();
        assert_eq!((pair.client.error(), pair.server.error()), (None, None), "{lost}");
        connect(&mut pair);
    }
}
