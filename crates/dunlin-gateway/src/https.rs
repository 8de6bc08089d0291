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

/// The authorities that this machine trusts. Unusable ones among the many are ignored.
pub(crate) fn system_anchors() -> Option<X509Trust> {
    let mut all = vec![];
    for certificate in rustls_native_certs::load_native_certs().certs {
        if let Ok(X509Trust::Anchors(anchors)) = X509Trust::anchors([certificate]) {
            all.extend(anchors);
        }
    }
    (!all.is_empty()).then_some(X509Trust::Anchors(all))
}

fn profile(provider: &Arc<CryptoProvider>) -> ProfileBuilder {
    Profile::builder(provider.clone())
        .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        .alpn(vec![b"http/1.1".to_vec()])
}
