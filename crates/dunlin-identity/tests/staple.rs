//! Staples: a verifier's verdicts on DIDs whose proofs come along.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use std::sync::Arc;

use base64ct::{Base64, Encoding};
use dunlin_identity::handshake::{Known, RegistryDocuments, Resolver, Standing};
use dunlin_identity::knowledge::Knowledge;
use dunlin_identity::method::dunlin::{Operation, State, first_document};
use dunlin_identity::transparency::{
    Checkpoint, CheckpointError, DEFAULT_CHECKPOINT_AGE, Hasher, MAX_STAPLE, MAX_STATE_PROOF, MapError,
    MapLeaf, Nodes, NoteError, NoteKeyKind, NoteSigner, RegistryTrust, Resolved, SignedCheckpoint, Staple,
    StapleError, StateMap, StateProof, Tree, map_key, root_entry,
};
use dunlin_identity::{DidDocument, DocumentError, Sha256Hash};
use keys::{ed25519, provider, public};

const ORIGIN: &str = "registry.example/1";
const NOW: u64 = 1_800_000_000;

/// A registry: a map, and a log with its root after each operation.
struct Registry {
    map: StateMap,
    log: Tree,
    signers: [NoteSigner; 2],
}

impl Registry {
    fn new() -> Self {
        let signer = |kind| NoteSigner::new(&provider(), ORIGIN, kind, ed25519(200)).unwrap();
        let signers = [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(signer);
        let mut registry = Self { map: StateMap::default(), log: Tree::default(), signers };
        (50..60).for_each(|number| registry.put(&did(number)));
        registry
    }

    fn put(&mut self, state: &State) {
        let provider = provider();
        let key = map_key(&provider, state.did()).unwrap();
        let document = hash(state.document());
        let leaf = MapLeaf { document, sequence: state.sequence(), active: state.is_active() };
        let hasher = Hasher(provider.sha256);
        self.map = self.map.with(hasher, key, leaf).unwrap();
        self.log.push(hasher, hasher.leaf(document.as_bytes()));
        self.log.push(hasher, hasher.leaf(&root_entry(&self.map.root(hasher))));
    }

    fn checkpoint(&self, now_s: u64) -> SignedCheckpoint {
        let provider = provider();
        let origin = ORIGIN.to_owned();
        let size = self.log.size();
        let root = self.log.root(Hasher(provider.sha256), size).unwrap();
        let checkpoint = Checkpoint { origin, size, root };
        SignedCheckpoint::sign(&provider, checkpoint, &self.signers, now_s).unwrap()
    }

    fn staple(&self, state: &State) -> Staple {
        Staple {
            document: state.document().canonical().as_bytes().to_vec(),
            checkpoint: self.checkpoint(NOW).to_string().into_bytes(),
            proof: self.proof(state).write(),
            membership: Vec::new(),
        }
    }

    fn proof(&self, state: &State) -> StateProof {
        let provider = provider();
        let size = self.log.size();
        let path = self.log.inclusion(Hasher(provider.sha256), size - 1, size).unwrap();
        StateProof { map: self.map.prove(&map_key(&provider, state.did()).unwrap()), path }
    }

    fn trust(&self) -> RegistryTrust {
        let [log, witness] = &self.signers;
        RegistryTrust::new(log.key().clone(), vec![witness.key().clone()]).unwrap()
    }
}

fn hash(document: &DidDocument) -> Sha256Hash {
    Sha256Hash::of(&provider(), document.canonical().as_bytes()).unwrap()
}

fn key_hash(number: u8) -> Sha256Hash {
    Sha256Hash::of_key(&provider(), &public(&*ed25519(number))).unwrap()
}

fn did(number: u8) -> State {
    let keys = (public(&*ed25519(number)), key_hash(100), key_hash(101));
    let document = first_document(&provider(), ORIGIN, &keys.0, keys.1, keys.2).unwrap();
    State::create(&provider(), &Operation::create(&provider(), &*ed25519(number), &document).unwrap())
        .unwrap()
}

fn rotated(state: &State) -> State {
    let document = state.rotated(&public(&*ed25519(100)), key_hash(102)).unwrap();
    let operation = Operation::update(&provider(), &*ed25519(100), state, &document).unwrap();
    state.apply(&provider(), &operation).unwrap()
}

/// The verdict of a verifier without earlier state.
fn verify(registry: &Registry, staple: &Staple, of: &State) -> Result<Resolved, StapleError> {
    let staple = Staple::read(&staple.write().unwrap()).unwrap();
    staple.verify(&provider(), of.did(), &registry.trust(), None, NOW)
}

#[test]
fn the_latest_document_is_proven() {
    let mut registry = Registry::new();
    let state = did(1);
    for (sequence, state) in (0..).zip([state.clone(), rotated(&state)]) {
        registry.put(&state);
        let resolved = verify(&registry, &registry.staple(&state), &state).unwrap();
        assert_eq!((&resolved.document, resolved.sequence), (state.document(), sequence));
        assert_eq!(resolved.checkpoint.checkpoint, registry.checkpoint(NOW));
        assert_eq!(resolved.checkpoint.fresh_until_s, NOW + DEFAULT_CHECKPOINT_AGE);
    }
}

#[test]
fn an_earlier_document_is_refused() {
    let mut registry = Registry::new();
    let state = did(1);
    registry.put(&state);
    let before = registry.staple(&state);
    registry.put(&rotated(&state));
    // The operation with the earlier document is in the log for ever; the map has the new one.
    let mixed = Staple { document: before.document.clone(), ..registry.staple(&rotated(&state)) };
    assert_eq!(verify(&registry, &mixed, &state), Err(MapError::Root.into()));
    // The paths of the entries 21 and 23 differ in length.
    let mixed = Staple { proof: before.proof.clone(), ..mixed };
    assert_eq!(verify(&registry, &mixed, &state), Err(MapError::Path(3).into()));
    // The log still has the root that the earlier document leads to, but not as its last entry.
    let mut old = StateProof::read(&before.proof).unwrap();
    old.path = registry.log.inclusion(Hasher(provider().sha256), 21, 24).unwrap();
    let mixed = Staple { proof: old.write(), ..mixed };
    assert!(matches!(
        verify(&registry, &mixed, &state),
        Err(StapleError::Map(MapError::Path(_) | MapError::Root))
    ));
    // The whole earlier staple passes only while its checkpoint is fresh and none newer was accepted.
    let newest = registry.checkpoint(NOW);
    let refused = before.verify(&provider(), state.did(), &registry.trust(), Some(&newest), NOW);
    let rollback = CheckpointError::Rollback { offered: 22, accepted: 24 };
    assert_eq!(refused, Err(rollback.into()));
    let later = NOW + DEFAULT_CHECKPOINT_AGE + 1;
    let refused = before.verify(&provider(), state.did(), &registry.trust(), None, later);
    assert_eq!(refused, Err(CheckpointError::Stale { found: 0, needed: 1 }.into()));
}

/// A verifier checks the signatures of a checkpoint once. That must change nothing.
#[test]
fn a_checkpoint_that_was_verified_before_still_ends() {
    let mut registry = Registry::new();
    let state = did(1);
    registry.put(&state);
    let before = registry.staple(&state);
    let now = i64::try_from(NOW).unwrap();
    let documents = RegistryDocuments::new(Arc::new(provider()), registry.trust());
    let verify = |staple: &Staple, now| {
        let resolved = documents.verify(state.did(), staple, documents.newest().as_ref(), now);
        resolved.map(|resolved| resolved.sequence)
    };
    let end = now + i64::try_from(DEFAULT_CHECKPOINT_AGE).unwrap();
    for at in [now, now, end] {
        assert_eq!(verify(&before, at), Ok(0));
    }
    assert_eq!(verify(&before, end + 1), Err(CheckpointError::Stale { found: 0, needed: 1 }.into()));
    // Other bytes under the same statement have signatures of their own.
    let mut forged = before.clone();
    let last = forged.checkpoint.len() - 3;
    forged.checkpoint[last] ^= 1;
    assert!(matches!(verify(&forged, now), Err(StapleError::Checkpoint(_))));
    assert_eq!(verify(&before, now), Ok(0));
    registry.put(&rotated(&state));
    assert!(documents.accept(&registry.checkpoint(NOW), None));
    let rollback = CheckpointError::Rollback { offered: 22, accepted: 24 };
    assert_eq!(verify(&before, now), Err(rollback.into()));
}

#[test]
fn a_deactivated_did_is_refused() {
    let mut registry = Registry::new();
    let state = did(1);
    let end = Operation::deactivate(&provider(), &*ed25519(101), &state).unwrap();
    let ended = state.apply(&provider(), &end).unwrap();
    registry.put(&ended);
    let refused = verify(&registry, &registry.staple(&ended), &state);
    assert_eq!(refused, Err(StapleError::Deactivated(state.did().clone())));
}

#[test]
fn wrong_proofs_and_documents_are_refused() {
    let mut registry = Registry::new();
    let state = did(1);
    registry.put(&state);
    let good = registry.staple(&state);
    let other = did(50);
    // The proof of another DID, and of a DID that the registry does not have.
    let refused = Staple { proof: registry.staple(&other).proof, ..good.clone() };
    assert_eq!(verify(&registry, &refused, &state), Err(MapError::Root.into()));
    let unknown = registry.staple(&did(2));
    assert_eq!(verify(&registry, &unknown, &did(2)), Err(MapError::Absent.into()));
    let refused = Staple { proof: Vec::new(), ..good.clone() };
    assert_eq!(verify(&registry, &refused, &state), Err(MapError::Malformed.into()));
    // The document of another DID.
    let refused = verify(&registry, &registry.staple(&other), &state);
    assert_eq!(refused, Err(DocumentError::OtherDid(other.did().clone()).into()));
    // A changed document.
    let document =
        String::from_utf8(good.document.clone()).unwrap().replacen("authentication", "keyAgreement", 1);
    let refused = Staple { document: document.into_bytes(), ..good.clone() };
    assert_eq!(verify(&registry, &refused, &state), Err(MapError::Root.into()));
    // The form of the text does not matter.
    let spaced = [b" ".as_slice(), &good.document].concat();
    assert!(verify(&registry, &Staple { document: spaced, ..good }, &state).is_ok());
}

#[test]
fn checkpoints_are_judged() {
    let mut registry = Registry::new();
    let state = did(1);
    registry.put(&state);
    let good = registry.staple(&state);
    let text = String::from_utf8(good.checkpoint.clone()).unwrap();
    let forged = Staple { checkpoint: text.replacen("\n22\n", "\n23\n", 1).into_bytes(), ..good.clone() };
    let wrong = NoteError::Signature(ORIGIN.to_owned());
    assert_eq!(verify(&registry, &forged, &state), Err(CheckpointError::Note(wrong).into()));
    // A split view: the peer knows another history of this size.
    let mut other = Registry::new();
    other.put(&did(9));
    let newest = other.checkpoint(NOW);
    let refused = good.verify(&provider(), state.did(), &registry.trust(), Some(&newest), NOW);
    assert_eq!(refused, Err(CheckpointError::SplitView { size: 22 }.into()));
}

#[test]
fn a_document_of_another_registry_is_refused() {
    let mut registry = Registry::new();
    let keys = (public(&*ed25519(1)), key_hash(100), key_hash(101));
    let document = first_document(&provider(), "other.example", &keys.0, keys.1, keys.2).unwrap();
    let create = Operation::create(&provider(), &*ed25519(1), &document).unwrap();
    let state = State::create(&provider(), &create).unwrap();
    registry.put(&state);
    let refused = verify(&registry, &registry.staple(&state), &state);
    assert_eq!(refused, Err(StapleError::OtherRegistry("other.example".to_owned())));
}

/// Knowledge of DIDs belongs to the registry's origin, not to its key.
#[test]
fn a_second_key_of_the_registry_leaves_what_is_known() {
    let mut registry = Registry::new();
    let state = did(1);
    registry.put(&state);
    let now = i64::try_from(NOW).unwrap();
    let signer = |kind, number| NoteSigner::new(&provider(), ORIGIN, kind, ed25519(number)).unwrap();
    let new = [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(|kind| signer(kind, 201));
    let [log, own] = registry.signers.each_ref().map(|signer| signer.key().clone());
    let [new_log, new_own] = new.each_ref().map(|signer| signer.key().clone());
    let overlap =
        RegistryTrust::new(log, vec![own, new_own]).unwrap().with_other_key(new_log.clone()).unwrap();
    let known = Arc::new(Known::new(Knowledge::default()));
    let believing =
        |trust: RegistryTrust| RegistryDocuments::new(Arc::new(provider()), trust).with_known(known.clone());
    let documents = believing(registry.trust());
    let settings = |documents: &RegistryDocuments| {
        let mut all = Vec::new();
        documents.settings(&mut |part| all.extend_from_slice(part));
        all
    };
    let before = (registry.staple(&state).write().unwrap(), settings(&documents));
    assert!(documents.resolve(state.did(), Some(&before.0), now).is_ok());

    registry.signers = new;
    let by_new = registry.staple(&state).write().unwrap();
    assert!(documents.resolve(state.did(), Some(&by_new), now).is_err());
    let overlapping = believing(overlap.clone());
    assert_eq!(settings(&overlapping), before.1);
    assert_eq!(overlapping.standing(state.did(), &hash(state.document()), 0), Standing::Latest);
    assert!(overlapping.resolve(state.did(), Some(&by_new), now).is_ok());
    // Beside it, the trust without the second key stays what it is, also if it learns of the other one.
    for other in [overlap.clone(), RegistryTrust::new(new_log, overlap.witnesses()[1..].to_vec()).unwrap()] {
        documents.confirm(&other);
        assert!(documents.resolve(state.did(), Some(&by_new), now).is_err());
        assert!(documents.resolve(state.did(), Some(&before.0), now).is_ok());
    }
}

/// The state map was a line of the checkpoint once, which witnesses cosigned without a check.
#[test]
fn a_staple_of_an_earlier_version_is_refused() {
    let mut registry = Registry::new();
    let state = did(1);
    registry.put(&state);
    let provider = provider();
    let good = registry.staple(&state);
    let map = Base64::encode_string(&registry.map.root(Hasher(provider.sha256)));
    let signed = registry.checkpoint(NOW);
    let text = format!("{}dunlin-map {map}\n", signed.note().text());
    let signature = |signer: &NoteSigner| signer.sign(&provider, &text, NOW).unwrap().to_string();
    let lines: String = registry.signers.iter().map(signature).collect();
    let earlier = Staple { checkpoint: format!("{text}\n{lines}").into_bytes(), ..good };
    let refused = verify(&registry, &earlier, &state).unwrap_err();
    assert_eq!(refused, CheckpointError::Earlier.into());
    assert!(refused.to_string().contains("format of an earlier version"), "{refused}");
}

#[test]
fn a_staple_has_the_form_of_the_wire() {
    let staple = Staple { document: vec![1], checkpoint: vec![2, 2], proof: Vec::new(), membership: vec![3] };
    let bytes = [0, 1, 1, 0, 2, 2, 2, 0, 0, 0, 1, 3];
    assert_eq!(staple.write().unwrap(), bytes);
    assert_eq!(Staple::read(&bytes), Ok(staple.clone()));
    for end in 0..bytes.len() {
        assert!(matches!(Staple::read(&bytes[..end]), Err(StapleError::Field(_))), "{end}");
    }
    assert_eq!(Staple::read(&[&bytes[..], &[0]].concat()), Err(StapleError::Field("membership")));
    assert_eq!(Staple::read(&[0, 0, 0, 1, 1, 0, 0, 0, 0]), Err(StapleError::Field("document")));
    assert_eq!(Staple::read(&[0, 1, 1, 0, 0, 0, 0, 0, 0]), Err(StapleError::Field("checkpoint")));
    assert_eq!(Staple::read(&vec![1; MAX_STAPLE + 1]), Err(StapleError::TooLong));

    let long = Staple { proof: vec![0; MAX_STATE_PROOF + 1], ..staple.clone() };
    assert_eq!(long.write(), Err(StapleError::Field("proof")));
    let empty = Staple { document: Vec::new(), ..staple.clone() };
    assert_eq!(empty.write(), Err(StapleError::Field("document")));
    let long = Staple { document: vec![0; MAX_STAPLE], ..staple };
    assert_eq!(long.write(), Err(StapleError::TooLong));
}
