//! TLS to TCP.

use std::sync::Arc;
use std::time::Duration;

use dunlin::{HandshakeKind, ServerAddress, TlsConnection};
use dunlin_store::MemoryClientCache;
use dunlin_tokio::now;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::place::{Client, Place, backend, listener, metric, metric_becomes, recorder, route, within};

const CLIENTS: &str = "[listener.clients]\nca = \"root.pem\"\n";

#[tokio::test]
async fn a_direction_that_has_closed_leaves_the_other_open() {
    let place = Place::new();
    let (gateway, port) = place.start(&(listener("") + &route(backend("one").await, ""))).await;
    // The backend answers only after the end of the client's direction.
    let answer = place.client("root.pem").exchange(port, "localhost", "hello").await.unwrap();
    assert_eq!(answer, "one got hello");
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 0.0).await;
    let count = |direction| {
        let labels = format!("{{listener=\"test\",direction=\"{direction}\"}}");
        metric(&gateway, &format!("dunlin_gateway_transferred_bytes_total{labels}"))
    };
    assert_eq!((count("from_client"), count("to_client")), (5.0, 13.0));
}

/// The backend stops reading until the client cannot send any more; then everything arrives.
#[tokio::test]
async fn a_slow_backend_slows_the_client() {
    let place = Place::new();
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = slow.local_addr().unwrap().port();
    let (_gateway, port) = place.start(&(listener("") + &route(to, ""))).await;
    let mut tls = place.client("root.pem").connect(port, "localhost").await;
    let (mut stream, _) = slow.accept().await.unwrap();
    let chunk = vec![7; 64 << 10];
    let mut sent = 0;
    // Buffers of the kernel end at some megabytes; a gateway without bounds would take gigabytes.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), tls.write(&chunk)).await {
        sent += written.unwrap();
        assert!(sent < 256 << 20, "nothing holds the client back");
    }
    let reader = tokio::spawn(async move {
        let mut received = vec![];
        stream.read_to_end(&mut received).await.map(|_| received.len())
    });
    within(tls.shutdown()).await.unwrap();
    assert_eq!(within(reader).await.unwrap().unwrap(), sent);
}

/// The client stops reading until the backend cannot send any more; then everything arrives.
#[tokio::test]
async fn a_slow_client_slows_the_backend() {
    let place = Place::new();
    let fast = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = fast.local_addr().unwrap().port();
    let (_gateway, port) = place.start(&(listener("") + &route(to, ""))).await;
    let mut tls = place.client("root.pem").connect(port, "localhost").await;
    let (mut stream, _) = fast.accept().await.unwrap();
    let chunk = vec![7; 64 << 10];
    let mut sent = 0;
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), stream.write(&chunk)).await {
        sent += written.unwrap();
        assert!(sent < 256 << 20, "nothing holds the backend back");
    }
    let reader = tokio::spawn(async move {
        let mut received = vec![];
        tls.read_to_end(&mut received).await.map(|_| received.len())
    });
    within(stream.shutdown()).await.unwrap();
    assert_eq!(within(reader).await.unwrap().unwrap(), sent);
}

#[tokio::test]
async fn the_oldest_handshake_gives_way_to_another_one() {
    let place = Place::new();
    let limits = "[listener.limits]\nhandshakes = 1\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend("one").await, ""))).await;
    let mut silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // A record that is not complete.
    silent.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    metric_becomes(&gateway, "dunlin_gateway_connections_accepted_total", 1.0).await;
    let client = place.client("root.pem");
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
    let _ = within(silent.read_to_end(&mut vec![])).await;
    let reached = "dunlin_gateway_limits_reached_total{listener=\"test\",limit=\"handshakes\"}";
    metric_becomes(&gateway, reached, 1.0).await;
    // A client that sends its ClientHello and leaves the server's flight without an answer.
    let name = ServerAddress::parse("localhost", port).unwrap();
    let half = TlsConnection::client(&Arc::new(client.config()), name, now()).unwrap();
    let mut half_open = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    half_open.write_all(half.transmit()).await.unwrap();
    within(half_open.read_exact(&mut [0; 5])).await.unwrap();
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
    metric_becomes(&gateway, reached, 2.0).await;
    assert_eq!(metric(&gateway, "dunlin_gateway_handshakes_total{outcome=\"failed\"}"), 0.0);
}

/// Half-open handshakes then cost a HelloRetryRequest each, instead of a signature and a key exchange.
#[tokio::test]
async fn clients_return_a_cookie_while_handshakes_crowd() {
    let place = Place::new();
    let limits = "[listener.limits]\nhandshakes = 1\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend("one").await, ""))).await;
    let client = place.client("root.pem");
    assert!(!client.connect(port, "localhost").await.negotiated().retried);
    let mut silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    silent.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    metric_becomes(&gateway, "dunlin_gateway_connections_accepted_total", 2.0).await;
    let crowding = client.connect(port, "localhost").await;
    let reached = "dunlin_gateway_limits_reached_total{listener=\"test\",limit=\"handshakes\"}";
    metric_becomes(&gateway, reached, 1.0).await;
    let next = client.connect(port, "localhost").await;
    assert!(crowding.negotiated().retried && next.negotiated().retried);
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
    // TLS 1.2 has no cookies over TCP.
    let older = Client { tls12: true, ..place.client("root.pem") };
    assert_eq!(older.exchange(port, "localhost", "").await.unwrap(), "one got ");
    assert_eq!(metric(&gateway, "dunlin_gateway_handshakes_total{outcome=\"failed\"}"), 0.0);
}

#[tokio::test]
async fn server_name_and_protocol_choose_the_backend() {
    let place = Place::new();
    let any = backend("any").await;
    let mqtt = backend("mqtt").await;
    let named = backend("named").await;
    let text = listener("")
        + &route(mqtt, "alpn = \"mqtt\"")
        + &route(named, "sni = \"localhost\"")
        + &route(any, "alpn = [\"http/1.1\", \"other\"]");
    let (gateway, port) = place.start(&text).await;
    let with = |alpn: &[&str]| {
        let mut client = place.client("root.pem");
        client.alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        client
    };
    let mut tls = with(&["other", "mqtt"]).connect(port, "localhost").await;
    assert_eq!(tls.negotiated().alpn.as_deref(), Some(&b"mqtt"[..]));
    tls.shutdown().await.unwrap();
    let mut answer = String::new();
    within(tls.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "mqtt got ");
    assert_eq!(with(&["other"]).exchange(port, "localhost", "").await.unwrap(), "named got ");
    assert_eq!(with(&["other"]).exchange(port, "127.0.0.1", "").await.unwrap(), "any got ");
    // No route takes a client without a name and without a protocol.
    with(&[]).exchange(port, "127.0.0.1", "").await.unwrap_err();
    let failed =
        "dunlin_gateway_handshakes_total{listener=\"test\",outcome=\"failed\",reason=\"incompatible\"}";
    metric_becomes(&gateway, failed, 1.0).await;
}

/// A type and its value.
type Tlv = (u8, Vec<u8>);

/// The addresses and TLVs of a PROXY header, and the data after it.
fn proxy_header(bytes: &[u8]) -> (Vec<u8>, Vec<Tlv>, Vec<u8>) {
    assert_eq!(bytes[..14], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11");
    let len = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let (body, rest) = bytes[16..].split_at(len);
    (body[..12].to_vec(), tlvs(&body[12..]), rest.to_vec())
}

fn tlvs(mut bytes: &[u8]) -> Vec<Tlv> {
    let mut tlvs = vec![];
    while let [typ, high, low, rest @ ..] = bytes {
        let (value, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        tlvs.push((*typ, value.to_vec()));
        bytes = rest;
    }
    tlvs
}

#[tokio::test]
async fn the_proxy_header_carries_the_certified_name() {
    let place = Place::new();
    let (to, recorded) = recorder().await;
    let text = listener("") + CLIENTS + &route(to, "alpn = \"mqtt\"\nproxy_protocol = true");
    let (_gateway, port) = place.start(&text).await;
    let mut client = place.with_certificate(place.client("root.pem"), "");
    client.alpn = vec![b"mqtt".to_vec()];
    let mut tls = client.connect(port, "localhost").await;
    let own = tls.get_ref().local_addr().unwrap().port();
    tls.write_all(b"data").await.unwrap();
    tls.shutdown().await.unwrap();
    within(tls.read_to_end(&mut vec![])).await.unwrap();
    let (addresses, fields, rest) = proxy_header(&within(recorded).await.unwrap());
    let ports = [own.to_be_bytes(), port.to_be_bytes()].concat();
    assert_eq!(addresses, [&[127, 0, 0, 1, 127, 0, 0, 1], &ports[..]].concat());
    assert_eq!(rest, b"data");
    let [(1, alpn), (2, authority), (0x20, ssl), (0xe0, identity)] = &fields[..] else {
        panic!("{fields:?}")
    };
    assert_eq!((&alpn[..], &authority[..]), (&b"mqtt"[..], &b"localhost"[..]));
    // TLS, a certificate on this connection and in this session, verified.
    assert_eq!(ssl[..5], [7, 0, 0, 0, 0]);
    let [(0x21, version), (0x23, _), (0x22, name)] = &tlvs(&ssl[5..])[..] else { panic!("{ssl:?}") };
    assert_eq!((&version[..], &name[..]), (&b"TLSv1.3"[..], &b"device-1"[..]));
    assert_eq!(identity, b"x509:cn:device-1");
}

#[tokio::test]
async fn the_proxy_header_carries_the_identity_of_a_pre_shared_key() {
    let place = Place::new();
    let (to, recorded) = recorder().await;
    let text =
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\n[listener.clients]\npsk = \"keys.psk\"\n"
            .to_owned()
            + &route(to, "proxy_protocol = true");
    let (_gateway, port) = place.start(&text).await;
    let mut client = place.client("root.pem");
    client.psk = true;
    client.exchange(port, "localhost", "").await.unwrap();
    let (_, fields, _) = proxy_header(&within(recorded).await.unwrap());
    let [.., (0x20, ssl), (0xe0, identity)] = &fields[..] else { panic!("{fields:?}") };
    // No certificate was verified.
    assert_eq!(ssl[..5], [1, 0, 0, 0, 1]);
    assert_eq!(identity, b"psk:sensor-7");
}

#[tokio::test]
async fn a_backend_that_is_down_gives_a_clean_end_and_a_metric() {
    let place = Place::new();
    // A bound socket that does not listen refuses connections.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (gateway, port) =
        place.start(&(listener("") + &route(socket.local_addr().unwrap().port(), "name = \"down\""))).await;
    // With a close_notify, a read returns the end instead of an error.
    assert_eq!(place.client("root.pem").exchange(port, "localhost", "").await.unwrap(), "");
    let refused =
        "dunlin_gateway_backend_connects_total{listener=\"test\",route=\"down\",outcome=\"refused\"}";
    assert_eq!(metric(&gateway, refused), 1.0);
}

/// The backend must not take the data of a client that was cut off for all of it.
#[tokio::test]
async fn a_truncated_client_resets_the_backend() {
    let place = Place::new();
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_gateway, port) = place.start(&(listener("") + &route(slow.local_addr().unwrap().port(), ""))).await;
    let mut tls = place.client("root.pem").connect(port, "localhost").await;
    let (mut stream, _) = slow.accept().await.unwrap();
    tls.write_all(b"half").await.unwrap();
    let mut half = [0; 4];
    within(stream.read_exact(&mut half)).await.unwrap();
    // The end of TCP without a close_notify.
    tls.get_mut().shutdown().await.unwrap();
    let error = within(stream.read_to_end(&mut vec![])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn refuses_clients_without_a_trusted_certificate() {
    let place = Place::new();
    place.make_pki("other-");
    let (gateway, port) = place.start(&(listener("") + CLIENTS + &route(backend("one").await, ""))).await;
    place.client("root.pem").exchange(port, "localhost", "").await.unwrap_err();
    let stranger = place.with_certificate(place.client("root.pem"), "other-");
    stranger.exchange(port, "localhost", "").await.unwrap_err();
    for reason in ["no_certificate", "bad_chain_signature"] {
        let labels = format!("{{listener=\"test\",outcome=\"failed\",reason=\"{reason}\"}}");
        metric_becomes(&gateway, &format!("dunlin_gateway_handshakes_total{labels}"), 1.0).await;
    }
    let client = place.with_certificate(place.client("root.pem"), "");
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
}

/// The metric of failed handshakes with this reason.
pub(crate) fn failed(reason: &str) -> String {
    let labels = format!("{{listener=\"test\",outcome=\"failed\",reason=\"{reason}\"}}");
    format!("dunlin_gateway_handshakes_total{labels}")
}

/// The metric of clients that reached this limit.
pub(crate) fn reached(limit: &str) -> String {
    format!("dunlin_gateway_limits_reached_total{{listener=\"test\",limit=\"{limit}\"}}")
}

#[tokio::test]
async fn counts_garbage() {
    let place = Place::new();
    let (gateway, port) = place.start(&(listener("") + &route(1, ""))).await;
    let mut garbage = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    garbage.shutdown().await.unwrap();
    within(garbage.read_to_end(&mut vec![])).await.unwrap();
    metric_becomes(&gateway, &failed("protocol"), 1.0).await;
}

#[tokio::test]
async fn ends_slow_handshakes() {
    let place = Place::new();
    let text = listener("") + "[listener.limits]\nhandshake_time = \"20ms\"\n" + &route(1, "");
    let (gateway, port) = place.start(&text).await;
    let mut slow = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    within(slow.read_to_end(&mut vec![])).await.unwrap();
    metric_becomes(&gateway, &reached("handshake_time"), 1.0).await;
    assert_eq!(metric(&gateway, &failed("timeout")), 1.0);
}

#[tokio::test]
async fn limits_connections_of_a_host() {
    let place = Place::new();
    let limits = "[listener.limits]\nconnections_per_host = 1\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend("one").await, ""))).await;
    let client = place.client("root.pem");
    let first = client.connect(port, "localhost").await;
    client.exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(&gateway, &reached("connections_per_host"), 1.0).await;
    drop(first);
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 0.0).await;
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
}

#[tokio::test]
async fn limits_handshakes_of_a_host() {
    let place = Place::new();
    let limits = "[listener.limits]\nhandshakes_per_host = 1\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend("one").await, ""))).await;
    let client = place.client("root.pem");
    let silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 1.0).await;
    client.try_connect(port, "localhost").await.unwrap_err();
    metric_becomes(&gateway, &reached("handshakes_per_host"), 1.0).await;
    drop(silent);
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 0.0).await;
    // A connection after its handshake does not count.
    let _first = client.connect(port, "localhost").await;
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
}

/// Clients of one listener leave the places of another one to its own clients.
#[tokio::test]
async fn each_listener_has_connections_of_its_own() {
    let place = Place::new();
    let one = listener("") + &route(backend("one").await, "");
    let text = "[limits]\nconnections = 1\n".to_owned() + &one + &one.replace("\"test\"", "\"other\"");
    let (gateway, port) = place.start(&text).await;
    let other = gateway.addresses()[1].1.port();
    let client = place.client("root.pem");
    let _flood = client.connect(other, "localhost").await;
    client.exchange(other, "localhost", "").await.unwrap_err();
    let first = client.connect(port, "localhost").await;
    client.exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(&gateway, &reached("connections"), 1.0).await;
    drop(first);
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 0.0).await;
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
}

/// A device that has lost power has closed nothing. Another client without an identity finds no place.
#[tokio::test]
async fn a_device_that_comes_back_takes_the_place_of_its_own_connection() {
    let place = Place::new();
    place.make_pki("b-");
    let both =
        [place.path("root.pem"), place.path("b-root.pem")].map(|path| std::fs::read_to_string(path).unwrap());
    place.write("both.pem", &both.concat());
    let limits =
        "[listener.clients]\nca = \"both.pem\"\nverify = \"optional\"\n[listener.limits]\nconnections = 2\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend("one").await, ""))).await;
    let [one, two] = ["", "b-"].map(|prefix| place.with_certificate(place.client("root.pem"), prefix));
    let mut old = vec![one.connect(port, "localhost").await, two.connect(port, "localhost").await];
    metric_becomes(&gateway, "dunlin_gateway_established", 2.0).await;
    place.client("root.pem").exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(&gateway, &reached("connections"), 1.0).await;
    let _new = (two.connect(port, "localhost").await, one.connect(port, "localhost").await);
    for tls in &mut old {
        // A close_notify.
        assert_eq!(within(tls.read_to_end(&mut vec![])).await.unwrap(), 0);
    }
    let gave_way = "dunlin_gateway_gave_way_total{listener=\"test\",reason=\"double\"}";
    metric_becomes(&gateway, gave_way, 2.0).await;
    metric_becomes(&gateway, "dunlin_gateway_established", 2.0).await;
    assert_eq!(metric(&gateway, &reached("connections")), 1.0);
}

#[tokio::test]
async fn a_silent_client_gives_way_after_silent_time_and_one_that_sends_does_not() {
    let place = Place::new();
    let limits = "[listener.limits]\nconnections = 1\nsilent_time = \"1h\"\n";
    let text = listener("") + limits + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let client = place.client("root.pem");
    let mut first = client.connect(port, "localhost").await;
    client.exchange(port, "localhost", "").await.unwrap_err();
    gateway
        .reload(place.config(&text.replace("1h", "1ms")))
        .await
        .unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
    assert_eq!(within(first.read_to_end(&mut vec![])).await.unwrap(), 0);
    let gave_way = "dunlin_gateway_gave_way_total{listener=\"test\",reason=\"silent\"}";
    metric_becomes(&gateway, gave_way, 1.0).await;
}

#[tokio::test]
async fn ends_idle_connections_with_a_close_notify() {
    let place = Place::new();
    let limits = "[listener.limits]\nidle_time = \"20ms\"\n";
    let (gateway, port) = place.start(&(listener("") + limits + &route(backend("one").await, ""))).await;
    let mut tls = place.client("root.pem").connect(port, "localhost").await;
    // Without a close_notify it would be an error.
    assert_eq!(within(tls.read_to_end(&mut vec![])).await.unwrap(), 0);
    metric_becomes(&gateway, &reached("idle_time"), 1.0).await;
}

#[tokio::test]
async fn the_handshake_cache_omits_certificates() {
    let place = Place::new();
    let text =
        listener("") + CLIENTS + "[listener.cache]\nmode = \"compact\"\n" + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let mut client = place.with_certificate(place.client("root.pem"), "");
    client.cache = Some(Arc::new(MemoryClientCache::default()));
    assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
    let tls = client.connect(port, "localhost").await;
    assert_eq!(tls.negotiated().kind, HandshakeKind::Cached { own: true, peer: true });
    let completed = "dunlin_gateway_handshakes_completed_total{listener=\"test\",version=\"TLSv1.3\",client=\"x509\",kind=\"cached\"}";
    metric_becomes(&gateway, completed, 1.0).await;
    let saved = "dunlin_gateway_handshake_saved_bytes_total{certificates=\"gateway\",kind=\"cached\"}";
    assert!(metric(&gateway, saved) > 300.0);
}
