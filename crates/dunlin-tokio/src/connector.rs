//! The client's side of a handshake.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dunlin::{ClientConfig, MessageSize, ServerAddress, TlsConnection};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::answers::Answers;
use crate::clock::now;
use crate::error::HandshakeError;
use crate::handshake::Options;
use crate::stream::TlsStream;

/// Connects to servers. Cheap to clone.
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    options: Options,
}

impl TlsConnector {
    /// With this configuration and [`crate::DEFAULT_TIMEOUT`].
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self { config, options: Options::default() }
    }

    /// How long a handshake may take.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Who answers what the configuration leaves open. Without, a question ends the handshake.
    #[must_use]
    pub fn with_answers(mut self, answers: impl Answers + 'static) -> Self {
        self.options.answers = Some(Arc::new(answers));
        self
    }

    /// Hears of every handshake message when it was sent or received, also after the handshake.
    #[must_use]
    pub fn with_on_message(mut self, f: impl Fn(&MessageSize) + Send + Sync + 'static) -> Self {
        self.options.on_message = Some(Arc::new(f));
        self
    }

    /// Whether the client's last flight waits for the first read, write or flush, so that it shares a packet with the
    /// first data. Until then the server has no connection: only for those who go on at once.
    #[must_use]
    pub const fn with_finished_held(mut self, on: bool) -> Self {
        self.options.hold_finished = on;
        self
    }

    /// Does the handshake over `io`, with the server called `server`.
    ///
    /// # Errors
    /// The transport or the handshake failed, or it took too long. `io` is closed then, after a
    /// fatal alert only when the peer has closed or a bound is reached ([`TlsStream`]).
    pub async fn connect<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
        server: ServerAddress,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        let connection = TlsConnection::client(&self.config, server, now())?;
        let stream = TlsStream::new(io, connection, self.options.on_message.clone());
        self.options.handshake(stream).await
    }

    /// The same with early data (RFC 8446 §2.3), where the configuration and a session allow any
    /// ([`ClientConfig::with_early_data`]). Gives how many bytes of it the server took, from the beginning; the others it
    /// has not seen, and nobody sends them but the caller. What it took, it may be made to take again by whoever recorded
    /// it: only for requests that bear it.
    ///
    /// # Errors
    /// As [`TlsConnector::connect`].
    pub async fn connect_with_early_data<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
        server: ServerAddress,
        early_data: &[u8],
    ) -> Result<(TlsStream<IO>, usize), HandshakeError> {
        let connection = TlsConnection::client(&self.config, server, now())?;
        let stream = TlsStream::new(io, connection, self.options.on_message.clone());
        self.options.handshake_with(stream, early_data).await
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").field("config", &self.config).finish_non_exhaustive()
    }
}
