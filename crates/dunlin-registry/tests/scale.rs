//! Grows a registry and asks it over HTTPS, with 64 connections that stay open. It checks answers and proofs,
//! and prints what they cost; it checks no time. In the environment:
//!
//! - DUNLIN_DIDS: the number of DIDs at the end (200). The registry is measured at every power of ten from
//!   100 on, up to this number.
//! - DUNLIN_SERVED: how many DIDs the registry behind HTTPS has (200).
//! - DUNLIN_REQUESTS: how many operations the clients then submit, and ten times as many resolutions (128).
//! - DUNLIN_SCALE: the directory of the databases, on the disk to measure [default: the system's temporary
//!   directory].
//!
//! `make soak` runs it large. Measure with `--release`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use base64ct::{Base64, Encoding};
use common::{Holder, ORIGIN, key};
use dunlin::auth::{Credential, X509Trust};
use dunlin::crypto::CryptoProvider;
use dunlin::{ClientConfig, Profile, ServerAddress, ServerConfig, Trust};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::transparency::{Hasher, MAX_STATE_PROOF, RegistryTrust, StateProof, map_key};
use dunlin_identity::{Did, Sha256Hash};
use dunlin_pki::{Item, KeyType, Tree, TreeSpec, certificates_to_pem};
use dunlin_registry::audit::{Log, audit};
use dunlin_registry::server::{Limits, serve};
use dunlin_registry::{Registry, Settings};
use dunlin_tokio::{TlsAcceptor, TlsConnector};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

/// The path of the database, for the process that serves it.
const SERVER: &str = "DUNLIN_SCALE_SERVER";

/// How many connections the clients keep open.
const CONNECTIONS: usize = 64;

/// How many DIDs are sampled at each size.
const SAMPLES: u64 = 1000;

/// An audit keeps all documents in memory.
const MAX_AUDITED: u64 = 100_000;

/// How many operations each thread that signs lets wait for the disk.
const AHEAD: usize = 64;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(dunlin_awslc::provider())
}

fn settings() -> Settings {
    let provider = provider();
    let key = key(&provider, [1, 2, 3]);
    Settings::new(provider, ORIGIN, key)
}

fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

fn creation(provider: &Arc<CryptoProvider>, number: u64) -> Operation {
    Holder::new(provider, [7, number]).next()
}

/// Creates the DIDs with these numbers.
fn grow(registry: &Registry, from: u64, to: u64) {
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get()) as u64;
    std::thread::scope(|scope| {
        for first in from..(from + threads).min(to) {
            scope.spawn(move || {
                let (provider, (answer, answered)) = (provider(), channel::<bool>());
                let step = usize::try_from(threads).unwrap();
                for (sent, number) in (first..to).step_by(step).enumerate() {
                    let operation = creation(&provider, number);
                    let answer = answer.clone();
                    if sent >= AHEAD {
                        assert!(answered.recv().unwrap());
                    }
                    let told = move |result: Result<_, _>| answer.send(result.is_ok()).unwrap();
                    registry.submit_then(operation, told).unwrap();
                }
                drop(answer);
                assert!(answered.iter().all(|accepted| accepted));
            });
        }
    });
}

/// The DIDs with some numbers below `size`, spread over all.
fn sample(size: u64) -> Vec<Did> {
    let provider = provider();
    let count = SAMPLES.min(size);
    (0..count).map(|place| creation(&provider, place * size / count).did().clone()).collect()
}

/// The median and the 99th percentile.
fn percentiles(mut times: Vec<Duration>) -> [Duration; 2] {
    times.sort_unstable();
    [50, 99].map(|percent| times[(times.len() - 1) * percent / 100])
}

fn micros(time: Duration) -> String {
    format!("{:.0} µs", time.as_secs_f64() * 1e6)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// The memory of this process, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn mean(values: &[usize]) -> usize {
    values.iter().sum::<usize>() / values.len()
}

/// Grows a registry, and says what a DID costs at each size.
fn growth(directory: &Path, dids: u64) {
    let path = directory.join("growth");
    let settings = settings();
    let provider = &settings.provider;
    Registry::create(&path, &settings).unwrap();
    println!(
        "| DIDs | proof, mean | largest | proof of absence, mean | staple, mean | resolved, median | 99 % | staple verified, \
         median | disk per DID | memory of the process | opened in |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    let mut from = 0;
    let sizes = (2..).map(|power| 10_u64.pow(power)).take_while(|size| *size < dids).chain([dids]);
    for size in sizes {
        let registry = Registry::open(&path, &settings).unwrap();
        grow(&registry, from, size);
        from = size;
        assert_eq!(registry.snapshot().map().len(), size);
        drop(registry);
        let begin = Instant::now();
        let registry = Registry::open(&path, &settings).unwrap();
        let opened = begin.elapsed();
        let [log, witness] = registry.keys().clone();
        let trust = RegistryTrust::new(log.clone(), vec![witness]).unwrap();
        let mut proofs = vec![];
        let mut staples = vec![];
        let mut resolved = vec![];
        let mut verified = vec![];
        for did in sample(size) {
            let begin = Instant::now();
            let staple = registry.resolve(&did).unwrap().staple().unwrap();
            let bytes = staple.write().unwrap();
            resolved.push(begin.elapsed());
            let begin = Instant::now();
            let found = staple.verify(provider, &did, &trust, None, now_s()).unwrap();
            verified.push(begin.elapsed());
            assert_eq!(found.document.id(), &did);
            proofs.push(staple.proof.len());
            staples.push(bytes.len());
        }
        let snapshot = registry.snapshot();
        let hasher = Hasher(provider.sha256);
        let absent: Vec<_> = (0..SAMPLES)
            .map(|number| {
                let key = Sha256Hash::of(provider, &number.to_be_bytes()).unwrap();
                let proof = snapshot.prove(&key);
                proof.verify_absence(hasher, &key, snapshot.checkpoint().checkpoint()).unwrap();
                proof.write().len()
            })
            .collect();
        let largest = proofs.iter().chain(&absent).max().unwrap();
        assert!(*largest <= MAX_STATE_PROOF);
        let [resolved, slow] = percentiles(resolved);
        let [verified, _] = percentiles(verified);
        println!(
            "| {size} | {} B | {largest} B | {} B | {} B | {} | {} | {} | {} B | {} MB | {:.2} s |",
            mean(&proofs),
            mean(&absent),
            mean(&staples),
            micros(resolved),
            micros(slow),
            micros(verified),
            registry.size_on_disk().unwrap() / size,
            memory() / 1_000_000,
            opened.as_secs_f64(),
        );
        drop(registry);
        if size <= MAX_AUDITED {
            assert_eq!(
                audit(provider, &path, Log::Signed(std::slice::from_ref(&log)), &[]).unwrap().dids,
                size
            );
        }
    }
}

/// Serves the registry at this path until its input ends. Says its port.
fn server(path: &Path) {
    let provider = provider();
    let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 1).unwrap()).unwrap();
    let key = tree.server.key.signing_key(&provider).unwrap();
    let profile =
        Profile::builder(provider).credentials(vec![Credential::x509(tree.server.chain.clone(), key)]);
    let acceptor = TlsAcceptor::new(Arc::new(ServerConfig::new(profile.build().unwrap()).unwrap()));
    std::fs::write(root_of(path), certificates_to_pem(tree.root.chain()).unwrap()).unwrap();
    let registry = Arc::new(Registry::open(path, &settings()).unwrap());
    let limits = Limits {
        writes_per_minute: u32::MAX,
        write_burst: u32::MAX,
        all_writes_per_minute: u32::MAX,
        database: u64::MAX,
        ..Limits::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", socket.local_addr().unwrap().port());
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let _ = ended.send(());
        });
        serve(registry, socket, acceptor, limits, async { drop(end.await) }).await.unwrap();
    });
}

/// The file with the root of the server's certificate.
fn root_of(path: &Path) -> PathBuf {
    path.with_extension("pem")
}

/// A process that serves, and the configuration of its clients.
struct Served {
    child: Child,
    port: u16,
    config: Arc<ClientConfig>,
}

impl Served {
    fn start(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child =
            command.env(SERVER, path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let root = dunlin_pki::parse(&std::fs::read(root_of(path)).unwrap()).unwrap();
        let roots = root.into_iter().filter_map(|item| match item {
            Item::Certificate(der) => Some(der),
            _ => None,
        });
        let trust = X509Trust::anchors(roots).unwrap();
        let profile = Profile::builder(provider()).trust(Trust { x509: Some(trust), raw_key: None });
        let config = Arc::new(ClientConfig::new(profile.build().unwrap()));
        Self { child, port: line.trim_end().parse().unwrap(), config }
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerAddress::parse("localhost", self.port).unwrap();
        let tls = TlsConnector::new(Arc::clone(&self.config)).connect(tcp, name).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The end of its input ends the server.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Sends `count` requests over all connections, each after the answer to the previous one of its connection.
/// `check` looks at every 100th answer; all others must have succeeded.
fn load(
    served: &Served,
    what: &str,
    count: usize,
    request: impl Fn(usize) -> Request<Full<Bytes>> + Send + Sync + 'static,
    check: impl Fn(usize, &[u8]) + Send + Sync + 'static,
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = Arc::new(AtomicUsize::new(0));
    let times = Arc::new(Mutex::new(Vec::new()));
    let request = Arc::new(request);
    let check = Arc::new(check);
    let took = runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(served.connect().await);
        }
        let begin = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for mut connection in connections {
            let next = Arc::clone(&next);
            let times = Arc::clone(&times);
            let request = Arc::clone(&request);
            let check = Arc::clone(&check);
            tasks.spawn(async move {
                let mut own = Vec::new();
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= count {
                        break;
                    }
                    let request = request(place);
                    let begin = Instant::now();
                    let answer = connection.send_request(request).await.unwrap();
                    let status = answer.status();
                    let body = answer.into_body().collect().await.unwrap().to_bytes();
                    own.push(begin.elapsed());
                    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
                    if place.is_multiple_of(100) {
                        check(place, &body);
                    }
                }
                times.lock().unwrap().extend(own);
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        begin.elapsed()
    });
    let times = std::mem::take(&mut *times.lock().unwrap());
    assert_eq!(times.len(), count);
    let [median, slow] = percentiles(times);
    let rate = count as f64 / took.as_secs_f64();
    println!("| {what} | {count} | {rate:.0} | {} | {} |", millis(median), millis(slow));
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("Host", "localhost").body(Full::default()).unwrap()
}

/// Submits operations to a server with many DIDs, and resolves DIDs.
fn over_https(directory: &Path, dids: u64, requests: u64) {
    let path = directory.join("served");
    let settings = settings();
    Registry::create(&path, &settings).unwrap();
    let (trust, known) = {
        let registry = Registry::open(&path, &settings).unwrap();
        grow(&registry, 0, dids);
        let [log, witness] = registry.keys().clone();
        (RegistryTrust::new(log, vec![witness]).unwrap(), sample(dids))
    };
    let provider = provider();
    // The measurement does not include the clients' signing.
    let operations: Vec<_> =
        (dids..dids + requests).map(|number| creation(&provider, number).canonical().unwrap()).collect();
    let count = operations.len();
    println!(
        "\n{dids} DIDs, {CONNECTIONS} connections:\n\n| over HTTPS | requests | per second | median | 99 % |\n\
         | --- | ---: | ---: | ---: | ---: |"
    );
    let served = Served::start(&path);
    let submit = move |place: usize| {
        let body = Full::from(operations[place].clone());
        Request::post("/operations").header("Host", "localhost").body(body).unwrap()
    };
    load(&served, "operations acknowledged", count, submit, |_, answer| {
        let answer: Value = serde_json::from_slice(answer).unwrap();
        assert!(answer["number"].is_u64() && answer["checkpoint"].is_string());
    });
    let paths = known.clone();
    let asked = known.len();
    let resolve = move |place: usize| get(&format!("/dids/{}", paths[place % asked]));
    let checks = (known.clone(), trust.clone(), Arc::clone(&provider));
    load(&served, "resolutions", 10 * count, resolve, move |place, answer| {
        let (known, trust, provider) = &checks;
        let (did, answer): (_, Value) =
            (&known[place % known.len()], serde_json::from_slice(answer).unwrap());
        let note = answer["checkpoint"].as_str().unwrap().as_bytes();
        let fresh = trust.verify(provider, note, None, now_s()).unwrap();
        let proof = Base64::decode_vec(answer["proof"].as_str().unwrap()).unwrap();
        let hasher = Hasher(provider.sha256);
        let stated = fresh.checkpoint.checkpoint();
        let document = dunlin_identity::encoding::json::canonical(&answer["document"]).unwrap();
        let document = Sha256Hash::of(provider, document.as_bytes()).unwrap();
        let key = map_key(provider, did).unwrap();
        let proof = StateProof::read(&proof).unwrap();
        assert!(proof.verify_presence(hasher, &key, document, stated).unwrap().active);
    });
    let staples = known.clone();
    let staple = move |place: usize| get(&format!("/dids/{}/staple", staples[place % asked]));
    load(&served, "staples", 10 * count, staple, move |place, answer| {
        let staple = dunlin_identity::transparency::Staple::read(answer).unwrap();
        staple.verify(&provider, &known[place % known.len()], &trust, None, now_s()).unwrap();
    });
    drop(served);
    // Everything that was acknowledged is there.
    let registry = Registry::open(&path, &settings).unwrap();
    assert_eq!(registry.snapshot().map().len(), dids + requests);
}

fn main() {
    if let Some(path) = std::env::var_os(SERVER) {
        return server(Path::new(&path));
    }
    let directory = match std::env::var_os("DUNLIN_SCALE") {
        Some(place) => tempfile::tempdir_in(place).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    growth(directory.path(), number("DUNLIN_DIDS", 200));
    over_https(directory.path(), number("DUNLIN_SERVED", 200), number("DUNLIN_REQUESTS", 128));
}
