//! Why a request has failed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The error of a request, a response or an association.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoapError {
    /// The peer has not acknowledged or answered the request in time.
    #[error(
        "the peer did not answer within {0:?}; check that it still runs, or allow more time in the parameters"
    )]
    Timeout(Duration),
    /// The peer has rejected the message with a Reset.
    #[error("the peer rejected the message with a Reset; it does not know its context or cannot read it")]
    Reset,
    /// The response has a critical option that this side does not understand (RFC 7252 §5.4.1), with this
    /// number.
    #[error(
        "the response has the critical option {0}, which this side does not understand; name it in the parameters"
    )]
    BadOption(u16),
    /// Too many messages wait for the peer, or their message IDs would repeat too soon (RFC 7252 §4.4 and
    /// §4.7).
    #[error("too many messages wait for the peer; send the next one after an answer")]
    Busy,
    /// The message does not fit into one record and datagram.
    #[error(
        "a message has {length} bytes, but one datagram carries {limit}; send less data or raise the MTU"
    )]
    TooLong {
        /// The length of the message in bytes.
        length: usize,
        /// The most bytes that fit.
        limit: usize,
    },
    /// The message has the code of a response or of no message, where a request is needed.
    #[error("the message is not a request; set its method")]
    NotARequest,
    /// The association has ended.
    #[error("the association has ended; connect again")]
    Closed,
    /// The association has failed.
    #[error("the association failed: {0}")]
    Io(Arc<io::Error>),
    /// The handshake has failed.
    #[error("the handshake failed: {0}")]
    Handshake(Arc<dunlin_tokio::HandshakeError>),
    /// A transmission parameter is out of range.
    #[error(transparent)]
    Parameters(#[from] InvalidParameters),
}

impl From<io::Error> for CoapError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl From<dunlin_tokio::HandshakeError> for CoapError {
    fn from(error: dunlin_tokio::HandshakeError) -> Self {
        Self::Handshake(Arc::new(error))
    }
}

/// A transmission parameter is out of range: its name and the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CoAP parameter {name} is out of range; use {range}")]
pub struct InvalidParameters {
    /// The field of [`crate::Parameters`].
    pub name: &'static str,
    /// The values that are allowed.
    pub range: &'static str,
}
