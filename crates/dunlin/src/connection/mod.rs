//! The face of the engine: bytes or datagrams in; bytes, events, questions and a timer out.

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
use crate::time::Now;
use crate::transport::{Incoming, Transport};
use crate::wire::{AlertDescription, AlertLevel, HandshakeType, KeyUpdateRequest, What};

mod datagram;
mod early;
mod stream;

pub use early::EarlyData;

/// One connection. It does no input or output and has no clock: the caller carries the bytes and says what time
/// it is.
///
/// After the first error the connection is over; the alert to the peer, if there is one, waits to be transmitted.
pub struct Connection<T> {
    side: Side,
    transport: T,
    state: Option<Step>,
    effects: Effects,
    /// What the handshake that is under way has agreed on so far; an idle connection keeps none.
    draft: Option<Box<Negotiated>>,
    commit: Commit,
    progress: Progress,
    open_question: Option<(QuestionId, Kind)>,
    asked: u64,
    error: Option<Error>,
    now: Now,
    peer_closed: bool,
    /// The transport ended while data waited to be read.
    ended: bool,
}

/// TLS over a byte stream.
pub type TlsConnection = Connection<Stream>;
/// DTLS over datagrams. Messages of the handshake are sent once: it stands still where the path loses one.
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
        connection.progress.key_update_after = config.profile.key_update_after;
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

    /// Whether the handshake is still going on.
    pub const fn is_handshaking(&self) -> bool {
        !self.progress.is_connected() && self.error.is_none()
    }

    /// The error that ended the connection.
    pub const fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Whether the peer has said that it will send no more data.
    pub const fn peer_has_closed(&self) -> bool {
        self.peer_closed
    }

    /// Whether this side will send nothing more: it has closed, or the connection failed.
    pub const fn has_closed(&self) -> bool {
        self.progress.send_closed || self.error.is_some()
    }

    /// What was agreed; `None` before the peer's Finished was verified. Another handshake within the connection changes it
    /// when it is complete, and not before.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.progress.negotiated.as_deref()
    }

    /// The handshake messages so far with their sizes, in order.
    pub fn messages(&self) -> &[MessageSize] {
        &self.effects.messages
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.effects.events.pop_front();
        if self.effects.events.is_empty() {
            // An idle connection keeps no queue.
            self.effects.events = VecDeque::new();
        }
        event
    }

    /// Answers an open question; the handshake goes on.
    ///
    /// # Errors
    /// [`Misuse::NoSuchQuestion`] or [`Misuse::WrongAnswer`], which leave the connection as it is; or what ends
    /// the handshake.
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
        // Early data is the one thing that a handshake can do without.
        if matches!(answer, Answer::Failed) && kind != Kind::FirstUse {
            return self.fail(Internal::QuestionFailed.into());
        }
        let Some(Step::Answer(state)) = self.state.take() else { return Err(Misuse::NoSuchQuestion.into()) };
        self.step(now, |cx| state.answer(cx, answer))?;
        self.drive(now)
    }

    /// Keying material for another protocol (RFC 8446 §7.5, RFC 5705): fills `out`. To TLS 1.3 no context is an empty
    /// one; to TLS 1.2 they are two. A server that answers early data has it before the handshake is complete.
    ///
    /// # Errors
    /// The handshake is not complete, the connection failed, `out` is longer than 255 hash lengths, TLS itself uses the label
    /// (RFC 5705 §6), or [`Misuse::NotSupported`]: TLS 1.2 without extended master secret exports nothing (RFC 7627 §5.4).
    pub fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error> {
        self.check()?;
        match &self.progress.exporter {
            Some(exporter) if self.progress.is_connected() || self.answers_early_data() => {
                schedule::export(&**exporter, label, context, out)
            }
            // RFC 7627 §5.4.
            None if self.progress.is_connected() => {
                Err(Misuse::NotSupported(What::ExporterWithoutEms).into())
            }
            _ => Err(Misuse::HandshakeNotComplete.into()),
        }
    }

    /// The channel binding tls-unique (RFC 5929 §3), which older protocols above TLS 1.2 ask for: the first Finished of the
    /// latest handshake. TLS 1.3 has none; there it is [`Self::export`] with the label of RFC 9266.
    pub fn tls_unique(&self) -> Option<[u8; 12]> {
        self.progress.first_finished.filter(|_| self.error.is_none())
    }

    /// Whether this is a server between its Finished and the client's that took early data.
    const fn answers_early_data(&self) -> bool {
        matches!(self.progress.early.sending, Sending::Answer)
    }

    /// Replaces the sending keys, and asks the peer to do the same if `both` (RFC 8446 §4.6.3).
    ///
    /// # Errors
    /// The handshake is not complete, or the connection is closed or over. Also [`Misuse::NotSupported`] with TLS 1.2,
    /// and over datagrams [`Misuse::KeyUpdateWaits`], which leave the connection as it is.
    pub fn update_keys(&mut self, both: bool) -> Result<(), Error> {
        self.check()?;
        if self.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        if !self.progress.is_connected() {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        if !self.transport.protocol().has_key_update() {
            return Err(Misuse::NotSupported(What::KeyUpdateInTls12).into());
        }
        if self.transport.key_update_waits() {
            return Err(Misuse::KeyUpdateWaits.into());
        }
        let request = match both {
            true => KeyUpdateRequest::UPDATE_REQUESTED,
            false => KeyUpdateRequest::UPDATE_NOT_REQUESTED,
        };
        let Some(Step::Traffic(mut state)) = self.state.take() else {
            return self.fail(Internal::Bug(What::NoUpdate).into());
        };
        let now = self.now;
        self.step(now, |cx| {
            state.update_keys(cx, request)?;
            Ok(Step::Traffic(state))
        })
    }

    /// Begins another handshake within a connection of TLS 1.2 (RFC 5746), or as a server asks the client for one.
    /// [`Event::Renegotiated`] says when it is done, [`Event::RenegotiationRefused`] that the peer does not want it; a client
    /// may also leave a server without an answer (RFC 5246 §7.4.1.1). What the peer begins is allowed or refused by the
    /// profile ([`crate::ProfileBuilder::renegotiation`]).
    ///
    /// A client can so say who it is after the server has seen its first data. Beyond that nobody becomes somebody else:
    /// the identity of the peer, the server's name and the application protocol stay, or the connection ends.
    ///
    /// # Errors
    /// [`Misuse::NotSupported`] in other versions, while one is under way, or with a peer that does not know secure
    /// renegotiation, which leaves the connection as it is; or the connection is closed or over.
    pub fn renegotiate(&mut self, now: Now) -> Result<(), Error> {
        self.check()?;
        if self.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        match (self.progress.renegotiation, self.side) {
            // A server that got no answer may ask again.
            (Renegotiation::Possible, _) | (Renegotiation::Asked, Side::Server) => {}
            _ => return Err(Misuse::NotSupported(What::Renegotiation).into()),
        }
        let Some(Step::Renegotiable(state)) = self.state.take() else {
            return self.fail(Internal::Bug(What::NoRenegotiation).into());
        };
        self.step(now, |cx| state.renegotiate(cx))
    }

    /// Sends close_notify: no more data follows from here. The peer's may still come.
    pub fn close(&mut self) {
        if !self.progress.send_closed && self.error.is_none() {
            // Whoever is done with a connection has no reason to doubt it.
            self.commit.heard(true);
            self.send_close_notify();
        }
    }

    /// Ends the sending direction, if it is open.
    fn send_close_notify(&mut self) {
        if !self.progress.send_closed {
            self.progress.send_closed = true;
            // Only a failing cipher can refuse, and then there is nothing to say any more.
            let _ = self.transport.alert(AlertLevel::WARNING, AlertDescription::CLOSE_NOTIFY);
        }
    }

    /// Ends the connection with an alert of the caller's choice. It is fatal, but for close_notify and user_canceled, which are no
    /// errors: a close_notify follows user_canceled (RFC 9846 §6.1).
    pub fn abort(&mut self, alert: AlertDescription) {
        if self.error.is_some() {
            return;
        }
        let is_closure = [AlertDescription::CLOSE_NOTIFY, AlertDescription::USER_CANCELED].contains(&alert);
        if is_closure {
            if alert == AlertDescription::USER_CANCELED && !self.progress.send_closed {
                // Only a failing cipher can refuse, and then there is nothing to say any more.
                let _ = self.transport.alert(AlertLevel::WARNING, alert);
            }
            self.close();
        }
        self.end(Misuse::Aborted.into(), Some(alert).filter(|_| !is_closure));
    }

    /// Whether data can be sent.
    fn check_send(&mut self) -> Result<(), Error> {
        self.check()?;
        if self.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        if !self.progress.is_connected() {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        if !self.transport.protocol().has_key_update() {
            // Keys of TLS 1.2 cannot be replaced while data flows.
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

    /// Ends the connection: the alert goes out here and nowhere else.
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

    /// One step of the handshake, with its errors and questions.
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
        // A peer that does not read what it is warned of is not warned again.
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
            self.effects.event(Event::Question(id, question));
        }
        Ok(())
    }

    /// Takes in what the transport has, until it has no more or something must be known first.
    fn drive(&mut self, now: Now) -> Result<(), Error> {
        self.now = now;
        while self.open_question.is_none() {
            match self.transport.next() {
                Ok(None) => break,
                Ok(Some(Incoming::Message(message))) => {
                    self.effects.note_message(false, message.bytes());
                    self.commit.heard(true);
                    if self.is_idle_request(&message) {
                        match self.effects.count_idle(What::HelloRequests) {
                            Ok(()) => continue,
                            Err(e) => return self.fail(e),
                        }
                    }
                    let state = self.state.take().ok_or(Internal::Bug(What::NoState))?;
                    self.step(now, |cx| state.message(cx, message))?;
                }
                Ok(Some(Incoming::Alert(level, description))) => self.alert(level, description)?,
                Ok(Some(Incoming::Acknowledgement)) => self.commit.heard(true),
                Err(e) => return self.fail(e),
            }
        }
        Ok(())
    }

    /// Whether it is a HelloRequest that comes to a client while it negotiates: it is ignored, and no transcript has it
    /// (RFC 5246 §7.4.1.1). So is one that comes while nobody takes what is to be sent: answers would pile up.
    fn is_idle_request(&self, message: &Message) -> bool {
        let negotiates = !self.progress.is_settled();
        self.side == Side::Client
            && self.progress.oldest.has_warnings()
            && (negotiates || !self.transport.has_room())
            && message.typ == HandshakeType::HELLO_REQUEST
            && message.body().is_empty()
    }

    /// The peer does not want another handshake within the connection (RFC 5246 §7.2.2): all stays as it is.
    fn renegotiation_refused(&mut self) -> Result<(), Error> {
        self.progress.renegotiation = Renegotiation::Possible;
        self.effects.event(Event::RenegotiationRefused);
        let now = self.now;
        match self.state.take() {
            Some(Step::Refusable(state)) => self.step(now, |cx| state.refused(cx)),
            Some(Step::Renegotiable(state)) => self.step(now, |cx| state.refused(cx)),
            _ => self.fail(Internal::Bug(What::RefusalNotAsked).into()),
        }
    }

    /// RFC 8446 §6: the level says nothing; close_notify and user_canceled end nothing by force, all others do. Before
    /// TLS 1.3 warnings ended nothing either (RFC 5246 §7.2).
    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error> {
        // RFC 8446 §6: it may be ignored which of the two it is, but there is no third.
        if ![AlertLevel::WARNING, AlertLevel::FATAL].contains(&level) {
            return self.fail(PeerMisbehaved::IllegalParameter(What::AlertLevel).into());
        }
        let is_warning = self.progress.oldest.has_warnings() && level == AlertLevel::WARNING;
        match description {
            AlertDescription::CLOSE_NOTIFY if self.progress.is_connected() => {
                self.peer_closed = true;
                self.commit.heard(true);
                self.transport.discard_input();
                self.effects.event(Event::PeerClosed);
                Ok(())
            }
            AlertDescription::CLOSE_NOTIFY => {
                // RFC 8446 §6.1, RFC 5246 §7.2.1: the peer gives the handshake up, and gets a close_notify in return.
                self.send_close_notify();
                self.fail(Error::AlertReceived(description))
            }
            AlertDescription::NO_RENEGOTIATION
                if is_warning && self.progress.renegotiation == Renegotiation::Asked =>
            {
                self.renegotiation_refused()
            }
            _ if is_warning || description == AlertDescription::USER_CANCELED => {
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
