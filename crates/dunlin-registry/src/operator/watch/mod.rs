//! Replays the log of a registry, and cosigns only what follows from its operations (`dunlin registry
//! watch`).
//!
//! A [`Watch`] is a witness (C2SP tlog-witness) that checks more than that the log grows: every operation,
//! and every root of the state map. Its database has the tables of a registry, made of the log's entries
//! alone. It asks the registry for its newest checkpoint, and answers the registry's `add-checkpoint`.
//! Whatever it has verified stays on the disk, and so do the checkpoints that show that the registry is
//! false.
//!
//! A verifier that demands the signature of a watch therefore believes no state of a DID that the log does
//! not have.

mod evidence;
mod replay;
mod source;

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::transparency::{
    Checkpoint, CheckpointError, Hasher, NodeHash, NoteError, NoteKey, NoteKeyKind, NoteSigner, Signed,
    SignedCheckpoint,
};
use dunlin_tokio::https::HttpsError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::operator::database::{self, CHECKPOINT, KEY};
use crate::operator::error::RegistryError;
use crate::operator::head::Head;
use evidence::Evidence;
use replay::{NOTE, Replay};

pub use source::Source;

/// How often a watch asks its registry for a new checkpoint.
pub const FOLLOW_TIME: Duration = Duration::from_secs(10);

/// How long the registry waits for the signature of a checkpoint. A longer replay goes on, and its result
/// serves the next request.
const ANSWER_TIME: Duration = Duration::from_secs(8);

/// The most requests that wait for the replay.
const MAX_WAITING: usize = 16;

/// Why a watch does not sign a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The registry cannot be reached over HTTPS.
    #[error("{0}")]
    Https(#[from] HttpsError),
    /// The registry does not have the requested content; the status.
    #[error("{url}: status {status}")]
    Refused {
        /// The URL of the request.
        url: String,
        /// The status of HTTP.
        status: u16,
    },
    /// The answer is not one of a registry.
    #[error("{url}: the answer is not one of a registry")]
    Malformed {
        /// The URL of the request.
        url: String,
    },
    /// The registry has not signed the checkpoint, or it is malformed.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// The registry answers with entries that do not belong to the checkpoint.
    #[error("the registry's entries are not those of its checkpoint of {0} entries: ask again")]
    OtherEntries(u64),
    /// The registry has signed another history than the one on the disk.
    #[error(
        "the registry has signed another history of {0} entries than this watch has verified: keep its checkpoint and report it"
    )]
    OtherHistory(u64),
    /// The registry has signed a larger history than the one on the disk, which is not its continuation.
    #[error(
        "the registry has signed another history of {size} entries, which parts from the one that this watch has verified at the entry {number}: keep its checkpoint and report it"
    )]
    Fork {
        /// The size of the other history.
        size: u64,
        /// The first entry that differs.
        number: u64,
    },
    /// An entry that the registry has signed does not follow from those before it.
    #[error("the entry {number} of {origin} does not follow from the entries before it: {did}: {why}")]
    False {
        /// The number of the entry.
        number: u64,
        /// The registry.
        origin: String,
        /// The DIDs that do not follow.
        did: String,
        /// The reason.
        why: String,
    },
    /// The watch's own database fails.
    #[error("{0}")]
    Registry(#[from] RegistryError),
}

impl WatchError {
    /// Whether the registry's own signatures show that it is false.
    pub(crate) const fn is_false(&self) -> bool {
        matches!(self, Self::False { .. } | Self::Fork { .. } | Self::OtherHistory(_))
    }
}

/// The identity of a watch, and its settings.
#[derive(Clone)]
pub struct WatchSettings {
    /// Hashes, verifies and signs.
    pub provider: Arc<CryptoProvider>,
    /// The keys of the registry as log: one, or an old and a new one.
    pub logs: Vec<NoteKey>,
    /// The watch's name, which verifiers see beside its key.
    pub name: String,
    /// The watch's Ed25519 key.
    pub key: Arc<dyn SigningKey>,
    /// The time in seconds since 1970.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// How often the registry is asked for a new checkpoint.
    pub period: Duration,
}

impl WatchSettings {
    /// The watch's key for cosignatures.
    ///
    /// # Errors
    /// The name or the key is unsuitable.
    pub fn signer(&self) -> Result<NoteSigner, NoteError> {
        NoteSigner::new(&self.provider, &self.name, NoteKeyKind::Cosignature, Arc::clone(&self.key))
    }
}

impl fmt::Debug for WatchSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A registry's request to a watch to cosign a checkpoint (`add-checkpoint`).
pub(crate) struct Ask {
    pub(crate) old: u64,
    pub(crate) proof: Vec<NodeHash>,
    pub(crate) signed: SignedCheckpoint,
    answer: oneshot::Sender<Reply>,
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub(crate) enum Reply {
    /// The signature line.
    Cosigned(String),
    /// The watch has verified this many entries, and the proof must begin there.
    Verified(u64),
    /// The proof is wrong.
    Unproven,
    /// The checkpoint contradicts what the watch has verified, or does not follow from the operations.
    False(WatchError),
    /// The watch cannot say yet.
    Later,
}

/// A running watch, as its HTTPS server sees it.
pub struct Watch {
    provider: Arc<CryptoProvider>,
    logs: Vec<NoteKey>,
    asks: mpsc::Sender<Ask>,
    queue: tokio::sync::Mutex<Option<(Replay, mpsc::Receiver<Ask>)>>,
    period: Duration,
    _lock: database::Lock,
}

/// The text in a watch's database in place of a registry's key.
fn key(origin: &str) -> String {
    format!("watch {origin}")
}

impl Watch {
    /// Creates the database of a new watch of the registry with this origin, which gets its content from the
    /// log.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn create(path: &Path, provider: &CryptoProvider, origin: &str) -> Result<(), RegistryError> {
        let empty = Head::default().checkpoint(Hasher(provider.sha256), origin)?;
        database::create(path, |connection| {
            database::set(connection, KEY, &key(origin))?;
            Ok(database::set(connection, CHECKPOINT, &empty.to_string())?)
        })
    }

    /// Opens the database of a watch, and checks that its log and its state map belong together.
    ///
    /// # Errors
    /// [`RegistryError::InUse`], [`RegistryError::Foreign`], [`RegistryError::OtherKey`],
    /// [`RegistryError::Damaged`]; the database cannot be read; the name or the key is unsuitable.
    pub fn open(path: &Path, settings: &WatchSettings, source: Source) -> Result<Self, RegistryError> {
        let path = &path.canonicalize().map_err(|error| RegistryError::file(path, &error))?;
        let lock = database::Lock::take(path)?;
        let connection = database::writer(path)?;
        let origin = settings.logs.first().map_or("", NoteKey::name).to_owned();
        let found = database::setting(&connection, KEY)?;
        let wanted = key(&origin);
        if found != wanted {
            return Err(RegistryError::OtherKey { found, wanted });
        }
        let newest = Checkpoint::read(&database::setting(&connection, CHECKPOINT)?)?;
        let provider = Arc::clone(&settings.provider);
        let head = Head::load(&connection, Hasher(provider.sha256), &newest)?;
        let signer = settings.signer()?;
        let clock = Arc::clone(&settings.clock);
        let evidence = Evidence::beside(path);
        let note = database::setting(&connection, NOTE).ok();
        let replay = Replay {
            provider,
            connection,
            head,
            note,
            origin,
            signer,
            clock,
            source,
            evidence,
            examined: None,
        };
        let (asks, queue) = mpsc::channel(MAX_WAITING);
        Ok(Self {
            provider: Arc::clone(&settings.provider),
            logs: settings.logs.clone(),
            asks,
            queue: tokio::sync::Mutex::new(Some((replay, queue))),
            period: settings.period,
            _lock: lock,
        })
    }

    /// Follows the registry until the caller drops it. It logs what does not follow, once for each reason.
    pub async fn run(&self) -> Infallible {
        let Some((mut replay, mut queue)) = self.queue.lock().await.take() else {
            return std::future::pending().await;
        };
        let mut told = None;
        loop {
            let next = Instant::now() + self.period;
            let outcome = self.follow(&mut replay).await;
            report(&mut told, outcome.err());
            // The watch itself holds the sender.
            while let Ok(Some(ask)) = timeout_at(next, queue.recv()).await {
                let Ask { old, proof, signed, answer } = ask;
                let reply = replay.cosign(old, &proof, &signed).await;
                if let Reply::False(error) = &reply {
                    report(&mut told, Some(error.clone()));
                }
                // The registry may have gone.
                let _ = answer.send(reply);
            }
        }
    }

    /// Verifies the registry's newest checkpoint.
    async fn follow(&self, replay: &mut Replay) -> Result<(), WatchError> {
        let note = replay.source.checkpoint().await?;
        replay.derive(&self.signed(&note)?).await
    }

    /// Reads a checkpoint that the registry has signed.
    pub(crate) fn signed(&self, note: &[u8]) -> Result<SignedCheckpoint, CheckpointError> {
        let signed = SignedCheckpoint::read(note)?;
        let mut is_signed = false;
        for key in self.logs.iter().filter(|key| *key.name() == signed.checkpoint().origin) {
            is_signed |= signed.note().signed_by(&self.provider, key)? != Signed::No;
        }
        if is_signed {
            Ok(signed)
        } else {
            Err(CheckpointError::NotTheRegistry(signed.checkpoint().origin.clone()))
        }
    }

    /// Asks the replay to cosign a checkpoint.
    pub(crate) async fn cosign(&self, old: u64, proof: Vec<NodeHash>, signed: SignedCheckpoint) -> Reply {
        let (answer, answered) = oneshot::channel();
        if self.asks.try_send(Ask { old, proof, signed, answer }).is_err() {
            return Reply::Later;
        }
        let reply = timeout_at(Instant::now() + ANSWER_TIME, answered).await;
        reply.ok().and_then(Result::ok).unwrap_or(Reply::Later)
    }
}

/// Logs a reason that differs from the one before.
fn report(told: &mut Option<WatchError>, error: Option<WatchError>) {
    if *told == error {
        return;
    }
    match &error {
        None => tracing::warn!("the registry's log follows again"),
        Some(error) if error.is_false() => {
            tracing::error!(%error, "the registry is false: this watch signs nothing of it");
        }
        Some(error @ WatchError::Https(_)) => {
            tracing::warn!(%error, "the registry does not answer; this watch asks again until it does");
        }
        Some(error @ WatchError::Refused { status: 404, .. }) => {
            tracing::warn!(%error, "no registry answers there; check the URL of --registry");
        }
        Some(error) => tracing::warn!(%error, "the registry's log cannot be verified"),
    }
    *told = error;
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("logs", &self.logs).finish_non_exhaustive()
    }
}
