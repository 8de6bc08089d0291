//! A TLS connection that reads and writes like what carries it.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker, ready};

use dunlin::wire::ProtocolVersion;
use dunlin::{Answer, Event, MessageSize, Negotiated, Side, TlsConnection};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::now;
use crate::error::from_tls;
use crate::handshake::OnMessage;
use crate::linger::Linger;

/// Type, version and length of a record (RFC 8446 §5.1).
const HEADER_LEN: usize = 5;

/// What is asked of the transport at once, in bytes: the largest record (RFC 8446 §5.2) with its header.
pub(crate) const READ_LEN: usize = HEADER_LEN + (1 << 14) + 256;

/// A TLS connection over `IO`, after its handshake.
///
/// * Reading gives 0 bytes only after the peer's close_notify. An end without it is
///   [`io::ErrorKind::UnexpectedEof`]: data may be cut off.
/// * Writing takes data as long as the transport keeps up. What was taken goes out by itself as far as the transport
///   allows, and for certain with a flush.
/// * Shutting down sends close_notify and ends the sending direction; reading goes on.
/// * An error that sends a fatal alert also ends the sending direction of the transport, and is returned when the peer has closed,
///   or after 2 seconds or 8 MiB of input that is dropped. A socket that is closed earlier is reset, and the reset can take the
///   alert from the peer.
/// * Futures may be dropped at any point: nothing that was taken or received is lost.
///
/// Errors of the protocol are [`dunlin::Error`] inside of [`io::Error`]. With `tokio::io::split`, two tasks may read
/// and write at the same time.
pub struct TlsStream<IO> {
    pub(crate) io: IO,
    pub(crate) connection: TlsConnection,
    /// Bytes that were read and that the connection had no room for.
    waiting: Vec<u8>,
    /// A server's early data, as it came.
    early: Vec<u8>,
    /// Whether the transport took bytes that it was not told to flush.
    unflushed: bool,
    pub(crate) bytes_read: u64,
    bytes_written: u64,
    records: RecordScanner,
    handshake_bytes: HandshakeBytes,
    renegotiations: Renegotiations,
    /// Who hears of handshake messages, and how many were reported.
    on_message: Option<Arc<OnMessage>>,
    reported: usize,
    /// Who waits for the transport to take more, and who for it to have more.
    sending: Waiters,
    pub(crate) receiving: Waiters,
    /// Of the transport after a fatal alert.
    pub(crate) linger: Linger,
}

/// The direction in which a task uses the stream. One that reads also sends: alerts and KeyUpdates. One that writes also
/// receives, while another handshake within the connection is at its end.
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
            early: Vec::new(),
            unflushed: false,
            bytes_read: 0,
            bytes_written: 0,
            records: RecordScanner::new(),
            handshake_bytes: HandshakeBytes { read: 0, written: 0 },
            renegotiations: Renegotiations { completed: 0, refused: 0 },
            on_message,
            reported: 0,
            sending: Waiters::new(),
            receiving: Waiters::new(),
            linger: Linger::Idle,
        }
    }

    /// What was agreed.
    pub fn negotiated(&self) -> &Negotiated {
        static NOTHING: LazyLock<Negotiated> = LazyLock::new(Negotiated::default);
        // Streams are given out after their handshake, when there always is something.
        self.connection.negotiated().unwrap_or(&NOTHING)
    }

    /// Early data that a server received during the handshake, as much as its configuration allows; it is never a part of
    /// what is read, and given out once. The same data may have come before, in another connection ([`dunlin::early`]).
    pub fn take_early_data(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    /// Keying material for another protocol (RFC 8446 §7.5, RFC 5705): fills `out`. To TLS 1.3 no context is an empty
    /// one; to TLS 1.2 they are two.
    ///
    /// # Errors
    /// `out` is longer than 255 hash lengths.
    pub fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), dunlin::Error> {
        self.connection.export(label, context, out)
    }

    /// The handshake messages with their sizes, in order.
    pub fn messages(&self) -> &[MessageSize] {
        self.connection.messages()
    }

    /// Reports the messages that are new.
    pub(crate) fn report(&mut self) {
        let messages = self.connection.messages();
        if let Some(on_message) = &self.on_message {
            messages.iter().skip(self.reported).for_each(|m| on_message(m));
        }
        self.reported = messages.len();
    }

    /// Replaces the sending keys, and asks the peer to do the same if `both` (RFC 8446 §4.6.3). The message goes out
    /// with the next read, write or flush.
    ///
    /// # Errors
    /// The connection is over.
    pub fn update_keys(&mut self, both: bool) -> io::Result<()> {
        self.connection.update_keys(both).map_err(from_tls)
    }

    /// Begins another handshake within a connection of TLS 1.2, or as a server asks the client for one
    /// ([`dunlin::Connection::renegotiate`]). Messages go out with the next read, write or flush. It fails where it has to ask
    /// something: [`crate::Answers`] are for the first handshake.
    ///
    /// # Errors
    /// It is not possible on this connection, or the connection is over.
    pub fn renegotiate(&mut self) -> io::Result<()> {
        self.connection.renegotiate(now()).map_err(from_tls)
    }

    /// What became of other handshakes within this connection of TLS 1.2, as reading and writing have seen. After one,
    /// [`TlsStream::negotiated`] is of that one.
    pub const fn renegotiations(&self) -> Renegotiations {
        self.renegotiations
    }

    /// What the handshake took on the transport, to the last byte of the later Finished.
    pub const fn handshake_bytes(&self) -> HandshakeBytes {
        self.handshake_bytes
    }

    /// Notes the end of the handshake.
    pub(crate) fn note_handshake(&mut self) {
        // What waits to be sent is the end of the handshake; only a server of TLS 1.3 has sent its own, and tickets follow.
        let is_tls12 = self.negotiated().version == Some(ProtocolVersion::TLS1_2);
        let unsent = match self.connection.side() {
            Side::Server if !is_tls12 => 0,
            _ => self.connection.transmit().len(),
        };
        self.handshake_bytes = HandshakeBytes {
            read: self.bytes_read - self.waiting.len() as u64,
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

    /// The connection, for what else it tells.
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

    /// Gives the transport back, without an end to the connection.
    pub fn into_inner(self) -> IO {
        self.io
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> TlsStream<IO> {
    /// Takes in what has come, at most once. Errors of the connection stay in it.
    fn poll_receive(&mut self, cx: &mut Context<'_>, task: Task) -> Poll<io::Result<()>> {
        if !self.waiting.is_empty() {
            let bytes = std::mem::take(&mut self.waiting);
            if self.give(&bytes) == 0 {
                // Whoever makes room wakes those who wait here.
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
        self.bytes_read += bytes.len() as u64;
        if bytes.is_empty() {
            let _ = self.connection.receive_end();
        } else {
            self.give(bytes);
        }
        Poll::Ready(Ok(()))
    }

    /// Gives bytes to the connection, and keeps those that it has no room for; tells how many it took. During the handshake
    /// it gets a record at a time, so that the end of the handshake is the end of what it has.
    fn give(&mut self, bytes: &[u8]) -> usize {
        let piece = match self.connection.is_handshaking() {
            true => bytes.get(..self.records.piece(bytes)).unwrap_or(bytes),
            false => bytes,
        };
        let taken = self.connection.receive(now(), piece).unwrap_or(bytes.len());
        self.collect_early_data();
        self.waiting = bytes.get(taken..).unwrap_or_default().to_vec();
        taken
    }

    /// Takes early data out, for which the handshake waits. The configuration says how much there can be.
    fn collect_early_data(&mut self) {
        while let Some(mut early) = self.connection.early_data()
            && !early.received().is_empty()
        {
            self.early.extend_from_slice(early.received());
            let all = early.received().len();
            // An error in what follows ends the handshake.
            let _ = early.consume(now(), all);
        }
    }

    /// Sends what waits to be sent, to the last byte.
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

    /// One step of the handshake: sends and receives what is possible.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.poll_drain(cx, Task::Writer);
        match (self.poll_receive(cx, Task::Writer), sent) {
            // A peer that refused has closed: its alert tells more than the failed write.
            (Poll::Pending, Poll::Ready(Err(e))) => Poll::Ready(Err(e)),
            (received, _) => received,
        }
    }

    /// Hears what the connection tells, and answers what it asks: until then it takes in nothing more. What the other events
    /// tell is told otherwise.
    fn hear(&mut self, task: Task) {
        self.report();
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Renegotiated => self.renegotiations.completed += 1,
                Event::RenegotiationRefused => self.renegotiations.refused += 1,
                // The handshake had somebody to answer; what follows within the connection has not.
                Event::Question(id, _) => {
                    // The error stays in the connection, where the other task finds it too.
                    let _ = self.connection.answer(now(), id, Answer::Failed);
                    self.receiving.go_on(task);
                }
                _ => {}
            }
        }
    }

    /// Until there is data to read, or the peer has closed.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.hear(Task::Reader);
            if !self.connection.received().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = self.connection.error().cloned() {
                // The peer shall know why; if it cannot be told, the error is the same.
                if error.alert().is_some() {
                    ready!(self.poll_end(cx, Task::Reader));
                }
                return Poll::Ready(Err(from_tls(error)));
            }
            // Answers to the peer do not wait for the next write; whether it fails is for the next write to say.
            let _ = self.poll_drain(cx, Task::Reader);
            if self.connection.peer_has_closed() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(cx, Task::Reader))?;
        }
    }
}

/// Handshakes within a connection, how many of each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renegotiations {
    /// Those that are complete, whoever began them.
    pub completed: u32,
    /// Those that this side asked for and the peer does not want (no_renegotiation).
    pub refused: u32,
}

/// What a handshake took on the transport.
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
    /// How much of the header is there.
    have: usize,
    /// What is left of the record after its header.
    left: usize,
}

impl RecordScanner {
    const fn new() -> Self {
        Self { header: [0; HEADER_LEN], have: 0, left: 0 }
    }

    /// How many of `bytes` belong to the record that they begin in.
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

/// The tasks that wait for the transport, which itself keeps only one of them in mind.
pub(crate) struct Waiters {
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

    /// If the other one waits too, what both shall hear of the transport by.
    pub(crate) fn both(&mut self, cx: &Context<'_>, task: Task) -> Option<Waker> {
        let other = self.of(task).1.as_ref().filter(|w| !w.will_wake(cx.waker()))?;
        Some(Waker::from(Arc::new(Both(other.clone(), cx.waker().clone()))))
    }

    pub(crate) fn wait(&mut self, cx: &Context<'_>, task: Task) {
        *self.of(task).0 = Some(cx.waker().clone());
    }

    /// This one waits no more, and the other one need not.
    pub(crate) fn go_on(&mut self, task: Task) {
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
        // An error in what follows is the next read's.
        let _ = this.connection.consume(now(), n);
        // A writer may wait for what comes after this data.
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
                    // The peer shall know why.
                    if this.connection.error().is_some_and(|failed| failed.alert().is_some()) {
                        ready!(this.poll_end(cx, Task::Writer));
                    } else {
                        let _ = this.poll_drain(cx, Task::Writer);
                    }
                    return Poll::Ready(Err(from_tls(error)));
                }
            };
            match taken {
                // The transport does not keep up.
                0 if !data.is_empty() && !this.connection.transmit().is_empty() => {
                    ready!(this.poll_drain(cx, Task::Writer))?;
                }
                // A renegotiation is at its end: the server's answer comes next, behind data that is to be read.
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
