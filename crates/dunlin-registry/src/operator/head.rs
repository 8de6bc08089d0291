//! The state of the log and of the map that the newest checkpoint states.

use dunlin_identity::transparency::{Checkpoint, Hasher, NodeHash, Nodes, StateMap, root_entry};
use rusqlite::Connection;

use crate::operator::database;
use crate::operator::error::RegistryError;
use crate::operator::log::{Edge, StoredNodes};
use crate::operator::tile::TILE_WIDTH;

/// The state behind the checkpoint. A batch works on a copy, which costs little.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) edge: Edge,
    pub(crate) map: StateMap,
    /// The inclusion proof of the last entry, the root of the map.
    pub(crate) path: Vec<NodeHash>,
    /// The bytes that are reserved for further operations of all DIDs.
    pub(crate) room: u64,
}

impl Head {
    /// Reads the state from the database, and checks that the newest checkpoint states it.
    pub(crate) fn load(
        connection: &Connection,
        hasher: Hasher<'_>,
        newest: &Checkpoint,
    ) -> Result<Self, RegistryError> {
        let size = database::log_size(connection)?;
        let path = match size.checked_sub(1) {
            Some(last) => StoredNodes { hasher, connection }.inclusion(hasher, last, size)?,
            None => Vec::new(),
        };
        let edge = Edge::load(connection, size)?;
        let map = database::state_map(connection, hasher)?;
        let head = Self { edge, map, path, room: database::room(connection)? };
        let found = head.checkpoint(hasher, &newest.origin)?;
        if newest.size != found.size || newest.root != found.root {
            return Err(RegistryError::damaged("its newest checkpoint is not that of its log"));
        }
        let last = database::entries(connection, size.saturating_sub(1), size)?;
        let is_stated = match last.first() {
            Some(last) => *last == root_entry(&head.map.root(hasher)),
            None => head.map.is_empty(),
        };
        if !is_stated {
            return Err(RegistryError::damaged("the last entry of its log is not the root of its state map"));
        }
        check_last_entries(connection, hasher, &head.edge)?;
        Ok(head)
    }

    pub(crate) fn checkpoint(&self, hasher: Hasher<'_>, origin: &str) -> Result<Checkpoint, RegistryError> {
        let size = self.edge.size();
        let root = self.edge.root(hasher)?;
        Ok(Checkpoint { origin: origin.to_owned(), size, root })
    }
}

/// Checks the entries after the last full tile: those that a failure is most likely to have touched. An audit
/// checks all.
fn check_last_entries(connection: &Connection, hasher: Hasher<'_>, edge: &Edge) -> Result<(), RegistryError> {
    let (_, number, hashes) = match edge.partial().next() {
        Some(tile @ (0, ..)) => tile,
        _ => return Ok(()),
    };
    let first = number.saturating_mul(TILE_WIDTH.into());
    let entries = database::entries(connection, first, edge.size())?;
    if entries.len() != hashes.len() {
        return Err(RegistryError::damaged(format!("entries after the number {first} are missing")));
    }
    for (number, (entry, hash)) in (first..).zip(entries.iter().zip(hashes)) {
        if hasher.leaf(entry) != *hash {
            return Err(RegistryError::damaged(format!("the entry {number} is not that of the log")));
        }
    }
    Ok(())
}
