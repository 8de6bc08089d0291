//! The table `registry`: the registry of `did:dunlin` that a side asks.

use dunlin_identity::credential::Seconds;
use dunlin_identity::handshake::DEFAULT_OUTAGE_AGE;
use dunlin_tokio::https;

use super::{Field, FileField, Section};

/// The advice about `key`.
pub(crate) const REGISTRY_KEY: &str = "name the file registry.pub that `dunlin registry init` has made, or the genesis file of a replicated registry";

/// The table `registry`: the registry of `did:dunlin` that a side asks.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// `url`: where it answers.
    pub url: Field<String>,
    /// `nodes`: its other nodes.
    pub nodes: Vec<Field<String>>,
    /// `key`: its keys and its witnesses' keys, or the genesis file of its chain.
    pub key: FileField,
    /// `ca`: the authorities of its HTTPS server; empty for the authorities of this machine.
    pub ca: Vec<FileField>,
    /// `outage_age`: how old a proof may be that counts while the registry does not answer, in seconds; 0:
    /// none does.
    pub outage_age: Seconds,
}

impl RegistryConfig {
    /// Reads the table.
    pub(crate) fn read(mut section: Section<'_>) -> Option<Self> {
        let url = section.text("url");
        let nodes = section.texts("nodes");
        let key = section.file("key");
        let ca = section.files("ca");
        let outage_age = section.seconds("outage_age").map(|age| age.value.into());
        let outage_age = outage_age.unwrap_or(DEFAULT_OUTAGE_AGE);
        let mut is_https = |url: &Field<String>| match https::url(&url.value) {
            Ok(_) => true,
            Err(error) => {
                section.fault(url.place.fault(error.to_string(), "plain HTTP is never used"));
                false
            }
        };
        let url = url.filter(&mut is_https);
        let nodes = nodes.into_iter().filter(is_https).collect();
        if !section.has("url") {
            section.missing("url", "write the URL of the registry, as in \"https://registry.example\"");
        }
        if !section.has("key") {
            section.missing("key", REGISTRY_KEY);
        }
        section.end();
        Some(Self { url: url?, nodes, key: key?, ca, outage_age })
    }
}
