//! `/metrics` and `/status`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dunlin_gateway::Gateway;
use dunlin_store::{MemoryClientCache, MemoryClientSessions};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::Instant;

use crate::place::{Place, backend, listener, metric, metric_becomes, route, within};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// Sends a request with these lines, and returns the answer.
async fn ask(address: SocketAddr, lines: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{lines}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost")).await
}

/// The status as JSON.
pub(crate) async fn status(gateway: &Gateway) -> Value {
    let answer = get(gateway.admin_address().unwrap(), "/status").await;
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn metrics_and_status_are_on_a_listener_of_their_own() {
    let place = Place::new();
    let text = ADMIN.to_owned() + &listener("") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    place.client("root.pem").exchange(port, "localhost", "").await.unwrap();
    let address = gateway.admin_address().unwrap();
    let metrics = get(address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0"), "{metrics}");
    let line = "dunlin_gateway_handshakes_total{listener=\"test\",outcome=\"completed\",reason=\"\",result=\"SUCCESS\"} 1\n";
    assert!(metrics.contains(line) && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(get(address, "/absent").await.starts_with("HTTP/1.1 404 "));
    // The same address keeps its socket; without the table it ends.
    gateway.reload(place.config(&text)).await.unwrap();
    assert_eq!(gateway.admin_address(), Some(address));
    gateway.reload(place.config(&text.replace(ADMIN, ""))).await.unwrap();
    assert_eq!(gateway.admin_address(), None);
}

#[tokio::test]
async fn status_shows_listeners_and_the_latest_reload() {
    let place = Place::new();
    let dtls = listener("transport = \"dtls\"").replace("test", "coap");
    let text = ADMIN.to_owned() + &listener("") + &route(backend("one").await, "") + &dtls + &route(9, "");
    let (gateway, port) = place.start(&text).await;
    let tls = place.client("root.pem").connect(port, "localhost").await;
    metric_becomes(&gateway, "dunlin_gateway_established", 1.0).await;
    let told = status(&gateway).await;
    assert_eq!(told["phase"], "running");
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert!(told["started"].as_u64() > Some(1_700_000_000) && told["uptime_seconds"].is_u64(), "{told}");
    assert_eq!((&told["connections"], &told["max_connections"]), (&1.into(), &20_000.into()));
    assert_eq!((&told["dtls_associations"], &told["reload"]), (&0.into(), &Value::Null));
    let tls_address = format!("127.0.0.1:{port}");
    let coap_address = gateway.addresses()[1].1.to_string();
    assert_eq!(
        told["listeners"],
        serde_json::json!([
            {"name": "test", "transport": "tls", "address": tls_address, "connections": 1, "max_connections": 10_000, "accepted": 1, "policy": null},
            {"name": "coap", "transport": "dtls", "address": coap_address, "connections": 0, "max_connections": 10_000, "accepted": 0, "policy": null},
        ])
    );
    let faulty = text.replace("server.pem", "absent.pem");
    gateway.reload(place.config(&faulty)).await.unwrap_err();
    let told = status(&gateway).await;
    assert_eq!(told["reload"]["succeeded"], false);
    let faults = told["reload"]["faults"].as_array().unwrap();
    assert!(faults.len() == 2 && faults[0].as_str().unwrap().contains("absent.pem"), "{told}");
    gateway.reload(place.config(&text)).await.unwrap();
    let told = status(&gateway).await;
    assert_eq!(
        (&told["reload"]["succeeded"], &told["reload"]["faults"]),
        (&true.into(), &Value::Array(vec![]))
    );
    drop(tls);
    metric_becomes(&gateway, "dunlin_gateway_established", 0.0).await;
}

/// A page of another site can point a name of its own at this address, and a browser then asks under that
/// name.
#[tokio::test]
async fn refuses_requests_for_other_hosts() {
    let place = Place::new();
    let hosts = format!("{ADMIN}hosts = [\"Gateway.example.org\"]\n");
    let text = hosts.clone() + &listener("") + &route(1, "");
    let (gateway, _) = place.start(&text).await;
    let address = gateway.admin_address().unwrap();
    let with_host = |host: &str| format!("GET /metrics HTTP/1.1\r\nHost: {host}");
    for host in
        ["localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:9464", "192.0.2.7", "gateway.example.ORG:1"]
    {
        let answer = ask(address, &with_host(host)).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    for host in [
        "attacker.example",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example:9464",
        "",
        "a b",
        "[::1",
    ] {
        let answer = ask(address, &with_host(host)).await;
        assert!(
            answer.starts_with("HTTP/1.1 421 ") && !answer.contains("dunlin_gateway_"),
            "{host}: {answer}"
        );
    }
    // The authority of the target counts before Host; HTTP/1.1 demands one of them.
    for (lines, code) in [
        ("GET http://attacker.example/metrics HTTP/1.1\r\nHost: localhost", 421),
        ("GET http://localhost/metrics HTTP/1.1\r\nHost: attacker.example", 200),
        ("GET /metrics HTTP/1.1", 421),
        ("GET /metrics HTTP/1.0", 200),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0", 405),
    ] {
        let answer = ask(address, lines).await;
        assert!(answer.split(' ').nth(1) == Some(&code.to_string()), "{lines}: {answer}");
    }
    gateway.reload(place.config(&text.replace(&hosts, ADMIN))).await.unwrap();
    let answer = ask(address, &with_host("gateway.example.org")).await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

/// The clock of this test stands still while something happens, and jumps to the next timer otherwise.
#[tokio::test(start_paused = true)]
async fn silent_clients_leave_their_places_within_seconds() {
    let place = Place::new();
    let (gateway, _) = place.start(&(ADMIN.to_owned() + &listener("") + &route(1, ""))).await;
    let address = gateway.admin_address().unwrap();
    let begin = Instant::now();
    let mut silent = vec![];
    for sent in
        ["", "GET /metrics HT", "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"].iter().cycle().take(64)
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(begin.elapsed() <= Duration::from_secs(6), "after {:?}", begin.elapsed());
}

/// A connection, one more from the cache, one that resumes, one that fails, and one in DTLS; then the
/// reference parser of Prometheus for Python reads the metrics. It refuses whatever the specification of
/// OpenMetrics forbids.
#[tokio::test]
async fn prometheus_parser_accepts_the_metrics() {
    let place = Place::new();
    let clients = "[listener.clients]\nca = \"root.pem\"\n";
    let cache = "[listener.cache]\nmode = \"compact\"\n";
    let dtls = listener("transport = \"dtls\"").replace("test", "coap \\\"1\\\"");
    let text = listener("") + clients + cache + &route(backend("one").await, "") + &dtls + &route(9, "");
    let (gateway, port) = place.start(&text).await;
    let mut client = place.with_certificate(place.client("root.pem"), "");
    client.cache = Some(Arc::new(MemoryClientCache::default()));
    for _ in 0..2 {
        client.exchange(port, "localhost", "").await.unwrap();
    }
    client.sessions = Some(Arc::new(MemoryClientSessions::default()));
    for _ in 0..2 {
        client.exchange(port, "localhost", "").await.unwrap();
    }
    place.client("root.pem").exchange(port, "localhost", "").await.unwrap_err();
    let failed = "dunlin_gateway_handshakes_total{result=\"CERTIFICATE_VERIFICATION_FAILED\",reason=\"no_certificate\"}";
    metric_becomes(&gateway, failed, 1.0).await;
    for (kind, count) in [("full", 1.0), ("cached", 2.0), ("resumed", 1.0)] {
        let completed =
            format!("dunlin_gateway_handshakes_completed_total{{kind=\"{kind}\",client=\"x509\"}}");
        assert_eq!(metric(&gateway, &completed), count, "{}", gateway.metrics());
        let timed = format!("dunlin_gateway_handshake_seconds_count{{kind=\"{kind}\"}}");
        assert_eq!(metric(&gateway, &timed), count);
    }
    place.write("metrics", &gateway.metrics());
    // Debian's package is for Debian's interpreter.
    let mut python = Command::new("/usr/bin/python3");
    python.current_dir(place.path("")).args(["-c", PARSE]).kill_on_drop(true);
    let output = within(python.output()).await.expect("python3: `tools/setup test` installs it");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "python3-prometheus-client, which `tools/setup test` installs: {stderr}"
    );
    for family in [
        "dunlin_gateway_build info 1",
        "dunlin_gateway_handshakes counter 2",
        "dunlin_gateway_dtls_associations gauge 1",
        "dunlin_gateway_dtls_discarded counter 7",
        "dunlin_gateway_start_time_seconds gauge 1",
    ] {
        assert!(stdout.lines().any(|line| line == family), "{family}: {stdout}");
    }
}

/// Prints name, type and number of samples of each metric.
const PARSE: &str = "
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(open('metrics', encoding='utf-8').read()):
    assert family.documentation, family.name
    print(family.name, family.type, len(family.samples))
";

#[test]
fn metrics_stay_on_the_machine() {
    let text = "[admin]\nlisten = \"0.0.0.0:9464\"\n".to_owned() + &listener("") + &route(1, "");
    let faults = dunlin_gateway::Config::parse("gateway.toml".as_ref(), &text).unwrap_err().to_string();
    assert!(
        faults.starts_with("gateway.toml:2: admin.listen: everyone who reaches 0.0.0.0:9464"),
        "{faults}"
    );
}
