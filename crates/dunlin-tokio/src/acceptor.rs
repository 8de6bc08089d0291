//! The server's side of a handshake.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dunlin::pki_types::CertificateDer;
use dunlin::{Answer, ClientHelloInfo, IdentifiedClient, MessageSize, ServerConfig, TlsConnection};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::answers::Answers;
use crate::clock::now;
use crate::error::HandshakeError;
use crate::handshake::Options;
use crate::stream::TlsStream;

/// Accepts TLS connections from clients. It is cheap to clone.
///
/// # Examples
/// Each handshake has its own task, so that a slow client does not delay the others.
/// ```no_run
/// use std::sync::Arc;
///
/// use dunlin::ServerConfig;
/// use dunlin_tokio::TlsAcceptor;
/// use tokio::net::TcpListener;
///
/// # async fn example(config: ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
/// let acceptor = TlsAcceptor::new(Arc::new(config));
/// let listener = TcpListener::bind("127.0.0.1:4433").await?;
/// loop {
///     let (tcp, client) = listener.accept().await?;
///     let acceptor = acceptor.clone();
///     tokio::spawn(async move {
///         match acceptor.accept(tcp).await {
///             Ok(tls) => println!("{client} is {:?}", tls.negotiated().peer),
///             Err(error) => eprintln!("{client}: {error}"),
///         }
///     });
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
    options: Options,
}

impl TlsAcceptor {
    /// An acceptor with this configuration and [`crate::DEFAULT_TIMEOUT`].
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { config, options: Options::default() }
    }

    /// Sets how long a handshake may take.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Chooses the configuration for every client by its ClientHello, which is not authenticated. `None`
    /// refuses the client, and so does a reason ([`dunlin::error::PeerIncompatible`]) instead of
    /// `Ok(config)`, with its alert. For an asynchronous choice, set [`ServerConfig::with_profile_choice`]
    /// and answer the question instead.
    #[must_use]
    pub fn with_profiles<C: Into<Answer>>(
        mut self,
        choose: impl Fn(&ClientHelloInfo) -> C + Send + Sync + 'static,
    ) -> Self {
        self.config = Arc::new(ServerConfig::clone(&self.config).with_profile_choice(true));
        self.options.profiles = Some(Arc::new(move |hello| choose(hello).into()));
        self
    }

    /// Chooses the configuration of every client that has an identity, for a server of
    /// [`dunlin::ServerProfiles`]. The profile that serves the client must have at least the rank of this
    /// one. `None` refuses the client. For an asynchronous choice, answer the question instead.
    ///
    /// A renegotiation to a weaker profile runs while the connection is in use, when no answers are possible:
    /// it ends the connection if this profile has [`dunlin::PskSource::Ask`] or a verifier that asks.
    #[must_use]
    pub fn with_client_profiles(
        mut self,
        choose: impl Fn(&IdentifiedClient) -> Option<Arc<ServerConfig>> + Send + Sync + 'static,
    ) -> Self {
        self.options.client_profiles = Some(Arc::new(choose));
        self
    }

    /// Sets the source of answers to questions that the configuration leaves open. Without answers, a
    /// question ends the handshake.
    #[must_use]
    pub fn with_answers(mut self, answers: impl Answers + 'static) -> Self {
        self.options.answers = Some(Arc::new(answers));
        self
    }

    /// Sets a function that is called with the certificate of a client that the engine refuses. The error of
    /// the handshake says why. The client has not proven that the certificate is its own.
    #[must_use]
    pub fn with_on_refused(mut self, f: impl Fn(&CertificateDer<'static>) + Send + Sync + 'static) -> Self {
        self.options.on_refused = Some(Arc::new(f));
        self
    }

    /// Sets a function that is called for every sent or received handshake message, also after the handshake.
    #[must_use]
    pub fn with_on_message(mut self, f: impl Fn(&MessageSize) + Send + Sync + 'static) -> Self {
        self.options.on_message = Some(Arc::new(f));
        self
    }

    /// Sets a function that is called once a connection has failed and its stream begins to drop the peer's
    /// input ([`TlsStream`]), during the handshake or after it. A server that limits its connections can then
    /// free the place of this one.
    #[must_use]
    pub fn with_on_linger(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.options.on_linger = Some(Arc::new(f));
        self
    }

    /// Does the handshake over `io`. [`TlsStream::take_early_data`] returns early data that the client sent
    /// with it.
    ///
    /// # Errors
    /// The transport or the handshake failed, or the handshake took too long. `io` is then closed. After a
    /// fatal alert it is closed only when the peer has closed or a bound is reached ([`TlsStream`]).
    pub async fn accept<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        self.accept_until(io, std::future::pending()).await
    }

    /// Does the same, but aborts the handshake if `stop` is ready first, for example because the server shuts
    /// down. The client gets a close_notify if the transport accepts it immediately.
    ///
    /// # Errors
    /// The errors of [`TlsAcceptor::accept`], and [`HandshakeError::Stopped`].
    pub async fn accept_until<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
        stop: impl Future<Output = ()>,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        let connection = TlsConnection::server(&self.config, now());
        let mut stream = TlsStream::new(io, connection, self.options.on_message.clone());
        stream.on_linger = self.options.on_linger.clone();
        self.options.handshake_until(stream, stop).await
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").field("config", &self.config).finish_non_exhaustive()
    }
}
