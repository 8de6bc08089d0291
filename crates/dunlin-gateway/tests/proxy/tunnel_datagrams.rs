//! UDP to DTLS in a tunnel, and on through a gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::place::{PATIENCE, PSK, Place, listener, metric, metric_becomes, route, within};
use crate::tunnel::{handshakes, local};

const CLIENTS: &str =
    "[listener.clients]\nca = \"root.pem\"\n[listener.cache]\nmode = \"compact\"\nstore = \"clients\"\n";

async fn socket() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// A gateway's listener to this backend.
fn dtls(to: u16) -> String {
    listener("transport = \"dtls\"") + CLIENTS + &route(to, "")
}

/// A tunnel's listener for datagrams to this port.
fn datagrams(port: u16, more: &str) -> String {
    local(port, &format!("transport = \"dtls\"\n{more}"))
}

async fn send(socket: &UdpSocket, port: u16, data: &str) {
    socket.send_to(data.as_bytes(), ("127.0.0.1", port)).await.unwrap();
}

async fn receive(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut buffer = [0; 2048];
    let (len, from) = within(socket.recv_from(&mut buffer)).await.unwrap();
    (String::from_utf8(buffer[..len].to_vec()).unwrap(), from)
}

#[tokio::test]
async fn each_local_port_has_an_association_or_all_share_one() {
    let place = Place::new();
    let (backend, to) = socket().await;
    let (gateway, port) = place.start(&dtls(to)).await;
    for (association, associations) in [("each", 2.0), ("shared", 1.0)] {
        let config = datagrams(port, &format!("association = \"{association}\""));
        let (tunnel, local) = place.tunnel(&config).await;
        let one = socket().await.0;
        let two = socket().await.0;
        for (program, name) in [(&one, "one"), (&two, "two"), (&one, "one again")] {
            send(program, local, name).await;
            let (data, from) = receive(&backend).await;
            assert_eq!(data, name);
            backend.send_to(format!("to {name}").as_bytes(), from).await.unwrap();
            assert_eq!(receive(program).await.0, format!("to {name}"));
        }
        let completed =
            "dunlin_tunnel_handshakes_total{listener=\"local\",outcome=\"completed\",reason=\"\"}";
        assert_eq!(metric(&tunnel, completed), associations, "{association}");
        assert_eq!(metric(&tunnel, "dunlin_tunnel_connections{listener=\"local\"}"), associations);
        // Without traffic, nothing keeps a stopping tunnel for long.
        within(tunnel.stop()).await;
    }
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 0.0).await;
}

#[tokio::test]
async fn a_tunnel_on_all_addresses_answers_from_the_one_that_was_asked() {
    let place = Place::new();
    let (backend, to) = socket().await;
    let (_gateway, port) = place.start(&dtls(to)).await;
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let (tunnel, local) =
            place.tunnel(&datagrams(port, "remote = true").replacen("127.0.0.1:0", listen, 1)).await;
        let program = socket().await.0;
        for asked in ["127.0.0.1", "127.0.0.2"] {
            let asked: SocketAddr = format!("{asked}:{local}").parse().unwrap();
            program.send_to(b"question", asked).await.unwrap();
            let (question, from) = receive(&backend).await;
            assert_eq!(question, "question");
            backend.send_to(b"answer", from).await.unwrap();
            assert_eq!(receive(&program).await, ("answer".to_owned(), asked), "{listen}");
        }
        within(tunnel.stop()).await;
    }
}

/// The tunnel also counts the traffic of a program that gives way.
#[tokio::test]
async fn the_traffic_of_a_program_that_gives_way_is_counted() {
    let place = Place::new();
    let (backend, to) = socket().await;
    let (gateway, port) = place.start(&dtls(to)).await;
    let limits = "[listener.limits]\nconnections = 1\nsilent_time = \"1ms\"\n";
    let (tunnel, local) = place.tunnel(&(datagrams(port, "") + limits)).await;
    let silent = socket().await.0;
    let other = socket().await.0;
    send(&silent, local, "hello").await;
    let (_, from) = receive(&backend).await;
    backend.send_to(b"answer", from).await.unwrap();
    receive(&silent).await;
    assert_eq!(metric(&tunnel, "dunlin_tunnel_transferred_bytes_total"), 0.0, "{}", tunnel.metrics());
    let gave_way = "dunlin_tunnel_gave_way_total{listener=\"local\",reason=\"silent\"}";
    let begin = Instant::now();
    while metric(&tunnel, gave_way) == 0.0 {
        assert!(begin.elapsed() < PATIENCE, "{}", tunnel.metrics());
        send(&other, local, "other").await;
        tokio::task::yield_now().await;
    }
    for (direction, bytes) in [("from_client", 5.0), ("to_client", 6.0)] {
        let labels = format!("listener=\"local\",direction=\"{direction}\"");
        let passed = format!("dunlin_tunnel_transferred_bytes_total{{{labels}}}");
        metric_becomes(&tunnel, &passed, bytes).await;
    }
    // The server learns of it at once.
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 1.0).await;
}

/// Passes datagrams between one client and a gateway that can be replaced. Returns its port, and the port of
/// the gateway.
async fn wire(gateway: u16) -> (u16, Arc<AtomicU16>) {
    let ((near, port), (far, _)) = (socket().await, socket().await);
    let target = Arc::new(AtomicU16::new(gateway));
    let to = target.clone();
    tokio::spawn(async move {
        let mut up = [0; 2048];
        let mut down = [0; 2048];
        let mut client = None;
        loop {
            tokio::select! {
                Ok((len, from)) = near.recv_from(&mut up) => {
                    client = Some(from);
                    far.send_to(&up[..len], ("127.0.0.1", to.load(Ordering::Relaxed))).await.unwrap();
                }
                Ok((len, from)) = far.recv_from(&mut down) => {
                    if let Some(client) = client.filter(|_| from.port() == to.load(Ordering::Relaxed)) {
                        near.send_to(&down[..len], client).await.unwrap();
                    }
                }
            }
        }
    });
    (port, target)
}

/// The gateway crashes and comes back without its associations, and cannot notify the clients. The tunnel
/// asks it after a while without an answer.
#[tokio::test]
async fn a_lost_association_is_replaced_by_a_cached_handshake() {
    let check = async |version: &str| {
        let place = Place::new();
        let (backend, to) = socket().await;
        let text = dtls(to).replace("compact", "rfc7924").replace("store = \"clients\"\n", "");
        let (_crashed, first) = place.start(&text).await;
        let (port, target) = wire(first).await;
        let more = format!("versions = \"{version}\"\nprobe_time = \"1s\"\ntickets = false");
        let config = datagrams(port, &more) + "[listener.cache]\nmode = \"rfc7924\"\n";
        let (tunnel, local) = place.tunnel(&config).await;
        let program = socket().await.0;
        send(&program, local, "first").await;
        let (_, from) = receive(&backend).await;
        backend.send_to(b"answer", from).await.unwrap();
        receive(&program).await;
        let (_gateway, second) = place.start(&text).await;
        target.store(second, Ordering::Relaxed);
        let mut buffer = [0; 64];
        let begin = Instant::now();
        loop {
            send(&program, local, "second").await;
            if timeout(Duration::from_millis(50), backend.recv_from(&mut buffer)).await.is_ok() {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "{version}: nothing arrives:\n{}", tunnel.metrics());
        }
        assert_eq!(metric(&tunnel, &handshakes("cached")), 1.0, "{version}:\n{}", tunnel.metrics());
    };
    tokio::join!(check("1.3"), check("1.2"));
}

#[tokio::test]
async fn datagrams_wait_for_the_handshake_and_are_lost_during_a_pause() {
    let place = Place::new();
    place.make_pki("other-");
    let (backend, to) = socket().await;
    let (_gateway, port) = place.start(&dtls(to)).await;
    let (tunnel, local) = place.tunnel(&datagrams(port, "")).await;
    let program = socket().await.0;
    for i in 0..10 {
        send(&program, local, &i.to_string()).await;
    }
    for i in 0..10 {
        assert_eq!(receive(&backend).await.0, i.to_string());
    }
    assert_eq!(metric(&tunnel, &handshakes("full")), 1.0);
    let wrong = datagrams(port, "").replace("ca = \"root.pem\"", "ca = \"other-root.pem\"");
    let (tunnel, local) = place.tunnel(&wrong).await;
    send(&program, local, "first").await;
    let failed = "dunlin_tunnel_handshakes_total{listener=\"local\",outcome=\"failed\",reason=\"bad_chain_signature\"}";
    metric_becomes(&tunnel, failed, 1.0).await;
    metric_becomes(&tunnel, "dunlin_tunnel_datagrams_dropped_total{listener=\"local\"}", 1.0).await;
}

/// The next tunnel goes on with the associations: there is no handshake, and an answer that the server sends
/// first arrives.
#[tokio::test]
async fn associations_survive_a_restart_of_the_tunnel() {
    let place = Place::new();
    let (backend, to) = socket().await;
    let (gateway, port) = place.start(&dtls(to)).await;
    let frozen = "[frozen]\nfile = \"frozen\"\nids = \"ids\"\n";
    let config = frozen.to_owned() + &datagrams(port, "");
    let (tunnel, first) = place.tunnel(&config).await;
    let program = socket().await.0;
    send(&program, first, "one").await;
    let (_, from) = receive(&backend).await;
    backend.send_to(b"to one", from).await.unwrap();
    assert_eq!(receive(&program).await.0, "to one");
    within(tunnel.stop()).await;
    assert!(place.path("frozen").exists());
    let (tunnel, second) = place.tunnel(&config).await;
    assert!(!place.path("frozen").exists(), "nobody thaws it twice");
    backend.send_to(b"to two", from).await.unwrap();
    assert_eq!(receive(&program).await.0, "to two");
    send(&program, second, "two").await;
    assert_eq!(receive(&backend).await, ("two".to_owned(), from));
    assert_eq!(metric(&tunnel, "dunlin_tunnel_handshakes_total"), 0.0, "{}", tunnel.metrics());
    metric_becomes(&gateway, "dunlin_gateway_connections{listener=\"test\"}", 1.0).await;
}

#[tokio::test]
async fn a_restarted_tunnel_answers_from_the_address_that_was_asked_before() {
    let place = Place::new();
    let (backend, to) = socket().await;
    let (_gateway, port) = place.start(&dtls(to)).await;
    let listener = datagrams(port, "remote = true").replacen("127.0.0.1:0", "0.0.0.0:0", 1);
    let config = format!("[frozen]\nfile = \"frozen\"\nids = \"ids\"\n{listener}");
    let asked = |local| SocketAddr::from(([127, 0, 0, 2], local));
    let (tunnel, first) = place.tunnel(&config).await;
    let program = socket().await.0;
    program.send_to(b"question", asked(first)).await.unwrap();
    let (_, from) = receive(&backend).await;
    within(tunnel.stop()).await;
    let (tunnel, second) = place.tunnel(&config).await;
    backend.send_to(b"answer", from).await.unwrap();
    assert_eq!(receive(&program).await, ("answer".to_owned(), asked(second)));
    assert_eq!(metric(&tunnel, "dunlin_tunnel_handshakes_total"), 0.0, "{}", tunnel.metrics());
}

/// The administrator has changed where the data go. The association of the previous configuration would go on
/// as before.
#[tokio::test]
async fn an_association_does_not_survive_a_change_of_its_server_or_key() {
    let place = Place::new();
    let (backend, to) = socket().await;
    let keys = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\n[listener.clients]\npsk = \"keys.psk\"\n";
    place.write("keys.psk", &format!("{}:{}\nsensor-8:{}\n", PSK.0, PSK.1, PSK.1));
    let (_gateway, port) = place.start(&(keys.to_owned() + &route(to, ""))).await;
    let (_other, other_port) = place.start(&(keys.to_owned() + &route(to, ""))).await;
    let config = format!(
        "[frozen]\nfile = \"frozen\"\nids = \"ids\"\n\
         [[listener]]\nname = \"local\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\nto = \"127.0.0.1:{port}\"\n\
         tickets = false\n[listener.psk]\nfile = \"keys.psk\"\nidentity = \"{}\"\n",
        PSK.0
    );
    let other_name = config.replace("tickets", "server_name = \"other.example\"\ntickets");
    let other_server = other_name.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{other_port}"));
    let other_key = other_server.replace(PSK.0, "sensor-8");
    let program = socket().await.0;
    for (text, handshakes) in
        [(&config, 1.0), (&config, 0.0), (&other_name, 1.0), (&other_server, 1.0), (&other_key, 1.0)]
    {
        let (tunnel, local) = place.tunnel(text).await;
        send(&program, local, "data").await;
        let (data, from) = receive(&backend).await;
        assert_eq!(data, "data");
        backend.send_to(b"answer", from).await.unwrap();
        receive(&program).await;
        let done = "dunlin_tunnel_handshakes_total{listener=\"local\",outcome=\"completed\"}";
        assert_eq!(metric(&tunnel, done), handshakes, "{text}");
        within(tunnel.stop()).await;
    }
}

/// Two addresses of loopback stand for two interfaces.
#[tokio::test]
async fn an_association_uses_the_interfaces_of_the_configuration() {
    let place = Place::new();
    let (backend, to) = socket().await;
    let text = dtls(to).replace("to = ", "proxy_protocol = true\nto = ");
    let (_gateway, port) = place.start(&text).await;
    let more = "interfaces = [\"127.0.0.7\", \"127.0.0.8\"]\nversions = \"1.3\"";
    let (_tunnel, local) = place.tunnel(&datagrams(port, more)).await;
    let program = socket().await.0;
    send(&program, local, "data").await;
    let mut datagram = [0; 2048];
    let (len, _) = within(backend.recv_from(&mut datagram)).await.unwrap();
    // The gateway's header names the client's address after 16 bytes.
    assert!(datagram[..len].ends_with(b"data"));
    assert_eq!(datagram[16..20], [127, 0, 0, 7]);
}

/// libcoap's client and server without DTLS, which the tunnel and the gateway add between them.
#[tokio::test(flavor = "multi_thread")]
async fn libcoaps_client_reaches_libcoaps_server() {
    let place = Place::new();
    let (free, to) = socket().await;
    // The server takes no port 0. Another program could take this one first, which is improbable.
    drop(free);
    let mut server = std::process::Command::new("coap-server-notls");
    server.args(["-A", "127.0.0.1", "-p", &to.to_string()]);
    let _server = crate::udp::Process::start(&mut server);
    let keys = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\n[listener.clients]\npsk = \"keys.psk\"\n";
    let (gateway, port) = place.start(&(keys.to_owned() + &route(to, ""))).await;
    let config = format!(
        "[[listener]]\nname = \"local\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\nto = \"127.0.0.1:{port}\"\n\
         [listener.psk]\nfile = \"keys.psk\"\nidentity = \"{}\"\n",
        PSK.0
    );
    let (tunnel, local) = place.tunnel(&config).await;
    for kind in ["full", "resumed"] {
        let mut client = tokio::process::Command::new("coap-client-notls");
        client.args(["-w", "-B", "60", &format!("coap://127.0.0.1:{local}/")]).kill_on_drop(true);
        let output = within(client.output()).await.unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("test server made with libcoap"), "{output:?}");
        assert_eq!(metric(&tunnel, &handshakes(kind)), 1.0, "{kind}:\n{}", tunnel.metrics());
    }
    let by_psk = |text: String| text.lines().any(|line| line.contains("client=\"psk\""));
    assert!(by_psk(gateway.metrics()), "{}", gateway.metrics());
}
