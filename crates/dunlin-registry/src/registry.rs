//! A registry: what submits operations and answers questions.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Encoding};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::did::Did;
use dunlin_identity::key::KeyError;
use dunlin_identity::merkle::{Hasher, MerkleError, NodeHash, Nodes};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::registry::checkpoint::{CheckpointError, RegistryTrust, SignedCheckpoint};
use dunlin_identity::registry::map::{MapLeaf, MapProof, StateMap, map_key};
use dunlin_identity::registry::note::{NoteError, NoteKey, NoteKeyKind, NoteSigner};
use dunlin_identity::registry::staple::Staple;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::bundle::{Bundle, framed};
use crate::database::{self, CHECKPOINT, KEY};
use crate::error::RegistryError;
use crate::log::{StoredNodes, read_tile};
use crate::tile::{TILE_WIDTH, Tile, TileKind};
use crate::writer::{MAX_QUEUE, Receipt, Submission, Writer, first_checkpoint};

/// A registry signs its checkpoint again after this time without an operation, so that it stays fresh.
pub const DEFAULT_REFRESH: Duration = Duration::from_secs(600);

/// Who a registry is, and what it works with.
#[derive(Clone)]
pub struct Settings {
    /// Hashes, verifies and signs.
    pub provider: Arc<CryptoProvider>,
    /// The registry's name, which its DIDs contain: a URL without the scheme.
    pub origin: String,
    /// The registry's Ed25519 key. It signs checkpoints as the log and as a witness of it.
    pub key: Arc<dyn SigningKey>,
    /// The time in seconds since 1970.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// After this time without an operation the registry signs its checkpoint again. It must be shorter than the age that verifiers
    /// accept.
    pub refresh: Duration,
    /// The keys of other witnesses. If there are any, the registry shows a state only after they have cosigned its checkpoint
    /// ([`crate::witness`]).
    pub witnesses: Vec<NoteKey>,
    /// How many of the witnesses must have cosigned.
    pub needed: usize,
}

impl Settings {
    /// The settings of a registry with the machine's clock and [`DEFAULT_REFRESH`], and without other witnesses.
    pub fn new(provider: Arc<CryptoProvider>, origin: impl Into<String>, key: Arc<dyn SigningKey>) -> Self {
        let now_s = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        Self {
            provider,
            origin: origin.into(),
            key,
            clock: Arc::new(now_s),
            refresh: DEFAULT_REFRESH,
            witnesses: Vec::new(),
            needed: 1,
        }
    }

    /// The registry's public keys, as log and as witness.
    ///
    /// # Errors
    /// The name or the key is unsuitable.
    pub fn keys(&self) -> Result<[NoteKey; 2], NoteError> {
        Ok(self.signers()?.each_ref().map(|signer| signer.key().clone()))
    }

    fn signers(&self) -> Result<[NoteSigner; 2], NoteError> {
        let signer = |kind| NoteSigner::new(&self.provider, &self.origin, kind, Arc::clone(&self.key));
        Ok([signer(NoteKeyKind::Note)?, signer(NoteKeyKind::Cosignature)?])
    }

    /// Whom this registry's checkpoints must convince before it shows them; `None` without other witnesses.
    fn trust(&self, log: &NoteKey) -> Result<Option<RegistryTrust>, RegistryError> {
        if self.witnesses.is_empty() {
            return Ok(None);
        }
        let trust = RegistryTrust::new(log.clone(), self.witnesses.clone())?;
        Ok(Some(trust.with_needed(self.needed)?))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// A committed checkpoint and the state map that it commits to.
#[derive(Clone, Debug)]
pub struct Snapshot {
    checkpoint: SignedCheckpoint,
    text: String,
    map: StateMap,
}

impl Snapshot {
    pub(crate) fn new(checkpoint: SignedCheckpoint, map: StateMap) -> Self {
        Self { text: checkpoint.to_string(), checkpoint, map }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &SignedCheckpoint {
        &self.checkpoint
    }

    /// The checkpoint as a signed note.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many operations the log has.
    pub fn size(&self) -> u64 {
        self.checkpoint.checkpoint().size
    }

    /// The states of all DIDs.
    pub fn map(&self) -> &StateMap {
        &self.map
    }
}

/// What the writer and the readers share.
pub(crate) struct Shared {
    pub(crate) provider: Arc<CryptoProvider>,
    path: PathBuf,
    /// `None` if no other witnesses must have cosigned what readers see.
    trust: Option<RegistryTrust>,
    witnesses: Vec<NoteKey>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    views: RwLock<Views>,
    /// Connections that are not in use.
    readers: Mutex<Vec<Connection>>,
}

/// The newest state, and the one that readers see: the newest one, or the newest that enough witnesses have cosigned.
struct Views {
    newest: Arc<Snapshot>,
    shown: Arc<Snapshot>,
}

impl Shared {
    /// Makes a committed state the newest.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        views.newest = Arc::new(snapshot);
        if self.trust.is_none() {
            views.shown = Arc::clone(&views.newest);
        }
    }

    /// Another process writes to the database.
    pub(crate) fn in_use(&self) -> RegistryError {
        RegistryError::InUse(self.path.display().to_string())
    }

    fn view<T>(&self, view: impl FnOnce(&Views) -> T) -> T {
        view(&self.views.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads from a connection of the caller's own.
    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let idle = || self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = idle().pop();
        let connection = connection.map_or_else(|| database::reader(&self.path), Ok)?;
        let result = read(&connection)?;
        idle().push(connection);
        Ok(result)
    }
}

/// What a DID resolves to, with the proof.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The state and the latest document in canonical form; `None` if the registry does not have the DID.
    pub state: Option<(MapLeaf, String)>,
    /// The proof of the state, or that there is none.
    pub proof: MapProof,
    /// The checkpoint that the proof leads to.
    pub snapshot: Arc<Snapshot>,
}

impl Resolution {
    /// The staple for the DID's holder, to which it may add a proof of membership. `None` if the registry does not have the DID.
    pub fn staple(&self) -> Option<Staple> {
        let (_, document) = self.state.as_ref()?;
        Some(Staple {
            document: document.clone().into_bytes(),
            checkpoint: self.snapshot.text().as_bytes().to_vec(),
            proof: self.proof.write(),
            membership: Vec::new(),
        })
    }
}

/// An open registry. It is the only one that writes to its database. Dropping it commits what waits, and ends the writer.
pub struct Registry {
    shared: Arc<Shared>,
    keys: [NoteKey; 2],
    queue: Option<SyncSender<Submission>>,
    writer: Option<JoinHandle<()>>,
    /// Its sender ends with the writer.
    ended: watch::Receiver<()>,
    _lock: File,
}

impl Registry {
    /// Creates the database of a new registry, with an empty log. [`Registry::open`] never creates one: an empty log under the key of an
    /// existing registry would be a second history.
    ///
    /// # Errors
    /// The file exists or cannot be written; the origin or the key is unsuitable.
    pub fn create(path: &Path, settings: &Settings) -> Result<(), RegistryError> {
        let signers = settings.signers()?;
        let checkpoint = first_checkpoint(&settings.provider, &signers, (settings.clock)())?;
        let [log, _] = &signers;
        database::create(path, |connection| {
            database::set(connection, KEY, &log.key().to_string())?;
            Ok(database::set(connection, CHECKPOINT, &checkpoint.to_string())?)
        })
    }

    /// Opens an existing registry, and checks that its log, its state map and its newest checkpoint belong together.
    ///
    /// # Errors
    /// [`RegistryError::InUse`], [`RegistryError::Foreign`], [`RegistryError::Newer`], [`RegistryError::OtherKey`],
    /// [`RegistryError::Damaged`]; the database cannot be read.
    pub fn open(path: &Path, settings: &Settings) -> Result<Self, RegistryError> {
        let signers = settings.signers()?;
        // One file has one lock, under whatever name it is opened.
        let path = &path.canonicalize().map_err(|error| RegistryError::file(path, &error))?;
        let lock = database::lock(path)?;
        let connection = database::writer(path)?;
        let keys = signers.each_ref().map(|signer| signer.key().clone());
        let [log, _] = &keys;
        let (found, wanted) = (database::setting(&connection, KEY)?, log.to_string());
        if found != wanted {
            return Err(RegistryError::OtherKey { found, wanted });
        }
        let (provider, trust) = (Arc::clone(&settings.provider), settings.trust(log)?);
        let share = |snapshot| {
            let (newest, path) = (Arc::new(snapshot), path.to_owned());
            let views = RwLock::new(Views { shown: Arc::clone(&newest), newest });
            let (witnesses, clock) = (settings.witnesses.clone(), Arc::clone(&settings.clock));
            Arc::new(Shared { provider, path, trust, witnesses, clock, views, readers: Mutex::default() })
        };
        let clock = Arc::clone(&settings.clock);
        let writer = Writer::open(connection, &settings.provider, signers, clock, settings.refresh, share)?;
        let shared = Arc::clone(writer.shared());
        let (queue, submissions) = sync_channel(MAX_QUEUE);
        let thread = std::thread::Builder::new().name("registry".to_owned());
        let (end, ended) = watch::channel(());
        let thread = thread.spawn(move || writer.run(&submissions, end));
        let thread = thread.map_err(|error| RegistryError::file(path, &error))?;
        Ok(Self { shared, keys, queue: Some(queue), writer: Some(thread), ended, _lock: lock })
    }

    /// Waits until the writer has ended because it cannot read its database. The log says why. Then the registry takes no operations any
    /// more, and its checkpoint grows old: open it again.
    pub async fn writer_ended(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// The keys with which the registry signs: as the log and as a witness.
    pub fn keys(&self) -> &[NoteKey; 2] {
        &self.keys
    }

    /// Submits an operation. The writer calls `answer` when the operation is on the disk, or is refused. It waits for `answer`, which must
    /// not block.
    ///
    /// # Errors
    /// [`RegistryError::Busy`], [`RegistryError::Closed`]; `answer` is then never called.
    pub fn submit_then(
        &self,
        operation: Operation,
        answer: impl FnOnce(Result<Receipt, RegistryError>) + Send + 'static,
    ) -> Result<(), RegistryError> {
        let queue = self.queue.as_ref().ok_or(RegistryError::Closed)?;
        queue.try_send(Submission { operation, answer: Box::new(answer) }).map_err(|error| match error {
            TrySendError::Full(_) => RegistryError::Busy,
            TrySendError::Disconnected(_) => RegistryError::Closed,
        })
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

    /// The latest committed state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.view(|views| Arc::clone(&views.newest))
    }

    /// The state that readers see: the latest one, or with other witnesses the latest one that enough of them have cosigned, since the
    /// registry was opened. It never goes back.
    pub fn shown(&self) -> Arc<Snapshot> {
        self.shared.view(|views| Arc::clone(&views.shown))
    }

    /// What a witness needs to cosign a state, after it has seen the first `old` entries: the body of `add-checkpoint` (C2SP
    /// tlog-witness).
    ///
    /// # Errors
    /// As [`Self::consistency`].
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

    /// Takes the answers of witnesses about a state, and shows the state if enough have cosigned it. Returns whether it does. An answer
    /// that is malformed or wrong counts for nothing.
    ///
    /// # Errors
    /// [`RegistryError::Checkpoint`] if the registry has no other witnesses.
    pub fn witnessed<'a>(
        &self,
        snapshot: &Snapshot,
        answers: impl IntoIterator<Item = &'a str>,
    ) -> Result<bool, RegistryError> {
        let trust = self.shared.trust.as_ref().ok_or(CheckpointError::Witnesses)?;
        let (provider, mut checkpoint) = (&self.shared.provider, snapshot.checkpoint.clone());
        for answer in answers {
            if let Err(error) = checkpoint.note_mut().add_lines(provider, answer, &self.shared.witnesses) {
                tracing::warn!(%error, "the answer of a witness is refused");
            }
        }
        let cosigned = Snapshot::new(checkpoint, snapshot.map.clone());
        let now_s = (self.shared.clock)();
        let mut views = self.shared.views.write().unwrap_or_else(PoisonError::into_inner);
        let shown = Some(&views.shown.checkpoint);
        match trust.verify(provider, cosigned.text.as_bytes(), shown, now_s) {
            Ok(_) => {
                views.shown = Arc::new(cosigned);
                Ok(true)
            }
            Err(CheckpointError::Stale { .. } | CheckpointError::Rollback { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What a DID resolves to in the state that readers see, with the proof.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn resolve(&self, did: &Did) -> Result<Resolution, RegistryError> {
        let snapshot = self.shown();
        let key = map_key(&self.shared.provider, did).map_err(|error: KeyError| NoteError::from(error))?;
        let state = match snapshot.map.get(&key) {
            None => None,
            Some(leaf) => {
                let text = self.shared.read(|connection| database::document(connection, &leaf.document))?;
                let missing = || RegistryError::damaged(format!("the document of {did} is missing"));
                Some((leaf, text.ok_or_else(missing)?))
            }
        };
        Ok(Resolution { state, proof: snapshot.map.prove(&key), snapshot })
    }

    /// The bytes of a tile or an entry bundle; `None` if the log is too small for it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn tile(&self, tile: &Tile) -> Result<Option<Vec<u8>>, RegistryError> {
        let size = self.snapshot().size();
        self.shared.read(|connection| read(connection, tile, size))
    }

    /// An entry bundle in pieces; `None` if the log is too small for it, or the tile consists of hashes.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn bundle(self: &Arc<Self>, tile: &Tile) -> Result<Option<Bundle>, RegistryError> {
        let range = tile_range(tile, self.snapshot().size()).filter(|_| tile.kind == TileKind::Entries);
        let Some((first, end)) = range else { return Ok(None) };
        let length = self.shared.read(|connection| database::bundle_length(connection, first, end))?;
        Ok(Some(Bundle::new(Arc::clone(self), first, end, length)))
    }

    /// How many bytes the database takes on the disk.
    ///
    /// # Errors
    /// The database is gone.
    pub fn size_on_disk(&self) -> Result<u64, RegistryError> {
        database::size_on_disk(&self.shared.path)
    }

    /// The entries from number `first` up to but not including `end`, as far as the log has them and at most [`TILE_WIDTH`].
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn entries(&self, first: u64, end: u64) -> Result<Vec<Vec<u8>>, RegistryError> {
        let end = end.min(self.snapshot().size()).min(first.saturating_add(TILE_WIDTH.into()));
        self.shared.read(|connection| database::entries(connection, first, end))
    }

    /// The proof that the log of `new` entries begins with the `old` first ones (RFC 9162 §2.1.4).
    ///
    /// # Errors
    /// [`RegistryError::Merkle`] if the sizes are not of this log; the database cannot be read.
    pub fn consistency(&self, old: u64, new: u64) -> Result<Vec<NodeHash>, RegistryError> {
        let size = self.snapshot().size();
        if new > size {
            return Err(MerkleError::Sizes { old: new, new: size }.into());
        }
        let hasher = Hasher(self.shared.provider.sha256);
        self.shared.read(|connection| StoredNodes { hasher, connection }.consistency(hasher, old, new))
    }

    /// The proof that the log of `size` entries has the entry with this number (RFC 9162 §2.1.3).
    ///
    /// # Errors
    /// As [`Self::consistency`].
    pub fn inclusion(&self, number: u64, size: u64) -> Result<Vec<NodeHash>, RegistryError> {
        let newest = self.snapshot().size();
        if size > newest {
            return Err(MerkleError::Sizes { old: size, new: newest }.into());
        }
        let hasher = Hasher(self.shared.provider.sha256);
        self.shared.read(|connection| StoredNodes { hasher, connection }.inclusion(hasher, number, size))
    }
}

/// The numbers of the hashes or entries of a tile, the last one excluded; `None` if a log with this size has no such tile.
fn tile_range(tile: &Tile, size: u64) -> Option<(u64, u64)> {
    let count = match tile.kind {
        TileKind::Entries => size,
        TileKind::Hashes(level) => size.checked_shr(8 * u32::from(level)).unwrap_or_default(),
    };
    let first = tile.number.checked_mul(TILE_WIDTH.into())?;
    let end = first.checked_add(tile.width.get().into())?;
    (end <= count).then_some((first, end))
}

/// The bytes of a tile of a log with this size.
pub(crate) fn read(
    connection: &Connection,
    tile: &Tile,
    size: u64,
) -> Result<Option<Vec<u8>>, RegistryError> {
    let Some((first, end)) = tile_range(tile, size) else { return Ok(None) };
    let damaged = || RegistryError::damaged(format!("{tile} is missing or too short"));
    let width = usize::from(tile.width.get());
    match tile.kind {
        TileKind::Hashes(level) => {
            // A tile only grows, so a narrower one is its beginning.
            let hashes = read_tile(connection, level, tile.number)?.ok_or_else(damaged)?;
            Ok(Some(hashes.get(..width).ok_or_else(damaged)?.as_flattened().to_vec()))
        }
        TileKind::Entries => {
            let entries = database::entries(connection, first, end)?;
            if entries.len() != width {
                return Err(damaged());
            }
            framed(&entries).map(Some)
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // Nobody is there to hear of a panic; the database is as after a crash.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("path", &self.shared.path).finish_non_exhaustive()
    }
}
