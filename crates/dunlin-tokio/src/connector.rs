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

/// Makes TLS connections to servers. It is cheap to clone.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
///
/// use dunlin::{ClientConfig, ServerAddress};
/// use dunlin_tokio::TlsConnector;
/// use tokio::net::TcpStream;
///
/// # async fn example(config: ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
/// let connector = TlsConnector::new(Arc::new(config));
/// let tcp = TcpStream::connect("localhost:4433").await?;
/// let tls = connector.connect(tcp, ServerAddress::parse("localhost", 4433)?).await?;
/// println!("connected to {:?}", tls.negotiated().peer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    options: Options,
}

impl TlsConnector {
    /// A connector with this configuration and [`crate::DEFAULT_TIMEOUT`].
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self { config, options: Options::default() }
    }

    /// Sets how long a handshake may take.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Sets the source of answers to questions that the configuration leaves open. Without answers, a
    /// question ends the handshake.
    #[must_use]
    pub fn with_answers(mut self, answers: impl Answers + 'static) -> Self {
        self.options.answers = Some(Arc::new(answers));
        self
    }

    /// Sets a function that is called for every sent or received handshake message, also after the handshake.
    #[must_use]
    pub fn with_on_message(mut self, f: impl Fn(&MessageSize) + Send + Sync + 'static) -> Self {
        self.options.on_message = Some(Arc::new(f));
        self
    }

    /// Sets whether the client holds its last flight until the first read, write or flush, so that the flight
    /// shares a packet with the first data. Until then the server's handshake is incomplete, so use it only
    /// if data follows immediately.
    #[must_use]
    pub const fn with_finished_held(mut self, on: bool) -> Self {
        self.options.hold_finished = on;
        self
    }

    /// Does the handshake over `io` with the server at `server`.
    ///
    /// # Errors
    /// The transport or the handshake failed, or the handshake took too long. `io` is then closed. After a
    /// fatal alert it is closed only when the peer has closed or a bound is reached ([`TlsStream`]).
    pub async fn connect<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
        server: ServerAddress,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        let connection = TlsConnection::client(&self.config, server, now())?;
        let stream = TlsStream::new(io, connection, self.options.on_message.clone());
        self.options.handshake(stream).await
    }

    /// Does the same with early data (RFC 8446 §2.3), if the configuration and a session allow it
    /// ([`ClientConfig::with_early_data`]). Returns how many bytes the server accepted, counted from the
    /// beginning. The server has not received the others, and the caller must send them again. An attacker
    /// may replay accepted data, so use it only for requests that tolerate that.
    ///
    /// # Errors
    /// The errors of [`TlsConnector::connect`].
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
