//! The credentials and configurations of both sides: mutual authentication with chains of three on P-256, of
//! which leaf and intermediate are sent, and a cookie.

use std::fmt::Display;
use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::crypto::CryptoProvider;
use dunlin::resume::Tickets;
use dunlin::wire::SignatureScheme;
use dunlin::{
    ClientAuth, ClientConfig, ConnectionIds, Credential, Migration, Multihoming, NodeIds, Profile,
    ServerConfig, Side, Trust,
};
use dunlin_awslc::tls12::TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
use dunlin_pki::{Authority, CaSpec, Identity, KeyPair, KeyType, LeafSpec, Subject, Validity};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, RotatingTickets};
use pki_types::{CertificateDer, PrivateKeyDer};

use super::case::Scheme;
use crate::Error;

/// The name in the server's certificate.
pub(super) const SERVER_NAME: &str = "localhost";
/// The validity of certificates, in days.
const DAYS: u32 = 30;
/// The length of connection IDs, which suffices to find an association among many.
const CONNECTION_ID_BYTES: usize = 8;
/// More sessions than a run has handshakes.
const SESSIONS: usize = 10_000;

/// The chains of both sides.
pub(super) struct Keys {
    pub(super) root: CertificateDer<'static>,
    pub(super) client: Identity,
    pub(super) server: Identity,
}

impl Keys {
    /// Makes new keys.
    pub(super) fn new() -> Result<Self, Error> {
        let made = || {
            let validity = Validity::from_now_days(DAYS)?;
            let key = || KeyPair::generate(KeyType::P256);
            let ca = |name| Ok::<_, dunlin_pki::Error>(CaSpec::new(Subject::common_name(name)?, validity));
            let root = Authority::root(&ca("Dunlin root")?, key()?)?;
            let issuer = root.intermediate(&ca("Dunlin intermediate")?, key()?)?;
            let server = LeafSpec::server([SERVER_NAME.parse()?], validity);
            let client = LeafSpec::client(Subject::common_name("device-1")?, validity);
            Ok(Self {
                client: issuer.issue(&client, key()?)?,
                server: issuer.issue(&server, key()?)?,
                root: root.certificate().clone(),
            })
        };
        made().map_err(|error: dunlin_pki::Error| Error::new("certificates", &error, error.advice()))
    }

    /// The configurations of both sides for a scheme, without sessions of earlier connections.
    pub(super) fn configs(&self, scheme: Scheme) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Error> {
        let provider = Arc::new(dunlin_awslc::provider());
        let profile = |side| self.profile(&provider, side, scheme);
        let client = ClientConfig::new(profile(Side::Client)?);
        let server = ServerConfig::new(profile(Side::Server)?).map_err(failed)?;
        let server = server.with_client_auth(ClientAuth::Required).map_err(failed)?;
        let sessions = || Arc::new(MemoryClientSessions::new(1, 1));
        let (client, server) = match scheme {
            Scheme::Standard => (client, server),
            Scheme::Ipc | Scheme::Tcs | Scheme::TcsMessage | Scheme::TcsMultihomed => {
                // These schemes have no check of a new address.
                let server = server.with_migration(Migration::never().with_unchecked(true));
                match scheme.ports() {
                    Some(ports) => (client.with_port_scheme(ports), server.with_port_scheme(ports)),
                    None => (client, server),
                }
            }
            Scheme::SessionId => {
                let store = Arc::new(MemoryServerSessions::new(SESSIONS));
                (client.with_sessions(sessions()), server.with_tickets(Tickets::stateful(store)))
            }
            Scheme::Ticket => {
                let seal = Arc::new(RotatingTickets::new(provider).map_err(failed)?);
                (client.with_sessions(sessions()), server.with_tickets(Tickets::stateless(seal)))
            }
            Scheme::Cid12 | Scheme::Cid13 | Scheme::CidMultihomed | Scheme::CidMultihomedDuplicates => {
                let ids = || -> Result<Arc<dyn ConnectionIds>, Error> {
                    let random = Arc::clone(&provider.random);
                    Ok(Arc::new(NodeIds::new(&[], CONNECTION_ID_BYTES, random).map_err(failed)?))
                };
                (client.with_connection_ids(ids()?), server.with_connection_ids(ids()?))
            }
        };
        let client = match scheme {
            Scheme::CidMultihomed => client.with_multihoming(Multihoming::linkable()),
            Scheme::CidMultihomedDuplicates => client.with_multihoming(Multihoming::duplicated()),
            _ => Ok(client),
        };
        let client = client.map_err(failed)?;
        Ok((Arc::new(client), Arc::new(server)))
    }

    fn profile(&self, provider: &Arc<CryptoProvider>, side: Side, scheme: Scheme) -> Result<Profile, Error> {
        let own = if side == Side::Client { &self.client } else { &self.server };
        let der = own.key.to_pkcs8().map_err(failed)?;
        let key = provider.key_loader.load(&PrivateKeyDer::Pkcs8(der.as_slice().into())).map_err(failed)?;
        let x509 = X509Trust::anchors([self.root.clone()]).map_err(failed)?;
        let profile = Profile::builder(Arc::clone(provider))
            .groups(vec![dunlin_awslc::SECP256R1])
            .signature_schemes(vec![SignatureScheme::ECDSA_SECP256R1_SHA256])
            .credentials(vec![Credential::x509(own.chain.clone(), key)])
            .trust(Trust { x509: Some(x509), raw_key: None });
        let profile = match scheme.protocol() {
            "dtls1.3" => profile.cipher_suites(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256]),
            _ => profile
                .cipher_suites(vec![])
                .tls12_cipher_suites(vec![&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]),
        };
        profile.build().map_err(failed)
    }
}

pub(super) fn failed(why: impl Display) -> Error {
    Error::new("dunlin", why, "run it again; if it stays, this is a fault in dunlin")
}
