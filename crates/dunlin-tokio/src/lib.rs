//! Dunlin on tokio: TLS over any asynchronous byte stream, DTLS over UDP sockets.
//!
//! A [`TlsConnector`] or [`TlsAcceptor`] does the handshake and returns a [`TlsStream`], which reads and
//! writes like the transport below it:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use dunlin::{ClientConfig, ServerAddress};
//! use dunlin_tokio::TlsConnector;
//! use tokio::io::AsyncWriteExt;
//! use tokio::net::TcpStream;
//!
//! # async fn example(config: Arc<ClientConfig>, server: ServerAddress) -> std::io::Result<()> {
//! let tcp = TcpStream::connect(("example.org", 443)).await?;
//! let mut tls = TlsConnector::new(config).connect(tcp, server).await?;
//! tls.write_all(b"hello").await?;
//! tls.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`DtlsEndpoint`] is a UDP socket with any number of associations, as client and as server.
//!
//! An implementation of [`Answers`] answers the questions of handshakes ([`dunlin::Question`])
//! asynchronously.
//!
//! With the feature `https` there is a client of HTTPS, too, and with the feature `http` a server of HTTP.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                 what they contain
//! 4    https                 | a client of HTTPS
//! 3    acceptor connector dtls | what a program begins with: a side over a stream, or a UDP socket
//! 2    handshake             | the handshake over a stream
//! 1    stream                | a connection that reads and writes
//! 0    addresses answers clock error linger places | the application's answers, errors, limits, time
//! 0    http throttle         | a server of HTTP; lines of a log that clients cause
//! ```
//! <!-- end of layers -->
#![forbid(unsafe_code)]

mod acceptor;
pub mod addresses;
mod answers;
mod clock;
mod connector;
mod dtls;
mod error;
mod handshake;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "https")]
pub mod https;
mod linger;
pub mod places;
mod stream;
pub mod throttle;

pub use acceptor::TlsAcceptor;
pub use answers::Answers;
pub use clock::now;
pub use connector::TlsConnector;
pub use dtls::{
    AssociationEnded, AttemptError, DtlsAssociation, DtlsAttempt, DtlsEndpoint, DtlsIncoming, DtlsOptions,
    Frozen, Interface, OtherNodes, PathEvent, PlainBuffers, PlainSocket, Resumed, WeakDtlsEndpoint,
    connect_first,
};
#[cfg(target_os = "linux")]
pub use dtls::{DtlsPort, ResumedPort};
pub use error::HandshakeError;
pub use handshake::DEFAULT_TIMEOUT;
pub use stream::{HandshakeBytes, Renegotiations, TlsStream};

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
