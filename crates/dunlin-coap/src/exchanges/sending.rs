//! Messages that wait for the peer: at most NSTART are on their way (RFC 7252 §4.2 and §4.7).

use std::collections::VecDeque;
use std::time::Duration;

use dunlin::Instant;

use super::{ExchangeId, RequestId};
use crate::error::CoapError;

/// The most messages that wait until others are acknowledged.
const MAX_WAITING: usize = 64;

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Request(ExchangeId),
    Response,
    Notification(RequestId),
}

pub(super) struct Outgoing {
    pub(super) id: u16,
    pub(super) bytes: Vec<u8>,
    pub(super) purpose: Purpose,
    pub(super) is_confirmable: bool,
    /// The time until the next retransmission.
    pub(super) timeout: Duration,
    retransmissions: u32,
    deadline: Instant,
}

impl Outgoing {
    pub(super) const fn new(
        id: u16,
        bytes: Vec<u8>,
        purpose: Purpose,
        is_confirmable: bool,
        timeout: Duration,
    ) -> Self {
        Self { id, bytes, purpose, is_confirmable, timeout, retransmissions: 0, deadline: Instant(0) }
    }
}

#[derive(Default)]
pub(super) struct Sending {
    in_flight: Vec<Outgoing>,
    waiting: VecDeque<Outgoing>,
}

impl Sending {
    /// Queues a message.
    pub(super) fn push(&mut self, message: Outgoing) -> Result<(), CoapError> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(CoapError::Busy);
        }
        self.waiting.push_back(message);
        Ok(())
    }

    /// Sends queued messages, as far as NSTART allows.
    pub(super) fn start(&mut self, now: Instant, nstart: usize, output: &mut VecDeque<Vec<u8>>) {
        while self.in_flight.len() < nstart
            && let Some(mut message) = self.waiting.pop_front()
        {
            message.deadline = now + message.timeout;
            output.push_back(message.bytes.clone());
            self.in_flight.push(message);
        }
    }

    /// Takes the confirmable message with this ID, which the peer has acknowledged or rejected.
    pub(super) fn take(&mut self, id: u16) -> Option<Outgoing> {
        let at = self.in_flight.iter().position(|message| message.id == id)?;
        Some(self.in_flight.swap_remove(at))
    }

    /// The purpose of the message with this ID.
    pub(super) fn purpose(&self, id: u16) -> Option<Purpose> {
        self.in_flight.iter().find(|message| message.id == id).map(|message| message.purpose)
    }

    /// Forgets a message, sent or not.
    pub(super) fn forget(&mut self, purpose: Purpose) {
        self.in_flight.retain(|message| message.purpose != purpose);
        self.waiting.retain(|message| message.purpose != purpose);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.in_flight.iter().map(|message| message.deadline).min()
    }

    /// Retransmits what is due. Returns a message that has had all its retransmissions.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        max_retransmit: u32,
        output: &mut VecDeque<Vec<u8>>,
    ) -> Option<Outgoing> {
        for at in 0..self.in_flight.len() {
            let Some(message) = self.in_flight.get_mut(at).filter(|message| message.deadline <= now) else {
                continue;
            };
            if !message.is_confirmable || message.retransmissions >= max_retransmit {
                return Some(self.in_flight.swap_remove(at));
            }
            // RFC 7252 §4.2: each retransmission doubles the timeout.
            message.retransmissions += 1;
            message.timeout *= 2;
            message.deadline = now + message.timeout;
            output.push_back(message.bytes.clone());
        }
        None
    }
}
