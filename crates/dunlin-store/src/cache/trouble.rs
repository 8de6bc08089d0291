//! How all stores handle failures, and the texts for them.

use std::fs::{File, Metadata, OpenOptions};
#[cfg(feature = "sqlite")]
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use dunlin::Side;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

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
                let (store, aside) = (store.display(), aside.display());
                write!(f, "{store}: damaged ({why}); set aside as {aside}, the cache starts empty")
            }
            Self::Unusable { store, why } => write!(f, "{store}: {why}"),
            Self::Usable { store } => write!(f, "{store}: the store works again"),
            Self::NewKey { file } => write!(f, "{}: created a new key for the store", file.display()),
            Self::OtherSide { store, of } => {
                let (store, side) = (store.display(), side_name(*of));
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

/// Reported for a directory or a pipe.
pub(super) const NO_FILE: &str = "not a regular file";

/// Reported for a symbolic link that is not followed.
pub const FOREIGN_LINK: &str =
    "a symbolic link of another user, or one that leads nowhere: name the file that it points to";

/// Reported for a damaged store, which is set aside.
pub(super) const INCONSISTENT: &str = "its content is inconsistent";

/// Reported while another process writes.
pub(crate) const LOCKED: &str = "locked by another process";

/// Reported when a store cannot be written for lack of space.
#[cfg(feature = "sqlite")]
pub(super) const FULL: &str = "its file system is full: make room";

/// The text for an error that means lack of space; `None` for other errors.
pub(super) fn is_full(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull => Some("its file system is full"),
        io::ErrorKind::QuotaExceeded => Some("the user's disk quota is used up"),
        _ => None,
    }
}

/// The text of an operating system error for a user.
pub(crate) fn why(error: &io::Error) -> String {
    is_full(error).map_or_else(|| error.to_string(), |full| format!("{full}: make room"))
}

/// The length of a trial file: more bytes than SQLite needs to open a database.
#[cfg(feature = "sqlite")]
const TRIAL_LEN: usize = 64 << 10;

/// Writes an unnamed trial file beside `store`. Returns the error text if the file system has no space:
/// SQLite does not always say so.
#[cfg(feature = "sqlite")]
pub(super) fn lack_of_room(store: &Path) -> Option<String> {
    let trial = tempfile::tempfile_in(directory_of(store));
    let error = trial
        .and_then(|mut file| file.write_all(&vec![0; TRIAL_LEN]).and_then(|()| file.sync_all()))
        .err()?;
    is_full(&error).map(|_| why(&error))
}

/// The directory of `path`.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

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

/// How many symbolic links are followed: as many as Linux follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Resolves symbolic links, also to missing files. So the link stays, and its target is replaced or set
/// aside. A link of another user remains in the result, which its caller must refuse; root's links are as
/// good as this user's.
pub fn behind_links(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&at) {
            Ok(link) if link.uid() == 0 || is_own(&link) => {}
            _ => break,
        }
        let Ok(to) = fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("")).join(to);
    }
    match (fs::canonicalize(directory_of(&at)), at.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => at,
    }
}

/// Whether this process's user owns the file.
pub(crate) fn is_own(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw()
}

/// Opens a regular file. Symbolic links are not followed, and a pipe is refused without waiting for its other
/// end.
pub(crate) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = options.custom_flags(flags.bits()).open(path);
    let file = file.map_err(|error| match path.is_symlink() {
        true => io::Error::other(FOREIGN_LINK),
        false => error,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(NO_FILE)),
    }
}

/// Opens a regular file of this user that other users cannot write. Another user could replace the entries in
/// it. For the rest see [`open_file`].
pub(crate) fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = open_file(options, path)?;
    let found = file.metadata()?;
    let (owner, user) = (found.uid(), geteuid());
    if !is_own(&found) {
        let why = format!(
            "it belongs to user {owner}, not to user {user} of this process: give each a store of its own"
        );
        return Err(io::Error::other(why));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o022 != 0 {
        let why = format!("other users can write it (mode {mode:04o}): chmod go-w {}", path.display());
        return Err(io::Error::other(why));
    }
    Ok(file)
}

/// Whether two paths name the same file, which may be missing.
pub fn are_same(one: &Path, other: &Path) -> bool {
    let found = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let name = |path: &Path| Some((fs::canonicalize(directory_of(path)).ok()?, path.file_name()?.to_owned()));
    match (found(one), found(other)) {
        (None, None) => one == other || name(one).is_some_and(|one| name(other) == Some(one)),
        (one, other) => one == other,
    }
}

/// The path with `ending` appended.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
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
