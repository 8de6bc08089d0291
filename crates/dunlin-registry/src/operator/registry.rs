//! A registry, which takes operations and answers questions.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Encoding};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::method::dunlin::{Operation, OperationKind};
use dunlin_identity::transparency::{
    CheckpointError, NoteError, NoteKey, NoteKeyKind, NoteSigner, RegistryTrust,
};
use tokio::sync::{Semaphore, watch};

use crate::operator::database::{self, CHECKPOINT, KEY};
use crate::operator::error::RegistryError;
use crate::operator::reader::{Reader, Snapshot};
use crate::operator::room::Room;
use crate::operator::writer::{
    Answer, Keys, MAX_CREATIONS, MAX_QUEUE, Pair, Receipt, Submission, Writer, first_checkpoint,
};

/// A registry signs its checkpoint again after this time without an operation, so that it stays fresh.
pub const DEFAULT_REFRESH: Duration = Duration::from_secs(600);

/// The identity of a registry, and its settings.
#[derive(Clone)]
pub struct Settings {
    /// Hashes, verifies and signs.
    pub provider: Arc<CryptoProvider>,
    /// The registry's name, which its DIDs contain: a URL without the scheme.
    pub origin: String,
    /// The registry's Ed25519 key. It signs checkpoints as the log and as a witness of it.
    pub key: Arc<dyn SigningKey>,
    /// The next key of a registry that is about to replace its key. It signs everything, too, until verifiers
    /// know it.
    pub next_key: Option<Arc<dyn SigningKey>>,
    /// The time in seconds since 1970.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// After this time without an operation the registry signs its checkpoint again. It must be shorter than
    /// the age that verifiers accept.
    pub refresh: Duration,
    /// The keys of other witnesses. If there are any, the registry shows a state only after they have
    /// cosigned its checkpoint ([`crate::operator::witness`]).
    pub witnesses: Vec<NoteKey>,
    /// How many of the witnesses must have cosigned.
    pub needed: usize,
    /// The keys of those that replay the log ([`crate::operator::watch`]). If there are any, the registry
    /// shows a state only after they have cosigned its checkpoint.
    pub watches: Vec<NoteKey>,
    /// How many of them must have cosigned.
    pub needed_watches: usize,
}

impl Settings {
    /// The settings of a registry with the machine's clock and [`DEFAULT_REFRESH`], and without other
    /// witnesses.
    pub fn new(provider: Arc<CryptoProvider>, origin: impl Into<String>, key: Arc<dyn SigningKey>) -> Self {
        let now_s = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        Self {
            provider,
            origin: origin.into(),
            key,
            next_key: None,
            clock: Arc::new(now_s),
            refresh: DEFAULT_REFRESH,
            witnesses: Vec::new(),
            needed: 1,
            watches: Vec::new(),
            needed_watches: 0,
        }
    }

    /// The registry's public keys, as log and as witness.
    ///
    /// # Errors
    /// The name or the key is unsuitable.
    pub fn keys(&self) -> Result<[NoteKey; 2], NoteError> {
        Ok(public(&self.pair(&self.key)?))
    }

    fn pair(&self, key: &Arc<dyn SigningKey>) -> Result<Pair, NoteError> {
        let signer = |kind| NoteSigner::new(&self.provider, &self.origin, kind, Arc::clone(key));
        Ok([signer(NoteKeyKind::Note)?, signer(NoteKeyKind::Cosignature)?])
    }

    /// The registry's signing keys: the current key, and the next one.
    fn signers(&self) -> Result<Keys, NoteError> {
        let (key, next) =
            (self.pair(&self.key)?, self.next_key.as_ref().map(|key| self.pair(key)).transpose()?);
        Ok(Keys { key, next })
    }

    /// The trust that this registry's checkpoints must satisfy before it shows them; `None` without other
    /// witnesses and watches.
    fn trust(&self, [log, own]: &[NoteKey; 2]) -> Result<Option<RegistryTrust>, RegistryError> {
        if self.witnesses.is_empty() && self.watches.is_empty() {
            return Ok(None);
        }
        let trust = if self.witnesses.is_empty() {
            RegistryTrust::new(log.clone(), vec![own.clone()])?
        } else {
            RegistryTrust::new(log.clone(), self.witnesses.clone())?.with_needed(self.needed)?
        };
        Ok(Some(trust.with_watches(self.watches.clone(), self.needed_watches)?))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("origin", &self.origin).finish_non_exhaustive()
    }
}

fn public(pair: &Pair) -> [NoteKey; 2] {
    pair.each_ref().map(|signer| signer.key().clone())
}

/// An open registry. It is the only one that writes to its database. Dropping it commits what waits, and ends
/// the writer.
pub struct Registry {
    shared: Arc<Reader>,
    keys: [NoteKey; 2],
    next_keys: Option<[NoteKey; 2]>,
    /// The signatures that a state needs before readers see it; `None` if the registry's own suffices.
    trust: Option<RegistryTrust>,
    /// The keys of witnesses and watches.
    cosigners: Vec<NoteKey>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    queue: Option<SyncSender<Submission>>,
    /// The places for creations in the queue.
    creations: Arc<Semaphore>,
    writer: Option<JoinHandle<()>>,
    /// Its sender ends with the writer.
    ended: watch::Receiver<()>,
    _lock: database::Lock,
}

impl Registry {
    /// Creates the database of a new registry, with an empty log. [`Registry::open`] never creates one: an
    /// empty log under the key of an existing registry would be a second history.
    ///
    /// # Errors
    /// The file exists or cannot be written; the origin or the key is unsuitable.
    pub fn create(path: &Path, settings: &Settings) -> Result<(), RegistryError> {
        let keys = settings.signers()?;
        let checkpoint = first_checkpoint(&settings.provider, &keys, (settings.clock)())?;
        database::create(path, |connection| {
            database::set(connection, KEY, &keys.logs())?;
            Ok(database::set(connection, CHECKPOINT, &checkpoint.to_string())?)
        })
    }

    /// Opens an existing registry, and checks that its log, its state map and its newest checkpoint belong
    /// together.
    ///
    /// # Errors
    /// [`RegistryError::InUse`], [`RegistryError::Foreign`], [`RegistryError::Newer`],
    /// [`RegistryError::OtherKey`], [`RegistryError::Damaged`]; the database cannot be read.
    pub fn open(path: &Path, settings: &Settings) -> Result<Self, RegistryError> {
        let keys = settings.signers()?;
        // One file has one lock, under whatever name it is opened.
        let path = &path.canonicalize().map_err(|error| RegistryError::file(path, &error))?;
        let lock = database::Lock::take(path)?;
        let connection = database::writer(path)?;
        let found = database::setting(&connection, KEY)?;
        let wanted = keys.logs();
        // The registry has had these keys, and it has one of them still.
        if !found.lines().any(|key| wanted.lines().any(|wanted| wanted == key)) {
            return Err(RegistryError::OtherKey { found, wanted });
        }
        let own = public(&keys.key);
        let next_keys = keys.next.as_ref().map(public);
        let provider = Arc::clone(&settings.provider);
        let trust = settings.trust(&own)?;
        let share = |snapshot| Arc::new(Reader::new(provider, path, trust.is_none(), snapshot));
        let clock = Arc::clone(&settings.clock);
        let refresh = settings.refresh;
        let writer = Writer::open(connection, &settings.provider, keys, clock, refresh, share)?;
        let shared = Arc::clone(writer.shared());
        let (queue, submissions) = sync_channel(MAX_QUEUE);
        let thread = std::thread::Builder::new().name("registry".to_owned());
        let (end, ended) = watch::channel(());
        let thread = thread.spawn(move || writer.run(&submissions, end));
        let thread = thread.map_err(|error| RegistryError::file(path, &error))?;
        let cosigners = [settings.witnesses.as_slice(), &settings.watches].concat();
        let keys = own;
        let clock = Arc::clone(&settings.clock);
        let queue = Some(queue);
        let writer = Some(thread);
        let creations = Arc::new(Semaphore::new(MAX_CREATIONS));
        Ok(Self {
            shared,
            keys,
            next_keys,
            trust,
            cosigners,
            clock,
            queue,
            creations,
            writer,
            ended,
            _lock: lock,
        })
    }

    /// Waits until the writer has ended because it cannot read its database. The log says why. Then the
    /// registry takes no operations any more, and its checkpoint grows old: open it again.
    pub async fn writer_ended(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// The registry's time, in seconds since 1970.
    pub(crate) fn clock_s(&self) -> u64 {
        (self.clock)()
    }

    /// The keys with which the registry signs: as the log and as a witness.
    pub fn keys(&self) -> &[NoteKey; 2] {
        &self.keys
    }

    /// The keys with which it signs as well, before they take the place of [`Self::keys`].
    pub fn next_keys(&self) -> Option<&[NoteKey; 2]> {
        self.next_keys.as_ref()
    }

    /// Submits an operation. The writer calls `answer` when the operation is on the disk, or is refused. It
    /// waits for `answer`, which must not block.
    ///
    /// # Errors
    /// [`RegistryError::Busy`], [`RegistryError::Closed`]; `answer` is then never called.
    pub fn submit_then(
        &self,
        operation: Operation,
        answer: impl FnOnce(Result<Receipt, RegistryError>) + Send + 'static,
    ) -> Result<(), RegistryError> {
        self.submit_within(operation, Room::Free, answer)
    }

    /// As [`Self::submit_then`], if the log has only this room.
    ///
    /// # Errors
    /// As [`Self::submit_then`].
    pub fn submit_within(
        &self,
        operation: Operation,
        room: Room,
        answer: impl FnOnce(Result<Receipt, RegistryError>) + Send + 'static,
    ) -> Result<(), RegistryError> {
        let queue = self.queue.as_ref().ok_or(RegistryError::Closed)?;
        let answer = match operation.kind() {
            OperationKind::Create => self.creation(answer)?,
            OperationKind::Update | OperationKind::Deactivate => Box::new(answer),
        };
        queue.try_send(Submission { operation, room, answer }).map_err(|error| match error {
            TrySendError::Full(_) => RegistryError::Busy,
            TrySendError::Disconnected(_) => RegistryError::Closed,
        })
    }

    /// Takes a place for a creation that waits, until it is answered.
    fn creation(
        &self,
        answer: impl FnOnce(Result<Receipt, RegistryError>) + Send + 'static,
    ) -> Result<Answer, RegistryError> {
        let place = Arc::clone(&self.creations).try_acquire_owned().map_err(|_| RegistryError::Busy)?;
        Ok(Box::new(move |result| {
            drop(place);
            answer(result);
        }))
    }

    /// Submits an operation and waits until it is on the disk.
    ///
    /// # Errors
    /// The operation is refused, or was not committed.
    pub fn submit(&self, operation: Operation) -> Result<Receipt, RegistryError> {
        let (answer, answered) = channel();
        self.submit_then(operation, move |result| drop(answer.send(result)))?;
        answered.recv().map_err(|_| RegistryError::Closed)?
    }

    /// The request to a witness to cosign a state, after it has seen the first `old` entries: the body of
    /// `add-checkpoint` (C2SP tlog-witness).
    ///
    /// # Errors
    /// As [`Reader::consistency`].
    pub fn witness_request(&self, snapshot: &Snapshot, old: u64) -> Result<String, RegistryError> {
        // An empty log begins every other one.
        let proof = if old == 0 { Vec::new() } else { self.consistency(old, snapshot.size())? };
        let mut request = format!("old {old}\n");
        for hash in proof {
            request += &Base64::encode_string(&hash);
            request.push('\n');
        }
        Ok(request + "\n" + snapshot.text())
    }

    /// Takes the answers of witnesses and watches about a state, and shows the state if enough have cosigned
    /// it. Returns whether it does. An answer that is malformed or wrong counts for nothing.
    ///
    /// # Errors
    /// [`RegistryError::Checkpoint`] if the registry has no other witnesses.
    pub fn witnessed<'a>(
        &self,
        snapshot: &Snapshot,
        answers: impl IntoIterator<Item = &'a str>,
    ) -> Result<bool, RegistryError> {
        let trust = self.trust.as_ref().ok_or(CheckpointError::Witnesses)?;
        let provider = self.shared.provider();
        let mut checkpoint = snapshot.checkpoint().clone();
        for answer in answers {
            if let Err(error) = checkpoint.note_mut().add_lines(provider, answer, &self.cosigners) {
                tracing::warn!(%error, "rejected the answer of a witness");
            }
        }
        let now_s = (self.clock)();
        let shown = self.shared.show(snapshot.with_signatures(checkpoint), |cosigned, shown| {
            trust.verify(provider, cosigned.text().as_bytes(), Some(shown.checkpoint()), now_s).map(drop)
        });
        match shown {
            Ok(()) => Ok(true),
            Err(
                CheckpointError::Stale { .. }
                | CheckpointError::Unwatched { .. }
                | CheckpointError::Rollback { .. },
            ) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Deref for Registry {
    type Target = Arc<Reader>;

    fn deref(&self) -> &Arc<Reader> {
        &self.shared
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A drop cannot report a panic; the database is as after a crash.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("reader", &self.shared).finish_non_exhaustive()
    }
}
