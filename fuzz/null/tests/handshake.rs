//! The engine with this provider: a handshake goes on where real cryptography would end it.
#![allow(clippy::unwrap_used, reason = "helpers of tests, though the compiler cannot see it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dunlin::auth::RawKeyTrust;
use dunlin::error::PeerMisbehaved;
use dunlin::wire::{AlertDescription, ContentType};
use dunlin::{
    ClientAuth, ClientConfig, Credential, DtlsConnection, Error, Now, PeerIdentity, Profile, ServerAddress,
    ServerConfig, TlsConnection, Trust,
};
use pki_types::{PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer};

const PUBLIC_KEY: &[u8] = include_bytes!("../../../crates/dunlin-provider-tests/fixtures/ed25519.spki.der");
const NOW: Now = Now::from_unix_ms(1_767_225_600_000);
/// The address of both ends.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

/// The position of the ClientHello's random: after the headers of record and message, and the version.
const CLIENT_RANDOM: usize = 5 + 4 + 2;

fn profile() -> Profile {
    let provider = dunlin_null::null_provider();
    let key = provider.key_loader.load(&PrivatePkcs8KeyDer::from(PUBLIC_KEY).into()).unwrap();
    let trusted = SubjectPublicKeyInfoDer::from(PUBLIC_KEY).into_owned();
    Profile::builder(Arc::new(provider))
        .danger_skip_provider_check()
        .credentials(vec![Credential::raw_key(key)])
        .trust(Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![trusted])) })
        .build()
        .unwrap()
}

fn localhost() -> ServerAddress {
    ServerAddress::new(ServerName::try_from("localhost").unwrap(), 4433)
}

fn ends() -> [TlsConnection; 2] {
    ends_with(profile)
}

fn ends_with(profile: impl Fn() -> Profile) -> [TlsConnection; 2] {
    let client = Arc::new(ClientConfig::new(profile()));
    let server = ServerConfig::new(profile()).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let client = TlsConnection::client(&client, localhost(), NOW).unwrap();
    [client, TlsConnection::server(&Arc::new(server), NOW)]
}

/// Lets both sides take turns until neither has anything to send. `edit` changes the server's output.
fn run(ends: &mut [TlsConnection; 2], edit: impl Fn(Vec<u8>) -> Vec<u8>) -> Result<(), Error> {
    let [client, server] = ends;
    loop {
        let hello = take(client);
        let answer = edit(take(server));
        if hello.is_empty() && answer.is_empty() {
            return Ok(());
        }
        server.receive(NOW, &hello)?;
        client.receive(NOW, &answer)?;
    }
}

/// A peer with two keys keeps its identity in a renegotiation, and a failed connection still reports that
/// identity.
#[test]
fn renegotiation_keeps_the_peer() {
    let other: Vec<u8> =
        PUBLIC_KEY.iter().enumerate().map(|(i, b)| b ^ u8::from(i + 1 == PUBLIC_KEY.len())).collect();
    let provider = Arc::new(dunlin_null::null_provider());
    let key = provider.key_loader.load(&PrivatePkcs8KeyDer::from(PUBLIC_KEY).into()).unwrap();
    let keys = [PUBLIC_KEY, &other].map(|key| SubjectPublicKeyInfoDer::from(key).into_owned());
    let profile = || {
        Profile::builder(provider.clone())
            .danger_skip_provider_check()
            .cipher_suites(vec![])
            .tls12_cipher_suites(vec![&dunlin_null::TLS12_CIPHER_SUITES[0]])
            .credentials(vec![Credential::raw_key(key.clone())])
            .trust(Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(keys.to_vec())) })
            .renegotiation(true)
            .build()
            .unwrap()
    };
    let mut ends = ends_with(profile);
    run(&mut ends, |bytes| bytes).unwrap();
    ends[0].renegotiate(NOW).unwrap();
    let result = run(&mut ends, |mut bytes| {
        if let Some(at) = bytes.windows(PUBLIC_KEY.len()).position(|window| window == PUBLIC_KEY) {
            bytes[at..at + other.len()].copy_from_slice(&other);
        }
        bytes
    });
    assert!(matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::IllegalParameter(_)))), "{result:?}");
    let peer = ends[0].negotiated().unwrap().peer.clone();
    assert_eq!(peer, Some(PeerIdentity::RawKey(keys[0].clone())));
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

#[test]
fn mutual_handshake_survives_a_changed_transcript() {
    let [mut client, mut server] = ends();
    let mut hello = take(&mut client);
    hello[CLIENT_RANDOM] ^= 1;
    server.receive(NOW, &hello).unwrap();
    client.receive(NOW, &take(&mut server)).unwrap();
    server.receive(NOW, &take(&mut client)).unwrap();
    assert!(!client.is_handshaking() && !server.is_handshaking());
    client.send(b"readable").unwrap();
    let record = take(&mut client);
    assert!(record.windows(8).any(|window| window == b"readable"));
    server.receive(NOW, &record).unwrap();
    assert_eq!(server.received(), b"readable");
}

/// The engine rejects an empty record (RFC 8446 §5.4; for datagrams RFC 9147 §4).
#[test]
fn empty_record_in_a_datagram_is_rejected() {
    let client_config = Arc::new(ClientConfig::new(profile()));
    let server_config = Arc::new(ServerConfig::new(profile()).unwrap());
    for typ in [ContentType::ALERT, ContentType::HANDSHAKE] {
        let mut client = DtlsConnection::client(&client_config, localhost(), ADDRESS, NOW).unwrap();
        let mut server = DtlsConnection::server(&server_config, ADDRESS, NOW);
        while client.is_handshaking() || server.is_handshaking() {
            while let Some(sent) = client.poll_transmit(NOW) {
                server.receive(NOW, ADDRESS, &sent.datagram).unwrap();
            }
            while let Some(sent) = server.poll_transmit(NOW) {
                client.receive(NOW, ADDRESS, &sent.datagram).unwrap();
            }
        }
        client.send(b"").unwrap();
        let mut record = client.poll_transmit(NOW).unwrap().datagram;
        // The type follows the content, and the tag follows the type.
        let at = record.len() - dunlin_null::TAG.len() - 1;
        assert_eq!(record[at], ContentType::APPLICATION_DATA.0);
        record[at] = typ.0;
        assert_eq!(server.receive(NOW, ADDRESS, &record), Err(PeerMisbehaved::EmptyRecord.into()));
        let alerts: Vec<_> = std::iter::from_fn(|| server.poll_transmit(NOW)).collect();
        let alert = alerts.last().unwrap().datagram.strip_suffix(&dunlin_null::TAG[..]).unwrap();
        assert!(alert.ends_with(&[2, AlertDescription::UNEXPECTED_MESSAGE.0, ContentType::ALERT.0]));
    }
}

#[test]
fn same_handshake_gives_the_same_bytes() {
    let [hello, again] = [ends(), ends()].map(|[mut client, _]| take(&mut client));
    assert_eq!(hello, again);
}

#[test]
fn record_without_the_tag_is_rejected() {
    let [mut client, mut server] = ends();
    server.receive(NOW, &take(&mut client)).unwrap();
    let mut flight = take(&mut server);
    *flight.last_mut().unwrap() ^= 1;
    assert!(client.receive(NOW, &flight).is_err());
}
