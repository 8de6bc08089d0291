//! Peers that send invalid cache extensions, or abbreviated messages without agreement.

use std::sync::Arc;

use dunlin::cache::CacheMode;
use dunlin::error::{Malformed, PeerMisbehaved};
use dunlin::wire::{CipherSuite, ExtensionType, Field, HandshakeType as T, ProtocolVersion};
use dunlin::{ClientAuth, Error, TlsConnection};
use dunlin_store::MemoryServerCache;
use dunlin_tests::tamper::{Secrets, extension, message, messages, records, rewrite};
use dunlin_tests::{KeyType, NOW, Pair, awslc, carry};

use crate::{Setup, cached, connect, setups};

const P256: KeyType = KeyType::P256;
const HANDSHAKE_CACHE: u16 = 0xff20;
const CACHED_INFO: u16 = 25;
const EXTENDED_MASTER_SECRET: u16 = 23;

type Messages = Vec<Vec<u8>>;

/// Replaces the body of an extension in the list at `at`, appends the extension, or removes it if `body` is
/// `None`.
fn with_extension(message_: &[u8], at: usize, typ: u16, body: Option<&[u8]>) -> Vec<u8> {
    let (head, list) = message_.split_at(at);
    let mut rest = &list[2..];
    let mut out = Vec::new();
    let mut was_there = false;
    let one =
        |typ: u16, body: &[u8]| [&typ.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat();
    while let [a, b, c, d, tail @ ..] = rest {
        let found = u16::from_be_bytes([*a, *b]);
        let len = u16::from_be_bytes([*c, *d]);
        let (old, tail) = tail.split_at(usize::from(len));
        was_there |= found == typ;
        let new = if found == typ { body } else { Some(old) };
        out.extend(new.map(|new| one(found, new)).unwrap_or_default());
        rest = tail;
    }
    if let Some(body) = body.filter(|_| !was_there) {
        out.extend(one(typ, body));
    }
    let content = [&head[4..], &(out.len() as u16).to_be_bytes(), &out].concat();
    message(message_[0], &content)
}

/// Returns the position of the extension list in a ClientHello, ServerHello or EncryptedExtensions.
fn list_at(message: &[u8]) -> usize {
    let typ = T(message[0]);
    if typ == T::ENCRYPTED_EXTENSIONS {
        return 4;
    }
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(message[at]);
    if typ == T::SERVER_HELLO {
        return at + 3;
    }
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at + 1 + usize::from(message[at])
}

/// Edits the plaintext messages at the beginning of a flight; the records after them stay.
fn edited(flight: &[u8], edit: impl FnOnce(&mut Messages)) -> Vec<u8> {
    let records = records(flight);
    let clear = records.iter().take_while(|r| r[0] == 22).count();
    let mut all = messages(&records[..clear].iter().flat_map(|r| r[5..].to_vec()).collect::<Vec<_>>());
    edit(&mut all);
    let content = all.concat();
    [&[22, 3, 3][..], &(content.len() as u16).to_be_bytes(), &content, &records[clear..].concat()].concat()
}

/// Finds a message of a flight by its type.
fn find(messages: &mut Messages, typ: T) -> &mut Vec<u8> {
    messages.iter_mut().find(|m| m[0] == typ.0).expect("the message")
}

/// Sets this extension of `message` to `body`, or removes it if `body` is `None`.
pub(crate) fn set_extension(message: &mut Vec<u8>, typ: u16, body: Option<&[u8]>) {
    *message = with_extension(message, list_at(message), typ, body);
}

/// Returns the client's error after a server's first flight with these changes, in its first connection or in
/// a later one. The first message of the flight holds the server's answers.
fn to_client(setup: Setup, is_first: bool, edit: impl FnOnce(&mut Messages)) -> Error {
    let secrets = Arc::new(Secrets::default());
    let profile = |is_client| setup.profile(P256, is_client).extended_master_secret_required(false);
    let client = setup.client(profile(true));
    let server_profile = profile(false).key_log(Some(secrets.clone()));
    let known = Arc::new(MemoryServerCache::new(4));
    let server = Arc::new(setup.server_config(server_profile, ClientAuth::Required, &known));
    if !is_first {
        connect(&client, &Arc::new(setup.server_config(profile(false), ClientAuth::Required, &known)));
    }
    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.transmit().to_vec();
    pair.server.receive(NOW, &hello).unwrap();
    let flight = pair.server.transmit().to_vec();
    let flight = if setup.is_tls12() {
        edited(&flight, edit)
    } else {
        let secret = secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET");
        let suite = CipherSuite(u16::from_be_bytes(suite_of(&flight)));
        rewrite(&awslc(), suite, &secret, &flight, |mut messages| {
            edit(&mut messages);
            messages
        })
    };
    pair.client.receive(NOW, &flight).unwrap_err()
}

/// Returns the suite of a ServerHello.
fn suite_of(flight: &[u8]) -> [u8; 2] {
    let at = 5 + 4 + 2 + 32;
    let at = at + 1 + usize::from(flight[at]);
    [flight[at], flight[at + 1]]
}

fn is_illegal(error: &Error) -> bool {
    matches!(error, Error::PeerMisbehaved(PeerMisbehaved::IllegalParameter(_)))
}

fn is_malformed(error: &Error) -> bool {
    matches!(error, Error::Malformed(_))
}

#[test]
fn client_rejects_answers_that_it_did_not_offer() {
    for setup in setups() {
        let is_tls12 = setup.is_tls12();
        let answer = |is_first, typ, body: &[u8]| {
            to_client(setup, is_first, |m| set_extension(&mut m[0], typ, Some(body)))
        };
        for body in [&[1, 0xff][..], &[2, 0xff], &[0, 0], &[3, 0]] {
            assert!(is_illegal(&answer(true, HANDSHAKE_CACHE, body)), "{setup:?} {body:?}");
        }
        // The client offered one ticket.
        for index in [1, 2, 0xfe] {
            let body = [if setup.mode == CacheMode::Compact { 1 } else { 0 }, index];
            assert!(is_illegal(&answer(false, HANDSHAKE_CACHE, &body)), "{setup:?} {index}");
        }
        // TLS 1.3 has no bit for the CertificateRequest, and BiTHaC names the server's messages in
        // cached_info.
        if !is_tls12 || setup.mode == CacheMode::Bithac {
            assert!(is_illegal(&answer(false, HANDSHAKE_CACHE, &[2, 0])), "{setup:?}");
        }
        for body in [&[4, 0][..], &[0x81, 0], &[0], &[1, 0, 0]] {
            assert!(is_malformed(&answer(false, HANDSHAKE_CACHE, body)), "{setup:?} {body:?}");
        }
        match setup.mode {
            // The client did not name the short CertificateRequest, and type 200 does not exist.
            CacheMode::Bithac => {
                for body in [&[0, 1, 2][..], &[0, 2, 1, 200], &[0, 2, 1, 1]] {
                    assert!(is_illegal(&answer(false, CACHED_INFO, body)), "{setup:?} {body:?}");
                }
                for body in [&[][..], &[0, 0], &[0, 2, 1], &[0, 1, 1, 2]] {
                    assert!(is_malformed(&answer(false, CACHED_INFO, body)), "{setup:?} {body:?}");
                }
            }
            _ => {
                let typ = ExtensionType(CACHED_INFO);
                let unsolicited = PeerMisbehaved::UnsolicitedExtension(typ).into();
                assert_eq!(answer(false, CACHED_INFO, &[0, 1, 1]), unsolicited);
            }
        }
    }
}

/// The peer accepts an abbreviated message only after agreement.
#[test]
fn client_rejects_abbreviated_messages_without_agreement() {
    for setup in setups() {
        let (typ, none): (_, Option<&[u8]>) = match setup.mode {
            CacheMode::Compact if setup.is_tls12() => (HANDSHAKE_CACHE, None),
            CacheMode::Compact => (HANDSHAKE_CACHE, Some(&[0, 0])),
            _ => (CACHED_INFO, None),
        };
        let error = to_client(setup, false, |m| set_extension(&mut m[0], typ, none));
        assert!(is_malformed(&error), "{setup:?}: {error:?}");
        // A server that answers a ticket must also send CertificateRequest.
        let error = to_client(setup, false, |m| m.retain(|m| m[0] != T::CERTIFICATE_REQUEST.0));
        assert!(is_illegal(&error), "{setup:?}: {error:?}");
    }
    // Without the bit for the CertificateRequest, the abbreviated one is truncated.
    let setup = Setup { version: ProtocolVersion::TLS1_2, mode: CacheMode::Compact };
    let error = to_client(setup, false, |m| set_extension(&mut m[0], HANDSHAKE_CACHE, Some(&[1, 0])));
    assert_eq!(error, Malformed::Truncated(Field::Message(T::CERTIFICATE_REQUEST)).into());
    // A changed fingerprint, or one byte more or less, is neither a valid fingerprint nor a list of
    // certificates.
    let setup = Setup { mode: CacheMode::Bithac, ..setup };
    for change in [
        (|body: &mut Vec<u8>| *body.last_mut().unwrap() ^= 1) as fn(&mut Vec<u8>),
        |body| body[0] = 31,
        |body| body.push(0),
        |body| body.truncate(32),
        Vec::clear,
    ] {
        let error = to_client(setup, false, |m| {
            let certificate = find(m, T::CERTIFICATE);
            let mut body = certificate[4..].to_vec();
            assert_eq!(body.len(), 33);
            change(&mut body);
            *certificate = message(T::CERTIFICATE.0, &body);
        });
        assert!(is_malformed(&error), "{error:?}");
    }
}

/// RFC 7627: without extended master secret the certificates do not enter the secrets.
#[test]
fn caches_are_unused_without_extended_master_secret() {
    for setup in setups().filter(|setup| setup.is_tls12()) {
        let error = to_client(setup, false, |m| set_extension(&mut m[0], EXTENDED_MASTER_SECRET, None));
        assert!(is_illegal(&error), "{setup:?}: {error:?}");
        // Each part of an answer alone: certificate, request or ticket by name, and a fingerprint of
        // cached_info.
        let answers: [(&[u8], Option<&[u8]>); 4] =
            [(&[1, 0xff], None), (&[2, 0xff], None), (&[0, 0], None), (&[], Some(&[0, 1, 1]))];
        for (cache, info) in answers {
            if info.is_some() && setup.mode == CacheMode::Compact {
                continue;
            }
            let error = to_client(setup, false, |m| {
                set_extension(&mut m[0], EXTENDED_MASTER_SECRET, None);
                set_extension(&mut m[0], HANDSHAKE_CACHE, Some(cache));
                set_extension(&mut m[0], CACHED_INFO, info);
            });
            let unused = PeerMisbehaved::IllegalParameter(Field::CacheUnused).into();
            assert_eq!(error, unused, "{setup:?} {cache:?} {info:?}");
        }
        // The server answers that it uses no cache entry.
        let profile = |is_client| setup.profile(P256, is_client).extended_master_secret_required(false);
        let client = setup.client(profile(true));
        let (server, _) = setup.server(profile(false), ClientAuth::Required);
        connect(&client, &server);
        let flight = server_after(&Pair::new(&client, &server), &server, |hello| {
            set_extension(hello, EXTENDED_MASTER_SECRET, None);
        });
        assert_eq!(extension(flight.transmit(), HANDSHAKE_CACHE), Some(&[][..]));
        assert_eq!(extension(flight.transmit(), CACHED_INFO), None);
        assert!(sent(&flight, T::CERTIFICATE) > 500);
    }
}

/// Returns a server after it received the changed ClientHello of this pair.
pub(crate) fn server_after(
    pair: &Pair,
    server: &Arc<dunlin::ServerConfig>,
    edit: impl FnOnce(&mut Vec<u8>),
) -> TlsConnection {
    let hello = edited(pair.client.transmit(), |messages| edit(&mut messages[0]));
    let mut server = TlsConnection::server(server, NOW);
    let _ = server.receive(NOW, &hello);
    server
}

pub(crate) fn sent(server: &TlsConnection, typ: T) -> usize {
    server.messages().iter().find(|m| m.sent && m.typ == typ).expect("the message").len
}

/// RFC 7924: TLS 1.2 servers can choose one of several fingerprints; TLS 1.3 has no field for the choice.
#[test]
fn tls12_server_chooses_among_several_fingerprints() {
    for mode in [CacheMode::Rfc7924, CacheMode::Bithac] {
        for version in [ProtocolVersion::TLS1_2, ProtocolVersion::TLS1_3] {
            let setup = Setup { version, mode };
            let (client, server, _) = setup.ends(P256);
            connect(&client, &server);
            let pair = Pair::new(&client, &server);
            let offer = extension(pair.client.transmit(), CACHED_INFO).unwrap()[2..].to_vec();
            let other = [&[1, 32][..], &[7; 32]].concat();
            let unknown = vec![99, 3, 1, 2, 3];
            let answers = |objects: &[&Vec<u8>]| {
                let objects: Vec<u8> = objects.iter().flat_map(|object| object.to_vec()).collect();
                let body = [&(objects.len() as u16).to_be_bytes()[..], &objects].concat();
                let says =
                    server_after(&pair, &server, |hello| set_extension(hello, CACHED_INFO, Some(&body)));
                assert_eq!(says.error(), None);
                sent(&says, T::CERTIFICATE) < 50
            };
            assert!(answers(&[&offer]));
            assert!(answers(&[&unknown, &offer]));
            assert_eq!(answers(&[&other, &offer]), setup.is_tls12());
            assert_eq!(answers(&[&offer, &other, &unknown]), setup.is_tls12());
            assert!(!answers(&[&other]) && !answers(&[&unknown]));
            // A fingerprint of another length is unknown.
            assert!(!answers(&[&[&[1, 31][..], &offer[2..33]].concat()]));
        }
    }
}

#[test]
fn server_rejects_malformed_offers() {
    for setup in setups() {
        let (client, server, store) = setup.ends(P256);
        connect(&client, &server);
        let pair = Pair::new(&client, &server);
        let says = |typ, body: &[u8]| {
            server_after(&pair, &server, |hello| set_extension(hello, typ, Some(body)))
                .error()
                .cloned()
                .unwrap()
        };
        for body in [&[4][..], &[1, 2, 3], &[0, 1], &[3, 1, 2, 3, 4, 5, 6, 7, 8]] {
            assert!(is_malformed(&says(HANDSHAKE_CACHE, body)), "{body:?}");
        }
        let three = [&[0][..], &[1; 8], &[2; 8], &[3; 8]].concat();
        assert!(is_malformed(&says(HANDSHAKE_CACHE, &three)));
        let twice = [&[0][..], &[1; 8], &[1; 8]].concat();
        assert!(is_illegal(&says(HANDSHAKE_CACHE, &twice)));
        for body in [&[][..], &[0, 0], &[0, 1, 1], &[0, 2, 1, 0], &[0, 3, 1, 2, 7]] {
            assert!(is_malformed(&says(CACHED_INFO, body)), "{body:?}");
        }
        assert_eq!(store.len(), 1);
    }
}

/// A TLS 1.2 client that omits its certificates before the server knows them, or its CertificateVerify
/// afterwards.
#[test]
fn server_rejects_clients_without_proof() {
    for setup in setups().filter(|setup| setup.is_tls12()) {
        let (client, server, store) = setup.ends(P256);
        let refused = |edit: &dyn Fn(&mut Messages)| {
            let mut pair = Pair::new(&client, &server);
            carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
            carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
            let flight = edited(pair.client.transmit(), |messages| edit(messages));
            pair.server.receive(NOW, &flight).unwrap_err()
        };
        let empty =
            |messages: &mut Messages| *find(messages, T::CERTIFICATE) = message(T::CERTIFICATE.0, &[]);
        assert!(is_malformed(&refused(&empty)));
        connect(&client, &server);
        let error = refused(&|messages| messages.retain(|m| m[0] != T::CERTIFICATE_VERIFY.0));
        assert!(matches!(error, Error::PeerMisbehaved(_)), "{error:?}");
        // Only servers may use the abbreviated Certificate of RFC 7924.
        let named = [&[32][..], &[7; 32]].concat();
        let error = refused(&|m| *find(m, T::CERTIFICATE) = message(T::CERTIFICATE.0, &named));
        assert!(is_malformed(&error), "{error:?}");
        // An empty list still means "no certificate", and this server requires one.
        let none = refused(&|m| *find(m, T::CERTIFICATE) = message(T::CERTIFICATE.0, &[0, 0, 0]));
        assert!(matches!(none, Error::Authentication(_)), "{none:?}");
        assert_eq!(store.len(), 1);
        let mut pair = Pair::new(&client, &server);
        pair.connect().unwrap();
        assert_eq!(cached(&pair), [true; 2]);
    }
}

/// A peer must never send the synthetic messages.
#[test]
fn synthetic_messages_are_unexpected() {
    for setup in setups() {
        for typ in [253, 254] {
            for at in 0..3 {
                let error = to_client(setup, false, |m| m.insert(at, message(typ, &[7; 32])));
                let expected = matches!(
                    error,
                    Error::PeerMisbehaved(PeerMisbehaved::UnexpectedMessage { got, .. }) if got == T(typ)
                );
                assert!(expected, "{setup:?} {typ} at {at}: {error:?}");
            }
        }
    }
}
