//! TLS to TCP, or TCP to TLS in a tunnel: the bytes of a client go to its backend and back, as fast as the
//! slower of the two takes them.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_tokio::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::flow::{First, Flow};
use crate::clock::timer;

/// How long a client may take to receive a close_notify that ends its connection.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Why a connection has ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides have closed.
    Closed,
    /// There was no traffic for the idle time.
    Idle,
    /// The gateway stops.
    Stopped,
    /// The client's side failed, for example without a close_notify.
    Client(io::Error),
    /// The backend's side failed.
    Backend(io::Error),
}

/// One of the two connections.
pub(crate) trait Side: AsyncRead + AsyncWrite + Unpin {
    /// Lets the peer know, once the value is dropped, that its data is incomplete.
    fn cut(&self);

    /// Ends a connection before its time. The peer may have got incomplete data.
    fn end(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Side for TcpStream {
    fn cut(&self) {
        // The peer gets a reset.
        let _ = self.set_zero_linger();
    }

    async fn end(&mut self) -> io::Result<()> {
        self.cut();
        Ok(())
    }
}

/// A stream without a close_notify is incomplete (RFC 8446 §6.1).
impl<IO: AsyncRead + AsyncWrite + Unpin + Send> Side for TlsStream<IO> {
    fn cut(&self) {}

    /// Sends a close_notify: the protocol above TLS must say itself whether its data is complete.
    async fn end(&mut self) -> io::Result<()> {
        self.shutdown().await
    }
}

/// The bytes of application data of a connection, and the time of the latest ones.
pub(super) struct Traffic {
    begin: Instant,
    pub(super) from_client: AtomicU64,
    pub(super) to_client: AtomicU64,
    /// Milliseconds after `begin`.
    latest: AtomicU64,
    /// Whether the client's side has failed, rather than the backend's.
    failed: AtomicBool,
    /// Whether the client has ended its direction, over TLS by a close_notify.
    ended: AtomicBool,
    /// Whether the backend has ended its direction, and the client knows.
    answered: AtomicBool,
}

impl Traffic {
    pub(super) fn begin() -> Self {
        let from_client = AtomicU64::new(0);
        let to_client = AtomicU64::new(0);
        Self {
            begin: timer(),
            from_client,
            to_client,
            latest: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            answered: AtomicBool::new(false),
        }
    }

    fn note(&self, counter: &AtomicU64, bytes: usize) {
        if bytes > 0 {
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
            let now = u64::try_from((timer() - self.begin).as_millis()).unwrap_or(u64::MAX);
            self.latest.store(now, Ordering::Relaxed);
        }
    }

    /// Ready when there was no traffic for this time.
    pub(super) async fn idle(&self, time: Duration) {
        loop {
            let end = self.begin + Duration::from_millis(self.latest.load(Ordering::Relaxed)) + time;
            if end <= timer() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// The client's stream, with its traffic.
pub(super) struct Counted<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

impl<S> Counted<S> {
    pub(super) const fn new(stream: S, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic }
    }

    fn note<T>(&self, result: &Poll<io::Result<T>>) {
        if let Poll::Ready(Err(_)) = result {
            self.traffic.failed.store(true, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let n = buffer.filled().len() - before;
        if matches!(read, Poll::Ready(Ok(()))) && n == 0 && buffer.remaining() > 0 {
            self.traffic.ended.store(true, Ordering::Relaxed);
        }
        self.traffic.note(&self.traffic.from_client, n);
        self.note(&read);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(n)) = &written {
            self.traffic.note(&self.traffic.to_client, *n);
        }
        self.note(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(&flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        if matches!(shut, Poll::Ready(Ok(()))) {
            self.traffic.answered.store(true, Ordering::Relaxed);
        }
        self.note(&shut);
        shut
    }
}

/// Passes data in both directions until both have ended.
async fn both<C, B>(client: &mut C, backend: &mut B, first: First) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut there = Flow::default();
    let mut back = Flow::after(first);
    poll_fn(|cx| {
        let there = there.poll(cx, client, backend)?;
        let back = back.poll(cx, backend, client)?;
        if there.is_ready() && back.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// The result of [`pass`].
pub(crate) struct Passed {
    pub(crate) end: End,
    /// Bytes of application data.
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
}

/// Passes data between `client` and `backend` until both have closed. A side that has closed its sending
/// direction may still receive. The client gets `first` before the backend's data.
pub(crate) async fn pass<C: Side, B: Side>(
    mut client: C,
    (mut backend, first): (B, First),
    idle_time: Duration,
    stop: impl Future<Output = ()>,
) -> Passed {
    let traffic = Traffic::begin();
    let begin = traffic.begin.checked_sub(first.silence).unwrap_or(traffic.begin);
    let traffic = Arc::new(Traffic { begin, ..traffic });
    let end = {
        let mut counted = Counted::new(&mut client, traffic.clone());
        tokio::select! {
            passed = both(&mut counted, &mut backend, first) => match passed {
                Ok(()) => End::Closed,
                Err(error) if traffic.failed.load(Ordering::Relaxed) => End::Client(error),
                Err(error) => End::Backend(error),
            },
            () = traffic.idle(idle_time) => End::Idle,
            () = stop => End::Stopped,
        }
    };
    // The client has not sent everything, so the backend must not take the data for complete. If the client
    // has, a reset would only discard data that the backend has not read yet.
    if !matches!(end, End::Closed | End::Backend(_)) && !traffic.ended.load(Ordering::Relaxed) {
        backend.cut();
    }
    // The same holds for the client, unless the backend has sent everything.
    if !traffic.answered.load(Ordering::Relaxed) {
        match end {
            End::Backend(_) => client.cut(),
            End::Idle | End::Stopped => {
                let _ = timeout(CLOSE_PATIENCE, client.end()).await;
            }
            End::Closed | End::Client(_) => {}
        }
    }
    let [from_client, to_client] =
        [&traffic.from_client, &traffic.to_client].map(|bytes| bytes.load(Ordering::Relaxed));
    Passed { end, from_client, to_client }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// It stands for the client's TLS stream.
    impl Side for tokio::io::DuplexStream {
        fn cut(&self) {}

        async fn end(&mut self) -> io::Result<()> {
            self.shutdown().await
        }
    }

    /// The bytes that the backend reads from a client that sends only `sent`, until the gateway stops.
    async fn received(sent: &[u8], ends: bool) -> io::Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        let (mut client, gateway) = tokio::io::duplex(16 << 10);
        client.write_all(sent).await.unwrap();
        if ends {
            client.shutdown().await.unwrap();
        }
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let passing =
            tokio::spawn(pass(gateway, (backend, First::default()), Duration::from_secs(600), stopped));
        let mut read = vec![0; sent.len()];
        accepted.read_exact(&mut read).await?;
        if ends {
            assert_eq!(accepted.read(&mut [0]).await.unwrap(), 0);
        }
        stop.send(()).unwrap();
        assert!(matches!(passing.await.unwrap().end, End::Stopped));
        accepted.read_to_end(&mut read).await?;
        Ok(read)
    }

    #[tokio::test]
    async fn a_backend_learns_that_data_is_incomplete() {
        let error = received(b"half of it", false).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    /// The caller has read the reset, so the socket only says that it has ended.
    #[tokio::test]
    async fn a_failure_before_the_first_byte_stays_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        drop(accepted);
        let (mut client, gateway) = tokio::io::duplex(16 << 10);
        let failure = Some(io::ErrorKind::ConnectionReset.into());
        let first = First { bytes: b"half".to_vec(), failure, ..First::default() };
        let passed = pass(gateway, (backend, first), Duration::from_secs(600), std::future::pending()).await;
        assert!(matches!(passed.end, End::Backend(_)), "{:?}", passed.end);
        let mut read = vec![];
        client.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"half");
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_time_includes_the_silence_before() {
        for silent_s in [0, 40, 60] {
            let (_client, gateway) = tokio::io::duplex(16);
            let first = First { silence: Duration::from_secs(silent_s), ..First::default() };
            let begin = Instant::now();
            let backend = Silent;
            let stop = std::future::pending();
            let passed = pass(gateway, (backend, first), Duration::from_secs(60), stop).await;
            assert!(matches!(passed.end, End::Idle), "{:?}", passed.end);
            assert_eq!(begin.elapsed().as_secs(), 60 - silent_s);
        }
    }

    #[tokio::test]
    async fn a_client_that_has_ended_loses_nothing() {
        assert_eq!(received(b"all of it", true).await.unwrap(), b"all of it");
    }

    /// A TLS stream that ends without a close_notify.
    struct Truncated;

    impl AsyncRead for Truncated {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    impl AsyncWrite for Truncated {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A backend that takes everything and says nothing.
    struct Silent;

    impl AsyncRead for Silent {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Silent {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Side for Silent {
        fn cut(&self) {}

        async fn end(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Side for Truncated {
        fn cut(&self) {}

        async fn end(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// In a tunnel, the client has no TLS.
    #[tokio::test]
    async fn a_client_without_tls_learns_that_data_is_incomplete() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let passed =
            pass(accepted, (Truncated, First::default()), Duration::from_secs(600), std::future::pending())
                .await;
        assert!(matches!(passed.end, End::Backend(_)));
        let error = program.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
