//! The engine's sides for the tests with real peers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::peer::now;
use crate::{KeyType, Leaf, OTHER_KEY_TYPES, Pki, awslc, full_awslc, localhost};
use dunlin::auth::{Psk, PskTable, RawKeyTrust};
use dunlin::resume::{ClientSessions, Tickets};
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{
    ClientAuth, ClientConfig, Profile, ProfileBuilder, PskSource, ServerConfig, SingleUse, TlsConnection,
    Trust,
};

/// The kinds of keys that the tests with real peers use.
pub const KEYS: [KeyType; 4] = [KeyType::Rsa2048, KeyType::P256, KeyType::P384, KeyType::Ed25519];
/// 2^20 bytes.
pub const MIB: usize = 1 << 20;
/// The shared key of "device-1", in hexadecimal.
pub const PSK: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The pre-shared key of "device-1".
pub fn psk() -> Psk {
    let key: Vec<u8> = (0..32).collect();
    Psk::new("device-1", &key).unwrap()
}

fn x509_profile(typ: KeyType, own: &Leaf) -> ProfileBuilder {
    let provider = if OTHER_KEY_TYPES.contains(&typ) { full_awslc() } else { awslc() };
    Profile::builder(provider.clone())
        .trust(Trust { x509: Some(Pki::shared(typ).trust()), raw_key: None })
        .credentials(vec![own.x509(&provider)])
}

/// The profile of a client with X.509 of this kind.
pub fn client_profile(typ: KeyType) -> ProfileBuilder {
    x509_profile(typ, &Pki::shared(typ).client)
}

/// The profile of a server with X.509 of this kind.
pub fn server_profile(typ: KeyType) -> ProfileBuilder {
    x509_profile(typ, &Pki::shared(typ).server)
}

/// A client with X.509 of this kind.
pub fn client(typ: KeyType, edit: impl FnOnce(ClientConfig) -> ClientConfig) -> TlsConnection {
    client_with(client_profile(typ), edit)
}

/// A client with this profile.
pub fn client_with(
    profile: ProfileBuilder,
    edit: impl FnOnce(ClientConfig) -> ClientConfig,
) -> TlsConnection {
    let config = edit(ClientConfig::new(profile.build().unwrap()));
    TlsConnection::client(&Arc::new(config), localhost(), now()).unwrap()
}

/// A client without the compatibility mode.
pub fn plain_client(typ: KeyType) -> TlsConnection {
    client_with(client_profile(typ).compatibility_mode(false), |c| c)
}

/// A client that has no credential.
pub fn anonymous_client(typ: KeyType) -> TlsConnection {
    let trust = Trust { x509: Some(Pki::shared(typ).trust()), raw_key: None };
    let profile = Profile::builder(awslc()).trust(trust).build().unwrap();
    TlsConnection::client(&Arc::new(ClientConfig::new(profile)), localhost(), now()).unwrap()
}

/// The configuration of a server with X.509 of this kind that requires a client certificate.
pub fn server_config(typ: KeyType, edit: impl FnOnce(ServerConfig) -> ServerConfig) -> Arc<ServerConfig> {
    server_config_with(server_profile(typ), edit)
}

/// The configuration of a server with this profile that requires a client certificate.
pub fn server_config_with(
    profile: ProfileBuilder,
    edit: impl FnOnce(ServerConfig) -> ServerConfig,
) -> Arc<ServerConfig> {
    let config = ServerConfig::new(profile.build().unwrap()).unwrap();
    Arc::new(edit(config.with_client_auth(ClientAuth::Required).unwrap()))
}

/// A server with X.509 of this kind that requires a client certificate.
pub fn server(typ: KeyType, edit: impl FnOnce(ServerConfig) -> ServerConfig) -> TlsConnection {
    TlsConnection::server(&server_config(typ, edit), now())
}

fn psk_profile(mode: &str) -> Profile {
    let mode = PskKeyExchangeMode::from_name(mode).unwrap();
    Profile::builder(awslc()).psk_modes(vec![mode]).build().unwrap()
}

/// A client with only a PSK.
pub fn psk_client(mode: &str) -> TlsConnection {
    let config = ClientConfig::new(psk_profile(mode)).with_psks(vec![Arc::new(psk())]);
    TlsConnection::client(&Arc::new(config), localhost(), now()).unwrap()
}

/// A server with only a PSK.
pub fn psk_server(mode: &str) -> TlsConnection {
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let config = ServerConfig::psk_only(psk_profile(mode), keys).unwrap();
    TlsConnection::server(&Arc::new(config), now())
}

fn raw_profile(typ: KeyType, is_client: bool) -> Profile {
    let pki = Pki::shared(typ);
    let provider = awslc();
    let (own, peer) = if is_client { (&pki.client, &pki.server) } else { (&pki.server, &pki.client) };
    let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![peer.public_key.clone()])) };
    Profile::builder(provider.clone()).trust(trust).credentials(vec![own.raw_key(&provider)]).build().unwrap()
}

/// A client with raw keys in both directions.
pub fn raw_client(typ: KeyType) -> TlsConnection {
    TlsConnection::client(&Arc::new(ClientConfig::new(raw_profile(typ, true))), localhost(), now()).unwrap()
}

/// A server with raw keys in both directions.
pub fn raw_server(typ: KeyType) -> TlsConnection {
    let config = ServerConfig::new(raw_profile(typ, false)).unwrap();
    TlsConnection::server(&Arc::new(config.with_client_auth(ClientAuth::Required).unwrap()), now())
}

/// A new session store for clients.
pub fn with_sessions() -> Arc<dyn ClientSessions> {
    Arc::new(dunlin_store::MemoryClientSessions::new(8, 8))
}

/// Every kind of ticket. All allow early data.
pub fn tickets() -> Vec<Tickets> {
    let register = SingleUse::Register(Arc::new(dunlin_store::MemoryUseOnce::with_new_keys(16)));
    let stateless = dunlin_store::RotatingTickets::new(awslc()).unwrap().with_single_use(register);
    let stateful = dunlin_store::MemoryServerSessions::new(16);
    vec![Tickets::stateless(Arc::new(stateless)), Tickets::stateful(Arc::new(stateful))]
}

/// Waits until a peer has written a file.
pub fn wait_for_file(path: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while std::fs::metadata(path).map_or(0, |m| m.len()) == 0 {
        assert!(Instant::now() < end, "the peer does not write {path}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
