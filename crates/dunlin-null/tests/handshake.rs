//! The engine with this provider: what real cryptography would end goes on.
#![allow(clippy::unwrap_used, reason = "helpers of tests, though the compiler cannot see it")]

use std::sync::Arc;

use dunlin::auth::RawKeyTrust;
use dunlin::{
    ClientAuth, ClientConfig, Credential, Now, Profile, ServerAddress, ServerConfig, TlsConnection, Trust,
};
use pki_types::{PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer};

const PUBLIC_KEY: &[u8] = include_bytes!("../../dunlin-provider-tests/fixtures/ed25519.spki.der");
const NOW: Now = Now::from_unix_ms(1_767_225_600_000);

/// Where the random of a ClientHello begins: behind the headers of record and message and the version.
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

fn ends() -> [TlsConnection; 2] {
    let client = Arc::new(ClientConfig::new(profile()));
    let server = ServerConfig::new(profile()).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let address = ServerAddress::new(ServerName::try_from("localhost").unwrap(), 4433);
    let client = TlsConnection::client(&client, address, NOW).unwrap();
    [client, TlsConnection::server(&Arc::new(server), NOW)]
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

#[test]
fn a_mutual_handshake_survives_a_changed_transcript() {
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

#[test]
fn the_same_handshake_is_the_same_bytes() {
    let [hello, again] = [ends(), ends()].map(|[mut client, _]| take(&mut client));
    assert_eq!(hello, again);
}

#[test]
fn a_record_without_the_tag_is_refused() {
    let [mut client, mut server] = ends();
    server.receive(NOW, &take(&mut client)).unwrap();
    let mut flight = take(&mut server);
    *flight.last_mut().unwrap() ^= 1;
    assert!(client.receive(NOW, &flight).is_err());
}
