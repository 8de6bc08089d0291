//! A registry, and DIDs in it.

use std::sync::Arc;

use dunlin::crypto::SigningKey;
use dunlin::pki_types::CertificateDer;
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{Operation, State, first_document};
use dunlin_identity::transparency::{
    Checkpoint, Hasher, MapLeaf, Nodes, NoteKeyKind, NoteSigner, RegistryTrust, SignedCheckpoint, Staple,
    StateMap, StateProof, Tree, map_key, root_entry,
};
use dunlin_identity::{Did, DidDocument, Sha256Hash};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_tests::awslc;

pub(crate) const ORIGIN: &str = "registry.example/1";

pub(crate) fn key() -> Arc<dyn SigningKey> {
    KeyPair::generate(KeyType::Ed25519).unwrap().signing_key(&awslc()).unwrap()
}

pub(crate) fn public(key: &Arc<dyn SigningKey>) -> PublicKey {
    PublicKey::from_spki(key.public_key()).unwrap()
}

/// A DID with its keys: the present one, the next one and the one that can only end it.
pub(crate) struct Holder {
    pub(crate) key: Arc<dyn SigningKey>,
    next: Arc<dyn SigningKey>,
    recovery: Arc<dyn SigningKey>,
    pub(crate) state: State,
}

impl Holder {
    pub(crate) fn new() -> Self {
        let (provider, [own, next, recovery]) = (awslc(), [(); 3].map(|()| key()));
        let hash = |key| Sha256Hash::of_key(&provider, &public(key)).unwrap();
        let document =
            first_document(&provider, ORIGIN, &public(&own), hash(&next), hash(&recovery)).unwrap();
        let create = Operation::create(&provider, &*own, &document).unwrap();
        Self { key: own, next, recovery, state: State::create(&provider, &create).unwrap() }
    }

    pub(crate) fn rotate(&mut self) {
        let provider = awslc();
        let next = key();
        let hash = Sha256Hash::of_key(&provider, &public(&next)).unwrap();
        let document = self.state.rotated(&public(&self.next), hash).unwrap();
        let update = Operation::update(&provider, &*self.next, &self.state, &document).unwrap();
        self.state = self.state.apply(&provider, &update).unwrap();
        self.key = std::mem::replace(&mut self.next, next);
    }

    pub(crate) fn end(&mut self) {
        let end = Operation::deactivate(&awslc(), &*self.recovery, &self.state).unwrap();
        self.state = self.state.apply(&awslc(), &end).unwrap();
    }

    pub(crate) fn did(&self) -> &Did {
        self.state.did()
    }

    pub(crate) fn document(&self) -> &DidDocument {
        self.state.document()
    }

    /// The present document, with another registry in it.
    pub(crate) fn document_at(&self, origin: &str) -> DidDocument {
        let document = self.document().canonical().to_string().replace(ORIGIN, origin);
        DidDocument::read(document.as_bytes(), self.did()).unwrap()
    }

    /// The entry in which the holder sends its DID.
    pub(crate) fn entry(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.did().as_str().as_bytes().to_vec())
    }
}

/// Its log has an entry for each operation and each root of the map.
pub(crate) struct Registry {
    origin: &'static str,
    map: StateMap,
    log: Tree,
    signers: [NoteSigner; 2],
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self::at(ORIGIN)
    }

    /// A registry with another origin.
    pub(crate) fn at(origin: &'static str) -> Self {
        let own = key();
        let signer = |kind| NoteSigner::new(&awslc(), origin, kind, own.clone()).unwrap();
        let signers = [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(signer);
        Self { origin, map: StateMap::default(), log: Tree::default(), signers }
    }

    /// A second history, which the same keys sign.
    pub(crate) fn other_history(&self) -> Self {
        let map = StateMap::default();
        let log = Tree::default();
        Self { origin: self.origin, map, log, signers: self.signers.clone() }
    }

    /// Takes the latest state of a DID.
    pub(crate) fn put(&mut self, holder: &Holder) {
        self.put_document(holder.document(), holder.state.sequence(), holder.state.is_active());
    }

    /// Takes a document without any check, as a dishonest registry can.
    pub(crate) fn put_document(&mut self, document: &DidDocument, sequence: u64, active: bool) {
        let provider = awslc();
        let key = map_key(&provider, document.id()).unwrap();
        let hasher = Hasher(provider.sha256);
        let document = Sha256Hash::of(&provider, document.canonical().as_bytes()).unwrap();
        let leaf = MapLeaf { document, sequence, active };
        self.map = self.map.with(hasher, key, leaf).unwrap();
        self.log.push(hasher, hasher.leaf(document.as_bytes()));
        self.log.push(hasher, hasher.leaf(&root_entry(&self.map.root(hasher))));
    }

    pub(crate) fn checkpoint(&self, now_s: u64) -> SignedCheckpoint {
        let provider = awslc();
        let origin = self.origin.to_owned();
        let size = self.log.size();
        let root = self.log.root(Hasher(provider.sha256), size).unwrap();
        let checkpoint = Checkpoint { origin, size, root };
        SignedCheckpoint::sign(&provider, checkpoint, &self.signers, now_s).unwrap()
    }

    /// The proof of a DID, signed at this time.
    pub(crate) fn staple(&self, holder: &Holder, now_s: i64) -> Staple {
        self.staple_of(holder.document(), now_s)
    }

    pub(crate) fn staple_of(&self, document: &DidDocument, now_s: i64) -> Staple {
        let provider = awslc();
        let size = self.log.size();
        let path = self.log.inclusion(Hasher(provider.sha256), size - 1, size).unwrap();
        let proof = StateProof { map: self.map.prove(&map_key(&provider, document.id()).unwrap()), path };
        Staple {
            document: document.canonical().as_bytes().to_vec(),
            checkpoint: self.checkpoint(u64::try_from(now_s).unwrap()).to_string().into_bytes(),
            proof: proof.write(),
            membership: Vec::new(),
        }
    }

    pub(crate) fn trust(&self) -> RegistryTrust {
        let [log, witness] = &self.signers;
        RegistryTrust::new(log.key().clone(), vec![witness.key().clone()]).unwrap()
    }
}
