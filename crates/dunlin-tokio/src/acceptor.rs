//! The server's side of a handshake.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dunlin::{ClientHelloInfo, MessageSize, ServerConfig, TlsConnection};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::answers::Answers;
use crate::clock::now;
use crate::error::HandshakeError;
use crate::handshake::Options;
use crate::stream::TlsStream;

/// Accepts clients. Cheap to clone.
#[derive(Clone)]
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
    options: Options,
}

impl TlsAcceptor {
    /// With this configuration and [`crate::DEFAULT_TIMEOUT`].
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { config, options: Options::default() }
    }

    /// How long a handshake may take.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Chooses the configuration for every client by its ClientHello, which is not authenticated; `None` refuses it.
    /// For a choice that takes time, set [`ServerConfig::with_profile_choice`] and answer the question.
    #[must_use]
    pub fn with_profiles(
        mut self,
        choose: impl Fn(&ClientHelloInfo) -> Option<Arc<ServerConfig>> + Send + Sync + 'static,
    ) -> Self {
        self.config = Arc::new(ServerConfig::clone(&self.config).with_profile_choice(true));
        self.options.profiles = Some(Arc::new(choose));
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

    /// Does the handshake over `io`. Early data that comes with it is in [`TlsStream::take_early_data`].
    ///
    /// # Errors
    /// The transport or the handshake failed, or it took too long. `io` is closed then, after a
    /// fatal alert only when the peer has closed or a bound is reached ([`TlsStream`]).
    pub async fn accept<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        self.accept_until(io, std::future::pending()).await
    }

    /// The same, but gives the handshake up when `stop` is ready first, as when the server ends: the client gets a
    /// close_notify, if it takes it at once.
    ///
    /// # Errors
    /// As [`TlsAcceptor::accept`], and [`HandshakeError::Stopped`].
    pub async fn accept_until<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
        stop: impl Future<Output = ()>,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        let connection = TlsConnection::server(&self.config, now());
        let stream = TlsStream::new(io, connection, self.options.on_message.clone());
        self.options.handshake_until(stream, stop).await
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").field("config", &self.config).finish_non_exhaustive()
    }
}
