//! Clients that a gateway refuses for a while, by their addresses.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashlink::LinkedHashMap;

use super::pattern::Network;

/// Why a client is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offence {
    /// Its handshake failed, because it did not prove the identity that it claimed.
    Failed,
    /// It has proven an identity that the policy refuses. Clients that only `allow` of their route does not
    /// admit are not counted.
    Foreign,
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed handshakes",
            Self::Foreign => "foreign clients",
        })
    }
}

/// The limits of a blacklist. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlacklistLimits {
    /// After how many failed handshakes of a network within [`Self::window_s`] it is blocked; 0 for never.
    pub failed: u32,
    /// After how many foreign clients of a network within that time it is blocked; 0 for never.
    pub foreign: u32,
    /// For how long offences are added up.
    pub window_s: u32,
    /// For how long a network is blocked.
    pub blocked_s: u32,
    /// The length of the prefix that an IPv4 client stands for, in bits.
    pub prefix_v4: u8,
    /// The length of the prefix that an IPv6 client stands for, in bits. One subscriber usually has 64 bits
    /// of addresses for itself.
    pub prefix_v6: u8,
    /// How many networks are counted, and how many are blocked, at most.
    pub capacity: usize,
    /// Networks that are never blocked.
    pub exempt: Vec<Network>,
}

impl Default for BlacklistLimits {
    fn default() -> Self {
        Self {
            failed: 20,
            foreign: 5,
            window_s: 60,
            blocked_s: 600,
            prefix_v4: 32,
            prefix_v6: 64,
            capacity: 65_536,
            exempt: Vec::new(),
        }
    }
}

/// A network that is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The network.
    pub network: Network,
    /// The offence that blocked it.
    pub offence: Offence,
    /// When it is free again, in seconds of the caller's clock.
    pub until_s: u64,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is blocked after too many {}", self.network, self.offence)
    }
}

/// The blacklist of a gateway: failed and foreign clients, with expiry and limits.
///
/// The caller reports only clients with a proven address: TCP's handshake proves it, and so does a cookie
/// over datagrams. Otherwise an attacker could block others by forged addresses.
pub struct Blacklist {
    limits: BlacklistLimits,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// The networks with offences, ordered by the time of the last offence.
    counted: LinkedHashMap<Network, Count>,
    /// The blocked networks, in the order in which they become free.
    blocked: LinkedHashMap<Network, Blocked>,
}

#[derive(Default)]
struct Count {
    since_s: u64,
    failed: u32,
    foreign: u32,
}

impl Blacklist {
    /// An empty blacklist.
    pub fn new(limits: BlacklistLimits) -> Self {
        Self { limits, entries: Mutex::default() }
    }

    /// This blacklist under other limits. It keeps the blocked networks until their time is over, except
    /// those that the new limits exempt at least in part, and those that they would not block: networks of
    /// another size, or after an offence without a limit.
    #[must_use]
    pub fn with_limits(&self, limits: BlacklistLimits) -> Self {
        let new = Self::new(limits);
        let is_kept = |blocked: &Blocked| {
            let Blocked { network, offence, .. } = blocked;
            let is_exempt =
                |exempt: &Network| exempt.contains(network.address()) || network.contains(exempt.address());
            let is_same_size = new.network(network.address()) == *network;
            is_same_size && new.limit(*offence) > 0 && !new.limits.exempt.iter().any(is_exempt)
        };
        let kept =
            self.lock().blocked.values().filter(|blocked| is_kept(blocked)).copied().collect::<Vec<_>>();
        // The last ones to be free again, if there are too many.
        let surplus = kept.len().saturating_sub(new.limits.capacity.max(1));
        new.lock().blocked.extend(kept.into_iter().skip(surplus).map(|blocked| (blocked.network, blocked)));
        new
    }

    /// After how many such offences a network is blocked; 0 for never.
    const fn limit(&self, offence: Offence) -> u32 {
        match offence {
            Offence::Failed => self.limits.failed,
            Offence::Foreign => self.limits.foreign,
        }
    }

    /// Its limits.
    pub const fn limits(&self) -> &BlacklistLimits {
        &self.limits
    }

    /// The network that this client stands for.
    fn network(&self, address: IpAddr) -> Network {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { self.limits.prefix_v4 } else { self.limits.prefix_v6 };
        Network::of(address, prefix)
    }

    /// Counts an offence. Returns the network if this offence has blocked it.
    pub fn report(&self, address: IpAddr, offence: Offence, now_s: u64) -> Option<Blocked> {
        let network = self.network(address);
        if self.limits.exempt.iter().any(|exempt| exempt.contains(address)) {
            return None;
        }
        let mut entries = self.lock();
        entries.expire(now_s);
        if entries.blocked.contains_key(&network) {
            return None;
        }
        let is_recent = |count: &Count| now_s.saturating_sub(count.since_s) < self.limits.window_s.into();
        let old = entries.counted.remove(&network).filter(is_recent);
        let mut count = old.unwrap_or(Count { since_s: now_s, ..Count::default() });
        let limit = self.limit(offence);
        let number = match offence {
            Offence::Failed => &mut count.failed,
            Offence::Foreign => &mut count.foreign,
        };
        *number = number.saturating_add(1);
        if limit > 0 && *number >= limit {
            let until_s = now_s.saturating_add(self.limits.blocked_s.into());
            let blocked = Blocked { network, offence, until_s };
            entries.blocked.insert(network, blocked);
            while entries.blocked.len() > self.limits.capacity.max(1) {
                entries.blocked.pop_front();
            }
            return Some(blocked);
        }
        entries.counted.insert(network, count);
        while entries.counted.len() > self.limits.capacity.max(1) {
            entries.counted.pop_front();
        }
        None
    }

    /// Whether the client is blocked, and until when.
    pub fn blocked(&self, address: IpAddr, now_s: u64) -> Option<Blocked> {
        let mut entries = self.lock();
        entries.expire(now_s);
        entries.blocked.get(&self.network(address)).copied()
    }

    /// The number of blocked networks, and the first of them to become free, at most `most`. New clients wait
    /// meanwhile.
    pub fn first(&self, most: usize, now_s: u64) -> (usize, Vec<Blocked>) {
        let mut entries = self.lock();
        entries.expire(now_s);
        (entries.blocked.len(), entries.blocked.values().take(most).copied().collect())
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // No code panics halfway through a change under this lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn expire(&mut self, now_s: u64) {
        while self.blocked.front().is_some_and(|(_, blocked)| blocked.until_s <= now_s) {
            self.blocked.pop_front();
        }
    }
}
