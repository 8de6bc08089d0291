//! A persistent handshake cache in one call: its store, and the key file that seals it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::time::Duration;

use dunlin::Side;
#[cfg(feature = "redis")]
use dunlin::cache::DEFAULT_MAX_AGE;
use dunlin::crypto::CryptoProvider;
use dunlin::error::Error;

#[cfg(feature = "sqlite")]
use super::SqliteRecords;
use super::key_file::{self, KeyFault};
use super::{CacheFault, FileRecords, Records, Report, SealedClientCache, SealedServerCache, Sealer};
#[cfg(feature = "redis")]
use super::{DEFAULT_REDIS_TIMEOUT, RedisRecords};
use crate::files::{are_same, beside};

/// The default capacity of a file, in peers. It is small because each change rewrites the whole file.
const FILE_CAPACITY: usize = 1000;

/// The default capacity of a database, in peers.
#[cfg(feature = "sqlite")]
const SQLITE_CAPACITY: usize = 100_000;

/// The cache that [`CacheStore::open_client`] opens.
pub type PersistentClientCache = SealedClientCache<Arc<dyn Records>>;

/// The cache that [`CacheStore::open_server`] opens.
pub type PersistentServerCache = SealedServerCache<Arc<dyn Records>>;

/// A handshake cache that outlives the process: its place, and the file with the key that seals it.
///
/// # Examples
/// ```
/// use dunlin_store::cache::CacheStore;
/// # use dunlin_store::cache::OpenError;
///
/// # fn open(provider: std::sync::Arc<dunlin::crypto::CryptoProvider>) -> Result<(), OpenError> {
/// // Creates `servers.cache` and `servers.cache.key` if they are missing.
/// let cache = CacheStore::file("servers.cache")
///     .open_client(&provider, Box::new(|fault| eprintln!("{fault}")))?;
/// # drop(cache);
/// # Ok(())
/// # }
/// ```
///
/// Pass the cache to [`ClientConfig::with_handshake_cache`](dunlin::ClientConfig::with_handshake_cache) or
/// [`ServerConfig::with_handshake_cache`](dunlin::ServerConfig::with_handshake_cache). docs/stores.md
/// compares the stores.
#[derive(Clone)]
pub struct CacheStore {
    place: Backend,
    key_file: Option<PathBuf>,
    capacity: Option<usize>,
    #[cfg(feature = "redis")]
    max_age: Duration,
    #[cfg(feature = "redis")]
    timeout: Duration,
}

#[derive(Clone)]
enum Backend {
    File(PathBuf),
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    #[cfg(feature = "redis")]
    Redis(String),
}

impl CacheStore {
    const fn new(place: Backend) -> Self {
        Self {
            place,
            key_file: None,
            capacity: None,
            #[cfg(feature = "redis")]
            max_age: DEFAULT_MAX_AGE,
            #[cfg(feature = "redis")]
            timeout: DEFAULT_REDIS_TIMEOUT,
        }
    }

    /// A cache in a file, with room for 1000 peers: see [`FileRecords`].
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Backend::File(path.into()))
    }

    /// A cache in a SQLite database, with room for 100,000 peers: see [`SqliteRecords`].
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::new(Backend::Sqlite(path.into()))
    }

    /// A cache in the Redis at this URL: see [`RedisRecords::new`]. All its servers need copies of one key
    /// file ([`Self::with_key_file`]).
    #[cfg(feature = "redis")]
    pub fn redis(url: impl Into<String>) -> Self {
        Self::new(Backend::Redis(url.into()))
    }

    /// Sets the key file. By default its name is the name of the file or database and `.key`.
    ///
    /// The file has 32 random bytes and mode 0600, and must not be a symbolic link. A missing key file is
    /// created, except for a Redis.
    #[must_use]
    pub fn with_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_file = Some(path.into());
        self
    }

    /// Sets the capacity in peers, at least one. It does not affect a Redis, which has its own `maxmemory`.
    #[must_use]
    pub const fn with_capacity(mut self, peers: usize) -> Self {
        self.capacity = Some(peers);
        self
    }

    /// Sets when records expire in Redis: the maximum age of the handshake cache, by default
    /// [`DEFAULT_MAX_AGE`].
    #[cfg(feature = "redis")]
    #[must_use]
    pub const fn with_max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    /// Sets the time limit for each question to Redis, by default [`DEFAULT_REDIS_TIMEOUT`].
    #[cfg(feature = "redis")]
    #[must_use]
    pub const fn with_redis_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Opens the store as a client's cache, and creates the store and its key file if they are missing. It
    /// calls `report` for each failure and for a new key ([`CacheFault::NewKey`]).
    ///
    /// # Errors
    /// The store cannot be opened, or belongs to a server or to another user. The key file cannot be read or
    /// created, belongs to another user or is open to one, is a symbolic link, or is the store itself.
    pub fn open_client(
        &self,
        provider: &Arc<CryptoProvider>,
        report: Report,
    ) -> Result<PersistentClientCache, OpenError> {
        self.open(Side::Client, provider, report)
            .map(|(records, sealer)| SealedClientCache::new(records, sealer))
    }

    /// Opens the store as a server's cache, and creates the store and its key file if they are missing. It
    /// calls `report` for each failure and for a new key ([`CacheFault::NewKey`]).
    ///
    /// # Errors
    /// As for [`Self::open_client`]; here a client's store is refused.
    pub fn open_server(
        &self,
        provider: &Arc<CryptoProvider>,
        report: Report,
    ) -> Result<PersistentServerCache, OpenError> {
        self.open(Side::Server, provider, report)
            .map(|(records, sealer)| SealedServerCache::new(records, sealer))
    }

    fn open(
        &self,
        side: Side,
        provider: &Arc<CryptoProvider>,
        report: Report,
    ) -> Result<(Arc<dyn Records>, Sealer), OpenError> {
        let path = self.path();
        let key_file = self.key_file()?;
        if path.is_some_and(|store| are_same(store, &key_file)) {
            return Err(OpenError::KeyIsStore(key_file));
        }
        let report: Arc<dyn Fn(&CacheFault) + Send + Sync> = report.into();
        let told = Arc::clone(&report);
        let records =
            || self.records(side, provider, Box::new(move |fault| told(fault))).map_err(OpenError::Store);
        let sealer = || {
            let opened = key_file::open(&key_file, provider, path.is_some());
            let (key, is_new) = opened.map_err(|fault| OpenError::Key { file: key_file.clone(), fault })?;
            let sealer = Sealer::new(Arc::clone(provider), &key).map_err(OpenError::Provider)?;
            if is_new {
                report(&CacheFault::NewKey { file: key_file.clone() });
            }
            Ok(sealer)
        };
        // Open a file first, so that no key is made for an unusable store; read a Redis's key before
        // connecting.
        if path.is_some() {
            let records = records()?;
            return sealer().map(|sealer| (records, sealer));
        }
        let sealer = sealer()?;
        records().map(|records| (records, sealer))
    }

    /// The path of the file or database.
    fn path(&self) -> Option<&Path> {
        match &self.place {
            Backend::File(path) => Some(path),
            #[cfg(feature = "sqlite")]
            Backend::Sqlite(path) => Some(path),
            #[cfg(feature = "redis")]
            Backend::Redis(_) => None,
        }
    }

    fn key_file(&self) -> Result<PathBuf, OpenError> {
        let default = || self.path().map(|path| beside(path, ".key"));
        self.key_file.clone().or_else(default).ok_or(OpenError::NoKeyFile)
    }

    fn records(
        &self,
        side: Side,
        provider: &Arc<CryptoProvider>,
        report: Report,
    ) -> Result<Arc<dyn Records>, CacheFault> {
        let capacity = |default| self.capacity.unwrap_or(default);
        Ok(match &self.place {
            Backend::File(path) => {
                Arc::new(FileRecords::open(path, side, provider, capacity(FILE_CAPACITY), report)?)
            }
            #[cfg(feature = "sqlite")]
            Backend::Sqlite(path) => {
                Arc::new(SqliteRecords::open(path, side, capacity(SQLITE_CAPACITY), report)?)
            }
            #[cfg(feature = "redis")]
            Backend::Redis(url) => Arc::new(RedisRecords::new(url, self.max_age, self.timeout, report)?),
        })
    }
}

impl fmt::Debug for CacheStore {
    /// Omits the URL of a Redis, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheStore").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// Why a persistent cache cannot be opened. The text says what is wrong; [`OpenError::advice`] what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The store cannot be used. Use a cache in memory instead.
    Store(CacheFault),
    /// The key file cannot be used.
    Key {
        /// The key file.
        file: PathBuf,
        /// The fault of the key file.
        fault: KeyFault,
    },
    /// A Redis without a key file: all its servers need copies of one key.
    NoKeyFile,
    /// The key file is the store.
    KeyIsStore(PathBuf),
    /// The provider has no AEAD that can seal records.
    Provider(Error),
}

impl OpenError {
    /// Advice for the user.
    pub fn advice(&self) -> String {
        match self {
            Self::Store(_) => "use another store, or a cache in memory".to_owned(),
            Self::Key { file, fault } => fault.advice(file),
            Self::NoKeyFile => "name the key file, of which all servers have a copy".to_owned(),
            Self::KeyIsStore(_) => "give the key a file of its own".to_owned(),
            Self::Provider(_) => "add a cipher suite with a key of 256 bits to the provider".to_owned(),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(fault) => write!(f, "{fault}"),
            Self::Key { file, fault } => write!(f, "{}: {fault}", file.display()),
            Self::NoKeyFile => f.write_str("a store in Redis needs a key file"),
            Self::KeyIsStore(file) => write!(f, "{}: the key file is the store itself", file.display()),
            Self::Provider(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for OpenError {}
