//! How far a connection is: what the driver looks at between the steps of a handshake.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::negotiated::Negotiated;
use crate::auth::PeerIdentity;
use crate::error::{Error, Misuse};
use crate::protocol::Protocol;
use crate::schedule::Export;
use crate::schedule::tls12::VerifyData;
use crate::schedule::tls13::Exporter;

/// What may be sent before the handshake is complete.
#[derive(Default)]
pub(crate) enum Sending {
    /// Nothing.
    #[default]
    Nothing,
    /// A client's early data, so many bytes more.
    EarlyData(u32),
    /// A server's answer to early data (RFC 8446 §2, figure 4: after its Finished).
    Answer,
}

impl Sending {
    /// How much of `data` may go now. A key that is used up can be replaced only after the handshake (RFC 8446 §4.6.3, §5.5).
    pub(crate) fn part<'a>(&self, data: &'a [u8], key_is_used_up: bool) -> Result<&'a [u8], Error> {
        match self {
            Self::EarlyData(_) if key_is_used_up => Ok(&[]),
            Self::EarlyData(left) => Ok(data.get(..*left as usize).unwrap_or(data)),
            Self::Answer if !key_is_used_up => Ok(data),
            Self::Answer | Self::Nothing => Err(Misuse::HandshakeNotComplete.into()),
        }
    }
}

/// Whether there can be another handshake within the connection (RFC 5746).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Renegotiation {
    /// Not in this version, not with this peer, or not now because one is under way.
    #[default]
    Impossible,
    /// Either side may begin one.
    Possible,
    /// This side has asked for one, and the peer has not answered yet.
    Asked,
}

/// What there is as long as early data is under way.
#[derive(Default)]
pub(crate) struct EarlyOutput {
    pub(crate) sending: Sending,
    /// In a box, so that an idle connection keeps no room for it.
    pub(crate) session: Option<Box<EarlySession>>,
}

/// The session behind early data.
pub(crate) struct EarlySession {
    pub(crate) exporter: Exporter,
    /// The application protocol and the peer, as the session has them.
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) peer: Option<PeerIdentity>,
}

/// How far a connection is.
#[derive(Default)]
pub(crate) struct Progress {
    /// What the latest complete handshake has agreed on; `None` before the first one is complete.
    pub(crate) negotiated: Option<Box<Negotiated>>,
    /// Another handshake within the connection is under way: until it is complete, what the previous one agreed on holds.
    pub(crate) renegotiating: bool,
    pub(crate) renegotiation: Renegotiation,
    /// The client's data waits for the end of another handshake within the connection.
    pub(crate) data_waits: bool,
    /// The oldest protocol that may still be agreed, or the one that was.
    pub(crate) oldest: Protocol,
    pub(crate) exporter: Option<Box<dyn Export>>,
    /// The first Finished of the latest handshake of TLS 1.2.
    pub(crate) first_finished: Option<VerifyData>,
    pub(crate) early: EarlyOutput,
    pub(crate) key_update_after: Option<u64>,
    /// close_notify or a fatal alert was sent: nothing may follow it (RFC 8446 §6.1).
    pub(crate) send_closed: bool,
}

impl Progress {
    /// Whether a handshake is complete: data may be sent.
    pub(crate) const fn is_connected(&self) -> bool {
        self.negotiated.is_some()
    }

    /// Whether no handshake is under way.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_connected() && !self.renegotiating
    }

    /// In a renegotiation: what the previous handshake has agreed on.
    pub(crate) fn previous(&self) -> Option<&Negotiated> {
        self.negotiated.as_deref().filter(|_| self.renegotiating)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8446 §5.5: the early key cannot be replaced, so what it may not protect any more waits for the next.
    #[test]
    fn a_key_that_is_used_up_sends_no_early_data() {
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
