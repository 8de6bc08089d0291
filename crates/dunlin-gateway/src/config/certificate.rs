//! The tables `[[listener.certificate]]`: the identities that a listener presents to its peers.

use std::collections::HashMap;

use super::{AcmeConfig, Field, FileField, OwnCredential, Section, own_credential};

/// A certificate chain and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The name under which profiles of a policy list the certificate.
    pub name: Option<Field<String>>,
    /// The chain in PEM, leaf first.
    pub chain: FileField,
    /// The private key; by default it is in the file of the chain.
    pub key: Option<FileField>,
    /// The gateway writes the file of the chain, which it orders by ACME. It holds the key, too.
    pub acme: Option<AcmeConfig>,
}

/// An identity that a gateway's listener presents to clients, as files.
#[derive(Clone, Debug)]
pub enum OwnFiles {
    /// A certificate chain.
    Certificate(CertificateFiles),
    /// A DID, or a verifiable credential about it.
    Did {
        /// The name under which profiles of a policy list it.
        name: Option<Field<String>>,
        /// The files.
        did: OwnCredential,
    },
}

impl OwnFiles {
    /// Reads the table.
    pub(super) fn read(mut section: Section<'_>) -> Option<Self> {
        if !["did", "vc", "staple_status", "membership"].iter().any(|key| section.has(key)) {
            return own_certificate(section).map(Self::Certificate);
        }
        for key in ["chain", "key", "acme"].into_iter().filter(|key| section.has(key)) {
            let what = format!("a DID has no certificate, so {key} has no effect");
            let advice = "write it in a table [[listener.certificate]] of its own";
            section.fault(section.place_of(key).fault(what, advice));
        }
        let _ =
            (section.file("chain"), section.file("key"), section.table("acme").and_then(AcmeConfig::read));
        let name = section.text("name");
        let did = own_credential(&mut section);
        if let Some(second) = did.as_ref().and_then(|did| did.credentials.get(1)) {
            let advice = "write a table [[listener.certificate]] for each";
            section.fault(second.place.fault("more than one credential", advice));
        }
        section.end();
        did.map(|did| Self::Did { name, did })
    }

    /// The name under which profiles of a policy list it.
    pub(crate) const fn name(&self) -> Option<&Field<String>> {
        match self {
            Self::Certificate(files) => files.name.as_ref(),
            Self::Did { name, .. } => name.as_ref(),
        }
    }

    /// How the gateway orders the certificate, if it does.
    pub(crate) fn acme(&self) -> Option<&AcmeConfig> {
        match self {
            Self::Certificate(files) => files.acme.as_ref(),
            Self::Did { .. } => None,
        }
    }

    /// The DID.
    pub(super) const fn did(&self) -> Option<&OwnCredential> {
        match self {
            Self::Certificate(_) => None,
            Self::Did { did, .. } => Some(did),
        }
    }
}

/// Checks the names of a listener's certificates.
pub(crate) fn check_names<'a>(
    names: impl Iterator<Item = &'a Field<String>>,
    has_policy: bool,
    section: &Section<'_>,
) {
    let mut known = HashMap::new();
    for Field { value: name, place } in names {
        if !has_policy {
            let what = "a name of a certificate is for the profiles of a policy, but this listener has none";
            section.fault(place.fault(what, "leave name out, or add the key policy to the listener"));
        }
        if let Some(first) = known.insert(name, place) {
            let what = format!("duplicate name {name:?}, first used at {first}");
            section.fault(place.fault(what, "give each certificate a name of its own"));
        }
    }
}

/// Reads a table of a certificate.
pub(crate) fn certificate(mut section: Section<'_>) -> Option<CertificateFiles> {
    let name = section.text("name");
    let chain = section.file("chain");
    let key = section.file("key");
    if !section.has("chain") {
        section.missing("chain", "name the file of the certificate chain in PEM, leaf first");
    }
    let is_complete = key.is_some() || !section.has("key");
    section.end();
    // Without its key, the chain's file would be searched for one.
    chain.filter(|_| is_complete).map(|chain| CertificateFiles { name, chain, key, acme: None })
}

/// Reads a table of a server's certificate, which may come by ACME.
fn own_certificate(mut section: Section<'_>) -> Option<CertificateFiles> {
    if !section.has("acme") {
        return certificate(section);
    }
    let name = section.text("name");
    for key in ["chain", "key"] {
        if section.has(key) {
            let what = format!(
                "the gateway itself writes the files of a certificate by ACME, so {key} has no effect"
            );
            section.fault(section.place().fault(what, format!("leave {key} out, or the table acme")));
        }
    }
    let _ = (section.file("chain"), section.file("key"));
    let acme = section.table("acme").and_then(AcmeConfig::read);
    section.end();
    let acme = acme?;
    let chain = Field { value: acme.file(), place: acme.place.clone() };
    Some(CertificateFiles { name, chain, key: None, acme: Some(acme) })
}
