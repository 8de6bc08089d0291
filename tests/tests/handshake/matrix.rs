//! TLS 1.3 handshakes between two sides of the engine: each way of authentication × role × provider, and
//! every parameter that can be negotiated.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable, RawKeyTrust, X509Trust};
use dunlin::crypto::{CryptoProvider, HashAlgorithm};
use dunlin::error::{AuthenticationFailure, PeerIncompatible, PeerMisbehaved};
use dunlin::pki_types::PrivateKeyDer;
use dunlin::wire::{AlertDescription, CipherSuite, NamedGroup, PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, Error, Event, Profile, ProfileBuilder, PskSource, Question,
    ServerConfig, Trust,
};
use dunlin_tests::{
    ForeignKey, KEY_TYPES, KeyType, Leaf, OTHER_KEY_TYPES, Pair, Pki, awslc, check_client_authentication,
    full_awslc, full_providers, providers,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

fn x509(pki: &Pki) -> Trust {
    Trust { x509: Some(pki.trust()), raw_key: None }
}

fn raw(leaf: &Leaf) -> Trust {
    Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![leaf.public_key.clone()])) }
}

/// A client profile with X.509 for this PKI, to which a test can add settings.
fn client_profile(provider: &Arc<CryptoProvider>, pki: &Pki) -> ProfileBuilder {
    Profile::builder(provider.clone()).trust(x509(pki)).credentials(vec![pki.client.x509(provider)])
}

fn server_profile(provider: &Arc<CryptoProvider>, pki: &Pki) -> ProfileBuilder {
    Profile::builder(provider.clone()).trust(x509(pki)).credentials(vec![pki.server.x509(provider)])
}

fn mutual(client: ProfileBuilder, server: ProfileBuilder) -> Pair {
    let client = ClientConfig::new(client.build().unwrap());
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
}

/// P-256 on both sides, over AWS-LC.
fn profiles() -> (ProfileBuilder, ProfileBuilder) {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    (client_profile(&provider, pki), server_profile(&provider, pki))
}

fn psk_pair(client: &Profile, server: &Profile, keys: [&[u8]; 2]) -> Pair {
    let client =
        ClientConfig::new(client.clone()).with_psks(vec![Arc::new(Psk::new("d1", keys[0]).unwrap())]);
    let table = PskTable::from_iter([Psk::new("d1", keys[1]).unwrap()]);
    let server = ServerConfig::psk_only(server.clone(), PskSource::Here(Arc::new(table))).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server))
}

#[test]
fn connects_by_mutual_x509_with_every_key_and_pair_of_providers() {
    for client in full_providers() {
        for server in full_providers() {
            for typ in KEY_TYPES.into_iter().chain(OTHER_KEY_TYPES) {
                let pki = Pki::shared(typ);
                let mut pair = mutual(client_profile(&client, pki), server_profile(&server, pki));
                pair.connect().unwrap_or_else(|e| panic!("{typ:?}, {} to {}: {e}", client.name, server.name));
                pair.echo(b"hello").unwrap();
                let peer = pair.server.negotiated().unwrap().peer.clone().unwrap();
                assert_eq!(peer.to_string(), "X.509 device-1");
                let peer = pair.client.negotiated().unwrap().peer.clone().unwrap();
                assert_eq!(peer.to_string(), "X.509 localhost");
            }
        }
    }
}

/// A key that no default list has is refused by a side that does not verify its scheme.
#[test]
fn refuses_keys_whose_schemes_are_not_offered() {
    for typ in OTHER_KEY_TYPES {
        let pki = Pki::shared(typ);
        for (client, server) in providers().into_iter().zip(full_providers()) {
            let mut pair = mutual(client_profile(&client, pki), server_profile(&server, pki));
            assert_eq!(pair.run(), Err(PeerIncompatible::SignatureScheme.into()), "{typ:?}, {}", client.name);
        }
    }
}

#[test]
fn exchanges_a_mebibyte_in_every_suite() {
    for provider in providers() {
        let mut suites = provider.cipher_suites.clone();
        suites.push(if provider.name == awslc().name {
            &dunlin_awslc::TLS13_AES_128_CCM_8_SHA256
        } else {
            &dunlin_rustcrypto::TLS13_AES_128_CCM_8_SHA256
        });
        assert_eq!(suites.len(), 5);
        for suite in suites {
            let pki = Pki::shared(KeyType::P256);
            let client = client_profile(&provider, pki).cipher_suites(vec![suite]);
            let mut pair = mutual(client, server_profile(&provider, pki).cipher_suites(vec![suite]));
            pair.connect().unwrap();
            assert_eq!(pair.client.negotiated().unwrap().cipher_suite, Some(suite.id));
            pair.echo(&vec![0x5a; 1 << 20]).unwrap();
        }
    }
}

#[test]
fn ccm_8_is_off_by_default() {
    for provider in providers() {
        assert!(provider.suite(CipherSuite::TLS_AES_128_CCM_8_SHA256).is_none(), "{}", provider.name);
    }
}

#[test]
fn connects_with_every_group_and_after_a_retry() {
    for provider in full_providers() {
        for group in provider.groups.clone() {
            for retry in [false, true] {
                let pki = Pki::shared(KeyType::P256);
                let client = client_profile(&provider, pki).groups(vec![group]).build().unwrap();
                let shares = if retry { vec![] } else { vec![group.name()] };
                let client = ClientConfig::new(client).with_key_shares(shares).unwrap();
                let server = ServerConfig::new(server_profile(&provider, pki).build().unwrap()).unwrap();
                let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
                pair.connect().unwrap();
                pair.echo(b"hello").unwrap();
                let negotiated = pair.client.negotiated().unwrap();
                assert_eq!((negotiated.group, negotiated.retried), (Some(group.name()), retry));
            }
        }
    }
}

#[test]
fn server_prefers_an_offered_share_to_a_retry() {
    let (client, server) = profiles();
    let client =
        ClientConfig::new(client.build().unwrap()).with_key_shares(vec![NamedGroup::SECP384R1]).unwrap();
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.connect().unwrap();
    assert_eq!(pair.client.negotiated().unwrap().group, Some(NamedGroup::SECP384R1));
    assert!(!pair.client.negotiated().unwrap().retried);
}

#[test]
fn raw_keys_work_in_each_direction_separately() {
    let provider = full_awslc();
    for typ in KEY_TYPES.into_iter().chain(OTHER_KEY_TYPES) {
        let pki = Pki::shared(typ);
        for (client_raw, server_raw) in [(true, true), (true, false), (false, true)] {
            let credential = |leaf: &Leaf, is_raw: bool| {
                if is_raw { leaf.raw_key(&provider) } else { leaf.x509(&provider) }
            };
            let trust = |leaf, is_raw| if is_raw { raw(leaf) } else { x509(pki) };
            let client = Profile::builder(provider.clone())
                .trust(trust(&pki.server, server_raw))
                .credentials(vec![credential(&pki.client, client_raw)]);
            let server = Profile::builder(provider.clone())
                .trust(trust(&pki.client, client_raw))
                .credentials(vec![credential(&pki.server, server_raw)]);
            let mut pair = mutual(client, server);
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
            let is =
                |peer: &dunlin::Negotiated| peer.peer.as_ref().unwrap().to_string().starts_with("raw key");
            assert_eq!(is(pair.server.negotiated().unwrap()), client_raw);
            assert_eq!(is(pair.client.negotiated().unwrap()), server_raw);
        }
    }
}

#[test]
fn first_suitable_credential_is_used() {
    let provider = awslc();
    let rsa = Pki::shared(KeyType::Rsa2048);
    let p256 = Pki::shared(KeyType::P256);
    let ed = Pki::shared(KeyType::Ed25519);
    let server = |credentials| {
        let profile = Profile::builder(provider.clone()).credentials(credentials).build().unwrap();
        Arc::new(ServerConfig::new(profile).unwrap())
    };
    let all = || vec![rsa.server.x509(&provider), p256.server.raw_key(&provider), ed.server.x509(&provider)];
    let server_all = server(all());
    // RSA authorities sign with PKCS#1.
    let both =
        [SignatureScheme::ED25519, SignatureScheme::RSA_PSS_RSAE_SHA256, SignatureScheme::RSA_PKCS1_SHA256];
    for (pki, schemes, authorities) in [
        (rsa, both.to_vec(), false),
        (ed, vec![SignatureScheme::ED25519], false),
        // If the server names its anchors, the client sends the chain that the server can verify.
        (ed, both.to_vec(), true),
    ] {
        let profile = Profile::builder(provider.clone())
            .trust(x509(pki))
            .signature_schemes(schemes)
            .send_authorities(authorities)
            .build()
            .unwrap();
        let mut pair = Pair::new(&Arc::new(ClientConfig::new(profile)), &server_all);
        pair.connect().unwrap();
    }
    // The error gives the reason for the last credential.
    let profile = Profile::builder(provider.clone())
        .trust(x509(ed))
        .signature_schemes(vec![SignatureScheme::ED25519])
        .build()
        .unwrap();
    let mut pair =
        Pair::new(&Arc::new(ClientConfig::new(profile)), &server(vec![rsa.server.x509(&provider)]));
    assert_eq!(pair.run(), Err(PeerIncompatible::SignatureScheme.into()));
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::HANDSHAKE_FAILURE)));
}

#[test]
fn external_psks_work_in_both_modes_and_with_both_hashes() {
    for provider in providers() {
        for (modes, group) in [
            (vec![PskKeyExchangeMode::PSK_DHE_KE], true),
            (vec![PskKeyExchangeMode::PSK_KE], false),
            (vec![PskKeyExchangeMode::PSK_KE, PskKeyExchangeMode::PSK_DHE_KE], true),
        ] {
            for hash in [HashAlgorithm::Sha256, HashAlgorithm::Sha384] {
                let profile = Profile::builder(provider.clone()).psk_modes(modes.clone()).build().unwrap();
                let psk = || Psk::new("d1", &[7; 32]).unwrap().with_hash(hash);
                let client = ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(psk())]);
                let table = PskTable::from_iter([psk()]);
                let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(table))).unwrap();
                let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
                pair.connect().unwrap();
                pair.echo(b"hello").unwrap();
                let negotiated = pair.server.negotiated().unwrap();
                assert_eq!(negotiated.group.is_some(), group);
                assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), "PSK d1");
                let suite = provider.suite(negotiated.cipher_suite.unwrap()).unwrap();
                assert_eq!(suite.hash.algorithm(), hash);
            }
        }
    }
}

#[test]
fn psk_only_client_refuses_certificates() {
    let builder = || Profile::builder(awslc());
    let psk = || Psk::new("d1", &[7; 32]).unwrap();
    let profile = builder().build().unwrap();
    let client = ClientConfig::psk_only(profile.clone(), vec![Arc::new(psk())]).unwrap();
    let table = PskTable::from_iter([psk()]);
    let server = ServerConfig::psk_only(profile.clone(), PskSource::Here(Arc::new(table))).unwrap();
    let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server));
    pair.connect().unwrap();
    pair.echo(b"light").unwrap();

    // The client refuses a server that chooses a certificate.
    let pki = Pki::shared(KeyType::P256);
    let credentials = vec![pki.server.x509(&awslc())];
    let server = ServerConfig::new(builder().credentials(credentials.clone()).build().unwrap()).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server)).run().unwrap_err();

    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    assert!(ClientConfig::psk_only(profile, vec![]).is_err());
    for profile in [builder().trust(trust), builder().credentials(credentials)] {
        assert!(ClientConfig::psk_only(profile.build().unwrap(), vec![Arc::new(psk())]).is_err());
    }
}

#[test]
fn psk_handshake_survives_a_retry() {
    let provider = awslc();
    let profile = Profile::builder(provider).build().unwrap();
    let psks = vec![Arc::new(Psk::new("d1", &[7; 32]).unwrap())];
    let client = ClientConfig::new(profile.clone()).with_psks(psks).with_key_shares(vec![]).unwrap();
    let table = PskTable::from_iter([Psk::new("d1", &[7; 32]).unwrap()]);
    for cookies in [false, true] {
        let server = ServerConfig::psk_only(
            profile.clone(),
            PskSource::Here(Arc::new(PskTable::from_iter([Psk::new("d1", &[7; 32]).unwrap()]))),
        )
        .unwrap()
        .with_cookies(cookies);
        let mut pair = Pair::new(&Arc::new(client.clone()), &Arc::new(server));
        pair.connect().unwrap();
        assert!(pair.server.negotiated().unwrap().retried);
    }
    drop(table);
}

#[test]
fn wrong_and_unknown_psks_look_the_same_to_the_client() {
    let profile = Profile::builder(awslc()).build().unwrap();
    let mut wrong = psk_pair(&profile, &profile, [&[1; 32], &[2; 32]]);
    assert_eq!(wrong.run(), Err(PeerMisbehaved::BadBinder.into()));
    let client =
        ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(Psk::new("unknown", &[1; 32]).unwrap())]);
    let table = PskTable::from_iter([Psk::new("d1", &[1; 32]).unwrap()]);
    let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(table))).unwrap();
    let client = Arc::new(client);
    let mut unknown = Pair::new(&client, &Arc::new(server));
    assert_eq!(unknown.run(), Err(PeerIncompatible::NoPsk.into()));
    // A server that has only certificates cannot show them to a client that accepts none.
    let certificates = ServerConfig::new(profiles().1.build().unwrap()).unwrap();
    let mut unasked = Pair::new(&client, &Arc::new(certificates));
    assert_eq!(unasked.run(), Err(PeerIncompatible::NoPsk.into()));
    for pair in [wrong, unknown, unasked] {
        assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::DECRYPT_ERROR)));
    }
}

/// A client with a known PSK that does not suit gets a specific error from the server.
#[test]
fn server_reports_why_a_known_psk_does_not_suit() {
    let provider = awslc();
    let builder = || Profile::builder(provider.clone());
    let suite = |id| vec![provider.suite(id).unwrap()];
    let sha384 = || builder().cipher_suites(suite(CipherSuite::TLS_AES_256_GCM_SHA384));
    let psk = || Psk::new("d1", &[7; 32]).unwrap();
    for (client, server, hash, failure) in [
        (builder().psk_modes(vec![PskKeyExchangeMode::PSK_KE]), builder(), None, PeerIncompatible::PskMode),
        (sha384(), builder(), Some(HashAlgorithm::Sha384), PeerIncompatible::PskHash),
    ] {
        let own = hash.map_or_else(psk, |hash| psk().with_hash(hash));
        let client = ClientConfig::new(client.build().unwrap()).with_psks(vec![Arc::new(own)]);
        let table = Arc::new(PskTable::from_iter([psk()]));
        let server = ServerConfig::psk_only(server.build().unwrap(), PskSource::Here(table)).unwrap();
        assert_eq!(Pair::new(&Arc::new(client), &Arc::new(server)).run(), Err(failure.into()));
    }
}

#[test]
fn connects_with_cookies() {
    for share in [true, false] {
        let (client, server) = profiles();
        let mut client = ClientConfig::new(client.build().unwrap());
        if !share {
            client = client.with_key_shares(vec![]).unwrap();
        }
        let server = ServerConfig::new(server.build().unwrap()).unwrap().with_cookies(true);
        let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
        pair.connect().unwrap();
        pair.echo(b"hello").unwrap();
        assert_eq!(pair.client.messages().iter().filter(|m| m.is_retry).count(), 1);
    }
}

#[test]
fn agrees_on_alpn() {
    let protocols = |names: &[&str]| names.iter().map(|n| n.as_bytes().to_vec()).collect::<Vec<_>>();
    let run = |ours: &[&str], theirs: &[&str]| {
        let (client, server) = profiles();
        let mut pair = mutual(client.alpn(protocols(ours)), server.alpn(protocols(theirs)));
        pair.run().map(|()| pair.client.negotiated().unwrap().alpn.clone())
    };
    assert_eq!(run(&["mqtt", "coap"], &["coap", "mqtt"]), Ok(Some(b"coap".to_vec())));
    assert_eq!(run(&["mqtt"], &[]), Ok(None));
    assert_eq!(run(&[], &["mqtt"]), Ok(None));
    assert_eq!(run(&["mqtt"], &["coap"]), Err(PeerIncompatible::ApplicationProtocol.into()));
}

#[test]
fn record_size_limit_applies_in_both_directions() {
    let (client, server) = profiles();
    let mut pair = mutual(client.record_size_limit(Some(64)), server.record_size_limit(Some(100)));
    pair.connect().unwrap();
    let largest = |bytes: &[u8]| {
        let mut largest = 0;
        let mut rest = bytes;
        while let [_, _, _, a, b, tail @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*a, *b]));
            largest = largest.max(len);
            rest = &tail[len..];
        }
        largest
    };
    pair.client.send(&[1; 1000]).unwrap();
    // 100 bytes including the content type, and the tag.
    assert_eq!(largest(pair.client.transmit()), 100 + 16);
    pair.server.send(&[1; 1000]).unwrap();
    assert_eq!(largest(pair.server.transmit()), 64 + 16);
    for side in [true, false] {
        let (from, to) =
            if side { (&mut pair.client, &mut pair.server) } else { (&mut pair.server, &mut pair.client) };
        // The receiver decrypts one record at a time.
        let mut wire = from.transmit().to_vec();
        let mut received = 0;
        from.transmitted(wire.len());
        while received < 1000 {
            let taken = to.receive(pair.now, &wire).unwrap();
            wire.drain(..taken);
            let n = to.received().len();
            assert!(n > 0 && n < 100);
            received += n;
            to.consume(pair.now, n).unwrap();
        }
    }
    pair.echo(&[2; 5000]).unwrap();
}

#[test]
fn client_authentication_is_optional_or_required() {
    check_client_authentication(Profile::builder(awslc()), AlertDescription::CERTIFICATE_REQUIRED);
}

#[test]
fn wrong_chains_names_and_times_get_the_right_alert() {
    let provider = awslc();
    let pki = Pki::new(KeyType::P256);
    let other = Pki::new(KeyType::P256);
    let run = |trust: Trust, credential: Credential, now, name: &str| {
        let client = Profile::builder(provider.clone()).trust(trust).build().unwrap();
        let server = Profile::builder(provider.clone()).credentials(vec![credential]).build().unwrap();
        let server = Arc::new(ServerConfig::new(server).unwrap());
        let mut pair = Pair::at(&Arc::new(ClientConfig::new(client.clone())), &server, now);
        let address = dunlin::ServerAddress::new(name.to_owned().try_into().unwrap(), 0);
        pair.client =
            dunlin::TlsConnection::client(&Arc::new(ClientConfig::new(client)), address, now).unwrap();
        let result = pair.run();
        (result, pair.server.error().cloned())
    };
    let good = || pki.server.x509(&provider);
    let now = dunlin_tests::NOW;
    let year = |y: u64| dunlin::Now::from_unix_ms((y - 1970) * 31_556_952_000);
    // An authority without keyUsage: a server does not send one whose keyUsage forbids signatures.
    let (authority, authority_trust) = {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let trust = X509Trust::anchors([certificate.clone()]).unwrap();
        let credential = Credential::x509(vec![certificate], provider.key_loader.load(&key).unwrap());
        (credential, Trust { x509: Some(trust), raw_key: None })
    };
    use AuthenticationFailure as F;
    let failure = |(result, alert): (Result<(), Error>, Option<Error>)| match (result, alert) {
        (Err(Error::Authentication(failure)), Some(Error::AlertReceived(alert))) => (failure, alert),
        other => panic!("{other:?}"),
    };
    for (wanted, outcome, wanted_alert) in [
        (F::UnknownIssuer, run(x509(&other), good(), now, "localhost"), AlertDescription::UNKNOWN_CA),
        (
            F::NameMismatch { wanted: "example.com".into(), names: vec!["localhost".into()] },
            run(x509(&pki), good(), now, "example.com"),
            AlertDescription::BAD_CERTIFICATE,
        ),
        (
            F::WrongPurpose,
            run(x509(&pki), pki.client.x509(&provider), now, "localhost"),
            AlertDescription::CERTIFICATE_UNKNOWN,
        ),
        (
            F::CaAsEndEntity,
            run(authority_trust, authority, now, "localhost"),
            AlertDescription::CERTIFICATE_UNKNOWN,
        ),
        (
            F::UnknownRawKey,
            run(raw(&other.server), pki.server.raw_key(&provider), now, "localhost"),
            AlertDescription::UNKNOWN_CA,
        ),
    ] {
        assert_eq!(failure(outcome), (wanted, wanted_alert));
    }
    for (then, past) in [(year(2040), true), (year(2020), false)] {
        let (failure, alert) = failure(run(x509(&pki), good(), then, "localhost"));
        let ((F::Expired(certificate), true) | (F::NotValidYet(certificate), false)) = (&failure, past)
        else {
            panic!("{failure:?}")
        };
        assert_eq!(certificate.index, Some(0));
        assert_eq!(certificate.limit_s < then.unix_ms / 1000, past);
        assert_eq!(alert, AlertDescription::CERTIFICATE_EXPIRED);
    }
}

#[test]
fn refuses_a_key_that_does_not_belong_to_the_certificate() {
    let provider = awslc();
    let pki = Pki::new(KeyType::P256);
    let other = Pki::new(KeyType::P256);
    let key = other.server.signing_key(&provider);
    for credential in [
        Credential::x509(pki.server.chain.clone(), key.clone()),
        Credential::RawKey {
            public_key: pki.server.public_key.clone(),
            key: dunlin::auth::PrivateKey::Here(key.clone()),
        },
    ] {
        let credentials = vec![pki.client.x509(&provider), credential];
        let refused = Profile::builder(provider.clone()).credentials(credentials).build().unwrap_err();
        let why = "the private key of credential 1 is not the key of its certificate";
        assert!(refused.to_string().contains(why), "{refused}");
    }
    // If a key object claims a foreign public key, the peer detects it.
    let credential = ForeignKey::x509(pki.server.chain.clone(), pki.server.public_key.clone(), key);
    let server = Profile::builder(provider.clone()).credentials(vec![credential]).build().unwrap();
    let client = Profile::builder(provider).trust(x509(&pki)).build().unwrap();
    let server = Arc::new(ServerConfig::new(server).unwrap());
    let mut pair = Pair::new(&Arc::new(ClientConfig::new(client)), &server);
    assert_eq!(pair.run(), Err(PeerMisbehaved::BadSignature.into()));
    assert_eq!(pair.server.error(), Some(&Error::AlertReceived(AlertDescription::DECRYPT_ERROR)));
}

#[test]
fn continues_after_late_answers_to_every_question() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let elsewhere = |leaf: &Leaf, label: &str| {
        let Credential::X509 { chain, key } = leaf.x509(&provider) else { panic!() };
        let dunlin::auth::PrivateKey::Here(here) = key else { panic!() };
        let schemes = here.schemes().to_vec();
        (
            Credential::X509 {
                chain,
                key: dunlin::auth::PrivateKey::Elsewhere { schemes, label: label.into() },
            },
            here,
        )
    };
    let (client_credential, client_key) = elsewhere(&pki.client, "client key");
    let (server_credential, server_key) = elsewhere(&pki.server, "server key");
    let ask = Trust { x509: Some(X509Trust::Ask), raw_key: None };
    let client = Profile::builder(provider.clone()).trust(ask.clone()).credentials(vec![client_credential]);
    let client = Arc::new(
        ClientConfig::new(client.build().unwrap())
            .with_psks(vec![Arc::new(Psk::new("unknown", &[1; 16]).unwrap())]),
    );
    let server = Profile::builder(provider.clone()).trust(ask).credentials(vec![server_credential]);
    let server = ServerConfig::new(server.build().unwrap())
        .unwrap()
        .with_client_auth(ClientAuth::Required)
        .unwrap()
        .with_psks(PskSource::Ask)
        .with_tickets(dunlin::resume::Tickets::ask());
    let chosen = Arc::new(server.clone());
    let server = Arc::new(server.with_profile_choice(true));
    let mut pair = Pair::new(&client, &server);
    let mut asked = Vec::new();
    loop {
        pair.run().unwrap();
        let server_asks = pair.server_question();
        let is_server = server_asks.is_some();
        let Some((id, question)) = server_asks.or_else(|| pair.client_question()) else { break };
        let key = if is_server { &server_key } else { &client_key };
        let (name, answer) = match question {
            Question::ChooseProfile(info) => {
                assert_eq!(info.server_name.as_deref(), Some("localhost"));
                ("profile", Answer::Profile(Some(chosen.clone())))
            }
            Question::FindPsk { identity } => {
                assert_eq!(identity, b"unknown");
                ("psk", Answer::Psk(None))
            }
            Question::FindSession { id } => {
                assert_eq!(id, b"unknown");
                ("session", Answer::Session(None))
            }
            Question::Verify { certificates, .. } => {
                assert_eq!(certificates.len(), 2);
                ("verify", Answer::Verified(Ok(dunlin::auth::Acceptance::once())))
            }
            Question::Sign { scheme, message, label } => {
                assert_eq!(label, if is_server { "server key" } else { "client key" });
                ("sign", Answer::Signature(key.sign(scheme, &message, &*provider.random).unwrap()))
            }
            _ => panic!("an unknown question"),
        };
        asked.push(name);
        let side = if is_server { &mut pair.server } else { &mut pair.client };
        // Neither further bytes nor a wrong kind of answer changes the state.
        assert!(side.is_handshaking());
        if name != "psk" {
            assert!(side.answer(pair.now, id, Answer::Psk(None)).is_err());
        }
        side.answer(pair.now, id, answer).unwrap();
        assert!(side.answer(pair.now, id, Answer::Failed).is_err());
    }
    assert_eq!(asked, ["profile", "session", "psk", "sign", "verify", "sign", "verify"]);
    pair.echo(b"hello").unwrap();
}

#[test]
fn failed_answer_ends_the_handshake() {
    let provider = awslc();
    let ask = Trust { x509: Some(X509Trust::Ask), raw_key: None };
    let client = Profile::builder(provider.clone()).trust(ask).build().unwrap();
    let (_, server) = profiles();
    let server = Arc::new(ServerConfig::new(server.build().unwrap()).unwrap());
    for (answer, alert) in [
        (Answer::Failed, AlertDescription::INTERNAL_ERROR),
        (
            Answer::Verified(Err(AuthenticationFailure::Rejected("not on the list".into()))),
            AlertDescription::CERTIFICATE_UNKNOWN,
        ),
    ] {
        let mut pair = Pair::new(&Arc::new(ClientConfig::new(client.clone())), &server);
        pair.run().unwrap();
        let (id, _) = pair.client_question().unwrap();
        pair.client.answer(pair.now, id, answer).unwrap_err();
        pair.run().unwrap_err();
        assert_eq!(pair.server.error(), Some(&Error::AlertReceived(alert)));
    }
}

#[test]
fn refused_client_gets_access_denied() {
    let (client, server) = profiles();
    let server = ServerConfig::new(server.build().unwrap()).unwrap().with_profile_choice(true);
    let client = Arc::new(ClientConfig::new(client.build().unwrap()));
    let mut pair = Pair::new(&client, &Arc::new(server));
    pair.run().unwrap();
    let (id, _) = pair.server_question().unwrap();
    let result = pair.server.answer(pair.now, id, Answer::Profile(None));
    assert_eq!(result, Err(PeerIncompatible::Refused.into()));
    pair.run().unwrap_err();
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::ACCESS_DENIED)));
}

#[test]
fn lean_profile_has_the_expected_sizes() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::Ed25519);
    let lean = |trust, credential| {
        Profile::lean(
            provider.clone(),
            &dunlin_awslc::TLS13_AES_128_CCM_8_SHA256,
            dunlin_awslc::X25519,
            SignatureScheme::ED25519,
        )
        .trust(trust)
        .credentials(vec![credential])
        .build()
        .unwrap()
    };
    let client = ClientConfig::new(lean(raw(&pki.server), pki.client.raw_key(&provider)));
    let client = Arc::new(client.with_server_name_sent(false));
    let server = lean(raw(&pki.client), pki.server.raw_key(&provider));
    let server = ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let mut pair = Pair::new(&client, &Arc::new(server));
    let hello = pair.client.transmit().len();
    pair.connect().unwrap();
    // draft-ietf-iotops-security-protocol-comparison: TLS 1.3, mutual raw keys, x25519 and Ed25519, CCM_8:
    // 615 bytes in three flights.
    assert!(pair.client_sent + pair.server_sent <= 615, "{} + {}", pair.client_sent, pair.server_sent);
    assert!(hello <= 129, "ClientHello: {hello}");
    // Each flight under one key is one record.
    assert!(pair.client_events.iter().any(|e| matches!(e, Event::Connected)));
}

#[test]
fn profile_refuses_contradictions() {
    let provider = awslc();
    let build = |f: &dyn Fn(ProfileBuilder) -> ProfileBuilder| f(Profile::builder(provider.clone())).build();
    let bad: Vec<(&dyn Fn(ProfileBuilder) -> ProfileBuilder, &str)> = vec![
        (&|b| b.cipher_suites(vec![]), "cipher suite"),
        (&|b| b.groups(vec![]), "group"),
        (&|b| b.record_size_limit(Some(63)), "record_size_limit"),
        (&|b| b.record_size_limit(Some(16386)), "record_size_limit"),
        (&|b| b.alpn(vec![vec![]]), "ALPN"),
        (&|b| b.key_update_after(Some(0)), "record"),
        (&|b| b.signature_schemes(vec![SignatureScheme(0x0901)]), "verify"),
        (&|b| b.psk_modes(vec![PskKeyExchangeMode(9)]), "mode"),
        (&|b| b.groups(vec![dunlin_awslc::X25519, dunlin_awslc::X25519]), "twice"),
    ];
    for (f, word) in bad {
        let error = build(f).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(Psk::new("d", &[1; 15]).is_err());
    assert!(Psk::new("", &[1; 16]).is_err());
    let profile = build(&|b| b).unwrap();
    // A client without trust and PSKs cannot make any connection.
    let client = Arc::new(ClientConfig::new(profile.clone()));
    assert!(dunlin::TlsConnection::client(&client, dunlin_tests::localhost(), dunlin_tests::NOW).is_err());
    let server = ServerConfig::psk_only(profile, PskSource::Ask).unwrap();
    assert!(server.with_client_auth(ClientAuth::Required).is_err());
}

/// The error tells what to do instead.
#[test]
fn a_server_without_credential_and_psk_is_refused_when_it_is_built() {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let bare = Profile::builder(provider.clone()).trust(x509(pki)).name("bare").build().unwrap();
    let refused = ServerConfig::new(bare.clone()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "configuration: profile bare: a server needs a credential: add one, or use ServerConfig::psk_only"
    );
    let full = server_profile(&provider, pki).name("full").build().unwrap();
    let refused = ServerConfig::psk_only(full.clone(), PskSource::Ask).unwrap_err().to_string();
    assert_eq!(
        refused,
        "configuration: profile full: a server with PSKs alone uses no credential: leave it out, or use \
         ServerConfig::new and with_psks"
    );
    ServerConfig::psk_only(bare, PskSource::Ask).unwrap();
    ServerConfig::new(full).unwrap();
}

#[test]
fn a_server_that_only_chooses_always_asks() {
    let (client, server) = profiles();
    let chooser = Profile::builder(awslc()).build().unwrap();
    let chooser = Arc::new(ServerConfig::choosing(chooser).unwrap().with_profile_choice(false));
    let chosen = Arc::new(ServerConfig::new(server.build().unwrap()).unwrap());
    let mut pair = Pair::new(&Arc::new(ClientConfig::new(client.build().unwrap())), &chooser);
    pair.run().unwrap();
    let (id, question) = pair.server_question().unwrap();
    assert!(matches!(question, Question::ChooseProfile(_)));
    pair.server.answer(pair.now, id, Answer::Profile(Some(chosen))).unwrap();
    pair.connect().unwrap();
}
