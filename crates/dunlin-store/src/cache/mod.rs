//! The handshake cache ([`dunlin::cache`]): in memory, and in stores that outlive the process.
//!
//! [`MemoryClientCache`] and [`MemoryServerCache`] keep entries where only this process can write. What leaves the process is
//! sealed, record for record, by a [`Sealer`] with a key that is not in the store (docs/handshake-cache.md §5, rule 9):
//! [`SealedClientCache`] and [`SealedServerCache`] do that for any store of [`Records`].
//!
//! A store never holds up a handshake that could go on without it: what it cannot read is no entry, what it cannot write is
//! forgotten, and a [`CacheFault`] tells of it.

mod file;
mod grouped;
mod memory;
mod sealed;
mod slab;

use std::fmt;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub use file::FileRecords;
pub use memory::{MemoryClientCache, MemoryServerCache};
pub use sealed::{Owner, Record, RecordName, Records, SealedClientCache, SealedServerCache, Sealer};

/// What went wrong in a store. The cache goes on without what is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheFault {
    /// The store was damaged, and a new one stands in its place.
    Damaged {
        /// Where the store is.
        store: PathBuf,
        /// Where the damaged one is now.
        aside: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The store cannot be used, for now or for good.
    Unusable {
        /// Where the store is.
        store: String,
        /// Why not.
        why: String,
    },
}

impl fmt::Display for CacheFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { store, aside, why } => {
                let (store, aside) = (store.display(), aside.display());
                write!(f, "{store}: {why}; set aside as {aside}, the cache starts empty")
            }
            Self::Unusable { store, why } => write!(f, "{store}: {why}; handshakes are full meanwhile"),
        }
    }
}

impl std::error::Error for CacheFault {}

/// Told of what goes wrong in a store. It must not hold up a handshake.
pub type Report = Box<dyn Fn(&CacheFault) + Send + Sync>;

/// Renames a damaged store, and the files beside it that have these `endings`, out of the way.
fn set_aside(store: &Path, endings: &[&str], why: &str) -> io::Result<CacheFault> {
    let with = |ending: &str, more: &str| {
        let mut name = store.as_os_str().to_owned();
        name.push(ending);
        name.push(more);
        PathBuf::from(name)
    };
    for ending in endings {
        match fs::rename(with(ending, ""), with(".damaged", ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let (store, aside) = (store.to_owned(), with(".damaged", ""));
    Ok(CacheFault::Damaged { store, aside, why: why.to_owned() })
}
