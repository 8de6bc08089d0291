//! A handshake's changes to stores outside its connection. The connection later confirms or undoes these
//! changes.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::effects::Effects;
use super::event::Event;
use crate::resume::{ClientSession, ClientSessions, Kept, SessionKey};

/// Actions on stores for the time when the handshake fails, the peer first responds, or a fatal alert ends
/// the connection.
#[derive(Default)]
pub(crate) struct Commit {
    /// The action if the handshake fails.
    pub(crate) on_failure: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// The sessions that this connection has given to a store.
    pub(crate) kept: Vec<Kept>,
    /// The action at the peer's first record after this side has completed the handshake. Its argument is
    /// false if the peer rejected this side's Finished.
    pub(crate) on_word: Option<Box<dyn FnOnce(bool) + Send + Sync>>,
}

impl Commit {
    /// The peer has accepted this side's Finished (`well`), or rejected it.
    pub(crate) fn heard(&mut self, well: bool) {
        if let Some(on_word) = self.on_word.take() {
            on_word(well);
        }
    }

    /// Gives `session` to the store. If a fatal alert ends this connection, the store removes it.
    pub(crate) fn keep_session(
        &mut self,
        store: &Arc<dyn ClientSessions>,
        key: SessionKey,
        session: ClientSession,
    ) {
        self.kept.push(Kept::Client(Arc::clone(store), key.clone(), Arc::clone(&session.ticket)));
        store.put(key, session);
    }

    /// Removes this connection's sessions from their stores, because a fatal alert ends it.
    /// RFC 5246 §7.2.2: "any connection terminated with a fatal alert MUST NOT be resumed".
    /// RFC 8446 §6: tickets should be discarded, if possible.
    pub(crate) fn forget_sessions(&mut self, effects: &mut Effects) {
        for kept in core::mem::take(&mut self.kept) {
            match kept {
                Kept::Client(store, key, ticket) => store.forget(&key, &ticket),
                // Another connection may have consumed it already.
                Kept::Server(store, name) => drop(store.remove(&name)),
                Kept::Asked(name) => effects.event(Event::SessionUsed(name)),
            }
        }
    }

    /// Undoes what the handshake did in advance, because the connection has failed.
    pub(crate) fn undo(&mut self) {
        if let Some(undo) = self.on_failure.take() {
            undo();
        }
    }
}
