//! Handshakes between two ends of our own.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable, RawKeyTrust};
use dunlin::{ClientAuth, ClientConfig, Profile, PskSource, ServerConfig, Trust};
use dunlin_tests::{KEY_TYPES, KeyType, Pair, Pki, awslc, providers};

#[test]
fn mutual_x509() {
    for provider in providers() {
        for typ in KEY_TYPES {
            let pki = Pki::shared(typ);
            let trust = Trust { x509: Some(pki.trust()), raw_key: None };
            let client = Profile::builder(provider.clone())
                .trust(trust.clone())
                .credentials(vec![pki.client.x509(&provider)])
                .build()
                .unwrap();
            let server = Profile::builder(provider.clone())
                .trust(trust)
                .credentials(vec![pki.server.x509(&provider)])
                .build()
                .unwrap();
            let client = Arc::new(ClientConfig::new(client));
            let server =
                Arc::new(ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required).unwrap());
            let mut pair = Pair::new(&client, &server);
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
            pair.echo(&vec![7; 1 << 20]).unwrap();
            let peer = pair.server.negotiated().unwrap().peer.clone().unwrap();
            assert_eq!(peer.to_string(), "X.509 device-1");
        }
    }
}

#[test]
fn mutual_raw_key() {
    for provider in providers() {
        let pki = Pki::shared(KeyType::P256);
        let trust = |key: &dunlin_tests::Leaf| Trust {
            x509: None,
            raw_key: Some(RawKeyTrust::Keys(vec![key.public_key.clone()])),
        };
        let client = Profile::builder(provider.clone())
            .trust(trust(&pki.server))
            .credentials(vec![pki.client.raw_key(&provider)])
            .build()
            .unwrap();
        let server = Profile::builder(provider.clone())
            .trust(trust(&pki.client))
            .credentials(vec![pki.server.raw_key(&provider)])
            .build()
            .unwrap();
        let client = Arc::new(ClientConfig::new(client));
        let server =
            Arc::new(ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required).unwrap());
        let mut pair = Pair::new(&client, &server);
        pair.connect().unwrap();
        pair.echo(b"hello").unwrap();
    }
}

#[test]
fn external_psk() {
    let provider = awslc();
    let key = [7; 32];
    let profile = Profile::builder(provider.clone()).build().unwrap();
    let client = ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(Psk::new("d1", &key).unwrap())]);
    let table = PskTable::from_iter([Psk::new("d1", &key).unwrap()]);
    let server = ServerConfig::new(profile).unwrap().with_psks(PskSource::Here(Arc::new(table)));
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    assert_eq!(pair.server.negotiated().unwrap().peer.clone().unwrap().to_string(), "PSK d1");
}
