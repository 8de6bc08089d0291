//! The handshake cache of a client or a server (docs/handshake-cache.md), by its options.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dunlin::ClientConfig;
use dunlin::cache::{CacheMode, ClientCache, DEFAULT_MAX_AGE, ServerCache};
use dunlin::crypto::{CryptoProvider, MAX_KEY_LEN};
use dunlin_store::cache::{
    CacheFault, DEFAULT_REDIS_TIMEOUT, FileRecords, Records, RedisRecords, SealedClientCache,
    SealedServerCache, Sealer, SqliteRecords,
};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use zeroize::Zeroizing;

use super::lists::seconds;
use crate::error::{Error, printable, warn};
use crate::files::{self, Access, Existing};

const HEADING: &str = "Handshake cache";
/// Clients that a server keeps, in memory or in a database.
const MAX_CLIENTS: usize = 100_000;
/// Servers or clients in a file, which is written as a whole at each change.
const MAX_IN_FILE: usize = 1000;
/// The longest `--cache-max-age`, ten years: longer ones are a mistake, such as milliseconds.
const LONGEST_MAX_AGE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Why a side without certificates has no cache.
const NO_CERTIFICATES: &str =
    "--cache: without certificates there is nothing to keep, and pre-shared keys need no cache; leave it out";
/// What stands for a store that cannot be used at the start.
const IN_MEMORY: &str = "going on without it: what is kept is gone at the end of this run";
/// What `--cache-store` takes.
const KINDS: &str =
    "use FILE (./FILE if its name has a colon), sqlite:FILE, redis://HOST:PORT/DB or redis+file:FILE";
/// What the URL of a Redis looks like.
const URL: &str = "write it as redis://HOST:PORT/DB, where DB is a number";

/// How much the two sides leave out, and how they say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// What a server sends, by cached_info (RFC 7924).
    Rfc7924,
    /// The same, and clients' certificates by tickets (BiTHaC).
    Bithac,
    /// Both in the fewest bytes: recommended.
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
    /// their keys in every handshake, and both need this; two sides in different modes use what these have in common.
    #[arg(long, value_name = "MODE", help_heading = HEADING)]
    cache: Option<Mode>,
    /// Keep them for later runs, sealed, in a file, for few peers; in a database, sqlite:FILE; or where several servers share
    /// them, redis://[USER:PASSWORD@]HOST[:PORT][/DB], in the clear; redis+file:FILE has that in a file, as a password in a
    /// command can be seen by others. Without it, or while it cannot be used, they are gone at the end of this run.
    // Not parsed by clap, whose errors repeat a value with its password.
    #[arg(long, value_name = "PLACE", requires = "cache", help_heading = HEADING)]
    cache_store: Option<String>,
    /// The key that seals the store, 32 random bytes. That of a file or database is made if it is not there, and by default
    /// has its name and ".key". Who can write both can invent a peer.
    #[arg(long, value_name = "FILE", requires = "cache_store", help_heading = HEADING)]
    cache_key: Option<PathBuf>,
    /// How long certificates are believed after they were verified, in seconds, for ten years at most; by default 30 days.
    #[arg(long, value_name = "SECONDS", requires = "cache", value_parser = max_age, help_heading = HEADING)]
    cache_max_age: Option<Duration>,
}

/// What a store keeps, and what seals it.
type Store = (Arc<dyn Records>, Sealer);

impl CacheOptions {
    /// `config` with the cache, if there shall be one. `has_trust` is whether there are certificates that it believes, and
    /// `connects_again` whether this run makes more than one connection.
    pub(crate) fn client(
        &self,
        config: ClientConfig,
        provider: &Arc<CryptoProvider>,
        has_trust: bool,
        connects_again: bool,
    ) -> Result<ClientConfig, Error> {
        let Some(mode) = self.cache else { return Ok(config) };
        let store = self.place()?;
        if !has_trust {
            warn(NO_CERTIFICATES);
        } else if store.is_none() && !connects_again {
            let why = "what is kept is gone at the end of this run, which makes one connection";
            warn(&format!("--cache: {why}; add --cache-store"));
        }
        let cache: Arc<dyn ClientCache> = match self.open(store.filter(|_| has_trust), provider)? {
            None => Arc::new(MemoryClientCache::default()),
            Some((records, sealer)) => Arc::new(SealedClientCache::new(records, sealer)),
        };
        Ok(config.with_handshake_cache(mode.into(), cache, self.max_age()))
    }

    /// The cache of a server, how it is used, and for how long. `has_certificates` is whether one can prove it, and `asks` whether clients are asked for theirs.
    pub(crate) fn server(
        &self,
        provider: &Arc<CryptoProvider>,
        has_certificates: bool,
        asks: bool,
    ) -> Result<Option<(CacheMode, Arc<dyn ServerCache>, Duration)>, Error> {
        let Some(mode) = self.cache else { return Ok(None) };
        let store = self.place()?;
        let of_no_use = match mode {
            _ if !has_certificates => Some(NO_CERTIFICATES),
            _ if store.is_none() => None,
            Mode::Rfc7924 => Some(
                "--cache-store: a server keeps nothing in mode rfc7924; leave it out, or take another mode",
            ),
            _ if !asks => Some(
                "--cache-store: no client is asked for a certificate that could be kept; add --verify or --Verify",
            ),
            _ => None,
        };
        if let Some(why) = of_no_use {
            warn(why);
        }
        let store = store.filter(|_| of_no_use.is_none());
        let cache: Arc<dyn ServerCache> = match self.open(store, provider)? {
            None => Arc::new(MemoryServerCache::new(MAX_CLIENTS)),
            Some((records, sealer)) => Arc::new(SealedServerCache::new(records, sealer)),
        };
        Ok(Some((mode.into(), cache, self.max_age())))
    }

    fn max_age(&self) -> Duration {
        self.cache_max_age.unwrap_or(DEFAULT_MAX_AGE)
    }

    /// Where the store is, and its key.
    fn place(&self) -> Result<Option<(Place, PathBuf)>, Error> {
        let Some(place) = self.cache_store.as_deref() else { return Ok(None) };
        let place = Place::parse(place)?;
        let key = match (&self.cache_key, place.path()) {
            (Some(key), _) => key.clone(),
            (None, Some(store)) if !place.is_redis() => {
                let mut name = store.as_os_str().to_owned();
                name.push(".key");
                name.into()
            }
            (None, _) => {
                let why = "what is in Redis is sealed by a key that all its servers have";
                return Err(Error::usage("--cache-store", why, "name its file with --cache-key"));
            }
        };
        if place.path().is_some_and(|store| files::are_same(store, &key)) {
            let why = "it is the file of --cache-store";
            return Err(Error::usage("--cache-key", why, "give the key a file of its own"));
        }
        Ok(Some((place, key)))
    }

    /// The store at a place, and what seals it. No key is made for a store that cannot be, and no Redis is asked without one.
    /// `None`, and a warning, where it cannot be used: a device with a full or damaged disk is to connect all the same.
    fn open(
        &self,
        store: Option<(Place, PathBuf)>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Store>, Error> {
        let Some((place, key)) = store else { return Ok(None) };
        let sealer = || sealer(&key, place.is_redis(), provider);
        let open = || place.open(provider, self.max_age());
        let (sealer, records) = match place.is_redis() {
            true => (sealer()?, open()?),
            false => {
                let Some(records) = open()? else { return Ok(None) };
                (sealer()?, Some(records))
            }
        };
        Ok(records.zip(sealer))
    }
}

/// Reads a time of so many seconds.
fn max_age(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        age if age > LONGEST_MAX_AGE => {
            Err(format!("more than ten years, which are {} seconds", LONGEST_MAX_AGE.as_secs()))
        }
        age => Ok(age),
    }
}

/// Where entries outlive the process.
enum Place {
    File(PathBuf),
    Sqlite(PathBuf),
    /// By its URL.
    Redis(String),
    /// By a file with its URL.
    RedisIn(PathBuf),
}

impl Place {
    /// No error repeats what may have a password in it.
    fn parse(text: &str) -> Result<Self, Error> {
        let refused = |(why, advice)| Error::usage("--cache-store", why, advice);
        let behind = |path: &str| match path.split_once(':') {
            _ if path.is_empty() => Err(("no file is named behind the colon", KINDS)),
            Some((name, _)) if !name.contains('/') => Err(("no name of a file is behind the colon", KINDS)),
            _ => Ok(path.into()),
        };
        match text.split_once(':') {
            _ if text.is_empty() => Err(("no place", KINDS)),
            // A mistyped URL, which is in no message.
            Some((kind, rest)) if kind.contains('/') && rest.contains('@') => {
                Err(("unknown kind of store", KINDS))
            }
            Some(("sqlite", path)) => behind(path).map(Self::Sqlite),
            Some(("redis+file", path)) => behind(path).map(Self::RedisIn),
            Some(("redis" | "redis+unix", _)) => check_url(text).map(|()| Self::Redis(text.to_owned())),
            Some(("rediss", _)) => {
                Err(("there is no TLS to Redis", "write redis://, as what is there is sealed"))
            }
            // A mistyped kind shall not become a file of that name.
            Some((kind, _)) if !kind.contains('/') => Err(("unknown kind of store", KINDS)),
            _ => Ok(Self::File(text.into())),
        }
        .map_err(refused)
    }

    const fn is_redis(&self) -> bool {
        matches!(self, Self::Redis(_) | Self::RedisIn(_))
    }

    /// The file that is named.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Sqlite(path) | Self::RedisIn(path) => Some(path),
            Self::Redis(_) => None,
        }
    }

    /// `None`, and a warning, where it cannot be used.
    fn open(
        &self,
        provider: &Arc<CryptoProvider>,
        max_age: Duration,
    ) -> Result<Option<Arc<dyn Records>>, Error> {
        let report = Box::new(|fault: &CacheFault| match fault {
            CacheFault::Unusable { .. } => {
                warn(&format!("{fault}; until it works again, certificates are sent"));
            }
            _ => warn(&fault.to_string()),
        });
        let redis = |url: &str| {
            let records = RedisRecords::new(url, max_age, DEFAULT_REDIS_TIMEOUT, report.clone());
            // The library's own words are about URLs in general.
            records.map_err(|_| ("no URL of a Redis", URL))
        };
        let opened: Result<Arc<dyn Records>, _> = match self {
            // To open a pipe waits for who writes into it.
            Self::File(path) | Self::Sqlite(path)
                if fs::metadata(path).is_ok_and(|found| !found.is_file()) =>
            {
                Err(format!("{}: it is no file", path.display()))
            }
            Self::File(path) => FileRecords::open(path, provider, MAX_IN_FILE, report)
                .map(|records| Arc::new(records) as _)
                .map_err(|fault| fault.to_string()),
            Self::Sqlite(path) => SqliteRecords::open(path, MAX_CLIENTS, report)
                .map(|records| Arc::new(records) as _)
                .map_err(|fault| fault.to_string()),
            Self::RedisIn(path) => {
                files::warn_of_access(path, "the password");
                let content = files::read(path)?;
                let url = str::from_utf8(&content).map_or("", str::trim);
                let records = check_url(url).and_then(|()| redis(url));
                Ok(Arc::new(records.map_err(|(why, advice)| Error::failed(path.display(), why, advice))?))
            }
            Self::Redis(url) => {
                let refused = |(why, advice)| Error::usage("--cache-store", why, advice);
                Ok(Arc::new(redis(url).map_err(refused)?))
            }
        };
        Ok(opened.inspect_err(|why| warn(&format!("{why}; {IN_MEMORY}"))).ok())
    }
}

/// Whether `url` can be one of a Redis, or why not and what to do.
fn check_url(url: &str) -> Result<(), (&'static str, &'static str)> {
    match url.strip_prefix("redis://").map(|rest| rest.rsplit_once('@')) {
        // A part of it would be taken for the host, and told where that does not answer.
        Some(Some((user, _))) if user.contains(['/', '?', '#']) => Err((
            "a character in the user or the password would end it",
            "write / as %2F, ? as %3F and # as %23 there",
        )),
        Some(_) => Ok(()),
        None if url.starts_with("redis+unix:///") => Ok(()),
        None => Err(("no URL of a Redis", URL)),
    }
}

/// What seals a store with the key at `path`; `None`, and a warning, where a key that is to be made cannot be written.
fn sealer(path: &Path, of_redis: bool, provider: &Arc<CryptoProvider>) -> Result<Option<Sealer>, Error> {
    let key = match path.try_exists() {
        Ok(false) if of_redis => {
            let file = path.display();
            let advice = format!(
                "copy it from a server that has it; for the first one: head -c 32 /dev/urandom > {file}; chmod 600 {file}"
            );
            return Err(Error::failed(file, "no such key, and all servers of a Redis have one", advice));
        }
        Ok(false) => match new_key(path, provider)? {
            Some(key) => key,
            None => return Ok(None),
        },
        _ => read_key(path)?,
    };
    let failed = |e| Error::failed(path.display(), e, "start again; if it stays, this is a fault in dunlin");
    Sealer::new(provider.clone(), &key).map(Some).map_err(failed)
}

fn new_key(path: &Path, provider: &CryptoProvider) -> Result<Option<Zeroizing<[u8; MAX_KEY_LEN]>>, Error> {
    let mut key = Zeroizing::new([0; MAX_KEY_LEN]);
    let failed = |e| Error::failed("randomness", e, "look at the system's random source");
    provider.random.fill(&mut *key).map_err(failed)?;
    match files::write(path, &*key, Access::Secret, Existing::Keep) {
        Ok(()) => {}
        // Another process has made it at the same time.
        Err(_) if path.exists() => return read_key(path).map(Some),
        Err(error) => {
            warn(&format!("{error}; {IN_MEMORY}"));
            return Ok(None);
        }
    }
    // Whoever has mistyped the name of a key that is there, or has lost it, would wonder why nothing is found in the store.
    anstream::eprintln!("dunlin: {}: a new key for the store", printable(&path.display().to_string()));
    Ok(Some(key))
}

fn read_key(path: &Path) -> Result<Zeroizing<[u8; MAX_KEY_LEN]>, Error> {
    let advice = "give the key of this store, or a path where there is nothing yet";
    // To open a pipe waits for who writes into it.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Error::failed(path.display(), "it is no file", advice));
    }
    files::warn_of_access(path, "the keys");
    let bytes = files::read(path)?;
    let key = <[u8; MAX_KEY_LEN]>::try_from(bytes.as_slice()).map(Zeroizing::new);
    key.map_err(|_| {
        let why = format!("it has {} bytes, and a key that seals a store has {MAX_KEY_LEN}", bytes.len());
        Error::failed(path.display(), why, advice)
    })
}
