//! The TLS of HTTPS: one profile for the clients and the servers of registries, did:web and ACME. Each
//! request has a connection of its own, so both sides resume sessions.

use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::crypto::CryptoProvider;
use dunlin::resume::Tickets;
use dunlin::{ClientConfig, Credential, Error, Profile, ProfileBuilder, ServerConfig, Trust};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tokio::{TlsAcceptor, TlsConnector};

use crate::files::REPORT;
use crate::place::{Fault, FileField, Place};
use crate::trust;

/// Connects to HTTPS servers with certificates by these authorities.
///
/// # Errors
/// The provider lacks algorithms that a profile needs.
pub fn connector(provider: &Arc<CryptoProvider>, trust: X509Trust) -> Result<TlsConnector, Error> {
    let profile = profile(provider).trust(Trust { x509: Some(trust), raw_key: None });
    let config = ClientConfig::new(profile.build()?);
    Ok(TlsConnector::new(Arc::new(config.with_sessions(Arc::new(MemoryClientSessions::default())))))
}

/// Accepts clients as an HTTPS server with this certificate. Its ticket keys end with the process.
///
/// # Errors
/// The provider lacks algorithms that a profile needs, or has no randomness.
pub fn acceptor(provider: &Arc<CryptoProvider>, credential: Credential) -> Result<TlsAcceptor, Error> {
    let config = ServerConfig::new(profile(provider).credentials(vec![credential]).build()?)?;
    let keys = RotatingTickets::new(provider.clone())?;
    Ok(TlsAcceptor::new(Arc::new(config.with_tickets(Tickets::stateless(Arc::new(keys))))))
}

/// Connects to HTTPS servers with certificates by the authorities in these files, or if there is no file, in
/// the system's trust store. `place` names the server, and `setting` the one for such files.
///
/// # Errors
/// A file cannot be used, or the system trusts no authority.
pub fn connector_by(
    provider: &Arc<CryptoProvider>,
    ca: &[FileField],
    place: &Place,
    setting: &str,
) -> Result<TlsConnector, Fault> {
    let mut faults = vec![];
    let trust = if ca.is_empty() { trust::system_anchors() } else { trust::anchors(ca, &[], &mut faults) };
    if let Some(fault) = faults.into_iter().next() {
        return Err(fault);
    }
    let none = || {
        let advice = format!("give {}, or install ca-certificates", place.word(setting));
        place.fault("this machine has no CA certificates to which the TLS of this server could lead", advice)
    };
    connector(provider, trust.ok_or_else(none)?).map_err(|error| place.fault(error.to_string(), REPORT))
}

fn profile(provider: &Arc<CryptoProvider>) -> ProfileBuilder {
    Profile::builder(provider.clone())
        .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        .alpn(vec![b"http/1.1".to_vec()])
}
