//! The settings of connections over datagrams: transports that only the peer can send to, patience, full
//! headers, and another MTU. Also the rules that the tests of BoringSSL have found broken.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{App, Configs, DELAY, OwnPair, connect, exchange, longest, sent};
use dunlin::error::Error;
use dunlin::resume::Tickets;
use dunlin::wire::AlertDescription;
use dunlin::{DtlsConnection, Retransmission, Side};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_sim::{Delay, Pair, SERVER_ADDRESS};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::awslc;

/// An unprotected record with this type and content.
fn plain(typ: u8, content: &[u8]) -> Vec<u8> {
    let len = u8::try_from(content.len()).unwrap();
    [&[typ, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, len][..], content].concat()
}

fn unforgeable(on: bool) -> Configs {
    let mut configs = Configs::ecdsa(&awslc());
    configs.client = configs.client.with_unforgeable_transport(on);
    configs.server = configs.server.with_unforgeable_transport(on);
    configs
}

fn tickets(mut configs: Configs) -> Configs {
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    configs.client = configs.client.with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
    configs.server = configs.server.with_tickets(Tickets::stateless(seal));
    configs
}

fn receive(client: &mut DtlsConnection, configs: &Configs, datagram: &[u8]) -> Result<(), Error> {
    client.receive(configs.now, SERVER_ADDRESS, datagram)
}

/// RFC 9147 §4.5.2: what nothing protects ends a connection only over a transport that no stranger can send
/// to.
#[test]
fn unprotected_errors_and_alerts_are_fatal_only_if_nobody_can_forge_them() {
    const FATAL: [u8; 2] = [2, 40];
    // A ServerHello that announces a body of one byte, and has two.
    const BROKEN: [u8; 14] = [2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0];
    // A ServerHello of two bytes.
    const SHORT: [u8; 14] = [2, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0xfe, 0xfd];
    let records = [(21, &FATAL[..], true), (22, &BROKEN, false), (22, &SHORT, false), (23, b"data", false)];
    for (record, is_alert) in records.map(|(typ, content, is_alert)| (plain(typ, content), is_alert)) {
        let mut configs = unforgeable(true);
        let mut client = configs.client();
        let error = receive(&mut client, &configs, &record).unwrap_err();
        assert_eq!(error == Error::AlertReceived(AlertDescription::HANDSHAKE_FAILURE), is_alert, "{error}");
        configs = unforgeable(false);
        client = configs.client();
        receive(&mut client, &configs, &record).unwrap();
        assert!(client.is_handshaking());
    }
    let mut pair = unforgeable(true).pair();
    connect(&mut pair);
    exchange(&mut pair);
}

/// A server needs no cookie to send all of its flight again to an address that no stranger can forge.
#[test]
fn an_unforgeable_transport_proves_the_clients_address() {
    let counts = [false, true].map(|on| {
        let configs = unforgeable(on);
        let mut pair: OwnPair = Pair::with_links(
            configs.client(),
            configs.server(),
            configs.now,
            losing_all(),
            Box::new(Delay(DELAY)),
        );
        pair.run_for(Duration::from_secs(20)).unwrap();
        sent(&pair, Side::Server, 0).iter().map(|datagram| datagram.len()).sum::<usize>()
    });
    assert!(counts[0] < counts[1], "{counts:?}");
}

fn losing_all() -> Box<dyn dunlin_sim::Link> {
    Box::new(|_: Duration, _: Vec<u8>| Vec::<(Duration, Vec<u8>)>::new())
}

/// RFC 9147 §7.1: an ACK may follow "potentially after some delay".
#[test]
fn a_patient_client_acknowledges_tickets_after_a_quarter_of_the_timeout() {
    for patient in [false, true] {
        let mut configs = tickets(Configs::ecdsa(&awslc()));
        let retransmission = Retransmission::default().with_patience(patient);
        configs.client = configs.client.with_retransmission(retransmission);
        configs.server = configs.server.with_retransmission(retransmission);
        let mut pair = configs.pair();
        connect(&mut pair);
        let ack = pair.sent.iter().rfind(|sent| sent.by == Side::Client).unwrap().after;
        let quarter = Duration::from_millis(250);
        assert_eq!(ack >= quarter, patient, "{ack:?}");
        assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
        exchange(&mut pair);
    }
}

/// RFC 9147 §4: bits S and L of the unified header.
#[test]
fn full_headers_have_long_numbers_and_a_length() {
    for full in [false, true] {
        let mut configs = Configs::ecdsa(&awslc()).mtu(300);
        configs.client = configs.client.with_full_record_headers(full);
        let mut pair = configs.pair();
        connect(&mut pair);
        let skip = pair.sent.len();
        let max = pair.client.max_data();
        pair.client.send(&vec![7; max]).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.received(), [vec![7; max]]);
        let record = sent(&pair, Side::Client, skip)[0];
        assert_eq!(record[0] & 0b1100 == 0b1100, full, "{:08b}", record[0]);
        assert!(longest(&pair, Side::Client) <= 300);
    }
}

#[test]
fn retransmits_in_datagrams_of_the_new_size() {
    let configs = Configs::ecdsa(&awslc());
    let mut pair: OwnPair = Pair::with_links(
        configs.client(),
        configs.server(),
        configs.now,
        Box::new(Delay(DELAY)),
        losing_all(),
    );
    pair.client.set_mtu(120).unwrap();
    assert!(pair.client.set_mtu(79).is_err());
    pair.run_for(Duration::from_secs(2)).unwrap();
    let lens: Vec<_> = sent(&pair, Side::Client, 0).iter().map(|datagram| datagram.len()).collect();
    assert!(lens[0] > 120 && lens.len() > 2 && lens[1..].iter().all(|len| *len <= 120), "{lens:?}");
}

/// RFC 9147 §4: the first ClientHello may have the version of DTLS 1.0 in its records, and no later message
/// may.
#[test]
fn records_have_the_oldest_version_until_the_server_chooses_one() {
    // After a HelloVerifyRequest, which chooses none.
    let mut pair = Configs::with(&awslc(), |profile| {
        profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
    })
    .cookies(true)
    .pair();
    connect(&mut pair);
    let first: Vec<_> = sent(&pair, Side::Client, 0).iter().map(|sent| [sent[1], sent[2]]).collect();
    assert_eq!(first[..3], [[254, 255], [254, 255], [254, 253]]);
    // RFC 9147 §4: not after a HelloRetryRequest.
    let mut pair = Configs::ecdsa(&awslc()).cookies(true).pair();
    connect(&mut pair);
    let versions = |by| -> Vec<_> {
        let plain = |datagram: &&&[u8]| datagram[0] == 22;
        sent(&pair, by, 0).iter().filter(plain).map(|datagram| [datagram[1], datagram[2]]).collect()
    };
    assert_eq!(versions(Side::Client), [[254, 255], [254, 253]]);
    assert!(versions(Side::Server).iter().all(|version| *version == [254, 253]));
}

/// RFC 9147 §4.2.1: the keys of the previous epoch do not stay forever.
#[test]
fn drops_the_keys_of_the_previous_epoch_after_four_minutes() {
    let mut pair = Configs::ecdsa(&awslc()).pair();
    connect(&mut pair);
    pair.client.send(b"old").unwrap();
    let old = pair.client.poll_transmit(pair.now).unwrap().datagram;
    pair.client.update_keys(false).unwrap();
    exchange(&mut pair);
    let later = |pair: &mut OwnPair, seconds: u64| {
        pair.run_for(Duration::from_secs(seconds)).unwrap();
        pair.client.send(b"new").unwrap();
        pair.run().unwrap();
        pair.server.received()
    };
    let _ = later(&mut pair, 230);
    assert_eq!(pair.server.discarded().no_keys, 0);
    let _ = later(&mut pair, 20);
    pair.inject(Side::Server, old);
    pair.run().unwrap();
    assert!(pair.server.received().is_empty());
    assert_eq!(pair.server.discarded().no_keys, 1, "{:?}", pair.server.discarded());
}

/// A measurement of the round-trip time may change the timeout, also for a flight on its way (RFC 9147
/// §5.8.2).
#[test]
fn another_first_timeout_moves_the_deadline() {
    let configs = Configs::ecdsa(&awslc());
    let mut client = configs.client();
    while client.poll_transmit(configs.now).is_some() {}
    let after =
        |client: &DtlsConnection| client.poll_timeout().unwrap().since(configs.now.monotonic).as_millis();
    assert_eq!(after(&client), 1000);
    client.set_first_timeout(Duration::from_millis(300)).unwrap();
    assert_eq!(after(&client), 300);
    assert!(client.set_first_timeout(Duration::from_millis(9)).is_err());
    let later = dunlin::Now::from_unix_ms(configs.now.unix_ms + 300);
    client.handle_timeout(later).unwrap();
    while client.poll_transmit(later).is_some() {}
    assert_eq!(after(&client), 300 + 600);
    client.set_first_timeout(Duration::from_millis(500)).unwrap();
    assert_eq!(after(&client), 300 + 1000);
}
