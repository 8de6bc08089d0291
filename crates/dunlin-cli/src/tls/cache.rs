//! The handshake cache of a client or a server (docs/handshake-cache.md), according to its options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dunlin::ClientConfig;
use dunlin::cache::{CacheMode, ClientCache, DEFAULT_MAX_AGE, ServerCache};
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::{Error, printable, warn};
use dunlin_command::files;
use dunlin_store::cache::{CacheFault, CacheStore, KeyFault, OpenError, Report};
use dunlin_store::{MemoryClientCache, MemoryServerCache, StoreUrl, StoreUrlFault};

use super::lists::seconds;

const HEADING: &str = "Handshake cache";
/// The number of clients that a server caches in memory.
const MAX_CLIENTS: usize = 100_000;
/// The maximum of `--cache-max-age`, ten years. A longer age is probably a mistake, such as milliseconds.
const LONGEST_MAX_AGE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The warning for a side without certificates.
const NO_CERTIFICATES: &str = "--cache: it has no effect without certificates; leave it out";
/// The consequence of a store that cannot be used at the start.
const IN_MEMORY: &str = "continuing without it: cached entries are lost at the end of this run";
/// The forms of `--cache-store`.
const KINDS: &str =
    "use FILE (./FILE if its name has a colon), sqlite:FILE, redis://HOST:PORT/DB or redis+file:FILE";
/// The form of a Redis URL.
const URL: &str = "write it as redis://HOST:PORT/DB, where DB is a number";

/// Which certificates the two sides omit, and by which extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Server certificates, by cached_info (RFC 7924).
    Rfc7924,
    /// Also client certificates, by tickets (BiTHaC).
    Bithac,
    /// Both, in the fewest bytes: recommended.
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

/// The options of clients and servers.
#[derive(Args, Clone, Default)]
pub(crate) struct CacheOptions {
    /// Cache the peer's certificates after verification, so that the peer need not send them again. The peers
    /// still prove their keys in every handshake. Both sides need this option; sides in different modes use
    /// what both modes support.
    #[arg(long, value_name = "MODE", help_heading = HEADING)]
    cache: Option<Mode>,
    /// Keep the cache for later runs: FILE (sealed, for few peers); sqlite:FILE (a sealed database);
    /// redis://[USER:PASSWORD@]HOST[:PORT][/DB] (shared by several servers, sealed, without TLS); or
    /// redis+file:FILE (the URL in a file, because other users can see the password in a command). Without
    /// this option, or if the store is unusable, entries are lost at the end of this run.
    // clap must not parse it: its errors would repeat the password.
    #[arg(long, value_name = "PLACE", requires = "cache", help_heading = HEADING)]
    cache_store: Option<String>,
    /// The key file of the store, with 32 random bytes. For a file or database, a missing key file is
    /// created; its default name is the store's with ".key". Anyone who can write both files can forge a
    /// peer.
    #[arg(long, value_name = "FILE", requires = "cache_store", help_heading = HEADING)]
    cache_key: Option<PathBuf>,
    /// How long verified certificates stay valid in the cache, in seconds; default 30 days, at most ten
    /// years.
    #[arg(long, value_name = "SECONDS", requires = "cache", value_parser = max_age, help_heading = HEADING)]
    cache_max_age: Option<Duration>,
}

/// A server's cache: its mode, its store, and the maximum age of entries.
pub(super) type OpenCache = (CacheMode, Arc<dyn ServerCache>, Duration);

impl CacheOptions {
    /// Adds the cache to `config` if requested. `has_trust` says whether the client verifies certificates,
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
            let why = "its entries are lost at the end of this run, which makes only one connection";
            warn(&format!("--cache: {why}; add --cache-store"));
        }
        let open = |store: CacheStore, report| store.open_client(provider, report);
        let cache: Arc<dyn ClientCache> = match self.open(store.filter(|_| has_trust), open)? {
            None => Arc::new(MemoryClientCache::default()),
            Some(cache) => Arc::new(cache),
        };
        Ok(config.with_handshake_cache(mode.into(), cache, self.max_age()))
    }

    /// Returns the server's cache if requested. `has_certificates` says whether the server has a certificate,
    /// `asks` whether it requests client certificates.
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
                "--cache-store: a server caches nothing in mode rfc7924; leave it out, or use another mode",
            ),
            _ if !asks => Some(
                "--cache-store: the server requests no client certificates to cache; add --verify or --Verify",
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

    /// Parses the place of the store.
    fn place(&self) -> Result<Option<Place>, Error> {
        let Some(place) = self.cache_store.as_deref() else { return Ok(None) };
        let place = Place::parse("--cache-store", place, KINDS)?;
        if place.is_redis() && self.cache_key.is_none() {
            let why = "entries in Redis are sealed with a key that all servers share";
            return Err(Error::usage("--cache-store", why, "name its file with --cache-key"));
        }
        Ok(Some(place))
    }

    /// Opens the cache in the store at `place`. If the store is unusable, this warns and returns `None`, so
    /// that a device with a full or damaged disk still connects.
    fn open<C>(
        &self,
        place: Option<Place>,
        open: impl FnOnce(CacheStore, Report) -> Result<C, OpenError>,
    ) -> Result<Option<C>, Error> {
        let Some(place) = place else { return Ok(None) };
        let store = place.store()?.cache().with_max_age(self.max_age());
        let store = match &self.cache_key {
            Some(key) => store.with_key_file(key),
            None => store,
        };
        let error = match open(store, Box::new(report)) {
            Ok(cache) => return Ok(Some(cache)),
            Err(error) => error,
        };
        match &error {
            OpenError::Store(CacheFault::OtherSide { store, .. }) => {
                let why =
                    "a client and a server cannot share a store, and this one belongs to the other side";
                let what = format!("--cache-store {}", store.display());
                Err(Error::usage(what, why, "give each side its own file"))
            }
            OpenError::Store(fault) => {
                warn(&format!("{fault}; {IN_MEMORY}"));
                Ok(None)
            }
            OpenError::Key { fault: KeyFault::Unwritable(_), .. } => {
                warn(&format!("{error}; {}; {IN_MEMORY}", error.advice()));
                Ok(None)
            }
            OpenError::Key { file, fault } => Err(Error::failed(file.display(), fault, error.advice())),
            OpenError::KeyIsStore(_) => {
                Err(Error::usage("--cache-key", "it is the file of --cache-store", error.advice()))
            }
            _ => Err(Error::failed("--cache-store", &error, error.advice())),
        }
    }
}

/// Reports events of a store.
fn report(fault: &CacheFault) {
    match fault {
        CacheFault::Unusable { .. } => {
            warn(&format!("{fault}; until it works again, certificates are sent in full"));
        }
        // The user may have mistyped the name of the key file or lost it, which would explain an empty store.
        CacheFault::NewKey { .. } => anstream::eprintln!("dunlin: {}", printable(&fault.to_string())),
        _ => warn(&fault.to_string()),
    }
}

/// Reads an age in seconds.
fn max_age(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        age if age > LONGEST_MAX_AGE => {
            Err(format!("more than ten years, which are {} seconds", LONGEST_MAX_AGE.as_secs()))
        }
        age => Ok(age),
    }
}

/// A place where entries outlive the process.
pub(super) enum Place {
    Store(StoreUrl),
    /// A file with the URL of a Redis.
    RedisIn(PathBuf),
}

impl Place {
    /// Parses the place that `option` names, of one of the `kinds`. No error repeats a text that may hold a
    /// password.
    pub(super) fn parse(option: &str, text: &str, kinds: &str) -> Result<Self, Error> {
        let parsed = StoreUrl::in_file(text).and_then(|file| match file {
            Some(file) => Ok(Self::RedisIn(file)),
            None => StoreUrl::parse(text).map(Self::Store),
        });
        parsed.map_err(|fault| Error::usage(option, fault, fault.advice().unwrap_or(kinds)))
    }

    const fn is_redis(&self) -> bool {
        matches!(self, Self::Store(StoreUrl::Redis(_)) | Self::RedisIn(_))
    }

    /// The file that the place names.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Store(store) => store.path(),
            Self::RedisIn(path) => Some(path),
        }
    }

    /// The store. Reads the URL of a Redis from its file.
    pub(super) fn store(self) -> Result<StoreUrl, Error> {
        let path = match self {
            Self::Store(store) => return Ok(store),
            Self::RedisIn(path) => path,
        };
        files::warn_of_access(&path, "the password");
        let content = files::text(&path)?;
        let failed =
            |fault: StoreUrlFault| Error::failed(path.display(), fault, fault.advice().unwrap_or(URL));
        match StoreUrl::parse(content.trim()) {
            Ok(store @ StoreUrl::Redis(_)) => Ok(store),
            Err(fault @ (StoreUrlFault::Password | StoreUrlFault::Redis)) => Err(failed(fault)),
            Ok(_) | Err(_) => Err(failed(StoreUrlFault::Redis)),
        }
    }
}
