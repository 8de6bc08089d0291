//! TLS 1.2 between two sides of the engine: suites, credentials, versions.

use std::sync::Arc;

use dunlin::auth::{PrivateKey, Psk, PskTable, RawKeyTrust, X509Trust};
use dunlin::crypto::{
    CryptoProvider, KeyExchangeGroup, Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange,
};
use dunlin::error::{AuthenticationFailure, Misuse, PeerIncompatible, PeerMisbehaved};
use dunlin::wire::{
    AlertDescription, CipherSuite, HandshakeType, NamedGroup, ProtocolVersion, PskKeyExchangeMode,
    SignatureScheme,
};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, Error, Profile, ProfileBuilder, PskSource, Question,
    ServerConfig, Trust,
};
use dunlin_tests::tamper::{records, suites_at};
use dunlin_tests::{
    KeyType, Leaf, NOW, Pair, Pki, awslc, check_client_authentication, ends, full_awslc, full_providers,
    providers,
};

/// Every suite of a provider, including those that are off by default.
fn suites(provider: &CryptoProvider) -> Vec<&'static Tls12CipherSuite> {
    macro_rules! all {
        ($tls12:path) => {{
            use $tls12 as m;
            let short: [&'static Tls12CipherSuite; 5] = [
                &m::TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8,
                &m::TLS12_PSK_WITH_AES_128_CCM_8,
                &m::TLS12_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256,
                &m::TLS12_DHE_RSA_WITH_AES_128_CCM_8,
                &m::TLS12_PSK_DHE_WITH_AES_128_CCM_8,
            ];
            let named = [m::TLS12_CIPHER_SUITES, m::TLS12_DHE_CIPHER_SUITES, m::TLS12_PSK_CIPHER_SUITES];
            [&named.concat()[..], &short].concat()
        }};
    }
    if provider.name == dunlin_awslc::NAME {
        all!(dunlin_awslc::tls12)
    } else {
        all!(dunlin_rustcrypto::tls12)
    }
}

/// Curves and a finite field.
fn groups(provider: &CryptoProvider) -> Vec<&'static dyn KeyExchangeGroup> {
    [&provider.groups[..], &[dunlin_legacy::ffdhe::FFDHE2048]].concat()
}

/// A profile for TLS 1.2 only.
fn tls12(provider: &Arc<CryptoProvider>) -> ProfileBuilder {
    both(provider).cipher_suites(vec![])
}

/// A profile for TLS 1.3 and 1.2.
fn both(provider: &Arc<CryptoProvider>) -> ProfileBuilder {
    let profile = Profile::builder(provider.clone()).groups(groups(provider));
    profile.tls12_cipher_suites(suites(provider))
}

fn x509(pki: &Pki) -> Trust {
    Trust { x509: Some(pki.trust()), raw_key: None }
}

fn raw(leaf: &Leaf) -> Trust {
    Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![leaf.public_key.clone()])) }
}

fn mutual(client: ProfileBuilder, server: ProfileBuilder) -> Pair {
    let client = ClientConfig::new(client.build().unwrap());
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
}

/// Adds X.509 of this kind to a client's and a server's profile.
fn with_x509(client: ProfileBuilder, server: ProfileBuilder, typ: KeyType) -> [ProfileBuilder; 2] {
    let pki = Pki::shared(typ);
    let provider = awslc();
    [
        client.trust(x509(pki)).credentials(vec![pki.client.x509(&provider)]),
        server.trust(x509(pki)).credentials(vec![pki.server.x509(&provider)]),
    ]
}

fn psk_pair(client: Profile, server: Profile, keys: [(&str, [u8; 32]); 2]) -> Pair {
    let [client_key, server_key] = keys.map(|(name, key)| Psk::new(name, &key).unwrap());
    let client = ClientConfig::new(client).with_psks(vec![Arc::new(client_key)]);
    let table = PskTable::from_iter([server_key]);
    let server = ServerConfig::psk_only(server, PskSource::Here(Arc::new(table))).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server))
}

/// The kinds of key that TLS 1.2 supports.
const KEYS: [KeyType; 6] =
    [KeyType::Rsa2048, KeyType::P256, KeyType::P384, KeyType::P521, KeyType::Ed25519, KeyType::RsaPss2048];

#[test]
fn connects_by_mutual_x509_with_every_key_and_pair_of_providers() {
    for client in full_providers() {
        for server in full_providers() {
            for typ in KEYS {
                let pki = Pki::shared(typ);
                let mut pair = mutual(
                    tls12(&client).trust(x509(pki)).credentials(vec![pki.client.x509(&client)]),
                    tls12(&server).trust(x509(pki)).credentials(vec![pki.server.x509(&server)]),
                );
                pair.connect().unwrap_or_else(|e| panic!("{typ:?}, {} to {}: {e}", client.name, server.name));
                pair.echo(b"hello").unwrap();
                for (end, peer) in [(&pair.server, "X.509 device-1"), (&pair.client, "X.509 localhost")] {
                    let negotiated = end.negotiated().unwrap();
                    assert_eq!(negotiated.version, Some(ProtocolVersion::TLS1_2));
                    assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), peer);
                }
            }
        }
    }
}

#[test]
fn exchanges_a_mebibyte_in_every_suite() {
    for provider in providers() {
        for suite in suites(&provider) {
            let profile = || tls12(&provider).tls12_cipher_suites(vec![suite]);
            let mut pair = match suite.authentication {
                Tls12Authentication::Psk => {
                    let profile = || profile().build().unwrap();
                    psk_pair(profile(), profile(), [("d1", [7; 32]); 2])
                }
                Tls12Authentication::Ecdsa => {
                    let [client, server] = with_x509(profile(), profile(), KeyType::P256);
                    mutual(client, server)
                }
                _ => {
                    let [client, server] = with_x509(profile(), profile(), KeyType::Rsa2048);
                    mutual(client, server)
                }
            };
            pair.connect().unwrap_or_else(|e| panic!("{}: {e}", suite.id));
            for end in [&pair.client, &pair.server] {
                let negotiated = end.negotiated().unwrap();
                assert_eq!(negotiated.cipher_suite, Some(suite.id));
                assert_eq!(
                    negotiated.group,
                    match suite.key_exchange {
                        Tls12KeyExchange::Ecdhe => Some(NamedGroup::X25519),
                        Tls12KeyExchange::Dhe => Some(NamedGroup::FFDHE2048),
                        Tls12KeyExchange::Rsa | Tls12KeyExchange::Psk => None,
                    }
                );
            }
            pair.echo(&vec![0x5a; 1 << 20]).unwrap();
            let close = |from: &mut dunlin::TlsConnection, to: &mut dunlin::TlsConnection| {
                from.close();
                to.receive(NOW, from.transmit()).unwrap();
                assert!(to.peer_has_closed());
            };
            close(&mut pair.client, &mut pair.server);
            close(&mut pair.server, &mut pair.client);
        }
    }
}

#[test]
fn raw_keys_work_in_each_direction_separately() {
    let provider = full_awslc();
    for typ in KEYS {
        let pki = Pki::shared(typ);
        for (client_raw, server_raw) in [(true, true), (true, false), (false, true)] {
            let credential = |leaf: &Leaf, is_raw: bool| {
                if is_raw { leaf.raw_key(&provider) } else { leaf.x509(&provider) }
            };
            let trust = |leaf, is_raw| if is_raw { raw(leaf) } else { x509(pki) };
            let mut pair = mutual(
                tls12(&provider)
                    .trust(trust(&pki.server, server_raw))
                    .credentials(vec![credential(&pki.client, client_raw)]),
                tls12(&provider)
                    .trust(trust(&pki.client, client_raw))
                    .credentials(vec![credential(&pki.server, server_raw)]),
            );
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
            for (end, is_raw) in [(&pair.server, client_raw), (&pair.client, server_raw)] {
                let peer = end.negotiated().unwrap().peer.as_ref().unwrap().to_string();
                assert_eq!(peer.starts_with("raw key"), is_raw);
            }
        }
    }
}

/// A client that accepts only raw keys would read a missing answer as X.509 (RFC 7250 §4.2), also in a
/// resumption.
#[test]
fn server_names_the_certificate_type_in_a_resumption() {
    const RAW_KEY: [u8; 5] = [0, 20, 0, 1, 2];
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    for tickets in ends::tickets() {
        let client = tls12(&provider).trust(raw(&pki.server)).build().unwrap();
        let client = Arc::new(ClientConfig::new(client).with_sessions(ends::with_sessions()));
        let server = tls12(&provider).credentials(vec![pki.server.raw_key(&provider)]).build().unwrap();
        let server = Arc::new(ServerConfig::new(server).unwrap().with_tickets(tickets));
        Pair::new(&client, &server).connect().unwrap();
        let mut pair = Pair::new(&client, &server);
        let hello = pair.client.transmit().to_vec();
        pair.client.transmitted(hello.len());
        pair.server.receive(NOW, &hello).unwrap();
        assert!(pair.server.transmit().windows(5).any(|w| w == RAW_KEY));
        pair.connect().unwrap();
        assert!(pair.client.negotiated().unwrap().is_resumed());
    }
}

#[test]
fn both_sides_choose_the_newest_common_version() {
    let provider = awslc();
    let tls13 = |_: &Arc<CryptoProvider>| Profile::builder(awslc());
    let run = |client: ProfileBuilder, server: ProfileBuilder| {
        let [client, server] = with_x509(client, server, KeyType::P256);
        let mut pair = mutual(client, server);
        let result = pair.run();
        (result.map(|()| pair.client.negotiated().unwrap().version.unwrap()), pair)
    };
    for (client, server, version) in [
        (both(&provider), both(&provider), ProtocolVersion::TLS1_3),
        (both(&provider), tls13(&provider), ProtocolVersion::TLS1_3),
        (tls13(&provider), both(&provider), ProtocolVersion::TLS1_3),
        (both(&provider), tls12(&provider), ProtocolVersion::TLS1_2),
        (tls12(&provider), both(&provider), ProtocolVersion::TLS1_2),
        (both(&provider).compatibility_mode(false), tls12(&provider), ProtocolVersion::TLS1_2),
    ] {
        assert_eq!(run(client, server).0, Ok(version));
    }
    let (result, pair) = run(tls12(&provider), tls13(&provider));
    assert_eq!(result, Err(PeerIncompatible::Version(Some(ProtocolVersion::TLS1_2)).into()));
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::PROTOCOL_VERSION)));
    let (result, pair) = run(tls13(&provider), tls12(&provider));
    assert_eq!(result, Err(PeerIncompatible::Version(Some(ProtocolVersion::TLS1_3)).into()));
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::PROTOCOL_VERSION)));
}

/// RFC 8446 §9.2: a client that uses PSKs without groups in TLS 1.3, but groups in TLS 1.2, must not send
/// supported_groups without key_share.
#[test]
fn client_offers_psk_ke_in_tls13_and_groups_in_tls12() {
    let provider = awslc();
    let keys = [("device-1", [7; 32]); 2];
    let alone =
        |profile: ProfileBuilder| profile.psk_modes(vec![PskKeyExchangeMode::PSK_KE]).build().unwrap();
    for (server, version) in [
        (Profile::builder(awslc()), ProtocolVersion::TLS1_3),
        (both(&provider), ProtocolVersion::TLS1_3),
        (tls12(&provider), ProtocolVersion::TLS1_2),
    ] {
        let mut pair = psk_pair(alone(both(&provider)), alone(server), keys);
        pair.connect().unwrap();
        assert_eq!(pair.client.negotiated().unwrap().version, Some(version));
    }
}

/// RFC 8446 §4.1.3: if both sides support TLS 1.3, the client detects a downgrade to TLS 1.2.
#[test]
fn client_detects_a_downgrade() {
    let provider = awslc();
    let [client, server] = with_x509(both(&provider), both(&provider), KeyType::P256);
    let mut pair = mutual(client, server);
    let mut hello = pair.client.transmit().to_vec();
    pair.client.transmitted(hello.len());
    let versions = [0, 43, 0, 5, 4, 3, 4, 3, 3];
    let at = hello.windows(versions.len()).position(|w| w == versions).expect("supported_versions");
    // An unknown version replaces TLS 1.3.
    hello[at + 5..at + 7].copy_from_slice(&[0x7f, 0x1c]);
    pair.server.receive(pair.now, &hello).unwrap();
    assert_eq!(pair.run(), Err(PeerMisbehaved::Downgrade.into()));
    assert_eq!(pair.server.error(), Some(&Error::AlertReceived(AlertDescription::ILLEGAL_PARAMETER)));
}

/// RFC 7507: a client that retries with a lower version sends TLS_FALLBACK_SCSV.
#[test]
fn server_refuses_an_unnecessary_fallback() {
    let provider = awslc();
    for (server, refused) in [(both(&provider), true), (tls12(&provider), false)] {
        let [client, server] = with_x509(tls12(&provider), server, KeyType::P256);
        let mut pair = mutual(client, server);
        let mut hello = pair.client.transmit().to_vec();
        pair.client.transmitted(hello.len());
        // The signal replaces a suite.
        let suite = CipherSuite::TLS_PSK_WITH_AES_128_CCM_8.0.to_be_bytes();
        let first = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256.0.to_be_bytes();
        let suites = suites_at(&hello);
        let offered = || hello[suites.clone()].chunks(2);
        assert!(offered().all(|s| s != suite), "a client without a PSK offers no such suite");
        let at = suites.start + 2 * offered().position(|s| s == first).unwrap();
        hello[at..at + 2].copy_from_slice(&CipherSuite::TLS_FALLBACK_SCSV.0.to_be_bytes());
        let result = pair.server.receive(pair.now, &hello).map(drop);
        let expected = if refused { Err(PeerIncompatible::Fallback.into()) } else { Ok(()) };
        assert_eq!(result, expected);
    }
}

#[test]
fn wrong_and_unknown_psks_look_the_same_to_the_client() {
    let provider = awslc();
    let profile = || tls12(&provider).build().unwrap();
    let mut outcomes = Vec::new();
    for (client, server) in [(("d1", [1; 32]), ("d1", [2; 32])), (("unknown", [1; 32]), ("d1", [1; 32]))] {
        let mut pair = psk_pair(profile(), profile(), [client, server]);
        let result = pair.run();
        assert_eq!(result, Err(PeerMisbehaved::BadFinished.into()));
        let types: Vec<_> = pair.server.messages().iter().map(|m| (m.sent, m.typ)).collect();
        outcomes.push((types, pair.client.error().cloned()));
    }
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0].1, Some(Error::AlertReceived(AlertDescription::DECRYPT_ERROR)));
}

#[test]
fn server_asks_the_caller_for_a_psk() {
    let provider = awslc();
    let profile = || tls12(&provider).build().unwrap();
    let client = ClientConfig::new(profile()).with_psks(vec![Arc::new(Psk::new("d1", &[7; 32]).unwrap())]);
    let server = ServerConfig::psk_only(profile(), PskSource::Ask).unwrap();
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.run().unwrap();
    let (id, question) = pair.server_question().unwrap();
    assert!(matches!(question, Question::FindPsk { identity } if identity == b"d1"));
    let psk = Arc::new(Psk::new("d1", &[7; 32]).unwrap());
    pair.server.answer(pair.now, id, Answer::Psk(Some(psk))).unwrap();
    pair.connect().unwrap();
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.negotiated().unwrap().peer.as_ref().unwrap().to_string(), "PSK d1");
    }
}

#[test]
fn both_sides_ask_the_caller_to_verify_and_sign() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let elsewhere = |leaf: &Leaf| match leaf.x509(&provider) {
        Credential::X509 { chain, key: PrivateKey::Here(key) } => {
            let label = "vault".to_owned();
            let key_elsewhere = PrivateKey::Elsewhere { schemes: key.schemes().to_vec(), label };
            (Credential::X509 { chain, key: key_elsewhere }, key)
        }
        other => panic!("{other:?}"),
    };
    let (client, client_key) = elsewhere(&pki.client);
    let (server, server_key) = elsewhere(&pki.server);
    let ask = || Trust { x509: Some(X509Trust::Ask), raw_key: None };
    let mut pair = mutual(
        tls12(&provider).trust(ask()).credentials(vec![client]),
        tls12(&provider).trust(ask()).credentials(vec![server]),
    );
    let mut asked = Vec::new();
    while pair.server.is_handshaking() || pair.client.is_handshaking() {
        pair.run().unwrap();
        for is_client in [true, false] {
            let question = if is_client { pair.client_question() } else { pair.server_question() };
            let Some((id, question)) = question else { continue };
            let answer = match question {
                Question::Sign { scheme, message, .. } => {
                    asked.push((is_client, "sign"));
                    let key = if is_client { &client_key } else { &server_key };
                    Answer::Signature(key.sign(scheme, &message, &*provider.random).unwrap())
                }
                Question::Verify { certificates, .. } => {
                    asked.push((is_client, "verify"));
                    assert_eq!(certificates.len(), 2);
                    Answer::Verified(Ok(dunlin::auth::Acceptance::once()))
                }
                other => panic!("{other:?}"),
            };
            let end = if is_client { &mut pair.client } else { &mut pair.server };
            end.answer(pair.now, id, answer).unwrap();
        }
    }
    assert_eq!(asked, [(false, "sign"), (true, "verify"), (true, "sign"), (false, "verify")]);
    pair.echo(b"hello").unwrap();
}

#[test]
fn client_authentication_is_optional_or_required() {
    // RFC 5246 §7.4.6: TLS 1.2 has no certificate_required alert.
    check_client_authentication(tls12(&awslc()), AlertDescription::HANDSHAKE_FAILURE);
}

#[test]
fn agrees_on_alpn_names_and_limits() {
    let provider = awslc();
    let [client, server] = with_x509(tls12(&provider), tls12(&provider), KeyType::P256);
    let mut pair = mutual(
        client.alpn(vec![b"mqtt".to_vec(), b"coap".to_vec()]).record_size_limit(Some(64)),
        server.alpn(vec![b"coap".to_vec()]).record_size_limit(Some(16385)),
    );
    pair.connect().unwrap();
    for end in [&pair.client, &pair.server] {
        let negotiated = end.negotiated().unwrap();
        assert_eq!(negotiated.alpn.as_deref(), Some(&b"coap"[..]));
        assert_eq!(negotiated.server_name.as_deref(), Some("localhost"));
        assert_eq!(negotiated.group, Some(NamedGroup::X25519));
        assert!(negotiated.own_signature.is_some() && negotiated.peer_signature.is_some());
    }
    pair.server.send(&[1; 1000]).unwrap();
    // RFC 8449 §4: in TLS 1.2 the limit does not include a content type. Header, nonce and tag are extra.
    assert_eq!(records(pair.server.transmit())[0].len(), 5 + 8 + 64 + 16);
    let sent = pair.server.transmit().len();
    pair.server.transmitted(sent);
    pair.client.send(&[1; 1 << 14]).unwrap();
    assert_eq!(records(pair.client.transmit())[0].len(), 5 + 8 + (1 << 14) + 16);

    let [client, server] = with_x509(tls12(&provider), tls12(&provider), KeyType::P256);
    let mut pair = mutual(client.alpn(vec![b"mqtt".to_vec()]), server.alpn(vec![b"coap".to_vec()]));
    assert_eq!(pair.run(), Err(PeerIncompatible::ApplicationProtocol.into()));
}

#[test]
fn server_sends_its_ocsp_response_on_request() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    for (asks, has) in [(true, true), (true, false), (false, true)] {
        let ask = Trust { x509: Some(X509Trust::Ask), raw_key: None };
        let client = tls12(&provider).trust(ask).request_ocsp(asks).build().unwrap();
        let mut server = tls12(&provider).credentials(vec![pki.server.x509(&provider)]);
        if has {
            server = server.ocsp_response(0, b"a response".to_vec());
        }
        let server = ServerConfig::new(server.build().unwrap()).unwrap();
        let mut pair = Pair::new(&Arc::new(ClientConfig::new(client)), &Arc::new(server));
        pair.run().unwrap();
        let (id, question) = pair.client_question().unwrap();
        let Question::Verify { ocsp_response, .. } = question else { panic!("{question:?}") };
        assert_eq!(ocsp_response, (asks && has).then(|| b"a response".to_vec()));
        pair.client.answer(pair.now, id, Answer::Verified(Ok(dunlin::auth::Acceptance::once()))).unwrap();
        pair.connect().unwrap();
        let status = |m: &dunlin::MessageSize| m.typ == HandshakeType::CERTIFICATE_STATUS;
        assert_eq!(pair.client.messages().iter().any(status), asks && has);
    }
}

/// RFC 8422 §5.1: the client must support the curve of the server's key, and the suite determines the kind of
/// the key.
#[test]
fn server_chooses_a_credential_for_the_suite_and_the_client() {
    let provider = awslc();
    let p384 = Pki::shared(KeyType::P384);
    let rsa = Pki::shared(KeyType::Rsa2048);
    let run = |pki: &Pki, group, suite: &'static Tls12CipherSuite, credentials| {
        let client = tls12(&provider)
            .trust(x509(pki))
            .groups(vec![provider.group(group).unwrap()])
            .tls12_cipher_suites(vec![suite]);
        let server = tls12(&provider).credentials(credentials).build().unwrap();
        let client = Arc::new(ClientConfig::new(client.build().unwrap()));
        Pair::new(&client, &Arc::new(ServerConfig::new(server).unwrap())).run()
    };
    use dunlin_awslc::tls12::{
        TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 as ECDSA, TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256 as RSA,
    };
    let all = || vec![p384.server.x509(&provider), rsa.server.x509(&provider)];
    assert_eq!(run(p384, NamedGroup::SECP384R1, &ECDSA, all()), Ok(()));
    assert_eq!(run(rsa, NamedGroup::SECP384R1, &RSA, all()), Ok(()));
    let curve = Err(PeerIncompatible::CurveOfKey(NamedGroup::SECP384R1).into());
    assert_eq!(run(p384, NamedGroup::SECP256R1, &ECDSA, all()), curve);
    let kind = Err(PeerIncompatible::SuiteAuthentication.into());
    assert_eq!(run(p384, NamedGroup::SECP384R1, &ECDSA, vec![rsa.server.x509(&provider)]), kind);
}

/// TLS 1.2 allows RSA PKCS#1 in the handshake; TLS 1.3 does not.
#[test]
fn server_signs_with_pkcs1_for_clients_that_support_only_that() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::Rsa2048);
    let run = |profile: ProfileBuilder| {
        let client = profile.trust(x509(pki)).signature_schemes(vec![SignatureScheme::RSA_PKCS1_SHA256]);
        let server = both(&provider).credentials(vec![pki.server.x509(&provider)]).build().unwrap();
        let client = Arc::new(ClientConfig::new(client.build()?));
        let mut pair = Pair::new(&client, &Arc::new(ServerConfig::new(server).unwrap()));
        pair.run().map(|()| pair.client.negotiated().unwrap().peer_signature)
    };
    assert_eq!(run(tls12(&provider)), Ok(Some(SignatureScheme::RSA_PKCS1_SHA256)));
    assert!(run(Profile::builder(provider.clone())).is_err());
}

#[test]
fn exporters_agree_and_distinguish_missing_and_empty_contexts() {
    let provider = awslc();
    let [client, server] = with_x509(tls12(&provider), tls12(&provider), KeyType::P256);
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    let mut all = Vec::new();
    for context in [None, Some(&b""[..]), Some(b"context")] {
        let mut a = vec![0; 100];
        let mut b = vec![0; 100];
        pair.client.export(b"EXPORTER-test", context, &mut a).unwrap();
        pair.server.export(b"EXPORTER-test", context, &mut b).unwrap();
        assert_eq!(a, b);
        assert!(!all.contains(&a));
        all.push(a);
    }
    assert!(pair.client.export(b"EXPORTER-test", None, &mut vec![0; 255 * 32 + 1]).is_err());
}

/// RFC 5705 §6: the caller cannot export TLS's own secrets, or the tickets of the handshake cache.
#[test]
fn exporters_refuse_the_labels_of_tls() {
    let provider = awslc();
    for version in [tls12, both] {
        let [client, server] = with_x509(version(&provider), version(&provider), KeyType::P256);
        let mut pair = mutual(client, server);
        pair.connect().unwrap();
        let labels = ["client finished", "server finished", "master secret", "extended master secret"];
        for label in labels.into_iter().chain(["key expansion", "EXPORTER-dunlin-handshake-cache"]) {
            for end in [&pair.client, &pair.server] {
                let result = end.export(label.as_bytes(), None, &mut [0; 32]);
                assert_eq!(result, Err(Misuse::ExporterLabel.into()), "{label}");
                end.export(format!("EXPORTER {label}").as_bytes(), None, &mut [0; 32]).unwrap();
            }
        }
    }
}

#[test]
fn tls12_has_no_key_update() {
    let provider = awslc();
    let [client, server] = with_x509(tls12(&provider), tls12(&provider), KeyType::P256);
    let mut pair = mutual(client.key_update_after(Some(1)), server);
    pair.connect().unwrap();
    assert!(matches!(pair.client.update_keys(true), Err(Error::Misuse(_))));
    pair.echo(&[7; 100_000]).unwrap();
}

#[test]
fn refuses_unusable_profiles() {
    let provider = awslc();
    let nothing = Profile::builder(provider.clone()).cipher_suites(vec![]);
    assert!(nothing.build().is_err());
    let suite: &Tls12CipherSuite = suites(&provider)[0];
    assert!(tls12(&provider).tls12_cipher_suites(vec![suite, suite]).build().is_err());
    let no_curve =
        tls12(&provider).groups(vec![dunlin_legacy::ffdhe::FFDHE2048]).tls12_cipher_suites(vec![suite]);
    assert!(no_curve.build().is_err());
    let dhe = dunlin_awslc::tls12::TLS12_DHE_CIPHER_SUITES.to_vec();
    let no_field = tls12(&provider).groups(provider.groups.clone()).tls12_cipher_suites(dhe);
    assert!(no_field.build().is_err());
}

/// RFC 7919 §4: the server chooses among the fields that the client names; if it names none, the server may
/// use any.
#[test]
fn server_chooses_a_field_that_the_client_names() {
    let provider = awslc();
    let dhe = || tls12(&provider).tls12_cipher_suites(dunlin_awslc::tls12::TLS12_DHE_CIPHER_SUITES.to_vec());
    let run = |ours: &[&'static dyn KeyExchangeGroup], theirs: &[&'static dyn KeyExchangeGroup]| {
        let [client, server] = with_x509(dhe(), dhe(), KeyType::Rsa2048);
        let mut pair = mutual(client.groups(ours.to_vec()), server.groups(theirs.to_vec()));
        pair.run().map(|()| pair.client.negotiated().unwrap().group.unwrap())
    };
    use dunlin_legacy::ffdhe::{FFDHE2048, FFDHE3072, FFDHE4096};
    let all = [FFDHE2048, FFDHE3072, FFDHE4096];
    assert_eq!(run(&[FFDHE3072], &all), Ok(NamedGroup::FFDHE3072));
    assert_eq!(run(&all, &[FFDHE4096, FFDHE2048]), Ok(NamedGroup::FFDHE4096));
    assert_eq!(run(&[FFDHE3072], &[FFDHE2048]), Err(PeerIncompatible::Field.into()));
}

/// The same fields in TLS 1.3.
#[test]
fn tls13_supports_finite_fields() {
    let provider = awslc();
    let fields = || Profile::builder(provider.clone()).groups(vec![dunlin_legacy::ffdhe::FFDHE2048]);
    let [client, server] = with_x509(fields(), fields(), KeyType::P256);
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    let negotiated = pair.client.negotiated().unwrap();
    assert_eq!(negotiated.version, Some(ProtocolVersion::TLS1_3));
    assert_eq!(negotiated.group, Some(NamedGroup::FFDHE2048));
}

/// RFC 5246 §7.4.4: a CertificateRequest must name a scheme. A server without TLS 1.2 schemes names its other
/// ones, for which the client has no certificate.
#[test]
fn server_without_tls12_schemes_receives_no_certificate() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let client = tls12(&provider).trust(x509(pki)).credentials(vec![pki.client.x509(&provider)]);
    let client = Arc::new(ClientConfig::new(client.build().unwrap()));
    let connect = |auth| {
        let server = both(&provider).trust(x509(pki)).credentials(vec![pki.server.x509(&provider)]);
        let server = server.signature_schemes(vec![SignatureScheme::MLDSA44]).build().unwrap();
        let server = ServerConfig::new(server).and_then(|server| server.with_client_auth(auth)).unwrap();
        let mut pair = Pair::new(&client, &Arc::new(server));
        let result = pair.run();
        (pair, result)
    };
    let (pair, result) = connect(ClientAuth::Optional);
    result.unwrap();
    assert_eq!(pair.server.negotiated().unwrap().peer, None);
    let (pair, result) = connect(ClientAuth::Required);
    assert_eq!(result, Err(AuthenticationFailure::NoCertificate.into()));
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::HANDSHAKE_FAILURE)));
}
