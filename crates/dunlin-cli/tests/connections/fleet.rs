//! A server with many associations: over a planned restart, and back by cached handshakes after the server
//! was killed. `make soak` runs it with 100,000 (`DUNLIN_FLEET`) and prints how long each step takes.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
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

use crate::peers::Server;
use dunlin_tests::place::{Place, send_signal};

/// The number of associations, unless `DUNLIN_FLEET` has another.
const FLEET: usize = 12;

/// The threads of the client process.
const THREADS: usize = 16;

/// How long a device waits for an answer before it looks at its timers.
const TICK: Duration = Duration::from_millis(200);

/// How long a device that sends all the time waits for one echo.
const SILENCE: Duration = Duration::from_millis(20);

/// The kind of a handshake in which neither side sends its certificates.
pub(crate) const CACHED: HandshakeKind = HandshakeKind::Cached { own: true, peer: true };

/// The steps that a device takes before its test has failed.
const MOST_TICKS: u32 = 300;

/// A port for a device. A device binds its port again after a pause, so it is not one of those that Linux
/// chooses for sockets of others, which may be bound to all addresses.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000
}

/// The socket of a device. Another process may have its port for a moment.
fn bind(device: &Device) -> UdpSocket {
    let mut left = 50;
    loop {
        match UdpSocket::bind((device.host, device.port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && left > 0 => left -= 1,
            bound => return bound.unwrap(),
        }
        thread::sleep(TICK);
    }
}

/// A device at an address of the loopback network of its own.
pub(crate) struct Device {
    identity: Identity,
    cache: Arc<MemoryClientCache>,
    host: IpAddr,
    /// Its socket is open only while it talks: 100,000 of them would be too many.
    port: u16,
    connection: Option<DtlsConnection>,
    /// The number of its latest record.
    sent: u32,
}

impl Device {
    /// Its address.
    pub(crate) fn host(&self) -> IpAddr {
        self.host
    }

    /// Forgets its association without a word to the server, and gets an address of another network.
    pub(crate) fn lose_power(&mut self) {
        self.connection = None;
        if let IpAddr::V4(host) = self.host {
            let [loopback, a, b, c] = host.octets();
            self.host = Ipv4Addr::new(loopback, a ^ 0x80, b, c).into();
        }
    }

    /// The kind of its latest handshake.
    pub(crate) fn kind(&self) -> HandshakeKind {
        self.connection.as_ref().unwrap().negotiated().unwrap().kind
    }
}

/// The parameters that all devices have in common.
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

    /// The name under which the devices know their server.
    pub(crate) fn name(&self) -> ServerAddress {
        self.name.clone()
    }

    /// The same devices, for which another server has the same name now.
    pub(crate) fn led_to(self, server: SocketAddr) -> Self {
        Self { server, ..self }
    }

    /// The configuration of a client with this device's certificate and cache.
    pub(crate) fn config(&self, device: &Device) -> Arc<ClientConfig> {
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
        device.port = next_port();
        let socket = bind(device);
        let config = self.config(device);
        let name = self.name.clone();
        let mut connection = DtlsConnection::client(&config, name, self.server, now()).unwrap();
        let is_done = |connection: &mut DtlsConnection| !connection.is_handshaking();
        assert!(self.carry(&socket, &mut connection, (TICK, MOST_TICKS), is_done), "no handshake");
        device.connection = Some(connection);
        assert!(self.echo(&socket, device, (TICK, MOST_TICKS)), "no answer after the handshake");
    }

    /// Data both ways on the association that the device has.
    pub(crate) fn talk(&self, device: &mut Device) {
        let socket = bind(device);
        assert!(self.echo(&socket, device, (TICK, MOST_TICKS)), "no answer from the server");
    }

    /// Sends a record. Returns whether its echo has come within `SILENCE`.
    fn try_talk(&self, device: &mut Device) -> bool {
        let socket = bind(device);
        self.echo(&socket, device, (SILENCE, 1))
    }

    /// Sends a record with the next number, and waits for its echo. Echoes of earlier records may come first.
    fn echo(&self, socket: &UdpSocket, device: &mut Device, patience: (Duration, u32)) -> bool {
        device.sent += 1;
        let record = device.sent.to_be_bytes();
        let connection = device.connection.as_mut().unwrap();
        connection.send(&record).unwrap();
        self.carry(socket, connection, patience, |connection| {
            std::iter::from_fn(|| connection.read()).any(|echoed| echoed[..] == record)
        })
    }

    /// Carries datagrams until `is_done`, or until nothing has come so often for so long. Returns whether it
    /// is done.
    fn carry(
        &self,
        socket: &UdpSocket,
        connection: &mut DtlsConnection,
        (tick, most): (Duration, u32),
        mut is_done: impl FnMut(&mut DtlsConnection) -> bool,
    ) -> bool {
        socket.set_read_timeout(Some(tick)).unwrap();
        let mut buffer = [0; 2048];
        let mut ticks = 0;
        loop {
            while connection.poll_event().is_some() {}
            while let Some(transmit) = connection.poll_transmit(now()) {
                socket.send_to(&transmit.datagram, transmit.to).unwrap();
            }
            if is_done(connection) {
                return true;
            }
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) => connection.receive(now(), from, &buffer[..len]).unwrap(),
                Err(e) => {
                    assert!(matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{e}");
                    ticks += 1;
                    if ticks == most {
                        return false;
                    }
                    connection.handle_timeout(now()).unwrap();
                }
            }
        }
    }

    /// Lets all devices send, one round after the other, while `meanwhile` runs, and one round after it.
    /// Prints how many records had an echo.
    pub(crate) fn talk_during(&self, what: &str, devices: &mut [Device], meanwhile: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        let rounds = [AtomicUsize::new(0), AtomicUsize::new(0)];
        thread::scope(|scope| {
            for part in devices.chunks_mut(devices.len().div_ceil(THREADS)) {
                scope.spawn(|| {
                    let mut is_last = false;
                    while !is_last {
                        is_last = is_over.load(Ordering::SeqCst);
                        for device in part.iter_mut() {
                            rounds[usize::from(self.try_talk(device))].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let _end = OnDrop(&is_over);
            meanwhile();
        });
        let [lost, echoed] = rounds.map(AtomicUsize::into_inner);
        println!("{what}: {echoed} records with an echo, {lost} without one");
        assert!(echoed > 0, "no traffic");
    }

    /// Lets all devices send while `kill` ends their server. A device that gets no echo after that connects
    /// with the server at `other`. Returns how many came back by cached handshakes.
    pub(crate) fn come_back(&self, devices: &mut [Device], other: &Self, kill: impl FnOnce()) -> usize {
        let is_dead = AtomicBool::new(false);
        let cached = AtomicUsize::new(0);
        thread::scope(|scope| {
            for part in devices.chunks_mut(devices.len().div_ceil(THREADS)) {
                scope.spawn(|| {
                    let mut gone: Vec<_> = part.iter_mut().collect();
                    while !gone.is_empty() {
                        gone.retain_mut(|device| {
                            if self.try_talk(device) || !is_dead.load(Ordering::SeqCst) {
                                return true;
                            }
                            other.connect(device);
                            cached.fetch_add(usize::from(device.kind() == CACHED), Ordering::Relaxed);
                            false
                        });
                    }
                });
            }
            let _end = OnDrop(&is_dead);
            kill();
        });
        cached.into_inner()
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

/// Becomes true when this is dropped, also by a panic.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The number of devices: `DUNLIN_FLEET`, or a small one.
pub(crate) fn fleet_size() -> usize {
    std::env::var("DUNLIN_FLEET").map_or(FLEET, |count| count.parse().unwrap())
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
            sent: 0,
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
    let count = fleet_size();
    let spec = TreeSpec::new(KeyType::P256, 30).unwrap();
    let tree = Tree::generate(&spec).unwrap();
    let place = Place::new();
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

    // As kill -9 does. The associations are lost; the server's cache is not.
    drop(server);
    let server = Server::at(&place, address.port(), &options);
    assert!(!server.warnings.contains("thawed"), "{}", server.warnings);
    fleet.all(&format!("{count} cached handshakes after kill -9"), &mut devices, Fleet::connect);
    assert!(devices.iter().all(|device| device.kind() == CACHED));
    fleet.all("a record each way on every association", &mut devices, Fleet::talk);
}
