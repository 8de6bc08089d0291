//! The face of the engine: bytes or datagrams in; bytes, events, questions and a timer out.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use core::net::{Ipv4Addr, Ipv6Addr};

use pki_types::{IpAddr, ServerName};

use crate::auth::PeerIdentity;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::{Error, Internal, Misuse, PeerMisbehaved};
use crate::handshake::{Cx, Emitter, Side, State, client, server};
use crate::keylog::KeyLog;
use crate::message::Message;
use crate::question::{Answer, Kind, Question, QuestionId};
use crate::record::datagram::Datagram;
use crate::record::stream::Stream;
use crate::resume::Session;
use crate::schedule::tls13::Exporter;
use crate::time::Now;
use crate::wire::{
    AlertDescription, AlertLevel, CertificateCompressionAlgorithm, CipherSuite, HandshakeType,
    KeyUpdateRequest, NamedGroup, ProtocolVersion, SignatureScheme,
};

mod datagram;
mod stream;

/// KeyUpdates, tickets and warnings in a row, without data between them, before they count as an attack.
const MAX_IDLE_MESSAGES: u32 = 32;

/// What carries the connection: the seam that the handshake sees, and the driver's side of it.
pub(crate) trait Transport: Emitter {
    /// The next message or alert; `None` until there is more.
    fn next(&mut self) -> Result<Option<Incoming>, Error>;
    /// Sends an alert with the present keys, after what waits.
    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error>;
    /// Whether the sending keys should be replaced: near the limit of the cipher, or after so many records.
    fn needs_key_update(&self, after: Option<u64>) -> bool;
    /// Whether the sending keys are being replaced and no other KeyUpdate may be sent yet (RFC 9147 §5.8.4).
    fn key_update_waits(&self) -> bool {
        false
    }
    /// Drops what was received and not read: nothing after close_notify or an error counts.
    fn discard_input(&mut self);
}

/// What a transport hands up.
pub(crate) enum Incoming {
    Message(Message),
    Alert(AlertDescription),
}

/// What happened, in order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete: the peer is who [`Negotiated::peer`] says, data may be sent.
    Connected,
    /// Something must be known to go on; give it to [`Connection::answer`].
    Question(QuestionId, Question),
    /// A ticket came and was given to the client's store.
    TicketReceived,
    /// This session is to be kept under this name ([`crate::resume::Tickets::ask`]).
    NewSession(Vec<u8>, Session),
    /// The session under this name was resumed: forget it ([`crate::resume::Tickets::ask`]).
    SessionUsed(Vec<u8>),
    /// The peer replaced its sending keys.
    PeerUpdatedKeys,
    /// The peer will send no more data: close_notify. Data can still be sent.
    PeerClosed,
}

/// What was agreed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Negotiated {
    /// The version.
    pub version: Option<ProtocolVersion>,
    /// The cipher suite.
    pub cipher_suite: Option<CipherSuite>,
    /// The group; `None` with psk_ke.
    pub group: Option<NamedGroup>,
    /// The application protocol.
    pub alpn: Option<Vec<u8>>,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// Who the peer is; `None` if it did not say.
    pub peer: Option<PeerIdentity>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// Whether a HelloRetryRequest was needed.
    pub retried: bool,
    /// The scheme of the peer's signature.
    pub peer_signature: Option<SignatureScheme>,
    /// The scheme of our signature.
    pub own_signature: Option<SignatureScheme>,
    /// How the peer's Certificate message was compressed, if it was.
    pub peer_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// How ours was compressed, if it was.
    pub own_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// The name of the profile.
    pub profile: String,
}

/// A handshake message that was sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Whether it was sent.
    pub sent: bool,
    /// Its type.
    pub typ: HandshakeType,
    /// Whether it is a HelloRetryRequest, which has the type of a ServerHello.
    pub is_retry: bool,
    /// Its length with its header of 4 bytes, in bytes.
    pub len: usize,
}

/// A list of so many messages is enough for every handshake; what comes after is traffic.
const MAX_NOTED: usize = 32;

/// What the states give out.
#[derive(Default)]
pub(crate) struct Output {
    events: VecDeque<Event>,
    pub(crate) question: Option<Question>,
    pub(crate) negotiated: Negotiated,
    pub(crate) exporter: Option<Exporter>,
    pub(crate) connected: bool,
    pub(crate) key_log: Option<Arc<dyn KeyLog>>,
    pub(crate) client_random: [u8; 32],
    pub(crate) key_update_after: Option<u64>,
    /// close_notify or a fatal alert was sent: nothing may follow it (RFC 8446 §6.1).
    pub(crate) send_closed: bool,
    messages: Vec<MessageSize>,
    idle: u32,
}

impl Output {
    pub(crate) fn note_message(&mut self, sent: bool, message: &[u8]) {
        if self.messages.len() < MAX_NOTED
            && let Some(typ) = message.first()
        {
            let typ = HandshakeType(*typ);
            let is_retry = typ == HandshakeType::SERVER_HELLO
                && message.get(6..38) == Some(&crate::message::server_hello::RETRY_RANDOM);
            self.messages.push(MessageSize { sent, typ, is_retry, len: message.len() });
        }
    }

    /// Reports an event. Those that a peer can cause at will are reported once until they are taken.
    pub(crate) fn event(&mut self, event: Event) {
        let repeated = matches!(
            (self.events.back(), &event),
            (Some(Event::PeerUpdatedKeys), Event::PeerUpdatedKeys)
                | (Some(Event::TicketReceived), Event::TicketReceived)
        );
        if !repeated {
            self.events.push_back(event);
        }
    }

    pub(crate) fn log_secret(&self, label: &str, secret: &[u8]) {
        if let Some(log) = &self.key_log {
            log.log(label, &self.client_random, secret);
        }
    }

    /// A message came that costs us work and the peer none: they are counted until data comes between them.
    pub(crate) fn count_idle(&mut self, what: &'static str) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE_MESSAGES { Err(PeerMisbehaved::Flood(what).into()) } else { Ok(()) }
    }

    /// Data came.
    pub(crate) const fn reset_idle(&mut self) {
        self.idle = 0;
    }
}

/// The server that a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// The name or address that its certificate must be for.
    pub name: ServerName<'static>,
    /// The port: tickets of one are not shown to another. 0 where there is none.
    pub port: u16,
}

impl ServerAddress {
    /// A server by name or IP address, and port.
    pub const fn new(name: ServerName<'static>, port: u16) -> Self {
        Self { name, port }
    }

    /// A server by the text of its name or IP address, and port.
    ///
    /// # Errors
    /// `name` is neither a DNS name nor an IP address.
    pub fn parse(name: &str, port: u16) -> Result<Self, Error> {
        match ServerName::try_from(name) {
            Ok(name) => Ok(Self::new(name.to_owned(), port)),
            Err(_) => Err(Misuse::Config(alloc::format!("{name:?} is no DNS name or IP address")).into()),
        }
    }

    /// The name in text.
    pub(crate) fn host(&self) -> String {
        name_text(&self.name)
    }
}

/// A server's name or address in text.
pub(crate) fn name_text(name: &ServerName<'_>) -> String {
    match name {
        ServerName::DnsName(name) => name.as_ref().to_string(),
        ServerName::IpAddress(IpAddr::V4(address)) => Ipv4Addr::from(*address.as_ref()).to_string(),
        ServerName::IpAddress(IpAddr::V6(address)) => Ipv6Addr::from(*address.as_ref()).to_string(),
        _ => String::new(),
    }
}

/// One connection. It does no input or output and has no clock: the caller carries the bytes and says what time
/// it is.
///
/// After the first error the connection is over; the alert to the peer, if there is one, waits to be transmitted.
pub struct Connection<T> {
    side: Side,
    transport: T,
    state: Option<Box<dyn State>>,
    output: Output,
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
        Self {
            side,
            transport,
            state: None,
            output: Output::default(),
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
        connection.output.key_log = config.profile.key_log.clone();
        connection.output.key_update_after = config.profile.key_update_after;
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
        !self.output.connected && self.error.is_none()
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
        self.output.send_closed || self.error.is_some()
    }

    /// What was agreed; `None` before the peer's Finished was verified.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.output.connected.then_some(&self.output.negotiated)
    }

    /// The handshake messages so far with their sizes, in order.
    pub fn messages(&self) -> &[MessageSize] {
        &self.output.messages
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.output.events.pop_front()
    }

    /// Answers an open question; the handshake goes on.
    ///
    /// # Errors
    /// [`Misuse::NoSuchQuestion`] or [`Misuse::WrongAnswer`], which leave the connection as it is; or what ends
    /// the handshake.
    pub fn answer(&mut self, now: Now, id: QuestionId, answer: Answer) -> Result<(), Error> {
        self.check()?;
        match self.open_question {
            Some((open, kind)) if open == id => {
                if answer.kind().is_some_and(|k| k != kind) {
                    return Err(Misuse::WrongAnswer.into());
                }
            }
            _ => return Err(Misuse::NoSuchQuestion.into()),
        }
        self.open_question = None;
        if matches!(answer, Answer::Failed) {
            return self.fail(Internal::QuestionFailed.into());
        }
        let Some(state) = self.state.take() else { return Err(Misuse::NoSuchQuestion.into()) };
        self.step(now, |cx| state.answer(cx, answer))?;
        self.drive(now)
    }

    /// Keying material for another protocol (RFC 8446 §7.5): fills `out`.
    ///
    /// # Errors
    /// The handshake is not complete, or `out` is longer than 255 hash lengths.
    pub fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        match &self.output.exporter {
            Some(exporter) if self.output.connected => exporter.export(label, context, out),
            _ => Err(Misuse::HandshakeNotComplete.into()),
        }
    }

    /// Replaces the sending keys, and asks the peer to do the same if `both` (RFC 8446 §4.6.3).
    ///
    /// # Errors
    /// The handshake is not complete, or the connection is closed or over. Over datagrams also
    /// [`Misuse::KeyUpdateWaits`], which leaves the connection as it is.
    pub fn update_keys(&mut self, both: bool) -> Result<(), Error> {
        self.check()?;
        if self.output.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        if !self.output.connected {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        if self.transport.key_update_waits() {
            return Err(Misuse::KeyUpdateWaits.into());
        }
        let request = match both {
            true => KeyUpdateRequest::UPDATE_REQUESTED,
            false => KeyUpdateRequest::UPDATE_NOT_REQUESTED,
        };
        let mut state = self.state.take().ok_or(Internal::Bug("no state"))?;
        let now = self.now;
        self.step(now, |cx| {
            state.update_keys(cx, request)?;
            Ok(state)
        })
    }

    /// Sends close_notify: no more data follows from here. The peer's may still come.
    pub fn close(&mut self) {
        if !self.output.send_closed && self.error.is_none() {
            self.output.send_closed = true;
            // Only a failing cipher can refuse, and then there is nothing to say any more.
            let _ = self.transport.alert(AlertLevel::WARNING, AlertDescription::CLOSE_NOTIFY);
        }
    }

    /// Whether data can be sent.
    fn check_send(&mut self) -> Result<(), Error> {
        self.check()?;
        if self.output.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        if !self.output.connected {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        if self.transport.needs_key_update(self.output.key_update_after) {
            self.update_keys(false)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Ends the connection: the alert goes out here and nowhere else.
    fn fail(&mut self, error: Error) -> Result<(), Error> {
        if let Some(alert) = error.alert()
            && !self.output.send_closed
        {
            self.output.send_closed = true;
            let _ = self.transport.alert(AlertLevel::FATAL, alert);
        }
        self.state = None;
        self.open_question = None;
        self.transport.discard_input();
        self.error = Some(error.clone());
        Err(error)
    }

    /// One step of the handshake, with its errors and questions.
    fn step(
        &mut self,
        now: Now,
        step: impl FnOnce(&mut Cx<'_>) -> Result<Box<dyn State>, Error>,
    ) -> Result<(), Error> {
        self.now = now;
        let mut cx = Cx { now, emitter: &mut self.transport, output: &mut self.output };
        match step(&mut cx) {
            Ok(state) => self.state = Some(state),
            Err(e) => return self.fail(e),
        }
        if let Some(question) = self.output.question.take() {
            let id = QuestionId(self.asked);
            self.asked += 1;
            self.open_question = Some((id, question.kind()));
            self.output.event(Event::Question(id, question));
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
                    self.output.note_message(false, message.bytes());
                    let state = self.state.take().ok_or(Internal::Bug("no state"))?;
                    self.step(now, |cx| state.message(cx, message))?;
                }
                Ok(Some(Incoming::Alert(description))) => self.alert(description)?,
                Err(e) => return self.fail(e),
            }
        }
        Ok(())
    }

    /// RFC 8446 §6: the level says nothing; close_notify and user_canceled end nothing by force, all others do.
    fn alert(&mut self, description: AlertDescription) -> Result<(), Error> {
        match description {
            AlertDescription::CLOSE_NOTIFY if self.output.connected => {
                self.peer_closed = true;
                self.transport.discard_input();
                self.output.event(Event::PeerClosed);
                Ok(())
            }
            AlertDescription::USER_CANCELED => match self.output.count_idle("warnings") {
                Ok(()) => Ok(()),
                Err(e) => self.fail(e),
            },
            description => self.fail(Error::AlertReceived(description)),
        }
    }
}
