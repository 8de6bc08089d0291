//! DTLS over UDP sockets.
//!
//! [`shared`]: the socket, the engine's endpoint and the task that drives both. [`handshake`]: the handshakes.

mod association;
mod endpoint;
mod handshake;
mod shared;

pub use association::DtlsAssociation;
pub use endpoint::{DtlsEndpoint, DtlsIncoming};
pub use handshake::DtlsOptions;
