//! Look-ups of DIDs in a registry, and proofs of an own DID from there.

use std::sync::Arc;

use dunlin::Credential;
use dunlin::crypto::CryptoProvider;
use dunlin_identity::handshake::CredentialVerifier;
use dunlin_identity::holding::Holding;
use dunlin_identity::key::PublicKey;
use dunlin_identity::registry::checkpoint::RegistryTrust;
use dunlin_registry::client::RegistryClient;
use dunlin_registry::lookup::{LOOK_UP_TIME, LookUps};
use dunlin_registry::stapler::Stapler;
use dunlin_tokio::https::{self, HttpsClient};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::acme::{self, connector};
use crate::config::{Fault, Field, FileField, Section};
use crate::credentials::Learnt;
use crate::tls::{self, read};

/// The table `registry`: the registry of `did:dunlin` that a side asks.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// `url`: where it answers.
    pub url: Field<String>,
    /// `key`: its keys and those of its witnesses.
    pub key: FileField,
    /// `ca`: the authorities of its HTTPS server; empty for those of this machine.
    pub ca: Vec<FileField>,
}

impl RegistryConfig {
    /// Reads the table.
    pub(crate) fn read(mut section: Section<'_>) -> Option<Self> {
        let (url, key, ca) = (section.text("url"), section.file("key"), section.files("ca"));
        let url = url.filter(|url| match https::url(&url.value) {
            Ok(_) => true,
            Err(error) => {
                section.fault(url.place.fault(error.to_string(), "plain HTTP is never used"));
                false
            }
        });
        if !section.has("url") {
            section.missing("url", "write the URL of the registry, as in \"https://registry.example\"");
        }
        if !section.has("key") {
            section.missing("key", "name the file registry.pub that `dunlin registry init` has made");
        }
        section.end();
        Some(Self { url: url?, key: key?, ca })
    }

    /// Reads the files, and makes a client, which knows what was learnt before. It opens no connection.
    pub(crate) fn client(
        &self,
        provider: &Arc<CryptoProvider>,
        learnt: &Learnt,
    ) -> Result<RegistryClient, Fault> {
        let key = &self.key;
        let refused = |error: &dyn std::fmt::Display| {
            let what = format!("{}: {error}", key.value.display());
            key.place.fault(what, "name the file registry.pub that `dunlin registry init` has made")
        };
        let content = read(&key.value).map_err(|error| refused(&error))?;
        let text = str::from_utf8(&content).map_err(|error| refused(&error))?;
        let trust = RegistryTrust::read(provider, text).map_err(|error| refused(&error))?;
        let mut faults = vec![];
        let x509 = match self.ca.is_empty() {
            true => acme::system_anchors(),
            false => tls::trust([&self.ca, &[], &[]], &mut faults).x509,
        };
        if let Some(fault) = faults.pop() {
            return Err(fault);
        }
        let what = "this machine has no certificates of authorities that the registry's TLS could lead to";
        let none = || self.url.place.fault(what, "give ca, or install ca-certificates");
        let connector = connector(provider, x509.ok_or_else(none)?);
        let connector =
            connector.map_err(|error| self.url.place.fault(error.to_string(), "report this error"))?;
        let https = HttpsClient::new(connector).with_deadline(LOOK_UP_TIME);
        let documents = learnt.registry(provider, trust);
        let client = RegistryClient::new(provider.clone(), &self.url.value, https, documents);
        client.map_err(|error| self.url.place.fault(error.to_string(), "plain HTTP is never used"))
    }
}

/// Learns when an issuer of `did:dunlin` has another document or has ended its DID, as long as the verifier exists.
pub(crate) fn watch_issuers(look_ups: &LookUps, verifier: &Arc<CredentialVerifier>) {
    // Without a runtime nobody can connect either.
    let Ok(runtime) = Handle::try_current() else { return };
    let (look_ups, verifier) = (look_ups.clone(), Arc::downgrade(verifier));
    runtime.spawn(async move { look_ups.watch_issuers(verifier).await });
}

/// Refreshes the proof of an own DID as long as the value exists.
pub(crate) struct Refreshing(AbortHandle);

impl Refreshing {
    /// Begins. Failures are logged.
    pub(crate) fn begin(stapler: Arc<Stapler>, provider: Arc<CryptoProvider>) -> Option<Self> {
        // Without a runtime nobody can connect either.
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

/// The credential for handshakes, with proofs from this registry if its DID is a `did:dunlin`.
pub(crate) fn stapled(
    holding: Holding,
    registry: Option<RegistryClient>,
    provider: &CryptoProvider,
) -> (Option<Credential>, Option<Arc<Stapler>>) {
    let registry = registry.filter(|_| holding.did().method() == "dunlin");
    let key = PublicKey::from_spki(holding.signer().public_key()).ok();
    let stapler =
        registry.zip(key).map(|(registry, key)| Arc::new(Stapler::new(registry, holding.did().clone(), key)));
    let holding = match &stapler {
        Some(stapler) => holding.with_proofs(stapler.clone()),
        None => holding,
    };
    (holding.to_tls(provider), stapler)
}
