//! Peers on a list of which this side knows only the root.

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

/// Rule 2: a peer is a member of a list, of which this side knows only the root.
#[test]
fn accepts_members_of_a_list_by_their_proofs() {
    let (issuer, device) = (Party::new(KeyType::P256), Party::named("did:web:device.example"));
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
