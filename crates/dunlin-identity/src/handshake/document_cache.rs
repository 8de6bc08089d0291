//! Documents that the program has looked up and keeps for a limited time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;

use super::known::Known;
use super::resolve::{Resolution, ResolveError, Resolver, Standing};
use crate::credential::Seconds;
use crate::did::Did;
use crate::document::DidDocument;
use crate::hash::Sha256Hash;
use crate::knowledge::{Knowledge, Mark, Subject};

/// How many documents a [`DocumentCache`] keeps, unless the program says otherwise. They take up to 16 MiB.
pub const MAX_CACHED_DOCUMENTS: usize = 1024;

/// A document, and when the program looked it up.
#[derive(Clone, Debug)]
struct Cached {
    document: DidDocument,
    hash: Sha256Hash,
    sequence: u64,
    at: Seconds,
    until: Seconds,
}

/// The documents at hand.
#[derive(Clone, Debug, Default)]
struct Documents {
    by_did: BTreeMap<Did, Cached>,
    by_age: BTreeSet<(Seconds, Did)>,
    /// The DIDs whose documents stay, whatever else is added.
    kept: BTreeSet<Did>,
}

impl Documents {
    /// Forgets the document of a DID.
    fn forget(&mut self, did: &Did) {
        if let Some(cached) = self.by_did.remove(did) {
            self.by_age.remove(&(cached.at, did.clone()));
        }
    }
}

/// Documents that the program has looked up, over TLS from a web server or a registry's node, and adds while
/// connections run. Each counts as the latest for a limited time. [`Known`] keeps which is the latest, and
/// which DIDs have ended, when a document has left.
#[derive(Debug)]
pub struct DocumentCache {
    provider: Arc<CryptoProvider>,
    methods: Vec<DidMethod>,
    /// The origin of the registry whose documents they are; otherwise empty.
    origin: String,
    max_age: Seconds,
    capacity: usize,
    documents: RwLock<Documents>,
    known: Arc<Known>,
}

impl DocumentCache {
    /// For DIDs of these methods. A document counts for `max_age` seconds: the longest that a rotation or
    /// deactivation can be missed.
    pub fn new(provider: Arc<CryptoProvider>, methods: Vec<DidMethod>, max_age: Seconds) -> Self {
        let known = Arc::new(Known::new(Knowledge::default()));
        let capacity = MAX_CACHED_DOCUMENTS;
        let documents = RwLock::default();
        Self { provider, methods, origin: String::new(), max_age, capacity, documents, known }
    }

    /// Keeps the documents of the registry with this origin. Knowledge of another registry's DIDs does not
    /// count here, nor the reverse.
    #[must_use]
    pub fn with_origin(self, origin: &str) -> Self {
        Self { origin: origin.to_owned(), ..self }
    }

    /// Shares permanent knowledge with other resolvers and verifiers.
    #[must_use]
    pub fn with_known(self, known: Arc<Known>) -> Self {
        Self { known, ..self }
    }

    /// Keeps at most this many documents. Of more, the one that was looked up first leaves.
    #[must_use]
    pub fn with_capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Adds the document that the program looked up at the time `at`. An older version than the one at hand
    /// changes nothing, nor does an earlier look-up of the same version.
    ///
    /// # Errors
    /// [`ResolveError::Key`]; [`ResolveError::Deactivated`]: that is for ever; [`ResolveError::Conflict`];
    /// [`ResolveError::Full`].
    pub fn insert(&self, document: DidDocument, sequence: u64, at: Seconds) -> Result<(), ResolveError> {
        let hash = Sha256Hash::of(&self.provider, document.canonical().as_bytes())?;
        self.insert_until(document, hash, sequence, at, at.saturating_add(self.max_age))
    }

    /// Adds a document with its hash that is proven to be the latest until a time of its own. The cache
    /// itself still answers with it for `max_age` only.
    pub(super) fn insert_until(
        &self,
        document: DidDocument,
        hash: Sha256Hash,
        sequence: u64,
        at: Seconds,
        until: Seconds,
    ) -> Result<(), ResolveError> {
        let did = document.id().clone();
        let mut documents = self.documents.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(present) = documents.by_did.get(&did)
            && present.sequence == sequence
            && present.at > at
        {
            return Ok(());
        }
        let is_earlier = self.learn(&did, &hash, sequence)?;
        if is_earlier {
            return Ok(());
        }
        documents.forget(&did);
        if documents.by_did.len() >= self.capacity
            && let Some((_, oldest)) =
                documents.by_age.iter().find(|(_, did)| !documents.kept.contains(did)).cloned()
        {
            documents.forget(&oldest);
        }
        documents.by_age.insert((at, did.clone()));
        documents.by_did.insert(did, Cached { document, hash, sequence, at, until });
        Ok(())
    }

    /// The document at hand, unless a later one is known, perhaps from another program.
    fn latest<'d>(&self, documents: &'d Documents, did: &Did) -> Option<&'d Cached> {
        let is_latest =
            |cached: &&Cached| self.standing(did, &cached.hash, cached.sequence) == Standing::Latest;
        documents.by_did.get(did).filter(is_latest)
    }

    /// The latest document, if it was looked up within the last `age` seconds, though that is longer than it
    /// counts otherwise.
    pub(super) fn resolve_within(&self, did: &Did, age: Seconds, now: Seconds) -> Option<Resolution> {
        let documents = self.documents.read().unwrap_or_else(PoisonError::into_inner);
        let cached = self.latest(&documents, did)?;
        let until = cached.at.saturating_add(age);
        let document = cached.document.clone();
        let sequence = cached.sequence;
        (now <= until).then_some(Resolution { document, sequence, until: Some(until) })
    }

    /// The permanent knowledge that this cache shares.
    pub(super) fn known(&self) -> &Arc<Known> {
        &self.known
    }

    fn subject(&self, did: &Did) -> Subject {
        Subject::did(&self.provider, &self.origin, did)
    }

    /// Learns which document the DID has, as [`Known::learn_document`] does.
    pub(super) fn learn(&self, did: &Did, hash: &Sha256Hash, sequence: u64) -> Result<bool, ResolveError> {
        self.known.learn_document(self.subject(did), did, hash, sequence)
    }

    /// Notes that the owner has ended the DID, for ever.
    pub fn deactivate(&self, did: Did) {
        self.documents.write().unwrap_or_else(PoisonError::into_inner).forget(&did);
        self.known.learn(self.subject(&did), Mark::ENDED);
    }
}

impl Resolver for DocumentCache {
    fn methods(&self) -> Vec<DidMethod> {
        self.methods.clone()
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.methods.iter().for_each(|method| add(&method.0.to_be_bytes()));
        add(&self.max_age.to_be_bytes());
    }

    fn resolve(&self, did: &Did, _proof: Option<&[u8]>, now: Seconds) -> Result<Resolution, ResolveError> {
        if self.known.has_ended(&self.subject(did)) {
            return Err(ResolveError::Deactivated(did.clone()));
        }
        let documents = self.documents.read().unwrap_or_else(PoisonError::into_inner);
        let counts = |cached: &&Cached| now <= cached.at.saturating_add(self.max_age).min(cached.until);
        let cached = self.latest(&documents, did).filter(counts);
        let Cached { document, sequence, until, .. } =
            cached.ok_or_else(|| ResolveError::NotAtHand(did.clone()))?.clone();
        Ok(Resolution { document, sequence, until: Some(until) })
    }

    fn keep(&self, did: &Did) {
        self.documents.write().unwrap_or_else(PoisonError::into_inner).kept.insert(did.clone());
    }

    fn standing(&self, did: &Did, document: &Sha256Hash, sequence: u64) -> Standing {
        self.known.standing(&self.subject(did), document, sequence)
    }
}
