//! The registry of `did:dunlin`: it orders the operations on DIDs, and proves what each DID resolves to.
//!
//! A [`Registry`] is one SQLite file with a Merkle log of all operations and the state map over all DIDs. One thread writes. It takes all
//! operations that wait, appends those that are valid, and commits them with a newly signed checkpoint in one transaction; only then it
//! acknowledges them. Readers answer from a [`Snapshot`], the latest committed checkpoint with the map that belongs to it.
//!
//! The log has the formats of C2SP: tlog-tiles, checkpoints and cosignatures. So mirrors, witnesses and checkers of other projects can read
//! it ([`tile`], [`copy::export`]). [`server::serve`] answers over HTTPS. [`audit`](audit::audit) replays the whole log and compares everything that the file says.
//!
//! Several operators that do not trust each other run a [`replica`] each, which CometBFT keeps equal.
//!
//! The verifier's side is in [`dunlin_identity::registry`], without I/O. [`client`] asks a registry over HTTPS, [`lookup`] does so for
//! handshakes that wait for it, and [`stapler`] keeps the proof of an own DID fresh. The feature `server`, on by default, adds
//! everything else.

#[cfg(feature = "server")]
pub mod audit;
#[cfg(feature = "server")]
mod bundle;
pub mod client;
#[cfg(feature = "server")]
pub mod copy;
#[cfg(feature = "server")]
mod database;
#[cfg(feature = "server")]
mod error;
#[cfg(feature = "server")]
mod history;
#[cfg(feature = "server")]
mod log;
pub mod lookup;
#[cfg(feature = "server")]
mod reader;
#[cfg(feature = "server")]
mod registry;
#[cfg(feature = "server")]
pub mod replica;
#[cfg(feature = "server")]
pub mod server;
pub mod stapler;
#[cfg(feature = "server")]
pub mod tile;
#[cfg(feature = "server")]
pub mod witness;
#[cfg(feature = "server")]
mod writer;

#[cfg(feature = "server")]
pub use bundle::Bundle;
#[cfg(feature = "server")]
pub use error::RegistryError;
#[cfg(feature = "server")]
pub use history::{Entry, MAX_HISTORY};
#[cfg(feature = "server")]
pub use reader::{Reader, Resolution, Snapshot};
#[cfg(feature = "server")]
pub use registry::{DEFAULT_REFRESH, Registry, Settings};
#[cfg(feature = "server")]
pub use writer::{Answer, MAX_BATCH, MAX_QUEUE, Receipt};
