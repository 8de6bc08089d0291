//! Streams: data, ends, errors and dropped futures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use common::{connect, data, pair, profile, psk_client, psk_server, tls_error};
use dunlin::auth::{Psk, PskTable};
use dunlin::error::{Internal, PeerMisbehaved};
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription, HandshakeType};
use dunlin::{Answer, ClientConfig, Error, PskChoice, PskSource, Question, ServerConfig, TlsConnection};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::{awslc, localhost};
use dunlin_tokio::{Answers, TlsAcceptor, TlsConnector, TlsStream, now};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex, split,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;

const MIB: usize = 1 << 20;

/// The client sends 1 MiB; the server sends it back after all of it has arrived.
async fn echo<A, B>(mut client: TlsStream<A>, mut server: TlsStream<B>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let there = data(MIB, 1);
    let mut back = vec![0; MIB];
    let one = async {
        client.write_all(&there).await.unwrap();
        client.flush().await.unwrap();
        client.read_exact(&mut back).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    };
    let other = async {
        let mut data = vec![0; MIB];
        server.read_exact(&mut data).await.unwrap();
        server.write_all(&data).await.unwrap();
        server.shutdown().await.unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    };
    tokio::join!(one, other);
    assert!(back == there);
}

#[tokio::test]
async fn echoes_over_pipes_of_any_capacity() {
    for capacity in [100, 4096, MIB] {
        let (client, server) = pair(capacity).await;
        echo(client, server).await;
    }
}

#[tokio::test]
async fn echoes_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, server) =
        tokio::try_join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept()).unwrap();
    let (client, server) = connect(client, server.0).await;
    echo(client, server).await;
}

/// Updates the keys of both sides with every fourth write, so that readers have many KeyUpdates to answer.
struct Updating<IO>(TlsStream<IO>, usize);

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Updating<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Updating<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write(cx, data)?;
        if written.is_ready() {
            self.1 += 1;
            // With more requests in flight, the answers would look like a flood.
            if self.1.is_multiple_of(4) {
                self.0.update_keys(true)?;
            }
        }
        written.map(Ok)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Two tasks for each end; all four compete for pipes of a few bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_halves_send_in_both_directions_at_once() {
    let (client, server) = pair(50).await;
    let mut tasks = tokio::task::JoinSet::new();
    for (end, own, others) in [(client, 1, 2), (server, 2, 1)] {
        let (mut reader, mut writer) = split(Updating(end, 0));
        tasks.spawn(async move {
            for chunk in data(MIB / 4, own).chunks(1500) {
                writer.write_all(chunk).await.unwrap();
            }
            writer.shutdown().await.unwrap();
        });
        tasks.spawn(async move {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).await.unwrap();
            assert!(received == data(MIB / 4, others));
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

/// One side closes; the other one still sends.
async fn half_close(mut first: TlsStream<DuplexStream>, mut second: TlsStream<DuplexStream>) {
    first.write_all(b"last words").await.unwrap();
    first.shutdown().await.unwrap();
    let refused = first.write_all(b"more").await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    let mut received = Vec::new();
    second.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"last words");
    assert_eq!(second.read(&mut [0]).await.unwrap(), 0, "it stays closed");
    let reply = data(100_000, 3);
    let mut received = Vec::new();
    let write = async {
        second.write_all(&reply).await.unwrap();
        second.shutdown().await.unwrap();
    };
    let (_, read) = tokio::join!(write, first.read_to_end(&mut received));
    read.unwrap();
    assert!(received == reply);
}

#[tokio::test]
async fn the_server_can_send_after_the_client_closed() {
    let (client, server) = pair(4096).await;
    half_close(client, server).await;
}

#[tokio::test]
async fn the_client_can_send_after_the_server_closed() {
    let (client, server) = pair(4096).await;
    half_close(server, client).await;
}

/// Polls a future once. If it is not ready, drops it and lets other tasks run.
macro_rules! once {
    ($future:expr) => {
        tokio::select! {
            biased;
            result = $future => Some(result),
            () = std::future::ready(()) => { yield_now().await; None }
        }
    };
}

async fn write_impatiently(stream: &mut TlsStream<DuplexStream>, data: &[u8]) -> usize {
    let mut written = 0;
    let mut dropped = 0;
    while written < data.len() {
        match once!(stream.write(&data[written..])) {
            Some(n) => written += n.unwrap(),
            None => dropped += 1,
        }
    }
    loop {
        match once!(stream.flush()) {
            Some(result) => return result.map(|()| dropped).unwrap(),
            None => dropped += 1,
        }
    }
}

async fn read_impatiently(stream: &mut TlsStream<DuplexStream>, len: usize) -> (Vec<u8>, usize) {
    let mut received = Vec::new();
    let mut dropped = 0;
    let mut buf = [0; 777];
    while received.len() < len {
        match once!(stream.read(&mut buf)) {
            Some(n) => received.extend_from_slice(&buf[..n.unwrap()]),
            None => dropped += 1,
        }
    }
    (received, dropped)
}

/// Every future is dropped when it waits for the first time.
#[tokio::test]
async fn dropped_futures_lose_nothing() {
    for capacity in [1, 7, 64, 20_000] {
        let (mut client, mut server) = pair(capacity).await;
        // More than the stream takes while the transport does not keep up.
        let there = data(150_000, 4);
        let (written, (received, reads)) =
            tokio::join!(write_impatiently(&mut client, &there), read_impatiently(&mut server, there.len()));
        assert!(received == there, "with a pipe of {capacity}");
        assert!(written > 0 && reads > 0, "futures were dropped: {written} writes, {reads} reads");
        let (_, (received, _)) =
            tokio::join!(write_impatiently(&mut server, &there), read_impatiently(&mut client, there.len()));
        assert!(received == there, "with a pipe of {capacity}");
    }
}

#[tokio::test]
async fn reports_truncation_after_the_received_data() {
    let (mut client, mut server) = pair(4096).await;
    client.write_all(b"cut").await.unwrap();
    drop(client);
    let mut received = Vec::new();
    let error = server.read_to_end(&mut received).await.unwrap_err();
    assert_eq!(received, b"cut", "data before the truncation is delivered");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(tls_error(&error), &Error::Truncated);
    assert_eq!(server.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn alerts_reach_the_peer() {
    // The pipe is too small for the alert.
    let (mut client, mut server) = pair(5).await;
    let forged = async {
        // A record that does not decrypt.
        let mut record = [0; 40];
        record[..5].copy_from_slice(&[23, 3, 3, 0, 35]);
        client.get_mut().write_all(&record).await.unwrap();
        client.read(&mut [0]).await.unwrap_err()
    };
    let (received, found) = tokio::join!(forged, async { server.read(&mut [0]).await.unwrap_err() });
    assert_eq!(tls_error(&found), &Error::PeerMisbehaved(PeerMisbehaved::BadRecordMac));
    assert_eq!(tls_error(&received), &Error::AlertReceived(AlertDescription::BAD_RECORD_MAC));
    assert_eq!(tls_error(&server.write_all(b"x").await.unwrap_err()), tls_error(&found));
}

#[tokio::test]
async fn a_reader_answers_key_updates() {
    let (mut client, mut server) = pair(4096).await;
    client.update_keys(true).unwrap();
    client.write_all(b"1").await.unwrap();
    // The server only reads. Its answer goes out while it waits for more data.
    assert_eq!(server.read_u8().await.unwrap(), b'1');
    let client = async move {
        // The client receives only the answer, no data.
        assert!(once!(client.read_u8()).is_none());
        let updates = client.messages().iter().filter(|m| m.typ == HandshakeType::KEY_UPDATE);
        assert_eq!(updates.map(|m| m.sent).collect::<Vec<_>>(), [true, false]);
    };
    assert!(once!(server.read_u8()).is_none());
    client.await;
}

#[tokio::test]
async fn reads_without_copies() {
    let (mut client, mut server) = pair(4096).await;
    client.write_all(b"line 1\nline 2\n").await.unwrap();
    assert_eq!(server.fill_buf().await.unwrap(), b"line 1\nline 2\n");
    server.consume(7);
    let mut line = String::new();
    server.read_line(&mut line).await.unwrap();
    assert_eq!(line, "line 2\n");
}

#[tokio::test]
async fn both_ends_report_the_same() {
    let (client, server) = pair(4096).await;
    assert_eq!(client.bytes_written(), server.bytes_read());
    assert_eq!(client.bytes_read(), server.bytes_written());
    assert_eq!(client.negotiated().cipher_suite, server.negotiated().cipher_suite);
    assert!(client.negotiated().cipher_suite.is_some());
    assert_eq!(server.negotiated().peer.as_ref().unwrap().to_string(), "PSK d1");
    let mut a = [0; 32];
    let mut b = [0; 32];
    client.export(b"label", Some(b"context"), &mut a).unwrap();
    server.export(b"label", Some(b"context"), &mut b).unwrap();
    assert_eq!(a, b);
    let sizes =
        |stream: &TlsStream<DuplexStream>| stream.messages().iter().map(|m| m.len).collect::<Vec<_>>();
    assert_eq!(sizes(&client), sizes(&server));
}

/// Bytes after the last Finished do not count, even if they arrived together with it.
#[tokio::test]
async fn counts_handshake_bytes_exactly() {
    for capacity in [3, 65_536] {
        let (client, server) = duplex(capacity);
        let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
        let server_config = psk_server().with_tickets(Tickets::stateless(seal).count(4));
        let client_config = psk_client().with_sessions(Arc::new(MemoryClientSessions::default()));
        let connector = TlsConnector::new(Arc::new(client_config)).with_finished_held(true);
        let client = async {
            let mut client = connector.connect(client, localhost()).await.unwrap();
            client.write_all(b"with Finished").await.unwrap();
            client.flush().await.unwrap();
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
            client
        };
        let server = async {
            let mut server = TlsAcceptor::new(Arc::new(server_config)).accept(server).await.unwrap();
            let mut data = [0; 13];
            server.read_exact(&mut data).await.unwrap();
            server.shutdown().await.unwrap();
            server
        };
        let (client, server) = tokio::join!(client, server);
        let here = client.handshake_bytes();
        let there = server.handshake_bytes();
        assert_eq!((here.read, here.written), (there.written, there.read));
        assert!(client.bytes_written() > here.written && server.bytes_written() > there.written);
        let sent: usize = client.messages().iter().filter(|m| m.sent).map(|m| m.len).sum();
        // Three records: ClientHello, ChangeCipherSpec, and the protected Finished.
        assert_eq!(here.written, (sent + 5 + 6 + 5 + 17) as u64);
    }
}

/// Counts the writes.
struct Counting<IO> {
    io: IO,
    writes: usize,
}

impl<IO: AsyncRead + Unpin> AsyncRead for Counting<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Counting<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.writes += 1;
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_held_finished_shares_a_packet_with_data() {
    for (held, writes) in [(false, 3), (true, 2)] {
        let (client, server) = duplex(65_536);
        let connector = TlsConnector::new(Arc::new(psk_client())).with_finished_held(held);
        let acceptor = TlsAcceptor::new(Arc::new(psk_server()));
        let client = async {
            let io = Counting { io: client, writes: 0 };
            let mut client = connector.connect(io, localhost()).await.unwrap();
            client.write_all(b"request").await.unwrap();
            assert_eq!(client.get_ref().writes, writes);
            client
        };
        let (_client, mut server) = tokio::join!(client, async { acceptor.accept(server).await.unwrap() });
        let mut request = [0; 7];
        server.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"request");
    }
}

/// Otherwise a server that speaks first would wait forever.
#[tokio::test]
async fn reading_sends_a_held_finished() {
    let (client, server) = duplex(65_536);
    let connector = TlsConnector::new(Arc::new(psk_client())).with_finished_held(true);
    let client = async { connector.connect(client, localhost()).await.unwrap().read_u8().await.unwrap() };
    let server = async {
        let mut server = TlsAcceptor::new(Arc::new(psk_server())).accept(server).await.unwrap();
        server.write_all(b"!").await.unwrap();
        server
    };
    let (read, _server) = tokio::join!(client, server);
    assert_eq!(read, b'!');
}

/// The server is a bare engine without tokio, so that the test controls the wire.
#[tokio::test]
async fn writing_waits_for_a_transport_that_does_not_keep_up() {
    let (client, mut wire) = duplex(16);
    let connector = TlsConnector::new(Arc::new(psk_client()));
    let server = async {
        let mut engine = TlsConnection::server(&Arc::new(psk_server()), now());
        let mut buf = [0; 64];
        while engine.is_handshaking() {
            let n = wire.read(&mut buf).await.unwrap();
            engine.receive(now(), &buf[..n]).unwrap();
            let out = engine.transmit().to_vec();
            engine.transmitted(out.len());
            wire.write_all(&out).await.unwrap();
        }
        (wire, engine)
    };
    let (client, (mut wire, mut engine)) = tokio::join!(connector.connect(client, localhost()), server);
    let mut client = client.unwrap();
    let sent = data(MIB, 5);
    let mut taken = 0;
    // The wire holds 16 bytes and the engine a few records. Then writing waits.
    while let Some(n) = once!(client.write(&sent[taken..])) {
        taken += n.unwrap();
    }
    assert!(taken > 0 && taken < 100_000, "{taken} bytes were taken");
    drop(once!(client.shutdown()));
    let mut received = Vec::new();
    let mut buf = [0; 64];
    while !engine.peer_has_closed() {
        let (_, n) = tokio::join!(async { once!(client.flush()) }, wire.read(&mut buf));
        let n = n.unwrap();
        assert_eq!(engine.receive(now(), &buf[..n]).unwrap(), n);
        let n = engine.received().len();
        received.extend_from_slice(engine.received());
        engine.consume(now(), n).unwrap();
    }
    assert!(received == sent[..taken]);
}

/// Whether a future is ready at its first poll.
async fn is_ready<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx).is_ready())).await
}

/// Connects a client and a server with TLS 1.2. Both allow renegotiation; the client chooses its key by
/// `choice`.
async fn tls12_pair(choice: PskChoice) -> (TlsStream<DuplexStream>, TlsStream<DuplexStream>) {
    struct Key;
    impl Answers for Key {
        async fn answer(&self, _: Question) -> Answer {
            Answer::Psk(Some(Arc::new(Psk::new("d1", &common::PSK).unwrap())))
        }
    }
    let profile = || {
        let suites = dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES.to_vec();
        profile().cipher_suites(vec![]).tls12_cipher_suites(suites).renegotiation(true).build().unwrap()
    };
    let psk = || Psk::new("d1", &common::PSK).unwrap();
    let client = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]).with_psk_choice(choice);
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let server = ServerConfig::psk_only(profile(), keys).unwrap();
    let (here, there) = duplex(MIB);
    let connector = TlsConnector::new(Arc::new(client)).with_answers(Arc::new(Key));
    let acceptor = TlsAcceptor::new(Arc::new(server));
    tokio::try_join!(connector.connect(here, localhost()), acceptor.accept(there)).unwrap()
}

/// Data that a client writes between its Finished and the server's goes out after the server's, even if no
/// task of the client reads.
#[tokio::test]
async fn writing_waits_for_the_end_of_a_renegotiation() {
    let (mut client, mut server) = tls12_pair(PskChoice::First).await;
    let mut byte = [0];
    client.renegotiate().unwrap();
    client.flush().await.unwrap();
    assert!(!is_ready(Box::pin(server.read(&mut byte))).await);
    assert!(!is_ready(Box::pin(client.read(&mut byte))).await);
    assert!(!is_ready(Box::pin(client.write(b"x"))).await, "the server has not sent Finished");
    assert!(!is_ready(Box::pin(server.read(&mut byte))).await);
    client.write_all(b"x").await.unwrap();
    server.read_exact(&mut byte).await.unwrap();
    assert_eq!(&byte, b"x");
}

/// Questions are not supported in a renegotiation. The first write sends the alert, and both tasks fail when
/// the server has closed, however much it has sent after its flight.
#[tokio::test]
async fn a_question_in_a_renegotiation_fails_reads_and_writes() {
    for sent in [0, 10, 10_000, 60_000] {
        let (mut client, mut server) = tls12_pair(PskChoice::Ask).await;
        client.renegotiate().unwrap();
        client.flush().await.unwrap();
        let (mut reader, mut writer) = split(client);
        let reading = tokio::spawn(async move { reader.read_u8().await });
        yield_now().await;
        // No other task runs from here on until the writer meets the question.
        assert!(!is_ready(Box::pin(server.read_u8())).await);
        server.write_all(&vec![7; sent]).await.unwrap();
        server.flush().await.unwrap();
        let failed = Error::Internal(Internal::QuestionFailed);
        let mut writing = Box::pin(writer.write(b"x"));
        // The first poll fails the connection and sends the alert. The error comes when the peer has closed.
        assert!(!is_ready(&mut writing).await, "{sent}");
        let alert = Error::AlertReceived(AlertDescription::INTERNAL_ERROR);
        let refused = once!(server.read_u8()).unwrap_or_else(|| panic!("{sent}: no alert"));
        assert_eq!(*tls_error(&refused.unwrap_err()), alert, "{sent}");
        drop(server);
        assert_eq!(*tls_error(&writing.await.unwrap_err()), failed, "{sent}");
        assert_eq!(*tls_error(&reading.await.unwrap().unwrap_err()), failed, "{sent}");
    }
}
