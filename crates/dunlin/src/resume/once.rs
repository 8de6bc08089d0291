//! What early data needs on top of resumption: its terms in a session, and proof that a ticket comes for the first time.

use alloc::vec::Vec;
use core::fmt;

use crate::error::Error;
use crate::time::Now;
use crate::wire::{Reader, Writer};

/// Remembers which tickets early data came with (RFC 8446 §8.1, §8.2).
pub trait UseOnce: Send + Sync + fmt::Debug {
    /// Whether early data comes with the ticket called `id` for the first time; from then on it is known until the last
    /// moment of `until_ms`, in milliseconds since 1970, or until a later one that is said with it later.
    ///
    /// A server asks whenever a client that offers early data has proven that it has the ticket's secret, also where the server
    /// refuses the early data in any case: another server could accept a copy of it later.
    ///
    /// Of all calls with one `id`, by all servers that take each other's tickets and at the same time too, at most one
    /// may give `true`, and none after one that gave `false`: who hears of a refusal sends again by other means. A register
    /// that cannot be sure gives `false`: it is full, cannot be reached, or may have forgotten what it knew before it was
    /// started. If it could not remember the ticket either, it gives `false` to all until `until_ms` is over. The handshake
    /// then goes on without early data.
    fn first_use(&self, now: Now, id: &[u8; 32], until_ms: u64) -> bool;
}

/// The early data that a session allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EarlyTerms {
    /// In bytes of content, not zero.
    pub(crate) max_size: u32,
    /// The protocol of the connection that made the session: early data speaks no other.
    pub(crate) alpn: Option<Vec<u8>>,
}

impl EarlyTerms {
    pub(super) fn write(&self, w: &mut Writer) {
        w.u32(self.max_size);
        w.vec8(|w| w.put(self.alpn.as_deref().unwrap_or_default()));
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let max_size = r.u32()?;
        // RFC 7301 §3.1: no protocol has the empty name.
        let alpn = Some(r.vec8(0)?.to_vec()).filter(|alpn| !alpn.is_empty());
        Ok(Self { max_size, alpn })
    }
}
