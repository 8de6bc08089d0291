//! Identities that a listener presents to its peers: certificates, credentials and DIDs, from the files that
//! the configuration names.

use std::sync::Arc;

use dunlin::auth::{SubjectName, X509Identity};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::pki_types::CertificateDer;
use dunlin::{Credential, Side};
use dunlin_pki::LoadedCredential;
use dunlin_registry::stapler::Stapler;

use crate::acme;
use crate::clock::wall;
use crate::config::{CertificateFiles, Fault, ListenerConfig, NamePattern, OwnFiles};
use crate::files::{REPORT, open_to_others, unusable};
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
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Vec<OwnIdentity> {
    let provider = &stores.provider;
    let trust = &listener.clients.credentials;
    let mut own = vec![];
    for files in &listener.certificates {
        own.extend(match files {
            OwnFiles::Certificate(files) => certificate(files, Side::Server, provider, faults, warnings),
            OwnFiles::Did { name, did } => match did.load(trust, provider, &stores.learned, warnings) {
                Ok((credential, stapler)) => {
                    let name = name.as_ref().map(|name| name.value.clone());
                    Some(OwnIdentity { name, credential, raw: None, stapler, is_pending: false })
                }
                Err(fault) => {
                    faults.push(fault);
                    None
                }
            },
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
    // Without a file of its own, the key stands beside the certificate.
    let of_key = files.key.as_ref().unwrap_or(&files.chain);
    warnings.extend(open_to_others(&of_key.place, &of_key.value, "the key"));
    let key = files.key.as_ref().map(|key| key.value.as_path());
    match LoadedCredential::load(&files.chain.value, key, side, wall(), provider) {
        Ok(loaded) => {
            if let Some(refusal) = loaded.refusal.as_ref().filter(|_| files.acme.is_none()) {
                let what = format!("{}: {refusal}", files.chain.value.display());
                let advice = match side {
                    Side::Server => "clients will refuse it: renew it",
                    Side::Client => "servers will refuse it: renew it",
                };
                warnings.push(files.chain.place.fault(what, advice));
            }
            Some(OwnIdentity::new(files.name.as_ref().map(|name| name.value.clone()), loaded))
        }
        Err(error) => {
            let of_key = files.key.as_ref().filter(|key| key.value == error.file);
            let place = of_key.map_or(&files.chain.place, |key| &key.place);
            faults.push(unusable(place, &error.file, &error.error));
            None
        }
    }
}
