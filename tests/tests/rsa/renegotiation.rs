//! RSA_PSK in a renegotiation: the server must keep its certificate as well as its PSK.

use dunlin::auth::X509Trust;
use dunlin::crypto::{Tls12Authentication, Tls12KeyExchange};
use dunlin::error::PeerMisbehaved;
use dunlin::wire::{CipherSuite, Field, HandshakeType};
use dunlin_null::TAG;
use dunlin_tests::tamper::{message, messages, records};
use dunlin_tests::{NOW, carry};

use super::*;

/// A suite with readable records, but with a real key exchange.
fn open_suite(id: CipherSuite, key_exchange: Tls12KeyExchange) -> &'static Tls12CipherSuite {
    let null = dunlin_null::null_provider();
    let aead = null.suite(CipherSuite::TLS_CHACHA20_POLY1305_SHA256).unwrap().aead;
    let hash = dunlin_legacy::rsa::TLS12_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256.hash;
    let authentication = Tls12Authentication::Psk;
    Box::leak(Box::new(Tls12CipherSuite { id, hash, aead, key_exchange, authentication }))
}

/// Connects a client that trusts two authorities to a server of the first. Then `edit` changes the server's
/// second flight of a renegotiation. Returns whether the client refuses it for another identity.
fn refuses(edit: impl FnOnce(&mut Vec<Vec<u8>>)) -> bool {
    let suites = [
        open_suite(CipherSuite::TLS_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256, Tls12KeyExchange::Rsa),
        open_suite(CipherSuite::TLS_PSK_WITH_CHACHA20_POLY1305_SHA256, Tls12KeyExchange::Psk),
    ];
    let profile = || profile(&suites).danger_skip_provider_check().renegotiation(true);
    let roots = X509Trust::anchors([pki(), other()].map(|pki| pki.root.clone())).unwrap();
    let client = profile().trust(Trust { x509: Some(roots), raw_key: None });
    let mut pair = Pair::new(&client_config(client, psk(7)), &server_config(serving(profile()), psk(7)));
    pair.connect().unwrap();
    assert!(pair.client.negotiated().unwrap().peer_certified.is_some());

    pair.client.renegotiate(NOW).unwrap();
    carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
    let [flight] = &records(pair.server.transmit())[..] else { panic!("not one record") };
    let mut flight = messages(flight[5..].strip_suffix(&TAG[..]).unwrap());
    edit(&mut flight);
    let flight = [&flight.concat(), &TAG[..]].concat();
    let record = [&[22, 3, 3], &(flight.len() as u16).to_be_bytes()[..], &flight].concat();
    let illegal = PeerMisbehaved::IllegalParameter(Field::OtherIdentity);
    match pair.client.receive(NOW, &record) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error, illegal.into());
            assert!(
                pair.client.negotiated().unwrap().peer_certified.is_some(),
                "the previous parameters stay"
            );
            true
        }
    }
}

fn other() -> &'static Pki {
    static OTHER: std::sync::OnceLock<Pki> = std::sync::OnceLock::new();
    OTHER.get_or_init(|| Pki::new(KeyType::Rsa2048))
}

#[test]
fn client_refuses_another_certificate_or_none() {
    assert!(!refuses(|_| {}));
    // Another certificate, which the client trusts as well.
    assert!(refuses(|flight| {
        let vec24 = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[1..], bytes].concat();
        let chain: Vec<u8> = other().server.chain.iter().flat_map(|certificate| vec24(certificate)).collect();
        assert_eq!(HandshakeType(flight[1][0]), HandshakeType::CERTIFICATE);
        flight[1] = message(HandshakeType::CERTIFICATE.0, &vec24(&chain));
    }));
    // No certificate: a suite that authenticates the server by the PSK alone.
    assert!(refuses(|flight| {
        assert_eq!(HandshakeType(flight.remove(1)[0]), HandshakeType::CERTIFICATE);
        // After header, version, random and an empty session ID.
        let at = 4 + 2 + 32 + 1;
        flight[0][at..at + 2]
            .copy_from_slice(&CipherSuite::TLS_PSK_WITH_CHACHA20_POLY1305_SHA256.0.to_be_bytes());
    }));
}
