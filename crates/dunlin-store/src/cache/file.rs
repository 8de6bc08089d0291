//! Records in one file, for devices. Each change replaces the whole file, so a loss of power leaves the old
//! or the new one.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, mem, thread};

use dunlin::Side;
use dunlin::crypto::{CryptoProvider, Hash};

use super::grouped_lru::GroupedLru;
use super::store_error::{BUSY_TIMEOUT, INCONSISTENT, LOCKED, NO_STORE, Pause, Reporter, set_aside};
use super::{CacheFault, KeyId, Owner, Record, RecordName, Records, Report};
use crate::files::{self, behind_links, beside};

/// The first and last bytes of a file: the format and its version. Either one identifies a damaged file.
const MAGIC: &[u8; 8] = b"dunlnhc2";

/// SHA-256 of all bytes before it. It detects damage only; against forgery, records are sealed.
const DIGEST_LEN: usize = 32;

/// The head of an owner: its name, its group, its number of records.
const OWNER_HEAD_LEN: usize = 16 + 8 + 4;

/// The head of a record: its name and its length.
const RECORD_HEAD_LEN: usize = 16 + 4;

/// The largest file that is read, in bytes: room for thousands of servers, and small enough for a device.
const MAX_FILE_LEN: u64 = 16 << 20;

/// Records in a file. Each change writes the whole file, and the thread of the handshake waits until it is on
/// the disk. So a file suits the few servers of a device, or the few hundred clients of a small server.
///
/// Several processes may use one file. A process locks a file beside it (`.lock`), reads the store, and then
/// changes it. It waits a quarter of a second for the lock; after that, the store drops changes for a while.
/// A change is written to a new file (`.new`), synchronised and renamed, and the directory is synchronised,
/// so it survives a loss of power. A damaged file is renamed (`.damaged`, which replaces an older one).
///
/// # Examples
/// [`CacheStore`](super::CacheStore) opens a file together with its key. With a key of the program's own:
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use dunlin::Side;
/// use dunlin::crypto::CryptoProvider;
/// use dunlin_store::cache::{CacheFault, FileRecords, SealedClientCache, Sealer};
/// use zeroize::Zeroizing;
///
/// # fn open(
/// #     provider: Arc<CryptoProvider>,
/// #     key: Zeroizing<[u8; 32]>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let (path, report) = (Path::new("servers.cache"), Box::new(|fault: &CacheFault| eprintln!("{fault}")));
/// let records = FileRecords::open(path, Side::Client, &provider, 100, report)?;
/// let cache = SealedClientCache::new(records, Sealer::new(provider, &key)?); // for `with_handshake_cache`
/// # drop(cache);
/// # Ok(())
/// # }
/// ```
pub struct FileRecords {
    path: PathBuf,
    side: Side,
    sha256: &'static dyn Hash,
    capacity: usize,
    seen: Mutex<Seen>,
    pause: Pause,
    reporter: Reporter,
}

/// The content of the file when it was last read, and which file that was.
#[derive(Default)]
struct Seen {
    owners: Owners,
    stamp: Option<Stamp>,
}

/// Device, inode, length, and the time of the last change in seconds and nanoseconds. Two files that were
/// written at the same moment may share a stamp, so a writer always reads the file again.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(of: &Metadata) -> Stamp {
    (of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec())
}

/// The interval between attempts to get the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// The file belongs to the other side.
#[derive(Debug)]
struct OtherSide;

impl fmt::Display for OtherSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store belongs to the other side")
    }
}

impl std::error::Error for OtherSide {}

const fn side_byte(side: Side) -> u8 {
    match side {
        Side::Client => b'c',
        Side::Server => b's',
    }
}

/// Whether a file is a store, damaged or not: its first or last bytes match, except for one byte at most.
fn is_ours(bytes: &[u8]) -> bool {
    let is_magic = |part: &[u8]| part.iter().zip(MAGIC).filter(|(byte, ours)| byte != ours).count() <= 1;
    is_magic(bytes) || bytes.last_chunk::<{ MAGIC.len() }>().is_some_and(|end| is_magic(end))
}

/// All records of all owners.
#[derive(Default)]
struct Owners {
    entries: GroupedLru<[u8; 8], RecordName, Vec<Record>>,
    by_name: HashMap<RecordName, Owner>,
}

impl FileRecords {
    /// Opens the file at `path`, or creates it if it is missing. `side` is the side whose cache this is. The
    /// file has room for `capacity` owners, at least one: servers that a client knows, or clients that a
    /// server knows.
    ///
    /// # Errors
    /// The file cannot be created or read, belongs to another user, can be written by one, is not a handshake
    /// cache, or belongs to the other side. Damage is reported, and is no error.
    pub fn open(
        path: &Path,
        side: Side,
        provider: &Arc<CryptoProvider>,
        capacity: usize,
        report: Report,
    ) -> Result<Self, CacheFault> {
        let sha256 = provider.sha256;
        let seen = Mutex::default();
        let pause = Pause::default();
        let capacity = capacity.max(1);
        let reporter = Reporter::new(report);
        let path = behind_links(path);
        let store = Self { path, side, sha256, capacity, seen, pause, reporter };
        store.read().map_err(|error| store.unusable(&error))?;
        // Locking finds missing permissions now, and keeps other processes out while a damaged file is set
        // aside.
        match store.lock_file().and_then(|_locked| store.load_or_make(&mut store.seen())) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(store.unusable(&error)),
            loaded => drop(store.tell(loaded)),
        }
        Ok(store)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unusable(&self, error: &io::Error) -> CacheFault {
        if error.get_ref().is_some_and(|error| error.is::<OtherSide>()) {
            return CacheFault::OtherSide { store: self.path.clone(), of: self.side.peer() };
        }
        CacheFault::Unusable { store: self.path.display().to_string(), why: files::why(error) }
    }

    /// Reports the result of a write, and returns whether it succeeded.
    fn tell(&self, written: io::Result<()>) -> bool {
        match &written {
            Ok(()) => {
                self.pause.end();
                self.reporter.works(|| self.path.display().to_string());
            }
            Err(error) => {
                self.pause.begin();
                self.reporter.fails(|| self.unusable(error));
            }
        }
        written.is_ok()
    }

    /// Keeps other writers out until the result is dropped. The lock is on a file of its own, because
    /// replacing the store would lose a lock on it.
    fn lock_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = files::open_own(&mut options, &beside(&self.path, ".lock"))?;
        let until = Instant::now() + BUSY_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOCK_INTERVAL),
                Err(TryLockError::WouldBlock) => return Err(io::Error::new(ErrorKind::WouldBlock, LOCKED)),
            }
        }
    }

    /// Loads the file, or creates it if it is missing, so that the other side finds it taken.
    fn load_or_make(&self, seen: &mut Seen) -> io::Result<()> {
        self.load(seen)?;
        if seen.stamp.is_none() { self.save(seen) } else { Ok(()) }
    }

    /// Loads the file, under the lock. A damaged file is set aside.
    fn load(&self, seen: &mut Seen) -> io::Result<()> {
        seen.stamp = None;
        if self.look(seen)? {
            return Ok(());
        }
        self.reporter.tell(&set_aside(&self.path, &[""], INCONSISTENT)?);
        *seen = Seen::default();
        Ok(())
    }

    /// Reads the file again if it changed. Returns false, with nothing loaded, if it is damaged.
    fn look(&self, seen: &mut Seen) -> io::Result<bool> {
        let now = fs::symlink_metadata(&self.path).ok().map(|found| stamp(&found));
        if seen.stamp.is_some() && seen.stamp == now {
            return Ok(true);
        }
        *seen = Seen::default();
        let Some((bytes, stamp)) = self.read()? else { return Ok(true) };
        let Some((side, owners)) = parse(&bytes, self.sha256) else { return Ok(false) };
        if side != self.side {
            return Err(io::Error::other(OtherSide));
        }
        *seen = Seen { owners, stamp: Some(stamp) };
        Ok(true)
    }

    /// The content of the file, if it exists. A foreign file, such as a private key, is an error.
    fn read(&self) -> io::Result<Option<(Vec<u8>, Stamp)>> {
        let file = match files::open_own(OpenOptions::new().read(true), &self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        let stamp = stamp(&file.metadata()?);
        file.take(MAX_FILE_LEN + 1).read_to_end(&mut bytes)?;
        if is_ours(&bytes) {
            Ok(Some((bytes, stamp)))
        } else {
            Err(io::Error::new(ErrorKind::InvalidData, NO_STORE))
        }
    }

    fn save(&self, seen: &mut Seen) -> io::Result<()> {
        let bytes = seen.owners.to_bytes(self.side, self.sha256);
        let new = beside(&self.path, ".new");
        // Remove the remains of a killed process, or a link that another user created.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        seen.stamp = Some(stamp(&file.metadata()?));
        // The directory holds the name, so it has to reach the disk, too.
        File::open(files::directory_of(&self.path))?.sync_all()
    }

    fn change(&self, change: impl FnOnce(&mut Owners)) -> io::Result<()> {
        let mut seen = self.seen();
        let _locked = self.lock_file()?;
        self.load(&mut seen)?;
        change(&mut seen.owners);
        // The file differs from memory until it is written.
        seen.stamp = None;
        self.save(&mut seen)
    }
}

impl Records for FileRecords {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        let mut seen = self.seen();
        // The next write finds and reports a failure.
        self.look(&mut seen).ok()?;
        let owner = seen.owners.by_name.get(name)?;
        let mut records = seen.owners.entries.get(&owner.group, &owner.name)?.iter();
        records.find(|record| record.name == *name).map(|record| record.bytes.clone())
    }

    fn put(&self, owner: &Owner, records: &[Record], _: &[RecordName]) -> bool {
        let change = |owners: &mut Owners| {
            owners.put(owner, records);
            while owners.entries.len() > self.capacity || owners.len() > MAX_FILE_LEN {
                owners.evict();
            }
        };
        !self.pause.is_on() && self.tell(self.change(change))
    }

    fn used_with(&self, key: &KeyId) {
        let names = &self.seen().owners.by_name;
        if !names.is_empty() && !names.keys().any(|name| name.starts_with(key)) {
            self.reporter.tell(&CacheFault::OtherKey { store: self.path.display().to_string() });
        }
    }
}

impl fmt::Debug for FileRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRecords").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Owners {
    fn put(&mut self, owner: &Owner, records: &[Record]) {
        // The owner may have a new issuer, and so another group.
        let group = self.by_name.get(&owner.name).map_or(owner.group, |before| before.group);
        if let Some(before) = self.entries.remove(&group, &owner.name) {
            self.forget(&before);
        }
        if !records.is_empty() {
            self.insert(*owner, records.to_vec());
        }
    }

    fn insert(&mut self, owner: Owner, records: Vec<Record>) {
        self.by_name.extend(records.iter().map(|record| (record.name, owner)));
        self.entries.insert(owner.group, owner.name, records);
    }

    fn forget(&mut self, records: &[Record]) {
        for record in records {
            self.by_name.remove(&record.name);
        }
    }

    fn evict(&mut self) {
        if let Some((_, records)) = self.entries.evict() {
            self.forget(&records);
        }
    }

    /// The length of the file in bytes.
    fn len(&self) -> u64 {
        let records = self.entries.iter().flat_map(|(_, _, records)| records);
        let heads = OWNER_HEAD_LEN * self.entries.len() + RECORD_HEAD_LEN * self.by_name.len();
        let sealed: u64 = records.map(|record| record.bytes.len() as u64).sum();
        sealed + (2 * MAGIC.len() + 1 + heads + DIGEST_LEN) as u64
    }

    /// The format: magic, side, owners, digest, magic. Each owner has its name, its group and its records;
    /// each group is oldest first.
    fn to_bytes(&self, side: Side, sha256: &dyn Hash) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(side_byte(side));
        for (group, owner, records) in self.entries.iter() {
            bytes.extend_from_slice(owner);
            bytes.extend_from_slice(group);
            bytes.extend_from_slice(&(records.len() as u32).to_be_bytes());
            for Record { name, bytes: sealed } in records {
                bytes.extend_from_slice(name);
                bytes.extend_from_slice(&(sealed.len() as u32).to_be_bytes());
                bytes.extend_from_slice(sealed);
            }
        }
        let digest = sha256.hash(&[&bytes]);
        bytes.extend_from_slice(digest.as_ref());
        bytes.extend_from_slice(MAGIC);
        bytes
    }
}

/// Parses the output of [`Owners::to_bytes`]; `None` for anything else.
fn parse(bytes: &[u8], sha256: &dyn Hash) -> Option<(Side, Owners)> {
    let (content, digest) = bytes.strip_suffix(MAGIC)?.split_last_chunk::<DIGEST_LEN>()?;
    if bytes.len() as u64 > MAX_FILE_LEN || sha256.hash(&[content]).as_ref() != digest {
        return None;
    }
    let (side, mut rest) = content.strip_prefix(MAGIC)?.split_first()?;
    let side = [Side::Client, Side::Server].into_iter().find(|of| side_byte(*of) == *side)?;
    let mut owners = Owners::default();
    while !rest.is_empty() {
        let owner = Owner { name: take(&mut rest)?, group: take(&mut rest)? };
        let count = u32::from_be_bytes(take(&mut rest)?);
        let record = |_| {
            let name = take(&mut rest)?;
            let len = u32::from_be_bytes(take(&mut rest)?);
            let (sealed, after) = mem::take(&mut rest).split_at_checked(len as usize)?;
            rest = after;
            Some(Record { name, bytes: sealed.to_vec() })
        };
        let records = (0..count).map(record).collect::<Option<_>>()?;
        owners.insert(owner, records);
    }
    Some((side, owners))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
