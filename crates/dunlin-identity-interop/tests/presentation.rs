//! Presentations.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../../dunlin-identity/tests/keys/mod.rs"]
mod keys;

use std::sync::Arc;

use dunlin::crypto::SigningKey;
use dunlin_identity::credential::proof::ProofError;
use dunlin_identity::credential::status::StatusLists;
use dunlin_identity::credential::{Contexts, CredentialError, Issuer, Seconds, VerifiedCredential, Verifier};
use dunlin_identity::key::KeyError;
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{DidDocument, DidUrl, DocumentError};
use dunlin_identity_interop::{
    Audience, MAX_PRESENTATION, MAX_PRESENTED, PresentationError, present, verify_presentation,
};
use keys::{ed25519, provider, public};
use serde_json::{Value, json};

const NOW: Seconds = 1_677_281_798;
const AUDIENCE: Audience<'_> = Audience { challenge: "c0ffee", domain: "https://verifier.example" };

/// The verification method of a key's `did:key`.
fn method_of(signer: &dyn SigningKey) -> DidUrl {
    let did = KEY.create(&public(signer)).unwrap();
    did.with_fragment(did.identifier()).unwrap()
}

fn document(signer: &dyn SigningKey) -> DidDocument {
    KEY.resolve(method_of(signer).did()).unwrap()
}

/// A credential about `subject`, by the issuer with this key, in all three forms.
fn credentials(issuer: &dyn SigningKey, subject: &DidUrl) -> [Vec<u8>; 3] {
    let provider = provider();
    let method = method_of(issuer);
    let contexts = Contexts::default();
    let value = json!({
        "@context": ["https://www.w3.org/ns/credentials/v2"],
        "type": ["VerifiableCredential"],
        "issuer": method.did().as_str(),
        "credentialSubject": {"id": subject.did().as_str(), "rate": 1e-7},
    });
    let issuer = Issuer { provider: &provider, signer: issuer, method: &method };
    [
        issuer.issue(&value, &contexts, NOW).unwrap().into_bytes(),
        issuer.issue_jwt(&value, &contexts).unwrap().into_bytes(),
        issuer.issue_compact(&value, &contexts).unwrap(),
    ]
}

/// A holder with the key 7, and a credential by the issuer with the key 1 as JSON and as a JWT.
struct Case {
    holder: Arc<dyn SigningKey>,
    texts: [String; 2],
}

fn case() -> Case {
    let holder = ed25519(7);
    let [json, jwt, _] = credentials(&*ed25519(1), &method_of(&*holder));
    Case { holder, texts: [json, jwt].map(|text| String::from_utf8(text).unwrap()) }
}

impl Case {
    fn present(&self, texts: &[&str]) -> Result<String, PresentationError> {
        present(&provider(), &*self.holder, &method_of(&*self.holder), texts, AUDIENCE, NOW)
    }

    fn verify(&self, text: &str) -> Result<Vec<VerifiedCredential>, PresentationError> {
        self.verify_as(text, &document(&*self.holder))
    }

    fn verify_as(
        &self,
        text: &str,
        holder: &DidDocument,
    ) -> Result<Vec<VerifiedCredential>, PresentationError> {
        let verifier = Verifier::new([document(&*ed25519(1))]);
        let lists = StatusLists::default();
        verify_presentation(&verifier, &provider(), text.as_bytes(), holder, AUDIENCE, &lists, NOW)
    }

    /// The refusal after a change of the presentation.
    fn refusal(&self, change: impl FnOnce(&mut Value)) -> PresentationError {
        let mut value = serde_json::from_str(&self.present(&[&self.texts[0]]).unwrap()).unwrap();
        change(&mut value);
        self.verify(&value.to_string()).unwrap_err()
    }
}

#[test]
fn a_holder_presents_credentials() {
    let case = case();
    let [json, jwt] = case.texts.each_ref().map(String::as_str);
    let text = case.present(&[json, jwt]).unwrap();
    let verified = case.verify(&text).unwrap();
    assert_eq!(verified.len(), 2);
    for credential in verified {
        assert_eq!(credential.subject, *method_of(&*case.holder).did());
        assert_eq!(credential.credential["credentialSubject"]["rate"], json!(1e-7));
    }
    assert!(case.verify(&case.present(&[jwt]).unwrap()).is_ok());
}

#[test]
fn a_presentation_serves_one_verifier_and_one_challenge() {
    let case = case();
    let text = case.present(&[&case.texts[0]]).unwrap();
    let verifier = Verifier::new([document(&*ed25519(1))]);
    let verify = |audience| {
        let holder = document(&*case.holder);
        let lists = StatusLists::default();
        verify_presentation(&verifier, &provider(), text.as_bytes(), &holder, audience, &lists, NOW)
    };
    assert!(verify(AUDIENCE).is_ok());
    assert_eq!(verify(Audience { challenge: "c0ffef", ..AUDIENCE }), Err(PresentationError::Challenge));
    let elsewhere = verify(Audience { domain: "https://other.example", ..AUDIENCE });
    assert_eq!(elsewhere, Err(PresentationError::Domain));
    // The proof covers both.
    let wrong = PresentationError::Proof(ProofError::Key(KeyError::Signature));
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    changed["proof"]["challenge"] = json!("c0ffef");
    let audience = Audience { challenge: "c0ffef", ..AUDIENCE };
    let holder = document(&*case.holder);
    let lists = StatusLists::default();
    let refused = verify_presentation(
        &verifier,
        &provider(),
        changed.to_string().as_bytes(),
        &holder,
        audience,
        &lists,
        NOW,
    );
    assert_eq!(refused, Err(wrong));
}

#[test]
fn a_thief_of_a_credential_cannot_present_it() {
    let (case, thief) = (case(), Case { holder: ed25519(8), ..case() });
    let stolen = thief.present(&[&thief.texts[0]]).unwrap();
    assert_eq!(case.verify(&stolen), Err(PresentationError::Holder));
    let subject = CredentialError::Subject(method_of(&*case.holder).did().to_string());
    assert_eq!(thief.verify(&stolen), Err(PresentationError::Credential(0, subject)));

    // In the holder's name, with the thief's key; and with a key that is not for authentication.
    let forged = case.refusal(|value| {
        let mut forged: Value = serde_json::from_str(&stolen).unwrap();
        forged["holder"] = value["holder"].clone();
        *value = forged;
    });
    assert_eq!(forged, PresentationError::Key(DocumentError::Unknown(method_of(&*thief.holder))));
    let did = method_of(&*case.holder);
    let mut asserts = document(&*case.holder).value().clone();
    asserts["authentication"] = json!([]);
    let asserts = DidDocument::from_value(asserts, did.did()).unwrap();
    let refused = case.verify_as(&case.present(&[&case.texts[0]]).unwrap(), &asserts);
    assert_eq!(refused, Err(PresentationError::Key(DocumentError::NotAuthorised(did, "authentication"))));
}

#[test]
fn refuses_presentations_with_the_check_that_failed() {
    let case = case();
    let wrong = PresentationError::Proof(ProofError::Key(KeyError::Signature));
    let member = PresentationError::Member;
    assert_eq!(case.refusal(|value| value["extra"] = json!(1)), wrong);
    assert_eq!(case.refusal(|value| value["verifiableCredential"][0]["name"] = json!("x")), wrong);
    assert_eq!(case.refusal(|value| value["proof"]["created"] = json!("2023-02-24T23:36:37Z")), wrong);
    assert_eq!(case.refusal(|value| value["@context"] = json!([])), member("@context"));
    assert_eq!(case.refusal(|value| value["type"] = json!("VerifiableCredential")), member("type"));
    let purpose = case.refusal(|value| value["proof"]["proofPurpose"] = json!("assertionMethod"));
    let expected = ProofError::Purpose { found: "assertionMethod".into(), expected: "authentication" };
    assert_eq!(purpose, PresentationError::Proof(expected));
    let unsigned = case.refusal(|value| drop(value.as_object_mut().unwrap().remove("proof")));
    assert_eq!(unsigned, PresentationError::Proof(ProofError::Missing));
    let long = format!("{{{}", " ".repeat(MAX_PRESENTATION));
    assert_eq!(case.verify(&long), Err(PresentationError::TooLong));
    assert!(matches!(case.verify("{\"a\":1,\"a\":1}"), Err(PresentationError::Json(_))));

    let text = case.texts[1].as_str();
    assert_eq!(case.present(&[]), Err(PresentationError::Count(0)));
    let many = vec![text; MAX_PRESENTED + 1];
    assert_eq!(case.present(&many), Err(PresentationError::Count(MAX_PRESENTED + 1)));
    assert_eq!(case.present(&["x"]), Err(member("verifiableCredential")));
    assert!(case.verify(&case.present(&many[1..]).unwrap()).is_ok());
    // A credential whose own signature is wrong, signed as a part of the presentation.
    let changed = case.texts[0].replace("1e-7", "2e-7");
    let credential = CredentialError::Proof(ProofError::Key(KeyError::Signature));
    assert_eq!(
        case.verify(&case.present(&[text, &changed]).unwrap()),
        Err(PresentationError::Credential(1, credential))
    );
}
