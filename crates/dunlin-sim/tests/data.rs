//! Application data, KeyUpdate and closing, between a client and a server of the engine.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::time::Duration;

use common::{App, Configs, DELAY, connect, epoch_bits, events, exchange, longest, sent};
use dunlin::error::{Error, Misuse};
use dunlin::{DtlsConnection, Event, Side};
use dunlin_sim::{Delay, Pair};
use dunlin_tests::awslc;

#[test]
fn sends_one_record_in_each_datagram() {
    let mut pair = Configs::ecdsa(&awslc()).mtu(500).pair();
    assert_eq!(pair.client.max_data(), 0);
    assert_eq!(pair.client.send(b"early"), Err(Misuse::HandshakeNotComplete.into()));
    connect(&mut pair);
    let max = pair.client.max_data();
    let too_long = vec![0; max + 1];
    assert_eq!(pair.client.send(&too_long), Err(Misuse::DataTooLong { max }.into()));
    // 300 records: their numbers outgrow 8 bits.
    let before = pair.sent.len();
    for i in 0..300u32 {
        let mut data = vec![0; max];
        data[..4].copy_from_slice(&i.to_be_bytes());
        pair.client.send(&data).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.read(), Some(data));
        assert_eq!(pair.server.read(), None);
    }
    assert_eq!(longest(&pair, Side::Client), 500);
    assert_eq!(sent(&pair, Side::Client, before).len(), 300);
}

/// The queues of data not yet transmitted and not yet read are bounded.
#[test]
fn bounds_the_queues_of_unsent_and_unread_data() {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    connect(&mut pair);
    let mut taken = 0;
    while pair.client.send(&[1; 1000]).is_ok() {
        taken += 1;
    }
    assert_eq!(pair.client.send(&[1; 1000]), Err(Misuse::OutputFull.into()));
    assert!((10..100).contains(&taken), "{taken}");
    pair.run().unwrap();
    assert_eq!(pair.server.received().len(), taken);

    for _ in 0..1000 {
        pair.client.send(&[2; 1000]).unwrap();
        pair.run().unwrap();
    }
    let lost = pair.server.discarded().overflow;
    let kept = pair.server.received().len();
    assert_eq!(kept + usize::try_from(lost).unwrap(), 1000);
    assert!(kept * 1000 <= 1 << 16 && kept > 50, "{kept} records kept");
    // The number of short records is bounded too.
    for _ in 0..1000 {
        pair.client.send(b"").unwrap();
        pair.run().unwrap();
    }
    assert!(pair.server.received().len() < 1000);
    exchange(&mut pair);
}

/// The epochs of the datagrams that a side sent, except among the first `skip` of both sides.
fn epochs(pair: &Pair<DtlsConnection, DtlsConnection>, by: Side, skip: usize) -> Vec<u8> {
    sent(pair, by, skip).into_iter().map(epoch_bits).collect()
}

/// RFC 9147 §8.
#[test]
fn uses_new_keys_only_after_the_key_update_is_acknowledged() {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    connect(&mut pair);
    let before = pair.sent.len();
    pair.client.update_keys(false).unwrap();
    pair.client.send(b"still the old keys").unwrap();
    assert_eq!(pair.client.update_keys(false), Err(Misuse::KeyUpdateWaits.into()));
    pair.run().unwrap();
    assert_eq!(pair.server.received(), [b"still the old keys"]);
    pair.client.send(b"now the new ones").unwrap();
    pair.run().unwrap();
    assert_eq!(pair.server.received(), [b"now the new ones"]);
    assert_eq!(epochs(&pair, Side::Client, before), [3, 3, 0]);
    // The server acknowledged the KeyUpdate and kept its own keys.
    assert_eq!(epochs(&pair, Side::Server, before), [3]);
    assert!(events(&mut pair.server).iter().any(|event| matches!(event, Event::PeerUpdatedKeys)));
    exchange(&mut pair);
}

#[test]
fn both_sides_can_update_keys_many_times() {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    connect(&mut pair);
    for generation in 1..=20u8 {
        match generation % 2 {
            0 => pair.client.update_keys(true).unwrap(),
            _ => pair.server.update_keys(true).unwrap(),
        }
        pair.run().unwrap();
        let before = pair.sent.len();
        exchange(&mut pair);
        for side in [Side::Client, Side::Server] {
            assert_eq!(epochs(&pair, side, before), [(3 + generation) & 3; 2]);
        }
    }
    assert_eq!(pair.client.discarded(), Default::default());
    assert_eq!(pair.server.discarded(), Default::default());
}

/// Both sides request a KeyUpdate at the same time. Each answers after its own KeyUpdate is acknowledged, so
/// both end two generations later.
#[test]
fn key_updates_may_cross() {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    connect(&mut pair);
    pair.client.update_keys(true).unwrap();
    pair.server.update_keys(true).unwrap();
    pair.run().unwrap();
    let before = pair.sent.len();
    exchange(&mut pair);
    for side in [Side::Client, Side::Server] {
        assert_eq!(epochs(&pair, side, before), [5 & 3; 2]);
    }
}

#[test]
fn updates_keys_after_the_configured_number_of_records() {
    let configs = Configs::with(&awslc(), |profile| profile.key_update_after(Some(5)));
    let mut pair = configs.pair();
    connect(&mut pair);
    for i in 0..100u8 {
        pair.client.send(&[i]).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.received(), [[i]]);
    }
    let updates = pair.client.messages().iter().filter(|m| m.sent).count();
    assert!(updates > 15, "{updates} messages sent");
}

#[test]
fn delivers_data_that_close_notify_overtook() {
    let configs = Configs::ecdsa(&awslc());
    let slow = |_: Duration, datagram: Vec<u8>| {
        // On this link full datagrams are slower than short ones.
        let delay = if datagram.len() > 1000 { 4 * DELAY } else { DELAY };
        vec![(delay, datagram)]
    };
    let mut pair = Pair::with_links(
        configs.client(),
        configs.server(),
        configs.now,
        Box::new(Delay(DELAY)),
        Box::new(slow),
    );
    connect(&mut pair);
    pair.client.send(&[1; 1100]).unwrap();
    pair.client.close();
    assert_eq!(pair.client.send(b"late"), Err(Error::from(Misuse::SendClosed)));
    pair.run().unwrap();
    assert!(pair.server.peer_has_closed());
    assert_eq!(pair.server.received(), [[1; 1100]]);
    // The other direction is still open.
    pair.server.send(b"answer").unwrap();
    pair.run().unwrap();
    assert_eq!(pair.client.received(), [b"answer"]);
    assert!(pair.now.monotonic.since(configs.now.monotonic) > Duration::from_millis(100));
}
