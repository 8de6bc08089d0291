//! The readers' view of a registry, and how they read the rest from the database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use dunlin::crypto::CryptoProvider;
use dunlin_identity::key::KeyError;
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::transparency::{
    Hasher, MapLeaf, MerkleError, NodeHash, Nodes, NoteError, SignedCheckpoint, Staple, StateMap, StateProof,
    map_key,
};
use dunlin_identity::{Did, Sha256Hash};
use rusqlite::Connection;

use crate::operator::database;
use crate::operator::error::RegistryError;
use crate::operator::head::Head;
use crate::operator::history::{self, Entry};
use crate::operator::log::{StoredNodes, read_tile};
use crate::operator::room::is_own;
use crate::operator::tile::{TILE_WIDTH, Tile, TileKind};

/// A committed checkpoint and the state map that its log ends with.
#[derive(Clone, Debug)]
pub struct Snapshot {
    checkpoint: SignedCheckpoint,
    text: String,
    map: StateMap,
    path: Arc<[NodeHash]>,
    room: u64,
}

impl Snapshot {
    pub(crate) fn new(checkpoint: SignedCheckpoint, head: &Head) -> Self {
        let map = head.map.clone();
        let path = head.path.as_slice().into();
        Self { text: checkpoint.to_string(), checkpoint, map, path, room: head.room }
    }

    /// The same state with more signatures.
    pub(crate) fn with_signatures(&self, checkpoint: SignedCheckpoint) -> Self {
        Self { text: checkpoint.to_string(), checkpoint, ..self.clone() }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &SignedCheckpoint {
        &self.checkpoint
    }

    /// The checkpoint as a signed note.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it has a signature. A replica that has just been opened has no block that proves its state.
    pub(crate) fn is_signed(&self) -> bool {
        self.checkpoint.note().is_signed()
    }

    /// How many entries the log has.
    pub fn size(&self) -> u64 {
        self.checkpoint.checkpoint().size
    }

    /// The states of all DIDs.
    pub fn map(&self) -> &StateMap {
        &self.map
    }

    /// How many bytes are reserved for further operations of all DIDs.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// The proof of what the map has, or does not have, for the DID in this place.
    pub fn prove(&self, key: &Sha256Hash) -> StateProof {
        StateProof { map: self.map.prove(key), path: self.path.to_vec() }
    }
}

/// Answers from a registry's database, also while the registry writes to it.
pub struct Reader {
    provider: Arc<CryptoProvider>,
    path: PathBuf,
    /// Whether readers see each state at once, or only after others have signed it.
    shows_newest: bool,
    views: RwLock<Views>,
    /// Connections that are not in use.
    idle: Mutex<Vec<Connection>>,
}

/// The newest state, and the one that readers see: the newest one, or the newest that enough witnesses have
/// cosigned.
struct Views {
    newest: Arc<Snapshot>,
    shown: Arc<Snapshot>,
}

impl Reader {
    pub(crate) fn new(
        provider: Arc<CryptoProvider>,
        path: &Path,
        shows_newest: bool,
        snapshot: Snapshot,
    ) -> Self {
        let newest = Arc::new(snapshot);
        let views = RwLock::new(Views { shown: Arc::clone(&newest), newest });
        Self { provider, path: path.to_owned(), shows_newest, views, idle: Mutex::default() }
    }

    /// Another process writes to the database.
    pub(crate) fn in_use(&self) -> RegistryError {
        RegistryError::InUse(self.path.display().to_string())
    }

    pub(crate) fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    /// Makes a committed state the newest.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        views.newest = Arc::new(snapshot);
        if self.shows_newest {
            views.shown = Arc::clone(&views.newest);
        }
    }

    /// Shows readers a state if `accept` agrees, which gets the one that they see.
    pub(crate) fn show<E>(
        &self,
        snapshot: Snapshot,
        accept: impl FnOnce(&Snapshot, &Snapshot) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        accept(&snapshot, &views.shown)?;
        views.shown = Arc::new(snapshot);
        Ok(())
    }

    fn view<T>(&self, view: impl FnOnce(&Views) -> T) -> T {
        view(&self.views.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads from a connection of the caller's own.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = idle().pop();
        let connection = connection.map_or_else(|| database::reader(&self.path), Ok)?;
        let result = read(&connection)?;
        idle().push(connection);
        Ok(result)
    }

    /// The latest committed state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.view(|views| Arc::clone(&views.newest))
    }

    /// The state that readers see: the latest one, or with other witnesses the latest one that enough of them
    /// have cosigned, since the registry was opened. It never goes back.
    pub fn shown(&self) -> Arc<Snapshot> {
        self.view(|views| Arc::clone(&views.shown))
    }

    /// Resolves a DID in the state that readers see, with the proof.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn resolve(&self, did: &Did) -> Result<Resolution, RegistryError> {
        let snapshot = self.shown();
        let key = self.key(did)?;
        let state = match snapshot.map.get(&key) {
            None => None,
            Some(leaf) => {
                let text = self.read(|connection| database::document(connection, &leaf.document))?;
                let missing = || RegistryError::damaged(format!("the document of {did} is missing"));
                Some((leaf, text.ok_or_else(missing)?))
            }
        };
        Ok(Resolution { state, proof: snapshot.prove(&key), snapshot })
    }

    /// The bytes of a tile or an entry bundle; `None` if the log is too small for it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn tile(&self, tile: &Tile) -> Result<Option<Vec<u8>>, RegistryError> {
        let size = self.snapshot().size();
        self.read(|connection| read(connection, tile, size))
    }

    /// Whether this operation is within the own rate of its DID at this time, in seconds since 1970.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn is_own(&self, operation: &Operation, now_s: u64) -> Result<bool, RegistryError> {
        let key = self.key(operation.did())?;
        let stored = self.read(|connection| database::state(connection, &key))?;
        Ok(is_own(operation.kind(), stored.as_ref(), now_s))
    }

    /// How many bytes the database takes on the disk.
    ///
    /// # Errors
    /// The database is gone.
    pub fn size_on_disk(&self) -> Result<u64, RegistryError> {
        database::size_on_disk(&self.path)
    }

    /// The entries from number `first` up to but not including `end`, as far as the log has them and at most
    /// [`TILE_WIDTH`].
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn entries(&self, first: u64, end: u64) -> Result<Vec<Vec<u8>>, RegistryError> {
        let end = end.min(self.snapshot().size()).min(first.saturating_add(TILE_WIDTH.into()));
        self.read(|connection| database::entries(connection, first, end))
    }

    /// The operations of a DID in order, from the one with this number among them, at most
    /// [`MAX_HISTORY`](crate::MAX_HISTORY), as far as the state that readers see has them.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn history(&self, did: &Did, first: u64) -> Result<Vec<Entry>, RegistryError> {
        let key = self.key(did)?;
        let size = self.shown().size();
        self.read(|connection| history::operations(connection, &key, first, size))
    }

    /// The place of a DID in the state map.
    fn key(&self, did: &Did) -> Result<Sha256Hash, RegistryError> {
        Ok(map_key(&self.provider, did).map_err(|error: KeyError| NoteError::from(error))?)
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
        let hasher = Hasher(self.provider.sha256);
        self.read(|connection| StoredNodes { hasher, connection }.consistency(hasher, old, new))
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
        let hasher = Hasher(self.provider.sha256);
        self.read(|connection| StoredNodes { hasher, connection }.inclusion(hasher, number, size))
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The result of resolving a DID, with the proof.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The state and the latest document in canonical form; `None` if the registry does not have the DID.
    pub state: Option<(MapLeaf, String)>,
    /// The proof of the state, or that there is none.
    pub proof: StateProof,
    /// The checkpoint that the proof leads to.
    pub snapshot: Arc<Snapshot>,
}

impl Resolution {
    /// The staple for the DID's holder, to which it may add a proof of membership. `None` if the registry
    /// does not have the DID.
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

/// The numbers of the hashes or entries of a tile, the last one excluded; `None` if a log with this size has
/// no such tile.
pub(crate) fn tile_range(tile: &Tile, size: u64) -> Option<(u64, u64)> {
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

/// Entries as bundles have them: each with its length in two bytes.
pub(crate) fn framed(entries: &[Vec<u8>]) -> Result<Vec<u8>, RegistryError> {
    let mut bytes = Vec::new();
    for entry in entries {
        let length = u16::try_from(entry.len());
        let length = length.map_err(|_| RegistryError::damaged("an entry is too long"))?;
        bytes.extend(length.to_be_bytes());
        bytes.extend(entry);
    }
    Ok(bytes)
}
