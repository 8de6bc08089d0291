//! RSA key transport of TLS 1.2: both sides of the engine, real peers, and probes of servers for an oracle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod oracle;
mod peers;
mod renegotiation;
mod vectors;

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::crypto::{CryptoProvider, Tls12CipherSuite};
use dunlin::error::{AuthenticationFailure, PeerIncompatible};
use dunlin::wire::{AlertDescription, Field, HandshakeType, ProtocolVersion};
use dunlin::{
    ClientConfig, Credential, Error, Now, PeerIdentity, Profile, ProfileBuilder, PskChoice, PskSource,
    ServerConfig, TlsConnection, Trust,
};
use dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES;
use dunlin_tests::{KeyType, Pair, Pki};

/// A provider whose RSA keys can decrypt.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { key_loader: dunlin_legacy::rsa::KEY_LOADER, ..dunlin_awslc::provider() })
}

fn pki() -> &'static Pki {
    Pki::shared(KeyType::Rsa2048)
}

/// A profile with only these TLS 1.2 suites.
fn profile(suites: &[&'static Tls12CipherSuite]) -> ProfileBuilder {
    let profile = Profile::builder(provider()).cipher_suites(vec![]).tls12_cipher_suites(suites.to_vec());
    profile.rsa_encryption(dunlin_legacy::rsa::ENCRYPTION)
}

fn trusting(profile: ProfileBuilder) -> ProfileBuilder {
    profile.trust(Trust { x509: Some(pki().trust()), raw_key: None })
}

fn serving(profile: ProfileBuilder) -> ProfileBuilder {
    profile.credentials(vec![pki().server.x509(&provider())])
}

fn psk(key: u8) -> Psk {
    Psk::new("device-1", &[key; 32]).unwrap()
}

fn client_config(profile: ProfileBuilder, key: Psk) -> Arc<ClientConfig> {
    Arc::new(ClientConfig::new(profile.build().unwrap()).with_psks(vec![Arc::new(key)]))
}

fn server_config(profile: ProfileBuilder, key: Psk) -> Arc<ServerConfig> {
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([key])));
    Arc::new(ServerConfig::new(profile.build().unwrap()).unwrap().with_psks(keys))
}

fn psk_pair(suites: &[&'static Tls12CipherSuite]) -> Pair {
    let client = client_config(trusting(profile(suites)), psk(7));
    Pair::new(&client, &server_config(serving(profile(suites)), psk(7)))
}

fn assert_peers(pair: &Pair, server: &str, client: &str) {
    for (end, peer) in [(&pair.client, server), (&pair.server, client)] {
        let negotiated = end.negotiated().unwrap();
        assert_eq!(negotiated.version, Some(ProtocolVersion::TLS1_2));
        assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), peer);
        assert_eq!(
            (negotiated.group, negotiated.peer_signature, negotiated.own_signature),
            (None, None, None)
        );
    }
}

#[test]
fn connects_with_every_rsa_psk_suite() {
    for suite in TLS12_RSA_PSK_CIPHER_SUITES {
        let mut pair = psk_pair(&[*suite]);
        pair.connect().unwrap_or_else(|e| panic!("{}: {e}", suite.id));
        pair.echo(b"hello").unwrap();
        assert_eq!(pair.client.negotiated().unwrap().cipher_suite, Some(suite.id));
        assert_peers(&pair, "PSK device-1", "PSK device-1");
        let certified = |end: &TlsConnection| end.negotiated().unwrap().peer_certified.clone();
        assert!(matches!(certified(&pair.client).as_deref(), Some(PeerIdentity::X509(_))));
        assert_eq!(certified(&pair.server), None);
    }
}

/// RFC 4279 §4: the server proves that it has both the PSK and the certificate's key.
#[test]
fn rsa_psk_needs_the_key_and_the_certificate() {
    let suites = TLS12_RSA_PSK_CIPHER_SUITES;
    let server = server_config(serving(profile(suites)), psk(8));
    let mut pair = Pair::new(&client_config(trusting(profile(suites)), psk(7)), &server);
    let error = pair.run().unwrap_err();
    assert_eq!(error.alert(), Some(AlertDescription::DECRYPT_ERROR), "{error}");

    let others = Pki::new(KeyType::Rsa2048);
    let client = profile(suites).trust(Trust { x509: Some(others.trust()), raw_key: None });
    let mut pair = Pair::new(&client_config(client, psk(8)), &server);
    let error = pair.run().unwrap_err();
    assert_eq!(error, Error::Authentication(AuthenticationFailure::UnknownIssuer));
}

/// The client stores no session: it would remember only the PSK and outlive the certificate.
#[test]
fn rsa_psk_client_stores_no_session() {
    let suites = TLS12_RSA_PSK_CIPHER_SUITES;
    for tickets in dunlin_tests::ends::tickets() {
        let sessions = dunlin_tests::ends::with_sessions();
        let keys = || PskTable::from_iter([psk(7)]);
        let server = ServerConfig::new(serving(profile(suites)).build().unwrap()).unwrap();
        let server = Arc::new(server.with_psks(PskSource::Here(Arc::new(keys()))).with_tickets(tickets));
        let client = ClientConfig::new(trusting(profile(suites)).build().unwrap());
        let client = client.with_psks(vec![Arc::new(psk(7))]).with_sessions(sessions);
        let client = Arc::new(client);
        for _ in 0..2 {
            let mut pair = Pair::new(&client, &server);
            pair.connect().unwrap();
            assert!(!pair.client.negotiated().unwrap().is_resumed());
        }
    }
}

#[test]
fn errors_name_the_missing_part() {
    let suites = TLS12_RSA_PSK_CIPHER_SUITES;
    let bare = Profile::builder(provider()).tls12_cipher_suites(suites.to_vec()).build().unwrap_err();
    assert!(bare.to_string().contains("TLS_RSA_PSK_WITH_AES_128_GCM_SHA256 needs RSA encryption"), "{bare}");
    // A key of another loader signs but does not decrypt.
    let signs_only: Credential = pki().server.x509(&dunlin_tests::awslc());
    let server = server_config(profile(suites).credentials(vec![signs_only]), psk(7));
    let mut pair = Pair::new(&client_config(trusting(profile(suites)), psk(7)), &server);
    let error = pair.run().unwrap_err();
    assert_eq!(error, Error::PeerIncompatible(PeerIncompatible::NoCredential(Field::NoneDecrypts)));
    // A client without a PSK offers no RSA_PSK suite.
    let config = ClientConfig::new(trusting(profile(suites)).build().unwrap());
    let mut pair = Pair::new(&Arc::new(config), &server);
    assert_eq!(pair.run().unwrap_err(), Error::PeerIncompatible(PeerIncompatible::CipherSuite));
}

/// RFC 4279 §4, §5.2: in RSA_PSK, a ServerKeyExchange holds only the identity hint.
#[test]
fn server_key_exchange_carries_the_hint() {
    let suites = TLS12_RSA_PSK_CIPHER_SUITES;
    for hint in ["", "gateway"] {
        let choose = move |heard: &[u8], _: Now| (heard == hint.as_bytes()).then(|| Arc::new(psk(7)));
        let client = ClientConfig::new(trusting(profile(suites)).build().unwrap());
        let client = client.with_psk_choice(PskChoice::Here(Arc::new(choose)));
        let server = (*server_config(serving(profile(suites)), psk(7))).clone();
        let server = server.with_psk_identity_hint(hint).unwrap();
        let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
        pair.connect().unwrap();
        let says = pair.server.messages().iter().any(|m| m.typ == HandshakeType::SERVER_KEY_EXCHANGE);
        assert_eq!(says, !hint.is_empty());
    }
}
