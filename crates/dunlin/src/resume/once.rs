//! Early data in sessions: its terms, and the proof that a ticket comes for the first time.

use crate::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::error::Error;
use crate::time::Now;
use crate::wire::{Reader, Writer};

/// A register of tickets that came with early data (RFC 8446 §8.1, §8.2).
pub trait UseOnce: Send + Sync + fmt::Debug {
    /// Records that early data came with the ticket `id`, and returns whether this was the first time. The
    /// register remembers the ticket through `until_ms`, in milliseconds since 1970, or through a later
    /// `until_ms` of another call.
    ///
    /// A server calls it whenever a client that offers early data has proved the ticket's secret. It also
    /// calls it if it refuses the early data anyway, because another server could accept a copy later.
    ///
    /// Of all calls with one `id`, at most one may return `true`, even if servers that share tickets call it
    /// concurrently. No call may return `true` after one that returned `false`, because a client resends
    /// refused data in another way.
    ///
    /// A register that cannot be sure returns `false`: it is full or unreachable, or may have lost its
    /// content in a restart. If it cannot remember the ticket either, it must return `false` for every ticket
    /// through `until_ms`. The handshake then continues without early data.
    fn first_use(&self, now: Now, id: &[u8; 32], until_ms: u64) -> bool;
}

/// How a server with sealed tickets knows that one comes for the first time. It belongs to the keys of the
/// tickets ([`super::SealTickets::single_use`]), so every server that has the keys has it.
#[derive(Clone, Debug)]
pub enum SingleUse {
    /// A register.
    Register(Arc<dyn UseOnce>),
    /// The connection asks the caller by [`crate::Question::FirstUse`].
    Ask,
}

/// The early data that a session allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EarlyTerms {
    /// The most early data, in bytes of content; never zero.
    pub(crate) max_size: u32,
    /// The application protocol of the connection that made the session. Early data must use the same one.
    pub(crate) alpn: Option<Vec<u8>>,
    /// The short digest of the server's profile, in a server's session. Early data must come under the same
    /// profile.
    pub(crate) profile: Option<[u8; 8]>,
}

impl EarlyTerms {
    pub(super) fn write(&self, w: &mut Writer) {
        w.u32(self.max_size);
        w.vec8(|w| w.put(self.alpn.as_deref().unwrap_or_default()));
        w.vec8(|w| w.put(self.profile.as_ref().map_or(&[][..], |profile| profile)));
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let max_size = r.u32()?;
        // RFC 7301 §3.1: protocol names are not empty.
        let alpn = Some(r.vec8(0)?.to_vec()).filter(|alpn| !alpn.is_empty());
        let profile = match r.vec8(0)? {
            [] => None,
            digest => Some(digest.try_into().map_err(|_| r.bad_length())?),
        };
        Ok(Self { max_size, alpn, profile })
    }
}
