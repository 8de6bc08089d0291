//! The one home of a program's permanent knowledge, which all its verifiers share.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use dunlin::wire::DidMethod;

use super::resolve::{ResolveError, Standing};
use crate::did::{Did, did_method};
use crate::hash::Sha256Hash;
use crate::knowledge::{Knowledge, Learnt, Mark, Record, Subject};

/// Keeps a program's knowledge beyond its end, or passes it to other programs. A handshake waits for it, so
/// it must not block. It reports its own failures.
pub trait KnownStore: Send + Sync + fmt::Debug {
    /// Keeps an entry, which is later than those before it about the same subject. Entries about logs
    /// ([`Subject::is_log`]) can come with each handshake; a store may keep them with a delay, and of several
    /// in this time the last.
    fn add(&self, record: &Record);

    /// Keeps an entry that another store had ([`Known::merge`]).
    fn copy(&self, _record: &Record) {}
}

/// [`Knowledge`] that verifiers, resolvers and tasks share, with a store.
#[derive(Debug)]
pub struct Known {
    knowledge: RwLock<Knowledge>,
    stores: Vec<Arc<dyn KnownStore>>,
}

impl Known {
    /// Begins with this knowledge. It ends with the program.
    pub const fn new(knowledge: Knowledge) -> Self {
        Self { knowledge: RwLock::new(knowledge), stores: Vec::new() }
    }

    /// Passes everything that is learnt to this store, too. The knowledge should begin with its records.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn KnownStore>) -> Self {
        self.stores.push(store);
        self
    }

    /// Adds a store's records from other programs.
    pub fn merge(&self, records: impl IntoIterator<Item = Record>) {
        let mut knowledge = self.knowledge.write().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            if knowledge.learn(record.subject, record.mark) == Learnt::Later {
                self.stores.iter().for_each(|store| store.copy(&record));
            }
        }
    }

    /// Everything that is known, for a store.
    pub fn records(&self) -> Vec<Record> {
        self.knowledge.read().unwrap_or_else(PoisonError::into_inner).records().collect()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.knowledge.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The latest that is known of this subject.
    pub(super) fn get(&self, subject: &Subject) -> Option<Mark> {
        self.knowledge.read().unwrap_or_else(PoisonError::into_inner).get(subject)
    }

    /// Compares something with what is known, and keeps nothing.
    pub(crate) fn compare(&self, subject: &Subject, mark: &Mark) -> Learnt {
        self.knowledge.read().unwrap_or_else(PoisonError::into_inner).compare(subject, mark)
    }

    /// Learns something that is proven.
    pub(crate) fn learn(&self, subject: Subject, mark: Mark) -> Learnt {
        self.learn_for(&self.stores, subject, mark)
    }

    /// As [`Self::learn`], and passes it to these stores.
    fn learn_for(&self, stores: &[Arc<dyn KnownStore>], subject: Subject, mark: Mark) -> Learnt {
        // Most of what handshakes show is known.
        if let Learnt::Known = self.compare(&subject, &mark) {
            return Learnt::Known;
        }
        let mut knowledge = self.knowledge.write().unwrap_or_else(PoisonError::into_inner);
        let learnt = knowledge.learn(subject, mark);
        if learnt == Learnt::Later {
            // Under the lock, so that the store has the entries of a subject in their order.
            stores.iter().for_each(|store| store.add(&Record { subject, mark }));
        }
        learnt
    }

    /// Learns which document the DID has that this subject is. Returns whether something later is known.
    ///
    /// # Errors
    /// [`ResolveError::Deactivated`], [`ResolveError::Conflict`], [`ResolveError::Full`].
    pub(super) fn learn_document(
        &self,
        subject: Subject,
        did: &Did,
        hash: &Sha256Hash,
        sequence: u64,
    ) -> Result<bool, ResolveError> {
        let mark = Mark::new(sequence, hash.as_bytes());
        // A registry numbers the documents of its DIDs. Those of other methods have no numbers, and the one
        // that was looked up last counts. A store has the first one of a number, which would count again
        // after a restart, so it gets none of them.
        let is_numbered = did_method(did) == Some(DidMethod::DUNLIN);
        let stores = if is_numbered { self.stores.as_slice() } else { &[] };
        match self.learn_for(stores, subject, mark) {
            Learnt::Full => Err(ResolveError::Full(did.clone())),
            Learnt::Other if is_numbered => Err(ResolveError::Conflict(did.clone(), sequence)),
            Learnt::Other => {
                let mut knowledge = self.knowledge.write().unwrap_or_else(PoisonError::into_inner);
                knowledge.replace(subject, mark);
                Ok(false)
            }
            Learnt::Earlier if self.has_ended(&subject) => Err(ResolveError::Deactivated(did.clone())),
            Learnt::Earlier => Ok(true),
            Learnt::Later | Learnt::Known => Ok(false),
        }
    }

    /// Whether the DID has ended that this subject is.
    pub(super) fn has_ended(&self, subject: &Subject) -> bool {
        self.get(subject).is_some_and(|mark| mark.ended)
    }

    /// Whether an earlier resolution of this subject's DID is still the latest.
    pub(super) fn standing(&self, subject: &Subject, hash: &Sha256Hash, sequence: u64) -> Standing {
        if self.get(subject).is_none() {
            return Standing::Unknown;
        }
        match self.compare(subject, &Mark::new(sequence, hash.as_bytes())) {
            Learnt::Known if self.has_ended(subject) => Standing::Outdated,
            Learnt::Known => Standing::Latest,
            Learnt::Later | Learnt::Full => Standing::Unknown,
            Learnt::Other | Learnt::Earlier => Standing::Outdated,
        }
    }
}
