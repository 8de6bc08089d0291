//! Records in Redis: a real server on a free loopback port.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dunlin::cache::DEFAULT_MAX_AGE;
use dunlin_store::MemoryClientCache;
use dunlin_store::cache::{CacheFault, Records, RedisRecords, SealedServerCache};
use dunlin_tests::{KeyType, Pki};
use socket2::{Domain, SockAddr, Socket, Type};
use tempfile::TempDir;

use crate::common::{self, Faults, client, connect, no_fault, sealer, server};

/// A limit longer than any answer takes on a busy machine.
const PATIENT: Duration = Duration::from_secs(20);

/// Redis logs this when it accepts connections.
const READY: &str = "Ready to accept connections";

/// A Redis that stores nothing on disk and ends with its test.
pub(crate) struct Redis {
    port: u16,
    directory: TempDir,
    process: Child,
}

impl Redis {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        // Another process may take the port before Redis does.
        let started = (0..5).find_map(|_| {
            let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
            Some((port, start(port, &directory).inspect_err(|log| println!("{log}")).ok()?))
        });
        let (port, process) = started.unwrap();
        Self { port, directory, process }
    }

    pub(crate) fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn start(&mut self) {
        self.process = start(self.port, &self.directory).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn records(&self) -> RedisRecords {
        RedisRecords::new(&self.url(), DEFAULT_MAX_AGE, PATIENT, no_fault()).unwrap()
    }

    fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The test may have stopped it already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns when Redis accepts connections, or returns its log if it never does.
fn start(port: u16, directory: &TempDir) -> Result<Child, String> {
    let spawned = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--port", &port.to_string(), "--dir"])
        .arg(directory.path())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = spawned.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => {
            panic!("the program redis-server is missing: `tools/setup test` installs what the tests talk to")
        }
        _ => panic!("redis-server: {error}"),
    });
    let mut log = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = lines.by_ref().inspect(|line| log.push(line.clone())).any(|line| line.contains(READY));
    if is_ready {
        return Ok(child);
    }
    child.wait().unwrap();
    Err(log.join("\n"))
}

#[test]
fn entries_survive_a_restart() {
    let redis = Redis::new();
    let open = |_, report| RedisRecords::new(&redis.url(), DEFAULT_MAX_AGE, PATIENT, report).unwrap();
    // A Redis cannot tell which keys its records have.
    assert_eq!(common::entries_survive_a_restart(open), [""; 0]);
}

#[test]
fn an_entry_that_cannot_be_stored_removes_the_previous_one() {
    let redis = Redis::new();
    common::an_entry_that_cannot_be_stored_removes_the_previous_one(redis.records());
}

#[test]
fn a_writer_without_the_key_forges_no_peer() {
    let redis = Redis::new();
    let foreign = Redis::new();
    common::a_writer_without_the_key_forges_no_peer(redis.records(), foreign.records());
}

#[test]
fn four_endpoints_know_one_client() {
    let redis = Redis::new();
    common::four_endpoints_know_one_client(redis.records());
}

#[test]
fn keeps_one_entry_for_each_client() {
    let redis = Redis::new();
    common::keeps_one_entry_for_each_client(redis.records());
}

#[test]
fn replayed_tickets_change_nothing() {
    let redis = Redis::new();
    common::replayed_tickets_change_nothing(redis.records());
}

/// Two servers know the same client, also by its previous ticket.
#[test]
fn two_servers_share_their_clients() {
    let redis = Redis::new();
    let pki = Pki::shared(KeyType::P256);
    let servers =
        [1, 1, 2].map(|key| server(pki, Arc::new(SealedServerCache::new(redis.records(), sealer(key)))));
    let client = client(pki, Arc::new(MemoryClientCache::default()));
    assert_eq!(connect(&client, &servers[0]), [false; 2]);
    for n in 1..6 {
        assert_eq!(connect(&client, &servers[n % 2]), [true; 2]);
    }
    // A server with another key shares nothing.
    assert_eq!(connect(&client, &servers[2]), [true, false]);
}

/// Records expire with the maximum age of the cache, and records of superseded tickets are deleted.
#[test]
fn records_expire() {
    let redis = Redis::new();
    let pki = Pki::shared(KeyType::P256);
    let server = server(pki, Arc::new(SealedServerCache::new(redis.records(), sealer(1))));
    for _ in 0..6 {
        let client = client(pki, Arc::new(MemoryClientCache::default()));
        assert_eq!([(); 2].map(|()| connect(&client, &server)[0]), [false, true]);
    }
    let mut connection = redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    // Four tickets, and the list of them.
    assert_eq!(keys.len(), 5);
    for key in keys {
        let left: u64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
        let max = DEFAULT_MAX_AGE.as_millis() as u64;
        assert!((max - 60 * 60 * 1000..=max).contains(&left), "{left}");
    }
}

/// A foreign value counts as a missing entry and causes no failure.
#[test]
fn ignores_values_that_are_no_records() {
    let redis = Redis::new();
    let records = redis.records();
    let (owner, record) = common::owner(1, 1);
    records.put(&owner, std::slice::from_ref(&record), &[]);
    assert_eq!(records.get(&owner.name).as_ref(), Some(&record.bytes));
    let mut connection = redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    redis::cmd("DEL").arg(&keys).exec(&mut connection).unwrap();
    redis::cmd("LPUSH").arg(&keys[0]).arg("a list").exec(&mut connection).unwrap();
    for _ in 0..3 {
        assert_eq!(records.get(&owner.name), None);
    }
    records.put(&owner, std::slice::from_ref(&record), &[]);
    assert_eq!(records.get(&owner.name), Some(record.bytes));
    redis::cmd("SET").arg(&keys[0]).arg(vec![0u8; 1 << 20]).exec(&mut connection).unwrap();
    assert!(records.get(&owner.name).unwrap().len() < 40_000);
}

/// Handshakes are full while Redis is down, and cached again after it comes back.
#[test]
fn a_server_goes_on_without_redis() {
    let mut redis = Redis::new();
    let pki = Pki::shared(KeyType::P256);
    let faults = Faults::default();
    let records = RedisRecords::new(&redis.url(), DEFAULT_MAX_AGE, PATIENT, faults.report()).unwrap();
    let server = server(pki, Arc::new(SealedServerCache::new(records, sealer(1))));
    let client = client(pki, Arc::new(MemoryClientCache::default()));
    assert_eq!(connect(&client, &server), [false; 2]);
    assert_eq!(connect(&client, &server), [true; 2]);
    redis.stop();
    for _ in 0..10 {
        assert_eq!(connect(&client, &server), [true, false]);
    }
    let told = faults.take();
    assert!(told.len() == 1 && told[0].starts_with("Redis at 127.0.0.1"), "{told:?}");
    redis.start();
    // Redis is empty now, and the store asks it only after the pause.
    let until = Instant::now() + PATIENT;
    while connect(&client, &server) != [true; 2] {
        assert!(Instant::now() < until, "the store does not ask again: {:?}", faults.take());
    }
    assert_eq!(connect(&client, &server), [true; 2]);
    let told = faults.take();
    assert!(told.len() == 1 && told[0].ends_with("the store works again"), "{told:?}");
}

/// A server that starts before Redis reports that, and finds it later.
#[test]
fn finds_a_redis_that_starts_later() {
    let mut redis = Redis::new();
    redis.stop();
    let faults = Faults::default();
    let records = RedisRecords::new(&redis.url(), DEFAULT_MAX_AGE, PATIENT, faults.report()).unwrap();
    let told = faults.take();
    assert!(told.len() == 1 && told[0].contains("Connection refused"), "{told:?}");
    redis.start();
    let (owner, record) = common::owner(1, 1);
    common::write_until_stored(&records, &owner, &record);
    let told = faults.take();
    assert!(told.len() == 1 && told[0].ends_with("the store works again"), "{told:?}");
}

/// Answers each connection with `answer` and closes it. With a `pause`, it sends byte by byte.
fn impostor(answer: Vec<u8>, pause: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1000]);
            for bytes in answer.chunks(if pause.is_zero() { 1 << 20 } else { 1 }) {
                if stream.write_all(bytes).is_err() {
                    break;
                }
                std::thread::sleep(pause);
            }
        }
    });
    port
}

/// No answer of another program blocks the store or fills the memory, and one line reports each.
#[test]
fn reports_any_answer_of_an_impostor() {
    let tls =
        "127.0.0.1:PORT: the answer is not Redis's protocol, perhaps TLS: name a Redis port without TLS";
    let hangs_up = "127.0.0.1:PORT: the connection was closed without an answer, as a TLS port does: name a port without TLS";
    let more = "127.0.0.1:PORT: the answer is longer than a record can be";
    let late = "127.0.0.1:PORT: no answer in time";
    let at_once = Duration::ZERO;
    let slowly = Duration::from_millis(10);
    let mut much = b"$2000000000\r\n".to_vec();
    much.resize(1 << 22, b'x');
    for (answer, pause, expected) in [
        (vec![21, 3, 3, 0, 2, 2, 70], at_once, tls),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), at_once, tls),
        (vec![b'+'; 1 << 20], at_once, more),
        (b"*2000000000\r\n".repeat(1 << 14), at_once, tls),
        ([&b"*2000000000\r\n"[..], &b"+\r\n".repeat(1 << 16)].concat(), at_once, more),
        (vec![], at_once, hangs_up),
        (much, at_once, more),
        (vec![b'+'; 1 << 20], slowly, late),
        (
            b"-WRONGPASS invalid username-password pair\r\n".to_vec(),
            at_once,
            "127.0.0.1:PORT: Redis refuses the user or the password of the URL",
        ),
        (b"-NOPERM \x1b[31m\r\n".to_vec(), at_once, "127.0.0.1:PORT: Redis answers: NOPERM \\u{1b}[31m"),
    ] {
        let port = impostor(answer, pause);
        let faults = Faults::default();
        let timeout = if pause.is_zero() { PATIENT } else { Duration::from_millis(50) };
        let url = format!("redis://127.0.0.1:{port}/");
        let records = RedisRecords::new(&url, DEFAULT_MAX_AGE, timeout, faults.report()).unwrap();
        assert_eq!(faults.take(), [format!("Redis at {}", expected.replace("PORT", &port.to_string()))]);
        assert_eq!(records.get(&[0; 16]), None);
    }
}

/// The store uses the password and the database of the URL.
#[test]
fn uses_the_password_and_database_of_the_url() {
    let redis = Redis::new();
    let mut connection = redis.connection();
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("secret").exec(&mut connection).unwrap();
    let open = |user: &str, report| {
        let url = format!("redis://{user}127.0.0.1:{}/3", redis.port);
        RedisRecords::new(&url, DEFAULT_MAX_AGE, PATIENT, report).unwrap()
    };
    for (user, why) in [("", "Redis needs a password"), (":wrong@", "Redis refuses the user or the password")]
    {
        let faults = Faults::default();
        let records = open(user, faults.report());
        assert_eq!(records.get(&[0; 16]), None);
        let told = faults.take();
        assert!(told.len() == 1 && told[0].contains(why) && !told[0].contains("wrong"), "{told:?}");
    }
    let records = open(":secret@", no_fault());
    let (owner, record) = common::owner(1, 1);
    records.put(&owner, std::slice::from_ref(&record), &[]);
    assert_eq!(records.get(&owner.name), Some(record.bytes));
    redis::cmd("SELECT").arg(3).exec(&mut connection).unwrap();
    assert_eq!(redis::cmd("DBSIZE").query::<u32>(&mut connection).unwrap(), 1);
    // A full Redis stores nothing new, is reported once, and still answers look-ups.
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec(&mut connection).unwrap();
    let faults = Faults::default();
    let records = open(":secret@", faults.report());
    let (another, newer) = common::owner(1, 2);
    for _ in 0..3 {
        records.put(&another, std::slice::from_ref(&newer), &[]);
        assert!(records.get(&owner.name).is_some() && records.get(&another.name).is_none());
    }
    let told = faults.take();
    assert!(told.len() == 1 && told[0].contains("OOM"), "{told:?}");
}

/// The store replaces an idle connection that Redis has closed.
#[test]
fn replaces_a_closed_connection() {
    let redis = Redis::new();
    let records = redis.records();
    let (owner, record) = common::owner(1, 1);
    records.put(&owner, std::slice::from_ref(&record), &[]);
    let mut connection = redis.connection();
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut connection).unwrap();
    assert_eq!(records.get(&owner.name), Some(record.bytes));
}

/// A Redis that accepts connections but does not answer delays one handshake by the timeout, and the next
/// ones not at all.
#[test]
fn a_silent_redis_delays_one_handshake() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let pki = Pki::shared(KeyType::P256);
    let url = format!("redis://127.0.0.1:{}/", silent.local_addr().unwrap().port());
    let faults = Faults::default();
    let timeout = Duration::from_millis(20);
    let records = RedisRecords::new(&url, DEFAULT_MAX_AGE, timeout, faults.report()).unwrap();
    let server = server(pki, Arc::new(SealedServerCache::new(records, sealer(1))));
    let client = client(pki, Arc::new(MemoryClientCache::default()));
    assert_eq!(connect(&client, &server), [false; 2]);
    for _ in 0..20 {
        assert_eq!(connect(&client, &server), [true, false]);
    }
    assert!(!faults.take().is_empty());
}

/// The timeout also limits connecting to a Redis whose backlog is full.
#[test]
fn does_not_wait_for_a_full_backlog() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("redis");
    let address = SockAddr::unix(&path).unwrap();
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let connect = |_| {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.connect(&address).is_ok().then_some(socket)
    };
    let waiting: Vec<_> = (0..100).map_while(connect).collect();
    assert!((1..100).contains(&waiting.len()));
    let url = format!("redis+unix://{}", path.display());
    let (told, faults) = mpsc::channel();
    std::thread::spawn(move || {
        let report = Box::new(move |fault: &CacheFault| told.send(fault.to_string()).unwrap());
        RedisRecords::new(&url, DEFAULT_MAX_AGE, Duration::from_millis(50), report)
    });
    let fault = faults.recv_timeout(PATIENT).unwrap();
    assert!(fault.ends_with("no answer in time"), "{fault}");
}

#[test]
fn reports_no_password() {
    let faults = Faults::default();
    let open = |url: &str| RedisRecords::new(url, DEFAULT_MAX_AGE, PATIENT, faults.report());
    for url in ["http://:secret@127.0.0.1/", "no URL", "redis://:secret@127.0.0.1:99999/"] {
        let fault = open(url).unwrap_err().to_string();
        assert!(fault.starts_with("Redis: not a Redis URL") && !fault.contains("secret"), "{fault}");
    }
    assert!(RedisRecords::new("redis://127.0.0.1/", DEFAULT_MAX_AGE, Duration::ZERO, no_fault()).is_err());
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let records = open(&format!("redis://:secret@127.0.0.1:{free}/")).unwrap();
    assert!(!format!("{records:?}").contains("secret"));
    assert_eq!(records.get(&[0; 16]), None);
    let told = faults.take();
    assert!(
        told.len() == 1 && told[0].contains(&free.to_string()) && !told[0].contains("secret"),
        "{told:?}"
    );
}
