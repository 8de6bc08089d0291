//! Hostile peers: every message truncated, lengthened, doubled, left out or reordered; invalid records;
//! random bytes. The engine answers each with the RFC's alert, ends the connection, and never panics.

use std::sync::Arc;

use dunlin::error::{Malformed, PeerMisbehaved};
use dunlin::wire::{AlertDescription as Alert, ContentType, ExtensionType, Field, HandshakeType, Unit};
use dunlin::{ClientAuth, ClientConfig, Error, Profile, ServerConfig, TlsConnection, Trust};
use dunlin_tests::tamper::{Keys, Secrets, message, messages, records, rewrite};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};

/// An honest pair with mutual X.509, and its secrets.
pub(super) fn pair() -> (Pair, Arc<Secrets>) {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let secrets = Arc::new(Secrets::default());
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let profile = |credential| {
        Profile::builder(provider.clone())
            .trust(trust.clone())
            .credentials(vec![credential])
            .key_log(Some(secrets.clone()))
            .build()
            .unwrap()
    };
    let client = ClientConfig::new(profile(pki.client.x509(&provider)));
    let server = ServerConfig::new(profile(pki.server.x509(&provider))).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap();
    (Pair::new(&Arc::new(client), &Arc::new(server)), secrets)
}

pub(super) fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

/// Returns the alert that `connection` sent; opens it with the right key of `keys` if it is encrypted.
pub(super) fn sent_alert(connection: &mut TlsConnection, keys: &[Keys]) -> Option<Alert> {
    let last = records(&take(connection)).pop()?;
    match last[0] {
        21 => Some(Alert(last[6])),
        _ => keys.iter().find_map(|keys| {
            let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| keys.open(0, &last)));
            opened.ok().filter(|inner| inner.len() == 3 && inner[2] == 21).map(|inner| Alert(inner[1]))
        }),
    }
}

type Edit<'a> = &'a dyn Fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>;

/// Edits the server's flight. Returns the client's result and alert.
fn edit_server_flight(edit: Edit<'_>) -> (Result<(), Error>, Option<Alert>) {
    let (mut pair, secrets) = pair();
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    let suite = awslc().cipher_suites[0].id;
    let secret = secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    let flight = rewrite(&awslc(), suite, &secret, &flight, edit);
    let result = pair.client.receive(NOW, &flight).map(|_| ());
    let keys = Keys::new(awslc().cipher_suites[0], &secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET"));
    if result.is_err() {
        assert!(pair.client.negotiated().is_none(), "an identity before a valid Finished");
    }
    (result, sent_alert(&mut pair.client, &[keys]))
}

/// Edits the client's second flight. Returns the server's result and alert.
fn edit_client_flight(edit: Edit<'_>) -> (Result<(), Error>, Option<Alert>) {
    let (mut pair, secrets) = pair();
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    pair.client.receive(NOW, &flight).unwrap();
    let flight = take(&mut pair.client);
    let suite = awslc().cipher_suites[0].id;
    let flight = rewrite(&awslc(), suite, &secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET"), &flight, edit);
    let result = pair.server.receive(NOW, &flight).map(|_| ());
    let keys = Keys::new(awslc().cipher_suites[0], &secrets.get("SERVER_TRAFFIC_SECRET_0"));
    if result.is_err() {
        assert!(pair.server.negotiated().is_none(), "an identity before a valid Finished");
    }
    (result, sent_alert(&mut pair.server, &[keys]))
}

const SERVER_FLIGHT: [HandshakeType; 5] = [
    HandshakeType::ENCRYPTED_EXTENSIONS,
    HandshakeType::CERTIFICATE_REQUEST,
    HandshakeType::CERTIFICATE,
    HandshakeType::CERTIFICATE_VERIFY,
    HandshakeType::FINISHED,
];
const CLIENT_FLIGHT: [HandshakeType; 3] =
    [HandshakeType::CERTIFICATE, HandshakeType::CERTIFICATE_VERIFY, HandshakeType::FINISHED];

type Run = fn(Edit<'_>) -> (Result<(), Error>, Option<Alert>);

fn each_message(mut f: impl FnMut(Run, HandshakeType, usize)) {
    for (run, flight) in
        [(edit_server_flight as Run, &SERVER_FLIGHT[..]), (edit_client_flight as Run, &CLIENT_FLIGHT[..])]
    {
        assert_eq!(run(&|m| m).0, Ok(()), "the honest flight");
        for (i, typ) in flight.iter().enumerate() {
            let (honest, _) = run(&|messages| {
                assert_eq!(messages[i][0], typ.0);
                messages
            });
            honest.unwrap();
            f(run, *typ, i);
        }
    }
}

#[test]
fn rejects_trailing_bytes() {
    each_message(|run, typ, i| {
        let (result, alert) = run(&|mut m| {
            let body = [&m[i][4..], &[0]].concat();
            m[i] = message(m[i][0], &body);
            m
        });
        assert!(matches!(result, Err(Error::Malformed(_))), "{typ}: {result:?}");
        assert_eq!(alert, Some(Alert::DECODE_ERROR), "{typ}");
    });
}

#[test]
fn rejects_truncated_messages() {
    each_message(|run, typ, i| {
        for cut in [1, 2] {
            let (result, alert) = run(&|mut m| {
                let body = m[i][4..m[i].len().saturating_sub(cut).max(4)].to_vec();
                m[i] = message(m[i][0], &body);
                m
            });
            assert!(matches!(result, Err(Error::Malformed(_))), "{typ}: {result:?}");
            assert_eq!(alert, Some(Alert::DECODE_ERROR), "{typ}");
        }
        let (result, alert) = run(&|mut m| {
            m[i] = message(m[i][0], &[]);
            m
        });
        assert!(matches!(result, Err(Error::Malformed(_))), "{typ} without body: {result:?}");
        assert_eq!(alert, Some(Alert::DECODE_ERROR), "{typ}");
    });
}

#[test]
fn rejects_doubled_messages() {
    each_message(|run, typ, i| {
        let (result, alert) = run(&|mut m| {
            let twice = m[i].clone();
            m.insert(i, twice);
            m
        });
        // The keys change after Finished, so a second Finished would cross the boundary.
        let expected = result.clone().unwrap_err();
        assert!(
            matches!(
                expected,
                Error::PeerMisbehaved(
                    PeerMisbehaved::UnexpectedMessage { .. } | PeerMisbehaved::NotAlignedAtKeyChange
                )
            ),
            "{typ}: {expected:?}"
        );
        assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE), "{typ}");
    });
}

#[test]
fn rejects_missing_messages() {
    each_message(|run, typ, i| {
        let (result, alert) = run(&|mut m| {
            m.remove(i);
            m
        });
        match typ {
            // Without Finished the receiver just waits. Without CertificateRequest the server's signature
            // does not match the transcript.
            HandshakeType::FINISHED => assert_eq!((result, alert), (Ok(()), None)),
            HandshakeType::CERTIFICATE_REQUEST => {
                assert_eq!(result, Err(PeerMisbehaved::BadSignature.into()));
                assert_eq!(alert, Some(Alert::DECRYPT_ERROR));
            }
            _ => assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE), "{typ}: {result:?}"),
        }
    });
}

#[test]
fn rejects_reordered_messages() {
    each_message(|run, typ, i| {
        if i == 0 {
            return;
        }
        let (result, alert) = run(&|mut m| {
            m.swap(i - 1, i);
            m
        });
        assert!(result.is_err(), "{typ}");
        assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE), "{typ}: {result:?}");
    });
}

#[test]
fn rejects_every_message_in_a_wrong_place() {
    each_message(|run, typ, i| {
        for other in HandshakeType::ALL.iter().map(|t| t.0).chain([3, 67, 99, 255]) {
            if other == typ.0
                || (typ == HandshakeType::CERTIFICATE_REQUEST && other == HandshakeType::CERTIFICATE.0)
            {
                continue;
            }
            let (result, alert) = run(&|mut m| {
                m[i] = message(other, &m[i][4..]);
                m
            });
            assert!(result.is_err(), "{other} for {typ}");
            let read_as_certificate =
                typ == HandshakeType::CERTIFICATE && other == HandshakeType::CERTIFICATE_REQUEST.0;
            assert!(
                alert == Some(Alert::UNEXPECTED_MESSAGE) || read_as_certificate,
                "{other} for {typ}: {result:?}, {alert:?}"
            );
        }
    });
}

#[test]
fn rejects_changed_bits_of_every_message() {
    each_message(|run, typ, i| {
        let len = std::cell::Cell::new(0);
        let (honest, _) = run(&|m| {
            len.set(m[i].len());
            m
        });
        honest.unwrap();
        // The length of an ECDSA signature varies by a few bytes.
        let len = len.get() - if typ == HandshakeType::CERTIFICATE_VERIFY { 8 } else { 0 };
        let step = (len / 24).max(1);
        for at in (4..len).step_by(step) {
            let (result, _) = run(&|mut m| {
                m[i][at] ^= 0x41;
                m
            });
            assert!(result.is_err(), "{typ} with a changed byte {at}");
        }
    });
}

#[test]
fn rejects_oversized_messages_by_their_header() {
    each_message(|run, typ, i| {
        let (result, alert) = run(&|mut m| {
            let mut header = vec![m[i][0], 0xff, 0xff, 0xff];
            header.extend(&m[i][4..]);
            m[i] = header;
            m.truncate(i + 1);
            m
        });
        let max = match typ {
            HandshakeType::CERTIFICATE | HandshakeType::CERTIFICATE_REQUEST => 64 * 1024,
            _ => 16 * 1024,
        };
        let above = Malformed::AboveLimit { what: Field::Message(typ), max, unit: Unit::Bytes };
        assert_eq!(result, Err(above.into()));
        assert_eq!(alert, Some(Alert::ILLEGAL_PARAMETER));
    });
}

/// A client and a server before the first byte.
pub(super) fn fresh() -> (TlsConnection, TlsConnection) {
    let (pair, _) = pair();
    (pair.client, pair.server)
}

/// Returns a ClientHello of the engine with edited extensions.
pub(super) fn edited_hello(edit: impl FnOnce(&mut Vec<(u16, Vec<u8>)>)) -> Vec<u8> {
    let (mut client, _) = fresh();
    let hello = messages(&take(&mut client)[5..]).remove(0);
    let body = &hello[4..];
    let mut at = 34;
    at += 1 + usize::from(body[at]);
    at += 2 + usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    at += 1 + usize::from(body[at]);
    let head = body[..at].to_vec();
    let mut rest = &body[at + 2..];
    let mut extensions = Vec::new();
    while let [a, b, c, d, ..] = rest {
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        extensions.push((u16::from_be_bytes([*a, *b]), rest[4..4 + len].to_vec()));
        rest = &rest[4 + len..];
    }
    edit(&mut extensions);
    let list: Vec<u8> = extensions
        .iter()
        .flat_map(|(t, b)| [&t.to_be_bytes()[..], &(b.len() as u16).to_be_bytes(), b].concat())
        .collect();
    let body = [&head[..], &(list.len() as u16).to_be_bytes(), &list].concat();
    let hello = message(1, &body);
    [&[22, 3, 1][..], &(hello.len() as u16).to_be_bytes(), &hello].concat()
}

#[test]
fn rejects_client_hellos_that_break_a_rule() {
    type Edit = fn(&mut Vec<(u16, Vec<u8>)>);
    let cases: Vec<(&str, Edit, Alert)> = vec![
        ("without supported_versions", |e| e.retain(|(t, _)| *t != 43), Alert::PROTOCOL_VERSION),
        (
            "TLS 1.2 only",
            |e| e.iter_mut().filter(|(t, _)| *t == 43).for_each(|(_, b)| *b = vec![2, 3, 3]),
            Alert::PROTOCOL_VERSION,
        ),
        ("without signature_algorithms", |e| e.retain(|(t, _)| *t != 13), Alert::MISSING_EXTENSION),
        ("without key_share", |e| e.retain(|(t, _)| *t != 51), Alert::MISSING_EXTENSION),
        ("without supported_groups", |e| e.retain(|(t, _)| *t != 10), Alert::MISSING_EXTENSION),
        ("an extension twice", |e| e.push(e[0].clone()), Alert::ILLEGAL_PARAMETER),
        ("X.509 as the only type of certificate", |e| e.push((19, vec![1, 0])), Alert::ILLEGAL_PARAMETER),
        ("oid_filters", |e| e.push((48, vec![0, 0])), Alert::ILLEGAL_PARAMETER),
        ("a cookie out of nowhere", |e| e.push((44, vec![0, 1, 1])), Alert::ILLEGAL_PARAMETER),
        (
            "pre_shared_key without modes",
            |e| e.push((41, [&[0, 8, 0, 2, 1, 1, 0, 0, 0, 0, 0, 33, 32][..], &[0; 32]].concat())),
            Alert::MISSING_EXTENSION,
        ),
        (
            "pre_shared_key not last",
            |e| e.insert(0, (41, [&[0, 8, 0, 2, 1, 1, 0, 0, 0, 0, 0, 33, 32][..], &[0; 32]].concat())),
            Alert::ILLEGAL_PARAMETER,
        ),
        (
            "fewer binders than identities",
            |e| {
                e.push((45, vec![1, 1]));
                let two = [0, 14, 0, 1, 1, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 33, 32];
                e.push((41, [&two[..], &[0; 32]].concat()));
            },
            Alert::ILLEGAL_PARAMETER,
        ),
        (
            "a share twice",
            |e| {
                for (_, body) in e.iter_mut().filter(|(t, _)| *t == 51) {
                    let entry = body[2..].to_vec();
                    let list = [&entry[..], &entry].concat();
                    *body = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
                }
            },
            Alert::ILLEGAL_PARAMETER,
        ),
        (
            "a point that is none",
            |e| {
                for (_, body) in e.iter_mut().filter(|(t, _)| *t == 51) {
                    *body = [&[0, 36, 0, 29, 0, 32][..], &[0; 32]].concat();
                }
            },
            Alert::ILLEGAL_PARAMETER,
        ),
        (
            "a share of the wrong length",
            |e| {
                for (_, body) in e.iter_mut().filter(|(t, _)| *t == 51) {
                    *body = [&[0, 35, 0, 29, 0, 31][..], &[9; 31]].concat();
                }
            },
            Alert::ILLEGAL_PARAMETER,
        ),
        ("a tiny record_size_limit", |e| e.push((28, vec![0, 63])), Alert::ILLEGAL_PARAMETER),
        (
            "an empty server_name",
            |e| e.iter_mut().filter(|(t, _)| *t == 0).for_each(|(_, b)| b.clear()),
            Alert::DECODE_ERROR,
        ),
    ];
    for (name, edit, alert) in cases {
        let (_, mut server) = fresh();
        let result = server.receive(NOW, &edited_hello(edit));
        assert!(result.is_err(), "{name}");
        assert_eq!(sent_alert(&mut server, &[]), Some(alert), "{name}: {result:?}");
    }
    // Unknown extensions, including GREASE and padding, are ignored.
    let (_, mut server) = fresh();
    let odd = edited_hello(|e| {
        e.push((0x0a0a, vec![]));
        e.push((21, vec![0; 300]));
        e.push((0xff7f, vec![1, 2, 3]));
    });
    server.receive(NOW, &odd).unwrap();
}

#[test]
fn waits_for_the_rest_of_a_client_hello_and_rejects_truncated_ones() {
    let (mut client, _) = fresh();
    let hello = take(&mut client);
    for len in 0..hello.len() {
        let (_, mut server) = fresh();
        server.receive(NOW, &hello[..len]).unwrap();
        assert!(server.is_handshaking() && server.transmit().is_empty());
    }
    let body = &hello[9..];
    for len in 0..body.len() {
        let (_, mut server) = fresh();
        let cut = message(1, &body[..len]);
        let record = [&[22, 3, 1][..], &(cut.len() as u16).to_be_bytes(), &cut].concat();
        assert!(server.receive(NOW, &record).is_err(), "cut at {len}");
    }
}

#[test]
fn connects_byte_by_byte() {
    let (mut pair, _) = pair();
    for _ in 0..4 {
        for byte in take(&mut pair.client) {
            pair.server.receive(NOW, &[byte]).unwrap();
        }
        for byte in take(&mut pair.server) {
            pair.client.receive(NOW, &[byte]).unwrap();
        }
    }
    assert!(!pair.client.is_handshaking() && !pair.server.is_handshaking());
}

/// xorshift64*, for reproducible noise.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Changes, inserts, removes or repeats some bytes.
    fn disturb(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().max(1));
            match self.below(5) {
                0 if at < bytes.len() => bytes[at] = self.next() as u8,
                1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                2 => bytes.insert(at.min(bytes.len()), self.next() as u8),
                3 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
    }
}

#[test]
fn noise_in_plaintext_never_panics_or_connects() {
    let mut noise = Noise(0x00d0_11e5_u64);
    for round in 0..2000 {
        let (mut client, mut server) = fresh();
        let mut hello = take(&mut client);
        let clean = hello.clone();
        noise.disturb(&mut hello);
        let result = server.receive(NOW, &hello);
        let mut flight = take(&mut server);
        if round % 2 == 0 {
            noise.disturb(&mut flight);
        }
        let answer = client.receive(NOW, &flight);
        // RFC 8446 §5.1: receivers ignore a record's version (bytes 1 and 2); the transcript covers
        // everything else.
        let differs = hello.len() != clean.len() || hello[0] != clean[0] || hello[3..] != clean[3..];
        if differs && result.is_ok() && answer.is_ok() {
            assert!(client.negotiated().is_none(), "connected over a changed ClientHello");
        }
    }
}

#[test]
fn noise_in_encrypted_messages_never_panics_or_connects() {
    let mut noise = Noise(0x5eed);
    for _ in 0..300 {
        let cell = std::cell::RefCell::new(&mut noise);
        let (result, _) = edit_server_flight(&|mut m| {
            let mut noise = cell.borrow_mut();
            let i = noise.below(m.len());
            let before = m[i].clone();
            let mut body = m[i][4..].to_vec();
            noise.disturb(&mut body);
            m[i] = message(m[i][0], &body);
            if m[i] == before {
                m[i][4] ^= 1;
            }
            m
        });
        assert!(result.is_err(), "{result:?}");
    }
}

#[test]
fn errors_of_a_connection_are_permanent() {
    let (mut client, _) = fresh();
    let error = client.receive(NOW, &[22, 3, 3, 0, 4, 20, 0, 0, 0]).unwrap_err();
    assert_eq!(client.send(b"x"), Err(error.clone()));
    assert_eq!(client.update_keys(true), Err(error.clone()));
    assert_eq!(client.receive(NOW, b"x"), Err(error.clone()));
    assert_eq!(client.error(), Some(&error));
}

/// Well-formed lists above a limit: the error names the limit, and the alert is not decode_error.
#[test]
fn error_names_the_limit_that_a_client_hello_exceeds() {
    /// Adds entries to the list of this extension.
    fn fill(e: &mut [(u16, Vec<u8>)], typ: u16, count: usize, entry: impl Fn(u16) -> Vec<u8>) {
        let (_, body) = e.iter_mut().find(|(t, _)| *t == typ).unwrap();
        let entries = [body[2..].to_vec(), (0..count as u16).flat_map(entry).collect()].concat();
        *body = [&(entries.len() as u16).to_be_bytes()[..], &entries].concat();
    }
    let schemes = awslc().signatures.schemes.len();
    type Edit<'a> = &'a dyn Fn(&mut Vec<(u16, Vec<u8>)>, usize);
    let cases: [(Field, usize, Edit<'_>); 3] = [
        (Field::ExtensionList, 256, &|e, count| {
            let unknown = 0x7000..0x7000 + (count - e.len()) as u16;
            e.extend(unknown.map(|typ| (typ, vec![])));
        }),
        // The list already has the client's own share.
        (Field::Extension(ExtensionType::KEY_SHARE), 64, &|e, count| {
            fill(e, 51, count - 1, |i| [&(0x7000 + i).to_be_bytes()[..], &[0, 1, 7]].concat());
        }),
        (Field::Extension(ExtensionType::SIGNATURE_ALGORITHMS), 256, &|e, count| {
            fill(e, 13, count - schemes, |i| (0x7000 + i).to_be_bytes().to_vec());
        }),
    ];
    for (what, max, edit) in cases {
        let (_, mut server) = fresh();
        assert_eq!(server.receive(NOW, &edited_hello(|e| edit(e, max))).map(drop), Ok(()), "{what}");
        let (_, mut server) = fresh();
        let above = Malformed::AboveLimit { what, max, unit: Unit::Entries };
        let result = server.receive(NOW, &edited_hello(|e| edit(e, max + 1)));
        assert_eq!(result, Err(above.into()));
        assert_eq!(sent_alert(&mut server, &[]), Some(Alert::ILLEGAL_PARAMETER));
    }
    let (_, mut server) = fresh();
    let len = 65 * 1024;
    let result = server.receive(NOW, &[&[22, 3, 1, 0, 4, 1][..], &(len + 1u32).to_be_bytes()[1..]].concat());
    let error = result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer sent more than the limit of this side: ClientHello has more than 66560 bytes"
    );
    assert_eq!(sent_alert(&mut server, &[]), Some(Alert::ILLEGAL_PARAMETER));
}

/// RFC 9846 §4.2.3, against RFC 8446 §4.2.1.
#[test]
fn client_rejects_a_wrong_legacy_version_in_tls13() {
    for version in [[3, 1], [3, 2], [3, 4]] {
        let (mut client, mut server) = fresh();
        server.receive(NOW, &take(&mut client)).unwrap();
        let mut flight = take(&mut server);
        flight[9..11].copy_from_slice(&version);
        assert_eq!(
            client.receive(NOW, &flight),
            Err(PeerMisbehaved::IllegalParameter(Field::LegacyVersion).into())
        );
        assert_eq!(sent_alert(&mut client, &[]), Some(Alert::PROTOCOL_VERSION));
    }
}

/// RFC 8446 §4.2.1, against RFC 9846 §4.2.2.
#[test]
fn server_ignores_another_legacy_version_in_tls13() {
    for version in [[3, 1], [3, 2], [3, 4]] {
        let (mut client, mut server) = fresh();
        let mut flight = take(&mut client);
        flight[9..11].copy_from_slice(&version);
        assert_eq!(server.receive(NOW, &flight), Ok(flight.len()), "{version:?}");
    }
}

#[test]
fn rejects_a_protected_change_cipher_spec() {
    let (mut pair, secrets) = pair();
    pair.connect().unwrap();
    let keys = Keys::new(awslc().cipher_suites[0], &secrets.get("CLIENT_TRAFFIC_SECRET_0"));
    let result = pair.server.receive(NOW, &keys.seal(0, &[1, 20]));
    assert_eq!(result, Err(PeerMisbehaved::UnexpectedRecord(Field::ProtectedChangeCipherSpec).into()));
}

/// RFC 8446 §5.1.
#[test]
fn rejects_data_in_the_middle_of_a_message() {
    let (mut pair, secrets) = pair();
    pair.connect().unwrap();
    let keys = Keys::new(awslc().cipher_suites[0], &secrets.get("CLIENT_TRAFFIC_SECRET_0"));
    // The first half of a KeyUpdate.
    pair.server.receive(NOW, &keys.seal(0, &[HandshakeType::KEY_UPDATE.0, 0, 0, 22])).unwrap();
    let expected = PeerMisbehaved::UnexpectedRecord(Field::InsideMessage);
    assert_eq!(pair.server.receive(NOW, &keys.seal(1, b"data\x17")), Err(expected.into()));
}

/// RFC 8446 §5.4, RFC 5246 §6.2.1.
#[test]
fn rejects_an_empty_alert_record() {
    let (mut pair, secrets) = pair();
    pair.connect().unwrap();
    let keys = |label| Keys::new(awslc().cipher_suites[0], &secrets.get(label));
    for (end, theirs, ours) in [
        (&mut pair.server, "CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"),
        (&mut pair.client, "SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0"),
    ] {
        // The record has two bytes of padding.
        let result = end.receive(NOW, &keys(theirs).seal(0, &[21, 0, 0]));
        assert_eq!(result, Err(PeerMisbehaved::EmptyRecord.into()));
        assert_eq!(sent_alert(end, &[keys(ours)]), Some(Alert::UNEXPECTED_MESSAGE));
    }
    let (_, mut server) = fresh();
    assert_eq!(server.receive(NOW, &[21, 3, 3, 0, 0]), Err(PeerMisbehaved::EmptyRecord.into()));
    assert_eq!(sent_alert(&mut server, &[]), Some(Alert::UNEXPECTED_MESSAGE));
}

#[test]
fn rejects_a_change_cipher_spec_before_the_first_message() {
    let (_, mut server) = fresh();
    let result = server.receive(NOW, &[20, 3, 3, 0, 1, 1]);
    assert_eq!(
        result,
        Err(PeerMisbehaved::UnexpectedRecord(Field::Record(ContentType::CHANGE_CIPHER_SPEC)).into())
    );
}

#[test]
fn tolerates_wrong_counts_of_the_caller() {
    let (mut pair, _) = pair();
    pair.connect().unwrap();
    pair.client.send(b"hello").unwrap();
    pair.client.transmitted(1);
    pair.client.transmitted(usize::MAX);
    assert!(pair.client.transmit().is_empty());
    pair.server.send(b"hello").unwrap();
    let record = take(&mut pair.server);
    pair.client.receive(NOW, &record).unwrap();
    pair.client.consume(NOW, 1).unwrap();
    pair.client.consume(NOW, usize::MAX).unwrap();
    assert!(pair.client.received().is_empty());
}

#[test]
fn answers_every_key_update_over_a_pipe_that_is_never_empty() {
    let (mut pair, _) = pair();
    pair.connect().unwrap();
    for _ in 0..3 {
        pair.server.send(&[7; 100]).unwrap();
        pair.client.update_keys(true).unwrap();
        let request = take(&mut pair.client);
        pair.server.receive(NOW, &request).unwrap();
        // The transport takes all but the last byte, so that the next data follows the answer.
        pair.server.send(&[7; 100]).unwrap();
        let output = pair.server.transmit().to_vec();
        pair.server.transmitted(output.len() - 1);
        let mut rest = &output[..output.len() - 1];
        while !rest.is_empty() || !pair.client.received().is_empty() {
            let taken = pair.client.receive(NOW, rest).unwrap();
            rest = &rest[taken..];
            pair.client.consume(NOW, pair.client.received().len()).unwrap();
        }
    }
    let answers = pair.server.messages().iter().filter(|m| m.sent && m.typ == HandshakeType::KEY_UPDATE);
    assert_eq!(answers.count(), 3);
}
