//! A transport that counts its bytes, so that a server can detect idle connections.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dunlin_tokio::places::Seated;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// The traffic of a transport.
#[derive(Debug)]
pub struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
    began: Instant,
    /// When the last byte passed, in milliseconds after `began`.
    last_ms: AtomicU64,
    /// The place of the client, which notes when it has sent something.
    seated: OnceLock<Weak<Seated>>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new()
    }
}

impl Traffic {
    /// No traffic yet.
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let began = Instant::now();
        Self { read: zero(), written: zero(), began, last_ms: zero(), seated: OnceLock::new() }
    }

    /// The client has this place from now on.
    pub fn seat(&self, seated: &Arc<Seated>) {
        // A connection has only one.
        let _ = self.seated.set(Arc::downgrade(seated));
    }

    /// Sets both totals, because data has passed.
    pub fn set(&self, read: u64, written: u64) {
        self.read.store(read, Ordering::Relaxed);
        self.written.store(written, Ordering::Relaxed);
        self.passed();
    }

    fn passed(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
    }

    fn note(&self, counter: &AtomicU64, n: usize) {
        if n > 0 {
            counter.fetch_add(n as u64, Ordering::Relaxed);
            self.passed();
        }
    }

    /// The number of bytes read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The number of bytes written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Waits until no byte has passed for `limit`; without a limit, for ever.
    pub async fn idle(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return std::future::pending().await };
        loop {
            let last = self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            // A limit beyond the range of the clock means no limit.
            let Some(due) = last.checked_add(limit) else { return std::future::pending().await };
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

/// A transport and its traffic.
#[derive(Debug)]
pub struct Counted<IO> {
    io: IO,
    traffic: Arc<Traffic>,
}

impl<IO> Counted<IO> {
    /// Wraps a transport from now on, and returns its traffic.
    pub fn new(io: IO) -> (Self, Arc<Traffic>) {
        let traffic = Arc::new(Traffic::new());
        (Self { io, traffic: traffic.clone() }, traffic)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Counted<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        let n = buf.filled().len() - before;
        self.traffic.note(&self.traffic.read, n);
        if n > 0
            && let Some(seated) = self.traffic.seated.get().and_then(Weak::upgrade)
        {
            seated.hear();
        }
        Poll::Ready(read)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Counted<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, data));
        self.traffic.note(&self.traffic.written, *written.as_ref().unwrap_or(&0));
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
