//! Records in Redis, for several servers that share their clients.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult};

use super::trouble::{Pause, Reporter};
use super::{CacheFault, MAX_RECORD_LEN, Owner, Record, RecordName, Records, Report};

/// How long a handshake waits for Redis at each question, if nothing else is said: in a network where it is worth asking, an answer
/// takes a millisecond.
pub const DEFAULT_REDIS_TIMEOUT: Duration = Duration::from_millis(50);

/// After a failure nobody asks for so long; twice as long after each further one.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Connections that are kept while nobody needs them: those of more handshakes at once are closed.
const MAX_IDLE: usize = 32;

/// What keys begin with.
const PREFIX: &[u8] = b"dunlin:cache:";

/// Records in a Redis that several servers may share. Records expire, and Redis may be told to evict them: keep it for nothing
/// else, or on a database of its own.
///
/// A handshake never fails by it: where Redis does not answer in time there is no entry, and nobody asks again for a while, from a
/// tenth of a second to ten seconds. A question blocks the thread for the timeout at most while Redis is silent, and one handshake
/// at a time finds out whether it answers again.
///
/// Traffic is in the clear, and need not be otherwise: records are sealed, and their names are keyed digests.
pub struct RedisRecords {
    client: Client,
    timeout: Duration,
    max_age_ms: u64,
    idle: Mutex<Vec<Connection>>,
    pause: Mutex<Pause>,
    reporter: Reporter,
}

/// While Redis fails.
#[derive(Default)]
struct Pause {
    until: Option<Instant>,
    length: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under a lock leaves anything half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RedisRecords {
    /// At this URL: `redis://[user][:password]@host:port/database` or `redis+unix:///path?db=database`. A host that is an address
    /// is asked for in no directory, which has no timeout. Records expire after `max_age`, which is that of the handshake cache;
    /// each question waits for `timeout`, [`DEFAULT_REDIS_TIMEOUT`] for instance. Nothing is asked yet.
    ///
    /// # Errors
    /// It is no such URL, or the timeout is zero.
    pub fn new(url: &str, max_age: Duration, timeout: Duration, report: Report) -> Result<Self, CacheFault> {
        // The URL may have a password in it.
        let unusable = |why: String| CacheFault::Unusable { store: "Redis".to_owned(), why };
        let client = Client::open(url).map_err(|error| unusable(format!("no URL of a Redis: {error}")))?;
        if timeout.is_zero() {
            return Err(unusable("a timeout of zero: give a millisecond or more".to_owned()));
        }
        Ok(Self {
            client,
            timeout,
            max_age_ms: u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2),
            idle: Mutex::default(),
            pause: Mutex::default(),
            reporter: Reporter::new(report),
        })
    }

    /// One that nobody uses, or a new one; `None` while it is no use to ask.
    fn connection(&self) -> Option<RedisResult<Connection>> {
        if let Some(connection) = lock(&self.idle).pop() {
            return Some(Ok(connection));
        }
        let mut pause = lock(&self.pause);
        if let Some(until) = pause.until {
            let now = Instant::now();
            if now < until {
                return None;
            }
            // This handshake tries; the others go on without.
            pause.until = Some(now + self.timeout + pause.length);
        }
        drop(pause);
        let connect = || {
            let connection = self.client.get_connection_with_timeout(self.timeout)?;
            connection.set_read_timeout(Some(self.timeout))?;
            connection.set_write_timeout(Some(self.timeout))?;
            Ok(connection)
        };
        Some(connect())
    }

    /// What `ask` gives; `None` where Redis fails, which is reported.
    fn with<T>(&self, ask: impl FnOnce(&mut Connection) -> RedisResult<T>) -> Option<T> {
        let asked = self.connection()?.map_err(|error| (error, false)).and_then(|mut connection| {
            let answer = ask(&mut connection);
            // A refusal is an answer as well. After anything else, the next answer could be that to another question.
            let is_answer = answer.as_ref().err().is_none_or(|error| error.code().is_some());
            let mut idle = lock(&self.idle);
            if is_answer && idle.len() < MAX_IDLE {
                idle.push(connection);
            }
            answer.map_err(|error| (error, is_answer))
        });
        match asked {
            Ok(value) => {
                *lock(&self.pause) = Pause::default();
                self.reporter.works();
                Some(value)
            }
            Err((error, is_answer)) => {
                if !is_answer {
                    self.rest();
                }
                let store = format!("Redis at {}", self.client.get_connection_info().addr());
                self.reporter.fault(CacheFault::Unusable { store, why: error.to_string() });
                None
            }
        }
    }

    /// Nobody asks for a while, and then on a new connection.
    fn rest(&self) {
        lock(&self.idle).clear();
        let mut pause = lock(&self.pause);
        pause.length = (pause.length * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        pause.until = Some(Instant::now() + pause.length);
    }
}

fn key(name: &RecordName) -> Vec<u8> {
    PREFIX.iter().copied().chain(name.iter().flat_map(|b| format!("{b:02x}").into_bytes())).collect()
}

impl Records for RedisRecords {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        // Who can write there could have put half a gigabyte. What does not exist is empty.
        let ask = |c: &mut Connection| {
            redis::cmd("GETRANGE").arg(key(name)).arg(0).arg(MAX_RECORD_LEN).query::<Vec<u8>>(c)
        };
        self.with(ask).filter(|bytes| !bytes.is_empty())
    }

    fn put(&self, _: &Owner, records: &[Record], stale: &[RecordName]) {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for Record { name, bytes } in records {
            pipe.cmd("SET").arg(key(name)).arg(&bytes[..]).arg("PX").arg(self.max_age_ms).ignore();
        }
        for name in stale {
            pipe.cmd("DEL").arg(key(name)).ignore();
        }
        self.with(|connection| pipe.query::<()>(connection));
    }
}

impl fmt::Debug for RedisRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRecords").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
