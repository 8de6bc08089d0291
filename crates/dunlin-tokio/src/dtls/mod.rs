//! DTLS over UDP sockets.
//!
//! [`socket`]: several datagrams in one system call. [`shared`]: the socket, the engine's endpoint and the
//! task that drives both. [`handshake`]: the handshakes. [`frozen`]: associations that outlive the process.
//! [`interfaces`]: the sockets of a client with several interfaces. [`watch`]: changes of addresses.
//! [`readable`]: which sockets can be read. [`unsent`]: what the sockets have not taken yet. [`nodes`]:
//! several machines with the same clients. `port`: several sockets on one port. [`plain`]: sockets without
//! DTLS. [`first`]: a client whose server has several addresses.

mod association;
mod endpoint;
mod first;
mod frozen;
mod handshake;
mod interfaces;
mod nodes;
mod plain;
#[cfg(target_os = "linux")]
mod port;
mod readable;
mod shared;
mod socket;
mod unsent;
mod watch;

pub use association::{AssociationEnded, DtlsAssociation, PathEvent};
pub use endpoint::{DtlsEndpoint, DtlsIncoming, WeakDtlsEndpoint};
pub use first::{AttemptError, DtlsAttempt, connect_first};
pub use frozen::{Frozen, Resumed};
pub use handshake::DtlsOptions;
pub use interfaces::Interface;
pub use nodes::OtherNodes;
pub use plain::{PlainBuffers, PlainSocket};
#[cfg(target_os = "linux")]
pub use port::{DtlsPort, ResumedPort};
