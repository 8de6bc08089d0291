//! A race in memory, on one thread: dunlin and rustls, both over AWS-LC, take turns, and the ratios are dunlin's time
//! over that of rustls.
//!
//! ```sh
//! cargo bench -p dunlin-tests --bench race                  # the table
//! cargo bench -p dunlin-tests --bench race -- --json        # a JSON object a line
//! cargo bench -p dunlin-tests --bench race -- --count full-p256 dunlin 20    # nothing but 20 handshakes, to count instructions
//! ```
//!
//! Mutual TLS 1.3, chain of three of which leaf and intermediate are sent, key share on P-256, AES-128-GCM-SHA256. The time
//! of a side is all that it takes from the making of its connection on, key share included. Bulk data goes in records of
//! 16 KiB, one way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench may fail")]

use std::alloc::System;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cap::Cap;
use dunlin::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use dunlin::resume::Tickets;
use dunlin::{ClientAuth, ClientConfig, Profile, ServerConfig, TlsConnection, Trust};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tests::peer::now;
use dunlin_tests::{KeyType, Leaf, Pki, awslc, localhost};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};

/// Counts what is allocated.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// A round measures each side so long at least.
const ROUND: Duration = Duration::from_millis(100);
const ROUNDS: usize = 15;
const RECORD: usize = 16 * 1024;

/// One end of a connection.
trait End {
    /// Takes all of `bytes`; gives how many bytes of data came.
    fn take(&mut self, bytes: &[u8]) -> usize;
    /// Moves what it has to send to `out`.
    fn give(&mut self, out: &mut Vec<u8>);
    /// Seals data.
    fn send(&mut self, data: &[u8]);
    fn is_connected(&self) -> bool;
    fn is_resumed(&self) -> bool;
}

impl End for TlsConnection {
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let (now, mut came) = (now(), 0);
        while !bytes.is_empty() {
            let taken = self.receive(now, bytes).unwrap();
            bytes = &bytes[taken..];
            while !self.received().is_empty() {
                let n = std::hint::black_box(self.received()).len();
                came += n;
                self.consume(now, n).unwrap();
            }
        }
        came
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.transmit());
        let n = self.transmit().len();
        self.transmitted(n);
    }

    fn send(&mut self, data: &[u8]) {
        assert_eq!(Self::send(self, data).unwrap(), data.len());
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }

    fn is_resumed(&self) -> bool {
        self.negotiated().unwrap().resumed
    }
}

impl End for rustls::Connection {
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let mut came = 0;
        while !bytes.is_empty() {
            self.read_tls(&mut bytes).unwrap();
            if self.process_new_packets().unwrap().plaintext_bytes_to_read() > 0 {
                let mut reader = self.reader();
                while let Ok(n @ 1..) = reader.fill_buf().map(|data| std::hint::black_box(data).len()) {
                    came += n;
                    reader.consume(n);
                }
            }
        }
        came
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        while self.wants_write() {
            self.write_tls(out).unwrap();
        }
    }

    fn send(&mut self, data: &[u8]) {
        self.writer().write_all(data).unwrap();
    }

    fn is_connected(&self) -> bool {
        !self.is_handshaking()
    }

    fn is_resumed(&self) -> bool {
        self.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }
}

/// A way to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Full(KeyType),
    Resumed,
}

const HANDSHAKES: [(&str, Handshake); 4] = [
    ("full-p256", Handshake::Full(KeyType::P256)),
    ("full-rsa2048", Handshake::Full(KeyType::Rsa2048)),
    ("full-ed25519", Handshake::Full(KeyType::Ed25519)),
    ("resumed", Handshake::Resumed),
];

/// What makes connections.
struct Stack {
    client: Box<dyn Fn() -> Box<dyn End>>,
    server: Box<dyn Fn() -> Box<dyn End>>,
    resumed: bool,
}

impl Handshake {
    const fn keys(self) -> KeyType {
        match self {
            Self::Full(typ) => typ,
            Self::Resumed => KeyType::P256,
        }
    }

    fn stack(self, name: &str) -> Stack {
        let resumed = self == Self::Resumed;
        let (client, server) =
            if name == "dunlin" { dunlin(self.keys(), resumed) } else { rustls(self.keys(), resumed) };
        let stack = Stack { client, server, resumed };
        if resumed {
            // The first ticket.
            Stack { resumed: false, ..stack }.again()
        } else {
            stack
        }
    }
}

impl Stack {
    /// Connects once, for the ticket.
    fn again(self) -> Self {
        self.connect();
        Self { resumed: true, ..self }
    }

    /// Connects; how long client and server took.
    fn connect(&self) -> ([Duration; 2], Box<dyn End>, Box<dyn End>) {
        let mut times = [Duration::ZERO; 2];
        let (mut client, mut server) = {
            let start = Instant::now();
            let client = (self.client)();
            times[0] += start.elapsed();
            let start = Instant::now();
            let server = (self.server)();
            times[1] += start.elapsed();
            (client, server)
        };
        let mut wire = Vec::with_capacity(RECORD);
        for turn in 0.. {
            let (at, end) = if turn % 2 == 0 { (0, &mut client) } else { (1, &mut server) };
            let start = Instant::now();
            end.take(&wire);
            wire.clear();
            end.give(&mut wire);
            times[at] += start.elapsed();
            if wire.is_empty() && turn > 0 {
                break;
            }
        }
        assert!(client.is_connected() && server.is_connected());
        assert_eq!((client.is_resumed(), server.is_resumed()), (self.resumed, self.resumed));
        (times, client, server)
    }

    /// The time of client and server for a handshake, over a round.
    fn round(&self) -> [f64; 2] {
        let (mut times, mut count) = ([Duration::ZERO; 2], 0);
        while times[0] < ROUND || times[1] < ROUND {
            let (took, ..) = self.connect();
            times[0] += took[0];
            times[1] += took[1];
            count += 1;
        }
        times.map(|time| time.as_secs_f64() * 1e6 / f64::from(count))
    }

    /// Microseconds for a record, sealed and opened, over a round.
    fn bulk(&self) -> [f64; 2] {
        let (_, mut client, mut server) = self.connect();
        let data = vec![7; RECORD];
        let mut wire = Vec::with_capacity(2 * RECORD);
        let (mut times, mut count) = ([Duration::ZERO; 2], 0);
        while times[0] < ROUND || times[1] < ROUND {
            wire.clear();
            let start = Instant::now();
            client.send(&data);
            client.give(&mut wire);
            times[0] += start.elapsed();
            let start = Instant::now();
            let came = server.take(&wire);
            times[1] += start.elapsed();
            assert_eq!(came, RECORD);
            count += 1;
        }
        times.map(|time| time.as_secs_f64() * 1e6 / f64::from(count))
    }

    /// The heap that an idle client and server have, in bytes.
    fn heap(&self) -> [f64; 2] {
        const CONNECTIONS: usize = 200;
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let (_, client, server) = self.connect();
            clients.push(client);
            servers.push(server);
        }
        [clients, servers].map(|mut ends| {
            let before = ALLOCATOR.allocated();
            ends.clear();
            before.saturating_sub(ALLOCATOR.allocated()) as f64 / CONNECTIONS as f64
        })
    }
}

type Maker = Box<dyn Fn() -> Box<dyn End>>;

fn dunlin(typ: KeyType, resumed: bool) -> (Maker, Maker) {
    let pki = Pki::shared(typ);
    let profile = |leaf: &Leaf| {
        Profile::builder(awslc())
            .cipher_suites(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256])
            .groups(vec![dunlin_awslc::SECP256R1])
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![leaf.x509(&awslc())])
            .build()
            .unwrap()
    };
    let client = ClientConfig::new(profile(&pki.client));
    let server =
        ServerConfig::new(profile(&pki.server)).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let (client, server) = match resumed {
        true => (
            client.with_sessions(Arc::new(MemoryClientSessions::new(1, 1))),
            server.with_tickets(Tickets::stateful(Arc::new(MemoryServerSessions::new(16)))),
        ),
        false => (client, server),
    };
    let (client, server) = (Arc::new(client), Arc::new(server));
    (
        Box::new(move || Box::new(TlsConnection::client(&client, localhost(), now()).unwrap())),
        Box::new(move || Box::new(TlsConnection::server(&server, now()))),
    )
}

fn rustls(typ: KeyType, resumed: bool) -> (Maker, Maker) {
    let pki = Pki::shared(typ);
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![kx_group::SECP256R1],
        ..aws_lc_rs::default_provider()
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pki.root.clone()).unwrap();
    let roots = Arc::new(roots);
    let key = |leaf: &Leaf| PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.key.clone()));
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(pki.server.chain.clone(), key(&pki.server))
        .unwrap();
    server.send_tls13_tickets = usize::from(resumed);
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(pki.client.chain.clone(), key(&pki.client))
        .unwrap();
    if !resumed {
        client.resumption = rustls::client::Resumption::disabled();
    }
    let (client, server) = (Arc::new(client), Arc::new(server));
    let name = ServerName::try_from("localhost").unwrap();
    (
        Box::new(move || {
            let connection = rustls::ClientConnection::new(client.clone(), name.clone()).unwrap();
            Box::new(rustls::Connection::from(connection))
        }),
        Box::new(move || {
            Box::new(rustls::Connection::from(rustls::ServerConnection::new(server.clone()).unwrap()))
        }),
    )
}

/// A line of the table: the medians, and the median of the ratios of each round.
struct Line {
    what: String,
    unit: &'static str,
    ours: f64,
    theirs: f64,
    ratio: f64,
}

impl Line {
    fn new(what: String, unit: &'static str, pairs: &[(f64, f64)]) -> Self {
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            what,
            unit,
            ours: median(pairs.iter().map(|(ours, _)| *ours).collect()),
            theirs: median(pairs.iter().map(|(_, theirs)| *theirs).collect()),
            ratio: median(pairs.iter().map(|(ours, theirs)| ours / theirs).collect()),
        }
    }

    fn print(&self, json: bool) {
        let Self { what, unit, ours, theirs, ratio } = self;
        match json {
            true => println!(
                r#"{{"what":"{what}","dunlin_{unit}":{ours:.3},"rustls_{unit}":{theirs:.3},"ratio":{ratio:.4}}}"#
            ),
            false => println!("{what:<28} {ours:>12.2} {theirs:>12.2} {unit:<6} {ratio:>7.3}"),
        }
    }
}

/// Rounds of both stacks in turn.
fn race(what: &str, unit: &'static str, sides: [&str; 2], json: bool, measure: impl Fn(&str) -> [f64; 2]) {
    let mut pairs = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let (ours, theirs) = (measure("dunlin"), measure("rustls"));
        for (side, pairs) in pairs.iter_mut().enumerate() {
            pairs.push((ours[side], theirs[side]));
        }
    }
    for (side, pairs) in sides.iter().zip(&pairs) {
        Line::new(format!("{what} {side}"), unit, pairs).print(json);
    }
}

fn main() {
    // `cargo bench` adds --bench.
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    if let ["--count", handshake, stack, count] = args[..] {
        let (_, handshake) =
            HANDSHAKES.iter().find(|(name, _)| *name == handshake).expect("a handshake of the table");
        let stack = handshake.stack(stack);
        (0..count.parse().expect("a number")).for_each(|_| drop(stack.connect()));
        return;
    }
    let json = args == ["--json"];
    if !json {
        println!("{:<28} {:>12} {:>12} {:<6} {:>7}", "", "dunlin", "rustls", "", "ratio");
    }
    for (name, handshake) in HANDSHAKES {
        let stacks = ["dunlin", "rustls"].map(|name| (name, handshake.stack(name)));
        let of = |name: &str| &stacks.iter().find(|(stack, _)| *stack == name).expect("a stack").1;
        race(name, "us", ["client", "server"], json, |stack| of(stack).round());
        if handshake == Handshake::Full(KeyType::P256) {
            race("record of 16 KiB", "us", ["seal", "open"], json, |stack| of(stack).bulk());
            race("heap of an idle", "bytes", ["client", "server"], json, |stack| of(stack).heap());
        }
    }
}
