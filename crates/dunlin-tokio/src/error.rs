//! Errors of handshakes, and the engine's errors as errors of input and output.

use std::io;
use std::time::Duration;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The transport failed.
    #[error("the transport failed during the handshake: {0}")]
    Io(io::Error),
    /// The handshake failed; the peer was told by an alert, where there is one.
    #[error(transparent)]
    Tls(#[from] dunlin::Error),
    /// It took longer than this.
    #[error("the handshake was not complete after {0:?}")]
    Timeout(Duration),
    /// This side gave it up, and said so by a close_notify ([`crate::TlsAcceptor::accept_until`]).
    #[error("the handshake was given up")]
    Stopped,
}

impl From<HandshakeError> for io::Error {
    fn from(e: HandshakeError) -> Self {
        match e {
            HandshakeError::Io(e) => e,
            HandshakeError::Tls(e) => from_tls(e),
            HandshakeError::Timeout(_) => Self::new(io::ErrorKind::TimedOut, e),
            HandshakeError::Stopped => Self::new(io::ErrorKind::ConnectionAborted, e),
        }
    }
}

/// The engine's error for those who read and write; [`io::Error::get_ref`] gives it back.
pub(crate) fn from_tls(e: dunlin::Error) -> io::Error {
    use dunlin::error::Misuse;
    let kind = match &e {
        dunlin::Error::Truncated => io::ErrorKind::UnexpectedEof,
        dunlin::Error::AlertReceived(_) => io::ErrorKind::ConnectionAborted,
        dunlin::Error::Authentication(_) => io::ErrorKind::PermissionDenied,
        dunlin::Error::Misuse(Misuse::SendClosed) => io::ErrorKind::BrokenPipe,
        dunlin::Error::Misuse(_) => io::ErrorKind::InvalidInput,
        dunlin::Error::Internal(_) => io::ErrorKind::Other,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, e)
}
