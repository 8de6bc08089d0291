//! A ClientHello on its way through the server's choices, and what the server knows of its client so far.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::crypto::Tls13CipherSuite;
use crate::handshake::negotiate::key_share;
use crate::handshake::negotiate::psk::FoundPsk;
use crate::handshake::retry::Retry;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::resume::{Session, TicketKind};
use crate::schedule::Transcript;

/// A ClientHello on its way through the server's choices.
pub(super) struct Arrival {
    pub(super) config: Arc<ServerConfig>,
    pub(super) hello: ClientHello,
    /// The HelloRetryRequest that this server has sent, if any.
    pub(super) sent: Option<SentRetry>,
    /// The ticket for early data, if it was marked as used.
    pub(super) spent: Option<Spent>,
}

/// A HelloRetryRequest that this server has sent.
pub(super) struct SentRetry {
    pub(super) retry: Retry,
    pub(super) cookie: Option<Vec<u8>>,
    /// The ticket for early data in the first ClientHello, which is marked as used.
    pub(super) spent: Option<Spent>,
    /// Whether the profile was chosen before. Then it also applies to the second ClientHello.
    pub(super) has_profile: bool,
}

/// A ticket that is marked as used, so that no server accepts early data with it again. That holds whether or
/// not this handshake succeeds.
pub(super) struct Spent {
    pub(super) identity: Vec<u8>,
    /// The keys or store of the ticket.
    pub(super) kind: TicketKind,
    pub(super) session: Box<Session>,
    /// Whether the mark is certain to be the first, and came before the caller chose a configuration.
    pub(super) is_first_use: bool,
}

impl Spent {
    /// Whether the PSK with this identity is this ticket, and this was its first use.
    pub(super) fn is_first_use(&self, config: &ServerConfig, identity: &[u8]) -> bool {
        self.is_first_use && self.session(config, identity).is_some()
    }

    /// The session under `identity`, if it is the marked one and belongs to the tickets of `config`. A store
    /// no longer has it.
    pub(super) fn session(&self, config: &ServerConfig, identity: &[u8]) -> Option<&Session> {
        let is_same = self.identity == identity && self.kind.is_same(&config.tickets.kind);
        is_same.then_some(&self.session)
    }
}

/// The server's choice for this client.
pub(super) struct Choice {
    pub(super) config: Arc<ServerConfig>,
    pub(super) suite: &'static Tls13CipherSuite,
    /// The group and the client's share of it. `None` with psk_ke.
    pub(super) share: Option<key_share::Share>,
    pub(super) psk: Option<FoundPsk>,
    /// The ticket for early data, if it was marked as used.
    pub(super) spent: Option<Spent>,
    /// The transcript before this ClientHello.
    pub(super) transcript: Transcript,
}
