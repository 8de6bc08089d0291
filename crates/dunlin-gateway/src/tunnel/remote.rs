//! The way to the server: names, pauses between attempts, and failures.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin::crypto::SecureRandom;
use dunlin::error::AuthenticationFailure;
use dunlin_tokio::{HandshakeError, addresses};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::sockets;

/// Pauses between attempts, which double, with jitter, so that devices do not return all at once after an
/// outage.
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// The first pause is about `first`, and no one is above `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first.min(longest), longest }
    }

    /// The next pause: from half of the present length to the whole of it.
    pub(crate) fn pause(&mut self, random: &dyn SecureRandom) -> Duration {
        let whole = self.next;
        self.next = whole.saturating_mul(2).min(self.longest);
        let mut bytes = [0; 4];
        // Without randomness, there is no jitter.
        let jitter = random.fill(&mut bytes).map_or(u32::MAX, |()| u32::from_be_bytes(bytes));
        let half = whole / 2;
        half + half.mul_f64(f64::from(jitter) / f64::from(u32::MAX))
    }
}

/// Why there is no connection to the server.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No packet of the server has come, or its name is unknown.
    Unreachable(io::Error),
    /// The handshake failed.
    Handshake(HandshakeError),
}

impl Failure {
    /// Whether another attempt may soon succeed without a change of the configuration.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable(_) => !self.lacks_files(),
            Self::Handshake(error) => matches!(
                error,
                HandshakeError::Io(_) | HandshakeError::Timeout(_) | HandshakeError::Unconfirmed { .. }
            ),
        }
    }

    /// Whether there are too many open files for another socket.
    pub(crate) fn lacks_files(&self) -> bool {
        matches!(self, Self::Unreachable(error) if sockets::lacks_files(error))
    }

    /// The remedy.
    pub(crate) const fn advice(&self) -> &'static str {
        use AuthenticationFailure as F;
        use dunlin::Error as E;
        match self {
            Self::Unreachable(_) => "start the server, or correct `to`",
            Self::Handshake(HandshakeError::Tls(error)) => match error {
                E::Authentication(F::UnknownIssuer | F::BadChainSignature) => {
                    "add the certificate of its authority to ca, if the server is the right one"
                }
                E::Authentication(F::UnknownRawKey) => {
                    "add its key to raw_keys, if the server is the right one"
                }
                E::Authentication(F::NameMismatch { .. }) => "write a name of its certificate as server_name",
                E::Authentication(F::Expired(_) | F::NotValidYet(_)) => {
                    "check the clock, or renew the certificate"
                }
                E::AlertReceived(_) => "look at the server's log",
                _ => "compare the settings of both sides",
            },
            Self::Handshake(HandshakeError::Unconfirmed { .. }) => {
                "check the network and the server, and that both sides have the same pre-shared key, if they use one"
            }
            Self::Handshake(_) => "check the network and the server",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "the server cannot be reached: {error}"),
            Self::Handshake(error) => error.fmt(f),
        }
    }
}

/// The server's addresses, looked up anew.
pub(crate) async fn addresses(to: &str, until: Instant) -> io::Result<Vec<SocketAddr>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "its name was not found within connect_time");
    let (host, port) = addresses::split(to)?;
    timeout_at(until, addresses::look_up(host, port)).await.map_err(late)?
}

/// Connects to the server over TCP, at the first of its addresses that answers.
pub(crate) async fn connect(to: &str, until: Instant) -> io::Result<TcpStream> {
    let found = addresses(to, until).await?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer within connect_time");
    let tcp = timeout_at(until, addresses::connect(&found)).await.map_err(late)??;
    sockets::prepare(&tcp);
    Ok(tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let random = dunlin_awslc::provider().random;
        let [first, longest] = [100, 500].map(Duration::from_millis);
        let mut backoff = Backoff::new(first, longest);
        for whole in [100, 200, 400, 500, 500].map(Duration::from_millis) {
            let pause = backoff.pause(&*random);
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} {whole:?}");
        }
        assert!(Backoff::new(longest, first).pause(&*random) <= first);
    }
}
