//! Renegotiation in TLS 1.2 (RFC 5746), with honest and hostile peers.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable, X509Trust};
use dunlin::error::{Misuse, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::{ClientSession, ClientSessions, SessionKey, Tickets};
use dunlin::wire::{
    AlertDescription as Alert, CipherSuite, ExtensionType, Field, HandshakeType, ProtocolVersion,
};
use dunlin::{
    ClientAuth, ClientConfig, Error, Event, Profile, ProfileBuilder, PskSource, ServerConfig, TlsConnection,
    TransportKind, Trust,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_null::TAG;
use dunlin_tests::ends::{self, with_sessions};
use dunlin_tests::tamper::{message, messages, records};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, carry, localhost, null_psk_suite};

fn tls12() -> ProfileBuilder {
    let suites = [TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES].concat();
    Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(suites)
}

/// Adds trust in both authorities, and an identity of one of them.
fn x509(profile: ProfileBuilder, own: &'static Pki, is_server: bool) -> Profile {
    let roots = [shared(), other()].map(|pki| pki.root.clone());
    let trust = Trust { x509: Some(X509Trust::anchors(roots).unwrap()), raw_key: None };
    let own = if is_server { &own.server } else { &own.client };
    profile.trust(trust).credentials(vec![own.x509(&awslc())]).build().unwrap()
}

fn shared() -> &'static Pki {
    Pki::shared(KeyType::P256)
}

fn other() -> &'static Pki {
    Pki::shared(KeyType::P384)
}

fn client(
    profile: ProfileBuilder,
    own: &'static Pki,
    sessions: &Arc<dyn ClientSessions>,
) -> Arc<ClientConfig> {
    Arc::new(ClientConfig::new(x509(profile, own, false)).with_sessions(sessions.clone()))
}

fn server(profile: ProfileBuilder, own: &'static Pki, tickets: &Tickets) -> Arc<ServerConfig> {
    let server = ServerConfig::new(x509(profile, own, true)).unwrap().with_tickets(tickets.clone());
    Arc::new(server.with_client_auth(ClientAuth::Required).unwrap())
}

fn renegotiating(client_allows: bool, server_allows: bool) -> Pair {
    let client = client(tls12().renegotiation(client_allows), shared(), &with_sessions());
    let server = server(tls12().renegotiation(server_allows), shared(), &Tickets::none());
    let mut pair = Pair::new(&client, &server);
    pair.connect().unwrap();
    pair
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

/// Returns how often each side has reported this kind of event.
fn counts(pair: &Pair, is_it: fn(&Event) -> bool) -> [usize; 2] {
    [&pair.client_events, &pair.server_events].map(|events| events.iter().filter(|e| is_it(e)).count())
}

fn done(pair: &Pair) -> [usize; 2] {
    counts(pair, |e| matches!(e, Event::Renegotiated))
}

fn refused(pair: &Pair) -> [usize; 2] {
    counts(pair, |e| matches!(e, Event::RenegotiationRefused))
}

#[test]
fn either_side_can_renegotiate_if_allowed() {
    for by_client in [true, false] {
        let mut pair = renegotiating(!by_client, by_client);
        let mut before = [0; 32];
        pair.client.export(b"EXPORTER-test", None, &mut before).unwrap();
        for round in 1..4 {
            let end = if by_client { &mut pair.client } else { &mut pair.server };
            end.renegotiate(NOW).unwrap();
            pair.run().unwrap();
            assert_eq!(done(&pair), [round; 2]);
            pair.echo(b"hello").unwrap();
            let mut ours = [0; 32];
            let mut theirs = [0; 32];
            pair.client.export(b"EXPORTER-test", None, &mut ours).unwrap();
            pair.server.export(b"EXPORTER-test", None, &mut theirs).unwrap();
            assert!(ours == theirs && ours != before);
            before = ours;
        }
        let peer = pair.server.negotiated().unwrap().peer.as_ref().unwrap().to_string();
        assert_eq!(peer, "X.509 device-1");
    }
}

/// RFC 5246 §7.2.2: the side that asked gets an event and may decide to close.
#[test]
fn renegotiation_is_refused_by_default_and_the_connection_continues() {
    for by_client in [true, false] {
        let mut pair = renegotiating(false, false);
        for round in 1..9 {
            let end = if by_client { &mut pair.client } else { &mut pair.server };
            end.renegotiate(NOW).unwrap();
            pair.run().unwrap();
            assert_eq!(done(&pair), [0, 0]);
            assert_eq!(refused(&pair), if by_client { [round, 0] } else { [0, round] });
            pair.echo(b"hello").unwrap();
            let peer = pair.client.negotiated().unwrap().peer.as_ref().unwrap().to_string();
            assert_eq!(peer, "X.509 localhost");
        }
    }
    // A flood of requests ends the connection.
    let mut pair = renegotiating(false, false);
    let result = (0..100).try_for_each(|_| {
        pair.server.renegotiate(NOW)?;
        pair.run()
    });
    assert!(matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::Flood(_)))), "{result:?}");
}

#[test]
fn client_runs_one_renegotiation_at_a_time() {
    let mut pair = renegotiating(true, true);
    pair.client.renegotiate(NOW).unwrap();
    assert_eq!(pair.client.renegotiate(NOW), Err(Misuse::NotSupported(Field::Renegotiation).into()));
    pair.run().unwrap();
    assert_eq!(done(&pair), [1, 1]);
}

#[test]
fn data_flows_while_a_renegotiation_begins() {
    let mut pair = renegotiating(true, true);
    pair.server.send(b"before").unwrap();
    pair.server.renegotiate(NOW).unwrap();
    pair.server.send(b"after").unwrap();
    let bytes = take(&mut pair.server);
    assert_eq!(receive_all(&mut pair.client, &bytes), b"beforeafter");
    pair.run().unwrap();
    assert_eq!(done(&pair), [1, 1]);
}

/// Passes all of `bytes` to `end`, and returns the data that it received.
fn receive_all(end: &mut TlsConnection, bytes: &[u8]) -> Vec<u8> {
    let mut taken = 0;
    let mut received = Vec::new();
    while taken < bytes.len() || !end.received().is_empty() {
        taken += end.receive(NOW, &bytes[taken..]).unwrap();
        received.extend_from_slice(end.received());
        let n = end.received().len();
        end.consume(NOW, n).unwrap();
    }
    received
}

#[test]
fn tls13_has_no_renegotiation() {
    let both = || Profile::builder(awslc()).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec());
    let client = client(both().renegotiation(true), shared(), &with_sessions());
    let mut pair = Pair::new(&client, &server(both().renegotiation(true), shared(), &Tickets::none()));
    pair.connect().unwrap();
    assert!(matches!(pair.client.renegotiate(NOW), Err(Error::Misuse(_))));
    assert!(matches!(pair.server.renegotiate(NOW), Err(Error::Misuse(_))));
    pair.echo(b"hello").unwrap();
}

/// The client's output stays bounded while a server repeats its request and does not read the refusals. The
/// data in between looks like normal use.
#[test]
fn unread_refusals_do_not_pile_up() {
    const MOST: usize = 65 * 1024;
    let Pair { mut client, mut server, .. } = renegotiating(false, false);
    for _ in 0..4000 {
        server.renegotiate(NOW).unwrap();
        server.send(b"x").unwrap();
        let bytes = take(&mut server);
        receive_all(&mut client, &bytes);
        assert!(client.transmit().len() < MOST, "{} bytes wait", client.transmit().len());
    }
}

/// The client's output and events stay bounded while a server requests a renegotiation, refuses it, and
/// requests it again.
#[test]
fn unread_answers_and_events_do_not_pile_up() {
    const MOST: usize = 65 * 1024;
    let Pair { mut client, .. } = open_pair(|profile| profile);
    let refused = sealed(21, &[1, Alert::NO_RENEGOTIATION.0]);
    let asks = sealed(22, &[HandshakeType::HELLO_REQUEST.0, 0, 0, 0]);
    let round = [asks, refused, sealed(23, b"x")].concat();
    for _ in 0..4000 {
        assert_eq!(receive_all(&mut client, &round), b"x");
        assert!(client.transmit().len() < MOST, "{} bytes wait", client.transmit().len());
    }
    let told =
        std::iter::from_fn(|| client.poll_event()).filter(|e| matches!(e, Event::RenegotiationRefused));
    assert_eq!(told.count(), 1);
}

/// RFC 5246 §7.4.1.1: a client that is negotiating ignores a HelloRequest.
#[test]
fn client_ignores_a_request_that_crosses_its_hello() {
    let mut pair = renegotiating(true, true);
    pair.server.renegotiate(NOW).unwrap();
    pair.server.renegotiate(NOW).unwrap();
    pair.client.renegotiate(NOW).unwrap();
    pair.run().unwrap();
    assert_eq!((done(&pair), refused(&pair)), ([1, 1], [0, 0]));
    pair.echo(b"hello").unwrap();
}

#[test]
fn client_ignores_requests_in_the_first_handshake_up_to_a_limit() {
    let hello_request = [22, 3, 3, 0, 4, 0, 0, 0, 0];
    for (count, goes_on) in [(32, true), (33, false)] {
        let client = client(tls12(), shared(), &with_sessions());
        let mut pair = Pair::new(&client, &server(tls12(), shared(), &Tickets::none()));
        let result = pair.client.receive(NOW, &hello_request.repeat(count));
        assert_eq!(result.is_ok(), goes_on, "{result:?}");
        if goes_on {
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
        }
    }
}

/// New parameters are visible only after Finished has confirmed them. Here only the peer's chain is new: a
/// stateless ticket does not carry it.
#[test]
fn negotiated_parameters_change_after_finished() {
    for tickets in ends::tickets() {
        let sessions = with_sessions();
        let client = client(tls12().alpn(vec![b"mqtt".to_vec()]), shared(), &sessions);
        let server = server(tls12().alpn(vec![b"mqtt".to_vec()]).renegotiation(true), shared(), &tickets);
        Pair::new(&client, &server).connect().unwrap();
        let mut pair = Pair::new(&client, &server);
        pair.connect().unwrap();
        let before = [&pair.client, &pair.server].map(|end| format!("{:?}", end.negotiated().unwrap()));
        assert!(before.iter().all(|n| n.contains("kind: Resumed")), "{before:?}");
        let exported = |end: &TlsConnection| {
            let mut out = [0; 32];
            end.export(b"EXPORTER-test", None, &mut out).unwrap();
            out
        };
        let secret = exported(&pair.client);
        pair.client.renegotiate(NOW).unwrap();
        for flight in 0..4 {
            for end in [&pair.client, &pair.server] {
                let is_done = flight == 3 && end.side() == dunlin::Side::Server;
                assert_eq!(
                    format!("{:?}", end.negotiated().unwrap()) == before[end.side() as usize],
                    !is_done
                );
                assert_eq!(exported(end) == secret, !is_done, "{flight}");
            }
            let (from, to) = match flight % 2 {
                0 => (&mut pair.client, &mut pair.server),
                _ => (&mut pair.server, &mut pair.client),
            };
            carry(from, to, NOW).1.unwrap();
        }
        for (end, peer) in [(&pair.client, "X.509 localhost"), (&pair.server, "X.509 device-1")] {
            let negotiated = end.negotiated().unwrap();
            assert!(!negotiated.is_resumed());
            assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), peer);
            assert_eq!(negotiated.alpn.as_deref(), Some(&b"mqtt"[..]));
            assert_eq!(negotiated.server_name.as_deref(), Some("localhost"));
            assert_eq!(negotiated.profile, "default");
        }
        pair.echo(b"hello").unwrap();
    }
}

/// Gives one client's session to another client that would not use it.
fn hand_on(sessions: &dyn ClientSessions, from: &ClientConfig, to: &ClientConfig) {
    let [old, new] = [from, to].map(|config| *config.session_settings().as_bytes());
    let key = |settings| SessionKey {
        transport: TransportKind::Stream,
        name: "localhost".into(),
        port: localhost().port,
        settings,
    };
    let mut bytes = sessions.take(&key(old), NOW).unwrap().to_bytes().unwrap();
    let at = bytes.windows(32).position(|window| window == old).unwrap();
    bytes[at..at + 32].copy_from_slice(&new);
    sessions.put(key(new), ClientSession::from_bytes(&bytes).unwrap());
}

/// A peer that resumed as one identity and renegotiates as another is refused before any data under the new
/// keys.
#[test]
fn peer_cannot_change_its_identity() {
    for changes_client in [true, false] {
        for tickets in ends::tickets() {
            let sessions = with_sessions();
            let first = shared();
            let second = other();
            let clients = [first, if changes_client { second } else { first }]
                .map(|own| client(tls12(), own, &sessions));
            let servers = [first, if changes_client { first } else { second }]
                .map(|own| server(tls12().renegotiation(true), own, &tickets));
            Pair::new(&clients[0], &servers[0]).connect().unwrap();
            hand_on(&*sessions, &clients[0], &clients[1]);
            let mut pair = Pair::new(&clients[1], &servers[1]);
            pair.connect().unwrap();
            assert!(pair.client.negotiated().unwrap().is_resumed());
            pair.client.renegotiate(NOW).unwrap();
            let result = pair.run();
            let illegal = PeerMisbehaved::IllegalParameter(Field::OtherIdentity);
            let (finds, hears) =
                if changes_client { (&pair.server, &pair.client) } else { (&pair.client, &pair.server) };
            assert_eq!(result, Err(illegal.clone().into()));
            assert_eq!(finds.error(), Some(&illegal.into()));
            assert_eq!(hears.error(), Some(&Error::AlertReceived(Alert::ILLEGAL_PARAMETER)));
            assert!(finds.negotiated().unwrap().is_resumed(), "the previous parameters stay");
            assert_eq!(done(&pair), [0, 0]);
        }
    }
}

/// Until the client has the server's Finished, only the old keys are confirmed, and it sends no data under
/// the new ones.
#[test]
fn client_data_waits_for_the_servers_finished() {
    let mut pair = renegotiating(true, true);
    pair.client.renegotiate(NOW).unwrap();
    // OpenSSL accepts no data between the client's Hello and its Finished.
    assert_eq!(pair.client.send(b"old keys"), Ok(0));
    let flight = take(&mut pair.client);
    assert!(receive_all(&mut pair.server, &flight).is_empty());
    // The server sends data under the old keys before its Finished.
    assert_eq!(pair.server.send(b"old keys"), Ok(8));
    let flight = take(&mut pair.server);
    assert_eq!(receive_all(&mut pair.client, &flight), b"old keys");
    let flight = take(&mut pair.client);
    let types: Vec<_> = records(&flight).iter().map(|r| r[0]).collect();
    assert_eq!(types, [22, 20, 22], "handshake, ChangeCipherSpec, Finished");
    assert_eq!(pair.client.send(b"new keys"), Ok(0));
    assert!(pair.client.transmit().is_empty());
    pair.server.receive(NOW, &flight).unwrap();
    assert_eq!(pair.client.send(b"new keys"), Ok(0));
    carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
    pair.echo(b"new keys").unwrap();
}

#[test]
fn client_data_does_not_wait_for_a_closed_server() {
    let mut pair = renegotiating(true, true);
    pair.client.renegotiate(NOW).unwrap();
    carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
    carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
    pair.server.close();
    carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
    assert!(pair.client.peer_has_closed());
    assert_eq!(pair.client.send(b"new keys"), Err(Error::AlertReceived(Alert::CLOSE_NOTIFY)));
}

/// TLS 1.2 without real cryptography, so that changes on the wire go undetected. `edit` changes both
/// profiles.
fn open_pair(edit: impl Fn(ProfileBuilder) -> ProfileBuilder) -> Pair {
    let provider = Arc::new(dunlin_null::null_provider());
    let suite = null_psk_suite();
    let profile = || {
        let profile = Profile::builder(provider.clone()).danger_skip_provider_check().renegotiation(true);
        edit(profile.cipher_suites(vec![]).tls12_cipher_suites(vec![suite])).build().unwrap()
    };
    let psk = || Psk::new("d1", &[7; 32]).unwrap();
    let client = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]);
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(ServerConfig::psk_only(profile(), keys).unwrap()));
    pair.connect().unwrap();
    pair
}

/// RFC 5246 §6.2.1.
#[test]
fn rejects_an_empty_alert_record() {
    let mut pair = open_pair(|profile| profile);
    assert_eq!(pair.server.receive(NOW, &sealed(21, &[])), Err(PeerMisbehaved::EmptyRecord.into()));
    assert_eq!(content(&take(&mut pair.server)), [2, Alert::UNEXPECTED_MESSAGE.0]);
}

/// The content of a record of [`open_pair`].
fn content(record: &[u8]) -> Vec<u8> {
    record[5..].strip_suffix(&TAG[..]).unwrap().to_vec()
}

/// A record of [`open_pair`].
fn sealed(typ: u8, content: &[u8]) -> Vec<u8> {
    let len = (content.len() + TAG.len()) as u16;
    [&[typ, 3, 3], &len.to_be_bytes()[..], content, &TAG].concat()
}

type ExtensionList = Vec<(ExtensionType, Vec<u8>)>;

/// The parts of a ClientHello or ServerHello that these tests change.
struct Hello {
    version: [u8; 2],
    /// From the random to the extensions; a ClientHello's includes its suites.
    middle: Vec<u8>,
    extensions: ExtensionList,
}

/// Changes the Hello at the beginning of a flight of [`open_pair`].
fn edited(flight: &[u8], edit: &dyn Fn(&mut Hello)) -> Vec<u8> {
    let [first, others @ ..] = &records(flight)[..] else { panic!("no record") };
    let mut flight = messages(&content(first));
    let typ = flight[0][0];
    let body = flight[0][4..].to_vec();
    let mut at = 34 + 1 + usize::from(body[34]);
    at += match HandshakeType(typ) {
        HandshakeType::CLIENT_HELLO => {
            let suites = 2 + usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
            suites + 1 + usize::from(body[at + suites])
        }
        _ => 3,
    };
    let mut rest = &body[at + 2..];
    let mut extensions = Vec::new();
    while let [a, b, c, d, ..] = rest {
        let (extension, others) = rest.split_at(4 + usize::from(u16::from_be_bytes([*c, *d])));
        extensions.push((ExtensionType(u16::from_be_bytes([*a, *b])), extension[4..].to_vec()));
        rest = others;
    }
    let mut hello = Hello { version: [body[0], body[1]], middle: body[2..at].to_vec(), extensions };
    edit(&mut hello);
    let list = hello.extensions.iter().flat_map(|(typ, body)| {
        [&typ.0.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
    });
    let list: Vec<u8> = list.collect();
    let len = (list.len() as u16).to_be_bytes();
    flight[0] = message(typ, &[&hello.version[..], &hello.middle, &len, &list].concat());
    [sealed(22, &flight.concat()), others.concat()].concat()
}

fn put(hello: &mut Hello, typ: ExtensionType, body: &[u8]) {
    hello.extensions.retain(|(t, _)| *t != typ);
    hello.extensions.push((typ, body.to_vec()));
}

fn remove(hello: &mut Hello, typ: ExtensionType) {
    hello.extensions.retain(|(t, _)| *t != typ);
}

/// RFC 5246 §7.2: unlike in TLS 1.3, the level of the alert decides.
#[test]
fn a_fatal_user_canceled_ends_the_connection() {
    for (level, expected) in [(1, Ok(())), (2, Err(Error::AlertReceived(Alert::USER_CANCELED)))] {
        let mut pair = open_pair(|profile| profile);
        let alert = sealed(21, &[level, Alert::USER_CANCELED.0]);
        assert_eq!(pair.server.receive(NOW, &alert).map(drop), expected);
        assert_eq!(pair.server.error().is_some(), level == 2);
    }
}

/// RFC 5246 §6.2.1 allows interleaved record types; the guard in the engine gives the reason for refusing
/// them.
#[test]
fn rejects_other_records_between_fragments_of_a_message() {
    let warning = [1, Alert::USER_CANCELED.0];
    for record in [sealed(23, b"data"), sealed(21, &warning)] {
        let mut pair = open_pair(|profile| profile);
        pair.client.renegotiate(NOW).unwrap();
        let hello = content(&take(&mut pair.client));
        let result = pair.server.receive(NOW, &[sealed(22, &hello[..9]), record].concat());
        let expected = PeerMisbehaved::UnexpectedRecord(Field::InsideMessage);
        assert_eq!(result, Err(expected.into()));
        assert_eq!(content(&take(&mut pair.server)), [2, Alert::UNEXPECTED_MESSAGE.0]);
    }
}

/// Returns the server's result for a changed ClientHello in a renegotiation.
fn with_client_hello(edit: &dyn Fn(&mut Hello)) -> (Result<(), Error>, Pair) {
    let mut pair = open_pair(|p| p.alpn(vec![b"mqtt".to_vec()]).extended_master_secret_required(false));
    pair.client.renegotiate(NOW).unwrap();
    let hello = edited(&take(&mut pair.client), edit);
    let result = pair.server.receive(NOW, &hello).map(drop);
    (result, pair)
}

/// Returns the client's result for a changed ServerHello in a renegotiation.
fn with_server_hello(edit: &dyn Fn(&mut Hello)) -> (Result<(), Error>, Pair) {
    let (result, mut pair) = with_client_hello(&|_| {});
    result.unwrap();
    let flight = edited(&take(&mut pair.server), edit);
    let result = pair.client.receive(NOW, &flight).map(drop);
    (result, pair)
}

const ALPN: ExtensionType = ExtensionType::APPLICATION_LAYER_PROTOCOL_NEGOTIATION;

#[test]
fn unchanged_and_repeated_parameters_are_accepted() {
    // This client and OpenSSL omit ALPN in a renegotiation; other clients repeat it and get an answer.
    for says_protocol in [false, true] {
        let edit = |hello: &mut Hello| {
            if says_protocol {
                put(hello, ALPN, b"\0\x0a\x04coap\x04mqtt");
            }
        };
        let (result, mut pair) = with_client_hello(&edit);
        result.unwrap();
        let answers = edited(&take(&mut pair.server), &|hello| {
            let answer = hello.extensions.iter().find(|(typ, _)| *typ == ALPN).map(|(_, body)| &body[..]);
            assert_eq!(answer, says_protocol.then_some(&b"\0\x05\x04mqtt"[..]));
            remove(hello, ALPN);
        });
        pair.client.receive(NOW, &answers).unwrap();
        pair.run().unwrap();
        assert_eq!(done(&pair), [1, 1]);
        for end in [&pair.client, &pair.server] {
            let negotiated = end.negotiated().unwrap();
            assert_eq!(negotiated.alpn.as_deref(), Some(&b"mqtt"[..]));
            assert_eq!(negotiated.server_name.as_deref(), Some("localhost"));
        }
    }
}

type Edit = &'static dyn Fn(&mut Hello);

#[test]
fn server_rejects_a_changed_name_protocol_or_version() {
    let version = |v| PeerIncompatible::Version(Some(v));
    let name = || PeerMisbehaved::IllegalParameter(Field::OtherServerName).into();
    let insecure = || PeerIncompatible::SecureRenegotiation.into();
    let cases: Vec<(Edit, Error)> = vec![
        (&|h| remove(h, ExtensionType::SERVER_NAME), name()),
        (&|h| put(h, ExtensionType::SERVER_NAME, b"\0\x04\0\0\x01x"), name()),
        (&|h| put(h, ALPN, b"\0\x05\x04coap"), PeerIncompatible::ApplicationProtocol.into()),
        (&|h| h.version = [3, 2], version(ProtocolVersion::TLS1_1).into()),
        (&|h| put(h, ExtensionType::SUPPORTED_VERSIONS, &[2, 3, 4]), version(ProtocolVersion::TLS1_3).into()),
        (
            &|h| remove(h, ExtensionType::EXTENDED_MASTER_SECRET),
            PeerIncompatible::ExtendedMasterSecret.into(),
        ),
        (&|h| remove(h, ExtensionType::RENEGOTIATION_INFO), insecure()),
        (&|h| put(h, ExtensionType::RENEGOTIATION_INFO, &[0]), insecure()),
        (&|h| h.extensions.last_mut().unwrap().1 = [0; 12].to_vec(), insecure()),
        // RFC 5746 §3.7: the SCSV of a first handshake replaces the suite.
        (
            &|h| {
                let at = h.middle.len() - 4;
                h.middle[at] = 0;
                h.middle[at + 1] = 0xff;
            },
            insecure(),
        ),
    ];
    for (i, (edit, expected)) in cases.into_iter().enumerate() {
        let edit = |hello: &mut Hello| {
            // Moves renegotiation_info to the end, where a case changes it.
            let info = hello.extensions.iter().position(|(t, _)| *t == ExtensionType::RENEGOTIATION_INFO);
            let info = hello.extensions.remove(info.unwrap());
            hello.extensions.push((info.0, [&[12], &info.1[1..]].concat()));
            edit(hello);
            if let Some((ExtensionType::RENEGOTIATION_INFO, body)) = hello.extensions.last_mut()
                && body.len() == 12
            {
                body.insert(0, 12);
            }
        };
        let (result, mut pair) = with_client_hello(&edit);
        assert_eq!(result, Err(expected.clone()), "{i}");
        let alert = records(&take(&mut pair.server)).pop().map(|r| content(&r));
        assert_eq!(alert, Some(vec![2, expected.alert().unwrap().0]), "{i}");
        let established = pair.server.negotiated().unwrap();
        assert_eq!(established.server_name.as_deref(), Some("localhost"));
    }
}

#[test]
fn client_rejects_a_changed_protocol_or_version() {
    let cases: Vec<(Edit, Error)> = vec![
        (&|h| put(h, ALPN, b"\0\x05\x04mqtt"), PeerMisbehaved::UnsolicitedExtension(ALPN).into()),
        (
            &|h| h.extensions = vec![(ExtensionType::SUPPORTED_VERSIONS, vec![3, 4])],
            PeerMisbehaved::NotOffered(Field::Version).into(),
        ),
        (&|h| h.version = [3, 2], PeerIncompatible::Version(Some(ProtocolVersion::TLS1_1)).into()),
        (
            &|h| remove(h, ExtensionType::EXTENDED_MASTER_SECRET),
            PeerIncompatible::ExtendedMasterSecret.into(),
        ),
        (&|h| remove(h, ExtensionType::RENEGOTIATION_INFO), PeerIncompatible::SecureRenegotiation.into()),
        (&|h| put(h, ExtensionType::RENEGOTIATION_INFO, &[0]), PeerIncompatible::SecureRenegotiation.into()),
    ];
    for (i, (edit, expected)) in cases.into_iter().enumerate() {
        let (result, _) = with_server_hello(edit);
        assert_eq!(result, Err(expected), "{i}");
    }
}

/// RFC 8446 §4.1.2: the version cannot change, so the client offers nothing of TLS 1.3.
#[test]
fn renegotiation_offers_nothing_of_tls13() {
    let pair = |mut pair: Pair| {
        pair.client.renegotiate(NOW).unwrap();
        edited(&take(&mut pair.client), &|hello| {
            let of_tls13 = [
                ExtensionType::SUPPORTED_VERSIONS,
                ExtensionType::KEY_SHARE,
                ExtensionType::PSK_KEY_EXCHANGE_MODES,
                ExtensionType::PRE_SHARED_KEY,
            ];
            let types: Vec<_> = hello.extensions.iter().map(|(typ, _)| *typ).collect();
            assert!(!of_tls13.iter().any(|typ| types.contains(typ)), "{types:?}");
            // Random, no session ID, one suite, no compression.
            let suite = CipherSuite::TLS_PSK_WITH_CHACHA20_POLY1305_SHA256.0.to_be_bytes();
            assert_eq!(hello.middle[32..], [&[0, 0, 2], &suite[..], &[1, 0]].concat());
        });
    };
    pair(open_pair(|profile| profile));
    // The server supports only TLS 1.2, the client also TLS 1.3.
    let once = std::sync::atomic::AtomicBool::new(true);
    let is_client = || once.swap(false, std::sync::atomic::Ordering::Relaxed);
    pair(open_pair(|profile| {
        if is_client() { profile.cipher_suites(dunlin_null::null_provider().cipher_suites) } else { profile }
    }));
}

/// Without a request, no_renegotiation is an ordinary warning.
#[test]
fn unexpected_refusal_is_an_ordinary_warning() {
    let warning = sealed(21, &[1, Alert::NO_RENEGOTIATION.0]);
    for (count, goes_on) in [(4, true), (5, false)] {
        let mut pair = open_pair(|profile| profile);
        let result = pair.client.receive(NOW, &warning.repeat(count));
        assert_eq!(result.is_ok(), goes_on, "{result:?}");
        assert_eq!(pair.run().is_ok(), goes_on);
        assert_eq!(refused(&pair), [0, 0]);
    }
    // A server that has begun to answer can no longer refuse.
    let (result, mut pair) = with_client_hello(&|_| {});
    result.unwrap();
    let flight = take(&mut pair.server);
    let hello = messages(&content(&records(&flight)[0]))[0].clone();
    pair.client.receive(NOW, &[sealed(22, &hello), warning].concat()).unwrap();
    pair.run().unwrap();
    assert_eq!(refused(&pair), [0, 0]);
}
