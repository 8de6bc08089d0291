//! How documents reach the verifiers of a run, except from a cache: beside the credential, or by a look-up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::auth::{Acceptance, DidProofs, KnownRegistry};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::wire::DidMethod;
use dunlin::{Answer, Question};
use dunlin_identity::credential::Seconds;
use dunlin_identity::handshake::{Refusal, RegistryDocuments, Resolution, ResolveError, Resolver, Stapled};
use dunlin_identity::transparency::{
    Checkpoint, Hasher, MapLeaf, NodeHash, Nodes, NoteKeyKind, NoteSigner, RegistryTrust, SignedCheckpoint,
    Staple, StateMap, StateProof, Tree, map_key, root_entry,
};
use dunlin_identity::{Did, DidDocument, Sha256Hash};
use dunlin_pki::{KeyPair, KeyType};
use fastrand::Rng;

use super::case::Asking;
use super::node::{Found, LookUpBytes, Node};
use super::people::{Holder, Judge, People, REGISTRY, random_hash, seconds};
use crate::Error;
use crate::error::failed;

/// A registry's state with all holders among many other DIDs, from which their staples come.
pub(super) struct Staples {
    map: StateMap,
    path: Vec<NodeHash>,
    checkpoint: SignedCheckpoint,
    trust: RegistryTrust,
}

impl Staples {
    /// The state of a registry with `dids` DIDs, all but the holders random.
    pub(super) fn new(people: &People, dids: usize, random: &mut Rng) -> Result<Self, Error> {
        let provider = &people.provider;
        let hasher = Hasher(provider.sha256);
        let mut map = StateMap::default();
        for _ in people.holders.len()..dids {
            let leaf = MapLeaf { document: random_hash(random), sequence: 0, active: true };
            map = map.with(hasher, random_hash(random), leaf).map_err(failed)?;
        }
        for holder in &people.holders {
            let text = holder.document.canonical();
            let document = Sha256Hash::of(provider, text.as_bytes()).map_err(failed)?;
            let key = map_key(provider, holder.document.id()).map_err(failed)?;
            map = map.with(hasher, key, MapLeaf { document, sequence: 0, active: true }).map_err(failed)?;
        }
        // The registry signs as the log and as its own witness.
        let key = KeyPair::generate(KeyType::Ed25519)?.signing_key(provider)?;
        let signer = |kind| NoteSigner::new(provider, REGISTRY, kind, key.clone()).map_err(failed);
        let signers = [signer(NoteKeyKind::Note)?, signer(NoteKeyKind::Cosignature)?];
        let mut log = Tree::default();
        (0..map.len()).for_each(|_| log.push(hasher, [0; 32]));
        log.push(hasher, hasher.leaf(&root_entry(&map.root(hasher))));
        let size = log.size();
        let root = log.root(hasher, size).map_err(failed)?;
        let path = log.inclusion(hasher, map.len(), size).map_err(failed)?;
        let checkpoint = Checkpoint { origin: REGISTRY.to_owned(), size, root };
        let now = u64::try_from(seconds(dunlin_tokio::now())).map_err(failed)?;
        let checkpoint = SignedCheckpoint::sign(provider, checkpoint, &signers, now).map_err(failed)?;
        let [log, witness] = signers.each_ref().map(|signer| signer.key().clone());
        let trust = RegistryTrust::new(log, vec![witness]).map_err(failed)?;
        Ok(Self { map, path, checkpoint, trust })
    }

    /// The staple of a holder.
    pub(super) fn of(&self, provider: &CryptoProvider, holder: &Holder) -> Result<Arc<dyn DidProofs>, Error> {
        let key = map_key(provider, holder.document.id()).map_err(failed)?;
        let staple = Staple {
            document: holder.document.canonical().as_bytes().to_vec(),
            checkpoint: self.checkpoint.to_string().into_bytes(),
            proof: StateProof { map: self.map.prove(&key), path: self.path.clone() }.write(),
            membership: Vec::new(),
        };
        Ok(Arc::new(Fixed(staple.write().map_err(failed)?)))
    }

    /// A resolver that believes these staples.
    pub(super) fn resolver(&self, provider: &Arc<CryptoProvider>) -> Arc<dyn Resolver> {
        Arc::new(RegistryDocuments::new(provider.clone(), self.trust.clone()))
    }
}

/// A staple that stays fresh for the whole run.
#[derive(Debug)]
struct Fixed(Vec<u8>);

impl DidProofs for Fixed {
    fn latest(&self, _accepted: &[KnownRegistry]) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// Documents that were looked up. Each serves one handshake, so that the next one looks it up again.
#[derive(Debug, Default)]
pub(super) struct LookedUp(Mutex<Vec<DidDocument>>);

impl LookedUp {
    fn documents(&self) -> MutexGuard<'_, Vec<DidDocument>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver for LookedUp {
    fn methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::DUNLIN]
    }

    fn settings(&self, _add: &mut dyn FnMut(&[u8])) {}

    fn resolve(&self, did: &Did, _proof: Option<&[u8]>, _now: Seconds) -> Result<Resolution, ResolveError> {
        let mut documents = self.documents();
        let found = documents.iter().position(|document| document.id() == did);
        let found = found.ok_or_else(|| ResolveError::NotAtHand(did.clone()))?;
        Ok(Resolution::constant(documents.swap_remove(found)))
    }
}

/// Answers a verifier's questions as a program with a registry does: it judges again after a look-up.
pub(super) struct LookUps {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) judges: Vec<Judge>,
    pub(super) looked_up: Arc<LookedUp>,
    pub(super) asking: Asking,
    pub(super) node: Arc<Node>,
    /// The bytes of the look-ups since [`Self::take_bytes`].
    pub(super) bytes: Mutex<LookUpBytes>,
}

impl LookUps {
    pub(super) fn answer(&self, question: &Question) -> Result<Answer, Error> {
        let Question::Verify { certificates, certificate_type, peer, did_proof, credential_status, .. } =
            question
        else {
            return Err(failed("an unexpected question"));
        };
        let judge = self.judges.iter().find(|judge| judge.verifier().certificate_type() == *certificate_type);
        let judge = judge.ok_or_else(|| failed("nobody judges this type"))?;
        let now = seconds(dunlin_tokio::now());
        let stapled =
            Stapled { did_proof: did_proof.as_deref(), credential_status: credential_status.as_deref() };
        let judged = || judge.judge(&self.provider, certificates, stapled, now);
        let mut verdict = judged();
        if let Err(Refusal::Resolve(ResolveError::NotAtHand(did))) = &verdict {
            let Found { document, bytes } = self.node.look_up(self.asking, *peer, did)?;
            let mut sum = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            sum.sent += bytes.sent;
            sum.received += bytes.received;
            drop(sum);
            self.looked_up.documents().push(document);
            verdict = judged();
        }
        let accepted = verdict.map(|peer| Acceptance::within(peer.validity).with_peer(peer));
        Ok(Answer::Verified(accepted.map_err(AuthenticationFailure::from)))
    }

    pub(super) fn take_bytes(&self) -> LookUpBytes {
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
