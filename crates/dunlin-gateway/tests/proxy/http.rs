//! TLS to HTTP/1.1.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin::ServerAddress;
use dunlin_store::MemoryClientSessions;
use dunlin_tokio::{TlsConnector, TlsStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::place::{Client, Place, listener, metric_becomes, route, subscribe, within};

const CLIENTS: &str = "[listener.clients]\nca = \"root.pem\"\n";
const HTTP: &str = "protocol = \"http\"";

/// Reads the header of a message; empty at the end of the connection.
async fn header(stream: &mut (impl AsyncBufReadExt + Unpin)) -> String {
    let mut header = String::new();
    while !header.ends_with("\r\n\r\n") {
        if within(stream.read_line(&mut header)).await.unwrap() == 0 {
            break;
        }
    }
    header
}

/// A server that answers each request with the header of the request, and switches to an echo if a request
/// asks for that.
pub(crate) async fn backend() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                loop {
                    let request = header(&mut stream).await.to_ascii_lowercase();
                    if request.is_empty() {
                        return;
                    }
                    if request.contains("upgrade: websocket") {
                        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
                        stream.write_all(switch.as_bytes()).await.unwrap();
                        let mut data = [0; 5];
                        stream.read_exact(&mut data).await.unwrap();
                        stream.write_all(&data).await.unwrap();
                        return;
                    }
                    let mut body = vec![];
                    if let Some((_, length)) = request.split_once("content-length: ") {
                        body.resize(length.lines().next().unwrap().parse().unwrap(), 0);
                        stream.read_exact(&mut body).await.unwrap();
                    }
                    let body = [request.as_bytes(), &body].concat();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
                }
            });
        }
    });
    port
}

pub(crate) type Stream = BufReader<TlsStream<TcpStream>>;

pub(crate) async fn open(client: &Client, port: u16) -> Stream {
    BufReader::new(client.connect(port, "localhost").await)
}

/// Sends a request, and returns the header and the body of the response.
pub(crate) async fn ask(stream: &mut Stream, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = header(stream).await.to_ascii_lowercase();
    let mut body = vec![];
    if let Some((_, length)) = head.split_once("content-length: ") {
        body.resize(length.lines().next().unwrap().parse().unwrap(), 0);
        within(stream.read_exact(&mut body)).await.unwrap();
    }
    (head, String::from_utf8(body).unwrap())
}

pub(crate) fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
}

#[tokio::test]
async fn the_gateway_alone_says_who_the_client_is() {
    let place = Place::new();
    let (_gateway, port) = place.start(&(listener("") + CLIENTS + &route(backend().await, HTTP))).await;
    let client = place.with_certificate(place.client("root.pem"), "");
    let mut stream = open(&client, port).await;
    let forged = "GET /a?b HTTP/1.1\r\nHost: example.org\r\nClient-Cert: :AAAA:\r\nCLIENT_CERT: :AAAA:\r\n\
                  client-cert-chain: :AAAA:\r\nDunlin-Client-Identity: x509:cn:admin\r\nX-Forwarded-For: 192.0.2.1\r\n\
                  X_Forwarded_Proto: http\r\nDunlin.Client!Identity: x509:cn:admin\r\nClient~Cert: :AAAA:\r\n\
                  X-Forwarded: for=192.0.2.1\r\nX-Forwarded-Host: admin.example\r\nX.Forwarded.Port: 1\r\nX-Real-IP: 10.0.0.1\r\nX-Original-URL: /admin\r\nForwarded: for=192.0.2.1\r\nConnection: keep-alive, x-hop, client-cert\r\n\
                  X-Hop: 1\r\nX-End: 2\r\n\r\n";
    // The second request uses the same connection.
    for _ in 0..2 {
        let (head, request) = ask(&mut stream, forged).await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert!(request.starts_with("get /a?b http/1.1\r\nhost: example.org\r\n"), "{request}");
        let pem = std::fs::read_to_string(place.path("client.pem")).unwrap().to_ascii_lowercase();
        let certificates: Vec<String> = pem
            .split("-----begin certificate-----")
            .skip(1)
            .map(|der| format!(":{}:", der.split("-----end").next().unwrap().replace(['\n', '\r'], "")))
            .collect();
        assert_eq!(values(&request, "client-cert"), [&certificates[0]]);
        assert_eq!(values(&request, "client-cert-chain"), [&certificates[1]]);
        assert_eq!(values(&request, "dunlin-client-identity"), ["x509:cn:device-1"]);
        assert_eq!(values(&request, "x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(values(&request, "x-forwarded-proto"), ["https"]);
        assert_eq!(values(&request, "x-end"), ["2"]);
        for name in [
            "client_cert",
            "client~cert",
            "dunlin.client!identity",
            "forwarded",
            "x_forwarded_proto",
            "x-forwarded",
            "x-forwarded-host",
            "x.forwarded.port",
            "x-real-ip",
            "x-original-url",
            "connection",
            "x-hop",
        ] {
            assert_eq!(values(&request, name), [""; 0], "{name}");
        }
    }
}

#[tokio::test]
async fn a_resumed_client_has_its_certificate() {
    let place = Place::new();
    let (_gateway, port) = place.start(&(listener("") + CLIENTS + &route(backend().await, HTTP))).await;
    let mut client = place.with_certificate(place.client("root.pem"), "");
    client.sessions = Some(Arc::new(MemoryClientSessions::default()));
    let mut seen = vec![];
    for is_resumed in [false, true] {
        let mut stream = open(&client, port).await;
        assert_eq!(stream.get_ref().negotiated().is_resumed(), is_resumed);
        let (_, request) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        seen.push(values(&request, "client-cert").join(""));
    }
    assert!(seen[0].len() > 100 && seen[0] == seen[1], "{seen:?}");
}

#[tokio::test]
async fn passes_bodies_and_other_protocols() {
    let place = Place::new();
    let (_gateway, port) = place.start(&(listener("") + &route(backend().await, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    let (_, answer) = ask(&mut stream, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").await;
    assert!(answer.ends_with("\r\n\r\nbody"), "{answer}");
    assert_eq!(values(&answer, "client-cert"), [""; 0]);
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (head, _) = ask(&mut stream, request).await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: websocket"), "{head}");
    stream.write_all(b"hello").await.unwrap();
    let mut echo = [0; 5];
    within(stream.read_exact(&mut echo)).await.unwrap();
    assert_eq!(&echo, b"hello");
}

/// hyper sends no body with GET and HEAD unless a header says so.
#[tokio::test]
async fn passes_the_chunked_body_of_every_method() {
    let place = Place::new();
    let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listening.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listening.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut request = header(&mut stream).await;
        if request.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n") {
            // The last chunk is empty.
            while !request.ends_with("\r\n0\r\n\r\n") {
                stream.read_line(&mut request).await.unwrap();
            }
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.len());
        stream.write_all((head + &request).as_bytes()).await.unwrap();
    });
    let (_gateway, port) = place.start(&(listener("") + &route(to, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    let query =
        "GET /_search HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nquery\r\n0\r\n\r\n";
    let (_, request) = ask(&mut stream, query).await;
    assert!(request.ends_with("\r\n\r\n5\r\nquery\r\n0\r\n\r\n"), "{request}");
}

/// RFC 7239 §6 has brackets, and X-Forwarded-For has none.
#[tokio::test]
async fn an_ipv6_address_has_no_brackets() {
    let place = Place::new();
    let text = listener("").replace("127.0.0.1:0", "[::1]:0") + &route(backend().await, HTTP);
    let (_gateway, port) = place.start(&text).await;
    let tcp = TcpStream::connect(("::1", port)).await.unwrap();
    let connector = TlsConnector::new(Arc::new(place.client("root.pem").config()));
    let name = ServerAddress::parse("localhost", port).unwrap();
    let mut stream = BufReader::new(connector.connect(tcp, name).await.unwrap());
    let (_, request) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(values(&request, "x-forwarded-for"), ["::1"]);
}

/// A server that answers one request on each connection, and then closes without saying so before.
#[tokio::test]
async fn a_backend_that_closes_after_its_answer_gets_a_new_connection() {
    let place = Place::new();
    let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listening.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listening.accept().await {
            let mut stream = BufReader::new(stream);
            header(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
    });
    let (_gateway, port) = place.start(&(listener("") + &route(to, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    for _ in 0..20 {
        let (head, _) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
    }
}

#[tokio::test]
async fn an_idle_client_gets_a_close_notify() {
    let place = Place::new();
    let limits = "[listener.limits]\nidle_time = \"1s\"\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend().await, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // Without a close_notify it would be an error.
    assert_eq!(within(stream.read_to_end(&mut vec![])).await.unwrap(), 0);
    metric_becomes(&gateway, "dunlin_gateway_limits_reached_total{limit=\"idle_time\"}", 1.0).await;
}

#[tokio::test]
async fn an_upgraded_connection_ends_when_it_is_idle() {
    let place = Place::new();
    let limits = "[listener.limits]\nidle_time = \"1s\"\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend().await, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (head, _) = ask(&mut stream, request).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    // The backend waits for more.
    stream.write_all(b"hell").await.unwrap();
    within(stream.read_to_end(&mut vec![])).await.unwrap_or_default();
    metric_becomes(&gateway, "dunlin_gateway_limits_reached_total{limit=\"idle_time\"}", 1.0).await;
}

#[tokio::test]
async fn other_protocols_than_websocket_do_not_pass() {
    let place = Place::new();
    let (_gateway, port) = place.start(&(listener("") + &route(backend().await, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    for upgrade in ["h2c", "echo", "websocket, h2c", "h2c\r\nUpgrade: websocket"] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        );
        let (head, request) = ask(&mut stream, &request).await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        for name in ["connection", "upgrade", "http2-settings"] {
            assert_eq!(values(&request, name), [""; 0], "{upgrade}: {name}");
        }
    }
    // Nor without being named by Connection.
    let (_, request) =
        ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: h2c\r\n\r\n")
            .await;
    assert_eq!([values(&request, "upgrade"), values(&request, "http2-settings")], [[""; 0], [""; 0]]);
}

#[tokio::test]
async fn refuses_requests_for_the_host_of_another_route() {
    let place = Place::new();
    let to = backend().await;
    let named = format!("{HTTP}\nsni = [\"localhost\", \"web.example.org\"]");
    let routes = route(to, &named) + &route(to, HTTP);
    let (_gateway, port) = place.start(&(listener("") + &routes)).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    for (target, host, code) in [
        ("/", "localhost", 200),
        ("/", "LOCALHOST.:8443", 200),
        ("/", "web.example.org", 200),
        ("/", "other.example.org", 421),
        ("/", "127.0.0.1", 421),
        ("/", "[::1]:443", 421),
        ("/", "localhost..", 421),
        ("/", ".localhost", 421),
        ("https://localhost..:8443/", "localhost", 421),
        // RFC 9112 §3.2.2: the absolute form counts.
        ("https://other.example.org/", "localhost", 421),
        ("https://web.example.org/x", "other.example.org", 200),
        ("/", "localhost\r\nHost: localhost", 400),
        ("/", "localhost, other.example.org", 400),
        ("/", "user@localhost", 400),
        ("/", "", 400),
    ] {
        let (head, request) =
            ask(&mut stream, &format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert!(head.starts_with(&format!("http/1.1 {code} ")), "{target} {host}: {head}");
        if target.ends_with('x') {
            assert!(request.starts_with("get /x http/1.1\r\nhost: web.example.org\r\n"), "{request}");
        }
    }
    let (head, _) = ask(&mut stream, "GET / HTTP/1.1\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 400 "), "{head}");
    // RFC 9112 §3.2: only HTTP/1.0 has requests without a host.
    let (_, request) = ask(&mut stream, "GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(values(&request, "host"), [format!("127.0.0.1:{to}")]);
}

/// A client chooses the application protocol, so the application protocols of a route do not protect its
/// host.
#[tokio::test]
async fn the_application_protocol_opens_no_other_route() {
    let place = Place::new();
    let to = backend().await;
    let staff = "[[listener.route.allow]]\nissuer = \"CN=Staff\"\n";
    let admin = |alpn: &str| route(to, &format!("{HTTP}\nsni = \"admin.example\"\n{alpn}\n{staff}"));
    let www = |alpn: &str| route(to, &format!("{HTTP}\nsni = \"localhost\"\n{alpn}"));
    let http = "alpn = \"http/1.1\"";
    let mqtt = route(1, "alpn = \"mqtt\"");
    for (routes, offered, host, code) in [
        (admin(http) + &www(""), "", "admin.example", 421),
        (admin("") + &www(http), "http/1.1", "admin.example", 421),
        // The last route takes all names, but not the names of a protected route.
        (admin(http) + &route(to, HTTP), "", "admin.example", 421),
        (admin(http) + &route(to, HTTP), "", "other.example", 200),
        // A backend may take these for the name of the protected route.
        (admin(http) + &route(to, HTTP), "", "admin.example..", 421),
        (admin(http) + &route(to, HTTP), "", "admin..example", 421),
        // Other protocols than HTTP have hosts of their own.
        (mqtt + &route(to, HTTP), "", "admin.example", 200),
        // The same host by two protocols.
        (www("alpn = \"h2\"") + &www(http), "http/1.1", "localhost", 200),
    ] {
        let clients = "[listener.clients]\nca = \"root.pem\"\nverify = \"optional\"\n";
        let (_gateway, port) = place.start(&(listener("") + clients + &routes)).await;
        let mut client = place.client("root.pem");
        client.alpn = offered.split_terminator(' ').map(|protocol| protocol.as_bytes().to_vec()).collect();
        let mut stream = open(&client, port).await;
        let (head, _) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert!(head.starts_with(&format!("http/1.1 {code} ")), "{routes} {host}: {head}");
    }
}

#[tokio::test]
async fn refuses_long_headers_and_says_if_the_server_is_down() {
    let place = Place::new();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = socket.local_addr().unwrap().port();
    let limits = "[listener.limits]\nheader_bytes = 8192\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(to, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    let (head, body) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 502 ") && body.contains("cannot be reached"), "{head}{body}");
    let refused = "dunlin_gateway_backend_connects_total{listener=\"test\",route=\"0\",outcome=\"refused\"}";
    metric_becomes(&gateway, refused, 1.0).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(10_000));
    let (head, _) = ask(&mut stream, &long).await;
    assert!(head.starts_with("http/1.1 431 "), "{head}");
    let reached = "dunlin_gateway_limits_reached_total{listener=\"test\",limit=\"header_bytes\"}";
    metric_becomes(&gateway, reached, 1.0).await;
}

/// Counts the lines about a backend that cannot be reached.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl std::io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let is_counted = String::from_utf8_lossy(line).contains("the backend cannot be reached");
        self.0.fetch_add(usize::from(is_counted), Ordering::Relaxed);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn requests_without_a_backend_do_not_fill_the_log() {
    subscribe();
    let lines = Lines::default();
    let place = Place::new();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(log);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = socket.local_addr().unwrap().port();
    let (_gateway, port) = place.start(&(listener("") + &route(to, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    for _ in 0..60 {
        let (head, _) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(head.starts_with("http/1.1 502 "), "{head}");
    }
    assert_eq!(lines.0.load(Ordering::Relaxed), 50);
}

#[tokio::test]
async fn a_stopping_gateway_ends_connections_between_requests() {
    let place = Place::new();
    let (gateway, port) = place.start(&(listener("") + &route(backend().await, HTTP))).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut rest = vec![];
    let (ended, ()) = within(async { tokio::join!(stream.read_to_end(&mut rest), gateway.stop()) }).await;
    // Without a close_notify it would be an error.
    assert_eq!(ended.unwrap(), 0);
}

#[test]
fn refuses_a_cache_that_omits_the_clients_certificates() {
    let text = listener("") + CLIENTS + "[listener.cache]\nmode = \"compact\"\n" + &route(1, HTTP);
    let faults = dunlin_gateway::Config::parse("gateway.toml".as_ref(), &text).unwrap_err().to_string();
    let says = "gateway.toml:10: listener[0].cache: servers behind a route with protocol = \"http\" get the certificates of clients";
    assert!(faults.starts_with(says), "{faults}");
}
