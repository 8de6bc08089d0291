//! The settings of connections over datagrams.

use crate::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use zeroize::Zeroizing;

use super::{Migration, Multihoming, PortScheme};
use crate::crypto::SecureRandom;
use crate::error::{Error, Misuse};

/// The default size of the largest datagram, in bytes of UDP payload. With IP and UDP headers it fits into
/// 1280 bytes, the smallest packet size that every IPv6 link must support.
const DEFAULT_MTU: usize = 1200;

/// The allowed sizes of the largest datagram, in bytes: from a header, a connection ID, a tag and a useful
/// piece of a message, up to the largest UDP payload over IPv4.
pub(crate) const MTU_RANGE: RangeInclusive<usize> = 80..=65507;

/// Issues the connection IDs that a side wants to receive (RFC 9146, RFC 9147 §9). An endpoint with many
/// connections issues unique IDs and finds the connection of a datagram by them.
pub trait ConnectionIds: Send + Sync + fmt::Debug {
    /// The length of all its IDs, in bytes, at most [`MAX_CONNECTION_ID`]. Zero if this side only sends the
    /// peer's IDs.
    fn id_len(&self) -> usize;

    /// A new ID of this length.
    ///
    /// # Errors
    /// The random source failed.
    fn issue(&self) -> Result<Vec<u8>, Error>;
}

/// The longest connection ID that this side asks for, in bytes. The extension allows 255, but every datagram
/// carries one.
pub const MAX_CONNECTION_ID: usize = 32;

/// Connection IDs that begin with the same bytes, by which a load balancer finds the node, and continue with
/// random ones.
#[derive(Clone)]
pub struct NodeIds {
    node: Vec<u8>,
    len: usize,
    random: Arc<dyn SecureRandom>,
}

impl NodeIds {
    /// IDs of `len` bytes that begin with `node`.
    ///
    /// # Errors
    /// [`Misuse::Config`] if `len` is above [`MAX_CONNECTION_ID`] or leaves no random byte, unless it is zero
    /// and `node` empty.
    pub fn new(node: &[u8], len: usize, random: Arc<dyn SecureRandom>) -> Result<Self, Error> {
        let fits = len <= MAX_CONNECTION_ID && node.len() < len;
        if !(fits || (len == 0 && node.is_empty())) {
            return Err(Misuse::Config(alloc::format!(
                "a connection ID has at most {MAX_CONNECTION_ID} bytes, and more than its node's {}; not {len}",
                node.len()
            ))
            .into());
        }
        Ok(Self { node: node.to_vec(), len, random })
    }
}

impl ConnectionIds for NodeIds {
    fn id_len(&self) -> usize {
        self.len
    }

    fn issue(&self) -> Result<Vec<u8>, Error> {
        let mut id = self.node.clone();
        id.resize(self.len, 0);
        self.random.fill(id.get_mut(self.node.len()..).unwrap_or_default())?;
        Ok(id)
    }
}

impl fmt::Debug for NodeIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIds").field("node", &self.node).field("len", &self.len).finish_non_exhaustive()
    }
}

/// The keys that authenticate a server's cookies. Servers with the same keys accept each other's cookies. A
/// server that replaces its key keeps the previous one for as long as a cookie lives, two minutes.
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
    /// Whether records of DTLS 1.3 have full headers.
    pub(crate) full_headers: bool,
    pub(crate) retransmission: Retransmission,
    pub(crate) migration: Migration,
    /// How a client uses several interfaces, if it does.
    pub(crate) multihoming: Option<Multihoming>,
    /// How an association without connection IDs gets a port of its own.
    pub(crate) port_scheme: Option<PortScheme>,
    /// Whether only the peer can send a datagram.
    pub(crate) is_unforgeable: bool,
}

impl Default for DatagramSettings {
    fn default() -> Self {
        Self {
            mtu: DEFAULT_MTU,
            full_headers: false,
            retransmission: Retransmission::default(),
            migration: Migration::default(),
            multihoming: None,
            port_scheme: None,
            is_unforgeable: false,
        }
    }
}

/// When a connection over datagrams sends a flight again, and when it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
    pub(crate) give_up: Duration,
    pub(crate) patient: bool,
}

impl Retransmission {
    /// The timeout of a flight is `first`, doubles with each retransmission, and stays at `longest`. A
    /// connection gives up after `give_up` without progress.
    ///
    /// # Errors
    /// [`Misuse::Config`], unless 10 ms ≤ `first` ≤ `longest` ≤ `give_up` ≤ 1 day.
    pub fn new(first: Duration, longest: Duration, give_up: Duration) -> Result<Self, Error> {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        if SHORTEST <= first && first <= longest && longest <= give_up && give_up <= DAY {
            Ok(Self { first, longest, give_up, patient: false })
        } else {
            Err(Misuse::Config(alloc::format!(
                "timeouts must be 10 ms <= first <= longest <= give-up <= 1 day, not {first:?}, {longest:?}, {give_up:?}"
            ))
            .into())
        }
    }
}

/// The shortest first timeout.
const SHORTEST: Duration = Duration::from_millis(10);

impl Retransmission {
    /// Checks another first timeout.
    pub(crate) fn check_first(&self, first: Duration) -> Result<(), Error> {
        Self::new(first, self.longest, self.give_up).map(drop)
    }

    /// Sets whether a connection waits for a timer before it answers what needs no answer at once: it
    /// acknowledges messages after the handshake after a quarter of the timeout (RFC 9147 §7.1), and after an
    /// ACK of a part of a flight it sends the rest when its timeout ends. The default is `false`. With
    /// `true`, a connection sends fewer datagrams, but recovers later from loss. Only the runner of
    /// BoringSSL's conformance tests needs this setting.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_patience(mut self, on: bool) -> Self {
        self.patient = on;
        self
    }
}

impl Default for Retransmission {
    /// From one second to one minute (RFC 9147 §5.8.1, RFC 6298 §2.5). The last retransmission leaves after
    /// 183 seconds, and the connection gives up after 243.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
            give_up: Duration::from_secs(243),
            patient: false,
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
