//! The public interface of the engine: bytes or datagrams go in; bytes or datagrams, events and questions
//! come out.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::address::ServerAddress;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::{Error, Internal, Misuse, PeerMisbehaved};
use crate::handshake::commit::Commit;
use crate::handshake::effects::Effects;
use crate::handshake::event::{Event, MessageSize};
use crate::handshake::negotiated::Negotiated;
use crate::handshake::progress::{EarlyOutput, Progress, Renegotiation, Sending};
use crate::handshake::question::{Answer, Kind, QuestionId};
use crate::handshake::{Cx, Step, client, server};
use crate::message::Message;
use crate::protocol::Side;
use crate::record::datagram::Datagram;
use crate::record::stream::Stream;
use crate::schedule;
use crate::time::{Instant, Now};
use crate::transport::{Incoming, Transport};
use crate::wire::{AlertDescription, AlertLevel, Field, HandshakeType, KeyUpdateRequest};

mod datagram;
mod early;
mod frozen;
#[cfg(feature = "association-ports")]
mod ports;
mod stream;

pub(crate) use datagram::Standing;
pub use datagram::Transmit;
pub use early::EarlyData;

/// One TLS or DTLS connection. It does no input or output and has no clock: the caller transfers the bytes
/// and passes the current time.
///
/// The first error ends the connection. The caller should still transmit what remains, since that may include
/// an alert.
///
/// # Calls
///
/// Streams and datagrams share the names of all calls that mean the same:
///
/// | purpose | over a stream | over datagrams |
/// | --- | --- | --- |
/// | begin | `client`, `server` | the same, with the peer's address |
/// | take input | `receive(now, bytes)` | `receive(now, from, datagram)` |
/// | give output | `transmit`, then `transmitted(n)` | `poll_transmit(now)` |
/// | give data | `received`, then `consume(now, n)` | `read` |
/// | take data | `send(data)`: as much as there is room for | `send(data)`: all or an error |
/// | report events, ask questions | `poll_event`, `answer(now, …)` | the same |
/// | keep time | no timers | `poll_timeout`, `handle_timeout(now)` |
/// | replace keys, end | `update_keys`, `close`, `abort` | the same |
///
/// A call that begins with `poll_` takes out the next whole item: an event or a datagram. A stream has no
/// items, and a transport may take only a part of its bytes. So it lends its buffers (`transmit`,
/// `received`), and the caller reports what it has used.
///
/// # Examples
/// A client over blocking sockets, up to the end of the handshake. [The first page](crate) has both sides and
/// data.
/// ```no_run
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::sync::Arc;
///
/// use dunlin::{ClientConfig, Now, ServerAddress, TlsConnection};
///
/// # fn connect(config: &Arc<ClientConfig>, now: Now) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tcp = TcpStream::connect("localhost:4433")?;
/// let mut tls = TlsConnection::client(config, ServerAddress::parse("localhost", 4433)?, now)?;
/// let mut bytes = [0; 4096];
/// loop {
///     while !tls.transmit().is_empty() {
///         let sent = tcp.write(tls.transmit())?;
///         tls.transmitted(sent);
///     }
///     if !tls.is_handshaking() {
///         break;
///     }
///     let length = tcp.read(&mut bytes)?;
///     if length == 0 {
///         tls.receive_end()?;
///     }
///     let mut received = &bytes[..length];
///     while !received.is_empty() {
///         received = &received[tls.receive(now, received)?..];
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Connection<T> {
    side: Side,
    transport: T,
    state: Option<Step>,
    effects: Effects,
    /// The parameters that the current handshake has negotiated so far. An idle connection has no draft.
    draft: Option<Box<Negotiated>>,
    commit: Commit,
    progress: Progress,
    open_question: Option<(QuestionId, Kind)>,
    asked: u64,
    error: Option<Error>,
    now: Now,
    peer_closed: bool,
    /// The transport ended. The connection reports that after the application has read the remaining data.
    ended: bool,
}

/// TLS over a byte stream.
pub type TlsConnection = Connection<Stream>;
/// DTLS over datagrams. It retransmits lost handshake messages (RFC 9147 §5.8). Lost application data stays
/// lost.
pub type DtlsConnection = Connection<Datagram>;

#[allow(private_bounds, reason = "the transports are ours alone")]
impl<T: Transport> Connection<T> {
    fn new(side: Side, transport: T, now: Now) -> Self {
        let progress = Progress { oldest: transport.protocol(), ..Progress::default() };
        Self {
            side,
            transport,
            state: None,
            effects: Effects::default(),
            draft: None,
            commit: Commit::default(),
            progress,
            open_question: None,
            asked: 0,
            error: None,
            now,
            peer_closed: false,
            ended: false,
        }
    }

    fn new_client(
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        transport: T,
        now: Now,
    ) -> Result<Self, Error> {
        let mut connection = Self::new(Side::Client, transport, now);
        connection.effects.key_log = config.profile.key_log.clone();
        connection.progress.key_update_after = config.profile.records.key_update_after;
        let config = Arc::clone(config);
        connection.step(now, |cx| client::start::start(cx, config, server))?;
        Ok(connection)
    }

    fn new_server(config: &Arc<ServerConfig>, transport: T, now: Now) -> Self {
        let mut connection = Self::new(Side::Server, transport, now);
        connection.state = Some(server::start::start(Arc::clone(config)));
        connection
    }

    /// Which side this is.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Whether the first handshake is still in progress.
    pub const fn is_handshaking(&self) -> bool {
        !self.progress.is_connected() && self.error.is_none()
    }

    /// The error that ended the connection.
    pub const fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Whether the peer has sent close_notify, after which it sends no more data, or could send none from the
    /// beginning ([`ServerConfig::handshake_only`]).
    pub const fn peer_has_closed(&self) -> bool {
        self.peer_closed
    }

    /// Whether this side sends nothing more, because it has closed or the connection has failed.
    pub const fn has_closed(&self) -> bool {
        self.progress.send_closed || self.error.is_some()
    }

    /// The result of the latest complete handshake. `None` until this side has verified the peer's Finished.
    /// A renegotiation changes it only when it is complete.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        if self.progress.is_connected() { self.progress.negotiated.as_deref() } else { None }
    }

    /// The handshake messages so far, in order, with their sizes.
    pub fn messages(&self) -> &[MessageSize] {
        &self.effects.messages
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.effects.events.pop_front();
        if self.effects.events.is_empty() {
            // An idle connection keeps no memory for the queue.
            self.effects.events = VecDeque::new();
        }
        event
    }

    /// When to call [`Connection::handle_timeout`], on the monotonic clock. `None` if no timer runs. The
    /// deadline can change with every call. A connection over a stream has no timers.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.error.is_none() { self.transport.poll_timeout() } else { None }
    }

    /// Handles the timers whose deadline has come. Then there may be more to transmit. A call before the
    /// deadline has no effect.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after too many retransmissions without an answer, or the connection has failed
    /// before.
    pub fn handle_timeout(&mut self, now: Now) -> Result<(), Error> {
        self.check()?;
        let handled = self.transport.handle_timeout(now.monotonic);
        self.note_path();
        match handled {
            Ok(()) => Ok(()),
            Err(e) => self.fail(e),
        }
    }

    /// Answers an open question and continues the handshake.
    ///
    /// # Errors
    /// [`Misuse::NoSuchQuestion`] and [`Misuse::WrongAnswer`] leave the connection unchanged. Every other
    /// error ends it.
    pub fn answer(&mut self, now: Now, id: QuestionId, answer: Answer) -> Result<(), Error> {
        self.check()?;
        let kind = match self.open_question {
            Some((open, kind)) if open == id => kind,
            _ => return Err(Misuse::NoSuchQuestion.into()),
        };
        if answer.kind().is_some_and(|k| k != kind) {
            return Err(Misuse::WrongAnswer.into());
        }
        self.open_question = None;
        // Only a question about early data can stay unanswered: the handshake continues without early data.
        if matches!(answer, Answer::Failed) && kind != Kind::FirstUse {
            return self.fail(Internal::QuestionFailed.into());
        }
        let Some(Step::Answer(state)) = self.state.take() else { return Err(Misuse::NoSuchQuestion.into()) };
        self.step(now, |cx| state.answer(cx, answer))?;
        self.drive(now)
    }

    /// Exports keying material for another protocol into `out` (RFC 8446 §7.5, RFC 5705). TLS 1.3 treats a
    /// missing context as empty; TLS 1.2 distinguishes the two. A server that accepted early data can export
    /// before the handshake is complete.
    ///
    /// # Errors
    /// The handshake is not complete, the connection has failed, `out` is longer than 255 hash lengths, or
    /// `label` is one that TLS itself uses (RFC 5705 §6). [`Misuse::NotSupported`] in TLS 1.2 without
    /// extended master secret (RFC 7627 §5.4).
    pub fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error> {
        self.check()?;
        match &self.progress.exporter {
            Some(exporter) if self.progress.is_connected() || self.answers_early_data() => {
                schedule::export(&**exporter, label, context, out)
            }
            // RFC 7627 §5.4: without extended master secret TLS 1.2 exports nothing.
            None if self.progress.is_connected() => {
                Err(Misuse::NotSupported(Field::ExporterWithoutEms).into())
            }
            _ => Err(Misuse::HandshakeNotComplete.into()),
        }
    }

    /// The channel binding tls-unique (RFC 5929 §3) for older protocols over TLS 1.2: the first Finished of
    /// the latest handshake. `None` in TLS 1.3, where [`Self::export`] with the label of RFC 9266 replaces
    /// it.
    pub fn tls_unique(&self) -> Option<[u8; 12]> {
        if self.error.is_none() { self.progress.first_finished } else { None }
    }

    /// Whether this is a server that accepted early data and waits for the client's Finished.
    const fn answers_early_data(&self) -> bool {
        matches!(self.progress.early.sending, Sending::Answer)
    }

    /// Replaces this side's sending keys (RFC 8446 §4.6.3). With `both`, asks the peer to replace its keys,
    /// too.
    ///
    /// # Errors
    /// The handshake is not complete, this side has closed, or the connection has failed.
    /// [`Misuse::NotSupported`] in TLS 1.2. Over datagrams, [`Misuse::KeyUpdateWaits`]. A [`Misuse`] leaves
    /// the connection unchanged.
    pub fn update_keys(&mut self, both: bool) -> Result<(), Error> {
        self.check()?;
        if self.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        if !self.progress.is_connected() {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        if !self.transport.protocol().has_key_update() {
            return Err(Misuse::NotSupported(Field::KeyUpdateInTls12).into());
        }
        if self.transport.key_update_waits() {
            return Err(Misuse::KeyUpdateWaits.into());
        }
        let request =
            if both { KeyUpdateRequest::UPDATE_REQUESTED } else { KeyUpdateRequest::UPDATE_NOT_REQUESTED };
        let Some(Step::Traffic(mut state)) = self.state.take() else {
            return self.fail(Internal::Bug(Field::NoUpdate).into());
        };
        let now = self.now;
        self.step(now, |cx| {
            state.update_keys(cx, request)?;
            Ok(Step::Traffic(state))
        })
    }

    /// Renegotiates a TLS 1.2 connection (RFC 5746). A client begins the new handshake; a server asks the
    /// client for it. [`Event::Renegotiated`] reports success, [`Event::RenegotiationRefused`] a refusal. A
    /// client may also ignore the server's request (RFC 5246 §7.4.1.1). The profile decides whether the peer
    /// may begin a renegotiation ([`crate::ProfileBuilder::renegotiation`]).
    ///
    /// With it, a client can authenticate after the server has seen its first data. Identities that are
    /// already proven, the server name and the application protocol must stay the same. Otherwise the
    /// connection fails.
    ///
    /// # Errors
    /// [`Misuse::NotSupported`] in other versions, while a renegotiation is in progress, or with a peer
    /// without secure renegotiation; the connection stays unchanged. Or this side has closed, or the
    /// connection has failed.
    pub fn renegotiate(&mut self, now: Now) -> Result<(), Error> {
        self.check()?;
        if self.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        match (self.progress.renegotiation, self.side) {
            // A server without an answer may ask again.
            (Renegotiation::Possible, _) | (Renegotiation::Asked(_), Side::Server) => {}
            _ => return Err(Misuse::NotSupported(Field::Renegotiation).into()),
        }
        let Some(Step::Renegotiable(state)) = self.state.take() else {
            return self.fail(Internal::Bug(Field::NoRenegotiation).into());
        };
        self.step(now, |cx| state.renegotiate(cx))
    }

    /// Sends close_notify, after which this side sends no more data. The peer may still send.
    pub fn close(&mut self) {
        if !self.progress.send_closed && self.error.is_none() {
            // A local close counts as confirmation that the handshake succeeded.
            self.commit.heard(true);
            self.send_close_notify();
        }
    }

    /// Closes the sending direction if it is open.
    fn send_close_notify(&mut self) {
        if !self.progress.send_closed {
            self.progress.send_closed = true;
            // Only a failing cipher returns an error, and then nothing can be sent any more.
            let _ = self.transport.alert(AlertLevel::WARNING, AlertDescription::CLOSE_NOTIFY);
        }
    }

    /// Ends the connection with an alert of the caller's choice. The alert is fatal, except close_notify and
    /// user_canceled, which report no error. A close_notify follows user_canceled (RFC 9846 §6.1).
    pub fn abort(&mut self, alert: AlertDescription) {
        if self.error.is_some() {
            return;
        }
        let is_closure = [AlertDescription::CLOSE_NOTIFY, AlertDescription::USER_CANCELED].contains(&alert);
        if is_closure {
            if alert == AlertDescription::USER_CANCELED && !self.progress.send_closed {
                // Only a failing cipher returns an error, and then nothing can be sent any more.
                let _ = self.transport.alert(AlertLevel::WARNING, alert);
            }
            self.close();
        }
        self.end(Misuse::Aborted.into(), Some(alert).filter(|_| !is_closure));
    }

    /// Checks that data can be sent, and replaces the sending keys if they are exhausted.
    fn check_send(&mut self) -> Result<(), Error> {
        self.check()?;
        if self.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        if !self.progress.is_connected() {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        if !self.transport.protocol().has_key_update() {
            // TLS 1.2 has no KeyUpdate, so its keys cannot be replaced.
            if self.transport.needs_key_update(None) {
                return self.fail(Internal::KeyExhausted.into());
            }
        } else if self.transport.needs_key_update(self.progress.key_update_after) {
            self.update_keys(false)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Ends the connection with the alert for `error`. All alerts for errors are sent here.
    fn fail(&mut self, error: Error) -> Result<(), Error> {
        let alert = error.alert().map(|alert| self.transport.protocol().alert(alert));
        self.end(error.clone(), alert);
        Err(error)
    }

    fn end(&mut self, error: Error, alert: Option<AlertDescription>) {
        if let Some(alert) = alert
            && !self.progress.send_closed
        {
            self.progress.send_closed = true;
            let _ = self.transport.alert(AlertLevel::FATAL, alert);
        }
        self.state = None;
        self.open_question = None;
        self.progress.exporter = None;
        self.progress.early = EarlyOutput::default();
        self.commit.undo();
        if alert.is_some() || matches!(error, Error::AlertReceived(_)) {
            self.commit.forget_sessions(&mut self.effects);
        }
        self.transport.discard_input();
        self.error = Some(error);
    }

    /// Makes one step of the handshake, then handles its errors, warnings and questions.
    fn step(&mut self, now: Now, step: impl FnOnce(&mut Cx<'_>) -> Result<Step, Error>) -> Result<(), Error> {
        self.now = now;
        let mut draft = self.draft.take().unwrap_or_default();
        let mut cx = Cx {
            now,
            emitter: &mut self.transport,
            effects: &mut self.effects,
            draft: &mut draft,
            commit: &mut self.commit,
            progress: &mut self.progress,
        };
        match step(&mut cx) {
            Ok(state) => self.state = Some(state),
            Err(e) => return self.fail(e),
        }
        self.draft = (!self.progress.is_settled()).then_some(draft);
        if self.progress.handshake_only && self.progress.is_settled() && !self.peer_closed {
            self.close();
            self.end_input();
        }
        // If the output is full because the peer does not read, drop the warning.
        if let Some(warning) = self.effects.warning.take()
            && self.transport.has_room()
            && let Err(e) = self.transport.alert(AlertLevel::WARNING, warning)
        {
            return self.fail(e);
        }
        if let Some(question) = self.effects.question.take() {
            let id = QuestionId(self.asked);
            self.asked += 1;
            self.open_question = Some((id, question.kind()));
            self.effects.event(Event::Question(id, *question));
        }
        Ok(())
    }

    /// Reports a change of this side's path.
    fn note_path(&mut self) {
        if let Some(change) = self.transport.take_path_change() {
            self.effects.event(Event::PathChanged(change));
        }
    }

    /// Processes what the transport has received, until it is empty or a question is open.
    fn drive(&mut self, now: Now) -> Result<(), Error> {
        self.now = now;
        while self.open_question.is_none() {
            match self.transport.next(&mut self.state) {
                Ok(None) => break,
                Ok(Some(Incoming::Message(message))) => {
                    self.effects.note_message(false, message.bytes());
                    self.commit.heard(true);
                    if self.is_idle_request(&message) {
                        match self.effects.count_idle(Field::HelloRequests) {
                            Ok(()) => continue,
                            Err(e) => return self.fail(e),
                        }
                    }
                    let state = self.state.take().ok_or(Internal::Bug(Field::NoState))?;
                    self.step(now, |cx| state.message(cx, message))?;
                }
                Ok(Some(Incoming::Alert(level, description))) => self.alert(level, description)?,
                Ok(Some(Incoming::Acknowledgement)) => self.commit.heard(true),
                Ok(Some(Incoming::PeerMoved(address))) => self.effects.event(Event::PeerMoved(address)),
                Err(e) => return self.fail(self.progress.explain(e)),
            }
        }
        Ok(())
    }

    /// Whether `message` is a HelloRequest that the client ignores and leaves out of the transcript. It does
    /// so during a handshake (RFC 5246 §7.4.1.1). It also does so while its output is full, or its answers
    /// would accumulate.
    fn is_idle_request(&self, message: &Message) -> bool {
        let negotiates = !self.progress.is_settled();
        self.side == Side::Client
            && self.progress.oldest.has_warnings()
            && (negotiates || !self.transport.has_room())
            && message.typ == HandshakeType::HELLO_REQUEST
            && message.body().is_empty()
    }

    /// Handles the peer's refusal of a renegotiation (RFC 5246 §7.2.2). The connection continues unchanged.
    fn renegotiation_refused(&mut self) -> Result<(), Error> {
        self.progress.renegotiation = self.progress.renegotiation.refused();
        self.effects.event(Event::RenegotiationRefused);
        let now = self.now;
        match self.state.take() {
            Some(Step::Refusable(state)) => self.step(now, |cx| state.refused(cx)),
            Some(Step::Renegotiable(state)) => self.step(now, |cx| state.refused(cx)),
            _ => self.fail(Internal::Bug(Field::RefusalNotAsked).into()),
        }
    }

    /// Takes no more data from the peer (RFC 8446 §6.1).
    fn end_input(&mut self) {
        self.peer_closed = true;
        self.transport.discard_input();
        self.effects.event(Event::PeerClosed);
    }

    /// Handles an alert. RFC 8446 §6: all alerts are fatal except close_notify and user_canceled, whatever
    /// their level. RFC 5246 §7.2: in TLS 1.2, alerts of the level warning are not fatal.
    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error> {
        // RFC 8446 §6: the level may be ignored, but only these two values exist.
        if ![AlertLevel::WARNING, AlertLevel::FATAL].contains(&level) {
            return self.fail(PeerMisbehaved::IllegalParameter(Field::AlertLevel).into());
        }
        let has_levels = self.progress.oldest.has_warnings();
        let is_warning = has_levels && level == AlertLevel::WARNING;
        match description {
            AlertDescription::CLOSE_NOTIFY if self.progress.is_connected() => {
                self.commit.heard(true);
                self.end_input();
                Ok(())
            }
            AlertDescription::CLOSE_NOTIFY => {
                // RFC 8446 §6.1, RFC 5246 §7.2.1: the peer aborts the handshake, and this side answers with
                // close_notify.
                self.send_close_notify();
                self.fail(Error::AlertReceived(description))
            }
            AlertDescription::NO_RENEGOTIATION
                if is_warning && matches!(self.progress.renegotiation, Renegotiation::Asked(_)) =>
            {
                self.renegotiation_refused()
            }
            // RFC 5246 §7.2: with the level fatal, user_canceled ends TLS 1.2, too.
            _ if is_warning || !has_levels && description == AlertDescription::USER_CANCELED => {
                match self.effects.count_warning() {
                    Ok(()) => Ok(()),
                    Err(e) => self.fail(e),
                }
            }
            description => {
                self.commit.heard(false);
                self.fail(Error::AlertReceived(description))
            }
        }
    }
}
