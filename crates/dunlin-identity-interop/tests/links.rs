//! Credentials of the paper's public implementation.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "../../dunlin-identity/tests/keys/mod.rs"]
mod keys;

use std::sync::Arc;

use dunlin::Now;
use dunlin::auth::{Belief, Verifier};
use dunlin::crypto::SigningKey;
use dunlin::pki_types::CertificateDer;
use dunlin::wire::{AlertDescription as Alert, DidMethod, SignatureScheme};
use dunlin_identity::Did;
use dunlin_identity::handshake::{CredentialIdentity, DocumentCache, Refusal};
use dunlin_identity::key::KeyError;
use dunlin_identity_interop::ott::{self, OttDid};
use dunlin_identity_interop::{
    LinksCredential, LinksError, LinksIssuer, LinksRefusal, LinksVerifier, verify,
};
use keys::{ed25519, p256, p384, provider, public, rsa};
use serde_json::{Value, json};

/// 2026-01-01T00:00:00Z.
const NOW: i64 = 1_767_225_600;
const METHOD: &str = "did:ott:3CAB78B6026447E93026D41FAD68222741A432BABE5483EEAB6B62CEF05C0791#keys-1";

fn vector() -> (String, String) {
    let vector: Value = serde_json::from_str(include_str!("data/links/credential.json")).unwrap();
    assert_eq!(vector["method"], METHOD);
    ["signed", "credential"].map(|name| vector[name].as_str().unwrap().to_owned()).into()
}

fn credential() -> LinksCredential {
    LinksCredential {
        id: "urn:a/\"b\"\\c".to_owned(),
        issuer: METHOD.split('#').next().unwrap().to_owned(),
        issuance_date: "2025-06-01T00:00:00Z".to_owned(),
        expiration_date: "2026-06-01T00:00:00Z".to_owned(),
        subject: format!("did:ott:{}:{}", "AB".repeat(32), "cd".repeat(32)),
    }
}

fn issue(credential: &LinksCredential, key: &dyn SigningKey) -> Result<String, LinksError> {
    credential.issue(&provider(), key, METHOD, "2025-06-01T00:00:00Z")
}

fn verified(text: &str, key: &dyn SigningKey) -> Result<LinksCredential, LinksError> {
    let issuer =
        |method: &str, key: &dyn SigningKey| LinksIssuer { method: method.to_owned(), key: public(key) };
    let issuers = [issuer("did:ott:other#keys-1", &*ed25519(6)), issuer(METHOD, key)];
    verify(&provider(), &issuers, text.as_bytes(), NOW).map(|verified| {
        assert_eq!(verified.subject.as_str(), verified.credential.subject);
        verified.credential
    })
}

/// The vector's signature with one of its members changed.
fn changed(change: impl FnOnce(&mut Value)) -> Result<LinksCredential, LinksError> {
    let mut value: Value = serde_json::from_str(&vector().1).unwrap();
    change(&mut value);
    verified(&value.to_string(), &*ed25519(5))
}

/// A credential with one text changed, signed anew.
fn signed(change: impl FnOnce(&mut LinksCredential)) -> Result<LinksCredential, LinksError> {
    let mut credential = credential();
    change(&mut credential);
    verified(&issue(&credential, &*ed25519(5))?, &*ed25519(5))
}

#[test]
fn texts_and_signatures_are_those_of_another_program() {
    let (text, whole) = vector();
    assert_eq!(credential().signed_text(), text);
    // Ed25519 signatures depend on nothing else.
    assert_eq!(issue(&credential(), &*ed25519(5)), Ok(whole.clone()));
    assert_eq!(verified(&whole, &*ed25519(5)), Ok(credential()));
}

#[test]
fn verifies_every_kind_of_key_of_the_public_implementation() {
    for (key, name) in [
        (ed25519(5), "Ed25519VerificationKey2023"),
        (p256(5), "EcdsaSecp256r1VerificationKey2023"),
        (rsa(), "RsaVerificationKey2023"),
    ] {
        let text = issue(&credential(), &*key).unwrap();
        assert!(text.contains(&format!("\t\"proof\":\t{{\n\t\t\"type\":\t\"{name}\",\n")), "{text}");
        assert_eq!(verified(&text, &*key), Ok(credential()));
        assert_eq!(verified(&text.replace("urn:a", "urn:b"), &*key), Err(KeyError::Signature.into()));
    }
    assert_eq!(issue(&credential(), &*p384(5)), Err(KeyError::UnknownType.into()));
    assert_eq!(verified(&vector().1, &*p384(5)), Err(KeyError::UnknownType.into()));
    assert_eq!(verified(&vector().1, &*ed25519(7)), Err(KeyError::Signature.into()));
}

/// The form of the text and what the proof says of itself are not signed, and nothing else.
#[test]
fn the_signature_covers_all_members_but_those_of_the_proof() {
    assert_eq!(changed(|_| {}), Ok(credential()));
    assert_eq!(changed(|value| value["proof"]["type"] = json!("another")), Ok(credential()));
    assert_eq!(changed(|value| value["proof"]["created"] = json!("never")), Ok(credential()));
    for name in ["id", "issuanceDate", "expirationDate"] {
        assert_eq!(
            changed(|value| value[name] = json!("2025-07-01T00:00:00Z")),
            Err(KeyError::Signature.into())
        );
    }
    let subject = changed(|value| value["credentialSubject"]["id"] = json!("did:ott:another"));
    assert_eq!(subject, Err(KeyError::Signature.into()));
    let issuer =
        changed(|value| value["issuer"] = json!(format!("{}:{}", credential().issuer, "cd".repeat(32))));
    assert_eq!(issuer, Err(KeyError::Signature.into()));
}

#[test]
fn refuses_missing_unknown_and_long_members() {
    for name in
        ["@context", "id", "type", "issuer", "issuanceDate", "expirationDate", "credentialSubject", "proof"]
    {
        let missing = changed(|value| drop(value.as_object_mut().unwrap().remove(name)));
        assert_eq!(missing, Err(LinksError::Member(name)));
        assert_eq!(changed(|value| value[name] = json!(["a"])), Err(LinksError::Member(name)));
    }
    for name in ["type", "created", "proofPurpose", "verificationMethod", "proofValue"] {
        let missing = changed(|value| drop(value["proof"].as_object_mut().unwrap().remove(name)));
        assert_eq!(missing, Err(LinksError::Member(name)));
    }
    for (name, value) in [("@context", "https://www.w3.org/ns/credentials/v2"), ("type", "Another")] {
        assert_eq!(changed(|credential| credential[name] = json!(value)), Err(LinksError::Member(name)));
    }
    let purpose = changed(|value| value["proof"]["proofPurpose"] = json!("authentication"));
    assert_eq!(purpose, Err(LinksError::Member("proofPurpose")));
    assert_eq!(
        changed(|value| value["proof"]["proofValue"] = json!("z*")),
        Err(LinksError::Member("proofValue"))
    );
    // The public implementation drops what it does not know, and would believe it signed.
    assert_eq!(changed(|value| value["role"] = json!("admin")), Err(LinksError::Member("@context")));
    let role = changed(|value| value["credentialSubject"]["role"] = json!("admin"));
    assert_eq!(role, Err(LinksError::Member("credentialSubject")));
    assert_eq!(signed(|credential| credential.id = "a".repeat(1001)), Err(LinksError::Member("id")));
    assert!(signed(|credential| credential.id = "a".repeat(1000)).is_ok());
    assert!(matches!(verified("{", &*ed25519(5)), Err(LinksError::Json(_))));
}

#[test]
fn refuses_other_issuers_subjects_and_times() {
    let method = changed(|value| value["proof"]["verificationMethod"] = json!("did:ott:other#keys-1"));
    assert_eq!(method, Err(LinksError::UntrustedIssuer));
    let unknown = changed(|value| value["proof"]["verificationMethod"] = json!("did:ott:unknown#keys-1"));
    assert_eq!(unknown, Err(LinksError::UntrustedIssuer));
    // One trusted issuer does not speak for another.
    assert_eq!(
        signed(|credential| credential.issuer = "did:ott:other".into()),
        Err(LinksError::UntrustedIssuer)
    );
    assert_eq!(signed(|credential| credential.issuer.push('0')), Err(LinksError::UntrustedIssuer));
    assert!(signed(|credential| credential.issuer.push_str(":cd")).is_ok());
    assert!(matches!(signed(|credential| credential.subject = "device".into()), Err(LinksError::Subject(_))));
    let from = |date: &str| signed(|credential| credential.issuance_date = date.to_owned()).map(drop);
    let until = |date: &str| signed(|credential| credential.expiration_date = date.to_owned()).map(drop);
    assert_eq!(from("2026-01-01T00:00:00Z"), Ok(()));
    assert_eq!(from("2026-01-01T00:00:01Z"), Err(LinksError::NotYetValid));
    assert_eq!(until("2026-01-01T00:00:00Z"), Ok(()));
    assert_eq!(until("2025-12-31T23:59:59Z"), Err(LinksError::Expired));
    assert_eq!(from("2026"), Err(LinksError::Member("issuanceDate")));
    assert_eq!(until("never"), Err(LinksError::Member("expirationDate")));
}

/// The handshake verifier's verdict on this credential. `known`: whether the subject's document is at hand.
fn judged(text: &str, known: bool, now: i64) -> Result<CredentialIdentity, LinksRefusal> {
    let provider = Arc::new(provider());
    let cache = Arc::new(DocumentCache::new(Arc::clone(&provider), vec![DidMethod::OTT], 60));
    let subject: Did = credential().subject.parse().unwrap();
    let subject = OttDid::read(&subject).unwrap();
    let key = public(&*p256(9));
    let document = ott::document(&subject.address, "2025-01-01T00:00:00Z", &key, &key).unwrap();
    if known {
        cache.insert(ott::read_document(document.as_bytes(), &subject).unwrap(), 0, NOW).unwrap();
    }
    let issuer = LinksIssuer { method: METHOD.to_owned(), key: public(&*ed25519(5)) };
    let verifier = LinksVerifier::new(Arc::clone(&provider), vec![issuer]).with_resolver(cache);
    let entries = [CertificateDer::from(text.as_bytes().to_vec())];
    let verified = verifier.judge(&entries, provider.signatures.all, now)?;
    assert_eq!(verified.public_key, *key.spki());
    // The credential lasts longer than what this side knows about the document.
    assert_eq!(verified.validity.until_s(), u64::try_from(NOW + 60).unwrap());
    let at = Now::from_unix_ms(u64::try_from(now).unwrap() * 1000);
    assert_eq!(verifier.still_believes(&verified.identity, at), Belief::Holds);
    Ok(CredentialIdentity::of(&verified.identity).unwrap())
}

#[test]
fn handshakes_verify_the_credential_and_resolve_its_subject() {
    let text = vector().1;
    let peer = judged(&text, true, NOW).unwrap();
    assert_eq!((peer.did.as_str(), peer.issuer.as_str()), (&*credential().subject, &*credential().issuer));
    assert_eq!(peer.claims, Some(serde_json::Map::new()));
    let missing = judged(&text, false, NOW).unwrap_err();
    assert_eq!(missing.wanted().map(Did::as_str), Some(&*credential().subject));
    let refused = |text: &str, now| {
        let refusal = judged(text, true, now).unwrap_err();
        assert!(!refusal.is_missing(), "{refusal}");
        refusal.alert()
    };
    assert_eq!(refused("{", NOW), Alert::DECODE_ERROR);
    assert_eq!(refused("{}", NOW), Alert::BAD_CERTIFICATE);
    assert_eq!(refused(&text.replace(METHOD, "did:ott:other#keys-1"), NOW), Alert::UNKNOWN_CA);
    assert_eq!(refused(&text.replace("urn:a", "urn:b"), NOW), Alert::BAD_CERTIFICATE);
    assert_eq!(refused(&text, NOW + 366 * 86_400), Alert::CERTIFICATE_EXPIRED);
}

#[test]
fn handshakes_need_one_credential_a_trusted_issuer_and_an_accepted_signature() {
    let provider = Arc::new(provider());
    let empty = LinksVerifier::new(Arc::clone(&provider), Vec::new());
    assert!(empty.check().is_err());
    assert_eq!(empty.judge(&[], provider.signatures.all, NOW).unwrap_err(), Refusal::Entries.into());
    let issuer = LinksIssuer { method: METHOD.to_owned(), key: public(&*ed25519(5)) };
    let verifier = LinksVerifier::new(Arc::clone(&provider), vec![issuer]);
    let entries = [CertificateDer::from(vector().1.into_bytes())];
    let refusal = verifier.judge(&entries, &[], NOW).unwrap_err();
    assert_eq!(refusal, Refusal::Algorithm(SignatureScheme::ED25519).into());
}
