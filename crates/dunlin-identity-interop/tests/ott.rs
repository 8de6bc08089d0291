//! `did:ott`, whose documents are on a ledger.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../../dunlin-identity/tests/keys/mod.rs"]
mod keys;

use dunlin_identity::key::KeyError;
use dunlin_identity::{Did, Relationship};
use dunlin_identity_interop::ott::{self, MAX_OTT_DOCUMENT, OttDid, OttError, OttMessage};
use keys::{ed25519, p256, p384, provider, public, rsa};
use serde_json::{Value, json};

fn did(text: &str) -> Did {
    text.parse().unwrap()
}

/// The message of the vector: document, address, bytes.
fn vector() -> (String, [u8; 32], Vec<u8>) {
    let vector: Value = serde_json::from_str(include_str!("data/did-ott/message.json")).unwrap();
    let text = |name: &str| vector[name].as_str().unwrap().to_owned();
    let hex = |name: &str| base16ct::lower::decode_vec(text(name)).unwrap();
    (text("document"), hex("address").try_into().unwrap(), hex("message"))
}

fn message() -> Result<OttMessage, OttError> {
    let (document, ..) = vector();
    OttMessage::sign(&provider(), &*ed25519(2), &public(&*ed25519(1)), document.as_bytes())
}

#[test]
fn ledger_messages_are_those_of_another_program() {
    let (document, address, bytes) = vector();
    let own = message().unwrap();
    assert_eq!((own.address(), own.to_bytes().unwrap()), (address, bytes.clone()));
    assert_eq!(OttMessage::address_of(&public(&*ed25519(2)), &public(&*ed25519(1))), Ok(address));
    let first = public(&*ed25519(3));
    let second = public(&*ed25519(4));
    assert_eq!(ott::document(&address, "2023-01-01T00:00:00Z", &first, &second), Ok(document.clone()));

    assert_eq!(OttMessage::read(&provider(), &bytes, &address).unwrap().document(), document.as_bytes());
    // The bytes that the public implementation appends are not needed.
    assert_eq!(OttMessage::read(&provider(), &bytes[..bytes.len() - 32], &address), Ok(own.clone()));
    let twice = base16ct::lower::encode_string(base16ct::upper::encode_string(&bytes).as_bytes());
    assert_eq!(OttMessage::read_data(&provider(), &twice, &address), Ok(own));

    let ott = OttDid { address, message: [0xcd; 32] };
    let document = ott::read_document(document.as_bytes(), &ott).unwrap();
    assert_eq!(*document.id(), ott.did().unwrap());
    let keys = |relationship| document.keys(relationship).map(|(_, key)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(Relationship::Authentication), [first]);
    assert_eq!(keys(Relationship::AssertionMethod), [second]);
}

#[test]
fn an_ott_did_has_an_address_and_a_message() {
    let (_, address, _) = vector();
    let ott = OttDid { address, message: [0xcd; 32] };
    let text = ott.did().unwrap().to_string();
    assert_eq!(text.len(), 137);
    assert_eq!(OttDid::read(&did(&text)), Ok(ott));
    let small = format!("did:ott:{}", text[8..].to_lowercase());
    assert_eq!(OttDid::read(&did(&small)), Ok(ott));
    for bad in [&text[..72], &text[..136], &format!("{text}0"), &format!("{text}:0"), "did:ott:x:y"] {
        assert_eq!(OttDid::read(&did(bad)), Err(OttError::Did), "{bad}");
    }
    assert_eq!(OttDid::read(&did(&text.replace("did:ott", "did:btc"))), Err(OttError::Did));
}

#[test]
fn refuses_forged_ledger_messages() {
    let (_, address, bytes) = vector();
    let read = |bytes: &[u8]| OttMessage::read(&provider(), bytes, &address);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(read(&changed).is_err(), "byte {at}");
        // Without what is appended, it is whole.
        assert!(read(&bytes[..at]).is_err() || at == bytes.len() - 32);
    }
    let changed = |at: usize| {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        read(&changed)
    };
    assert_eq!(changed(0), Err(OttError::Tag));
    assert_eq!(changed(34), Err(OttError::Address));
    assert_eq!(changed(66), Err(OttError::Address));
    assert_eq!(changed(98), Err(OttError::Key(KeyError::Signature)));
    assert_eq!(changed(200), Err(OttError::Key(KeyError::Signature)));
    assert_eq!(OttMessage::read(&provider(), &bytes, &[0; 32]), Err(OttError::Address));
    let mut long = bytes;
    long[32..34].copy_from_slice(&0xffff_u16.to_le_bytes());
    assert_eq!(read(&long), Err(OttError::LongDocument));
    let refused = OttMessage::read_data(&provider(), &"30".repeat(10_000), &address);
    assert_eq!(refused, Err(OttError::Message));
    assert_eq!(OttMessage::read_data(&provider(), "xy", &address), Err(OttError::Message));

    let sign = |signer: &dyn dunlin::crypto::SigningKey, document: &[u8]| {
        OttMessage::sign(&provider(), signer, &public(&*ed25519(1)), document).map(|_| ())
    };
    assert_eq!(sign(&*p256(1), b"{}"), Err(OttError::Key(KeyError::UnknownType)));
    assert_eq!(sign(&*ed25519(2), &[b' '; MAX_OTT_DOCUMENT]), Ok(()));
    assert_eq!(sign(&*ed25519(2), &[b' '; MAX_OTT_DOCUMENT + 1]), Err(OttError::LongDocument));
}

#[test]
fn an_ott_document_is_that_of_its_did() {
    let (document, address, _) = vector();
    let ott = OttDid { address, message: [0; 32] };
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = serde_json::from_str(&document).unwrap();
        change(&mut value);
        ott::read_document(value.to_string().as_bytes(), &ott).unwrap_err()
    };
    let other = OttDid { address: [0; 32], ..ott };
    assert_eq!(ott::read_document(document.as_bytes(), &other), Err(OttError::OtherDid));
    assert_eq!(with(&|value| value["id"] = json!(other.base())), OttError::OtherDid);
    assert_eq!(with(&|value| value["id"] = json!(1)), OttError::Member("id"));
    let set = |name: &'static str, member: &'static str, content: Value| {
        with(&|value| value[name][member] = content.clone())
    };
    let controller = set("authenticationMethod", "controller", json!(other.base()));
    assert_eq!(controller, OttError::Member("controller"));
    assert_eq!(set("assertionMethod", "publicKeyPem", json!("x")), OttError::Member("publicKeyPem"));
    let certificate = document.replace("PUBLIC KEY", "CERTIFICATE");
    assert_eq!(ott::read_document(certificate.as_bytes(), &ott), Err(OttError::Member("publicKeyPem")));
    let missing = with(&|value| drop(value.as_object_mut().unwrap().remove("assertionMethod")));
    assert_eq!(missing, OttError::Member("assertionMethod"));
    let doubled = document.replacen('{', "{\"id\":\"\",", 1);
    assert!(matches!(ott::read_document(doubled.as_bytes(), &ott), Err(OttError::Document(_))));

    // The keys that the public implementation has, and its name for each.
    for (key, name) in [(rsa(), "Rsa"), (p256(1), "EcdsaSecp256r1"), (ed25519(1), "Ed25519")] {
        let text = ott::document(&address, "2023-01-01T00:00:00Z", &public(&*key), &public(&*key)).unwrap();
        assert!(text.contains(&format!("\"type\":\t\"{name}VerificationKey2023\"")));
        let read = ott::read_document(text.as_bytes(), &ott).unwrap();
        assert_eq!(read.methods()[0].key.as_ref(), Some(&public(&*key)));
    }
    let strange = public(&*p384(1));
    assert_eq!(
        ott::document(&address, "2023", &strange, &strange),
        Err(OttError::Key(KeyError::UnknownType))
    );
    assert_eq!(ott::document(&address, "\"", &strange, &strange), Err(OttError::Member("created")));
}
