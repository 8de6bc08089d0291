//! The two caches over a store that others may be able to write: every record is sealed, and bound to its place.

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

/// Under what a store keeps a record. It is a keyed digest: who reads the store learns no ticket that has not been shown yet, and
/// no name of a server. It begins with the [`KeyId`].
pub type RecordName = [u8; 16];

/// With what the names of all records under one key begin, and by chance few others.
pub type KeyId = [u8; 4];

/// Something sealed, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place.
    pub name: RecordName,
    /// What stands there; sealed, so that it can be kept anywhere.
    pub bytes: Vec<u8>,
}

/// What records are about: a client, or a server. A bounded store forgets all records of one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which one: the name of one of its records.
    pub name: RecordName,
    /// A keyed digest of whom it has its certificate from. A bounded store that is full takes from the largest group first, and there from the owner
    /// that was written longest ago (docs/handshake-cache.md §5, rule 8).
    pub group: [u8; 8],
}

/// A store of records for [`SealedClientCache`] and [`SealedServerCache`]. It need not be trusted with anything but to be there.
pub trait Records: Send + Sync + fmt::Debug {
    /// The record of this name, which may come from an unauthenticated peer: nothing changes by the question, not even what is
    /// forgotten first.
    fn get(&self, name: &RecordName) -> Option<Vec<u8>>;
    /// Keeps these records of one owner in place of all that it had, all at once where the store can. `stale` are those that go, as
    /// far as the cache knows: a store that knows whose a record is need not look at them. A store is bounded and may forget.
    ///
    /// Whether it is done. If not, what the owner had before may be there still, or what it has now may be.
    fn put(&self, owner: &Owner, records: &[Record], stale: &[RecordName]) -> bool;
    /// A cache with this key begins to use the store. One that can tell that it has records, and none under this key, reports
    /// [`CacheFault::OtherKey`](super::CacheFault).
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

/// What a record is: no record is taken for one of another kind.
#[derive(Clone, Copy)]
enum Kind {
    /// What a client keeps of a server.
    Server = 1,
    /// What a server keeps of a client, under a ticket.
    Client = 2,
    /// Under which tickets a server keeps a client.
    Tickets = 3,
}

/// So that the key says nothing elsewhere, and may do other things there.
const SEAL_LABEL: &[u8] = b"dunlin handshake cache 1 seal";
const NAME_LABEL: &[u8] = b"dunlin handshake cache 1 name";

const SETTINGS_LEN: usize = 32;

/// Seals records with a key that is not in the store. Its AEAD is one of the provider's with a key of 256 bits; nonces are
/// random; the additional data are what the record is, the digest of the settings, and the ticket or the name of the server that
/// it is for. So who can write the store can lose records and put back older ones of the same place, which age as ever, and no more.
pub struct Sealer {
    provider: Arc<CryptoProvider>,
    aead: &'static dyn Aead,
    seal: Box<dyn HmacKey>,
    name: Box<dyn HmacKey>,
    id: KeyId,
}

impl Sealer {
    /// With this key, which must be random, and kept elsewhere than the records.
    ///
    /// # Errors
    /// The provider has no AEAD with a key of 32 bytes and a tag of 16.
    pub fn new(provider: Arc<CryptoProvider>, key: &Zeroizing<[u8; MAX_KEY_LEN]>) -> Result<Self, Error> {
        let mut aeads = provider.cipher_suites.iter().map(|suite| suite.aead);
        let aead = aeads.find(|aead| {
            let algorithm = aead.algorithm();
            algorithm.key_len() == MAX_KEY_LEN && algorithm.tag_len() == MAX_TAG_LEN
        });
        let aead = aead.ok_or_else(|| Misuse::Config("no AEAD to seal the handshake cache with".into()))?;
        let root = provider.sha256.hmac(&key[..]);
        let subkey = |label: &[u8]| provider.sha256.hmac(root.sign(&[label]).as_ref());
        let (seal, name) = (subkey(SEAL_LABEL), subkey(NAME_LABEL));
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

    /// A key for each place: a key of AES-GCM bears 2^32 random nonces (NIST SP 800-38D §8.3), which a busy server would spend in
    /// weeks.
    fn key(&self, aad: &[u8]) -> HashOutput {
        self.seal.sign(&[aad])
    }

    /// The digest of the settings, a nonce, the ciphertext and its tag.
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
        let (mut ciphertext, mut tag) = (plaintext.to_vec(), [0; MAX_TAG_LEN]);
        self.aead.key(self.key(&aad).as_ref())?.seal(&nonce, &aad, &mut ciphertext, &mut tag)?;
        let bytes = [&settings[..], &nonce, &ciphertext, &tag].concat();
        Ok(Record { name: self.name(kind, index), bytes })
    }

    /// What was sealed for this place, and the digest of its settings. A bad tag is no entry.
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

/// All lengths but the last are fixed.
fn additional_data(kind: Kind, index: &[u8], settings: &[u8; SETTINGS_LEN]) -> Vec<u8> {
    [&[kind as u8], &settings[..], index].concat()
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("aead", &self.aead.algorithm()).finish_non_exhaustive()
    }
}

/// What a client knows of servers, sealed, in a store. Changes are made one after the other in this process, so a store that is
/// slow holds up the connections to all servers, each for as long as the store may take; of several processes that use one store at
/// the same time, each may show a ticket that the other shows, and so may one after another that could not write it.
#[derive(Debug)]
pub struct SealedClientCache<R> {
    records: R,
    sealer: Sealer,
    /// Of which entries a connection has taken the tickets: in the store they are still there, so that one that breaks off
    /// writes nothing. Where a change could not be written, they stay taken.
    taken: Mutex<HashSet<RecordName>>,
}

impl<R: Records> SealedClientCache<R> {
    /// In this store, which other caches may use as well.
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

    /// The record as it is in the store.
    fn read(&self, name: &RecordName, index: &[u8]) -> Option<CachedServer> {
        let sealed = self.records.get(name)?;
        let (settings, bytes) = self.sealer.open(Kind::Server, index, &sealed)?;
        CachedServer::from_bytes(&bytes, &settings).ok()
    }

    /// Whether the store has this now.
    fn write(&self, key: &CacheKey, name: RecordName, index: &[u8], entry: &CachedServer) -> bool {
        let sealed = entry
            .to_bytes(&key.settings)
            .and_then(|bytes| Ok(self.sealer.seal(Kind::Server, index, &key.settings, &bytes)?));
        // One name with many ports is one peer.
        let owner = Owner { name, group: self.sealer.group(Kind::Server, key.name.as_bytes()) };
        match sealed {
            Ok(record) => self.records.put(&owner, &[record], &[]),
            // What cannot be kept is not what stood there before, either.
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
        // What is not to be shown again may be in a store that cannot be written, or not be read at the moment.
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

/// What a server knows of clients, sealed, in a store that several servers may share. A client has one record for each of its tickets,
/// four at most, and one that says which they are.
#[derive(Debug)]
pub struct SealedServerCache<R> {
    records: R,
    sealer: Sealer,
    /// By a byte of the client's name. Of two connections of one client that are completed at once, each is to see what the other
    /// has written, and other clients need not wait for them.
    changes: [Mutex<()>; 64],
}

impl<R: Records> SealedServerCache<R> {
    /// In this store, which other caches may use as well.
    pub fn new(records: R, sealer: Sealer) -> Self {
        records.used_with(&sealer.id);
        Self { records, sealer, changes: [const { Mutex::new(()) }; 64] }
    }

    /// Keeps others from what there is of this client, until the result is dropped.
    fn lock(&self, [.., byte]: &RecordName) -> Option<MutexGuard<'_, ()>> {
        let lock = self.changes.get(usize::from(*byte) % self.changes.len())?;
        Some(lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fingerprint of the Certificate that the client had, and its tickets, newest first.
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

/// How many tickets a client has: so many names or ports of servers that share the store can it go to in turn.
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
        // A ticket stands for one Certificate.
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
