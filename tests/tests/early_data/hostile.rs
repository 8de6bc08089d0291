//! Peers that misuse early data.

use dunlin::Error;
use dunlin::error::{Malformed, PeerMisbehaved};
use dunlin::wire::{AlertDescription as Alert, ContentType, ExtensionType, Field, HandshakeType};
use dunlin_tests::tamper::{Keys, message, rewrite};

use super::*;

/// The state of a client whose early data was accepted, with its keys.
struct Taken {
    pair: Pair,
    early: Keys,
    handshake: Keys,
    /// The client's honest second flight: EndOfEarlyData and Finished.
    flight: Vec<Vec<u8>>,
}

/// Connects up to the client's second flight. The next record under the early keys has number 1.
fn taken() -> Taken {
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    // The secrets of the second connection replace those of the first.
    let site = Site { secrets: Arc::default(), ..site };
    let mut pair = early(&site.client(), &site.server());
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    assert_eq!(take_early(&mut pair.server).unwrap(), REQUEST);
    let flight = take(&mut pair.server);
    pair.client.receive(NOW, &flight).unwrap();
    let flight = dunlin_tests::tamper::records(&take(&mut pair.client));
    let suite = awslc().cipher_suites[0];
    let keys = |label| Keys::new(suite, &site.secrets.get(label));
    Taken {
        early: keys("CLIENT_EARLY_TRAFFIC_SECRET"),
        handshake: keys("CLIENT_HANDSHAKE_TRAFFIC_SECRET"),
        pair,
        flight,
    }
}

const END_OF_EARLY_DATA: [u8; 5] = [5, 0, 0, 0, 22];

/// Sends records to a server that has accepted early data, and returns its error.
fn server_error(make: impl FnOnce(&Taken) -> Vec<Vec<u8>>) -> Error {
    let mut taken = taken();
    let records = make(&taken).concat();
    let server = &mut taken.pair.server;
    let result = server.receive(NOW, &records).map(drop);
    let result = result.and_then(|()| {
        // The caller consumes the early data, so that the server processes the records after it.
        while take_early(server).is_some_and(|data| !data.is_empty()) {}
        server.error().cloned().map_or(Ok(()), Err)
    });
    assert!(server.negotiated().is_none() && server.early_data().is_none());
    let refused = result.expect_err("the side refuses it");
    // The alert is encrypted: the server had keys before it knew the client to be alive.
    assert_eq!(server.export(b"EXPORTER-test", None, &mut [0; 32]), Err(refused.clone()));
    refused
}

#[test]
fn honest_second_flight_is_end_of_early_data_and_finished() {
    let mut taken = taken();
    let [end, finished] = &taken.flight[..] else { panic!("{} records", taken.flight.len()) };
    assert_eq!(taken.early.open(1, end), END_OF_EARLY_DATA);
    assert_eq!(taken.handshake.open(0, finished)[0], HandshakeType::FINISHED.0);
    let flight = taken.flight.concat();
    taken.pair.server.receive(NOW, &flight).unwrap();
    assert!(taken.pair.server.negotiated().is_some());
}

#[test]
fn server_rejects_more_early_data_than_the_ticket_allows() {
    let too_much = server_error(|taken| {
        let full = [&[0; 14 * 1024][..], &[23]].concat();
        vec![taken.early.seal(1, &full)]
    });
    assert_eq!(too_much, PeerMisbehaved::TooMuchEarlyData.into());
    assert_eq!(too_much.alert(), Some(Alert::UNEXPECTED_MESSAGE));
}

#[test]
fn server_rejects_missing_misplaced_or_malformed_end_of_early_data() {
    let unexpected = |got| {
        PeerMisbehaved::UnexpectedMessage { got, expected: Field::Message(HandshakeType::END_OF_EARLY_DATA) }
            .into()
    };
    // Finished under the next keys, without EndOfEarlyData.
    assert_eq!(server_error(|taken| vec![taken.flight[1].clone()]), PeerMisbehaved::BadRecordMac.into());
    // Finished, or another message, under the early keys.
    let finished =
        server_error(|taken| vec![taken.early.seal(1, &taken.handshake.open(0, &taken.flight[1]))]);
    assert_eq!(finished, unexpected(HandshakeType::FINISHED));
    let update = [&message(HandshakeType::KEY_UPDATE.0, &[0])[..], &[22]].concat();
    assert_eq!(
        server_error(|taken| vec![taken.early.seal(1, &update)]),
        unexpected(HandshakeType::KEY_UPDATE)
    );
    // Early data after EndOfEarlyData.
    let after = server_error(|taken| vec![taken.flight[0].clone(), taken.early.seal(2, b"more\x17")]);
    assert_eq!(after, PeerMisbehaved::BadRecordMac.into());
    // EndOfEarlyData twice: in one record, and under the next keys.
    let twice = [&END_OF_EARLY_DATA[..4], &END_OF_EARLY_DATA].concat();
    let joined = server_error(|taken| vec![taken.early.seal(1, &twice)]);
    assert_eq!(joined, PeerMisbehaved::NotAlignedAtKeyChange.into());
    let later =
        server_error(|taken| vec![taken.flight[0].clone(), taken.handshake.seal(0, &END_OF_EARLY_DATA)]);
    let got = HandshakeType::END_OF_EARLY_DATA;
    assert_eq!(
        later,
        PeerMisbehaved::UnexpectedMessage { got, expected: Field::Message(HandshakeType::FINISHED) }.into()
    );
    // EndOfEarlyData with a body.
    let body = server_error(|taken| vec![taken.early.seal(1, &[5, 0, 0, 1, 0, 22])]);
    assert_eq!(body, Malformed::TrailingBytes(Field::Message(HandshakeType::END_OF_EARLY_DATA)).into());
    assert_eq!(body.alert(), Some(Alert::DECODE_ERROR));
}

#[test]
fn server_rejects_early_data_with_a_wrong_key_or_number() {
    let wrong: [fn(&Taken) -> Vec<u8>; 3] = [
        |taken| taken.handshake.seal(0, b"data\x17"),
        |taken| taken.early.seal(2, b"data\x17"),
        |taken| taken.early.seal(0, b"data\x17"),
    ];
    for make in wrong {
        assert_eq!(server_error(|taken| vec![make(taken)]), PeerMisbehaved::BadRecordMac.into());
    }
    // Plaintext records.
    let clear = server_error(|_| vec![vec![23, 3, 3, 0, 1, 0]]);
    assert_eq!(clear, PeerMisbehaved::BadRecordMac.into());
    let clear = server_error(|_| vec![vec![22, 3, 3, 0, 4, 5, 0, 0, 0]]);
    assert!(matches!(clear, Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(_))));
}

#[test]
fn server_rejects_end_of_early_data_without_early_data() {
    for refused in [false, true] {
        let site = Site::stateful();
        let plain = Arc::new(site.plain_server(|p| p));
        site.first(&site.client(), &site.server());
        let site = Site { secrets: Arc::default(), ..site };
        let mut pair = Pair::new(&site.client(), &plain);
        if refused {
            send_early(&mut pair.client);
        }
        let flight = take(&mut pair.client);
        pair.server.receive(NOW, &flight).unwrap();
        let flight = take(&mut pair.server);
        pair.client.receive(NOW, &flight).unwrap();
        let secret = site.secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET");
        let end = Keys::new(awslc().cipher_suites[0], &secret).seal(0, &END_OF_EARLY_DATA);
        let got = HandshakeType::END_OF_EARLY_DATA;
        let unexpected =
            PeerMisbehaved::UnexpectedMessage { got, expected: Field::Message(HandshakeType::FINISHED) };
        assert_eq!(pair.server.receive(NOW, &end), Err(unexpected.into()));
    }
}

/// The server accepts no plaintext alert after the client has used its keys.
#[test]
fn server_rejects_a_plaintext_alert_after_end_of_early_data() {
    let alert = server_error(|taken| vec![taken.flight[0].clone(), vec![21, 3, 3, 0, 2, 2, 40]]);
    assert_eq!(alert, PeerMisbehaved::UnexpectedRecord(Field::Record(ContentType::ALERT)).into());
}

#[test]
fn server_rejects_a_changed_finished() {
    let wrong = server_error(|taken| {
        let mut finished = taken.handshake.open(0, &taken.flight[1]);
        finished[4] ^= 1;
        vec![taken.flight[0].clone(), taken.handshake.seal(0, &finished)]
    });
    assert_eq!(wrong, PeerMisbehaved::BadFinished.into());
}

#[test]
fn server_limits_the_early_data_that_it_skips() {
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let mut pair = early(&site.client(), &Arc::new(site.plain_server(|p| p)));
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    let junk = [&[23, 3, 3, 0x0f, 0xff][..], &[0xaa; 0xfff]].concat();
    let result = (0..5).find_map(|_| pair.server.receive(NOW, &junk).err());
    assert_eq!(result, Some(PeerMisbehaved::TooMuchSkippedEarlyData.into()));
}

#[test]
fn server_limits_the_tiny_records_that_it_skips() {
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let mut pair = early(&site.client(), &Arc::new(site.plain_server(|p| p)));
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    // The smallest possible record: a content type and an authentication tag.
    let junk = [&[23, 3, 3, 0, 17][..], &[0xaa; 17]].concat();
    let result = (0..2000).find_map(|_| pair.server.receive(NOW, &junk).err());
    assert_eq!(result, Some(PeerMisbehaved::TooMuchSkippedEarlyData.into()));
}

/// Returns the client's error if the server accepts early data in EncryptedExtensions although it must not.
fn client_error(site: &Site, server: &Arc<ServerConfig>, suite: &Tls13CipherSuite, offers: bool) -> Error {
    let mut pair = Pair::new(&site.client(), server);
    assert_eq!(pair.client.early_data().is_some(), offers);
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    let flight = take(&mut pair.server);
    let secret = site.secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    let edited = rewrite(&awslc(), suite.id, &secret, &flight, |mut messages| {
        let body = &messages[0][4..];
        let len = u16::from_be_bytes([body[0], body[1]]) + 4;
        let early_data = ExtensionType::EARLY_DATA.0.to_be_bytes();
        let body = [&len.to_be_bytes()[..], &body[2..], &early_data, &[0, 0]].concat();
        messages[0] = message(HandshakeType::ENCRYPTED_EXTENSIONS.0, &body);
        messages
    });
    let refused = pair.client.receive(NOW, &edited).map(drop).expect_err("the side refuses it");
    assert!(pair.client.negotiated().is_none() && pair.client.early_data().is_none());
    refused
}

#[test]
fn client_rejects_early_data_accepted_without_right() {
    let first = awslc().cipher_suites[0];
    // An application protocol other than the session's.
    let site = Site::stateful();
    let both = |p: ProfileBuilder| p.alpn(vec![b"lamp".to_vec(), b"fan".to_vec()]);
    site.first(&Arc::new(site.client_with(both)), &site.server());
    let site = Site { secrets: Arc::default(), ..site };
    let none = Arc::new(site.server_with(|p| p.alpn(vec![])));
    let mismatch = client_error(&site, &none, first, true);
    assert_eq!(mismatch, PeerMisbehaved::EarlyDataMismatch(Field::ApplicationProtocol).into());
    assert_eq!(mismatch.alert(), Some(Alert::ILLEGAL_PARAMETER));

    // A cipher suite other than the session's.
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let site = Site { secrets: Arc::default(), ..site };
    let chacha20 = Arc::new(site.server_with(|p| p.cipher_suites(vec![CHACHA20])));
    let mismatch = PeerMisbehaved::EarlyDataMismatch(Field::CipherSuite);
    assert_eq!(client_error(&site, &chacha20, CHACHA20, true), mismatch.into());

    // No resumption.
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let site = Site { secrets: Arc::default(), ..site };
    let stronger = Arc::new(site.server_with(|p| p.rank(1)));
    assert_eq!(
        client_error(&site, &stronger, first, true),
        PeerMisbehaved::EarlyDataMismatch(Field::Psk).into()
    );

    // No offer of early data.
    let site = Site::stateful();
    let unsolicited = PeerMisbehaved::UnsolicitedExtension(ExtensionType::EARLY_DATA);
    assert_eq!(client_error(&site, &site.server(), first, false), unsolicited.into());
}
