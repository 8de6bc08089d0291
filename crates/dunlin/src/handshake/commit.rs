//! What a handshake leaves behind outside of its connection, and what becomes of it later: confirmed, or undone.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::effects::Effects;
use super::event::Event;
use crate::resume::{ClientSession, ClientSessions, Kept, SessionKey};

/// What is to be done in stores when the handshake fails, when the peer is heard, or when a fatal alert ends the connection.
#[derive(Default)]
pub(crate) struct Commit {
    /// What is to be done if the handshake fails.
    pub(crate) on_failure: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// The sessions of this connection that can be resumed.
    pub(crate) kept: Vec<Kept>,
    /// What is to be done at the peer's first word after this side has completed the handshake: whether all is well.
    pub(crate) on_word: Option<Box<dyn FnOnce(bool) + Send + Sync>>,
}

impl Commit {
    /// The peer has taken this side's Finished, or has not: `well` says which.
    pub(crate) fn heard(&mut self, well: bool) {
        if let Some(on_word) = self.on_word.take() {
            on_word(well);
        }
    }

    /// Gives `session` to the store, which removes it again if a fatal alert ends this connection.
    pub(crate) fn keep_session(
        &mut self,
        store: &Arc<dyn ClientSessions>,
        key: SessionKey,
        session: ClientSession,
    ) {
        self.kept.push(Kept::Client(Arc::clone(store), key.clone(), Arc::clone(&session.ticket)));
        store.put(key, session);
    }

    /// A fatal alert ends the connection. RFC 5246 §7.2.2: "any connection terminated with a fatal alert MUST NOT be resumed";
    /// RFC 8446 §6: tickets should be discarded, if possible.
    pub(crate) fn forget_sessions(&mut self, effects: &mut Effects) {
        for kept in core::mem::take(&mut self.kept) {
            match kept {
                Kept::Client(store, key, ticket) => store.forget(&key, &ticket),
                // Another connection may have used it up.
                Kept::Server(store, name) => drop(store.remove(&name)),
                Kept::Asked(name) => effects.event(Event::SessionUsed(name)),
            }
        }
    }

    /// The connection has failed: undoes what the handshake had done in advance.
    pub(crate) fn undo(&mut self) {
        if let Some(undo) = self.on_failure.take() {
            undo();
        }
    }
}
