//! The two caches over a store that others may be able to write. Every record is sealed and bound to its
//! place.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::cache::{CacheKey, CachedPeer, CachedServer, ClientCache, ServerCache, Ticket};
use dunlin::crypto::{
    Aead, CryptoError, CryptoProvider, HashOutput, HmacKey, MAX_KEY_LEN, MAX_TAG_LEN, NONCE_LEN,
};
use dunlin::error::{Error, Misuse};
use zeroize::Zeroizing;

use super::older_tickets;

/// The name of a record in a store: a keyed digest that begins with the [`KeyId`]. So a reader of the store
/// learns no unused ticket and no server name.
pub type RecordName = [u8; 16];

/// The first bytes of the names of all records under one key. Names under other keys begin with it only by
/// chance.
pub type KeyId = [u8; 4];

/// A sealed record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The name under which it is stored.
    pub name: RecordName,
    /// The sealed content, which can be stored anywhere.
    pub bytes: Vec<u8>,
}

/// The subject of records: a client or a server. A bounded store evicts all records of an owner together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of one of its records.
    pub name: RecordName,
    /// A keyed digest of its certificate's issuer. A full store evicts from the largest group the owner that
    /// was written longest ago (docs/handshake-cache.md §5, rule 8).
    pub group: [u8; 8],
}

/// A store of records for [`SealedClientCache`] and [`SealedServerCache`]. It has to be available, and need
/// not be trusted otherwise.
pub trait Records: Send + Sync + fmt::Debug {
    /// Returns the record of this name. The name may come from an unauthenticated peer, so a look-up must not
    /// change anything, not even the order of eviction.
    fn get(&self, name: &RecordName) -> Option<Vec<u8>>;
    /// Replaces all records of an owner by these, atomically if the store can. `stale` names the records to
    /// remove, as far as the cache knows them; a store that knows the owner of a record may ignore it. A
    /// store is bounded and may evict records.
    ///
    /// Returns whether the store did it. If not, the owner may have its previous records, or the new ones.
    fn put(&self, owner: &Owner, records: &[Record], stale: &[RecordName]) -> bool;
    /// Tells the store that a cache with this key starts to use it. If the store can tell that it has
    /// records, but none under this key, it reports [`CacheFault::OtherKey`](super::CacheFault).
    fn used_with(&self, _: &KeyId) {}
}

impl<R: Records + ?Sized> Records for Arc<R> {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        (**self).get(name)
    }

    fn put(&self, owner: &Owner, records: &[Record], stale: &[RecordName]) -> bool {
        (**self).put(owner, records, stale)
    }

    fn used_with(&self, key: &KeyId) {
        (**self).used_with(key);
    }
}

/// The kind of a record. A record of one kind does not open as one of another kind.
#[derive(Clone, Copy)]
enum Kind {
    /// A client's entry about a server.
    Server = 1,
    /// A server's entry about a client, under a ticket.
    Client = 2,
    /// A server's list of the tickets of a client.
    Tickets = 3,
}

/// The first AEAD of the provider with a key of 256 bits and a tag of 128.
pub(crate) fn sealing_aead(provider: &CryptoProvider) -> Option<&'static dyn Aead> {
    let mut aeads = provider.cipher_suites.iter().map(|suite| suite.aead);
    aeads.find(|aead| {
        let algorithm = aead.algorithm();
        algorithm.key_len() == MAX_KEY_LEN && algorithm.tag_len() == MAX_TAG_LEN
    })
}

/// Labels that separate the subkeys from each other and from other uses of the key.
const SEAL_LABEL: &[u8] = b"dunlin handshake cache 1 seal";
const NAME_LABEL: &[u8] = b"dunlin handshake cache 1 name";

const SETTINGS_LEN: usize = 32;

/// Seals records with a key that is not in the store, by an AEAD of the provider with a key of 256 bits and
/// random nonces. The additional data are the kind of the record, the digest of the settings, and the ticket
/// or the server's name. So a writer of the store can remove records, and can restore older ones in the same
/// place, which expire as usual, and nothing else.
pub struct Sealer {
    provider: Arc<CryptoProvider>,
    aead: &'static dyn Aead,
    seal: Box<dyn HmacKey>,
    name: Box<dyn HmacKey>,
    id: KeyId,
}

impl Sealer {
    /// A sealer with this key, which must be random and must not be kept with the records.
    ///
    /// # Errors
    /// The provider has no AEAD with a key of 32 bytes and a tag of 16.
    pub fn new(provider: Arc<CryptoProvider>, key: &Zeroizing<[u8; MAX_KEY_LEN]>) -> Result<Self, Error> {
        let aead = sealing_aead(&provider);
        let aead = aead.ok_or_else(|| Misuse::Config("no AEAD to seal the handshake cache with".into()))?;
        let root = provider.sha256.hmac(&key[..]);
        let subkey = |label: &[u8]| provider.sha256.hmac(root.sign(&[label]).as_ref());
        let seal = subkey(SEAL_LABEL);
        let name = subkey(NAME_LABEL);
        let mut id = KeyId::default();
        id.iter_mut().zip(name.sign(&[b"id"]).as_ref()).for_each(|(to, from)| *to = *from);
        Ok(Self { provider, aead, seal, name, id })
    }

    fn name(&self, kind: Kind, index: &[u8]) -> RecordName {
        let mut name = self.digest::<16>(kind, b"name", index);
        name.iter_mut().zip(self.id).for_each(|(to, from)| *to = from);
        name
    }

    fn group(&self, kind: Kind, of: &[u8]) -> [u8; 8] {
        self.digest(kind, b"from", of)
    }

    /// A keyed digest, cut to `N` bytes.
    fn digest<const N: usize>(&self, kind: Kind, what: &[u8; 4], index: &[u8]) -> [u8; N] {
        let digest = self.name.sign(&[&[kind as u8], what, index]);
        let mut bytes = [0; N];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// The key for one place. A single AES-GCM key allows 2^32 random nonces (NIST SP 800-38D §8.3), which a
    /// busy server would use up in weeks.
    fn key(&self, aad: &[u8]) -> HashOutput {
        self.seal.sign(&[aad])
    }

    /// Seals a record: the digest of the settings, a nonce, the ciphertext and its tag.
    fn seal(
        &self,
        kind: Kind,
        index: &[u8],
        settings: &[u8; SETTINGS_LEN],
        plaintext: &[u8],
    ) -> Result<Record, CryptoError> {
        let aad = additional_data(kind, index, settings);
        let mut nonce = [0; NONCE_LEN];
        self.provider.random.fill(&mut nonce)?;
        let mut ciphertext = plaintext.to_vec();
        let mut tag = [0; MAX_TAG_LEN];
        self.aead.key(self.key(&aad).as_ref())?.seal(&nonce, &aad, &mut ciphertext, &mut tag)?;
        let bytes = [&settings[..], &nonce, &ciphertext, &tag].concat();
        Ok(Record { name: self.name(kind, index), bytes })
    }

    /// Opens a record of this place, and returns the digest of the settings and the content; `None` if the
    /// tag is wrong.
    fn open(&self, kind: Kind, index: &[u8], sealed: &[u8]) -> Option<([u8; SETTINGS_LEN], Vec<u8>)> {
        let (settings, rest) = sealed.split_first_chunk::<SETTINGS_LEN>()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
        let (ciphertext, tag) = rest.split_last_chunk::<MAX_TAG_LEN>()?;
        let aad = additional_data(kind, index, settings);
        let mut plaintext = ciphertext.to_vec();
        self.aead.key(self.key(&aad).as_ref()).ok()?.open(nonce, &aad, &mut plaintext, tag).ok()?;
        Some((*settings, plaintext))
    }
}

/// The encoding is unambiguous: all lengths but the last are fixed.
fn additional_data(kind: Kind, index: &[u8], settings: &[u8; SETTINGS_LEN]) -> Vec<u8> {
    [&[kind as u8], &settings[..], index].concat()
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("aead", &self.aead.algorithm()).finish_non_exhaustive()
    }
}

/// A client's cache of servers, sealed, in a store. A process makes one change at a time, so a slow store
/// delays the connections to all servers. Processes that use one store at the same time may show the same
/// ticket, and so may a process after another one that could not write.
#[derive(Debug)]
pub struct SealedClientCache<R> {
    records: R,
    sealer: Sealer,
    /// Entries whose tickets a connection has taken. The store still has them, so that an aborted connection
    /// writes nothing. They stay taken if a change cannot be written.
    taken: Mutex<HashSet<RecordName>>,
}

impl<R: Records> SealedClientCache<R> {
    /// A cache in this store, which it may share with other caches.
    pub fn new(records: R, sealer: Sealer) -> Self {
        records.used_with(&sealer.id);
        Self { records, sealer, taken: Mutex::default() }
    }

    fn index(key: &CacheKey) -> Vec<u8> {
        [&key.settings[..], &key.port.to_be_bytes(), key.name.as_bytes()].concat()
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<RecordName>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the entry from the store.
    fn read(&self, name: &RecordName, index: &[u8]) -> Option<CachedServer> {
        let sealed = self.records.get(name)?;
        let (settings, bytes) = self.sealer.open(Kind::Server, index, &sealed)?;
        CachedServer::from_bytes(&bytes, &settings).ok()
    }

    /// Writes the entry, and returns whether the store has it.
    fn write(&self, key: &CacheKey, name: RecordName, index: &[u8], entry: &CachedServer) -> bool {
        let sealed = entry
            .to_bytes(&key.settings)
            .and_then(|bytes| Ok(self.sealer.seal(Kind::Server, index, &key.settings, &bytes)?));
        // All ports of one name are one peer.
        let owner = Owner { name, group: self.sealer.group(Kind::Server, key.name.as_bytes()) };
        match sealed {
            Ok(record) => self.records.put(&owner, &[record], &[]),
            // An entry that cannot be sealed must not leave the previous one in place.
            Err(_) => self.records.put(&owner, &[], &[name]),
        }
    }
}

impl<R: Records> ClientCache for SealedClientCache<R> {
    fn update(&self, key: &CacheKey, change: &mut dyn FnMut(&mut CachedServer)) {
        let index = Self::index(key);
        let name = self.sealer.name(Kind::Server, &index);
        let mut taken = self.taken();
        let stored = self.read(&name, &index);
        let before = stored.clone().unwrap_or_default();
        let mut entry = before.clone();
        if taken.contains(&name) {
            entry.clear_tickets();
        }
        change(&mut entry);
        // A used ticket may still be in a store that cannot be written, or cannot be read at the moment.
        let is_stored =
            if entry == before { stored.is_some() } else { self.write(key, name, &index, &entry) };
        if is_stored {
            taken.remove(&name);
        } else if stored.is_some() {
            taken.insert(name);
        }
    }

    fn take(&self, key: &CacheKey) -> Option<CachedServer> {
        let index = Self::index(key);
        let name = self.sealer.name(Kind::Server, &index);
        let mut taken = self.taken();
        let mut entry = self.read(&name, &index)?;
        if !taken.insert(name) {
            entry.clear_tickets();
        }
        Some(entry)
    }
}

/// A server's cache of clients, sealed, in a store that several servers may share. A client has one record
/// for each of its tickets, at most four, and one that lists them.
#[derive(Debug)]
pub struct SealedServerCache<R> {
    records: R,
    sealer: Sealer,
    /// Locks, chosen by a byte of the client's name. If two connections of one client complete at once, each
    /// sees what the other wrote; most other clients do not wait for them.
    changes: [Mutex<()>; 64],
}

impl<R: Records> SealedServerCache<R> {
    /// A cache in this store, which it may share with other caches.
    pub fn new(records: R, sealer: Sealer) -> Self {
        records.used_with(&sealer.id);
        Self { records, sealer, changes: [const { Mutex::new(()) }; 64] }
    }

    /// Locks the records of this client until the result is dropped.
    fn lock(&self, [.., byte]: &RecordName) -> Option<MutexGuard<'_, ()>> {
        let lock = self.changes.get(usize::from(*byte) % self.changes.len())?;
        Some(lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fingerprint of the client's Certificate, and its tickets, newest first.
    fn tickets(&self, client: &[u8]) -> Option<([u8; FINGERPRINT_LEN], Vec<Ticket>)> {
        let sealed = self.records.get(&self.sealer.name(Kind::Tickets, client))?;
        let (_, bytes) = self.sealer.open(Kind::Tickets, client, &sealed)?;
        let (fingerprint, tickets) = bytes.split_first_chunk()?;
        let (tickets, rest) = tickets.as_chunks();
        (rest.is_empty() && (1..=MAX_TICKETS).contains(&tickets.len()))
            .then(|| (*fingerprint, tickets.to_vec()))
    }
}

const FINGERPRINT_LEN: usize = 32;

/// How many tickets a client has. It can use as many names or ports of servers that share the store in turn.
const MAX_TICKETS: usize = 4;

impl<R: Records> ServerCache for SealedServerCache<R> {
    fn find(&self, ticket: &Ticket) -> Option<CachedPeer> {
        let sealed = self.records.get(&self.sealer.name(Kind::Client, ticket))?;
        let (settings, bytes) = self.sealer.open(Kind::Client, ticket, &sealed)?;
        CachedPeer::from_bytes(&bytes, &settings).ok()
    }

    fn put(&self, ticket: Ticket, client: CachedPeer, proven: Option<Ticket>) {
        let settings = client.settings().as_bytes();
        let Ok(bytes) = client.to_bytes() else { return };
        let Some((kind, key)) = bytes.get(CachedPeer::SHARED_LEN..).and_then(CachedPeer::holder) else {
            return;
        };
        let index = [&[kind], key, settings].concat();
        let fingerprint = client.fingerprint().as_bytes();
        let group = self.sealer.group(Kind::Client, client.issuer());
        let owner = Owner { name: self.sealer.name(Kind::Tickets, &index), group };
        let _changes = self.lock(&owner.name);
        let (known, before) = self.tickets(&index).unwrap_or_default();
        // A ticket is bound to one Certificate.
        let older =
            older_tickets(ticket, &before, proven).filter(|_| known == *fingerprint).take(MAX_TICKETS - 1);
        let tickets: Vec<_> = [ticket].into_iter().chain(older).collect();
        let list = [&fingerprint[..], tickets.as_flattened()].concat();
        let list = self.sealer.seal(Kind::Tickets, &index, settings, &list);
        let entries = tickets.iter().map(|ticket| self.sealer.seal(Kind::Client, ticket, settings, &bytes));
        let Ok(records) = [list].into_iter().chain(entries).collect::<Result<Vec<_>, _>>() else { return };
        let stale = before.iter().filter(|old| !tickets.contains(old));
        let stale: Vec<_> = stale.map(|old| self.sealer.name(Kind::Client, old)).collect();
        self.records.put(&owner, &records, &stale);
    }
}
