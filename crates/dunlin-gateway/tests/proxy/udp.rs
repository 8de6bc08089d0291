//! DTLS to UDP.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dunlin::auth::Psk;
use dunlin::{ClientConfig, DtlsConnection, NodeIds, Profile, ServerAddress};
use dunlin_tokio::{DtlsAssociation, DtlsEndpoint, now};
use tokio::net::UdpSocket;
use tokio::process::Command as AsyncCommand;

use crate::place::{Client, PSK, Place, listener, metric, metric_becomes, route, sample, within};
use crate::tcp::{failed, reached};

fn dtls(more: &str) -> String {
    listener(&format!("transport = \"dtls\"\n{more}"))
}

const PSKS: &str = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\n[listener.clients]\npsk = \"keys.psk\"\n";

pub(crate) async fn connect(client: &Client, port: u16) -> DtlsAssociation {
    let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let server = ServerAddress::parse("localhost", port).unwrap();
    let gateway = SocketAddr::from(([127, 0, 0, 1], port));
    within(endpoint.connect(&Arc::new(client.config()), server, gateway)).await.unwrap()
}

async fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2048];
    let (len, from) = within(socket.recv_from(&mut buffer)).await.unwrap();
    (buffer[..len].to_vec(), from)
}

async fn backend() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

const CONNECTS: &str =
    "dunlin_gateway_backend_connects_total{listener=\"test\",route=\"0\",outcome=\"connected\"}";

#[tokio::test]
async fn each_client_has_a_socket_of_its_own() {
    let place = Place::new();
    let (socket, to) = backend().await;
    let (gateway, port) = place.start(&(dtls("") + &route(to, ""))).await;
    let client = place.client("root.pem");
    let one = connect(&client, port).await;
    let two = connect(&client, port).await;
    one.send(b"one").await.unwrap();
    let (data, first) = receive(&socket).await;
    assert_eq!(data, b"one");
    two.send(b"two").await.unwrap();
    let (data, second) = receive(&socket).await;
    assert_eq!(data, b"two");
    assert_ne!(first, second);
    socket.send_to(b"to two", second).await.unwrap();
    assert_eq!(within(two.recv()).await.unwrap().unwrap(), b"to two");
    metric_becomes(&gateway, CONNECTS, 2.0).await;
    assert_eq!(metric(&gateway, "dunlin_gateway_dtls_associations{listener=\"test\"}"), 2.0);
    one.close();
    two.close();
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 0.0).await;
    metric_becomes(&gateway, "dunlin_gateway_dtls_associations", 0.0).await;
}

/// A client that sends nothing costs the backend no socket.
#[tokio::test]
async fn the_first_datagram_opens_the_socket() {
    let place = Place::new();
    let (socket, to) = backend().await;
    let (gateway, port) = place.start(&(dtls("") + &route(to, ""))).await;
    let client = place.client("root.pem");
    let silent = connect(&client, port).await;
    metric_becomes(&gateway, "dunlin_gateway_established", 1.0).await;
    silent.close();
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 0.0).await;
    assert_eq!(metric(&gateway, "dunlin_gateway_backend_connects_total"), 0.0);
    let other = connect(&client, port).await;
    other.send(b"data").await.unwrap();
    assert_eq!(receive(&socket).await.0, b"data");
    assert_eq!(metric(&gateway, CONNECTS), 1.0);
}

/// The network's answer is ICMP's "port unreachable", which no datagram of the client has to follow.
#[tokio::test]
async fn a_backend_that_is_down_is_counted_and_its_clients_stay() {
    let place = Place::new();
    let (socket, to) = backend().await;
    drop(socket);
    let (gateway, port) = place.start(&(dtls("") + &route(to, ""))).await;
    let client = connect(&place.client("root.pem"), port).await;
    client.send(b"lost").await.unwrap();
    let refused = "dunlin_gateway_backend_connects_total{listener=\"test\",route=\"0\",outcome=\"refused\"}";
    metric_becomes(&gateway, refused, 1.0).await;
    let socket = UdpSocket::bind(("127.0.0.1", to)).await.unwrap();
    client.send(b"arrives").await.unwrap();
    let (data, gateway_side) = receive(&socket).await;
    assert_eq!(data, b"arrives");
    socket.send_to(b"answer", gateway_side).await.unwrap();
    assert_eq!(within(client.recv()).await.unwrap().unwrap(), b"answer");
    assert_eq!(metric(&gateway, CONNECTS), 1.0);
    client.close();
    metric_becomes(&gateway, "dunlin_gateway_datagrams_dropped_total", 1.0).await;
}

#[tokio::test]
async fn counts_garbage() {
    let place = Place::new();
    let (gateway, port) = place.start(&(dtls("") + &route(1, ""))).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let discarded = "dunlin_gateway_dtls_discarded_total{listener=\"test\"}";
    assert_eq!(metric(&gateway, discarded), 0.0);
    // No record, a part of one, and one of an association that the gateway does not have.
    let foreign = [&[23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8][..], &[0; 8]].concat();
    for garbage in [&[0xff; 40][..], &[22, 254, 253, 0, 0], &foreign] {
        socket.send_to(garbage, ("127.0.0.1", port)).await.unwrap();
    }
    metric_becomes(&gateway, discarded, 3.0).await;
    assert_eq!(metric(&gateway, "dunlin_gateway_handshakes_total"), 0.0);
}

/// Begins a handshake whose client gets the demand for a cookie, and nothing else.
pub(crate) async fn half_open(client: &Client, port: u16) {
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let relay = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let name = ServerAddress::parse("localhost", port).unwrap();
    let config = Arc::new(client.config());
    let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let relayed = async {
        let mut buffer = [0; 2048];
        let mut client = None;
        let mut answers = 0;
        while answers < 2 {
            let (len, from) = relay.recv_from(&mut buffer).await.unwrap();
            let to = if from == server { client } else { Some(server) };
            answers += usize::from(from == server);
            client = client.or(Some(from));
            if answers < 2 {
                relay.send_to(&buffer[..len], to.unwrap()).await.unwrap();
            }
        }
    };
    within(async {
        tokio::select! {
            () = relayed => {}
            _ = endpoint.connect(&config, name, relay.local_addr().unwrap()) => panic!("a handshake without a server"),
        }
    })
    .await;
}

#[tokio::test]
async fn ends_slow_handshakes() {
    let place = Place::new();
    let text = dtls("") + "[listener.limits]\nhandshake_time = \"100ms\"\n" + &route(1, "");
    let (gateway, port) = place.start(&text).await;
    half_open(&place.client("root.pem"), port).await;
    metric_becomes(&gateway, &reached("handshake_time"), 1.0).await;
    assert_eq!(metric(&gateway, &failed("timeout")), 1.0);
}

/// The oldest handshake of a host gives way.
#[tokio::test]
async fn limits_handshakes_of_a_host() {
    let place = Place::new();
    let (socket, to) = backend().await;
    let text = dtls("") + "[listener.limits]\nhandshakes_per_host = 1\n" + &route(to, "");
    let (gateway, port) = place.start(&text).await;
    let client = place.client("root.pem");
    let displaced = "dunlin_gateway_dtls_discarded_total{listener=\"test\",reason=\"displaced\"}";
    for count in [0.0, 1.0] {
        half_open(&client, port).await;
        assert_eq!(metric(&gateway, displaced), count);
    }
    connect(&client, port).await.send(b"data").await.unwrap();
    assert_eq!(receive(&socket).await.0, b"data");
    assert_eq!(metric(&gateway, displaced), 2.0);
    metric_becomes(&gateway, &failed("transport"), 2.0).await;
    metric_becomes(&gateway, &reached("handshakes_per_host"), 2.0).await;
}

/// Clients without an identity do not give way to each other.
#[tokio::test]
async fn limits_connections() {
    let place = Place::new();
    let (socket, to) = backend().await;
    let text = dtls("") + "[listener.limits]\nconnections = 1\n" + &route(to, "");
    let (gateway, port) = place.start(&text).await;
    let client = place.client("root.pem");
    let limit = reached("connections");
    let first = connect(&client, port).await;
    metric_becomes(&gateway, "dunlin_gateway_established", 1.0).await;
    // The alert may come before the client knows that its handshake is complete.
    let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let server = ServerAddress::parse("localhost", port).unwrap();
    let gateway_address = SocketAddr::from(([127, 0, 0, 1], port));
    if let Ok(refused) = within(endpoint.connect(&Arc::new(client.config()), server, gateway_address)).await {
        within(refused.recv()).await.unwrap_err();
    }
    metric_becomes(&gateway, &limit, 1.0).await;
    assert_eq!(metric(&gateway, "dunlin_gateway_handshakes_total{outcome=\"failed\"}"), 0.0);
    first.close();
    metric_becomes(&gateway, "dunlin_gateway_connections", 0.0).await;
    connect(&client, port).await.send(b"data").await.unwrap();
    assert_eq!(receive(&socket).await.0, b"data");
    // A reload gives the listener more places.
    let more = text.replace("connections = 1", "connections = 2");
    gateway.reload(place.config(&more)).await.unwrap_or_else(|faults| panic!("{faults}"));
    let _more = (connect(&client, port).await, connect(&client, port).await);
    metric_becomes(&gateway, "dunlin_gateway_established", 2.0).await;
}

#[tokio::test]
async fn forgets_an_association_whose_client_stays_silent() {
    let place = Place::new();
    let (_socket, to) = backend().await;
    let times = |silent, forget| {
        format!("[listener.limits]\nsilent_time = \"{silent}\"\nforget_time = \"{forget}\"\n")
    };
    let wrong = dtls("") + &times("2ms", "1ms") + &route(to, "");
    let faults = dunlin_gateway::Config::parse(&place.path("gateway.toml"), &wrong).unwrap_err().to_string();
    assert!(faults.contains("forget_time is shorter than silent_time"), "{faults}");
    let (gateway, port) = place.start(&(dtls("") + &times("1ms", "50ms") + &route(to, ""))).await;
    let client = connect(&place.client("root.pem"), port).await;
    // A close_notify.
    assert_eq!(within(client.recv()).await.unwrap(), None);
    metric_becomes(&gateway, &reached("forget_time"), 1.0).await;
    metric_becomes(&gateway, "dunlin_gateway_dtls_associations", 0.0).await;
}

/// Ten devices lose power: they send nothing more, and come back from other addresses.
#[tokio::test]
async fn devices_that_have_lost_power_get_in_again_at_the_limit() {
    let place = Place::new();
    let keys: String = (0..10).map(|n| format!("device-{n}:{}\n", "07".repeat(32))).collect();
    place.write("keys.psk", &keys);
    let (_socket, to) = backend().await;
    for limit in ["connections", "connections_per_host"] {
        let text = format!("{PSKS}[listener.limits]\n{limit} = 10\n{}", route(to, ""));
        let (gateway, port) = place.start(&text).await;
        let gateway_address = SocketAddr::from(([127, 0, 0, 1], port));
        for round in 1..=3 {
            for n in 0..10 {
                let provider = Arc::new(dunlin_awslc::provider());
                let ids = Arc::new(NodeIds::new(&[], 0, provider.random.clone()).unwrap());
                let profile = Profile::builder(provider).build().unwrap();
                let key = Arc::new(Psk::new(format!("device-{n}"), &[7; 32]).unwrap());
                let config = ClientConfig::psk_only(profile, vec![key]).unwrap().with_connection_ids(ids);
                let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
                let name = ServerAddress::parse("localhost", port).unwrap();
                let device =
                    within(endpoint.connect(&Arc::new(config), name, gateway_address)).await.unwrap();
                endpoint.set_loss(|| true);
                drop(device);
            }
            let gave_way = "dunlin_gateway_gave_way_total{listener=\"test\",reason=\"double\"}";
            metric_becomes(&gateway, gave_way, f64::from(10 * (round - 1))).await;
            metric_becomes(&gateway, "dunlin_gateway_established", 10.0).await;
        }
        assert_eq!(metric(&gateway, "dunlin_gateway_limits_reached_total"), 0.0);
    }
}

/// A client that leaves its handshake gives way to one of another host.
#[tokio::test]
async fn a_displaced_handshake_counts_at_its_limit() {
    let place = Place::new();
    let (_socket, to) = backend().await;
    let (gateway, port) =
        place.start(&(dtls("") + "[listener.limits]\nhandshakes = 1\n" + &route(to, ""))).await;
    let client = place.client("root.pem");
    let name = ServerAddress::parse("localhost", port).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let socket = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let mut half = DtlsConnection::client(&Arc::new(client.config()), name.clone(), address, now()).unwrap();
    for _ in 0..2 {
        while let Some(sent) = half.poll_transmit(now()) {
            socket.send_to(&sent.datagram, address).await.unwrap();
        }
        let (datagram, _) = receive(&socket).await;
        half.receive(now(), address, &datagram).unwrap();
    }
    let endpoint = DtlsEndpoint::bind("127.0.0.3:0".parse().unwrap()).await.unwrap();
    let _dtls = within(endpoint.connect(&Arc::new(client.config()), name, address)).await.unwrap();
    metric_becomes(&gateway, &reached("handshakes"), 1.0).await;
    metric_becomes(&gateway, "dunlin_gateway_established", 1.0).await;
}

/// The association outlives its socket: once the socket has closed, the next datagram opens another one.
#[tokio::test]
async fn a_backend_reaches_the_client_long_after_its_request() {
    let place = Place::new();
    let (socket, to) = backend().await;
    // Every pause is longer than this.
    let text = dtls("") + "[listener.limits]\nidle_time = \"1ms\"\n" + &route(to, "");
    let (gateway, port) = place.start(&text).await;
    let dtls = connect(&place.client("root.pem"), port).await;
    dtls.send(b"observe").await.unwrap();
    let (_, from) = receive(&socket).await;
    for n in 0..3_u8 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        socket.send_to(&[n], from).await.unwrap();
        assert_eq!(within(dtls.recv()).await.unwrap().unwrap(), [n]);
    }
    assert_eq!(metric(&gateway, CONNECTS), 1.0);
}

#[tokio::test]
async fn a_socket_that_closes_after_backend_time_is_counted() {
    let place = Place::new();
    let (socket, to) = backend().await;
    let text = dtls("") + "[listener.limits]\nbackend_time = \"1ms\"\n" + &route(to, "");
    let (gateway, port) = place.start(&text).await;
    let dtls = connect(&place.client("root.pem"), port).await;
    for n in 1..=3_u8 {
        dtls.send(&[n]).await.unwrap();
        assert_eq!(receive(&socket).await.0, [n]);
        metric_becomes(&gateway, &CONNECTS.replace("connected", "expired"), n.into()).await;
    }
    // Each datagram has opened another socket.
    assert_eq!(metric(&gateway, CONNECTS), 3.0);
}

#[tokio::test]
async fn each_datagram_carries_the_identity() {
    let place = Place::new();
    let (socket, to) = backend().await;
    let more = "proxy_protocol = true\nsource = [\"127.0.0.2\", \"127.0.0.3\"]";
    let (_gateway, port) = place.start(&(PSKS.to_owned() + &route(to, more))).await;
    let mut client = place.client("root.pem");
    client.psk = true;
    let mut sources = vec![];
    for _ in 0..2 {
        let dtls = connect(&client, port).await;
        for data in [&b"first"[..], b"second"] {
            dtls.send(data).await.unwrap();
            let (datagram, from) = receive(&socket).await;
            // PROXY, version 2, IPv4, datagrams.
            assert_eq!(datagram[..14], *b"\r\n\r\n\0\r\nQUIT\n\x21\x12");
            let end = 16 + usize::from(u16::from_be_bytes([datagram[14], datagram[15]]));
            assert!(datagram[..end].ends_with(b"\xe0\0\x0cpsk:sensor-7"), "{datagram:?}");
            assert_eq!(datagram[end..], *data);
            sources.push(from.ip().to_string());
        }
    }
    assert_eq!(sources, ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]);
}

/// The header names the address that the client has asked, not the listener's address.
#[tokio::test]
async fn the_header_names_the_address_that_was_asked() {
    let place = Place::new();
    let (socket, to) = backend().await;
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let text = PSKS.to_owned() + &route(to, "proxy_protocol = true");
        let (_gateway, port) = place.start(&text.replacen("127.0.0.1:0", listen, 1)).await;
        let mut client = place.client("root.pem");
        client.psk = true;
        let dtls = connect(&client, port).await;
        dtls.send(b"hello").await.unwrap();
        let (datagram, _) = receive(&socket).await;
        // PROXY, version 2, IPv4, datagrams; both addresses, the client's port and the listener's.
        let asked = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x12"[..], &[127, 0, 0, 1, 127, 0, 0, 1]];
        assert_eq!([&datagram[..14], &datagram[16..24]], asked, "{listen}");
        assert_eq!(datagram[26..28], port.to_be_bytes());
    }
}

#[tokio::test]
async fn a_stopping_gateway_closes_associations() {
    let place = Place::new();
    let (socket, to) = backend().await;
    let text = "[gateway]\nshutdown_time = \"1ms\"\n".to_owned() + &dtls("") + &route(to, "");
    let (gateway, port) = place.start(&text).await;
    let dtls = connect(&place.client("root.pem"), port).await;
    dtls.send(b"hello").await.unwrap();
    receive(&socket).await;
    let (received, ()) = within(async { tokio::join!(dtls.recv(), gateway.stop()) }).await;
    // A close_notify.
    assert_eq!(received.unwrap(), None);
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program of libcoap.
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("libcoap3-bin: `tools/setup test` installs it"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sample for a CoAP server. libcoap's clients repeat a request until the server answers, so nothing
/// waits for its start.
#[tokio::test(flavor = "multi_thread")]
async fn libcoaps_clients_reach_libcoaps_server() {
    let place = Place::new();
    // libcoap's clients take a key as text.
    let key = "the key of sensor-7, in ASCII";
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    place.write("keys.psk", &format!("{}:{hex}\n", PSK.0));
    let (socket, to) = backend().await;
    // The server takes no port 0. Another program could take this one first, which is improbable.
    drop(socket);
    let mut server = Command::new("coap-server-notls");
    let _server = Process::start(server.args(["-A", "127.0.0.1", "-p", &to.to_string()]));
    let config = sample("coap/gateway.toml")
        .replace("devices.pem", "authorities.pem")
        .replace("127.0.0.1:5683\"", &format!("127.0.0.1:{to}\""));
    let (_gateway, port) = place.start(&config).await;
    let psk = ["-u", PSK.0, "-k", key];
    let x509 = ["-c", "client.pem", "-j", "client.key", "-R", "authorities.pem"];
    for library in ["openssl", "gnutls"] {
        for credentials in [&psk[..], &x509] {
            let mut client = AsyncCommand::new(format!("coap-client-{library}"));
            client.args(["-w", "-B", "60"]).args(credentials).current_dir(place.path(""));
            client.arg(format!("coaps://127.0.0.1:{port}/")).kill_on_drop(true);
            let output = within(client.output()).await.unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(told.contains("test server made with libcoap"), "{library} {credentials:?}: {output:?}");
        }
    }
}
