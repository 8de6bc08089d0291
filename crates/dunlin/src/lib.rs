//! Dunlin: TLS and DTLS that travel light.
//!
//! This crate is the protocol engine. It does no input or output, has no clock and no global state: bytes and
//! the time go in, bytes, events and questions come out. Cryptography comes from a provider crate.
//!
//! # A connection
//!
//! 1. Make a [`Profile`] of what is offered or accepted, and of it a [`ClientConfig`] or [`ServerConfig`].
//! 2. Make a [`TlsConnection`] with `client` or `server`.
//! 3. Carry bytes: give [`Connection::receive`] what came, send what [`Connection::transmit`] shows and mark it
//!    with [`Connection::transmitted`].
//! 4. Take [`Connection::poll_event`] until it has no more; give every [`Question`] its [`Answer`], whenever it is
//!    known.
//! 5. After [`Event::Connected`], [`Connection::send`] data, read [`Connection::received`] and
//!    [`Connection::consume`] it.
//! 6. [`Connection::close`] ends the sending direction; [`Event::PeerClosed`] says that the peer ended its own.
//!
//! Over datagrams, make a [`DtlsConnection`]: it takes and gives whole datagrams, and the data of one record at a time.
//!
//! After an error, transmit what is left: it may hold the alert that tells the peer.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

extern crate alloc;

pub mod auth;
mod config;
mod connection;
pub mod crypto;
pub mod error;
mod extension;
mod flight;
mod handshake;
mod keylog;
mod message;
mod profile;
mod question;
mod record;
pub mod resume;
mod schedule;
mod time;
pub mod wire;

pub use auth::{Credential, PeerIdentity, Trust};
pub use config::{ClientAuth, ClientConfig, PskSource, ServerConfig};
pub use connection::{
    Connection, DtlsConnection, Event, MessageSize, Negotiated, ServerAddress, TlsConnection,
};
pub use crypto::CryptoProvider;
pub use error::Error;
pub use handshake::{Side, TransportKind};
pub use keylog::KeyLog;
pub use pki_types;
pub use profile::{Profile, ProfileBuilder};
pub use question::{Answer, ClientHelloInfo, Question, QuestionId};
pub use record::datagram::{Datagram, Discarded};
pub use record::stream::Stream;
pub use schedule::binder::PskKind;
pub use time::{Instant, Now};
