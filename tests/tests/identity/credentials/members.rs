//! Peers on a list. This side may know only the list's root.

use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin_identity::handshake::Known;
use dunlin_identity::knowledge::Knowledge;

use super::*;

/// Resolves `did:web` to one document, and accepts proofs of a registry.
#[derive(Debug)]
struct BesideCredential(DidDocument);

impl Resolver for BesideCredential {
    fn methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::WEB]
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(b"stapled");
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        vec![KnownRegistry { key_id: *b"registry", oldest_size: 7 }]
    }

    fn resolve(&self, _: &Did, _: Option<&[u8]>, _: Seconds) -> Result<Resolution, ResolveError> {
        Ok(Resolution::constant(self.0.clone()))
    }
}

#[derive(Debug)]
struct Proof(Vec<u8>);

impl DidProofs for Proof {
    fn latest(&self, _: &[KnownRegistry]) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// Rule 2: a peer is a member of a list, and this side knows only the list's root.
#[test]
fn accepts_members_of_a_list_by_their_proofs() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::named("did:web:device.example");
    let provider = awslc();
    let others = [1, 2, 3].map(|number| format!("did:web:other-{number}.example").parse::<Did>().unwrap());
    let members = Members::new(&provider, others.iter().chain([device.did()]).cloned());
    let list = TrustList::default().with_members(members.root(&provider).unwrap());
    let verifier = || {
        let resolver = Arc::new(BesideCredential(device.document.clone()));
        issuer.verifier().with_resolver(resolver).with_peers(list.clone())
    };
    let with_proof = |membership: Option<Vec<u8>>| {
        let mut own = device.shows(issuer.issue(&device, unchanged));
        let [document, checkpoint] = [b"document", b"checked!"].map(|field| field.to_vec());
        let staple = |membership| Staple { document, checkpoint, proof: Vec::new(), membership };
        let proof = membership.map(|membership| staple(membership).write().unwrap());
        if let Credential::Verifiable { credential, .. } = &mut own {
            credential.proofs = proof.map(|proof| Arc::new(Proof(proof)) as Arc<dyn DidProofs>);
        }
        own
    };
    let own = with_proof(Some(members.proof(&provider, device.did()).unwrap()));
    let server = server(profile(trust(verifier()), vec![own.clone()]));
    Pair::new(&client(profile(trust(verifier()), vec![own])), &server).connect().unwrap();
    refused(&with_proof(None), verifier, Alert::UNKNOWN_CA, "not on the list");
    // Beside the proof of an own document, too, whatever has become of that document.
    let [document, checkpoint] = [b"document", b"checked!"].map(|field| field.to_vec());
    let membership = members.proof(&provider, device.did()).unwrap();
    let staple = Staple { document, checkpoint, proof: Vec::new(), membership };
    let known = cache();
    known.insert(device.document.clone(), 1, NOW_S).unwrap();
    let looked_up = || issuer.verifier().with_resolver(known.clone()).with_peers(list.clone());
    let entry = [CertificateDer::from(issuer.issue(&device, unchanged))];
    let judged = |staple: &Staple| {
        let staple = staple.write().unwrap();
        looked_up().judge(
            &entry,
            Stapled { did_proof: Some(&staple), ..Stapled::default() },
            provider.signatures.all,
            NOW_S,
        )
    };
    assert_eq!(CredentialIdentity::of(&judged(&staple).unwrap().identity).unwrap().did, *device.did());
    let without = judged(&Staple { membership: Vec::new(), ..staple }).unwrap_err();
    assert_eq!(without.alert(), Alert::UNKNOWN_CA, "{without}");
    let foreign = members.proof(&provider, &others[0]).unwrap();
    refused(&with_proof(Some(foreign)), verifier, Alert::UNKNOWN_CA, "proof of membership");
}

/// Has no documents, and counts what it is asked.
#[derive(Debug, Default)]
struct Asked(AtomicUsize);

impl Resolver for Asked {
    fn methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::WEB]
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(b"asked");
    }

    fn resolve(&self, did: &Did, _: Option<&[u8]>, _: Seconds) -> Result<Resolution, ResolveError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(ResolveError::NotAtHand(did.clone()))
    }
}

/// A list with this DID, and one that this side knows only by its root.
fn both_lists(member: &Did) -> [TrustList; 2] {
    let members = Members::new(&awslc(), [member.clone()]);
    [TrustList::new([member.clone()]), TrustList::default().with_members(members.root(&awslc()).unwrap())]
}

/// Anyone can write the name of an issuer into a credential, and copy the proof of a member.
#[test]
fn strangers_cost_no_look_up_of_an_issuer() {
    let [issuer, member, stranger] =
        ["issuer", "member", "stranger"].map(|name| Party::named(&format!("did:web:{name}.example")));
    let provider = awslc();
    let membership = Members::new(&provider, [member.did().clone()]).proof(&provider, member.did()).unwrap();
    let [document, checkpoint] = [b"document", b"checked!"].map(|field| field.to_vec());
    let proof = Staple { document, checkpoint, proof: Vec::new(), membership }.write().unwrap();
    let until = Some(NOW_S - 1);
    let given = Resolution { document: issuer.document.clone(), sequence: 0, until };
    for list in both_lists(member.did()) {
        let asked = Arc::new(Asked::default());
        // The issuer has no document at hand, or one that counts no longer.
        let resolved = CredentialVerifier::new(awslc(), Vec::<DidDocument>::new());
        let resolved = resolved.with_resolved_issuers([issuer.did().clone()]);
        for verifier in [resolved, CredentialVerifier::new(awslc(), [given.clone()])] {
            let verifier = verifier.with_resolver(asked.clone()).with_peers(list.clone()).asking();
            let judge = |credential: Vec<u8>| {
                let stapled = Stapled { did_proof: Some(&proof), ..Stapled::default() };
                verifier.judge(&[CertificateDer::from(credential)], stapled, provider.signatures.all, NOW_S)
            };
            let before = asked.0.load(Ordering::Relaxed);
            let refusal = judge(issuer.issue(&stranger, unchanged)).unwrap_err();
            assert_eq!((refusal.alert(), refusal.wanted()), (Alert::UNKNOWN_CA, None), "{refusal}");
            assert_eq!(asked.0.load(Ordering::Relaxed), before);
            let missing = judge(issuer.issue(&member, unchanged)).unwrap_err();
            assert_eq!(missing.wanted(), Some(issuer.did()), "{missing}");
            assert!(asked.0.load(Ordering::Relaxed) > before);
        }
    }
}

/// Not even a list that revokes the credential.
#[test]
fn strangers_leave_no_status_list() {
    let issuer = Party::new(KeyType::P256);
    let member = Party::new(KeyType::P256);
    let stranger = Party::new(KeyType::P256);
    let provider = awslc();
    let staple = dunlin_identity::credential::status::write_staple(&[issuer.published_list(LIST, true, 60)]);
    let staple = staple.unwrap();
    for list in both_lists(member.did()) {
        let known = Arc::new(Known::new(Knowledge::default()));
        let verifier = issuer.verifier().with_known(known.clone()).with_peers(list);
        let entry = [CertificateDer::from(issuer.issue(&stranger, with_status))];
        let stapled = Stapled { credential_status: Some(&staple), ..Stapled::default() };
        let refusal = verifier.judge(&entry, stapled, provider.signatures.all, NOW_S).unwrap_err();
        assert_eq!(refusal.alert(), Alert::UNKNOWN_CA, "{refusal}");
        assert!(known.is_empty() && verifier.status_lists().iter().next().is_none());
    }
}
