//! The operator's side of a registry.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                 what they contain
//! 7    replica               | a registry of several operators, over CometBFT
//! 6    server witness        | answers over HTTPS; collects cosignatures
//! 5    registry watch        | a registry; a witness that replays another one
//! 4    bundle copy writer    | entry bundles and exports; the one thread that writes
//! 3    reader                | the readers' view
//! 2    audit head            | replays the whole log; the state behind a checkpoint
//! 1    history log room      | tables of the database, and how much of it an operation may take
//! 0    database error tile   | the database; errors; the names of tiles
//! ```
//! <!-- end of layers -->

pub mod audit;
mod bundle;
pub mod copy;
mod database;
mod error;
mod head;
mod history;
mod log;
mod reader;
mod registry;
pub mod replica;
mod room;
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
pub use room::{OWN_INTERVAL, ROOM_MARGIN, Room};
pub use writer::{Answer, MAX_BATCH, MAX_CREATIONS, MAX_QUEUE, Receipt};
