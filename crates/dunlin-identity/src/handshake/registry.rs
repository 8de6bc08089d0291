//! What a program believes a registry of `did:dunlin`, and what it has learnt from it: by the proofs that peers send along, and by those
//! that the program has looked up.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use dunlin::auth::KnownRegistry;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;

use super::resolve::{DocumentCache, Resolution, ResolveError, Resolver};
use crate::credential::Seconds;
use crate::did::Did;
use crate::method::dunlin::Sha256Hash;
use crate::registry::checkpoint::{CheckpointError, FreshCheckpoint, RegistryTrust, SignedCheckpoint};
use crate::registry::staple::{Resolved, Staple, StapleError};

/// For how many seconds a document serves later handshakes whose peers send no proof: 5 minutes. A peer that has rotated its key and sends
/// no proof is refused for this time at most.
pub const LOOK_UP_AGE: Seconds = 300;

/// Resolves DIDs of one registry: first by the proof that the peer sends along, which needs no network; then by what it has learnt before. If
/// neither suffices, the program looks the DID up and keeps the result here ([`super::CredentialVerifier::asking`]).
///
/// It keeps the largest checkpoint that it has accepted, so that the registry cannot go back, or show two histories of one size.
pub struct RegistryDocuments {
    provider: Arc<CryptoProvider>,
    trust: RegistryTrust,
    newest: RwLock<Option<SignedCheckpoint>>,
    verified: RwLock<Option<Verified>>,
    known: DocumentCache,
}

/// The checkpoint whose signatures were checked last. The staples of many peers have the same one.
struct Verified {
    note: Vec<u8>,
    at_s: u64,
    checkpoint: FreshCheckpoint,
}

impl RegistryDocuments {
    /// Nothing is known yet.
    pub fn new(provider: Arc<CryptoProvider>, trust: RegistryTrust) -> Self {
        let known = DocumentCache::new(Arc::clone(&provider), vec![DidMethod::DUNLIN], LOOK_UP_AGE);
        Self { provider, trust, newest: RwLock::default(), verified: RwLock::default(), known }
    }

    /// Whom it believes.
    pub fn trust(&self) -> &RegistryTrust {
        &self.trust
    }

    /// The largest checkpoint that it has accepted.
    pub fn newest(&self) -> Option<SignedCheckpoint> {
        self.newest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Verifies a staple about this DID, and keeps nothing. The time is in seconds since 1970.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn verify(&self, did: &Did, staple: &Staple, now: Seconds) -> Result<Resolved, StapleError> {
        let checkpoint = |note: &[u8]| self.checkpoint(note, unsigned(now));
        staple.verify_with(&self.provider, did, self.trust.origin(), checkpoint)
    }

    /// Verifies a checkpoint, or finds that it is the one that was verified last.
    fn checkpoint(&self, note: &[u8], now_s: u64) -> Result<FreshCheckpoint, CheckpointError> {
        let newest = self.newest();
        let is_newest = |verified: &SignedCheckpoint| {
            newest.as_ref().is_none_or(|newest| newest.checkpoint() == verified.checkpoint())
        };
        if let Some(verified) = &*self.verified.read().unwrap_or_else(PoisonError::into_inner)
            && verified.note == note
            && (verified.at_s..=verified.checkpoint.fresh_until_s).contains(&now_s)
            && is_newest(&verified.checkpoint.checkpoint)
        {
            return Ok(verified.checkpoint.clone());
        }
        let checkpoint = self.trust.verify(&self.provider, note, newest.as_ref(), now_s)?;
        let verified = Verified { note: note.to_vec(), at_s: now_s, checkpoint: checkpoint.clone() };
        *self.verified.write().unwrap_or_else(PoisonError::into_inner) = Some(verified);
        Ok(checkpoint)
    }

    /// Keeps what [`Self::verify`] has found at the time `now`.
    ///
    /// # Errors
    /// [`ResolveError::Deactivated`] if this side has learnt since that the DID has ended.
    pub fn keep(&self, resolved: &Resolved, now: Seconds) -> Result<(), ResolveError> {
        let until = Seconds::try_from(resolved.checkpoint.fresh_until_s).unwrap_or(Seconds::MAX);
        self.accept(resolved.checkpoint.checkpoint.clone());
        self.known.insert_until(resolved.document.clone(), resolved.hash, resolved.sequence, now, until)
    }

    /// Keeps a checkpoint that was verified, if it is larger than the one at hand.
    pub fn accept(&self, checkpoint: SignedCheckpoint) {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let size = |signed: &SignedCheckpoint| signed.checkpoint().size;
        if newest.as_ref().is_none_or(|newest| size(newest) < size(&checkpoint)) {
            *newest = Some(checkpoint);
        }
    }

    /// Notes that the owner has ended the DID, for ever.
    pub fn deactivate(&self, did: Did) {
        self.known.deactivate(did);
    }

    /// What a peer has proven that sent this staple.
    fn stapled(&self, did: &Did, staple: &Staple, now: Seconds) -> Result<Resolution, ResolveError> {
        match self.verify(did, staple, now) {
            Ok(resolved) => {
                self.keep(&resolved, now)?;
                let Resolved { document, sequence, checkpoint, .. } = resolved;
                let until = Seconds::try_from(checkpoint.fresh_until_s).ok();
                let membership = Some(staple.membership.clone()).filter(|proof| !proof.is_empty());
                Ok(Resolution { document, sequence, until, membership })
            }
            Err(StapleError::Deactivated(did)) => {
                self.deactivate(did.clone());
                Err(ResolveError::Deactivated(did))
            }
            Err(error) => match is_old(&error) {
                true => Err(ResolveError::OldProof(did.clone(), error)),
                false => Err(ResolveError::Proof(error)),
            },
        }
    }
}

/// Whether the staple was right, but this side knows or demands something newer.
fn is_old(error: &StapleError) -> bool {
    use CheckpointError as C;
    matches!(error, StapleError::Checkpoint(C::Stale { .. } | C::Rollback { .. }))
}

/// Times before 1970 are long past.
fn unsigned(time: Seconds) -> u64 {
    u64::try_from(time).unwrap_or(0)
}

impl Resolver for RegistryDocuments {
    fn methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::DUNLIN]
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.trust.settings(add);
    }

    fn resolve(&self, did: &Did, proof: Option<&[u8]>, now: Seconds) -> Result<Resolution, ResolveError> {
        let known = || self.known.resolve(did, None, now);
        let Some(proof) = proof else { return known() };
        let staple = Staple::read(proof).map_err(ResolveError::Proof)?;
        match self.stapled(did, &staple, now) {
            // Another resolver may know the registry that this proof is of.
            Err(ResolveError::Proof(StapleError::OtherRegistry(_))) => known(),
            Err(ResolveError::OldProof(did, error)) => match known() {
                Err(ResolveError::NotAtHand(_)) => Err(ResolveError::OldProof(did, error)),
                decided => decided,
            },
            decided => decided,
        }
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        vec![self.trust.known(self.newest().as_ref())]
    }

    fn is_latest(&self, did: &Did, document: &Sha256Hash, sequence: u64) -> bool {
        self.known.is_latest(did, document, sequence)
    }
}

impl fmt::Debug for RegistryDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryDocuments").field("origin", &self.trust.origin()).finish_non_exhaustive()
    }
}
