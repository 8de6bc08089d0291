//! Verifiers keep their knowledge of status lists, whatever else holders send.

use dunlin_identity::credential::status::{MAX_STATUS_LISTS, write_staple};
use dunlin_identity::handshake::Known;
use dunlin_identity::knowledge::Knowledge;

use super::*;

/// A credential with a status in the list at this URL.
fn issued(issuer: &Party, device: &Party, url: &str) -> CertificateDer<'static> {
    CertificateDer::from(issuer.issue(device, |credential| {
        let entry = StatusEntry { list: url.to_owned(), index: 7, purpose: StatusPurpose::Revocation };
        credential["credentialStatus"] = entry.to_value();
    }))
}

fn judged(
    verifier: &CredentialVerifier,
    credential: &CertificateDer<'static>,
    list: &[u8],
) -> Result<Box<Verified>, Refusal> {
    let staple = write_staple(&[list]).unwrap();
    let stapled = Stapled { credential_status: Some(&staple), ..Stapled::default() };
    verifier.judge(std::slice::from_ref(credential), stapled, awslc().signatures.all, NOW_S)
}

/// More lists of an issuer than are at hand at one time.
fn send_many(verifier: &CredentialVerifier, issuer: &Party, device: &Party) {
    for number in 0..=MAX_STATUS_LISTS {
        let url = format!("https://issuer.example/other/{number}");
        let list = issuer.published_list(&url, false, 10);
        judged(verifier, &issued(issuer, device, &url), &list).unwrap();
    }
}

#[test]
fn a_revocation_stays_known_however_many_lists_follow() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let known = Arc::new(Known::new(Knowledge::default()));
    let verifier = issuer.verifier().with_known(known.clone());
    let credential = issued(&issuer, &device, LIST);
    let [before, revoked] =
        [(false, 200), (true, 100)].map(|(is_revoked, age)| issuer.published_list(LIST, is_revoked, age));
    let first = judged(&verifier, &credential, &before).unwrap();
    let refusal = judged(&verifier, &credential, &revoked).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_REVOKED);
    send_many(&verifier, &issuer, &device);
    // The list has left; that it was newer has not.
    assert!(verifier.status_lists().iter().all(|list| list.url() != LIST));
    let restarted = issuer.verifier().with_known(known);
    for verifier in [&verifier, &restarted] {
        let refusal = judged(verifier, &credential, &before).unwrap_err();
        assert_eq!(refusal.alert(), Alert::CERTIFICATE_EXPIRED, "{refusal}");
        assert_eq!(belief(verifier, &first), Belief::Unknown);
        let refusal = judged(verifier, &credential, &revoked).unwrap_err();
        assert_eq!(refusal.alert(), Alert::CERTIFICATE_REVOKED);
    }
}

#[test]
fn the_lists_of_the_program_never_leave() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let verifier = issuer.verifier().with_status(lists(issuer.list(true, 10_000)));
    send_many(&verifier, &issuer, &device);
    let credential = issued(&issuer, &device, LIST);
    let refusal = judged(&verifier, &credential, &issuer.published_list(LIST, false, 10_001)).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_REVOKED);
}

/// One issuer, whose document has both keys.
fn with_two_keys() -> [Party; 2] {
    let first = Party::named("did:web:issuer.example");
    let key = key(KeyType::P256);
    let did = first.did().clone();
    let mut value = first.document.value().clone();
    let id = format!("{did}#key-2");
    let method = json!({
        "id": id, "type": "Multikey", "controller": did.as_str(), "publicKeyMultibase": public(&key).to_multikey(),
    });
    value["verificationMethod"].as_array_mut().unwrap().push(method);
    value["assertionMethod"].as_array_mut().unwrap().push(id.into());
    let document = DidDocument::from_value(value, &did).unwrap();
    [first.key, key].map(|key| Party { key, document: document.clone() })
}

#[test]
fn an_older_list_by_another_key_of_the_issuer_stays_refused() {
    let ([first, second], device) = (with_two_keys(), Party::new(KeyType::P256));
    let known = Arc::new(Known::new(Knowledge::default()));
    let credential = issued(&first, &device, LIST);
    let older = first.published_list(LIST, false, 200);
    let revoked = second.published_list(LIST, true, 100);
    let refusal = judged(&first.verifier().with_known(known.clone()), &credential, &revoked).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_REVOKED);
    // After a restart, without any list at hand.
    let restarted = first.verifier().with_known(known.clone());
    let refusal = judged(&restarted, &credential, &older).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_EXPIRED, "{refusal}");
    // Nor does it count when the document no longer has the key of the newer one.
    let alone = CredentialVerifier::new(awslc(), [key_alone(&first)]).with_known(known.clone());
    let refusal = judged(&alone, &credential, &older).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_EXPIRED, "{refusal}");
    assert_eq!(known.len(), 1, "another key takes no place of another list");
}

/// The document of an issuer with this key alone.
fn key_alone(issuer: &Party) -> DidDocument {
    let mut value = issuer.document.value().clone();
    let method = issuer.method().to_string();
    value["verificationMethod"].as_array_mut().unwrap().retain(|other| other["id"] == *method);
    for relationship in ["assertionMethod", "authentication"] {
        value[relationship] = json!([method]);
    }
    DidDocument::from_value(value, issuer.did()).unwrap()
}

/// A thief of a key makes lists as long as the document has the key, and none for the time after.
#[test]
fn lists_of_an_issuer_count_again_when_it_has_removed_a_stolen_key() {
    let ([stolen, kept], device) = (with_two_keys(), Party::new(KeyType::P256));
    let known = Arc::new(Known::new(Knowledge::default()));
    let credential = issued(&kept, &device, LIST);
    let verifier = kept.verifier().with_known(known.clone());
    let refusal = judged(&verifier, &credential, &stolen.published_list(LIST, true, -1)).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_EXPIRED, "{refusal}");
    assert!(known.is_empty() && verifier.status_lists().iter().next().is_none());
    judged(&verifier, &credential, &stolen.published_list(LIST, true, 10)).unwrap_err();
    let removed = CredentialVerifier::new(awslc(), [key_alone(&kept)]).with_known(known);
    judged(&removed, &credential, &stolen.published_list(LIST, false, 5)).unwrap_err();
    judged(&removed, &credential, &kept.published_list(LIST, false, 9)).unwrap();
}

/// A holder may have fetched its list before the issuer has changed its document. Sessions, with which no
/// list comes, go on with the list at hand; so does a full handshake.
#[test]
fn a_list_by_a_removed_key_says_nothing() {
    let ([removed, kept], device) = (with_two_keys(), Party::new(KeyType::P256));
    let verifier = CredentialVerifier::new(awslc(), [key_alone(&kept)]);
    let credential = issued(&kept, &device, LIST);
    let list = removed.published_list(LIST, false, 60);
    let refusal = judged(&verifier, &credential, &list).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_EXPIRED, "{refusal}");
    assert!(verifier.status_lists().iter().next().is_none());
    judged(&verifier, &credential, &kept.published_list(LIST, false, 90)).unwrap();
    judged(&verifier, &credential, &list).unwrap();
    // A list by the removed key does not count: neither for the credential nor against it.
    judged(&verifier, &credential, &removed.published_list(LIST, true, 30)).unwrap();
}

/// Issuers revoke several times in one second.
#[test]
fn of_two_lists_of_one_second_the_one_with_more_bits_stays_known() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let known = Arc::new(Known::new(Knowledge::default()));
    let credential = issued(&issuer, &device, LIST);
    let sides = [(); 2].map(|()| issuer.verifier().with_known(known.clone()));
    let [clear, set] = [false, true].map(|is_revoked| issuer.published_list(LIST, is_revoked, 100));
    judged(&sides[0], &credential, &clear).unwrap();
    judged(&sides[1], &credential, &set).unwrap_err();
    let refusal = judged(&sides[0], &credential, &clear).unwrap_err();
    assert_eq!(refusal.alert(), Alert::CERTIFICATE_EXPIRED, "{refusal}");
}

/// A list in a file of an issuer whose document a resolver has waits for that document. After a restart, no
/// session or cache entry of a revoked credential goes on before the list was read.
#[test]
fn a_waiting_list_ends_sessions_and_cache_entries() {
    for cached in [false, true] {
        for is_at_hand in [true, false] {
            let issuer = Party::named("did:web:issuer.example");
            let device = Party::new(KeyType::P256);
            let hub = Party::new(KeyType::P256);
            let own = device.shows(issuer.issue(&device, with_status));
            let client = client(profile(trust(issuer.verifier()), vec![own]));
            let known = || {
                let known = cache();
                known.insert(issuer.document.clone(), 0, NOW_S).unwrap();
                known
            };
            let verifier = |known: Arc<DocumentCache>, revoked: bool, age: Seconds| {
                let verifier = CredentialVerifier::new(awslc(), Vec::<DidDocument>::new());
                let verifier = verifier.with_resolved_issuers([issuer.did().clone()]).with_resolver(known);
                Verifiers::default().with(Arc::new(
                    verifier.with_unverified_status([issuer.published_list(LIST, revoked, age)]),
                ))
            };
            let shows = || vec![hub.shows(issuer.issue(&hub, unchanged))];
            let first = server(profile(verifier(known(), false, 100), shows()));
            let (client, first) = remembering(&client, &first, cached);
            let connected = || {
                let mut pair = Pair::new(&client, &first);
                pair.connect().unwrap();
                pair.echo(b"hello").unwrap();
                let end = pair.server.negotiated().unwrap();
                if cached { end.is_peer_cached() } else { end.is_resumed() }
            };
            assert_eq!([connected(), connected()], [false, true]);
            // Without the issuer's document, the verdict is unknown, and the full handshake lacks the
            // document.
            let at_hand = if is_at_hand { known() } else { cache() };
            let restarted = ServerConfig::clone(&first).with_trust(verifier(at_hand, true, 50));
            let restarted = Arc::new(restarted.unwrap());
            let mut pair = Pair::new(&client, &restarted);
            pair.run().unwrap_err();
            let alert = if is_at_hand { Alert::CERTIFICATE_REVOKED } else { Alert::BAD_CERTIFICATE };
            assert_eq!(pair.server.error().and_then(Error::alert), Some(alert), "{cached} {is_at_hand}");
        }
    }
}
