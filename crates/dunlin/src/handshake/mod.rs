//! The handshake: client and server, each in the order of the RFC's figure, above one seam to the transport.
//!
//! * [`client`] and [`server`]: `start` until the version is known, then `tls12` or `tls13`; [`tls12`] is shared by both.
//! * [`post`]: what comes after the handshake, the same for both sides.
//! * [`retry`]: HelloRetryRequest and its cookie.
//! * [`prove`] and [`verify`]: Certificate and CertificateVerify, sent and received, the same for both sides.
//! * [`cached`]: messages that the receiver has already.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::error::Error;
use crate::handshake::output::Output;
use crate::handshake::question::{Answer, Question};
use crate::protocol::Protocol;
use crate::time::Now;
use crate::transport::Emitter;

pub(crate) use step::{AwaitAnswer, ExpectMessage, Step};

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
pub(crate) mod step;
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
        state: Box<dyn AwaitAnswer>,
    ) -> Result<Step, Error> {
        match known {
            Ok(answer) => state.answer(self, answer),
            Err(question) => {
                self.output.question = Some(question);
                Ok(Step::Answer(state))
            }
        }
    }
}
