//! The file with the key that seals a store.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use dunlin::crypto::{CryptoError, CryptoProvider, MAX_KEY_LEN};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use zeroize::Zeroizing;

use crate::files::{self, NO_FILE};

/// The key of a store, or one that several servers share.
pub type Key = Zeroizing<[u8; MAX_KEY_LEN]>;

/// Why a key file cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyFault {
    /// It is missing, and must be copied from another server.
    Missing,
    /// It is no regular file.
    NotAFile,
    /// It is a symbolic link, which another user may have created.
    SymbolicLink,
    /// Another user owns it and can read or replace the key; the value is the owner's number.
    Owner(u32),
    /// Users other than its owner have access to it; the value is its mode.
    Access(u32),
    /// Its length in bytes is not the length of a key.
    Length(u64),
    /// It cannot be read.
    Unreadable(io::Error),
    /// A new key file cannot be written.
    Unwritable(io::Error),
    /// The provider returned no random bytes for a new key.
    Random(CryptoError),
}

impl KeyFault {
    /// Advice for the user; `file` is the key file.
    pub fn advice(&self, file: &Path) -> String {
        let file = file.display();
        match self {
            Self::Missing => format!(
                "copy it from a server that has it; for the first one: (umask 077; head -c 32 /dev/urandom > {file})"
            ),
            Self::SymbolicLink => "name the file that the link points to".to_owned(),
            Self::Owner(_) => format!("chown {} {file}, or name a new file for a new key", geteuid()),
            Self::Access(_) => format!("chmod 600 {file}"),
            Self::NotAFile | Self::Length(_) => {
                "give the key of this store, or the path of a new file".to_owned()
            }
            Self::Unreadable(_) => "give a file that can be read".to_owned(),
            Self::Unwritable(error) if files::is_full(error).is_some() => "make room".to_owned(),
            Self::Unwritable(_) => "give a path that can be written to".to_owned(),
            Self::Random(_) => "look at the system's random source".to_owned(),
        }
    }
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no such key"),
            Self::NotAFile => f.write_str(NO_FILE),
            Self::SymbolicLink => f.write_str("it is a symbolic link"),
            Self::Owner(owner) => {
                write!(f, "it belongs to user {owner}, not to user {} of this process", geteuid())
            }
            Self::Access(mode) => {
                write!(f, "other users can read or write the key in it (mode {mode:04o})")
            }
            Self::Length(len) => {
                write!(f, "it has {len} bytes, and a key has {MAX_KEY_LEN}")
            }
            Self::Unreadable(error) => write!(f, "{error}"),
            Self::Unwritable(error) => match files::is_full(error) {
                Some(full) => f.write_str(full),
                None => write!(f, "{error}"),
            },
            Self::Random(error) => write!(f, "no random bytes for a new key: {error}"),
        }
    }
}

/// Reads the key in the file at `path`, and returns whether it is new. If `make` is set, a missing file is
/// created.
pub(crate) fn open(path: &Path, provider: &CryptoProvider, make: bool) -> Result<(Key, bool), KeyFault> {
    match read(path) {
        Err(KeyFault::Missing) if make => {}
        read => return read.map(|key| (key, false)),
    }
    let mut key = Key::default();
    provider.random.fill(&mut *key).map_err(KeyFault::Random)?;
    match write(path, &key) {
        Ok(()) => Ok((key, true)),
        // Another process created the file at the same time.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(path).map(|key| (key, false)),
        Err(error) => Err(KeyFault::Unwritable(error)),
    }
}

/// Reads a key file: 32 random bytes. The file belongs to this user, and no other user has access to it.
///
/// # Errors
/// The file is missing, cannot be read, or is not such a file.
pub fn read(path: &Path) -> Result<Key, KeyFault> {
    // Without O_NONBLOCK, opening a pipe would wait for a writer.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        ErrorKind::NotFound => KeyFault::Missing,
        _ if path.is_symlink() => KeyFault::SymbolicLink,
        _ => KeyFault::Unreadable(error),
    })?;
    let found = file.metadata().map_err(KeyFault::Unreadable)?;
    if !found.is_file() {
        return Err(KeyFault::NotAFile);
    }
    if !files::is_own(&found) {
        return Err(KeyFault::Owner(found.uid()));
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFault::Access(mode));
    }
    if found.len() != MAX_KEY_LEN as u64 {
        return Err(KeyFault::Length(found.len()));
    }
    let mut key = Key::default();
    file.read_exact(&mut *key).map_err(KeyFault::Unreadable)?;
    Ok(key)
}

/// Writes the file atomically: another process may read it at the same time.
fn write(path: &Path, key: &Key) -> io::Result<()> {
    let directory = files::directory_of(path);
    if !directory.exists() {
        let why = format!("there is no directory {}", directory.display());
        return Err(io::Error::new(ErrorKind::NotFound, why));
    }
    let mut file = tempfile::Builder::new()
        .prefix(".dunlin-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory)
        // Without the name of the temporary file.
        .map_err(|error| io::Error::from(error.kind()))?;
    file.write_all(&key[..])?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| error.error)?;
    // The directory holds the name, so it has to reach the disk, too.
    File::open(directory)?.sync_all()
}
