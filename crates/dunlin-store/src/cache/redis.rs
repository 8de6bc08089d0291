//! Records in Redis, for several servers that share their clients.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{ConnectionInfo, ConnectionLike, IntoConnectionInfo, RedisResult, Value};

use super::link::{self, Link};
use super::trouble::{Pause, Reporter};
use super::{CacheFault, MAX_RECORD_LEN, Owner, Record, RecordName, Records, Report};

/// How long a handshake waits for Redis at each question, if nothing else is said: in a network where it is worth asking, an answer
/// takes a millisecond.
pub const DEFAULT_REDIS_TIMEOUT: Duration = Duration::from_millis(50);

/// Connections that are kept while nobody needs them: those of more handshakes at once are closed.
const MAX_IDLE: usize = 32;

/// What keys begin with.
const PREFIX: &[u8] = b"dunlin:cache:";

/// Records in a Redis that several servers may share. Records expire, and Redis may be told to evict them: keep it for nothing
/// else, or on a database of its own. What bounds it is its own `maxmemory`, of some two kilobytes for each client, with
/// `maxmemory-policy allkeys-lru`; without them, clients that come once fill its memory until their records expire, and with the
/// policy `noeviction` a full one takes nobody new. Where two servers write of one client at once, one of its tickets may stay until
/// it expires, beside those that are to be there: Redis does not know whose a record is.
///
/// A handshake never fails by it: where Redis does not answer in time there is no entry, and nobody asks again for a while, from a
/// tenth of a second to ten seconds. A question blocks the thread for the timeout at most, whatever Redis does, and one handshake
/// at a time finds out whether it answers again.
///
/// Traffic is in the clear, and need not be otherwise: records are sealed, and their names are keyed digests.
pub struct RedisRecords {
    place: ConnectionInfo,
    timeout: Duration,
    max_age_ms: u64,
    idle: Mutex<Vec<Link>>,
    pause: Pause,
    reporter: Reporter,
}

impl RedisRecords {
    /// At this URL: `redis://[user][:password]@host:port/database` or `redis+unix:///path?db=database`. A host that is an address
    /// is asked for in no directory, which has no timeout. Records expire after `max_age`, which is that of the handshake cache;
    /// each question waits for `timeout`, [`DEFAULT_REDIS_TIMEOUT`] for instance. Whether Redis answers is asked once, and reported
    /// if it does not.
    ///
    /// # Errors
    /// It is no such URL, or the timeout is zero.
    pub fn new(url: &str, max_age: Duration, timeout: Duration, report: Report) -> Result<Self, CacheFault> {
        // The URL may have a password in it.
        let unusable = |why: String| CacheFault::Unusable { store: "Redis".to_owned(), why };
        let place = url.into_connection_info();
        let place = place.map_err(|error| unusable(format!("no URL of a Redis: {error}")))?;
        if timeout.is_zero() {
            return Err(unusable("a timeout of zero: give a millisecond or more".to_owned()));
        }
        let store = Self {
            place,
            timeout,
            max_age_ms: u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2),
            idle: Mutex::default(),
            pause: Pause::default(),
            reporter: Reporter::new(report),
        };
        store.with(|link| redis::cmd("PING").exec(link));
        Ok(store)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        // Nothing that runs under the lock leaves anything half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> String {
        format!("Redis at {}", self.place.addr())
    }

    /// What `ask` gives; `None` where Redis fails, which is reported.
    fn with<T>(&self, ask: impl Fn(&mut Link) -> RedisResult<T>) -> Option<T> {
        if self.pause.is_on() {
            return None;
        }
        let until = Instant::now() + self.timeout;
        // The answer, and whether the connection is still there.
        let ask = |mut link: Link| {
            link.begin(until);
            let answer = ask(&mut link);
            let (is_open, mut idle) = (link.is_open(), self.idle());
            if is_open && idle.len() < MAX_IDLE {
                idle.push(link);
            }
            (answer, is_open)
        };
        let used = self.idle().pop();
        let (answer, is_open) = match used.map(ask) {
            // Redis may have closed it since it was used.
            None | Some((_, false)) => match Link::new(&self.place, until) {
                Ok(link) => ask(link),
                // Who refuses is there, and answers at once.
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
                self.reporter.fails(|| CacheFault::Unusable { store: self.store(), why: link::why(&error) });
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
        // Who can write there could have put half a gigabyte. What does not exist is empty.
        let mut command = redis::cmd("GETRANGE");
        command.arg(key(name)).arg(0).arg(MAX_RECORD_LEN - 1);
        let answer = self.with(|link| match link.req_command(&command)? {
            // Something else stands there, which is no record.
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
        let written = self.with(|link| pipe.exec(link));
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
