//! A server with many associations: over a planned restart, and back by cached handshakes after the server was killed. `make soak` runs it
//! with 100,000 (`DUNLIN_FLEET`) and prints how long each step takes.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dunlin::auth::X509Trust;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::CryptoProvider;
use dunlin::{
    ClientConfig, Credential, DtlsConnection, HandshakeKind, NodeIds, Profile, ServerAddress, Trust,
};
use dunlin_pki::{Identity, KeyPair, KeyType, LeafSpec, Subject, Tree, TreeSpec, certificates_to_pem};
use dunlin_store::MemoryClientCache;
use dunlin_tokio::now;

use crate::common::peers::Server;
use crate::common::{Place, send_signal};

/// The number of associations, unless `DUNLIN_FLEET` has another.
const FLEET: usize = 12;

/// The threads of the client process.
const THREADS: usize = 16;

/// How long a device waits for an answer before it looks at its timers.
const TICK: Duration = Duration::from_millis(200);

/// The steps that a device takes before its test has failed.
const MOST_TICKS: u32 = 300;

/// A device at an address of the loopback network of its own.
pub(crate) struct Device {
    identity: Identity,
    cache: Arc<MemoryClientCache>,
    host: IpAddr,
    /// Its socket is open only while it talks: 100,000 of them would be too many.
    port: u16,
    connection: Option<DtlsConnection>,
}

impl Device {
    /// The kind of its latest handshake.
    pub(crate) fn kind(&self) -> HandshakeKind {
        self.connection.as_ref().unwrap().negotiated().unwrap().kind
    }
}

/// What all devices have in common.
pub(crate) struct Fleet {
    provider: Arc<CryptoProvider>,
    trust: X509Trust,
    /// The server's name, under which the devices know it, and its address.
    name: ServerAddress,
    server: SocketAddr,
}

impl Fleet {
    /// Devices of the server at this address.
    pub(crate) fn new(tree: &Tree, server: SocketAddr) -> Self {
        let trust = X509Trust::anchors([tree.root.certificate().clone()]).unwrap();
        let name = ServerAddress::parse("localhost", server.port()).unwrap();
        Self { provider: Arc::new(dunlin_awslc::provider()), trust, name, server }
    }

    /// The same devices, for which another server has the same name now.
    pub(crate) fn led_to(self, server: SocketAddr) -> Self {
        Self { server, ..self }
    }

    fn config(&self, device: &Device) -> Arc<ClientConfig> {
        let key = device.identity.key.signing_key(&self.provider).unwrap();
        let profile = Profile::builder(Arc::clone(&self.provider))
            .trust(Trust { x509: Some(self.trust.clone()), raw_key: None })
            .credentials(vec![Credential::x509(device.identity.chain.clone(), key)])
            .build()
            .unwrap();
        let ids = Arc::new(NodeIds::new(&[], 0, self.provider.random.clone()).unwrap());
        let config = ClientConfig::new(profile).with_connection_ids(ids);
        Arc::new(config.with_handshake_cache(CacheMode::Compact, device.cache.clone(), DEFAULT_MAX_AGE))
    }

    /// A handshake, and data both ways.
    pub(crate) fn connect(&self, device: &mut Device) {
        let socket = UdpSocket::bind((device.host, 0)).unwrap();
        device.port = socket.local_addr().unwrap().port();
        let (config, name) = (self.config(device), self.name.clone());
        let mut connection = DtlsConnection::client(&config, name, self.server, now()).unwrap();
        self.carry(&socket, &mut connection, |connection| !connection.is_handshaking());
        self.echo(&socket, &mut connection);
        device.connection = Some(connection);
    }

    /// Data both ways on the association that the device has.
    pub(crate) fn talk(&self, device: &mut Device) {
        let socket = UdpSocket::bind((device.host, device.port)).unwrap();
        self.echo(&socket, device.connection.as_mut().unwrap());
    }

    fn echo(&self, socket: &UdpSocket, connection: &mut DtlsConnection) {
        connection.send(b"21.5 C").unwrap();
        let mut echoed = None;
        self.carry(socket, connection, |connection| {
            echoed = echoed.take().or_else(|| connection.read());
            echoed.is_some()
        });
        assert_eq!(echoed.as_deref(), Some(&b"21.5 C"[..]));
    }

    /// Carries datagrams until `is_done`.
    fn carry(
        &self,
        socket: &UdpSocket,
        connection: &mut DtlsConnection,
        mut is_done: impl FnMut(&mut DtlsConnection) -> bool,
    ) {
        socket.set_read_timeout(Some(TICK)).unwrap();
        let (mut buffer, mut ticks) = ([0; 2048], 0);
        loop {
            while connection.poll_event().is_some() {}
            while let Some(transmit) = connection.poll_transmit(now()) {
                socket.send_to(&transmit.datagram, transmit.to).unwrap();
            }
            if is_done(connection) {
                return;
            }
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) => connection.receive(now(), from, &buffer[..len]).unwrap(),
                Err(e) => {
                    assert!(matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{e}");
                    ticks += 1;
                    assert!(ticks < MOST_TICKS, "no answer from the server");
                    connection.handle_timeout(now()).unwrap();
                }
            }
        }
    }

    /// Lets all devices do the same, on several threads. Prints how long it takes.
    pub(crate) fn all(&self, what: &str, devices: &mut [Device], f: impl Fn(&Self, &mut Device) + Sync) {
        let begin = Instant::now();
        thread::scope(|scope| {
            for part in devices.chunks_mut(devices.len().div_ceil(THREADS)) {
                scope.spawn(|| part.iter_mut().for_each(|device| f(self, device)));
            }
        });
        println!("{what}: {:.2} s", begin.elapsed().as_secs_f64());
    }
}

pub(crate) fn devices(count: usize, tree: &Tree, spec: &TreeSpec) -> Vec<Device> {
    let device = |n: usize| {
        let [_, a, b, c] = (n as u32).to_be_bytes();
        let subject = Subject::common_name(&format!("device-{n}")).unwrap();
        let leaf = LeafSpec::client(subject, spec.validity);
        Device {
            identity: tree.intermediate.issue(&leaf, KeyPair::generate(KeyType::P256).unwrap()).unwrap(),
            cache: Arc::default(),
            host: Ipv4Addr::new(127, 1 + a, b, c).into(),
            port: 0,
            connection: None,
        }
    };
    (0..count).map(device).collect()
}

/// The resident memory of a process in kB.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_fleet_survives_a_restart_and_comes_back_by_cached_handshakes_after_a_crash() {
    let count = std::env::var("DUNLIN_FLEET").map_or(FLEET, |count| count.parse().unwrap());
    let spec = TreeSpec::new(KeyType::P256, 30).unwrap();
    let (tree, place) = (Tree::generate(&spec).unwrap(), Place::new());
    place.write("server.pem", certificates_to_pem(&tree.server.chain).unwrap());
    place.write("server.key", tree.server.key.to_pem().unwrap().as_bytes());
    place.write("root.pem", certificates_to_pem(&[tree.root.certificate().clone()]).unwrap());
    let options = format!(
        "--udp --cid 8 --cert server.pem --key server.key --CAfile root.pem --Verify --echo --num-tickets 0 \
         --cache compact --cache-store sqlite:clients.db --frozen server.frozen --frozen-store sqlite:ids.db \
         --max-connections {} --idle-timeout 0",
        2 * count
    );
    let mut devices = devices(count, &tree, &spec);
    let server = Server::new(&place, &options);
    let empty = resident(server.process.child.id());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port));
    let fleet = Fleet::new(&tree, address);
    fleet.all(&format!("{count} full handshakes"), &mut devices, Fleet::connect);
    assert!(devices.iter().all(|device| device.kind() == HandshakeKind::Full));
    let grown = resident(server.process.child.id()) - empty;
    println!("the server's memory grew by {:.2} kB for each association", grown as f64 / count as f64);

    let begin = Instant::now();
    send_signal(&server.process.child, "-TERM");
    let told = server.process.log_with("froze ");
    assert!(told.contains(&format!("froze {count} associations")), "{told}");
    assert_eq!(server.process.end().0, 0);
    println!("{told}\nthe server ended after {:.2} s", begin.elapsed().as_secs_f64());
    let bytes = std::fs::metadata(place.path("server.frozen")).unwrap().len();
    println!("the file has {bytes} bytes");
    let begin = Instant::now();
    let server = Server::at(&place, address.port(), &options);
    println!("{}the server started in {:.2} s", server.warnings, begin.elapsed().as_secs_f64());
    assert!(server.warnings.contains(&format!("thawed {count} associations")), "{}", server.warnings);
    fleet.all("a record each way on every association", &mut devices, Fleet::talk);

    // As kill -9 does. The associations are gone, and what the server's cache knows is not.
    drop(server);
    let server = Server::at(&place, address.port(), &options);
    assert!(!server.warnings.contains("thawed"), "{}", server.warnings);
    fleet.all(&format!("{count} cached handshakes after kill -9"), &mut devices, Fleet::connect);
    let both = HandshakeKind::Cached { own: true, peer: true };
    assert!(devices.iter().all(|device| device.kind() == both));
    fleet.all("a record each way on every association", &mut devices, Fleet::talk);
}
