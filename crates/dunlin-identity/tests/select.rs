//! The choice among several credentials.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use std::sync::Arc;

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier};
use der::{Decode, Tag, Tagged as _};
use dunlin::crypto::SigningKey;
use dunlin::wire::SignatureScheme;
use dunlin_identity::DidUrl;
use dunlin_identity::credential::{Contexts, CredentialError, Issuer, Seconds};
use dunlin_identity::handshake::{Holding, Request, SelectError, issuer_name, select};
use dunlin_identity::method::{JWK, KEY, Method};
use keys::{ed25519, p256, provider, public, rsa};
use serde_json::json;

const NOW: Seconds = 1_677_281_798;

/// The verification method of a key's `did:key`.
fn method_of(signer: &dyn SigningKey) -> DidUrl {
    let did = KEY.create(&public(signer)).unwrap();
    did.with_fragment(did.identifier()).unwrap()
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

/// A credential of the holder with the key 7, a P-256 `did:jwk` alone, and an RSA credential.
fn holdings() -> Vec<Holding> {
    let contexts = Contexts::default();
    let credential = |signer: Arc<dyn SigningKey>, issuer: &dyn SigningKey, form: usize| {
        let method = method_of(&*signer);
        let bytes = credentials(issuer, &method)[form].clone();
        Holding::of_credential(signer, method, bytes, &contexts).unwrap()
    };
    let jwk = JWK.create(&public(&*p256(1))).unwrap().with_fragment("0").unwrap();
    vec![
        Holding::of_did(p256(1), jwk),
        credential(ed25519(7), &*ed25519(1), 2),
        credential(ed25519(7), &*ed25519(2), 1),
        credential(rsa(), &*ed25519(2), 0),
    ]
}

const ED25519: SignatureScheme = SignatureScheme::ED25519;
const ES256: SignatureScheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
const PS256: SignatureScheme = SignatureScheme::RSA_PSS_RSAE_SHA256;

#[test]
fn a_common_method_then_a_scheme_then_an_issuer_then_the_order_decides() {
    let provider = provider();
    let holdings = holdings();
    let place = |credential, methods: &[&str], schemes: &[SignatureScheme], issuers: &[u8]| {
        let named =
            issuers.iter().map(|key| issuer_name(&provider, method_of(&*ed25519(*key)).did().as_str()));
        let issuers: Vec<_> = named.collect();
        let request = Request { credential, methods, schemes, issuers: &issuers };
        let (chosen, scheme) = select(&provider, &holdings, &request)?;
        let place = holdings.iter().position(|holding| std::ptr::eq(holding, chosen)).unwrap();
        Ok::<_, SelectError>((place, scheme))
    };
    let all = ["dunlin", "key", "jwk"];
    // A bare DID never answers the request for a credential.
    assert_eq!(place(true, &all, &[ES256, ED25519, PS256], &[]), Ok((1, ED25519)));
    assert_eq!(place(true, &["jwk"], &[ES256], &[]), Err(SelectError::NoMethod));
    assert_eq!(place(true, &all, &[ES256], &[]), Err(SelectError::NoScheme));
    assert_eq!(place(true, &all, &[PS256, ES256], &[]), Ok((3, PS256)));
    // The peer's order of schemes chooses among those of a key only.
    assert_eq!(place(true, &all, &[PS256, ED25519], &[]), Ok((1, ED25519)));
    // A named issuer comes first; an unknown one changes nothing.
    assert_eq!(place(true, &all, &[ED25519, PS256], &[2]), Ok((2, ED25519)));
    assert_eq!(place(true, &all, &[ED25519, PS256], &[9]), Ok((1, ED25519)));
    assert_eq!(place(true, &all, &[PS256], &[1]), Ok((3, PS256)));
    // A DID: also one that has a credential.
    assert_eq!(place(false, &all, &[ED25519, ES256], &[2]), Ok((0, ES256)));
    assert_eq!(place(false, &["key"], &[ED25519, ES256], &[]), Ok((1, ED25519)));
    assert_eq!(place(false, &["dunlin"], &[ED25519], &[]), Err(SelectError::NoMethod));
    let request = Request { credential: true, methods: &all, schemes: &[ES256], issuers: &[] };
    assert_eq!(select(&provider, &holdings[..1], &request).unwrap_err(), SelectError::NoCredential);
    let request = Request { credential: false, ..request };
    assert_eq!(select(&provider, &[], &request).unwrap_err(), SelectError::Nothing);
}

/// RFC 8446 §4.2.4: authorities are distinguished names in DER. OpenSSL ends the handshake if one is not.
#[test]
fn the_name_of_an_issuer_is_a_distinguished_name() {
    let provider = provider();
    let name = issuer_name(&provider, "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp");
    let content = |der: &[u8], tag: Tag| {
        let any = AnyRef::from_der(der).unwrap();
        assert_eq!(any.tag(), tag);
        any.value().to_vec()
    };
    let attribute = content(&content(&content(&name, Tag::Sequence), Tag::Set), Tag::Sequence);
    let (typ, value) = attribute.split_at(5);
    let typ: ObjectIdentifier = Decode::from_der(typ).unwrap();
    assert_eq!(typ.to_string(), "2.5.4.45");
    let hash = BitStringRef::from_der(value).unwrap();
    let did = b"did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";
    assert_eq!(hash.as_bytes().unwrap(), provider.sha256.hash(&[did]).as_ref());
}

#[test]
fn a_holding_is_about_its_own_did() {
    let signer = ed25519(7);
    let contexts = Contexts::default();
    for form in credentials(&*ed25519(1), &method_of(&*signer)) {
        let holding = |signer: Arc<dyn SigningKey>| {
            let method = method_of(&*signer);
            Holding::of_credential(signer, method, form.clone(), &contexts)
        };
        let own = holding(ed25519(7)).unwrap();
        assert_eq!(own.credential(), Some(form.as_slice()));
        assert_eq!(own.issuer(), Some(method_of(&*ed25519(1)).did().as_str()));
        assert_eq!(own.did(), method_of(&*signer).did());
        let foreign = holding(ed25519(8)).unwrap_err();
        assert_eq!(foreign, CredentialError::Subject(method_of(&*signer).did().to_string()));
    }
    let malformed = Holding::of_credential(ed25519(7), method_of(&*signer), b"x".to_vec(), &contexts);
    assert_eq!(malformed.unwrap_err(), CredentialError::Form);
}
