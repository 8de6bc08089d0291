//! The end of a transport after a fatal alert, or after the close_notify that ends a handshake.
//!
//! A TCP socket that is closed while input is unread resets the connection (RFC 9293 §3.6.1, RFC 1122
//! §4.2.2.13). The reset makes the peer's TCP discard what it has received, the alert included. So this side
//! ends its sending direction after the alert, then reads and drops what the peer still sends, within limits.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long the peer may take to receive a fatal alert and to close: a few round trips on a slow line.
const MAX_LINGER: Duration = Duration::from_secs(2);

/// The most bytes that are read and dropped after a fatal alert: the content of a large TCP window.
const MAX_DROPPED: usize = 8 << 20;

/// The size of one read, in bytes.
const READ_LEN: usize = 64 << 10;

/// The progress of closing the transport after a fatal alert.
pub(crate) enum Linger {
    /// The connection has not failed, or has not been polled since it failed.
    Idle,
    /// The stream sends the alert, or drops the peer's input.
    Going(Box<Going>),
    /// The transport may be closed.
    Done,
}

pub(crate) struct Going {
    deadline: Pin<Box<Sleep>>,
    /// Bytes that may still be dropped.
    left: usize,
    /// Whether the sending direction has ended.
    is_shut: bool,
}

impl Going {
    pub(crate) fn new() -> Self {
        Self { deadline: Box::pin(sleep(MAX_LINGER)), left: MAX_DROPPED, is_shut: false }
    }

    /// Whether the sending direction has ended, after which there is nothing to drain.
    pub(crate) const fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Goes on after the stream has sent its output as far as `drained` says, and counts the bytes that it
    /// reads. Ready when the transport may be closed: the peer has closed, the transport has failed, or
    /// [`MAX_LINGER`] or [`MAX_DROPPED`] is reached.
    pub(crate) fn poll<IO: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        drained: Poll<io::Result<()>>,
        bytes_read: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        match self.poll_closed(io, drained, bytes_read, cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.deadline.as_mut().poll(cx),
        }
    }

    fn poll_closed<IO: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        drained: Poll<io::Result<()>>,
        bytes_read: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !self.is_shut {
            let shut = match drained {
                Poll::Ready(Ok(())) => Pin::new(&mut *io).poll_shutdown(cx),
                drained => drained,
            };
            match shut {
                Poll::Ready(Ok(())) => self.is_shut = true,
                // The peer has closed its transport entirely.
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                // A peer may write everything before it reads, so drop its input meanwhile.
                Poll::Pending => {}
            }
        }
        let mut bytes = [MaybeUninit::uninit(); READ_LEN];
        loop {
            let mut bytes = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut *io).poll_read(cx, &mut bytes) {
                Poll::Ready(Ok(())) if !bytes.filled().is_empty() => {
                    let n = bytes.filled().len();
                    *bytes_read += n as u64;
                    self.left = self.left.saturating_sub(n);
                    if self.left == 0 {
                        return Poll::Ready(());
                    }
                }
                // The peer has closed its sending direction. It may still read the remaining output.
                Poll::Ready(Ok(())) if !self.is_shut => return Poll::Pending,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
