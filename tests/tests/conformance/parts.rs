//! Parts of messages after a handshake over datagrams: a server joins what it reads, and drops what stays
//! incomplete.

use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::{Psk, PskTable};
use dunlin::wire::AlertDescription;
use dunlin::{ClientConfig, DtlsConnection, NodeIds, Now, Profile, PskSource, Retransmission, ServerConfig};
use dunlin_null::TAG;
use dunlin_sim::{CLIENT_ADDRESS, Pair, SERVER_ADDRESS};
use dunlin_tests::{NOW, awslc, localhost, null_psk_suite};

/// A connected pair without real cryptography, so that a test can write the client's records. The client has
/// sent three messages.
fn open_pair(is_tls12: bool, is_patient: bool) -> Pair<DtlsConnection, DtlsConnection> {
    let provider = Arc::new(dunlin_null::null_provider());
    let profile = || {
        let profile = Profile::builder(provider.clone()).danger_skip_provider_check();
        if is_tls12 {
            profile.cipher_suites(vec![]).tls12_cipher_suites(vec![null_psk_suite()])
        } else {
            profile
        }
        .build()
        .unwrap()
    };
    let psk = || Psk::new("d1", &[7; 32]).unwrap();
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let ids = |len| Arc::new(NodeIds::new(&[], len, awslc().random.clone()).unwrap());
    let retransmission = Retransmission::default().with_patience(is_patient);
    let client = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]).with_connection_ids(ids(8));
    let server = ServerConfig::psk_only(profile(), keys).unwrap().with_connection_ids(ids(ID_LEN));
    let server = server.with_retransmission(retransmission).with_cookies(!is_tls12);
    let client = DtlsConnection::client(&Arc::new(client), localhost(), SERVER_ADDRESS, NOW).unwrap();
    let server = DtlsConnection::server(&Arc::new(server), CLIENT_ADDRESS, NOW);
    let mut pair = Pair::new(client, server, NOW, Duration::from_millis(20));
    pair.run().unwrap();
    assert!(!pair.server.is_handshaking() && pair.server.error().is_none());
    pair
}

const ID_LEN: usize = 8;
/// The number of the client's next message: it has sent two ClientHellos and Finished, or ClientHello,
/// ClientKeyExchange and Finished.
const NEXT: u16 = 3;

/// The record of DTLS 1.2 with this number, content and connection ID (RFC 9146 §4).
fn sealed12(id: &[u8], number: u16, typ: u8, content: &[u8]) -> Vec<u8> {
    let inner = [content, &[typ], &TAG].concat();
    let len = (inner.len() as u16).to_be_bytes();
    [&[25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0][..], &number.to_be_bytes(), id, &len, &inner].concat()
}

/// The record of DTLS 1.3 in epoch 3 with this number, content and connection ID (RFC 9147 §4).
fn sealed13(id: &[u8], number: u16, typ: u8, content: &[u8]) -> Vec<u8> {
    let inner = [content, &[typ], &TAG].concat();
    let len = (inner.len() as u16).to_be_bytes();
    [&[0b0011_1111][..], id, &number.to_be_bytes(), &len, &inner].concat()
}

/// Fragments of a message, each with at most `most` bytes of the body.
fn fragments(typ: u8, number: u16, body: &[u8], most: usize) -> Vec<Vec<u8>> {
    let uint24 = |n: usize| (n as u32).to_be_bytes()[1..].to_vec();
    let fragment = |(at, piece): (usize, &[u8])| {
        let [len, offset, part] = [body.len(), at * most, piece.len()].map(uint24);
        [&[typ][..], &len, &number.to_be_bytes(), &offset, &part, piece].concat()
    };
    body.chunks(most).enumerate().map(fragment).collect()
}

/// The connection ID that the client sends.
fn id_of(pair: &Pair<DtlsConnection, DtlsConnection>) -> Vec<u8> {
    pair.server.connection_ids().next().unwrap().to_vec()
}

/// RFC 5746 §4.5: a side that does not renegotiate answers with a warning, and the peer decides. RFC 6347 has
/// no ACK, so a client would wait for ever.
#[test]
fn a_dtls12_server_answers_a_renegotiation_however_long_its_client_hello_is() {
    for (len, most) in [(500, 400), (3000, 400), (16_000, 1100), (66_000, 1300)] {
        let mut pair = open_pair(true, false);
        let id = id_of(&pair);
        let before = pair.sent.len();
        let mut parts = fragments(1, NEXT, &vec![7; len], most);
        // The network changes their order.
        parts.chunks_mut(3).for_each(<[_]>::reverse);
        for (n, fragment) in parts.iter().enumerate() {
            assert_eq!(pair.server.poll_transmit(pair.now), None, "{len}: nothing before the rest has come");
            let record = sealed12(&id, 100 + n as u16, 22, fragment);
            pair.server.receive(pair.now, CLIENT_ADDRESS, &record).unwrap();
        }
        pair.run().unwrap();
        let warning = [&[1, AlertDescription::NO_RENEGOTIATION.0, 21], &TAG[..]].concat();
        let has_warning = |sent: &[u8]| sent.ends_with(&warning);
        assert_eq!(pair.sent[before..].iter().filter(|sent| has_warning(&sent.packet)).count(), 1, "{len}");
        pair.server.receive(pair.now, CLIENT_ADDRESS, &sealed12(&id, 1000, 23, b"data")).unwrap();
        assert_eq!(pair.server.read().as_deref(), Some(&b"data"[..]), "the connection goes on");
    }
}

/// The body of a NewConnectionId with this many IDs, which the receiver may keep for later.
fn new_ids(count: u8, len: u8) -> Vec<u8> {
    let ids: Vec<u8> = (0..count).flat_map(|n| [vec![len], vec![n; len.into()]].concat()).collect();
    [&(ids.len() as u16).to_be_bytes()[..], &ids, &[1]].concat()
}

#[test]
fn a_server_joins_the_longest_message_about_connection_ids() {
    for (count, len) in [(60, 16), (255, 8), (255, 16)] {
        let mut pair = open_pair(false, false);
        let id = id_of(&pair);
        assert!(!pair.server.use_spare_connection_id());
        for (n, fragment) in fragments(10, NEXT, &new_ids(count, len), 1100).iter().rev().enumerate() {
            let record = sealed13(&id, 100 + n as u16, 22, fragment);
            pair.server.receive(pair.now, CLIENT_ADDRESS, &record).unwrap();
        }
        assert!(pair.server.use_spare_connection_id(), "{count} IDs of {len} bytes");
    }
}

#[test]
fn a_part_of_a_longer_message_about_connection_ids_ends_the_connection() {
    let mut pair = open_pair(false, false);
    let id = id_of(&pair);
    let part = &fragments(10, NEXT, &new_ids(255, 17), 1100)[0];
    assert!(pair.server.receive(pair.now, CLIENT_ADDRESS, &sealed13(&id, 100, 22, part)).is_err());
}

/// A server drops the parts of a message after a minute, also if it is patient. The client then has to send
/// all of them again.
#[test]
fn a_server_drops_parts_after_a_minute() {
    for is_patient in [false, true] {
        for (seconds, is_joined) in [(59, true), (60, false)] {
            let mut pair = open_pair(false, is_patient);
            let id = id_of(&pair);
            let parts = fragments(10, NEXT, &new_ids(60, 16), 600);
            let mut number = 100;
            let mut receive = |server: &mut DtlsConnection, now: Now, part: &[u8]| {
                number += 1;
                server.receive(now, CLIENT_ADDRESS, &sealed13(&id, number, 22, part)).unwrap();
                while server.poll_transmit(now).is_some() {}
            };
            let begin = pair.now;
            receive(&mut pair.server, begin, &parts[0]);
            let later = Now { monotonic: begin.monotonic + Duration::from_secs(seconds), ..begin };
            pair.server.handle_timeout(later).unwrap();
            receive(&mut pair.server, later, &parts[1]);
            assert_eq!(pair.server.use_spare_connection_id(), is_joined, "{is_patient} {seconds}");
            if !is_joined {
                receive(&mut pair.server, later, &parts[0]);
                assert!(pair.server.use_spare_connection_id());
            }
        }
    }
}
