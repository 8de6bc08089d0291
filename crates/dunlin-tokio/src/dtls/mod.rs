//! DTLS over UDP sockets.
//!
//! [`socket`]: several datagrams in one system call. [`shared`]: the socket, the engine's endpoint and the task that drives both.
//! [`handshake`]: the handshakes. [`frozen`]: associations that outlive the process.

mod association;
mod endpoint;
mod frozen;
mod handshake;
mod shared;
mod socket;

pub use association::DtlsAssociation;
pub use endpoint::{DtlsEndpoint, DtlsIncoming};
pub use frozen::{Frozen, Resumed};
pub use handshake::DtlsOptions;
