//! Records in one file, for devices: it is replaced as a whole, so that a loss of power at any moment leaves the old or the new.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem};

use dunlin::crypto::{CryptoProvider, Hash};

use super::grouped::Grouped;
use super::{CacheFault, Owner, Record, RecordName, Records, Report, Reporter, set_aside};

/// What a file begins with: the format and its version.
const MAGIC: &[u8; 8] = b"dunlnhc1";

/// SHA-256 over all before it, at the end. It finds damage, and proves nothing: records are sealed.
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
/// then. It is written beside (`.new`), synchronised, renamed, and the directory is synchronised, so what was kept survives a loss of
/// power. A damaged file is set aside (`.damaged`, in place of an older one).
pub struct FileRecords {
    path: PathBuf,
    sha256: &'static dyn Hash,
    capacity: usize,
    owners: Mutex<Owners>,
    reporter: Reporter,
}

/// All records of all owners.
#[derive(Default)]
struct Owners {
    entries: Grouped<[u8; 8], RecordName, Vec<Record>>,
    by_name: HashMap<RecordName, Owner>,
}

impl FileRecords {
    /// In the file at `path`, which need not be there, with room for so many owners, at least one: servers or clients.
    ///
    /// # Errors
    /// There can be no file at `path`, or it cannot be read, or it is none of ours. Damage is no error, but reported.
    pub fn open(
        path: &Path,
        provider: &Arc<CryptoProvider>,
        capacity: usize,
        report: Report,
    ) -> Result<Self, CacheFault> {
        let (sha256, owners) = (provider.sha256, Mutex::default());
        let (capacity, reporter) = (capacity.max(1), Reporter::new(report));
        // A link stays, and what it points to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let store = Self { path, sha256, capacity, owners, reporter };
        store.read().map_err(|error| store.unusable(&error))?;
        // Who could not write it later hears of it now, and who finds damage keeps others out while it is set aside.
        let locked = store.lock_file().map_err(|error| store.unusable(&error))?;
        *store.owners() = store.load().map_err(|error| store.unusable(&error))?;
        drop(locked);
        Ok(store)
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unusable(&self, error: &io::Error) -> CacheFault {
        CacheFault::Unusable { store: self.path.display().to_string(), why: error.to_string() }
    }

    /// The path with something more at its end.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    /// Keeps other writers out until the result is dropped. The lock is on another file, as a file that is replaced takes its lock
    /// with it.
    fn lock_file(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.beside(".lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// What the file says, under the lock. A damaged one is set aside.
    fn load(&self) -> io::Result<Owners> {
        let Some(bytes) = self.read()? else { return Ok(Owners::default()) };
        if let Some(owners) = parse(&bytes, self.sha256) {
            return Ok(owners);
        }
        self.reporter.fault(set_aside(&self.path, &[""], "damaged")?);
        Ok(Owners::default())
    }

    /// What is in the file, if there is one. Whatever is not a store, be it somebody's key, is left alone.
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => return Err(io::Error::other("it is no file")),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut bytes = Vec::new();
        File::open(&self.path)?.take(MAX_FILE_LEN + 1).read_to_end(&mut bytes)?;
        // One byte of the beginning may be damaged, too.
        let others = bytes.iter().zip(MAGIC).filter(|(byte, ours)| byte != ours).count();
        match others > 1 {
            true => Err(io::Error::new(ErrorKind::InvalidData, "it is no handshake cache")),
            false => Ok(Some(bytes)),
        }
    }

    fn save(&self, owners: &Owners) -> io::Result<()> {
        let bytes = owners.to_bytes(self.sha256);
        let new = self.beside(".new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // The name is part of the directory, which has to reach the disk as well.
        let directory = self.path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }

    fn change(&self, change: impl FnOnce(&mut Owners)) -> io::Result<()> {
        let mut owners = self.owners();
        let _locked = self.lock_file()?;
        *owners = self.load()?;
        change(&mut owners);
        self.save(&owners)
    }
}

impl Records for FileRecords {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        let owners = self.owners();
        let owner = owners.by_name.get(name)?;
        let mut records = owners.entries.get(&owner.group, &owner.name)?.iter();
        records.find(|record| record.name == *name).map(|record| record.bytes.clone())
    }

    fn put(&self, owner: &Owner, records: &[Record], stale: &[RecordName]) {
        let changed = self.change(|owners| {
            owners.put(owner, records, stale);
            while owners.entries.len() > self.capacity || owners.len() > MAX_FILE_LEN {
                owners.evict();
            }
        });
        match changed {
            Ok(()) => self.reporter.works(),
            Err(error) => self.reporter.fault(self.unusable(&error)),
        }
    }
}

impl fmt::Debug for FileRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRecords").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Owners {
    fn put(&mut self, owner: &Owner, records: &[Record], stale: &[RecordName]) {
        // It may have another issuer now.
        let group = self.by_name.get(&owner.name).map_or(owner.group, |before| before.group);
        let mut kept = self.entries.remove(&group, &owner.name).unwrap_or_default();
        self.forget(&kept);
        kept.retain(|old| !stale.contains(&old.name) && records.iter().all(|new| new.name != old.name));
        kept.extend_from_slice(records);
        if !kept.is_empty() {
            self.insert(*owner, kept);
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
        sealed + (MAGIC.len() + heads + DIGEST_LEN) as u64
    }

    /// Of each group the oldest first: the owner, its group, and each record with its length; at the end the digest.
    fn to_bytes(&self, sha256: &dyn Hash) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
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
        bytes
    }
}

/// What [`Owners::to_bytes`] made; `None` for anything else.
fn parse(bytes: &[u8], sha256: &dyn Hash) -> Option<Owners> {
    let (content, digest) = bytes.split_last_chunk::<DIGEST_LEN>()?;
    if bytes.len() as u64 > MAX_FILE_LEN || sha256.hash(&[content]).as_ref() != digest {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?;
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
    Some(owners)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
