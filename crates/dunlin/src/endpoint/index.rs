//! An endpoint's index of its associations: routes, deadlines, the queue of associations with output, and
//! events.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::EndpointEvent;
use super::association::Association;
use super::routes::{Key, Route, Routes};
use super::table::AssociationId;
use crate::time::Instant;

/// The length up to which an empty queue keeps its memory, which a busy endpoint needs again at once.
const KEPT: usize = 128;

pub(super) struct Index {
    pub(super) routes: Routes,
    deadlines: BTreeSet<(Instant, AssociationId)>,
    /// Associations that may have output.
    sending: VecDeque<AssociationId>,
    events: VecDeque<EndpointEvent>,
    /// After which time without an authentic record an association ends.
    pub(super) idle: Option<Duration>,
}

impl Index {
    pub(super) const fn new(idle: Option<Duration>) -> Self {
        Self {
            routes: Routes::new(),
            deadlines: BTreeSet::new(),
            sending: VecDeque::new(),
            events: VecDeque::new(),
            idle,
        }
    }

    pub(super) fn event(&mut self, event: EndpointEvent) {
        self.events.push_back(event);
    }

    pub(super) fn next_event(&mut self) -> Option<EndpointEvent> {
        let event = self.events.pop_front();
        if event.is_none() && self.events.capacity() > KEPT {
            self.events = VecDeque::new();
        }
        event
    }

    /// Raises an event for a change that the caller did not make itself.
    pub(super) fn announce(&mut self, id: AssociationId, association: &mut Association) {
        if !core::mem::replace(&mut association.is_announced, true) {
            self.events.push_back(EndpointEvent::Changed(id));
        }
    }

    /// Puts an association at the end of the queue of those that may have output.
    pub(super) fn send(&mut self, id: AssociationId, association: &mut Association) {
        if !core::mem::replace(&mut association.is_sending, true) {
            self.sending.push_back(id);
        }
    }

    /// Takes the next association that may have output.
    pub(super) fn next_sender(&mut self) -> Option<AssociationId> {
        self.sending.pop_front()
    }

    /// Releases the memory of a queue that was long.
    pub(super) fn shrink(&mut self) {
        if self.sending.capacity() > KEPT {
            self.sending = VecDeque::new();
        }
    }

    /// Takes note of a change of an association.
    pub(super) fn refresh(&mut self, id: AssociationId, association: &mut Association) {
        if association.has_ended() {
            self.forget_routes(id, association);
        } else {
            self.file_address(id, association);
            self.file_ids(id, association);
        }
        match association.ended {
            // Its deadline is filed when its output has left, which may start timers.
            None => self.send(id, association),
            Some(_) => self.file_deadline(id, association),
        }
    }

    /// Removes an association from all indexes.
    pub(super) fn forget(&mut self, id: AssociationId, association: &mut Association) {
        if let Some(deadline) = association.deadline.take() {
            self.deadlines.remove(&(deadline, id));
        }
        self.forget_routes(id, association);
    }

    fn forget_routes(&mut self, id: AssociationId, association: &mut Association) {
        association.filed_at().for_each(|address| self.routes.remove(address, id));
        association.old_port = None;
        for key in core::mem::take(&mut association.keys) {
            self.routes.remove_key(key, id);
        }
    }

    /// Files an association under the peer's present address. If another association has this address, only
    /// its connection IDs lead to the one that has moved.
    ///
    /// An association that moves to another port of its server also keeps its previous address for a time.
    fn file_address(&mut self, id: AssociationId, association: &mut Association) {
        let address = association.connection.peer_address();
        let old_port = association.connection.old_port();
        if address == association.address && old_port == association.old_port {
            return;
        }
        association.filed_at().for_each(|address| self.routes.remove(address, id));
        (association.address, association.old_port) = (address, old_port);
        for address in association.filed_at() {
            let route = self.routes.get(address);
            if route.live.is_none() {
                self.routes.set(address, Route { live: Some(id), ..route });
            }
        }
    }

    /// Files an association under the connection IDs that it has given.
    fn file_ids(&mut self, id: AssociationId, association: &mut Association) {
        let issued = association.connection.issued_ids();
        if association.keys_issued == issued {
            return;
        }
        association.keys_issued = issued;
        let mut keys: Vec<_> = association.connection.connection_ids().filter_map(Key::new).collect();
        keys.shrink_to_fit();
        for key in core::mem::replace(&mut association.keys, keys) {
            if !association.keys.contains(&key) {
                self.routes.remove_key(key, id);
            }
        }
        association.keys.iter().for_each(|key| self.routes.insert_key(*key, id));
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes the associations whose deadline has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<AssociationId> {
        let mut due = Vec::new();
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now) {
            due.extend(self.deadlines.pop_first().map(|(_, id)| id));
        }
        due
    }

    /// When an association ends unless its peer sends something authentic.
    pub(super) fn idle_since(&self, association: &Association) -> Option<Instant> {
        let connection = &association.connection;
        let is_connected = connection.negotiated().is_some() && !association.has_ended();
        self.idle.filter(|_| is_connected).map(|idle| connection.idle_at(idle))
    }

    /// Files an association under its present deadline.
    pub(super) fn file_deadline(&mut self, id: AssociationId, association: &mut Association) {
        let is_live = association.ended.is_none();
        let connection = &association.connection;
        let silence =
            association.following.as_ref().and_then(|following| following.deadline(connection.heard_at()));
        let exact = [connection.poll_timeout(), silence].into_iter().flatten().min().filter(|_| is_live);
        let lazy = [connection.keys_expiry(), connection.rest_at()].map(|at| at.filter(|_| is_live));
        let lazy = lazy.into_iter().chain([self.idle_since(association)]).flatten().min();
        let deadline = [exact, lazy].into_iter().flatten().min();
        // Every record delays these deadlines. The filed one is good enough until it comes.
        let was_lazy = core::mem::replace(&mut association.is_lazy, exact.is_none());
        let is_early =
            was_lazy && exact.is_none() && association.deadline.is_some() && association.deadline <= lazy;
        if is_early || deadline == association.deadline {
            return;
        }
        if let Some(previous) = core::mem::replace(&mut association.deadline, deadline) {
            self.deadlines.remove(&(previous, id));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
    }
}
