//! The states of a handshake. A state waits for a message from the peer, an answer from the caller, or
//! nothing.

use alloc::boxed::Box;

use super::Cx;
use super::question::{Answer, Question};
use crate::error::{Error, Internal};
use crate::message::{self, Message, Reading};
use crate::protocol::Protocol;
use crate::transport::Reads;
use crate::wire::{Field, HandshakeType, KeyUpdateRequest, Writer};

/// The current state of a connection. A state holds only data that is valid in it. Each step consumes the
/// state and returns the next one.
pub(crate) enum Step {
    /// The handshake waits for a message from the peer.
    Message(Box<dyn ExpectMessage>),
    /// The handshake waits for the caller's answer to its question. Until then the driver accepts no message.
    Answer(Box<dyn AwaitAnswer>),
    /// The handshake is complete, and KeyUpdate can replace the keys (RFC 8446 §4.6.3).
    Traffic(Box<dyn UpdateKeys>),
    /// The handshake is complete, and a renegotiation can begin (RFC 5746).
    Renegotiable(Box<dyn Renegotiate>),
    /// The client waits for the ServerHello of a renegotiation, which the server may refuse.
    Refusable(Box<dyn Refusable>),
}

impl Step {
    /// The step in which `state` waits for a message.
    pub(super) fn expect(state: impl ExpectMessage + 'static) -> Self {
        Self::Message(Box::new(state))
    }

    fn reads(&mut self, protocol: Protocol, message: &Message) -> bool {
        match self {
            Self::Message(state) => state.reads(protocol, message),
            _ => true,
        }
    }

    fn reading(&self, protocol: Protocol, typ: HandshakeType) -> Reading {
        match self {
            Self::Message(state) => state.reading(protocol, typ),
            Self::Traffic(state) => state.reading(protocol, typ),
            Self::Renegotiable(state) => state.reading(protocol, typ),
            Self::Refusable(state) => state.reading(protocol, typ),
            Self::Answer(_) => Reading::Body(message::limit(typ)),
        }
    }

    /// Passes a received message to the state that waits for it.
    pub(crate) fn message(self, cx: &mut Cx<'_>, message: Message) -> Result<Self, Error> {
        let state: Box<dyn ExpectMessage> = match self {
            Self::Message(state) => state,
            Self::Traffic(state) => state,
            Self::Renegotiable(state) => state,
            Self::Refusable(state) => state,
            Self::Answer(_) => return Err(Internal::Bug(Field::MessageForAnswer).into()),
        };
        state.message(cx, message)
    }
}

impl Reads for Option<Step> {
    fn message(&mut self, protocol: Protocol, message: &Message) -> bool {
        self.as_mut().is_none_or(|step| step.reads(protocol, message))
    }

    fn reading(&self, protocol: Protocol, typ: HandshakeType) -> Reading {
        self.as_ref().map_or(Reading::Body(message::limit(typ)), |step| step.reading(protocol, typ))
    }
}

/// A state that waits for a message.
pub(crate) trait ExpectMessage: Send + Sync {
    /// Whether a message that nothing authenticates parses as one for which this state waits. Over datagrams,
    /// others are dropped: anyone can send them, and they must not end the handshake (RFC 9147 §4.5.2, RFC
    /// 6347 §4.1.2.7). States after the hellos take any message but a hello. A state that parses the message
    /// here keeps the result: the message follows at once.
    fn reads(&mut self, _protocol: Protocol, message: &Message) -> bool {
        let hellos =
            [HandshakeType::CLIENT_HELLO, HandshakeType::SERVER_HELLO, HandshakeType::HELLO_VERIFY_REQUEST];
        !hellos.contains(&message.typ)
    }

    /// The part of a message of this type that the state reads. States after the handshake refuse other
    /// messages by their header, since an association keeps every message that it will read. During the
    /// handshake, each state refuses the whole message.
    fn reading(&self, _protocol: Protocol, typ: HandshakeType) -> Reading {
        Reading::Body(message::limit(typ))
    }

    /// The same state once more, if it waits for a ServerHello: a client that follows its server to another
    /// port may have to try another one ([`crate::PortScheme::Ipc`]).
    #[cfg(feature = "association-ports")]
    fn again(&self) -> Option<Box<dyn ExpectMessage>> {
        None
    }

    /// Handles the message, or rejects it if this state does not expect it.
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error>;
}

/// A state that waits for the answer to a question.
pub(crate) trait AwaitAnswer: Send + Sync {
    /// Continues with the answer. The driver has already checked that its kind fits the question.
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error>;
}

/// An established TLS 1.3 or DTLS 1.3 connection.
pub(crate) trait UpdateKeys: ExpectMessage {
    /// Replaces the sending keys.
    fn update_keys(&mut self, cx: &mut Cx<'_>, request: KeyUpdateRequest) -> Result<(), Error>;

    /// Writes its secrets for a connection that continues elsewhere.
    fn freeze(&self, w: &mut Writer);
}

/// A state in which the peer may send no_renegotiation.
pub(crate) trait Refusable: ExpectMessage {
    /// The peer refused the renegotiation that this side requested. The connection continues unchanged.
    fn refused(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error>;
}

/// An established TLS 1.2 connection.
pub(crate) trait Renegotiate: Refusable {
    /// As a client, begins a renegotiation. As a server, asks the client for one.
    fn renegotiate(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error>;
}

impl Cx<'_> {
    /// Passes a known answer to `state` at once. Otherwise asks the caller and lets `state` wait for the
    /// answer.
    pub(crate) fn ask(
        &mut self,
        known: Result<Answer, Question>,
        state: Box<dyn AwaitAnswer>,
    ) -> Result<Step, Error> {
        match known {
            Ok(answer) => state.answer(self, answer),
            Err(question) => {
                self.effects.question = Some(Box::new(question));
                Ok(Step::Answer(state))
            }
        }
    }
}
