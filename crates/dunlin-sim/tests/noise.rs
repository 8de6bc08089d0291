//! Datagrams that any attacker can send: garbage, truncated, changed and repeated ones. The engine discards
//! and counts them, and the connection continues (RFC 9147 §4.5.2).
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::{App, Configs, around, close, connect, events, exchange};
use dunlin::{Discarded, DtlsConnection, Side};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_tests::{awslc, providers};

/// The counters of both sides.
fn discarded(pair: &common::OwnPair) -> [Discarded; 2] {
    [pair.client.discarded(), pair.server.discarded()]
}

fn nothing(_: &[u8]) -> Vec<Vec<u8>> {
    Vec::new()
}

/// The offset of the protected records in a datagram, which follow the plaintext records.
fn protected_at(datagram: &[u8]) -> usize {
    let mut at = 0;
    while datagram.get(at) == Some(&22) {
        at += 13 + usize::from(u16::from_be_bytes([datagram[at + 11], datagram[at + 12]]));
    }
    at
}

#[test]
fn discards_garbage() {
    let mut random = fastrand::Rng::with_seed(1);
    let garbage = move |_: &[u8]| {
        let mut datagram = |first: Option<u8>| {
            let mut bytes = vec![0; random.usize(1..200)];
            random.fill(&mut bytes);
            bytes[0] = first.unwrap_or(bytes[0]);
            bytes
        };
        // Random bytes; then bytes that begin like a DTLS 1.2 record, a handshake record, protected records
        // of four epochs, and a record with a connection ID.
        [None, Some(23), Some(22), Some(0x20), Some(0x2d), Some(0x2e), Some(0x2f), Some(0x30)]
            .map(&mut datagram)
            .to_vec()
    };
    let mut pair = Configs::ecdsa(&awslc()).cookies(true).mtu(300).pair_over(&around(garbage, nothing));
    connect(&mut pair);
    exchange(&mut pair);
    close(&mut pair);
    for side in discarded(&pair) {
        // A record that seems to be of the next epoch waits for its keys, and then does not open.
        assert!(side.malformed > 10 && side.unauthenticated + side.no_keys > 3, "{side:?}");
    }
}

/// Every truncation of every datagram arrives before it.
#[test]
fn discards_truncated_datagrams() {
    let pieces = |datagram: &[u8]| (1..datagram.len()).map(|len| datagram[..len].to_vec()).collect();
    let mut pair = Configs::ecdsa(&awslc()).mtu(300).pair_over(&around(pieces, nothing));
    connect(&mut pair);
    exchange(&mut pair);
    close(&mut pair);
    for side in discarded(&pair) {
        assert!(side.malformed > 100 && side.unauthenticated > 100, "{side:?}");
    }
}

/// For every byte of every protected record, a datagram with that byte changed arrives before the datagram
/// itself.
#[test]
fn discards_changed_datagrams() {
    for provider in providers() {
        let changed = |datagram: &[u8]| {
            let change = |at: usize| {
                let mut datagram = datagram.to_vec();
                datagram[at] ^= 1 << (at % 8);
                datagram
            };
            (protected_at(datagram)..datagram.len()).map(change).collect()
        };
        let mut pair = Configs::ecdsa(&provider).mtu(300).pair_over(&around(changed, nothing));
        connect(&mut pair);
        exchange(&mut pair);
        close(&mut pair);
        for side in discarded(&pair) {
            assert!(side.unauthenticated > 500, "{side:?}");
        }
    }
}

/// Every datagram arrives three times.
#[test]
fn discards_repeated_datagrams() {
    let twice = |datagram: &[u8]| vec![datagram.to_vec(); 2];
    for cookie in [false, true] {
        let mut pair = Configs::ecdsa(&awslc()).cookies(cookie).pair_over(&around(nothing, twice));
        connect(&mut pair);
        exchange(&mut pair);
        for update in [DtlsConnection::update_keys, DtlsConnection::update_keys] {
            update(&mut pair.client, true).unwrap();
            pair.run().unwrap();
            exchange(&mut pair);
        }
        close(&mut pair);
        for side in discarded(&pair) {
            assert!(side.replayed > 10, "{side:?}");
        }
    }
}

/// Replays all datagrams of a connection after they were received.
#[test]
fn discards_late_replays_without_answering() {
    let mut pair = Configs::ecdsa(&awslc()).cookies(true).pair();
    connect(&mut pair);
    exchange(&mut pair);
    for sent in pair.sent.clone() {
        pair.inject(sent.by.peer(), sent.packet);
    }
    let before = pair.sent.len();
    pair.run().unwrap();
    assert_eq!(pair.sent.len(), before, "neither side answers");
    assert_eq!((pair.client.received(), pair.server.received()), (vec![], vec![]));
    exchange(&mut pair);
}

/// Any attacker can send unprotected alerts and acknowledgements, so they are ignored.
#[test]
fn ignores_plaintext_alerts_and_acks() {
    let plain = |typ: u8, content: &[u8]| {
        let mut record = vec![typ, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 99, 0, content.len() as u8];
        record.extend(content);
        record
    };
    let alerts = move |_: &[u8]| vec![plain(21, &[2, 40]), plain(21, &[1, 0]), plain(26, &[0, 0])];
    let mut pair = Configs::ecdsa(&awslc()).cookies(true).pair_over(&around(alerts, nothing));
    connect(&mut pair);
    exchange(&mut pair);
    for side in discarded(&pair) {
        assert!(side.misplaced >= 9, "{side:?}");
    }
}

#[test]
fn ignores_plaintext_handshake_messages_after_the_handshake() {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    connect(&mut pair);
    for to in [Side::Client, Side::Server] {
        for number in 0..10 {
            // A KeyUpdate that requests an answer.
            let fragment = [24, 0, 0, 1, 0, number, 0, 0, 0, 0, 0, 1, 1];
            let mut record = vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 99, 0, fragment.len() as u8];
            record.extend(fragment);
            pair.inject(to, record);
        }
    }
    let before = pair.sent.len();
    pair.run().unwrap();
    assert_eq!(pair.sent.len(), before, "neither side answers");
    exchange(&mut pair);
    for side in discarded(&pair) {
        assert_eq!(side.misplaced, 10);
    }
}

/// RFC 9147 §4.5.3: with short tags, 2^20 forged records end a connection. Both sides replace their keys at
/// half of them, once.
#[test]
fn replaces_keys_long_before_the_limit_of_forged_records() {
    let mut provider = dunlin_awslc::provider();
    provider.cipher_suites.push(&dunlin_awslc::TLS13_AES_128_CCM_8_SHA256);
    let suite = &dunlin_awslc::TLS13_AES_128_CCM_8_SHA256;
    let configs = Configs::with(&std::sync::Arc::new(provider), |profile| profile.cipher_suites(vec![suite]));
    let mut pair = configs.pair();
    connect(&mut pair);
    // Epoch 3, a number of 8 bits, no length.
    let forged = [0x23, 0].into_iter().chain([7; 16]).collect::<Vec<u8>>();
    let now = pair.now;
    let address = pair.server_address;
    let half = 1 << 19;
    for _ in 1..half {
        pair.client.receive(now, address, &forged).unwrap();
    }
    assert!(pair.client.poll_transmit(now).is_none());
    pair.client.receive(now, address, &forged).unwrap();
    pair.run().unwrap();
    let updates = |side: &mut DtlsConnection| {
        events(side).iter().filter(|event| matches!(event, dunlin::Event::PeerUpdatedKeys)).count()
    };
    assert_eq!((updates(&mut pair.client), updates(&mut pair.server)), (1, 1));
    for _ in 0..100 {
        pair.client.receive(now, address, &forged).unwrap();
    }
    pair.run().unwrap();
    assert_eq!((updates(&mut pair.client), updates(&mut pair.server)), (0, 0));
    exchange(&mut pair);
}

/// An unprotected record with a whole message.
fn hello(typ: u8, number: u8, body: &[u8]) -> Vec<u8> {
    let len = u8::try_from(body.len()).unwrap();
    let message = [&[typ, 0, 0, len, 0, number, 0, 0, 0, 0, 0, len], body].concat();
    let header = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 98, 0, len + 12];
    [&header[..], &message].concat()
}

/// RFC 9147 §4.5.2, RFC 6347 §4.1.2.7: anyone can send a hello that does not parse, so it must not end a
/// handshake.
#[test]
fn discards_hellos_that_do_not_parse() {
    const CLIENT_HELLO: u8 = 1;
    const SERVER_HELLO: u8 = 2;
    const HELLO_VERIFY_REQUEST: u8 = 3;
    // A HelloRetryRequest (RFC 8446 §4.1.3) without a compression method.
    let mut retry = vec![0xfe, 0xfd];
    retry.extend([
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    ]);
    retry.extend([
        0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ]);
    retry.extend([0, 0x13, 0x01]);
    let bodies = [vec![], vec![7; 40], retry];
    let forged = |types: &[u8]| -> Vec<Vec<u8>> {
        let numbers = |typ: u8| (0..4).map(move |number| (typ, number));
        let messages = types.iter().copied().flat_map(numbers);
        messages.flat_map(|(typ, n)| bodies.iter().map(move |body| hello(typ, n, body))).collect()
    };
    for (older, cookies) in [(false, false), (false, true), (true, false), (true, true)] {
        let configs = Configs::with(&awslc(), |profile| {
            if older {
                profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            } else {
                profile
            }
        });
        // DTLS 1.2 has other messages in the clear, which are not told from forged ones.
        let forged = if older {
            forged(&[CLIENT_HELLO, SERVER_HELLO, HELLO_VERIFY_REQUEST])
        } else {
            forged(&[CLIENT_HELLO, SERVER_HELLO, HELLO_VERIFY_REQUEST, 11, 20, 24])
        };
        let before = move |_: &[u8]| forged.clone();
        let mut pair = configs.cookies(cookies).pair_over(&around(before, nothing));
        connect(&mut pair);
        exchange(&mut pair);
        for side in discarded(&pair) {
            assert!(side.malformed >= 3, "{side:?}");
        }
    }
}

/// A forger who knows the addresses and the numbers of messages sends fragments of other messages. They do
/// not take the place of those that the peer sends.
#[test]
fn forged_fragments_of_hellos_do_not_displace_the_peers() {
    let forged = |_: &[u8]| {
        let fragment = |typ: u8, number: u8, len: u8| {
            let message = [typ, 0, 1, len, 0, number, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9];
            let header = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 97, 0, 21];
            [&header[..], &message].concat()
        };
        let numbers = |typ: u8| (0..2).flat_map(move |n| (0..64).map(move |len| fragment(typ, n, len)));
        [1, 2, 3].into_iter().flat_map(numbers).collect()
    };
    for cookies in [false, true] {
        let mut pair = Configs::ecdsa(&awslc()).mtu(120).cookies(cookies).pair_over(&around(forged, nothing));
        connect(&mut pair);
    }
}
