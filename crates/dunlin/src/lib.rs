//! Dunlin: TLS and DTLS with small messages and a small footprint.
//!
//! This crate is the protocol engine. It does no input or output and has no clock and no global state. Bytes
//! and the time go in; bytes, events and questions come out. A provider crate supplies the cryptography.
//!
//! # A connection
//!
//! 1. Build a [`Profile`] with the parameters to offer or accept, and from it a [`ClientConfig`] or
//!    [`ServerConfig`].
//! 2. Create a [`TlsConnection`] with `client` or `server`.
//! 3. Transfer bytes: pass received bytes to [`Connection::receive`]. Send the bytes of
//!    [`Connection::transmit`] to the peer and report them with [`Connection::transmitted`].
//! 4. Call [`Connection::poll_event`] until it returns `None`. Answer every [`Question`] with
//!    [`Connection::answer`], at once or later.
//! 5. After [`Event::Connected`], send data with [`Connection::send`]. Read data from
//!    [`Connection::received`] and release it with [`Connection::consume`].
//! 6. [`Connection::close`] closes the sending direction. [`Event::PeerClosed`] reports that the peer has
//!    closed its own.
//!
//! Early data (0-RTT) is off unless both configurations enable it. It goes through
//! [`Connection::early_data`]; see [`early`] for its risks.
//!
//! For datagrams, create a [`DtlsConnection`]. It takes and returns whole datagrams with the address of the
//! peer, and the data of one record at a time. It also has timers: call [`Connection::handle_timeout`] at the
//! time that [`Connection::poll_timeout`] names.
//!
//! After an error, transmit what remains: it may include the alert that informs the peer.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dunlin::auth::{Psk, PskTable};
//! use dunlin::{ClientConfig, Now, Profile, PskSource, ServerAddress, ServerConfig, TlsConnection};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A device and a server share a key. (Certificates and raw public keys would be set on the profile.)
//! let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).build()?;
//! let key = [7; 32];
//! let client = ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(Psk::new("device-1", &key)?)]);
//! let keys = PskTable::from_iter([Psk::new("device-1", &key)?]);
//! let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(keys)))?;
//!
//! let now = Now::from_unix_ms(1_767_225_600_000);
//! let address = ServerAddress::parse("example.org", 8883)?;
//! let mut device = TlsConnection::client(&Arc::new(client), address, now)?;
//! let mut server = TlsConnection::server(&Arc::new(server), now);
//!
//! // The example passes the bytes directly from one side to the other instead of over a network.
//! while device.is_handshaking() || server.is_handshaking() {
//!     for (from, to) in [(0, 1), (1, 0)] {
//!         let ends = [&mut device, &mut server];
//!         let bytes = ends[from].transmit().to_vec();
//!         ends[from].transmitted(bytes.len());
//!         ends[to].receive(now, &bytes)?;
//!     }
//! }
//! let peer = server.negotiated().and_then(|n| n.peer.clone()).ok_or("no peer")?;
//! assert_eq!(peer.to_string(), "PSK device-1");
//!
//! device.send(b"21.5 C")?;
//! let n = server.receive(now, device.transmit())?;
//! device.transmitted(n);
//! assert_eq!(server.received(), b"21.5 C");
//! # Ok(())
//! # }
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

extern crate alloc;

mod address;
pub mod auth;
pub mod cache;
pub mod compression;
mod config;
mod connection;
pub mod crypto;
pub mod dissect;
pub mod early;
mod endpoint;
pub mod error;
mod extension;
mod flight;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod keylog;
mod message;
pub mod places;
mod proof;
mod protocol;
mod record;
pub mod resume;
mod schedule;
mod settings;
pub mod sync;
mod time;
mod transport;
pub mod wire;

pub use address::{Local, Path, PathChange, ServerAddress};
pub use auth::{Credential, PeerIdentity, PskIdentity, Trust};
pub use config::{ClientConfig, KnownBy, KnownClient, Profile, ProfileBuilder, ServerConfig, ServerProfiles};
pub use connection::{Connection, DtlsConnection, EarlyData, TlsConnection, Transmit};
pub use crypto::CryptoProvider;
pub use early::{EarlyDataOutcome, EarlyDataProtocols};
pub use endpoint::{
    Association, AssociationId, Ended, Endpoint, EndpointDiscarded, EndpointEvent, EndpointLimits, PortCounts,
};
pub use error::Error;
pub use handshake::event::{Event, MessageSize};
pub use handshake::hints::{CacheNames, ChooseRetry, ClientHelloInfo, RetryChoice};
pub use handshake::negotiated::{HandshakeKind, Negotiated};
pub use handshake::question::{Answer, IdentifiedClient, Question, QuestionId};
pub use keylog::KeyLog;
pub use pki_types;
pub use protocol::{Protocol, Side, TransportKind};
pub use record::datagram::{Datagram, Discarded, PathChecks, connection_id};
pub use record::stream::Stream;
pub use resume::SingleUse;
pub use schedule::binder::PskKind;
pub use settings::{
    ClientAuth, ConnectionIds, CookieKeys, MAX_CONNECTION_ID, MAX_INTERFACES, MaskedNodeIds, Migration,
    Multihoming, NoPort, NodeIds, NodeMask, PathCheck, PortScheme, PskChoice, PskSource, Retransmission,
    SsiMessages,
};
pub use time::{Instant, Now};
