//! Handshakes and data between two ends of our own.

mod common;

use std::sync::Arc;

use common::{Configs, connect, exchange, longest, received};
use dunlin::wire::ProtocolVersion;
use dunlin::{Now, Side};
use dunlin_tests::{NOW, awslc, providers};

/// So many one-way delays have passed.
fn trips(now: Now) -> u128 {
    now.monotonic.since(NOW.monotonic).as_millis() / common::DELAY.as_millis()
}

#[test]
fn mutual_ecdsa() {
    for provider in providers() {
        let mut pair = Configs::new(&provider).pair();
        connect(&mut pair);
        // ClientHello, the server's flight, the client's flight, its acknowledgement.
        assert_eq!(trips(pair.now), 4);
        exchange(&mut pair);
        let client = pair.client.negotiated().unwrap();
        assert_eq!(client.version, Some(ProtocolVersion::DTLS1_3));
        assert!(!client.retried);
        let server = pair.server.negotiated().unwrap();
        assert_eq!(server.peer.clone().unwrap().to_string(), "X.509 device-1");
        assert_eq!(pair.client.discarded(), Default::default());
        assert_eq!(pair.server.discarded(), Default::default());
    }
}

#[test]
fn with_a_cookie() {
    let mut pair = Configs::new(&awslc()).cookies(true).pair();
    connect(&mut pair);
    assert_eq!(trips(pair.now), 6);
    assert!(pair.client.negotiated().unwrap().retried && pair.server.negotiated().unwrap().retried);
    exchange(&mut pair);
}
