//! Sources of documents that are not in files: a registry of `did:dunlin`, and web servers of `did:web`. Also
//! the proofs of an own DID from there.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;
use dunlin_identity::credential::Seconds;
use dunlin_identity::handshake::{CredentialVerifier, Judge};
use dunlin_identity::transparency::RegistryTrust;
use dunlin_registry::client::RegistryClient;
use dunlin_registry::lookup::{LOOK_UP_TIME, LookUps, WebDocuments};
use dunlin_registry::stapler::Stapler;
use dunlin_tokio::https::{self, HttpsClient};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::files::{in_file, text};
use crate::https::connector_by;
use crate::learned::{LearnedState, Notice, Report};
use crate::place::{Fault, Field, FileField, Place};

/// The advice about the key of a registry.
pub const REGISTRY_KEY: &str = "name the file registry.pub that `dunlin registry init` has made, or the genesis file of a replicated registry";

/// The registry of `did:dunlin` that a side asks.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// `url`: where it answers.
    pub url: Field<String>,
    /// `nodes`: its other nodes.
    pub nodes: Vec<Field<String>>,
    /// `key`: its keys and its witnesses' keys, or the genesis file of its chain.
    pub key: FileField,
    /// `ca`: the authorities of its HTTPS server; empty for the system's trust store.
    pub ca: Vec<FileField>,
    /// `outage_age`: how old a proof may be that counts while the registry does not answer, in seconds; 0:
    /// none does.
    pub outage_age: Seconds,
}

impl RegistryConfig {
    /// Reads the files, and makes a client, which keeps earlier knowledge. It opens no connection.
    ///
    /// # Errors
    /// A URL is not one of HTTPS, or a file is unusable.
    pub fn client(
        &self,
        provider: &Arc<CryptoProvider>,
        learned: &LearnedState,
    ) -> Result<RegistryClient, Fault> {
        let plain = |place: &Place, error: &https::HttpsError| {
            place.fault(error.to_string(), "plain HTTP is never used")
        };
        for url in std::iter::once(&self.url).chain(&self.nodes) {
            https::url(&url.value).map_err(|error| plain(&url.place, &error))?;
        }
        let trust = registry_trust(&self.key, provider, learned.report())?;
        let https = https_client(&self.ca, &self.url.place, provider)?;
        let documents = learned.registry(provider, trust, self.outage_age);
        let client = RegistryClient::new(provider.clone(), &self.url.value, https, documents);
        let mut nodes = self.nodes.iter();
        let client =
            client.and_then(|client| nodes.try_fold(client, |client, node| client.with_node(&node.value)));
        client.map_err(|error| plain(&self.url.place, &error))
    }
}

/// Reads the trust in a registry.
///
/// # Errors
/// The file is unusable.
pub fn registry_trust(
    key: &FileField,
    provider: &CryptoProvider,
    report: &Report,
) -> Result<RegistryTrust, Fault> {
    let now_s = u64::try_from(crate::did::now_s()).unwrap_or(0);
    let trust = RegistryTrust::read_file(provider, text(key)?.as_bytes(), now_s);
    let trust = trust.map_err(|error| in_file(key, &error, REGISTRY_KEY))?;
    if let Some(warning) = trust.warning() {
        report(&Notice::WeakTrust(key.value.clone(), warning));
    }
    Ok(trust)
}

/// A client of the HTTPS servers of registries and `did:web`, which the setting at `place` names.
///
/// # Errors
/// A file of `ca` is unusable, or the system trusts no authority.
pub fn https_client(
    ca: &[FileField],
    place: &Place,
    provider: &Arc<CryptoProvider>,
) -> Result<HttpsClient, Fault> {
    let setting = if place.is_option() { "registry.ca" } else { "ca" };
    let connector = connector_by(provider, ca, place, setting)?;
    Ok(HttpsClient::new(connector).with_deadline(LOOK_UP_TIME))
}

/// The sources of documents that are not in files, which are open.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The registry.
    pub registry: Option<RegistryClient>,
    /// Look-ups there and on web servers.
    pub look_ups: LookUps,
    /// The methods whose documents they have, or would have without a fault.
    pub methods: Vec<DidMethod>,
}

impl Sources {
    /// The registry of `config`, if there is one; with `web`, also web servers. Faults of the registry's
    /// settings are added to `faults`.
    pub fn open(
        config: Option<&RegistryConfig>,
        web: Option<HttpsClient>,
        provider: &Arc<CryptoProvider>,
        learned: &LearnedState,
        faults: &mut Vec<Fault>,
    ) -> Self {
        let client = |config: &RegistryConfig| config.client(provider, learned);
        let registry = config.and_then(|config| client(config).map_err(|fault| faults.push(fault)).ok());
        let methods = [config.map(|_| DidMethod::DUNLIN), web.as_ref().map(|_| DidMethod::WEB)];
        let web = web.map(|https| WebDocuments::new(provider.clone(), https));
        let look_ups = LookUps::new(registry.iter().cloned().collect(), web);
        Self { registry, look_ups, methods: methods.into_iter().flatten().collect() }
    }

    /// Whether the registry of the settings is not open, because they have a fault.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.registry.is_none() && self.methods.contains(&DidMethod::DUNLIN)
    }

    /// A verifier that uses the known documents, and asks for others. They take precedence over pinned
    /// documents, which never change.
    pub(crate) fn extend<J: Judge>(&self, verifier: J) -> J {
        let resolvers = self.look_ups.resolvers();
        if resolvers.is_empty() { verifier } else { verifier.asking_with(resolvers) }
    }

    /// Learns when an issuer of the verifier has another document or has ended its DID, as long as the
    /// verifier exists.
    pub(crate) fn watch_issuers(&self, verifier: &Arc<CredentialVerifier>) {
        // Without a Tokio runtime there are no connections to serve.
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.methods.is_empty() {
            let look_ups = self.look_ups.clone();
            let verifier = Arc::downgrade(verifier);
            runtime.spawn(async move { look_ups.watch_issuers(verifier).await });
        }
    }

    /// Learns whether the registry answers, as long as the verifier exists.
    pub fn watch_registry(&self, verifier: &Arc<dyn Judge>) {
        // Without a Tokio runtime there are no connections to serve.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.registry.is_some() {
            let look_ups = self.look_ups.clone();
            let verifier = Arc::downgrade(verifier);
            runtime.spawn(async move { look_ups.watch_registries(verifier).await });
        }
    }
}

/// Refreshes the proofs of own DIDs, until others take their place.
#[derive(Default)]
pub struct Refreshing(Mutex<Vec<Task>>);

struct Task(AbortHandle);

impl Refreshing {
    /// Refreshes these proofs instead of those before. Failures are reported.
    pub fn replace(
        &self,
        staplers: impl IntoIterator<Item = Arc<Stapler>>,
        provider: &Arc<CryptoProvider>,
        report: &Report,
    ) {
        // Without a Tokio runtime there are no connections to serve.
        let Ok(runtime) = Handle::try_current() else { return };
        let begin = |stapler: Arc<Stapler>| {
            let provider = provider.clone();
            let report = report.clone();
            let task = runtime.spawn(async move {
                let failed = |error: &_| report(&Notice::NoProof(stapler.did().clone(), Clone::clone(error)));
                stapler.keep_fresh(&provider, failed).await
            });
            Task(task.abort_handle())
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = staplers.into_iter().map(begin).collect();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
