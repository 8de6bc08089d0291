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
#[cfg(feature = "redis")]
mod redis;
mod sealed;
mod slab;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use dunlin::cache::Ticket;

pub use file::FileRecords;
pub use memory::{MemoryClientCache, MemoryServerCache};
#[cfg(feature = "redis")]
pub use redis::{DEFAULT_REDIS_TIMEOUT, RedisRecords};
pub use sealed::{Owner, Record, RecordName, Records, SealedClientCache, SealedServerCache, Sealer};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteRecords;

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
            Self::Unusable { store, why } => write!(f, "{store}: {why}"),
        }
    }
}

impl std::error::Error for CacheFault {}

/// The longest record that is taken from a store, in bytes: somewhat more than the longest that is put there, which has a whole
/// CertificateRequest in it.
#[cfg(any(feature = "redis", feature = "sqlite"))]
const MAX_RECORD_LEN: u32 = 32 << 10;

/// Told of what goes wrong in a store, once until it works again. It must not hold up a handshake.
pub type Report = Box<dyn Fn(&CacheFault) + Send + Sync>;

/// Tells of each fault once, until the store works again.
struct Reporter {
    report: Report,
    last: Mutex<Option<CacheFault>>,
}

impl Reporter {
    const fn new(report: Report) -> Self {
        Self { report, last: Mutex::new(None) }
    }

    fn fault(&self, fault: CacheFault) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&fault) {
            (self.report)(&fault);
            *last = Some(fault);
        }
    }

    fn works(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Which of a client's tickets stays beside a `new` one, which takes the place of the one that was `proven`: the newest of the others,
/// as the client may use it with a server that shares the store under another name.
fn older_ticket(new: &Ticket, before: &[Ticket], proven: Option<Ticket>) -> Option<Ticket> {
    before.iter().find(|ticket| *ticket != new && Some(**ticket) != proven).copied()
}

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
