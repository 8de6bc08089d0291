//! The handshake cache of a client or a server (docs/handshake-cache.md), by its options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dunlin::ClientConfig;
use dunlin::cache::{CacheMode, ClientCache, DEFAULT_MAX_AGE, ServerCache};
use dunlin::crypto::CryptoProvider;
use dunlin_store::cache::{CacheFault, CacheStore, KeyFault, OpenError, Report};
use dunlin_store::{MemoryClientCache, MemoryServerCache};

use super::lists::seconds;
use crate::error::{Error, printable, warn};
use crate::files;

const HEADING: &str = "Handshake cache";
/// Clients that a server keeps in memory.
const MAX_CLIENTS: usize = 100_000;
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

/// A server's cache: its mode, its store, and how long an entry is used.
pub(super) type OpenCache = (CacheMode, Arc<dyn ServerCache>, Duration);

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
        let open = |store: CacheStore, report| store.open_client(provider, report);
        let cache: Arc<dyn ClientCache> = match self.open(store.filter(|_| has_trust), open)? {
            None => Arc::new(MemoryClientCache::default()),
            Some(cache) => Arc::new(cache),
        };
        Ok(config.with_handshake_cache(mode.into(), cache, self.max_age()))
    }

    /// The cache of a server, how it is used, and for how long. `has_certificates` is whether one can prove it, and `asks` whether clients are asked for theirs.
    pub(crate) fn server(
        &self,
        provider: &Arc<CryptoProvider>,
        has_certificates: bool,
        asks: bool,
    ) -> Result<Option<OpenCache>, Error> {
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
        let open = |store: CacheStore, report| store.open_server(provider, report);
        let cache: Arc<dyn ServerCache> = match self.open(store, open)? {
            None => Arc::new(MemoryServerCache::new(MAX_CLIENTS)),
            Some(cache) => Arc::new(cache),
        };
        Ok(Some((mode.into(), cache, self.max_age())))
    }

    fn max_age(&self) -> Duration {
        self.cache_max_age.unwrap_or(DEFAULT_MAX_AGE)
    }

    /// Where the store is.
    fn place(&self) -> Result<Option<Place>, Error> {
        let Some(place) = self.cache_store.as_deref() else { return Ok(None) };
        let place = Place::parse(place)?;
        if place.is_redis() && self.cache_key.is_none() {
            let why = "what is in Redis is sealed by a key that all its servers have";
            return Err(Error::usage("--cache-store", why, "name its file with --cache-key"));
        }
        Ok(Some(place))
    }

    /// Opens the cache in the store at `place`. `None`, and a warning, where it cannot be used: a device with a full or damaged disk
    /// is to connect all the same.
    fn open<C>(
        &self,
        place: Option<Place>,
        open: impl FnOnce(CacheStore, Report) -> Result<C, OpenError>,
    ) -> Result<Option<C>, Error> {
        let Some(place) = place else { return Ok(None) };
        let store = place.store()?.with_max_age(self.max_age());
        let store = match &self.cache_key {
            Some(key) => store.with_key_file(key),
            None => store,
        };
        let error = match open(store, Box::new(report)) {
            Ok(cache) => return Ok(Some(cache)),
            Err(error) => error,
        };
        match (&error, &place) {
            (OpenError::Store(CacheFault::OtherSide { store, .. }), _) => {
                let why = "a client and a server cannot share a store, and the other side has this one";
                let what = format!("--cache-store {}", store.display());
                Err(Error::usage(what, why, "give each side a file of its own"))
            }
            // A Redis that does not answer is no error.
            (OpenError::Store(_), Place::Redis(_)) => {
                Err(Error::usage("--cache-store", "no URL of a Redis", URL))
            }
            (OpenError::Store(_), Place::RedisIn(path)) => {
                Err(Error::failed(path.display(), "no URL of a Redis", URL))
            }
            (OpenError::Store(fault), _) => {
                warn(&format!("{fault}; {IN_MEMORY}"));
                Ok(None)
            }
            (OpenError::Key { fault: KeyFault::Unwritable(_), .. }, _) => {
                warn(&format!("{error}; {}; {IN_MEMORY}", error.advice()));
                Ok(None)
            }
            (OpenError::Key { file, fault }, _) => Err(Error::failed(file.display(), fault, error.advice())),
            (OpenError::KeyIsStore(_), _) => {
                Err(Error::usage("--cache-key", "it is the file of --cache-store", error.advice()))
            }
            _ => Err(Error::failed("--cache-store", &error, error.advice())),
        }
    }
}

/// Tells what happens to a store.
fn report(fault: &CacheFault) {
    match fault {
        CacheFault::Unusable { .. } => warn(&format!("{fault}; until it works again, certificates are sent")),
        // A user who has mistyped the name of a key, or has lost it, would wonder why nothing is found in the store.
        CacheFault::NewKey { .. } => anstream::eprintln!("dunlin: {}", printable(&fault.to_string())),
        _ => warn(&fault.to_string()),
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

    fn store(&self) -> Result<CacheStore, Error> {
        Ok(match self {
            Self::File(path) => CacheStore::file(path),
            Self::Sqlite(path) => CacheStore::sqlite(path),
            Self::Redis(url) => CacheStore::redis(url),
            Self::RedisIn(path) => CacheStore::redis(url_in(path)?),
        })
    }
}

/// The URL of a Redis in a file.
fn url_in(path: &Path) -> Result<String, Error> {
    files::warn_of_access(path, "the password");
    let content = files::read(path)?;
    let url = str::from_utf8(&content).map_or("", str::trim);
    match check_url(url) {
        Ok(()) => Ok(url.to_owned()),
        Err((why, advice)) => Err(Error::failed(path.display(), why, advice)),
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
