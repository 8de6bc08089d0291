//! The Merkle log in tiles: its right edge in memory, for appending, and the tiles in the database, for
//! proofs.

use dunlin_identity::transparency::{Hasher, MerkleError, NodeHash, Nodes};
use rusqlite::{Connection, OptionalExtension};

use crate::operator::database::signed;
use crate::operator::error::RegistryError;
use crate::operator::tile::TILE_WIDTH;

const WIDTH: usize = TILE_WIDTH as usize;

/// The root over these hashes, whose number is a power of two.
fn root_of(hasher: Hasher<'_>, hashes: &[NodeHash]) -> Option<NodeHash> {
    let mut level = hashes.to_vec();
    while level.len() > 1 {
        let (pairs, rest) = level.as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        level = pairs.iter().map(|[left, right]| hasher.node(left, right)).collect();
    }
    level.first().copied()
}

/// Where the node at a level and index of the tree is: the level and number of the tile, and the range of
/// hashes in it.
fn place(level: u8, index: u64) -> Option<(u8, u64, std::ops::Range<usize>)> {
    let count = 1_usize << (level % 8);
    let first = index.checked_mul(count as u64)?;
    let start = usize::try_from(first % WIDTH as u64).ok()?;
    Some((level / 8, first / WIDTH as u64, start..start + count))
}

/// How many full tiles a log of this size has at a level. It is also the number of the partial tile after
/// them.
fn full_tiles(size: u64, level: u8) -> u64 {
    size.checked_shr(8 * (u32::from(level) + 1)).unwrap_or_default()
}

/// The partial tiles at the right edge of a log, one for each level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    size: u64,
    levels: Vec<Vec<NodeHash>>,
}

/// A tile that is full now: its level, number and hashes.
pub(crate) type FullTile = (u8, u64, Vec<NodeHash>);

impl Edge {
    /// Reads the edge of the log with this size.
    pub(crate) fn load(connection: &Connection, size: u64) -> Result<Self, RegistryError> {
        let mut levels = Vec::new();
        let mut count = size;
        while count > 0 {
            let width = usize::try_from(count % WIDTH as u64).unwrap_or_default();
            let level = u8::try_from(levels.len()).unwrap_or(u8::MAX);
            let number = count / WIDTH as u64;
            let hashes = if width == 0 { Some(Vec::new()) } else { read_tile(connection, level, number)? };
            let hashes = hashes.filter(|hashes| hashes.len() == width);
            levels.push(hashes.ok_or_else(|| {
                RegistryError::damaged(format!(
                    "the tile {number} of level {level} does not have {width} hashes"
                ))
            })?);
            count = number;
        }
        Ok(Self { size, levels })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf. Returns the tiles that it fills.
    pub(crate) fn push(&mut self, hasher: Hasher<'_>, leaf: NodeHash) -> Vec<FullTile> {
        let mut hash = leaf;
        let mut filled = Vec::new();
        for level in 0.. {
            if self.levels.len() == usize::from(level) {
                self.levels.push(Vec::new());
            }
            let Some(tile) = self.levels.get_mut(usize::from(level)) else { break };
            tile.push(hash);
            let Some(root) = (tile.len() == WIDTH).then(|| root_of(hasher, tile)).flatten() else { break };
            filled.push((level, full_tiles(self.size, level), std::mem::take(tile)));
            hash = root;
        }
        self.size += 1;
        filled
    }

    /// The partial tiles: level, number and hashes.
    pub(crate) fn partial(&self) -> impl Iterator<Item = (u8, u64, &[NodeHash])> {
        let levels = (0_u8..).zip(&self.levels).filter(|(_, hashes)| !hashes.is_empty());
        levels.map(|(level, hashes)| (level, full_tiles(self.size, level), hashes.as_slice()))
    }

    /// The roots of the complete subtrees from right to left: the inclusion proof of the entry that comes
    /// next, as long as it is the last one.
    pub(crate) fn peaks(&self, hasher: Hasher<'_>) -> Result<Vec<NodeHash>, MerkleError> {
        let nodes = EdgeNodes { hasher, edge: self };
        let levels = (0..u64::BITS as u8).filter(|level| self.size >> level & 1 == 1);
        levels.map(|level| nodes.node(level, (self.size >> level) - 1)).collect()
    }

    /// The root of the log.
    pub(crate) fn root(&self, hasher: Hasher<'_>) -> Result<NodeHash, MerkleError> {
        EdgeNodes { hasher, edge: self }.root(hasher, self.size)
    }
}

/// The nodes of the right edge, which are all that the root needs.
struct EdgeNodes<'e> {
    hasher: Hasher<'e>,
    edge: &'e Edge,
}

impl Nodes for EdgeNodes<'_> {
    type Error = MerkleError;

    fn node(&self, level: u8, index: u64) -> Result<NodeHash, MerkleError> {
        let found = place(level, index).and_then(|(tile_level, number, range)| {
            // Each level has one partial tile, the last one.
            let last = full_tiles(self.edge.size, tile_level);
            let hashes = self.edge.levels.get(usize::from(tile_level)).filter(|_| number == last)?;
            root_of(self.hasher, hashes.get(range)?)
        });
        found.ok_or(MerkleError::Missing { level, index })
    }
}

/// The hashes of a tile in the database; a partial tile may have grown since a checkpoint.
pub(crate) fn read_tile(
    connection: &Connection,
    level: u8,
    number: u64,
) -> Result<Option<Vec<NodeHash>>, RegistryError> {
    let sql = "SELECT hashes FROM tile WHERE level = ?1 AND number = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let hashes: Option<Vec<u8>> =
        statement.query_row((level, signed(number)), |row| row.get(0)).optional()?;
    let Some(hashes) = hashes else { return Ok(None) };
    let (hashes, rest) = hashes.as_chunks();
    if !rest.is_empty() || hashes.len() > WIDTH {
        return Err(RegistryError::damaged(format!("the tile {number} of level {level} is malformed")));
    }
    Ok(Some(hashes.to_vec()))
}

/// The tree in the database.
pub(crate) struct StoredNodes<'c> {
    pub(crate) hasher: Hasher<'c>,
    pub(crate) connection: &'c Connection,
}

impl Nodes for StoredNodes<'_> {
    type Error = RegistryError;

    fn node(&self, level: u8, index: u64) -> Result<NodeHash, RegistryError> {
        let missing = MerkleError::Missing { level, index };
        let (tile_level, number, range) = place(level, index).ok_or(missing)?;
        let hashes = read_tile(self.connection, tile_level, number)?.ok_or(missing)?;
        let node = hashes.get(range).and_then(|hashes| root_of(self.hasher, hashes));
        Ok(node.ok_or(missing)?)
    }
}
