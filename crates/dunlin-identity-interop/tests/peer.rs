//! `did:peer`, a further method beside `did:key` and `did:jwk`.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../../dunlin-identity/tests/keys/mod.rs"]
mod keys;

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin_identity::key::{KeyError, KeyType, base58btc};
use dunlin_identity::method::{JWK, KEY, Method, MethodError, Methods};
use dunlin_identity::{Did, DidDocument, DocumentError, Relationship};
use dunlin_identity_interop::PEER;
use serde_json::Value;

const KEY_DID: &str = "did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH";

fn resolve(identifier: &str) -> Result<DidDocument, MethodError> {
    PEER.resolve(&format!("did:peer:{identifier}").parse().unwrap())
}

#[test]
fn algorithm_0_is_equivalent_to_did_key() {
    let methods = Methods::new([&KEY as &dyn Method, &JWK, &PEER]);
    let by_key = methods.resolve(&KEY_DID.parse().unwrap()).unwrap();
    let (_, key) = by_key.keys(Relationship::Authentication).next().unwrap();
    let did = PEER.create(key).unwrap();
    assert_eq!(did.as_str(), KEY_DID.replace("key:", "peer:0"));
    let text = by_key.canonical().replace(KEY_DID, did.as_str());
    assert_eq!(methods.resolve(&did).unwrap().canonical(), text);
}

#[test]
fn algorithm_2_agrees_with_the_example_of_its_specification() {
    let mut published: Value = serde_json::from_str(include_str!("data/did-peer/numalgo2.json")).unwrap();
    // Optional, and of an algorithm that is not supported.
    published.as_object_mut().unwrap().remove("alsoKnownAs");
    let did: Did = published["id"].as_str().unwrap().parse().unwrap();
    let document = PEER.resolve(&did).unwrap();
    assert_eq!(document.value(), &published);
    let ids: Vec<_> = document.keys(Relationship::Authentication).map(|(id, _)| id.to_string()).collect();
    assert_eq!(ids, [format!("{did}#key-1")]);
    assert_eq!(document.keys(Relationship::AssertionMethod).count(), 0);
}

#[test]
fn refuses_malformed_identifiers() {
    let key = KEY_DID.trim_start_matches("did:key:");
    assert!(resolve(&format!("2.V{key}.A{key}")).is_ok());
    for identifier in [
        "0uAAAA",
        &format!("1{key}"),
        &format!("3{key}"),
        &format!("2V{key}"),
        &format!("2.X{key}"),
        &format!("2.V{key}."),
        "2.Sa",
    ] {
        assert_eq!(resolve(identifier), Err(MethodError::Encoding("peer")), "{identifier}");
    }
    let short = base58btc(&[0xed, 1, 0]);
    assert_eq!(
        resolve(&format!("0{short}")),
        Err(MethodError::Key("peer", KeyError::Malformed(KeyType::Ed25519)))
    );
    let refused = resolve(&format!("2.V{short}")).unwrap_err();
    assert!(matches!(refused, MethodError::Document(DocumentError::Key(_, KeyError::Malformed(_)))));
    let array = Base64UrlUnpadded::encode_string(b"[]");
    assert_eq!(resolve(&format!("2.S{array}")), Err(MethodError::Encoding("peer")));
    let twice = Base64UrlUnpadded::encode_string(br#"{"t":"dm","t":"dm"}"#);
    assert!(matches!(resolve(&format!("2.S{twice}")), Err(MethodError::Json(_))));
    assert_eq!(PEER.resolve(&KEY_DID.parse().unwrap()), Err(MethodError::Unknown("key".into())));
}

#[test]
fn bounds_the_number_of_keys() {
    let keys =
        |count: usize| format!("2{}", ".Vz6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH".repeat(count));
    assert!(resolve(&keys(16)).is_ok());
    assert_eq!(resolve(&keys(17)), Err(MethodError::Document(DocumentError::TooManyMethods)));
}

#[test]
fn a_key_is_too_long_for_a_did_that_contains_it() {
    let key = keys::public(&*keys::ml_dsa44(7));
    assert_eq!(PEER.create(&key), Err(MethodError::Key("peer", KeyError::UnknownType)));
}
