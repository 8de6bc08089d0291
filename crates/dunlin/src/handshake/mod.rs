//! The handshakes of the client and of the server. Each file follows the order of the RFC's figure.
//! States exchange whole messages with one interface to the transport, [`Emitter`].
//!
//! * [`client`] and [`server`]: `start` until the version is known, then `tls12` or `tls13`. Both sides share
//!   [`tls12`].
//! * [`negotiate`]: what each extension does on either side.
//! * [`post`]: messages after the handshake, for both sides.
//! * [`retry`]: HelloRetryRequest and its cookie.
//! * [`prove`] and [`verify`]: sending and receiving Certificate and CertificateVerify, for both sides.
//! * [`ssi`]: the messages in place of Certificate that show decentralised identities.
//! * [`cached`]: messages that the sender abbreviates because the receiver has them in its cache.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::early::EarlyDataOutcome;
use crate::error::Error;
use crate::handshake::question::{Answer, Question};
use crate::protocol::Protocol;
use crate::schedule::Running;
use crate::time::Now;
use crate::transport::Emitter;

use commit::Commit;
use effects::Effects;
use event::Event;
use negotiated::Negotiated;
use progress::{EarlyOutput, Progress};
pub(crate) use step::{AwaitAnswer, ExpectMessage, Step};

pub(crate) mod cached;
pub(crate) mod client;
pub(crate) mod commit;
pub(crate) mod effects;
pub(crate) mod event;
pub(crate) mod key_exchange;
pub(crate) mod negotiate;
pub(crate) mod negotiated;
pub(crate) mod post;
pub(crate) mod progress;
pub(crate) mod prove;
pub(crate) mod question;
pub(crate) mod retry;
pub(crate) mod server;
pub(crate) mod setup;
pub(crate) mod signature;
pub(crate) mod ssi;
pub(crate) mod step;
pub(crate) mod tls12;
pub(crate) mod tls12_table;
pub(crate) mod verify;

/// The context that a state uses while it handles its input.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) emitter: &'a mut dyn Emitter,
    pub(crate) effects: &'a mut Effects,
    /// The parameters that this handshake has negotiated so far.
    pub(crate) draft: &'a mut Box<Negotiated>,
    pub(crate) commit: &'a mut Commit,
    pub(crate) progress: &'a mut Progress,
}

impl Cx<'_> {
    /// The negotiated protocol. Before negotiation, the newest one.
    pub(crate) fn protocol(&self) -> Protocol {
        self.emitter.protocol()
    }

    /// The result of the handshake if it is complete, otherwise the current draft.
    pub(crate) fn agreed(&self) -> &Negotiated {
        match &self.progress.negotiated {
            Some(negotiated) if self.progress.is_settled() => negotiated,
            _ => self.draft,
        }
    }

    /// Completes the handshake: its draft comes into force.
    pub(crate) fn complete(&mut self, event: Event) {
        self.progress.negotiated = Some(core::mem::take(self.draft));
        self.progress.renegotiating = false;
        self.progress.data_waits = false;
        let is_first = core::mem::take(&mut self.progress.is_provisional);
        self.effects.event(if is_first { Event::Connected } else { event });
    }

    /// Completes a handshake whose profile is too weak for the client. The connection begins with the
    /// renegotiation that follows.
    pub(crate) fn complete_in_advance(&mut self) {
        self.progress.negotiated = Some(core::mem::take(self.draft));
        self.progress.is_provisional = true;
    }

    /// Begins a renegotiation. Values that it does not negotiate again keep their previous setting.
    pub(crate) fn begin_again(&mut self) {
        if let Some(previous) = &self.progress.negotiated {
            **self.draft = Negotiated {
                version: previous.version,
                alpn: previous.alpn.clone(),
                server_name: previous.server_name.clone(),
                early_data: previous.early_data,
                profile: previous.profile.clone(),
                ..Negotiated::default()
            };
        }
        self.progress.renegotiating = true;
    }

    /// Records the outcome of offered early data. Unless the server accepted it, the client sends no more.
    pub(crate) fn early_data(&mut self, outcome: EarlyDataOutcome) {
        self.draft.early_data = outcome;
        if outcome != EarlyDataOutcome::Accepted {
            self.progress.early = EarlyOutput::default();
        }
        self.effects.event(Event::EarlyData(outcome));
    }

    /// Sends a message and records its size.
    pub(crate) fn send(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.effects.note_message(true, &message);
        self.emitter.message(message)
    }

    /// Sends a message and adds it to the transcript.
    pub(crate) fn send_in(&mut self, transcript: &mut impl Running, message: Vec<u8>) -> Result<(), Error> {
        transcript.sent(&message, || self.emitter.next_number());
        self.send(message)
    }

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
