//! Verifiable credentials as certificates (docs/identity.md): methods, staples, issuers, limits, sessions and
//! cache entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dunlin::auth::{Trust, VerifiableCredential, Verifiers};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::compression::{ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR};
use dunlin::error::{AuthenticationFailure, PeerIncompatible, PeerMisbehaved};
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription, CertificateType, DidMethod, ExtensionType, Field};
use dunlin::{
    ClientAuth, ClientConfig, Credential, DtlsConnection, Error, Negotiated, PeerIdentity, ProfileBuilder,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, RotatingTickets};
use dunlin_tests::tamper::extension_at;
use dunlin_tests::{Leaf, NOW, Pair, awslc, localhost};

use crate::wallet::{
    PROOF, TRANSPORTS, VC, Wallet, client, credential, failure, negotiated, negotiated_over, own, pki,
    profile, server, server_gets_beside, stapled, trust, types, vc, x509,
};

#[test]
fn authenticates_both_sides_by_verifiable_credentials() {
    let wallet = || Arc::new(Wallet::of(&[DidMethod::WEB, DidMethod::DUNLIN]));
    let client = client(profile(trust(&wallet()), vec![vc("did:dunlin:device", &pki().client)]));
    let server =
        server(profile(trust(&wallet()), vec![vc("did:dunlin:hub", &pki().server)]), ClientAuth::Required);
    let ends = negotiated(&client, &server);
    for (end, name) in ends.iter().zip(["did:dunlin:hub", "did:dunlin:device"]) {
        let Some(PeerIdentity::Other(id)) = &end.peer else { panic!("{:?}", end.peer) };
        assert_eq!((id.certificate_type(), id.id(), id.text()), (VC, name.as_bytes(), name));
        assert_eq!(id.details(), b"sequence 3");
    }
}

#[test]
fn mixes_with_x509_in_both_directions() {
    let wallet = Arc::new(Wallet::of(&[DidMethod::DUNLIN]));
    let [vc_client, x509_client] = [vc("did:dunlin:device", &pki().client), pki().client.x509(&awslc())];
    let [vc_server, x509_server] = [vc("did:dunlin:hub", &pki().server), pki().server.x509(&awslc())];
    // The server shows a credential, and the client a certificate.
    let ends = negotiated(
        &client(profile(trust(&wallet), vec![x509_client])),
        &server(profile(x509(), vec![vc_server]), ClientAuth::Required),
    );
    assert_eq!(types(&ends), [Some(VC), Some(CertificateType::X509)]);
    let ends = negotiated(
        &client(profile(x509(), vec![vc_client])),
        &server(profile(trust(&wallet), vec![x509_server]), ClientAuth::Required),
    );
    assert_eq!(types(&ends), [Some(CertificateType::X509), Some(VC)]);
}

/// Without a common method the two sides fall back to X.509 where both have it, and never to a credential of
/// another method.
#[test]
fn needs_a_common_method_of_identifiers() {
    let other = || Arc::new(Wallet::of(&[DidMethod::WEB]));
    let both = |own: Credential, x509: Credential| vec![own, x509];
    let x509 = Trust { x509: Some(pki().trust()), raw_key: None };
    let believer = Verifiers::from(x509).with(other());
    let servers = both(vc("did:dunlin:hub", &pki().server), pki().server.x509(&awslc()));
    let clients = both(vc("did:dunlin:device", &pki().client), pki().client.x509(&awslc()));
    let ends = negotiated(
        &client(profile(believer, clients)),
        &server(profile(Trust { x509: Some(pki().trust()), raw_key: None }, servers), ClientAuth::Required),
    );
    assert_eq!(types(&ends), [Some(CertificateType::X509); 2]);

    let alone =
        server(profile(Verifiers::default(), vec![vc("did:dunlin:hub", &pki().server)]), ClientAuth::None);
    let why = PeerIncompatible::NoCredential(Field::NoneOfDidMethod);
    assert_eq!(failure(&client(profile(trust(&other()), vec![])), &alone), why.into());

    // The client can send its credential alone, the server resolves other methods than the client does.
    let dunlin = Arc::new(Wallet::of(&[DidMethod::DUNLIN]));
    let asks =
        server(profile(trust(&dunlin), vec![vc("did:dunlin:hub", &pki().server)]), ClientAuth::Required);
    let resolves_both = Arc::new(Wallet::of(&[DidMethod::DUNLIN, DidMethod::WEB]));
    let of_web =
        VerifiableCredential { did_method: DidMethod::WEB, ..credential("did:web:device", &pki().client) };
    let client = client(profile(trust(&resolves_both), vec![own(of_web, &pki().client)]));
    let error = failure(&client, &asks);
    assert_eq!(error.alert(), Some(AlertDescription::CERTIFICATE_REQUIRED), "{error}");
}

/// draft-vesco-vcauthtls is for TLS 1.3. With TLS 1.2, both sides use their other credentials.
#[test]
fn exists_only_in_tls_1_3() {
    let ends = |tls13: [bool; 2]| {
        let of = |leaf: &Leaf, tls13: bool| {
            let wallet = Arc::new(Wallet::of(&[DidMethod::DUNLIN]));
            let x509 = Trust { x509: Some(pki().trust()), raw_key: None };
            let own = vec![vc("did:dunlin:one", leaf), leaf.x509(&awslc())];
            let profile = profile(Verifiers::from(x509).with(wallet), own);
            let profile = profile.tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec());
            if tls13 { profile } else { profile.cipher_suites(vec![]) }
        };
        let server = server(of(&pki().server, tls13[1]), ClientAuth::Required);
        types(&negotiated(&client(of(&pki().client, tls13[0])), &server))
    };
    assert_eq!(ends([true, true]), [Some(VC); 2]);
    for tls13 in [[true, false], [false, true], [false, false]] {
        assert_eq!(ends(tls13), [Some(CertificateType::X509); 2], "{tls13:?}");
    }
}

#[test]
fn sends_a_stapled_proof_to_those_who_accept_it() {
    for (proof, accepts, arrives) in [
        (PROOF.to_vec(), true, true),
        (PROOF.to_vec(), false, false),
        (vec![1; 16 * 1024], true, true),
        // A longer one would end the handshake at the peer.
        (vec![1; 16 * 1024 + 1], true, false),
    ] {
        let wallet = || {
            if accepts {
                Arc::new(Wallet::asking_for_proofs())
            } else {
                Arc::new(Wallet::of(&[DidMethod::DUNLIN]))
            }
        };
        let wallets = [wallet(), wallet()];
        let own_client = stapled("did:dunlin:device", &pki().client, &proof);
        let own_server = stapled("did:dunlin:hub", &pki().server, &proof);
        negotiated(
            &client(profile(trust(&wallets[0]), vec![own_client])),
            &server(profile(trust(&wallets[1]), vec![own_server]), ClientAuth::Required),
        );
        for wallet in wallets {
            assert_eq!(*wallet.seen.lock().unwrap(), [arrives.then(|| proof.clone())]);
        }
    }
}

#[test]
fn prefers_the_credential_whose_issuer_the_peer_names() {
    let wallet = Arc::new(Wallet { issuers: vec![b"issuer 2".to_vec()], ..Wallet::of(&[DidMethod::DUNLIN]) });
    let issued = |name: &str, issuer: &[u8]| {
        let issuer = Some(issuer.to_vec());
        own(VerifiableCredential { issuer, ..credential(name, &pki().server) }, &pki().server)
    };
    let both = vec![issued("did:dunlin:first", b"issuer 1"), issued("did:dunlin:second", b"issuer 2")];
    for (names, chosen) in [(true, "did:dunlin:second"), (false, "did:dunlin:first")] {
        let [end, _] = negotiated(
            &client(profile(trust(&wallet), vec![]).send_authorities(names)),
            &server(profile(Verifiers::default(), both.clone()), ClientAuth::None),
        );
        assert_eq!(end.peer.unwrap().to_string(), format!("VC {chosen}"));
    }
}

/// The handshake is as with any other certificate: after a HelloRetryRequest, compressed, and over datagrams.
#[test]
fn works_after_a_retry_compressed_and_over_datagrams() {
    let wallet = || Arc::new(Wallet::asking_for_proofs());
    // The zeros make compression worthwhile.
    let long = |name: &str, leaf: &Leaf| {
        let name = format!("{name}{}", "0".repeat(400));
        (stapled(&name, leaf, PROOF), vc(&name, leaf))
    };
    let ((stapled_client, plain_client), (stapled_server, plain_server)) =
        (long("did:dunlin:device", &pki().client), long("did:dunlin:hub", &pki().server));
    let packs = |profile: ProfileBuilder| {
        profile
            .certificate_compressors(vec![ZLIB_COMPRESSOR])
            .certificate_decompressors(vec![ZLIB_DECOMPRESSOR])
    };
    for (own_client, own_server, compressed) in
        [(stapled_client.clone(), stapled_server.clone(), false), (plain_client, plain_server, true)]
    {
        let config = ClientConfig::new(packs(profile(trust(&wallet()), vec![own_client])).build().unwrap());
        // Without shares, the server must send a HelloRetryRequest.
        let client = Arc::new(config.with_key_shares(vec![]).unwrap());
        let server = server(packs(profile(trust(&wallet()), vec![own_server])), ClientAuth::Required);
        for over in TRANSPORTS {
            let ends = negotiated_over(over, &client, &server, NOW);
            assert_eq!(types(&ends), [Some(VC); 2]);
            for end in &ends {
                assert!(end.retried);
                // A Certificate that was compressed in advance has no room for a proof.
                assert_eq!(end.own_certificate_compression.is_some(), compressed, "{over:?}");
            }
        }
    }
    let wallets = [wallet(), wallet()];
    let client = client(profile(trust(&wallets[0]), vec![stapled_client]));
    let server = server(profile(trust(&wallets[1]), vec![stapled_server]), ClientAuth::Required);
    let client = DtlsConnection::client(&client, localhost(), SERVER_ADDRESS, NOW).unwrap();
    let server = DtlsConnection::server(&server, CLIENT_ADDRESS, NOW);
    let mut pair = dunlin_sim::Pair::new(client, server, NOW, Duration::from_millis(20));
    pair.run().unwrap();
    for end in [&pair.client, &pair.server] {
        let peer = end.negotiated().unwrap().peer.as_ref().unwrap();
        assert_eq!(peer.certificate_type(), Some(VC));
    }
    assert!(wallets.iter().all(|wallet| *wallet.seen.lock().unwrap() == [Some(PROOF.to_vec())]));
}

/// Sessions and cache entries serve as long as the verifier does not know better.
#[test]
fn asks_the_verifier_before_it_resumes_or_uses_the_cache() {
    for (caches, over) in [false, true].into_iter().flat_map(|caches| TRANSPORTS.map(|over| (caches, over))) {
        let wallets = [(); 2].map(|()| Arc::new(Wallet::asking_for_proofs()));
        let mut client =
            (*client(profile(trust(&wallets[0]), vec![stapled("did:dunlin:device", &pki().client, PROOF)])))
                .clone();
        let own_server = stapled("did:dunlin:hub", &pki().server, PROOF);
        let mut server =
            (*server(profile(trust(&wallets[1]), vec![own_server]), ClientAuth::Required)).clone();
        if caches {
            let ours = Arc::new(MemoryClientCache::default());
            let theirs = Arc::new(MemoryServerCache::new(8));
            client = client.with_handshake_cache(CacheMode::Compact, ours, DEFAULT_MAX_AGE);
            server = server.with_handshake_cache(CacheMode::Compact, theirs, DEFAULT_MAX_AGE).unwrap();
        } else {
            client = client.with_sessions(Arc::new(MemoryClientSessions::new(8, 8)));
            server =
                server.with_tickets(Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap())));
        }
        let client = Arc::new(client);
        let server = Arc::new(server);
        let shortened = |ends: [Negotiated; 2]| {
            if caches { ends.map(|end| end.is_peer_cached()) } else { ends.map(|end| end.is_resumed()) }
        };
        assert_eq!(shortened(negotiated_over(over, &client, &server, NOW)), [false; 2]);
        assert_eq!(shortened(negotiated_over(over, &client, &server, NOW)), [true; 2]);
        // A cached handshake needs no proof, and a resumption no credential.
        assert!(wallets.iter().all(|wallet| wallet.seen.lock().unwrap().len() == 1));
        for doubts in 0..2 {
            wallets[doubts].believes.store(false, Ordering::Relaxed);
            let ends = shortened(negotiated_over(over, &client, &server, NOW));
            // The doubts of one side concern the other's identity alone; a resumption needs both.
            assert!(!ends[doubts], "side {doubts}, caches: {caches}, {over:?}");
            assert!(caches || ends == [false; 2]);
            wallets[doubts].believes.store(true, Ordering::Relaxed);
            negotiated_over(over, &client, &server, NOW);
        }
    }
}

#[test]
fn refuses_a_credential_that_is_too_long() {
    let long = VerifiableCredential::new(vec![1; 16 * 1024 + 1], DidMethod::DUNLIN);
    let refused = profile(Verifiers::default(), vec![own(long, &pki().server)]).build().unwrap_err();
    assert!(refused.to_string().contains("1 to 16384 bytes"), "{refused}");
    let empty = VerifiableCredential::new(Vec::new(), DidMethod::DUNLIN);
    profile(Verifiers::default(), vec![own(empty, &pki().server)]).build().unwrap_err();
}

#[test]
fn a_verifier_of_credentials_resolves_some_method() {
    let refused = profile(trust(&Arc::new(Wallet::of(&[]))), vec![]).build().unwrap_err();
    assert!(refused.to_string().contains("resolves no method of identifiers"), "{refused}");
}

/// draft-vesco-vcauthtls: a client that accepts credentials must send did_methods.
#[test]
fn refuses_a_client_that_accepts_credentials_without_naming_methods() {
    let wallet = Arc::new(Wallet::of(&[DidMethod::DUNLIN]));
    let client = client(profile(trust(&wallet), vec![]));
    let server =
        server(profile(Verifiers::default(), vec![vc("did:dunlin:hub", &pki().server)]), ClientAuth::None);
    let mut pair = Pair::new(&client, &server);
    let mut hello = pair.client.transmit().to_vec();
    let body = extension_at(&hello, ExtensionType::DID_METHODS.0).unwrap();
    // GREASE takes the place of the extension (RFC 8701).
    hello[body.start - 4..body.start - 2].copy_from_slice(&[0x0a, 0x0a]);
    let missing = PeerMisbehaved::MissingExtension(ExtensionType::DID_METHODS);
    assert_eq!(pair.server.receive(NOW, &hello).unwrap_err(), missing.into());
}

/// RFC 8446 §4.1.2: the second ClientHello repeats the first, although what the verifier knows has changed in
/// between.
#[test]
fn asks_the_verifier_once_for_both_client_hellos() {
    let wallet = Wallet { changes: Some(AtomicU64::new(0)), ..Wallet::asking_for_proofs() };
    let profile_of_client = profile(trust(&Arc::new(wallet)), vec![]).send_authorities(true);
    let config = ClientConfig::new(profile_of_client.build().unwrap());
    let client = Arc::new(config.with_key_shares(vec![]).unwrap());
    let own = vec![vc("did:dunlin:hub", &pki().server)];
    let ends = negotiated(&client, &server(profile(Verifiers::default(), own), ClientAuth::None));
    assert!(ends[0].retried);
    assert_eq!(types(&ends), [Some(VC), None]);
}

/// The server's error when a client sends this entry with a proof beside it.
fn server_gets_a_proof(own: Credential, entry: &[u8], trust: Verifiers) -> Error {
    let believer = trust_in_both(&Arc::new(Wallet::asking_for_proofs()));
    server_gets_beside([believer, trust], own, entry, (ExtensionType::DID_PROOF, b"a proof"))
}

fn trust_in_both(wallet: &Arc<Wallet>) -> Verifiers {
    x509().with(wallet.clone())
}

/// RFC 8446 §4.4.2: the extensions of a certificate answer the request for them.
#[test]
fn takes_a_proof_only_if_it_has_requested_one() {
    let vc = vc("did:dunlin:device", &pki().client);
    let entry = credential("did:dunlin:device", &pki().client).bytes;
    let asking = Arc::new(Wallet::asking_for_proofs());
    // The proof is taken, and only the signature does not cover it.
    let error = server_gets_a_proof(vc.clone(), &entry, trust_in_both(&asking));
    assert_eq!(error, PeerMisbehaved::BadSignature.into());
    assert_eq!(*asking.seen.lock().unwrap(), [Some(b"a proof".to_vec())]);
    let unsolicited = || PeerMisbehaved::UnsolicitedExtension(ExtensionType::DID_PROOF).into();
    let not_asking = Arc::new(Wallet::of(&[DidMethod::DUNLIN]));
    assert_eq!(server_gets_a_proof(vc, &entry, trust_in_both(&not_asking)), unsolicited());
    let x509 = pki().client.x509(&awslc());
    assert_eq!(server_gets_a_proof(x509, &pki().client.chain[0], trust_in_both(&asking)), unsolicited());
}

/// A frozen association does not continue with a peer that its verifier no longer believes.
#[test]
fn asks_the_verifier_before_it_thaws_an_association() {
    let wallets = [(); 2].map(|()| Arc::new(Wallet::of(&[DidMethod::DUNLIN])));
    let client = client(profile(trust(&wallets[0]), vec![vc("did:dunlin:device", &pki().client)]));
    let own_server = vec![vc("did:dunlin:hub", &pki().server)];
    let server = server(profile(trust(&wallets[1]), own_server), ClientAuth::Required);
    let mut pair = dunlin_sim::Pair::new(
        DtlsConnection::client(&client, localhost(), SERVER_ADDRESS, NOW).unwrap(),
        DtlsConnection::server(&server, CLIENT_ADDRESS, NOW),
        NOW,
        Duration::from_millis(20),
    );
    pair.run().unwrap();
    let now = pair.now;
    let frozen = [pair.client.freeze(now).unwrap(), pair.server.freeze(now).unwrap()];
    let thaw = |side: usize| match side {
        0 => DtlsConnection::thaw_client(&client, localhost(), &frozen[0], now),
        _ => DtlsConnection::thaw_server(&server, &frozen[1], now),
    };
    for (side, wallet) in wallets.iter().enumerate() {
        assert!(thaw(side).unwrap().negotiated().unwrap().peer.is_some());
        wallet.believes.store(false, Ordering::Relaxed);
        let error = thaw(side).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Authentication(AuthenticationFailure::Rejected(_))), "{error}");
    }
}
