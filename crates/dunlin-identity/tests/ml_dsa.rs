//! Keys and credentials with ML-DSA-44.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod keys;

use std::sync::Arc;

use dunlin::crypto::SigningKey;
use dunlin_identity::credential::proof::ProofError;
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, CredentialError, Issuer, Seconds, Verifier};
use dunlin_identity::key::{KeyError, KeyType, MAX_BASE64URL, PublicKey, base58btc, multibase_decode};
use dunlin_identity::method::{JWK, KEY, Method, MethodError};
use dunlin_identity::{Did, DidDocument, DidError};
use keys::{ed25519, ml_dsa44, provider, public};
use serde_json::json;

const NOW: Seconds = 1_677_281_798;

fn key() -> Arc<dyn SigningKey> {
    ml_dsa44(7)
}

/// The beginning of a SubjectPublicKeyInfo, as OpenSSL writes it.
const SPKI: [u8; 22] = [
    0x30, 0x82, 0x05, 0x32, 0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11,
    0x03, 0x82, 0x05, 0x21, 0x00,
];

#[test]
fn a_key_has_every_form() {
    let key = public(&*key());
    assert_eq!(key.key_type(), KeyType::MlDsa44);
    let raw = key.spki().strip_prefix(&SPKI).unwrap();
    let multikey = key.to_multikey();
    // multicodec: mldsa-44-pub is 0x1210.
    assert_eq!(multibase_decode(&multikey).unwrap(), [&[0x90, 0x24], raw].concat());
    assert!(multikey.starts_with('u'), "{multikey}");
    let jwk = key.to_jwk();
    assert_eq!((&jwk["kty"], &jwk["alg"]), (&json!("AKP"), &json!("ML-DSA-44")));
    assert_eq!(PublicKey::from_multikey(&multikey), Ok(key.clone()));
    assert_eq!(PublicKey::from_jwk(jwk.as_object().unwrap()), Ok(key.clone()));
    assert_eq!(PublicKey::from_spki(key.spki()), Ok(key));
}

#[test]
fn malformed_keys_are_refused() {
    let malformed = Err(KeyError::Malformed(KeyType::MlDsa44));
    let key = public(&*key());
    let raw = key.spki().strip_prefix(&SPKI).unwrap();
    let short = base58btc(&[0x90, 0x24, 1]);
    assert_eq!(PublicKey::from_multikey(&short), malformed);
    assert_eq!(PublicKey::from_multikey(&base58btc(&[&[0x90, 0x24], raw].concat())), Err(KeyError::TooLong));
    assert_eq!(multibase_decode(&format!("u{}", "A".repeat(MAX_BASE64URL))), Err(KeyError::TooLong));
    let jwk = |name: &str, value| {
        let mut jwk = key.to_jwk();
        jwk[name] = value;
        PublicKey::from_jwk(jwk.as_object().unwrap())
    };
    assert_eq!(jwk("pub", json!("AAAA")), malformed);
    assert_eq!(jwk("priv", json!("AAAA")), Err(KeyError::PrivateKey("priv")));
    assert_eq!(jwk("alg", json!("ML-DSA-65")), Err(KeyError::UnknownType));
}

#[test]
fn a_key_is_too_long_for_dids_that_contain_it() {
    let key = public(&*key());
    assert_eq!(KEY.create(&key), Err(MethodError::Key("key", KeyError::UnknownType)));
    assert_eq!(JWK.create(&key), Err(MethodError::Did(DidError::TooLong)));
}

#[test]
fn credentials_of_every_form_verify() {
    let signer = key();
    let provider = provider();
    let did: Did = "did:web:issuer.example".parse().unwrap();
    let document = DidDocument::of_key(&did, "key-1", &public(&*signer)).unwrap();
    let holder = KEY.create(&public(&*ed25519(7))).unwrap();
    let method = did.with_fragment("key-1").unwrap();
    let issuer = Issuer { provider: &provider, signer: &*signer, method: &method };
    let credential = json!({
        "@context": [CREDENTIALS_V2],
        "type": ["VerifiableCredential"],
        "issuer": did.as_str(),
        "credentialSubject": {"id": holder.as_str()},
    });
    let contexts = Contexts::default();
    let json = issuer.issue(&credential, &contexts, NOW).unwrap();
    assert!(json.contains(r#""cryptosuite":"mldsa44-jcs-2024""#), "{json}");
    let jwt = issuer.issue_jwt(&credential, &contexts).unwrap();
    let compact = issuer.issue_compact(&credential, &contexts).unwrap();
    let verifier = Verifier::new([document]);
    let verify = |bytes: &[u8]| verifier.verify(&provider, bytes, &holder, NOW);
    for bytes in [json.as_bytes(), jwt.as_bytes(), &compact] {
        assert_eq!(verify(bytes).unwrap().issuer_key, public(&*signer));
    }
    // A changed signature, and one in base58btc, which the cryptosuite does not have.
    let (begin, value) = json.split_once(r#""proofValue":"u"#).unwrap();
    let (value, end) = value.split_once('"').unwrap();
    let other = if value.starts_with('A') { "B" } else { "A" };
    let changed = format!(r#"{begin}"proofValue":"u{other}{}"{end}"#, &value[1..]);
    assert_eq!(verify(changed.as_bytes()), Err(CredentialError::Proof(ProofError::Key(KeyError::Signature))));
    let changed = format!(r#"{begin}"proofValue":"z{value}"{end}"#);
    assert_eq!(verify(changed.as_bytes()), Err(CredentialError::Proof(ProofError::Member("proofValue"))));
}
