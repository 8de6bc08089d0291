//! MQTT: the broker sees the proven identity as user name. dunlin-cli's tests do the same with Mosquitto.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::place::{Place, listener, metric, metric_becomes, recorder, route, within};

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
