//! Ticket keys that several servers share through Redis.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use dunlin::Now;
use dunlin::crypto::{AeadKey, CryptoError, CryptoProvider, MAX_KEY_LEN};
use dunlin::resume::{DEFAULT_LIFETIME, SealTickets};
use redis::RedisResult;
use zeroize::Zeroizing;

use super::{SEAL_LEN, Sealed};
use crate::RotatingTickets;
use crate::cache::redis_connection;
use crate::cache::{CacheFault, OpenError};
use crate::tickets::{KEY_NAME_LEN, open_with, seal_with};

/// The prefix of all keys.
const PREFIX: &str = "dunlin:tickets:";

/// Separates the key that seals the record from other uses of the key file.
const LABEL: &[u8] = b"dunlin ticket keys 1";

/// How long before its first use a key is published, so that every server has read it.
const LEAD: Duration = Duration::from_secs(60);

/// How often a server tries to add a key, if others add one at the same time.
const MAX_TRIES: usize = 5;

/// The most keys in Redis: one that opens tickets, one that seals them, the next one, and one to spare.
const MAX_KEYS: usize = 4;

/// How many tickets one server seals with one key. Sixteen servers then stay below 2^32, as random nonces
/// demand (NIST SP 800-38D §8.3).
const MAX_SEALS: u64 = 1 << 28;

/// The name, the key, and the time from which it seals.
const KEY_LEN: usize = KEY_NAME_LEN + MAX_KEY_LEN + 8;

/// The longest record, in bytes.
const MAX_RECORD_LEN: usize = SEAL_LEN + MAX_KEYS * KEY_LEN;

/// Replaces the record if no other server has.
const REPLACE: &str = "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end \
                       redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1";

/// Seals tickets with random keys that several servers share through Redis, and that change with time.
///
/// A key seals tickets for one period and opens them for one more, like the keys of [`RotatingTickets`]. The
/// first server that finds no key for the time to come adds one. Each server has a copy of the key file that
/// seals the keys in Redis. An attacker that can write to Redis can restore older keys, which expire as
/// usual, or remove all.
///
/// A handshake never waits for Redis: only [`Self::refresh`] does, which the caller calls every ten seconds
/// or so. Without Redis, the known keys are used until they expire, and then keys of this server alone.
///
/// The keys have no register, so their servers issue no tickets for early data and accept none.
pub struct SharedTickets {
    sealed: Sealed,
    period_ms: u64,
    keys: RwLock<Vec<SharedKey>>,
    own: RotatingTickets,
}

/// A key as it is in Redis.
struct Stored {
    name: [u8; KEY_NAME_LEN],
    key: Zeroizing<[u8; MAX_KEY_LEN]>,
    from_ms: u64,
}

struct SharedKey {
    name: [u8; KEY_NAME_LEN],
    key: Box<dyn AeadKey>,
    from_ms: u64,
    seals: AtomicU64,
}

impl SharedTickets {
    /// Keys in the Redis at a URL (`redis://[user][:password]@host:port/database`), which `key_file` seals.
    /// Servers share the keys of the same `name`. A key has a period of [`DEFAULT_LIFETIME`]. Nothing is
    /// asked of Redis yet.
    ///
    /// # Errors
    /// The URL is malformed, or the key file cannot be used.
    pub fn open(
        url: &str,
        name: &str,
        key_file: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, OpenError> {
        let sealed = Sealed::open(url, (PREFIX, LABEL, name), key_file, provider.clone())?;
        let own = RotatingTickets::new(provider).map_err(OpenError::Provider)?;
        let period_ms = u64::try_from(DEFAULT_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        Ok(Self { sealed, period_ms, keys: RwLock::default(), own })
    }

    /// Sets how long a key seals tickets, at least two minutes. Choose at least the lifetime of the tickets.
    #[must_use]
    pub fn with_period(mut self, period: Duration) -> Self {
        self.period_ms = u64::try_from(period.max(2 * LEAD).as_millis()).unwrap_or(u64::MAX);
        self.own = self.own.with_period(period);
        self
    }

    /// Reads the keys from Redis, and adds one if it is time. It blocks for two seconds at most.
    ///
    /// # Errors
    /// Redis fails. The known keys stay until they expire.
    pub fn refresh(&self, now: Now) -> Result<(), CacheFault> {
        let exchanged = self.exchange(now.unix_ms).map_err(|why| self.sealed.fault(why));
        // A key that opens no ticket any more could only help a thief.
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|key| self.opens(key.from_ms, now.unix_ms));
        exchanged
    }

    fn exchange(&self, now_ms: u64) -> Result<(), String> {
        let told = |error: redis::RedisError| redis_connection::why(&error);
        let mut connection = self.sealed.connection().map_err(told)?;
        for _ in 0..MAX_TRIES {
            let mut get = redis::cmd("GETRANGE");
            get.arg(&self.sealed.record).arg(0).arg(MAX_RECORD_LEN);
            let before: Vec<u8> = get.query(&mut connection).map_err(told)?;
            let mut keys = self.open_record(&before).unwrap_or_default();
            // A key from another time is damage, or another server's wrong clock.
            keys.retain(|key| self.opens(key.from_ms, now_ms) && key.from_ms <= now_ms + self.period_ms);
            let Some(from_ms) = self.next(&keys, now_ms) else {
                self.adopt(&keys).map_err(|error| error.to_string())?;
                return Ok(());
            };
            let after = self.add(&mut keys, from_ms).map_err(|error| error.to_string())?;
            let mut set = redis::cmd("EVAL");
            set.arg(REPLACE).arg(1).arg(&self.sealed.record).arg(&before).arg(&after).arg(3 * self.period_ms);
            let is_mine: RedisResult<i64> = set.query(&mut connection);
            if is_mine.map_err(told)? == 1 {
                return self.adopt(&keys).map_err(|error| error.to_string());
            }
        }
        Err("other servers add ticket keys all the time".to_owned())
    }

    /// From when a new key has to seal; `None` as long as none is needed.
    fn next(&self, keys: &[Stored], now_ms: u64) -> Option<u64> {
        let lead = u64::try_from(LEAD.as_millis()).unwrap_or(0);
        match keys.iter().map(|key| key.from_ms + self.period_ms).max() {
            Some(end) if end > now_ms + lead => None,
            Some(end) if end > now_ms => Some(end),
            _ => Some(now_ms),
        }
    }

    /// Adds a new key. Returns the record with all of them.
    fn add(&self, keys: &mut Vec<Stored>, from_ms: u64) -> Result<Vec<u8>, CryptoError> {
        let mut new = Stored { name: [0; KEY_NAME_LEN], key: Zeroizing::default(), from_ms };
        self.sealed.provider.random.fill(&mut new.name)?;
        self.sealed.provider.random.fill(&mut *new.key)?;
        keys.push(new);
        keys.sort_by_key(|key| key.from_ms);
        keys.drain(..keys.len().saturating_sub(MAX_KEYS));
        let mut content = Zeroizing::new(Vec::with_capacity(MAX_RECORD_LEN));
        for key in keys.iter() {
            content.extend_from_slice(&key.name);
            content.extend_from_slice(&key.key[..]);
            content.extend_from_slice(&key.from_ms.to_be_bytes());
        }
        self.sealed.seal(&content)
    }

    /// The keys in a record; `None` if it is not authentic.
    fn open_record(&self, sealed: &[u8]) -> Option<Vec<Stored>> {
        let content = self.sealed.unseal(sealed)?;
        let (keys, rest) = content.as_chunks::<KEY_LEN>();
        let stored = |key: &[u8; KEY_LEN]| {
            let (name, rest) = key.split_first_chunk()?;
            let (key, from) = rest.split_first_chunk()?;
            let from_ms = u64::from_be_bytes(from.try_into().ok()?);
            Some(Stored { name: *name, key: Zeroizing::new(*key), from_ms })
        };
        rest.is_empty().then(|| keys.iter().filter_map(stored).collect())
    }

    /// Uses these keys from now on.
    fn adopt(&self, stored: &[Stored]) -> Result<(), CryptoError> {
        let mut next = vec![];
        for Stored { name, key, from_ms } in stored {
            let known = |known: &&SharedKey| known.name == *name;
            let seals = self.read().iter().find(known).map_or(0, |known| known.seals.load(Ordering::Relaxed));
            let key = self.sealed.aead.key(&key[..])?;
            next.push(SharedKey { name: *name, key, from_ms: *from_ms, seals: AtomicU64::new(seals) });
        }
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<SharedKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    const fn opens(&self, from_ms: u64, now_ms: u64) -> bool {
        now_ms < from_ms.saturating_add(2 * self.period_ms)
    }

    fn seals(&self, key: &SharedKey, now_ms: u64) -> bool {
        (key.from_ms..key.from_ms.saturating_add(self.period_ms)).contains(&now_ms)
            && key.seals.load(Ordering::Relaxed) < MAX_SEALS
    }
}

impl SealTickets for SharedTickets {
    fn seal(&self, now: Now, aad: &[u8], plaintext: &[u8]) -> Option<Vec<u8>> {
        let keys = self.read();
        let sealing = keys.iter().filter(|key| self.seals(key, now.unix_ms)).max_by_key(|key| key.from_ms);
        let Some(key) = sealing else {
            drop(keys);
            return self.own.seal(now, aad, plaintext);
        };
        key.seals.fetch_add(1, Ordering::Relaxed);
        seal_with(&*self.sealed.provider.random, &key.name, &*key.key, aad, plaintext)
    }

    fn open(&self, now: Now, aad: &[u8], ticket: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let keys = self.read();
        // A server whose clock is ahead may seal with a key that does not seal here yet.
        let by_name =
            |key: &&SharedKey| ticket.starts_with(&key.name) && self.opens(key.from_ms, now.unix_ms);
        match keys.iter().find(by_name) {
            Some(key) => open_with(&*key.key, aad, ticket),
            None => self.own.open(now, aad, ticket),
        }
    }
}

impl fmt::Debug for SharedTickets {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTickets").field("record", &self.sealed.record).finish_non_exhaustive()
    }
}
