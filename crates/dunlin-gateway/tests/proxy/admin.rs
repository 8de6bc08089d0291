//! `/metrics` and `/status`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::place::{Place, backend, listener, route, within};

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn metrics_and_status_are_on_a_listener_of_their_own() {
    let place = Place::new();
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let text = admin.to_owned() + &listener("") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    place.client("root.pem").exchange(port, "localhost", "").await.unwrap();
    let address = gateway.admin_address().unwrap();
    let metrics = get(address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0"), "{metrics}");
    let line = "dunlin_gateway_handshakes_total{listener=\"test\",outcome=\"completed\",reason=\"\"} 1\n";
    assert!(metrics.contains(line) && metrics.ends_with("# EOF\n"), "{metrics}");
    let status = get(address, "/status").await;
    assert!(status.contains("\"phase\": \"running\""), "{status}");
    assert!(status.contains(&format!("\"address\": \"127.0.0.1:{port}\"")), "{status}");
    assert!(get(address, "/").await.starts_with("HTTP/1.1 404 "));
    // The same address keeps its socket; without the table it ends.
    gateway.reload(place.config(&text)).await.unwrap();
    assert_eq!(gateway.admin_address(), Some(address));
    gateway.reload(place.config(&text.replace(admin, ""))).await.unwrap();
    assert_eq!(gateway.admin_address(), None);
}

#[test]
fn metrics_stay_on_the_machine() {
    let text = "[admin]\nlisten = \"0.0.0.0:9464\"\n".to_owned() + &listener("") + &route(1, "");
    let faults = dunlin_gateway::Config::parse("gateway.toml".as_ref(), &text).unwrap_err().to_string();
    assert!(
        faults.starts_with("gateway.toml:2: admin.listen: everyone who reaches 0.0.0.0:9464"),
        "{faults}"
    );
}
