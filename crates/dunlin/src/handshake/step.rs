//! What a handshake waits for: a message of the peer, an answer of the caller, or nothing more.

use alloc::boxed::Box;

use super::Cx;
use super::question::Answer;
use crate::error::{Error, Internal};
use crate::message::Message;
use crate::wire::{KeyUpdateRequest, What};

/// Where a connection stands. Each state holds what is valid in it and nothing else; a step consumes it and gives the next one.
pub(crate) enum Step {
    /// The handshake waits for a message of the peer.
    Message(Box<dyn ExpectMessage>),
    /// The handshake waits for the answer to the question that it has asked. The driver takes in no message before.
    Answer(Box<dyn AwaitAnswer>),
    /// The handshake is complete, and KeyUpdate can replace the keys (RFC 8446 §4.6.3).
    Traffic(Box<dyn UpdateKeys>),
    /// The handshake is complete, and another one can begin within the connection (RFC 5746).
    Renegotiable(Box<dyn Renegotiate>),
    /// A client waits for the ServerHello of a renegotiation, which the server may refuse.
    Refusable(Box<dyn Refusable>),
}

impl Step {
    /// `state` waits for a message.
    pub(super) fn expect(state: impl ExpectMessage + 'static) -> Self {
        Self::Message(Box::new(state))
    }

    /// Gives a received message to the state that waits for it.
    pub(crate) fn message(self, cx: &mut Cx<'_>, message: Message) -> Result<Self, Error> {
        let state: Box<dyn ExpectMessage> = match self {
            Self::Message(state) => state,
            Self::Traffic(state) => state,
            Self::Renegotiable(state) => state,
            Self::Refusable(state) => state,
            Self::Answer(_) => return Err(Internal::Bug(What::MessageForAnswer).into()),
        };
        state.message(cx, message)
    }
}

/// A state that waits for a message.
pub(crate) trait ExpectMessage: Send + Sync {
    /// Handles the message, or refuses it where it has no place.
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error>;
}

/// A state that waits for the answer to a question.
pub(crate) trait AwaitAnswer: Send + Sync {
    /// Goes on with the answer; the driver has compared its kind with the question's.
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error>;
}

/// An established connection of version 1.3.
pub(crate) trait UpdateKeys: ExpectMessage {
    /// Replaces the sending keys.
    fn update_keys(&mut self, cx: &mut Cx<'_>, request: KeyUpdateRequest) -> Result<(), Error>;
}

/// A state in which the peer may send no_renegotiation.
pub(crate) trait Refusable: ExpectMessage {
    /// The peer does not want the handshake that this side asked for: the connection goes on as before.
    fn refused(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error>;
}

/// An established connection of version 1.2.
pub(crate) trait Renegotiate: Refusable {
    /// Begins another handshake within this connection, or asks the client for one.
    fn renegotiate(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error>;
}
