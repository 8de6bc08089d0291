//! The parts of which the engine's configurations of a listener are built: the content of its files, its
//! stores and settings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dunlin::Trust;
use dunlin::auth::{FindPsk, Psk, Verifier, Verifiers};
use dunlin::cache::{CacheMode, ServerCache};
use dunlin::crypto::CryptoProvider;
use dunlin::resume::Tickets;
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_setup::credentials::Judges;
use dunlin_setup::files::open_to_others;
use dunlin_setup::learned::LearnedState;
use dunlin_setup::psk::Psks;
use dunlin_setup::registry::Sources;
use dunlin_setup::trust;
use dunlin_store::RememberedVerdicts;
use dunlin_store::psk::{PskError, ShortKeys};

use crate::clock::now;
use crate::config::{CredentialTrust, Fault, Faults, ListenerConfig};
use crate::own::{self, OwnIdentity};
use crate::stores::Stores;

/// The number of certificate chains of clients that a listener has verified and remembers, some 500 bytes
/// each.
const MAX_VERDICTS: usize = 10_000;

/// The content of a listener's files.
pub(crate) struct Files {
    /// In the order of the configuration. Certificates by ACME change.
    pub(crate) own: ArcSwap<Vec<OwnIdentity>>,
    pub(crate) trust: Verifiers,
    /// The registry's answers about clients with verifiable credentials.
    pub(crate) answers: Option<LookUpAnswers>,
    /// Whether certificates, raw public keys or credentials of clients are trusted.
    pub(crate) trusts: bool,
    pub(crate) psks: Option<Arc<dyn FindPsk>>,
}

/// The handshake cache of a listener.
pub(crate) struct Cache {
    pub(crate) mode: CacheMode,
    pub(crate) store: Arc<dyn ServerCache>,
    pub(crate) max_age: Duration,
}

/// Builds the configurations of a listener.
pub(crate) struct ConfigBuilder {
    pub(crate) listener: ListenerConfig,
    pub(crate) files: Files,
    pub(crate) tickets: Tickets,
    pub(crate) cache: Option<Cache>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) change: Mutex<()>,
}

impl ConfigBuilder {
    /// Reads the files of `listener`. With `opens_stores` it also opens the handshake cache. `None` if there
    /// are faults, which are added to `faults`; problems with which the gateway can go on are added to
    /// `warnings`.
    pub(crate) fn read(
        listener: &ListenerConfig,
        stores: &Arc<Stores>,
        opens_stores: bool,
        faults: &mut Vec<Fault>,
        warnings: &mut Vec<Fault>,
    ) -> Option<Self> {
        let before = faults.len();
        let clients = &listener.clients;
        let credentials = &clients.credentials;
        let Stores { provider, learned, .. } = &**stores;
        let sources = Sources::open(credentials.registry.as_ref(), None, provider, &learned.state, faults);
        let own = own::of_listener(listener, stores, &sources, faults, warnings);
        let x509 = trust::trust([&clients.ca, &clients.crl, &clients.raw_keys], faults);
        let (trust, answers) =
            verifiers(x509, credentials, (&sources, &learned.state), provider, faults, warnings);
        let files = Files {
            own: ArcSwap::from_pointee(own),
            trust,
            answers,
            trusts: clients.trusts(),
            psks: psks(listener, &stores.provider, faults, warnings),
        };
        warnings.extend(listener.idle_cache());
        let cache = listener.cache.as_ref().filter(|_| opens_stores);
        let cache = cache.and_then(|config| match stores.cache(listener, config) {
            Ok(store) => Some(Cache { mode: config.mode, store, max_age: config.max_age }),
            Err(fault) => {
                faults.push(fault);
                None
            }
        });
        let tickets = stores.tickets(listener).map_err(|fault| faults.push(fault)).ok()?;
        (faults.len() == before).then(|| Self {
            listener: listener.clone(),
            files,
            tickets,
            cache,
            stores: stores.clone(),
            change: Mutex::default(),
        })
    }

    /// Waits for other changes of the configurations: by the policy, or by a new certificate.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds trust in verifiable credentials and bare DIDs, and returns the look-ups that answer questions about
/// them.
pub(crate) fn verifiers(
    trust: Trust,
    credentials: &CredentialTrust,
    (sources, learned): (&Sources, &LearnedState),
    provider: &Arc<CryptoProvider>,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> (Verifiers, Option<LookUpAnswers>) {
    let Trust { x509, raw_key } = trust;
    let x509 =
        x509.map(|x509| Arc::new(RememberedVerdicts::new(Arc::new(x509), MAX_VERDICTS)) as Arc<dyn Verifier>);
    let raw_key = raw_key.map(|trust| Arc::new(trust) as Arc<dyn Verifier>);
    // The type with the smaller messages comes first, which is the last one that is added.
    let verifiers = x509.into_iter().chain(raw_key).fold(Verifiers::default(), Verifiers::with);
    let judges = credentials.verifiers(sources, provider, learned, faults, warnings);
    let verifiers = judges.iter().flat_map(Judges::verifiers).fold(verifiers, Verifiers::with);
    (verifiers, judges.map(|judges| judges.answers()))
}

impl ListenerConfig {
    /// The pre-shared key that the listener finds now under this identity.
    ///
    /// # Errors
    /// The keys cannot be read.
    pub fn find_psk(&self, identity: &[u8]) -> Result<Option<Arc<Psk>>, Faults> {
        let mut faults = vec![];
        let keys = psks(self, &Arc::new(dunlin_awslc::provider()), &mut faults, &mut vec![]);
        Faults::none_in(faults)?;
        Ok(keys.and_then(|keys| keys.find(identity, now())))
    }
}

fn psks(
    listener: &ListenerConfig,
    provider: &Arc<CryptoProvider>,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Option<Arc<dyn FindPsk>> {
    let file = listener.clients.psk.as_ref()?;
    warnings.extend(open_to_others(file, "the keys"));
    let path = file.value.display().to_string();
    let report = move |error: &PskError, then: &str| {
        tracing::warn!(file = path, %error, "pre-shared keys: {then}");
    };
    // A database that cannot be read now may be readable later: until then, no client can use a key.
    let opened = Psks::open(file, ShortKeys::Refuse, provider, report);
    opened.map(|(psks, _)| Arc::new(psks) as _).map_err(|fault| faults.push(fault)).ok()
}
