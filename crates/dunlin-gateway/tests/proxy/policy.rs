//! Clients that a policy gives their profiles, through a gateway.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin::ServerAddress;
use dunlin::wire::{CipherSuite, SignatureScheme};
use dunlin_gateway::policy::{self, Attribute};
use dunlin_gateway::{Config, Gateway};
use dunlin_pki::KeyType;
use dunlin_store::MemoryClientSessions;
use dunlin_tokio::DtlsEndpoint;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::admin::status;
use crate::place::{Client, Place, backend, metric, metric_becomes, route, subscribe, within};
use crate::udp::half_open;

pub(crate) const STRONG: Option<CipherSuite> = Some(CipherSuite::TLS_AES_256_GCM_SHA384);
pub(crate) const LOW: Option<CipherSuite> = Some(CipherSuite::TLS_AES_128_GCM_SHA256);

/// Strangers get `strong`. The client with this certificate gets `low`, which shows another certificate of
/// the gateway.
fn policy(place: &Place, more: &str) -> String {
    let pem = std::fs::read(place.path("client.pem")).unwrap();
    let client = policy::client_from_pem(&pem).unwrap();
    let fingerprint = client.values(&Attribute::Fingerprint).next().unwrap().to_owned();
    format!(
        r#"
floor = 10
{more}
[profile.strong]
rank = 100
versions = ["1.2", "1.3"]
cipher_suites = ["TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]
certificates = "strong"
change_certificate = true
client = "request"

[profile.low]
rank = 20
versions = ["1.2", "1.3"]
cipher_suites = ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]
certificates = "low"
change_certificate = true
client = "certificate"

[profile.meter]
rank = 20
versions = ["1.2", "1.3"]
client = "psk"

[[rule]]
name = "meters"
when.psk = "sensor-*"
profile = "meter"

[[rule]]
name = "devices"
when.fingerprint = "{fingerprint}"
profile = "low"
"#
    )
}

/// A directory with two PKIs and a policy; `more` is inserted before the profiles.
pub(crate) fn place(more: &str) -> Place {
    let place = Place::new();
    place.make_pki_of("other-", KeyType::P384, &["localhost"]);
    let roots = ["root.pem", "other-root.pem"].map(|root| std::fs::read_to_string(place.path(root)).unwrap());
    place.write("roots.pem", &roots.concat());
    place.write("policy.toml", &policy(&place, more));
    place
}

pub(crate) const LISTENER: &str = r#"
[[listener]]
name = "test"
listen = "127.0.0.1:0"
policy = "policy.toml"
[[listener.certificate]]
name = "strong"
chain = "server.pem"
key = "server.key"
[[listener.certificate]]
name = "low"
chain = "other-server.pem"
key = "other-server.key"
[listener.clients]
ca = "roots.pem"
psk = "keys.psk"
"#;

/// How often the policy has decided so.
pub(crate) fn decided(gateway: &Gateway, stage: &str, rule: &str, verdict: &str, profile: &str) -> f64 {
    let downgrade = if matches!(profile, "low" | "meter") && verdict != "refuse" { "yes" } else { "no" };
    metric(
        gateway,
        &format!(
            "dunlin_gateway_policy_decisions_total{{listener=\"test\",stage=\"{stage}\",rule=\"{rule}\",\
             verdict=\"{verdict}\",profile=\"{profile}\",downgrade=\"{downgrade}\"}}"
        ),
    )
}

/// A backend that echoes its input.
pub(crate) async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

pub(crate) const RENEGOTIATED: &str =
    "dunlin_gateway_renegotiations_total{listener=\"test\",outcome=\"completed\"}";
pub(crate) const POLICY_RELOADED: &str = "dunlin_gateway_policy_reloads_total{outcome=\"succeeded\"}";

/// A whole connection, with its tickets. Returns the suite, and whether the session was resumed.
pub(crate) async fn visit(client: &Client, port: u16) -> (Option<CipherSuite>, bool) {
    let mut tls = client.connect(port, "localhost").await;
    tls.shutdown().await.unwrap();
    within(tls.read_to_end(&mut vec![])).await.unwrap();
    (tls.negotiated().cipher_suite, tls.negotiated().is_resumed())
}

/// The client whose profile is `low`, with a store of sessions.
pub(crate) fn device(place: &Place) -> Client {
    let mut client = place.with_certificate(place.client("root.pem"), "");
    client.trusts_also("other-root.pem", place);
    Client { sessions: Some(Arc::new(MemoryClientSessions::default())), ..client }
}

#[tokio::test]
async fn a_tls13_client_gets_the_top_profile_first_and_its_own_by_ticket_afterwards() {
    let place = place("");
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(backend("one").await, ""))).await;
    let client = device(&place);
    assert_eq!(visit(&client, port).await, (STRONG, false));
    assert_eq!(decided(&gateway, "hello", "default", "serve", "strong"), 1.0);
    assert_eq!(decided(&gateway, "finished", "devices", "serve", "strong"), 1.0);
    // A session that the weaker trust of `strong` has made names the client, but does not resume.
    assert_eq!(visit(&client, port).await, (LOW, false));
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 1.0);
    assert_eq!(visit(&client, port).await, (LOW, true));
    assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), 2.0);
    // Another client keeps the top profile.
    let mut other = place.with_certificate(place.client("root.pem"), "other-");
    other.sessions = Some(Arc::new(MemoryClientSessions::default()));
    assert_eq!(visit(&other, port).await, (STRONG, false));
    assert_eq!(visit(&other, port).await, (STRONG, true));
}

#[tokio::test]
async fn a_remembered_address_and_a_psk_identity_are_hints() {
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    place
        .write("policy.toml", &text.replace("client = \"cert", "address_lifetime = \"1h\"\nclient = \"cert"));
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(backend("one").await, ""))).await;
    let client = Client { sessions: None, ..device(&place) };
    assert_eq!(visit(&client, port).await, (STRONG, false));
    assert_eq!(visit(&client, port).await, (LOW, false));
    // Another client behind the same address: its handshake proves that the hint is wrong.
    let other = place.with_certificate(place.client("other-root.pem"), "other-");
    other.exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(
        &gateway,
        "dunlin_gateway_handshakes_total{listener=\"test\",outcome=\"failed\",reason=\"incompatible\",result=\"UNKNOWN_FAILURE\"}",
        1.0,
    )
    .await;
    assert_eq!(decided(&gateway, "finished", "default", "refuse", "strong"), 1.0);
    // The gateway has forgotten the address.
    let other = place.with_certificate(place.client("root.pem"), "other-");
    assert_eq!(other.exchange(port, "localhost", "").await.unwrap(), "one got ");

    let mut meter = place.client("root.pem");
    meter.psk = true;
    assert_eq!(meter.exchange(port, "localhost", "").await.unwrap(), "one got ");
    assert_eq!(decided(&gateway, "hello", "meters", "serve", "meter"), 1.0);
    assert_eq!(decided(&gateway, "finished", "meters", "serve", "meter"), 1.0);
}

/// `openssl s_client`, held to TLS 1.2.
struct Openssl {
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Openssl {
    fn start(place: &Place, port: u16, prefix: &str, more: &[&str]) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", "localhost"]);
        command.args(["-tls1_2", "-quiet", "-verify_return_error", "-verify_hostname", "localhost"]);
        command.args(["-CAfile", "roots.pem"]).args(more).current_dir(place.path(""));
        let files = ["client.pem", "client.pem", "client.key"].map(|file| format!("{prefix}{file}"));
        for (option, file) in ["-cert", "-cert_chain", "-key"].iter().zip(files) {
            command.args([option, &*file]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = child.stdout.take().unwrap();
        Self { _child: child, stdin, lines: BufReader::new(stdout).lines() }
    }

    /// Sends a line and returns the next one.
    async fn say(&mut self, line: &str) -> String {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        within(self.lines.next_line()).await.unwrap().expect("a line")
    }
}

/// The strongest profile has another cipher for a client without hardware for AES.
#[tokio::test]
async fn a_client_that_prefers_chacha20_gets_it() {
    let place = place("default = \"strong\"");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let chacha = "[profile.chacha]\nrank = 100\nversions = [\"1.2\", \"1.3\"]\n\
         cipher_suites = [\"TLS_CHACHA20_POLY1305_SHA256\", \"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256\"]\n\
         certificates = \"strong\"\nclient = \"request\"\n\
         [[rule]]\nname = \"weak\"\nwhen.prefers = \"chacha20\"\nprofile = \"chacha\"\n";
    place.write("policy.toml", &(text + chacha));
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(echo().await, ""))).await;
    let chacha = "ECDHE-ECDSA-CHACHA20-POLY1305";
    let aes = "ECDHE-ECDSA-AES256-GCM-SHA384";
    for (first, second) in [(chacha, aes), (aes, chacha)] {
        let mut client = Openssl::start(&place, port, "other-", &["-cipher", &format!("{first}:{second}")]);
        assert_eq!(client.say("hello").await, "hello");
        // It has only ChaCha20 suites.
        assert_eq!(decided(&gateway, "finished", "weak", "serve", "chacha"), 1.0);
    }
    assert_eq!(decided(&gateway, "finished", "default", "serve", "strong"), 1.0);
}

/// A second echo comes after the renegotiation: OpenSSL reads the request for it before the first one.
#[tokio::test]
async fn openssl_renegotiates_down_and_up() {
    let place = place("renegotiation = \"both\"");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(echo().await, ""))).await;
    let mut device = Openssl::start(&place, port, "", &["-sess_out", "session.pem"]);
    assert_eq!(device.say("hello").await, "hello");
    assert_eq!(device.say("again").await, "again");
    metric_becomes(&gateway, RENEGOTIATED, 1.0).await;
    assert_eq!(decided(&gateway, "finished", "devices", "renegotiate", "low"), 1.0);
    // The client counts as connected under its new profile.
    metric_becomes(&gateway, "dunlin_gateway_established{profile=\"low\",client=\"x509\"}", 1.0).await;
    assert_eq!(metric(&gateway, "dunlin_gateway_established"), 1.0);
    drop(device);
    // Its session comes from the second handshake: it has the profile, and never renegotiates.
    let mut device = Openssl::start(&place, port, "", &["-sess_in", "session.pem"]);
    assert_eq!(device.say("hello").await, "hello");
    assert_eq!(device.say("again").await, "again");
    assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), 1.0);
    drop(device);

    // The gateway remembers the device's address, from which another client comes.
    place
        .write("policy.toml", &text.replace("client = \"cert", "address_lifetime = \"1h\"\nclient = \"cert"));
    metric_becomes(&gateway, POLICY_RELOADED, 1.0).await;
    let mut device = Openssl::start(&place, port, "", &[]);
    assert_eq!(device.say("hello").await, "hello");
    drop(device);
    let mut other = Openssl::start(&place, port, "other-", &[]);
    assert_eq!(other.say("hello").await, "hello");
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 2.0);
    assert_eq!(decided(&gateway, "finished", "default", "renegotiate", "strong"), 1.0);
}

/// Compiles the client in `tests/peers/jsse` and returns its class path.
async fn jsse() -> &'static str {
    let classes = concat!(env!("CARGO_TARGET_TMPDIR"), "/jsse-peer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/jsse/Peer.java");
    let output = Command::new("javac").args(["-d", classes, source]).output().await;
    let output = output.expect("javac: `tools/setup test` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    classes
}

/// Starts Java's client with the certificate of the files with this prefix.
async fn java(
    place: &Place,
    port: u16,
    prefix: &str,
    more: &[&str],
) -> (Child, ChildStdin, Lines<BufReader<ChildStdout>>) {
    let mut java = Command::new("java");
    // A short life is not worth the better compiler.
    java.args(["-XX:TieredStopAtLevel=1", "-cp", jsse().await, "Peer", &port.to_string()]);
    java.args(["client.pem", "client.key"].map(|file| format!("{prefix}{file}")));
    java.arg("roots.pem").args(more).current_dir(place.path(""));
    let mut java =
        java.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("java");
    let lines = BufReader::new(java.stdout.take().unwrap()).lines();
    let stdin = java.stdin.take().unwrap();
    (java, stdin, lines)
}

#[tokio::test]
async fn java_renegotiates_down() {
    let place = place("renegotiation = \"down\"");
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = slow.local_addr().unwrap().port();
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(to, ""))).await;
    let (_java, mut stdin, mut lines) = java(&place, port, "", &[]).await;
    for (line, renegotiations) in [("first\n", 1.0), ("again\n", 1.0)] {
        stdin.write_all(line.as_bytes()).await.unwrap();
        let (mut stream, _) = within(slow.accept()).await.unwrap();
        let mut received = vec![0; line.len()];
        within(stream.read_exact(&mut received)).await.unwrap();
        assert_eq!(received, line.as_bytes());
        metric_becomes(&gateway, RENEGOTIATED, renegotiations).await;
        stream.write_all(line.as_bytes()).await.unwrap();
        // The bits of the gateway's key: the certificate of the profile `low`.
        let told = within(lines.next_line()).await.unwrap();
        assert_eq!(told, Some(format!("{} 384", line.trim())));
    }
    // The second connection has resumed the session of the renegotiation.
    assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), 1.0);
}

/// The gateway sends and accepts no data before the client has its profile. Java renegotiates when it reads,
/// so the server speaks first.
#[tokio::test]
async fn java_renegotiates_up_before_the_servers_greeting() {
    let place = place("renegotiation = \"both\"");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    place
        .write("policy.toml", &text.replace("client = \"cert", "address_lifetime = \"1h\"\nclient = \"cert"));
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = write.write_all(b"welcome\n").await;
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(to, ""))).await;
    // The gateway remembers the address of a device, from which another client comes.
    visit(&device(&place), port).await;
    let (_java, mut stdin, mut lines) = java(&place, port, "other-", &["greeted"]).await;
    stdin.write_all(b"hello\n").await.unwrap();
    // The bits of the gateway's key: the certificate of the profile `strong`.
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("hello 256"));
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 1.0);
    assert_eq!(decided(&gateway, "finished", "default", "renegotiate", "strong"), 1.0);
    metric_becomes(&gateway, RENEGOTIATED, 1.0).await;
}

#[tokio::test]
async fn a_foreign_client_comes_onto_the_blacklist() {
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let text = text.replace("profile = \"low\"", "refuse = true");
    place.write("policy.toml", &(text + "[blacklist]\nforeign = 1\n"));
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let config = admin.to_owned() + LISTENER + &route(backend("one").await, "");
    let (gateway, _) = place.start(&config).await;
    let port = gateway.addresses()[0].1.port();
    let friend = place.client("root.pem");
    assert_eq!(friend.exchange(port, "localhost", "").await.unwrap(), "one got ");
    let connected = friend.connect(port, "localhost").await;
    metric_becomes(&gateway, "dunlin_gateway_established", 1.0).await;
    let told = &status(&gateway).await["policies"][0];
    let entry = &told["latest_handshakes"][0];
    assert_eq!(entry["client"], connected.get_ref().local_addr().unwrap().to_string(), "{told}");
    assert_eq!(
        (&entry["begun"], &entry["is_served"], &entry["profile"]),
        (&1.into(), &true.into(), &"strong".into())
    );
    assert_eq!((&told["handshakes"], &told["addresses"]), (&1.into(), &0.into()));
    drop(connected);
    let foreign = place.with_certificate(place.client("root.pem"), "");
    foreign.exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(
        &gateway,
        "dunlin_gateway_networks_blocked_total{listener=\"test\",offence=\"foreign\"}",
        1.0,
    )
    .await;
    assert_eq!(decided(&gateway, "finished", "devices", "refuse", "strong"), 1.0);
    // The next client from there gets no byte, not even an alert.
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let read = within(tcp.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    metric_becomes(&gateway, "dunlin_gateway_blacklisted_total{listener=\"test\"}", 1.0).await;
    let told = &status(&gateway).await["policies"][0];
    assert_eq!((&told["blocked"], &told["faults"]), (&1.into(), &Value::Array(vec![])));
    assert_eq!(told["blacklist"][0]["network"], "127.0.0.1");
    assert_eq!(told["blacklist"][0]["offence"], "foreign");
    assert!(told["blacklist"][0]["until"].as_u64() > told["since"].as_u64(), "{told}");

    // Other limits free only the addresses that they exempt.
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    place.write("policy.toml", &(text + "exempt = \"127.0.0.2\"\n"));
    metric_becomes(&gateway, "dunlin_gateway_policy_reloads_total{outcome=\"succeeded\"}", 1.0).await;
    let told = &status(&gateway).await["policies"][0];
    assert_eq!(told["blacklist"][0]["network"], "127.0.0.1");

    // A policy with a fault is not in force, and the status says why.
    let content = std::fs::read(place.path("policy.toml")).unwrap();
    place.write("policy.toml", "floor = 1\n");
    metric_becomes(&gateway, "dunlin_gateway_policy_reloads_total{outcome=\"refused\"}", 1.0).await;
    let told = &status(&gateway).await["policies"][0];
    assert!(told["faults"][0].as_str().unwrap().contains("policy.toml"), "{told}");
    let sum = dunlin_awslc::SHA256.hash(&[&content]);
    let hex: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(told["sha256"], hex);
    assert_eq!(told["summary"], "3 profiles, 2 rules, 0 clients, default strong (rank 100), floor 10");
}

/// Counts the lines about decisions.
struct DecisionLines(Arc<AtomicUsize>);

impl Subscriber for DecisionLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut visit = |field: &Field, value: &dyn Debug| {
            let is_decision =
                field.name() == "message" && format!("{value:?}").starts_with("policy: profile meter");
            self.0.fetch_add(usize::from(is_decision), Ordering::Relaxed);
        };
        event.record(&mut visit);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A ClientHello that needs no secret, and asks for a weaker profile.
#[tokio::test]
async fn a_flood_of_hints_does_not_fill_the_log() {
    let lines = Arc::new(AtomicUsize::new(0));
    subscribe();
    let _guard = tracing::subscriber::set_default(DecisionLines(lines.clone()));
    let place = place("");
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(1, ""))).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client { psk: true, ..place.client("root.pem") };
    let to = listener.local_addr().unwrap().port();
    let mut hello = vec![0; 4096];
    let recorded = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.read(&mut hello).await.unwrap()
    };
    let (len, _) = tokio::join!(recorded, client.try_connect(to, "localhost"));
    for count in 1..=60 {
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        tcp.write_all(&hello[..len]).await.unwrap();
        within(tcp.read(&mut [0; 8])).await.unwrap();
        assert_eq!(decided(&gateway, "hello", "meters", "serve", "meter"), f64::from(count));
    }
    assert_eq!(lines.load(Ordering::Relaxed), 50);
}

const BLOCKED: &str = "dunlin_gateway_networks_blocked_total";

/// Failures that any web page can cause through a browser, that a slow device causes, and that the gateway
/// causes itself.
#[tokio::test]
async fn handshakes_that_fail_without_a_fault_of_the_client_are_no_offences() {
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let text = text.replace("client = \"request\"", "client = \"certificate\"");
    place.write("policy.toml", &(text + "[blacklist]\nfailed = 1\n"));
    let limits = "[limits]\nhandshake_time = \"300ms\"\n";
    let config = limits.to_owned() + LISTENER + &route(1, "sni = \"localhost\"\nalpn = \"mqtt\"");
    let (gateway, port) = place.start(&config).await;
    let failed =
        |reason: &str| format!("dunlin_gateway_handshakes_total{{outcome=\"failed\",reason=\"{reason}\"}}");
    let client = |root: &str| Client { alpn: vec![b"mqtt".to_vec()], ..place.client(root) };
    client("other-root.pem").exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(&gateway, &failed("alert_received"), 1.0).await;
    client("root.pem").exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(&gateway, &failed("no_certificate"), 1.0).await;
    let silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    metric_becomes(&gateway, &failed("timeout"), 1.0).await;
    drop(silent);
    // A page can load http://gateway:8883/, or have a name of its own that leads to the gateway.
    for bytes in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], &[0xff; 64]] {
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        tcp.write_all(bytes).await.unwrap();
        let _ = within(tcp.read_to_end(&mut vec![])).await;
    }
    metric_becomes(&gateway, &failed("protocol"), 2.0).await;
    let other = Client { alpn: vec![b"http/1.1".to_vec()], ..place.client("root.pem") };
    let refused = other.exchange(port, "localhost", "").await.unwrap_err();
    assert!(refused.to_string().contains("no_application_protocol"), "{refused}");
    let refused = place.client("root.pem").exchange(port, "other.example", "").await.unwrap_err();
    assert!(refused.to_string().contains("unrecognized_name"), "{refused}");
    // A client that connects to an address requests no name.
    let refused = place.client("root.pem").exchange(port, "127.0.0.1", "").await.unwrap_err();
    assert!(refused.to_string().contains("missing_extension"), "{refused}");
    metric_becomes(&gateway, &failed("incompatible"), 3.0).await;
    assert_eq!(metric(&gateway, BLOCKED), 0.0);
    // The certificate of another authority is no accident.
    place.make_pki("strange-");
    place.with_certificate(client("root.pem"), "strange-").exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(&gateway, BLOCKED, 1.0).await;
}

/// An operator edits the policy while a client is between its ClientHello and its Finished.
#[tokio::test]
async fn a_welcome_client_that_a_new_policy_interrupts_is_no_offender() {
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap() + "[blacklist]\nforeign = 1\n";
    place.write("policy.toml", &text);
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(backend("one").await, ""))).await;
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay_port = relay.local_addr().unwrap().port();
    let change = async {
        let (mut client, _) = relay.accept().await.unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut record = vec![0; 5];
        client.read_exact(&mut record).await.unwrap();
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        client.read_exact(&mut record[5..]).await.unwrap();
        server.write_all(&record).await.unwrap();
        // The gateway answers when it has chosen the profile.
        let first = server.read_u8().await.unwrap();
        place.write("policy.toml", &text.replace("rank = 100", "rank = 90"));
        metric_becomes(&gateway, "dunlin_gateway_policy_reloads_total{outcome=\"succeeded\"}", 1.0).await;
        client.write_u8(first).await.unwrap();
        // How the connection ends is of no matter here.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    };
    let client = device(&place);
    let (refused, ()) =
        within(async { tokio::join!(client.exchange(relay_port, "localhost", ""), change) }).await;
    refused.unwrap_err();
    assert_eq!(decided(&gateway, "finished", "devices", "refuse", "low"), 1.0);
    // The gateway counts the failure after it has judged it.
    let failed = "dunlin_gateway_handshakes_total{outcome=\"failed\",reason=\"incompatible\"}";
    metric_becomes(&gateway, failed, 1.0).await;
    assert_eq!(metric(&gateway, BLOCKED), 0.0);
}

/// The endpoint ends the oldest handshake for a new one.
#[tokio::test]
async fn a_displaced_handshake_is_no_offence() {
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    place.write("policy.toml", &(text + "[blacklist]\nfailed = 1\n"));
    let text = LISTENER.replace("policy =", "transport = \"dtls\"\npolicy =") + &route(1, "");
    let (gateway, port) = place.start(&("[limits]\nhandshakes = 1\n".to_owned() + &text)).await;
    let client = place.client("root.pem");
    half_open(&client, port).await;
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let name = ServerAddress::parse("localhost", port).unwrap();
    let config = Arc::new(client.config());
    let other = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    within(other.connect(&config, name, server)).await.unwrap();
    let displaced = "dunlin_gateway_handshakes_total{outcome=\"failed\",reason=\"transport\"}";
    metric_becomes(&gateway, displaced, 1.0).await;
    assert_eq!(metric(&gateway, BLOCKED), 0.0);
}

/// The datagram of a ClientHello with which this client begins.
async fn client_hello(client: &Client) -> Vec<u8> {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = server.local_addr().unwrap();
    let name = ServerAddress::parse("localhost", address.port()).unwrap();
    let config = Arc::new(client.config());
    let mut buffer = vec![0; 2048];
    let received = tokio::select! {
        received = server.recv_from(&mut buffer) => received,
        _ = endpoint.connect(&config, name, address) => panic!("a handshake without a server"),
    };
    buffer.truncate(received.unwrap().0);
    buffer
}

#[tokio::test]
async fn a_blacklisted_dtls_client_gets_no_answer() {
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let text = text.replace("profile = \"low\"", "refuse = true");
    place.write("policy.toml", &(text + "[blacklist]\nforeign = 1\n"));
    let (gateway, port) =
        place.start(&(LISTENER.replace("policy =", "transport = \"dtls\"\npolicy =") + &route(1, ""))).await;
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let foreign = place.with_certificate(place.client("root.pem"), "");
    let hello = client_hello(&foreign).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    socket.send_to(&hello, server).await.unwrap();
    // It demands a cookie.
    within(socket.recv_from(&mut buffer)).await.unwrap();

    let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let name = ServerAddress::parse("localhost", port).unwrap();
    // In DTLS 1.3 a client completes its handshake before the server does.
    let _association = within(endpoint.connect(&Arc::new(foreign.config()), name, server)).await;
    metric_becomes(
        &gateway,
        "dunlin_gateway_networks_blocked_total{listener=\"test\",offence=\"foreign\"}",
        1.0,
    )
    .await;
    let blacklisted = "dunlin_gateway_blacklisted_total{listener=\"test\"}";
    let before = metric(&gateway, blacklisted);
    socket.send_to(&hello, server).await.unwrap();
    metric_becomes(&gateway, blacklisted, before + 1.0).await;
    let nothing = socket.try_recv_from(&mut buffer).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_reload_takes_the_weaker_profile_away_although_the_client_has_its_ticket() {
    let place = place("");
    let (gateway, port) = place.start(&(LISTENER.to_owned() + &route(backend("one").await, ""))).await;
    let client = device(&place);
    assert_eq!(visit(&client, port).await, (STRONG, false));
    assert_eq!(visit(&client, port).await, (LOW, false));
    let mut held = client.connect(port, "localhost").await;
    assert_eq!(held.negotiated().cipher_suite, LOW);
    held.write_all(b"early").await.unwrap();
    let good = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    // A policy that needs a certificate of another name changes nothing.
    place.write("policy.toml", &good.replace("\"low\"\nchange", "\"absent\"\nchange"));
    metric_becomes(&gateway, "dunlin_gateway_policy_reloads_total{outcome=\"refused\"}", 1.0).await;
    assert_eq!(visit(&client, port).await, (LOW, true));
    place.write("policy.toml", &good.replace("profile = \"low\"", "profile = \"strong\""));
    metric_becomes(&gateway, POLICY_RELOADED, 1.0).await;
    assert_eq!(visit(&client, port).await, (STRONG, false));
    // The connection from before goes on.
    held.write_all(b" and late").await.unwrap();
    held.shutdown().await.unwrap();
    let mut answer = String::new();
    within(held.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "one got early and late");
}

/// A HelloRetryRequest, which comes before the profile, names a suite. So both profiles must have it.
#[tokio::test]
async fn dtls_clients_get_profiles_too() {
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("cipher_suites"));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>();
    place
        .write("policy.toml", &text.replace("client = \"cert", "address_lifetime = \"1h\"\nclient = \"cert"));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = socket.local_addr().unwrap().port();
    let text = LISTENER.replace("policy =", "transport = \"dtls\"\npolicy =") + &route(to, "");
    let (gateway, port) = place.start(&text).await;
    let client = Arc::new(Client { sessions: None, ..device(&place) }.config());
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    for expected in [SignatureScheme::ECDSA_SECP256R1_SHA256, SignatureScheme::ECDSA_SECP384R1_SHA384] {
        let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let name = ServerAddress::parse("localhost", port).unwrap();
        let dtls = within(endpoint.connect(&client, name, server)).await.unwrap();
        dtls.send(b"data").await.unwrap();
        let mut buffer = [0; 16];
        let (len, _) = within(socket.recv_from(&mut buffer)).await.unwrap();
        assert_eq!(buffer[..len], *b"data");
        // The certificate of the profile.
        assert_eq!(dtls.negotiated().peer_signature, Some(expected));
    }
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 1.0);
}

#[test]
fn names_the_faults_of_a_policy_and_of_its_listener() {
    let place = place("");
    let good = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let text = LISTENER.to_owned() + &route(1, "");
    Gateway::check(place.config(&text)).unwrap();
    let check = |text: &str| Gateway::check(place.config(text)).unwrap_err().to_string();
    let policy = place.path("policy.toml").display().to_string();
    let line = |text: &str| 1 + good.lines().position(|line| line == text).unwrap();
    assert_eq!(
        check(&text.replace("name = \"low\"\n", "").replace("psk = \"keys.psk\"\n", "")),
        format!(
            "{policy}:{}: profile.low.certificates: listener test has no certificate \"low\"; give one of its \
             [[listener.certificate]] this name\n\
             {policy}:{}: profile.meter.client: listener test has no pre-shared keys; add psk to its [listener.clients], or \
             change client",
            line("certificates = \"low\""),
            line("client = \"psk\"")
        )
    );
    let absent = check(&text.replace("\"policy.toml\"", "\"absent.toml\""));
    assert!(
        absent.contains("gateway.toml:5: listener[0].policy: ") && absent.contains("absent.toml: "),
        "{absent}"
    );
    place.write("policy.toml", &good.replace("floor = 10", "floor = 30"));
    let floor = check(&text);
    assert!(floor.starts_with(&format!("{policy}:")) && floor.contains("profile.low: "), "{floor}");

    let found = Config::parse(
        &place.path("gateway.toml"),
        &text
            .replace("policy =", "versions = \"1.3\"\npolicy =")
            .replace("psk =", "verify = \"required\"\npsk =")
            .replace("name = \"low\"", "name = \"strong\""),
    );
    let found = found.unwrap_err().to_string();
    for says in [
        "listener[0].versions: the profiles of the policy say which versions are enabled",
        "listener[0].clients: the profiles of the policy say how clients authenticate",
        "listener[0].certificate[1].name: duplicate name \"strong\", first used at ",
    ] {
        assert!(found.contains(says), "{says}\n{found}");
    }
    assert_eq!(found.lines().count(), 3, "{found}");
}
