//! The engine's configuration of a tunnel's listener, made from its files and stores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::auth::{Psk, Verifiers};
use dunlin::cache::ClientCache;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{ClientConfig, Credential, Multihoming, NodeIds, Profile, Side, TransportKind as Over};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_registry::stapler::Stapler;
use dunlin_setup::files::{in_file, open_to_others, reason};
use dunlin_setup::registry::Sources;
use dunlin_setup::{psk, trust};
use dunlin_store::cache::{KeyFault, OpenError};
use dunlin_store::psk::ShortKeys;
use dunlin_store::{MemoryClientCache, MemoryClientSessions, StoreUrl};

use super::config::{TunnelListener, TunnelPsk};
use crate::config::{CacheConfig, Fault, TransportKind};
use crate::known::Learned;
use crate::own::{self, OwnIdentity};
use crate::{builder, stores};

/// The state that outlives a reload: tickets and handshake caches. A tunnel has one.
pub(crate) struct Stores {
    pub(crate) provider: Arc<CryptoProvider>,
    /// The tickets of all listeners. The engine tells them apart by the server and the settings.
    sessions: Arc<MemoryClientSessions>,
    /// Handshake caches by their stores; `None`: the one in memory.
    caches: Mutex<HashMap<Option<StoreUrl>, Arc<dyn ClientCache>>>,
    /// The knowledge from issuers and registries.
    pub(super) learned: Learned,
}

impl Stores {
    pub(crate) fn new() -> Self {
        Self {
            provider: Arc::new(dunlin_awslc::provider()),
            sessions: Arc::default(),
            caches: Mutex::default(),
            learned: Learned::default(),
        }
    }

    /// Opens the handshake cache. A device with a full or damaged disk still connects: its cache is then in
    /// memory.
    fn cache(&self, config: &CacheConfig, warnings: &mut Vec<Fault>) -> Result<Arc<dyn ClientCache>, Fault> {
        let name = config.store.as_ref().map(|store| store.value.clone());
        let mut all = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache) = all.get(&name) {
            return Ok(cache.clone());
        }
        let memory = || Arc::new(MemoryClientCache::default()) as Arc<dyn ClientCache>;
        let Some(place) = &config.store else {
            return Ok(all.entry(name).or_insert_with(memory).clone());
        };
        let store = stores::store_at(&place.value, config);
        let error = match store.open_client(&self.provider, Box::new(stores::report_cache)) {
            Ok(cache) => return Ok(all.entry(name).or_insert(Arc::new(cache)).clone()),
            Err(error) => error,
        };
        match error {
            OpenError::Store(_) | OpenError::Key { fault: KeyFault::Unwritable(_), .. } => {
                let what = format!("{error}; the cache is in memory until the next reload");
                warnings.push(place.place.fault(what, error.advice()));
                Ok(memory())
            }
            // The text of the store may contain a password, so only its error is shown.
            error => Err(place.place.fault(error.to_string(), error.advice())),
        }
    }
}

/// The engine's configuration of a listener, with its parts.
pub(crate) struct BuiltConfig {
    pub(crate) config: Arc<ClientConfig>,
    /// The answers about servers whose documents are in a registry.
    pub(crate) answers: Option<LookUpAnswers>,
    /// The sources of proofs of own DIDs.
    pub(crate) staplers: Vec<Arc<Stapler>>,
}

/// Reads the files of `listener` and makes its configuration. With `opens_stores` it also opens the handshake
/// cache.
///
/// Faults are added to `faults`, and `None` is returned. Problems with which the tunnel can go on are added
/// to `warnings`.
pub(crate) fn client_config(
    listener: &TunnelListener,
    stores: &Stores,
    opens_stores: bool,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Option<BuiltConfig> {
    let before = faults.len();
    let trusted = &listener.trust;
    let is_readable = !faults.iter().any(|fault| listener.place.is_hidden_by(fault, ""));
    let mut own = vec![];
    for files in &listener.certificates {
        own.extend(own::certificate(files, Side::Client, &stores.provider, faults, warnings));
    }
    let of_dids = &trusted.credentials;
    let Stores { provider, learned, .. } = stores;
    let sources = Sources::open(of_dids.registry.as_ref(), None, provider, &learned.state, faults);
    let shown = listener.credential.as_ref().and_then(|own| {
        let loaded = own.load(&of_dids.documents, &sources, provider, &learned.state, warnings);
        loaded.map_err(|fault| faults.push(fault)).ok()
    });
    let (mut credentials, staplers) = shown.unwrap_or_default();
    credentials.extend(OwnIdentity::credentials(listener.raw_public_key, own.iter()));
    let trust = trust::trust([&trusted.ca, &trusted.crl, &trusted.raw_keys], faults);
    let has_trust = trust.x509.is_some() || trust.raw_key.is_some() || trusted.credentials.trusts();
    let (trust, answers) =
        builder::verifiers(trust, of_dids, (&sources, &learned.state), provider, faults, warnings);
    let psks = match &listener.psk {
        None => vec![],
        Some(psk) => {
            warnings.extend(open_to_others(&psk.file, "the keys"));
            let psks = psks(psk, listener.transport, &stores.provider);
            psks.map_err(|fault| faults.push(fault)).unwrap_or_default()
        }
    };
    let cache = listener.cache.as_ref().filter(|_| opens_stores);
    let cache = cache.and_then(|config| match stores.cache(config, warnings) {
        Ok(cache) => Some((config, cache)),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    if faults.len() > before || !is_readable {
        return None;
    }
    let config = make(listener, stores, credentials, (trust, has_trust), psks).map(|config| match cache {
        Some((settings, store)) => config.with_handshake_cache(settings.mode, store, settings.max_age),
        None => config,
    });
    let told = |error: dunlin::Error| {
        faults.push(listener.place.fault(reason(&error), "change the settings or files named here"));
    };
    config.map_err(told).ok().map(|config| BuiltConfig { config: Arc::new(config), answers, staplers })
}

fn make(
    listener: &TunnelListener,
    stores: &Stores,
    credentials: Vec<Credential>,
    (trust, has_trust): (Verifiers, bool),
    psks: Vec<Arc<Psk>>,
) -> Result<ClientConfig, dunlin::Error> {
    let provider = &stores.provider;
    let has_credential = !credentials.is_empty();
    let mut profile =
        Profile::builder(provider.clone()).credentials(credentials).trust(trust).alpn(listener.alpn.clone());
    profile = profile.ssi_messages(listener.trust.credentials.messages(listener.credential.iter()));
    let without_dhe = listener.psk.as_ref().is_some_and(|psk| psk.without_dhe);
    if listener.versions.tls12 {
        let mut suites = TLS12_CIPHER_SUITES.to_vec();
        if without_dhe {
            suites.extend(TLS12_PSK_CIPHER_SUITES);
        }
        // A suite with a pre-shared key authenticates both sides, as in TLS 1.3, so it comes first.
        suites.sort_by_key(|suite| psks.is_empty() == suite.has_psk());
        profile = profile.tls12_cipher_suites(suites);
    }
    if !listener.versions.tls13 {
        profile = profile.cipher_suites(vec![]);
    }
    if without_dhe {
        profile = profile.psk_modes(vec![PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE]);
    }
    let profile = profile.build()?;
    let mut config = if has_trust {
        ClientConfig::new(profile).with_psks(psks).with_credential_required(has_credential)
    } else {
        ClientConfig::psk_only(profile, psks)?
    };
    if listener.tickets {
        config = config.with_sessions(stores.sessions.clone());
    }
    match listener.transport {
        TransportKind::Tls => Ok(config),
        TransportKind::Dtls => over_datagrams(config, listener, provider),
    }
}

fn over_datagrams(
    mut config: ClientConfig,
    listener: &TunnelListener,
    provider: &CryptoProvider,
) -> Result<ClientConfig, dunlin::Error> {
    let datagrams = &listener.datagrams;
    if let Some(mtu) = datagrams.mtu {
        config = config.with_mtu(mtu)?;
    }
    if datagrams.connection_ids {
        // Each association has a socket of its own, so it needs no ID to be found by.
        config = config.with_connection_ids(Arc::new(NodeIds::new(&[], 0, provider.random.clone())?));
    }
    match datagrams.multihoming {
        _ if datagrams.interfaces.is_empty() => Ok(config),
        Some(multihoming) => config.with_multihoming(multihoming),
        // Unlinkable interfaces need DTLS 1.3 alone.
        None => match config.clone().with_multihoming(Multihoming::unlinkable()) {
            Ok(config) => Ok(config),
            Err(_) => config.with_multihoming(Multihoming::linkable()),
        },
    }
}

/// Reads the pre-shared key: one key, or if it is imported, one for each hash (RFC 9258 §4).
fn psks(
    config: &TunnelPsk,
    transport: TransportKind,
    provider: &Arc<CryptoProvider>,
) -> Result<Vec<Arc<Psk>>, Fault> {
    // Later changes come with a reload.
    let keys = psk::read(&config.file, ShortKeys::Refuse)?;
    let record = psk::choose(&config.file, &keys, config.identity.as_ref())?;
    let over = match transport {
        TransportKind::Tls => Over::Stream,
        TransportKind::Dtls => Over::Datagram,
    };
    let psks = record.psks(provider, over);
    let psks = psks.map_err(|error| in_file(&config.file, &error, "make a key with `dunlin psk new`"))?;
    Ok(psks.into_iter().map(Arc::new).collect())
}
