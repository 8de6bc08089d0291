//! A server's handshake cache in memory.

use std::cmp::Reverse;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::cache::{CachedPeer, ServerCache, Ticket};
use hashbrown::HashTable;

use super::older_tickets;
use super::slab::{Ends, Handle, Linked, Slab};

/// The default average size of an entry in bytes: twice the size of an entry with an RSA key.
pub(super) const MEAN_ENTRY: usize = 1024;

/// The least capacity in bytes: room for a few entries with many names.
pub(super) const MIN_BYTES: usize = 64 << 10;

/// The first bytes of an entry, which are the same for all clients of one issuer.
type Shared = [u8; CachedPeer::SHARED_LEN];

/// The part of an entry that all clients of one issuer under the same settings share: the digest of the
/// settings, and the first bytes of the entry.
type Common = ([u8; 32], Shared);

/// The length of the fingerprint, which follows the shared bytes.
const FINGERPRINT_LEN: usize = 32;

/// The most [`Common`] values: a head has room for a number of 16 bits.
const MAX_COMMONS: usize = 1 << 16;

/// The head of an entry.
#[derive(Clone, Copy, Default)]
struct Head {
    /// The newest ticket and the previous one; twice the same ticket if there is only one.
    tickets: [Ticket; 2],
    /// The neighbours in the list of the group.
    neighbours: Ends,
    /// The number of its [`Common`].
    common: [u8; 2],
}

impl Head {
    const fn common(&self) -> u16 {
        u16::from_be_bytes(self.common)
    }
}

impl Linked for Head {
    fn neighbours(&mut self) -> &mut Ends {
        &mut self.neighbours
    }
}

/// The entries of all clients.
#[derive(Default)]
struct Entries {
    slab: Slab<Head>,
    /// The shared parts by number, each with its number of clients. A part without clients is free.
    commons: Vec<(Common, usize)>,
    free: Vec<u16>,
    numbers: HashMap<Common, u16>,
}

impl Entries {
    /// The ticket of an index: a handle, and in the last bit which of the two tickets.
    fn ticket(&self, index: u32) -> Option<Ticket> {
        let [newest, before] = self.slab.head(Handle::from_u32(index >> 1))?.tickets;
        Some(if index & 1 == 0 { newest } else { before })
    }

    fn common(&self, at: Handle) -> Option<&Common> {
        let number = self.slab.head(at)?.common();
        self.commons.get(usize::from(number)).map(|(common, _)| common)
    }

    /// The identity of a client: its key and the settings. A client has one entry, whatever its certificates
    /// say.
    fn client(&self, at: Handle) -> Option<Client<'_>> {
        let (settings, _) = self.common(at)?;
        Some((CachedPeer::holder(self.slab.bytes(at)?), settings))
    }

    /// Whether this part has a number, or can get one.
    fn has_room(&self, common: &Common) -> bool {
        self.numbers.contains_key(common) || self.numbers.len() < MAX_COMMONS
    }

    /// Inserts a client. Returns `None` if there can be no more.
    fn insert(&mut self, common: Common, own: &[u8], mut head: Head, max_slots: usize) -> Option<Handle> {
        let number = match self.numbers.get(&common).copied().or_else(|| self.free.pop()) {
            Some(number) => number,
            None => {
                let number = u16::try_from(self.commons.len()).ok()?;
                self.commons.push((common, 0));
                number
            }
        };
        let of = self.commons.get_mut(usize::from(number))?;
        *of = (common, of.1 + 1);
        self.numbers.insert(common, number);
        head.common = number.to_be_bytes();
        let at = self.slab.insert(head, own, max_slots);
        if at.is_none() {
            self.leave(number);
        }
        at
    }

    fn remove(&mut self, at: Handle) {
        if let Some(number) = self.slab.head(at).map(Head::common) {
            self.leave(number);
        }
        self.slab.remove(at);
    }

    fn leave(&mut self, number: u16) {
        let Some((common, clients)) = self.commons.get_mut(usize::from(number)) else { return };
        *clients -= 1;
        if *clients == 0 {
            self.numbers.remove(common);
            self.free.push(number);
        }
    }
}

/// The holder of the key, and the settings.
type Client<'a> = (Option<(u8, &'a [u8])>, &'a [u8; 32]);

/// The clients of one issuer under any settings, as a list through their heads. Clients under abandoned
/// settings never connect again, so they soon become the oldest.
struct Group {
    /// The oldest and the newest client.
    ends: Ends,
    len: usize,
    /// The time of the last change.
    changed: u64,
}

impl Group {
    const EMPTY: Self = Self { ends: Ends::NONE, len: 0, changed: 0 };

    /// Its rank for eviction.
    const fn rank(&self, issuer: Shared) -> Rank {
        (self.len, Reverse(self.changed), issuer)
    }
}

type Rank = (usize, Reverse<u64>, Shared);

/// Clients, their groups, and two indexes with four bytes for each key.
#[derive(Default)]
struct Clients {
    entries: Entries,
    /// See [`Entries::ticket`].
    by_ticket: HashTable<u32>,
    by_client: HashTable<Handle>,
    /// No group is empty.
    groups: HashMap<Shared, Group>,
    /// The largest group last; among equal sizes, the least recently changed one.
    ranks: BTreeSet<Rank>,
    hasher: RandomState,
    changes: u64,
}

impl Clients {
    fn find(&self, ticket: &Ticket) -> Option<Handle> {
        let is_it = |index: &u32| self.entries.ticket(*index) == Some(*ticket);
        let index = self.by_ticket.find(self.hasher.hash_one(Some(ticket)), is_it);
        index.map(|index| Handle::from_u32(*index >> 1))
    }

    /// The whole entry.
    fn peer(&self, at: Handle) -> Option<CachedPeer> {
        let (settings, shared) = self.entries.common(at)?;
        CachedPeer::from_bytes(&[&shared[..], self.entries.slab.bytes(at)?].concat(), settings).ok()
    }

    fn find_client(&self, client: Client<'_>) -> Option<Handle> {
        let is_it = |at: &Handle| self.entries.client(*at) == Some(client);
        self.by_client.find(self.hasher.hash_one(Some(client)), is_it).copied()
    }

    /// Inserts a new client under these tickets.
    fn insert(&mut self, common: Common, own: &[u8], tickets: [Ticket; 2], max_slots: usize) {
        while !self.entries.has_room(&common) {
            self.evict_smallest();
        }
        let head = Head { tickets, neighbours: Ends::NONE, common: [0; 2] };
        let Some(at) = self.entries.insert(common, own, head, max_slots) else { return };
        let entries = &self.entries;
        let hasher = &self.hasher;
        let rehash = |at: &Handle| hasher.hash_one(entries.client(*at));
        self.by_client.insert_unique(rehash(&at), at, rehash);
        self.index(at);
        self.link(at);
    }

    /// Gives a client new tickets, and makes it the newest of its group.
    fn renew(&mut self, at: Handle, tickets: [Ticket; 2]) {
        self.forget_tickets(at);
        self.unlink(at);
        if let Some(head) = self.entries.slab.head_mut(at) {
            head.tickets = tickets;
        }
        self.index(at);
        self.link(at);
    }

    fn remove(&mut self, at: Handle) {
        self.forget_tickets(at);
        self.unlink(at);
        let hash = self.hasher.hash_one(self.entries.client(at));
        if let Ok(entry) = self.by_client.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        let len = self.entries.slab.bytes(at).map_or(0, <[u8]>::len);
        self.entries.remove(at);
        for at in self.entries.slab.scattered(len) {
            self.relocate(at);
        }
    }

    /// Moves an entry to another page.
    fn relocate(&mut self, from: Handle) {
        let slab = &mut self.entries.slab;
        let (Some(head), Some(own)) = (slab.head(from).copied(), slab.bytes(from).map(<[u8]>::to_vec)) else {
            return;
        };
        let Some(to) = slab.insert(head, &own, 1) else { return };
        let hash = self.hasher.hash_one(self.entries.client(from));
        if let Some(at) = self.by_client.find_mut(hash, |at| *at == from) {
            *at = to;
        }
        for (ticket, which) in head.tickets.iter().zip(0..) {
            let [from, to] = [from, to].map(|at| at.to_u32() << 1 | which);
            if let Some(index) = self.by_ticket.find_mut(self.hasher.hash_one(Some(ticket)), |i| *i == from) {
                *index = to;
            }
        }
        let issuer = self.entries.common(from).map(|(_, issuer)| *issuer);
        if let Some(group) = issuer.and_then(|issuer| self.groups.get_mut(&issuer)) {
            let Ends { older, newer } = head.neighbours;
            self.entries.slab.join(&mut group.ends, older, to);
            self.entries.slab.join(&mut group.ends, to, newer);
        }
        self.entries.slab.remove(from);
    }

    /// Enters the tickets of a client into the index.
    fn index(&mut self, at: Handle) {
        let entries = &self.entries;
        let hasher = &self.hasher;
        let Some(tickets) = entries.slab.head(at).map(|head| head.tickets) else { return };
        let count = if tickets[0] == tickets[1] { 1 } else { 2 };
        for (ticket, which) in tickets.iter().zip(0..).take(count) {
            let hash = hasher.hash_one(Some(ticket));
            // If two clients have the same ticket by chance, the later one gets it.
            if let Ok(other) =
                self.by_ticket.find_entry(hash, |index| entries.ticket(*index) == Some(*ticket))
            {
                other.remove();
            }
            let rehash = |index: &u32| hasher.hash_one(entries.ticket(*index));
            self.by_ticket.insert_unique(hash, at.to_u32() << 1 | which, rehash);
        }
    }

    fn forget_tickets(&mut self, at: Handle) {
        let Some(tickets) = self.entries.slab.head(at).map(|head| head.tickets) else { return };
        for (ticket, which) in tickets.iter().zip(0..) {
            let index = at.to_u32() << 1 | which;
            if let Ok(entry) = self.by_ticket.find_entry(self.hasher.hash_one(Some(ticket)), |i| *i == index)
            {
                entry.remove();
            }
        }
    }

    /// Makes a client the newest of its group.
    fn link(&mut self, at: Handle) {
        let Some((_, issuer)) = self.entries.common(at).copied() else { return };
        let group = self.groups.entry(issuer).or_insert(Group::EMPTY);
        self.changes += 1;
        self.ranks.remove(&group.rank(issuer));
        let newest = group.ends.newer;
        self.entries.slab.join(&mut group.ends, newest, at);
        self.entries.slab.join(&mut group.ends, at, Handle::NONE);
        group.len += 1;
        group.changed = self.changes;
        self.ranks.insert(group.rank(issuer));
    }

    fn unlink(&mut self, at: Handle) {
        let Some(Ends { older, newer }) = self.entries.slab.head(at).map(|head| head.neighbours) else {
            return;
        };
        let Some((_, issuer)) = self.entries.common(at).copied() else { return };
        let Some(group) = self.groups.get_mut(&issuer) else { return };
        self.ranks.remove(&group.rank(issuer));
        self.entries.slab.join(&mut group.ends, older, newer);
        group.len -= 1;
        match group.len {
            0 => drop(self.groups.remove(&issuer)),
            _ => drop(self.ranks.insert(group.rank(issuer))),
        }
    }

    /// Evicts the oldest client of the largest group.
    fn evict(&mut self) {
        self.evict_of(self.ranks.last().copied());
    }

    /// Evicts the oldest client of the smallest group; among equal sizes, of the least recently changed one.
    /// So too many groups evict as few clients as possible.
    fn evict_smallest(&mut self) {
        let len = self.ranks.first().map_or(0, |(len, ..)| *len);
        self.evict_of(self.ranks.range(..(len + 1, Reverse(u64::MAX), [0; _])).next_back().copied());
    }

    fn evict_of(&mut self, rank: Option<Rank>) {
        let oldest = rank.and_then(|(.., issuer)| Some(self.groups.get(&issuer)?.ends.older));
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
    }
}

/// A server's cache of clients in memory: the clients that proved their keys most recently. A full cache
/// evicts from the issuer with most clients. A look-up by ticket does not count as use, because any peer can
/// cause one.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::ServerConfig;
/// use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
/// use dunlin_store::MemoryServerCache;
///
/// # fn caching(server: ServerConfig) -> Result<ServerConfig, dunlin::Error> {
/// // The certificates of 10,000 clients.
/// let cache = Arc::new(MemoryServerCache::new(10_000));
/// server.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE)
/// # }
/// ```
pub struct MemoryServerCache {
    clients: Mutex<Clients>,
    capacity: usize,
    max_bytes: usize,
}

impl MemoryServerCache {
    /// Room for `capacity` clients, at least one, and a kilobyte for each.
    pub fn new(capacity: usize) -> Self {
        let max_bytes = capacity.saturating_mul(MEAN_ENTRY).max(MIN_BYTES);
        Self { clients: Mutex::default(), capacity: capacity.max(1), max_bytes }
    }

    /// Limits the bytes of all entries; at least one client is kept. The indexes take some twenty bytes more
    /// for each client, and free slots less than 64 KiB for each length of entries.
    #[must_use]
    pub const fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.lock().by_client.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        // No code panics halfway through a change under this lock.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCache for MemoryServerCache {
    fn find(&self, ticket: &Ticket) -> Option<CachedPeer> {
        let clients = self.lock();
        clients.peer(clients.find(ticket)?)
    }

    fn put(&self, ticket: Ticket, peer: CachedPeer, proven: Option<Ticket>) {
        let Ok(bytes) = peer.to_bytes() else { return };
        let Some((shared, own)) = bytes.split_first_chunk() else { return };
        let settings = *peer.settings().as_bytes();
        let mut clients = self.lock();
        let common = (settings, *shared);
        let client = (CachedPeer::holder(own), &settings);
        let known = proven.and_then(|ticket| clients.find(&ticket));
        let known = known.filter(|at| clients.entries.client(*at) == Some(client));
        let known = known.or_else(|| clients.find_client(client));
        let slab = &clients.entries.slab;
        match known.and_then(|at| Some((at, slab.head(at)?, slab.bytes(at)?))) {
            Some((at, head, kept)) => {
                // A ticket is bound to one Certificate.
                let is_same = kept.first_chunk::<FINGERPRINT_LEN>() == own.first_chunk();
                let older = older_tickets(ticket, &head.tickets, proven).find(|_| is_same);
                let tickets = [ticket, older.unwrap_or(ticket)];
                if kept == own && clients.entries.common(at) == Some(&common) {
                    clients.renew(at, tickets);
                } else {
                    clients.remove(at);
                    clients.insert(common, own, tickets, self.capacity);
                }
            }
            None => clients.insert(common, own, [ticket; 2], self.capacity),
        }
        while clients.by_client.len() > self.capacity
            || clients.entries.slab.in_use() > self.max_bytes && clients.by_client.len() > 1
        {
            clients.evict();
        }
    }
}

impl fmt::Debug for MemoryServerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServerCache").field("clients", &self.len()).finish_non_exhaustive()
    }
}
