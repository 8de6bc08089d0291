//! One test for each finding of BoringSSL's conformance runner, and for each feature that it required.

use std::sync::Arc;

use dunlin::auth::{ExternalPsk, Psk, PskTable, RawKeyTrust, X509Trust};
use dunlin::crypto::{
    CryptoError, CryptoProvider, HashAlgorithm, SecureRandom, SignatureAlgorithms, SigningKey,
};
use dunlin::error::{AuthenticationFailure, Misuse, PeerIncompatible, PeerMisbehaved};
use dunlin::pki_types::SubjectPublicKeyInfoDer;
use dunlin::resume::{ServerSessions, Tickets};
use dunlin::wire::{
    AlertDescription as Alert, CertificateType, CipherSuite, ExtensionType, Field, HandshakeType,
    SignatureScheme,
};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, Error, PeerIdentity, Profile, ProfileBuilder, PskIdentity,
    PskSource, Question, ServerConfig, TransportKind, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tests::tamper::{Keys, Secrets, extension, extension_at, message, records, rewrite, suites_at};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, carry};
use rcgen::{CertificateParams, KeyPair, KeyUsagePurpose};

fn trust() -> Trust {
    Trust { x509: Some(Pki::shared(KeyType::P256).trust()), raw_key: None }
}

fn client_profile() -> ProfileBuilder {
    Profile::builder(awslc()).trust(trust())
}

fn server_profile() -> ProfileBuilder {
    Profile::builder(awslc())
        .trust(trust())
        .credentials(vec![Pki::shared(KeyType::P256).server.x509(&awslc())])
}

fn client(profile: ProfileBuilder) -> ClientConfig {
    ClientConfig::new(profile.build().unwrap())
}

fn server(profile: ProfileBuilder) -> ServerConfig {
    ServerConfig::new(profile.build().unwrap()).unwrap()
}

fn pair(client: ClientConfig, server: ServerConfig) -> Pair {
    Pair::new(&Arc::new(client), &Arc::new(server))
}

/// A self-signed certificate whose key may be used only for `usage`.
fn credential(usage: &[KeyUsagePurpose]) -> Credential {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
    params.key_usages = usage.to_vec();
    let certificate = params.self_signed(&key).unwrap();
    let der = dunlin::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    Credential::x509(vec![certificate.der().clone()], awslc().key_loader.load(&der).unwrap())
}

/// Returns the error of a side whose peer sends this certificate instead of its own.
fn error_after(certificate: &Credential, of_server: bool) -> Error {
    let secrets = Arc::new(Secrets::default());
    let profile = || {
        let anyone = Trust { x509: Some(X509Trust::DangerAnyone), raw_key: None };
        let own = credential(&[KeyUsagePurpose::DigitalSignature]);
        Profile::builder(awslc()).trust(anyone).credentials(vec![own]).key_log(Some(secrets.clone()))
    };
    let server = server(profile()).with_client_auth(ClientAuth::Required).unwrap();
    let mut pair = pair(client(profile()), server);
    carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
    let (from, to, secret) = if of_server {
        (&mut pair.server, &mut pair.client, "SERVER_HANDSHAKE_TRAFFIC_SECRET")
    } else {
        carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
        (&mut pair.client, &mut pair.server, "CLIENT_HANDSHAKE_TRAFFIC_SECRET")
    };
    let Credential::X509 { chain, .. } = certificate else { panic!("X.509") };
    let suite = awslc().cipher_suites[0].id;
    let flight = rewrite(&awslc(), suite, &secrets.get(secret), from.transmit(), |mut messages| {
        let old = messages.iter_mut().find(|m| m[0] == HandshakeType::CERTIFICATE.0).unwrap();
        let len = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes()[1..].to_vec();
        let entry = [&len(&chain[0])[..], &chain[0], &[0, 0]].concat();
        *old = message(HandshakeType::CERTIFICATE.0, &[&[0][..], &len(&entry), &entry].concat());
        messages
    });
    to.receive(NOW, &flight).unwrap_err()
}

/// RFC 8446 §4.4.2.2. A side with such a certificate does not send it, so the peer is hostile: it lacks the
/// key, too.
#[test]
fn refuses_a_certificate_whose_key_may_not_sign() {
    for (usage, may_sign) in [
        (&[][..], true),
        (&[KeyUsagePurpose::DigitalSignature], true),
        (&[KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyAgreement], true),
        (&[KeyUsagePurpose::KeyAgreement], false),
    ] {
        let expected: Error = if may_sign {
            PeerMisbehaved::BadSignature.into()
        } else {
            AuthenticationFailure::WrongKeyUsage.into()
        };
        for of_server in [true, false] {
            assert_eq!(error_after(&credential(usage), of_server), expected, "{usage:?}");
        }
    }
}

/// Appends the beginning of another message to the first record of a flight.
fn with_more(flight: &[u8]) -> Vec<u8> {
    let mut first = records(flight).remove(0);
    let rest = flight[first.len()..].to_vec();
    first.extend([HandshakeType::CLIENT_HELLO.0, 0]);
    let len = (first.len() - 5) as u16;
    first[3..5].copy_from_slice(&len.to_be_bytes());
    [first, rest].concat()
}

#[test]
fn rejects_excess_data_around_a_retry() {
    let retried = || {
        let client = client(client_profile()).with_key_shares(vec![]).unwrap();
        pair(client, server(server_profile()))
    };
    let mut pair = retried();
    let hello = with_more(pair.client.transmit());
    let error = Error::from(PeerMisbehaved::ExcessHandshakeData);
    assert_eq!(error.alert(), Some(Alert::UNEXPECTED_MESSAGE));
    assert_eq!(pair.server.receive(NOW, &hello), Err(error.clone()));

    let mut pair = retried();
    let hello = pair.client.transmit().to_vec();
    pair.server.receive(NOW, &hello).unwrap();
    let retry = with_more(pair.server.transmit());
    assert_eq!(pair.client.receive(NOW, &retry), Err(error));
}

/// RFC 8446 §D.4: in compatibility mode, each side sends one ChangeCipherSpec, here before the client's
/// second flight.
#[test]
fn change_cipher_spec_precedes_the_second_client_hello_in_compatibility_mode() {
    for is_compatible in [true, false] {
        let profile = client_profile().compatibility_mode(is_compatible);
        let client = client(profile).with_key_shares(vec![]).unwrap();
        let mut pair = pair(client, server(server_profile()));
        carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
        carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
        let types: Vec<_> = records(pair.client.transmit()).iter().map(|record| record[0]).collect();
        assert_eq!(types, if is_compatible { &[20, 22][..] } else { &[22] });
        pair.connect().unwrap();
        assert_eq!(pair.client.error(), None);
    }
}

#[test]
fn only_the_first_client_hello_has_record_version_3_1() {
    let mut pair = pair(client(client_profile()), server(server_profile()));
    let hello = pair.client.transmit().to_vec();
    assert_eq!(hello[..3], [22, 3, 1]);
    pair.server.receive(NOW, &hello).unwrap();
    for record in records(pair.server.transmit()) {
        assert_eq!(record[1..3], [3, 3]);
    }
}

#[test]
fn rejects_a_flood_of_warnings() {
    let secrets = Arc::new(Secrets::default());
    let server = server(server_profile().key_log(Some(secrets.clone())));
    let mut pair = pair(client(client_profile()), server);
    pair.connect().unwrap();
    let keys = Keys::new(awslc().cipher_suites[0], &secrets.get("SERVER_TRAFFIC_SECRET_0"));
    let warning = |number| keys.seal(number, &[1, Alert::USER_CANCELED.0, 21]);
    for number in 0..4 {
        pair.client.receive(NOW, &warning(number)).unwrap();
    }
    assert_eq!(pair.client.receive(NOW, &warning(4)), Err(PeerMisbehaved::Flood(Field::Warnings).into()));
}

#[test]
fn imported_psk_serves_every_hash_and_only_its_context() {
    let try_import = |key: &[u8], context: &[u8]| {
        let external = ExternalPsk { identity: b"device-1", key, hash: HashAlgorithm::Sha384, context };
        Psk::import(&awslc(), &external, TransportKind::Stream)
    };
    let import = |key: &[u8], context: &[u8]| try_import(key, context).unwrap();
    let connect = |ours: Vec<Psk>, suite: CipherSuite| {
        let suite = awslc().suite(suite).unwrap();
        let profile = Profile::builder(awslc()).cipher_suites(vec![suite]);
        let client = client(profile).with_psks(ours.into_iter().map(Arc::new).collect());
        let table = PskTable::from_iter(import(&[7; 32], b"both"));
        let profile = Profile::builder(awslc()).build().unwrap();
        let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(table))).unwrap();
        let mut pair = pair(client, server);
        pair.run().map(|()| pair.server.negotiated().unwrap().peer.clone().unwrap())
    };
    for suite in [CipherSuite::TLS_AES_128_GCM_SHA256, CipherSuite::TLS_AES_256_GCM_SHA384] {
        let PeerIdentity::Psk(PskIdentity { identity, .. }) =
            connect(import(&[7; 32], b"both"), suite).unwrap()
        else {
            panic!()
        };
        // ImportedIdentity (RFC 9258 §4.1).
        let kdf = if suite == CipherSuite::TLS_AES_128_GCM_SHA256 { 1 } else { 2 };
        assert_eq!(identity, [&b"\0\x08device-1\0\x04both\x03\x04\0"[..], &[kdf]].concat());
        assert_eq!(connect(import(&[8; 32], b"both"), suite), Err(PeerMisbehaved::BadBinder.into()));
        assert_eq!(connect(import(&[7; 32], b"others"), suite), Err(PeerIncompatible::NoPsk.into()));
        // The same key under the same identity, but not imported.
        let plain = import(&[7; 32], b"both").remove(0).identity().to_vec();
        if suite == CipherSuite::TLS_AES_128_GCM_SHA256 {
            let plain = Psk::new(plain, &[7; 32]).unwrap();
            assert_eq!(connect(vec![plain], suite), Err(PeerMisbehaved::BadBinder.into()));
        }
    }
    let short = try_import(&[7; 15], b"");
    assert!(matches!(short, Err(Error::Misuse(Misuse::Config(_)))));
}

#[test]
fn server_sends_its_ocsp_response_on_request() {
    let asking = |on| {
        let trust = Trust { x509: Some(X509Trust::Ask), raw_key: None };
        let mut pair = pair(
            client(client_profile().trust(trust).request_ocsp(on)),
            server(server_profile().ocsp_response(0, b"response".to_vec())),
        );
        pair.run().unwrap();
        let Some((id, Question::Verify { ocsp_response, .. })) = pair.client_question() else { panic!() };
        pair.client.answer(NOW, id, Answer::Verified(Ok(dunlin::auth::Acceptance::once()))).unwrap();
        pair.connect().unwrap();
        ocsp_response
    };
    assert_eq!(asking(true), Some(b"response".to_vec()));
    assert_eq!(asking(false), None);
    for (place, response) in [(1, b"response".to_vec()), (0, Vec::new())] {
        let profile = server_profile().ocsp_response(place, response).build();
        assert!(matches!(profile, Err(Error::Misuse(Misuse::Config(_)))));
    }
}

#[test]
fn client_continues_without_a_credential_unless_required() {
    let own = || client_profile().credentials(vec![Pki::shared(KeyType::Ed25519).client.x509(&awslc())]);
    let asking = || {
        let schemes = vec![SignatureScheme::ECDSA_SECP256R1_SHA256];
        server(server_profile().signature_schemes(schemes)).with_client_auth(ClientAuth::Optional).unwrap()
    };
    assert_eq!(pair(client(own()), asking()).connect(), Ok(()));
    let required = client(own()).with_credential_required(true);
    assert_eq!(pair(required, asking()).run(), Err(PeerIncompatible::SignatureScheme.into()));
    let anonymous = client(client_profile()).with_credential_required(true);
    assert_eq!(pair(anonymous, asking()).connect(), Ok(()));
}

#[test]
fn client_can_verify_a_resumed_server_again() {
    let trust = Trust { x509: Some(X509Trust::Ask), raw_key: None };
    let tickets: Arc<dyn ServerSessions> = Arc::new(MemoryServerSessions::new(8));
    let server = Arc::new(server(server_profile()).with_tickets(Tickets::stateful(tickets)));
    let client =
        client(client_profile().trust(trust)).with_sessions(Arc::new(MemoryClientSessions::default()));
    let once = Arc::new(client.clone());
    let again = Arc::new(client.with_reverification(true));
    let answered = |client, verdict: Result<(), AuthenticationFailure>| {
        let mut pair = Pair::new(client, &server);
        pair.run().unwrap();
        let question = pair.client_question();
        let asked = question.is_some();
        let result = match question {
            Some((id, Question::Verify { certificates, .. })) => {
                assert_eq!(certificates, Pki::shared(KeyType::P256).server.chain);
                let result = pair.client.answer(
                    NOW,
                    id,
                    Answer::Verified(verdict.map(|()| dunlin::auth::Acceptance::once())),
                );
                result.and_then(|()| pair.connect())
            }
            _ => Ok(()),
        };
        (asked, pair.client.negotiated().is_some_and(|n| n.is_resumed()), result)
    };
    assert_eq!(answered(&once, Ok(())), (true, false, Ok(())));
    assert_eq!(answered(&once, Ok(())), (false, true, Ok(())));
    assert_eq!(answered(&again, Ok(())), (true, true, Ok(())));
    let refused = AuthenticationFailure::RejectedWith(Alert::HANDSHAKE_FAILURE, "revoked".into());
    assert_eq!(Error::from(refused.clone()).alert(), Some(Alert::HANDSHAKE_FAILURE));
    assert_eq!(answered(&again, Err(refused.clone())), (true, false, Err(refused.into())));
}

#[test]
fn server_chooses_certificate_types_in_its_own_order() {
    let pki = Pki::shared(KeyType::P256);
    let both = || Trust { x509: Some(pki.trust()), raw_key: Some(RawKeyTrust::DangerAnyone) };
    let own = || vec![pki.client.x509(&awslc()), pki.client.raw_key(&awslc())];
    let types = [CertificateType::X509, CertificateType::RAW_PUBLIC_KEY];
    let connect = |own_types: &[CertificateType], peer_types: &[CertificateType]| {
        let client = client_profile().credentials(own()).own_certificate_types(Some(own_types.to_vec()));
        let server = server_profile().trust(both()).peer_certificate_types(Some(peer_types.to_vec()));
        let server = self::server(server).with_client_auth(ClientAuth::Optional).unwrap();
        let mut pair = pair(self::client(client), server);
        pair.run().map(|()| match pair.server.negotiated().unwrap().peer {
            Some(PeerIdentity::X509(_)) => Some(CertificateType::X509),
            Some(PeerIdentity::RawKey(_)) => Some(CertificateType::RAW_PUBLIC_KEY),
            _ => None,
        })
    };
    let [x509, raw_key] = types;
    assert_eq!(connect(&types, &[x509, raw_key]), Ok(Some(x509)));
    assert_eq!(connect(&types, &[raw_key, x509]), Ok(Some(raw_key)));
    assert_eq!(connect(&[x509], &[raw_key, x509]), Ok(Some(x509)));
    assert_eq!(connect(&[raw_key], &[x509, raw_key]), Ok(Some(raw_key)));
    // RFC 7250 §4.2: the server refuses a client that offers only unsuitable types, but not a client that
    // offers none.
    let nothing = PeerIncompatible::CertificateType { ours: vec![x509], theirs: vec![raw_key] };
    assert_eq!(connect(&[raw_key], &[x509]), Err(nothing.into()));
    assert_eq!(connect(&[x509], &[raw_key]), Ok(None));
    let untrusted = client_profile().peer_certificate_types(Some(types.to_vec())).build();
    assert!(matches!(untrusted, Err(Error::Misuse(Misuse::Config(_)))));
}

#[test]
fn client_sends_a_reserved_credential_only_to_servers_that_name_its_authority() {
    let own = || {
        let own = Pki::shared(KeyType::P256).client.x509(&awslc());
        client(client_profile().credentials(vec![own]).reserve_credential(0)).with_credential_required(true)
    };
    let asking = |names| {
        server(server_profile().send_authorities(names)).with_client_auth(ClientAuth::Optional).unwrap()
    };
    let mut named = pair(own(), asking(true));
    named.connect().unwrap();
    assert!(matches!(named.server.negotiated().unwrap().peer, Some(PeerIdentity::X509(_))));
    let unnamed = PeerIncompatible::NoCredential(Field::NoneOfAuthority);
    assert_eq!(pair(own(), asking(false)).run(), Err(unnamed.into()));
    assert!(matches!(client_profile().reserve_credential(0).build(), Err(Error::Misuse(Misuse::Config(_)))));
}

#[test]
fn abort_sends_the_given_alert() {
    let mut pair = pair(client(client_profile()), server(server_profile()));
    pair.connect().unwrap();
    pair.server.abort(Alert::ACCESS_DENIED);
    assert_eq!(pair.server.error(), Some(&Misuse::Aborted.into()));
    assert_eq!(pair.run(), Err(Error::AlertReceived(Alert::ACCESS_DENIED)));
}

/// RFC 9846 §6.1: neither alert is fatal, and close_notify always follows user_canceled.
#[test]
fn abort_with_a_closure_alert_sends_close_notify() {
    for alert in [Alert::CLOSE_NOTIFY, Alert::USER_CANCELED] {
        let mut pair = pair(client(client_profile()), server(server_profile()));
        pair.connect().unwrap();
        pair.server.abort(alert);
        assert_eq!(pair.server.error(), Some(&Misuse::Aborted.into()));
        pair.run().unwrap();
        assert!(pair.client.peer_has_closed(), "{alert}");
        assert_eq!(pair.client.error(), None, "{alert}");
    }
}

#[test]
fn server_acknowledges_the_server_name_if_it_uses_it() {
    let size = |looks| {
        let config = Arc::new(server(server_profile()).with_profile_choice(looks));
        let mut pair = Pair::new(&Arc::new(client(client_profile())), &config);
        pair.run().unwrap();
        if let Some((id, Question::ChooseProfile(_))) = pair.server_question() {
            pair.server.answer(NOW, id, Answer::Profile(Some(config))).unwrap();
        }
        pair.connect().unwrap();
        let messages = pair.server.messages();
        messages.iter().find(|m| m.typ == HandshakeType::ENCRYPTED_EXTENSIONS).unwrap().len
    };
    assert_eq!(size(true), size(false) + 4);
}

/// An RSA key in hardware that supports only PKCS#1 v1.5.
#[derive(Debug)]
struct OldKey(Arc<dyn SigningKey>);

impl SigningKey for OldKey {
    fn schemes(&self) -> &[SignatureScheme] {
        &[SignatureScheme::RSA_PKCS1_SHA256_LEGACY]
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        self.0.public_key()
    }

    fn sign(
        &self,
        _: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        self.0.sign(SignatureScheme::RSA_PKCS1_SHA256, message, random)
    }
}

/// draft-ietf-tls-tls13-pkcs1 §2: only in a client's CertificateVerify, and only if the server asks for it.
#[test]
fn only_clients_sign_with_rsa_pkcs1_on_request() {
    const OLD: SignatureScheme = SignatureScheme::RSA_PKCS1_SHA256_LEGACY;
    let mut provider = CryptoProvider::clone(&awslc());
    let known = provider.signatures;
    let pkcs1 = known.schemes.iter().find(|(s, _)| *s == SignatureScheme::RSA_PKCS1_SHA256).unwrap().1;
    let schemes = [known.schemes, &[(OLD, pkcs1)]].concat();
    provider.signatures = SignatureAlgorithms { all: known.all, schemes: schemes.leak() };
    let provider = Arc::new(provider);
    let pki = Pki::shared(KeyType::Rsa2048);
    let trust = || Trust { x509: Some(pki.trust()), raw_key: None };
    let old =
        |leaf: &Leaf| Credential::x509(leaf.chain.clone(), Arc::new(OldKey(leaf.signing_key(&provider))));
    let profile =
        |credential| Profile::builder(provider.clone()).trust(trust()).credentials(vec![credential]);
    let connect = |client_key, server_key, asks: bool| {
        let schemes = provider.signatures.schemes.iter().map(|(s, _)| *s).filter(|s| *s != OLD || asks);
        let server = profile(server_key).signature_schemes(schemes.collect());
        let server = self::server(server).with_client_auth(ClientAuth::Required).unwrap();
        let client = client(profile(client_key)).with_credential_required(true);
        let mut pair = pair(client, server);
        let hello = pair.client.transmit().to_vec();
        assert!(extension(&hello, ExtensionType::SIGNATURE_ALGORITHMS.0).is_some());
        for list in [ExtensionType::SIGNATURE_ALGORITHMS, ExtensionType::SIGNATURE_ALGORITHMS_CERT] {
            let asked = extension(&hello, list.0).unwrap_or_default().chunks(2);
            assert!(asked.skip(1).all(|s| s != OLD.0.to_be_bytes()), "the client offers it to no server");
        }
        pair.run().map(|()| pair.server.negotiated().unwrap().peer_signature)
    };
    let (new_client, new_server) = (|| pki.client.x509(&provider), || pki.server.x509(&provider));
    assert_eq!(connect(old(&pki.client), new_server(), true), Ok(Some(OLD)));
    assert_eq!(connect(new_client(), new_server(), true), Ok(Some(SignatureScheme::RSA_PSS_RSAE_SHA256)));
    let nothing = || Err(PeerIncompatible::SignatureScheme.into());
    assert_eq!(connect(old(&pki.client), new_server(), false), nothing());
    assert_eq!(connect(new_client(), old(&pki.server), true), nothing());
}

#[test]
fn records_keep_the_configured_maximum() {
    const TYPE_AND_TAG: usize = 17;
    let tls12 = |profile: ProfileBuilder| {
        let suites = TLS12_CIPHER_SUITES.to_vec();
        profile.cipher_suites(vec![]).tls12_cipher_suites(suites)
    };
    for older in [&(|p| p) as &dyn Fn(ProfileBuilder) -> ProfileBuilder, &tls12] {
        let small = |profile: ProfileBuilder| older(profile).max_sent_record(Some(64));
        let mut pair = pair(client(small(client_profile())), server(small(server_profile())));
        let sizes = |bytes: &[u8]| records(bytes).iter().map(|r| r.len() - 5).max().unwrap();
        assert_eq!(sizes(pair.client.transmit()), 64);
        pair.connect().unwrap();
        pair.client.send(&[7; 200]).unwrap();
        assert!((64..=64 + 8 + TYPE_AND_TAG).contains(&sizes(pair.client.transmit())));
    }
    for content in [63, 16385] {
        let profile = client_profile().max_sent_record(Some(content)).build();
        assert!(matches!(profile, Err(Error::Misuse(Misuse::Config(_)))));
    }
    assert!(client_profile().named_authorities(vec![vec![]]).build().is_err());
}

/// RFC 8446 §6: the only levels are warning and fatal.
#[test]
fn rejects_an_unknown_alert_level() {
    let mut pair = pair(client(client_profile()), server(server_profile()));
    let wrong = pair.client.receive(NOW, &[21, 3, 3, 0, 2, 3, 40]).map(drop);
    assert_eq!(wrong, Err(PeerMisbehaved::IllegalParameter(Field::AlertLevel).into()));
}

/// The first flights of an honest client and server.
fn first_flights(client: ClientConfig, server: ServerConfig) -> (Pair, Vec<u8>) {
    let mut pair = pair(client, server);
    carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
    let flight = pair.server.transmit().to_vec();
    (pair, flight)
}

/// RFC 8446 §4.2.1: the client rejects versions that it did not offer, and versions before TLS 1.3 in this
/// extension.
#[test]
fn client_rejects_a_selected_version_that_it_did_not_offer() {
    let not_offered = Err(PeerMisbehaved::NotOffered(Field::Version).into());
    for version in [[3, 3], [3, 5], [0xfe, 0xfc]] {
        let (mut pair, mut flight) = first_flights(client(client_profile()), server(server_profile()));
        let at = extension_at(&flight, 43).unwrap();
        flight[at].copy_from_slice(&version);
        assert_eq!(pair.client.receive(NOW, &flight).map(drop), not_offered);
    }
    // TLS 1.3 itself, for a client with TLS 1.2 alone.
    let (_, flight) = first_flights(client(client_profile()), server(server_profile()));
    let older = client_profile().cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec());
    let mut older = pair(client(older), server(server_profile())).client;
    assert_eq!(older.receive(NOW, &flight).map(drop), not_offered);
}

/// RFC 8446 §4.2.11, §9.2: a certificate or psk_dhe_ke requires a key share. The two errors have different
/// alerts.
#[test]
fn client_rejects_a_server_hello_without_key_share() {
    let psk = || Psk::new("device-1", &[7; 32]).unwrap();
    for (has_psk, error) in [
        (false, PeerMisbehaved::MissingExtension(ExtensionType::KEY_SHARE)),
        (true, PeerMisbehaved::IllegalParameter(Field::PskWithoutKeyShare)),
    ] {
        let mut client = client(client_profile());
        let mut server = server(server_profile());
        if has_psk {
            client = client.with_psks(vec![Arc::new(psk())]);
            server = server.with_psks(PskSource::Here(Arc::new(PskTable::from_iter([psk()]))));
        }
        let (mut pair, mut flight) = first_flights(client, server);
        let body = extension_at(&flight, 51).unwrap();
        let removed = body.start - 4..body.end;
        // The lengths of the record, the message (without its first byte), and the extensions.
        for at in [3, 7, suites_at(&flight).end + 1] {
            let len = u16::from_be_bytes([flight[at], flight[at + 1]]) - removed.len() as u16;
            flight[at..at + 2].copy_from_slice(&len.to_be_bytes());
        }
        flight.drain(removed);
        assert_eq!(pair.client.receive(NOW, &flight).map(drop), Err(error.into()));
    }
}
