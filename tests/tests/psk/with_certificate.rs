//! Certificates with an external PSK (RFC 8773): an external PSK goes into the keys, and certificates
//! authenticate.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, HashAlgorithm, KeyExchangeGroup, SecureRandom, SharedSecret,
};
use dunlin::error::{Misuse, PeerMisbehaved};
use dunlin::resume::{ClientSessions, Tickets};
use dunlin::wire::{ExtensionType as E, Field, NamedGroup, PskKeyExchangeMode};
use dunlin::{
    ClientAuth, ClientConfig, DtlsConnection, EarlyDataProtocols, Error, Negotiated, PeerIdentity, Profile,
    ProfileBuilder, PskSource, ServerConfig, TlsConnection, Trust,
};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, RotatingTickets};
use dunlin_tests::tamper::{Secrets, extension, records, suites_at};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, ends, localhost};

/// The number of the extension.
const EXTENSION: u16 = 33;

fn psk(byte: u8) -> Arc<Psk> {
    Arc::new(Psk::new("d1", &[byte; 32]).unwrap())
}

fn profile(own: Option<&Leaf>) -> ProfileBuilder {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let own = own.map(|own| own.x509(&provider)).into_iter().collect();
    Profile::builder(provider).trust(trust).credentials(own)
}

/// A client with the extension and a PSK.
fn client(edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ClientConfig {
    let profile = profile(Some(&Pki::shared(KeyType::P256).client)).tls_cert_with_extern_psk(true);
    ClientConfig::new(edit(profile).build().unwrap()).with_psks(vec![psk(7)])
}

/// A server with the extension and without PSKs.
fn server_without_keys(edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ServerConfig {
    let profile = profile(Some(&Pki::shared(KeyType::P256).server)).tls_cert_with_extern_psk(true);
    ServerConfig::new(edit(profile).build().unwrap()).unwrap()
}

fn keys() -> PskSource {
    PskSource::Here(Arc::new(PskTable::from_iter([Psk::new("d1", &[7; 32]).unwrap()])))
}

/// A server with the extension and the client's PSK.
fn server(edit: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> ServerConfig {
    server_without_keys(edit).with_psks(keys())
}

fn asks(server: ServerConfig, client_auth: ClientAuth) -> ServerConfig {
    server.with_client_auth(client_auth).unwrap()
}

fn connect(client: ClientConfig, server: ServerConfig) -> [Negotiated; 2] {
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.connect().unwrap();
    pair.echo(b"data").unwrap();
    [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone())
}

/// As its session would not resume.
#[test]
fn an_association_thaws_only_with_the_key_beside_its_certificates() {
    let client_config = Arc::new(client(|profile| profile));
    let own = Arc::new(asks(server(|profile| profile), ClientAuth::Required).with_cookies(false));
    let mut client = DtlsConnection::client(&client_config, localhost(), ADDRESS, NOW).unwrap();
    let mut server = DtlsConnection::server(&own, ADDRESS, NOW);
    exchange_datagrams(&mut client, &mut server);
    assert!(server.negotiated().unwrap().external_psk_added);
    let [of_client, of_server] = [&mut client, &mut server].map(|end| end.freeze(NOW).unwrap());
    for (keys, is_thawed) in [
        (PskTable::default(), false),
        (PskTable::from_iter([Psk::new("d1", &[8; 32]).unwrap()]), false),
        (PskTable::from_iter([Psk::new("d1", &[7; 32]).unwrap()]), true),
    ] {
        let config = ServerConfig::clone(&own).with_psks(PskSource::Here(Arc::new(keys)));
        let thawed = DtlsConnection::thaw_server(&Arc::new(config), &of_server, NOW);
        assert_eq!(thawed.is_ok(), is_thawed);
    }
    for (key, is_thawed) in [(8, false), (7, true)] {
        let config = ClientConfig::clone(&client_config).with_psks(vec![psk(key)]);
        let thawed = DtlsConnection::thaw_client(&Arc::new(config), localhost(), &of_client, NOW);
        assert_eq!(thawed.is_ok(), is_thawed);
    }
}

/// The address of both ends: the engine only compares addresses.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

fn connect_datagrams(client: ClientConfig, server: ServerConfig) -> [Negotiated; 2] {
    let mut client = DtlsConnection::client(&Arc::new(client), localhost(), ADDRESS, NOW).unwrap();
    let mut server = DtlsConnection::server(&Arc::new(server), ADDRESS, NOW);
    exchange_datagrams(&mut client, &mut server);
    [client.negotiated().unwrap().clone(), server.negotiated().unwrap().clone()]
}

/// Carries datagrams in both directions until both ends are silent.
fn exchange_datagrams(client: &mut DtlsConnection, server: &mut DtlsConnection) {
    loop {
        let mut is_silent = true;
        while let Some(sent) = client.poll_transmit(NOW) {
            server.receive(NOW, ADDRESS, &sent.datagram).unwrap();
            is_silent = false;
        }
        while let Some(sent) = server.poll_transmit(NOW) {
            client.receive(NOW, ADDRESS, &sent.datagram).unwrap();
            is_silent = false;
        }
        if is_silent {
            return;
        }
    }
}

fn is_certified(end: &Negotiated) -> bool {
    matches!(end.peer, Some(PeerIdentity::X509(_)))
}

#[test]
fn certificates_authenticate_both_sides_over_streams_and_datagrams() {
    let other_group = |profile: ProfileBuilder| {
        let mut groups = awslc().groups.clone();
        groups.rotate_left(1);
        profile.groups(groups)
    };
    for client_auth in [ClientAuth::None, ClientAuth::Optional, ClientAuth::Required] {
        for retried in [false, true] {
            for connect in [connect, connect_datagrams] {
                let server = server(|profile| {
                    if retried { other_group(profile).groups(vec![awslc().groups[1]]) } else { profile }
                });
                let server = asks(server, client_auth).with_cookies(false);
                let [client, server] = connect(client(|profile| profile), server);
                assert!(client.external_psk_added && server.external_psk_added);
                assert!(is_certified(&client));
                assert_eq!(is_certified(&server), client_auth != ClientAuth::None);
                // The key alone does not identify the client: authentication is by certificates (RFC 8773
                // §5.2).
                assert_eq!(server.peer.is_some(), client_auth != ClientAuth::None);
                assert_eq!([client.retried, server.retried], [retried; 2]);
                assert!(client.group.is_some() && client.peer_signature.is_some());
            }
        }
    }
}

#[test]
fn a_server_with_cookies_keeps_nothing_between_the_hellos() {
    let [client, server] = connect(client(|profile| profile), server(|profile| profile).with_cookies(true));
    assert!(client.retried && client.external_psk_added && server.external_psk_added);
}

/// A group with a known secret, for the calculation by hand.
#[derive(Debug)]
struct KnownGroup;

const SECRET: [u8; 32] = [5; 32];

impl KeyExchangeGroup for KnownGroup {
    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }

    fn start(&self, _: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        Ok(Box::new(Self))
    }
}

impl ActiveKeyExchange for KnownGroup {
    fn share(&self) -> &[u8] {
        &[9; 32]
    }

    fn complete(&self, _: &[u8]) -> Result<SharedSecret, CryptoError> {
        Ok(SharedSecret::new(SECRET.to_vec()))
    }
}

/// RFC 8773 §5.3: the key schedule begins with the external PSK and then takes the (EC)DHE secret (RFC 8446
/// §7.1).
#[test]
fn both_the_psk_and_the_key_exchange_go_into_the_keys() {
    let secrets = Arc::new(Secrets::default());
    let known = |profile: ProfileBuilder| {
        let suites = awslc().cipher_suites.clone().into_iter();
        let suites = suites.filter(|suite| suite.hash.algorithm() == HashAlgorithm::Sha256).collect();
        profile.groups(vec![&KnownGroup]).cipher_suites(suites).danger_skip_provider_check()
    };
    let client = client(|profile| known(profile).key_log(Some(secrets.clone())));
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server(known)));
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    pair.client.receive(NOW, &flight).unwrap();
    assert!(pair.client.negotiated().is_some());

    let sha256 = awslc().sha256;
    let hmac = |key: &[u8], data: &[u8]| sha256.hmac(key).sign(&[data]).as_ref().to_vec();
    let derive = |secret: &[u8], label: &str, transcript: &[u8]| {
        let label = format!("tls13 {label}");
        let hash = sha256.hash(&[transcript]);
        hmac(secret, &[&[0, 32, label.len() as u8], label.as_bytes(), &[32], hash.as_ref(), &[1]].concat())
    };
    let early = hmac(&[0; 32], &[7; 32]);
    let handshake = hmac(&derive(&early, "derived", b""), &SECRET);
    let server_hello = records(&flight).swap_remove(0);
    let expected = derive(&handshake, "c hs traffic", &[&hello[5..], &server_hello[5..]].concat());
    assert_eq!(secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET"), expected);
}

#[test]
fn each_side_continues_without_the_extension_if_the_other_lacks_it() {
    let without = |profile: ProfileBuilder| profile.tls_cert_with_extern_psk(false);
    // The PSK alone authenticates.
    let psk_alone = |ends: [Negotiated; 2]| {
        ends.iter().all(|end| matches!(end.peer, Some(PeerIdentity::Psk(_))) && !end.external_psk_added)
    };
    assert!(psk_alone(connect(client(|profile| profile), server(without))));
    assert!(psk_alone(connect(client(without), server(|profile| profile))));
    // Certificates alone authenticate: one side has no PSK, or another identity.
    let certificates_alone = |ends: [Negotiated; 2]| is_certified(&ends[0]) && !ends[0].external_psk_added;
    let server_alone = server_without_keys(|profile| profile);
    assert!(certificates_alone(connect(client(|profile| profile), server_alone)));
    let other = Arc::new(Psk::new("d2", &[7; 32]).unwrap());
    for psks in [vec![], vec![other.clone()]] {
        let client = client(|profile| profile).with_psks(psks);
        assert!(certificates_alone(connect(client, server(|profile| profile))));
    }
    // The server takes the identity that it knows.
    let client = client(|profile| profile).with_psks(vec![other, psk(7)]);
    assert!(connect(client, server(|profile| profile))[1].external_psk_added);
}

/// A side that requires the PSK continues neither with certificates alone nor with the PSK alone.
#[test]
fn either_side_can_require_the_psk() {
    let required = |profile: ProfileBuilder| profile.require_extern_psk();
    let without = |profile: ProfileBuilder| profile.tls_cert_with_extern_psk(false);
    assert!(connect(client(required), server(required))[1].external_psk_added);
    let result = |client: ClientConfig, server: ServerConfig| {
        let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
        let result = pair.run();
        assert!(pair.client.negotiated().is_none() && pair.server.negotiated().is_none());
        result.unwrap_err()
    };
    let missing = PeerMisbehaved::MissingExtension(E::TLS_CERT_WITH_EXTERN_PSK);
    let other = || vec![Arc::new(Psk::new("d2", &[7; 32]).unwrap())];
    let any = |profile: ProfileBuilder| profile;
    for (client, server) in [
        (client(required), server(without)),
        (client(required), server_without_keys(any)),
        (client(required).with_psks(other()), server(any)),
        (client(required).with_psks(vec![]), server(any)),
    ] {
        assert_eq!(result(client, server), missing.clone().into());
    }
    for client in [
        client(without),
        client(without).with_psks(vec![]),
        client(any).with_psks(other()),
        client(any).with_psks(vec![]),
    ] {
        let error = result(client, server(required));
        assert!(matches!(error, Error::PeerIncompatible(_)), "{error}");
    }
    // TLS 1.2 has no such PSK.
    let tls12 = dunlin_awslc::tls12::TLS12_CIPHER_SUITES.to_vec();
    let both = profile(None).require_extern_psk().tls12_cipher_suites(tls12).build();
    assert!(matches!(both.map(drop), Err(Error::Misuse(Misuse::Config(why))) if why.contains("TLS 1.2")));
}

/// A session remembers the PSK in its keys, and ends with it on both sides.
#[test]
fn a_removed_psk_ends_its_sessions() {
    for tickets in [
        || Tickets::stateful(Arc::new(MemoryServerSessions::new(16))),
        || Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap())),
    ] {
        let tickets = tickets();
        let replaced = PskSource::Here(Arc::new(PskTable::from_iter([Psk::new("d1", &[8; 32]).unwrap()])));
        let require = |profile: ProfileBuilder| profile.require_extern_psk();
        let servers = [
            (server(|p| p), true),
            (server(require), true),
            (server_without_keys(|p| p), false),
            (server_without_keys(|p| p).with_psks(replaced), false),
        ];
        for (later, resumes) in servers {
            let sessions: Arc<dyn ClientSessions> = Arc::new(MemoryClientSessions::default());
            let of =
                |edit: fn(ProfileBuilder) -> ProfileBuilder| client(edit).with_sessions(sessions.clone());
            let issuer = server(|profile| profile).with_tickets(tickets.clone());
            let mut pair = Pair::new(&Arc::new(of(|profile| profile)), &Arc::new(issuer));
            pair.connect().unwrap();
            assert!(pair.client.negotiated().unwrap().external_psk_added);
            // This client has the PSK, but does not use it beside certificates.
            let later = Arc::new(later.with_tickets(tickets.clone()));
            let mut pair = Pair::new(&Arc::new(of(|p| p.tls_cert_with_extern_psk(false))), &later);
            let _ = pair.run();
            let selected = pair.server.negotiated().is_some_and(Negotiated::is_resumed);
            assert_eq!(selected, resumes);
            if resumes {
                // The next ticket ends with the PSK, too. A client that no longer has it does not use the
                // ticket.
                let client = of(|profile| profile.tls_cert_with_extern_psk(false)).with_psks(vec![]);
                let hello = take(&mut Pair::new(&Arc::new(client), &later).client);
                assert_eq!(extension(&hello, 41), None);
            }
        }
    }
}

#[test]
fn the_psk_alone_authenticates_if_no_certificate_suits_the_client() {
    let pki = Pki::shared(KeyType::P256);
    let server = server(|profile| profile.credentials(vec![pki.server.raw_key(&awslc())]));
    let [client, _] = connect(client(|profile| profile), server);
    assert!(matches!(client.peer, Some(PeerIdentity::Psk(_))) && !client.external_psk_added);
}

#[test]
fn rejects_another_key_and_an_untrusted_certificate() {
    let wrong = client(|profile| profile).with_psks(vec![psk(8)]);
    let mut pair = Pair::new(&Arc::new(wrong), &Arc::new(server(|profile| profile)));
    assert_eq!(pair.run(), Err(PeerMisbehaved::BadBinder.into()));

    let strangers = Pki::new(KeyType::P256);
    let server = server(|profile| profile.credentials(vec![strangers.server.x509(&awslc())]));
    let mut pair = Pair::new(&Arc::new(client(|profile| profile)), &Arc::new(server));
    assert!(matches!(pair.run(), Err(Error::Authentication(_))));
    assert!(pair.client.negotiated().is_none());
}

/// The second ClientHello omits the extension if the server's suite rules out every PSK.
#[test]
fn a_retry_with_a_suite_of_another_hash_continues_with_certificates() {
    let of = |hash| {
        let suites = awslc().cipher_suites.clone().into_iter();
        suites.filter(move |suite| suite.hash.algorithm() == hash).collect::<Vec<_>>()
    };
    let server =
        server(|profile| profile.cipher_suites(of(HashAlgorithm::Sha384)).groups(vec![awslc().groups[1]]));
    let [client, _] = connect(client(|profile| profile), server);
    assert!(client.retried && is_certified(&client) && !client.external_psk_added);
}

/// A client resumes no session beside the extension, and sends no early data (RFC 8773 §4).
#[test]
fn a_client_offers_external_psks_only() {
    let sessions: Arc<dyn ClientSessions> = Arc::new(MemoryClientSessions::default());
    let tickets = || Tickets::stateful(Arc::new(MemoryServerSessions::new(16)));
    let server = Arc::new(
        server(|profile| profile)
            .with_tickets(tickets())
            .with_early_data(EarlyDataProtocols::unnamed(), 1000)
            .unwrap(),
    );
    let config =
        client(|profile| profile).with_sessions(sessions).with_early_data(EarlyDataProtocols::unnamed());
    let config = Arc::new(config);
    for _ in 0..2 {
        let mut pair = Pair::new(&config, &server);
        let hello = pair.client.transmit().to_vec();
        assert_eq!(extension(&hello, EXTENSION), Some(&[][..]));
        assert_eq!(extension(&hello, 42), None);
        // One identity of two bytes, with its age of zero.
        assert_eq!(extension(&hello, 41).unwrap()[..10], [0, 8, 0, 2, b'd', b'1', 0, 0, 0, 0]);
        pair.connect().unwrap();
        assert!(pair.client.negotiated().unwrap().external_psk_added);
    }
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

type Extensions = Vec<(u16, Vec<u8>)>;

/// Edits the extensions of the hello in the first record of a flight.
fn edit_hello(flight: &[u8], edit: impl FnOnce(&mut Extensions)) -> Vec<u8> {
    let mut records = records(flight);
    let hello = records.remove(0);
    let mut at = suites_at(&hello).end;
    at += if hello[5] == 1 { 1 + usize::from(hello[at]) } else { 1 };
    let fixed = &hello[9..at];
    let mut rest = &hello[at + 2..];
    let mut extensions = Vec::new();
    while let [a, b, c, d, others @ ..] = rest {
        let (body, others) = others.split_at(usize::from(u16::from_be_bytes([*c, *d])));
        extensions.push((u16::from_be_bytes([*a, *b]), body.to_vec()));
        rest = others;
    }
    edit(&mut extensions);
    let list = extensions
        .iter()
        .flat_map(|(typ, body)| [&typ.to_be_bytes(), &(body.len() as u16).to_be_bytes(), &body[..]].concat());
    let list: Vec<u8> = list.collect();
    let body = [fixed, &(list.len() as u16).to_be_bytes(), &list].concat();
    let message = dunlin_tests::tamper::message(hello[5], &body);
    let record = [&hello[..3], &(message.len() as u16).to_be_bytes(), &message].concat();
    [record, records.concat()].concat()
}

fn remove(typ: E) -> impl Fn(&mut Extensions) {
    move |extensions| extensions.retain(|(t, _)| *t != typ.0)
}

#[test]
fn a_server_rejects_an_offer_without_its_companions() {
    let rejects = |edit: &dyn Fn(&mut Extensions)| {
        let config = asks(server(|profile| profile), ClientAuth::Optional);
        let mut pair = Pair::new(&Arc::new(client(|profile| profile)), &Arc::new(config));
        let hello = edit_hello(&take(&mut pair.client), edit);
        pair.server.receive(NOW, &hello).map(drop).unwrap_err()
    };
    for typ in [E::PRE_SHARED_KEY, E::SIGNATURE_ALGORITHMS] {
        assert_eq!(rejects(&remove(typ)), PeerMisbehaved::MissingExtension(typ).into());
    }
    let no_groups = |extensions: &mut Extensions| {
        remove(E::KEY_SHARE)(extensions);
        remove(E::SUPPORTED_GROUPS)(extensions);
    };
    assert_eq!(rejects(&no_groups), PeerMisbehaved::MissingExtension(E::KEY_SHARE).into());
    // Without the PSK, its modes are missing alone.
    let no_modes = |extensions: &mut Extensions| {
        remove(E::PSK_KEY_EXCHANGE_MODES)(extensions);
        remove(E::PRE_SHARED_KEY)(extensions);
    };
    assert_eq!(rejects(&no_modes), PeerMisbehaved::MissingExtension(E::PSK_KEY_EXCHANGE_MODES).into());
    let early_data = |extensions: &mut Extensions| extensions.insert(0, (E::EARLY_DATA.0, vec![]));
    assert_eq!(
        rejects(&early_data),
        PeerMisbehaved::IllegalParameter(Field::Extension(E::EARLY_DATA)).into()
    );
    let psk_ke = |extensions: &mut Extensions| {
        let modes = extensions.iter_mut().find(|(typ, _)| *typ == E::PSK_KEY_EXCHANGE_MODES.0);
        modes.unwrap().1 = vec![1, 0];
    };
    assert_eq!(rejects(&psk_ke), PeerMisbehaved::IllegalParameter(Field::PskMode).into());
}

/// RFC 8773 §4: a client without external PSKs resumes its sessions, and offers no extension beside them.
#[test]
fn a_client_does_not_offer_the_extension_beside_a_session() {
    let sessions: Arc<dyn ClientSessions> = Arc::new(MemoryClientSessions::default());
    let tickets = Tickets::stateful(Arc::new(MemoryServerSessions::new(16)));
    let server = Arc::new(server(|profile| profile).with_tickets(tickets));
    let client = Arc::new(client(|profile| profile).with_psks(vec![]).with_sessions(sessions));
    for is_resumed in [false, true] {
        let mut pair = Pair::new(&client, &server);
        let hello = take(&mut pair.client);
        assert_eq!(extension(&hello, EXTENSION), None);
        pair.server.receive(NOW, &hello).unwrap();
        pair.connect().unwrap();
        assert_eq!(pair.client.negotiated().unwrap().is_resumed(), is_resumed);
    }
}

/// RFC 8773 §4: with the extension a server selects external PSKs only.
#[test]
fn a_server_does_not_resume_a_session_beside_the_extension() {
    for tickets in [
        Tickets::stateful(Arc::new(MemoryServerSessions::new(16))),
        Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap())),
    ] {
        let sessions: Arc<dyn ClientSessions> = Arc::new(MemoryClientSessions::default());
        let server = Arc::new(server(|profile| profile).with_tickets(tickets));
        let client = client(|profile| profile.tls_cert_with_extern_psk(false));
        let client = Arc::new(client.with_psks(vec![]).with_sessions(sessions));
        Pair::new(&client, &server).connect().unwrap();
        for with_extension in [false, true] {
            let mut pair = Pair::new(&client, &server);
            let hello = take(&mut pair.client);
            assert!(extension(&hello, 41).is_some(), "no ticket");
            // Only the honest ClientHello has a valid binder, but the other one meets no check of a binder.
            let hello = if with_extension {
                edit_hello(&hello, |extensions| extensions.insert(0, (EXTENSION, vec![])))
            } else {
                hello
            };
            pair.server.receive(NOW, &hello).unwrap();
            let flight = take(&mut pair.server);
            assert_eq!(extension(&flight, 41).is_some(), !with_extension, "selects the ticket");
            assert_eq!(extension(&flight, EXTENSION), None);
            // The client's transcript has the honest ClientHello.
            assert_eq!(pair.client.receive(NOW, &flight).is_err(), with_extension);
            if !with_extension {
                // This brings the ticket of the next round.
                pair.connect().unwrap();
                assert!(pair.client.negotiated().unwrap().is_resumed());
            }
        }
    }
}

#[test]
fn a_client_rejects_an_answer_that_it_cannot_believe() {
    // The honest server's flight, with other extensions in the ServerHello.
    let rejects = |client: ClientConfig, server: ServerConfig, edit: &dyn Fn(&mut Extensions)| {
        let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
        let hello = take(&mut pair.client);
        pair.server.receive(NOW, &hello).unwrap();
        let flight = edit_hello(&take(&mut pair.server), edit);
        pair.client.receive(NOW, &flight).map(drop).unwrap_err()
    };
    let both = [PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE];
    let honest = || server(|profile| profile);
    let add = |extensions: &mut Extensions| extensions.push((EXTENSION, vec![]));
    // It did not offer the extension.
    let without = client(|profile| profile.tls_cert_with_extern_psk(false));
    let unsolicited = PeerMisbehaved::UnsolicitedExtension(E::TLS_CERT_WITH_EXTERN_PSK);
    assert_eq!(rejects(without, honest(), &add), unsolicited.into());
    // The server answers without the companions.
    let missing = |typ| Error::from(PeerMisbehaved::MissingExtension(typ));
    for modes in [&both[..1], &both] {
        let client = || client(|profile| profile.psk_modes(modes.to_vec()));
        let no_psk = rejects(client(), honest(), &remove(E::PRE_SHARED_KEY));
        assert_eq!(no_psk, missing(E::PRE_SHARED_KEY));
        let no_share = rejects(client(), honest(), &remove(E::KEY_SHARE));
        let expected = match modes.len() {
            1 => PeerMisbehaved::IllegalParameter(Field::PskWithoutKeyShare).into(),
            _ => missing(E::KEY_SHARE),
        };
        assert_eq!(no_share, expected);
    }
    // The server selects an identity that the client did not offer.
    let other_psk = |extensions: &mut Extensions| {
        extensions.iter_mut().find(|(typ, _)| *typ == E::PRE_SHARED_KEY.0).unwrap().1 = vec![0, 1];
    };
    let not_offered = PeerMisbehaved::NotOffered(Field::Psk);
    assert_eq!(rejects(client(|profile| profile), honest(), &other_psk), not_offered.into());
}

#[test]
fn a_profile_rejects_settings_that_contradict_the_extension() {
    let builder = || Profile::builder(awslc()).tls_cert_with_extern_psk(true);
    let is_rejected = |profile: ProfileBuilder| matches!(profile.build().map(drop), Err(Error::Misuse(Misuse::Config(why))) if why.contains("PSK beside"));
    assert!(is_rejected(builder()), "no trust and no credential");
    let with_trust = || ends::client_profile(KeyType::P256).tls_cert_with_extern_psk(true);
    assert!(!is_rejected(with_trust()));
    assert!(is_rejected(with_trust().psk_modes(vec![PskKeyExchangeMode::PSK_KE])));
    let tls12 = dunlin_awslc::tls12::TLS12_CIPHER_SUITES.to_vec();
    assert!(is_rejected(with_trust().cipher_suites(vec![]).tls12_cipher_suites(tls12)));
    // A server with PSKs alone has no certificate.
    let without_credential = with_trust().credentials(vec![]).build().unwrap();
    let result = ServerConfig::psk_only(without_credential, keys()).map(drop);
    assert!(matches!(result, Err(Error::Misuse(Misuse::Config(why))) if why.contains("PSK beside")));
}
