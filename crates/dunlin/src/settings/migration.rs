//! How a connection over datagrams follows a peer whose address changes.

use core::time::Duration;

use crate::error::{Error, Misuse};

/// How a connection checks that the peer receives at a new address (RFC 9853 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathCheck {
    /// The peer must answer from the new address.
    Basic,
    /// First the peer is asked over the present path whether it has left that path. So an attacker who
    /// forwards the peer's records faster than the true path cannot move the connection. If the present path
    /// is dead, the check takes longer by its timeout. Meanwhile answers go to both addresses, to the new one
    /// within the limit of amplification.
    Enhanced,
}

/// Whether and how a connection with connection IDs follows a peer whose address changes (RFC 9146 §6).
///
/// By default both sides of a connection check a new address by the enhanced return routability check of
/// RFC 9853. They negotiate it together with connection IDs. Towards a peer that does not know it, the
/// address stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    pub(crate) check: Option<PathCheck>,
    pub(crate) timeout: Duration,
    pub(crate) is_unchecked_allowed: bool,
}

impl Migration {
    /// The timeout of RFC 9853 §5.5 if the round-trip time is unknown.
    const TIMEOUT: Duration = Duration::from_secs(1);

    /// Follows the peer after a check. A server also sends copies of its records to the other addresses of a
    /// client that sends copies of its own from there ([`crate::Multihoming::duplicated`]), once the client
    /// has answered a challenge at each.
    pub const fn new(check: PathCheck) -> Self {
        Self { check: Some(check), timeout: Self::TIMEOUT, is_unchecked_allowed: false }
    }

    /// Never follows the peer, and takes part in no checks.
    pub const fn never() -> Self {
        Self { check: None, timeout: Self::TIMEOUT, is_unchecked_allowed: false }
    }

    /// Whether this side takes part in checks.
    pub(crate) const fn is_checked(&self) -> bool {
        self.check.is_some()
    }

    /// Sets after which time without an answer a stage of a check ends, by default one second. RFC 9853 §5.5
    /// recommends three round-trip times.
    ///
    /// # Errors
    /// [`Misuse::Config`], unless 10 ms ≤ `timeout` ≤ 60 s.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&timeout) {
            return Err(Misuse::Config(alloc::format!(
                "the timeout of a path check must be 10 ms to 60 s, not {timeout:?}"
            ))
            .into());
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// Sets whether the connection follows a peer that takes part in no checks, as soon as a newer authentic
    /// record comes from another address. The default is `false`.
    ///
    /// An association with a port of its own ([`crate::PortScheme`]) has no checks, so it follows its peer to
    /// another host only with `true`.
    ///
    /// With `true`, an attacker that can forward a record of the peer faster than the network, or under
    /// another address, gets what this side sends, until the next newer record comes from the true address.
    /// The records stay secret, but they may flood a victim or get lost (RFC 9146 §6).
    #[must_use]
    pub const fn with_unchecked(mut self, on: bool) -> Self {
        self.is_unchecked_allowed = on;
        self
    }
}

impl Default for Migration {
    fn default() -> Self {
        Self::new(PathCheck::Enhanced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_a_timeout_out_of_range() {
        let with = |ms| Migration::default().with_timeout(Duration::from_millis(ms));
        assert!(with(10).is_ok() && with(60_000).is_ok());
        assert!(with(9).is_err() && with(60_001).is_err());
    }
}
