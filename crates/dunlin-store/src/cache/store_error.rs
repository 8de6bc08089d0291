//! How stores report failures, and how long handshakes avoid a failing store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use dunlin::Side;

use crate::files::beside;

/// An event of a store that its user should know. The cache goes on without the lost entries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheFault {
    /// The store was damaged. It was renamed, and a new one replaces it.
    Damaged {
        /// The store.
        store: PathBuf,
        /// The new path of the damaged store.
        aside: PathBuf,
        /// The kind of damage.
        why: String,
    },
    /// The store cannot be used, temporarily or permanently.
    Unusable {
        /// The store.
        store: String,
        /// The reason.
        why: String,
    },
    /// The store can be used again.
    Usable {
        /// The store.
        store: String,
    },
    /// The file is the store of the other side. A client and a server need files of their own.
    OtherSide {
        /// The store.
        store: PathBuf,
        /// The side that owns it.
        of: Side,
    },
    /// A new key file was created: for a new store, or because the previous one was lost or its name is
    /// mistyped.
    NewKey {
        /// The key file.
        file: PathBuf,
    },
    /// The store has records, and all of them were sealed with another key.
    OtherKey {
        /// The store.
        store: String,
    },
}

impl fmt::Display for CacheFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { store, aside, why } => {
                let store = store.display();
                let aside = aside.display();
                write!(f, "{store}: damaged ({why}); set aside as {aside}, the cache starts empty")
            }
            Self::Unusable { store, why } => write!(f, "{store}: {why}"),
            Self::Usable { store } => write!(f, "{store}: the store works again"),
            Self::NewKey { file } => write!(f, "{}: created a new key for the store", file.display()),
            Self::OtherSide { store, of } => {
                let store = store.display();
                let side = side_name(*of);
                write!(f, "{store}: the store belongs to a {side}: give each side a file of its own")
            }
            Self::OtherKey { store } => {
                write!(f, "{store}: no entry in this store opens with this key: the cache starts empty")
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

/// Reported for a foreign file, such as a private key. It is left alone.
pub(super) const NO_STORE: &str = "not a handshake cache";

/// Reported for a damaged store, which is set aside.
pub(super) const INCONSISTENT: &str = "its content is inconsistent";

/// Reported while another process writes.
pub(crate) const LOCKED: &str = "locked by another process";

/// Called for each failure of a store, but only once until the store works again. It must not block.
pub type Report = Box<dyn Fn(&CacheFault) + Send + Sync>;

/// Reports a failing store once, until it works again.
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

    /// Reports a failure unless one is reported already.
    pub(super) fn fails(&self, fault: impl FnOnce() -> CacheFault) {
        if !self.fails.swap(true, Ordering::Relaxed) {
            (self.report)(&fault());
        }
    }

    /// Reports the recovery after a successful write. A successful read is not enough.
    pub(super) fn works(&self, store: impl FnOnce() -> String) {
        if self.fails.swap(false, Ordering::Relaxed) {
            (self.report)(&CacheFault::Usable { store: store() });
        }
    }
}

/// How long a handshake waits while another process writes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(250);

/// The pause after a failure. Each further failure doubles it.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Keeps handshakes away from a failing store, so that only one at a time waits for it.
#[derive(Default)]
pub(super) struct Pause(Mutex<(Option<Instant>, Duration)>);

impl Pause {
    fn lock(&self) -> MutexGuard<'_, (Option<Instant>, Duration)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether callers should skip the store. When a pause ends, one caller may try, and the pause starts
    /// again for the others.
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

/// Renames a damaged store together with its files that have these `endings`.
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
