//! The input of `explain`.

use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::pki_types::CertificateDer;
use dunlin::pki_types::pem::PemObject;
use dunlin::wire::ProtocolVersion;
use dunlin::{ClientConfig, DtlsConnection, Now, Profile, ServerAddress, TlsConnection, Trust};
use dunlin_gateway::policy::{Attribute, Hints, InputError, client_from_pem, client_hello};
use dunlin_pki::{Error as PkiError, KeyPair, KeyType};

fn client() -> Arc<ClientConfig> {
    let roots = vec![CertificateDer::from_pem_slice(include_bytes!("data/client.pem")).unwrap()];
    let trust = Trust { x509: Some(X509Trust::anchors(roots).unwrap()), raw_key: None };
    let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).trust(trust);
    Arc::new(ClientConfig::new(profile.alpn(vec![b"mqtt".to_vec()]).build().unwrap()))
}

fn server_address() -> ServerAddress {
    ServerAddress::parse("Broker.example", 8883).unwrap()
}

#[test]
fn reads_a_client_hello_as_the_engine_reads_it() {
    let now = Now::default();
    let tls = TlsConnection::client(&client(), server_address(), now).unwrap();
    let mut flight = tls.transmit().to_vec();
    let info = client_hello([&flight[..10], &flight[10..]]).unwrap();
    assert_eq!(
        (info.versions.as_slice(), info.alpn.as_slice()),
        (&[ProtocolVersion::TLS1_3][..], &[b"mqtt".to_vec()][..])
    );
    let hints = Hints::of(&info, "10.0.0.1".parse().unwrap(), vec![]);
    assert_eq!(hints.hello.server_name.as_deref(), Some("broker.example"));
    // Without the record's header.
    assert_eq!(client_hello([&flight[5..]]).unwrap().cipher_suites, info.cipher_suites);

    assert_eq!(client_hello([&flight[..20]]).unwrap_err(), InputError::Incomplete);
    assert_eq!(client_hello([]).unwrap_err(), InputError::NotAHello);
    assert_eq!(client_hello([&b"GET / HTTP/1.1"[..]]).unwrap_err(), InputError::NotAHello);
    flight[9 + 34] = 33;
    let error = client_hello([&flight[..]]).unwrap_err().to_string();
    assert!(error.starts_with("a server rejects this ClientHello: "), "{error}");
}

#[test]
fn reads_a_client_hello_of_dtls() {
    let now = Now::default();
    let peer = "192.0.2.1:5684".parse::<std::net::SocketAddr>().unwrap();
    let mut dtls = DtlsConnection::client(&client(), server_address(), peer, now).unwrap();
    let datagram = dtls.poll_transmit(now).unwrap().datagram;
    let info = client_hello([&datagram[..]]).unwrap();
    assert_eq!(info.versions, [ProtocolVersion::DTLS1_3]);
}

#[test]
fn reads_certificates_and_public_keys_in_pem() {
    let client = client_from_pem(include_bytes!("data/client.pem")).unwrap();
    assert_eq!(client.values(&Attribute::Dns).collect::<Vec<_>>(), ["alice.example.com"]);
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    // The hash is OpenSSL's: `openssl pkey -pubin -outform DER | sha256sum`.
    let client = client_from_pem(key.as_bytes()).unwrap();
    assert_eq!(
        client.values(&Attribute::Key).collect::<Vec<_>>(),
        ["a1e9156054e04fac899ae9f275132cdc07a5dbc4ea2c2ad3a1ffc6e0d253681f"]
    );
    assert_eq!(client_from_pem(b"nothing").unwrap_err(), InputError::NotACredential(PkiError::UnknownFormat));
    let labels = vec!["PRIVATE KEY".to_owned()];
    let missing = PkiError::Missing { wanted: "certificate or public key", labels };
    let pair = KeyPair::generate(KeyType::P256).unwrap().to_pem().unwrap();
    assert_eq!(client_from_pem(pair.as_bytes()).unwrap_err(), InputError::NotACredential(missing));
    // As editors write it.
    let marked = ["\u{feff}", key].concat().replace('\n', "  \r\n");
    assert!(client_from_pem(marked.as_bytes()).is_ok());
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(client_from_pem(broken.as_bytes()).unwrap_err(), InputError::Certificate);
}
