//! A device: it connects, sends a message, receives its identity and the message, closes, waits, and begins
//! again.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{ClientConfig, EndpointLimits, ServerAddress};
use dunlin_coap::CoapClient;
use dunlin_coap::coap_lite::{CoapRequest, RequestType, ResponseType};
use dunlin_command::error::Code;
use dunlin_command::events::{Chosen, Device as Named, Exchange, Handshake, Kind, Side};
use dunlin_command::report as tls;
use dunlin_command::session::DtlsStream;
use dunlin_tokio::{DtlsEndpoint, Interface, TlsConnector};
use pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

use super::mqtt;
use super::rover::rove;
use super::setup::{Device, Link, Way};
use super::site::Listeners;
use super::witness::{Expected, Seen, Witness};

/// The addresses of a device that moves.
const HOMES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))];
/// The address of devices that the gateway knows by their address.
const KNOWN_HOME: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
/// The requests of a device that renegotiates. Their answers come between the flights of the second
/// handshake, which is complete with the last one.
const REQUESTS: u8 = 3;
/// The maximum length of an answer in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// The maximum duration of a connection, from its first packet to its last.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of one connection.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The index of the device, from 0.
    pub(super) index: usize,
    /// The device's name and way, and the number of this connection.
    pub(super) device: Named,
    /// The gateway's address.
    pub(super) server: SocketAddr,
    /// The result.
    pub(super) outcome: Outcome,
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Both sides identified the other correctly, the server learned the device's identity, and the message
    /// came back.
    Ok(Box<Done>),
    /// Something failed.
    Failed(Failed),
}

/// The failure of a device's connection.
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
    /// The exchange after the handshake.
    pub(super) exchange: Exchange,
    /// The profile and the rule that the policy has chosen.
    pub(super) chosen: Chosen,
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
            _ if self.chosen.renegotiated => Some("renegotiated"),
            _ if self.exchange.key_version > Some(0) => Some("new key"),
            _ => self.exchange.moved_to.map(|_| "moved"),
        }
    }

    /// The gateway's identity as the device saw it.
    pub(super) fn server_identity(&self) -> &str {
        self.handshake.peer.as_deref().unwrap_or("anonymous")
    }
}

/// The gateway's addresses, and the number of connections.
#[derive(Clone)]
pub(super) struct Plan {
    /// The gateway.
    pub(super) gateway: Listeners<SocketAddr>,
    /// Its name.
    pub(super) name: ServerName<'static>,
    /// The CoAP server that stands for itself, without the gateway.
    pub(super) coaps: SocketAddr,
    /// The tunnels of devices that have one, by the names of the devices.
    pub(super) tunnels: Arc<HashMap<String, SocketAddr>>,
    /// The registry of devices with a DID.
    pub(super) registry: Arc<str>,
    /// The reports of the gateway.
    pub(super) witness: Witness,
    /// How long a device waits between connections.
    pub(super) interval: Duration,
    /// The number of connections of a device.
    pub(super) rounds: Option<u64>,
}

impl Plan {
    /// The address to which this device connects.
    fn server(&self, device: &Device) -> SocketAddr {
        if device.way == Way::Tcs {
            return self.coaps;
        }
        let tunnel = self.tunnels.get(&device.name).copied();
        // A device without a listener does not exist.
        tunnel.or_else(|| device.way.link().of(&self.gateway)).unwrap_or(self.gateway.web)
    }
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
        let (way, speaks) = (device.way.name(), device.way.link().name());
        let named = Named { device: device.name.clone(), way, speaks, number };
        let report = Report { index, device: named, server: plan.server(&device), outcome };
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
    let message = format!("{{\"device\":\"{}\",\"reading\":{number}}}", device.name);
    let gateway = plan.server(device);
    let name = ServerAddress::new(plan.name.clone(), gateway.port());
    let (config, key_version) = match &device.holder {
        None => (Arc::clone(&device.config), None),
        Some(holder) => {
            let made = holder.lock().await.connection(&plan.registry, number).await;
            let (config, version) = made.map_err(|why| Failed::new(Side::Client, Code::FAILED, why))?;
            (config, Some(version))
        }
    };
    let (talked, seen) = if device.way == Way::Tcs {
        (rove(&device.config, name, gateway, HOMES, &message).await, Seen::default())
    } else if device.way.link() == Link::Coap {
        let interfaces = vec![Interface::Address(HOMES[0])];
        let endpoint = DtlsEndpoint::over(interfaces, gateway, EndpointLimits::default()).map_err(client)?;
        let expected = plan.witness.expect(endpoint.local_addr());
        let talked = travel(device, name, &endpoint, gateway, &message).await;
        let seen = reported(&expected, &talked).await;
        (talked, seen)
    } else {
        let socket = socket_of(device).map_err(client)?;
        let expected = plan.witness.expect(socket.local_addr().map_err(client)?);
        let behind = plan.witness.expect_identity(&format!("X.509 {}", device.name));
        // A tunnel begins its handshake with the connection.
        let tcp = socket.connect(gateway).await.map_err(client)?;
        // Small messages must not wait for acknowledgements. Without the option they are only slower.
        let _ = tcp.set_nodelay(true);
        if device.way.has_tunnel() {
            let talked = talk_plainly(device, tcp, &message, &expected).await;
            let seen = reported(&expected, &talked).await;
            (talked, Seen { failure: seen.failure, ..behind.seen() })
        } else {
            let talked = talk(device, &config, name, tcp, &message).await;
            let seen = reported(&expected, &talked).await;
            (talked, seen)
        }
    };
    let Talked { handshake, handshake_us, answer, moved_to } =
        talked.map_err(|error| failure(&error, &seen))?;
    let (client_identity, echoed) = answer.split_once('\n').unwrap_or((&answer, ""));
    if echoed != message {
        let error = io::Error::other("the answer does not contain the message");
        return Err(client(error));
    }
    let client_identity = client_identity.to_owned();
    let echoed_bytes = echoed.len();
    let exchange = Exchange { client_identity, handshake_us, echoed_bytes, moved_to, key_version };
    let chosen = Chosen { profile: seen.profile, rule: seen.rule, renegotiated: seen.renegotiated };
    let done = Done { handshake, exchange, chosen };
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

/// The gateway's reports about the connection. Its line about a failed handshake may come later than its
/// alert.
async fn reported(expected: &Expected<'_>, talked: &io::Result<Talked>) -> Seen {
    match talked {
        Err(error) if !Code::of_stream(error).is_found_here() => {
            expected.wait(|seen| seen.failure.is_some()).await
        }
        _ => expected.seen(),
    }
}

/// The failure of a connection. The gateway knows more than the alert that it has sent, or than the end of
/// the connection.
fn failure(error: &io::Error, seen: &Seen) -> Failed {
    let code = Code::of_stream(error);
    match &seen.failure {
        Some(why) if !code.is_found_here() => Failed::new(Side::Server, code, why.clone()),
        _ => Failed::new(Side::Client, code, error.to_string()),
    }
}

/// The result of a connection, as the device saw it.
pub(super) struct Talked {
    pub(super) handshake: Handshake,
    /// In microseconds.
    pub(super) handshake_us: u64,
    /// The answer of the server behind the gateway: the device's identity in a line, and the message.
    pub(super) answer: String,
    /// The other address of a device that moves.
    pub(super) moved_to: Option<SocketAddr>,
}

/// Does the handshake, the exchange and the close over TLS.
async fn talk(
    device: &Device,
    config: &Arc<ClientConfig>,
    name: ServerAddress,
    tcp: TcpStream,
    message: &str,
) -> io::Result<Talked> {
    let started = Instant::now();
    let mut stream = TlsConnector::new(Arc::clone(config)).connect(tcp, name).await?;
    let handshake_us = micros(started);
    let handshake = tls::Report::new(&stream).handshake();
    let answer = exchange(device, &mut stream, message).await?;
    stream.shutdown().await?;
    Ok(Talked { handshake, handshake_us, answer, moved_to: None })
}

/// A socket at the address of the device.
fn socket_of(device: &Device) -> io::Result<TcpSocket> {
    let home = if device.way == Way::Tls12 { KNOWN_HOME } else { Ipv4Addr::LOCALHOST };
    let socket = TcpSocket::new_v4()?;
    socket.bind((home, 0).into())?;
    Ok(socket)
}

/// Does the exchange without TLS, which the tunnel adds. The tunnel's log stands for the handshake.
async fn talk_plainly(
    device: &Device,
    mut tcp: TcpStream,
    message: &str,
    expected: &Expected<'_>,
) -> io::Result<Talked> {
    let started = Instant::now();
    let answer = exchange(device, &mut tcp, message).await?;
    let handshake_us = micros(started);
    let Seen { version, identity, kind, bytes: [read, written], .. } = expected.seen();
    let kind = match kind.as_deref() {
        Some("Resumed") => Kind::Resumed,
        Some(kind) if kind.starts_with("Cached") => Kind::Cached,
        _ => Kind::Full,
    };
    let handshake = Handshake {
        version,
        peer: identity,
        resumed: kind == Kind::Resumed,
        kind,
        accepted: true,
        handshake_bytes_read: read,
        handshake_bytes_written: written,
        ..Handshake::default()
    };
    Ok(Talked { handshake, handshake_us, answer, moved_to: None })
}

/// Sends the message in the device's protocol, and returns the answer.
async fn exchange<S>(device: &Device, stream: &mut S, message: &str) -> io::Result<String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match device.way.link() {
        Link::Http => {
            for _ in 1..if device.way == Way::Tls12 { REQUESTS } else { 1 } {
                post(stream, message, "keep-alive").await?;
            }
            post(stream, message, "close").await
        }
        Link::Mqtt => {
            let (identity, message) = mqtt::publish(stream, &device.as_client, message).await?;
            Ok(format!("{identity}\n{message}"))
        }
        Link::Lines | Link::Coap => {
            stream.write_all(message.as_bytes()).await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.take(MAX_ANSWER as u64).read_to_string(&mut answer).await?;
            Ok(answer)
        }
    }
}

/// Sends the message with HTTP, and returns the body of the response.
async fn post<S>(stream: &mut S, message: &str, connection: &str) -> io::Result<String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let len = message.len();
    let request = format!(
        "POST /readings HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\nContent-Length: {len}\r\n\r\n{message}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = vec![];
    let body = loop {
        if let Some(end) = response.windows(4).position(|end| end == b"\r\n\r\n") {
            break end + 4;
        }
        if response.len() > MAX_ANSWER || stream.read_buf(&mut response).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&response[..body]).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        let status = head.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("the web server answered {status:?}")));
    }
    let len = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let len: usize = len.filter(|len| *len <= MAX_ANSWER).ok_or(io::ErrorKind::InvalidData)?;
    while response.len() < body + len {
        if stream.read_buf(&mut response).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    String::from_utf8(response.split_off(body)).map_err(io::Error::other)
}

/// Does the handshake over DTLS, and sends the message with CoAP from both addresses of the device, which
/// moves between the two.
async fn travel(
    device: &Device,
    name: ServerAddress,
    endpoint: &DtlsEndpoint,
    gateway: SocketAddr,
    message: &str,
) -> io::Result<Talked> {
    let started = Instant::now();
    let association = endpoint.connect(&device.config, name, gateway).await?;
    let handshake_us = micros(started);
    let (stream, _) = DtlsStream::new(association);
    let handshake = tls::Report::new(&stream).handshake();
    let client = CoapClient::new(stream.into_association()).map_err(io::Error::other)?;
    put(&client, message).await?;
    endpoint.set_interfaces(vec![Interface::Address(HOMES[1])]);
    let answer = put(&client, message).await?;
    let moved_to = Some(endpoint.local_addr());
    Ok(Talked { handshake, handshake_us, answer, moved_to })
}

async fn put(client: &CoapClient, message: &str) -> io::Result<String> {
    let response = client.request(reading(message)).await.map_err(io::Error::other)?;
    match response.get_status() {
        ResponseType::Content => Ok(String::from_utf8_lossy(&response.message.payload).into_owned()),
        status => Err(io::Error::other(format!("the CoAP server answered {status:?}"))),
    }
}

/// The request with this message.
pub(super) fn reading(message: &str) -> CoapRequest<()> {
    let mut request = CoapRequest::new();
    request.set_method(RequestType::Post);
    request.set_path("/readings");
    request.message.payload = message.as_bytes().to_vec();
    request
}

/// The time since then in microseconds.
pub(super) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]
mod tests {
    use tokio::net::TcpListener;
    use tracing::subscriber::DefaultGuard;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::up::services::Services;
    use crate::up::setup::{Setup, Way, server_name};
    use crate::up::site::{Options, Site};
    use dunlin_command::files::Existing;

    /// Starts a gateway for the devices of `setup`. The test has one thread, whose log the guard takes.
    async fn serve(setup: &Setup) -> (Plan, Site, DefaultGuard) {
        let witness = Witness::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(witness.clone()));
        let services = Services::start(setup).await.unwrap();
        let ports = Listeners::from(0, false).unwrap();
        let options = Options { dir: None, existing: Existing::Keep, ports, broker: None };
        let site = Site::start(setup, services, &options).await;
        let site = site.unwrap_or_else(|error| panic!("{error}"));
        let gateway = *site.addresses();
        let name = server_name().unwrap();
        let tunnels = site.tunnels().into();
        (
            Plan {
                gateway,
                name,
                coaps: services.coaps,
                tunnels,
                registry: site.registry().into(),
                witness,
                interval: Duration::ZERO,
                rounds: None,
            },
            site,
            guard,
        )
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
        let own = Setup::new(None, false).unwrap();
        let strangers = Setup::new(None, false).unwrap();
        let (plan, _site, _guard) = serve(&own).await;
        for device in &strangers.devices {
            let (side, expected) = match device.way {
                // Its tunnel belongs to the other setup.
                Way::Tunnel => continue,
                Way::Mqtt | Way::MqttTunnel => panic!("without a broker"),
                Way::Tcs
                | Way::X509P256
                | Way::X509Ed25519
                | Way::X509Resumed
                | Way::X509Cached
                | Way::Tls12
                | Way::Vc
                | Way::Did => {
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
            let outcome = connect(device, &plan, 1).await;
            assert!(matches!(outcome, Outcome::Ok(_)), "{}: {outcome:?}", device.way.name());
        }
    }

    /// The report contains the gateway's reason, not the alert that the device received after its handshake.
    #[tokio::test]
    async fn reports_the_gateways_reason_of_a_refusal() {
        let setup = Setup::with_unknown(Way::RawKey).unwrap();
        let (plan, _site, _guard) = serve(&setup).await;
        assert!(matches!(connect(&setup.devices[0], &plan, 1).await, Outcome::Ok(_)));
        let (side, error) = fails(&setup.devices[1], &plan).await;
        assert_eq!(side, Side::Server, "{error}");
        assert!(error.contains("its raw public key is not among the trusted ones"), "{error}");
    }

    /// A peer with another identity than expected counts as a failure, even if both sides trust each other.
    #[tokio::test]
    async fn detects_a_wrong_identity() {
        let mut setup = Setup::new(Some(1), false).unwrap();
        let (plan, _site, _guard) = serve(&setup).await;
        setup.devices[0].as_client = "x509:dns:sensor-2".into();
        let (side, error) = fails(&setup.devices[0], &plan).await;
        assert_eq!(side, Side::Server);
        assert_eq!(error, "it identified the peer as x509:dns:sensor-1 instead of x509:dns:sensor-2");
        setup.devices[0].as_client = "x509:dns:sensor-1".into();
        setup.devices[0].as_server = "X.509 elsewhere".into();
        assert_eq!(fails(&setup.devices[0], &plan).await.0, Side::Client);
    }

    #[tokio::test]
    async fn reports_a_closed_port() {
        let setup = Setup::new(Some(1), false).unwrap();
        let (mut plan, _site, _guard) = serve(&setup).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        plan.gateway.web = listener.local_addr().unwrap();
        drop(listener);
        let (side, error) = fails(&setup.devices[0], &plan).await;
        assert!(side == Side::Client && error.contains("refused"), "{error}");
    }
}
