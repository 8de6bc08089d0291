//! The files of an own DID, in the directory that `dunlin did create` makes. Programs read and write them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::method::dunlin::{Operation, OperationError};

/// The file of the DID's document.
pub const DOCUMENT: &str = "did.json";

/// The file of the operations of a `did:dunlin`, one on each line, the oldest first.
pub const OPERATIONS: &str = "operations.jsonl";

/// The file of the key that can only deactivate a `did:dunlin`.
pub const RECOVERY: &str = "recovery.key";

/// The file of the private key of a version, in PEM. The next key of a `did:dunlin` is there, too.
pub fn key_file(version: u64) -> String {
    format!("key-{version}.key")
}

/// The version whose key is in a file of this name.
pub fn version_of(name: &str) -> Option<u64> {
    name.strip_prefix("key-")?.strip_suffix(".key")?.parse().ok()
}

/// Reads the content of [`OPERATIONS`]. Whether one follows the other,
/// [`State::replay`](crate::method::dunlin::State::replay) finds out.
///
/// # Errors
/// [`OperationError`] of the first operation that is malformed.
pub fn read_operations(content: &[u8]) -> Result<Vec<Operation>, OperationError> {
    content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(Operation::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_keys_have_versions() {
        assert_eq!(version_of(&key_file(17)), Some(17));
        for name in ["key-.key", "key-x.key", "key-1", "1.key", "key--1.key", RECOVERY] {
            assert_eq!(version_of(name), None, "{name}");
        }
    }
}
