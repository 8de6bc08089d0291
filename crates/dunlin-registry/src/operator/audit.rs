//! Replays the log of a database, and compares everything else in it with the result.

use std::collections::HashMap;
use std::path::Path;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::method::dunlin::{Operation, OperationError, State};
use dunlin_identity::transparency::{
    Checkpoint, CheckpointError, Hasher, LogEntry, MapLeaf, NodeHash, NoteKey, Signed, SignedCheckpoint,
    StateMap, map_key,
};
use dunlin_identity::{DidDocument, Sha256Hash};
use rusqlite::Connection;

use crate::operator::database::{self, CHECKPOINT};
use crate::operator::error::RegistryError;
use crate::operator::history;
use crate::operator::log::{Edge, read_tile};

/// The signers that vouch for the log of a database.
#[derive(Clone, Copy, Debug)]
pub enum Log<'l> {
    /// A registry of one operator, which signs its checkpoints by one of these keys for notes, all with its
    /// origin as their name.
    Signed(&'l [NoteKey]),
    /// The validators of the registry with this origin. The database of a replica has none of their
    /// signatures, so the caller compares the result with a checkpoint that they have signed.
    Replicated(&'l str),
}

impl Log<'_> {
    /// The registry's origin.
    fn origin(&self) -> &str {
        match self {
            Self::Signed(keys) => keys.first().map_or("", NoteKey::name),
            Self::Replicated(origin) => origin,
        }
    }

    /// The checkpoint in a database.
    fn read(&self, text: &str) -> Result<Checkpoint, RegistryError> {
        Ok(match self {
            Self::Signed(_) => SignedCheckpoint::read(text.as_bytes())?.checkpoint().clone(),
            Self::Replicated(_) => Checkpoint::read(text)?,
        })
    }

    /// Checks that the registry has signed a checkpoint. A caller that knows the validators checks a
    /// replica's checkpoint.
    fn check(&self, provider: &CryptoProvider, signed: &SignedCheckpoint) -> Result<(), RegistryError> {
        let mut is_signed = matches!(self, Self::Replicated(_));
        if let Self::Signed(keys) = self {
            for key in *keys {
                is_signed |= signed.note().signed_by(provider, key)? != Signed::No;
            }
        }
        if is_signed && signed.checkpoint().origin == self.origin() {
            Ok(())
        } else {
            Err(CheckpointError::NotTheRegistry(self.origin().to_owned()).into())
        }
    }
}

/// The result of a successful audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// How many operations the log has.
    pub operations: u64,
    /// How many DIDs there are, with the deactivated ones.
    pub dids: u64,
}

/// Checks the database at `path`, also while a registry writes to it: it has the tables of a registry and no
/// trigger or view; every operation in the log is valid after those before it, and every root of the state
/// map is that of the operations before it, the last entry among them; the tiles, the state of every DID and
/// the newest checkpoint follow from the log; the registry has signed that checkpoint and those in
/// `published`, and the log has the root that each of them states for its size. For a replica, the caller
/// verifies the signatures of those in `published`.
///
/// It keeps the latest document of every DID in memory.
///
/// # Errors
/// [`RegistryError::Damaged`] with the first contradiction, [`RegistryError::OldBackup`] for a published
/// checkpoint, [`RegistryError::Checkpoint`] if one is not signed.
pub fn audit(
    provider: &CryptoProvider,
    path: &Path,
    log: Log<'_>,
    published: &[SignedCheckpoint],
) -> Result<Audit, RegistryError> {
    let mut connection = database::reader(path)?;
    // One transaction: a writer may go on meanwhile.
    let transaction = connection.transaction()?;
    database::check_schema(&transaction)?;
    let newest = database::setting(&transaction, CHECKPOINT)?;
    published.iter().try_for_each(|signed| log.check(provider, signed))?;
    if let Log::Signed(_) = log {
        log.check(provider, &SignedCheckpoint::read(newest.as_bytes())?)?;
    }
    let newest = log.read(&newest)?;
    let mut replay = Replay::new(provider, log.origin());
    let mut roots = HashMap::new();
    let size = database::log_size(&transaction)?;
    for signed in published {
        roots.entry(signed.checkpoint().size).or_insert_with(Vec::new).push(signed.checkpoint());
    }
    replay.compare(roots.remove(&0), size)?;
    let mut statement = transaction.prepare("SELECT number, content FROM entry ORDER BY number")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (number, entry): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        replay.entry(database::unsigned(number), &entry, &transaction)?;
        replay.compare(roots.remove(&replay.edge.size()), size)?;
    }
    if let Some(size_ahead) = roots.into_keys().min() {
        return Err(RegistryError::OldBackup { published: size_ahead, found: size });
    }
    replay.finish(&transaction, &newest)?;
    Ok(Audit { checkpoint: newest, operations: replay.operations, dids: replay.map.len() })
}

/// The state of a DID, in less memory than a [`State`].
struct Stored {
    text: String,
    sequence: u64,
    active: bool,
    latest: Sha256Hash,
    entry: u64,
}

struct Replay<'p> {
    provider: &'p CryptoProvider,
    hasher: Hasher<'p>,
    origin: &'p str,
    edge: Edge,
    map: StateMap,
    states: HashMap<Sha256Hash, Stored>,
    /// How many operations the log has so far.
    operations: u64,
    /// Whether the latest entry is the root of the state map, or the log is empty.
    is_stated: bool,
}

impl<'p> Replay<'p> {
    fn new(provider: &'p CryptoProvider, origin: &'p str) -> Self {
        let hasher = Hasher(provider.sha256);
        let edge = Edge::default();
        let map = StateMap::default();
        let states = HashMap::new();
        Self { provider, hasher, origin, edge, map, states, operations: 0, is_stated: true }
    }

    /// Compares the log so far with published checkpoints of its size.
    fn compare(&self, published: Option<Vec<&Checkpoint>>, size: u64) -> Result<(), RegistryError> {
        let Some(published) = published else { return Ok(()) };
        let root = self.edge.root(self.hasher)?;
        for checkpoint in published {
            if checkpoint.root != root {
                return Err(RegistryError::OldBackup { published: checkpoint.size, found: size });
            }
        }
        Ok(())
    }

    fn entry(&mut self, number: u64, entry: &[u8], connection: &Connection) -> Result<(), RegistryError> {
        if number != self.edge.size() {
            return Err(RegistryError::damaged(format!("the entry {} is missing", self.edge.size())));
        }
        let invalid = |error: OperationError| {
            RegistryError::damaged(format!("the entry {number} is not valid: {error}"))
        };
        match LogEntry::read(entry).map_err(invalid)? {
            LogEntry::Root(root) if root == self.map.root(self.hasher) => self.is_stated = true,
            LogEntry::Root(_) => {
                let why =
                    format!("the entry {number} is not the root of the state map of the entries before it");
                return Err(RegistryError::damaged(why));
            }
            LogEntry::Operation(operation) => self.operation(number, &operation, connection)?,
        }
        for (level, number, hashes) in self.edge.push(self.hasher, self.hasher.leaf(entry)) {
            compare_tile(connection, level, number, &hashes)?;
        }
        Ok(())
    }

    fn operation(
        &mut self,
        number: u64,
        operation: &Operation,
        connection: &Connection,
    ) -> Result<(), RegistryError> {
        let invalid = |error: OperationError| {
            RegistryError::damaged(format!("the entry {number} is not valid: {error}"))
        };
        if operation.registry() != self.origin {
            return Err(invalid(OperationError::OtherRegistry(operation.registry().to_owned())));
        }
        let key = map_key(self.provider, operation.did()).map_err(|error| invalid(error.into()))?;
        let state = match self.states.get(&key) {
            None => State::create(self.provider, operation),
            Some(stored) => {
                restore(stored, operation).and_then(|state| state.apply(self.provider, operation))
            }
        };
        let state = state.map_err(invalid)?;
        let text = state.document().canonical().to_owned();
        let document =
            Sha256Hash::of(self.provider, text.as_bytes()).map_err(|error| invalid(error.into()))?;
        let sequence = state.sequence();
        let active = state.is_active();
        self.map = self.map.with(self.hasher, key, MapLeaf { document, sequence, active })?;
        let stored = Stored { text, sequence, active, latest: state.latest(), entry: number };
        self.states.insert(key, stored);
        if history::entry(connection, &key, sequence)? != Some(number) {
            return Err(RegistryError::damaged(format!("the history of a DID lacks the entry {number}")));
        }
        (self.operations, self.is_stated) = (self.operations + 1, false);
        Ok(())
    }

    fn finish(&self, connection: &Connection, newest: &Checkpoint) -> Result<(), RegistryError> {
        for (level, number, hashes) in self.edge.partial() {
            compare_tile(connection, level, number, hashes)?;
        }
        let size = self.edge.size();
        if newest.origin != self.origin {
            return Err(CheckpointError::NotTheRegistry(self.origin.to_owned()).into());
        }
        if newest.size != size || newest.root != self.edge.root(self.hasher)? {
            return Err(RegistryError::damaged("its newest checkpoint is not that of its log"));
        }
        if !self.is_stated {
            return Err(RegistryError::damaged("the last entry of its log is not the root of the state map"));
        }
        let found = history::count(connection)?;
        let operations = self.operations;
        if found != operations {
            return Err(RegistryError::damaged(format!(
                "its histories have {found} operations, the log {operations}"
            )));
        }
        let stored: i64 = connection.query_row("SELECT count(*) FROM did", [], |row| row.get(0))?;
        if database::unsigned(stored) != self.map.len() {
            return Err(RegistryError::damaged(format!("it has {stored} DIDs, the log {}", self.map.len())));
        }
        for (key, expected) in &self.states {
            let found =
                database::state(connection, key)?.filter(|database::Stored { state, entry, .. }| {
                    let text = state.document().canonical();
                    text == expected.text
                        && state.sequence() == expected.sequence
                        && state.is_active() == expected.active
                        && state.latest() == expected.latest
                        && *entry == expected.entry
                });
            if found.is_none() {
                let entry = expected.entry;
                return Err(RegistryError::damaged(format!("the state after the entry {entry} is wrong")));
            }
        }
        Ok(())
    }
}

fn restore(stored: &Stored, operation: &Operation) -> Result<State, OperationError> {
    let document = DidDocument::read(stored.text.as_bytes(), operation.did())?;
    State::restore(document, stored.sequence, stored.active, stored.latest)
}

fn compare_tile(
    connection: &Connection,
    level: u8,
    number: u64,
    hashes: &[NodeHash],
) -> Result<(), RegistryError> {
    if read_tile(connection, level, number)?.as_deref() == Some(hashes) {
        return Ok(());
    }
    Err(RegistryError::damaged(format!("the tile {number} of level {level} is not that of the log")))
}
