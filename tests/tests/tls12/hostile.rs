//! Hostile TLS 1.2 peers: messages left out, doubled or changed, and misplaced ChangeCipherSpecs.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::error::{Malformed, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription as Alert, ExtensionType, Field, HandshakeType as T, ProtocolVersion};
use dunlin::{
    ClientAuth, ClientConfig, Error, Profile, ProfileBuilder, PskSource, ServerConfig, TlsConnection, Trust,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_tests::tamper::{self, message, messages, records};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, ends};

const CHANGE_CIPHER_SPEC: [u8; 6] = [20, 3, 3, 0, 1, 1];

fn profile() -> ProfileBuilder {
    let suites = [TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES].concat();
    Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(suites)
}

/// A pair with mutual X.509 and edited profiles.
fn pair_with(edit: impl Fn(ProfileBuilder) -> ProfileBuilder) -> Pair {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let trust = || Trust { x509: Some(pki.trust()), raw_key: None };
    let client = edit(profile().trust(trust()).credentials(vec![pki.client.x509(&provider)]));
    let server = edit(profile().trust(trust()).credentials(vec![pki.server.x509(&provider)]));
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap();
    Pair::new(&Arc::new(ClientConfig::new(client.build().unwrap())), &Arc::new(server))
}

fn pair() -> Pair {
    pair_with(|profile| profile)
}

fn psk_pair() -> Pair {
    let psk = || Psk::new("d1", &[7; 32]).unwrap();
    let client = ClientConfig::new(profile().build().unwrap()).with_psks(vec![Arc::new(psk())]);
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let server = ServerConfig::psk_only(profile().build().unwrap(), keys).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server))
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

fn record(typ: u8, content: &[u8]) -> Vec<u8> {
    [&[typ, 3, 3], &(content.len() as u16).to_be_bytes()[..], content].concat()
}

/// Returns the plaintext messages at the beginning of a flight, and the records after them.
fn open(flight: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let records = records(flight);
    let clear = records.iter().take_while(|r| r[0] == 22).count();
    let joined: Vec<u8> = records[..clear].iter().flat_map(|r| r[5..].to_vec()).collect();
    (messages(&joined), records[clear..].to_vec())
}

fn close(messages: &[Vec<u8>], rest: &[Vec<u8>]) -> Vec<u8> {
    let clear = if messages.is_empty() { Vec::new() } else { record(22, &messages.concat()) };
    [clear, rest.concat()].concat()
}

/// RFC 8446 §D.5: this holds for every ClientHello, also if supported_versions names TLS 1.2 alone.
#[test]
fn rejects_the_version_of_ssl_3_in_every_client_hello() {
    for (with_tls13, legacy_version, is_rejected) in [
        (false, 0x0303, false),
        (false, 0x0301, false),
        (false, 0x0300, true),
        (false, 0x0002, true),
        (true, 0x0300, true),
    ] {
        // A client that offers both versions has supported_versions, from which the test removes TLS 1.3.
        let mut pair = pair_with(|profile| profile.cipher_suites(awslc().cipher_suites.clone()));
        let mut hello = take(&mut pair.client);
        let versions = tamper::extension_at(&hello, 43).unwrap();
        assert_eq!(hello[versions.clone()], [4, 3, 4, 3, 3]);
        if !with_tls13 {
            hello[versions.start + 2] = 0x7f;
        }
        hello[9..11].copy_from_slice(&u16::to_be_bytes(legacy_version));
        let expected = Error::from(PeerIncompatible::Version(Some(ProtocolVersion(legacy_version))));
        let result = pair.server.receive(NOW, &hello).map(drop);
        assert_eq!(result, if is_rejected { Err(expected) } else { Ok(()) }, "{legacy_version:#06x}");
        let is_alert = records(&take(&mut pair.server)).pop().is_some_and(|r| r[0] == 21);
        assert_eq!(is_alert, is_rejected);
    }
}

type Messages = Vec<Vec<u8>>;

/// Edits a flight's plaintext messages and the records after them. Returns the receiver's result, and its
/// plaintext alert if it sends one.
fn edited(
    mut pair: Pair,
    of_server: bool,
    edit: &dyn Fn(&mut Messages, &mut Messages),
) -> (Result<(), Error>, Option<Alert>) {
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let mut flight = take(&mut pair.server);
    if !of_server {
        pair.client.receive(NOW, &flight).unwrap();
        flight = take(&mut pair.client);
    }
    let (mut messages, mut rest) = open(&flight);
    edit(&mut messages, &mut rest);
    let to = if of_server { &mut pair.client } else { &mut pair.server };
    let result = to.receive(NOW, &close(&messages, &rest)).map(drop);
    assert!(result.is_ok() || to.negotiated().is_none(), "an identity before a valid Finished");
    let alert = records(&take(to)).pop().filter(|r| r[0] == 21 && r.len() == 7).map(|r| Alert(r[6]));
    (result, alert)
}

const SERVER_FLIGHT: [T; 5] =
    [T::SERVER_HELLO, T::CERTIFICATE, T::SERVER_KEY_EXCHANGE, T::CERTIFICATE_REQUEST, T::SERVER_HELLO_DONE];
const CLIENT_FLIGHT: [T; 3] = [T::CERTIFICATE, T::CLIENT_KEY_EXCHANGE, T::CERTIFICATE_VERIFY];

/// Calls `f` for every plaintext message: whether the server sends it, its type, and its position in the
/// flight.
fn each_message(mut f: impl FnMut(bool, T, usize)) {
    for (of_server, flight) in [(true, &SERVER_FLIGHT[..]), (false, &CLIENT_FLIGHT[..])] {
        let (honest, _) = edited(pair(), of_server, &|messages, _| {
            let types: Vec<_> = messages.iter().map(|m| T(m[0])).collect();
            assert_eq!(types, flight);
        });
        honest.unwrap();
        flight.iter().enumerate().for_each(|(i, typ)| f(of_server, *typ, i));
    }
}

#[test]
fn rejects_trailing_bytes_and_truncation() {
    each_message(|of_server, typ, i| {
        for edit in [&(|m: &[u8]| [m, &[0]].concat()) as &dyn Fn(&[u8]) -> Vec<u8>, &|m: &[u8]| {
            m.split_last().map_or_else(|| vec![0], |(_, rest)| rest.to_vec())
        }] {
            let (result, alert) = edited(pair(), of_server, &|messages, _| {
                messages[i] = message(messages[i][0], &edit(&messages[i][4..]));
            });
            assert!(matches!(result, Err(Error::Malformed(_))), "{typ}: {result:?}");
            assert_eq!(alert, Some(Alert::DECODE_ERROR), "{typ}");
        }
    });
}

#[test]
fn rejects_missing_doubled_and_retyped_messages() {
    each_message(|of_server, typ, i| {
        let unexpected = |what: &str, edit: &dyn Fn(&mut Messages)| {
            let (result, alert) = edited(pair(), of_server, &|messages, _| edit(messages));
            let expected = matches!(
                result,
                Err(Error::PeerMisbehaved(
                    PeerMisbehaved::UnexpectedMessage { .. }
                        | PeerMisbehaved::UnexpectedRecord(_)
                        | PeerMisbehaved::NotAlignedAtKeyChange
                        | PeerMisbehaved::ExcessHandshakeData
                ))
            );
            assert!(expected, "{typ} {what}: {result:?}");
            assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE), "{typ} {what}");
        };
        // A server may omit CertificateRequest; without ServerHelloDone the client just waits.
        if typ != T::CERTIFICATE_REQUEST && typ != T::SERVER_HELLO_DONE {
            unexpected("left out", &|messages| drop(messages.remove(i)));
        }
        unexpected("doubled", &|messages| messages.insert(i, messages[i].clone()));
        for other in T::ALL.iter().map(|t| t.0).chain([3, 67, 255]) {
            let optional = typ == T::CERTIFICATE_REQUEST && T(other) == T::SERVER_HELLO_DONE;
            // RFC 5246 §7.4.1.1: a client that is negotiating ignores HelloRequest, which has an empty body.
            let ignored = typ == T::SERVER_HELLO_DONE && T(other) == T::HELLO_REQUEST;
            if T(other) != typ && !optional && !ignored {
                unexpected("of another type", &|messages| messages[i][0] = other);
            }
        }
    });
}

/// CVE-2014-0224 and similar: keys come into use at one place, once.
#[test]
fn rejects_misplaced_change_cipher_specs() {
    // To the client: before the server's flight, and before each of its messages.
    let mut early = pair();
    take(&mut early.client);
    // The compatibility mode of TLS 1.3 allows it here; TLS 1.2 does not.
    let _ = early.client.receive(NOW, &CHANGE_CIPHER_SPEC);
    let mut honest = pair();
    let hello = take(&mut honest.client);
    honest.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut honest.server);
    let result = early.client.receive(NOW, &flight);
    assert!(matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(_)))), "{result:?}");

    each_message(|of_server, typ, i| {
        let (result, alert) = edited(pair(), of_server, &|messages, rest| {
            let later = messages.split_off(i);
            rest.splice(0..0, [CHANGE_CIPHER_SPEC.to_vec(), record(22, &later.concat())]);
        });
        // Before the ServerHello the client drops it, and refuses the handshake once the version is TLS 1.2.
        assert!(
            matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(_)))),
            "before {typ}: {result:?}"
        );
        assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE), "before {typ}");
        // In the middle of a message.
        let (result, alert) = edited(pair(), of_server, &|messages, rest| {
            let later: Vec<u8> = messages.split_off(i).concat();
            rest.splice(
                0..0,
                [record(22, &later[..3]), CHANGE_CIPHER_SPEC.to_vec(), record(22, &later[3..])],
            );
        });
        assert!(matches!(result, Err(Error::PeerMisbehaved(_))), "in {typ}: {result:?}");
        assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE), "in {typ}");
    });

    let unexpected = |edit: &dyn Fn(&mut Messages)| {
        let (result, alert) = edited(pair(), false, &|_, rest| edit(rest));
        assert!(
            matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(_)))),
            "{result:?}"
        );
        assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE));
    };
    // Left out: a plaintext Finished.
    unexpected(&|rest| *rest = vec![record(22, &message(20, &[0; 12]))]);
    // With another content, or with more content.
    unexpected(&|rest| rest[0] = record(20, &[2]));
    unexpected(&|rest| rest[0] = record(20, &[1, 1]));
    // Twice: the second one does not decrypt.
    let (result, _) = edited(pair(), false, &|_, rest| rest.insert(1, CHANGE_CIPHER_SPEC.to_vec()));
    assert_eq!(result, Err(PeerMisbehaved::BadRecordMac.into()));
}

/// RFC 5246 §7.1: no message may cross a change of keys.
#[test]
fn rejects_messages_across_a_change_of_keys() {
    let (result, alert) = edited(pair(), false, &|messages, _| messages.push(vec![20, 0, 0]));
    assert!(matches!(result, Err(Error::PeerMisbehaved(_))), "{result:?}");
    assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE));
}

#[test]
fn rejects_changed_bytes_of_every_message() {
    each_message(|of_server, typ, i| {
        // Changes every seventh byte of every message, one at a time.
        let len = std::cell::Cell::new(0);
        edited(pair(), of_server, &|messages, _| len.set(messages[i].len())).0.unwrap();
        for at in (4..len.get()).step_by(7) {
            let mut pair = pair();
            let hello = take(&mut pair.client);
            pair.server.receive(NOW, &hello).unwrap();
            let mut flight = take(&mut pair.server);
            if !of_server {
                pair.client.receive(NOW, &flight).unwrap();
                flight = take(&mut pair.client);
            }
            let (mut messages, rest) = open(&flight);
            let at = at.min(messages[i].len() - 1);
            messages[i][at] ^= 0x40;
            let flight = close(&messages, &rest);
            let to = if of_server { &mut pair.client } else { &mut pair.server };
            let result = to.receive(NOW, &flight).map(drop).and_then(|()| pair.run());
            assert!(result.is_err(), "{typ}, byte {at}");
            assert!(pair.client.negotiated().is_none() || pair.server.negotiated().is_none());
        }
    });
}

/// RFC 5246 §7.4.3, §7.4.8: the receiver offered the scheme of a signature, and TLS 1.2 uses it with a key of
/// this kind.
#[test]
fn rejects_signature_schemes_that_were_not_offered_or_do_not_fit() {
    use dunlin::wire::SignatureScheme as S;
    let offered = vec![S::ECDSA_SECP256R1_SHA256, S::RSA_PSS_RSAE_SHA256, S::MLDSA44];
    let pair = || pair_with(|profile| profile.signature_schemes(offered.clone()));
    // Only in the server's first flight has a cipher suite already chosen between ECDSA and RSA.
    for (of_server, other) in [(true, S::RSA_PSS_RSAE_SHA256), (false, S::MLDSA44)] {
        for (scheme, is_usable) in
            [(S::ECDSA_SECP256R1_SHA256, true), (S::ECDSA_SECP384R1_SHA384, false), (other, false)]
        {
            let (result, alert) = edited(pair(), of_server, &|messages, _| {
                let typ = if of_server { T::SERVER_KEY_EXCHANGE } else { T::CERTIFICATE_VERIFY };
                let signed = messages.iter_mut().find(|message| message[0] == typ.0).unwrap();
                // In ServerKeyExchange, a curve with its type and a public key with its length precede the
                // scheme.
                let at = if of_server { 4 + 3 + 1 + usize::from(signed[7]) } else { 4 };
                signed[at..at + 2].copy_from_slice(&scheme.0.to_be_bytes());
            });
            let not_offered = PeerMisbehaved::NotOffered(Field::SignatureScheme).into();
            let expected =
                if is_usable { (Ok(()), None) } else { (Err(not_offered), Some(Alert::ILLEGAL_PARAMETER)) };
            assert_eq!((result, alert), expected, "{scheme:?}, server: {of_server}");
        }
    }
}

/// Without extended master secret the keys do not depend on the Hellos' extensions, but Finished does.
#[test]
fn wrong_finished_gets_decrypt_error() {
    let mut pair = pair_with(|p| p.extended_master_secret_required(false));
    let mut hello = take(&mut pair.client);
    // An unknown extension replaces extended_master_secret.
    let at = hello.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
    hello[at] = 0x7a;
    pair.server.receive(NOW, &hello).unwrap();
    // The server first checks the client's signature over the transcript, and without one Finished.
    assert_eq!(pair.run(), Err(PeerMisbehaved::BadSignature.into()));

    let pki = Pki::shared(KeyType::P256);
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let client = profile().trust(trust).extended_master_secret_required(false).build().unwrap();
    let server =
        profile().credentials(vec![pki.server.x509(&awslc())]).extended_master_secret_required(false);
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    let mut pair = Pair::new(&Arc::new(ClientConfig::new(client)), &Arc::new(server));
    let mut hello = take(&mut pair.client);
    let at = hello.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
    hello[at] = 0x7a;
    pair.server.receive(NOW, &hello).unwrap();
    assert_eq!(pair.run(), Err(PeerMisbehaved::BadFinished.into()));
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(Alert::DECRYPT_ERROR)));
}

/// RFC 5246 §7.4.1.4: this includes extensions that the client offered for TLS 1.3.
#[test]
fn client_rejects_unsolicited_extensions_in_server_hello() {
    // Both sides support TLS 1.2, and the client also TLS 1.3.
    let client = || pair_with(|profile| profile.cipher_suites(awslc().cipher_suites.clone())).client;
    let hello = take(&mut client());
    assert!(tamper::extension(&hello, 13).is_some() && tamper::extension(&hello, 51).is_some());
    let never_in_it = [
        ExtensionType::PADDING,
        ExtensionType::COOKIE,
        ExtensionType::KEY_SHARE,
        ExtensionType::EARLY_DATA,
        ExtensionType::PSK_KEY_EXCHANGE_MODES,
        ExtensionType::CERTIFICATE_AUTHORITIES,
        ExtensionType::SIGNATURE_ALGORITHMS,
    ];
    for typ in never_in_it {
        let both = Pair { client: client(), ..pair() };
        let (result, alert) = edited(both, true, &|messages, _| {
            let hello = messages[0].clone();
            let at = 4 + 2 + 32;
            let at = at + 1 + usize::from(hello[at]) + 2 + 1;
            let len = usize::from(u16::from_be_bytes([hello[at], hello[at + 1]])) + 4;
            let extensions = [&hello[at + 2..], &typ.0.to_be_bytes(), &[0, 0]].concat();
            let body = [&hello[4..at], &(len as u16).to_be_bytes(), &extensions].concat();
            messages[0] = message(T::SERVER_HELLO.0, &body);
        });
        let unsolicited = PeerMisbehaved::UnsolicitedExtension(typ);
        assert_eq!(result, Err(unsolicited.into()), "{typ}");
        assert_eq!(alert, Some(Alert::UNSUPPORTED_EXTENSION), "{typ}");
    }
}

/// RFC 7627 §5.2, and the behaviour if it is not required.
#[test]
fn refuses_a_peer_without_extended_master_secret() {
    let hide = |hello: &mut Vec<u8>| {
        let at = hello.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
        hello[at] = 0x7a;
    };
    let mut refused = pair();
    let mut hello = take(&mut refused.client);
    hide(&mut hello);
    let result = refused.server.receive(NOW, &hello).map(drop);
    assert_eq!(result, Err(PeerIncompatible::ExtendedMasterSecret.into()));
    assert_eq!(take(&mut refused.server)[6], Alert::HANDSHAKE_FAILURE.0);

    let mut pair = pair();
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    let (mut messages, rest) = open(&flight);
    let at = messages[0].windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
    let len = messages[0].len();
    messages[0].drain(at..at + 4);
    // The lengths of the message and of its extensions.
    messages[0][3] = (len - 8) as u8;
    let extensions = 4 + 2 + 32 + 1 + 2 + 1;
    messages[0][extensions + 1] -= 4;
    let result = pair.client.receive(NOW, &close(&messages, &rest)).map(drop);
    assert_eq!(result, Err(PeerIncompatible::ExtendedMasterSecret.into()));
}

/// RFC 7627 §5.3: "the server MUST abort the abbreviated handshake", even if a full one may do without.
#[test]
fn server_aborts_a_resumption_without_extended_master_secret() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let profile = || profile().extended_master_secret_required(false);
    for tickets in ends::tickets() {
        let client = profile().trust(Trust { x509: Some(pki.trust()), raw_key: None }).build().unwrap();
        let client = Arc::new(ClientConfig::new(client).with_sessions(ends::with_sessions()));
        let server = profile().credentials(vec![pki.server.x509(&provider)]).build().unwrap();
        let server = Arc::new(ServerConfig::new(server).unwrap().with_tickets(tickets));
        Pair::new(&client, &server).connect().unwrap();
        let mut pair = Pair::new(&client, &server);
        let mut hello = take(&mut pair.client);
        let at = hello.windows(4).position(|w| w == [0, 23, 0, 0]).unwrap();
        hello[at] = 0x7a;
        let result = pair.server.receive(NOW, &hello).map(drop);
        assert_eq!(result, Err(PeerIncompatible::ExtendedMasterSecret.into()));
        assert_eq!(take(&mut pair.server)[6], Alert::HANDSHAKE_FAILURE.0);
    }
}

/// RFC 9325 §3.5: a server without secure renegotiation may have been talking to an attacker first.
#[test]
fn client_refuses_a_server_without_secure_renegotiation() {
    let (result, alert) = edited(pair(), true, &|messages, _| {
        let at = messages[0].windows(5).position(|w| w == [0xff, 1, 0, 1, 0]).unwrap();
        let len = messages[0].len();
        messages[0].drain(at..at + 5);
        messages[0][3] = (len - 9) as u8;
        let extensions = 4 + 2 + 32 + 1 + 2 + 1;
        messages[0][extensions + 1] -= 5;
    });
    assert_eq!(result, Err(PeerIncompatible::SecureRenegotiation.into()));
    assert_eq!(alert, Some(Alert::HANDSHAKE_FAILURE));
}

/// RFC 8446 §D.4: the session ID of the compatibility mode names no session.
#[test]
fn client_rejects_an_echo_of_the_compatibility_session_id() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let client = Profile::builder(provider.clone())
        .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        .trust(trust)
        .build()
        .unwrap();
    let server = profile().credentials(vec![pki.server.x509(&provider)]).build().unwrap();
    let server = ServerConfig::new(server).unwrap();
    let mut pair = Pair::new(&Arc::new(ClientConfig::new(client)), &Arc::new(server));
    let hello = take(&mut pair.client);
    let session_id = hello[5 + 4 + 2 + 32 + 1..][..32].to_vec();
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    let (mut messages, rest) = open(&flight);
    let body = &messages[0][4..];
    let echo = [&body[..34], &[32], &session_id, &body[35..]].concat();
    messages[0] = message(2, &echo);
    let result = pair.client.receive(NOW, &close(&messages, &rest)).map(drop);
    assert!(matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::IllegalParameter(_)))), "{result:?}");
}

#[test]
fn client_rejects_a_certificate_request_of_a_psk_server() {
    let request = [&[1, 64][..], &[0, 2, 4, 3], &[0, 0]].concat();
    let mut pair = psk_pair();
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    let (mut messages, rest) = open(&flight);
    messages.insert(1, message(T::CERTIFICATE_REQUEST.0, &request));
    let result = pair.client.receive(NOW, &close(&messages, &rest)).map(drop);
    assert!(matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::UnexpectedMessage { .. }))));
}

#[test]
fn rejects_data_before_finished() {
    for of_server in [true, false] {
        let (result, alert) = edited(pair(), of_server, &|messages, rest| {
            let later = messages.split_off(1);
            rest.splice(0..0, [record(23, b"early"), record(22, &later.concat())]);
        });
        assert!(
            matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(_)))),
            "{result:?}"
        );
        assert_eq!(alert, Some(Alert::UNEXPECTED_MESSAGE));
    }
}

/// RFC 5246 §7.2: a warning does not end the connection, but a flood of warnings does.
#[test]
fn tolerates_warnings_up_to_a_limit() {
    let warning = |n: usize| record(21, &[1, Alert::UNRECOGNIZED_NAME.0]).repeat(n);
    for (count, goes_on) in [(4, true), (5, false)] {
        let mut pair = pair();
        let hello = take(&mut pair.client);
        pair.server.receive(NOW, &hello).unwrap();
        let flight = [warning(count), take(&mut pair.server)].concat();
        let result = pair.client.receive(NOW, &flight);
        assert_eq!(result.is_ok(), goes_on, "{result:?}");
    }
    // The same alert at the fatal level.
    let mut pair = pair();
    take(&mut pair.client);
    let result = pair.client.receive(NOW, &record(21, &[2, Alert::UNRECOGNIZED_NAME.0]));
    assert_eq!(result, Err(Error::AlertReceived(Alert::UNRECOGNIZED_NAME)));
}

#[test]
fn client_rejects_an_empty_certificate_list() {
    let (result, alert) = edited(pair(), true, &|m, _| m[1] = message(T::CERTIFICATE.0, &[0, 0, 0]));
    assert_eq!(result, Err(Malformed::Length(Field::CertificateList).into()));
    assert_eq!(alert, Some(Alert::DECODE_ERROR));
}

/// RFC 5246 §7.4.1.2: a client that asks for no ticket gets a session ID if the server has a session store.
#[test]
fn client_without_tickets_gets_a_session_id() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let tickets = || Tickets::stateless(Arc::new(dunlin_store::RotatingTickets::new(awslc()).unwrap()));
    let store = Arc::new(dunlin_store::MemoryServerSessions::new(4));
    for (tickets, hides, id_len) in [
        (tickets(), true, 0),
        (tickets().or_session_ids(store.clone()), true, 16),
        (tickets().or_session_ids(store), false, 0),
    ] {
        let client = profile().trust(Trust { x509: Some(pki.trust()), raw_key: None }).build().unwrap();
        let client = Arc::new(ClientConfig::new(client).with_sessions(ends::with_sessions()));
        let server = profile().credentials(vec![pki.server.x509(&provider)]).build().unwrap();
        let server = Arc::new(ServerConfig::new(server).unwrap().with_tickets(tickets));
        let mut pair = Pair::new(&client, &server);
        let mut hello = take(&mut pair.client);
        let at = hello.windows(4).position(|w| w == [0, 35, 0, 0]).unwrap();
        hello[at] = if hides { 0x7a } else { 0 };
        pair.server.receive(NOW, &hello).unwrap();
        let (messages, _) = open(&take(&mut pair.server));
        assert_eq!(messages[0][4 + 2 + 32], id_len);
    }
}

/// RFC 5929 §3: the first Finished of the connection, which in a resumption is the server's.
#[test]
fn tls_unique_agrees_and_differs_between_connections() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let client = profile().trust(Trust { x509: Some(pki.trust()), raw_key: None }).build().unwrap();
    let client = Arc::new(ClientConfig::new(client).with_sessions(ends::with_sessions()));
    let server = profile().credentials(vec![pki.server.x509(&provider)]).build().unwrap();
    let tickets = Tickets::stateless(Arc::new(dunlin_store::RotatingTickets::new(awslc()).unwrap()));
    let server = Arc::new(ServerConfig::new(server).unwrap().with_tickets(tickets));
    let mut known = Vec::new();
    for resumed in [false, true] {
        let mut pair = Pair::new(&client, &server);
        assert_eq!(pair.client.tls_unique(), None);
        pair.connect().unwrap();
        assert_eq!(pair.client.negotiated().unwrap().is_resumed(), resumed);
        let binding = pair.client.tls_unique().unwrap();
        assert_eq!(pair.server.tls_unique(), Some(binding));
        assert!(!known.contains(&binding));
        known.push(binding);
    }
}
