//! TLS to TCP: the bytes of a client go to its backend and back, as fast as the slower of the two takes them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

/// The buffer of each direction, in bytes: the content of a record. A direction whose receiver stops reading holds no more.
const BUFFER: usize = 16 << 10;

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

/// The bytes of application data of a connection, and the time of the latest ones.
pub(super) struct Traffic {
    begin: Instant,
    pub(super) from_client: AtomicU64,
    pub(super) to_client: AtomicU64,
    /// Milliseconds after `begin`.
    latest: AtomicU64,
    /// Whether the client's side has failed, rather than the backend's.
    failed: AtomicBool,
}

impl Traffic {
    pub(super) fn begin() -> Self {
        let (from_client, to_client) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            begin: Instant::now(),
            from_client,
            to_client,
            latest: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    fn note(&self, counter: &AtomicU64, bytes: usize) {
        if bytes > 0 {
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
            let now = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.latest.store(now, Ordering::Relaxed);
        }
    }

    /// Ready when there was no traffic for this time.
    pub(super) async fn idle(&self, time: Duration) {
        loop {
            let end = self.begin + Duration::from_millis(self.latest.load(Ordering::Relaxed)) + time;
            if end <= Instant::now() {
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
        self.traffic.note(&self.traffic.from_client, buffer.filled().len() - before);
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
        self.note(&shut);
        shut
    }
}

/// The result of [`pass`].
pub(crate) struct Passed {
    pub(crate) end: End,
    /// Bytes of application data.
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
}

/// Passes data between `client` and `backend` until both have closed. A side that has closed its sending direction may still receive.
pub(crate) async fn pass<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: S,
    mut backend: TcpStream,
    idle_time: Duration,
    stop: impl Future<Output = ()>,
) -> Passed {
    let traffic = Arc::new(Traffic::begin());
    let end = {
        let mut counted = Counted::new(&mut client, traffic.clone());
        tokio::select! {
            copied = copy_bidirectional_with_sizes(&mut counted, &mut backend, BUFFER, BUFFER) => match copied {
                Ok(_) => End::Closed,
                Err(error) if traffic.failed.load(Ordering::Relaxed) => End::Client(error),
                Err(error) => End::Backend(error),
            },
            () = traffic.idle(idle_time) => End::Idle,
            () = stop => End::Stopped,
        }
    };
    match &end {
        End::Closed => {}
        // The client has not sent everything, so the backend must not mistake the end for a complete one.
        End::Client(_) => drop(backend.set_zero_linger()),
        // Without a close_notify, the client knows that data is missing.
        End::Backend(_) => {}
        End::Idle | End::Stopped => drop(timeout(CLOSE_PATIENCE, client.shutdown()).await),
    }
    let [from_client, to_client] =
        [&traffic.from_client, &traffic.to_client].map(|bytes| bytes.load(Ordering::Relaxed));
    Passed { end, from_client, to_client }
}
