//! Reloads and the end of a gateway.

use std::sync::Arc;

use dunlin_store::MemoryClientSessions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::place::{Place, backend, listener, metric, metric_becomes, route, within};

/// In TLS 1.3, a client completes its handshake before the gateway does.
const COMPLETED: &str =
    "dunlin_gateway_handshakes_total{listener=\"test\",outcome=\"completed\",reason=\"\"}";

#[tokio::test]
async fn a_reload_changes_new_connections_and_leaves_the_others() {
    let place = Place::new();
    let text = listener("") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let client = place.client("root.pem");
    let mut first = client.connect(port, "localhost").await;
    place.make_pki("other-");
    let next = text.replace("server.", "other-server.").replace("to = ", "name = \"two\"\nto = ");
    gateway.reload(place.config(&next)).await.unwrap();
    client.exchange(port, "localhost", "").await.unwrap_err();
    let other = place.client("other-root.pem");
    assert_eq!(other.exchange(port, "localhost", "").await.unwrap(), "one got ");
    first.write_all(b"still here").await.unwrap();
    first.shutdown().await.unwrap();
    let mut answer = String::new();
    within(first.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "one got still here");
    assert_eq!(metric(&gateway, "dunlin_gateway_reloads_total{outcome=\"succeeded\"}"), 1.0);
}

#[tokio::test]
async fn an_invalid_reload_changes_nothing() {
    let place = Place::new();
    let text = listener("") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let second = listener("").replace("test", "second");
    for (faulty, says) in [
        (text.replace("server.pem", "absent.pem"), "absent.pem"),
        (
            text.clone()
                + &second.replace("127.0.0.1:0", &taken.local_addr().unwrap().to_string())
                + &route(1, ""),
            "listener[1].listen",
        ),
    ] {
        let faults = gateway.reload(place.config(&faulty)).await.unwrap_err().to_string();
        assert!(faults.contains(says) && faults.lines().count() == 1, "{faults}");
        assert_eq!(metric(&gateway, "dunlin_gateway_reload_succeeded"), 0.0);
        let answer = place.client("root.pem").exchange(port, "localhost", "").await.unwrap();
        assert_eq!(answer, "one got ");
    }
    assert_eq!(metric(&gateway, "dunlin_gateway_reloads_total{outcome=\"refused\"}"), 2.0);
}

#[tokio::test]
async fn a_reload_adds_and_removes_listeners() {
    let place = Place::new();
    let to = route(backend("one").await, "");
    let first = listener("") + &to;
    let second = listener("").replace("test", "second") + &to;
    let (gateway, port) = place.start(&first).await;
    gateway.reload(place.config(&(first + &second))).await.unwrap();
    let addresses = gateway.addresses();
    assert_eq!(addresses.len(), 2);
    assert_eq!(addresses[0].1.port(), port);
    gateway.reload(place.config(&second)).await.unwrap();
    let client = place.client("root.pem");
    assert_eq!(client.exchange(addresses[1].1.port(), "localhost", "").await.unwrap(), "one got ");
    // The task of the removed listener closes its socket.
    let begin = std::time::Instant::now();
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
        assert!(begin.elapsed() < crate::place::PATIENCE, "the removed listener still accepts");
    }
}

#[tokio::test]
async fn sessions_outlive_a_reload() {
    let place = Place::new();
    let text = listener("") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let mut client = place.client("root.pem");
    client.sessions = Some(Arc::new(MemoryClientSessions::default()));
    client.exchange(port, "localhost", "").await.unwrap();
    gateway.reload(place.config(&text)).await.unwrap();
    assert!(client.connect(port, "localhost").await.negotiated().is_resumed());
}

#[tokio::test]
async fn a_stopping_gateway_lets_connections_end() {
    let place = Place::new();
    let (gateway, port) = place.start(&(listener("") + &route(backend("one").await, ""))).await;
    let mut first = place.client("root.pem").connect(port, "localhost").await;
    metric_becomes(&gateway, COMPLETED, 1.0).await;
    let stop = gateway.stop();
    let go_on = async {
        // Nothing accepts a new client.
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {}
        first.write_all(b"last words").await.unwrap();
        first.shutdown().await.unwrap();
        let mut answer = String::new();
        first.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let ((), answer) = within(async { tokio::join!(stop, go_on) }).await;
    assert_eq!(answer, "one got last words");
}

#[tokio::test]
async fn connections_end_with_a_close_notify_after_the_shutdown_time() {
    let place = Place::new();
    let text =
        "[gateway]\nshutdown_time = \"1ms\"\n".to_owned() + &listener("") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let mut first = place.client("root.pem").connect(port, "localhost").await;
    metric_becomes(&gateway, COMPLETED, 1.0).await;
    let mut rest = vec![];
    let (ended, ()) = within(async { tokio::join!(first.read_to_end(&mut rest), gateway.stop()) }).await;
    // Without a close_notify it would be an error.
    assert_eq!(ended.unwrap(), 0);
}
