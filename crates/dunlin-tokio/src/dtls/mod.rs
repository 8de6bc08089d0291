//! DTLS over UDP sockets.
//!
//! [`socket`]: several datagrams in one system call. [`shared`]: the socket, the engine's endpoint and the task that drives both.
//! [`handshake`]: the handshakes.

mod association;
mod endpoint;
mod handshake;
mod shared;
mod socket;

pub use association::DtlsAssociation;
pub use endpoint::{DtlsEndpoint, DtlsIncoming};
pub use handshake::DtlsOptions;
