//! The peer's latest messages, so that this side handles each once (RFC 7252 §4.5).

use std::collections::VecDeque;

use dunlin::Instant;

use super::RequestId;

pub(super) struct Entry {
    id: u16,
    until: Instant,
    /// The reply to a duplicate.
    pub(super) reply: Option<Vec<u8>>,
    /// The request in the message.
    pub(super) request: Option<RequestId>,
}

#[derive(Default)]
pub(super) struct Seen(VecDeque<Entry>);

impl Seen {
    /// The message with this ID, unless its lifetime is over.
    pub(super) fn find(&mut self, now: Instant, id: u16) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.id == id && entry.until > now)
    }

    /// Adds a message. Forgets expired ones, and the oldest ones beyond the limit.
    pub(super) fn add(&mut self, now: Instant, limit: usize, id: u16, until: Instant) {
        self.0.retain(|entry| entry.until > now);
        while self.0.len() >= limit {
            self.0.pop_front();
        }
        self.0.push_back(Entry { id, until, reply: None, request: None });
    }
}
