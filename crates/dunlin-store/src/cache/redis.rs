//! Records in Redis, for several servers that share their clients.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{ConnectionInfo, ConnectionLike, IntoConnectionInfo, RedisResult, Value};

use super::redis_connection::{self, RedisConnection};
use super::store_error::{Pause, Reporter};
use super::{CacheFault, MAX_RECORD_LEN, Owner, Record, RecordName, Records, Report};

/// How long a handshake waits for each answer of Redis by default. In a network where a shared cache pays
/// off, an answer takes a millisecond.
pub const DEFAULT_REDIS_TIMEOUT: Duration = Duration::from_millis(50);

/// How many idle connections are kept. Connections beyond that are closed after use.
const MAX_IDLE: usize = 32;

/// The prefix of all keys.
const PREFIX: &[u8] = b"dunlin:cache:";

/// Records in a Redis that several servers may share. Records expire, and Redis may evict them: use a Redis,
/// or at least a database, that serves nothing else. Limit its size with `maxmemory`, some two kilobytes for
/// each client, and `maxmemory-policy allkeys-lru`. Without a limit, clients that connect once fill its
/// memory until their records expire; with the policy `noeviction`, a full Redis takes no new client. If two
/// servers write records of one client at once, a superseded ticket may stay until it expires, because Redis
/// does not know the owner of a record.
///
/// Redis never makes a handshake fail. If it does not answer in time, the entry is treated as missing, and
/// the store pauses for a tenth of a second to ten seconds. A question blocks the thread for the timeout at
/// most, whatever Redis does. After a pause, one handshake at a time tests whether Redis answers again.
///
/// Traffic is in the clear and needs no encryption: records are sealed, and their names are keyed digests.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
///
/// use dunlin::crypto::CryptoProvider;
/// use dunlin_store::cache::{CacheStore, OpenError};
///
/// # fn open(provider: Arc<CryptoProvider>) -> Result<(), OpenError> {
/// // All servers have a copy of the key file.
/// let store = CacheStore::redis("redis://cache.example:6379").with_key_file("cache.key");
/// // For `with_handshake_cache`.
/// let cache = store.open_server(&provider, Box::new(|fault| eprintln!("{fault}")))?;
/// # drop(cache);
/// # Ok(())
/// # }
/// ```
pub struct RedisRecords {
    place: ConnectionInfo,
    timeout: Duration,
    max_age_ms: u64,
    idle: Mutex<Vec<RedisConnection>>,
    pause: Pause,
    reporter: Reporter,
}

impl RedisRecords {
    /// Connects to a URL: `redis://[user][:password]@host:port/database` or `redis+unix:///path?db=database`.
    /// Give the host as an IP address: the look-up of a name has no timeout. Records expire after `max_age`,
    /// the maximum age of the handshake cache. Each question waits for `timeout`, for instance
    /// [`DEFAULT_REDIS_TIMEOUT`]. A Redis that does not answer now is reported, and is no error.
    ///
    /// # Errors
    /// The URL is malformed, or the timeout is zero.
    pub fn new(url: &str, max_age: Duration, timeout: Duration, report: Report) -> Result<Self, CacheFault> {
        // The URL may have a password in it.
        let unusable = |why: String| CacheFault::Unusable { store: "Redis".to_owned(), why };
        let place = url.into_connection_info();
        let place = place.map_err(|error| unusable(format!("not a Redis URL: {error}")))?;
        if timeout.is_zero() {
            return Err(unusable("the timeout is zero: give a millisecond or more".to_owned()));
        }
        let store = Self {
            place,
            timeout,
            max_age_ms: u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2),
            idle: Mutex::default(),
            pause: Pause::default(),
            reporter: Reporter::new(report),
        };
        store.with(|connection| redis::cmd("PING").exec(connection));
        Ok(store)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<RedisConnection>> {
        // No code panics halfway through a change under this lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> String {
        format!("Redis at {}", self.place.addr())
    }

    /// Returns the answer to `ask`, or `None` after reporting that Redis fails.
    fn with<T>(&self, ask: impl Fn(&mut RedisConnection) -> RedisResult<T>) -> Option<T> {
        if self.pause.is_on() {
            return None;
        }
        let until = Instant::now() + self.timeout;
        // The answer, and whether the connection is still open.
        let ask = |mut connection: RedisConnection| {
            connection.begin(until);
            let answer = ask(&mut connection);
            let is_open = connection.is_open();
            let mut idle = self.idle();
            if is_open && idle.len() < MAX_IDLE {
                idle.push(connection);
            }
            (answer, is_open)
        };
        let used = self.idle().pop();
        let (answer, is_open) = match used.map(ask) {
            // Redis may have closed an idle connection.
            None | Some((_, false)) => match RedisConnection::new(&self.place, until) {
                Ok(connection) => ask(connection),
                // A Redis that refuses is reachable, so no pause is needed.
                Err(error) => {
                    let is_open = error.code().is_some();
                    (Err(error), is_open)
                }
            },
            Some(answer) => answer,
        };
        match answer {
            Ok(value) => {
                self.pause.end();
                Some(value)
            }
            Err(error) => {
                if !is_open {
                    self.idle().clear();
                    self.pause.begin();
                }
                self.reporter.fails(|| CacheFault::Unusable {
                    store: self.store(),
                    why: redis_connection::why(&error),
                });
                None
            }
        }
    }
}

fn key(name: &RecordName) -> Vec<u8> {
    PREFIX.iter().copied().chain(name.iter().flat_map(|b| format!("{b:02x}").into_bytes())).collect()
}

impl Records for RedisRecords {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        // GETRANGE bounds the answer: another writer could have stored half a gigabyte. A missing key is an
        // empty string.
        let mut command = redis::cmd("GETRANGE");
        command.arg(key(name)).arg(0).arg(MAX_RECORD_LEN - 1);
        let answer = self.with(|connection| match connection.req_command(&command)? {
            // The key holds another type, so no record.
            Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(Value::Nil),
            answer => answer.extract_error(),
        });
        match answer? {
            Value::BulkString(bytes) if !bytes.is_empty() && bytes.len() <= MAX_RECORD_LEN as usize => {
                Some(bytes)
            }
            _ => None,
        }
    }

    fn put(&self, _: &Owner, records: &[Record], stale: &[RecordName]) -> bool {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for Record { name, bytes } in records {
            pipe.cmd("SET").arg(key(name)).arg(&bytes[..]).arg("PX").arg(self.max_age_ms);
        }
        for name in stale {
            pipe.cmd("DEL").arg(key(name));
        }
        let written = self.with(|connection| pipe.exec(connection));
        if written.is_some() {
            self.reporter.works(|| self.store());
        }
        written.is_some()
    }
}

impl fmt::Debug for RedisRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRecords").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
