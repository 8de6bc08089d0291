//! Verifiable credentials and bare DIDs of peers and of this side: the keys that name their files.

use dunlin::SsiMessages;

use super::{FileField, RegistryConfig, Section};

/// The keys by which a side judges the verifiable credentials and bare DIDs of peers.
#[derive(Clone, Debug, Default)]
pub struct CredentialTrust {
    /// `vc_issuers`: the list of the trusted issuers.
    pub issuers: Option<FileField>,
    /// `vc_peers`: the list of the DIDs that peers may have.
    pub peers: Option<FileField>,
    /// `vc_status`: the status lists of the issuers.
    pub status: Vec<FileField>,
    /// `dids`: the list of the DIDs by which alone peers may authenticate.
    pub dids: Option<FileField>,
    /// `did_documents`: the documents that the lists pin.
    pub documents: Vec<FileField>,
    /// `registry`: where the documents of others come from.
    pub registry: Option<RegistryConfig>,
    /// `ssi_messages`: whether DIDs and credentials travel in messages of their own.
    pub messages: Option<SsiMessages>,
}

/// The keys by which a side shows a DID or a verifiable credential.
#[derive(Clone, Debug)]
pub struct OwnCredential {
    /// `did`: the directory of the DID, or its private key.
    pub did: FileField,
    /// `vc`: the credential; without one, this side shows the DID alone.
    pub credential: Option<FileField>,
    /// `staple_status`: the status lists of the credential's issuer, which this side sends along.
    pub status: Vec<FileField>,
    /// `membership`: a file of membership proofs; this side sends the proof of its own DID.
    pub membership: Option<FileField>,
}

/// The words for `ssi_messages`.
const MESSAGES: [(&str, SsiMessages); 3] =
    [("off", SsiMessages::Off), ("beside", SsiMessages::Beside), ("alone", SsiMessages::Alone)];

impl CredentialTrust {
    /// Reads the keys. The documents and the registry are also for the DIDs that this side shows.
    pub(crate) fn read(section: &mut Section<'_>, own: &[&OwnCredential]) -> Self {
        let trust = Self {
            issuers: section.file("vc_issuers"),
            peers: section.file("vc_peers"),
            status: section.files("vc_status"),
            dids: section.file("dids"),
            documents: section.files("did_documents"),
            registry: section.table("registry").and_then(RegistryConfig::read),
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

    /// Whether credentials of some issuers, or some DIDs, are trusted.
    pub(crate) const fn trusts(&self) -> bool {
        self.issuers.is_some() || self.dids.is_some()
    }

    /// How DIDs travel. Bare ones, of this side or of peers, have messages of their own, which credentials
    /// use with peers that do not know them as certificates.
    pub(crate) fn messages<'a>(&self, mut own: impl Iterator<Item = &'a OwnCredential>) -> SsiMessages {
        let needs_them = self.dids.is_some() || own.any(OwnCredential::is_bare);
        self.messages.unwrap_or(if needs_them { SsiMessages::Beside } else { SsiMessages::Off })
    }
}

impl OwnCredential {
    /// Whether it shows the DID alone.
    pub(crate) fn is_bare(&self) -> bool {
        self.credential.is_none()
    }

    /// Reads the keys of the configuration.
    pub(crate) fn read(section: &mut Section<'_>) -> Option<Self> {
        let did = section.file("did");
        let credential = section.file("vc");
        let status = section.files("staple_status");
        let membership = section.file("membership");
        if credential.is_none()
            && let Some(list) = status.first()
        {
            let what = "staple_status has no effect, because no vc is shown";
            section.fault(list.place.fault(what, "add vc, or leave this out"));
        }
        match did {
            Some(did) => Some(Self { did, credential, status, membership }),
            None => {
                if let Some(other) = credential.or(membership) {
                    let what = "it is about the DID of did, which is missing";
                    section.fault(other.place.fault(what, "add did, or leave this out"));
                }
                None
            }
        }
    }
}
