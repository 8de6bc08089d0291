//! The name of a store in an option or a configuration. Handshake caches and the IDs of frozen files share
//! one grammar.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::IntoConnectionInfo;

use crate::cache::CacheStore;
use crate::frozen::{DirectoryIds, FrozenIds, IdsFault, RedisIds, SqliteIds};

/// How long a process waits for the answer of a Redis about the ID of a frozen file.
const PATIENCE: Duration = Duration::from_secs(5);

/// The prefix of a name that stands for the URL in a file.
const IN_FILE: &str = "redis+file:";

/// The name of a store: `FILE`, `sqlite:FILE`, or the URL of a Redis, `redis://HOST:PORT/DB` or
/// `redis+unix:///PATH?db=DB`. A name with another kind before its first colon is refused, because a mistyped
/// kind must not become a file name.
///
/// # Examples
/// ```
/// use dunlin_store::{StoreUrl, StoreUrlFault};
///
/// assert_eq!(StoreUrl::parse("sqlite:a.db"), Ok(StoreUrl::Sqlite("a.db".into())));
/// assert_eq!(StoreUrl::parse("sqlit:a.db"), Err(StoreUrlFault::UnknownKind));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StoreUrl {
    /// A file; for the IDs of frozen files a directory.
    Path(PathBuf),
    /// An SQLite database.
    Sqlite(PathBuf),
    /// The URL of a Redis, which may contain a password.
    Redis(String),
}

/// Why a text names no store. No fault repeats the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrlFault {
    /// The text is empty.
    Empty,
    /// Nothing follows the colon.
    NoFile,
    /// Another kind follows the colon.
    BadFile,
    /// The text before the colon is no kind of store.
    UnknownKind,
    /// The URL asks for TLS.
    Tls,
    /// The URL is malformed.
    Redis,
    /// A part of the password would be taken for the host.
    Password,
}

impl fmt::Display for StoreUrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the value is empty",
            Self::NoFile => "missing file name after the colon",
            Self::BadFile => "invalid file name after the colon",
            Self::UnknownKind => "unknown kind of store",
            Self::Tls => "TLS to Redis is not supported",
            Self::Redis => "not a Redis URL",
            Self::Password => "its user or password contains /, ? or #",
        })
    }
}

impl std::error::Error for StoreUrlFault {}

impl StoreUrlFault {
    /// Advice for the user; `None` if any other form helps.
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::Empty | Self::NoFile | Self::BadFile | Self::UnknownKind => None,
            Self::Tls => Some("write redis://: entries are sealed anyway"),
            Self::Redis => Some("write it as redis://HOST:PORT/DB, where DB is a number"),
            Self::Password => Some("write / as %2F, ? as %3F and # as %23 there"),
        }
    }
}

impl StoreUrl {
    /// Parses the name of a store.
    ///
    /// # Errors
    /// The text names none.
    pub fn parse(text: &str) -> Result<Self, StoreUrlFault> {
        match text.split_once(':') {
            _ if text.is_empty() => Err(StoreUrlFault::Empty),
            // A mistyped URL.
            Some((kind, rest)) if kind.contains('/') && rest.contains('@') => Err(StoreUrlFault::UnknownKind),
            Some(("sqlite", path)) => file(path).map(Self::Sqlite),
            Some(("redis" | "redis+unix", _)) => check_redis(text).map(|()| Self::Redis(text.to_owned())),
            Some(("rediss", _)) => Err(StoreUrlFault::Tls),
            Some((kind, _)) if !kind.contains('/') => Err(StoreUrlFault::UnknownKind),
            _ => Ok(Self::Path(text.into())),
        }
    }

    /// The file that `redis+file:FILE` names, which has the URL of a Redis. Only command lines have this
    /// form, because other users can see the password in a command. `None` if the text has another form.
    ///
    /// # Errors
    /// It names no file.
    pub fn in_file(text: &str) -> Result<Option<PathBuf>, StoreUrlFault> {
        text.strip_prefix(IN_FILE).map(file).transpose()
    }

    /// The file or directory of the store; `None` for a Redis.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::Sqlite(path) => Some(path),
            Self::Redis(_) => None,
        }
    }

    /// The same store, with its file name replaced by what `resolve` makes of it.
    #[must_use]
    pub fn map_path(self, resolve: impl FnOnce(&Path) -> PathBuf) -> Self {
        match self {
            Self::Path(path) => Self::Path(resolve(&path)),
            Self::Sqlite(path) => Self::Sqlite(resolve(&path)),
            Self::Redis(url) => Self::Redis(url),
        }
    }

    /// The handshake cache in this store.
    pub fn cache(&self) -> CacheStore {
        match self {
            Self::Path(path) => CacheStore::file(path),
            Self::Sqlite(path) => CacheStore::sqlite(path),
            Self::Redis(url) => CacheStore::redis(url),
        }
    }

    /// The IDs of frozen files in this store.
    ///
    /// # Errors
    /// The store cannot be used. A Redis that does not answer now is no error.
    pub fn frozen_ids(&self) -> Result<Box<dyn FrozenIds>, IdsFault> {
        Ok(match self {
            Self::Path(path) => Box::new(DirectoryIds::open(path)?),
            Self::Sqlite(path) => Box::new(SqliteIds::open(path)?),
            Self::Redis(url) => Box::new(RedisIds::open(url, PATIENCE)?),
        })
    }
}

/// Without the URL of a Redis.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Redis(_) => f.debug_tuple("Redis").finish_non_exhaustive(),
        }
    }
}

/// The file name behind the colon.
fn file(path: &str) -> Result<PathBuf, StoreUrlFault> {
    match path.split_once(':') {
        _ if path.is_empty() => Err(StoreUrlFault::NoFile),
        Some((name, _)) if !name.contains('/') => Err(StoreUrlFault::BadFile),
        _ => Ok(path.into()),
    }
}

/// Checks the form of a Redis URL.
fn check_redis(url: &str) -> Result<(), StoreUrlFault> {
    match url.strip_prefix("redis://").map(|rest| rest.rsplit_once('@')) {
        // Otherwise the parser would take a part of the password for the host, and an error would reveal it.
        Some(Some((user, _))) if user.contains(['/', '?', '#']) => return Err(StoreUrlFault::Password),
        None if !url.starts_with("redis+unix:///") => return Err(StoreUrlFault::Redis),
        _ => {}
    }
    url.into_connection_info().map(drop).map_err(|_| StoreUrlFault::Redis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_kind_is_no_file_name() {
        let path = |path: &str| Ok(StoreUrl::Path(path.into()));
        for (text, expected) in [
            ("ids", path("ids")),
            ("./a:b", path("./a:b")),
            ("/var/a:b", path("/var/a:b")),
            ("sqlite:a.db", Ok(StoreUrl::Sqlite("a.db".into()))),
            ("sqlite:/var/a:b", Ok(StoreUrl::Sqlite("/var/a:b".into()))),
            ("redis://10.0.0.1:6379/0", Ok(StoreUrl::Redis("redis://10.0.0.1:6379/0".to_owned()))),
            ("redis+unix:///run/redis", Ok(StoreUrl::Redis("redis+unix:///run/redis".to_owned()))),
            ("", Err(StoreUrlFault::Empty)),
            ("sqlit:a.db", Err(StoreUrlFault::UnknownKind)),
            ("redis+file:a", Err(StoreUrlFault::UnknownKind)),
            ("file:a", Err(StoreUrlFault::UnknownKind)),
            ("C:a", Err(StoreUrlFault::UnknownKind)),
            (":a", Err(StoreUrlFault::UnknownKind)),
            ("redis//user:secret@host", Err(StoreUrlFault::UnknownKind)),
            ("sqlite:", Err(StoreUrlFault::NoFile)),
            ("sqlite:sqlite:a.db", Err(StoreUrlFault::BadFile)),
            ("rediss://10.0.0.1", Err(StoreUrlFault::Tls)),
            ("redis:10.0.0.1", Err(StoreUrlFault::Redis)),
            ("redis+unix://run", Err(StoreUrlFault::Redis)),
            ("redis://10.0.0.1:port/0", Err(StoreUrlFault::Redis)),
            ("redis://10.0.0.1:6379/zero", Err(StoreUrlFault::Redis)),
            ("redis://:a/b@10.0.0.1", Err(StoreUrlFault::Password)),
        ] {
            assert_eq!(StoreUrl::parse(text), expected, "{text}");
        }
        assert_eq!(StoreUrl::in_file("redis+file:a"), Ok(Some("a".into())));
        assert_eq!(StoreUrl::in_file("redis+file:"), Err(StoreUrlFault::NoFile));
        assert_eq!(StoreUrl::in_file("redis://10.0.0.1"), Ok(None));
    }

    #[test]
    fn shows_no_password() {
        let url = StoreUrl::parse("redis://:secret@10.0.0.1/0").unwrap();
        assert!(!format!("{url:?}").contains("secret"));
    }
}
