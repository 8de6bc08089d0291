//! The handshake cache (docs/handshake-cache.md): repeated handshakes authenticate both sides as freshly as
//! full ones, without the certificates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod histories;
mod hostile;
mod modes;
mod rules;
mod table;
mod tickets;
mod vectors;
mod world;

use std::sync::Arc;

use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::wire::{HandshakeType, ProtocolVersion};
use dunlin::{ClientAuth, ClientConfig, Profile, ProfileBuilder, ServerConfig, Trust};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::{KeyType, Pair, Pki, awslc};

/// A version and a cache mode. The rules hold for every combination, so most tests run with all.
#[derive(Clone, Copy, Debug)]
struct Setup {
    version: ProtocolVersion,
    mode: CacheMode,
}

/// Every version with every mode that also caches clients.
fn setups() -> impl Iterator<Item = Setup> {
    let modes = [CacheMode::Compact, CacheMode::Bithac];
    let versions = [ProtocolVersion::TLS1_2, ProtocolVersion::TLS1_3];
    versions.into_iter().flat_map(move |version| modes.map(|mode| Setup { version, mode }))
}

/// Restricts a profile to this version.
fn of_version(version: ProtocolVersion, profile: ProfileBuilder) -> ProfileBuilder {
    match version {
        ProtocolVersion::TLS1_2 => {
            profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        }
        _ => profile,
    }
}

/// A profile for mutual authentication by X.509.
fn profile_of(typ: KeyType, is_client: bool) -> ProfileBuilder {
    let pki = Pki::shared(typ);
    let own = if is_client { &pki.client } else { &pki.server };
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    Profile::builder(awslc()).trust(trust).credentials(vec![own.x509(&awslc())])
}

type Ends = (Arc<ClientConfig>, Arc<ServerConfig>);

impl Setup {
    fn is_tls12(self) -> bool {
        self.version == ProtocolVersion::TLS1_2
    }

    fn profile(self, typ: KeyType, is_client: bool) -> ProfileBuilder {
        of_version(self.version, profile_of(typ, is_client))
    }

    fn client(self, profile: ProfileBuilder) -> Arc<ClientConfig> {
        Arc::new(self.client_config(profile, &Arc::new(MemoryClientCache::default())))
    }

    fn client_config(self, profile: ProfileBuilder, store: &Arc<MemoryClientCache>) -> ClientConfig {
        let config = ClientConfig::new(profile.build().unwrap());
        config.with_handshake_cache(self.mode, store.clone(), DEFAULT_MAX_AGE)
    }

    fn server(
        self,
        profile: ProfileBuilder,
        auth: ClientAuth,
    ) -> (Arc<ServerConfig>, Arc<MemoryServerCache>) {
        let store = Arc::new(MemoryServerCache::new(16));
        (Arc::new(self.server_config(profile, auth, &store)), store)
    }

    fn server_config(
        self,
        profile: ProfileBuilder,
        auth: ClientAuth,
        store: &Arc<MemoryServerCache>,
    ) -> ServerConfig {
        let config = ServerConfig::new(profile.build().unwrap()).unwrap();
        let config = config.with_handshake_cache(self.mode, store.clone(), DEFAULT_MAX_AGE).unwrap();
        config.with_client_auth(auth).unwrap()
    }

    /// A client and a server that authenticate each other by X.509, and the server's store.
    fn ends(self, typ: KeyType) -> (Arc<ClientConfig>, Arc<ServerConfig>, Arc<MemoryServerCache>) {
        let (server, store) = self.server(self.profile(typ, false), ClientAuth::Required);
        (self.client(self.profile(typ, true)), server, store)
    }
}

/// Returns whether the server's and the client's certificates were omitted; both sides must agree on it.
fn cached(pair: &Pair) -> [bool; 2] {
    let [c, s] = [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone());
    assert_eq!(c.is_peer_cached(), s.is_own_cached());
    assert_eq!(s.is_peer_cached(), c.is_own_cached());
    [c.is_peer_cached(), s.is_peer_cached()]
}

/// Connects, and returns whether the server's and the client's certificates were omitted.
fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (Pair, [bool; 2]) {
    let mut pair = Pair::new(client, server);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    let [c, s] = [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone());
    assert!(c.peer_signature.is_some() && s.own_signature == c.peer_signature);
    assert!(!c.is_resumed() && !s.is_resumed());
    let cached = cached(&pair);
    (pair, cached)
}

/// Returns the lengths of the messages of this type, with their headers of 4 bytes.
fn lengths(pair: &Pair, typ: HandshakeType) -> Vec<usize> {
    pair.client.messages().iter().filter(|m| m.typ == typ).map(|m| m.len).collect()
}
