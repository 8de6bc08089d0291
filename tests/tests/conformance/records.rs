//! Records that break a rule: headers, floods, early data that nothing reads, and tags.

use dunlin::Error;
use dunlin::error::{Malformed, PeerMisbehaved};
use dunlin::wire::{AlertDescription as Alert, ContentType, Field};
use dunlin_tests::NOW;

use super::hostile::{edited_hello, fresh, pair, sent_alert, take};

#[test]
fn rejects_invalid_records() {
    let hello = {
        let (mut client, _) = fresh();
        take(&mut client)
    };
    let cases: Vec<(&str, Vec<u8>, Error, Alert)> = vec![
        (
            "larger than 2^14",
            vec![22, 3, 1, 0x40, 1],
            PeerMisbehaved::RecordOverflow.into(),
            Alert::RECORD_OVERFLOW,
        ),
        (
            "not TLS",
            b"GET / HTTP/1.1\r\n".to_vec(),
            PeerMisbehaved::UnexpectedRecord(Field::NotTls).into(),
            Alert::UNEXPECTED_MESSAGE,
        ),
        (
            "an empty handshake record",
            vec![22, 3, 1, 0, 0],
            PeerMisbehaved::EmptyRecord.into(),
            Alert::UNEXPECTED_MESSAGE,
        ),
        (
            "data before the handshake",
            vec![23, 3, 3, 0, 1, 0],
            PeerMisbehaved::UnexpectedRecord(Field::Record(ContentType::APPLICATION_DATA)).into(),
            Alert::UNEXPECTED_MESSAGE,
        ),
        (
            "an alert of one byte",
            vec![21, 3, 3, 0, 1, 2],
            Malformed::Length(Field::Alert).into(),
            Alert::DECODE_ERROR,
        ),
        (
            "a long ChangeCipherSpec",
            vec![20, 3, 3, 0, 2, 1, 1],
            PeerMisbehaved::UnexpectedRecord(Field::Record(ContentType::CHANGE_CIPHER_SPEC)).into(),
            Alert::UNEXPECTED_MESSAGE,
        ),
        (
            "an alert in the middle of a message",
            [&[22, 3, 1, 0, 4][..], &hello[5..9], &[21, 3, 3, 0, 2, 1, 0]].concat(),
            PeerMisbehaved::UnexpectedRecord(Field::InsideMessage).into(),
            Alert::UNEXPECTED_MESSAGE,
        ),
        (
            "bytes after the ClientHello",
            {
                let mut two = hello.clone();
                let len = u16::from_be_bytes([two[3], two[4]]) + 1;
                two[3..5].copy_from_slice(&len.to_be_bytes());
                two.push(1);
                two
            },
            PeerMisbehaved::NotAlignedAtKeyChange.into(),
            Alert::UNEXPECTED_MESSAGE,
        ),
    ];
    // RFC 8446 §5.1: these types have names, but a stream has no records of them. The header suffices to
    // reject one.
    let of_datagrams = [
        ContentType::TLS12_CID,
        ContentType::ACK,
        ContentType::RETURN_ROUTABILITY_CHECK,
        ContentType::ASSOCIATION_PORT,
    ];
    let of_datagrams = of_datagrams.map(|typ| {
        let error = PeerMisbehaved::UnexpectedRecord(Field::NotTls).into();
        ("a type of datagrams", vec![typ.0, 3, 3, 0x40, 0], error, Alert::UNEXPECTED_MESSAGE)
    });
    for (name, bytes, error, alert) in cases.into_iter().chain(of_datagrams) {
        let (_, mut server) = fresh();
        assert_eq!(server.receive(NOW, &bytes), Err(error.clone()), "{name}");
        assert_eq!(sent_alert(&mut server, &[]), Some(alert), "{name}");
        // The error is permanent.
        assert_eq!(server.receive(NOW, &hello), Err(error), "{name}");
        assert!(server.transmit().is_empty(), "{name}");
    }
}

#[test]
fn rejects_a_flood_of_change_cipher_specs() {
    let (mut client, mut server) = fresh();
    server.receive(NOW, &take(&mut client)).unwrap();
    let result = (0..64).find_map(|_| server.receive(NOW, &[20, 3, 3, 0, 1, 1]).err());
    assert_eq!(result, Some(PeerMisbehaved::Flood(Field::ChangeCipherSpecs).into()));
}

#[test]
fn server_skips_early_data_up_to_a_limit() {
    let hello = edited_hello(|e| e.push((42, vec![])));
    // The limit counts content, without content type and tag.
    let record = |content: u16| {
        let len = content + 17;
        [&[23, 3, 3][..], &len.to_be_bytes(), &vec![7; usize::from(len)]].concat()
    };
    let (_, mut server) = fresh();
    server.receive(NOW, &hello).unwrap();
    server.receive(NOW, &record(16384)).unwrap();
    assert_eq!(server.receive(NOW, &record(1)), Err(PeerMisbehaved::BadRecordMac.into()));
    let (_, mut server) = fresh();
    server.receive(NOW, &hello).unwrap();
    server.receive(NOW, &record(16000)).unwrap();
    assert_eq!(server.receive(NOW, &record(385)), Err(PeerMisbehaved::TooMuchSkippedEarlyData.into()));
}

#[test]
fn rejects_records_that_do_not_decrypt() {
    let (mut pair, _) = pair();
    pair.connect().unwrap();
    pair.client.send(b"hello").unwrap();
    let mut record = take(&mut pair.client);
    let last = record.len() - 1;
    record[last] ^= 1;
    assert_eq!(pair.server.receive(NOW, &record), Err(PeerMisbehaved::BadRecordMac.into()));
    pair.run().unwrap_err();
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(Alert::BAD_RECORD_MAC)));
}

#[test]
fn rejects_a_replayed_record() {
    let (mut pair, _) = pair();
    pair.connect().unwrap();
    pair.client.send(b"hello").unwrap();
    let record = take(&mut pair.client);
    pair.server.receive(NOW, &record).unwrap();
    pair.server.consume(NOW, 5).unwrap();
    assert_eq!(pair.server.receive(NOW, &record), Err(PeerMisbehaved::BadRecordMac.into()));
}
