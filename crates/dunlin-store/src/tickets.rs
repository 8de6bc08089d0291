//! Tickets that carry the session, sealed with keys that never leave the process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use dunlin::crypto::{
    Aead, AeadKey, CryptoError, CryptoProvider, MAX_KEY_LEN, MAX_TAG_LEN, NONCE_LEN, SecureRandom,
};
use dunlin::error::{Error, Misuse};
use dunlin::resume::{DEFAULT_LIFETIME, SealTickets};
use dunlin::{Instant, Now, SingleUse};
use zeroize::{Zeroize, Zeroizing};

/// The name only tells the keys of one server apart. It need not be unguessable.
pub(crate) const KEY_NAME_LEN: usize = 4;

/// How many tickets one key seals. With random nonces of 96 bits, a collision is then less likely than 2^-32
/// (NIST SP 800-38D §8.3).
const MAX_SEALS: u64 = 1 << 32;

/// The number of settings for whose tickets one key of a server with early data is used. A server without the
/// right one tries each, at the price of an AEAD operation. A server has some settings for each profile, and
/// others after a reload.
const MAX_BOUND: usize = 64;

/// Seals tickets with random keys that change with time.
///
/// A key seals tickets for one period, opens them for one more, and is then wiped. So a ticket can be opened
/// for at least one period, and an attacker who steals the keys of a running server cannot read resumptions
/// older than two periods.
///
/// A ticket consists of the key's name, a random nonce (a counter would show which tickets a client got
/// together), the ciphertext and its tag: 32 bytes more than the session.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::ServerConfig;
/// use dunlin::crypto::CryptoProvider;
/// use dunlin::resume::Tickets;
/// use dunlin_store::RotatingTickets;
///
/// # fn resuming(
/// #     server: ServerConfig,
/// #     provider: Arc<CryptoProvider>,
/// # ) -> Result<ServerConfig, dunlin::Error> {
/// let server = server.with_tickets(Tickets::stateless(Arc::new(RotatingTickets::new(provider)?)));
/// # Ok(server)
/// # }
/// ```
pub struct RotatingTickets {
    provider: Arc<CryptoProvider>,
    aead: &'static dyn Aead,
    period: Duration,
    single_use: Option<SingleUse>,
    /// The newest key last. Handshakes only read this list; one handshake a period adds a key.
    keys: RwLock<Vec<TicketKey>>,
}

struct TicketKey {
    name: [u8; KEY_NAME_LEN],
    key: Box<dyn AeadKey>,
    since: Instant,
    seals: AtomicU64,
    /// The associated data to which its tickets are bound, if the keys have a register.
    bound: RwLock<Vec<Vec<u8>>>,
}

impl TicketKey {
    fn bound(&self) -> RwLockReadGuard<'_, Vec<Vec<u8>>> {
        self.bound.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the key can remember what the next ticket is bound to.
    fn can_bind(&self, aad: &[u8]) -> bool {
        let bound = self.bound();
        bound.len() < MAX_BOUND || bound.iter().any(|known| known == aad)
    }

    fn bind(&self, aad: &[u8]) {
        if !self.bound().iter().any(|known| known == aad) {
            self.bound.write().unwrap_or_else(PoisonError::into_inner).push(aad.to_vec());
        }
    }
}

impl RotatingTickets {
    /// Keys with a period of [`DEFAULT_LIFETIME`], for the first AEAD of the provider that has a key of 256
    /// bits: so tickets are sealed as strongly as the sessions of any suite.
    ///
    /// # Errors
    /// The provider has no AEAD with a tag of 16 bytes.
    pub fn new(provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let aeads = provider.cipher_suites.iter().map(|s| s.aead);
        let mut aeads = aeads.filter(|a| a.algorithm().tag_len() == MAX_TAG_LEN);
        let strong = aeads.clone().find(|a| a.algorithm().key_len() == MAX_KEY_LEN);
        let aead = strong.or_else(|| aeads.next());
        let aead = aead.ok_or_else(|| Misuse::Config("no AEAD to seal tickets with".into()))?;
        Ok(Self { provider, aead, period: DEFAULT_LIFETIME, single_use: None, keys: RwLock::default() })
    }

    /// Adds the register of the tickets that come with early data. Without it, servers with these keys
    /// neither issue tickets for early data nor accept any.
    #[must_use]
    pub fn with_single_use(mut self, single_use: SingleUse) -> Self {
        self.single_use = Some(single_use);
        self
    }

    /// Sets how long a key seals tickets. Choose at least the lifetime of the tickets: a ticket opens for one
    /// to two periods.
    #[must_use]
    pub const fn with_period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<TicketKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<TicketKey>> {
        self.keys.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn seals(&self, key: &TicketKey, now: Now, aad: &[u8]) -> bool {
        now.monotonic.since(key.since) < self.period
            && key.seals.load(Ordering::Relaxed) < MAX_SEALS
            && (self.single_use.is_none() || key.can_bind(aad))
    }

    fn opens(&self, key: &TicketKey, now: Now) -> bool {
        now.monotonic.since(key.since) < self.period.saturating_mul(2)
    }

    /// Wipes keys that no longer open tickets.
    fn wipe(&self, now: Now) {
        if !self.read().iter().all(|k| self.opens(k, now)) {
            self.write().retain(|k| self.opens(k, now));
        }
    }

    /// Makes a new key, unless another thread has just made one.
    fn renew(&self, now: Now, aad: &[u8]) -> Result<(), CryptoError> {
        let mut keys = self.write();
        if !keys.last().is_some_and(|k| self.seals(k, now, aad)) {
            keys.push(self.key(now)?);
        }
        Ok(())
    }

    fn key(&self, now: Now) -> Result<TicketKey, CryptoError> {
        let mut name = [0; KEY_NAME_LEN];
        self.provider.random.fill(&mut name)?;
        let mut key = Zeroizing::new(vec![0; self.aead.algorithm().key_len()]);
        self.provider.random.fill(&mut key)?;
        let key = self.aead.key(&key)?;
        let seals = AtomicU64::new(0);
        let bound = RwLock::default();
        Ok(TicketKey { name, key, since: now.monotonic, seals, bound })
    }
}

impl SealTickets for RotatingTickets {
    fn seal(&self, now: Now, aad: &[u8], plaintext: &[u8]) -> Option<Vec<u8>> {
        self.wipe(now);
        if !self.read().last().is_some_and(|k| self.seals(k, now, aad)) {
            self.renew(now, aad).ok()?;
        }
        let keys = self.read();
        let key = keys.last()?;
        if self.single_use.is_some() {
            key.bind(aad);
        }
        key.seals.fetch_add(1, Ordering::Relaxed);
        seal_with(&*self.provider.random, &key.name, &*key.key, aad, plaintext)
    }

    fn open(&self, now: Now, aad: &[u8], ticket: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.wipe(now);
        let keys = self.read();
        let key = keys.iter().find(|key| ticket.starts_with(&key.name))?;
        open_with(&*key.key, aad, ticket)
    }

    fn open_any(&self, now: Now, ticket: &[u8]) -> Option<(Vec<u8>, Zeroizing<Vec<u8>>)> {
        self.wipe(now);
        let keys = self.read();
        let key = keys.iter().find(|key| ticket.starts_with(&key.name))?;
        let bound = key.bound();
        bound.iter().rev().find_map(|aad| Some((aad.clone(), open_with(&*key.key, aad, ticket)?)))
    }

    fn single_use(&self) -> Option<&SingleUse> {
        self.single_use.as_ref()
    }
}

/// Makes a ticket with this key: the key's name, a random nonce, the ciphertext and its tag.
pub(crate) fn seal_with(
    random: &dyn SecureRandom,
    name: &[u8; KEY_NAME_LEN],
    key: &dyn AeadKey,
    aad: &[u8],
    plaintext: &[u8],
) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE_LEN];
    random.fill(&mut nonce).ok()?;
    let mut ticket = Vec::with_capacity(KEY_NAME_LEN + NONCE_LEN + plaintext.len() + MAX_TAG_LEN);
    ticket.extend_from_slice(name);
    ticket.extend_from_slice(&nonce);
    let start = ticket.len();
    ticket.extend_from_slice(plaintext);
    let mut tag = [0; MAX_TAG_LEN];
    if key.seal(&nonce, aad, ticket.get_mut(start..)?, &mut tag).is_err() {
        ticket.zeroize();
        return None;
    }
    ticket.extend_from_slice(&tag);
    Some(ticket)
}

/// Opens a ticket that this key has sealed.
pub(crate) fn open_with(key: &dyn AeadKey, aad: &[u8], ticket: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (_, rest) = ticket.split_first_chunk::<KEY_NAME_LEN>()?;
    let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
    let (ciphertext, tag) = rest.split_last_chunk::<MAX_TAG_LEN>()?;
    let mut plaintext = Zeroizing::new(ciphertext.to_vec());
    key.open(nonce, aad, &mut plaintext, tag).ok()?;
    Some(plaintext)
}

impl fmt::Debug for RotatingTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatingTickets").field("period", &self.period).finish_non_exhaustive()
    }
}
