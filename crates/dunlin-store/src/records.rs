//! A file of records that are only added, for what must never be forgotten.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::unistd::{AccessFlags, access, geteuid};

use crate::cache::CacheFault;
use crate::cache::store_error::LOCKED;
use crate::files::{self, behind_links, beside, directory_of};

/// The first bytes of a file: the format and its version.
const MAGIC: &[u8; 8] = b"dunlnrc1";

/// The checksum after each record. It detects a record that a loss of power has cut.
const SUM_LEN: usize = 4;

/// The longest file that is read, in bytes: more than 10 million records.
const MAX_FILE_LEN: u64 = 1 << 30;

/// How many bytes wait at most for a disk that refuses them: about 20,000 records of what is known.
const MAX_WAITING: usize = 1 << 20;

/// Records of one length in a file that only grows. One process uses the file at a time, and holds a lock on
/// a file beside it (`.lock`).
///
/// A record is in the file when [`Self::add`] returns, so it outlives the process; it survives a loss of
/// power after the next [`Self::sync`]. A record that a full disk refuses waits for the next write. A loss of
/// power may cut the last record, which is then dropped. Other damage is an error: a program that went on
/// without its records would forget what it has to know.
pub struct RecordFile {
    path: PathBuf,
    end: Mutex<End>,
    locked: Mutex<Option<File>>,
}

/// The end of a file, to which records are added.
struct End {
    file: File,
    /// Where the last whole record ends.
    len: u64,
    /// A write has failed, and what it has left behind `len` is still there.
    is_torn: bool,
    is_dirty: bool,
    /// The records that the file does not have yet, with their checksums.
    waiting: Vec<u8>,
}

impl End {
    const fn new(file: File, len: u64) -> Self {
        Self { file, len, is_torn: false, is_dirty: false, waiting: vec![] }
    }

    /// Writes what waits. A part of a record never stays before another one: all later ones would be lost.
    fn write(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.len)?;
            self.is_torn = false;
        }
        // One write, so that the end of the process cuts the last record at most.
        if let Err(error) = self.file.write_all(&self.waiting) {
            self.is_torn = self.file.set_len(self.len).is_err();
            return Err(error);
        }
        self.len += self.waiting.len() as u64;
        self.is_dirty |= !self.waiting.is_empty();
        self.waiting.clear();
        Ok(())
    }
}

impl RecordFile {
    /// Opens the file, or creates it if it is missing. Returns its records, oldest first, each of this
    /// length.
    ///
    /// # Errors
    /// The file cannot be created, read or locked, belongs to another user, can be written by one, or has
    /// other content.
    pub fn open(path: &Path, len: usize) -> Result<(Self, Vec<Vec<u8>>), CacheFault> {
        let path = behind_links(path);
        let opened = Self::try_open(&path, len);
        opened.map_err(|error| CacheFault::Unusable {
            store: path.display().to_string(),
            why: files::why(&error),
        })
    }

    /// Checks that [`Self::open`] could use the file, and returns its records. It creates and changes nothing
    /// and takes no lock, so another process may use the file meanwhile. A missing file has no records.
    ///
    /// # Errors
    /// Those of [`Self::open`], except that root may check the file of another user.
    pub fn check(path: &Path, len: usize) -> Result<Vec<Vec<u8>>, CacheFault> {
        let path = behind_links(path);
        Self::try_check(&path, len).map_err(|error| CacheFault::Unusable {
            store: path.display().to_string(),
            why: files::why(&error),
        })
    }

    fn try_check(path: &Path, len: usize) -> io::Result<Vec<Vec<u8>>> {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = directory_of(path);
                if !fs::metadata(directory)?.is_dir() {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                access(directory, AccessFlags::W_OK | AccessFlags::X_OK)?;
                return Ok(vec![]);
            }
            found => found?,
        };
        // As the file of a service, which an administrator checks.
        let is_foreign = geteuid().is_root() && !files::is_own(&path.symlink_metadata()?);
        let mut file = if is_foreign {
            files::open_file(OpenOptions::new().read(true), path)?
        } else {
            files::open_own(OpenOptions::new().read(true).append(true), path)?
        };
        Ok(read_file(&mut file, len)?.0)
    }

    fn try_open(path: &Path, len: usize) -> io::Result<(Self, Vec<Vec<u8>>)> {
        let locked = lock(path)?;
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true).mode(0o600);
        let mut file = files::open_own(&mut options, path)?;
        let (records, end, content_len) = read_file(&mut file, len)?;
        if end == 0 {
            file.set_len(0)?;
            file.write_all(MAGIC)?;
            file.sync_all()?;
            File::open(directory_of(path))?.sync_all()?;
        } else if end < content_len {
            file.set_len(end as u64)?;
        }
        let end = End::new(file, end.max(MAGIC.len()) as u64);
        let file = Self { path: path.to_owned(), end: Mutex::new(end), locked: Mutex::new(Some(locked)) };
        Ok((file, records))
    }

    /// Replaces all records, when the file has many that later ones have replaced.
    ///
    /// # Errors
    /// The file cannot be written. It has either all previous records or all new ones.
    pub fn rewrite<'r>(&self, records: impl IntoIterator<Item = &'r [u8]>) -> Result<(), CacheFault> {
        let mut end = self.end();
        let written = (|| {
            let new = beside(&self.path, ".new");
            let mut options = OpenOptions::new();
            options.create(true).append(true).mode(0o600);
            let mut content = MAGIC.to_vec();
            records.into_iter().for_each(|record| content.extend(with_sum(record)));
            content.extend(&end.waiting);
            let mut written = files::open_own(&mut options, &new)?;
            written.set_len(0)?;
            written.write_all(&content)?;
            written.sync_all()?;
            fs::rename(&new, &self.path)?;
            *end = End::new(written, content.len() as u64);
            File::open(directory_of(&self.path))?.sync_all()
        })();
        written.map_err(|error| self.fault(&error))
    }

    /// Waits until all records are on the disk, and lets another process use the file. No record is added
    /// afterwards.
    ///
    /// # Errors
    /// The disk fails.
    pub fn close(&self) -> Result<(), CacheFault> {
        let synced = self.sync();
        drop(self.locked.lock().unwrap_or_else(PoisonError::into_inner).take());
        synced
    }

    /// Adds a record. If the file cannot be written, the record waits for the next [`Self::add`] or
    /// [`Self::sync`], within a bound.
    ///
    /// # Errors
    /// The file cannot be written, for example for lack of space.
    pub fn add(&self, record: &[u8]) -> Result<(), CacheFault> {
        let mut end = self.end();
        if self.locked.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(self.fault(&io::Error::other("closed")));
        }
        let record = with_sum(record);
        let has_room = end.waiting.len() + record.len() <= MAX_WAITING;
        if has_room {
            end.waiting.extend(&record);
        }
        end.write().map_err(|error| self.fault(&error))?;
        if !has_room {
            end.waiting = record;
            end.write().map_err(|error| self.fault(&error))?;
        }
        Ok(())
    }

    /// Waits until all records are on the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> Result<(), CacheFault> {
        let file = {
            let mut end = self.end();
            end.write().map_err(|error| self.fault(&error))?;
            if !std::mem::take(&mut end.is_dirty) {
                return Ok(());
            }
            end.file.try_clone()
        };
        let synced = file.and_then(|file| file.sync_data());
        synced.map_err(|error| {
            self.end().is_dirty = true;
            self.fault(&error)
        })
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, error: &io::Error) -> CacheFault {
        CacheFault::Unusable { store: self.path.display().to_string(), why: files::why(error) }
    }
}

/// Keeps other processes out until the result is dropped.
fn lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = files::open_own(&mut options, &beside(path, ".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(LOCKED)),
    }
}

/// The records of a file, where the last one ends (see [`read`]), and the length of the file.
fn read_file(file: &mut File, len: usize) -> io::Result<(Vec<Vec<u8>>, usize, usize)> {
    if file.metadata()?.len() > MAX_FILE_LEN {
        return Err(io::Error::other("longer than any file of records"));
    }
    let mut content = vec![];
    file.read_to_end(&mut content)?;
    let (records, end) = read(&content, len)?;
    Ok((records, end, content.len()))
}

/// The records of a file, and where the last one ends; 0 for a file without a complete beginning.
fn read(content: &[u8], len: usize) -> io::Result<(Vec<Vec<u8>>, usize)> {
    let Some((magic, entries)) = content.split_first_chunk() else {
        return if MAGIC.starts_with(content) {
            Ok((vec![], 0))
        } else {
            Err(io::Error::other("not a file of records"))
        };
    };
    if magic != MAGIC {
        return Err(io::Error::other("not a file of records"));
    }
    // A loss of power can only cut the last record. Bytes that a torn write has left before others would make
    // all later ones unreadable.
    let entries = entries.chunks_exact(len + SUM_LEN);
    let records: Option<Vec<_>> = entries.map(|entry| record_of(entry, len)).collect();
    let damaged = || io::Error::other("damaged: restore it from a backup, or remove it to begin anew");
    let records = records.ok_or_else(damaged)?;
    let end = MAGIC.len() + records.len() * (len + SUM_LEN);
    Ok((records, end))
}

/// The record of an entry with the right checksum.
fn record_of(entry: &[u8], len: usize) -> Option<Vec<u8>> {
    let (record, sum) = entry.split_at_checked(len)?;
    (sum == checksum(record)).then(|| record.to_vec())
}

fn with_sum(record: &[u8]) -> Vec<u8> {
    [record, &checksum(record)].concat()
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> [u8; SUM_LEN] {
    let step = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step).to_be_bytes()
}

impl fmt::Debug for RecordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordFile").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_outlive_the_process_and_a_cut_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let (file, records) = RecordFile::open(&path, 3).unwrap();
        assert!(records.is_empty());
        file.add(b"one").unwrap();
        file.add(b"two").unwrap();
        file.sync().unwrap();
        let refused = RecordFile::open(&path, 3).unwrap_err().to_string();
        assert!(refused.contains(LOCKED), "{refused}");
        drop(file);
        for cut in 1..7 {
            let content = fs::read(&path).unwrap();
            fs::write(&path, &content[..content.len() - cut]).unwrap();
            let (file, records) = RecordFile::open(&path, 3).unwrap();
            assert_eq!(records, [b"one"]);
            file.add(b"two").unwrap();
        }
        let (file, records) = RecordFile::open(&path, 3).unwrap();
        assert_eq!(records, [b"one", b"two"]);
        file.rewrite([&b"two"[..]]).unwrap();
        file.add(b"six").unwrap();
        drop(file);
        assert_eq!(RecordFile::open(&path, 3).unwrap().1, [b"two", b"six"]);
    }

    #[test]
    fn damage_and_other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let (file, _) = RecordFile::open(&path, 3).unwrap();
        file.add(b"one").unwrap();
        file.add(b"two").unwrap();
        drop(file);
        let mut content = fs::read(&path).unwrap();
        // In the first record, and in the last one.
        for at in [9, content.len() - 1] {
            content[at] ^= 1;
            fs::write(&path, &content).unwrap();
            let refused = RecordFile::open(&path, 3).unwrap_err().to_string();
            assert!(refused.contains("damaged"), "{refused}");
            content[at] ^= 1;
        }
        fs::write(&path, "-----BEGIN PRIVATE KEY-----").unwrap();
        let refused = RecordFile::open(&path, 3).unwrap_err().to_string();
        assert!(refused.contains("not a file of records"), "{refused}");
        assert!(fs::read(&path).unwrap().starts_with(b"-----BEGIN"));
    }

    #[test]
    fn a_check_names_what_open_would_refuse_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let files = || fs::read_dir(directory.path()).unwrap().count();
        assert!(RecordFile::check(&path, 3).unwrap().is_empty());
        assert_eq!(files(), 0);
        let (file, _) = RecordFile::open(&path, 3).unwrap();
        file.add(b"one").unwrap();
        // A process that uses the file does not stop the check, which leaves the end of a cut record alone.
        let content = [&fs::read(&path).unwrap()[..], b"tw"].concat();
        fs::write(&path, &content).unwrap();
        assert_eq!(RecordFile::check(&path, 3).unwrap(), [b"one"]);
        assert_eq!((fs::read(&path).unwrap(), files()), (content, 2));
        drop(file);
        fs::write(directory.path().join("key"), "-----BEGIN PRIVATE KEY-----").unwrap();
        for (name, why) in [
            ("key", "not a file of records"),
            ("key/known", "Not a directory"),
            ("absent/known", "No such file or directory"),
            (".", "Is a directory"),
        ] {
            let refused = RecordFile::check(&directory.path().join(name), 3).unwrap_err().to_string();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        assert_eq!(files(), 3);
    }

    #[test]
    fn bytes_of_a_torn_write_before_other_records_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let (file, _) = RecordFile::open(&path, 3).unwrap();
        file.add(b"one").unwrap();
        drop(file);
        let mut content = fs::read(&path).unwrap();
        content.extend([7; 20]);
        content.extend(with_sum(b"two"));
        fs::write(&path, &content).unwrap();
        let refused = RecordFile::open(&path, 3).unwrap_err().to_string();
        assert!(refused.contains("damaged"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), content, "what is left can still be restored");
    }

    /// Gives every write the error of a full disk, and refuses to be cut.
    fn full() -> File {
        OpenOptions::new().append(true).open("/dev/full").unwrap()
    }

    #[test]
    fn a_full_disk_loses_no_record_and_damages_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let (file, _) = RecordFile::open(&path, 3).unwrap();
        file.add(b"one").unwrap();
        let disk = std::mem::replace(&mut file.end().file, full());
        file.add(b"two").unwrap_err();
        file.sync().unwrap_err();
        assert!(file.end().is_torn);
        // The failed write has left a part of its record.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tw").unwrap();
        file.end().file = disk;
        file.add(b"six").unwrap();
        drop(file);
        let (file, records) = RecordFile::open(&path, 3).unwrap();
        assert_eq!(records, [b"one", b"two", b"six"]);

        // A pending record reaches the disk without another record, too, and is part of a rewritten file.
        let disk = std::mem::replace(&mut file.end().file, full());
        file.add(b"ten").unwrap_err();
        file.end().file = disk;
        file.sync().unwrap();
        let disk = std::mem::replace(&mut file.end().file, full());
        file.add(b"two").unwrap_err();
        drop(disk);
        file.rewrite([&b"one"[..]]).unwrap();
        file.add(b"six").unwrap();
        drop(file);
        assert_eq!(RecordFile::open(&path, 3).unwrap().1, [b"one", b"two", b"six"]);
    }

    #[test]
    fn what_waits_for_a_full_disk_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let (file, _) = RecordFile::open(&path, 100_000).unwrap();
        let disk = std::mem::replace(&mut file.end().file, full());
        for _ in 0..20 {
            file.add(&[1; 100_000]).unwrap_err();
        }
        assert!(file.end().waiting.len() <= MAX_WAITING);
        file.end().file = disk;
        file.add(&[2; 100_000]).unwrap();
        drop(file);
        let records = RecordFile::open(&path, 100_000).unwrap().1;
        assert_eq!(records.len(), 11);
        assert_eq!(records[10], [2; 100_000]);
    }
}
