//! The target `operations`: what a registry appends for a few DIDs, whose holders sign, and of which a
//! stranger sends changed and repeated operations. Every signature with the constant of `dunlin-null` is
//! right, so only the other rules stand between the stranger and a DID.

use std::sync::{Arc, LazyLock};

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::encoding::json::{self, Value};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{
    MAX_OPERATION, Operation, OperationError, OperationKind, State, check_first_document, first_document,
};
use dunlin_identity::{DidDocument, Sha256Hash};
use dunlin_null::null_provider;
use pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::script::Script;

const REGISTRY: &str = "registry.example/1";

/// The DIDs, and the keys that each of them has: the last one is for recovery.
const DIDS: usize = 3;
const KEYS: usize = 6;

/// The most operations of a script.
const MOST: usize = 24;

/// A key that signs with the constant.
struct Key {
    public: PublicKey,
    signer: Arc<dyn SigningKey>,
}

/// Verifies no signatures, but hashes.
static PROVIDER: LazyLock<CryptoProvider> = LazyLock::new(|| {
    let random = Arc::new(dunlin_null::CountingRandom::default());
    CryptoProvider { sha256: dunlin_rustcrypto::provider(random).sha256, ..null_provider() }
});

/// The holder of a DID: its keys, and the first document.
struct Holder {
    keys: [Key; KEYS],
    document: DidDocument,
}

static HOLDERS: LazyLock<Vec<Holder>> = LazyLock::new(|| {
    let real = dunlin_rustcrypto::provider(Arc::new(dunlin_null::CountingRandom::default()));
    let load = |provider: &CryptoProvider, der: Vec<u8>| {
        provider.key_loader.load(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der))).unwrap()
    };
    let key = |number: usize| {
        // The Ed25519 key of a seed (RFC 8410 §7).
        let prefix = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        let seed = [u8::try_from(number).unwrap(); 32];
        let pair = load(&real, [prefix.as_slice(), &seed].concat());
        let public = PublicKey::from_spki(pair.public_key()).unwrap();
        Key { public, signer: load(&PROVIDER, pair.public_key().to_vec()) }
    };
    let holder = |did: usize| {
        let keys: [Key; KEYS] = std::array::from_fn(|number| key(did * KEYS + number));
        let [next, recovery] = [1, KEYS - 1].map(|number| hash(&keys[number]));
        let document = first_document(&PROVIDER, REGISTRY, &keys[0].public, next, recovery).unwrap();
        Holder { keys, document }
    };
    (0..DIDS).map(holder).collect()
});

fn hash(key: &Key) -> Sha256Hash {
    Sha256Hash::of_key(&PROVIDER, &key.public).unwrap()
}

/// The operation that the holder of a DID signs next; `None` if it has no more keys.
fn honest(holder: &Holder, states: &[State], script: &mut Script<'_>) -> Option<Operation> {
    let (provider, Holder { keys, document }) = (&*PROVIDER, holder);
    let recovery = &keys[KEYS - 1];
    let Some(state) = states.iter().find(|state| state.did() == document.id()) else {
        return Some(Operation::create(provider, &*keys[0].signer, document).unwrap());
    };
    let current = keys[..KEYS - 1].get(usize::try_from(state.sequence()).ok()? + 1);
    // A stranger may have changed the commitments of the DID; then its holder can do nothing more.
    match script.u8() % 4 {
        1 => Operation::deactivate(provider, &*recovery.signer, state).ok(),
        2 => Operation::deactivate(provider, &*current?.signer, state).ok(),
        _ => {
            let next = keys[..KEYS - 1].get(usize::try_from(state.sequence()).ok()? + 2)?;
            let document = state.rotated(&current?.public, hash(next)).ok()?;
            Operation::update(provider, &*current?.signer, state, &document).ok()
        }
    }
}

/// An operation as changed by a stranger.
fn changed(operation: &Operation, log: &[Operation], script: &mut Script<'_>) -> Vec<u8> {
    const MEMBERS: [&str; 9] =
        ["type", "registry", "did", "sequence", "previous", "document", "key", "signature", "dunlin"];
    let text = operation.canonical().unwrap();
    let mut value = json::read_bounded(text.as_bytes(), MAX_OPERATION).unwrap();
    let other = log.get(script.below(log.len())).unwrap_or(operation);
    match script.u8() % 5 {
        0 => return text.into_bytes(),
        // A member of another operation.
        1 => {
            let name = MEMBERS[script.below(MEMBERS.len())];
            let other = json::read_bounded(other.canonical().unwrap().as_bytes(), MAX_OPERATION).unwrap();
            match other.get(name) {
                Some(member) => value[name] = member.clone(),
                None => drop(value.as_object_mut().unwrap().remove(name)),
            }
        }
        // A member of the document.
        2 => {
            let name = ["dunlin", "verificationMethod", "authentication", "extra"][script.below(4)];
            let member = json::read(script.bytes()).unwrap_or(Value::Null);
            if let Some(Value::Object(document)) = value.get_mut("document") {
                document.insert(name.to_owned(), member);
            }
        }
        3 => value["sequence"] = u64::from(script.u8()).into(),
        _ => {
            let mut bytes = text.into_bytes();
            for _ in 0..=script.below(4) {
                let at = script.below(bytes.len());
                bytes[at] ^= script.u8();
            }
            return bytes;
        }
    }
    value.to_string().into_bytes()
}

/// The state after an operation that a registry has accepted, and the rules that it obeys.
fn check(before: Option<&State>, operation: &Operation, after: &State) {
    let provider = &*PROVIDER;
    let value = json::read_bounded(operation.canonical().unwrap().as_bytes(), MAX_OPERATION);
    // An entry of the log can always be read again (docs/registry.md).
    let again = Operation::read(operation.canonical().unwrap().as_bytes()).unwrap();
    assert_eq!(again.canonical(), operation.canonical());
    assert_eq!(after.did(), operation.did());
    assert_eq!(after.latest(), operation.hash(provider).unwrap());
    let document = after.document().clone();
    let sequence = after.sequence();
    let restored = State::restore(document, sequence, after.is_active(), after.latest());
    assert_eq!(restored.as_ref(), Ok(after));
    let Some(before) = before else {
        assert_eq!((after.sequence(), after.is_active()), (0, true));
        assert_eq!(check_first_document(provider, after.document()), Ok(()));
        return;
    };
    assert!(before.is_active() && before.did() == after.did());
    assert_eq!(after.sequence(), before.sequence() + 1);
    let value = value.unwrap();
    let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    assert_eq!(text(&value, "previous"), before.latest().to_string());
    let signer = PublicKey::from_multikey(&text(&value, "key")).unwrap();
    let signer = Sha256Hash::of_key(provider, &signer).unwrap().to_string();
    let committed = &before.document().value()["dunlin"];
    let ends = operation.kind() == OperationKind::Deactivate;
    assert!(signer == text(committed, "next") || (ends && signer == text(committed, "recovery")));
    assert_eq!(after.is_active(), !ends);
    let recovery = &after.document().value()["dunlin"]["recovery"];
    assert_eq!(recovery, &committed["recovery"], "the recovery key never changes");
}

/// The target. Returns whether a DID was created.
pub fn run(input: &[u8]) -> bool {
    let provider = &*PROVIDER;
    let mut script = Script::new(input);
    let (mut states, mut log): (Vec<State>, Vec<Operation>) = (Vec::new(), Vec::new());
    for _ in 0..MOST {
        let holder = &HOLDERS[script.below(DIDS)];
        let Some(signed) = honest(holder, &states, &mut script) else { continue };
        let bytes = changed(&signed, &log, &mut script);
        if let Ok(operation) = Operation::read(&bytes) {
            // It may be for the DID of another holder, or make a new one.
            let place = states.iter().position(|state| state.did() == operation.did());
            let before = place.map(|place| states[place].clone());
            let result = match &before {
                None => State::create(provider, &operation),
                Some(state) => state.apply(provider, &operation),
            };
            assert!(result.is_ok() || operation != signed, "{result:?}");
            assert!(
                !matches!(result, Err(OperationError::Canonical(_))),
                "what was read has a canonical form"
            );
            if let Ok(after) = result {
                check(before.as_ref(), &operation, &after);
                match place {
                    Some(place) => states[place] = after,
                    None => states.push(after),
                }
                log.push(operation);
            }
        }
        if script.is_empty() {
            break;
        }
    }
    // An operation is right only in its place.
    for operation in &log {
        let state = states.iter().find(|state| state.did() == operation.did());
        assert!(state.is_some_and(|state| state.apply(provider, operation).is_err()));
    }
    !log.is_empty()
}

/// The initial inputs: DIDs that are created, updated and ended, and some changes.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // The DID; from the second operation on what its holder does; another operation, and what the stranger
    // changes.
    let create = |did: u8| vec![did, 0, 0];
    let next = |did: u8, what: u8| vec![did, what, 0, 0];
    vec![
        create(0),
        [create(0), next(0, 0), next(0, 0), next(0, 0)].concat(),
        [create(0), next(0, 0), next(0, 1), next(0, 0)].concat(),
        [create(1), next(1, 2), create(2), next(2, 0)].concat(),
        [create(0), create(1), vec![0, 0, 1, 1, 4]].concat(),
        [create(0), vec![0, 0, 0, 1, 2]].concat(),
        [create(0), [&[0, 0, 0, 2, 3, 4][..], b"1e16"].concat(), next(0, 0)].concat(),
        [create(0), vec![0, 0, 0, 3, 7]].concat(),
        [create(0), vec![0, 0, 0, 4, 1, 0, 40, 1, 0, 41, 2]].concat(),
    ]
}
