//! The end of a transport after a fatal alert, or after the close_notify that ends a handshake.
//!
//! A TCP socket that is closed while input is unread resets the connection (RFC 9293 §3.6.1, RFC 1122
//! §4.2.2.13). The reset makes the peer's TCP discard what it has received, the alert included. So this side
//! ends its sending direction after the alert, then reads and drops what the peer still sends, within limits.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::Error;
use dunlin::wire::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::stream::{READ_LEN, Task, TlsStream};

/// How long the peer may take to receive a fatal alert and to close: a few round trips on a slow line.
pub(crate) const MAX_LINGER: Duration = Duration::from_secs(2);

/// The most bytes that are read and dropped after a fatal alert: the content of a large TCP window.
pub(crate) const MAX_DROPPED: usize = 8 << 20;

/// The peer has ended the handshake, and the engine has answered with a close_notify (RFC 8446 §6.1).
const CLOSED_BY_PEER: Error = Error::AlertReceived(AlertDescription::CLOSE_NOTIFY);

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

impl<IO: AsyncRead + AsyncWrite + Unpin> TlsStream<IO> {
    /// Sends the remaining output. After a fatal alert from this side, or its answer to a close_notify during
    /// the handshake, also closes the sending direction of the transport. Ready when the transport may be
    /// closed: the peer has closed, the transport has failed, or [`MAX_LINGER`] or [`MAX_DROPPED`] is
    /// reached.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>, task: Task) -> Poll<()> {
        let last_word = |error: &Error| error.alert().is_some() || *error == CLOSED_BY_PEER;
        if !self.connection.error().is_some_and(last_word) {
            return self.poll_drain(cx, task).map(drop);
        }
        self.poll_linger(cx, task)
    }

    /// Ends the connection with a fatal alert, and waits until the peer has closed, within limits
    /// ([`dunlin::Connection::abort`]).
    pub async fn abort(&mut self, alert: AlertDescription) {
        self.connection.abort(alert);
        poll_fn(|cx| self.poll_linger(cx, Task::Writer)).await;
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>, task: Task) -> Poll<()> {
        let mut going = match std::mem::replace(&mut self.linger, Linger::Done) {
            Linger::Idle => {
                if let Some(on_linger) = self.on_linger.take() {
                    on_linger();
                }
                let deadline = Box::pin(sleep(MAX_LINGER));
                Box::new(Going { deadline, left: MAX_DROPPED, is_shut: false })
            }
            Linger::Going(going) => going,
            Linger::Done => return Poll::Ready(()),
        };
        // The timer and the transport each remember one waker, and two tasks may wait here.
        let both = self.receiving.both(cx, task);
        let mut joint = Context::from_waker(both.as_ref().unwrap_or(cx.waker()));
        let ended = self.poll_going(&mut going, &mut joint, task).is_ready()
            || going.deadline.as_mut().poll(&mut joint).is_ready();
        if !ended {
            self.linger = Linger::Going(going);
            self.receiving.wait(cx, task);
            return Poll::Pending;
        }
        self.receiving.go_on(task);
        Poll::Ready(())
    }

    fn poll_going(&mut self, going: &mut Going, cx: &mut Context<'_>, task: Task) -> Poll<()> {
        if !going.is_shut {
            let shut = match self.poll_drain(cx, task) {
                Poll::Ready(Ok(())) => Pin::new(&mut self.io).poll_shutdown(cx),
                drained => drained,
            };
            match shut {
                Poll::Ready(Ok(())) => going.is_shut = true,
                // The peer has closed its transport entirely.
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                // A peer may write everything before it reads, so drop its input meanwhile.
                Poll::Pending => {}
            }
        }
        let mut bytes = [MaybeUninit::uninit(); READ_LEN];
        loop {
            let mut bytes = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut self.io).poll_read(cx, &mut bytes) {
                Poll::Ready(Ok(())) if !bytes.filled().is_empty() => {
                    let n = bytes.filled().len();
                    self.bytes_read += n as u64;
                    going.left = going.left.saturating_sub(n);
                    if going.left == 0 {
                        return Poll::Ready(());
                    }
                }
                // The peer has closed its sending direction. It may still read the remaining output.
                Poll::Ready(Ok(())) if !going.is_shut => return Poll::Pending,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
