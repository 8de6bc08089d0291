//! The configurations of both sides: mutual authentication with chains of three on P-256, of which leaf and
//! intermediate are sent, and a cookie.

use std::sync::Arc;

use dunlin::crypto::CryptoProvider;
use dunlin::resume::Tickets;
use dunlin::{
    ClientAuth, ClientConfig, ConnectionIds, Migration, Multihoming, NodeIds, Profile, ServerConfig,
};
use dunlin_awslc::tls12::TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
use dunlin_pki::{Identity, KeyType};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, RotatingTickets};

use super::super::keys::{CHAIN_LENGTH, Keys, credential, schemes, trust};
use super::case::Scheme;
use crate::Error;
use crate::error::failed;

/// The length of connection IDs, which suffices to find an association among many.
const CONNECTION_ID_BYTES: usize = 8;
/// More sessions than a run has handshakes.
const SESSIONS: usize = 10_000;
const KEY_TYPE: KeyType = KeyType::P256;

/// Makes new keys.
pub(super) fn keys() -> Result<Keys, Error> {
    Keys::new(KEY_TYPE, CHAIN_LENGTH)
}

/// The configurations of both sides for a scheme, without sessions of earlier connections.
pub(super) fn configs(keys: &Keys, scheme: Scheme) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Error> {
    let provider = Arc::new(dunlin_awslc::provider());
    let client = ClientConfig::new(profile(&provider, keys, &keys.client, scheme)?);
    let server = ServerConfig::new(profile(&provider, keys, &keys.server, scheme)?).map_err(failed)?;
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
    Ok((Arc::new(client.map_err(failed)?), Arc::new(server)))
}

fn profile(
    provider: &Arc<CryptoProvider>,
    keys: &Keys,
    own: &Identity,
    scheme: Scheme,
) -> Result<Profile, Error> {
    let profile = Profile::builder(Arc::clone(provider))
        .groups(vec![dunlin_awslc::SECP256R1])
        .signature_schemes(schemes(KEY_TYPE))
        .credentials(vec![credential(provider, own)?])
        .trust(trust([keys.root.clone()])?);
    let profile = match scheme.protocol() {
        "dtls1.3" => profile.cipher_suites(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256]),
        _ => profile
            .cipher_suites(vec![])
            .tls12_cipher_suites(vec![&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]),
    };
    profile.build().map_err(failed)
}
