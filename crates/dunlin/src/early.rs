//! Early data (0-RTT, RFC 8446 §2.3): who wants it, how much of it there may be, and what became of it.
//!
//! Early data is not forward secret and, but for what a server does against it, can be replayed. So it is off until
//! both sides turn it on for an application protocol, only sessions carry it, and a server takes it only with a ticket
//! that provably comes for the first time ([`SingleUse`]). There is none over datagrams.

use crate::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::resume::UseOnce;

/// The most early data that a server can allow, in bytes. What is refused must be passed over unread, and a server
/// passes over 16 KiB, padding and all.
pub const MAX_EARLY_DATA: u32 = 14 * 1024;

/// How far the age of a ticket as the client tells it may be from the one that the server knows. RFC 8446 §8.3 thinks of
/// ten seconds where this is all that stops replays. Here a ticket is used once, so this only says how long that has to
/// be remembered, and how long a first flight can be held back; a minute bears with coarse clocks, and other servers
/// take the same.
pub const EARLY_DATA_WINDOW: Duration = Duration::from_secs(60);

/// The application protocols that early data may speak: those that bear it when a request comes late, is lost, or (of
/// servers that protect themselves less than ours) comes twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlyDataProtocols {
    named: Vec<Vec<u8>>,
    unnamed: bool,
}

impl EarlyDataProtocols {
    /// These, as ALPN calls them.
    pub const fn named(protocols: Vec<Vec<u8>>) -> Self {
        Self { named: protocols, unnamed: false }
    }

    /// The one of connections for which ALPN chose none.
    pub const fn unnamed() -> Self {
        Self { named: Vec::new(), unnamed: true }
    }

    /// Also the one of connections for which ALPN chose none.
    #[must_use]
    pub fn and_unnamed(mut self) -> Self {
        self.unnamed = true;
        self
    }

    pub(crate) fn allow(&self, alpn: Option<&Vec<u8>>) -> bool {
        alpn.map_or(self.unnamed, |protocol| self.named.contains(protocol))
    }
}

/// What tells a server that a ticket comes for the first time. Without it, early data is refused, and the handshake goes on
/// without. All servers that open each other's tickets need the same, those without early data, too
/// ([`crate::ServerConfig::with_single_use`]).
#[derive(Clone, Debug)]
pub enum SingleUse {
    /// The store of the sessions, which resumes each once ([`crate::resume::Tickets::stateful`]).
    Sessions,
    /// A register that all servers share that open each other's tickets.
    Register(Arc<dyn UseOnce>),
    /// Elsewhere: the connection asks [`crate::Question::FirstUse`].
    Ask,
}

/// What a server does with early data.
#[derive(Clone, Debug)]
pub(crate) struct EarlyDataServer {
    pub(crate) protocols: EarlyDataProtocols,
    pub(crate) max_size: u32,
}

/// What became of early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyDataOutcome {
    /// The client did not offer any; why, as far as this side knows.
    NotOffered(NoEarlyData),
    /// The server took it.
    Accepted,
    /// The server did not take it. What the client has sent is lost, and the client decides whether to send it again.
    Rejected(NoEarlyData),
}

impl Default for EarlyDataOutcome {
    fn default() -> Self {
        Self::NotOffered(NoEarlyData::Disabled)
    }
}

/// Why there is no early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoEarlyData {
    /// It is off here, for this transport or as a whole.
    Disabled,
    /// The client has no session to offer.
    NoSession,
    /// No session was resumed.
    NotResumed,
    /// The session was made without early data.
    NotForSession,
    /// The application protocol is not that of the session, or not one for early data.
    ApplicationProtocol,
    /// The cipher suite is not that of the session.
    CipherSuite,
    /// A HelloRetryRequest was needed.
    Retry,
    /// The session that was resumed is not the one that the client offered first.
    NotFirst,
    /// The ticket is older or younger than the client says: the first flight may have been held back.
    TicketAge,
    /// The ticket was used before, or nobody can say that it was not.
    NotSingleUse,
    /// The peer did not want to, and does not say why.
    Declined,
}

impl core::fmt::Display for NoEarlyData {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Disabled => "it is not turned on",
            Self::NoSession => "there is no session to resume",
            Self::NotResumed => "the session was not resumed",
            Self::NotForSession => "the session does not allow it",
            Self::ApplicationProtocol => {
                "the application protocol is not the session's, or not one for early data"
            }
            Self::CipherSuite => "the cipher suite is not the session's",
            Self::Retry => "the server asked for another ClientHello",
            Self::NotFirst => "the session is not the first that was offered",
            Self::TicketAge => "the ticket's age is not what the client says",
            Self::NotSingleUse => "the ticket was used before, or nobody knows",
            Self::Declined => "the peer declined",
        })
    }
}
