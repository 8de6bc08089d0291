//! Stores for clients and servers: resumption ([`dunlin::resume`]), the handshake cache, pre-shared keys.
//!
//! * Sessions of a client: [`MemoryClientSessions`].
//! * Sessions of a server that keeps them: [`MemoryServerSessions`].
//! * Tickets that carry the session: [`RotatingTickets`]; a server that accepts early data adds
//!   [`MemoryUseOnce`]. Several servers share the keys of tickets through Redis, and messages:
//!   `SharedTickets` and `SharedLog`, with the feature `redis`.
//! * The handshake cache: [`MemoryClientCache`], [`MemoryServerCache`], and in the module [`cache`] stores
//!   that outlive the process.
//! * Associations that survive a restart: the module [`frozen`].
//! * The names of stores in options and configurations: `StoreUrl`, with the features `redis` and `sqlite`.
//! * Verdicts about certificates that come again: [`RememberedVerdicts`].
//! * What must never be forgotten: [`RecordFile`].
//! * Text files as editors write them: the module [`text`].
//! * Pre-shared keys: the module `psk`, with files that people write (feature `files`) and SQLite (feature
//!   `sqlite`).
//!
//! Every store is bounded, can be shared by any number of connections, and has no clock: the engine passes
//! the time.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                      what they contain
//! 3    url                        | the names of stores
//! 2    frozen psk records shared  | stores that outlive the process
//! 1    cache                      | stores of the handshake cache
//! 0    client files once server text tickets verdicts | stores in memory; files
//! ```
//! <!-- end of layers -->
#![forbid(unsafe_code)]
// Look-ups take tickets from unauthenticated peers.
#![warn(clippy::indexing_slicing)]

pub mod cache;
mod client;
mod files;
pub mod frozen;
mod once;
#[cfg(feature = "psk")]
pub mod psk;
mod records;
mod server;
#[cfg(feature = "redis")]
mod shared;
pub mod text;
mod tickets;
#[cfg(all(feature = "redis", feature = "sqlite"))]
mod url;
mod verdicts;

pub use cache::{MemoryClientCache, MemoryServerCache};
pub use client::MemoryClientSessions;
pub use once::MemoryUseOnce;
pub use records::RecordFile;
pub use server::MemoryServerSessions;
#[cfg(feature = "redis")]
pub use shared::{MAX_KEPT_MESSAGE, MAX_MESSAGE, MAX_SENT, SharedLog, SharedTickets};
pub use tickets::RotatingTickets;
#[cfg(all(feature = "redis", feature = "sqlite"))]
pub use url::{StoreUrl, StoreUrlFault};
pub use verdicts::RememberedVerdicts;
