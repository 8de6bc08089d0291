//! Everything that a handshake hands to its caller besides messages and keys: events, questions, message
//! sizes, secrets to log.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pki_types::CertificateDer;

use super::event::{Event, MessageSize};
use super::question::Question;
use crate::error::{Error, PeerMisbehaved};
use crate::keylog::KeyLog;
use crate::message;
use crate::wire::{AlertDescription, CertificateType, Field, HandshakeType};

/// The most KeyUpdates, tickets or renegotiations in a row, without data between them, before they count as
/// an attack.
const MAX_IDLE_MESSAGES: u32 = 32;

/// The most warnings in a row. A peer that gives up sends user_canceled once (RFC 8446 §6.1).
const MAX_WARNINGS: u32 = 4;

/// The most message sizes in the list. No handshake has more messages; later ones are not recorded.
const MAX_NOTED: usize = 32;

/// The output of a handshake besides its messages and keys.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) events: VecDeque<Event>,
    /// Boxed, since an idle connection has none.
    pub(crate) question: Option<Box<Question>>,
    pub(crate) messages: Vec<MessageSize>,
    /// A warning alert that the driver must send.
    pub(crate) warning: Option<AlertDescription>,
    pub(crate) key_log: Option<Arc<dyn KeyLog>>,
    pub(crate) client_random: [u8; 32],
    idle: u32,
    warnings: u32,
}

impl Effects {
    /// The effects of the same handshake, for another answer of the peer: without the events and questions of
    /// this one.
    #[cfg(feature = "association-ports")]
    pub(crate) fn again(&self) -> Self {
        Self {
            messages: self.messages.clone(),
            key_log: self.key_log.clone(),
            client_random: self.client_random,
            ..Self::default()
        }
    }

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

    /// Reports the certificate of a peer that this side refuses.
    pub(crate) fn refuse(&mut self, chain: &[CertificateDer<'static>], typ: CertificateType) {
        if let (CertificateType::X509, Some(leaf)) = (typ, chain.first()) {
            self.event(Event::PeerRefused(leaf.clone()));
        }
    }

    /// Queues an event. An event that the peer can cause at will is queued only once until the caller takes
    /// it.
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
        if matches!(event, Event::PeerMoved(_)) {
            // Only the latest address counts.
            self.events.retain(|waiting| !matches!(waiting, Event::PeerMoved(_)));
        }
        if let Event::PathChanged(change) = &event
            && let Some(Event::PathChanged(waiting)) =
                self.events.iter_mut().find(|waiting| matches!(waiting, Event::PathChanged(_)))
        {
            // The caller learns of the change from where it last looked.
            *waiting = waiting.followed_by(*change);
            return;
        }
        if !self.events.iter().any(is_again) {
            self.events.push_back(event);
        }
    }

    pub(crate) fn log_secret(&self, label: &str, secret: &[u8]) {
        if let Some(log) = &self.key_log {
            log.log(label, &self.client_random, secret);
        }
    }

    /// Counts a message that costs this side more work than the peer. Application data resets the count.
    pub(crate) fn count_idle(&mut self, what: Field) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE_MESSAGES { Err(PeerMisbehaved::Flood(what).into()) } else { Ok(()) }
    }

    /// Counts an alert that does not end the connection.
    pub(crate) fn count_warning(&mut self) -> Result<(), Error> {
        self.warnings += 1;
        if self.warnings > MAX_WARNINGS { Err(PeerMisbehaved::Flood(Field::Warnings).into()) } else { Ok(()) }
    }

    /// Resets both counts, since the peer has sent application data.
    pub(crate) const fn reset_idle(&mut self) {
        self.idle = 0;
        self.warnings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that alternates KeyUpdates, tickets and renegotiations cannot fill the queue of a caller that
    /// only reads.
    #[test]
    fn queues_each_event_that_a_peer_can_repeat_only_once() {
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
