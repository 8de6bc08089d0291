//! Machines with several addresses, in network namespaces of their own.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;

use dunlin_lab::net::{End, Ground, Namespace, veth};

use crate::peers::{CLIENT, PATIENCE, Running, SERVER, json, place};
use dunlin_tests::place::Place;

/// The server's addresses. The system would send from the first one of each family.
const ADDRESSES: [&str; 4] = ["10.77.0.2", "10.77.0.3", "fd77::2", "fd77::3"];

/// A client's machine, and a server's machine with several addresses.
struct Machines {
    client: Namespace,
    server: Namespace,
    _ground: Ground,
}

impl Machines {
    fn new() -> Self {
        let ground = Ground::new().unwrap();
        let [client, server] = ["client", "server"].map(|name| ground.namespace(name).unwrap());
        let end = |namespace, device| End { namespace, device, address: None, mtu: 1500 };
        veth([end(&client, "c0"), end(&server, "s0")]).unwrap();
        let disabled = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
        for side in [&client, &server] {
            side.run(|| fs::write(disabled, "0")).unwrap().unwrap();
            side.ip("link set lo up\n").unwrap();
        }
        client.ip("address add 10.77.0.1/24 dev c0\naddress add fd77::1/64 dev c0 nodad\n").unwrap();
        for address in ADDRESSES {
            let rest = if address.contains(':') { "/64 dev s0 nodad" } else { "/24 dev s0" };
            server.ip(&format!("address add {address}{rest}\n")).unwrap();
        }
        Self { client, server, _ground: ground }
    }

    /// Starts a program on the server's machine.
    fn serve(&self, place: &Place, arguments: &str) -> Running {
        self.server.run(|| Running::new(place, arguments)).unwrap()
    }

    /// Runs a client that sends a line to `to` over DTLS, and gets it back.
    fn echo(&self, place: &Place, to: SocketAddr, options: &str) {
        let client = format!("client {to} {CLIENT} --servername localhost --udp {options}");
        let mut client = self.client.run(|| Running::new(place, &client)).unwrap();
        client.write("hello\n");
        let mut output = Vec::new();
        while output.last().is_none_or(|line| line != "hello") {
            let line = client.lines.recv_timeout(PATIENCE);
            output.push(line.unwrap_or_else(|_| panic!("{to} {options}: {output:?} {}", client.log())));
        }
    }
}

/// The clients' ways to the server: each version to each address of the families that the listener takes.
fn ways(listen: &str, port: u16) -> impl Iterator<Item = (SocketAddr, &'static str)> {
    let addresses = ADDRESSES.map(|address| address.parse::<IpAddr>().unwrap());
    let is_dual = listen.starts_with('[');
    let taken = addresses.into_iter().filter(move |address| is_dual || address.is_ipv4());
    taken.flat_map(move |address| {
        ["", "--tls1-2", "--cid", "--cid --tls1-2"].map(|options| (SocketAddr::new(address, port), options))
    })
}

#[test]
fn a_server_on_a_wildcard_answers_from_the_address_that_was_asked() {
    let place = place();
    let machines = Machines::new();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let server = machines.serve(
            &place,
            &format!("server --accept {listen} {SERVER} --udp --cid --tls1-2 --tls1-3 --json"),
        );
        let listening = json(&server.lines.recv_timeout(PATIENCE).unwrap());
        let port = listening["address"].as_str().unwrap().parse::<SocketAddr>().unwrap().port();
        for (to, options) in ways(listen, port) {
            machines.echo(&place, to, options);
        }
        // A socket for both families shows IPv4 clients as such.
        let log = server.lines.try_iter().chain(server.stderr.try_iter()).collect::<Vec<_>>().join("\n");
        assert!(log.contains("10.77.0.1:") && !log.contains("::ffff:"), "{log}");
    }
}

/// The port in a line about a listener at all addresses.
fn wildcard_port(line: &str) -> u16 {
    let port = line.split_once("[::]:").unwrap().1;
    port.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A backend of datagrams in this namespace, which echoes. Returns its port.
fn backend(machine: &Namespace) -> u16 {
    let socket = machine.run(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
    port
}

/// The gateway serves each address of its machine, and the tunnel reaches it there and answers at each
/// address of its own.
#[test]
fn a_gateway_and_a_tunnel_on_wildcards_answer_from_the_address_that_was_asked() {
    let place = place();
    let machines = Machines::new();
    let to = backend(&machines.server);
    place.write(
        "gateway.toml",
        format!(
            "[[listener]]\nname = \"coap\"\nlisten = \"[::]:0\"\ntransport = \"dtls\"\nversions = [\"1.2\", \"1.3\"]\n\
             [[listener.certificate]]\nchain = \"pki/server.pem\"\nkey = \"pki/server.key\"\n\
             [[listener.route]]\nto = \"127.0.0.1:{to}\"\n"
        ),
    );
    let gateway = machines.serve(&place, "gateway -c gateway.toml");
    let port = wildcard_port(&gateway.log_with("listening"));
    for (to, options) in ways("[::]:0", port) {
        machines.echo(&place, to, options);
    }
    // The last address of each family is not the one from which the system would send.
    for to in [format!("{}:{port}", ADDRESSES[1]), format!("[{}]:{port}", ADDRESSES[3])] {
        place.write(
            "tunnel.toml",
            format!(
                "[[listener]]\nname = \"coap\"\nlisten = \"[::]:0\"\nremote = true\ntransport = \"dtls\"\nto = \"{to}\"\n\
                 server_name = \"localhost\"\n[listener.server]\nca = \"pki/root.pem\"\n"
            ),
        );
        let tunnel = machines.client.run(|| Running::new(&place, "tunnel -c tunnel.toml")).unwrap();
        let local = wildcard_port(&tunnel.log_with("listening"));
        for asked in ["127.0.0.1", "10.77.0.1", "::1", "fd77::1"] {
            let asked = SocketAddr::new(asked.parse().unwrap(), local);
            let any = if asked.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let program = machines.client.run(|| UdpSocket::bind(any).unwrap()).unwrap();
            program.set_read_timeout(Some(PATIENCE)).unwrap();
            program.send_to(b"hello", asked).unwrap();
            let mut answer = [0; 16];
            let (len, from) = program.recv_from(&mut answer).unwrap();
            assert_eq!((&answer[..len], from), (&b"hello"[..], asked), "to {to}");
        }
    }
}

/// Addresses that swallow every packet, without an error.
const DEAD: [&str; 2] = ["10.77.0.66", "fd77::66"];

impl Machines {
    /// A program on the client's machine, which finds these lines in its hosts file.
    fn with_hosts(&self, place: &Place, arguments: &str, hosts: &str) -> Running {
        place.write("hosts", hosts);
        let script = "mount --bind hosts /etc/hosts && exec \"$@\"";
        let program = place.command(arguments);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(program.get_program());
        command.args(program.get_args()).current_dir(program.get_current_dir().unwrap());
        self.client.run(|| Running::start(&mut command)).unwrap()
    }
}

#[test]
fn a_dead_address_does_not_hide_a_good_one() {
    let place = place();
    let machines = Machines::new();
    for dead in DEAD {
        machines.client.ip(&format!("neighbor add {dead} lladdr 02:00:00:00:00:66 dev c0\n")).unwrap();
    }
    let [v4, v6] = [ADDRESSES[0], ADDRESSES[2]];
    let kinds = [("", ""), (" --udp --tls1-2 --tls1-3", " --udp"), (" --udp --tls1-2", " --udp --tls1-2")];
    for (serves, asks) in kinds {
        let server = machines.serve(&place, &format!("server --accept [::]:0 {SERVER} --json{serves}"));
        let listening = json(&server.lines.recv_timeout(PATIENCE).unwrap());
        let port = listening["address"].as_str().unwrap().parse::<SocketAddr>().unwrap().port();
        // One dead family, then the other one, then a dead address before a good one of its family, and two
        // dead ones.
        for found in [[DEAD[1], v4].as_slice(), &[DEAD[0], v6], &[DEAD[0], v4], &[DEAD[1], DEAD[0], v6]] {
            let hosts: String = found.iter().map(|address| format!("{address} two.test\n")).collect();
            let client = format!("client two.test.:{port} {CLIENT} --servername localhost{asks}");
            let mut client = machines.with_hosts(&place, &client, &hosts);
            client.write("hello\n");
            let mut output = Vec::new();
            while output.last().is_none_or(|line| line != "hello") {
                let line = client.lines.recv_timeout(PATIENCE);
                output.push(line.unwrap_or_else(|_| panic!("{found:?}{asks}: {output:?} {}", client.log())));
            }
        }
    }
}
