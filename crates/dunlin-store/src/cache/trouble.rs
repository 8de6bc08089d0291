//! What all stores do where something goes wrong, and the words for it.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use dunlin::Side;

/// What there is to tell of a store. The cache goes on without what is lost.
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
    /// A store that could not be used is used again.
    Usable {
        /// Where the store is.
        store: String,
    },
    /// The file is the store of the other side: what a client and what a server keep are in files of their own.
    OtherSide {
        /// Where the store is.
        store: PathBuf,
        /// Whose it is.
        of: Side,
    },
    /// A new key was made for a store. One that was there has been lost, or its name was mistyped, or the store is new.
    NewKey {
        /// Where the key is.
        file: PathBuf,
    },
    /// There is something in the store, and all of it was sealed with another key.
    OtherKey {
        /// Where the store is.
        store: String,
    },
}

impl fmt::Display for CacheFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { store, aside, why } => {
                let (store, aside) = (store.display(), aside.display());
                write!(f, "{store}: damaged ({why}); set aside as {aside}, the cache starts empty")
            }
            Self::Unusable { store, why } => write!(f, "{store}: {why}"),
            Self::Usable { store } => write!(f, "{store}: it is used again"),
            Self::NewKey { file } => write!(f, "{}: a new key for the store", file.display()),
            Self::OtherSide { store, of } => {
                let (store, side) = (store.display(), side_name(*of));
                write!(f, "{store}: it is the store of a {side}: give each side a file of its own")
            }
            Self::OtherKey { store } => {
                write!(f, "{store}: nothing in this store opens with this key: it begins anew")
            }
        }
    }
}

impl std::error::Error for CacheFault {}

pub(super) const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// Why a file is left alone that is no store, be it somebody's key.
pub(super) const NO_STORE: &str = "it is no handshake cache";

/// Why a directory or a pipe is no store.
pub(super) const NO_FILE: &str = "it is no file";

/// Why a store is set aside that was written by us and then by chance.
pub(super) const INCONSISTENT: &str = "what is in it does not fit together";

/// Why nothing is kept while somebody else writes.
pub(super) const LOCKED: &str = "another process has it locked";

/// A store that cannot be written for lack of room, and what to do.
pub(super) const FULL: &str = "its file system is full: make room";

/// Whether a file cannot be written for lack of room, in words.
pub(super) fn is_full(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull => Some("its file system is full"),
        io::ErrorKind::QuotaExceeded => Some("the user's disk quota is used up"),
        _ => None,
    }
}

/// An error of the operating system in words for a user.
pub(super) fn why(error: &io::Error) -> String {
    is_full(error).map_or_else(|| error.to_string(), |full| format!("{full}: make room"))
}

/// How much a trial writes, in bytes: more than SQLite needs to open a database.
#[cfg(feature = "sqlite")]
const TRIAL_LEN: usize = 64 << 10;

/// Whether there is no room where `store` is, in words: SQLite does not tell. A file without a name is written and forgotten.
#[cfg(feature = "sqlite")]
pub(super) fn lack_of_room(store: &Path) -> Option<String> {
    let trial = tempfile::tempfile_in(directory_of(store));
    let error = trial
        .and_then(|mut file| file.write_all(&vec![0; TRIAL_LEN]).and_then(|()| file.sync_all()))
        .err()?;
    is_full(&error).map(|_| why(&error))
}

/// The directory in which `path` is.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Told of what goes wrong in a store, once until it is used again. It must not hold up a handshake.
pub type Report = Box<dyn Fn(&CacheFault) + Send + Sync>;

/// Tells that a store fails once, until it works again.
pub(super) struct Reporter {
    report: Report,
    fails: AtomicBool,
}

impl Reporter {
    pub(super) const fn new(report: Report) -> Self {
        Self { report, fails: AtomicBool::new(false) }
    }

    pub(super) fn tell(&self, fault: &CacheFault) {
        (self.report)(fault);
    }

    /// The store fails; why is asked where it has not been told yet.
    pub(super) fn fails(&self, fault: impl FnOnce() -> CacheFault) {
        if !self.fails.swap(true, Ordering::Relaxed) {
            (self.report)(&fault());
        }
    }

    /// Something was written: that it can be read again is not enough.
    pub(super) fn works(&self, store: impl FnOnce() -> String) {
        if self.fails.swap(false, Ordering::Relaxed) {
            (self.report)(&CacheFault::Usable { store: store() });
        }
    }
}

/// How long a handshake waits for another process that writes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(250);

/// After a failure nobody asks for so long; twice as long after each further one.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Keeps handshakes from a store that fails, so that no more than one at a time waits for it.
#[derive(Default)]
pub(super) struct Pause(Mutex<(Option<Instant>, Duration)>);

impl Pause {
    fn lock(&self) -> MutexGuard<'_, (Option<Instant>, Duration)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is no use to ask. After a pause one may, and the others wait as long again for what he finds.
    pub(super) fn is_on(&self) -> bool {
        let mut pause = self.lock();
        let (Some(until), length) = *pause else { return false };
        let now = Instant::now();
        if now >= until {
            pause.0 = Some(now + length);
        }
        now < until
    }

    /// The store has failed.
    pub(super) fn begin(&self) {
        let mut pause = self.lock();
        pause.1 = (pause.1 * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        pause.0 = Some(Instant::now() + pause.1);
    }

    /// The store has answered.
    pub(super) fn end(&self) {
        *self.lock() = (None, Duration::ZERO);
    }
}

/// The most links that a path may have one after the other: those of Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Where a store is whose path may be a link, be it to nothing yet: so the link stays, and what it points to is replaced or set aside.
pub(super) fn behind_links(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(to) = fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("")).join(to);
    }
    fs::canonicalize(&at).unwrap_or(at)
}

/// Whether two names are of one file, which need not be there.
pub(super) fn are_same(one: &Path, other: &Path) -> bool {
    let found = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let name = |path: &Path| Some((fs::canonicalize(directory_of(path)).ok()?, path.file_name()?.to_owned()));
    match (found(one), found(other)) {
        (None, None) => one == other || name(one).is_some_and(|one| name(other) == Some(one)),
        (one, other) => one == other,
    }
}

/// The path with something more at its end.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Renames a damaged store, and the files beside it that have these `endings`, out of the way.
pub(super) fn set_aside(store: &Path, endings: &[&str], why: &str) -> io::Result<CacheFault> {
    let aside = beside(store, ".damaged");
    for ending in endings {
        match fs::rename(beside(store, ending), beside(&aside, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(CacheFault::Damaged { store: store.to_owned(), aside, why: why.to_owned() })
}
