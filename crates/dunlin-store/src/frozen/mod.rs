//! Frozen associations ([`dunlin::DtlsConnection::freeze`]): sealed files, and the stores that let each file
//! be thawed once.
//!
//! A server that restarts writes its associations to a [`FrozenFile`], and the next process thaws them. Two
//! connections with the same keys and record numbers would reveal their plaintext, so no file may ever be
//! thawed twice. Each file has a random [`FileId`]. It goes into a store of [`FrozenIds`] before the first
//! association is frozen, and leaves it before [`FrozenFile::thaw`] gives out the first one. A file whose ID
//! is not in the store is refused: it was thawed before, or is a restored copy. If the store does not answer,
//! nothing is thawed.
//!
//! The store must be shared by all servers that may thaw a file, must make its changes last, and must itself
//! never be restored to an earlier state.
//!
//! # Examples
//! ```
//! use dunlin_store::frozen::{DirectoryIds, FrozenError, FrozenFile};
//!
//! # fn example(
//! #     provider: std::sync::Arc<dunlin::crypto::CryptoProvider>,
//! #     dir: &std::path::Path,
//! # ) -> Result<(), FrozenError> {
//! let file = FrozenFile::open(&provider, dir.join("associations"), &dir.join("associations.key"))?;
//! let ids = DirectoryIds::open(dir.join("ids"))?;
//! let mut writer = file.create(&ids)?;
//! writer.push(b"what DtlsConnection::freeze has returned")?;
//! assert_eq!(writer.finish()?.associations, 1);
//!
//! // In the next process:
//! let connection = |bytes: &[u8]| Ok::<_, dunlin::Error>(bytes.len());
//! assert_eq!(file.thaw(&ids, connection)?, Some(vec![Ok(40)]));
//! assert_eq!(file.thaw(&ids, connection)?, None, "the file is gone");
//! # Ok(())
//! # }
//! # let dir = tempfile::tempdir().unwrap();
//! # example(dunlin_tests::awslc(), dir.path()).unwrap();
//! ```

mod error;
mod file;
mod ids;
#[cfg(feature = "redis")]
mod redis;
mod seal;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use error::FrozenError;
pub use file::{FrozenFile, FrozenWriter, Written};
pub use ids::{DirectoryIds, FileId, FrozenIds, IdsFault};
#[cfg(feature = "redis")]
pub use redis::RedisIds;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteIds;

pub use crate::files::are_same;

/// The longest frozen association, in bytes. It has the names of the peer's certificate, its PSK identity,
/// and apart from them some hundred bytes. Both fit: a Certificate message has at most 64 kB, in which IPv4
/// addresses take 6 bytes each and as text up to 17.
pub const MAX_ASSOCIATION: usize = 256 << 10;
const _: () = assert!((64 << 10) / 6 * 17 + (64 << 10) + 2048 <= MAX_ASSOCIATION);
