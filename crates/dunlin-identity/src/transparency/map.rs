//! The state map: the latest document, sequence number and status of every DID, under one root.
//!
//! The map is a Merkle tree along the 256 bits of a DID's SHA-256. A subtree with one leaf is that leaf, and
//! a subtree without leaves is [`Hasher::empty`]. So a leaf among n lies about log2(n) levels deep. A
//! [`MapProof`] shows the only place where the DID can be: it proves the DID's state, or that the map does
//! not have the DID, under the root of the map. [`super::proof`] leads on to a checkpoint.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin::crypto::CryptoProvider;

use crate::did::Did;
use crate::hash::Sha256Hash;
use crate::key::KeyError;
use crate::merkle::{Hasher, NodeHash};

/// The deepest level of a leaf, which a proof writes in one byte. Two DIDs whose hashes have 255 equal bits
/// cannot be found.
pub const MAX_MAP_DEPTH: usize = 255;

/// Why a proof is refused, or an entry cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The proof is too long or not well-formed.
    #[error("malformed proof of the state map")]
    Malformed,
    /// The proof says that the map does not have the DID.
    #[error("the registry's state map does not have the DID")]
    Absent,
    /// The proof says that the map has the DID.
    #[error("the registry's state map has the DID")]
    Present,
    /// The leaf in the DID's place does not belong there.
    #[error("the proof of the state map shows a leaf out of place")]
    Misplaced,
    /// The path to the log's root has the wrong number of hashes for the last entry.
    #[error("the proof of the state map has a path of {0} hashes, which is not that of the log's last entry")]
    Path(usize),
    /// The proof leads to another root: document, number or status are not the current ones.
    #[error(
        "the proof of the state map leads to another root: the document is not the current one, or the proof is wrong"
    )]
    Root,
    /// The hashes of two DIDs are almost equal.
    #[error("the state map has no place for the DID: its hash has {MAX_MAP_DEPTH} bits of another one")]
    TooDeep,
}

/// The place of a DID in the map: the SHA-256 of the DID.
///
/// # Errors
/// [`KeyError::Provider`].
pub fn map_key(provider: &CryptoProvider, did: &Did) -> Result<Sha256Hash, KeyError> {
    Sha256Hash::of(provider, did.as_str().as_bytes())
}

/// The state of a DID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLeaf {
    /// The SHA-256 of the latest document in canonical form.
    pub document: Sha256Hash,
    /// The number of operations after the creation.
    pub sequence: u64,
    /// Whether the DID may be used: a deactivated one never again.
    pub active: bool,
}

impl MapLeaf {
    fn hash(&self, hasher: Hasher<'_>, key: &Sha256Hash) -> NodeHash {
        let sequence = self.sequence.to_be_bytes();
        let active = [u8::from(self.active)];
        hasher.leaf(&[key.as_bytes().as_slice(), self.document.as_bytes(), &sequence, &active].concat())
    }
}

/// Whether the path to `key` turns right at this depth.
fn turns_right(key: &Sha256Hash, depth: usize) -> bool {
    let byte = key.as_bytes().get(depth / 8).copied().unwrap_or_default();
    byte << (depth % 8) & 0x80 != 0
}

/// A map in memory. It never changes: an insertion makes another map, which shares all but one path with the
/// first. So a copy costs nothing, and a reader keeps the map that belongs to its checkpoint. It takes about
/// 200 bytes for each DID.
#[derive(Clone, Debug, Default)]
pub struct StateMap {
    root: Node,
    len: u64,
}

#[derive(Clone, Debug, Default)]
enum Node {
    #[default]
    Empty,
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
}

#[derive(Debug)]
struct Leaf {
    key: Sha256Hash,
    state: MapLeaf,
    hash: NodeHash,
}

#[derive(Debug)]
struct Inner {
    hash: NodeHash,
    left: Node,
    right: Node,
}

impl Node {
    fn inner(hasher: Hasher<'_>, left: Self, right: Self) -> Self {
        let of = |node: &Self| node.hash().unwrap_or_else(|| hasher.empty());
        let hash = hasher.node(&of(&left), &of(&right));
        Self::Inner(Arc::new(Inner { hash, left, right }))
    }

    /// `None` for an empty subtree.
    fn hash(&self) -> Option<NodeHash> {
        match self {
            Self::Empty => None,
            Self::Leaf(leaf) => Some(leaf.hash),
            Self::Inner(inner) => Some(inner.hash),
        }
    }

    /// This subtree, whose root lies `depth` levels deep, with another leaf. Also says whether the leaf's key
    /// is new.
    fn with(&self, hasher: Hasher<'_>, depth: usize, leaf: &Arc<Leaf>) -> Result<(Self, bool), MapError> {
        let (left, right) = match self {
            Self::Empty => return Ok((Self::Leaf(Arc::clone(leaf)), true)),
            Self::Leaf(old) if old.key == leaf.key => return Ok((Self::Leaf(Arc::clone(leaf)), false)),
            Self::Leaf(_) if depth == MAX_MAP_DEPTH => return Err(MapError::TooDeep),
            Self::Leaf(old) if turns_right(&old.key, depth) => (&Self::Empty, self),
            Self::Leaf(_) => (self, &Self::Empty),
            Self::Inner(inner) => (&inner.left, &inner.right),
        };
        if turns_right(&leaf.key, depth) {
            let (right, new) = right.with(hasher, depth + 1, leaf)?;
            Ok((Self::inner(hasher, left.clone(), right), new))
        } else {
            let (left, new) = left.with(hasher, depth + 1, leaf)?;
            Ok((Self::inner(hasher, left, right.clone()), new))
        }
    }
}

impl StateMap {
    /// The map with this state of a DID ([`map_key`]), in place of an earlier one.
    ///
    /// # Errors
    /// [`MapError::TooDeep`].
    pub fn with(&self, hasher: Hasher<'_>, key: Sha256Hash, state: MapLeaf) -> Result<Self, MapError> {
        let leaf = Arc::new(Leaf { key, state, hash: state.hash(hasher, &key) });
        let (root, new) = self.root.with(hasher, 0, &leaf)?;
        Ok(Self { root, len: self.len + u64::from(new) })
    }

    /// How many DIDs the map has, with the deactivated ones.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the map has no DID.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The root, which the log states ([`StateProof`](super::StateProof)).
    pub fn root(&self, hasher: Hasher<'_>) -> NodeHash {
        self.root.hash().unwrap_or_else(|| hasher.empty())
    }

    /// The state of a DID; `None` if the map does not have it.
    pub fn get(&self, key: &Sha256Hash) -> Option<MapLeaf> {
        let mut node = &self.root;
        let mut depth = 0;
        loop {
            match node {
                Node::Inner(inner) => {
                    node = if turns_right(key, depth) { &inner.right } else { &inner.left };
                    depth += 1;
                }
                Node::Leaf(leaf) if leaf.key == *key => return Some(leaf.state),
                Node::Leaf(_) | Node::Empty => return None,
            }
        }
    }

    /// The depth of the first sibling on the way to `key`, from this depth on, in which the map of the proof
    /// differs; `None` if only the place itself can differ.
    pub fn parting(&self, key: &Sha256Hash, proof: &MapProof, from: usize) -> Option<usize> {
        let own = self.prove(key).siblings;
        // Below the place of a proof, everything beside the way is empty.
        let sibling = |siblings: &[Option<NodeHash>], depth| siblings.get(depth).copied().flatten();
        let differs = |depth: &usize| sibling(&own, *depth) != sibling(&proof.siblings, *depth);
        (from..own.len().max(proof.siblings.len())).find(differs)
    }

    /// The proof of what the map has, or does not have, for this DID.
    pub fn prove(&self, key: &Sha256Hash) -> MapProof {
        let mut node = &self.root;
        let mut siblings = Vec::new();
        let place = loop {
            match node {
                Node::Inner(inner) => {
                    let right = turns_right(key, siblings.len());
                    let (next, sibling) =
                        if right { (&inner.right, &inner.left) } else { (&inner.left, &inner.right) };
                    siblings.push(sibling.hash());
                    node = next;
                }
                Node::Leaf(leaf) if leaf.key == *key => {
                    break Slot::Leaf { sequence: leaf.state.sequence, active: leaf.state.active };
                }
                Node::Leaf(leaf) => break Slot::Other(leaf.key, leaf.state),
                Node::Empty => break Slot::Empty,
            }
        };
        MapProof { place, siblings }
    }
}

/// The content of a DID's place in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    /// The DID's leaf, without the hash of its document, which the verifier knows.
    Leaf {
        sequence: u64,
        active: bool,
    },
    Empty,
    /// The leaf of another DID, alone in this subtree.
    Other(Sha256Hash, MapLeaf),
}

/// The proof of what a map has for a DID. It consists of the content of the DID's place and of the siblings
/// of the path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapProof {
    place: Slot,
    /// From the root down; `None` for an empty subtree.
    siblings: Vec<Option<NodeHash>>,
}

impl MapProof {
    /// Reads the proof at the beginning of `bytes`, and returns the rest.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, rest) = bytes.split_first()?;
        let hash = |bytes: &[u8; 32]| Sha256Hash::from_bytes(*bytes);
        let (place, rest) = match kind {
            0 | 1 => {
                let (sequence, rest) = rest.split_first_chunk()?;
                (Slot::Leaf { sequence: u64::from_be_bytes(*sequence), active: *kind == 0 }, rest)
            }
            2 => (Slot::Empty, rest),
            3 | 4 => {
                let (key, rest) = rest.split_first_chunk()?;
                let (document, rest) = rest.split_first_chunk()?;
                let (sequence, rest) = rest.split_first_chunk()?;
                let sequence = u64::from_be_bytes(*sequence);
                let state = MapLeaf { document: hash(document), sequence, active: *kind == 3 };
                (Slot::Other(hash(key), state), rest)
            }
            _ => return None,
        };
        let (levels, rest) = rest.split_first()?;
        let levels = usize::from(*levels);
        let (bitmap, mut rest) = rest.split_at_checked(levels.div_ceil(8))?;
        let mut siblings = Vec::new();
        for level in 0..bitmap.len() * 8 {
            let present = bitmap.get(level / 8)? << (level % 8) & 0x80 != 0;
            if level >= levels {
                // One map has one proof: bits without a level are 0.
                if present {
                    return None;
                }
            } else if present {
                let (sibling, more) = rest.split_first_chunk()?;
                siblings.push(Some(*sibling));
                rest = more;
            } else {
                siblings.push(None);
            }
        }
        Some((Self { place, siblings }, rest))
    }

    /// Writes the proof. docs/identity.md has the format.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &self.place {
            Slot::Leaf { sequence, active } => {
                bytes.push(if *active { 0 } else { 1 });
                bytes.extend(sequence.to_be_bytes());
            }
            Slot::Empty => bytes.push(2),
            Slot::Other(key, state) => {
                bytes.push(if state.active { 3 } else { 4 });
                bytes.extend(key.as_bytes());
                bytes.extend(state.document.as_bytes());
                bytes.extend(state.sequence.to_be_bytes());
            }
        }
        // The map has no deeper leaf.
        bytes.push(u8::try_from(self.siblings.len()).unwrap_or(u8::MAX));
        for levels in self.siblings.chunks(8) {
            let bits = levels.iter().zip([128, 64, 32, 16, 8, 4, 2, 1]);
            bytes.push(bits.filter(|(sibling, _)| sibling.is_some()).map(|(_, bit)| bit).sum());
        }
        self.siblings.iter().flatten().for_each(|sibling| bytes.extend(sibling));
        bytes
    }

    /// The state of the DID with this latest document, and the root of a map that has it.
    ///
    /// # Errors
    /// [`MapError::Absent`].
    pub fn presence(
        &self,
        hasher: Hasher<'_>,
        key: &Sha256Hash,
        document: Sha256Hash,
    ) -> Result<(MapLeaf, NodeHash), MapError> {
        let Slot::Leaf { sequence, active } = self.place else { return Err(MapError::Absent) };
        let leaf = MapLeaf { document, sequence, active };
        Ok((leaf, self.root(hasher, key, leaf.hash(hasher, key))))
    }

    /// The root of a map that does not have the DID.
    ///
    /// # Errors
    /// [`MapError::Present`], [`MapError::Misplaced`].
    pub fn absence(&self, hasher: Hasher<'_>, key: &Sha256Hash) -> Result<NodeHash, MapError> {
        let hash = match &self.place {
            Slot::Leaf { .. } => return Err(MapError::Present),
            Slot::Empty => hasher.empty(),
            Slot::Other(other, state) => {
                // The leaf is in the way of the DID only if it is another one whose path leads here, too.
                let meets = |depth| turns_right(other, depth) == turns_right(key, depth);
                if other == key || !(0..self.siblings.len()).all(meets) {
                    return Err(MapError::Misplaced);
                }
                state.hash(hasher, other)
            }
        };
        Ok(self.root(hasher, key, hash))
    }

    /// The root of a map with this hash in the place of `key`.
    fn root(&self, hasher: Hasher<'_>, key: &Sha256Hash, place: NodeHash) -> NodeHash {
        let mut hash = place;
        let empty = hasher.empty();
        for (depth, sibling) in self.siblings.iter().enumerate().rev() {
            let sibling = sibling.unwrap_or(empty);
            let right = turns_right(key, depth);
            hash = if right { hasher.node(&sibling, &hash) } else { hasher.node(&hash, &sibling) };
        }
        hash
    }
}
