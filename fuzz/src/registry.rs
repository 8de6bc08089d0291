//! A registry's statements and proofs: a part of the targets `documents` and `proofs`.

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::method::dunlin::registry_of;
use dunlin_identity::transparency::{
    Checkpoint, Hasher, LogEntry, MapLeaf, Nodes, Note, NoteKeyKind, NoteSigner, RegistryTrust,
    SignedCheckpoint, Staple, StateMap, StateProof, Tree, map_key, root_entry,
};
use dunlin_identity::{Did, DidDocument, Sha256Hash};
use std::sync::Arc;

use crate::script::Script;

/// A registry whose signatures are the constant of `dunlin-null`.
pub(crate) struct Registry {
    signers: [NoteSigner; 2],
    trust: RegistryTrust,
}

impl Registry {
    pub(crate) fn new(provider: &CryptoProvider, origin: &str, key: &Arc<dyn SigningKey>) -> Self {
        let signer = |kind| NoteSigner::new(provider, origin, kind, Arc::clone(key)).unwrap();
        let signers = [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(signer);
        let [log, witness] = signers.each_ref().map(|signer| signer.key().clone());
        Self { signers, trust: RegistryTrust::new(log, vec![witness]).unwrap() }
    }

    /// The staple of a document, which is alone in the map.
    pub(crate) fn staple(&self, provider: &CryptoProvider, document: &DidDocument, now_s: u64) -> Staple {
        let hasher = Hasher(provider.sha256);
        let text = document.canonical().to_owned();
        let key = map_key(provider, document.id()).unwrap();
        let leaf = MapLeaf { document: hash(provider, text.as_bytes()), sequence: 0, active: true };
        let map = StateMap::default().with(hasher, key, leaf).unwrap();
        let origin = self.trust.origin().to_owned();
        let operation = [1; 32];
        let last = hasher.leaf(&root_entry(&map.root(hasher)));
        let checkpoint = Checkpoint { origin, size: 2, root: hasher.node(&operation, &last) };
        let signed = SignedCheckpoint::sign(provider, checkpoint, &self.signers, now_s).unwrap();
        let proof = StateProof { map: map.prove(&key), path: vec![operation] }.write();
        let document = text.into_bytes();
        Staple { document, checkpoint: signed.to_string().into_bytes(), proof, membership: Vec::new() }
    }

    /// A staple has one form, and so has the proof in it. A staple that verifies is about the DID and its
    /// registry.
    pub(crate) fn read_staple(&self, provider: &CryptoProvider, did: &Did, bytes: &[u8], now_s: u64) -> bool {
        let Ok(staple) = Staple::read(bytes) else { return false };
        assert_eq!(staple.write().as_deref(), Ok(bytes));
        if let Ok(proof) = StateProof::read(&staple.proof) {
            assert_eq!(proof.write(), staple.proof);
        }
        if let Ok(resolved) = staple.verify(provider, did, &self.trust, None, now_s) {
            assert_eq!(resolved.document.id(), did);
            assert_eq!(registry_of(&resolved.document).as_deref(), Ok(self.trust.origin()));
            assert!(resolved.checkpoint.fresh_until_s >= now_s);
        }
        true
    }
}

/// A note has one form, and so has a checkpoint.
pub(crate) fn read_note(bytes: &[u8]) -> bool {
    let Ok(note) = Note::read(bytes) else { return false };
    assert_eq!(note.to_string().as_bytes(), bytes);
    if let Ok(signed) = SignedCheckpoint::read(bytes) {
        assert_eq!(
            (signed.to_string().as_bytes(), signed.checkpoint().to_string().as_str()),
            (bytes, note.text())
        );
    }
    true
}

/// An entry of the log has one form.
pub(crate) fn read_entry(bytes: &[u8]) -> bool {
    match LogEntry::read(bytes) {
        Ok(LogEntry::Root(root)) => assert_eq!(root_entry(&root), bytes),
        Ok(LogEntry::Operation(operation)) => {
            assert_eq!(operation.canonical().unwrap().as_bytes(), bytes);
        }
        Err(_) => return false,
    }
    true
}

fn hash(provider: &CryptoProvider, bytes: &[u8]) -> Sha256Hash {
    Sha256Hash::of(provider, bytes).unwrap()
}

/// The proof of a DID in a map of others, which has it or not, under a log that ends with the map's root, and
/// changes of its bytes. It verifies exactly if nothing has changed.
pub(crate) fn map_proof(provider: &CryptoProvider, size: u64, chosen: u64, script: &mut Script<'_>) {
    let hasher = Hasher(provider.sha256);
    let key = |number: u64| hash(provider, &number.to_be_bytes());
    let leaf =
        |number: u64| MapLeaf { document: key(!number), sequence: number, active: !number.is_multiple_of(3) };
    let insert = |map: StateMap, number| map.with(hasher, key(number), leaf(number)).unwrap();
    let map = (0..size).fold(StateMap::default(), insert);
    let number = if script.u8().is_multiple_of(2) { chosen } else { size + chosen };
    // As many entries before the last one as there are DIDs.
    let mut log = Tree::default();
    (0..size).for_each(|entry| log.push(hasher, hasher.leaf(&entry.to_be_bytes())));
    log.push(hasher, hasher.leaf(&root_entry(&map.root(hasher))));
    let path = log.inclusion(hasher, size, log.size()).unwrap();
    let root = log.root(hasher, log.size()).unwrap();
    let log = Checkpoint { origin: "registry.example/1".to_owned(), size: log.size(), root };
    let right = StateProof { map: map.prove(&key(number)), path }.write();
    let mut bytes = right.clone();
    while !script.is_empty() {
        let at = script.below(bytes.len() + 1);
        if at < bytes.len() { bytes[at] ^= script.u8() } else { bytes.push(script.u8()) }
    }
    let verified = StateProof::read(&bytes).and_then(|proof| {
        assert_eq!(proof.write(), bytes);
        if number < size {
            let found = proof.verify_presence(hasher, &key(number), leaf(number).document, &log)?;
            assert_eq!((found, map.get(&key(number))), (leaf(number), Some(found)));
            return Ok(());
        }
        proof.verify_absence(hasher, &key(number), &log)
    });
    assert_eq!(verified.is_ok(), bytes == right, "{number} of {size}: {verified:?}");
}
