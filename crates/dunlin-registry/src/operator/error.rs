//! Why a registry refuses something or fails.

use std::path::Path;

use dunlin_identity::method::dunlin::OperationError;
use dunlin_identity::transparency::{ChainError, CheckpointError, MapError, MerkleError, NoteError};

/// Why a registry refuses something or fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The operation is malformed, or not valid after those before it.
    #[error("{0}")]
    Operation(#[from] OperationError),
    /// The state map has no place for the DID.
    #[error("operation: {0}")]
    Map(#[from] MapError),
    /// The log has the operation with another signature, as the entry with this number.
    #[error("operation: the log has it already, with another signature, as the entry {0}")]
    OtherSignature(u64),
    /// Too many operations wait for the disk.
    #[error("the registry is busy: submit the operation again later")]
    Busy,
    /// The log has reached its limit, or the database its server's limit.
    #[error("the registry is full: it accepts only deactivations, and one more update of each DID")]
    Full,
    /// The writer has ended, because the registry was closed or its database failed.
    #[error("the registry no longer writes: look for an earlier error of its database, and open it again")]
    Closed,
    /// The database fails; SQLite's reason.
    #[error("registry database: {0}")]
    Database(String),
    /// A file cannot be read or written; its path and the reason.
    #[error("{path}: {why}")]
    File {
        /// The path.
        path: String,
        /// The reason.
        why: String,
    },
    /// The file is no database of a registry.
    #[error("{0}: not a registry's database")]
    Foreign(String),
    /// An earlier version has written the database, whose log does not have the roots of the state map.
    #[error(
        "the registry's database has version {0}, of an earlier dunlin, whose log does not state the state map, so no witness has \
             checked it: make a new registry, and create its DIDs again"
    )]
    Older(i64),
    /// A newer version has written the database.
    #[error(
        "the registry's database has version {0}, which this version of dunlin does not know: use a newer one"
    )]
    Newer(i64),
    /// Another process has the database open for writing.
    #[error("{0}: another process runs this registry")]
    InUse(String),
    /// The database belongs to another registry, or to another key.
    #[error("the database belongs to the registry key {found}, not to {wanted}")]
    OtherKey {
        /// The key in the database.
        found: String,
        /// The key with which it was opened.
        wanted: String,
    },
    /// The database contradicts itself. It must not be used: the registry could sign a second history.
    #[error(
        "the registry's database is damaged: {0}; restore a backup that has the newest published checkpoint"
    )]
    Damaged(String),
    /// The backup lacks operations that the registry has published.
    #[error(
        "the backup does not have the published checkpoint of {published} entries, but another history or only {found} entries: \
             find a newer backup, since with this one the registry would sign a second history"
    )]
    OldBackup {
        /// The size of the published checkpoint.
        published: u64,
        /// The size of the log in the backup.
        found: u64,
    },
    /// The log has no such entries or proof.
    #[error("{0}")]
    Merkle(#[from] MerkleError),
    /// The name or key of the registry is malformed, or signing failed.
    #[error("{0}")]
    Note(#[from] NoteError),
    /// A checkpoint is refused, or cannot be signed.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// The names of a chain are malformed, or its node has shown a block that is.
    #[error("{0}")]
    Chain(#[from] ChainError),
    /// The CometBFT node of a replica cannot be asked, or does not take the operation; the reason.
    #[error("the CometBFT node of this replica: {0}; submit the operation again later")]
    Node(String),
    /// CometBFT has sent a request that does not fit the earlier ones; the fault.
    #[error("a request of CometBFT does not fit this replica: {0}")]
    Request(&'static str),
}

impl RegistryError {
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), why: error.to_string() }
    }

    pub(crate) fn damaged(why: impl Into<String>) -> Self {
        Self::Damaged(why.into())
    }
}

impl From<rusqlite::Error> for RegistryError {
    fn from(error: rusqlite::Error) -> Self {
        // The first line: SQLite adds the statement.
        Self::Database(error.to_string().lines().next().unwrap_or_default().to_owned())
    }
}
