//! The IDs of the files that may still be thawed, and their store in a directory.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use nix::unistd::geteuid;

use crate::files;

/// The random ID of a file of frozen associations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub [u8; 16]);

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The store of IDs did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdsFault {
    /// The store.
    pub store: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for IdsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.store, self.why)
    }
}

impl std::error::Error for IdsFault {}

/// A store of the IDs of files that may still be thawed, shared by all servers that may thaw them. Its
/// changes must outlast a loss of power.
pub trait FrozenIds: Send + Sync + fmt::Debug {
    /// Adds the ID of a new file.
    ///
    /// # Errors
    /// The store may not have it.
    fn put(&self, id: &FileId) -> Result<(), IdsFault>;

    /// Removes an ID, and returns whether the store had it. Of all calls with one ID, at most one returns
    /// true.
    ///
    /// # Errors
    /// It is unknown whether the store had it. It may be removed nevertheless.
    fn take(&self, id: &FileId) -> Result<bool, IdsFault>;
}

/// The IDs as empty files in a directory. Processes of several machines may share it if its file system
/// removes files atomically, as local ones and NFS do.
#[derive(Debug)]
pub struct DirectoryIds {
    path: PathBuf,
}

impl DirectoryIds {
    /// Uses this directory, and creates it with mode 0700 if it is missing.
    ///
    /// # Errors
    /// It cannot be created, is no directory, belongs to another user, or can be written by one: such a user
    /// could let a file be thawed twice.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, IdsFault> {
        let ids = Self { path: path.into() };
        ids.prepare().map_err(|error| ids.fault(&error))?;
        Ok(ids)
    }

    fn prepare(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = fs::metadata(&self.path)?;
        if !found.is_dir() {
            return Err(io::Error::other("not a directory"));
        }
        if !files::is_own(&found) {
            let why =
                format!("it belongs to user {}, not to user {} of this process", found.uid(), geteuid());
            return Err(io::Error::other(why));
        }
        let mode = found.mode() & 0o777;
        if mode & 0o022 != 0 {
            let why =
                format!("other users can write it (mode {mode:04o}): chmod go-w {}", self.path.display());
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    fn fault(&self, error: &io::Error) -> IdsFault {
        IdsFault { store: self.path.display().to_string(), why: files::why(error) }
    }

    /// Lets a change reach the disk.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn file(&self, id: &FileId) -> PathBuf {
        self.path.join(id.to_string())
    }
}

impl FrozenIds for DirectoryIds {
    fn put(&self, id: &FileId) -> Result<(), IdsFault> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.file(id));
        let put = file.and_then(|file| file.sync_all()).and_then(|()| self.sync());
        put.map_err(|error| self.fault(&error))
    }

    fn take(&self, id: &FileId) -> Result<bool, IdsFault> {
        let taken = match fs::remove_file(self.file(id)) {
            // The directory may be gone, too.
            Err(error) if error.kind() == ErrorKind::NotFound => self.sync().map(|()| false),
            Err(error) => Err(error),
            Ok(()) => self.sync().map(|()| true),
        };
        taken.map_err(|error| self.fault(&error))
    }
}
