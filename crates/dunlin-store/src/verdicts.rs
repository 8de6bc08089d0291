//! Verdicts about certificates that are remembered.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::auth::{Belief, Claim, KeyUse, KnownRegistry, Verdict, Verified, Verifier};
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::CertificateDer;
use dunlin::wire::{CertificateType, DidMethod};
use dunlin::{Now, PeerIdentity};
use hashlink::LruCache;

/// A verifier that remembers which credentials another one has accepted. A client that comes again with the
/// same certificates costs a look-up instead of the verification of their signatures. Such a client still
/// proves that it has the private key.
///
/// It suits verifiers whose verdicts depend on nothing but their settings and the entries, role, algorithms,
/// use and time of a claim, such as [`X509Trust`](dunlin::auth::X509Trust): what ends a verdict earlier ends
/// its [`Validity`](dunlin::auth::Validity), which is checked each time, or is what
/// [`Verifier::still_believes`] knows. Refusals are not remembered, nor are claims with a name or a staple.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::{Verifiers, X509Trust};
/// use dunlin_store::RememberedVerdicts;
///
/// fn trust(x509: X509Trust) -> Verifiers {
///     Verifiers::default().with(Arc::new(RememberedVerdicts::new(Arc::new(x509), 10_000)))
/// }
/// ```
pub struct RememberedVerdicts {
    verifier: Arc<dyn Verifier>,
    /// By SHA-256 of the claim.
    accepted: Mutex<LruCache<[u8; 32], Box<Verified>>>,
}

impl RememberedVerdicts {
    /// Remembers `capacity` verdicts of `verifier`, some 500 bytes each, at least one. A new one displaces
    /// the one that was not used for the longest time.
    pub fn new(verifier: Arc<dyn Verifier>, capacity: usize) -> Self {
        Self { verifier, accepted: Mutex::new(LruCache::new(capacity.max(1))) }
    }

    /// The number of remembered verdicts.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no verdict is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<[u8; 32], Box<Verified>>> {
        // No code panics halfway through a change under this lock.
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A verdict that holds now.
    fn recall(&self, id: &[u8; 32], now_s: u64) -> Option<Box<Verified>> {
        let mut accepted = self.lock();
        let validity = accepted.get(id)?.validity;
        if (validity.from_s()..=validity.until_s()).contains(&now_s) {
            accepted.get(id).cloned()
        } else {
            accepted.remove(id);
            None
        }
    }
}

/// SHA-256 of everything in the claim on which a verdict may depend, except for the time. `None` if that is
/// not the same each time.
fn id(claim: &Claim<'_>) -> Option<[u8; 32]> {
    let Claim { entries, peer, name, ocsp_response, did_proof, credential_status, algorithms, usage, .. } =
        claim;
    let staples = [ocsp_response, did_proof, credential_status];
    if name.is_some() || staples.iter().any(|staple| staple.is_some()) {
        return None;
    }
    let mut context = claim.sha256.start();
    // A length before each part, so that no two claims have the same input.
    let mut add = |part: &[u8]| {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    };
    add(&[*peer as u8, u8::from(matches!(usage, KeyUse::Encrypt))]);
    add(&(entries.len() as u64).to_be_bytes());
    entries.iter().for_each(|entry| add(entry));
    for algorithm in *algorithms {
        add(algorithm.public_key_alg_id().as_ref());
        add(algorithm.signature_alg_id().as_ref());
    }
    context.current().as_ref().try_into().ok()
}

impl Verifier for RememberedVerdicts {
    fn certificate_type(&self) -> CertificateType {
        self.verifier.certificate_type()
    }

    fn check(&self) -> Result<(), &'static str> {
        self.verifier.check()
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.verifier.settings(add);
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        self.verifier.authorities()
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        self.verifier.did_methods()
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        self.verifier.registries()
    }

    fn accepts_status(&self) -> bool {
        self.verifier.accepts_status()
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let id = id(claim);
        if let Some(known) = id.as_ref().and_then(|id| self.recall(id, claim.now.unix_s()))
            && self.verifier.still_believes(&known.identity, claim.now) == Belief::Holds
        {
            return Ok(Verdict::Accepted(known));
        }
        let verdict = self.verifier.verify(claim)?;
        if let (Some(id), Verdict::Accepted(verified)) = (id, &verdict) {
            self.lock().insert(id, verified.clone());
        }
        Ok(verdict)
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        self.verifier.read(claim)
    }

    fn still_believes(&self, identity: &PeerIdentity, now: Now) -> Belief {
        self.verifier.still_believes(identity, now)
    }

    fn issuer<'c>(&self, entries: &'c [CertificateDer<'_>]) -> Option<&'c [u8]> {
        self.verifier.issuer(entries)
    }
}

impl fmt::Debug for RememberedVerdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberedVerdicts").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}
