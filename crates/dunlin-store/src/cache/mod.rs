//! The handshake cache ([`dunlin::cache`]): in memory, and in stores that outlive the process.
//!
//! [`MemoryClientCache`] and [`MemoryServerCache`] keep entries where only this process can write. What leaves the process is
//! sealed, record for record, by a [`Sealer`] with a key that is not in the store (docs/handshake-cache.md §5, rule 9):
//! [`SealedClientCache`] and [`SealedServerCache`] do that for any store of [`Records`]; [`CacheStore`] opens one with its key file.
//!
//! A store never fails a handshake, and holds none up for long: what it cannot read is no entry, what it cannot write is forgotten, a
//! [`CacheFault`] tells of it, and nobody asks again for a while.

mod file;
mod grouped;
mod key_file;
#[cfg(feature = "redis")]
mod link;
mod memory;
mod memory_client;
mod open;
#[cfg(feature = "redis")]
mod redis;
mod sealed;
mod slab;
#[cfg(feature = "sqlite")]
mod sqlite;
mod trouble;

use dunlin::cache::Ticket;

pub use file::FileRecords;
pub use key_file::KeyFault;
pub use memory::MemoryServerCache;
pub use memory_client::MemoryClientCache;
pub use open::{CacheStore, OpenError, PersistentClientCache, PersistentServerCache};
#[cfg(feature = "redis")]
pub use redis::{DEFAULT_REDIS_TIMEOUT, RedisRecords};
pub use sealed::{KeyId, Owner, Record, RecordName, Records, SealedClientCache, SealedServerCache, Sealer};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteRecords;
pub use trouble::{CacheFault, Report};

/// The longest record that is taken from a store, in bytes: somewhat more than the longest that is put there, which has a whole
/// CertificateRequest in it.
#[cfg(any(feature = "redis", feature = "sqlite"))]
const MAX_RECORD_LEN: u32 = 32 << 10;

/// Which of a client's tickets can stay beside a `new` one, which takes the place of the one that was `proven`: the others, newest
/// first, as the client may use them with servers that share the store under other names.
fn older_tickets(
    new: Ticket,
    before: &[Ticket],
    proven: Option<Ticket>,
) -> impl Iterator<Item = Ticket> + use<'_> {
    before.iter().copied().filter(move |ticket| *ticket != new && Some(*ticket) != proven)
}
