//! The one door through which a handshake acts on its caller: events, questions, the sizes of messages, secrets to log.

use crate::sync::Arc;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::event::{Event, MessageSize};
use super::question::Question;
use crate::error::{Error, PeerMisbehaved};
use crate::keylog::KeyLog;
use crate::message;
use crate::wire::{AlertDescription, HandshakeType, What};

/// KeyUpdates and tickets in a row, without data between them, before they count as an attack.
const MAX_IDLE_MESSAGES: u32 = 32;

/// user_canceled in a row: a peer that gives up says so once (RFC 8446 §6.1).
const MAX_WARNINGS: u32 = 4;

/// A list of so many messages is enough for every handshake; what comes after is traffic.
const MAX_NOTED: usize = 32;

/// What a handshake gives out, beside its messages and keys.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) events: VecDeque<Event>,
    pub(crate) question: Option<Question>,
    pub(crate) messages: Vec<MessageSize>,
    /// A warning that is to be sent.
    pub(crate) warning: Option<AlertDescription>,
    pub(crate) key_log: Option<Arc<dyn KeyLog>>,
    pub(crate) client_random: [u8; 32],
    idle: u32,
    warnings: u32,
}

impl Effects {
    pub(crate) fn note_message(&mut self, sent: bool, message: &[u8]) {
        if self.messages.len() < MAX_NOTED
            && let Some(typ) = message.first()
        {
            let typ = HandshakeType(*typ);
            let is_retry = typ == HandshakeType::SERVER_HELLO
                && message.get(6..38) == Some(&message::server_hello::RETRY_RANDOM);
            self.messages.push(MessageSize { sent, typ, is_retry, len: message.len() });
        }
    }

    /// Reports an event. Those that a peer can cause at will are reported once until they are taken.
    pub(crate) fn event(&mut self, event: Event) {
        let is_again = |waiting: &Event| {
            matches!(
                (waiting, &event),
                (Event::PeerUpdatedKeys, Event::PeerUpdatedKeys)
                    | (Event::TicketReceived, Event::TicketReceived)
                    | (Event::RenegotiationRefused, Event::RenegotiationRefused)
                    | (Event::Renegotiated, Event::Renegotiated)
            )
        };
        if !self.events.iter().any(is_again) {
            self.events.push_back(event);
        }
    }

    pub(crate) fn log_secret(&self, label: &str, secret: &[u8]) {
        if let Some(log) = &self.key_log {
            log.log(label, &self.client_random, secret);
        }
    }

    /// A message came that costs us work and the peer none: they are counted until data comes between them.
    pub(crate) fn count_idle(&mut self, what: What) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE_MESSAGES { Err(PeerMisbehaved::Flood(what).into()) } else { Ok(()) }
    }

    /// An alert came that ends nothing.
    pub(crate) fn count_warning(&mut self) -> Result<(), Error> {
        self.warnings += 1;
        if self.warnings > MAX_WARNINGS { Err(PeerMisbehaved::Flood(What::Warnings).into()) } else { Ok(()) }
    }

    /// Data came.
    pub(crate) const fn reset_idle(&mut self) {
        self.idle = 0;
        self.warnings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer whose KeyUpdates, or tickets, or handshakes within the connection take turns does not fill the queue of a caller who only reads.
    #[test]
    fn what_a_peer_can_cause_at_will_waits_once() {
        let mut effects = Effects::default();
        for _ in 0..3 {
            effects.event(Event::PeerUpdatedKeys);
            effects.event(Event::TicketReceived);
            effects.event(Event::Renegotiated);
        }
        assert_eq!(effects.events.len(), 3);
        effects.events.pop_front();
        effects.event(Event::PeerUpdatedKeys);
        assert!(matches!(
            effects.events.make_contiguous(),
            [Event::TicketReceived, Event::Renegotiated, Event::PeerUpdatedKeys]
        ));
    }
}
