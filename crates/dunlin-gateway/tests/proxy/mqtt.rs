//! MQTT: the broker sees the proven identity as user name. dunlin-cli's tests do the same with Mosquitto.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::place::{PATIENCE, Place, listener, metric, metric_becomes, recorder, route, within};

const CLIENTS: &str = "[listener.clients]\nca = \"root.pem\"\n";
/// MQTT 3.1.1 with the user name "admin" and the password "p", and the packet after it.
const CONNECT: &[u8] = b"\x10\x18\0\x04MQTT\x04\xc2\0\x3c\0\x02id\0\x05admin\0\x01p\xc0\0";

#[tokio::test]
async fn the_user_name_is_the_certified_name() {
    let place = Place::new();
    place.write("password", "secret\n");
    for (more, name, password) in [
        ("", "device-1", ""),
        ("user_name = \"typed\"", "x509:cn:device-1", ""),
        ("password_file = \"password\"", "device-1", "secret"),
    ] {
        let (to, recorded) = recorder().await;
        let text = listener("") + CLIENTS + &route(to, &format!("protocol = \"mqtt\"\n{more}"));
        let (_gateway, port) = place.start(&text).await;
        let client = place.with_certificate(place.client("root.pem"), "");
        let mut tls = client.connect(port, "localhost").await;
        tls.write_all(CONNECT).await.unwrap();
        tls.shutdown().await.unwrap();
        within(tls.read_to_end(&mut vec![])).await.unwrap();
        let text = |text: &str| [&[0, text.len() as u8], text.as_bytes()].concat();
        let (flags, end) = match password {
            "" => (0x82, text(name)),
            password => (0xc2, [text(name), text(password)].concat()),
        };
        let head =
            [b"\x10", &[14 + end.len() as u8][..], b"\0\x04MQTT\x04", &[flags], b"\0\x3c\0\x02id"].concat();
        assert_eq!(within(recorded).await.unwrap(), [&head, &end, &b"\xc0\0"[..]].concat(), "{more}");
    }
}

#[tokio::test]
async fn refuses_other_protocols_and_long_packets() {
    let place = Place::new();
    let limits = "[listener.limits]\nheader_bytes = 1024\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(1, "protocol = \"mqtt\""))).await;
    for first in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x10\x81\x08"] {
        let mut tls = place.client("root.pem").connect(port, "localhost").await;
        tls.write_all(first).await.unwrap();
        let mut answer = vec![];
        within(tls.read_to_end(&mut answer)).await.unwrap();
        assert_eq!(answer, b"");
    }
    let reached = "dunlin_gateway_limits_reached_total{listener=\"test\",limit=\"header_bytes\"}";
    metric_becomes(&gateway, reached, 1.0).await;
}

#[tokio::test]
async fn a_broker_that_is_down_refuses_the_client_in_words_of_mqtt() {
    let place = Place::new();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = socket.local_addr().unwrap().port();
    let (gateway, port) = place.start(&(listener("") + &route(to, "protocol = \"mqtt\""))).await;
    let mut tls = place.client("root.pem").connect(port, "localhost").await;
    tls.write_all(CONNECT).await.unwrap();
    let mut answer = vec![];
    within(tls.read_to_end(&mut answer)).await.unwrap();
    // CONNACK, server unavailable.
    assert_eq!(answer, b"\x20\x02\0\x03");
    let refused = "dunlin_gateway_backend_connects_total{listener=\"test\",route=\"0\",outcome=\"refused\"}";
    assert_eq!(metric(&gateway, refused), 1.0);
}

/// A client of another version learns it, as a program that tries the versions one after the other needs.
#[tokio::test]
async fn refuses_other_versions_in_words_of_mqtt() {
    let place = Place::new();
    let (_gateway, port) = place.start(&(listener("") + &route(1, "protocol = \"mqtt\""))).await;
    for (first, says) in [
        (&b"\x10\x0e\0\x04MQTT\x06\x02\0\x3c\0\x02id"[..], b"\x20\x02\0\x01"),
        (b"\x10\x0c\0\x04MQTT\x03\x02\0\x3c\0\0", b"\x20\x02\0\x01"),
    ] {
        let mut tls = place.client("root.pem").connect(port, "localhost").await;
        tls.write_all(first).await.unwrap();
        let mut answer = vec![];
        within(tls.read_to_end(&mut answer)).await.unwrap();
        assert_eq!(answer, says);
    }
}

/// A broker that answers each client with this CONNACK packet and then says nothing.
async fn silent_broker(connack: &'static [u8]) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                assert!(tcp.read(&mut [0; 100]).await.unwrap() > 0);
                tcp.write_all(connack).await.unwrap();
                // Until the gateway ends the connection.
                let _ = tcp.read_to_end(&mut vec![]).await;
            });
        }
    });
    port
}

/// The client's keep alive or the broker's, and not `idle_time`, decides how long a client may be silent.
#[tokio::test]
async fn silent_clients_stay_for_one_and_a_half_times_the_keep_alive() {
    let place = Place::new();
    let limits = |idle: &str| format!("[listener.limits]\nidle_time = \"{idle}\"\n");
    let connect = |level: u8, keep_alive: u8| {
        let properties = if level == 5 { &[0][..] } else { &[] };
        let body = [b"\0\x04MQTT", &[level, 2, 0, keep_alive][..], properties, b"\0\x02id"].concat();
        [&[0x10, body.len() as u8][..], &body].concat()
    };
    let v3 = &b"\x20\x02\0\0"[..];
    for (idle, level, keep_alive, connack, ends) in [
        ("100ms", 4, 60, v3, false),
        ("10m", 4, 1, v3, true),
        ("100ms", 5, 60, b"\x20\x03\0\0\0", false),
        ("10m", 5, 60, b"\x20\x06\0\0\x03\x13\0\x01", true),
        ("100ms", 4, 0, v3, true),
    ] {
        let broker = silent_broker(connack).await;
        let text = listener("") + &limits(idle) + &route(broker, "protocol = \"mqtt\"");
        let (gateway, port) = place.start(&text).await;
        let mut tls = place.client("root.pem").connect(port, "localhost").await;
        tls.write_all(&connect(level, keep_alive)).await.unwrap();
        let mut answer = vec![0; connack.len()];
        within(tls.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer, connack);
        // Ten times the idle time, for those that stay.
        let patience = if ends { PATIENCE } else { Duration::from_secs(1) };
        let ended = timeout(patience, tls.read_u8()).await;
        assert_eq!(ended.is_ok(), ends, "{idle} {level} {keep_alive}: {ended:?}");
        let reached = "dunlin_gateway_limits_reached_total{listener=\"test\",limit=\"idle_time\"}";
        metric_becomes(&gateway, reached, if ends { 1.0 } else { 0.0 }).await;
    }
}
