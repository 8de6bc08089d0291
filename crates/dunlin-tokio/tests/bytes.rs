//! Both ends of a connection without losses count the same bytes of the handshake.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::sync::Arc;

use common::profile;
use dunlin::resume::Tickets;
use dunlin::{ClientAuth, ClientConfig, Profile, ServerConfig, Trust};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::{KeyType, Leaf, Pki, awslc, localhost};
use dunlin_tokio::{DtlsEndpoint, HandshakeBytes, TlsAcceptor, TlsConnector};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Configurations of both sides for one version, which authenticate each other by certificates and resume
/// sessions.
fn configs(is_tls12: bool) -> (ClientConfig, ServerConfig) {
    let pki = Pki::shared(KeyType::P256);
    let made = |own: &Leaf| -> Profile {
        let trust = Trust { x509: Some(pki.trust()), raw_key: None };
        let builder = profile().trust(trust).credentials(vec![own.x509(&awslc())]);
        if is_tls12 {
            builder.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        } else {
            builder
        }
        .build()
        .unwrap()
    };
    let server =
        ServerConfig::new(made(&pki.server)).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    let client = ClientConfig::new(made(&pki.client));
    (
        client.with_sessions(Arc::new(MemoryClientSessions::default())),
        server.with_tickets(Tickets::stateless(seal)),
    )
}

/// One end receives as many bytes as the other one sends.
fn agree(what: &str, client: HandshakeBytes, server: HandshakeBytes) {
    assert!(client.read > 0 && client.written > 0, "{what}");
    assert_eq!((client.written, client.read), (server.read, server.written), "{what}");
}

#[tokio::test]
async fn both_ends_of_a_stream_agree() {
    for is_tls12 in [true, false] {
        let (client, server) = configs(is_tls12);
        let connector = TlsConnector::new(Arc::new(client));
        let acceptor = TlsAcceptor::new(Arc::new(server));
        for is_resumed in [false, true] {
            let (here, there) = tokio::io::duplex(65_536);
            let connected = tokio::try_join!(connector.connect(here, localhost()), acceptor.accept(there));
            let (mut client, mut server) = connected.unwrap();
            // Tickets that arrive together with the answer do not belong to the handshake.
            server.write_all(b"x").await.unwrap();
            server.flush().await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), b'x');
            assert_eq!(client.negotiated().is_resumed(), is_resumed);
            let what = format!("{:?}, resumed: {is_resumed}", client.negotiated().version);
            agree(&what, client.handshake_bytes(), server.handshake_bytes());
        }
    }
}

/// A server that demands a cookie forgets all before it, and the client says how much that is.
#[tokio::test]
async fn both_ends_of_an_association_agree() {
    for (is_tls12, has_cookies, mtu) in [
        (true, false, 1200),
        (false, false, 1200),
        (true, true, 1200),
        (false, true, 1200),
        // In fragments.
        (true, true, 127),
        (false, true, 127),
    ] {
        let (client, server) = configs(is_tls12);
        let client = Arc::new(client.with_mtu(mtu).unwrap());
        let there = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let server = server.with_cookies(has_cookies).with_mtu(mtu).unwrap();
        there.set_server(Some(Arc::new(server)));
        for is_resumed in [false, true] {
            let here = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let accepted = async { there.accept().await.accept().await };
            let connected =
                tokio::try_join!(here.connect(&client, localhost(), there.local_addr()), accepted);
            let (client, server) = connected.unwrap();
            server.send(b"x").await.unwrap();
            assert_eq!(client.recv().await.unwrap().unwrap(), b"x");
            assert_eq!(client.negotiated().is_resumed(), is_resumed);
            let version = client.negotiated().version;
            let what = format!("{version:?}, resumed: {is_resumed}, cookies: {has_cookies}, MTU {mtu}");
            let all = client.handshake_bytes();
            let request = client.request_bytes();
            assert_eq!(request.written > 0, has_cookies, "{what}");
            assert_eq!(server.request_bytes(), HandshakeBytes::default(), "{what}");
            let counted =
                HandshakeBytes { read: all.read - request.read, written: all.written - request.written };
            agree(&what, counted, server.handshake_bytes());
        }
    }
}
