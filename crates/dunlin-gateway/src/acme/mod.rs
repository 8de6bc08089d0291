//! Certificates by ACME (RFC 8555), with the crate `instant-acme` over the gateway's own HTTP client: orders,
//! the answers to challenges, and the directory that gateways share.

mod challenge;
mod files;
mod http;
mod order;

use std::sync::Arc;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_setup::https::connector_by;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName};

pub(crate) use challenge::{Challenges, Places};
pub(crate) use files::{Home, read, write};
use http::AcmeHttp;
pub(crate) use order::{Failure, order, renewal_window};

use crate::config::{AcmeConfig, Fault, ListenerConfig};

/// A certificate by ACME of a listener.
pub(crate) struct Managed {
    /// Its number among the listener's certificates.
    pub(crate) at: usize,
    pub(crate) config: AcmeConfig,
    pub(crate) home: Home,
    pub(crate) http: AcmeHttp,
}

impl Managed {
    /// The certificates by ACME of this listener. It opens no connection.
    pub(crate) fn of(
        listener: &ListenerConfig,
        provider: &Arc<CryptoProvider>,
        faults: &mut Vec<Fault>,
    ) -> Vec<Self> {
        let mut all = vec![];
        for (at, files) in listener.certificates.iter().enumerate() {
            let Some(config) = files.acme() else { continue };
            let store = &config.store;
            if store.value.exists() && !store.value.is_dir() {
                let what = format!("{}: it is no directory", store.value.display());
                faults.push(store.place.fault(what, "name a directory; the gateway makes a missing one"));
                continue;
            }
            match connector_by(provider, &config.ca, &config.place, "ca") {
                Ok(connector) => {
                    let http = AcmeHttp::new(connector);
                    all.push(Self { at, config: config.clone(), home: Home::new(config.home()), http });
                }
                Err(fault) => faults.push(fault),
            }
        }
        all
    }

    /// The first name, which stands for the certificate in the log and the metrics.
    pub(crate) fn name(&self) -> &str {
        self.config.names.first().map_or("", |name| name)
    }
}

/// A self-signed certificate and its key.
///
/// # Errors
/// The cryptographic library fails, or a name is malformed.
fn self_signed(
    names: Vec<String>,
    key_type: KeyType,
    extensions: Vec<CustomExtension>,
) -> Result<(CertificateDer<'static>, KeyPair), String> {
    let pair = KeyPair::generate(key_type).map_err(|error| error.to_string())?;
    let pkcs8 = pair.to_pkcs8().map_err(|error| error.to_string())?;
    let pkcs8 = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(&pkcs8[..]));
    let signer = rcgen::KeyPair::try_from(&pkcs8).map_err(|error| error.to_string())?;
    let mut params = CertificateParams::new(names).map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = extensions;
    let certificate = params.self_signed(&signer).map_err(|error| error.to_string())?;
    Ok((certificate.der().clone(), pair))
}

/// A placeholder for a certificate until the first order succeeds, with its key. The gateway checks the
/// configurations with it; no client gets it.
///
/// # Errors
/// The cryptographic library fails.
pub(crate) fn placeholder(
    acme: &AcmeConfig,
    provider: &CryptoProvider,
) -> Result<(CertificateDer<'static>, Arc<dyn SigningKey>), String> {
    let key_type = match acme.key_type {
        // Longer keys would only take longer.
        KeyType::Rsa3072 | KeyType::Rsa4096 => KeyType::Rsa2048,
        key_type => key_type,
    };
    let (certificate, pair) = self_signed(acme.names.clone(), key_type, vec![])?;
    let key = pair.signing_key(provider).map_err(|error| error.to_string())?;
    Ok((certificate, key))
}
