//! A device: it connects, sends a message, gets it back, closes, waits, and begins again.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dunlin::ServerAddress;
use dunlin_tokio::TlsStream;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::server::Verdicts;
use super::setup::Device;
use crate::tls::report::identity;

/// How long a connection may take from its first packet to its last.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of one connection.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Which device, from 0.
    #[serde(skip)]
    pub(super) index: usize,
    /// Its name.
    pub(super) device: String,
    /// How it authenticates.
    pub(super) way: &'static str,
    /// Which of its connections, from 1.
    pub(super) connection: u64,
    /// The rest.
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

/// How a connection ended.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub(super) enum Outcome {
    /// Both sides saw whom they expected, and the message came back.
    Ok(Done),
    /// Something failed.
    Failed {
        /// Which side found it.
        side: Side,
        /// What it was.
        error: String,
    },
}

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    /// The device.
    Client,
    /// The server.
    Server,
}

impl Side {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A connection that did all it should.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Done {
    /// Who the device was for the server.
    pub(super) client_identity: String,
    /// What the device says.
    #[serde(flatten)]
    pub(super) own: Own,
}

/// What a device says of its connection.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Own {
    /// Who the server was for the device.
    pub(super) server_identity: String,
    /// Whether a session was resumed.
    pub(super) resumed: bool,
    /// Whether both certificates were in the other side's cache, and not sent.
    pub(super) cached: bool,
    /// The bytes that the device read from its socket during the handshake.
    pub(super) handshake_bytes_read: u64,
    /// The bytes that it wrote.
    pub(super) handshake_bytes_written: u64,
    /// How long the handshake took, in microseconds; without TCP's own.
    pub(super) handshake_us: u64,
    /// The bytes of the message that came back.
    pub(super) echoed_bytes: usize,
}

impl Own {
    /// The bytes of the handshake in both directions.
    pub(super) const fn handshake_bytes(&self) -> u64 {
        self.handshake_bytes_read + self.handshake_bytes_written
    }

    /// How it differs from a handshake with everything in it.
    pub(super) const fn how(&self) -> Option<&'static str> {
        match (self.resumed, self.cached) {
            (true, _) => Some("resumed"),
            (_, true) => Some("cached"),
            _ => None,
        }
    }
}

/// Where the devices connect to, and how often.
#[derive(Clone)]
pub(super) struct Plan {
    /// The server.
    pub(super) server: SocketAddr,
    /// Its name.
    pub(super) name: ServerAddress,
    /// What the server says of each handshake.
    pub(super) verdicts: Verdicts,
    /// How long a device waits between connections.
    pub(super) interval: Duration,
    /// After how many connections it stops.
    pub(super) rounds: Option<u64>,
}

/// Runs a device, after `delay`, until it has made its rounds or nobody listens.
pub(super) async fn run(
    index: usize,
    device: Device,
    plan: Plan,
    delay: Duration,
    reports: mpsc::Sender<Report>,
) {
    tokio::time::sleep(delay).await;
    for connection in 1.. {
        let outcome = connect(&device, &plan, connection).await;
        let report =
            Report { index, device: device.name.clone(), way: device.way.name(), connection, outcome };
        if reports.send(report).await.is_err() || plan.rounds == Some(connection) {
            return;
        }
        tokio::time::sleep(plan.interval).await;
    }
}

/// One connection, from beginning to end.
pub(super) async fn connect(device: &Device, plan: &Plan, connection: u64) -> Outcome {
    let failed = |side, error| Outcome::Failed { side, error };
    match tokio::time::timeout(PATIENCE, try_connect(device, plan, connection)).await {
        Ok(Ok(done)) => Outcome::Ok(done),
        Ok(Err((side, error))) => failed(side, error),
        Err(_) => failed(Side::Client, format!("the connection was not complete after {PATIENCE:?}")),
    }
}

async fn try_connect(device: &Device, plan: &Plan, connection: u64) -> Result<Done, (Side, String)> {
    let client = |error: io::Error| (Side::Client, error.to_string());
    let tcp = TcpStream::connect(plan.server).await.map_err(client)?;
    // Small messages shall not wait for acknowledgements; without this they are only slower.
    let _ = tcp.set_nodelay(true);
    let verdict = plan.verdicts.expect(tcp.local_addr().map_err(client)?);
    let message = format!("{{\"device\":\"{}\",\"reading\":{connection}}}", device.name);
    let own = talk(device, plan.name.clone(), tcp, message.as_bytes()).await;
    let verdict = verdict.await.map_err(|_| (Side::Server, "it dropped the connection".to_owned()))?;
    let (seen, own) = match (verdict, own) {
        // The alert that the device got says less than the server knows.
        (Err(refusal), _) if refusal.found_here => return Err((Side::Server, refusal.why)),
        (_, Err(error)) => return Err((Side::Client, error)),
        (Err(refusal), Ok(_)) => return Err((Side::Server, refusal.why)),
        (Ok(seen), Ok(own)) => (seen, own),
    };
    let taken_for = |seen: &str, is: &str| format!("it took the other side for {seen}, which is {is}");
    if seen.client != device.as_client {
        return Err((Side::Server, taken_for(&seen.client, &device.as_client)));
    }
    if own.server_identity != device.as_server {
        return Err((Side::Client, taken_for(&own.server_identity, &device.as_server)));
    }
    Ok(Done { client_identity: seen.client, own })
}

/// The handshake, the message and its echo, and the end.
async fn talk(device: &Device, server: ServerAddress, tcp: TcpStream, message: &[u8]) -> Result<Own, String> {
    let started = Instant::now();
    let mut stream = device.connector.connect(tcp, server).await.map_err(|error| error.to_string())?;
    let handshake_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let peer = stream.negotiated().peer.as_ref();
    let own = Own {
        server_identity: peer.map_or_else(|| "nobody".to_owned(), identity),
        resumed: stream.negotiated().resumed,
        cached: stream.negotiated().own_certificate_cached && stream.negotiated().peer_certificate_cached,
        handshake_bytes_read: stream.bytes_read(),
        handshake_bytes_written: stream.bytes_written(),
        handshake_us,
        echoed_bytes: message.len(),
    };
    match exchange(&mut stream, message).await {
        Ok(true) => Ok(own),
        Ok(false) => Err("what came back is not what was sent".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends `message`, ends the sending direction, and reads until the server ends its own; whether the same came back.
async fn exchange(stream: &mut TlsStream<TcpStream>, message: &[u8]) -> io::Result<bool> {
    stream.write_all(message).await?;
    let mut echoed = vec![0; message.len()];
    stream.read_exact(&mut echoed).await?;
    stream.shutdown().await?;
    let more = stream.take(1).read_to_end(&mut echoed).await?;
    Ok(more == 0 && echoed == message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]
mod tests {
    use std::net::Ipv4Addr;

    use dunlin_tokio::TlsAcceptor;
    use tokio::net::TcpListener;

    use super::*;
    use crate::commands::up::server;
    use crate::commands::up::setup::{Setup, Way, server_name};

    /// A server for the devices of `setup`, and how to reach it.
    async fn serve(setup: &Setup) -> Plan {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let plan = Plan {
            server: address,
            name: ServerAddress::new(server_name().unwrap(), address.port()),
            verdicts: Verdicts::default(),
            interval: Duration::ZERO,
            rounds: None,
        };
        let (guests, _) = mpsc::channel(1);
        tokio::spawn(server::serve(
            listener,
            TlsAcceptor::new(setup.server.clone()),
            plan.verdicts.clone(),
            guests,
        ));
        plan
    }

    async fn fails(device: &Device, plan: &Plan) -> (Side, String) {
        match connect(device, plan, 1).await {
            Outcome::Failed { side, error } => (side, error),
            Outcome::Ok(done) => panic!("{done:?}"),
        }
    }

    /// Strangers are refused, by the side that finds it, whatever their way.
    #[tokio::test]
    async fn strangers_fail() {
        let (own, strangers) = (Setup::new(6).unwrap(), Setup::new(6).unwrap());
        let plan = serve(&own).await;
        for device in &strangers.devices {
            let (side, expected) = match device.way {
                Way::X509P256 | Way::X509Ed25519 | Way::X509Resumed | Way::X509Cached => {
                    (
                        Side::Client, // Its root has the name of ours.
                        "a signature in its chain does not verify",
                    )
                }
                Way::RawKey => (Side::Client, "its raw public key is not among the trusted ones"),
                Way::PskEcdhe | Way::Psk => (Side::Server, "the PSK binder does not verify"),
            };
            let (found_by, error) = fails(device, &plan).await;
            assert!(
                error.contains(expected) && found_by == side,
                "{}: {found_by:?} {error}",
                device.way.name()
            );
        }
        for device in &own.devices {
            assert!(matches!(connect(device, &plan, 1).await, Outcome::Ok(_)), "{}", device.way.name());
        }
    }

    /// The server's own words are shown, not the alert that the device got when it was done already.
    #[tokio::test]
    async fn a_refused_device_is_told_by_the_server() {
        let setup = Setup::with_unknown(Way::RawKey).unwrap();
        let plan = serve(&setup).await;
        assert!(matches!(connect(&setup.devices[0], &plan, 1).await, Outcome::Ok(_)));
        let (side, error) = fails(&setup.devices[1], &plan).await;
        assert_eq!(side, Side::Server, "{error}");
        assert!(error.contains("its raw public key is not among the trusted ones"), "{error}");
    }

    /// Who is somebody else than expected has failed, though both sides trust each other.
    #[tokio::test]
    async fn a_wrong_identity_fails() {
        let mut setup = Setup::new(1).unwrap();
        let plan = serve(&setup).await;
        setup.devices[0].as_client = "X.509 device-2".into();
        let (side, error) = fails(&setup.devices[0], &plan).await;
        assert_eq!(side, Side::Server);
        assert_eq!(error, "it took the other side for X.509 device-1, which is X.509 device-2");
        setup.devices[0].as_client = "X.509 device-1".into();
        setup.devices[0].as_server = "X.509 elsewhere".into();
        assert_eq!(fails(&setup.devices[0], &plan).await.0, Side::Client);
    }

    #[tokio::test]
    async fn nobody_listens() {
        let setup = Setup::new(1).unwrap();
        let mut plan = serve(&setup).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        plan.server = listener.local_addr().unwrap();
        drop(listener);
        let (side, error) = fails(&setup.devices[0], &plan).await;
        assert!(side == Side::Client && error.contains("refused"), "{error}");
    }
}
