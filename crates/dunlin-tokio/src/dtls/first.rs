//! A client whose server has several addresses. Some of them may not answer.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dunlin::{AssociationId, ClientConfig, Error, ServerAddress};
use tokio::time::Instant;

use super::association::DtlsAssociation;
use super::endpoint::DtlsEndpoint;
use super::handshake::DtlsOptions;
use super::shared::{Handle, Owned};
use crate::addresses::{Weight, plain, race};
use crate::error::HandshakeError;

/// How long an attempt without an answer runs alone before the next one begins beside it. The first
/// ClientHello is sent again after 1 s (RFC 9147 §5.8.2), so the loss of one datagram begins no second
/// attempt.
const STEP: Duration = Duration::from_millis(2500);

/// The endpoint and the options of one attempt.
#[derive(Debug)]
pub struct DtlsAttempt<X> {
    /// An endpoint with a socket of its own, on which nothing else connects to this address.
    pub endpoint: DtlsEndpoint,
    /// The options of the handshake. The timeout covers all attempts.
    pub options: DtlsOptions,
    /// Whatever the caller notes about the attempt.
    pub context: X,
}

/// Why no attempt of [`connect_first`] succeeded.
#[derive(Debug)]
pub enum AttemptError<X, E> {
    /// There is no address.
    Nowhere,
    /// There is no endpoint for an attempt.
    Open(E),
    /// The handshake of the attempt with this context failed.
    Handshake(X, HandshakeError),
}

impl<X, E: fmt::Display> fmt::Display for AttemptError<X, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("there is no address to connect to"),
            Self::Open(error) => error.fmt(f),
            Self::Handshake(_, error) => error.fmt(f),
        }
    }
}

impl<X: fmt::Debug, E: fmt::Debug + fmt::Display> std::error::Error for AttemptError<X, E> {}

/// Connects to the first of these addresses with which the handshake completes. An attempt that fails, or
/// brings no answer for 2.5 s, lets the next one begin beside it, in the spirit of RFC 8305 §5. `open` makes
/// what an attempt uses. Each attempt is a connection of its own, with its own socket, random and key share,
/// so no address sees the ClientHello of another one. The other attempts end once one succeeds.
///
/// # Errors
/// An attempt that an answer of the server has ended lets none follow. Its failure counts most, then the
/// failure of a silent address.
pub async fn connect_first<X, E, F>(
    addresses: &[SocketAddr],
    config: &Arc<ClientConfig>,
    server: &ServerAddress,
    open: impl Fn(SocketAddr) -> F,
) -> Result<(DtlsAssociation, DtlsAttempt<X>), AttemptError<X, E>>
where
    F: Future<Output = Result<DtlsAttempt<X>, E>>,
{
    let begin = Instant::now();
    let begun = Begun::default();
    let attempt = async |address: SocketAddr| {
        let DtlsAttempt { endpoint, mut options, context } =
            open(address).await.map_err(AttemptError::Open)?;
        let whole = options.timeout();
        options = options.with_timeout(whole.saturating_sub(begin.elapsed()));
        let peer = plain(address);
        let connecting = async {
            let id = endpoint.handle.0.act(|state| state.connect(config, server.clone(), peer))?;
            begun.note(&endpoint.handle, id);
            options.handshake(Owned { handle: Arc::clone(&endpoint.handle), id, peer }).await
        };
        match connecting.await {
            Ok(association) => {
                let options = options.with_timeout(whole);
                Ok((association, DtlsAttempt { endpoint, options, context }))
            }
            Err(HandshakeError::Timeout(_)) => {
                Err(AttemptError::Handshake(context, HandshakeError::Timeout(whole)))
            }
            Err(HandshakeError::Unconfirmed { records, .. }) => {
                let error = HandshakeError::Unconfirmed { after: whole, records };
                Err(AttemptError::Handshake(context, error))
            }
            Err(error) => Err(AttemptError::Handshake(context, error)),
        }
    };
    let won = race(addresses, attempt, STEP, || begun.heard(), weigh).await;
    won.map_err(|failure| failure.unwrap_or(AttemptError::Nowhere))
}

/// How much a failure says about the server.
fn weigh<X, E>(error: &AttemptError<X, E>) -> Weight {
    match error {
        AttemptError::Nowhere | AttemptError::Open(_) => Weight::Unreachable,
        AttemptError::Handshake(_, error) => match error {
            HandshakeError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => Weight::Refused,
            HandshakeError::Timeout(_) | HandshakeError::Tls(Error::TimedOut) => Weight::Silent,
            // No interface leads to the address.
            HandshakeError::Tls(Error::Misuse(_))
            | HandshakeError::Io(_)
            | HandshakeError::Probe(_)
            | HandshakeError::Stopped => Weight::Unreachable,
            HandshakeError::Tls(_) | HandshakeError::Unconfirmed { .. } => Weight::Answered,
        },
    }
}

/// The attempts that have begun.
#[derive(Default)]
struct Begun(Mutex<Vec<(Weak<Handle>, AssociationId)>>);

impl Begun {
    fn note(&self, handle: &Arc<Handle>, id: AssociationId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::downgrade(handle), id));
    }

    /// The bytes that the servers have sent to all attempts in progress.
    fn heard(&self) -> u64 {
        let begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = begun.iter().filter_map(|(handle, id)| handle.upgrade().zip(Some(*id)));
        let received = handles.filter_map(|(handle, id)| {
            handle.0.read(|state| state.endpoint.association(id).map(dunlin::Association::bytes_received))
        });
        received.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_of_a_server_that_answers_counts_most() {
        let handshake = |error| weigh(&AttemptError::<(), io::Error>::Handshake((), error));
        let refused = handshake(HandshakeError::Io(io::ErrorKind::ConnectionRefused.into()));
        let silent = handshake(HandshakeError::Timeout(Duration::from_secs(1)));
        let answered = handshake(HandshakeError::Tls(Error::Truncated));
        assert!(refused < silent && silent < answered);
        assert!(weigh(&AttemptError::<(), _>::Open(io::Error::other(""))) < refused);
    }
}
