//! The settings of connections over datagrams.

use crate::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use zeroize::Zeroizing;

use crate::error::{Error, Misuse};

/// The default size of the largest datagram, in bytes of UDP payload. With IP and UDP headers it fits into 1280 bytes, the
/// smallest packet size that every IPv6 link must support.
const DEFAULT_MTU: usize = 1200;

/// The allowed sizes of the largest datagram, in bytes: from a header, a connection ID, a tag and a useful piece of a message, up to
/// the largest UDP payload over IPv4.
pub(crate) const MTU_RANGE: RangeInclusive<usize> = 80..=65507;

/// The keys that authenticate a server's cookies. Servers with the same keys accept each other's cookies. A server that replaces its
/// key keeps the previous one for as long as a cookie lives, two minutes.
#[derive(Clone)]
pub struct CookieKeys {
    current: Arc<Zeroizing<Vec<u8>>>,
    previous: Option<Arc<Zeroizing<Vec<u8>>>>,
}

/// The shortest key of cookies, in bytes: the length of the HMAC's hash.
const MIN_COOKIE_KEY: usize = 32;

impl CookieKeys {
    /// A key of at least 32 random bytes.
    ///
    /// # Errors
    /// [`Misuse::Config`] if the key is shorter.
    pub fn new(key: &[u8]) -> Result<Self, Error> {
        if key.len() < MIN_COOKIE_KEY {
            let len = key.len();
            return Err(
                Misuse::Config(alloc::format!("a cookie key has at least 32 bytes, not {len}")).into()
            );
        }
        Ok(Self { current: Arc::new(Zeroizing::new(key.to_vec())), previous: None })
    }

    /// Replaces the key. Cookies under the present one stay valid until the next replacement.
    ///
    /// # Errors
    /// [`Misuse::Config`] if the key is shorter than 32 bytes.
    pub fn replaced(&self, key: &[u8]) -> Result<Self, Error> {
        Ok(Self { previous: Some(Arc::clone(&self.current)), ..Self::new(key)? })
    }

    /// The key of new cookies.
    pub(crate) fn current(&self) -> &[u8] {
        &self.current
    }

    /// All keys, the current one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().map(|key| key.as_slice())
    }
}

/// Shows no key.
impl fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieKeys").finish_non_exhaustive()
    }
}

/// The settings of a connection over datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramSettings {
    /// The largest datagram to send, in bytes of UDP payload.
    pub(crate) mtu: usize,
    pub(crate) retransmission: Retransmission,
}

impl Default for DatagramSettings {
    fn default() -> Self {
        Self { mtu: DEFAULT_MTU, retransmission: Retransmission::default() }
    }
}

/// When a connection over datagrams sends a flight again, and when it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
    pub(crate) give_up: Duration,
}

impl Retransmission {
    /// The timeout of a flight is `first`, doubles with each retransmission, and stays at `longest`. A connection gives up after
    /// `give_up` without progress.
    ///
    /// # Errors
    /// [`Misuse::Config`], unless 10 ms ≤ `first` ≤ `longest` ≤ `give_up` ≤ 1 day.
    pub fn new(first: Duration, longest: Duration, give_up: Duration) -> Result<Self, Error> {
        const SHORTEST: Duration = Duration::from_millis(10);
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        match SHORTEST <= first && first <= longest && longest <= give_up && give_up <= DAY {
            true => Ok(Self { first, longest, give_up }),
            false => Err(Misuse::Config(alloc::format!(
                "timeouts must be 10 ms <= first <= longest <= give-up <= 1 day, not {first:?}, {longest:?}, {give_up:?}"
            ))
            .into()),
        }
    }
}

impl Default for Retransmission {
    /// From one second to one minute (RFC 9147 §5.8.1, RFC 6298 §2.5). The last retransmission leaves after 183 seconds, and the
    /// connection gives up after 243.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
            give_up: Duration::from_secs(243),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_timeouts_out_of_order_or_range() {
        let new = |first, longest, give_up| {
            Retransmission::new(
                Duration::from_millis(first),
                Duration::from_millis(longest),
                Duration::from_millis(give_up),
            )
        };
        assert!(new(10, 10, 10).is_ok() && new(400, 60_000, 86_400_000).is_ok());
        for (first, longest, give_up) in [(9, 10, 10), (20, 10, 30), (10, 30, 20), (10, 10, 86_400_001)] {
            assert!(new(first, longest, give_up).is_err(), "{first} {longest} {give_up}");
        }
    }
}
