//! A gateway's memory of handshakes: the handshakes of open connections, and the address from which each
//! client came.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashlink::LinkedHashMap;
use serde::{Deserialize, Serialize};

use super::client::{Attribute, Client};
use super::decide::{Decision, Verdict};
use super::hints::{Claim, Source};
use super::profile::{Demand, PolicyProfile};

/// The handshakes of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// How many handshakes have begun.
    pub begun: u32,
    /// Whether the last one has finished, and its client is served.
    pub is_served: bool,
    /// The client, once a handshake has proven it.
    pub client: Option<String>,
    /// The name of the profile.
    pub profile: Option<String>,
    /// The rule that decided last.
    pub rule: Option<String>,
    /// When the entry expires, in seconds.
    pub until_s: u64,
}

/// The paper's handshake information table: the handshakes of each connection, by the client's address and
/// port. Its size is bounded, and the entry that was used longest ago makes room.
pub struct HandshakeTable {
    capacity: usize,
    lifetime_s: u64,
    entries: Mutex<LinkedHashMap<SocketAddr, Handshakes>>,
}

impl HandshakeTable {
    /// A table for this many connections, at least one. An entry lives for `lifetime_s` seconds after its
    /// last change.
    pub fn new(capacity: usize, lifetime_s: u64) -> Self {
        Self { capacity: capacity.max(1), lifetime_s, entries: Mutex::default() }
    }

    /// Counts a handshake that begins. Returns its number on this connection, from 1. All times are in
    /// seconds, from any epoch.
    pub fn begin(&self, peer: SocketAddr, now_s: u64) -> u32 {
        self.change(peer, now_s, |entry| {
            entry.begun = entry.begun.saturating_add(1);
            entry.is_served = false;
            entry.begun
        })
    }

    /// Records a decision after Finished, and the client that the handshake has proven.
    pub fn decided(&self, peer: SocketAddr, decision: &Decision, client: Option<&Client>, now_s: u64) {
        self.change(peer, now_s, |entry| {
            entry.is_served = decision.verdict == Verdict::Serve;
            entry.client = client.map(ToString::to_string);
            entry.profile = Some(decision.profile.name.clone());
            entry.rule.clone_from(&decision.rule);
        });
    }

    /// Removes a connection that has ended.
    pub fn ended(&self, peer: SocketAddr) {
        locked(&self.entries).remove(&peer);
    }

    /// The handshakes of a connection.
    pub fn get(&self, peer: SocketAddr, now_s: u64) -> Option<Handshakes> {
        locked(&self.entries).get(&peer).filter(|entry| entry.until_s > now_s).cloned()
    }

    /// The number of connections, and those that changed last, at most `most`, the latest first.
    pub fn latest(&self, most: usize, now_s: u64) -> (usize, Vec<(SocketAddr, Handshakes)>) {
        let mut entries = locked(&self.entries);
        expire(&mut entries, now_s, |entry| entry.until_s);
        let latest = entries.iter().rev().take(most).map(|(peer, entry)| (*peer, entry.clone()));
        (entries.len(), latest.collect())
    }

    fn change<T>(&self, peer: SocketAddr, now_s: u64, change: impl FnOnce(&mut Handshakes) -> T) -> T {
        let mut entries = locked(&self.entries);
        let mut entry = entries.remove(&peer).filter(|entry| entry.until_s > now_s).unwrap_or_default();
        let result = change(&mut entry);
        entry.until_s = now_s.saturating_add(self.lifetime_s);
        entries.insert(peer, entry);
        expire(&mut entries, now_s, |entry| entry.until_s);
        while entries.len() > self.capacity {
            entries.pop_front();
        }
        result
    }
}

/// The addresses from which clients came last. An address is a hint ([`Source::Address`]), never a proof.
///
/// Only clients whose profile demands a certificate are remembered, for
/// [`PolicyProfile::address_lifetime_s`]. If clients share an address, the one with the strongest profile is
/// remembered: a hint to a weaker profile would make its handshake fail. After a handshake that failed by
/// such a hint, the address gives none for this time, since clients without a certificate may share it.
///
/// Several gateways can have the same table: each passes its [`changes`](Self::changes) on to the others,
/// which [learn](Self::learn) them.
pub struct AddressTable {
    capacity: usize,
    entries: Mutex<LinkedHashMap<IpAddr, Remembered>>,
    /// The changes that other gateways do not have yet, the newest one of each address.
    changes: Mutex<LinkedHashMap<IpAddr, Remembered>>,
    is_shared: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    /// The client; `None` after a handshake that failed by this hint.
    client: Option<Client>,
    rank: i32,
    /// Zero for an address that was forgotten.
    until_s: u64,
}

impl Remembered {
    const FORGOTTEN: Self = Self { client: None, rank: 0, until_s: 0 };
}

/// The most changes that wait for other gateways: a few seconds' worth.
const MAX_CHANGES: usize = 16_384;

/// A change of an address, which a gateway sends to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressChange {
    address: IpAddr,
    client: Option<Client>,
    rank: i32,
    until_s: u64,
}

impl AddressTable {
    /// A table for this many addresses, at least one. The address that was seen longest ago makes room.
    pub fn new(capacity: usize) -> Self {
        let entries = Mutex::default();
        let changes = Mutex::default();
        Self { capacity: capacity.max(1), entries, changes, is_shared: AtomicBool::new(false) }
    }

    /// Keeps changes for other gateways from now on.
    pub fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// The changes since the last call, for other gateways; the newest 16,384, and none before
    /// [`share`](Self::share).
    pub fn changes(&self) -> Vec<AddressChange> {
        let changes = std::mem::take(&mut *locked(&self.changes));
        let change = |(address, Remembered { client, rank, until_s })| AddressChange {
            address,
            client,
            rank,
            until_s,
        };
        changes.into_iter().map(change).collect()
    }

    /// Keeps a change that was not passed on, unless the address has changed again.
    pub fn keep_change(&self, change: AddressChange) {
        let AddressChange { address, client, rank, until_s } = change;
        let mut changes = locked(&self.changes);
        if changes.len() < MAX_CHANGES {
            changes.entry(address).or_insert(Remembered { client, rank, until_s });
        }
    }

    /// Learns a change of another gateway. It obeys the same rules as [`Self::remember`], and
    /// `max_lifetime_s` bounds how long it is good.
    pub fn learn(&self, change: AddressChange, max_lifetime_s: u64, now_s: u64) {
        let AddressChange { address, client, rank, until_s } = change;
        let address = address.to_canonical();
        let until_s = until_s.min(now_s.saturating_add(max_lifetime_s));
        let mut entries = locked(&self.entries);
        let old = entries.remove(&address).filter(|old| old.until_s > now_s);
        let new = Remembered { client, rank, until_s };
        let is_stronger =
            |old: &Remembered| new.client.is_some() && old.client != new.client && old.rank > new.rank;
        let entry = match old {
            Some(old) if old.client.is_none() && new.until_s > 0 => old,
            Some(old) if is_stronger(&old) => old,
            _ if new.until_s <= now_s => return,
            _ => new,
        };
        entries.insert(address, entry);
        while entries.len() > self.capacity {
            entries.pop_front();
        }
    }

    /// Notes a change for other gateways, if there are any.
    fn tell(&self, address: IpAddr, entry: &Remembered) {
        if self.is_shared.load(Ordering::Relaxed) {
            let mut changes = locked(&self.changes);
            changes.insert(address, entry.clone());
            while changes.len() > MAX_CHANGES {
                changes.pop_front();
            }
        }
    }

    /// Remembers the client of a finished handshake. `profile` is the one that its identity demands:
    /// [`Decision::next`], or else [`Decision::profile`]. Returns whether the client is remembered. All times
    /// are in seconds, from any epoch.
    pub fn remember(&self, address: IpAddr, client: &Client, profile: &PolicyProfile, now_s: u64) -> bool {
        let has_certificate = client.values(&Attribute::Kind).any(|kind| kind != "psk");
        if profile.client != Demand::Certificate || !has_certificate || profile.address_lifetime_s == 0 {
            return false;
        }
        let address = address.to_canonical();
        let mut entries = locked(&self.entries);
        let old = entries.remove(&address).filter(|old| old.until_s > now_s);
        let new = Remembered {
            client: Some(client.clone()),
            rank: profile.rank,
            until_s: now_s.saturating_add(profile.address_lifetime_s.into()),
        };
        // Other gateways hear of an entry again when a tenth of its time is over.
        let tenth = u64::from(profile.address_lifetime_s) / 10;
        let is_known = |old: &Remembered| {
            (&old.client, old.rank) == (&new.client, new.rank)
                && new.until_s <= old.until_s.saturating_add(tenth)
        };
        // Clients share this address.
        let (entry, is_new) = match old {
            Some(old) if old.client.is_none() => (old, false),
            Some(old) if old.client != new.client && old.rank > new.rank => (old, false),
            // The others count from what they know, so the entry keeps its time.
            Some(old) if self.is_shared.load(Ordering::Relaxed) && is_known(&old) => (old, true),
            _ => {
                self.tell(address, &new);
                (new, true)
            }
        };
        entries.insert(address, entry);
        while entries.len() > self.capacity {
            entries.pop_front();
        }
        is_new
    }

    /// The hint that this address gives.
    pub fn claim(&self, address: IpAddr, now_s: u64) -> Option<Claim> {
        let mut entries = locked(&self.entries);
        let address = address.to_canonical();
        if entries.get(&address)?.until_s <= now_s {
            entries.remove(&address);
            return None;
        }
        let entry = entries.to_back(&address)?;
        Some(Claim { source: Source::Address, client: entry.client.clone()? })
    }

    /// Forgets an address whose hint was wrong: another client came from it.
    pub fn forget(&self, address: IpAddr) {
        let address = address.to_canonical();
        if locked(&self.entries).remove(&address).is_some() {
            self.tell(address, &Remembered::FORGOTTEN);
        }
    }

    /// Notes that a handshake failed whose profile was chosen by this address. Until the entry expires, the
    /// address gives no hint, so that clients that share it do not fail in turn.
    pub fn misled(&self, address: IpAddr) {
        let address = address.to_canonical();
        if let Some(entry) = locked(&self.entries).get_mut(&address) {
            entry.client = None;
            self.tell(address, entry);
        }
    }

    /// How many addresses have an entry, with those that have expired since they were last asked for.
    pub fn len(&self) -> usize {
        locked(&self.entries).len()
    }

    /// Whether no address is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Removes expired entries from the front of a map whose entries are in the order of their expiry.
fn expire<K: Eq + std::hash::Hash, V>(
    entries: &mut LinkedHashMap<K, V>,
    now_s: u64,
    until_s: impl Fn(&V) -> u64,
) {
    while entries.front().is_some_and(|(_, entry)| until_s(entry) <= now_s) {
        entries.pop_front();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics halfway through a change under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
