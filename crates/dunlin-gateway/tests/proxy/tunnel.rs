//! TCP to TLS in a tunnel, and on through a gateway.

use std::io;

use dunlin_gateway::{Gateway, Tunnel, TunnelConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::place::{Place, backend, listener, metric, metric_becomes, route, within};

/// A gateway's keys for clients with certificates, and a cache that outlives it.
const CLIENTS: &str =
    "[listener.clients]\nca = \"root.pem\"\n[listener.cache]\nmode = \"compact\"\nstore = \"clients\"\n";

/// A tunnel's cache, which outlives it.
const CACHE: &str = "[listener.cache]\nmode = \"compact\"\nstore = \"servers\"\n";

/// A listener of a tunnel to this port, with the client's certificate; `more` follows its keys.
pub(crate) fn local(port: u16, more: &str) -> String {
    format!(
        "[[listener]]\nname = \"local\"\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:{port}\"\n{more}\n\
         [[listener.certificate]]\nchain = \"client.pem\"\nkey = \"client.key\"\n\
         [listener.server]\nca = \"root.pem\"\n"
    )
}

/// The completed handshakes of this kind.
pub(crate) fn handshakes(kind: &str) -> String {
    format!("dunlin_tunnel_handshake_seconds_count{{listener=\"local\",kind=\"{kind}\"}}")
}

/// Starts a gateway again on the port that it had.
async fn again(place: &Place, gateway: Gateway, text: &str, port: u16) -> Gateway {
    within(gateway.stop()).await;
    drop(gateway);
    let text = text.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1);
    loop {
        // The system may take a moment to free the port.
        match Gateway::start(place.config(&text)).await {
            Ok(gateway) => return gateway,
            Err(faults) => assert!(faults.to_string().contains("in use"), "{faults}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Sends `text` without TLS, closes its direction, and returns the answer.
async fn exchange(port: u16, text: &str) -> io::Result<String> {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    tcp.write_all(text.as_bytes()).await?;
    tcp.shutdown().await?;
    let mut answer = String::new();
    within(tcp.read_to_string(&mut answer)).await?;
    Ok(answer)
}

/// The gateway authenticates the device, whose software knows no TLS. Only the first handshake is full.
#[tokio::test]
async fn restarts_of_gateway_and_tunnel_cost_a_cached_handshake() {
    let place = Place::new();
    let text = listener("") + CLIENTS + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let config = local(port, "") + CACHE;
    let (tunnel, first) = place.tunnel(&config).await;
    for kind in ["full", "resumed"] {
        assert_eq!(exchange(first, "hello").await.unwrap(), "one got hello");
        assert_eq!(metric(&tunnel, &handshakes(kind)), 1.0, "{kind}:\n{}", tunnel.metrics());
    }
    // The new gateway knows no tickets.
    let gateway = again(&place, gateway, &text, port).await;
    assert_eq!(exchange(first, "hello").await.unwrap(), "one got hello");
    assert_eq!(metric(&tunnel, &handshakes("cached")), 1.0, "{}", tunnel.metrics());
    within(tunnel.stop()).await;
    let (tunnel, second) = place.tunnel(&config).await;
    assert_eq!(exchange(second, "hello").await.unwrap(), "one got hello");
    assert_eq!(metric(&tunnel, &handshakes("cached")), 1.0, "{}", tunnel.metrics());
    let cached = "dunlin_gateway_handshakes_completed_total{listener=\"test\",version=\"TLSv1.3\",client=\"x509\",kind=\"cached\"}";
    metric_becomes(&gateway, cached, 2.0).await;
    let count = |direction| {
        let labels = format!("{{listener=\"local\",direction=\"{direction}\"}}");
        format!("dunlin_tunnel_transferred_bytes_total{labels}")
    };
    metric_becomes(&tunnel, &count("from_client"), 5.0).await;
    metric_becomes(&tunnel, &count("to_client"), 13.0).await;
}

/// Both sides know the other's key from a file, and need no certificate.
#[tokio::test]
async fn raw_public_keys_authenticate_both_sides() {
    let place = Place::new();
    place.make_pki("other-");
    let text = listener("raw_public_key = true")
        + "[listener.clients]\nraw_keys = \"client.key\"\n"
        + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    for version in ["1.3", "1.2"] {
        let config = local(port, &format!("raw_public_key = true\nversions = \"{version}\""))
            .replace("ca = \"root.pem\"", "raw_keys = \"server.key\"");
        let (tunnel, to) = place.tunnel(&config).await;
        assert_eq!(exchange(to, "hello").await.unwrap(), "one got hello");
        let labels = format!("listener=\"local\",version=\"TLSv{version}\",server=\"raw_key\",kind=\"full\"");
        assert_eq!(metric(&tunnel, &format!("dunlin_tunnel_handshakes_completed_total{{{labels}}}")), 1.0);
        let labels = format!("version=\"TLSv{version}\",client=\"raw_key\",kind=\"full\"");
        let completed = format!("dunlin_gateway_handshakes_completed_total{{{labels}}}");
        metric_becomes(&gateway, &completed, 1.0).await;
        let (_tunnel, to) = place.tunnel(&config.replace("server.key", "other-server.key")).await;
        exchange(to, "hello").await.unwrap_err();
    }
    metric_becomes(&gateway, "dunlin_gateway_handshakes_completed_total", 2.0).await;
}

/// A host that has all connections of a tunnel leaves some to another one.
#[tokio::test]
async fn a_local_host_beyond_its_share_gives_way() {
    let place = Place::new();
    let text = listener("") + "[listener.clients]\nca = \"root.pem\"\n" + &route(backend("one").await, "");
    let (_gateway, port) = place.start(&text).await;
    let config = local(port, "") + "[listener.limits]\nconnections = 2\n";
    let (tunnel, port) = place.tunnel(&config).await;
    let mut programs = vec![];
    for host in [2, 2, 3] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        programs.push(within(socket.connect(([127, 0, 0, 1], port).into())).await.unwrap());
        // It has its place before the next one comes.
        metric_becomes(&tunnel, "dunlin_tunnel_established", programs.len().min(2) as f64).await;
    }
    let read = within(programs[0].read(&mut [0; 1])).await.map_err(|error| error.kind());
    assert_eq!(read, Err(io::ErrorKind::ConnectionReset));
    metric_becomes(&tunnel, "dunlin_tunnel_gave_way_total{listener=\"local\",reason=\"share\"}", 1.0).await;
    // No host has more than one any more.
    assert_eq!(metric(&tunnel, "dunlin_tunnel_limits_reached_total"), 0.0);
    exchange(port, "").await.unwrap_err();
    metric_becomes(&tunnel, "dunlin_tunnel_limits_reached_total{limit=\"connections\"}", 1.0).await;
    for program in &mut programs[1..3] {
        program.shutdown().await.unwrap();
        let mut answer = String::new();
        within(program.read_to_string(&mut answer)).await.unwrap();
        assert_eq!(answer, "one got ");
    }
}

#[tokio::test]
async fn refuses_a_server_of_another_authority() {
    let place = Place::new();
    place.make_pki("other-");
    let (_gateway, port) = place.start(&(listener("") + &route(backend("one").await, ""))).await;
    let config = local(port, "").replace("ca = \"root.pem\"", "ca = \"other-root.pem\"");
    let (tunnel, local) = place.tunnel(&config).await;
    exchange(local, "secret").await.unwrap_err();
    let failed = "dunlin_tunnel_handshakes_total{listener=\"local\",outcome=\"failed\",reason=\"bad_chain_signature\"}";
    // There is no second attempt.
    assert_eq!(metric(&tunnel, failed), 1.0, "{}", tunnel.metrics());
}

#[tokio::test]
async fn a_connection_waits_for_its_server() {
    let place = Place::new();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let times = "retry_time = \"1ms\"\nlongest_retry_time = \"5ms\"\nconnect_time = \"1m\"\n";
    let (tunnel, local) = place.tunnel(&format!("[limits]\n{times}{}", local(port, ""))).await;
    let waiting = tokio::spawn(exchange(local, "hello"));
    let refused = "dunlin_tunnel_server_connects_total{listener=\"local\",outcome=\"refused\"}";
    while metric(&tunnel, refused) < 2.0 {
        assert!(!waiting.is_finished(), "{}", tunnel.metrics());
        tokio::task::yield_now().await;
    }
    let text = (listener("") + CLIENTS + &route(backend("one").await, "")).replacen(
        "127.0.0.1:0",
        &format!("127.0.0.1:{port}"),
        1,
    );
    let _gateway = Gateway::start(place.config(&text)).await.unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap(), "one got hello");
    assert_eq!(metric(&tunnel, &handshakes("full")), 1.0, "{}", tunnel.metrics());
}

#[tokio::test]
async fn a_connection_ends_by_a_reset_if_its_server_stays_away() {
    let place = Place::new();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let (_tunnel, local) =
        place.tunnel(&format!("[limits]\nconnect_time = \"50ms\"\n{}", local(port, ""))).await;
    let mut tcp = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
    let error = within(tcp.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_reload_changes_new_connections_and_leaves_the_others() {
    let place = Place::new();
    let (_one, first) = place.start(&(listener("") + &route(backend("one").await, ""))).await;
    let (_two, second) = place.start(&(listener("") + &route(backend("two").await, ""))).await;
    let config = local(first, "");
    let (tunnel, port) = place.tunnel(&config).await;
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tcp.write_all(b"still here").await.unwrap();
    metric_becomes(&tunnel, &handshakes("full"), 1.0).await;
    let parse = |text: &str| TunnelConfig::parse(&place.path("tunnel.toml"), text).unwrap();
    tunnel.reload(parse(&config.replace("client.pem", "absent.pem"))).await.unwrap_err();
    assert_eq!(exchange(port, "").await.unwrap(), "one got ");
    tunnel.reload(parse(&config.replace(&format!(":{first}\""), &format!(":{second}\"")))).await.unwrap();
    assert_eq!(exchange(port, "").await.unwrap(), "two got ");
    tcp.shutdown().await.unwrap();
    let mut answer = String::new();
    within(tcp.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "one got still here");
}

#[tokio::test]
async fn a_stopping_tunnel_lets_connections_end() {
    let place = Place::new();
    let (_gateway, port) = place.start(&(listener("") + CLIENTS + &route(backend("one").await, ""))).await;
    let (tunnel, local) = place.tunnel(&local(port, "")).await;
    let mut tcp = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
    metric_becomes(&tunnel, &handshakes("full"), 1.0).await;
    let go_on = async {
        // Nothing accepts a new connection.
        while TcpStream::connect(("127.0.0.1", local)).await.is_ok() {}
        tcp.write_all(b"last words").await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let ((), answer) = within(async { tokio::join!(tunnel.stop(), go_on) }).await;
    assert_eq!(answer, "one got last words");
}

fn faults(text: &str) -> Vec<String> {
    let faults = TunnelConfig::parse("tunnel.toml".as_ref(), text).unwrap_err();
    faults.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn names_all_faults_of_a_configuration_with_line_and_key() {
    let text = r#"[tunnel]
shutdown_tim = "1s"

[limits]
header_bytes = 1

[[listener]]
listen = "0.0.0.0:1883"
to = "gateway.example"
server_name = "a b"
mtu = 1200

[[listener]]
listen = "127.0.0.1:5683"
transport = "dtls"
to = "gateway.example:5684"
connection_ids = false
interfaces = ["wlan0", "wwan0"]
[listener.psk]
identity = "sensor-7"

[frozen]
file = "frozen"
"#;
    let expected = [
        "tunnel.toml:2: tunnel.shutdown_tim: unknown key; allowed here: shutdown_time",
        "tunnel.toml:5: limits.header_bytes: unknown key; allowed here: connections, connections_per_host, \
         connections_per_network, silent_time, connect_time, handshake_time, idle_time, retry_time or longest_retry_time",
        "tunnel.toml:7: listener[0]: no server is trusted; add ca, raw_keys, vc_issuers or dids to [listener.server], or a table [listener.psk]",
        "tunnel.toml:8: listener[0].listen: everyone who reaches 0.0.0.0:1883 could use the identity of this device, unencrypted; \
         name a loopback address, as in \"127.0.0.1:1883\", or write remote = true if that network is trusted",
        "tunnel.toml:9: listener[0].to: \"gateway.example\" is not a host with a port; write the server's name or address, as in \
         \"gateway.example.org:8883\"",
        "tunnel.toml:10: listener[0].server_name: \"a b\" is not a host name or an IP address; write the name in the server's \
         certificate, as in \"mqtt.example.org\"",
        "tunnel.toml:11: listener[0].mtu: unknown key; allowed here: listen, remote, name, transport, to, server_name, versions, \
         alpn, certificate, raw_public_key, did, vc, staple_status, membership, tickets, psk, server, cache or limits",
        "tunnel.toml:13: listener[1]: without connection IDs, a change of the interface ends the association; leave connection_ids \
         out, or write multihoming = \"linkable\"",
        "tunnel.toml:13: listener[1]: associations over several interfaces cannot be frozen; leave interfaces out, or the table [frozen]",
        "tunnel.toml:19: listener[1].psk: file is missing; name a file with the key, as `dunlin psk new` makes it",
        "tunnel.toml:22: frozen: ids is missing; name a store of IDs: a directory, sqlite:FILE or redis://HOST:PORT/DB",
    ];
    let found = faults(text);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn checks_files_without_creating_any() {
    let place = Place::new();
    let config = |text: &str| TunnelConfig::parse(&place.path("tunnel.toml"), text).unwrap();
    let good = local(1, "") + CACHE;
    assert_eq!(Tunnel::check(config(&good)).unwrap(), []);
    assert!(!place.path("servers").exists());
    let bad = good.replace("client.key", "server.key").replace("root.pem", "absent.pem");
    let faults = Tunnel::check(config(&bad)).unwrap_err().to_string();
    let lines: Vec<_> = faults.lines().collect();
    let [key, ca] = lines[..] else { panic!("{faults}") };
    assert!(key.contains("tunnel.toml:8: listener[0].certificate[0].key: "), "{faults}");
    assert!(ca.contains("tunnel.toml:10: listener[0].server.ca: "), "{faults}");
}
