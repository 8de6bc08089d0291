//! The progress of a connection, which the driver reads between the steps of a handshake.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::negotiated::Negotiated;
use crate::auth::PeerIdentity;
use crate::error::{Error, Misuse, PeerIncompatible, PeerMisbehaved};
use crate::protocol::Protocol;
use crate::schedule::Export;
use crate::schedule::tls12::VerifyData;
use crate::schedule::tls13::Exporter;
use crate::wire::{ContentType, Field};

/// The data that the application may send before the handshake is complete.
#[derive(Default)]
pub(crate) enum Sending {
    /// Nothing.
    #[default]
    Nothing,
    /// A client's early data, with the number of bytes that it may still send.
    EarlyData(u32),
    /// A server's data after its Finished (RFC 8446 §2, figure 4).
    Answer,
}

impl Sending {
    /// The part of `data` that may be sent now. A key that has reached its usage limit can be replaced only
    /// after the handshake (RFC 8446 §4.6.3, §5.5).
    pub(crate) fn part<'a>(&self, data: &'a [u8], key_is_used_up: bool) -> Result<&'a [u8], Error> {
        match self {
            Self::EarlyData(_) if key_is_used_up => Ok(&[]),
            Self::EarlyData(left) => Ok(data.get(..*left as usize).unwrap_or(data)),
            Self::Answer if !key_is_used_up => Ok(data),
            Self::Answer | Self::Nothing => Err(Misuse::HandshakeNotComplete.into()),
        }
    }
}

/// Whether the connection can be renegotiated (RFC 5746).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Renegotiation {
    /// The version or the peer does not support it, or a renegotiation is already in progress.
    #[default]
    Impossible,
    /// Either side may begin one.
    Possible,
    /// This side has requested one so often, and the peer has not answered yet. A client may ignore a request
    /// (RFC 5246 §7.4.1.1), so a server may repeat it, and then gets as many refusals.
    Asked(u8),
}

impl Renegotiation {
    /// After this side has requested one.
    pub(crate) const fn asked(self) -> Self {
        match self {
            Self::Asked(requests) => Self::Asked(requests.saturating_add(1)),
            Self::Impossible | Self::Possible => Self::Asked(1),
        }
    }

    /// After the peer has refused one.
    pub(crate) const fn refused(self) -> Self {
        match self {
            Self::Asked(requests @ 2..) => Self::Asked(requests - 1),
            _ => Self::Possible,
        }
    }
}

/// State that exists only while early data is in progress.
#[derive(Default)]
pub(crate) struct EarlyOutput {
    pub(crate) sending: Sending,
    /// Boxed, so that an idle connection reserves no memory for it.
    pub(crate) session: Option<Box<EarlySession>>,
}

/// The session to which early data belongs.
pub(crate) struct EarlySession {
    pub(crate) exporter: Exporter,
    /// The application protocol and the peer's identity from the session.
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) peer: Option<PeerIdentity>,
}

/// The progress of a connection.
#[derive(Default)]
pub(crate) struct Progress {
    /// The result of the latest complete handshake. `None` until the first one is complete.
    pub(crate) negotiated: Option<Box<Negotiated>>,
    /// Whether the only complete handshake used a profile that is too weak for the client, so that the
    /// connection begins with a renegotiation ([`crate::ServerProfiles`]).
    pub(crate) is_provisional: bool,
    /// Whether a renegotiation is in progress. Until it is complete, the previous result stays in force.
    pub(crate) renegotiating: bool,
    pub(crate) renegotiation: Renegotiation,
    /// Whether the client holds its data back until the renegotiation is complete.
    pub(crate) data_waits: bool,
    /// The oldest protocol that can still be negotiated, or the negotiated one.
    pub(crate) oldest: Protocol,
    pub(crate) exporter: Option<Box<dyn Export>>,
    /// The first Finished of the latest TLS 1.2 handshake.
    pub(crate) first_finished: Option<VerifyData>,
    pub(crate) early: EarlyOutput,
    pub(crate) key_update_after: Option<u64>,
    /// Whether the connection ends when its handshake is complete ([`crate::ServerConfig::handshake_only`]).
    pub(crate) handshake_only: bool,
    /// Whether this side has sent close_notify or a fatal alert. Nothing may follow it (RFC 8446 §6.1).
    pub(crate) send_closed: bool,
}

impl Progress {
    /// Whether a handshake is complete, so that the application may send data.
    pub(crate) const fn is_connected(&self) -> bool {
        self.negotiated.is_some() && !self.is_provisional
    }

    /// Whether a handshake is complete and no renegotiation is in progress.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_connected() && !self.renegotiating
    }

    /// The error for data that comes before the renegotiation with which the connection begins.
    pub(crate) fn explain(&self, error: Error) -> Error {
        const DATA: Field = Field::Record(ContentType::APPLICATION_DATA);
        match error {
            Error::PeerMisbehaved(PeerMisbehaved::UnexpectedRecord(DATA)) if self.is_provisional => {
                PeerIncompatible::DataBeforeRenegotiation.into()
            }
            error => error,
        }
    }

    /// During a renegotiation, the result of the previous handshake.
    pub(crate) fn previous(&self) -> Option<&Negotiated> {
        if self.renegotiating { self.negotiated.as_deref() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8446 §5.5: the early key cannot be replaced, so data beyond its usage limit waits for the next
    /// key.
    #[test]
    fn sends_no_early_data_after_the_usage_limit_of_the_key() {
        let full = Err(Misuse::HandshakeNotComplete.into());
        for (sending, before, at_the_limit) in [
            (Sending::EarlyData(2), Ok(&b"ab"[..]), Ok(&b""[..])),
            (Sending::EarlyData(u32::MAX), Ok(b"abc"), Ok(b"")),
            (Sending::Answer, Ok(b"abc"), full.clone()),
            (Sending::Nothing, full.clone(), full),
        ] {
            assert_eq!(sending.part(b"abc", false), before);
            assert_eq!(sending.part(b"abc", true), at_the_limit);
        }
    }
}
