//! The state machine of `did:dunlin`: which operations it accepts, and why it refuses the others.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod keys;

use dunlin::crypto::SigningKey;
use dunlin_identity::encoding::json::{JsonFault, canonical};
use dunlin_identity::key::{self, KeyError, PublicKey};
use dunlin_identity::method::dunlin::{
    MAX_DOCUMENT, MAX_OPERATION, MAX_ORIGIN, Operation, OperationError, OperationKind, State, first_document,
};
use dunlin_identity::{DidDocument, DocumentError, Relationship, Sha256Hash};
use keys::{ed25519, p256, provider, public};
use serde_json::{Value, json};

const REGISTRY: &str = "registry.example/1";

/// The keys 0 (current), 1 (next) and 9 (recovery).
fn inception() -> DidDocument {
    let document = first_document(&provider(), REGISTRY, &public(&*ed25519(0)), hash(1), hash(9));
    document.unwrap()
}

fn hash(number: u8) -> Sha256Hash {
    Sha256Hash::of_key(&provider(), &public(&*ed25519(number))).unwrap()
}

fn created() -> State {
    let operation = Operation::create(&provider(), &*ed25519(0), &inception()).unwrap();
    State::create(&provider(), &operation).unwrap()
}

/// The operation as text, changed by `change` and signed again by `signer`.
fn forged(operation: &Operation, signer: &dyn SigningKey, change: impl FnOnce(&mut Value)) -> Operation {
    let mut value: Value = serde_json::from_str(&operation.canonical().unwrap()).unwrap();
    value.as_object_mut().unwrap().remove("signature");
    value["key"] = public(signer).to_multikey().into();
    change(&mut value);
    let message = [b"dunlin did operation 1\0", canonical(&value).unwrap().as_bytes()].concat();
    let scheme = public(signer).key_type().default_scheme();
    value["signature"] = key::base58btc(&key::sign(signer, &provider(), scheme, &message).unwrap()).into();
    Operation::read(value.to_string().as_bytes()).unwrap()
}

fn update_of(state: &State) -> Operation {
    let document = state.rotated(&public(&*ed25519(1)), hash(2)).unwrap();
    Operation::update(&provider(), &*ed25519(1), state, &document).unwrap()
}

#[test]
fn a_did_is_created_updated_and_deactivated() {
    let provider = provider();
    let create = Operation::create(&provider, &*ed25519(0), &inception()).unwrap();
    let state = State::create(&provider, &create).unwrap();
    assert_eq!((state.sequence(), state.is_active(), state.did()), (0, true, inception().id()));

    let update = update_of(&state);
    let state = state.apply(&provider, &update).unwrap();
    let keys: Vec<_> =
        state.document().keys(Relationship::Authentication).map(|(_, key)| key.clone()).collect();
    assert_eq!(keys, [public(&*ed25519(1))]);

    // A key of another type follows.
    let p256_hash = Sha256Hash::of_key(&provider, &public(&*p256(3))).unwrap();
    let document = state.rotated(&public(&*ed25519(2)), p256_hash).unwrap();
    let second = Operation::update(&provider, &*ed25519(2), &state, &document).unwrap();
    let state = state.apply(&provider, &second).unwrap();
    let end = Operation::deactivate(&provider, &*p256(3), &state).unwrap();
    let state = state.apply(&provider, &end).unwrap();
    assert_eq!((state.sequence(), state.is_active()), (3, false));

    let texts = [&create, &update, &second, &end].map(|operation| operation.canonical().unwrap());
    let read = texts.map(|text| Operation::read(text.as_bytes()).unwrap());
    assert_eq!(State::replay(&provider, &read), Ok(state));
}

#[test]
fn the_did_is_the_hash_of_the_first_document() {
    let document = inception();
    let did = document.id().as_str();
    let template = document.canonical().replace(did, "did:dunlin:");
    let hash = Sha256Hash::of(&provider(), template.as_bytes()).unwrap();
    assert_eq!(format!("did:dunlin:{}", &hash.to_string()[1..]), did);

    let create = Operation::create(&provider(), &*ed25519(0), &document).unwrap();
    let other = forged(&create, &*ed25519(0), |value| value["document"]["service"] = json!([]));
    assert_eq!(State::create(&provider(), &other), Err(OperationError::NotItsHash));
}

#[test]
fn a_document_with_the_placeholder_is_refused() {
    let text = inception().canonical().replace(inception().id().as_str(), "did:dunlin:");
    let mut template: Value = serde_json::from_str(&text).unwrap();
    template["alsoKnownAs"] = json!(["did:dunlin:"]);
    let hash = Sha256Hash::of(&provider(), canonical(&template).unwrap().as_bytes()).unwrap();
    let did = format!("did:dunlin:{}", &hash.to_string()[1..]);
    let document: Value = serde_json::from_str(&template.to_string().replace("did:dunlin:", &did)).unwrap();

    let create = Operation::create(&provider(), &*ed25519(0), &inception()).unwrap();
    let with = |alias: &str| {
        let operation = forged(&create, &*ed25519(0), |value| {
            value["did"] = did.as_str().into();
            value["document"] = document.clone();
            value["document"]["alsoKnownAs"][0] = alias.into();
        });
        State::create(&provider(), &operation).map(|state| state.did().to_string())
    };
    // Both documents have the same hash; only one of them may have the DID.
    assert_eq!(with(&did), Ok(did.clone()));
    assert_eq!(with("did:dunlin:"), Err(OperationError::Placeholder));
    assert_eq!(with("did:dunlin:#key-0"), Err(OperationError::Placeholder));
}

#[test]
fn a_creation_is_signed_by_a_key_of_the_document() {
    let create = Operation::create(&provider(), &*ed25519(0), &inception()).unwrap();
    let other = forged(&create, &*ed25519(5), |_| ());
    assert_eq!(State::create(&provider(), &other), Err(OperationError::NotListed));
    assert_eq!(State::create(&provider(), &update_of(&created())), Err(OperationError::Creation));
    let late = forged(&create, &*ed25519(0), |value| value["sequence"] = json!(1));
    assert_eq!(State::create(&provider(), &late), Err(OperationError::Sequence { expected: 0, found: 1 }));
}

#[test]
fn a_stolen_current_key_changes_nothing() {
    let state = created();
    let update = update_of(&state);
    let stolen = forged(&update, &*ed25519(0), |_| ());
    assert_eq!(state.apply(&provider(), &stolen), Err(OperationError::NotCommitted));
    let end = Operation::deactivate(&provider(), &*ed25519(1), &state).unwrap();
    let stolen = forged(&end, &*ed25519(0), |_| ());
    assert_eq!(state.apply(&provider(), &stolen), Err(OperationError::NotCommitted));
}

#[test]
fn the_recovery_key_only_deactivates() {
    let state = created();
    let end = Operation::deactivate(&provider(), &*ed25519(9), &state).unwrap();
    assert!(!state.apply(&provider(), &end).unwrap().is_active());
    let update = forged(&update_of(&state), &*ed25519(9), |_| ());
    assert_eq!(state.apply(&provider(), &update), Err(OperationError::NotCommitted));
}

#[test]
fn a_deactivated_did_never_changes_again() {
    let state = created();
    let end = Operation::deactivate(&provider(), &*ed25519(9), &state).unwrap();
    let state = state.apply(&provider(), &end).unwrap();
    let update = forged(&update_of(&created()), &*ed25519(1), |value| {
        value["sequence"] = json!(2);
        value["previous"] = state.latest().to_string().into();
    });
    assert_eq!(state.apply(&provider(), &update), Err(OperationError::Deactivated));
}

#[test]
fn operations_follow_each_other_without_gaps_or_forks() {
    let state = created();
    let update = update_of(&state);
    let next = state.apply(&provider(), &update).unwrap();
    assert_eq!(next.apply(&provider(), &update), Err(OperationError::Sequence { expected: 2, found: 1 }));
    let gap = forged(&update, &*ed25519(1), |value| value["sequence"] = json!(2));
    assert_eq!(state.apply(&provider(), &gap), Err(OperationError::Sequence { expected: 1, found: 2 }));
    let fork = forged(&update, &*ed25519(1), |value| value["previous"] = hash(7).to_string().into());
    assert_eq!(state.apply(&provider(), &fork), Err(OperationError::Previous));
    let create = Operation::create(&provider(), &*ed25519(0), &inception()).unwrap();
    assert_eq!(state.apply(&provider(), &create), Err(OperationError::Creation));
}

#[test]
fn an_operation_counts_for_its_did_and_registry_only() {
    let state = created();
    let document = first_document(&provider(), REGISTRY, &public(&*ed25519(4)), hash(1), hash(9)).unwrap();
    let other = Operation::create(&provider(), &*ed25519(4), &document).unwrap();
    let other = State::create(&provider(), &other).unwrap();
    assert_eq!(
        other.apply(&provider(), &update_of(&state)),
        Err(OperationError::OtherDid(state.did().clone()))
    );
    let elsewhere = forged(&update_of(&state), &*ed25519(1), |value| value["registry"] = "other".into());
    assert_eq!(state.apply(&provider(), &elsewhere), Err(OperationError::OtherRegistry("other".into())));
    let elsewhere = forged(&update_of(&state), &*ed25519(1), |value| {
        value["document"]["dunlin"]["registry"] = "other".into();
    });
    assert_eq!(state.apply(&provider(), &elsewhere), Err(OperationError::OtherRegistry("other".into())));
}

#[test]
fn every_document_commits_to_keys_that_it_does_not_show() {
    let commit = |next: Sha256Hash, recovery| {
        let document = first_document(&provider(), REGISTRY, &public(&*ed25519(0)), next, recovery).unwrap();
        Operation::create(&provider(), &*ed25519(0), &document).unwrap_err()
    };
    assert_eq!(commit(hash(0), hash(9)), OperationError::KnownNextKey);
    assert_eq!(commit(hash(1), hash(0)), OperationError::KnownNextKey);
    assert_eq!(commit(hash(1), hash(1)), OperationError::KnownNextKey);

    let state = created();
    let again = state.rotated(&public(&*ed25519(6)), hash(1)).unwrap();
    assert_eq!(
        Operation::update(&provider(), &*ed25519(1), &state, &again),
        Err(OperationError::KnownNextKey)
    );
    let recovery = forged(&update_of(&state), &*ed25519(1), |value| {
        value["document"]["dunlin"]["recovery"] = hash(8).to_string().into();
    });
    assert_eq!(state.apply(&provider(), &recovery), Err(OperationError::Recovery));
}

#[test]
fn a_changed_operation_has_a_wrong_signature() {
    let state = created();
    let text = update_of(&state).canonical().unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["document"]["dunlin"]["next"] = hash(3).to_string().into();
    let changed = Operation::read(value.to_string().as_bytes()).unwrap();
    assert_eq!(state.apply(&provider(), &changed), Err(OperationError::Key(KeyError::Signature)));
}

#[test]
fn reads_operations_strictly() {
    let text = update_of(&created()).canonical().unwrap();
    assert_eq!(Operation::read(text.as_bytes()).unwrap().kind(), OperationKind::Update);
    let with = |name: &str, value: Value| {
        let mut members: Value = serde_json::from_str(&text).unwrap();
        members[name] = value;
        Operation::read(members.to_string().as_bytes()).unwrap_err()
    };
    assert_eq!(with("extra", json!(1)), OperationError::Unexpected("extra".into()));
    assert_eq!(with("type", json!("create")), OperationError::Unexpected("previous".into()));
    assert_eq!(with("type", json!("x")), OperationError::Member("type"));
    assert_eq!(with("sequence", json!(-1)), OperationError::Member("sequence"));
    assert_eq!(with("sequence", json!(1.5)), OperationError::Member("sequence"));
    assert_eq!(with("previous", json!("z11")), OperationError::Member("previous"));
    assert_eq!(with("previous", json!(format!("u{}", "A".repeat(43)))), OperationError::Member("previous"));
    assert_eq!(with("registry", json!("a b")), OperationError::Member("registry"));
    assert_eq!(with("registry", json!("a".repeat(MAX_ORIGIN + 1))), OperationError::Member("registry"));
    assert_eq!(with("key", json!("z11")), OperationError::Key(KeyError::UnknownType));
    assert_eq!(with("signature", json!("uAAAA")), OperationError::Key(KeyError::Multibase));
    assert!(matches!(
        with("did", json!("did:dunlin:other")),
        OperationError::Document(DocumentError::OtherDid(_))
    ));
    let long = format!("{:>width$}", text, width = MAX_OPERATION + 1);
    let OperationError::Json(error) = Operation::read(long.as_bytes()).unwrap_err() else {
        panic!("a fault of the JSON")
    };
    assert_eq!(error.fault, JsonFault::TooLong(MAX_OPERATION));
}

#[test]
fn bounds_the_document_of_an_operation() {
    let update = update_of(&created());
    let mut value: Value = serde_json::from_str(&update.canonical().unwrap()).unwrap();
    value["document"]["padding"] = "".into();
    let longest = MAX_DOCUMENT - canonical(&value["document"]).unwrap().len();
    value["document"]["padding"] = "x".repeat(longest).into();
    assert!(Operation::read(value.to_string().as_bytes()).is_ok());
    value["document"]["padding"] = "x".repeat(longest + 1).into();
    assert_eq!(Operation::read(value.to_string().as_bytes()), Err(OperationError::LongDocument));
}

#[test]
fn keys_of_operations_are_compared_whatever_their_form() {
    let key = public(&*p256(1));
    let jwk = PublicKey::from_jwk(key.to_jwk().as_object().unwrap()).unwrap();
    assert_eq!(Sha256Hash::of_key(&provider(), &jwk), Sha256Hash::of_key(&provider(), &key));
}

#[test]
fn another_signature_over_an_operation_does_not_change_its_hash() {
    let document = first_document(&provider(), REGISTRY, &public(&*p256(1)), hash(1), hash(9)).unwrap();
    let both = [(); 2].map(|()| Operation::create(&provider(), &*p256(1), &document).unwrap());
    assert_ne!(both[0].canonical(), both[1].canonical());
    let states = both.map(|operation| State::create(&provider(), &operation).unwrap());
    assert_eq!(states[0].latest(), states[1].latest());
}

#[test]
fn every_changed_byte_is_noticed() {
    let state = created();
    let text = update_of(&state).canonical().unwrap();
    for at in 0..text.len() {
        for byte in [b'"', b'0', b'z', text.as_bytes()[at] ^ 1, text.as_bytes()[at] ^ 0x80] {
            let mut changed = text.clone().into_bytes();
            changed[at] = byte;
            let same = changed == text.as_bytes();
            let applied =
                Operation::read(&changed).and_then(|operation| state.apply(&provider(), &operation));
            assert_eq!(applied.is_ok(), same, "byte {at} as {byte:#04x}");
        }
        assert!(Operation::read(&text.as_bytes()[..at]).is_err());
    }
}
