//! A device: it connects, sends a message, receives its echo, closes, waits, and begins again.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{ClientConfig, EndpointLimits, ServerAddress};
use dunlin_tokio::{DtlsEndpoint, Interface};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::server::{Refusal, Verdicts};
use super::setup::Device;
use crate::error::Code;
use crate::tls::events::{Device as Named, Exchange, Handshake, Side};
use crate::tls::report as tls;
use crate::tls::session::DtlsStream;

/// The addresses of a device that moves.
const HOMES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))];
/// The maximum duration of a connection, from its first packet to its last.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of one connection.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The index of the device, from 0.
    pub(super) index: usize,
    /// The device's name and way, and the number of this connection.
    pub(super) device: Named,
    /// The server's address.
    pub(super) server: SocketAddr,
    /// The result.
    pub(super) outcome: Outcome,
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Both sides identified the other correctly, and the message came back.
    Ok(Box<Done>),
    /// Something failed.
    Failed(Failed),
}

/// What failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// The side that detected the failure.
    pub(super) side: Side,
    /// The class of the failure.
    pub(super) code: Code,
    /// The reason.
    pub(super) why: String,
}

impl Failed {
    fn new(side: Side, code: Code, why: impl Into<String>) -> Self {
        Self { side, code, why: why.into() }
    }
}

/// A successful connection.
#[derive(Clone, Debug)]
pub(super) struct Done {
    /// The device's result of the handshake.
    pub(super) handshake: Handshake,
    /// The server's result, and the exchange after the handshake.
    pub(super) exchange: Exchange,
}

impl Done {
    /// The bytes of the handshake in both directions.
    pub(super) const fn handshake_bytes(&self) -> u64 {
        self.handshake.handshake_bytes_read + self.handshake.handshake_bytes_written
    }

    /// How the handshake differs from a full one.
    pub(super) fn how(&self) -> Option<&'static str> {
        let Handshake { resumed, server_certificate_cached, client_certificate_cached, .. } = self.handshake;
        match (resumed, server_certificate_cached && client_certificate_cached) {
            (true, _) => Some("resumed"),
            (_, true) => Some("cached"),
            _ => self.exchange.moved_to.map(|_| "moved"),
        }
    }

    /// The server's identity as the device saw it.
    pub(super) fn server_identity(&self) -> &str {
        self.handshake.peer.as_deref().unwrap_or("anonymous")
    }
}

/// The server's address, and the number of connections.
#[derive(Clone)]
pub(super) struct Plan {
    /// The server.
    pub(super) server: SocketAddr,
    /// Its name.
    pub(super) name: ServerAddress,
    /// The server's results.
    pub(super) verdicts: Verdicts,
    /// How long a device waits between connections.
    pub(super) interval: Duration,
    /// The number of connections of a device.
    pub(super) rounds: Option<u64>,
}

/// Runs a device after `delay`, until it has made its connections or the receiver of reports is gone.
pub(super) async fn run(
    index: usize,
    device: Device,
    plan: Plan,
    delay: Duration,
    reports: mpsc::Sender<Report>,
) {
    tokio::time::sleep(delay).await;
    for number in 1.. {
        let outcome = connect(&device, &plan, number).await;
        let named = Named { device: device.name.clone(), way: device.way.name(), number };
        let report = Report { index, device: named, server: plan.server, outcome };
        if reports.send(report).await.is_err() || plan.rounds == Some(number) {
            return;
        }
        tokio::time::sleep(plan.interval).await;
    }
}

/// Makes one connection.
pub(super) async fn connect(device: &Device, plan: &Plan, number: u64) -> Outcome {
    match tokio::time::timeout(PATIENCE, try_connect(device, plan, number)).await {
        Ok(Ok(done)) => Outcome::Ok(done.into()),
        Ok(Err(failed)) => Outcome::Failed(failed),
        Err(_) => {
            let why = format!("the connection was not complete after {PATIENCE:?}");
            Outcome::Failed(Failed::new(Side::Client, Code::TIMEOUT, why))
        }
    }
}

async fn try_connect(device: &Device, plan: &Plan, number: u64) -> Result<Done, Failed> {
    let client = |error: io::Error| Failed::new(Side::Client, Code::of_stream(&error), error.to_string());
    let server = |refusal: Refusal| Failed::new(Side::Server, refusal.code, refusal.why);
    let message = format!("{{\"device\":\"{}\",\"reading\":{number}}}", device.name);
    let (verdict, own, moved_to) = if let Some(config) = &device.datagrams {
        let interfaces = vec![Interface::Address(HOMES[0])];
        let endpoint = DtlsEndpoint::over(interfaces, plan.server, EndpointLimits::default());
        let endpoint = endpoint.map_err(client)?;
        let verdict = plan.verdicts.expect(endpoint.local_addr());
        let own = travel(config, plan, &endpoint, message.as_bytes()).await;
        (verdict, own, Some(endpoint.local_addr()))
    } else {
        let tcp = TcpStream::connect(plan.server).await.map_err(client)?;
        // Small messages must not wait for acknowledgements. Without the option they are only slower.
        let _ = tcp.set_nodelay(true);
        let verdict = plan.verdicts.expect(tcp.local_addr().map_err(client)?);
        let own = talk(device, plan.name.clone(), tcp, message.as_bytes()).await;
        (verdict, own, None)
    };
    let verdict =
        verdict.await.map_err(|_| Failed::new(Side::Server, Code::FAILED, "it dropped the connection"))?;
    let (seen, (handshake, handshake_us)) = match (verdict, own) {
        // The server knows more than the alert that it sent to the device.
        (Err(refusal), _) if refusal.found_here => return Err(server(refusal)),
        (_, Err(error)) => return Err(client(error)),
        (Err(refusal), Ok(_)) => return Err(server(refusal)),
        (Ok(seen), Ok(own)) => (seen, own),
    };
    let client_identity = seen.client;
    let exchange = Exchange { client_identity, handshake_us, echoed_bytes: message.len(), moved_to };
    let done = Done { handshake, exchange };
    for (side, seen, is) in [
        (Side::Server, &*done.exchange.client_identity, &device.as_client),
        (Side::Client, done.server_identity(), &device.as_server),
    ] {
        if seen != is {
            let why = format!("it identified the peer as {seen} instead of {is}");
            return Err(Failed::new(side, Code::AUTHENTICATION, why));
        }
    }
    Ok(done)
}

/// Performs the handshake, the exchange and the close. Returns the handshake's result and its duration in microseconds.
async fn talk(
    device: &Device,
    server: ServerAddress,
    tcp: TcpStream,
    message: &[u8],
) -> io::Result<(Handshake, u64)> {
    let started = Instant::now();
    let mut stream = device.connector.connect(tcp, server).await?;
    let handshake_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let handshake = tls::Report::new(&stream).handshake();
    exchange(&mut stream, message).await?;
    close(&mut stream).await?;
    Ok((handshake, handshake_us))
}

/// Does the same over DTLS. The device moves to its other address between two exchanges.
async fn travel(
    config: &Arc<ClientConfig>,
    plan: &Plan,
    endpoint: &DtlsEndpoint,
    message: &[u8],
) -> io::Result<(Handshake, u64)> {
    let started = Instant::now();
    let association = endpoint.connect(config, plan.name.clone(), plan.server).await?;
    let handshake_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (mut stream, _) = DtlsStream::new(association);
    let handshake = tls::Report::new(&stream).handshake();
    exchange(&mut stream, message).await?;
    endpoint.set_interfaces(vec![Interface::Address(HOMES[1])]);
    exchange(&mut stream, message).await?;
    close(&mut stream).await?;
    Ok((handshake, handshake_us))
}

/// Sends `message`, whose echo must be equal.
async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    stream.write_all(message).await?;
    let mut echoed = vec![0; message.len()];
    stream.read_exact(&mut echoed).await?;
    if echoed == message { Ok(()) } else { Err(io::Error::other("the echo differs from the message")) }
}

/// Ends the sending direction, and reads until the server closes. It sends nothing more.
async fn close(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    let mut more = Vec::new();
    match stream.take(1).read_to_end(&mut more).await? {
        0 => Ok(()),
        _ => Err(io::Error::other("the echo is longer than the message")),
    }
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

    /// Starts a server for the devices of `setup`.
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
            Outcome::Failed(Failed { side, why, .. }) => (side, why),
            Outcome::Ok(done) => panic!("{done:?}"),
        }
    }

    /// Devices of another setup are refused, whatever their way.
    #[tokio::test]
    async fn refuses_devices_of_another_setup() {
        let (own, strangers) = (Setup::new(6).unwrap(), Setup::new(6).unwrap());
        let plan = serve(&own).await;
        for device in &strangers.devices {
            let (side, expected) = match device.way {
                Way::X509P256 | Way::X509Ed25519 | Way::X509Resumed | Way::X509Cached => {
                    (
                        Side::Client, // Both roots have the same name.
                        "a signature in its chain does not verify",
                    )
                }
                Way::RawKey => (Side::Client, "its raw public key is not among the trusted ones"),
                Way::PskEcdhe | Way::Psk | Way::Moving => (Side::Server, "the PSK binder does not verify"),
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

    /// The report contains the server's reason, not the alert that the device received after its handshake.
    #[tokio::test]
    async fn reports_the_servers_reason_of_a_refusal() {
        let setup = Setup::with_unknown(Way::RawKey).unwrap();
        let plan = serve(&setup).await;
        assert!(matches!(connect(&setup.devices[0], &plan, 1).await, Outcome::Ok(_)));
        let (side, error) = fails(&setup.devices[1], &plan).await;
        assert_eq!(side, Side::Server, "{error}");
        assert!(error.contains("its raw public key is not among the trusted ones"), "{error}");
    }

    /// A peer with another identity than expected counts as a failure, even if both sides trust each other.
    #[tokio::test]
    async fn detects_a_wrong_identity() {
        let mut setup = Setup::new(1).unwrap();
        let plan = serve(&setup).await;
        setup.devices[0].as_client = "X.509 device-2".into();
        let (side, error) = fails(&setup.devices[0], &plan).await;
        assert_eq!(side, Side::Server);
        assert_eq!(error, "it identified the peer as X.509 device-1 instead of X.509 device-2");
        setup.devices[0].as_client = "X.509 device-1".into();
        setup.devices[0].as_server = "X.509 elsewhere".into();
        assert_eq!(fails(&setup.devices[0], &plan).await.0, Side::Client);
    }

    #[tokio::test]
    async fn reports_a_closed_port() {
        let setup = Setup::new(1).unwrap();
        let mut plan = serve(&setup).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        plan.server = listener.local_addr().unwrap();
        drop(listener);
        let (side, error) = fails(&setup.devices[0], &plan).await;
        assert!(side == Side::Client && error.contains("refused"), "{error}");
    }
}
