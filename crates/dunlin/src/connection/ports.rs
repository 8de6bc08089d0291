//! A client that follows its server to another port ([`crate::PortScheme::Ipc`]) may have to try more than
//! one ServerHello, because anyone can forge one.

use core::net::SocketAddr;

use super::Connection;
use crate::handshake::Step;
use crate::handshake::commit::Commit;
use crate::handshake::event::Event;
use crate::handshake::progress::Progress;
use crate::record::datagram::Datagram;

impl Connection<Datagram> {
    /// The same connection once more, before its ServerHello; `None` if it does not wait for one. The
    /// handshake's changes to stores stay with the copy, so that an attempt that fails undoes nothing.
    pub(crate) fn again(&mut self) -> Option<Self> {
        let Some(Step::Message(state)) = &self.state else { return None };
        let progress = Progress {
            oldest: self.progress.oldest,
            key_update_after: self.progress.key_update_after,
            ..Progress::default()
        };
        Some(Self {
            side: self.side,
            state: Some(Step::Message(state.again()?)),
            transport: self.transport.again()?,
            effects: self.effects.again(),
            draft: self.draft.clone(),
            commit: core::mem::take(&mut self.commit),
            progress,
            open_question: None,
            asked: self.asked,
            error: None,
            now: self.now,
            peer_closed: false,
            ended: false,
        })
    }

    /// Takes the place of another attempt, and uses none of its keys. That attempt may continue in the same
    /// way. It has no open question.
    pub(crate) fn replace(&mut self, previous: &mut Self) {
        self.asked = previous.asked;
        self.transport.replace(&mut previous.transport);
        let news = previous.effects.events.drain(..);
        self.effects.events.extend(news.filter(|event| matches!(event, Event::SessionUsed(_))));
        self.now = previous.now;
    }

    /// Whether the handshake waits for the caller's answer to a question.
    pub(crate) const fn awaits_answer(&self) -> bool {
        self.open_question.is_some()
    }

    /// Whether this side has keys for what it sends.
    pub(crate) const fn is_protected(&self) -> bool {
        self.transport.is_protected()
    }

    /// Undoes what the handshake has changed in stores, because no attempt has succeeded.
    pub(crate) fn abandon(&mut self) {
        self.commit.undo();
        self.commit = Commit::default();
    }

    /// Continues with this address of the server.
    pub(crate) fn follow_server(&mut self, peer: SocketAddr) {
        self.transport.follow_server(peer);
    }
}
