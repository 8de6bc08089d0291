//! Helpers for the tests of streams and handshakes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod relay;

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::{ClientAuth, ClientConfig, Profile, ProfileBuilder, PskSource, ServerConfig, Trust};
use dunlin_tests::{KeyType, Pki, awslc, localhost};
use dunlin_tokio::{TlsAcceptor, TlsConnector, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) const PSK: [u8; 32] = [7; 32];

pub(crate) fn profile() -> ProfileBuilder {
    Profile::builder(awslc())
}

pub(crate) fn psk_client() -> ClientConfig {
    let psk = Arc::new(Psk::new("d1", &PSK).unwrap());
    ClientConfig::new(profile().build().unwrap()).with_psks(vec![psk])
}

pub(crate) fn psk_server() -> ServerConfig {
    let psks = PskTable::from_iter([Psk::new("d1", &PSK).unwrap()]);
    ServerConfig::psk_only(profile().build().unwrap(), PskSource::Here(Arc::new(psks))).unwrap()
}

/// Configurations of both sides, which authenticate each other by X.509.
pub(crate) fn x509() -> (ClientConfig, ServerConfig) {
    let pki = Pki::shared(KeyType::P256);
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let client = profile().trust(trust.clone()).credentials(vec![pki.client.x509(&awslc())]).build().unwrap();
    let server = profile().trust(trust).credentials(vec![pki.server.x509(&awslc())]).build().unwrap();
    let server = ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    (ClientConfig::new(client), server)
}

/// Connects a client and a server over two transports.
pub(crate) async fn connect<A, B>(client: A, server: B) -> (TlsStream<A>, TlsStream<B>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let acceptor = TlsAcceptor::new(Arc::new(psk_server()));
    tokio::try_join!(connector.connect(client, localhost()), acceptor.accept(server)).unwrap()
}

/// Connects a client and a server over a pipe with a buffer of `capacity` bytes.
pub(crate) async fn pair(
    capacity: usize,
) -> (TlsStream<tokio::io::DuplexStream>, TlsStream<tokio::io::DuplexStream>) {
    let (client, server) = tokio::io::duplex(capacity);
    connect(client, server).await
}

/// Pseudo-random bytes, which expose losses and swaps.
pub(crate) fn data(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The engine's error inside an I/O error.
pub(crate) fn tls_error(e: &std::io::Error) -> &dunlin::Error {
    e.get_ref().and_then(|e| e.downcast_ref()).unwrap_or_else(|| panic!("not an error of the engine: {e}"))
}
