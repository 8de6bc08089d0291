//! The registry of `did:dunlin`: it orders the operations on DIDs, and proves what each DID resolves to.
//!
//! A [`Registry`] is one SQLite file with a Merkle log of all operations and the state map over all DIDs. One
//! thread writes. It takes all operations that wait, appends those that are valid, and commits them with a
//! newly signed checkpoint in one transaction; only then it acknowledges them. Readers answer from a
//! [`Snapshot`], the latest committed checkpoint with the map that belongs to it.
//!
//! The log has the formats of C2SP: tlog-tiles, checkpoints and cosignatures. So mirrors, witnesses and
//! checkers of other projects can read it ([`tile`], [`copy::export`]). [`server::serve`] answers over HTTPS.
//! [`audit`](audit::audit) replays the whole log and compares everything that the file says.
//!
//! Several operators that do not trust each other run a [`replica`] each, which CometBFT keeps equal.
//!
//! The verifier's side is in [`dunlin_identity::transparency`], without I/O. [`client`] asks a registry over
//! HTTPS, [`lookup`] does so for handshakes that wait for it, and [`stapler`] keeps the proof of an own DID
//! fresh. The feature `server`, on by default, adds everything else.

pub mod client;
pub mod lookup;
#[cfg(feature = "server")]
mod operator;
pub mod stapler;

#[cfg(feature = "server")]
pub use operator::{
    Answer, Bundle, DEFAULT_REFRESH, Entry, MAX_BATCH, MAX_CREATIONS, MAX_HISTORY, MAX_QUEUE, OWN_INTERVAL,
    ROOM_MARGIN, Reader, Receipt, Registry, RegistryError, Resolution, Room, Settings, Snapshot, audit, copy,
    replica, server, tile, watch, witness,
};
