//! A file of records that are only added, for what must never be forgotten.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cache::CacheFault;
use crate::cache::trouble::{self, LOCKED, behind_links, beside, directory_of};

/// The first bytes of a file: the format and its version.
const MAGIC: &[u8; 8] = b"dunlnrc1";

/// The checksum after each record. It detects a record that a loss of power has cut.
const SUM_LEN: usize = 4;

/// The longest file that is read, in bytes: more than 10 million records.
const MAX_FILE_LEN: u64 = 1 << 30;

/// Records of one length in a file that only grows. One process uses the file at a time, and holds a lock on a file beside it (`.lock`).
///
/// A record is in the file when [`Self::add`] returns, so it outlives the process; it survives a loss of power after the next [`Self::sync`]. The
/// end of the file may be cut by a loss of power, and is then dropped. Other damage is an error: a program that went on without its
/// records would forget what it has to know.
pub struct RecordFile {
    path: PathBuf,
    file: Mutex<File>,
    is_dirty: AtomicBool,
    locked: Mutex<Option<File>>,
}

impl RecordFile {
    /// Opens the file, or creates it if it is missing. Returns its records, oldest first, each of this length.
    ///
    /// # Errors
    /// The file cannot be created, read or locked, belongs to another user, can be written by one, or has other content.
    pub fn open(path: &Path, len: usize) -> Result<(Self, Vec<Vec<u8>>), CacheFault> {
        let path = behind_links(path);
        let opened = Self::try_open(&path, len);
        opened.map_err(|error| CacheFault::Unusable {
            store: path.display().to_string(),
            why: trouble::why(&error),
        })
    }

    fn try_open(path: &Path, len: usize) -> io::Result<(Self, Vec<Vec<u8>>)> {
        let locked = lock(path)?;
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true).mode(0o600);
        let mut file = trouble::open_own(&mut options, path)?;
        if file.metadata()?.len() > MAX_FILE_LEN {
            return Err(io::Error::other("longer than any file of records"));
        }
        let mut content = vec![];
        file.read_to_end(&mut content)?;
        let (records, end) = read(&content, len)?;
        if end == 0 {
            file.set_len(0)?;
            file.write_all(MAGIC)?;
            file.sync_all()?;
            File::open(directory_of(path))?.sync_all()?;
        } else if end < content.len() {
            file.set_len(end as u64)?;
            file.seek(SeekFrom::End(0))?;
        }
        let file = Self {
            path: path.to_owned(),
            file: Mutex::new(file),
            is_dirty: AtomicBool::new(false),
            locked: Mutex::new(Some(locked)),
        };
        Ok((file, records))
    }

    /// Replaces all records, when the file has many that later ones have replaced.
    ///
    /// # Errors
    /// The file cannot be written. It has its previous records then.
    pub fn rewrite<'r>(&self, records: impl IntoIterator<Item = &'r [u8]>) -> Result<(), CacheFault> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = (|| {
            let new = beside(&self.path, ".new");
            let mut options = OpenOptions::new();
            options.create(true).write(true).truncate(true).mode(0o600);
            let mut content = MAGIC.to_vec();
            records.into_iter().for_each(|record| content.extend(with_sum(record)));
            let mut written = trouble::open_own(&mut options, &new)?;
            written.write_all(&content)?;
            written.sync_all()?;
            fs::rename(&new, &self.path)?;
            File::open(directory_of(&self.path))?.sync_all()?;
            *file = trouble::open_own(OpenOptions::new().append(true), &self.path)?;
            Ok(())
        })();
        written.map_err(|error| self.fault(&error))
    }

    /// Waits until all records are on the disk, and lets another process use the file. No record is added afterwards.
    ///
    /// # Errors
    /// The disk fails.
    pub fn close(&self) -> Result<(), CacheFault> {
        let synced = self.sync();
        drop(self.locked.lock().unwrap_or_else(PoisonError::into_inner).take());
        synced
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The file cannot be written, for example for lack of space.
    pub fn add(&self, record: &[u8]) -> Result<(), CacheFault> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if self.locked.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(self.fault(&io::Error::other("closed")));
        }
        // One write, so that the end of the process cuts no record.
        file.write_all(&with_sum(record)).map_err(|error| self.fault(&error))?;
        self.is_dirty.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until all records are on the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> Result<(), CacheFault> {
        if !self.is_dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).try_clone();
        file.and_then(|file| file.sync_data()).map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &io::Error) -> CacheFault {
        CacheFault::Unusable { store: self.path.display().to_string(), why: trouble::why(error) }
    }
}

/// Keeps other processes out until the result is dropped.
fn lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = trouble::open_own(&mut options, &beside(path, ".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(LOCKED)),
    }
}

/// The records of a file, and where the last one ends; 0 for a file without a complete beginning.
fn read(content: &[u8], len: usize) -> io::Result<(Vec<Vec<u8>>, usize)> {
    let Some((magic, entries)) = content.split_first_chunk() else {
        return match MAGIC.starts_with(content) {
            true => Ok((vec![], 0)),
            false => Err(io::Error::other("not a file of records")),
        };
    };
    if magic != MAGIC {
        return Err(io::Error::other("not a file of records"));
    }
    let mut records: Vec<_> = entries.chunks(len + SUM_LEN).map(|entry| record_of(entry, len)).collect();
    // A loss of power leaves nothing whole after the first record that it has cut.
    while records.last().is_some_and(Option::is_none) {
        records.pop();
    }
    let end = MAGIC.len() + records.len() * (len + SUM_LEN);
    let records: Option<Vec<_>> = records.into_iter().collect();
    match records {
        Some(records) => Ok((records, end)),
        None => Err(io::Error::other("damaged: restore it from a backup, or remove it to begin anew")),
    }
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
        content[9] ^= 1;
        fs::write(&path, &content).unwrap();
        let refused = RecordFile::open(&path, 3).unwrap_err().to_string();
        assert!(refused.contains("damaged"), "{refused}");
        fs::write(&path, "-----BEGIN PRIVATE KEY-----").unwrap();
        let refused = RecordFile::open(&path, 3).unwrap_err().to_string();
        assert!(refused.contains("not a file of records"), "{refused}");
        assert!(fs::read(&path).unwrap().starts_with(b"-----BEGIN"));
    }
}
