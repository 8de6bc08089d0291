//! Two gateways that share ticket keys through a real Redis.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dunlin::{HandshakeKind, ServerAddress};
use dunlin_gateway::{Config, Gateway};
use dunlin_store::MemoryClientSessions;
use dunlin_tokio::{TlsConnector, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::place::{Client, Place, backend, listener, metric, metric_becomes, route, within};
use crate::policy;

const REFRESHED: &str = "dunlin_gateway_shared_refreshes_total{what=\"tickets\",outcome=\"succeeded\"}";
const FAILED: &str = "dunlin_gateway_shared_refreshes_total{what=\"tickets\",outcome=\"failed\"}";

/// A Redis that stores nothing on disk and ends with its test.
pub(crate) struct Redis {
    pub(crate) port: u16,
    process: Child,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Redis {
    pub(crate) fn new(place: &Place) -> Self {
        loop {
            // Redis chooses no free port itself, and another program may take this one first.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string(), "--dir"]);
            let process = command.arg(place.path("")).stdout(Stdio::null()).spawn();
            let process = process.expect("redis-server: `tools/setup test` installs it");
            let mut redis = Self { port, process };
            while redis.process.try_wait().unwrap().is_none() {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return redis;
                }
                std::thread::yield_now();
            }
        }
    }
}

/// The table `[shared]` with this Redis.
pub(crate) fn table(place: &Place, redis: u16) -> String {
    place.write("shared.key", &"k".repeat(32));
    std::fs::set_permissions(place.path("shared.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("[shared]\nstore = \"redis://127.0.0.1:{redis}/\"\nkey = \"shared.key\"\n")
}

/// A configuration with this Redis.
fn shared(place: &Place, redis: u16, backend: u16) -> String {
    table(place, redis) + &listener("") + &route(backend, "")
}

/// Connects to one of several gateways that the client takes for one server, and reads the tickets.
async fn connect(client: &Client, gateway: &Gateway) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(gateway.addresses()[0].1).await.unwrap();
    let server = ServerAddress::parse("localhost", 443).unwrap();
    let mut tls = TlsConnector::new(Arc::new(client.config())).connect(tcp, server).await.unwrap();
    tls.shutdown().await.unwrap();
    let mut answer = String::new();
    within(tls.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "one got ");
    tls
}

#[tokio::test]
async fn a_ticket_of_one_gateway_is_resumed_at_the_other() {
    let place = Place::new();
    let redis = Redis::new(&place);
    let text = shared(&place, redis.port, backend("one").await);
    let [(one, _), (two, _)] = [place.start(&text).await, place.start(&text).await];
    for gateway in [&one, &two] {
        metric_becomes(gateway, REFRESHED, 1.0).await;
    }
    let sessions = Some(Arc::new(MemoryClientSessions::new(8, 2)));
    let client = Client { sessions, ..place.client("root.pem") };
    assert_eq!(connect(&client, &one).await.negotiated().kind, HandshakeKind::Full);
    assert_eq!(connect(&client, &two).await.negotiated().kind, HandshakeKind::Resumed);
    assert_eq!(metric(&two, "dunlin_gateway_handshakes_completed_total{kind=\"resumed\"}"), 1.0);
}

#[tokio::test]
async fn a_client_in_the_cache_of_one_gateway_is_cached_at_the_other() {
    let place = Place::new();
    let redis = Redis::new(&place);
    let cache = format!(
        "[listener.clients]\nca = \"root.pem\"\n[listener.cache]\nmode = \"compact\"\n\
         store = \"redis://127.0.0.1:{}/\"\nkey = \"shared.key\"\n",
        redis.port
    );
    let text = table(&place, redis.port) + &listener("") + &cache + &route(backend("one").await, "");
    let [(one, _), (two, _)] = [place.start(&text).await, place.start(&text).await];
    let mut client = place.with_certificate(place.client("root.pem"), "");
    client.cache = Some(Arc::default());
    assert_eq!(connect(&client, &one).await.negotiated().kind, HandshakeKind::Full);
    let cached = HandshakeKind::Cached { own: true, peer: true };
    assert_eq!(connect(&client, &two).await.negotiated().kind, cached);
    assert_eq!(metric(&two, "dunlin_gateway_handshakes_completed_total{kind=\"cached\"}"), 1.0);
}

#[tokio::test]
async fn without_redis_clients_get_full_handshakes_at_the_other() {
    let place = Place::new();
    let port = {
        let redis = Redis::new(&place);
        redis.port
    };
    let text = shared(&place, port, backend("one").await);
    let [(one, _), (two, _)] = [place.start(&text).await, place.start(&text).await];
    for gateway in [&one, &two] {
        metric_becomes(gateway, FAILED, 1.0).await;
    }
    let sessions = Some(Arc::new(MemoryClientSessions::new(8, 2)));
    let client = Client { sessions, ..place.client("root.pem") };
    for (gateway, kind) in
        [(&one, HandshakeKind::Full), (&one, HandshakeKind::Resumed), (&two, HandshakeKind::Full)]
    {
        assert_eq!(connect(&client, gateway).await.negotiated().kind, kind);
    }
}

/// Waits until this gateway has sent its present knowledge to the others, and has received their earlier
/// messages.
async fn exchanged(gateway: &Gateway) {
    let count =
        || metric(gateway, "dunlin_gateway_shared_refreshes_total{what=\"clients\",outcome=\"succeeded\"}");
    // The first exchange may have begun earlier.
    let enough = count() + 2.0;
    while count() < enough {
        within(tokio::task::yield_now()).await;
    }
}

#[tokio::test]
async fn a_client_of_one_gateway_is_recognized_at_the_other() {
    let place = policy::place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    place
        .write("policy.toml", &text.replace("client = \"cert", "address_lifetime = \"1h\"\nclient = \"cert"));
    let redis = Redis::new(&place);
    let table = table(&place, redis.port);
    let text = table + policy::LISTENER + &route(backend("one").await, "");
    let [(one, first), (two, second)] = [place.start(&text).await, place.start(&text).await];
    let client = Client { sessions: None, ..policy::device(&place) };
    assert_eq!(policy::visit(&client, first).await, (policy::STRONG, false));
    exchanged(&one).await;
    exchanged(&two).await;
    assert_eq!(policy::visit(&client, second).await, (policy::LOW, false));
    // Another client behind the same address proves that the hint is wrong. The first gateway learns this,
    // too.
    let other = place.with_certificate(place.client("other-root.pem"), "other-");
    other.exchange(second, "localhost", "").await.unwrap_err();
    exchanged(&two).await;
    exchanged(&one).await;
    assert_eq!(policy::visit(&client, first).await, (policy::STRONG, false));
}

#[test]
fn names_the_faults_of_the_table() {
    let place = Place::new();
    let text = shared(&place, 1, 1);
    for (from, to, says) in [
        ("redis://127.0.0.1:1/", "http://secret@host", "shared.store: unknown kind of store"),
        ("key = \"shared.key\"", "", "shared: key is missing"),
    ] {
        let faults = Config::parse(&place.path("a.toml"), &text.replace(from, to)).unwrap_err().to_string();
        assert!(faults.contains(says) && !faults.contains("secret"), "{faults}");
    }
    let absent = Gateway::check(place.config(&text.replace("shared.key", "absent.key"))).unwrap_err();
    assert!(
        absent.to_string().contains("shared.key: ") && absent.to_string().contains("absent.key"),
        "{absent}"
    );
}
