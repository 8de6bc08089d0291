//! Identities that a listener presents to its peers: certificates, credentials and DIDs, from the files that
//! the configuration names.

use std::sync::Arc;

use dunlin::auth::{SubjectName, X509Identity};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::pki_types::CertificateDer;
use dunlin::{Credential, Side};
use dunlin_pki::LoadedCredential;
use dunlin_registry::stapler::Stapler;
use dunlin_setup::files::REPORT;
use dunlin_setup::registry::Sources;
use dunlin_setup::trust::{own_certificate, refusal};

use crate::acme;
use crate::config::{CertificateFiles, Fault, ListenerConfig, NamePattern, OwnFiles};
use crate::stores::Stores;

/// An identity that a listener presents: a certificate, a credential or a DID.
#[derive(Clone)]
pub(crate) struct OwnIdentity {
    /// The name under which profiles of a policy list it.
    pub(crate) name: Option<String>,
    credential: Credential,
    /// The key of a certificate as a raw public key.
    raw: Option<Credential>,
    /// The source of proofs of a DID.
    pub(crate) stapler: Option<Arc<Stapler>>,
    /// Whether it only stands for one that the gateway has not got yet by ACME. Clients do not get it.
    pub(crate) is_pending: bool,
}

impl OwnIdentity {
    pub(crate) fn new(name: Option<String>, loaded: LoadedCredential) -> Self {
        let LoadedCredential { credential, key, .. } = loaded;
        Self { name, credential, raw: Some(Credential::raw_key(key)), stapler: None, is_pending: false }
    }

    pub(crate) fn pending(
        name: Option<String>,
        leaf: CertificateDer<'static>,
        key: Arc<dyn SigningKey>,
    ) -> Self {
        let credential = Credential::x509(vec![leaf], key.clone());
        Self { name, credential, raw: Some(Credential::raw_key(key)), stapler: None, is_pending: true }
    }

    /// For handshakes: these, in this order. With `raw_public_key`, the keys of certificates as raw public
    /// keys come first.
    pub(crate) fn credentials<'a>(
        raw_public_key: bool,
        own: impl Iterator<Item = &'a Self> + Clone,
    ) -> Vec<Credential> {
        let raw = own.clone().filter(|_| raw_public_key).filter_map(|own| own.raw.clone());
        raw.chain(own.map(|own| own.credential.clone())).collect()
    }

    /// The certificate itself, without its chain.
    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        match &self.credential {
            Credential::X509 { chain, .. } => chain.first(),
            _ => None,
        }
    }
}

/// Reads the identities that the listener presents to clients.
pub(crate) fn of_listener(
    listener: &ListenerConfig,
    stores: &Stores,
    sources: &Sources,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Vec<OwnIdentity> {
    let provider = &stores.provider;
    let documents = &listener.clients.credentials.documents;
    let mut own = vec![];
    for files in &listener.certificates {
        own.extend(match files {
            OwnFiles::Certificate(files) => certificate(files, Side::Server, provider, faults, warnings),
            OwnFiles::Did { name, did } => {
                let loaded = did.load(documents, sources, provider, &stores.learned.state, warnings);
                let loaded = loaded.map_err(|fault| faults.push(fault)).unwrap_or_default();
                let (mut shown, mut staplers) = loaded;
                let name = name.as_ref().map(|name| name.value.clone());
                let stapler = staplers.pop();
                shown.pop().map(|credential| OwnIdentity {
                    name,
                    credential,
                    raw: None,
                    stapler,
                    is_pending: false,
                })
            }
        });
    }
    warnings.extend(unnamed(listener, &own));
    own
}

/// The names of routes that no certificate has. Clients that want such a server refuse the certificate that
/// they get. A listener without certificates authenticates in other ways.
fn unnamed<'a>(listener: &'a ListenerConfig, own: &[OwnIdentity]) -> impl Iterator<Item = Fault> + use<'a> {
    let leaves: Vec<_> = own.iter().filter_map(|own| X509Identity::of_leaf(own.leaf()?)).collect();
    let names: Vec<_> = leaves.into_iter().flat_map(|leaf| leaf.names).collect();
    let has_certificates = own.iter().any(|own| own.leaf().is_some());
    let is_named = move |sni: &NamePattern| {
        names.iter().any(|name| matches!(name, SubjectName::Dns(name) if sni.is_named_by(name)))
    };
    let names = listener.routes.iter().flat_map(|route| route.sni.iter().map(move |sni| (route, sni)));
    names.filter(move |(_, sni)| has_certificates && !is_named(sni)).map(|(route, sni)| {
        let what = format!("no certificate of this listener has the name {sni} of the route");
        route.place.fault(what, "clients will refuse the one that they get: add a certificate with this name")
    })
}

/// Reads a certificate that `side` presents.
pub(crate) fn certificate(
    files: &CertificateFiles,
    side: Side,
    provider: &CryptoProvider,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Option<OwnIdentity> {
    if let Some(acme) = files.acme.as_ref().filter(|_| !files.chain.value.exists()) {
        let what = format!("there is no certificate for {} yet", acme.names.join(", "));
        let advice = "the gateway orders it when it runs, and refuses clients that need it until then";
        warnings.push(files.chain.place.fault(what, advice));
        let placeholder = acme::placeholder(acme, provider);
        let placeholder =
            placeholder.map_err(|error| faults.push(files.chain.place.fault(error, REPORT))).ok();
        let name = files.name.as_ref().map(|name| name.value.clone());
        return placeholder.map(|(leaf, key)| OwnIdentity::pending(name, leaf, key));
    }
    match own_certificate(&files.chain, files.key.as_ref(), side, provider, warnings) {
        Ok(loaded) => {
            // The gateway renews certificates by ACME itself.
            warnings.extend(refusal(&files.chain, &loaded, side).filter(|_| files.acme.is_none()));
            Some(OwnIdentity::new(files.name.as_ref().map(|name| name.value.clone()), loaded))
        }
        Err(fault) => {
            faults.push(fault);
            None
        }
    }
}
