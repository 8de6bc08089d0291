//! The handshake: client and server, each in the order of the RFC's figure, above one seam to the transport.
//!
//! * [`client`] and [`server`]: `start` until the version is known, then `tls12` or `tls13`; [`tls12`] is shared by both.
//! * [`post`]: what comes after the handshake, the same for both sides.
//! * [`retry`]: HelloRetryRequest and its cookie.
//! * [`prove`] and [`verify`]: Certificate and CertificateVerify, sent and received, the same for both sides.
//! * [`cached`]: messages that the receiver has already.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::error::{Error, Internal, Misuse};
use crate::handshake::output::Output;
use crate::handshake::question::{Answer, Question};
use crate::message::Message;
use crate::protocol::Protocol;
use crate::time::Now;
use crate::transport::Emitter;
use crate::wire::KeyUpdateRequest;

pub(crate) mod cached;
pub(crate) mod client;
pub(crate) mod key_exchange;
pub(crate) mod output;
pub(crate) mod post;
pub(crate) mod prove;
pub(crate) mod question;
pub(crate) mod retry;
pub(crate) mod server;
pub(crate) mod setup;
pub(crate) mod signature;
pub(crate) mod tls12;
pub(crate) mod verify;

/// What a state may use while it handles its input.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) emitter: &'a mut dyn Emitter,
    pub(crate) output: &'a mut Output,
}

impl Cx<'_> {
    /// The protocol that was agreed; before, the newest one.
    pub(crate) fn protocol(&self) -> Protocol {
        self.emitter.protocol()
    }

    /// Sends a message, and notes its size.
    pub(crate) fn send(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.output.note_message(true, &message);
        self.emitter.message(message)
    }

    /// Sends a message that belongs to the transcript.
    pub(crate) fn send_in(
        &mut self,
        transcript: &mut crate::schedule::Transcript,
        message: Vec<u8>,
    ) -> Result<(), Error> {
        transcript.add(&message);
        self.send(message)
    }

    /// Lets `state` wait for the answer to a question, or go on at once with one that is known already.
    pub(crate) fn ask(
        &mut self,
        known: Result<Answer, Question>,
        state: Box<dyn State>,
    ) -> Result<Box<dyn State>, Error> {
        match known {
            Ok(answer) => state.answer(self, answer),
            Err(question) => {
                self.output.question = Some(question);
                Ok(state)
            }
        }
    }
}

/// What the connection waits for. A state holds what is valid in it and nothing else; handling an input consumes
/// it and gives the next.
pub(crate) trait State: Send + Sync {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Box<dyn State>, Error>;

    /// The answer to the question that this state waits for.
    fn answer(self: Box<Self>, _: &mut Cx<'_>, _: Answer) -> Result<Box<dyn State>, Error> {
        Err(Misuse::NoSuchQuestion.into())
    }

    /// Begins another handshake within this connection, or asks the client for one; only after the handshake, in TLS 1.2.
    fn renegotiate(self: Box<Self>, _: &mut Cx<'_>) -> Result<Box<dyn State>, Error> {
        Err(Internal::Bug("a renegotiation that cannot be").into())
    }

    /// The peer does not want the handshake that this side asked for within the connection; only after
    /// [`State::renegotiate`].
    fn refused(self: Box<Self>, _: &mut Cx<'_>) -> Result<Box<dyn State>, Error> {
        Err(Internal::Bug("a refusal of what was not asked for").into())
    }

    /// Replaces the sending keys; only after the handshake.
    fn update_keys(&mut self, _: &mut Cx<'_>, _: KeyUpdateRequest) -> Result<(), Error> {
        Err(Misuse::HandshakeNotComplete.into())
    }
}
