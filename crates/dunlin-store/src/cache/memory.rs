//! The handshake cache in memory.

use std::cmp::Reverse;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::cache::{CacheKey, CachedPeer, CachedServer, ClientCache, ServerCache, Ticket};
use hashbrown::HashTable;

use super::grouped::Grouped;
use super::slab::{Handle, Head, Slab};

/// What an entry may take on average, in bytes, if nothing else is said: twice what one with a key of RSA takes.
const MEAN_ENTRY: usize = 1024;

/// Room for a few entries with many names, however few there may be, in bytes.
const MIN_BYTES: usize = 64 << 10;

/// A server by its port and the settings.
type ServerKey = (u16, [u8; 32]);

/// What is kept of a server.
struct Kept {
    bytes: Box<[u8]>,
    /// Whether a connection has its tickets.
    is_taken: bool,
}

impl Kept {
    fn entry(&self, key: &CacheKey) -> Option<CachedServer> {
        let mut entry = CachedServer::from_bytes(&self.bytes, &key.settings).ok()?;
        if self.is_taken {
            entry.clear_tickets();
        }
        Some(entry)
    }
}

#[derive(Default)]
struct Servers {
    /// A name is a group: with many ports it is one peer.
    entries: Grouped<String, ServerKey, Kept>,
    bytes: usize,
}

/// What a client knows of servers, in memory: those that were used last. The name with most ports makes room first.
pub struct MemoryClientCache {
    servers: Mutex<Servers>,
    capacity: usize,
    max_bytes: usize,
}

impl MemoryClientCache {
    /// Room for so many servers, at least one, and a kilobyte for each.
    pub fn new(servers: usize) -> Self {
        let max_bytes = servers.saturating_mul(MEAN_ENTRY).max(MIN_BYTES);
        Self { servers: Mutex::default(), capacity: servers.max(1), max_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Servers> {
        // Nothing that runs under the lock leaves an entry half changed.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryClientCache {
    /// Room for 256 servers.
    fn default() -> Self {
        Self::new(256)
    }
}

impl ClientCache for MemoryClientCache {
    fn update(&self, key: &CacheKey, change: &mut dyn FnMut(&mut CachedServer)) {
        let mut servers = self.lock();
        let server = (key.port, key.settings);
        let mut entry = servers.entries.get(&key.name, &server).and_then(|kept| kept.entry(key));
        let is_new = entry.is_none();
        let entry = entry.get_or_insert_default();
        change(entry);
        if is_new && *entry == CachedServer::default() {
            return;
        }
        let before = match entry.to_bytes(&key.settings) {
            Ok(bytes) => {
                servers.bytes += bytes.len();
                let kept = Kept { bytes: bytes.into(), is_taken: false };
                servers.entries.insert(key.name.clone(), server, kept)
            }
            // What cannot be kept is not what stood there before, either.
            Err(_) => servers.entries.remove(&key.name, &server),
        };
        servers.bytes -= before.map_or(0, |before| before.bytes.len());
        while servers.entries.len() > self.capacity || servers.bytes > self.max_bytes {
            let Some((_, evicted)) = servers.entries.evict() else { break };
            servers.bytes -= evicted.bytes.len();
        }
    }

    fn take(&self, key: &CacheKey) -> Option<CachedServer> {
        let mut servers = self.lock();
        let kept = servers.entries.touch(&key.name, &(key.port, key.settings))?;
        let entry = kept.entry(key);
        kept.is_taken = true;
        entry
    }
}

impl fmt::Debug for MemoryClientCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryClientCache")
            .field("servers", &self.lock().entries.len())
            .finish_non_exhaustive()
    }
}

/// What all clients of one issuer under the same settings have in common: the digest of the settings, and the beginning of their
/// bytes.
type Common = ([u8; 32], [u8; CachedPeer::SHARED_LEN]);

/// The clients of one issuer under the same settings, as a list through their heads.
struct Group {
    common: Common,
    /// The oldest and the newest.
    ends: [Handle; 2],
    len: usize,
    /// When the last one came.
    changed: u64,
}

impl Group {
    /// Its place in the order in which groups make room.
    const fn rank(&self, number: u16) -> (usize, Reverse<u64>, u16) {
        (self.len, Reverse(self.changed), number)
    }
}

const OLDER: usize = 0;
const NEWER: usize = 1;

/// Clients, their groups, and two indexes of four bytes for each name.
#[derive(Default)]
struct Clients {
    slab: Slab,
    /// A handle, and in the last bit which of the two tickets it is.
    by_ticket: HashTable<u32>,
    /// By fingerprint and group.
    by_client: HashTable<Handle>,
    /// Empty ones are free.
    groups: Vec<Group>,
    free: Vec<u16>,
    by_common: HashMap<Common, u16>,
    /// The largest last; of equals the one that nobody came to for longest. None is empty.
    sizes: BTreeSet<(usize, Reverse<u64>, u16)>,
    hasher: RandomState,
    changes: u64,
}

/// The fingerprint follows what is shared.
fn fingerprint(bytes: &[u8]) -> Option<&[u8; 32]> {
    bytes.first_chunk()
}

impl Clients {
    fn ticket(slab: &Slab, index: u32) -> Ticket {
        slab.head(Handle::from_u32(index >> 1)).tickets[index as usize & 1]
    }

    fn find(&self, ticket: &Ticket) -> Option<Handle> {
        let index =
            self.by_ticket.find(self.hasher.hash_one(ticket), |i| Self::ticket(&self.slab, *i) == *ticket);
        index.map(|index| Handle::from_u32(*index >> 1))
    }

    /// The whole entry.
    fn peer(&self, at: Handle) -> Option<CachedPeer> {
        let (settings, shared) = &self.groups.get(usize::from(self.group(at)))?.common;
        CachedPeer::from_bytes(&[&shared[..], self.slab.bytes(at)].concat(), settings).ok()
    }

    fn group(&self, at: Handle) -> u16 {
        u16::from_be_bytes(self.slab.head(at).group)
    }

    fn client_hash(hasher: &RandomState, slab: &Slab, at: Handle) -> u64 {
        hasher.hash_one((fingerprint(slab.bytes(at)), slab.head(at).group))
    }

    fn find_client(&self, common: &Common, own: &[u8]) -> Option<Handle> {
        let key = (fingerprint(own), self.by_common.get(common)?.to_be_bytes());
        let is_it = |at: &Handle| (fingerprint(self.slab.bytes(*at)), self.slab.head(*at).group) == key;
        self.by_client.find(self.hasher.hash_one(key), is_it).copied()
    }

    /// A client that is not there, under these tickets.
    fn insert(&mut self, common: Common, own: &[u8], tickets: [Ticket; 2], max_slots: usize) {
        let Some(number) = self.group_of(common) else { return };
        let group = &mut self.groups[usize::from(number)];
        let head =
            Head { tickets, neighbours: [group.ends[NEWER], Handle::NONE], group: number.to_be_bytes() };
        let at = self.slab.insert(head, own, max_slots);
        self.changes += 1;
        self.sizes.remove(&group.rank(number));
        if let Some(at) = at {
            let newest = std::mem::replace(&mut group.ends[NEWER], at);
            match newest {
                Handle::NONE => group.ends[OLDER] = at,
                newest => self.slab.head_mut(newest).neighbours[NEWER] = at,
            }
            group.len += 1;
            group.changed = self.changes;
        }
        self.rank(number);
        if let Some(at) = at {
            self.index(at, tickets);
        }
    }

    fn index(&mut self, at: Handle, tickets: [Ticket; 2]) {
        let (slab, hasher) = (&self.slab, &self.hasher);
        let rehash = |at: &Handle| Self::client_hash(hasher, slab, *at);
        self.by_client.insert_unique(rehash(&at), at, rehash);
        let count = if tickets[0] == tickets[1] { 1 } else { 2 };
        for (ticket, which) in tickets.iter().zip(0..).take(count) {
            let hash = hasher.hash_one(ticket);
            // Of two clients with one ticket, which is chance, the later one has it.
            if let Ok(other) = self.by_ticket.find_entry(hash, |i| Self::ticket(slab, *i) == *ticket) {
                other.remove();
            }
            let rehash = |index: &u32| hasher.hash_one(Self::ticket(slab, *index));
            self.by_ticket.insert_unique(hash, at.to_u32() << 1 | which, rehash);
        }
    }

    fn remove(&mut self, at: Handle) {
        let head = *self.slab.head(at);
        for (ticket, which) in head.tickets.iter().zip(0..) {
            let index = at.to_u32() << 1 | which;
            if let Ok(entry) = self.by_ticket.find_entry(self.hasher.hash_one(ticket), |i| *i == index) {
                entry.remove();
            }
        }
        let hash = Self::client_hash(&self.hasher, &self.slab, at);
        if let Ok(entry) = self.by_client.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        let number = u16::from_be_bytes(head.group);
        let group = &mut self.groups[usize::from(number)];
        self.sizes.remove(&group.rank(number));
        for (to, from) in [(OLDER, NEWER), (NEWER, OLDER)] {
            match head.neighbours[to] {
                Handle::NONE => group.ends[to] = head.neighbours[from],
                neighbour => self.slab.head_mut(neighbour).neighbours[from] = head.neighbours[from],
            }
        }
        group.len -= 1;
        self.rank(number);
        self.slab.remove(at);
    }

    /// Takes a group into the order again, or frees its number if nobody is in it.
    fn rank(&mut self, number: u16) {
        let group = &self.groups[usize::from(number)];
        if group.len > 0 {
            self.sizes.insert(group.rank(number));
        } else {
            self.by_common.remove(&group.common);
            self.free.push(number);
        }
    }

    /// The number of the group, which may be a new one; `None` if there are no more numbers.
    fn group_of(&mut self, common: Common) -> Option<u16> {
        if let Some(number) = self.by_common.get(&common) {
            return Some(*number);
        }
        let group = Group { common, ends: [Handle::NONE; 2], len: 0, changed: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.groups[usize::from(number)] = group;
                number
            }
            None => {
                let number = u16::try_from(self.groups.len()).ok()?;
                self.groups.push(group);
                number
            }
        };
        self.by_common.insert(common, number);
        Some(number)
    }

    /// Forgets the oldest of the largest group.
    fn evict(&mut self) {
        if let Some((_, _, number)) = self.sizes.last() {
            self.remove(self.groups[usize::from(*number)].ends[OLDER]);
        }
    }
}

/// What a server knows of clients, in memory: those that have proven their key last. The issuer with most clients makes room first.
/// A question for a ticket, which anybody can put, keeps nobody in it.
pub struct MemoryServerCache {
    clients: Mutex<Clients>,
    capacity: usize,
    max_bytes: usize,
}

impl MemoryServerCache {
    /// Room for so many clients, at least one, and a kilobyte for each.
    pub fn new(capacity: usize) -> Self {
        let max_bytes = capacity.saturating_mul(MEAN_ENTRY).max(MIN_BYTES);
        Self { clients: Mutex::default(), capacity: capacity.max(1), max_bytes }
    }

    /// So many bytes for their entries, without the indexes, which take some twenty for each; at least one client is kept.
    #[must_use]
    pub const fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// How many clients there are.
    pub fn len(&self) -> usize {
        self.lock().by_client.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        // Nothing that runs under the lock can fail half-way.
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
        let common = (*peer.settings().as_bytes(), *shared);
        let mut clients = self.lock();
        let before = clients.find_client(&common, own).map(|at| {
            let [newest, _] = clients.slab.head(at).tickets;
            clients.remove(at);
            newest
        });
        clients.insert(common, own, [ticket, proven.or(before).unwrap_or(ticket)], self.capacity);
        while clients.by_client.len() > self.capacity
            || clients.slab.heap() > self.max_bytes && clients.by_client.len() > 1
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
