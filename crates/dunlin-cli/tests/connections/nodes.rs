//! Two gateways as processes that share a handshake cache: a planned restart, and `kill -9`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};

use dunlin::HandshakeKind;
use dunlin_pki::{KeyType, Tree, TreeSpec, certificates_to_pem};
use serde_json::Value;

use crate::common::peers::Running;
use crate::common::{Place, send_signal};
use crate::fleet::{Fleet, devices};

/// The number of devices.
const DEVICES: usize = 12;

/// A backend for datagrams and one for streams, which echo. Returns their ports.
fn backends() -> [u16; 2] {
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let streams = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [datagrams.local_addr().unwrap().port(), streams.local_addr().unwrap().port()];
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        loop {
            // An error is that of an earlier datagram.
            if let Ok((len, from)) = datagrams.recv_from(&mut buffer) {
                let _ = datagrams.send_to(&buffer[..len], from);
            }
        }
    });
    std::thread::spawn(move || {
        for stream in streams.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut received = vec![];
                if stream.read_to_end(&mut received).is_ok() {
                    let _ = stream.write_all(&received);
                }
            });
        }
    });
    ports
}

/// Two gateways on these ports: for DTLS, for TLS and for each other.
struct Gateways {
    place: Place,
    ports: [[u16; 3]; 2],
    backends: [u16; 2],
}

impl Gateways {
    fn new(place: Place) -> Self {
        use std::os::unix::fs::PermissionsExt;
        place.write("nodes.key", "the key of the nodes, 32 bytes..");
        std::fs::set_permissions(place.path("nodes.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        // Ports that are free now. Another program could take one of them first, which is improbable.
        let sockets = [(); 6].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [a, b, c, d, e, f] = sockets.map(|socket| socket.local_addr().unwrap().port());
        Self { place, ports: [[a, b, c], [d, e, f]], backends: backends() }
    }

    /// Starts the gateway with this number, and waits until it listens.
    fn start(&self, own: usize) -> Running {
        let [[_, _, first], [_, _, second]] = self.ports;
        let ([dtls, tls, _], [datagrams, streams]) = (self.ports[own - 1], self.backends);
        let rest = "[[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n\
                    [listener.clients]\nca = \"root.pem\"\n\
                    [listener.cache]\nmode = \"compact\"\nstore = \"sqlite:clients.db\"\nkey = \"clients.key\"\n\
                    [[listener.route]]\nto = \"127.0.0.1:";
        let text = format!(
            "[gateway]\nshutdown_time = \"1h\"\n\
             [nodes]\nown = {own}\nkey = \"nodes.key\"\n\
             [[nodes.node]]\nnumber = 1\naddress = \"127.0.0.1:{first}\"\n\
             [[nodes.node]]\nnumber = 2\naddress = \"127.0.0.1:{second}\"\n\
             [[listener]]\nname = \"coap\"\nlisten = \"127.0.0.1:{dtls}\"\ntransport = \"dtls\"\ntickets = 0\n\
             [listener.frozen]\nfile = \"frozen-{own}\"\nids = \"sqlite:ids.db\"\n\
             {rest}{datagrams}\"\n\
             [[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:{tls}\"\ntickets = 0\n\
             {rest}{streams}\"\n"
        );
        self.place.write(&format!("gateway-{own}.toml"), text);
        let gateway = Running::new(&self.place, &format!("gateway -c gateway-{own}.toml"));
        gateway.log_with("listener=\"web\"");
        gateway
    }

    fn dtls(&self, own: usize) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[own - 1][0]).into()
    }

    /// A connection of a TLS client with a cache. Returns what it tells of its handshake.
    fn connect(&self, own: usize) -> String {
        let port = self.ports[own - 1][1];
        let options = "--CAfile root.pem --cert client.pem --key client.key --cache compact --cache-store servers --json";
        let told = self.place.dunlin_with(&format!("client localhost:{port} {options}"), b"hello");
        let events = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut kinds = events.filter_map(|event| Some(event.get("handshake")?.as_str()?.to_owned()));
        kinds.next().unwrap_or_else(|| panic!("no handshake: {told}"))
    }
}

#[test]
fn clients_of_two_gateways_outlast_a_restart_and_come_back_by_cached_handshakes_after_a_crash() {
    let spec = TreeSpec::new(KeyType::P256, 30).unwrap();
    let (tree, place) = (Tree::generate(&spec).unwrap(), Place::new());
    for (name, identity) in [("server", &tree.server), ("client", &tree.client)] {
        place.write(&format!("{name}.pem"), certificates_to_pem(&identity.chain).unwrap());
        place.write(&format!("{name}.key"), identity.key.to_pem().unwrap().as_bytes());
    }
    place.write("root.pem", certificates_to_pem(&[tree.root.certificate().clone()]).unwrap());
    let gateways = Gateways::new(place);
    let (first, _second) = (gateways.start(1), gateways.start(2));
    let mut devices = devices(DEVICES, &tree, &spec);
    let fleet = Fleet::new(&tree, gateways.dtls(1));
    fleet.all("full handshakes", &mut devices, Fleet::connect);
    assert!(devices.iter().all(|device| device.kind() == HandshakeKind::Full));
    assert_eq!([(); 2].map(|()| gateways.connect(1)), ["full", "cached"]);

    send_signal(&first.child, "-TERM");
    let told = first.log_with("INFO frozen ");
    assert!(told.contains(&format!("associations={DEVICES}")), "{told}");
    assert_eq!(first.end().0, 0);
    let first = gateways.start(1);
    fleet.all("a record each way on every association", &mut devices, Fleet::talk);

    // As kill -9 does. The associations are gone, and what the shared cache knows is not.
    drop(first);
    let fleet = fleet.led_to(gateways.dtls(2));
    fleet.all("cached handshakes with the other gateway", &mut devices, Fleet::connect);
    let both = HandshakeKind::Cached { own: true, peer: true };
    assert!(devices.iter().all(|device| device.kind() == both));
    let _first = gateways.start(1);
    let fleet = fleet.led_to(gateways.dtls(1));
    fleet.all("and with the first one", &mut devices, Fleet::connect);
    assert!(devices.iter().all(|device| device.kind() == both));
    assert_eq!(gateways.connect(1), "cached");
}
