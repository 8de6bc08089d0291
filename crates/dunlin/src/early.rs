//! Early data (0-RTT, RFC 8446 §2.3): its settings, limits and outcome.
//!
//! Early data is not forward secret, and an attacker can replay it unless the server prevents that. It is
//! therefore off until both sides enable it for an application protocol, and only session tickets allow it. A
//! server accepts it only if it can prove that the ticket comes for the first time ([`crate::SingleUse`]).
//! DTLS connections have no early data.

use alloc::vec::Vec;
use core::time::Duration;

/// The most early data that a server can allow, in bytes. A server that refuses early data must skip it, and
/// it skips at most 16 KiB, including padding.
pub const MAX_EARLY_DATA: u32 = 14 * 1024;

/// The largest difference between the ticket's age as the client reports it and as the server knows it. RFC
/// 8446 §8.3 suggests ten seconds for servers without another protection against replay. Here each ticket
/// works once. The window only decides how long a register remembers tickets, and how long an attacker can
/// delay a first flight. A minute tolerates coarse clocks; other servers use the same value.
pub const EARLY_DATA_WINDOW: Duration = Duration::from_secs(60);

/// The application protocols that early data may use. They must tolerate requests that arrive late or get
/// lost, and also replayed requests if other servers protect themselves less than this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlyDataProtocols {
    named: Vec<Vec<u8>>,
    unnamed: bool,
}

impl EarlyDataProtocols {
    /// The protocols with these ALPN names.
    pub const fn named(protocols: Vec<Vec<u8>>) -> Self {
        Self { named: protocols, unnamed: false }
    }

    /// The protocol of connections without ALPN.
    pub const fn unnamed() -> Self {
        Self { named: Vec::new(), unnamed: true }
    }

    /// Adds the protocol of connections without ALPN.
    #[must_use]
    pub fn and_unnamed(mut self) -> Self {
        self.unnamed = true;
        self
    }

    pub(crate) fn allow(&self, alpn: Option<&Vec<u8>>) -> bool {
        alpn.map_or(self.unnamed, |protocol| self.named.contains(protocol))
    }
}

/// A server's settings for early data.
#[derive(Clone, Debug)]
pub(crate) struct EarlyDataServer {
    pub(crate) protocols: EarlyDataProtocols,
    pub(crate) max_size: u32,
}

/// The outcome of early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyDataOutcome {
    /// The client did not offer early data. Contains the reason, as far as this side knows it.
    NotOffered(NoEarlyData),
    /// The server accepted it.
    Accepted,
    /// The server refused it. The early data is lost; the client decides whether to send it again.
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
    /// This side has disabled it, or the transport does not support it.
    Disabled,
    /// The client has no session for this server.
    NoSession,
    /// The server did not resume a session.
    NotResumed,
    /// The session does not allow early data.
    NotForSession,
    /// The application protocol is not the session's, or early data may not use it.
    ApplicationProtocol,
    /// The cipher suite is not the session's.
    CipherSuite,
    /// The server's profile is not the session's.
    Profile,
    /// The server needed a HelloRetryRequest.
    Retry,
    /// The server resumed another session than the first one that the client offered.
    NotFirst,
    /// The ticket is older or younger than the client says: an attacker may have delayed the first flight.
    TicketAge,
    /// The ticket was used before, or the server cannot prove that it was not.
    NotSingleUse,
    /// The peer declined without a reason.
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
            Self::Profile => "the server's profile is not the session's",
            Self::Retry => "the server asked for another ClientHello",
            Self::NotFirst => "the session is not the first that was offered",
            Self::TicketAge => "the ticket's age is not what the client says",
            Self::NotSingleUse => "the ticket was used before, or its first use is unknown",
            Self::Declined => "the peer declined",
        })
    }
}
