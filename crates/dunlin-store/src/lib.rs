//! Where the two sides of resumption keep what they need ([`dunlin::resume`]), in memory.
//!
//! * A client: [`MemoryClientSessions`].
//! * A server that keeps its sessions: [`MemoryServerSessions`].
//! * A server whose tickets carry the session: [`RotatingTickets`].
//!
//! All are bounded, can be shared by any number of connections, and have no clock: the engine tells the time.
#![forbid(unsafe_code)]

mod client;
mod server;
mod tickets;

pub use client::MemoryClientSessions;
pub use server::MemoryServerSessions;
pub use tickets::RotatingTickets;
