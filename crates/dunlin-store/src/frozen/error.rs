//! Why associations cannot be frozen or thawed.

use std::fmt;
use std::path::PathBuf;

use dunlin::error::Error;

use super::{FileId, IdsFault, MAX_ASSOCIATION};
use crate::cache::KeyFault;

/// Why a file of frozen associations cannot be written or thawed. The text says what is wrong;
/// [`FrozenError::advice`] what to do. After an error of [`FrozenFile::thaw`](super::FrozenFile::thaw),
/// nothing was thawed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FrozenError {
    /// The system cannot read or write the file.
    File {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// The key file cannot be used.
    Key {
        /// The key file.
        file: PathBuf,
        /// The fault of the key file.
        fault: KeyFault,
    },
    /// The provider cannot seal.
    Provider(Error),
    /// The file is something else. It was left alone.
    Foreign(PathBuf),
    /// Another version of this library wrote the file.
    OtherVersion(PathBuf),
    /// The file was sealed with another key, or its beginning was changed.
    OtherKey(PathBuf),
    /// The file was changed.
    Damaged(PathBuf),
    /// The end of the file is missing.
    Cut(PathBuf),
    /// The ID of the file is not in the store: the file was thawed before, or the store is another one.
    Spent {
        /// The file.
        file: PathBuf,
        /// Its ID.
        id: FileId,
    },
    /// The file is authentic, but none of its associations could be thawed.
    NoneThawed {
        /// The file.
        file: PathBuf,
        /// The number of its associations.
        associations: usize,
        /// Why the first one could not be thawed.
        why: String,
    },
    /// Something that is needed to thaw the associations cannot be used now
    /// ([`FrozenFile::thaw_unless`](super::FrozenFile::thaw_unless)).
    NotNow {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// The store of IDs does not answer.
    Ids(IdsFault),
    /// The frozen association has this many bytes, more than [`MAX_ASSOCIATION`].
    TooLong(usize),
}

impl FrozenError {
    /// Whether no server with its key and with the store that is in use can still thaw the file: it was
    /// thawed before, changed or cut. A server can set such a file aside
    /// ([`FrozenFile::set_aside`](super::FrozenFile::set_aside)) and start without it. After every other
    /// error its user can still mend the cause, so the server should not start.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Spent { .. } | Self::Damaged(_) | Self::Cut(_))
    }

    /// Advice for the user.
    pub fn advice(&self) -> String {
        match self {
            Self::File { .. } => "give a file in a directory that this user can write to".to_owned(),
            Self::Key { fault: KeyFault::Missing, .. } => {
                "give the key with which the associations were frozen, or remove their file: the clients will connect again"
                    .to_owned()
            }
            Self::Key { file, fault } => fault.advice(file),
            Self::Provider(_) => "add a cipher suite with a key of 256 bits to the provider".to_owned(),
            Self::Foreign(_) => "name another file".to_owned(),
            Self::OtherVersion(_) => "thaw it with the version that froze it".to_owned(),
            Self::OtherKey(_) => "give the key with which it was frozen".to_owned(),
            Self::Damaged(_) | Self::Cut(_) => "remove the file: its clients will connect again".to_owned(),
            Self::Spent { .. } => {
                "name the store with which it was frozen, or remove the file: its clients will connect again"
                    .to_owned()
            }
            Self::NoneThawed { .. } => "start with the trusted certificates, CRLs, client authentication and pre-shared keys \
                                        with which the clients have connected, and with the right time, or remove the \
                                        file: its clients will connect again"
                .to_owned(),
            Self::NotNow { .. } => "make it available, and start again".to_owned(),
            Self::Ids(_) => "make the store available, and start again".to_owned(),
            Self::TooLong(_) => "close this association".to_owned(),
        }
    }
}

impl From<IdsFault> for FrozenError {
    fn from(fault: IdsFault) -> Self {
        Self::Ids(fault)
    }
}

impl fmt::Display for FrozenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, why } => write!(f, "{}: {why}", file.display()),
            Self::Key { file, fault } => write!(f, "{}: {fault}", file.display()),
            Self::Provider(error) => write!(f, "{error}"),
            Self::Foreign(file) => write!(f, "{}: not a file of frozen associations", file.display()),
            Self::OtherVersion(file) => write!(f, "{}: the format of another version", file.display()),
            Self::OtherKey(file) => {
                write!(f, "{}: sealed with another key, or changed at its beginning", file.display())
            }
            Self::Damaged(file) => write!(f, "{}: the file was changed", file.display()),
            Self::Cut(file) => write!(f, "{}: the end of the file is missing", file.display()),
            Self::Spent { file, id } => {
                let file = file.display();
                write!(f, "{file}: the file was thawed before, or belongs to another store: no ID {id} here")
            }
            Self::NoneThawed { file, associations, why } => {
                let file = file.display();
                write!(
                    f,
                    "{file}: none of {associations} associations could be thawed, the first because: {why}"
                )
            }
            Self::NotNow { file, why } => write!(f, "{}: cannot be thawed now: {why}", file.display()),
            Self::Ids(fault) => write!(f, "{fault}"),
            Self::TooLong(len) => {
                write!(f, "a frozen association of {len} bytes is longer than {MAX_ASSOCIATION}")
            }
        }
    }
}

impl std::error::Error for FrozenError {}
