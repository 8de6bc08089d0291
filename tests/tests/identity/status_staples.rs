//! Status lists beside credentials (`credential_status`, docs/identity.md), as the engine carries them: it
//! reads none.

use std::sync::Arc;

use dunlin::auth::VerifiableCredential;
use dunlin::error::{Malformed, PeerMisbehaved};
use dunlin::wire::{ExtensionType, Field, HandshakeType as H, Unit};
use dunlin::{ClientAuth, Credential, Error, Profile, ProfileBuilder, SsiMessages};
use dunlin_tests::tamper::message;
use dunlin_tests::{Leaf, Pair, awslc};

use crate::ssi_hostile::{SIDES, edited, ends, place, unexpected};
use crate::wallet::{
    DID, PROOF, Prover, VC, Wallet, client, credential, own, pki, profile, server, server_gets_beside, trust,
    x509,
};

const LISTS: &[u8] = b"the status lists of an issuer";

/// With a proof of the DID, too.
fn with_lists(name: &str, leaf: &Leaf, status: &[u8]) -> Credential {
    let credential = credential(name, leaf);
    own(
        VerifiableCredential {
            proofs: Some(Arc::new(Prover(PROOF.to_vec()))),
            status: status.to_vec(),
            ..credential
        },
        leaf,
    )
}

#[test]
fn sends_status_lists_to_those_who_accept_them() {
    for messages in [SsiMessages::Off, SsiMessages::Alone] {
        for accepts in [true, false] {
            let wallets = [(); 2].map(|()| {
                if accepts {
                    Arc::new(Wallet::accepting_status())
                } else {
                    Arc::new(Wallet::asking_for_proofs())
                }
            });
            let end = |wallet, own| profile(trust(wallet), vec![own]).ssi_messages(messages);
            let lists = vec![1; 16 * 1024];
            let client = client(end(&wallets[0], with_lists("did:dunlin:device", &pki().client, &lists)));
            let of_server = end(&wallets[1], with_lists("did:dunlin:hub", &pki().server, &lists));
            let server = server(of_server, ClientAuth::Required);
            Pair::new(&client, &server).connect().unwrap();
            for wallet in &wallets {
                assert_eq!(*wallet.seen.lock().unwrap(), [Some(PROOF.to_vec())]);
                let expected = accepts.then(|| lists.clone());
                assert_eq!(*wallet.seen_status.lock().unwrap(), [expected], "{messages:?}");
            }
        }
    }
    let long = with_lists("did:dunlin:hub", &pki().server, &[1; 16 * 1024 + 1]);
    let refused = Profile::builder(awslc()).credentials(vec![long]).build().unwrap_err();
    assert!(refused.to_string().contains("at most 16384 bytes"), "{refused}");
}

/// Both sides, which accept proofs and status lists of credentials.
fn accepting() -> [ProfileBuilder; 2] {
    ends(SsiMessages::Alone, [VC; 2]).map(|end| end.trust(trust(&Arc::new(Wallet::accepting_status()))))
}

#[test]
fn takes_status_lists_only_if_it_has_requested_them_and_only_once() {
    let lists = || message(H::VC_STATUS.0, LISTS);
    for by in SIDES {
        let insert = |inserted: Vec<Vec<u8>>| {
            move |mut messages: Vec<Vec<u8>>| {
                let at = place(by) + 1;
                messages.splice(at..at, inserted);
                messages
            }
        };
        let unrequested = || unexpected(H::VC_STATUS, H::DID_VERIFY);
        let result = edited(ends(SsiMessages::Alone, [VC; 2]), by, insert(vec![lists()]));
        assert_eq!(result, unrequested());
        // The lists are taken, and only the signature does not cover them.
        let uncovered = || Err(PeerMisbehaved::BadSignature.into());
        assert_eq!(edited(accepting(), by, insert(vec![lists()])), uncovered());
        let proof = || message(H::DID_PROOF.0, PROOF);
        assert_eq!(edited(accepting(), by, insert(vec![proof(), lists()])), uncovered());
        assert_eq!(edited(accepting(), by, insert(vec![lists(), lists()])), unrequested());
        let late = edited(accepting(), by, insert(vec![lists(), proof()]));
        assert_eq!(late, unexpected(H::DID_PROOF, H::DID_VERIFY));
        let empty = edited(accepting(), by, insert(vec![message(H::VC_STATUS.0, &[])]));
        assert_eq!(empty, Err(Malformed::Length(Field::Message(H::VC_STATUS)).into()));
        let long = edited(accepting(), by, insert(vec![message(H::VC_STATUS.0, &[0; 16 * 1024 + 1])]));
        let above =
            Malformed::AboveLimit { what: Field::Message(H::VC_STATUS), max: 16 * 1024, unit: Unit::Bytes };
        assert_eq!(long, Err(above.into()));
        // A bare identifier has no status.
        let bare = ends(SsiMessages::Alone, [DID; 2])
            .map(|end| end.trust(trust(&Arc::new(Wallet::accepting_status().for_type(DID)))));
        assert_eq!(edited(bare, by, insert(vec![lists()])), unrequested());
    }
}

/// RFC 8446 §4.4.2: the extensions of a certificate answer the request for them.
#[test]
fn takes_status_lists_beside_a_certificate_only_if_it_has_requested_them() {
    let gets = |wallet: Arc<Wallet>, lists: &[u8]| {
        let shown = crate::wallet::vc("did:dunlin:device", &pki().client);
        let entry = credential("did:dunlin:device", &pki().client).bytes;
        let beside = (ExtensionType::CREDENTIAL_STATUS, lists);
        (server_gets_beside([x509(), trust(&wallet)], shown, &entry, beside), wallet)
    };
    let (error, wallet) = gets(Arc::new(Wallet::accepting_status()), LISTS);
    assert_eq!(error, Error::from(PeerMisbehaved::BadSignature));
    assert_eq!(*wallet.seen_status.lock().unwrap(), [Some(LISTS.to_vec())]);
    let (error, _) = gets(Arc::new(Wallet::accepting_status()), &[]);
    let what = Field::Extension(ExtensionType::CREDENTIAL_STATUS);
    assert_eq!(error, Error::from(Malformed::Length(what)));
    let (error, _) = gets(Arc::new(Wallet::asking_for_proofs()), LISTS);
    let unsolicited = PeerMisbehaved::UnsolicitedExtension(ExtensionType::CREDENTIAL_STATUS);
    assert_eq!(error, Error::from(unsolicited));
}
