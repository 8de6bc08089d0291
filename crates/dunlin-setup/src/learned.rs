//! Knowledge from issuers, registries and peers, which outlives a reload.

use std::collections::HashMap;
use std::fmt;
use std::mem::take;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use dunlin::crypto::CryptoProvider;
use dunlin_identity::Did;
use dunlin_identity::credential::Seconds;
use dunlin_identity::credential::status::{StatusError, StatusList, StatusLists};
use dunlin_identity::handshake::{CredentialVerifier, Known, ListedIssuer, RegistryDocuments, Resolution};
use dunlin_identity::knowledge::Knowledge;
use dunlin_identity::transparency::{RegistryTrust, SignedCheckpoint};
use dunlin_registry::client::log_contradiction;
use dunlin_registry::stapler::{Stapler, StaplerError};

use crate::place::Faults;

/// News about registries, for the user of a command or for the log of a service.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The trust in the registry whose keys are in this file is weaker than it looks.
    WeakTrust(PathBuf, &'static str),
    /// An older proof of this DID has counted.
    OldProof(Did),
    /// There is no new proof of an own DID.
    NoProof(Did, StaplerError),
    /// These two checkpoints contradict each other. Together they are evidence, if the registry cannot
    /// explain them.
    Contradiction(Box<[SignedCheckpoint; 2]>),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WeakTrust(file, warning) => write!(f, "{}: {warning}", file.display()),
            Self::OldProof(did) => {
                write!(f, "{did}: an older proof counts, because the registry does not answer")
            }
            Self::NoProof(did, error) => {
                write!(
                    f,
                    "{did}: no new proof of the own DID: {error}; peers must ask the registry themselves"
                )
            }
            Self::Contradiction(both) => {
                let [accepted, other] = &**both;
                f.write_str(
                    "the registry shows different histories: keep these checkpoints and report them: ",
                )?;
                write!(f, "{accepted} and {other}")
            }
        }
    }
}

/// Gets the notices.
pub type Report = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Writes a notice to the log.
pub fn log(notice: &Notice) {
    match notice {
        Notice::Contradiction(both) => {
            let [accepted, other] = &**both;
            log_contradiction(accepted, other);
        }
        _ => tracing::warn!("{notice}"),
    }
}

/// A program's knowledge about issuers and peers. It outlives a reload, which thus never goes back: a stored
/// copy of an older status list would hide a revocation, and an older proof of a DID would make a key count
/// again that its owner has replaced.
pub struct LearnedState {
    /// The newest status list of each issuer, from files.
    status: Mutex<StatusLists>,
    /// The verifiers, which learn further lists from peers.
    verifiers: Mutex<Vec<Weak<CredentialVerifier>>>,
    /// The sources of proofs of own DIDs.
    staplers: Mutex<Vec<Weak<Stapler>>>,
    /// The documents of registries, by everything on which trust in the registry rests.
    registries: Mutex<HashMap<Vec<u8>, Arc<RegistryDocuments>>>,
    /// The trusts that a reload has read again. They count when it has succeeded.
    confirmed: Mutex<Vec<(Arc<RegistryDocuments>, RegistryTrust)>>,
    /// The permanent knowledge.
    known: OnceLock<Arc<Known>>,
    report: Report,
}

impl Default for LearnedState {
    fn default() -> Self {
        Self::new(Arc::new(log))
    }
}

impl LearnedState {
    /// No knowledge yet. `report` gets the news.
    pub fn new(report: Report) -> Self {
        Self {
            status: Mutex::default(),
            verifiers: Mutex::default(),
            staplers: Mutex::default(),
            registries: Mutex::default(),
            confirmed: Mutex::default(),
            known: OnceLock::new(),
            report,
        }
    }

    /// The receiver of the news.
    pub fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn insert(&self, list: StatusList) -> Result<(), StatusError> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).insert(list)
    }

    /// Adds the newer lists of these issuers that peers have sent.
    pub(crate) fn add_sent(
        &self,
        lists: &mut StatusLists,
        issuers: &[Resolution],
        looked_up: &[ListedIssuer],
    ) {
        let mut verifiers = self.verifiers.lock().unwrap_or_else(PoisonError::into_inner);
        verifiers.retain(|verifier| verifier.strong_count() > 0);
        for verifier in verifiers.iter().filter_map(Weak::upgrade) {
            let sent = verifier.status_lists();
            lists.merge(sent.iter().filter(|list| {
                issuers.iter().any(|issuer| list.is_by(&issuer.document))
                    || looked_up.iter().any(|issuer| issuer.did.as_str() == list.issuer())
            }));
        }
    }

    /// Remembers a verifier, so that a reload keeps the lists that it has learnt from peers.
    pub(crate) fn watch(&self, verifier: &Arc<CredentialVerifier>) {
        let mut verifiers = self.verifiers.lock().unwrap_or_else(PoisonError::into_inner);
        verifiers.push(Arc::downgrade(verifier));
    }

    /// Lets a source of proofs begin with the proof of its predecessor, so that a reload leaves no time
    /// without one.
    pub(crate) fn continued(&self, stapler: Stapler) -> Arc<Stapler> {
        let mut staplers = self.staplers.lock().unwrap_or_else(PoisonError::into_inner);
        staplers.retain(|stapler| stapler.strong_count() > 0);
        let earlier = staplers.iter().filter_map(Weak::upgrade);
        let stapler = Arc::new(earlier.fold(stapler, |stapler, earlier| stapler.continuing(&earlier)));
        staplers.push(Arc::downgrade(&stapler));
        stapler
    }

    /// The permanent knowledge, which does not depend on the trusted registries: by default in memory alone.
    pub fn known(&self) -> Arc<Known> {
        self.known.get_or_init(|| Arc::new(Known::new(Knowledge::default()))).clone()
    }

    /// Begins with this permanent knowledge, before any other use.
    pub fn begin_with(&self, known: Arc<Known>) {
        self.known.get_or_init(|| known);
    }

    /// The documents of the registry with this trust. Another trust may believe less, so it begins anew, even
    /// if it differs in the second key alone; all trusts share the permanent knowledge. The same trust, read
    /// again, confirms the validators of a replicated registry.
    pub(crate) fn registry(
        &self,
        provider: &Arc<CryptoProvider>,
        trust: RegistryTrust,
        outage_age: Seconds,
    ) -> Arc<RegistryDocuments> {
        let mut settings = Vec::new();
        let mut add = |part: &[u8]| {
            settings.extend(part.len().to_be_bytes());
            settings.extend(part);
        };
        trust.settings(&mut add);
        trust.logs().for_each(|key| add(key.to_string().as_bytes()));
        add(&outage_age.to_be_bytes());
        let mut all = self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&settings) {
            let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
            confirmed.push((known.clone(), trust));
            return known.clone();
        }
        let new = RegistryDocuments::new(provider.clone(), trust).with_known(self.known());
        let report = self.report.clone();
        let new = new.with_outage(outage_age, move |did| report(&Notice::OldProof(did.clone())));
        let report = self.report.clone();
        let contradicts = move |accepted: &SignedCheckpoint, other: &SignedCheckpoint| {
            report(&Notice::Contradiction(Box::new([accepted.clone(), other.clone()])));
        };
        let new = Arc::new(new.with_report(contradicts));
        all.insert(settings, new.clone());
        new
    }

    /// Waits for a reload. If it is refused, forgets the status lists and trusts that it has read, and its
    /// verifiers, which some tasks may still hold for a while: a later reload takes nothing from them.
    ///
    /// # Errors
    /// Those of `reload`.
    pub async fn during<T>(&self, reload: impl Future<Output = Result<T, Faults>>) -> Result<T, Faults> {
        let lists = || self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let verifiers = || self.verifiers.lock().unwrap_or_else(PoisonError::into_inner);
        let registries = || self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        let confirmed = || take(&mut *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner));
        let before = (lists().clone(), verifiers().clone(), registries().clone());
        drop(confirmed());
        let done = reload.await;
        match &done {
            Ok(_) => confirmed().into_iter().for_each(|(known, again)| known.confirm(&again)),
            Err(_) => (*lists(), *verifiers(), *registries()) = before,
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use dunlin_identity::Did;
    use dunlin_identity::DidDocument;
    use dunlin_identity::Sha256Hash;
    use dunlin_identity::handshake::{Resolver, Standing};
    use dunlin_identity::key::PublicKey;
    use dunlin_identity::transparency::{ChainTrust, DEFAULT_TRUSTING_PERIOD};
    use dunlin_identity::transparency::{NoteKey, NoteKeyKind};

    use super::*;
    use crate::place::Fault;

    #[tokio::test]
    async fn a_refused_reload_leaves_no_verifier() {
        let provider = Arc::new(dunlin_awslc::provider());
        let learned = LearnedState::default();
        let verifier = || Arc::new(CredentialVerifier::new(provider.clone(), Vec::<DidDocument>::new()));
        let is_watched = |verifier: &Arc<CredentialVerifier>| {
            let watched = learned.verifiers.lock().expect("a lock");
            watched.iter().any(|other| other.ptr_eq(&Arc::downgrade(verifier)))
        };
        let accepted = verifier();
        let refused = verifier();
        let reload = |verifier| {
            learned.watch(verifier);
            Ok(())
        };
        assert!(learned.during(async { reload(&accepted) }).await.is_ok());
        let fault = Err::<(), _>(Faults::one(Fault::elsewhere("a fault", "mend it")));
        let reload = learned.during(async { reload(&refused).and(fault) });
        assert!(reload.await.is_err());
        // As a task that looks up its issuers, this test still holds it.
        assert!(is_watched(&accepted) && !is_watched(&refused));
    }

    #[tokio::test]
    async fn a_reload_confirms_the_validators_of_a_registry() {
        let provider = Arc::new(dunlin_awslc::provider());
        let learned = LearnedState::default();
        let genesis = r#"{"chain_id": "example-1", "app_state": {"origin": "registry.example/1"}, "validators": [{"power": "10",
            "pub_key": {"type": "tendermint/PubKeyEd25519", "value": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}}]}"#;
        let read = |now_s| {
            let trust = ChainTrust::from_genesis(&provider, genesis.as_bytes(), now_s);
            RegistryTrust::replicated(trust.expect("a genesis file"))
        };
        let begin = 1_800_000_000;
        let later = 1_800_000_001 + DEFAULT_TRUSTING_PERIOD;
        let known = learned.registry(&provider, read(begin), 0);
        assert_eq!(*known.trust(), read(begin));
        let reload = async |trust: RegistryTrust, is_accepted: bool| {
            let read = async {
                let read = learned.registry(&provider, trust, 0);
                let fault = || Faults::one(Fault::elsewhere("a fault", "mend it"));
                is_accepted.then_some(read).ok_or_else(fault)
            };
            learned.during(read).await
        };
        // A refused reload changes nothing, neither now nor with the next one.
        assert!(reload(read(later), false).await.is_err());
        assert_eq!(*known.trust(), read(begin));
        assert!(Arc::ptr_eq(&known, &reload(read(begin), true).await.expect("a reload")));
        assert_eq!(*known.trust(), read(begin));
        assert!(Arc::ptr_eq(&known, &reload(read(later), true).await.expect("a reload")));
        assert_eq!(*known.trust(), read(later));
        // A clock that goes back takes nothing away, and another trust is another entry.
        reload(read(begin), true).await.expect("a reload");
        assert_eq!(*known.trust(), read(later));
        assert!(!Arc::ptr_eq(&known, &reload(read(later).with_max_age(60), true).await.expect("a reload")));
    }

    #[test]
    fn listeners_with_other_keys_of_a_registry_share_no_trust() {
        /// The beginning of an Ed25519 key in DER.
        const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
        let provider = Arc::new(dunlin_awslc::provider());
        let learned = LearnedState::default();
        let key = |kind, number: u8| {
            let key = PublicKey::from_spki(&[&SPKI[..], &[number; 32]].concat()).expect("a key");
            NoteKey::new(&provider, "registry.example/1", kind, &key).expect("a name")
        };
        let [first, second] = [1, 3].map(|number| key(NoteKeyKind::Note, number));
        let one = RegistryTrust::new(first, vec![key(NoteKeyKind::Cosignature, 1)]).expect("a trust");
        let both = one.clone().with_other_key(second).expect("a trust");
        let registry = |trust: &RegistryTrust| learned.registry(&provider, trust.clone(), 0);
        let of_one = registry(&one);
        let of_both = registry(&both);
        for (known, trust) in [(&of_one, &one), (&of_both, &both), (&of_one, &one)] {
            assert!(Arc::ptr_eq(known, &registry(trust)));
            assert_eq!((&*of_one.trust(), &*of_both.trust()), (&one, &both));
        }
        // Both share the permanent knowledge about DIDs.
        let did =
            "did:dunlin:zQ3shhcYXZ6Ts8cQxPqkkcMUVt4gUjzFBZDtyH1ZsUGYvMYYu".parse::<Did>().expect("a DID");
        of_both.deactivate(did.clone());
        let document = Sha256Hash::of(&provider, b"a document").expect("a hash");
        assert_eq!(of_one.standing(&did, &document, 0), Standing::Outdated);
    }
}
