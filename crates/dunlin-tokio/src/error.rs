//! Errors of handshakes, and the engine's errors as [`io::Error`].

use std::io;
use std::time::Duration;

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The transport failed.
    #[error("the transport failed during the handshake: {0}")]
    Io(io::Error),
    /// The client of this server ended the connection before it sent a byte, as port scans and health checks
    /// do.
    #[error("the client sent nothing: {0}")]
    Probe(io::Error),
    /// The handshake failed. The peer got an alert, if there is one for this error.
    #[error(transparent)]
    Tls(#[from] dunlin::Error),
    /// The handshake took longer than this timeout.
    #[error("the handshake was not complete after {0:?}")]
    Timeout(Duration),
    /// The same over datagrams, after this side had its keys: the peer's keys may differ, for example because
    /// of another pre-shared key. Records that do not authenticate are discarded (RFC 6347 §4.1.2.7), so no
    /// alert says so.
    #[error("the handshake was not complete after {after:?}: {}", unconfirmed(*.records))]
    Unconfirmed {
        /// The timeout.
        after: Duration,
        /// How many records under the new keys did not authenticate. 0: the server did not answer the
        /// client's Finished.
        records: u64,
    },
    /// This side aborted the handshake with a close_notify ([`crate::TlsAcceptor::accept_until`]).
    #[error("the handshake was given up")]
    Stopped,
}

impl From<HandshakeError> for io::Error {
    fn from(e: HandshakeError) -> Self {
        match e {
            HandshakeError::Io(e) | HandshakeError::Probe(e) => e,
            HandshakeError::Tls(e) => from_tls(e),
            HandshakeError::Timeout(_) | HandshakeError::Unconfirmed { .. } => {
                Self::new(io::ErrorKind::TimedOut, e)
            }
            HandshakeError::Stopped => Self::new(io::ErrorKind::ConnectionAborted, e),
        }
    }
}

/// Why the keys of both sides may differ.
fn unconfirmed(records: u64) -> String {
    match records {
        0 => {
            "the server did not answer the client's Finished, the first record under the new keys".to_owned()
        }
        1 => "1 record under the new keys did not authenticate".to_owned(),
        more => format!("{more} records under the new keys did not authenticate"),
    }
}

/// Converts the engine's error for readers and writers. [`io::Error::get_ref`] returns the original error.
pub(crate) fn from_tls(e: dunlin::Error) -> io::Error {
    use dunlin::error::Misuse;
    let kind = match &e {
        dunlin::Error::TimedOut => io::ErrorKind::TimedOut,
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
