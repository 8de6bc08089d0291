//! A client's handshake cache in memory.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::cache::{CacheKey, CachedServer, ClientCache, SplitServer};
use hashbrown::HashTable;

use super::grouped_lru::GroupedLru;
use super::memory::{MEAN_ENTRY, MIN_BYTES};
use super::slab::{Ends, Handle, Linked, Slab};

/// The longest name of a server that is kept, in bytes: one byte holds the length. No DNS name is longer (RFC
/// 1035 §2.3.4).
const MAX_NAME: usize = 255;

/// How many different [`Common`]s there can be: a head has room for a number below.
const MAX_COMMONS: usize = 1 << 16;

/// A server by its port and the settings.
type ServerKey = (u16, [u8; 32]);

/// The part of an entry that many servers share.
struct Common {
    settings: [u8; 32],
    /// See [`SplitServer::shared`].
    shared: Box<[u8]>,
    /// How many entries have it. The number of one that no entry has is free.
    users: u32,
}

impl Common {
    const fn size(&self) -> usize {
        size_of::<Self>() + self.shared.len()
    }

    const fn parts(&self) -> (&[u8; 32], &[u8]) {
        (&self.settings, &self.shared)
    }
}

/// Each [`Common`] once, by its number.
#[derive(Default)]
struct Commons {
    all: Vec<Common>,
    free: Vec<u16>,
    numbers: HashTable<u16>,
    in_use: usize,
    hasher: RandomState,
}

impl Commons {
    fn get(&self, number: u16) -> Option<&Common> {
        self.all.get(usize::from(number))
    }

    fn find(&self, settings: &[u8; 32], shared: &[u8]) -> Option<u16> {
        let is_it = |number: &u16| self.get(*number).map(Common::parts) == Some((settings, shared));
        self.numbers.find(self.hasher.hash_one(Some((settings, shared))), is_it).copied()
    }

    /// Whether this part has a number, or can get one.
    fn has_room(&self, settings: &[u8; 32], shared: &[u8]) -> bool {
        self.numbers.len() < MAX_COMMONS || self.find(settings, shared).is_some()
    }

    /// The number of this part for one more entry; `None` if there can be no more numbers.
    fn enter(&mut self, settings: [u8; 32], shared: Vec<u8>) -> Option<u16> {
        if let Some(number) = self.find(&settings, &shared) {
            self.all.get_mut(usize::from(number))?.users += 1;
            return Some(number);
        }
        let hash = self.hasher.hash_one(Some((&settings, &shared[..])));
        let common = Common { settings, shared: shared.into(), users: 1 };
        let size = common.size();
        let number = match self.free.pop() {
            Some(number) => {
                *self.all.get_mut(usize::from(number))? = common;
                number
            }
            None => {
                let number = u16::try_from(self.all.len()).ok()?;
                self.all.push(common);
                number
            }
        };
        self.in_use += size;
        let all = &self.all;
        let hasher = &self.hasher;
        let rehash = |number: &u16| hasher.hash_one(all.get(usize::from(*number)).map(Common::parts));
        self.numbers.insert_unique(hash, number, rehash);
        Some(number)
    }

    /// Counts one entry less for this number, and frees it with the last one.
    fn leave(&mut self, number: u16) {
        let Some(common) = self.all.get_mut(usize::from(number)) else { return };
        common.users -= 1;
        if common.users > 0 {
            return;
        }
        let hash = self.hasher.hash_one(Some(common.parts()));
        self.in_use -= common.size();
        common.shared = Box::default();
        if let Ok(entry) = self.numbers.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.free.push(number);
    }
}

/// The head of an entry.
#[derive(Clone, Copy, Default)]
struct Head {
    /// The neighbours in the order of use.
    neighbours: Ends,
    /// The number of its [`Common`].
    common: [u8; 2],
    /// Whether a connection has its tickets.
    is_taken: bool,
}

impl Linked for Head {
    fn neighbours(&mut self) -> &mut Ends {
        &mut self.neighbours
    }
}

/// The servers. Each entry is in the slab: the length of the name, the name, the port, and
/// [`SplitServer::own`].
struct Servers {
    slab: Slab<Head>,
    commons: Commons,
    /// The names that have one entry, by name.
    single: HashTable<Handle>,
    /// The names that have several entries. All ports of a name are one peer, and crowded names are evicted
    /// first.
    crowded: GroupedLru<String, ServerKey, Handle>,
    /// The entries that were used longest ago and last.
    ends: Ends,
    len: usize,
    hasher: RandomState,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            slab: Slab::default(),
            commons: Commons::default(),
            single: HashTable::new(),
            crowded: GroupedLru::default(),
            ends: Ends::NONE,
            len: 0,
            hasher: RandomState::new(),
        }
    }
}

impl Servers {
    /// The name, the port and the rest of an entry.
    fn parts(&self, at: Handle) -> Option<(&[u8], u16, &[u8])> {
        let (name, rest) = split_name(self.slab.bytes(at)?)?;
        let (port, own) = rest.split_first_chunk()?;
        Some((name, u16::from_be_bytes(*port), own))
    }

    fn common_of(&self, at: Handle) -> Option<u16> {
        self.slab.head(at).map(|head| u16::from_be_bytes(head.common))
    }

    /// The port and the settings of an entry.
    fn key(&self, at: Handle) -> Option<ServerKey> {
        let (_, port, _) = self.parts(at)?;
        Some((port, self.commons.get(self.common_of(at)?)?.settings))
    }

    fn name(&self, at: Handle) -> Option<String> {
        self.parts(at).map(|(name, ..)| String::from_utf8_lossy(name).into_owned())
    }

    /// The only entry of a name.
    fn single(&self, name: &str) -> Option<Handle> {
        let is_it = |at: &Handle| self.parts(*at).is_some_and(|(of, ..)| of == name.as_bytes());
        self.single.find(self.hasher.hash_one(Some(name.as_bytes())), is_it).copied()
    }

    fn find(&self, key: &CacheKey) -> Option<Handle> {
        let server = (key.port, key.settings);
        let crowded = self.crowded.get(&key.name, &server).copied();
        crowded.or_else(|| self.single(&key.name).filter(|at| self.key(*at) == Some(server)))
    }

    fn entry(&self, at: Handle) -> Option<CachedServer> {
        let (.., own) = self.parts(at)?;
        let Common { settings, shared, .. } = self.commons.get(self.common_of(at)?)?;
        let bytes = SplitServer::join(own, shared).ok()?;
        let mut entry = CachedServer::from_bytes(&bytes, settings).ok()?;
        if self.slab.head(at)?.is_taken {
            entry.clear_tickets();
        }
        Some(entry)
    }

    /// The bytes that all entries take, without the indexes.
    const fn in_use(&self) -> usize {
        self.slab.in_use() + self.commons.in_use
    }

    /// Inserts an entry for a new server as the most recently used one.
    fn insert(&mut self, key: &CacheKey, bytes: &[u8], max_slots: usize) {
        let Ok(SplitServer { own, shared }) = SplitServer::new(bytes) else { return };
        let Some(len) = u8::try_from(key.name.len()).ok().filter(|_| key.name.len() <= MAX_NAME) else {
            return;
        };
        while !self.commons.has_room(&key.settings, &shared) {
            self.evict();
        }
        let Some(common) = self.commons.enter(key.settings, shared) else { return };
        let bytes = [&[len], key.name.as_bytes(), &key.port.to_be_bytes(), &own[..]].concat();
        let head = Head { common: common.to_be_bytes(), ..Head::default() };
        let Some(at) = self.slab.insert(head, &bytes, max_slots) else {
            self.commons.leave(common);
            return;
        };
        self.len += 1;
        self.link(at);
        if let Some(other) = self.single(&key.name)
            && let Some(of_other) = self.key(other)
        {
            self.leave_single(other);
            self.crowded.insert(key.name.clone(), of_other, other);
        } else if self.crowded.len_of(&key.name) == 0 {
            self.enter_single(at);
            return;
        }
        self.crowded.insert(key.name.clone(), (key.port, key.settings), at);
    }

    fn enter_single(&mut self, at: Handle) {
        let slab = &self.slab;
        let hasher = &self.hasher;
        let name = |at: Handle| slab.bytes(at).and_then(split_name).map(|(name, _)| name);
        let hash = |at: &Handle| hasher.hash_one(name(*at));
        self.single.insert_unique(hash(&at), at, hash);
    }

    fn leave_single(&mut self, at: Handle) {
        let hash = self.hasher.hash_one(self.parts(at).map(|(name, ..)| name));
        if let Ok(entry) = self.single.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
    }

    fn remove(&mut self, at: Handle) {
        self.unlink(at);
        let (Some(name), Some(key)) = (self.name(at), self.key(at)) else { return };
        if self.crowded.remove(&name, &key).is_none() {
            self.leave_single(at);
        } else if self.crowded.len_of(&name) == 1
            && let Some((key, last)) = self.crowded.oldest_of(&name).map(|(key, at)| (*key, *at))
        {
            self.crowded.remove(&name, &key);
            self.enter_single(last);
        }
        if let Some(common) = self.common_of(at) {
            self.commons.leave(common);
        }
        let len = self.slab.bytes(at).map_or(0, <[u8]>::len);
        self.slab.remove(at);
        self.len -= 1;
        for at in self.slab.scattered(len) {
            self.relocate(at);
        }
    }

    /// Moves an entry to another page.
    fn relocate(&mut self, from: Handle) {
        let (Some(name), Some(key)) = (self.name(from), self.key(from)) else { return };
        let Some(head) = self.slab.head(from).copied() else { return };
        let Some(bytes) = self.slab.bytes(from).map(<[u8]>::to_vec) else { return };
        let Some(to) = self.slab.insert(head, &bytes, 1) else { return };
        let hash = self.hasher.hash_one(Some(name.as_bytes()));
        if let Some(at) = self.crowded.get_mut(&name, &key) {
            *at = to;
        } else if let Some(at) = self.single.find_mut(hash, |at| *at == from) {
            *at = to;
        }
        let Ends { older, newer } = head.neighbours;
        self.slab.join(&mut self.ends, older, to);
        self.slab.join(&mut self.ends, to, newer);
        self.slab.remove(from);
    }

    /// Makes an entry the one that was used last.
    fn touch(&mut self, at: Handle) {
        self.unlink(at);
        self.link(at);
        if let (Some(name), Some(key)) = (self.name(at), self.key(at)) {
            self.crowded.touch(&name, &key);
        }
    }

    fn link(&mut self, at: Handle) {
        let newest = self.ends.newer;
        self.slab.join(&mut self.ends, newest, at);
        self.slab.join(&mut self.ends, at, Handle::NONE);
    }

    fn unlink(&mut self, at: Handle) {
        if let Some(Ends { older, newer }) = self.slab.head(at).map(|head| head.neighbours) {
            self.slab.join(&mut self.ends, older, newer);
        }
    }

    /// Evicts the least recently used entry of the most crowded name, or of all names if each has one entry.
    fn evict(&mut self) {
        let crowded = self.crowded.oldest().map(|(.., at)| *at);
        match crowded.unwrap_or(self.ends.older) {
            Handle::NONE => {}
            at => self.remove(at),
        }
    }
}

/// The name with which an entry begins, after its length, and the rest.
fn split_name(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = entry.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// A client's cache of servers in memory: the most recently used ones. A full cache evicts from the name with
/// most ports.
///
/// The cache keeps once what servers of one operator share, such as the client's own fingerprint and the
/// CertificateRequest.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::ClientConfig;
/// use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
/// use dunlin_store::MemoryClientCache;
///
/// # fn caching(client: ClientConfig) -> ClientConfig {
/// // The certificates of 100 servers.
/// client.with_handshake_cache(CacheMode::Compact, Arc::new(MemoryClientCache::new(100)), DEFAULT_MAX_AGE)
/// # }
/// ```
pub struct MemoryClientCache {
    servers: Mutex<Servers>,
    capacity: usize,
    max_bytes: usize,
}

impl MemoryClientCache {
    /// Room for `servers` servers, at least one, and a kilobyte for each.
    pub fn new(servers: usize) -> Self {
        let max_bytes = servers.saturating_mul(MEAN_ENTRY).max(MIN_BYTES);
        Self { servers: Mutex::default(), capacity: servers.max(1), max_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Servers> {
        // No code panics halfway through a change under this lock.
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
        let found = servers.find(key);
        let mut entry = found.and_then(|at| servers.entry(at));
        let is_new = entry.is_none();
        let entry = entry.get_or_insert_default();
        change(entry);
        if is_new && *entry == CachedServer::default() {
            return;
        }
        if let Some(at) = found {
            servers.remove(at);
        }
        // An entry that cannot be written leaves none behind.
        if let Ok(bytes) = entry.to_bytes(&key.settings) {
            servers.insert(key, &bytes, self.capacity);
        }
        while servers.len > self.capacity || servers.in_use() > self.max_bytes && servers.len > 0 {
            servers.evict();
        }
    }

    fn take(&self, key: &CacheKey) -> Option<CachedServer> {
        let mut servers = self.lock();
        let at = servers.find(key)?;
        let entry = servers.entry(at);
        servers.touch(at);
        if let Some(head) = servers.slab.head_mut(at) {
            head.is_taken = true;
        }
        entry
    }
}

impl fmt::Debug for MemoryClientCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryClientCache").field("servers", &self.lock().len).finish_non_exhaustive()
    }
}
