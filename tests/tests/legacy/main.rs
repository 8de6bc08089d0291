//! Obsolete algorithms, for measurements only: static RSA, anonymous Diffie-Hellman, DSA, short keys and
//! fields.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod fields;
mod peers;

use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::crypto::{KeyExchangeGroup, Tls12Authentication as Auth, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::error::{AuthenticationFailure, PeerMisbehaved, ShortKey};
use dunlin::pki_types::pem::PemObject;
use dunlin::pki_types::{CertificateDer, PrivateKeyDer};
use dunlin::wire::{AlertDescription, HandshakeType, NamedGroup, ProtocolVersion, SignatureScheme};
use dunlin::{ClientAuth, ClientConfig, Credential, Error, Profile, ProfileBuilder, ServerConfig, Trust};
use dunlin_awslc::tls12::TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
use dunlin_legacy::lab::identity::{DSA_1024, DSA_2048, Identity, RSA_512, RSA_1024};
use dunlin_legacy::lab::{LAB_512, LAB_1024, LAB_2048, TLS12_LEGACY_CIPHER_SUITES};
use dunlin_tests::tamper::{message, messages, records};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};

const FIELDS: [&dyn KeyExchangeGroup; 3] = [LAB_512, LAB_1024, LAB_2048];

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// A profile with this TLS 1.2 suite and everything of the laboratory.
fn profile(suite: &'static Tls12CipherSuite) -> ProfileBuilder {
    Profile::builder(Arc::new(dunlin_legacy::lab::provider()))
        .cipher_suites(vec![])
        .tls12_cipher_suites(vec![suite])
        .groups([&dunlin_awslc::provider().groups[..], &FIELDS].concat())
        .rsa_encryption(dunlin_legacy::lab::ENCRYPTION)
        .danger_legacy_lab()
}

fn trusting(profile: ProfileBuilder, identity: &Identity) -> ProfileBuilder {
    let trust = X509Trust::anchors([certificate(identity.root_pem)]).unwrap();
    profile.trust(Trust { x509: Some(trust), raw_key: None })
}

fn serving(profile: ProfileBuilder, identity: &Identity) -> ProfileBuilder {
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let key = dunlin_legacy::lab::provider().key_loader.load(&key).unwrap();
    profile.credentials(vec![Credential::x509(vec![certificate(identity.cert_pem)], key)])
}

/// The identities that suit a server of this suite; `None` stands for an anonymous server.
fn identities(suite: &Tls12CipherSuite) -> Vec<Option<&'static Identity>> {
    match suite.authentication {
        Auth::Rsa => vec![Some(&RSA_512), Some(&RSA_1024)],
        Auth::Dss => vec![Some(&DSA_1024), Some(&DSA_2048)],
        Auth::Anonymous => vec![None],
        Auth::Ecdsa | Auth::Psk => vec![],
    }
}

fn client_profile(suite: &'static Tls12CipherSuite, identity: Option<&Identity>) -> ProfileBuilder {
    identity.map_or_else(|| profile(suite), |identity| trusting(profile(suite), identity))
}

fn server_profile(suite: &'static Tls12CipherSuite, identity: Option<&Identity>) -> ProfileBuilder {
    identity.map_or_else(|| profile(suite), |identity| serving(profile(suite), identity))
}

fn pair(client: ProfileBuilder, server: ProfileBuilder) -> Pair {
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    Pair::new(&Arc::new(ClientConfig::new(client.build().unwrap())), &Arc::new(server))
}

#[test]
fn connects_with_every_suite_and_key() {
    // RSA also signs with short keys.
    let all = TLS12_LEGACY_CIPHER_SUITES.iter().copied().chain([&TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256]);
    for suite in all {
        for identity in identities(suite) {
            let what = format!("{} with {:?}", suite.id, identity.map(|i| i.name));
            let mut pair = pair(client_profile(suite, identity), server_profile(suite, identity));
            pair.connect().unwrap_or_else(|e| panic!("{what}: {e}"));
            pair.echo(b"hello").unwrap();
            let server = identity.map(|_| "X.509 localhost".to_owned());
            for (end, peer) in [(&pair.client, server), (&pair.server, None)] {
                let negotiated = end.negotiated().unwrap();
                assert_eq!(negotiated.version, Some(ProtocolVersion::TLS1_2), "{what}");
                assert_eq!(negotiated.cipher_suite, Some(suite.id), "{what}");
                assert_eq!(negotiated.peer.as_ref().map(ToString::to_string), peer, "{what}");
            }
            let signature = pair.client.negotiated().unwrap().peer_signature;
            let expected = match (suite.key_exchange, suite.authentication) {
                (Tls12KeyExchange::Rsa, _) | (_, Auth::Anonymous) => None,
                (_, Auth::Dss) => Some(SignatureScheme::DSA_SHA256),
                _ => Some(SignatureScheme::RSA_PKCS1_SHA256),
            };
            assert_eq!(signature, expected, "{what}");
        }
    }
}

#[test]
fn connects_with_every_field() {
    let suite = &dunlin_legacy::lab::TLS12_DH_ANON_WITH_AES_128_GCM_SHA256;
    for (field, name) in FIELDS.into_iter().zip([
        NamedGroup::FFDHE_PRIVATE_USE_0,
        NamedGroup::FFDHE_PRIVATE_USE_1,
        NamedGroup::FFDHE_PRIVATE_USE_2,
    ]) {
        let mut pair = pair(profile(suite), profile(suite).groups(vec![field]));
        pair.connect().unwrap();
        for end in [&pair.client, &pair.server] {
            assert_eq!(end.negotiated().unwrap().group, Some(name));
        }
    }
}

#[test]
fn client_authenticates_with_dsa() {
    let suite = &dunlin_legacy::lab::TLS12_DHE_DSS_WITH_AES_128_GCM_SHA256;
    let both = || serving(profile(suite), &DSA_1024);
    let server = both().trust(Trust { x509: Some(X509Trust::DangerAnyone), raw_key: None });
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap();
    let client = ClientConfig::new(trusting(both(), &DSA_1024).build().unwrap());
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.connect().unwrap();
    assert_eq!(pair.server.negotiated().unwrap().peer_signature, Some(SignatureScheme::DSA_SHA256));
}

/// A profile must name the laboratory before it can use any part of it.
#[test]
fn profile_without_the_laboratory_refuses_its_suites_and_fields() {
    let bare = || {
        Profile::builder(Arc::new(dunlin_legacy::lab::provider()))
            .rsa_encryption(dunlin_legacy::lab::ENCRYPTION)
    };
    let fields = || [&dunlin_awslc::provider().groups[..], &[dunlin_legacy::ffdhe::FFDHE2048]].concat();
    for suite in TLS12_LEGACY_CIPHER_SUITES {
        let profile = bare().groups(fields()).tls12_cipher_suites(vec![*suite]);
        let refused = profile.clone().build().unwrap_err().to_string();
        assert!(
            refused.contains(suite.id.name().unwrap()) && refused.contains("for the laboratory only"),
            "{refused}"
        );
        profile.danger_legacy_lab().build().unwrap();
    }
    for field in FIELDS {
        let suites = dunlin_awslc::tls12::TLS12_DHE_CIPHER_SUITES.to_vec();
        let profile = bare().cipher_suites(vec![]).groups(vec![field]).tls12_cipher_suites(suites);
        let refused = profile.clone().build().unwrap_err().to_string();
        assert!(
            refused.contains("ffdhe_private_use") && refused.contains("for the laboratory only"),
            "{refused}"
        );
        let with_tls13 =
            profile.clone().danger_legacy_lab().cipher_suites(dunlin_awslc::provider().cipher_suites);
        assert!(with_tls13.build().unwrap_err().to_string().contains("is for TLS 1.2 alone"));
        profile.danger_legacy_lab().build().unwrap();
    }
}

/// A profile without the laboratory refuses short keys and DSA, even if its suites are ordinary.
#[test]
fn profile_without_the_laboratory_refuses_its_keys() {
    let builder = |provider| Profile::builder(Arc::new(provider));
    let tls13 = || builder(dunlin_legacy::lab::provider());
    let tls12 = || tls13().cipher_suites(vec![]);
    let ordinary = || tls12().tls12_cipher_suites(vec![&TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256]);
    let encrypting = || {
        builder(dunlin_awslc::provider())
            .tls12_cipher_suites(dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES.to_vec())
            .rsa_encryption(dunlin_legacy::lab::ENCRYPTION)
    };
    for (profile, what) in [(tls13(), "DSA"), (ordinary(), "DSA"), (encrypting(), "short RSA keys")] {
        let refused = profile.build().unwrap_err().to_string();
        assert!(refused.contains(what) && refused.contains("for the laboratory only"), "{refused}");
    }
    ordinary().danger_legacy_lab().build().unwrap();
    encrypting().danger_legacy_lab().build().unwrap();
}

/// In anonymous suites no side can ask for a certificate, so a server that requires one refuses them.
#[test]
fn server_that_requires_certificates_refuses_anonymous_suites() {
    let anonymous = &dunlin_legacy::lab::TLS12_DH_ANON_WITH_AES_128_GCM_SHA256;
    let ecdhe = &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    for (required, result) in [(ClientAuth::Required, Err(())), (ClientAuth::Optional, Ok(()))] {
        let server = serving(profile(anonymous).tls12_cipher_suites(vec![anonymous, ecdhe]), &RSA_1024);
        let server = server.trust(Trust { x509: Some(X509Trust::DangerAnyone), raw_key: None });
        let server = ServerConfig::new(server.build().unwrap()).unwrap().with_client_auth(required).unwrap();
        let client = ClientConfig::new(profile(anonymous).build().unwrap());
        let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
        assert_eq!(pair.connect().map_err(drop), result);
    }
}

/// RFC 5246 §7.4.4: an anonymous server must not request a certificate.
#[test]
fn client_rejects_a_certificate_request_of_an_anonymous_server() {
    let suite = &dunlin_legacy::lab::TLS12_DH_ANON_WITH_AES_128_GCM_SHA256;
    let mut pair = pair(profile(suite), profile(suite));
    let hello = pair.client.transmit().to_vec();
    pair.server.receive(NOW, &hello).unwrap();
    let flight = pair.server.transmit().to_vec();
    let mut flight = messages(&records(&flight).iter().flat_map(|r| r[5..].to_vec()).collect::<Vec<_>>());
    let request = message(HandshakeType::CERTIFICATE_REQUEST.0, &[1, 64, 0, 2, 4, 3, 0, 0]);
    flight.insert(flight.len() - 1, request);
    let flight = flight.concat();
    let record = [&[22, 3, 3][..], &(flight.len() as u16).to_be_bytes(), &flight].concat();
    let error = pair.client.receive(NOW, &record).map(drop).unwrap_err();
    assert_eq!(error, PeerMisbehaved::AnonymousRequest.into());
    assert_eq!(error.alert(), Some(AlertDescription::HANDSHAKE_FAILURE));
}

/// The integer of a DSA key is not below the prime, or so short that the library would panic.
#[test]
fn rejects_invalid_dsa_keys() {
    let algorithms = dunlin_legacy::lab::provider().signatures;
    let (_, dsa) = algorithms.schemes.iter().find(|(s, _)| *s == SignatureScheme::DSA_SHA256).unwrap();
    let signature = [0x30, 6, 2, 1, 1, 2, 1, 1];
    for algorithm in *dsa {
        for len in [1, 8, 64, 127, 128, 129, 136, 144, 255, 256, 257, 264, 300, 1000] {
            for first in [1, 0x7f] {
                let number = [vec![first], vec![0xff; len - 1]].concat();
                let key = [&[2, 0x82], &(len as u16).to_be_bytes()[..], &number].concat();
                let short = [&[2, len as u8][..], &number].concat();
                for key in [&key, &short] {
                    assert!(algorithm.verify_signature(key, b"message", &signature).is_err());
                }
            }
        }
    }
}

/// A combination that no RFC defines.
#[test]
fn profile_refuses_an_undefined_combination() {
    static SUITE: Tls12CipherSuite = Tls12CipherSuite {
        key_exchange: Tls12KeyExchange::Rsa,
        authentication: Auth::Ecdsa,
        ..*TLS12_LEGACY_CIPHER_SUITES[0]
    };
    let profile = || Profile::builder(awslc()).tls12_cipher_suites(vec![&SUITE]);
    let refused = profile().build().unwrap_err().to_string();
    assert!(refused.contains("for the laboratory only"), "{refused}");
    let refused = profile().danger_legacy_lab().build().unwrap_err().to_string();
    assert!(refused.contains("do not go together"), "{refused}");
}

/// The ordinary provider refuses short keys and DSA.
#[test]
fn ordinary_provider_refuses_short_keys() {
    for identity in [&RSA_512, &RSA_1024, &DSA_1024, &DSA_2048] {
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        assert!(dunlin_awslc::provider().key_loader.load(&key).is_err(), "{}", identity.name);
        assert!(dunlin_legacy::rsa::KEY_LOADER.load(&key).is_err(), "{}", identity.name);
    }
    // The provider rejects a certificate with a key of 1024 bits.
    let suite = &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    let client = Profile::builder(awslc()).tls12_cipher_suites(vec![suite]);
    let error = pair(trusting(client.clone(), &RSA_1024), serving(profile(suite), &RSA_1024)).run();
    let of_root = |e: &Error| match e {
        Error::Authentication(AuthenticationFailure::KeyTooShort(key)) => {
            (key.bits, key.common_name.is_some())
        }
        e => panic!("{e}"),
    };
    assert_eq!(of_root(&error.unwrap_err()), (1024, true));
    // The provider rejects a signature by a short key, even if every certificate is trusted.
    let anyone = || Trust { x509: Some(X509Trust::DangerAnyone), raw_key: None };
    let short = |bits| AuthenticationFailure::KeyTooShort(ShortKey { bits, common_name: None });
    for (identity, bits) in [(&RSA_512, 512), (&RSA_1024, 1024)] {
        let mut of_server = pair(client.clone().trust(anyone()), serving(profile(suite), identity));
        assert_eq!(of_server.run(), Err(short(bits).into()));
        assert_eq!(of_server.server.error(), Some(&Error::AlertReceived(AlertDescription::BAD_CERTIFICATE)));
        let pki = Pki::shared(KeyType::Rsa2048);
        let server = client.clone().trust(anyone()).credentials(vec![pki.server.x509(&awslc())]);
        let server = ServerConfig::new(server.build().unwrap()).unwrap();
        let server = server.with_client_auth(ClientAuth::Required).unwrap();
        let of_client = ClientConfig::new(serving(profile(suite).trust(anyone()), identity).build().unwrap());
        let mut of_client = Pair::new(&Arc::new(of_client), &Arc::new(server));
        assert_eq!(of_client.run(), Err(short(bits).into()));
    }
}
