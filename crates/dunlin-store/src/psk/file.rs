//! Keys in a file. A server follows its changes while it runs.

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
use crate::text::{plain_lines, unreadable};

/// The largest file, in bytes: half a million keys.
const MAX_FILE: u64 = 64 << 20;

/// For this long after a change, another change may leave the same time stamp, because file systems have
/// coarse clocks.
const UNSETTLED: Duration = Duration::from_secs(2);

/// The format of a file with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of `identity:key`, as psktool writes them.
    Psktool,
    /// TOML, with a table for each key.
    Toml,
    /// An SQLite database.
    Sqlite,
}

impl Format {
    /// The format of the file `path`. A file with SQLite's magic bytes is a database. Otherwise the extension
    /// decides, in upper or lower case: `.toml`; `.db`, `.sqlite` or `.sqlite3`; anything else is psktool's
    /// format.
    pub fn of(path: &Path) -> Self {
        let mut magic = [0; 16];
        // Do not read from a pipe: its bytes would be lost.
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

    /// The format of a text without a file name, e.g. from a pipe. TOML has a `[[psk]]` table, which
    /// psktool's format cannot contain.
    pub fn of_text(content: &[u8]) -> Self {
        let begins_key = |line: &[u8]| {
            let code = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            code.trim_ascii() == b"[[psk]]"
        };
        let lines = plain_lines(content).unwrap_or_default();
        if lines.split(|byte| *byte == b'\n').any(begins_key) { Self::Toml } else { Self::Psktool }
    }
}

/// Parses the content of a file. Returns its keys and the key files that it names, relative to `directory`.
///
/// # Errors
/// The first fault, and its line.
pub fn parse(
    content: &[u8],
    format: Format,
    directory: &Path,
    short: ShortKeys,
) -> Result<(PskSet, Vec<PathBuf>), PskError> {
    let lines = |content| plain_lines(content).map_err(PskFault::NotText);
    match format {
        Format::Psktool => psktool::parse(&lines(content)?, short).map(|set| (set, vec![])),
        Format::Toml => toml::parse(&lines(content)?, directory),
        Format::Sqlite => Err(PskFault::Unreadable("a database, not a text".into()).into()),
    }
}

/// A function that is called when a file has become unusable. It must not block, since a handshake waits for
/// it.
pub type Report = Box<dyn Fn(&PskError) + Send + Sync>;

/// Keys in a TOML file, or in one of psktool's format.
///
/// Each handshake checks whether the file has changed, and reads it again only then. If the new content is
/// invalid, the previous keys stay in force, and the fault is reported once.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
///
/// use dunlin::crypto::CryptoProvider;
/// use dunlin::{Profile, PskSource, ServerConfig};
/// use dunlin_store::psk::{PskError, ShortKeys};
/// use dunlin_store::psk::file::PskFile;
///
/// # fn server(provider: Arc<CryptoProvider>) -> Result<ServerConfig, Box<dyn std::error::Error>> {
/// // `dunlin psk new --out keys.psk` makes such a file.
/// let report = Box::new(|fault: &PskError| eprintln!("{fault}"));
/// let keys = PskFile::open("keys.psk", ShortKeys::Refuse, provider.clone(), report)?;
/// let profile = Profile::builder(provider).build()?;
/// let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(keys)))?;
/// # Ok(server)
/// # }
/// ```
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
    /// The stamps of the file and of the key files that it names.
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    /// The fault reported last.
    fault: Option<PskError>,
    /// When to read the file again even if it has not changed.
    again: Option<Instant>,
}

/// How long to wait before reading an unreadable file again. The cause may vanish without a change of the
/// file, e.g. a lack of file descriptors.
pub const RETRY: Duration = Duration::from_secs(1);

/// Properties of a file that change when it is written or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of the file `path`, following symbolic links; `None` if its metadata cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        let m = fs::metadata(path).ok()?;
        Some(Self {
            file: (m.dev(), m.ino()),
            len: m.len(),
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
        })
    }

    /// Whether any later change would change the stamp.
    pub fn is_settled(&self) -> bool {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        // The clock of a remote file system may be ahead of ours.
        now.abs_diff(changed) > UNSETTLED
    }
}

impl PskFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The file cannot be read, or its first fault and the line.
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

    /// The current keys.
    pub fn keys(&self) -> PskSet {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut loaded);
        loaded.set.clone()
    }

    /// The current record of this identity, whether valid or not.
    pub fn record(&self, identity: &[u8]) -> Option<PskRecord> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut loaded);
        loaded.set.record(identity).cloned()
    }

    /// The current identity hint for TLS 1.2 clients (RFC 4279 §5.2); empty if there is none.
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
    // Take the stamp before reading: a change meanwhile then shows at the next look-up.
    let stamp = Stamp::of(path);
    let content = read(path).map_err(|e| PskFault::Unreadable(unreadable(&e, "").0))?;
    let (set, key_files) = parse(&content, format, path.parent().unwrap_or(Path::new("")), short)?;
    // The key files were read before their stamps are taken. A change in between shows too: it is not settled
    // yet.
    let of_keys = key_files.into_iter().map(|path| {
        let stamp = Stamp::of(&path);
        (path, stamp)
    });
    Ok((set, [(path.to_owned(), stamp)].into_iter().chain(of_keys).collect()))
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let expected = usize::try_from(file.metadata()?.len().min(MAX_FILE)).unwrap_or(0);
    // Reserve room for everything: a vector that grows leaves copies of secrets behind.
    let mut content = Zeroizing::new(Vec::with_capacity(expected + 1));
    file.take(MAX_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE {
        Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB"))
    } else {
        Ok(content)
    }
}
