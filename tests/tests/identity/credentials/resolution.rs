//! Handshakes when the documents of holders and issuers change, are old or are not at hand.

use super::*;

#[test]
fn refuses_deactivated_and_outdated_identifiers() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::named("did:web:device.example");
    let own = device.shows(issuer.issue(&device, unchanged));
    let known = cache();
    let old = cache();
    let ended = cache();
    known.insert(device.document.clone(), 1, NOW_S).unwrap();
    old.insert(device.document.clone(), 1, NOW_S - 3601).unwrap();
    ended.insert(device.document.clone(), 1, NOW_S).unwrap();
    ended.deactivate(device.did().clone());
    let again = ended.insert(device.document.clone(), 2, NOW_S);
    assert_eq!(again, Err(ResolveError::Deactivated(device.did().clone())));
    let verifier = |cache: &Arc<DocumentCache>| issuer.verifier().with_resolver(cache.clone());
    refused(&own, || verifier(&old), Alert::BAD_CERTIFICATE, "too old");
    refused(&own, || verifier(&cache()), Alert::BAD_CERTIFICATE, "is not at hand");
    refused(&own, || verifier(&ended), Alert::CERTIFICATE_REVOKED, "is deactivated");
    // The knowledge of another resolver counts, too, whichever has a document.
    let [later, both] = [cache(), cache()];
    later.insert(device.document.clone(), 2, NOW_S).unwrap();
    both.insert(device.document.clone(), 1, NOW_S).unwrap();
    for knows in [&later, &ended] {
        let verifier = || verifier(&both).with_resolver(knows.clone());
        refused(&own, verifier, Alert::CERTIFICATE_REVOKED, "no longer the latest");
    }
    let server = server(profile(trust(verifier(&known)), vec![own.clone()]));
    Pair::new(&client(profile(trust(verifier(&known)), vec![own])), &server).connect().unwrap();
}

/// This side's knowledge of an issuer counts like its knowledge of a peer: a rotation or deactivation ends
/// the issuer's credentials, and a resolution counts for a limited time.
#[test]
fn refuses_deactivated_and_outdated_issuers() {
    let issuer = Party::named("did:web:issuer.example");
    let device = Party::new(KeyType::P256);
    let own = device.shows(issuer.issue(&device, unchanged));
    let listed = TrustList::new([issuer.did().clone()]);
    let at = |resolved_s: Seconds| {
        let known = cache();
        known.insert(issuer.document.clone(), 1, resolved_s).unwrap();
        let resolver: Arc<dyn Resolver> = known.clone();
        let resolved = ListedIssuers::of(&awslc(), &listed, &[resolver], &[], resolved_s).unwrap().resolved;
        (CredentialVerifier::new(awslc(), resolved).with_resolver(known.clone()), known)
    };
    let rotated = |known: &DocumentCache| {
        known.insert(Party::named(issuer.did().as_str()).document, 2, NOW_S).unwrap();
    };
    let changed = |change: &dyn Fn(&DocumentCache)| {
        let (verifier, known) = at(NOW_S);
        change(&known);
        verifier
    };
    let outdated = "the document of did:web:issuer.example is no longer the latest";
    refused(&own, || changed(&rotated), Alert::CERTIFICATE_REVOKED, outdated);
    let deactivated = |known: &DocumentCache| known.deactivate(issuer.did().clone());
    refused(&own, || changed(&deactivated), Alert::CERTIFICATE_REVOKED, outdated);
    refused(&own, || at(NOW_S - 3601).0, Alert::BAD_CERTIFICATE, "issuer.example is not at hand, or too old");

    // The verdict ends with the resolution of the issuer. One that was looked up again counts again.
    let entry = [CertificateDer::from(issuer.issue(&device, unchanged))];
    let provider = awslc();
    let judged = |verifier: &CredentialVerifier| {
        verifier.judge(&entry, Stapled::default(), provider.signatures.all, NOW_S)
    };
    let (verifier, known) = at(NOW_S - 3000);
    let validity = judged(&verifier).unwrap().validity;
    assert_eq!(validity.until_s(), u64::try_from(NOW_S + 600).unwrap());
    assert_eq!(validity.reason(), AskAgain::Resolution);
    let (late, again) = at(NOW_S - 3601);
    again.insert(issuer.document.clone(), 1, NOW_S).unwrap();
    let verified = judged(&late).unwrap();
    assert_eq!(verified.validity.until_s(), u64::try_from(NOW_S + 3600).unwrap());
    // Sessions end, too.
    assert_eq!(belief(&verifier, &verified), Belief::Holds);
    rotated(&known);
    assert_eq!(belief(&verifier, &verified), Belief::Ended);
}

/// An issuer whose document the program has not given: the latest that a resolver knows counts.
#[test]
fn a_resolved_issuer_counts_with_its_latest_document() {
    let issuer = Party::named("did:web:issuer.example");
    let device = Party::new(KeyType::P256);
    let known = cache();
    let listed = TrustList::new([issuer.did().clone()]);
    let resolvers: [Arc<dyn Resolver>; 1] = [known.clone()];
    let of_list = |later: &[DidMethod]| ListedIssuers::of(&awslc(), &listed, &resolvers, later, NOW_S);
    assert_eq!(of_list(&[]).unwrap_err(), ResolveError::NotAtHand(issuer.did().clone()));
    let listed = of_list(&[DidMethod::WEB]).unwrap();
    assert_eq!((listed.resolved.len(), &listed.others[..]), (0, &[issuer.did().clone().into()][..]));
    let verifier = || {
        let verifier = CredentialVerifier::new(awslc(), listed.resolved.clone());
        verifier.with_resolved_issuers(listed.others.clone()).with_resolver(known.clone())
    };
    let provider = awslc();
    let judged = |credential: Vec<u8>, lists: Option<&[u8]>| {
        let stapled = Stapled { credential_status: lists, ..Stapled::default() };
        verifier().judge(&[CertificateDer::from(credential)], stapled, provider.signatures.all, NOW_S)
    };
    let old = || issuer.issue(&device, unchanged);
    let missing = judged(old(), None).unwrap_err();
    assert_eq!((missing.wanted(), missing.is_missing()), (Some(issuer.did()), true), "{missing}");
    refused(&device.shows(old()), verifier, Alert::BAD_CERTIFICATE, "issuer.example is not at hand");
    // The verifier asks for no documents of other issuers.
    let stranger = Party::named("did:web:stranger.example");
    let by_stranger = judged(stranger.issue(&device, unchanged), None).unwrap_err();
    assert_eq!((by_stranger.alert(), by_stranger.wanted()), (Alert::UNKNOWN_CA, None), "{by_stranger}");

    known.insert(issuer.document.clone(), 1, NOW_S - 600).unwrap();
    let first = judged(old(), None).unwrap();
    assert_eq!(first.validity.until_s(), u64::try_from(NOW_S + 3000).unwrap());
    assert_eq!(first.validity.reason(), AskAgain::Resolution);
    let peer = CredentialIdentity::of(&first.identity).unwrap();
    let hash = Sha256Hash::of(&provider, issuer.document.canonical().as_bytes()).unwrap();
    assert_eq!(peer.issuer_document, Some((hash, 1)));
    // Lists beside the credential are by the same document.
    let staple = |list: Vec<u8>| dunlin_identity::credential::status::write_staple(&[list]).unwrap();
    let with_list = issuer.issue(&device, with_status);
    judged(with_list.clone(), Some(&staple(issuer.published_list(LIST, false, 60)))).unwrap();
    let revoked = judged(with_list, Some(&staple(issuer.published_list(LIST, true, 60)))).unwrap_err();
    assert_eq!(revoked.alert(), Alert::CERTIFICATE_REVOKED, "{revoked}");
    let server = server(profile(trust(verifier()), vec![device.shows(old())]));
    let mut pair = Pair::new(&client(profile(trust(verifier()), vec![device.shows(old())])), &server);
    pair.connect().unwrap();
    // With the document itself, the same verdict would rest on something else.
    assert_eq!(belief(&verifier(), &first), Belief::Holds);
    assert_eq!(belief(&issuer.verifier().with_resolver(known.clone()), &first), Belief::Ended);

    let rotated = Party::named(issuer.did().as_str());
    known.insert(rotated.document.clone(), 2, NOW_S).unwrap();
    let second = judged(rotated.issue(&device, unchanged), None).unwrap();
    let beliefs = [&second, &first].map(|verified| belief(&verifier(), verified));
    assert_eq!(beliefs, [Belief::Holds, Belief::Ended]);
    // A list by the previous key is forgotten. That it was there is not: only a later one by the new key
    // counts.
    let remembers = verifier();
    remembers.update_status(|lists| lists.insert(issuer.list(false, 60))).unwrap();
    let entry = [CertificateDer::from(rotated.issue(&device, with_status))];
    let judge = |stapled| remembers.judge(&entry, stapled, provider.signatures.all, NOW_S);
    let missing = judge(Stapled::default()).unwrap_err();
    assert!(missing.to_string().contains("is not at hand"), "{missing}");
    let [earlier, later] = [90, 30].map(|age| staple(rotated.published_list(LIST, false, age)));
    let with = |staple| Stapled { credential_status: Some(staple), ..Stapled::default() };
    assert_eq!(judge(with(&earlier)).unwrap_err().alert(), Alert::CERTIFICATE_EXPIRED);
    judge(with(&later)).unwrap();
    judge(Stapled::default()).unwrap();
    refused(&device.shows(old()), verifier, Alert::BAD_CERTIFICATE, "signature");
    // One that is pinned to its first document does not change its key.
    let pinned = |document: &DidDocument| {
        let pin = Some(Sha256Hash::of(&provider, document.canonical().as_bytes()).unwrap());
        let verifier = CredentialVerifier::new(awslc(), Vec::<DidDocument>::new());
        let issuer = ListedIssuer { did: document.id().clone(), pin };
        verifier.with_resolved_issuers([issuer]).with_resolver(known.clone())
    };
    let by_second = device.shows(rotated.issue(&device, unchanged));
    let outdated = "the document of did:web:issuer.example is no longer the latest";
    refused(&by_second, || pinned(&issuer.document), Alert::CERTIFICATE_REVOKED, outdated);
    assert_eq!(belief(&pinned(&issuer.document), &second), Belief::Ended);
    assert_eq!(belief(&pinned(&rotated.document), &second), Belief::Holds);
    known.deactivate(issuer.did().clone());
    assert_eq!(belief(&verifier(), &second), Belief::Ended);
    let later = device.shows(rotated.issue(&device, unchanged));
    refused(&later, verifier, Alert::CERTIFICATE_REVOKED, "did:web:issuer.example is deactivated");
}

/// A list's pins of peers say nothing about issuers, whose latest document counts.
#[test]
fn pins_of_peers_resolve_no_issuer() {
    let provider = awslc();
    let hash = || Sha256Hash::of_key(&provider, &public(&key(KeyType::P256))).unwrap();
    let own = key(KeyType::P256);
    let document = first_document(&provider, "registry.example", &public(&own), hash(), hash()).unwrap();
    let issuer = Party { key: own, document };
    let pin = Sha256Hash::of(&provider, issuer.document.canonical().as_bytes()).unwrap();
    let list = TrustList::read(&format!("{} {pin}", issuer.did())).unwrap();
    let pinned = || Arc::new(PinnedDocuments::new(&provider, &list, [issuer.document.clone()]).unwrap());
    let registry = Arc::new(DocumentCache::new(awslc(), vec![DidMethod::DUNLIN], 3600));
    let verifier = || {
        let verifier = CredentialVerifier::new(awslc(), Vec::<DidDocument>::new());
        let verifier = verifier.with_resolved_issuers([issuer.did().clone()]).with_resolver(pinned());
        verifier.with_peers(list.clone()).with_resolver(registry.clone())
    };
    let own = issuer.shows(issuer.issue(&issuer, unchanged));
    refused(&own, verifier, Alert::BAD_CERTIFICATE, "is not at hand");
    registry.insert(issuer.document.clone(), 0, NOW_S).unwrap();
    let server = server(profile(trust(verifier()), vec![own.clone()]));
    Pair::new(&client(profile(trust(verifier()), vec![own])), &server).connect().unwrap();
    // A pin to another document than the one at hand.
    let wrong = TrustList::read(&format!("{} {}", issuer.did(), hash())).unwrap();
    let resolvers: [Arc<dyn Resolver>; 1] = [registry];
    let listed = ListedIssuers::of(&provider, &wrong, &resolvers, &[], NOW_S);
    assert_eq!(listed.unwrap_err(), ResolveError::NotPinned(issuer.did().clone()));
}

/// A verifier that must look a document up asks, and only for a credential by a trusted issuer.
#[test]
fn asks_for_a_document_that_is_not_at_hand() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::named("did:web:device.example");
    let known = cache();
    let pki = Pki::shared(dunlin_tests::KeyType::P256);
    let verifier = Arc::new(issuer.verifier().with_resolver(known.clone()).asking());
    let trust = Verifiers::default().with(verifier.clone());
    let server = server(profile(trust, vec![pki.server.x509(&awslc())]));
    let x509 = Trust { x509: Some(pki.trust()), raw_key: None };
    let shows = |credential| client(profile(x509.clone(), vec![device.shows(credential)]));
    let mut pair = Pair::new(&shows(issuer.issue(&device, unchanged)), &server);
    pair.run().unwrap();
    let (id, question) = pair.server_question().unwrap();
    let Question::Verify { certificates, did_proof, algorithms, .. } = question else {
        panic!("{question:?}")
    };
    known.insert(device.document.clone(), 1, NOW_S).unwrap();
    let stapled = Stapled { did_proof: did_proof.as_deref(), ..Stapled::default() };
    let verified = verifier.judge(&certificates, stapled, &algorithms, NOW_S).unwrap();
    let answer = Acceptance::within(verified.validity).with_peer(verified);
    pair.server.answer(NOW, id, Answer::Verified(Ok(answer))).unwrap();
    pair.connect().unwrap();
    let peer = pair.server.negotiated().unwrap().peer.as_ref().and_then(CredentialIdentity::of).unwrap();
    assert_eq!((&peer.did, peer.sequence), (device.did(), 1));

    let by_other = Party::new(KeyType::P256).issue(&device, unchanged);
    let mut pair = Pair::new(&shows(by_other), &server);
    let error = pair.run().unwrap_err();
    assert_eq!(error.alert(), Some(Alert::UNKNOWN_CA), "{error}");
}

#[test]
fn a_cache_of_documents_keeps_the_latest_version_and_a_limited_number() {
    let known = DocumentCache::new(awslc(), vec![DidMethod::WEB], 3600).with_capacity(2);
    let parties = [1, 2, 3].map(|number| Party::named(&format!("did:web:device-{number}.example")));
    let version = |sequence| known.resolve(parties[0].did(), None, NOW_S).unwrap().sequence == sequence;
    known.insert(parties[0].document.clone(), 2, NOW_S).unwrap();
    known.insert(parties[0].document.clone(), 1, NOW_S).unwrap();
    assert!(version(2));
    known.insert(parties[1].document.clone(), 0, NOW_S + 1).unwrap();
    known.insert(parties[2].document.clone(), 0, NOW_S + 2).unwrap();
    let missing = |party: &Party| known.resolve(party.did(), None, NOW_S + 2).is_err();
    assert_eq!([0, 1, 2].map(|at| missing(&parties[at])), [true, false, false]);
    // A DID that the cache keeps stays, whatever else is added.
    known.keep(parties[1].did());
    known.insert(Party::named("did:web:device-8.example").document, 0, NOW_S + 3).unwrap();
    assert_eq!([1, 2].map(|at| missing(&parties[at])), [false, true]);
    known.insert(parties[2].document.clone(), 0, NOW_S + 4).unwrap();
    // Deactivations take no place of a document, and none is forgotten.
    for number in 4..7 {
        known.deactivate(Party::named(&format!("did:web:device-{number}.example")).did().clone());
    }
    assert_eq!([1, 2].map(|at| missing(&parties[at])), [false; 2]);
    let why = |number: u8| {
        let did = format!("did:web:device-{number}.example").parse().unwrap();
        known.resolve(&did, None, NOW_S).unwrap_err()
    };
    assert!([4, 5, 6].map(why).iter().all(|why| matches!(why, ResolveError::Deactivated(_))));
}

#[test]
fn a_cache_of_documents_shows_no_two_histories() {
    let other_key = |party: &Party| {
        let mut document = party.document.value().clone();
        let key = Party::new(KeyType::P256).document;
        document["verificationMethod"][0]["publicKeyMultibase"] =
            key.value()["verificationMethod"][0]["publicKeyMultibase"].clone();
        DidDocument::read(document.to_string().as_bytes(), party.did()).unwrap()
    };
    // Of two look-ups of a did:web, the later one counts, in whatever order they end.
    let web = Party::named("did:web:device.example");
    let known = cache();
    let newer = other_key(&web);
    for (document, at) in [(&newer, NOW_S), (&web.document, NOW_S - 1)] {
        known.insert(document.clone(), 0, at).unwrap();
        assert_eq!(known.resolve(web.did(), None, NOW_S).unwrap().document, newer);
    }
    known.insert(web.document.clone(), 0, NOW_S + 1).unwrap();
    assert_eq!(known.resolve(web.did(), None, NOW_S).unwrap().document, web.document);
    // A registry numbers the documents of a did:dunlin.
    let dunlin = Party::named("did:dunlin:device");
    let known = DocumentCache::new(awslc(), vec![DidMethod::DUNLIN], 3600);
    known.insert(dunlin.document.clone(), 3, NOW_S).unwrap();
    let conflict = ResolveError::Conflict(dunlin.did().clone(), 3);
    assert_eq!(known.insert(other_key(&dunlin), 3, NOW_S + 1), Err(conflict));
    assert_eq!(known.resolve(dunlin.did(), None, NOW_S).unwrap().document, dunlin.document);
    known.insert(other_key(&dunlin), 4, NOW_S).unwrap();
    assert_eq!(known.resolve(dunlin.did(), None, NOW_S).unwrap().sequence, 4);
}
