//! A program's trust in a registry of `did:dunlin`, and the state that it has learnt from the registry's
//! proofs. Peers send these proofs along, or the program looks them up.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use dunlin::auth::KnownRegistry;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;

use super::document_cache::{DocumentCache, MAX_CACHED_DOCUMENTS};
use super::known::Known;
use super::resolve::{Resolution, ResolveError, Resolver, Standing};
use super::watch::Answers;
use crate::credential::{Seconds, unsigned};
use crate::did::Did;
use crate::hash::Sha256Hash;
use crate::knowledge::{Learnt, Mark, Subject};
use crate::transparency::{
    ChainError, CheckpointError, FreshCheckpoint, RegistryTrust, Resolved, SignedCheckpoint, Staple,
    StapleError,
};

/// For how many seconds a document serves later handshakes whose peers send no proof: 5 minutes. A peer that
/// has rotated its key and sends no proof is refused for this time at most.
pub const LOOK_UP_AGE: Seconds = 300;

/// How old a proof may be that counts while the registry is silent, unless the program says otherwise: an
/// hour.
pub const DEFAULT_OUTAGE_AGE: Seconds = 3600;

/// Resolves DIDs of one registry: first by the proof that the peer sends along, which needs no network; then
/// by what it has learnt before. If neither suffices, the program looks the DID up and keeps the result here
/// ([`super::CredentialVerifier::asking`]).
///
/// It keeps the largest checkpoint that it has accepted, so that the registry cannot go back, or show two
/// histories of one size. [`Known`] keeps its size, too. Each proof of the registry is verified against this
/// checkpoint, and kept only if the checkpoint still is the largest then.
pub struct RegistryDocuments {
    provider: Arc<CryptoProvider>,
    trust: RwLock<Arc<RegistryTrust>>,
    newest: RwLock<Option<SignedCheckpoint>>,
    verified: RwLock<Option<Verified>>,
    documents: DocumentCache,
    /// The DIDs that the registry has proven not to have, and when.
    absent: RwLock<BTreeMap<Did, Seconds>>,
    answers: Answers,
    outage: Outage,
    report: Report,
}

/// The rules for older proofs while the registry does not answer.
struct Outage {
    max_age: Seconds,
    report: Box<dyn Fn(&Did) + Send + Sync>,
}

/// The checkpoint whose signatures were checked last. The staples of many peers have the same one.
struct Verified {
    /// The trust that has accepted it. A changed trust has another address, because this one is still in use.
    trust: Arc<RegistryTrust>,
    note: Vec<u8>,
    at_s: u64,
    checkpoint: FreshCheckpoint,
}

/// Takes two checkpoints of a registry that contradict each other: the one that was accepted before, and the
/// other one.
type Report = Box<dyn Fn(&SignedCheckpoint, &SignedCheckpoint) + Send + Sync>;

impl RegistryDocuments {
    /// Nothing is known yet.
    pub fn new(provider: Arc<CryptoProvider>, trust: RegistryTrust) -> Self {
        let documents = DocumentCache::new(Arc::clone(&provider), vec![DidMethod::DUNLIN], LOOK_UP_AGE)
            .with_origin(trust.origin());
        let report = Box::new(|_: &_| {});
        Self {
            provider,
            trust: RwLock::new(Arc::new(trust)),
            newest: RwLock::default(),
            verified: RwLock::default(),
            documents,
            absent: RwLock::default(),
            answers: Answers::default(),
            outage: Outage { max_age: 0, report },
            report: Box::new(|_, _| {}),
        }
    }

    /// Lets proofs of this age in seconds count while the registry is silent, for example
    /// [`DEFAULT_OUTAGE_AGE`], though newer ones are known: no [`Self::watch`] of the program has had an
    /// answer for [`SILENT_TIME`](super::SILENT_TIME). Nothing counts that is known to have ended or to have
    /// a later document. `report` receives the DID of each use; a handshake waits for it, so it must not
    /// block.
    #[must_use]
    pub fn with_outage(self, max_age: Seconds, report: impl Fn(&Did) + Send + Sync + 'static) -> Self {
        Self { outage: Outage { max_age, report: Box::new(report) }, ..self }
    }

    /// How old a proof may be that counts while the registry is silent, in seconds; 0: none does.
    pub const fn outage_age(&self) -> Seconds {
        self.outage.max_age
    }

    /// Begins a watch, which asks the registry regularly whether it answers. Nothing else says that the
    /// registry is silent: a peer can choose when a look-up fails.
    pub fn watch(self: &Arc<Self>, now: Instant) -> RegistryWatch {
        self.answers.begin(now);
        RegistryWatch(Arc::clone(self))
    }

    /// Whether the registry counts as silent.
    pub fn is_silent(&self) -> bool {
        self.answers.is_silent()
    }

    /// Checks whether a note is an answer to a watch: a checkpoint that the registry has signed, also one
    /// that this side refuses because it is too old, smaller than a known one or of another history. It keeps
    /// nothing: otherwise each operation of a stranger would make the proofs of all peers too old.
    ///
    /// A registry that shows an old checkpoint answers all the same, so the outage rule stays closed. Only
    /// the registry's key makes such an answer, so an attacker opens the rule only by keeping all answers
    /// away.
    ///
    /// # Errors
    /// The note is malformed, or the check of the registry's signature fails.
    pub fn check_answer(&self, note: &[u8], now: Seconds) -> Result<(), CheckpointError> {
        match self.checkpoint(note, self.newest().as_ref(), now) {
            Err(error) if !error.is_signed() => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes that the registry has proven at this time that it does not have the DID. A document to which a
    /// list pins it counts then, for [`LOOK_UP_AGE`]. Of more such DIDs than documents are at hand, the one
    /// that was proven first leaves.
    pub fn set_absent(&self, did: Did, now: Seconds) {
        let mut absent = self.absent.write().unwrap_or_else(PoisonError::into_inner);
        absent.retain(|_, at| now <= at.saturating_add(LOOK_UP_AGE));
        absent.insert(did.clone(), now);
        if absent.len() > MAX_CACHED_DOCUMENTS
            && let Some((oldest, _)) =
                absent.iter().filter(|(other, _)| **other != did).min_by_key(|(_, at)| **at)
        {
            let oldest = oldest.clone();
            absent.remove(&oldest);
        }
    }

    /// Shares permanent knowledge with other registries and verifiers. It belongs to the registry's origin,
    /// whatever keys the registry has, and says nothing about the DIDs of other origins.
    #[must_use]
    pub fn with_known(self, known: Arc<Known>) -> Self {
        Self { documents: self.documents.with_known(known), ..self }
    }

    /// Passes two checkpoints that contradict each other to `report`: the one that was accepted before, and
    /// the other one. Together they are evidence against the registry. A handshake may wait for `report`,
    /// which must not block.
    #[must_use]
    pub fn with_report(
        self,
        report: impl Fn(&SignedCheckpoint, &SignedCheckpoint) + Send + Sync + 'static,
    ) -> Self {
        Self { report: Box::new(report), ..self }
    }

    /// Reports a checkpoint that contradicts the one that was accepted before, for example for want of a
    /// proof that the log continues.
    pub fn report(&self, accepted: &SignedCheckpoint, other: &SignedCheckpoint) {
        (self.report)(accepted, other);
    }

    /// The trust in the registry.
    pub fn trust(&self) -> Arc<RegistryTrust> {
        Arc::clone(&self.trust.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that the program has read the same trust again, which confirms the validators of a replicated
    /// registry ([`RegistryTrust::confirm`]).
    pub fn confirm(&self, again: &RegistryTrust) {
        // The checkpoint that was verified last keeps the previous trust, so this one gets another address.
        Arc::make_mut(&mut self.trust.write().unwrap_or_else(PoisonError::into_inner)).confirm(again);
    }

    /// The largest checkpoint that it has accepted.
    pub fn newest(&self) -> Option<SignedCheckpoint> {
        self.newest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Verifies a staple about this DID against `newest`, which is [`Self::newest`], and keeps nothing. The
    /// time is in seconds since 1970.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn verify(
        &self,
        did: &Did,
        staple: &Staple,
        newest: Option<&SignedCheckpoint>,
        now: Seconds,
    ) -> Result<Resolved, StapleError> {
        let checkpoint = |note: &[u8]| self.checkpoint(note, newest, now);
        staple.verify_with(&self.provider, did, self.trust().origin(), checkpoint)
    }

    /// Verifies a checkpoint against `newest`, as [`Self::verify`] does.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn checkpoint(
        &self,
        note: &[u8],
        newest: Option<&SignedCheckpoint>,
        now: Seconds,
    ) -> Result<FreshCheckpoint, CheckpointError> {
        let now_s = unsigned(now);
        let trust = self.trust();
        if let Some(checkpoint) = self.verified_before(&trust, note, newest, now_s) {
            self.check_size(&checkpoint.checkpoint)?;
            return Ok(checkpoint);
        }
        let checkpoint = trust.verify(&self.provider, note, newest, now_s);
        let checkpoint = checkpoint.inspect_err(|error| self.contradicted(error, note, newest))?;
        self.check_size(&checkpoint.checkpoint)?;
        let verified = Verified { trust, note: note.to_vec(), at_s: now_s, checkpoint: checkpoint.clone() };
        *self.verified.write().unwrap_or_else(PoisonError::into_inner) = Some(verified);
        Ok(checkpoint)
    }

    /// The checkpoint in a note whose signatures were checked last, under the same trust.
    fn verified_before(
        &self,
        trust: &Arc<RegistryTrust>,
        note: &[u8],
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Option<FreshCheckpoint> {
        let verified = self.verified.read().unwrap_or_else(PoisonError::into_inner);
        let is_same = |verified: &&Verified| {
            Arc::ptr_eq(&verified.trust, trust)
                && verified.note == note
                && (verified.at_s..=verified.checkpoint.fresh_until_s).contains(&now_s)
                && newest
                    .is_none_or(|newest| newest.checkpoint() == verified.checkpoint.checkpoint.checkpoint())
        };
        verified.as_ref().filter(is_same).map(|verified| verified.checkpoint.clone())
    }

    /// Checks that no larger log is known, and no other one of this size: an earlier run of the program may
    /// have seen it.
    fn check_size(&self, signed: &SignedCheckpoint) -> Result<(), CheckpointError> {
        let (subject, mark) = self.of_log(signed);
        let offered = signed.checkpoint().size;
        let known = self.documents.known();
        match known.compare(&subject, &mark) {
            Learnt::Earlier => {
                let accepted = known.get(&subject).map_or(offered, |mark| mark.number);
                Err(CheckpointError::Rollback { offered, accepted })
            }
            Learnt::Other => Err(CheckpointError::SplitView { size: offered }),
            Learnt::Later | Learnt::Known | Learnt::Full => Ok(()),
        }
    }

    fn of_log(&self, signed: &SignedCheckpoint) -> (Subject, Mark) {
        let checkpoint = signed.checkpoint();
        let subject = Subject::log(&self.provider, &checkpoint.origin);
        (subject, Mark::new(checkpoint.size, &checkpoint.root))
    }

    /// Verifies a checkpoint that acknowledges an operation ([`RegistryTrust::signed`]) against `newest`.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn acknowledgement(
        &self,
        note: &[u8],
        newest: Option<&SignedCheckpoint>,
        now: Seconds,
    ) -> Result<SignedCheckpoint, CheckpointError> {
        let verified = self.trust().signed(&self.provider, note, newest, unsigned(now));
        verified.inspect_err(|error| self.contradicted(error, note, newest))
    }

    fn contradicted(&self, error: &CheckpointError, note: &[u8], newest: Option<&SignedCheckpoint>) {
        use CheckpointError as C;
        if matches!(error, C::SplitView { .. } | C::Chain(ChainError::Fork(_) | ChainError::Order { .. }))
            && let (Some(newest), Ok(other)) = (newest, SignedCheckpoint::read(note))
        {
            self.report(newest, &other);
        }
    }

    /// Keeps what [`Self::verify`] has found with `newest` at the time `now`. If another checkpoint was
    /// accepted since, it keeps nothing and returns false: the caller verifies again.
    ///
    /// # Errors
    /// [`ResolveError::Deactivated`] if this side has learnt since that the DID has ended;
    /// [`ResolveError::Conflict`].
    pub fn keep(
        &self,
        resolved: &Resolved,
        newest: Option<&SignedCheckpoint>,
        now: Seconds,
    ) -> Result<bool, ResolveError> {
        let FreshCheckpoint { checkpoint, fresh_until_s } = &resolved.checkpoint;
        let until = Seconds::try_from(*fresh_until_s).unwrap_or(Seconds::MAX);
        let kept = self.advance(checkpoint, newest, || {
            self.documents.insert_until(
                resolved.document.clone(),
                resolved.hash,
                resolved.sequence,
                now,
                until,
            )
        });
        if let (Err(ResolveError::Conflict(..)), Some(newest)) = (&kept, newest) {
            self.report(newest, checkpoint);
        }
        kept
    }

    /// Keeps a checkpoint that was verified against `newest`, if it is larger, or has a later block. Returns
    /// false as [`Self::keep`] does.
    pub fn accept(&self, checkpoint: &SignedCheckpoint, newest: Option<&SignedCheckpoint>) -> bool {
        self.advance(checkpoint, newest, || Ok::<_, Infallible>(())).unwrap_or(false)
    }

    /// Whether no other checkpoint was accepted since `newest`.
    pub fn is_newest(&self, newest: Option<&SignedCheckpoint>) -> bool {
        is_same(self.newest.read().unwrap_or_else(PoisonError::into_inner).as_ref(), newest)
    }

    /// Takes the place of `newest` with a checkpoint after `keep`, unless something else has.
    fn advance<E>(
        &self,
        checkpoint: &SignedCheckpoint,
        newest: Option<&SignedCheckpoint>,
        keep: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut present = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        if !is_same(present.as_ref(), newest) {
            return Ok(false);
        }
        keep()?;
        let size = |signed: &SignedCheckpoint| signed.checkpoint().size;
        let is_newer = |present: &SignedCheckpoint| {
            size(present) < size(checkpoint) || self.trust().is_later(checkpoint, present)
        };
        if present.as_ref().is_none_or(is_newer) {
            *present = Some(checkpoint.clone());
            let (subject, mark) = self.of_log(checkpoint);
            self.documents.known().learn(subject, mark);
        }
        Ok(true)
    }

    /// Notes that the owner has ended the DID, for ever.
    pub fn deactivate(&self, did: Did) {
        self.documents.deactivate(did);
    }

    /// Resolves a DID by the staple that the peer has sent.
    fn stapled(&self, did: &Did, staple: &Staple, now: Seconds) -> Result<Resolution, ResolveError> {
        loop {
            let newest = self.newest();
            match self.verify(did, staple, newest.as_ref(), now) {
                Ok(resolved) => {
                    // Another handshake may have shown another checkpoint meanwhile.
                    if !self.keep(&resolved, newest.as_ref(), now)? {
                        continue;
                    }
                    let Resolved { document, sequence, checkpoint, .. } = resolved;
                    let until = Seconds::try_from(checkpoint.fresh_until_s).ok();
                    return Ok(Resolution { document, sequence, until });
                }
                Err(StapleError::Deactivated(did)) => {
                    self.deactivate(did.clone());
                    return Err(ResolveError::Deactivated(did));
                }
                Err(error) if error.is_old() => return Err(ResolveError::OldProof(did.clone(), error)),
                Err(error) => return Err(ResolveError::Proof(error)),
            }
        }
    }

    /// Whether older proofs count.
    fn is_outage(&self) -> bool {
        self.outage.max_age > 0 && self.is_silent()
    }

    /// Resolves a DID by an older proof while the registry is silent: by the peer's proof, or by the document
    /// that this side has looked up last. `error` is the refusal otherwise.
    fn in_outage(
        &self,
        did: &Did,
        staple: Option<&Staple>,
        now: Seconds,
        error: ResolveError,
    ) -> Result<Resolution, ResolveError> {
        let Outage { max_age, report } = &self.outage;
        if !self.is_outage() {
            return Err(error);
        }
        let resolved = match staple.map(|staple| self.old_proof(did, staple, now)) {
            Some(Ok(resolved)) => Some(resolved),
            Some(Err(error @ (ResolveError::Deactivated(_) | ResolveError::Outdated(_)))) => {
                return Err(error);
            }
            Some(Err(_)) | None => self.documents.resolve_within(did, *max_age, now),
        };
        let resolved = resolved.ok_or(error)?;
        report(did);
        Ok(resolved)
    }

    /// Resolves a DID by a proof that is no older than an outage allows, unless a later document is known.
    fn old_proof(&self, did: &Did, staple: &Staple, now: Seconds) -> Result<Resolution, ResolveError> {
        let trust = self.trust().as_ref().clone().with_max_age(unsigned(self.outage.max_age));
        let resolved = staple.verify(&self.provider, did, &trust, None, unsigned(now));
        let Resolved { document, hash, sequence, checkpoint } = resolved.map_err(|error| match error {
            StapleError::Deactivated(did) => {
                self.deactivate(did.clone());
                ResolveError::Deactivated(did)
            }
            error => ResolveError::Proof(error),
        })?;
        if self.documents.learn(did, &hash, sequence)? {
            Err(ResolveError::Outdated(did.clone()))
        } else {
            let until = Seconds::try_from(checkpoint.fresh_until_s).ok();
            Ok(Resolution { document, sequence, until })
        }
    }
}

/// Whether two verifications rest on the same checkpoint.
fn is_same(one: Option<&SignedCheckpoint>, other: Option<&SignedCheckpoint>) -> bool {
    one.map(SignedCheckpoint::checkpoint) == other.map(SignedCheckpoint::checkpoint)
}

impl Resolver for RegistryDocuments {
    fn methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::DUNLIN]
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.trust().settings(add);
    }

    fn resolve(&self, did: &Did, proof: Option<&[u8]>, now: Seconds) -> Result<Resolution, ResolveError> {
        let known = || self.documents.resolve(did, None, now);
        let or_outage = |staple, refusal| match known() {
            Err(ResolveError::NotAtHand(_)) => self.in_outage(did, staple, now, refusal),
            decided => decided,
        };
        let not_at_hand = || ResolveError::NotAtHand(did.clone());
        let Some(proof) = proof else { return or_outage(None, not_at_hand()) };
        let staple = Staple::read(proof).map_err(ResolveError::Proof)?;
        match self.stapled(did, &staple, now) {
            // Another resolver may know the registry that this proof is of.
            Err(ResolveError::Proof(StapleError::OtherRegistry(_))) => or_outage(None, not_at_hand()),
            Err(error @ ResolveError::OldProof(..)) => or_outage(Some(&staple), error),
            decided => decided,
        }
    }

    fn is_absent(&self, did: &Did, now: Seconds) -> bool {
        let absent = self.absent.read().unwrap_or_else(PoisonError::into_inner);
        absent.get(did).is_some_and(|at| (*at..=at.saturating_add(LOOK_UP_AGE)).contains(&now))
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        let mut registries = self.trust().known(self.newest().as_ref());
        let is_outage = self.is_outage();
        let log = Subject::log(&self.provider, self.trust().origin());
        let known = self.documents.known().get(&log).map_or(0, |mark| mark.number);
        // A peer sends no proof that would be too old, and in an outage it has no other one.
        for registry in &mut registries {
            registry.oldest_size = if is_outage { 0 } else { registry.oldest_size.max(known) };
        }
        registries
    }

    fn keep(&self, did: &Did) {
        self.documents.keep(did);
    }

    fn standing(&self, did: &Did, document: &Sha256Hash, sequence: u64) -> Standing {
        self.documents.standing(did, document, sequence)
    }
}

impl fmt::Debug for RegistryDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryDocuments").field("origin", &self.trust().origin()).finish_non_exhaustive()
    }
}

/// A watch of a registry, which asks it regularly ([`RegistryDocuments::watch`]). It ends when it is dropped.
pub struct RegistryWatch(Arc<RegistryDocuments>);

impl RegistryWatch {
    /// Notes an answer of the registry, as [`RegistryDocuments::check_answer`] takes it. Returns whether the
    /// registry was silent.
    pub fn answered(&self, now: Instant) -> bool {
        self.0.answers.answered(now)
    }

    /// Notes that the registry has not answered. Returns whether it counts as silent from now on: no watch
    /// has had an answer for a minute.
    pub fn unanswered(&self, now: Instant) -> bool {
        self.0.answers.unanswered(now)
    }
}

impl Drop for RegistryWatch {
    fn drop(&mut self) {
        self.0.answers.end();
    }
}

impl fmt::Debug for RegistryWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegistryWatch").field(&self.0).finish()
    }
}
