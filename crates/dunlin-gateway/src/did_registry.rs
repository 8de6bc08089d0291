//! Look-ups of DIDs in a registry, and proofs of an own DID from there.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin::Credential;
use dunlin::crypto::CryptoProvider;
use dunlin_identity::handshake::Holding;
use dunlin_identity::handshake::{CredentialVerifier, Judge};
use dunlin_identity::key::PublicKey;
use dunlin_identity::transparency::RegistryTrust;
use dunlin_registry::client::RegistryClient;
use dunlin_registry::lookup::{LOOK_UP_TIME, LookUps};
use dunlin_registry::stapler::Stapler;
use dunlin_setup::files;
use dunlin_setup::https::connector_by;
use dunlin_tokio::https::HttpsClient;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::clock::now_s;
use crate::config::{Fault, REGISTRY_KEY, RegistryConfig};
use crate::learned::LearnedState;

impl RegistryConfig {
    /// Reads the files, and makes a client, which keeps earlier knowledge. It opens no connection.
    pub(crate) fn client(
        &self,
        provider: &Arc<CryptoProvider>,
        learned: &LearnedState,
    ) -> Result<RegistryClient, Fault> {
        let key = &self.key;
        let refused = |error: &dyn std::fmt::Display| {
            let what = format!("{}: {error}", key.value.display());
            key.place.fault(what, REGISTRY_KEY)
        };
        let text = files::text(key)?;
        let trust = RegistryTrust::read_file(provider, text.as_bytes(), now_s());
        let trust = trust.map_err(|error| refused(&error))?;
        if let Some(warning) = trust.warning() {
            tracing::warn!(file = %key.value.display(), warning, "the trust in the registry is weaker than it looks");
        }
        let connector = connector_by(provider, &self.ca, &self.url.place, "ca")?;
        let https = HttpsClient::new(connector).with_deadline(LOOK_UP_TIME);
        let documents = learned.registry(provider, trust, self.outage_age);
        let client = RegistryClient::new(provider.clone(), &self.url.value, https, documents);
        let mut nodes = self.nodes.iter();
        let client =
            client.and_then(|client| nodes.try_fold(client, |client, node| client.with_node(&node.value)));
        client.map_err(|error| self.url.place.fault(error.to_string(), "plain HTTP is never used"))
    }
}

/// Learns when an issuer of `did:dunlin` has another document or has ended its DID, as long as the verifier
/// exists.
pub(crate) fn watch_issuers(look_ups: &LookUps, verifier: &Arc<CredentialVerifier>) {
    // Without a Tokio runtime there are no connections to serve.
    let Ok(runtime) = Handle::try_current() else { return };
    let look_ups = look_ups.clone();
    let verifier = Arc::downgrade(verifier);
    runtime.spawn(async move { look_ups.watch_issuers(verifier).await });
}

/// Learns whether the registries answer, as long as the verifier exists.
pub(crate) fn watch_registries(look_ups: &LookUps, verifier: &Arc<dyn Judge>) {
    // Without a Tokio runtime there are no connections to serve.
    let Ok(runtime) = Handle::try_current() else { return };
    let look_ups = look_ups.clone();
    let verifier = Arc::downgrade(verifier);
    runtime.spawn(async move { look_ups.watch_registries(verifier).await });
}

/// Refreshes the proof of an own DID as long as the value exists.
pub(crate) struct Refreshing(AbortHandle);

impl Refreshing {
    /// Refreshes these proofs instead of those before a reload.
    pub(crate) fn replace(
        all: &Mutex<Vec<Self>>,
        staplers: impl Iterator<Item = Arc<Stapler>>,
        provider: &Arc<CryptoProvider>,
    ) {
        let next = staplers.filter_map(|stapler| Self::begin(stapler, provider.clone())).collect();
        *all.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Begins. Failures are logged.
    fn begin(stapler: Arc<Stapler>, provider: Arc<CryptoProvider>) -> Option<Self> {
        // Without a Tokio runtime there are no connections to serve.
        let runtime = Handle::try_current().ok()?;
        let task = runtime.spawn(async move {
            let told = |error: &_| tracing::warn!(did = %stapler.did(), %error, "no new proof of the own DID; peers must ask the registry");
            stapler.keep_fresh(&provider, told).await
        });
        Some(Self(task.abort_handle()))
    }
}

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The credential for handshakes, with proofs from this registry if its DID is a `did:dunlin`, and with its
/// proof of membership.
pub(crate) fn stapled(
    holding: Holding,
    registry: Option<RegistryClient>,
    membership: Vec<u8>,
    provider: &CryptoProvider,
    learned: &LearnedState,
) -> (Option<Credential>, Option<Arc<Stapler>>) {
    let registry = registry.filter(|_| holding.did().method() == "dunlin");
    let key = PublicKey::from_spki(holding.signer().public_key()).ok();
    let new = |(registry, key)| {
        learned.continued(Stapler::new(registry, holding.did().clone(), key).with_membership(membership))
    };
    let stapler = registry.zip(key).map(new);
    let holding = match &stapler {
        Some(stapler) => holding.with_proofs(stapler.clone()),
        None => holding,
    };
    (holding.to_tls(provider), stapler)
}
