//! Where the two sides of resumption keep what they need ([`dunlin::resume`]), in memory; and where pre-shared keys are
//! kept.
//!
//! * A client: [`MemoryClientSessions`].
//! * A server that keeps its sessions: [`MemoryServerSessions`].
//! * A server whose tickets carry the session: [`RotatingTickets`], and for early data beside it [`MemoryUseOnce`].
//! * The handshake cache: [`MemoryClientCache`], [`MemoryServerCache`], and more in the module [`cache`], in stores that outlive the process.
//!
//! All are bounded, can be shared by any number of connections, and have no clock: the engine tells the time.
//!
//! Pre-shared keys are in the module `psk`: in files that people write (feature `files`), and in SQLite (feature `sqlite`).
#![forbid(unsafe_code)]
// A stranger's ticket is looked up here before anything is known of him.
#![warn(clippy::indexing_slicing)]

pub mod cache;
mod client;
mod once;
#[cfg(feature = "psk")]
pub mod psk;
mod server;
mod tickets;

pub use cache::{MemoryClientCache, MemoryServerCache};
pub use client::MemoryClientSessions;
pub use once::MemoryUseOnce;
pub use server::MemoryServerSessions;
pub use tickets::RotatingTickets;
