//! Verifiable credentials and bare DIDs of peers and of this side: the keys that name their files.

use dunlin::SsiMessages;
use dunlin_identity::handshake::DEFAULT_OUTAGE_AGE;
use dunlin_setup::credentials::{CredentialTrust, OwnCredential};
use dunlin_setup::registry::{REGISTRY_KEY, RegistryConfig};
use dunlin_tokio::https;

use super::{Field, Section};

/// The words for `ssi_messages`.
const MESSAGES: [(&str, SsiMessages); 3] =
    [("off", SsiMessages::Off), ("beside", SsiMessages::Beside), ("alone", SsiMessages::Alone)];

/// Reads the keys by which a side judges peers. The documents and the registry are also for the DIDs that this
/// side shows.
pub(crate) fn credential_trust(section: &mut Section<'_>, own: &[&OwnCredential]) -> CredentialTrust {
    let trust = CredentialTrust {
        issuers: section.file("vc_issuers"),
        peers: section.file("vc_peers"),
        status: section.files("vc_status"),
        dids: section.file("dids"),
        documents: section.files("did_documents"),
        registry: section.table("registry").and_then(registry),
        messages: section.one_of("ssi_messages", &MESSAGES),
    };
    let is_unused = !trust.trusts() && own.is_empty();
    for key in ["did_documents", "registry", "ssi_messages"].into_iter().filter(|_| is_unused) {
        if section.has(key) {
            let what = format!("{key} has no effect, because no credential or DID is trusted or shown");
            section.fault(section.place_of(key).fault(what, "add vc_issuers or dids, or leave it out"));
        }
    }
    if trust.messages == Some(SsiMessages::Off) && trust.dids.is_some() {
        let what = "bare DIDs travel in messages of their own only";
        let advice = "leave ssi_messages out, or write \"beside\" or \"alone\"";
        section.fault(section.place_of("ssi_messages").fault(what, advice));
    } else if trust.messages == Some(SsiMessages::Off) && own.iter().any(|own| own.is_bare()) {
        let what = "a DID without vc travels in messages of its own only";
        section.fault(section.place_of("ssi_messages").fault(what, "leave ssi_messages out, or add vc"));
    }
    let others = trust.peers.iter().chain(&trust.status);
    if let Some(other) = others.take(usize::from(trust.issuers.is_none())).next() {
        let what = "without vc_issuers, no verifiable credential is trusted";
        section.fault(other.place.fault(what, "add vc_issuers, or leave this out"));
    }
    trust
}

/// Reads the keys by which a side shows a DID or a credential.
pub(crate) fn own_credential(section: &mut Section<'_>) -> Option<OwnCredential> {
    let did = section.file("did");
    let credentials = section.files("vc");
    let status = section.files("staple_status");
    let membership = section.file("membership");
    if credentials.is_empty()
        && let Some(list) = status.first()
    {
        let what = "staple_status has no effect, because no vc is shown";
        section.fault(list.place.fault(what, "add vc, or leave this out"));
    }
    match did {
        Some(did) => Some(OwnCredential { did, credentials, status, membership }),
        None => {
            if let Some(other) = credentials.first().or(membership.as_ref()) {
                let what = "it is about the DID of did, which is missing";
                section.fault(other.place.fault(what, "add did, or leave this out"));
            }
            None
        }
    }
}
/// Reads the table of a registry.
fn registry(mut section: Section<'_>) -> Option<RegistryConfig> {
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
    Some(RegistryConfig { url: url?, nodes, key: key?, ca, outage_age })
}
