//! The handshake cache ([`dunlin::cache`]): in memory, and in stores that outlive the process.
//!
//! [`MemoryClientCache`] and [`MemoryServerCache`] keep entries in memory. Outside of the process, a
//! [`Sealer`] seals each record with a key that is not in the store (docs/handshake-cache.md §5, rule 9).
//! [`SealedClientCache`] and [`SealedServerCache`] do that for any store of [`Records`]; [`CacheStore`] opens
//! such a cache together with its key file.
//!
//! A store never makes a handshake fail and never delays it for long. A record that cannot be read is treated
//! as missing, and one that cannot be written is dropped. The store then reports a [`CacheFault`] and pauses.

mod file;
mod grouped_lru;
pub(crate) mod key_file;
mod memory;
mod memory_client;
mod open;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
pub(crate) mod redis_connection;
mod sealed;
mod slab;
#[cfg(feature = "sqlite")]
mod sqlite;
pub(crate) mod store_error;

use dunlin::cache::Ticket;

pub use file::FileRecords;
pub use key_file::{Key, KeyFault, read as read_key};
pub use memory::MemoryServerCache;
pub use memory_client::MemoryClientCache;
pub use open::{CacheStore, OpenError, PersistentClientCache, PersistentServerCache};
#[cfg(feature = "redis")]
pub use redis::{DEFAULT_REDIS_TIMEOUT, RedisRecords};
pub(crate) use sealed::sealing_aead;
pub use sealed::{KeyId, Owner, Record, RecordName, Records, SealedClientCache, SealedServerCache, Sealer};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteRecords;
pub use store_error::{CacheFault, Report};

pub use crate::files::{FOREIGN_LINK, behind_links};

/// The longest record that is read from a store, in bytes. The longest that is written, with a whole
/// CertificateRequest, is shorter.
#[cfg(any(feature = "redis", feature = "sqlite"))]
const MAX_RECORD_LEN: u32 = 32 << 10;

/// The older tickets that a client keeps beside a `new` one, newest first. The new ticket replaces the
/// `proven` one; the client may use the others with servers that share the store under other names.
fn older_tickets(
    new: Ticket,
    before: &[Ticket],
    proven: Option<Ticket>,
) -> impl Iterator<Item = Ticket> + use<'_> {
    before.iter().copied().filter(move |ticket| *ticket != new && Some(*ticket) != proven)
}
