//! A server with several certificates shows the one with the name that the client wants (RFC 8446 §4.4.2.2,
//! RFC 6066 §3).

use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::X509Trust;
use dunlin::pki_types::{PrivateKeyDer, ServerName};
use dunlin::{
    ClientConfig, Credential, DtlsConnection, PeerIdentity, Profile, ProfileBuilder, ServerAddress,
    ServerConfig, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::{NOW, Pair, awslc};
use rcgen::{CertificateParams, KeyPair};

/// Certificates with these names, in this order.
const CERTIFICATES: [&[&str]; 5] = [
    &["first.example.net"],
    &["a.example.org"],
    &["*.example.org"],
    &["b.example.org", "*.b.example.org"],
    &["a.example.org", "localhost"],
];

/// The server names that clients request, and the index of the certificate that they get.
const WANTED: [(&str, usize); 10] = [
    ("first.example.net", 0),
    ("a.example.org", 1),
    ("A.Example.ORG", 1),
    // The exact name comes before the wildcard, in whichever order the server has them.
    ("b.example.org", 3),
    ("c.example.org", 2),
    // A wildcard stands for one label.
    ("x.b.example.org", 3),
    ("x.c.example.org", 0),
    ("example.org", 0),
    ("localhost", 4),
    ("other.example.com", 0),
];

fn credential(names: &[&str]) -> Credential {
    credential_of(names, &rcgen::PKCS_ECDSA_P256_SHA256)
}

/// A certificate with these names and a key of this algorithm.
fn credential_of(names: &[&str], algorithm: &'static rcgen::SignatureAlgorithm) -> Credential {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
    let leaf = CertificateParams::new(names).unwrap().self_signed(&key).unwrap().der().clone();
    let key = awslc().key_loader.load(&PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
    Credential::x509(vec![leaf], key)
}

fn leaf_of(credential: &Credential) -> &[u8] {
    let Credential::X509 { chain, .. } = credential else { panic!("a certificate") };
    &chain[0]
}

/// A profile of TLS 1.2 or of TLS 1.3. Clients accept any certificate, as this test looks at the one that
/// they get.
fn profile(is_tls12: bool) -> ProfileBuilder {
    let profile = Profile::builder(awslc()).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec());
    let profile = if is_tls12 { profile.cipher_suites(vec![]) } else { profile.tls12_cipher_suites(vec![]) };
    profile.trust(Trust { x509: Some(X509Trust::DangerAnyone), raw_key: None })
}

fn leaf_of_peer(peer: Option<&PeerIdentity>) -> &[u8] {
    let Some(PeerIdentity::X509(identity)) = peer else { panic!("a certificate: {peer:?}") };
    &identity.chain[0]
}

/// In TLS 1.2, the suite decides which types of keys can sign. The name counts before the order of suites.
#[test]
fn server_shows_the_certificate_with_the_wanted_name() {
    let ecdsa = &rcgen::PKCS_ECDSA_P256_SHA256;
    let rsa = &rcgen::PKCS_RSA_SHA256;
    for algorithms in [[ecdsa; 5], [ecdsa, rsa, ecdsa, rsa, ecdsa], [rsa, ecdsa, rsa, ecdsa, rsa]] {
        let mut algorithms = algorithms.into_iter();
        shows_the_wanted_name(&CERTIFICATES.map(|names| credential_of(names, algorithms.next().unwrap())));
    }
}

fn shows_the_wanted_name(own: &[Credential; 5]) {
    for is_tls12 in [true, false] {
        let server = profile(is_tls12).credentials(own.to_vec()).build().unwrap();
        let server = Arc::new(ServerConfig::new(server).unwrap());
        let client = Arc::new(ClientConfig::new(profile(is_tls12).build().unwrap()));
        for (wanted, index) in WANTED {
            let address = || ServerAddress::new(ServerName::try_from(wanted).unwrap(), 443);
            let mut pair = Pair::new(&client, &server);
            pair.client = dunlin::TlsConnection::client(&client, address(), NOW).unwrap();
            pair.connect().unwrap();
            let peer = pair.client.negotiated().unwrap().peer.as_ref();
            assert!(leaf_of_peer(peer) == leaf_of(&own[index]), "{wanted}, TLS 1.2: {is_tls12}");

            let mut pair = dunlin_sim::Pair::new(
                DtlsConnection::client(&client, address(), SERVER_ADDRESS, NOW).unwrap(),
                DtlsConnection::server(&server, CLIENT_ADDRESS, NOW),
                NOW,
                Duration::from_millis(20),
            );
            pair.run().unwrap();
            let peer = pair.client.negotiated().unwrap().peer.as_ref();
            assert!(leaf_of_peer(peer) == leaf_of(&own[index]), "{wanted}, DTLS 1.2: {is_tls12}");
        }
    }
}

/// The name does not make a certificate suit that the client cannot verify, and a server without the name
/// shows its first.
#[test]
fn a_name_does_not_make_a_certificate_suit() {
    let of = |key: &'static rcgen::SignatureAlgorithm| {
        let key = KeyPair::generate_for(key).unwrap();
        let leaf = CertificateParams::new(vec!["a.example.org".into()]).unwrap().self_signed(&key).unwrap();
        let own = awslc().key_loader.load(&PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
        Credential::x509(vec![leaf.der().clone()], own)
    };
    let own = [credential(&["first.example.net"]), of(&rcgen::PKCS_ECDSA_P384_SHA384)];
    let server = profile(false).credentials(own.to_vec()).build().unwrap();
    let server = Arc::new(ServerConfig::new(server).unwrap());
    let schemes = vec![dunlin::wire::SignatureScheme::ECDSA_SECP256R1_SHA256];
    for (schemes, index) in [(Some(schemes), 0), (None, 1)] {
        let client = match schemes {
            Some(schemes) => profile(false).signature_schemes(schemes),
            None => profile(false),
        };
        let client = Arc::new(ClientConfig::new(client.build().unwrap()));
        let mut pair = Pair::new(&client, &server);
        let address = ServerAddress::new(ServerName::try_from("a.example.org").unwrap(), 443);
        pair.client = dunlin::TlsConnection::client(&client, address, NOW).unwrap();
        pair.connect().unwrap();
        assert!(leaf_of_peer(pair.client.negotiated().unwrap().peer.as_ref()) == leaf_of(&own[index]));
    }
}

/// A client that accepts both gets what the server has first, whether the certificate has the name exactly,
/// by a wildcard or not at all.
#[test]
fn a_raw_key_is_chosen_by_its_place() {
    let key = credential(&["raw"]);
    let Credential::X509 { key: dunlin::auth::PrivateKey::Here(own), .. } = &key else {
        panic!("a key here")
    };
    let raw = Credential::raw_key(own.clone());
    for names in [&["a.example.org"][..], &["*.example.org"], &["other.test"]] {
        let certificate = credential(names);
        for (own, is_raw) in [([&raw, &certificate], true), ([&certificate, &raw], false)] {
            let server = profile(false).credentials(own.map(Clone::clone).to_vec()).build().unwrap();
            let server = Arc::new(ServerConfig::new(server).unwrap());
            let trust = Trust {
                x509: Some(X509Trust::DangerAnyone),
                raw_key: Some(dunlin::auth::RawKeyTrust::DangerAnyone),
            };
            let client = Arc::new(ClientConfig::new(profile(false).trust(trust).build().unwrap()));
            let mut pair = Pair::new(&client, &server);
            let address = ServerAddress::new(ServerName::try_from("a.example.org").unwrap(), 443);
            pair.client = dunlin::TlsConnection::client(&client, address, NOW).unwrap();
            pair.connect().unwrap();
            let peer = pair.client.negotiated().unwrap().peer.as_ref();
            assert_eq!(matches!(peer, Some(PeerIdentity::RawKey(_))), is_raw, "{names:?}: {peer:?}");
        }
    }
}
