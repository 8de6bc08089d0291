//! Fatal alerts reach a peer that still sends. The socket stays open until the input is read, so TCP does not
//! reset it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{pair, psk_client, psk_server, tls_error};
use dunlin::Error;
use dunlin::error::PeerMisbehaved;
use dunlin::wire::AlertDescription;
use dunlin_tests::localhost;
use dunlin_tokio::{HandshakeError, TlsAcceptor, TlsConnector, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

/// The bytes that follow the refused record: more than the sockets of both sides hold by default.
const INPUT: usize = 3_000_000;

/// A record of an unknown type.
const BAD_RECORD: [u8; 6] = [99, 3, 3, 0, 1, 0];

/// Returns the two ends of a TCP connection over loopback.
async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (one, other) =
        tokio::try_join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept()).unwrap();
    (one, other.0)
}

/// Sends a bad record and much data after it, before it reads anything.
async fn misbehave(socket: &mut TcpStream) {
    send_before_reading(socket, &BAD_RECORD).await;
}

/// Sends a record and much data after it, before it reads anything.
async fn send_before_reading(socket: &mut TcpStream, record: &[u8]) {
    socket.write_all(record).await.unwrap();
    socket.write_all(&vec![0; INPUT]).await.unwrap();
    socket.shutdown().await.unwrap();
}

/// Returns the bytes that the peer of a failed handshake reads until the other side closes its socket. Before
/// that, the peer sends `record` and much data after it.
async fn last_words(
    mut peer: TcpStream,
    record: &[u8],
    handshake: impl Future<Output = Result<TlsStream<TcpStream>, HandshakeError>>,
) -> Vec<u8> {
    let failed = async { assert!(matches!(handshake.await, Err(HandshakeError::Tls(_)))) };
    tokio::join!(send_before_reading(&mut peer, record), failed);
    let mut read = vec![];
    peer.read_to_end(&mut read).await.unwrap();
    read
}

#[tokio::test]
async fn alert_of_a_handshake_arrives_despite_unread_input() {
    let alert = [21, 3, 3, 0, 2, 2, AlertDescription::UNEXPECTED_MESSAGE.0];
    let (client, server) = tcp().await;
    let acceptor = TlsAcceptor::new(Arc::new(psk_server()));
    assert_eq!(last_words(client, &BAD_RECORD, acceptor.accept(server)).await, alert);
    let (client, server) = tcp().await;
    let connector = TlsConnector::new(Arc::new(psk_client()));
    assert!(last_words(server, &BAD_RECORD, connector.connect(client, localhost())).await.ends_with(&alert));
}

/// A close_notify ends the handshake, and this side answers with a close_notify (RFC 8446 §6.1).
#[tokio::test]
async fn answer_to_close_notify_in_a_handshake_arrives_despite_unread_input() {
    let close_notify = [21, 3, 3, 0, 2, 1, 0];
    let (client, server) = tcp().await;
    let acceptor = TlsAcceptor::new(Arc::new(psk_server()));
    assert_eq!(last_words(client, &close_notify, acceptor.accept(server)).await, close_notify);
    let (client, server) = tcp().await;
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let words = last_words(server, &close_notify, connector.connect(client, localhost())).await;
    assert!(words.ends_with(&close_notify));
}

#[tokio::test]
async fn alert_of_a_connection_arrives_despite_unread_input() {
    for by_server in [true, false] {
        let (client, server) = tcp().await;
        let (client, server) = common::connect(client, server).await;
        let (mut good, mut bad) = if by_server { (server, client) } else { (client, server) };
        let read = async {
            let error = good.read_u8().await.unwrap_err();
            assert!(matches!(tls_error(&error), Error::PeerMisbehaved(_)), "{error}");
            drop(good);
        };
        tokio::join!(misbehave(bad.get_mut()), read);
        let error = bad.read_u8().await.unwrap_err();
        assert_eq!(*tls_error(&error), Error::AlertReceived(AlertDescription::UNEXPECTED_MESSAGE));
        let end = bad.get_mut().read(&mut [0]).await;
        assert_eq!(end.unwrap(), 0, "a reset instead of an end");
    }
}

/// A task that only writes also waits for the end of the transport, like one that reads.
#[tokio::test]
async fn both_halves_wait_for_the_end_of_the_transport() {
    let (client, server) = tcp().await;
    let (mut client, server) = common::connect(client, server).await;
    let (mut reader, mut writer) = split(server);
    let read = tokio::spawn(async move { reader.read_u8().await.unwrap_err() });
    let write = tokio::spawn(async move {
        loop {
            if let Err(error) = writer.write_all(&[0; 1000]).await {
                return error;
            }
        }
    });
    let told = async {
        misbehave(client.get_mut()).await;
        let mut data = vec![];
        client.read_to_end(&mut data).await.unwrap_err()
    };
    let (told, read, write) = tokio::join!(told, read, write);
    assert_eq!(*tls_error(&told), Error::AlertReceived(AlertDescription::UNEXPECTED_MESSAGE));
    assert_eq!(tls_error(&read.unwrap()), tls_error(&write.unwrap()));
}

/// This side waits at most two seconds for a peer that neither sends nor closes.
#[tokio::test(start_paused = true)]
async fn waits_briefly_for_a_silent_peer() {
    let (mut client, server) = duplex(4096);
    client.write_all(&BAD_RECORD).await.unwrap();
    let began = Instant::now();
    TlsAcceptor::new(Arc::new(psk_server())).accept(server).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(2));

    // It waits no longer for a peer that does not read the alert.
    let (mut client, mut server) = pair(1024).await;
    client.get_mut().write_all(&BAD_RECORD).await.unwrap();
    server.get_mut().write_all(&[0; 1024]).await.unwrap();
    let began = Instant::now();
    let error = server.read_u8().await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert!(
        matches!(tls_error(&error), Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(_))),
        "{error}"
    );
    // The next call does not wait again.
    server.read_u8().await.unwrap_err();
    server.write_u8(0).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(2));
}

/// A server learns at once that a connection has failed, in the handshake and after it.
#[tokio::test(start_paused = true)]
async fn the_beginning_of_lingering_is_reported() {
    let (reports, mut reported) = unbounded_channel();
    let report = move || reports.send(Instant::now()).unwrap();
    let acceptor = TlsAcceptor::new(Arc::new(psk_server())).with_on_linger(report);
    let began = Instant::now();
    let (mut client, server) = duplex(4096);
    client.write_all(&BAD_RECORD).await.unwrap();
    acceptor.accept(server).await.unwrap_err();
    assert_eq!(reported.try_recv().unwrap(), began);

    let (client, server) = duplex(4096);
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let (mut client, mut server) =
        tokio::try_join!(connector.connect(client, localhost()), acceptor.accept(server)).unwrap();
    assert!(reported.try_recv().is_err());
    client.get_mut().write_all(&BAD_RECORD).await.unwrap();
    let began = Instant::now();
    server.read_u8().await.unwrap_err();
    assert_eq!(reported.try_recv().unwrap(), began);
}

/// This side reads at most 8 MiB from a peer that never stops sending.
#[tokio::test(start_paused = true)]
async fn stops_reading_an_endless_peer() {
    let (mut client, server) = duplex(65_536);
    let send = async {
        client.write_all(&BAD_RECORD).await.unwrap();
        let mut sent = 0;
        while client.write_all(&[0; 4096]).await.is_ok() {
            sent += 4096;
        }
        sent
    };
    let acceptor = TlsAcceptor::new(Arc::new(psk_server()));
    let began = Instant::now();
    let (sent, accepted) = tokio::join!(send, acceptor.accept(server));
    accepted.unwrap_err();
    assert!((8 << 20..9 << 20).contains(&sent), "{sent}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}
