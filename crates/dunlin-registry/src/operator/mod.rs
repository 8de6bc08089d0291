//! The operator's side of a registry.

pub mod audit;
mod bundle;
pub mod copy;
mod database;
mod error;
mod history;
mod log;
mod reader;
mod registry;
pub mod replica;
pub mod server;
pub mod tile;
pub mod watch;
pub mod witness;
mod writer;

pub use bundle::Bundle;
pub use error::RegistryError;
pub use history::{Entry, MAX_HISTORY};
pub use reader::{Reader, Resolution, Snapshot};
pub use registry::{DEFAULT_REFRESH, Registry, Settings};
pub use writer::{Answer, MAX_BATCH, MAX_CREATIONS, MAX_QUEUE, OWN_INTERVAL, ROOM_MARGIN, Receipt, Room};
