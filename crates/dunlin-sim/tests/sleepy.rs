//! Devices that sleep for longer than their peers repeat messages, and attackers who know their addresses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::time::Duration;

use common::{Configs, OwnPair, connect};
use dunlin::Now;
use dunlin_tests::awslc;

fn connected() -> OwnPair {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    connect(&mut pair);
    pair
}

/// The time `after` the end of the handshake, which took less than ten seconds.
fn later(after: Duration) -> Now {
    let ms = dunlin_tests::NOW.unix_ms + 10_000 + u64::try_from(after.as_millis()).unwrap();
    let monotonic = dunlin::Instant(dunlin_tests::NOW.monotonic.0 + 10_000) + after;
    Now { monotonic, unix_ms: ms }
}

/// Delivers everything from one side to the other until both are silent.
fn exchange_at(pair: &mut OwnPair, now: Now) {
    let (client, server) = (pair.server.peer_address(), pair.client.peer_address());
    loop {
        let from_client = pair.client.poll_transmit(now);
        let from_server = pair.server.poll_transmit(now);
        if from_client.is_none() && from_server.is_none() {
            return;
        }
        from_client.iter().for_each(|sent| pair.server.receive(now, client, &sent.datagram).unwrap());
        from_server.iter().for_each(|sent| pair.client.receive(now, server, &sent.datagram).unwrap());
    }
}

/// RFC 9147 §8: the ACK of a KeyUpdate may get lost, so the receiver keeps the previous keys until the new
/// ones are in use.
#[test]
fn a_device_that_sleeps_after_a_key_update_is_understood_when_it_wakes() {
    let mut pair = connected();
    let start = later(Duration::ZERO);
    let from = pair.server.peer_address();
    pair.client.update_keys(false).unwrap();
    let update = pair.client.poll_transmit(start).unwrap().datagram;
    pair.server.receive(start, from, &update).unwrap();
    // The ACK gets lost, a copy arrives late, and the device sleeps.
    assert!(pair.server.poll_transmit(start).is_some());
    pair.server.receive(later(Duration::from_secs(1)), from, &update).unwrap();
    let morning = later(Duration::from_secs(8 * 3600));
    pair.client.send(b"good morning").unwrap();
    exchange_at(&mut pair, morning);
    assert_eq!(pair.server.read().as_deref(), Some(&b"good morning"[..]));
}

#[test]
fn a_side_that_gave_up_sends_its_messages_again_when_the_peer_is_back() {
    let mut pair = connected();
    pair.server.update_keys(false).unwrap();
    let mut now = later(Duration::ZERO);
    // Nothing arrives.
    loop {
        while pair.server.poll_transmit(now).is_some() {}
        let Some(deadline) = pair.server.poll_timeout() else { break };
        now.monotonic = now.monotonic.max(deadline);
        pair.server.handle_timeout(now).unwrap();
    }
    pair.client.send(b"back").unwrap();
    exchange_at(&mut pair, now);
    assert_eq!(pair.server.read().as_deref(), Some(&b"back"[..]));
    // The peer has acknowledged the KeyUpdate now, so another one can follow.
    pair.server.update_keys(false).unwrap();
}

#[test]
fn records_of_an_epoch_that_cannot_come_are_not_kept() {
    let mut pair = connected();
    let now = later(Duration::ZERO);
    let from = pair.server.peer_address();
    // DTLS 1.3, without a connection ID, epoch 4, 16 bits of the number.
    let forged = [&[0b0010_1000, 0, 9][..], &[7; 40]].concat();
    for _ in 0..5 {
        pair.server.receive(now, from, &forged).unwrap();
    }
    assert_eq!(pair.server.discarded().no_keys, 5);
}

/// A server continues the client's record numbers, so a forged one must not leave it without any.
#[test]
fn a_copy_of_the_hello_with_the_last_record_number_ends_no_handshake() {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    let (client, server) = (pair.server.peer_address(), pair.client.peer_address());
    let now = dunlin_tests::NOW;
    let hello = pair.client.poll_transmit(now).unwrap().datagram;
    let mut copy = hello.clone();
    copy[5..11].fill(0xff);
    pair.server.receive(now, client, &copy).unwrap();
    pair.server.receive(now, client, &hello).unwrap();
    pair.server.receive(now, client, &hello).unwrap();
    while let Some(sent) = pair.server.poll_transmit(now) {
        pair.client.receive(now, server, &sent.datagram).unwrap();
    }
    connect(&mut pair);
}
