//! Records in one file, for devices: it is replaced as a whole, so that a loss of power at any moment leaves the old or the new.

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
use nix::fcntl::OFlag;

use super::grouped::Grouped;
use super::trouble::{
    self, BUSY_TIMEOUT, INCONSISTENT, LOCKED, NO_FILE, NO_STORE, Pause, Reporter, behind_links, beside,
    set_aside,
};
use super::{CacheFault, KeyId, Owner, Record, RecordName, Records, Report};

/// What a file begins and ends with: the format and its version. Either one is enough to know a damaged file by.
const MAGIC: &[u8; 8] = b"dunlnhc2";

/// SHA-256 over all before it. It finds damage, and proves nothing: records are sealed.
const DIGEST_LEN: usize = 32;

/// Of an owner: its name, its group, how many records it has.
const OWNER_HEAD_LEN: usize = 16 + 8 + 4;

/// Of a record: its name and its length.
const RECORD_HEAD_LEN: usize = 16 + 4;

/// The largest file that is read, in bytes: thousands of servers, and little enough for a device.
const MAX_FILE_LEN: u64 = 16 << 20;

/// Records in a file. Every change writes the whole file, and waits in the thread of the handshake until it is on the disk: it is
/// meant for the few servers of a device, or the few hundred clients of a small server.
///
/// Several processes may use one file: a change is made under a lock (a file beside it, ending in `.lock`) and to what the file says
/// then; a lock that another process holds for longer than a quarter of a second is not waited for, and nothing is kept for a while.
/// It is written beside (`.new`), synchronised, renamed, and the directory is synchronised, so what was kept survives a loss of
/// power. A damaged file is set aside (`.damaged`, in place of an older one).
pub struct FileRecords {
    path: PathBuf,
    side: Side,
    sha256: &'static dyn Hash,
    capacity: usize,
    seen: Mutex<Seen>,
    pause: Pause,
    reporter: Reporter,
}

/// What the file said last, and which one it was.
#[derive(Default)]
struct Seen {
    owners: Owners,
    stamp: Option<Stamp>,
}

/// Device, number, length and time of the last change, in seconds and nanoseconds. Two of our files that were written in the same
/// moment may have the same: who writes reads it again in any case.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(of: &Metadata) -> Stamp {
    (of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec())
}

/// How often it is tried to get a lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// The file is the other side's.
#[derive(Debug)]
struct OtherSide;

impl fmt::Display for OtherSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is the store of the other side")
    }
}

impl std::error::Error for OtherSide {}

const fn side_byte(side: Side) -> u8 {
    match side {
        Side::Client => b'c',
        Side::Server => b's',
    }
}

/// Whether a file is one of ours, be it damaged: its beginning or its end shows it, with one byte wrong at most.
fn is_ours(bytes: &[u8]) -> bool {
    let is_magic = |part: &[u8]| part.iter().zip(MAGIC).filter(|(byte, ours)| byte != ours).count() <= 1;
    is_magic(bytes) || bytes.last_chunk::<{ MAGIC.len() }>().is_some_and(|end| is_magic(end))
}

/// All records of all owners.
#[derive(Default)]
struct Owners {
    entries: Grouped<[u8; 8], RecordName, Vec<Record>>,
    by_name: HashMap<RecordName, Owner>,
}

impl FileRecords {
    /// In the file at `path`, which is made if it is not there, with room for so many owners, at least one: servers that a client
    /// knows, or clients that a server knows, by the `side` whose cache this is.
    ///
    /// # Errors
    /// There can be no file at `path`, or it cannot be read, or it is none of ours, or that of the other side. Damage is no error,
    /// but reported.
    pub fn open(
        path: &Path,
        side: Side,
        provider: &Arc<CryptoProvider>,
        capacity: usize,
        report: Report,
    ) -> Result<Self, CacheFault> {
        let (sha256, seen, pause) = (provider.sha256, Mutex::default(), Pause::default());
        let (capacity, reporter) = (capacity.max(1), Reporter::new(report));
        let path = behind_links(path);
        let store = Self { path, side, sha256, capacity, seen, pause, reporter };
        store.read().map_err(|error| store.unusable(&error))?;
        // Who could not write it later hears of it now, and who finds damage keeps others out while it is set aside.
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
        CacheFault::Unusable { store: self.path.display().to_string(), why: trouble::why(error) }
    }

    /// Whether it is written.
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

    /// Keeps other writers out until the result is dropped. The lock is on another file, as a file that is replaced takes its lock
    /// with it.
    fn lock_file(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(beside(&self.path, ".lock"))?;
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

    /// The same, and makes the file where there is none: so the other side finds it taken.
    fn load_or_make(&self, seen: &mut Seen) -> io::Result<()> {
        self.load(seen)?;
        if seen.stamp.is_none() { self.save(seen) } else { Ok(()) }
    }

    /// Sees what the file says, under the lock. A damaged one is set aside.
    fn load(&self, seen: &mut Seen) -> io::Result<()> {
        seen.stamp = None;
        if self.look(seen)? {
            return Ok(());
        }
        self.reporter.tell(&set_aside(&self.path, &[""], INCONSISTENT)?);
        *seen = Seen::default();
        Ok(())
    }

    /// Reads the file again if it is another than that which was seen; whether it is in order. If it is not, nothing is seen.
    fn look(&self, seen: &mut Seen) -> io::Result<bool> {
        let now = fs::metadata(&self.path).ok().map(|found| stamp(&found));
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

    /// What is in the file, if there is one. Whatever is not a store, be it somebody's key, is left alone.
    fn read(&self) -> io::Result<Option<(Vec<u8>, Stamp)>> {
        match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => return Err(io::Error::other(NO_FILE)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let (mut bytes, file) = (Vec::new(), File::open(&self.path)?);
        let stamp = stamp(&file.metadata()?);
        file.take(MAX_FILE_LEN + 1).read_to_end(&mut bytes)?;
        match is_ours(&bytes) {
            true => Ok(Some((bytes, stamp))),
            false => Err(io::Error::new(ErrorKind::InvalidData, NO_STORE)),
        }
    }

    fn save(&self, seen: &mut Seen) -> io::Result<()> {
        let bytes = seen.owners.to_bytes(self.side, self.sha256);
        let new = beside(&self.path, ".new");
        // What another one has left when it was killed, or a link that somebody has put there.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        seen.stamp = Some(stamp(&file.metadata()?));
        // The name is part of the directory, which has to reach the disk as well.
        File::open(trouble::directory_of(&self.path))?.sync_all()
    }

    fn change(&self, change: impl FnOnce(&mut Owners)) -> io::Result<()> {
        let mut seen = self.seen();
        let _locked = self.lock_file()?;
        self.load(&mut seen)?;
        change(&mut seen.owners);
        // Until it is written, the file says something else.
        seen.stamp = None;
        self.save(&mut seen)
    }
}

impl Records for FileRecords {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        let mut seen = self.seen();
        // What is wrong is found again, and told, by the next who writes.
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
        // It may have another issuer now.
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

    /// How long the file is, in bytes.
    fn len(&self) -> u64 {
        let records = self.entries.iter().flat_map(|(_, _, records)| records);
        let heads = OWNER_HEAD_LEN * self.entries.len() + RECORD_HEAD_LEN * self.by_name.len();
        let sealed: u64 = records.map(|record| record.bytes.len() as u64).sum();
        sealed + (2 * MAGIC.len() + 1 + heads + DIGEST_LEN) as u64
    }

    /// The side; of each group the oldest first: the owner, its group, and each record with its length; at the end the digest.
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

/// What [`Owners::to_bytes`] made; `None` for anything else.
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
