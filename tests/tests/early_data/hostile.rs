//! Peers that use early data to break the rules.

use dunlin::Error;
use dunlin::error::{Malformed, PeerMisbehaved};
use dunlin::wire::{AlertDescription as Alert, ContentType, ExtensionType, HandshakeType, What};
use dunlin_tests::tamper::{Keys, message, rewrite};

use super::*;

/// What a hostile client has in hand when its early data was taken.
struct Taken {
    pair: Pair,
    early: Keys,
    handshake: Keys,
    /// The client's honest second flight: EndOfEarlyData, Finished.
    flight: Vec<Vec<u8>>,
}

/// `number` of the next record with early keys is 1.
fn taken() -> Taken {
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    // The secrets are those of the second connection.
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

/// Sends records to the server that took early data.
fn server_says(make: impl FnOnce(&Taken) -> Vec<Vec<u8>>) -> Error {
    let mut taken = taken();
    let records = make(&taken).concat();
    let server = &mut taken.pair.server;
    let result = server.receive(NOW, &records).map(drop);
    let result = result.and_then(|()| {
        // What was taken as data is read, so that what follows is worked on.
        while take_early(server).is_some_and(|data| !data.is_empty()) {}
        server.error().cloned().map_or(Ok(()), Err)
    });
    assert!(server.negotiated().is_none() && server.early_data().is_none());
    let refused = result.expect_err("it is refused");
    // It had keying material before it knew that the client is there.
    assert_eq!(server.export(b"EXPORTER-test", None, &mut [0; 32]), Err(refused.clone()));
    refused
}

#[test]
fn the_honest_second_flight_is_end_of_early_data_and_finished() {
    let mut taken = taken();
    let [end, finished] = &taken.flight[..] else { panic!("{} records", taken.flight.len()) };
    assert_eq!(taken.early.open(1, end), END_OF_EARLY_DATA);
    assert_eq!(taken.handshake.open(0, finished)[0], HandshakeType::FINISHED.0);
    let flight = taken.flight.concat();
    taken.pair.server.receive(NOW, &flight).unwrap();
    assert!(taken.pair.server.negotiated().is_some());
}

#[test]
fn more_early_data_than_the_ticket_allows() {
    let too_much = server_says(|taken| {
        let full = [&[0; 14 * 1024][..], &[23]].concat();
        vec![taken.early.seal(1, &full)]
    });
    assert_eq!(too_much, PeerMisbehaved::TooMuchEarlyData.into());
    assert_eq!(too_much.alert(), Some(Alert::UNEXPECTED_MESSAGE));
}

#[test]
fn end_of_early_data_that_is_missing_early_late_or_not_empty() {
    let unexpected = |got| {
        PeerMisbehaved::UnexpectedMessage { got, expected: What::Message(HandshakeType::END_OF_EARLY_DATA) }
            .into()
    };
    // The next keys without it.
    assert_eq!(server_says(|taken| vec![taken.flight[1].clone()]), PeerMisbehaved::BadRecordMac.into());
    // Finished, or any other message, under the early keys.
    let finished = server_says(|taken| vec![taken.early.seal(1, &taken.handshake.open(0, &taken.flight[1]))]);
    assert_eq!(finished, unexpected(HandshakeType::FINISHED));
    let update = [&message(HandshakeType::KEY_UPDATE.0, &[0])[..], &[22]].concat();
    assert_eq!(
        server_says(|taken| vec![taken.early.seal(1, &update)]),
        unexpected(HandshakeType::KEY_UPDATE)
    );
    // Early data after it.
    let after = server_says(|taken| vec![taken.flight[0].clone(), taken.early.seal(2, b"more\x17")]);
    assert_eq!(after, PeerMisbehaved::BadRecordMac.into());
    // Twice, in one record and under the next keys.
    let twice = [&END_OF_EARLY_DATA[..4], &END_OF_EARLY_DATA].concat();
    let joined = server_says(|taken| vec![taken.early.seal(1, &twice)]);
    assert_eq!(joined, PeerMisbehaved::NotAlignedAtKeyChange.into());
    let later =
        server_says(|taken| vec![taken.flight[0].clone(), taken.handshake.seal(0, &END_OF_EARLY_DATA)]);
    let got = HandshakeType::END_OF_EARLY_DATA;
    assert_eq!(
        later,
        PeerMisbehaved::UnexpectedMessage { got, expected: What::Message(HandshakeType::FINISHED) }.into()
    );
    // With a body.
    let body = server_says(|taken| vec![taken.early.seal(1, &[5, 0, 0, 1, 0, 22])]);
    assert_eq!(body, Malformed::TrailingBytes(What::Message(HandshakeType::END_OF_EARLY_DATA)).into());
    assert_eq!(body.alert(), Some(Alert::DECODE_ERROR));
}

#[test]
fn early_data_under_a_wrong_key_or_number() {
    let wrong: [fn(&Taken) -> Vec<u8>; 3] = [
        |taken| taken.handshake.seal(0, b"data\x17"),
        |taken| taken.early.seal(2, b"data\x17"),
        |taken| taken.early.seal(0, b"data\x17"),
    ];
    for make in wrong {
        assert_eq!(server_says(|taken| vec![make(taken)]), PeerMisbehaved::BadRecordMac.into());
    }
    // In the clear.
    let clear = server_says(|_| vec![vec![23, 3, 3, 0, 1, 0]]);
    assert_eq!(clear, PeerMisbehaved::BadRecordMac.into());
    let clear = server_says(|_| vec![vec![22, 3, 3, 0, 4, 5, 0, 0, 0]]);
    assert!(matches!(clear, Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(_))));
}

#[test]
fn end_of_early_data_without_early_data() {
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
            PeerMisbehaved::UnexpectedMessage { got, expected: What::Message(HandshakeType::FINISHED) };
        assert_eq!(pair.server.receive(NOW, &end), Err(unexpected.into()));
    }
}

/// A client that has shown that it has keys says nothing in the clear any more.
#[test]
fn an_alert_in_the_clear_after_end_of_early_data() {
    let alert = server_says(|taken| vec![taken.flight[0].clone(), vec![21, 3, 3, 0, 2, 2, 40]]);
    assert_eq!(alert, PeerMisbehaved::UnexpectedRecord(What::Record(ContentType::ALERT)).into());
}

#[test]
fn a_finished_that_was_changed() {
    let wrong = server_says(|taken| {
        let mut finished = taken.handshake.open(0, &taken.flight[1]);
        finished[4] ^= 1;
        vec![taken.flight[0].clone(), taken.handshake.seal(0, &finished)]
    });
    assert_eq!(wrong, PeerMisbehaved::BadFinished.into());
}

#[test]
fn refused_early_data_without_end() {
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
fn refused_early_data_in_crumbs() {
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let mut pair = early(&site.client(), &Arc::new(site.plain_server(|p| p)));
    let flight = take(&mut pair.client);
    pair.server.receive(NOW, &flight).unwrap();
    // Nothing but type and tag.
    let junk = [&[23, 3, 3, 0, 17][..], &[0xaa; 17]].concat();
    let result = (0..2000).find_map(|_| pair.server.receive(NOW, &junk).err());
    assert_eq!(result, Some(PeerMisbehaved::TooMuchSkippedEarlyData.into()));
}

/// The client's answer to a server that accepts early data in EncryptedExtensions, though it should not.
fn client_says(site: &Site, server: &Arc<ServerConfig>, suite: &Tls13CipherSuite, offers: bool) -> Error {
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
    let refused = pair.client.receive(NOW, &edited).map(drop).expect_err("it is refused");
    assert!(pair.client.negotiated().is_none() && pair.client.early_data().is_none());
    refused
}

#[test]
fn a_server_that_takes_what_it_may_not() {
    let first = awslc().cipher_suites[0];
    // With another protocol than that of the session.
    let site = Site::stateful();
    let both = |p: ProfileBuilder| p.alpn(vec![b"lamp".to_vec(), b"fan".to_vec()]);
    site.first(&Arc::new(site.client_with(both)), &site.server());
    let site = Site { secrets: Arc::default(), ..site };
    let none = Arc::new(site.server_with(|p| p.alpn(vec![])));
    let mismatch = client_says(&site, &none, first, true);
    assert_eq!(mismatch, PeerMisbehaved::EarlyDataMismatch(What::ApplicationProtocol).into());
    assert_eq!(mismatch.alert(), Some(Alert::ILLEGAL_PARAMETER));

    // With another suite.
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let site = Site { secrets: Arc::default(), ..site };
    let chacha20 = Arc::new(site.server_with(|p| p.cipher_suites(vec![CHACHA20])));
    let mismatch = PeerMisbehaved::EarlyDataMismatch(What::CipherSuite);
    assert_eq!(client_says(&site, &chacha20, CHACHA20, true), mismatch.into());

    // Without the session.
    let site = Site::stateful();
    site.first(&site.client(), &site.server());
    let site = Site { secrets: Arc::default(), ..site };
    let stronger = Arc::new(site.server_with(|p| p.rank(1)));
    assert_eq!(
        client_says(&site, &stronger, first, true),
        PeerMisbehaved::EarlyDataMismatch(What::Psk).into()
    );

    // Without offer.
    let site = Site::stateful();
    let unsolicited = PeerMisbehaved::UnsolicitedExtension(ExtensionType::EARLY_DATA);
    assert_eq!(client_says(&site, &site.server(), first, false), unsolicited.into());
}
