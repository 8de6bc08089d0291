//! The data of one direction of a connection, from one side to the other.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read before it is written, in bytes: the content of four records of TLS. The buffer is on the
/// stack.
const BUFFER: usize = 64 << 10;

/// The bytes that a caller has read from a backend before it passes data on.
#[derive(Debug, Default)]
pub(crate) struct First {
    pub(crate) bytes: Vec<u8>,
    /// Why no more can be read.
    pub(crate) failure: Option<io::Error>,
    /// How long the caller has waited for them without traffic.
    pub(crate) silence: Duration,
}

/// A direction. It holds data only while its receiver takes no more, at most [`BUFFER`] bytes, so that an
/// idle connection has no buffer.
#[derive(Default)]
pub(super) struct Flow {
    /// Data that the receiver has not taken yet, from `at` on.
    rest: Vec<u8>,
    at: usize,
    /// Whether the receiver may have data that it has not sent yet.
    is_unflushed: bool,
    progress: Progress,
}

/// How far a direction is.
#[derive(Default)]
enum Progress {
    #[default]
    Open,
    /// The sender has ended; the receiver must learn it.
    Ended,
    /// The sender has failed; the receiver gets the data before that.
    Failed(io::Error),
    /// The receiver knows that the sender has ended.
    Done,
}

impl Flow {
    /// A direction whose receiver gets `first` before the sender's data.
    pub(super) fn after(first: First) -> Self {
        let progress = first.failure.map_or(Progress::Open, Progress::Failed);
        Self { rest: first.bytes, progress, ..Self::default() }
    }

    /// Passes data on as far as both sides allow, and lets other tasks run after each full buffer: a
    /// connection with much data must not delay those with little. Ready when the sender has ended and the
    /// receiver knows.
    ///
    /// # Errors
    /// One of the sides failed.
    pub(super) fn poll<A, B>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut A,
        to: &mut B,
    ) -> Poll<io::Result<()>>
    where
        A: AsyncRead + Unpin,
        B: AsyncWrite + Unpin,
    {
        loop {
            ready!(self.poll_rest(cx, to))?;
            match std::mem::take(&mut self.progress) {
                Progress::Open => {}
                Progress::Ended => {
                    self.progress = Progress::Ended;
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.progress = Progress::Done;
                    return Poll::Ready(Ok(()));
                }
                Progress::Failed(error) => return Poll::Ready(Err(error)),
                Progress::Done => {
                    self.progress = Progress::Done;
                    return Poll::Ready(Ok(()));
                }
            }
            let mut bytes = [MaybeUninit::uninit(); BUFFER];
            let mut bytes = ReadBuf::uninit(&mut bytes);
            let is_waiting = self.read(cx, from, &mut bytes);
            let mut data = bytes.filled();
            if data.is_empty() && is_waiting {
                if self.is_unflushed {
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    self.is_unflushed = false;
                }
                return Poll::Pending;
            }
            while !data.is_empty() {
                match write(cx, to, data) {
                    Poll::Ready(written) => data = data.get(written?..).unwrap_or_default(),
                    Poll::Pending => {
                        (self.rest, self.at) = (data.to_vec(), 0);
                        break;
                    }
                }
                self.is_unflushed = true;
            }
            if bytes.remaining() == 0 && self.rest.is_empty() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Writes the data that was left.
    fn poll_rest<B: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, to: &mut B) -> Poll<io::Result<()>> {
        while let Some(data) = self.rest.get(self.at..).filter(|data| !data.is_empty()) {
            self.at += ready!(write(cx, to, data))?;
            self.is_unflushed = true;
        }
        (self.rest, self.at) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Reads what is there, notes the sender's end, and returns whether the sender has no more at present.
    fn read<A: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut A,
        bytes: &mut ReadBuf<'_>,
    ) -> bool {
        while bytes.remaining() > 0 {
            let before = bytes.filled().len();
            match Pin::new(&mut *from).poll_read(cx, bytes) {
                Poll::Pending => return true,
                Poll::Ready(Ok(())) if bytes.filled().len() > before => {}
                Poll::Ready(Ok(())) => {
                    self.progress = Progress::Ended;
                    return false;
                }
                Poll::Ready(Err(error)) => {
                    self.progress = Progress::Failed(error);
                    return false;
                }
            }
        }
        false
    }
}

fn write<B: AsyncWrite + Unpin>(cx: &mut Context<'_>, to: &mut B, data: &[u8]) -> Poll<io::Result<usize>> {
    match ready!(Pin::new(to).poll_write(cx, data)) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        written => Poll::Ready(written),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// A sender that fails after its data.
    struct Failing(&'static [u8]);

    impl AsyncRead for Failing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match std::mem::take(&mut self.0) {
                [] => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                data => {
                    buffer.put_slice(data);
                    Poll::Ready(Ok(()))
                }
            }
        }
    }

    #[tokio::test]
    async fn a_slow_receiver_gets_everything_and_the_end() {
        let sent: Vec<u8> = (0..3 * BUFFER).map(|i| i as u8).collect();
        let (mut sender, mut from) = duplex(2 * BUFFER);
        let (mut to, mut receiver) = duplex(1000);
        let mut flow = Flow::default();
        let sending = async {
            sender.write_all(&sent).await.unwrap();
            sender.shutdown().await.unwrap();
        };
        let receiving = async {
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).await.unwrap();
            received
        };
        let passing = poll_fn(|cx| flow.poll(cx, &mut from, &mut to));
        let ((), received, passed) = tokio::join!(sending, receiving, passing);
        passed.unwrap();
        assert!(received == sent);
    }

    #[tokio::test]
    async fn data_before_a_failure_arrives() {
        let (mut to, mut receiver) = duplex(3);
        let mut flow = Flow::default();
        let passing = async {
            let passed = poll_fn(|cx| flow.poll(cx, &mut Failing(b"all of it"), &mut to)).await;
            drop(to);
            passed
        };
        let mut received = Vec::new();
        let (passed, read) = tokio::join!(passing, receiver.read_to_end(&mut received));
        read.unwrap();
        assert_eq!(passed.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(received, b"all of it");
    }

    #[test]
    fn endless_data_lets_other_tasks_run() {
        let mut from = tokio::io::repeat(7);
        let mut to = tokio::io::sink();
        let mut flow = Flow::default();
        for _ in 0..3 {
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            assert!(flow.poll(cx, &mut from, &mut to).is_pending());
        }
    }

    #[tokio::test]
    async fn an_idle_connection_has_no_buffer() {
        let (mut sender, mut from) = duplex(BUFFER);
        let (mut to, mut receiver) = duplex(10);
        let mut flow = Flow::default();
        sender.write_all(&[7; 100]).await.unwrap();
        let waits = |flow: &mut Flow, from: &mut _, to: &mut _| {
            let waker = std::task::Waker::noop();
            flow.poll(&mut Context::from_waker(waker), from, to).is_pending()
        };
        assert!(waits(&mut flow, &mut from, &mut to));
        assert_eq!(flow.rest.len(), 90);
        for _ in 0..10 {
            receiver.read_exact(&mut [0; 10]).await.unwrap();
            assert!(waits(&mut flow, &mut from, &mut to));
        }
        assert_eq!(flow.rest.capacity(), 0);
    }
}
