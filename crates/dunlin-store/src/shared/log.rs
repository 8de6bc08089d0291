//! Messages between several servers through Redis.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin::CryptoProvider;
use redis::{FromRedisValue, RedisResult, Value};

use super::{SEAL_LEN, Sealed};
use crate::cache::redis_connection::{self, RedisConnection};
use crate::cache::{CacheFault, OpenError};

/// The prefix of all keys.
const PREFIX: &str = "dunlin:log:";

/// Separates the key that seals messages from other uses of the key file.
const LABEL: &[u8] = b"dunlin shared log 1";

/// The longest message, in bytes.
pub const MAX_MESSAGE: usize = 3072;

/// The messages that Redis keeps, approximately: the oldest make room.
const MAX_KEPT: usize = 65_536;

/// How many messages are read at once. They fit into what a [`RedisConnection`] reads for a question.
const BATCH: usize = 8;

/// How many messages one exchange sends.
pub const MAX_SENT: usize = 1024;

/// How many messages one exchange reads.
const MAX_READ: usize = 16_384;

/// When Redis forgets messages after the last one.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many messages of a log that keeps all are read at once. They are short, so these fit as well.
const KEPT_BATCH: usize = 128;

/// The longest message of a log that keeps all, in bytes.
pub const MAX_KEPT_MESSAGE: usize = 64;

/// The length of a writer's name.
const WRITER: usize = 16;

/// Passes messages to all other servers that have the same key file, through a stream of Redis.
///
/// Every server gets the messages of the others in one order. A server that starts gets the messages that are
/// still there. An attacker that can write to Redis can remove messages and repeat old ones, but not make or
/// change any. A message should therefore contain its own expiry.
pub struct SharedLog {
    sealed: Sealed,
    /// The name of this server, which is another one after each start.
    writer: [u8; WRITER],
    /// The ID of the last message that this server has read.
    last: Mutex<String>,
    /// Whether Redis keeps all messages.
    keeps: bool,
}

impl SharedLog {
    /// The messages with this `name` in the Redis at a URL, which `key_file` seals. Nothing is asked of Redis
    /// yet.
    ///
    /// # Errors
    /// The URL is malformed, or the key file cannot be used.
    pub fn open(
        url: &str,
        name: &str,
        key_file: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, OpenError> {
        Self::open_as(url, name, key_file, provider, false)
    }

    /// As [`Self::open`], but Redis keeps all messages, each of at most [`MAX_KEPT_MESSAGE`] bytes: what
    /// every server must know, also one that starts later.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_kept(
        url: &str,
        name: &str,
        key_file: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, OpenError> {
        Self::open_as(url, name, key_file, provider, true)
    }

    fn open_as(
        url: &str,
        name: &str,
        key_file: &Path,
        provider: Arc<CryptoProvider>,
        keeps: bool,
    ) -> Result<Self, OpenError> {
        let sealed = Sealed::open(url, (PREFIX, LABEL, name), key_file, provider)?;
        let mut writer = [0; WRITER];
        let filled = sealed.provider.random.fill(&mut writer);
        filled.map_err(|error| OpenError::Provider(error.into()))?;
        Ok(Self { sealed, writer, last: Mutex::new("-".to_owned()), keeps })
    }

    /// Sends messages, at most [`MAX_SENT`], and returns the messages of the other servers since the last
    /// exchange, at most 16,384; more come with the next exchange. Longer messages than [`MAX_MESSAGE`] are
    /// left out. It blocks for two seconds at most.
    ///
    /// # Errors
    /// Redis fails. It may have some of the messages, so send them again.
    pub fn exchange(&self, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, CacheFault> {
        self.send(messages)
            .and_then(|mut connection| self.receive(&mut connection))
            .map_err(|why| self.sealed.fault(why))
    }

    fn send(&self, messages: &[Vec<u8>]) -> Result<RedisConnection, String> {
        let told = |error: redis::RedisError| redis_connection::why(&error);
        let mut connection = self.sealed.connection().map_err(told)?;
        for message in messages.iter().filter(|message| message.len() <= self.max_message()).take(MAX_SENT) {
            let content = [&self.writer[..], message].concat();
            let sealed = self.sealed.seal(&content).map_err(|error| error.to_string())?;
            connection.go_on();
            let mut add = redis::cmd("XADD");
            add.arg(&self.sealed.record);
            if !self.keeps {
                add.arg("MAXLEN").arg("~").arg(MAX_KEPT);
            }
            add.arg("*").arg("m").arg(sealed);
            add.exec(&mut connection).map_err(told)?;
        }
        if !messages.is_empty() && !self.keeps {
            let mut expire = redis::cmd("EXPIRE");
            expire.arg(&self.sealed.record).arg(LIFETIME.as_secs()).exec(&mut connection).map_err(told)?;
        }
        Ok(connection)
    }

    fn receive(&self, connection: &mut RedisConnection) -> Result<Vec<Vec<u8>>, String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut received = vec![];
        let batch = if self.keeps { KEPT_BATCH } else { BATCH };
        for _ in 0..MAX_READ / batch {
            connection.go_on();
            // After the last one; a stream begins at "-".
            let after = if *last == "-" { last.clone() } else { format!("({last}") };
            let mut range = redis::cmd("XRANGE");
            range.arg(&self.sealed.record).arg(after).arg("+").arg("COUNT").arg(batch);
            let read: RedisResult<Vec<Value>> = range.query(connection);
            let read = read.map_err(|error| redis_connection::why(&error))?;
            let count = read.len();
            for entry in read {
                let Some((id, sealed)) = entry_of(entry) else {
                    return Err("the stream has an entry that is not from a server".to_owned());
                };
                *last = id;
                received.extend(self.unseal(&sealed));
            }
            if count < batch {
                break;
            }
        }
        Ok(received)
    }

    const fn max_message(&self) -> usize {
        if self.keeps { MAX_KEPT_MESSAGE } else { MAX_MESSAGE }
    }

    /// A message of another server; `None` for other content.
    fn unseal(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let content =
            self.sealed.unseal(sealed).filter(|_| sealed.len() <= SEAL_LEN + WRITER + self.max_message())?;
        let (writer, message) = content.split_first_chunk::<WRITER>()?;
        (*writer != self.writer).then(|| message.to_vec())
    }
}

/// The ID of an entry of a stream, and its only field.
fn entry_of(entry: Value) -> Option<(String, Vec<u8>)> {
    let (id, fields): (String, Vec<(String, Vec<u8>)>) = FromRedisValue::from_redis_value(entry).ok()?;
    Some((id, fields.into_iter().next().map(|(_, content)| content).unwrap_or_default()))
}

impl fmt::Debug for SharedLog {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLog").field("record", &self.sealed.record).finish_non_exhaustive()
    }
}
