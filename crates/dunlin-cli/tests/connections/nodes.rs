//! Two gateways as processes that share a handshake cache: a planned restart and `kill -9`, both under load.
//! `make soak` runs it with 10,000 devices over DTLS and 1,000 over TLS (`DUNLIN_FLEET`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use dunlin::{ClientConfig, HandshakeKind, ServerAddress};
use dunlin_pki::{KeyType, Tree, TreeSpec, certificates_to_pem};
use dunlin_tokio::TlsConnector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::fleet::{CACHED, Device, Fleet, devices, fleet_size};
use crate::peers::{PATIENCE, Running};
use dunlin_tests::place::{Place, send_signal};

/// How long a TLS client waits between two records, and before it connects again.
const PAUSE: Duration = Duration::from_millis(50);

/// A backend for datagrams and one for streams, which echo. Returns their ports.
pub(crate) fn backends() -> [u16; 2] {
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let streams = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [datagrams.local_addr().unwrap().port(), streams.local_addr().unwrap().port()];
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        loop {
            // An error is about an earlier datagram.
            if let Ok((len, from)) = datagrams.recv_from(&mut buffer) {
                let _ = datagrams.send_to(&buffer[..len], from);
            }
        }
    });
    std::thread::spawn(move || {
        for stream in streams.incoming() {
            let stream = stream.unwrap();
            // An error is the end of the gateway.
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    ports
}

/// Two gateways on these ports: for DTLS, for TLS and for each other.
struct Gateways {
    place: Place,
    ports: [[u16; 3]; 2],
    backends: [u16; 2],
    /// The most connections of a gateway.
    connections: usize,
}

impl Gateways {
    fn new(place: Place, connections: usize) -> Self {
        use std::os::unix::fs::PermissionsExt;
        place.write("nodes.key", "the key of the nodes, 32 bytes..");
        std::fs::set_permissions(place.path("nodes.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        // Ports that are free now. Another program could take one of them first, which is improbable.
        let sockets = [(); 6].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [a, b, c, d, e, f] = sockets.map(|socket| socket.local_addr().unwrap().port());
        Self { place, ports: [[a, b, c], [d, e, f]], backends: backends(), connections }
    }

    /// Starts the gateway with this number, and waits until it listens.
    fn start(&self, own: usize) -> Running {
        let [[_, _, first], [_, _, second]] = self.ports;
        let ([dtls, tls, _], [datagrams, streams]) = (self.ports[own - 1], self.backends);
        let connections = self.connections;
        // Sockets to the backends take no port of a gateway that is away.
        let source = "source = [\"127.0.0.2\"]\n";
        let rest = "[[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n\
                    [listener.clients]\nca = \"root.pem\"\n\
                    [listener.cache]\nmode = \"compact\"\nstore = \"sqlite:clients.db\"\nkey = \"clients.key\"\n\
                    [[listener.route]]\nto = \"127.0.0.1:";
        let text = format!(
            "[gateway]\nshutdown_time = \"1h\"\n\
             [limits]\nconnections = {connections}\nhandshakes = {connections}\nidle_time = \"1h\"\nhandshake_time = \"1m\"\n\
             [nodes]\nown = {own}\nkey = \"nodes.key\"\n\
             [[nodes.node]]\nnumber = 1\naddress = \"127.0.0.1:{first}\"\n\
             [[nodes.node]]\nnumber = 2\naddress = \"127.0.0.1:{second}\"\n\
             [[listener]]\nname = \"coap\"\nlisten = \"127.0.0.1:{dtls}\"\ntransport = \"dtls\"\ntickets = 0\n\
             [listener.frozen]\nfile = \"frozen-{own}\"\nids = \"sqlite:ids.db\"\n\
             {rest}{datagrams}\"\n{source}\
             [[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:{tls}\"\ntickets = 0\n\
             {rest}{streams}\"\n"
        );
        self.place.write(&format!("gateway-{own}.toml"), text);
        let gateway = Running::new(&self.place, &format!("gateway -c gateway-{own}.toml"));
        gateway.log_with("listener=\"web\"");
        gateway
    }

    /// The addresses of a gateway, for DTLS and for TLS.
    fn addresses(&self, own: usize) -> [SocketAddr; 2] {
        let [dtls, tls, _] = self.ports[own - 1];
        [dtls, tls].map(|port| ([127, 0, 0, 1], port).into())
    }
}

/// A TLS client, and where it tells of its handshakes.
struct Client {
    number: usize,
    host: IpAddr,
    config: Arc<ClientConfig>,
    name: ServerAddress,
    handshakes: Sender<(usize, HandshakeKind)>,
    echoes: watch::Sender<usize>,
}

impl Client {
    /// Connects to the gateway that `to` has, and again whenever the connection ends.
    async fn run(self, to: watch::Receiver<SocketAddr>) {
        loop {
            let to = *to.borrow();
            let _ended = self.talk(to).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends all the time, and waits for each echo.
    async fn talk(&self, to: SocketAddr) -> std::io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.host, 0).into())?;
        let tcp = socket.connect(to).await?;
        let mut tls = TlsConnector::new(self.config.clone()).connect(tcp, self.name.clone()).await?;
        for number in 0_u32.. {
            tls.write_all(&number.to_be_bytes()).await?;
            tls.flush().await?;
            assert_eq!(tls.read_u32().await?, number);
            self.echoes.send_modify(|echoes| *echoes += 1);
            if number == 0 {
                // It fails only if the test is over.
                let _ = self.handshakes.send((self.number, tls.negotiated().kind));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// TLS clients that send all the time.
pub(crate) struct Clients {
    count: usize,
    /// How many echoes they have got.
    echoes: watch::Receiver<usize>,
    to: watch::Sender<SocketAddr>,
    handshakes: Receiver<(usize, HandshakeKind)>,
    runtime: Runtime,
}

impl Clients {
    /// Clients of the gateway at `to`, with the certificates of these devices.
    pub(crate) fn new(devices: &[Device], fleet: &Fleet, to: SocketAddr) -> Self {
        let (echoed, echoes) = watch::channel(0);
        let runtime = Runtime::new().unwrap();
        let ((to, receiver), (sender, handshakes)) = (watch::channel(to), channel());
        for (number, device) in devices.iter().enumerate() {
            let config = fleet.config(device);
            let name = fleet.name();
            let handshakes = sender.clone();
            let echoes = echoed.clone();
            let client = Client { number, host: device.host(), config, name, handshakes, echoes };
            runtime.spawn(client.run(receiver.clone()));
        }
        Self { count: devices.len(), echoes, to, handshakes, runtime }
    }

    /// How many echoes the clients have got so far.
    pub(crate) fn echoes(&self) -> usize {
        *self.echoes.borrow()
    }

    /// Waits until the clients have got more echoes than this.
    pub(crate) fn served_after(&self, echoes: usize) {
        let mut receiver = self.echoes.clone();
        let grown = async { receiver.wait_for(|got| *got > echoes).await.is_ok() };
        let served = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, grown).await });
        assert_eq!(served, Ok(true), "the TLS clients are served");
    }

    /// How many handshakes there were since the last question about them.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.try_iter().count()
    }

    /// Waits until every client has made a handshake and got an echo. Returns how many of the handshakes were
    /// of this kind.
    pub(crate) fn connected(&self, kind: HandshakeKind) -> usize {
        let mut first = BTreeMap::new();
        while first.len() < self.count {
            let (number, kind) = self.handshakes.recv_timeout(PATIENCE).expect("another handshake");
            first.entry(number).or_insert(kind);
        }
        first.values().filter(|its| **its == kind).count()
    }
}

#[test]
fn clients_of_two_gateways_outlast_a_restart_and_come_back_by_cached_handshakes_after_a_crash() {
    let count = fleet_size();
    let spec = TreeSpec::new(KeyType::P256, 30).unwrap();
    let tree = Tree::generate(&spec).unwrap();
    let place = Place::new();
    place.write("server.pem", certificates_to_pem(&tree.server.chain).unwrap());
    place.write("server.key", tree.server.key.to_pem().unwrap().as_bytes());
    place.write("root.pem", certificates_to_pem(&[tree.root.certificate().clone()]).unwrap());
    let mut devices = devices(count + count.div_ceil(10), &tree, &spec);
    let over_tls = devices.split_off(count);
    let gateways = Gateways::new(place, 2 * (count + over_tls.len()));
    let ([first_dtls, first_tls], [second_dtls, second_tls]) = (gateways.addresses(1), gateways.addresses(2));
    let mut first = gateways.start(1);
    let _second = gateways.start(2);
    let fleet = Fleet::new(&tree, first_dtls);
    fleet.all(&format!("{count} full handshakes"), &mut devices, Fleet::connect);
    assert!(devices.iter().all(|device| device.kind() == HandshakeKind::Full));

    fleet.talk_during("a planned restart", &mut devices, || {
        send_signal(&first.child, "-TERM");
        let told = first.log_with("INFO frozen ");
        assert!(told.contains(&format!("associations={count}")), "{told}");
        assert!(first.child.wait().unwrap().success());
        first = gateways.start(1);
    });
    fleet.all(&format!("{count} associations go on"), &mut devices, Fleet::talk);
    assert!(devices.iter().all(|device| device.kind() == HandshakeKind::Full));

    let clients = Clients::new(&over_tls, &fleet, first_tls);
    assert_eq!(clients.connected(HandshakeKind::Full), over_tls.len());
    let other = Fleet::new(&tree, first_dtls).led_to(second_dtls);
    // With SIGKILL. The associations are lost; the shared cache is not.
    let returned = fleet.come_back(&mut devices, &other, || {
        drop(first);
        clients.to.send_replace(second_tls);
    });
    let reconnected = clients.connected(CACHED);
    println!("kill -9: {returned} devices and {reconnected} TLS clients came back by cached handshakes");
    assert_eq!((returned, reconnected), (count, over_tls.len()));

    drop(clients);
    let _first = gateways.start(1);
    fleet.all("cached handshakes with the first gateway", &mut devices, Fleet::connect);
    assert!(devices.iter().all(|device| device.kind() == CACHED));
}
