//! Keys in a file, which a server follows while it runs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dunlin::Now;
use dunlin::auth::{FindPsk, Psk};
use dunlin::crypto::CryptoProvider;
use zeroize::Zeroizing;

use super::{PskError, PskFault, PskRecord, PskSet, ShortKeys, psktool, toml};

/// The largest file that is read, in bytes: half a million keys.
const MAX_FILE: u64 = 64 << 20;

/// A file that was changed so recently may be changed again without a trace: the clock of a file system has steps.
const UNSETTLED: Duration = Duration::from_secs(2);

/// What stands in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of `identity:key`.
    Psktool,
    /// Tables.
    Toml,
    /// A database.
    Sqlite,
}

impl Format {
    /// That of the file `path`: SQLite by its content, else by the name, where everything but `.toml` and `.db`, `.sqlite`
    /// and `.sqlite3`, in whichever case, is psktool's.
    pub fn of(path: &Path) -> Self {
        let mut magic = [0; 16];
        // What is read of a pipe is gone.
        let sqlite =
            path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok();
        let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            _ if sqlite && magic == *b"SQLite format 3\0" => Self::Sqlite,
            Some("toml") => Self::Toml,
            Some("db" | "sqlite" | "sqlite3") => Self::Sqlite,
            _ => Self::Psktool,
        }
    }

    /// That of a text without a name, such as comes from a pipe: TOML has a table of keys, which is no line of psktool's.
    pub fn of_text(content: &[u8]) -> Self {
        let begins_key = |line: &[u8]| {
            let code = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            code.trim_ascii() == b"[[psk]]"
        };
        match content.split(|byte| *byte == b'\n').any(begins_key) {
            true => Self::Toml,
            false => Self::Psktool,
        }
    }
}

/// The keys in the content of a file, and the files that it names, seen from `directory`.
///
/// # Errors
/// What is wrong with it, and in which line.
pub fn parse(
    content: &[u8],
    format: Format,
    directory: &Path,
    short: ShortKeys,
) -> Result<(PskSet, Vec<PathBuf>), PskError> {
    match format {
        Format::Psktool => psktool::parse(content, short).map(|set| (set, vec![])),
        Format::Toml => toml::parse(content, directory),
        Format::Sqlite => Err(PskFault::Unreadable("a database, not a text".into()).into()),
    }
}

/// Told of a file that cannot be used any more. It must not hold up a handshake.
pub type Report = Box<dyn Fn(&PskError) + Send + Sync>;

/// Keys in a file of psktool's or in TOML.
///
/// Whether the file changed is looked up for each handshake; it is read again only if it did. A new content has to be
/// whole: otherwise the old keys stay, and the reason is reported once.
pub struct PskFile {
    path: PathBuf,
    format: Format,
    short: ShortKeys,
    provider: Arc<CryptoProvider>,
    report: Report,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    set: PskSet,
    /// Of the file and of those that it names.
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    /// What was reported last.
    fault: Option<PskError>,
    /// When it is to be read again though nothing has changed.
    again: Option<Instant>,
}

/// How often what could not be read is read again: there may be room for an open file, without a change that shows.
pub const RETRY: Duration = Duration::from_secs(1);

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file `path`, or of what it links to; `None` where it cannot be looked at.
    pub fn of(path: &Path) -> Option<Self> {
        let m = fs::metadata(path).ok()?;
        Some(Self {
            file: (m.dev(), m.ino()),
            len: m.len(),
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
        })
    }

    /// Whether any later change shows.
    pub fn is_settled(&self) -> bool {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        // A file system with a clock of its own may be far ahead.
        now.abs_diff(changed) > UNSETTLED
    }
}

impl PskFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// It cannot be read, or what is wrong with it, and in which line.
    pub fn open(
        path: impl Into<PathBuf>,
        short: ShortKeys,
        provider: Arc<CryptoProvider>,
        report: Report,
    ) -> Result<Self, PskError> {
        let path = path.into();
        let format = Format::of(&path);
        let (set, stamps) = load(&path, format, short)?;
        let loaded = Mutex::new(Loaded { set, stamps, fault: None, again: None });
        Ok(Self { path, format, short, provider, report, loaded })
    }

    /// The keys as they are now.
    pub fn keys(&self) -> PskSet {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut loaded);
        loaded.set.clone()
    }

    /// What the file says now of the key of this identity, valid or not.
    pub fn record(&self, identity: &[u8]) -> Option<PskRecord> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut loaded);
        loaded.set.record(identity).cloned()
    }

    /// What the file says now for clients of TLS 1.2 to choose their identity by (RFC 4279 §5.2); empty if nothing.
    pub fn identity_hint(&self) -> Vec<u8> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut loaded);
        loaded.set.hint().unwrap_or_default().to_vec()
    }

    fn refresh(&self, loaded: &mut Loaded) {
        let same = |(path, stamp): &(PathBuf, Option<Stamp>)| {
            *stamp == Stamp::of(path) && stamp.is_none_or(|stamp| stamp.is_settled())
        };
        if loaded.stamps.iter().all(same) && loaded.again.is_none_or(|again| Instant::now() < again) {
            return;
        }
        match load(&self.path, self.format, self.short) {
            Ok((set, stamps)) => *loaded = Loaded { set, stamps, fault: None, again: None },
            Err(fault) => {
                let is_read = !matches!(fault.fault, PskFault::Unreadable(_) | PskFault::KeyFile(..));
                loaded.again = (!is_read).then(|| Instant::now() + RETRY);
                for (path, stamp) in &mut loaded.stamps {
                    *stamp = Stamp::of(path);
                }
                if loaded.fault.as_ref() != Some(&fault) {
                    (self.report)(&fault);
                    loaded.fault = Some(fault);
                }
            }
        }
    }
}

impl FindPsk for PskFile {
    fn find(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut loaded);
        let get = |identity: &[u8]| Ok::<_, PskError>(loaded.set.record(identity).cloned());
        super::find(identity, now, &self.provider, get).ok().flatten()
    }
}

type Stamped = (PskSet, Vec<(PathBuf, Option<Stamp>)>);

fn load(path: &Path, format: Format, short: ShortKeys) -> Result<Stamped, PskError> {
    // Before it is read: what changes meanwhile shows the next time.
    let stamp = Stamp::of(path);
    let content = read(path).map_err(|e| PskFault::Unreadable(e.to_string()))?;
    let (set, key_files) = parse(&content, format, path.parent().unwrap_or(Path::new("")), short)?;
    // They are read already; what changed in between is not settled yet.
    let of_keys = key_files.into_iter().map(|path| {
        let stamp = Stamp::of(&path);
        (path, stamp)
    });
    Ok((set, [(path.to_owned(), stamp)].into_iter().chain(of_keys).collect()))
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let expected = usize::try_from(file.metadata()?.len().min(MAX_FILE)).unwrap_or(0);
    // Room for all of it, because a vector that grows leaves unwiped copies behind.
    let mut content = Zeroizing::new(Vec::with_capacity(expected + 1));
    file.take(MAX_FILE + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MAX_FILE {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB")),
        false => Ok(content),
    }
}
