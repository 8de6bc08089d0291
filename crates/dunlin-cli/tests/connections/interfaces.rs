//! `dunlin client --interface`: devices that are set down and up, in network namespaces of their own.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use dunlin_lab::net::{End, Ground, Namespace, veth};
use serde_json::Value;

use crate::peers::{CLIENT, KEY, PATIENCE, Running, SERVER, Server, json, place};
use dunlin_tests::place::Place;

/// The server's address, which both devices of the client reach.
const ADDRESS: &str = "10.99.0.1";

/// Two namespaces with two lines between them.
struct Lines {
    client: Namespace,
    server: Namespace,
    _ground: Ground,
}

impl Lines {
    fn new() -> Self {
        let ground = Ground::new().unwrap();
        let [client, server] = ["client", "server"].map(|name| ground.namespace(name).unwrap());
        for (line, [here, there]) in [["a0", "s0"], ["a1", "s1"]].into_iter().enumerate() {
            let end = |namespace, device, host| End {
                namespace,
                device,
                address: Some(([10, 77, line as u8, host].into(), 24)),
                mtu: 1500,
            };
            veth([end(&client, here, 1), end(&server, there, 2)]).unwrap();
        }
        server.ip(&format!("address add {ADDRESS}/32 dev lo\n")).unwrap();
        let lines = Self { client, server, _ground: ground };
        (0..2).for_each(|line| lines.route(line));
        lines
    }

    fn route(&self, line: usize) {
        let route = format!("route add {ADDRESS} via 10.77.{line}.2 dev a{line} metric {}\n", line + 1);
        self.client.ip(&route).unwrap();
    }

    fn down(&self, line: usize) {
        self.client.ip(&format!("link set a{line} down\n")).unwrap();
    }

    /// A client with these options, and its server.
    fn ends(&self, place: &Place, (server, client): (&str, &str)) -> [Running; 2] {
        let server = format!("server --accept {ADDRESS}:0 {SERVER} --udp --json {server}");
        let server = self.server.run(|| Running::new(place, &server)).unwrap();
        let listening = json(&server.lines.recv_timeout(PATIENCE).unwrap());
        let to = listening["address"].as_str().unwrap();
        let client = format!("client {to} {CLIENT} --servername localhost --udp --json {client}");
        let client = self.client.run(|| Running::new(place, &client)).unwrap();
        [server, client]
    }

    fn up(&self, line: usize) {
        self.client.ip(&format!("link set a{line} up\n")).unwrap();
        self.route(line);
    }
}

/// The events of a client up to the one that fits.
fn until(client: &Running, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let line = client.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("silent after {events:?}"));
        events.push(json(&line));
        if events.last().is_some_and(&fits) {
            return events;
        }
    }
}

/// Sends a line, and waits for its echo. Returns the events until then.
fn echo(client: &mut Running, text: &str) -> Vec<Value> {
    client.write(text);
    let data = Base64::encode_string(text.as_bytes());
    until(client, |event| event["base64"] == *data)
}

fn is_change(event: &Value) -> bool {
    event["event"] == "path_changed"
}

#[test]
fn an_association_survives_its_devices() {
    let place = place();
    let lines = Lines::new();
    let options = "--cid --interface a0 --interface a1 --multihoming linkable";
    let [_server, mut client] = lines.ends(&place, ("--cid", options));
    echo(&mut client, "over the first\n");
    // The best device goes down. Data sent now arrives over the other one.
    lines.down(0);
    let events = echo(&mut client, "over the second\n");
    let change = events.iter().find(|event| is_change(event)).unwrap();
    let [from, to] = ["from", "to"].map(|end| change[end].as_str().unwrap().to_owned());
    assert!(from.starts_with("10.77.0.1:") && to.starts_with("10.77.1.1:"), "{change}");
    assert_eq!(change["unrepeated_records"], 0);
    // It comes back, and is the best again. Then the other one goes.
    lines.up(0);
    let events = until(&client, is_change);
    assert!(events.last().unwrap()["to"].as_str().unwrap().starts_with("10.77.0.1:"), "{events:?}");
    lines.down(1);
    echo(&mut client, "over the first again\n");
    // Its address changes: the client sends from the new one.
    lines.client.ip("address del 10.77.0.1/24 dev a0\naddress add 10.77.0.9/24 dev a0\n").unwrap();
    lines.route(0);
    let events = until(&client, |event| {
        is_change(event) && event["to"].as_str().is_some_and(|to| to.starts_with("10.77.0.9:"))
    });
    assert!(!events.is_empty());
    echo(&mut client, "from a new address\n");
}

/// Sends a datagram until it arrives. Returns the address from which it came.
fn deliver(program: &UdpSocket, local: SocketAddr, text: &str, backend: &UdpSocket) -> SocketAddr {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "{text} does not arrive");
        program.send_to(text.as_bytes(), local).unwrap();
        let mut buffer = [0; 64];
        while let Ok((len, from)) = backend.recv_from(&mut buffer) {
            if &buffer[..len] == text.as_bytes() {
                return from;
            }
        }
    }
}

#[test]
fn a_tunnel_keeps_its_association_when_an_interface_fails() {
    let place = place();
    let lines = Lines::new();
    let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let [program, backend] = [&lines.client, &lines.server].map(|side| {
        side.ip("link set lo up\n").unwrap();
        side.run(socket).unwrap()
    });
    backend.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let own = "[[listener.certificate]]\nchain = \"pki/NAME.pem\"\nkey = \"pki/NAME.key\"\n";
    let gateway = format!(
        "[[listener]]\nlisten = \"{ADDRESS}:0\"\ntransport = \"dtls\"\n{}[listener.clients]\nca = \"pki/root.pem\"\n\
         [[listener.route]]\nto = \"{}\"\n",
        own.replace("NAME", "server"),
        backend.local_addr().unwrap()
    );
    place.write("gateway.toml", gateway);
    let gateway = lines.server.run(|| Running::new(&place, "gateway -c gateway.toml")).unwrap();
    let to = address_in(&gateway.log_with("listening"));
    let tunnel = format!(
        "[[listener]]\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\nto = \"{to}\"\ninterfaces = [\"a0\", \"a1\"]\n\
         server_name = \"localhost\"\n\
         {}[listener.server]\nca = \"pki/root.pem\"\n",
        own.replace("NAME", "client")
    );
    place.write("tunnel.toml", tunnel);
    let tunnel = lines.client.run(|| Running::new(&place, "tunnel -c tunnel.toml")).unwrap();
    let local = address_in(&tunnel.log_with("listening"));
    let before = deliver(&program, local, "over the first", &backend);
    lines.down(0);
    // The gateway keeps the association's socket to the backend.
    assert_eq!(deliver(&program, local, "over the second", &backend), before);
    lines.up(0);
    lines.down(1);
    assert_eq!(deliver(&program, local, "over the first again", &backend), before);
}

/// The address in a line of the log.
fn address_in(line: &str) -> SocketAddr {
    let address = line.split_once("address=").unwrap().1;
    address.split_whitespace().next().unwrap().parse().unwrap()
}

/// Lets the client lose its address and its route, and then get others one by one, as by DHCP. Then only its
/// route changes.
fn move_about(options: (&str, &str)) {
    let place = place();
    let lines = Lines::new();
    lines.down(1);
    let [_server, mut client] = lines.ends(&place, options);
    echo(&mut client, "at the first address\n");
    lines.client.ip("address del 10.77.0.1/24 dev a0\n").unwrap();
    client.write("without a route\n");
    let warning = client.log();
    assert!(warning.contains(&format!("server {ADDRESS}:")) && warning.contains("cannot send"), "{warning}");
    client.write("without a route, again\n");
    lines.client.ip("address add 10.77.0.9/24 dev a0\n").unwrap();
    lines.route(0);
    echo(&mut client, "at the second address\n");
    // Both lines work, and the best route goes.
    lines.up(1);
    lines.client.ip(&format!("route del {ADDRESS} dev a0\n")).unwrap();
    if options.1.contains("--interface") {
        // An echo on its way to the previous socket would be lost.
        until(&client, |event| is_change(event) && event["to"].as_str().unwrap().starts_with("10.77.1.1:"));
    }
    echo(&mut client, "over the other route\n");
    let (status, _, errors) = client.end();
    assert_eq!((status, errors.as_str()), (0, ""), "the client warns once");
}

#[test]
fn a_connection_id_alone_survives_outages_and_other_routes() {
    move_about(("--cid", "--cid"));
    move_about(("--cid --tls1-2", "--cid --tls1-2"));
}

#[test]
fn the_default_interface_follows_routes() {
    move_about(("--cid", "--cid --interface default --multihoming linkable"));
}

#[test]
fn a_client_without_connection_ids_warns_when_its_address_is_gone() {
    let place = place();
    let lines = Lines::new();
    let [_server, mut client] = lines.ends(&place, ("", ""));
    echo(&mut client, "at the first address\n");
    lines.client.ip("address del 10.77.0.1/24 dev a0\naddress add 10.77.0.9/24 dev a0\n").unwrap();
    lines.route(0);
    client.write("lost\n");
    let warning = client.log();
    assert!(warning.contains("cannot send") && warning.contains("--cid"), "{warning}");
}

#[test]
fn the_client_names_the_interface_that_is_not_there() {
    let place = place();
    let client = format!("client 127.0.0.1:9 --psk {KEY} --udp --cid");
    let told = place.dunlin_fails(&format!("{client} --interface nosuch0 --interface 192.0.2.7"), 1);
    assert!(
        told.contains("--interfaces nosuch0, --interfaces 192.0.2.7: not up with an IPv4 address"),
        "{told}"
    );
    let told = place.dunlin_fails(&format!("{client} {}", "--interface lo ".repeat(5)), 2);
    assert!(told.contains("at most 4 interfaces, not 5"), "{told}");
    let told = place.dunlin_fails(&format!("{client} --interface="), 2);
    assert!(told.contains("--interfaces: the name is empty"), "{told}");
    let server = Server::new(&place, &format!("--psk {KEY} --echo --udp --cid"));
    let options = format!("--psk {KEY} --udp --cid --interface lo --interface nosuch0");
    let output = server.client(&place, &options, "hello\n");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("warning: --interfaces nosuch0: not up with an IPv4 address"), "{told}");
    assert_eq!(output.status.code(), Some(0), "{told}");
}

#[test]
fn interfaces_need_connection_ids_or_a_port_of_the_association() {
    let place = place();
    let options = format!("--psk {KEY} --udp --interface lo");
    let told = place.dunlin_fails(&format!("client 127.0.0.1:9 {options}"), 2);
    assert!(told.contains("add --cid or --scheme tcs"), "{told}");
    let told = place.dunlin_fails(&format!("client 127.0.0.1:9 {options} --multihoming unlinkable"), 2);
    assert!(told.contains("another connection ID for each address"), "{told}");
    let pool = "--scheme tcs --port-pool auto:2 --migrate on-newer-record";
    let server = Server::new(&place, &format!("--psk {KEY} --echo --udp {pool}"));
    assert_eq!(server.warnings, "");
    let output = server.client(&place, &format!("{options} --scheme tcs"), "hello\n");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !told.contains("warning"), "{told}");
}
