//! The IDs of files in Redis, for the servers of several machines.

use std::fmt;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionInfo, IntoConnectionInfo, RedisResult};

use super::{FileId, FrozenIds, IdsFault};
use crate::cache::redis_connection::{self, RedisConnection};

/// The prefix of all keys.
const PREFIX: &str = "dunlin:frozen:";

/// When Redis forgets the ID of a file that was never thawed. Its associations are long gone by then.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The IDs in a Redis. It has to write each change to its disk at once (`appendonly yes`, `appendfsync
/// always`), without which a removed ID comes back after a loss of power, and must not evict keys
/// (`maxmemory-policy noeviction`).
pub struct RedisIds {
    place: ConnectionInfo,
    timeout: Duration,
}

impl RedisIds {
    /// Uses the Redis at a URL: `redis://[user][:password]@host:port/database` or
    /// `redis+unix:///path?db=database`. It waits for each answer up to `timeout`.
    ///
    /// # Errors
    /// The URL is malformed. A Redis that does not answer now is no error.
    pub fn open(url: &str, timeout: Duration) -> Result<Self, IdsFault> {
        // The URL may have a password in it.
        let place = url.into_connection_info().map_err(|error| IdsFault {
            store: "Redis".to_owned(),
            why: format!("not a Redis URL: {error}"),
        })?;
        Ok(Self { place, timeout })
    }

    fn ask<T: redis::FromRedisValue>(&self, command: &Cmd) -> Result<T, IdsFault> {
        let answer = || -> RedisResult<T> {
            let mut connection = RedisConnection::new(&self.place, Instant::now() + self.timeout)?;
            command.query(&mut connection)
        };
        answer().map_err(|error| IdsFault {
            store: format!("Redis at {}", self.place.addr()),
            why: redis_connection::why(&error),
        })
    }
}

fn key(id: &FileId) -> String {
    format!("{PREFIX}{id}")
}

impl FrozenIds for RedisIds {
    fn put(&self, id: &FileId) -> Result<(), IdsFault> {
        let mut command = redis::cmd("SET");
        command.arg(key(id)).arg("").arg("EX").arg(MAX_AGE.as_secs());
        self.ask::<String>(&command).map(drop)
    }

    fn take(&self, id: &FileId) -> Result<bool, IdsFault> {
        let mut command = redis::cmd("DEL");
        command.arg(key(id));
        self.ask::<i64>(&command).map(|removed| removed == 1)
    }
}

impl fmt::Debug for RedisIds {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisIds").field("address", &self.place.addr().to_string()).finish_non_exhaustive()
    }
}
