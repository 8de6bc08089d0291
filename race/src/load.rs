//! Measures how many records of 64 bytes a DTLS server echoes in a second, with many associations. The server has one core and the
//! client the other. The client is the same for all servers: it drives Dunlin's engine over one socket, which sends from many
//! addresses of the loopback network, and keeps a number of records on the way.

use std::io::{BufRead, BufReader, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::auth::{Psk, PskTable};
use dunlin::{
    ClientConfig, ConnectionIds, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, NodeIds, Profile,
    PskSource, ServerConfig,
};
use dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES;
use dunlin_tests::{awslc, localhost};
use dunlin_tokio::{DtlsEndpoint, now};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::handshake::{PSK, PSK_IDENTITY};

/// The associations of the client, each from its own address.
const ASSOCIATIONS: usize = 10_000;
/// The bytes of data in a record.
const DATA: [u8; 64] = [7; 64];
/// The records that are on the way at one time. Their buffers in the kernel fit into a socket of the default size.
const WINDOW: usize = 128;
/// The handshakes that are in progress at one time.
const HANDSHAKES: usize = 16;
/// How long a server is measured in each round.
const TIME: Duration = Duration::from_secs(5);
const ROUNDS: usize = 3;
const MAX_DATAGRAM: usize = 65_536;

/// The servers: the name, and whether the client offers connection IDs.
const SERVERS: &[(&str, bool)] = &[
    ("dunlin, by address", false),
    ("dunlin, by connection ID", true),
    ("dunlin-tokio, by address", false),
    ("dunlin-tokio, by connection ID", true),
    ("pion, by address", false),
    ("pion, by connection ID", true),
    #[cfg(feature = "openssl")]
    ("openssl, by address", false),
];

fn profile() -> Profile {
    let is_gcm = |suite: &str| suite == "TLS_PSK_WITH_AES_128_GCM_SHA256";
    let suites = TLS12_PSK_CIPHER_SUITES.iter().copied().filter(|suite| is_gcm(&suite.id.to_string()));
    Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(suites.collect()).build().unwrap()
}

fn psk() -> Psk {
    Psk::new(PSK_IDENTITY, &PSK).unwrap()
}

fn ids() -> Arc<dyn ConnectionIds> {
    Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap())
}

/// Prints the records in a second of each server and their cost, and the ratios in the same round.
pub(crate) fn race() {
    let mut all = vec![Vec::new(); SERVERS.len()];
    for round in 0..ROUNDS {
        for turn in 0..SERVERS.len() {
            let at = (round + turn) % SERVERS.len();
            all[at].push(measure(SERVERS[at]));
        }
    }
    println!(
        "\n| server, DTLS 1.2, {ASSOCIATIONS} associations | records/s | µs of processor time each | records/s, dunlin by address / it |"
    );
    println!("| --- | ---: | ---: | ---: |");
    for (at, (name, _)) in SERVERS.iter().enumerate() {
        let value = |i: usize| median(all[at].iter().map(|values| values[i]));
        let ratio = |i: usize| median(all[0].iter().zip(&all[at]).map(|(ours, theirs)| ours[i] / theirs[i]));
        println!(
            "| {name} | {:.0} | {:.2} | {:.1} | {:.2} | {:.2} |",
            value(0),
            value(1),
            value(2),
            ratio(0),
            ratio(1)
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A process that ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on the first core and a client on the second. Returns the records in a second, and the server's processor time for
/// each in microseconds.
fn measure((name, has_ids): (&str, bool)) -> [f64; 3] {
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]);
    match name.split(',').next() {
        Some("pion") => {
            let secret: String = PSK.iter().map(|byte| format!("{byte:02x}")).collect();
            let pion = dunlin_tests::peer::build_go("pion", "/tmp/dunlin-race-pion");
            command.args([&*pion, "-role", "server", "-load", "-psk", &secret, "-identity", PSK_IDENTITY]);
            command.args(["-cid", if has_ids { "8" } else { "-1" }]).env("GOMAXPROCS", "1");
        }
        Some(kind) => {
            command.args([&*program, "load-server", kind, if has_ids { "ids" } else { "address" }]);
        }
        None => panic!("a name"),
    }
    let mut server = Server(command.stdout(Stdio::piped()).spawn().expect("taskset"));
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let line = lines.next().expect("a server").unwrap();
    let port = line.strip_prefix("listening ").unwrap_or_else(|| panic!("{name}: {line}")).to_owned();
    let id = server.0.id().to_string();
    let output = Command::new("taskset")
        .args(["-c", "1", &program, "load-client", &port, &id, if has_ids { "ids" } else { "address" }])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    let result: [f64; 3] = std::array::from_fn(|_| numbers.next().unwrap_or_else(|| panic!("{name}")));
    eprintln!(
        "{name}: {:.0} records/s, {:.2} µs each, {:.1} kB an association",
        result[0], result[1], result[2]
    );
    result
}

/// Serves until it is killed.
pub(crate) fn serve(kind: &str, has_ids: bool) {
    match kind {
        #[cfg(feature = "openssl")]
        "openssl" => serve_openssl(),
        "dunlin-tokio" => serve_tokio(server_config(has_ids)),
        _ => serve_dunlin(server_config(has_ids)),
    }
}

fn server_config(has_ids: bool) -> Arc<ServerConfig> {
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let config = ServerConfig::psk_only(profile(), keys).unwrap();
    Arc::new(if has_ids { config.with_connection_ids(ids()) } else { config })
}

/// One socket and one `Endpoint`. It receives in batches, as the others do.
fn serve_dunlin(config: Arc<ServerConfig>) {
    let mut endpoint = Endpoint::new(EndpointLimits::default());
    endpoint.set_server(Some(config));
    let mut wire = Wire::new("127.0.0.1:0");
    println!("listening {}", wire.socket.local_addr().unwrap().port());
    loop {
        let now = now();
        wire.receive(|from, _, datagram| endpoint.receive(now, from, datagram));
        if endpoint.poll_timeout().is_some_and(|deadline| deadline <= now.monotonic) {
            endpoint.handle_timeout(now);
        }
        while let Some(event) = endpoint.poll_event() {
            let EndpointEvent::Changed(id) = event else { continue };
            endpoint.update(id, |association| {
                while association.poll_event().is_some() {}
                while let Some(data) = association.read() {
                    association.send(&data).unwrap();
                }
            });
        }
        while let Some(transmit) = endpoint.poll_transmit(now) {
            let _ = wire.socket.send_to(&transmit.datagram, transmit.to);
        }
    }
}

/// Has a task for each association, as an application would.
fn serve_tokio(config: Arc<ServerConfig>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let endpoint = DtlsEndpoint::new(socket, EndpointLimits::default()).unwrap();
        endpoint.set_server(Some(config));
        println!("listening {}", endpoint.local_addr().port());
        loop {
            let incoming = endpoint.accept().await;
            tokio::spawn(async move {
                let Ok(association) = incoming.accept().await else { return };
                while let Ok(Some(data)) = association.recv().await {
                    if association.send(&data).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// The datagrams of one association in memory, one for each read or write.
#[cfg(feature = "openssl")]
#[derive(Clone, Default)]
struct Memory(std::rc::Rc<std::cell::RefCell<(Option<Vec<u8>>, Vec<Vec<u8>>)>>);

#[cfg(feature = "openssl")]
impl std::io::Read for Memory {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self.0.borrow_mut().0.take() {
            Some(datagram) => std::io::Read::read(&mut &datagram[..], buf),
            None => Err(std::io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[cfg(feature = "openssl")]
impl std::io::Write for Memory {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().1.push(buf.to_vec());
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One socket, and an `SSL` for each address. It receives in batches, as the others do.
#[cfg(feature = "openssl")]
fn serve_openssl() {
    use openssl::ssl::{Ssl, SslContext, SslMethod, SslMode, SslStream, SslVersion};
    let mut builder = SslContext::builder(SslMethod::dtls()).unwrap();
    builder.set_min_proto_version(Some(SslVersion::DTLS1_2)).unwrap();
    builder.set_cipher_list("PSK-AES128-GCM-SHA256").unwrap();
    builder.set_mode(SslMode::RELEASE_BUFFERS);
    builder.set_psk_server_callback(|_, identity, key| {
        if identity != Some(PSK_IDENTITY.as_bytes()) {
            return Ok(0);
        }
        key[..PSK.len()].copy_from_slice(&PSK);
        Ok(PSK.len())
    });
    let context = builder.build();
    let mut wire = Wire::new("127.0.0.1:0");
    println!("listening {}", wire.socket.local_addr().unwrap().port());
    let mut associations: std::collections::HashMap<SocketAddr, (Memory, SslStream<Memory>)> =
        Default::default();
    let mut buffer = [0; 2048];
    let (mut received, mut out) = (Vec::new(), Vec::new());
    loop {
        wire.receive(|from, _, datagram| received.push((from, datagram.to_vec())));
        for (from, datagram) in received.drain(..) {
            let (memory, stream) = associations.entry(from).or_insert_with(|| {
                let memory = Memory::default();
                let mut ssl = Ssl::new(&context).unwrap();
                ssl.set_accept_state();
                ssl.set_mtu(1400).unwrap();
                (memory.clone(), SslStream::new(ssl, memory).unwrap())
            });
            memory.0.borrow_mut().0 = Some(datagram);
            if !stream.ssl().is_init_finished() {
                let _ = stream.do_handshake();
            } else {
                while let Ok(len) = stream.ssl_read(&mut buffer) {
                    stream.ssl_write(&buffer[..len]).unwrap();
                }
            }
            out.extend(memory.0.borrow_mut().1.drain(..).map(|datagram| (from, datagram)));
        }
        for (to, datagram) in out.drain(..) {
            let _ = wire.socket.send_to(&datagram, to);
        }
    }
}

/// A socket that receives in batches.
struct Wire {
    socket: UdpSocket,
    batches: UdpSocketState,
    buffer: Vec<u8>,
}

impl Wire {
    fn new(address: &str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        let batches = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
        Self { socket, batches, buffer: vec![0; BATCH_SIZE * MAX_DATAGRAM] }
    }

    /// Receives what is there: the sender, this side's address, the datagram. Waits up to 10 ms for a first one.
    fn receive(&mut self, mut f: impl FnMut(SocketAddr, Option<IpAddr>, &[u8])) -> bool {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut parts = self.buffer.chunks_mut(MAX_DATAGRAM);
        let mut slices: [_; BATCH_SIZE] = std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap()));
        let Ok(count) = self.batches.recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas) else {
            let mut readable = [PollFd::new(&self.socket, PollFlags::IN)];
            let _ = poll(&mut readable, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
            return false;
        };
        for (meta, bytes) in metas[..count].iter().zip(self.buffer.chunks(MAX_DATAGRAM)) {
            bytes[..meta.len].chunks(meta.stride.max(1)).for_each(|bytes| f(meta.addr, meta.dst_ip, bytes));
        }
        true
    }
}

/// The client: its associations, and the records on the way.
struct Client {
    wire: Wire,
    server: SocketAddr,
    associations: Vec<DtlsConnection>,
}

/// The address of an association on the loopback network.
fn address(at: usize) -> IpAddr {
    let [_, a, b, c] = (at as u32).to_be_bytes();
    Ipv4Addr::new(127, 1 + a, b, c).into()
}

fn index(address: IpAddr) -> usize {
    let IpAddr::V4(address) = address else { panic!("{address}") };
    let [_, a, b, c] = address.octets();
    u32::from_be_bytes([0, a - 1, b, c]) as usize
}

impl Client {
    /// Sends what an association has to send.
    fn flush(&mut self, at: usize) {
        while let Some(transmit) = self.associations[at].poll_transmit(now()) {
            let sent = Transmit {
                destination: self.server,
                ecn: None,
                contents: &transmit.datagram,
                segment_size: None,
                src_ip: Some(address(at)),
            };
            while self.wire.batches.try_send(UdpSockRef::from(&self.wire.socket), &sent).is_err() {
                std::thread::yield_now();
            }
        }
    }

    /// Receives what is there. Returns the associations that got something.
    fn receive(&mut self) -> Vec<usize> {
        let Self { wire, server, associations } = self;
        let mut got = Vec::new();
        wire.receive(|_, to, datagram| {
            let at = index(to.expect("the kernel names the destination"));
            associations[at].receive(now(), *server, datagram).unwrap();
            got.push(at);
        });
        got
    }

    fn connect(&mut self, config: &Arc<ClientConfig>) {
        let (mut open, mut checked) = (Vec::new(), Instant::now());
        while self.associations.len() < ASSOCIATIONS || !open.is_empty() {
            while open.len() < HANDSHAKES && self.associations.len() < ASSOCIATIONS {
                open.push(self.associations.len());
                let client = DtlsConnection::client(config, localhost(), self.server, now()).unwrap();
                self.associations.push(client);
                self.flush(self.associations.len() - 1);
            }
            self.receive().into_iter().for_each(|at| self.flush(at));
            open.retain(|at| self.associations[*at].is_handshaking());
            if checked.elapsed() > Duration::from_millis(100) {
                checked = Instant::now();
                for at in open.clone() {
                    self.associations[at].handle_timeout(now()).unwrap();
                    self.flush(at);
                }
            }
        }
    }

    fn send(&mut self, at: usize) {
        self.associations[at].send(&DATA).unwrap();
        self.flush(at);
    }

    /// Echoes for this time. Returns the number of echoes.
    fn echo(&mut self, time: Duration) -> usize {
        let (begin, mut heard) = (Instant::now(), Instant::now());
        let (mut next, mut echoes, mut away) = (0, 0, 0);
        while begin.elapsed() < time {
            // Lost records leave the window.
            if heard.elapsed() > Duration::from_millis(50) {
                (away, heard) = (0, Instant::now());
            }
            while away < WINDOW {
                self.send(next);
                next = (next + 1) % ASSOCIATIONS;
                away += 1;
            }
            for at in self.receive() {
                while let Some(data) = self.associations[at].read() {
                    assert_eq!(data, DATA);
                    echoes += 1;
                    away = away.saturating_sub(1);
                    heard = Instant::now();
                }
            }
        }
        echoes
    }
}

/// Connects to the server with this port and process, and prints records in a second, and the server's microseconds for each.
pub(crate) fn load(port: &str, server: &str, has_ids: bool) {
    let mut config = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]);
    if has_ids {
        config = config.with_connection_ids(ids());
    }
    let server_address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port.parse().unwrap());
    let mut client =
        Client { wire: Wire::new("0.0.0.0:0"), server: server_address, associations: Vec::new() };
    let empty = resident(server);
    client.connect(&Arc::new(config));
    client.echo(Duration::from_secs(1));
    let (begin, before) = (Instant::now(), processor_ticks(server));
    let echoes = client.echo(TIME) as f64;
    let ticks = processor_ticks(server) - before;
    let rate = echoes / begin.elapsed().as_secs_f64();
    // USER_HZ is 100 on Linux.
    let cost = ticks * 10_000.0 / echoes;
    println!("{rate} {cost} {}", (resident(server) - empty) / ASSOCIATIONS as f64);
}

/// The resident memory of a process, in kB.
fn resident(process: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The processor time of a process so far, in ticks of the kernel's clock.
fn processor_ticks(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
}
