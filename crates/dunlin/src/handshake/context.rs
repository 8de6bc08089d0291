//! The context of a state: its way to act on the outside.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::commit::Commit;
use super::effects::Effects;
use super::event::Event;
use super::negotiated::Negotiated;
use super::progress::{EarlyOutput, Progress};
use crate::early::EarlyDataOutcome;
use crate::error::Error;
use crate::protocol::Protocol;
use crate::schedule::Running;
use crate::time::Now;
use crate::transport::Emitter;

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
}
