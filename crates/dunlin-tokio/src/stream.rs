//! A TLS connection that reads and writes like the transport below it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{Answer, Event, MessageSize, Negotiated, Side, TlsConnection};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::clock::now;
use crate::error::from_tls;
use crate::linger::{Going, Linger};

/// The length of a record header in bytes: type, version and length (RFC 8446 §5.1).
const HEADER_LEN: usize = 5;

/// The size of one read from the transport, in bytes: four of the largest records (RFC 8446 §5.2) with their
/// headers. A peer that sends faster than it is read costs at most so much memory.
const READ_LEN: usize = 4 * (HEADER_LEN + (1 << 14) + 256);

/// The peer has ended the handshake, and the engine has answered with a close_notify (RFC 8446 §6.1).
const CLOSED_BY_PEER: dunlin::Error = dunlin::Error::AlertReceived(AlertDescription::CLOSE_NOTIFY);

/// Called when a stream begins to linger.
pub(crate) type OnLinger = dyn Fn() + Send + Sync;
/// Called for each handshake message.
pub(crate) type OnMessage = dyn Fn(&MessageSize) + Send + Sync;

/// A TLS connection over `IO`, after its handshake.
///
/// * A read returns 0 bytes only after the peer's close_notify. An end without it is
///   [`io::ErrorKind::UnexpectedEof`], since data may be truncated.
/// * A write accepts data as long as the transport keeps up. The stream sends it at once as far as the
///   transport allows; a flush sends all of it.
/// * A shutdown sends close_notify and closes the sending direction. Reading remains possible.
/// * After a fatal alert, the stream also closes the sending direction of the transport. It returns the error
///   when the peer has closed, or after 2 seconds, or after it has dropped 8 MiB of input. Closing the socket
///   earlier could reset the connection, and the peer could lose the alert.
/// * The caller may drop futures at any point: no accepted or received data is lost.
///
/// Protocol errors are a [`dunlin::Error`] inside an [`io::Error`]. With `tokio::io::split`, two tasks may
/// read and write at the same time.
///
/// # Examples
/// ```no_run
/// use dunlin_tokio::TlsStream;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use tokio::net::TcpStream;
///
/// # async fn example(mut tls: TlsStream<TcpStream>) -> std::io::Result<()> {
/// tls.write_all(b"hello").await?;
/// tls.shutdown().await?; // Ends this direction with a close_notify.
/// let mut answer = String::new();
/// tls.read_to_string(&mut answer).await?; // Ends with the peer's close_notify.
/// println!("{answer}; the handshake took {:?}", tls.handshake_bytes());
/// # Ok(())
/// # }
/// ```
pub struct TlsStream<IO> {
    io: IO,
    pub(crate) connection: TlsConnection,
    /// Bytes from the transport for which the connection had no room, from `waiting_at` on.
    waiting: Vec<u8>,
    waiting_at: usize,
    /// Early data that a server received.
    early: Vec<u8>,
    /// Whether the transport accepted bytes that were not flushed yet.
    unflushed: bool,
    pub(crate) bytes_read: u64,
    bytes_written: u64,
    /// When the first byte arrived.
    first_byte: Option<Instant>,
    handshake_time: Duration,
    records: RecordScanner,
    handshake_bytes: HandshakeBytes,
    renegotiations: Renegotiations,
    /// The function to call for handshake messages, and how many it has received.
    on_message: Option<Arc<OnMessage>>,
    reported: usize,
    /// The tasks that wait to write to the transport, and the tasks that wait to read from it.
    sending: Waiters,
    receiving: Waiters,
    /// The progress of closing the transport after a fatal alert.
    linger: Linger,
    /// The function to call when that begins.
    pub(crate) on_linger: Option<Arc<OnLinger>>,
}

/// The direction in which a task uses the stream. A reader also sends alerts and KeyUpdates. A writer also
/// receives, at the end of a renegotiation.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    Reader,
    Writer,
}

impl<IO> TlsStream<IO> {
    pub(crate) const fn new(io: IO, connection: TlsConnection, on_message: Option<Arc<OnMessage>>) -> Self {
        Self {
            io,
            connection,
            waiting: Vec::new(),
            waiting_at: 0,
            early: Vec::new(),
            unflushed: false,
            bytes_read: 0,
            bytes_written: 0,
            first_byte: None,
            handshake_time: Duration::ZERO,
            records: RecordScanner::new(),
            handshake_bytes: HandshakeBytes { read: 0, written: 0 },
            renegotiations: Renegotiations { completed: 0, refused: 0 },
            on_message,
            reported: 0,
            sending: Waiters::new(),
            receiving: Waiters::new(),
            linger: Linger::Idle,
            on_linger: None,
        }
    }

    /// The result of the latest handshake.
    pub fn negotiated(&self) -> &Negotiated {
        static NOTHING: LazyLock<Negotiated> = LazyLock::new(Negotiated::default);
        // Callers get a stream only after its handshake, when there is always a result.
        self.connection.negotiated().unwrap_or(&NOTHING)
    }

    /// Takes the early data that a server received during the handshake, limited by its configuration. Reads
    /// never return early data. It may be a replay of data from another connection ([`dunlin::early`]).
    pub fn take_early_data(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    /// Exports keying material for another protocol into `out` (RFC 8446 §7.5, RFC 5705). TLS 1.3 treats a
    /// missing context as empty; TLS 1.2 distinguishes the two.
    ///
    /// # Errors
    /// The errors of [`dunlin::Connection::export`].
    pub fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), dunlin::Error> {
        self.connection.export(label, context, out)
    }

    /// The handshake messages, in order, with their sizes.
    pub fn messages(&self) -> &[MessageSize] {
        self.connection.messages()
    }

    /// Reports new messages to `on_message`.
    pub(crate) fn report(&mut self) {
        let messages = self.connection.messages();
        if let Some(on_message) = &self.on_message {
            messages.iter().skip(self.reported).for_each(|m| on_message(m));
        }
        self.reported = messages.len();
    }

    /// Replaces this side's sending keys (RFC 8446 §4.6.3). With `both`, asks the peer to replace its keys,
    /// too. The next read, write or flush sends the message.
    ///
    /// # Errors
    /// The errors of [`dunlin::Connection::update_keys`].
    pub fn update_keys(&mut self, both: bool) -> io::Result<()> {
        self.connection.update_keys(both).map_err(from_tls)
    }

    /// Renegotiates a TLS 1.2 connection ([`dunlin::Connection::renegotiate`]). The next read, write or flush
    /// sends the message. The renegotiation fails if it raises a question: [`crate::Answers`] serve only the
    /// first handshake.
    ///
    /// # Errors
    /// The connection cannot be renegotiated, or has failed.
    pub fn renegotiate(&mut self) -> io::Result<()> {
        self.connection.renegotiate(now()).map_err(from_tls)
    }

    /// Counts of the renegotiations of this TLS 1.2 connection, as of the latest read or write. After a
    /// renegotiation, [`TlsStream::negotiated`] describes the new handshake.
    pub const fn renegotiations(&self) -> Renegotiations {
        self.renegotiations
    }

    /// The bytes of the handshake on the transport, up to the end of the later Finished.
    pub const fn handshake_bytes(&self) -> HandshakeBytes {
        self.handshake_bytes
    }

    /// The time of the handshake, from the peer's first byte on. A server's ends with the client's Finished.
    pub const fn handshake_time(&self) -> Duration {
        self.handshake_time
    }

    /// Counts the handshake's bytes at its end, and takes its time.
    pub(crate) fn note_handshake(&mut self) {
        self.handshake_time = self.first_byte.map(|first| first.elapsed()).unwrap_or_default();
        // The unsent output is the end of the handshake. Only a TLS 1.3 server has sent its Finished already;
        // its unsent output is tickets.
        let is_tls12 = self.negotiated().version == Some(ProtocolVersion::TLS1_2);
        let unsent = match self.connection.side() {
            Side::Server if !is_tls12 => 0,
            _ => self.connection.transmit().len(),
        };
        self.handshake_bytes = HandshakeBytes {
            read: self.bytes_read - (self.waiting.len() - self.waiting_at) as u64,
            written: self.bytes_written + unsent as u64,
        };
    }

    /// The bytes read from the transport so far.
    pub const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The bytes written to the transport so far.
    pub const fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// The engine's connection, for further information.
    pub const fn connection(&self) -> &TlsConnection {
        &self.connection
    }

    /// The transport.
    pub const fn get_ref(&self) -> &IO {
        &self.io
    }

    /// The transport. Reading or writing it breaks the connection.
    pub const fn get_mut(&mut self) -> &mut IO {
        &mut self.io
    }

    /// Returns the transport without closing the connection.
    pub fn into_inner(self) -> IO {
        self.io
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> TlsStream<IO> {
    /// Receives once from the transport. Errors of the connection stay in the connection.
    fn poll_receive(&mut self, cx: &mut Context<'_>, task: Task) -> Poll<io::Result<()>> {
        if !self.waiting.is_empty() {
            let bytes = std::mem::take(&mut self.waiting);
            let taken = self.give(bytes.get(self.waiting_at..).unwrap_or_default());
            self.waiting_at += taken;
            // An idle connection keeps no buffer.
            (self.waiting, self.waiting_at) =
                if self.waiting_at < bytes.len() { (bytes, self.waiting_at) } else { (Vec::new(), 0) };
            if taken == 0 {
                // The task that makes room wakes the tasks that wait here.
                self.receiving.wait(cx, task);
                return Poll::Pending;
            }
            self.receiving.go_on(task);
            return Poll::Ready(Ok(()));
        }
        let mut bytes = [MaybeUninit::uninit(); READ_LEN];
        let mut bytes = ReadBuf::uninit(&mut bytes);
        let both = self.receiving.both(cx, task);
        let mut joint = Context::from_waker(both.as_ref().unwrap_or(cx.waker()));
        let Poll::Ready(read) = Pin::new(&mut self.io).poll_read(&mut joint, &mut bytes) else {
            self.receiving.wait(cx, task);
            return Poll::Pending;
        };
        self.receiving.go_on(task);
        read?;
        let bytes = bytes.filled();
        if self.bytes_read == 0 {
            self.first_byte = Some(Instant::now());
        }
        self.bytes_read += bytes.len() as u64;
        if bytes.is_empty() {
            let _ = self.connection.receive_end();
        } else {
            let taken = self.give(bytes);
            self.waiting = bytes.get(taken..).unwrap_or_default().to_vec();
        }
        Poll::Ready(Ok(()))
    }

    /// Passes bytes to the connection. Returns how many it took, which may be fewer if it has no room. During
    /// the handshake it gets one record at a time, so that the bytes of the handshake can be counted exactly.
    fn give(&mut self, bytes: &[u8]) -> usize {
        let piece = if self.connection.is_handshaking() {
            bytes.get(..self.records.piece(bytes)).unwrap_or(bytes)
        } else {
            bytes
        };
        let taken = self.connection.receive(now(), piece).unwrap_or(bytes.len());
        self.collect_early_data();
        taken
    }

    /// Collects early data, since the handshake waits until it is consumed. The configuration limits its
    /// size.
    fn collect_early_data(&mut self) {
        while let Some(mut early) = self.connection.early_data()
            && !early.received().is_empty()
        {
            self.early.extend_from_slice(early.received());
            let all = early.received().len();
            // An error in the following records ends the handshake.
            let _ = early.consume(now(), all);
        }
    }

    /// Sends all output and flushes the transport.
    pub(crate) fn poll_drain(&mut self, cx: &mut Context<'_>, task: Task) -> Poll<io::Result<()>> {
        self.report();
        let both = self.sending.both(cx, task);
        let mut joint = Context::from_waker(both.as_ref().unwrap_or(cx.waker()));
        let drained = loop {
            let bytes = self.connection.transmit();
            if bytes.is_empty() {
                break Ok(());
            }
            match Pin::new(&mut self.io).poll_write(&mut joint, bytes) {
                Poll::Ready(Ok(0)) => break Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    self.connection.transmitted(n);
                    self.bytes_written += n as u64;
                    self.unflushed = true;
                }
                Poll::Ready(Err(e)) => break Err(e),
                Poll::Pending => {
                    self.sending.wait(cx, task);
                    return Poll::Pending;
                }
            }
        };
        if drained.is_ok() && self.unflushed {
            match Pin::new(&mut self.io).poll_flush(&mut joint) {
                Poll::Ready(flushed) => {
                    self.unflushed = false;
                    flushed?;
                }
                Poll::Pending => {
                    self.sending.wait(cx, task);
                    return Poll::Pending;
                }
            }
        }
        self.sending.go_on(task);
        Poll::Ready(drained)
    }

    /// Sends the remaining output. After a fatal alert from this side, or its answer to a close_notify during
    /// the handshake, also closes the sending direction of the transport. Ready when the transport may be
    /// closed ([`Going::poll`]).
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>, task: Task) -> Poll<()> {
        let last_word = |error: &dunlin::Error| error.alert().is_some() || *error == CLOSED_BY_PEER;
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
                Box::new(Going::new())
            }
            Linger::Going(going) => going,
            Linger::Done => return Poll::Ready(()),
        };
        // The timer and the transport each remember one waker, and two tasks may wait here.
        let both = self.receiving.both(cx, task);
        let mut joint = Context::from_waker(both.as_ref().unwrap_or(cx.waker()));
        let drained = if going.is_shut() { Poll::Ready(Ok(())) } else { self.poll_drain(&mut joint, task) };
        if going.poll(&mut self.io, drained, &mut self.bytes_read, &mut joint).is_pending() {
            self.linger = Linger::Going(going);
            self.receiving.wait(cx, task);
            return Poll::Pending;
        }
        self.receiving.go_on(task);
        Poll::Ready(())
    }

    /// Makes one step of the handshake: sends and receives as far as possible.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.poll_drain(cx, Task::Writer);
        match (self.poll_receive(cx, Task::Writer), sent) {
            // If the peer refused and closed, its alert is more informative than the failed write.
            (Poll::Pending, Poll::Ready(Err(e))) => Poll::Ready(Err(e)),
            (received, _) => received,
        }
    }

    /// Handles the connection's events. It answers questions, since the connection accepts no input before.
    /// Other events need no action.
    fn hear(&mut self, task: Task) {
        self.report();
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Renegotiated => self.renegotiations.completed += 1,
                Event::RenegotiationRefused => self.renegotiations.refused += 1,
                // `Answers` serve only the first handshake, so a question of a renegotiation fails.
                Event::Question(id, _) => {
                    // The error stays in the connection, where the other task finds it too.
                    let _ = self.connection.answer(now(), id, Answer::Failed);
                    self.receiving.go_on(task);
                }
                _ => {}
            }
        }
    }

    /// Ready when there is data to read, or when the peer has closed.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.hear(Task::Reader);
            if !self.connection.received().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = self.connection.error().cloned() {
                // Send the alert first. If that fails, the error is still the same.
                if error.alert().is_some() {
                    ready!(self.poll_end(cx, Task::Reader));
                }
                return Poll::Ready(Err(from_tls(error)));
            }
            // Send responses to the peer without waiting for the next write, which will report a failure.
            let _ = self.poll_drain(cx, Task::Reader);
            if self.connection.peer_has_closed() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(cx, Task::Reader))?;
        }
    }
}

/// Counts of renegotiations by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renegotiations {
    /// Completed renegotiations, begun by either side.
    pub completed: u32,
    /// Renegotiations that this side requested and the peer refused (no_renegotiation).
    pub refused: u32,
}

/// The bytes of a handshake on the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeBytes {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Finds the ends of records in a stream of bytes (RFC 8446 §5.1).
struct RecordScanner {
    header: [u8; HEADER_LEN],
    /// The number of header bytes received so far.
    have: usize,
    /// The number of body bytes that are missing.
    left: usize,
}

impl RecordScanner {
    const fn new() -> Self {
        Self { header: [0; HEADER_LEN], have: 0, left: 0 }
    }

    /// How many of `bytes` belong to the current record.
    fn piece(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        if self.left == 0 {
            let (_, missing) = self.header.split_at_mut(self.have);
            taken = missing.len().min(bytes.len());
            missing.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            self.have += taken;
            if self.have < HEADER_LEN {
                return taken;
            }
            let [.., high, low] = self.header;
            self.left = usize::from(u16::from_be_bytes([high, low]));
            self.have = 0;
        }
        let body = self.left.min(bytes.len() - taken);
        self.left -= body;
        taken + body
    }
}

/// The tasks that wait for the transport, which itself remembers only one waker.
struct Waiters {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Waiters {
    const fn new() -> Self {
        Self { reader: None, writer: None }
    }

    const fn of(&mut self, task: Task) -> (&mut Option<Waker>, &mut Option<Waker>) {
        match task {
            Task::Reader => (&mut self.reader, &mut self.writer),
            Task::Writer => (&mut self.writer, &mut self.reader),
        }
    }

    /// A waker for both tasks, if the other task waits, too.
    fn both(&mut self, cx: &Context<'_>, task: Task) -> Option<Waker> {
        let other = self.of(task).1.as_ref().filter(|w| !w.will_wake(cx.waker()))?;
        Some(Waker::from(Arc::new(Both(other.clone(), cx.waker().clone()))))
    }

    fn wait(&mut self, cx: &Context<'_>, task: Task) {
        *self.of(task).0 = Some(cx.waker().clone());
    }

    /// Ends the wait of this task and wakes the other.
    fn go_on(&mut self, task: Task) {
        let (own, other) = self.of(task);
        *own = None;
        if let Some(other) = other.take() {
            other.wake();
        }
    }
}

/// Wakes two tasks.
struct Both(Waker, Waker);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncBufRead for TlsStream<IO> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_readable(cx))?;
        Poll::Ready(Ok(this.connection.received()))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        let this = self.get_mut();
        // The next read returns an error in the following records.
        let _ = this.connection.consume(now(), n);
        // A writer may wait for the records after this data.
        if let Some(writer) = this.receiving.writer.take() {
            writer.wake();
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let data = ready!(self.as_mut().poll_fill_buf(cx))?;
        let data = data.get(..buf.remaining()).unwrap_or(data);
        buf.put_slice(data);
        let n = data.len();
        self.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            this.hear(Task::Writer);
            let taken = match this.connection.send(data) {
                Ok(taken) => taken,
                Err(error) => {
                    // Send the alert before returning the error.
                    if this.connection.error().is_some_and(|failed| failed.alert().is_some()) {
                        ready!(this.poll_end(cx, Task::Writer));
                    } else {
                        let _ = this.poll_drain(cx, Task::Writer);
                    }
                    return Poll::Ready(Err(from_tls(error)));
                }
            };
            match taken {
                // The output is full because the transport does not keep up.
                0 if !data.is_empty() && !this.connection.transmit().is_empty() => {
                    ready!(this.poll_drain(cx, Task::Writer))?;
                }
                // The client waits for the end of a renegotiation, but the reader must first read the data
                // before it.
                0 if !data.is_empty() && !this.connection.received().is_empty() => {
                    this.receiving.wait(cx, Task::Writer);
                    return Poll::Pending;
                }
                0 if !data.is_empty() => ready!(this.poll_receive(cx, Task::Writer))?,
                _ => {
                    return match this.poll_drain(cx, Task::Writer) {
                        Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                        _ => Poll::Ready(Ok(taken)),
                    };
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_drain(cx, Task::Writer)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.linger, Linger::Done) {
            return Poll::Ready(Ok(()));
        }
        this.connection.close();
        ready!(this.poll_drain(cx, Task::Writer))?;
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}

impl<IO: fmt::Debug> fmt::Debug for TlsStream<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("io", &self.io).finish_non_exhaustive()
    }
}
