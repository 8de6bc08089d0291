//! Merkle trees as RFC 9162 §2.1 defines them: roots, inclusion proofs and consistency proofs, over SHA-256.
//!
//! [`Tree`] keeps a whole tree in memory. Other stores implement [`Nodes`], which needs complete subtrees
//! only, as C2SP tlog-tiles keeps them: the hash at position `i` of a tile at level `l` and number `n` is the
//! node at level `8 l` and index `256 n + i`.

use alloc::vec::Vec;

use dunlin::crypto::Hash;

/// The hash of a leaf or of two nodes.
pub type NodeHash = [u8; 32];

/// The most hashes of a proof: those beside a path in a tree of 2^64 leaves, and one more for consistency.
pub const MAX_PROOF_HASHES: usize = 65;

/// Why a proof is refused or cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MerkleError {
    /// The tree has no leaf with this number.
    #[error("the tree of {size} leaves has no leaf {index}")]
    Index {
        /// The number of the leaf, from 0.
        index: u64,
        /// How many leaves the tree has.
        size: u64,
    },
    /// The older tree is empty, about which no proof says anything, or larger than the newer one.
    #[error("the older tree has {old} leaves, the newer one {new}")]
    Sizes {
        /// How many leaves the older tree has.
        old: u64,
        /// How many leaves the newer tree has.
        new: u64,
    },
    /// The proof has too few or too many hashes.
    #[error("the proof has {0} hashes, which is the wrong number")]
    Length(usize),
    /// The proof leads to another root.
    #[error("the proof leads to another root")]
    Root,
    /// The store does not have the node.
    #[error("the store lacks the node {index} at level {level}")]
    Missing {
        /// The level: 0 for leaves.
        level: u8,
        /// The number in the level, from 0.
        index: u64,
    },
}

/// Hashes leaves and nodes with SHA-256, which a [`CryptoProvider`](dunlin::crypto::CryptoProvider) has as
/// `sha256`.
#[derive(Clone, Copy, Debug)]
pub struct Hasher<'h>(pub &'h dyn Hash);

impl Hasher<'_> {
    fn hash(self, parts: &[&[u8]]) -> NodeHash {
        let mut node = NodeHash::default();
        for (byte, hashed) in node.iter_mut().zip(self.0.hash(parts).as_ref()) {
            *byte = *hashed;
        }
        node
    }

    /// The root of the tree without leaves.
    pub fn empty(self) -> NodeHash {
        self.hash(&[])
    }

    /// The hash of a leaf. The prefix keeps a leaf from passing for a node (RFC 9162 §2.1.1).
    pub fn leaf(self, content: &[u8]) -> NodeHash {
        self.hash(&[&[0], content])
    }

    /// The hash of a node with two children.
    pub fn node(self, left: &NodeHash, right: &NodeHash) -> NodeHash {
        self.hash(&[&[1], left, right])
    }

    /// Checks that `leaf` is the leaf with number `index` of the tree with this size and root (RFC 9162
    /// §2.1.3.2).
    ///
    /// # Errors
    /// [`MerkleError::Index`], [`MerkleError::Length`], [`MerkleError::Root`].
    pub fn verify_inclusion(
        self,
        leaf: NodeHash,
        index: u64,
        size: u64,
        root: &NodeHash,
        proof: &[NodeHash],
    ) -> Result<(), MerkleError> {
        if index >= size {
            return Err(MerkleError::Index { index, size });
        }
        let mut place = index;
        let mut last = size - 1;
        let mut hash = leaf;
        for sibling in proof {
            if last == 0 {
                return Err(MerkleError::Length(proof.len()));
            }
            if place & 1 == 1 || place == last {
                hash = self.node(sibling, &hash);
                while place & 1 == 0 && place != 0 {
                    (place, last) = (place >> 1, last >> 1);
                }
            } else {
                hash = self.node(&hash, sibling);
            }
            (place, last) = (place >> 1, last >> 1);
        }
        if last != 0 {
            return Err(MerkleError::Length(proof.len()));
        }
        if hash == *root { Ok(()) } else { Err(MerkleError::Root) }
    }

    /// Checks that the newer tree begins with all leaves of the older one, which is not empty (RFC 9162
    /// §2.1.4.2).
    ///
    /// # Errors
    /// [`MerkleError::Sizes`], [`MerkleError::Length`], [`MerkleError::Root`].
    pub fn verify_consistency(
        self,
        old: (u64, &NodeHash),
        new: (u64, &NodeHash),
        proof: &[NodeHash],
    ) -> Result<(), MerkleError> {
        let ((old_size, old_root), (new_size, new_root)) = (old, new);
        let matches = |good: bool| if good { Ok(()) } else { Err(MerkleError::Root) };
        let length = MerkleError::Length(proof.len());
        if old_size == 0 || old_size > new_size {
            return Err(MerkleError::Sizes { old: old_size, new: new_size });
        }
        if old_size == new_size {
            return if proof.is_empty() { matches(old_root == new_root) } else { Err(length) };
        }
        // An older tree that is complete is a node of the newer one, and the proof leaves it out.
        let (first, rest) = match proof.split_first() {
            None => return Err(length),
            Some(_) if old_size.is_power_of_two() => (old_root, proof),
            Some(split) => split,
        };
        let mut place = old_size - 1;
        let mut last = new_size - 1;
        while place & 1 == 1 {
            (place, last) = (place >> 1, last >> 1);
        }
        let mut old_hash = *first;
        let mut new_hash = *first;
        for sibling in rest {
            if last == 0 {
                return Err(length);
            }
            if place & 1 == 1 || place == last {
                old_hash = self.node(sibling, &old_hash);
                new_hash = self.node(sibling, &new_hash);
                while place & 1 == 0 && place != 0 {
                    (place, last) = (place >> 1, last >> 1);
                }
            } else {
                new_hash = self.node(&new_hash, sibling);
            }
            (place, last) = (place >> 1, last >> 1);
        }
        if last != 0 {
            return Err(length);
        }
        matches(old_hash == *old_root && new_hash == *new_root)
    }
}

/// A store of the hashes of complete subtrees.
pub trait Nodes {
    /// Why a hash is not at hand.
    type Error: From<MerkleError>;

    /// The hash over the 2^`level` leaves from `index` × 2^`level`.
    ///
    /// # Errors
    /// The store fails, or does not have all these leaves.
    fn node(&self, level: u8, index: u64) -> Result<NodeHash, Self::Error>;

    /// The root of the tree of the first `size` leaves.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn root(&self, hasher: Hasher<'_>, size: u64) -> Result<NodeHash, Self::Error> {
        if size == 0 { Ok(hasher.empty()) } else { self.subtree(hasher, 0, size) }
    }

    /// The proof that the leaf with number `index` is in the tree of the first `size` leaves, for
    /// [`Hasher::verify_inclusion`].
    ///
    /// # Errors
    /// [`MerkleError::Index`], and the errors of [`Self::node`].
    fn inclusion(&self, hasher: Hasher<'_>, index: u64, size: u64) -> Result<Vec<NodeHash>, Self::Error> {
        if index >= size {
            return Err(MerkleError::Index { index, size }.into());
        }
        // RFC 9162 §2.1.3.1, from the root down.
        let mut begin = 0;
        let mut end = size;
        let mut proof = Vec::new();
        while end - begin > 1 {
            let middle = begin + left_size(end - begin);
            if index < middle {
                proof.push(self.subtree(hasher, middle, end)?);
                end = middle;
            } else {
                proof.push(self.subtree(hasher, begin, middle)?);
                begin = middle;
            }
        }
        proof.reverse();
        Ok(proof)
    }

    /// The proof that the tree of the first `new` leaves begins with the `old` first ones, for
    /// [`Hasher::verify_consistency`].
    ///
    /// # Errors
    /// [`MerkleError::Sizes`], and the errors of [`Self::node`].
    fn consistency(&self, hasher: Hasher<'_>, old: u64, new: u64) -> Result<Vec<NodeHash>, Self::Error> {
        if old == 0 || old > new {
            return Err(MerkleError::Sizes { old, new }.into());
        }
        // RFC 9162 §2.1.4.1, from the root down.
        let mut begin = 0;
        let mut end = new;
        let mut proof = Vec::new();
        while old != end {
            let middle = begin + left_size(end - begin);
            if old <= middle {
                proof.push(self.subtree(hasher, middle, end)?);
                end = middle;
            } else {
                proof.push(self.subtree(hasher, begin, middle)?);
                begin = middle;
            }
        }
        if begin != 0 {
            proof.push(self.subtree(hasher, begin, end)?);
        }
        proof.reverse();
        Ok(proof)
    }

    /// The hash over the leaves from `begin` up to but not including `end`, as the recursion of RFC 9162
    /// §2.1.1 divides them.
    ///
    /// # Errors
    /// As [`Self::node`].
    fn subtree(&self, hasher: Hasher<'_>, begin: u64, end: u64) -> Result<NodeHash, Self::Error> {
        // The complete subtrees from left to right become smaller, and are joined from right to left.
        let mut begin = begin;
        let mut complete = Vec::new();
        while begin < end {
            let len = 1 << (end - begin).ilog2();
            complete.push(self.node((end - begin).ilog2() as u8, begin / len)?);
            begin += len;
        }
        let joined = complete.into_iter().rev().reduce(|right, left| hasher.node(&left, &right));
        Ok(joined.unwrap_or_else(|| hasher.empty()))
    }
}

/// How many of several leaves are in the left subtree: the largest power of two below their number.
const fn left_size(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// A tree in memory. It takes 64 bytes for each leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    levels: Vec<Vec<NodeHash>>,
}

impl Tree {
    /// Adds a leaf ([`Hasher::leaf`]).
    pub fn push(&mut self, hasher: Hasher<'_>, leaf: NodeHash) {
        let mut hash = leaf;
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let Some(nodes) = self.levels.get_mut(level) else { return };
            nodes.push(hash);
            let &[.., left, right] = nodes.as_slice() else { return };
            if nodes.len() % 2 == 1 {
                return;
            }
            hash = hasher.node(&left, &right);
        }
    }

    /// How many leaves the tree has.
    pub fn size(&self) -> u64 {
        self.levels.first().map_or(0, |leaves| leaves.len() as u64)
    }
}

impl Nodes for Tree {
    type Error = MerkleError;

    fn node(&self, level: u8, index: u64) -> Result<NodeHash, MerkleError> {
        let nodes = self.levels.get(usize::from(level));
        let node = nodes.and_then(|nodes| nodes.get(usize::try_from(index).ok()?));
        node.copied().ok_or(MerkleError::Missing { level, index })
    }
}
