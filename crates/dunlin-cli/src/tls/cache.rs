//! The handshake cache of a client or a server (docs/handshake-cache.md), by its options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dunlin::cache::{CacheMode, ClientCache, DEFAULT_MAX_AGE, ServerCache};
use dunlin::crypto::{CryptoProvider, MAX_KEY_LEN};
use dunlin::{ClientConfig, ServerConfig};
use dunlin_store::cache::{
    CacheFault, DEFAULT_REDIS_TIMEOUT, FileRecords, Records, RedisRecords, SealedClientCache,
    SealedServerCache, Sealer, SqliteRecords,
};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use zeroize::Zeroizing;

use super::options::{misuse, seconds};
use crate::error::{Error, printable, warn};
use crate::files::{self, Access, Existing};

const HEADING: &str = "Handshake cache";
/// Clients that a server keeps, in memory or in a database.
const MAX_CLIENTS: usize = 100_000;
/// Servers or clients in a file, which is written as a whole at each change.
const MAX_IN_FILE: usize = 1000;

/// How much the two sides leave out, and how they say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// What a server sends, by cached_info (RFC 7924).
    Rfc7924,
    /// The same, and clients' certificates by tickets (BiTHaC).
    Bithac,
    /// Both in the fewest bytes.
    Compact,
}

impl From<Mode> for CacheMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Rfc7924 => Self::Rfc7924,
            Mode::Bithac => Self::Bithac,
            Mode::Compact => Self::Compact,
        }
    }
}

/// What both sides have.
#[derive(Args, Clone, Default)]
pub(crate) struct CacheOptions {
    /// Keep the other side's certificates once they are verified, so that they need not be sent again. Both sides go on proving
    /// their keys in every handshake, and both need this, in the same mode.
    #[arg(long, value_name = "MODE", help_heading = HEADING)]
    cache: Option<Mode>,
    /// Keep them for later runs, sealed, in a file, for few peers; in a database, sqlite:FILE; or where several servers share
    /// them, redis://[USER:PASSWORD@]HOST[:PORT][/DB], in the clear; redis+file:FILE has that in a file, as a password in a
    /// command can be seen by others. Without it they are gone at the end of this run.
    #[arg(long, value_name = "PLACE", requires = "cache", value_parser = Place::parse, help_heading = HEADING)]
    cache_store: Option<Place>,
    /// The key that seals the store, 32 random bytes. That of a file or database is made if it is not there, and by default
    /// has its name and ".key". Who can write both can invent a peer.
    #[arg(long, value_name = "FILE", requires = "cache_store", help_heading = HEADING)]
    cache_key: Option<PathBuf>,
    /// How long certificates are believed after they were verified, in seconds; by default 30 days.
    #[arg(long, value_name = "SECONDS", requires = "cache", value_parser = seconds, help_heading = HEADING)]
    cache_max_age: Option<Duration>,
}

impl CacheOptions {
    /// `config` with the cache, if there shall be one.
    pub(crate) fn client(
        &self,
        config: ClientConfig,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientConfig, Error> {
        let Some(mode) = self.cache else { return Ok(config) };
        let store: Arc<dyn ClientCache> = match &self.cache_store {
            None => Arc::new(MemoryClientCache::default()),
            Some(place) => {
                let (records, sealer) = self.open(place, provider)?;
                Arc::new(SealedClientCache::new(records, sealer))
            }
        };
        Ok(config.with_handshake_cache(mode.into(), store, self.max_age()))
    }

    /// The same for a server.
    pub(crate) fn server(
        &self,
        config: ServerConfig,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ServerConfig, Error> {
        let Some(mode) = self.cache else { return Ok(config) };
        let cache: Arc<dyn ServerCache> = match &self.cache_store {
            None => Arc::new(MemoryServerCache::new(MAX_CLIENTS)),
            Some(place) => {
                let (records, sealer) = self.open(place, provider)?;
                Arc::new(SealedServerCache::new(records, sealer))
            }
        };
        config.with_handshake_cache(mode.into(), cache, self.max_age()).map_err(|e| misuse(&e))
    }

    /// Says if the cache cannot do anything: `has_certificates` is whether one can prove the server.
    pub(crate) fn warn_of_no_use(&self, has_certificates: bool) {
        if self.cache.is_some() && !has_certificates {
            let why = "without certificates there is nothing to keep, and pre-shared keys need no cache";
            warn(&format!("--cache: {why}; leave it out"));
        }
    }

    /// Says if a client that makes one connection keeps what it cannot use.
    pub(crate) fn warn_of_no_store(&self) {
        if self.cache.is_some() && self.cache_store.is_none() {
            let why = "what is kept is gone at the end of this run, which makes one connection";
            warn(&format!("--cache: {why}; add --cache-store"));
        }
    }

    /// Says if a server keeps nothing in its store: `asks` is whether clients are asked for certificates.
    pub(crate) fn warn_of_empty_store(&self, asks: bool) {
        let why = match self.cache.filter(|_| self.cache_store.is_some()) {
            Some(Mode::Rfc7924) => {
                "a server keeps nothing in mode rfc7924; leave it out, or take another mode"
            }
            Some(_) if !asks => {
                "no client is asked for a certificate that could be kept; add --verify or --Verify"
            }
            _ => return,
        };
        warn(&format!("--cache-store: {why}"));
    }

    fn max_age(&self) -> Duration {
        self.cache_max_age.unwrap_or(DEFAULT_MAX_AGE)
    }

    /// The store at `place`, and what seals it. No key is made for a store that cannot be, and no Redis is asked without one.
    fn open(
        &self,
        place: &Place,
        provider: &Arc<CryptoProvider>,
    ) -> Result<(Arc<dyn Records>, Sealer), Error> {
        let open = || place.open(provider, self.max_age());
        match place {
            Place::File(_) | Place::Sqlite(_) => Ok((open()?, self.sealer(place, provider)?)),
            Place::Redis(_) | Place::RedisIn(_) => {
                let sealer = self.sealer(place, provider)?;
                Ok((open()?, sealer))
            }
        }
    }

    /// What seals the store at `place`.
    fn sealer(&self, place: &Place, provider: &Arc<CryptoProvider>) -> Result<Sealer, Error> {
        let path = match (&self.cache_key, place) {
            (Some(path), _) => path.clone(),
            (None, Place::File(store) | Place::Sqlite(store)) => {
                let mut name = store.as_os_str().to_owned();
                name.push(".key");
                name.into()
            }
            (None, Place::Redis(_) | Place::RedisIn(_)) => {
                let why = "what is in Redis is sealed by a key that all its servers have";
                return Err(Error::usage("--cache-store", why, "name its file with --cache-key"));
            }
        };
        let key = match path.try_exists() {
            Ok(false) if matches!(place, Place::Redis(_) | Place::RedisIn(_)) => {
                let advice = "copy it from a server that has it; for the first one: head -c 32 /dev/urandom";
                return Err(Error::failed(
                    path.display(),
                    "no such key, and all servers of a Redis have one",
                    advice,
                ));
            }
            Ok(false) => new_key(&path, provider)?,
            _ => read_key(&path)?,
        };
        let failed =
            |e| Error::failed(path.display(), e, "start again; if it stays, this is a fault in dunlin");
        Sealer::new(provider.clone(), &key).map_err(failed)
    }
}

/// Where entries outlive the process.
#[derive(Clone)]
enum Place {
    File(PathBuf),
    Sqlite(PathBuf),
    /// By its URL.
    Redis(String),
    /// By a file with its URL.
    RedisIn(PathBuf),
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text.is_empty() => Err("name a place".to_owned()),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("redis+file", path)) => Ok(Self::RedisIn(path.into())),
            Some(("redis" | "redis+unix", _)) => Ok(Self::Redis(text.to_owned())),
            Some(("rediss", _)) => {
                Err("there is no TLS to Redis; records are sealed, so write redis://".to_owned())
            }
            _ => Ok(Self::File(text.into())),
        }
    }

    fn open(&self, provider: &Arc<CryptoProvider>, max_age: Duration) -> Result<Arc<dyn Records>, Error> {
        let report = Box::new(|fault: &CacheFault| match fault {
            CacheFault::Unusable { .. } => warn(&format!("{fault}; what is in it is not used meanwhile")),
            _ => warn(&fault.to_string()),
        });
        let opened: Result<Arc<dyn Records>, _> = match self {
            Self::File(path) => match FileRecords::open(path, provider, MAX_IN_FILE, report) {
                Ok(records) => Ok(Arc::new(records)),
                Err(fault) => Err((fault, "name a file that can be written")),
            },
            Self::Sqlite(path) => match SqliteRecords::open(path, MAX_CLIENTS, report) {
                Ok(records) => Ok(Arc::new(records)),
                Err(fault) => Err((fault, "name a database that can be written, or is to be made")),
            },
            Self::RedisIn(path) => {
                files::warn_of_access(path);
                let url = files::read(path)?;
                let place = str::from_utf8(&url).ok().and_then(|url| Self::parse(url.trim()).ok());
                let Some(place @ Self::Redis(_)) = place else {
                    let advice = "write redis://USER:PASSWORD@HOST:PORT/DB into it";
                    return Err(Error::failed(path.display(), "not the place of a Redis", advice));
                };
                return place.open(provider, max_age);
            }
            Self::Redis(url) => match RedisRecords::new(url, max_age, DEFAULT_REDIS_TIMEOUT, report) {
                Ok(records) => Ok(Arc::new(records)),
                Err(fault) => Err((fault, "write it as redis://HOST:PORT/DB")),
            },
        };
        opened.map_err(|(fault, advice)| Error::failed("--cache-store", fault, advice))
    }
}

fn new_key(path: &Path, provider: &CryptoProvider) -> Result<Zeroizing<[u8; MAX_KEY_LEN]>, Error> {
    let mut key = Zeroizing::new([0; MAX_KEY_LEN]);
    let failed = |e| Error::failed("randomness", e, "look at the system's random source");
    provider.random.fill(&mut *key).map_err(failed)?;
    files::write(path, &*key, Access::Secret, Existing::Keep)?;
    // Whoever has mistyped the name of a key that is there, or has lost it, would wonder why nothing is found in the store.
    anstream::eprintln!("dunlin: {}: a new key for the store", printable(&path.display().to_string()));
    Ok(key)
}

fn read_key(path: &Path) -> Result<Zeroizing<[u8; MAX_KEY_LEN]>, Error> {
    files::warn_of_access(path);
    let bytes = files::read(path)?;
    let key = <[u8; MAX_KEY_LEN]>::try_from(bytes.as_slice()).map(Zeroizing::new);
    key.map_err(|_| {
        let why = format!("it has {} bytes, and a key that seals a store has {MAX_KEY_LEN}", bytes.len());
        Error::failed(path.display(), why, "give the key of this store, or a path where there is nothing yet")
    })
}
