//! The log's entries with the root of the state map, and the proof that a checkpoint's log ends with the root
//! of a map that has, or does not have, a DID.
//!
//! The log commits to the states of all DIDs: after the operations of a transaction comes the root of the map
//! that they lead to. Only the last entry of a checkpoint's log counts, so a checkpoint has one map, and
//! witnesses of the log vouch for it, too. The verifier derives the root from the [`MapProof`], and the
//! number of the entry from the checkpoint.

use alloc::format;
use alloc::vec::Vec;

use base64ct::{Base64, Encoding};

use super::checkpoint::Checkpoint;
use super::map::{MapError, MapLeaf, MapProof};
use crate::hash::Sha256Hash;
use crate::merkle::{Hasher, MerkleError, NodeHash};
use crate::method::dunlin::{Operation, OperationError};

/// The longest proof, in bytes: as in a staple, whose field ends there. A map of a billion DIDs and its log
/// need about 1700.
pub const MAX_STATE_PROOF: usize = 4095;

/// The beginning of an entry with the root of the state map.
const ROOT: &str = "dunlin-map ";

/// An entry of a registry's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// A change of a DID, in canonical form.
    Operation(Operation),
    /// The root of the state map after all operations before this entry.
    Root(NodeHash),
}

impl LogEntry {
    /// Reads an entry. Each has one form.
    ///
    /// # Errors
    /// [`OperationError`] if it is neither a root nor an operation in canonical form.
    pub fn read(entry: &[u8]) -> Result<Self, OperationError> {
        let base64 = str::from_utf8(entry).ok().and_then(|text| text.strip_prefix(ROOT));
        let root = base64.and_then(|base64| NodeHash::try_from(Base64::decode_vec(base64).ok()?).ok());
        if let Some(root) = root.filter(|root| root_entry(root) == entry) {
            return Ok(Self::Root(root));
        }
        let operation = Operation::read(entry)?;
        if operation.canonical()?.as_bytes() == entry {
            Ok(Self::Operation(operation))
        } else {
            Err(OperationError::NotCanonical)
        }
    }
}

/// The entry with this root of the state map: `dunlin-map ` and the root in base64.
pub fn root_entry(map: &NodeHash) -> Vec<u8> {
    format!("{ROOT}{}", Base64::encode_string(map)).into_bytes()
}

/// The proof of a DID's state under a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateProof {
    /// The proof of what the map has for the DID.
    pub map: MapProof,
    /// The inclusion proof of the log's last entry (RFC 9162 §2.1.3), the root of the map; none if the log is
    /// empty.
    pub path: Vec<NodeHash>,
}

impl StateProof {
    /// Reads a proof of at most [`MAX_STATE_PROOF`] bytes.
    ///
    /// # Errors
    /// [`MapError::Malformed`].
    pub fn read(bytes: &[u8]) -> Result<Self, MapError> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MAX_STATE_PROOF);
        let (map, rest) = bytes.and_then(MapProof::parse).ok_or(MapError::Malformed)?;
        match rest.as_chunks() {
            (path, []) => Ok(Self { map, path: path.to_vec() }),
            _ => Err(MapError::Malformed),
        }
    }

    /// Writes the proof. docs/identity.md has the format.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = self.map.write();
        bytes.extend(self.path.as_flattened());
        bytes
    }

    /// Checks that the map of this checkpoint has the DID with this latest document, and returns its state.
    ///
    /// # Errors
    /// [`MapError::Absent`], [`MapError::Path`], [`MapError::Root`].
    pub fn verify_presence(
        &self,
        hasher: Hasher<'_>,
        key: &Sha256Hash,
        document: Sha256Hash,
        checkpoint: &Checkpoint,
    ) -> Result<MapLeaf, MapError> {
        let (leaf, map) = self.map.presence(hasher, key, document)?;
        self.verify_map(hasher, &map, checkpoint)?;
        Ok(leaf)
    }

    /// Checks that the map of this checkpoint does not have the DID.
    ///
    /// # Errors
    /// [`MapError::Present`], [`MapError::Misplaced`], [`MapError::Path`], [`MapError::Root`].
    pub fn verify_absence(
        &self,
        hasher: Hasher<'_>,
        key: &Sha256Hash,
        checkpoint: &Checkpoint,
    ) -> Result<(), MapError> {
        let map = self.map.absence(hasher, key)?;
        self.verify_map(hasher, &map, checkpoint)
    }

    /// Checks that this is the root of the checkpoint's map: the content of the last entry, or the root of
    /// the empty map if the log is empty.
    fn verify_map(
        &self,
        hasher: Hasher<'_>,
        map: &NodeHash,
        checkpoint: &Checkpoint,
    ) -> Result<(), MapError> {
        let Checkpoint { size, root, .. } = checkpoint;
        let Some(last) = size.checked_sub(1) else {
            let empty = hasher.empty();
            let is_empty = self.path.is_empty() && [map, root] == [&empty; 2];
            return if is_empty { Ok(()) } else { Err(MapError::Root) };
        };
        let entry = hasher.leaf(&root_entry(map));
        hasher.verify_inclusion(entry, last, *size, root, &self.path).map_err(|error| match error {
            MerkleError::Length(hashes) => MapError::Path(hashes),
            _ => MapError::Root,
        })
    }
}
