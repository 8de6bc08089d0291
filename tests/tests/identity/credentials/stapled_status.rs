//! Status lists that the holder sends beside its credential, so that the peer needs none at hand and no
//! network.

use dunlin::SsiMessages;
use dunlin_identity::credential::status::{StatusError, write_staple};

use super::*;

/// A credential with a status, and beside it these bytes.
fn with_bytes(issuer: &Party, device: &Party, staple: Vec<u8>) -> Credential {
    let mut own = device.shows(issuer.issue(device, with_status));
    if let Credential::Verifiable { credential, .. } = &mut own {
        credential.status = staple;
    }
    own
}

/// A credential with a status, and beside it these lists.
fn beside(issuer: &Party, device: &Party, lists: &[Vec<u8>]) -> Credential {
    with_bytes(issuer, device, write_staple(lists).unwrap())
}

/// Over streams and datagrams, as certificates and in messages of their own, by both sides.
#[test]
fn accepts_a_stapled_status_without_a_list_at_hand() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let hub = Party::new(KeyType::P256);
    let good = issuer.published_list(LIST, false, 60);
    for messages in [SsiMessages::Off, SsiMessages::Beside, SsiMessages::Alone] {
        let end = |own: Credential| profile(trust(issuer.verifier()), vec![own]).ssi_messages(messages);
        let of_device = end(beside(&issuer, &device, std::slice::from_ref(&good)));
        let config = ClientConfig::new(of_device.build().unwrap());
        let server = server(end(beside(&issuer, &hub, std::slice::from_ref(&good))));
        // Also when the server asks for another ClientHello.
        for client in [config.clone(), config.with_key_shares(vec![]).unwrap()].map(Arc::new) {
            let mut pair = Pair::new(&client, &server);
            pair.connect().unwrap();
            assert_eq!(peers(&pair).map(|peer| peer.did), [hub.did().clone(), device.did().clone()]);
        }
        let client = client(end(beside(&issuer, &device, std::slice::from_ref(&good))));
        let client = DtlsConnection::client(&client, localhost(), SERVER_ADDRESS, NOW).unwrap();
        let of_server = DtlsConnection::server(&server, CLIENT_ADDRESS, NOW);
        let mut pair = dunlin_sim::Pair::new(client, of_server, NOW, Duration::from_millis(20));
        pair.run().unwrap();
        for (end, party) in [(&pair.client, &hub), (&pair.server, &device)] {
            let peer = end.negotiated().unwrap().peer.as_ref().and_then(CredentialIdentity::of).unwrap();
            assert_eq!((&peer.did, peer.statuses.len()), (party.did(), 1));
        }
    }
}

/// The list that is at hand counts where the holder's is older, and the holder's where it is newer: also for
/// the credentials of others.
#[test]
fn the_newest_list_counts() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let old = beside(&issuer, &device, &[issuer.published_list(LIST, false, 3600)]);
    let revoked = "the issuer has revoked the credential";
    let knows = || issuer.verifier().with_status(lists(issuer.list(true, 60)));
    refused(&old, knows, Alert::CERTIFICATE_REVOKED, revoked);
    let news = beside(&issuer, &device, &[issuer.published_list(LIST, true, 60)]);
    refused(&news, || issuer.verifier(), Alert::CERTIFICATE_REVOKED, revoked);
    // Also of the same second, with more bits.
    for age in [3600, 60] {
        let believed = || issuer.verifier().with_status(lists(issuer.list(false, age)));
        refused(&news, believed, Alert::CERTIFICATE_REVOKED, revoked);
    }
    // One verifier, two peers: what the first one sends counts for the second, which sends an older list.
    let verifier = Arc::new(issuer.verifier());
    let server = server(profile(Verifiers::default().with(verifier.clone()), vec![old.clone()]));
    let shows = |own: &Credential| client(profile(trust(issuer.verifier()), vec![own.clone()]));
    Pair::new(&shows(&old), &server).connect().unwrap();
    verifier.update_status(|lists| lists.insert(issuer.list(true, 60))).unwrap();
    let error = Pair::new(&shows(&old), &server).run().unwrap_err();
    assert_eq!(error.alert(), Some(Alert::CERTIFICATE_REVOKED), "{error}");
}

#[test]
fn refuses_wrong_lists_beside_a_credential() {
    let issuer = Party::new(KeyType::P256);
    let other = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let day = DEFAULT_STATUS_AGE;
    let good = || issuer.published_list(LIST, false, 60);
    let own = |list: Vec<u8>| beside(&issuer, &device, &[list]);
    let only = || issuer.verifier();
    refused(&own(issuer.published_list(LIST, false, day + 60)), only, Alert::CERTIFICATE_EXPIRED, "too old");
    // One that has expired, or is of the future, says nothing; another one at hand counts.
    for age in [400_060, -60] {
        let untimely = own(issuer.published_list(LIST, false, age));
        refused(&untimely, only, Alert::CERTIFICATE_EXPIRED, "is too old");
        let knows = || issuer.verifier().with_status(lists(issuer.list(false, 60)));
        let server = server(profile(trust(knows()), vec![untimely.clone()]));
        Pair::new(&client(profile(trust(knows()), vec![untimely])), &server).connect().unwrap();
    }
    // By a foreign issuer, whether it is trusted for other credentials or not.
    let foreign = own(other.published_list(LIST, false, 60));
    refused(&foreign, only, Alert::UNKNOWN_CA, "status list beside the credential");
    let both = || CredentialVerifier::new(awslc(), [&issuer, &other].map(|party| party.document.clone()));
    refused(&foreign, both, Alert::BAD_CERTIFICATE, "another issuer than the credential");
    let knows = || both().with_status(lists(issuer.list(false, 100)));
    refused(&foreign, knows, Alert::BAD_CERTIFICATE, "another issuer than the credential");
    // Another list of the same issuer says nothing about this credential.
    let another = "https://issuer.example/status/2";
    refused(&own(issuer.published_list(another, false, 60)), only, Alert::BAD_CERTIFICATE, another);
    let mut forged = good();
    // Another character of base64url, so that the text stays a JWT.
    let last = forged.len() - 10;
    forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
    refused(&own(forged), only, Alert::BAD_CERTIFICATE, "status list beside the credential");
    // A credential or text in place of a list, and no list.
    refused(&own(issuer.issue(&device, with_status)), only, Alert::BAD_CERTIFICATE, "status list");
    refused(&own(b"other".to_vec()), only, Alert::DECODE_ERROR, "status list beside the credential");
    refused(&with_bytes(&issuer, &device, vec![]), only, Alert::BAD_CERTIFICATE, "is not at hand");
    for malformed in
        [vec![0], vec![0, 0], vec![0, 2, 1], [write_staple(&[good()]).unwrap(), vec![0]].concat()]
    {
        let own = with_bytes(&issuer, &device, malformed);
        refused(&own, only, Alert::DECODE_ERROR, "the status lists beside the credential are malformed");
    }
    let twice = with_bytes(&issuer, &device, write_staple(&[good(), good()]).unwrap());
    refused(&twice, only, Alert::DECODE_ERROR, "repeated");
    let many = with_bytes(&issuer, &device, write_staple(&[b"{}"; 4]).unwrap().repeat(2));
    refused(&many, only, Alert::DECODE_ERROR, "more than 4");
}

#[test]
fn a_holding_takes_the_lists_of_its_credential() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let credential = issuer.issue(&device, with_status);
    let holding = || {
        let key = device.key.clone();
        let method = device.method();
        Holding::of_credential(key, method, credential.clone(), &Contexts::default()).unwrap()
    };
    let list = issuer.published_list(LIST, false, 60);
    let own = holding().with_status(std::slice::from_ref(&list)).unwrap().to_tls(&awslc()).unwrap();
    let server = server(profile(trust(issuer.verifier()), vec![own.clone()]));
    Pair::new(&client(profile(trust(issuer.verifier()), vec![own])), &server).connect().unwrap();
    let another = issuer.published_list("https://issuer.example/status/2", false, 60);
    let refused = holding().with_status(&[another]).unwrap_err();
    assert!(refused.to_string().contains("https://issuer.example/status/2"), "{refused}");
    let long = holding().with_status(&vec![list; 5]).unwrap_err();
    assert_eq!(long, StatusError::Staple.into());
}

/// An abbreviated handshake carries no list, and ends when a newer one from any peer revokes the credential.
#[test]
fn a_cached_credential_needs_no_list() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let hub = Party::new(KeyType::P256);
    let old = issuer.published_list(LIST, false, 100);
    let verifier = Arc::new(issuer.verifier());
    let own = hub.shows(issuer.issue(&hub, unchanged));
    let trusts = Verifiers::default().with(verifier.clone());
    let ours = Arc::new(MemoryClientCache::default());
    let theirs = Arc::new(MemoryServerCache::new(8));
    let shows = profile(trust(issuer.verifier()), vec![beside(&issuer, &device, &[old])]);
    let client = (*client(shows)).clone().with_handshake_cache(CacheMode::Compact, ours, DEFAULT_MAX_AGE);
    let server = (*server(profile(trusts, vec![own]))).clone();
    let server = server.with_handshake_cache(CacheMode::Compact, theirs, DEFAULT_MAX_AGE).unwrap();
    let client = Arc::new(client);
    let server = Arc::new(server);
    for cached in [false, true] {
        let mut pair = Pair::new(&client, &server);
        pair.connect().unwrap();
        pair.echo(b"hello").unwrap();
        assert_eq!(pair.server.negotiated().unwrap().is_peer_cached(), cached);
    }
    verifier.update_status(|lists| lists.insert(issuer.list(true, 60))).unwrap();
    let error = Pair::new(&client, &server).run().unwrap_err();
    assert_eq!(error.alert(), Some(Alert::CERTIFICATE_REVOKED), "{error}");
}

/// A verifier keeps neither a list by a key that the profile excludes, nor the lists of a peer that it
/// refuses for another reason than its revocation.
#[test]
fn keeps_lists_only_after_all_checks() {
    let first = Party::named("did:web:issuer.example");
    let second = key(KeyType::Ed25519);
    let method = DidDocument::of_key(first.did(), "key-2", &public(&second)).unwrap();
    let mut document: Value = serde_json::from_str(first.document.canonical()).unwrap();
    let other: Value = serde_json::from_str(method.canonical()).unwrap();
    for name in ["verificationMethod", "assertionMethod"] {
        let more = other[name].as_array().unwrap().clone();
        document[name].as_array_mut().unwrap().extend(more);
    }
    let document = DidDocument::read(document.to_string().as_bytes(), first.did()).unwrap();
    let provider = awslc();
    let device = Party::new(KeyType::P256);
    let entry = [CertificateDer::from(first.issue(&device, with_status))];
    let by_second = Party { key: second, document: method };
    let list = first.published_list(LIST, false, 60);
    let excluded = by_second.published_list(LIST, false, 30);
    let p256: Vec<_> = provider
        .signatures
        .all
        .iter()
        .copied()
        .filter(|algorithm| algorithm.public_key_alg_id() == dunlin::pki_types::alg_id::ECDSA_P256)
        .collect();
    let judged = |verifier: &CredentialVerifier, list: &Vec<u8>| {
        let staple = write_staple(std::slice::from_ref(list)).unwrap();
        let stapled = Stapled { credential_status: Some(&staple), ..Stapled::default() };
        verifier.judge(&entry, stapled, &p256, NOW_S).map(|_| verifier.status_lists().iter().count())
    };
    let verifier = || CredentialVerifier::new(awslc(), [document.clone()]);
    let accepts = verifier();
    assert_eq!(judged(&accepts, &excluded), Err(Refusal::Algorithm(SignatureScheme::ED25519)));
    assert_eq!(accepts.status_lists().iter().count(), 0);
    assert_eq!(judged(&accepts, &list), Ok(1));
    let refuses = verifier().with_peers(TrustList::default());
    assert!(matches!(judged(&refuses, &list), Err(Refusal::Peer(_))));
    assert_eq!(refuses.status_lists().iter().count(), 0);
    // The holder's own revocation is kept.
    let knows = verifier();
    let revoked = judged(&knows, &first.published_list(LIST, true, 60)).unwrap_err();
    assert_eq!((revoked.alert(), knows.status_lists().iter().count()), (Alert::CERTIFICATE_REVOKED, 1));
    // The list says who has signed it.
    let kept = accepts.status_lists();
    let kept = kept.iter().next().unwrap();
    assert!(kept.is_by(&document) && kept.is_by(&first.document) && !kept.is_by(&device.document));
    // A program can fetch a newer list.
    let old = judged(&verifier().asking(), &first.published_list(LIST, false, 400_060)).unwrap_err();
    assert!(old.is_missing(), "{old}");
}

/// The status that the verdict rests on came along, and outlives the handshake.
#[test]
fn sessions_and_cache_entries_begin_with_a_stapled_status() {
    let [issuer, device, hub] = [(); 3].map(|()| Party::new(KeyType::P256));
    let good = issuer.published_list(LIST, false, 60);
    for cached in [false, true] {
        let own = beside(&issuer, &device, std::slice::from_ref(&good));
        let client = client(profile(trust(issuer.verifier()), vec![own]));
        let own = hub.shows(issuer.issue(&hub, unchanged));
        let server = server(profile(trust(issuer.verifier()), vec![own]));
        let (client, server) = remembering(&client, &server, cached);
        let connected = || {
            let mut pair = Pair::new(&client, &server);
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
            let end: Negotiated = pair.server.negotiated().unwrap().clone();
            if cached { end.is_peer_cached() } else { end.is_resumed() }
        };
        assert_eq!([connected(), connected()], [false, true], "{cached}");
    }
}
