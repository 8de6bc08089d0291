//! Certificates by ACME, from Let's Encrypt's test server Pebble.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::pki_types::CertificateDer;
use dunlin::pki_types::pem::PemObject;
use dunlin_gateway::{Config, Gateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tracing::subscriber::DefaultGuard;

use crate::pebble::{Pebble, free_port};
use crate::place::{self, Client, Place, backend, metric, metric_becomes, route, subscribe, within};

const ISSUED: &str = "dunlin_gateway_acme_orders_total{outcome=\"issued\"}";
const FAILED: &str = "dunlin_gateway_acme_orders_total{outcome=\"failed\"}";

/// Long enough for a test.
const DAY: u32 = 24 * 3600;

/// A listener with a certificate from the directory at this port; `more` follows the keys of the listener.
fn listener(pebble: u16, names: &str, more: &str) -> String {
    format!(
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\n{more}\n\
         [[listener.certificate]]\n{}[listener.certificate.acme]\ndirectory = \"https://localhost:{pebble}/dir\"\n\
         names = [{names}]\nstore = \"acme\"\nca = \"root.pem\"\nterms_agreed = true\n\
         contact = \"mailto:admin@example.org\"\n",
        if more.contains("policy") { "name = \"web\"\n" } else { "" }
    )
}

/// Starts a gateway with a certificate from a file, so that its port is known to the authority before it
/// orders one.
async fn start(place: &Place) -> (Gateway, u16) {
    place.start(&(place::listener("") + &route(1, ""))).await
}

/// The file of the certificate from the directory at this port.
fn file(place: &Place, pebble: u16, name: &str) -> PathBuf {
    place.path(&format!("acme/localhost_{pebble}_dir/{name}.p256.pem"))
}

/// A client that trusts the authority that has issued this certificate.
fn client(place: &Place, path: &Path) -> Client {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).unwrap().collect::<Result<_, _>>().unwrap();
    Client { roots: vec![chain[1].clone()], ..place.client("root.pem") }
}

/// The log of this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn start() -> (Self, DefaultGuard) {
        subscribe();
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines with this text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = String::from_utf8(all).unwrap();
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn orders_a_certificate_renews_it_and_keeps_established_clients() {
    let place = Place::new();
    let (gateway, port) = start(&place).await;
    // Two thirds of six seconds, or earlier if Pebble says so.
    let pebble = Pebble::start(&place, [port, 1], 6, None);
    let names = "\"www.example.org\", \"mqtt.example.org\"";
    let text = listener(pebble.port, names, "") + &route(backend("one").await, "");
    gateway.reload(place.config(&text)).await.unwrap();
    metric_becomes(&gateway, ISSUED, 1.0).await;
    let path = file(&place, pebble.port, "www.example.org");
    let first = std::fs::read(&path).unwrap();
    for name in ["www.example.org.p256.pem", "account.json"] {
        let mode = std::fs::metadata(path.with_file_name(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let mut established = client(&place, &path).connect(port, "mqtt.example.org").await;
    metric_becomes(&gateway, ISSUED, 2.0).await;
    assert_ne!(std::fs::read(&path).unwrap(), first);
    let answer = client(&place, &path).exchange(port, "www.example.org", "new").await.unwrap();
    assert_eq!(answer, "one got new");
    established.write_all(b"old").await.unwrap();
    established.shutdown().await.unwrap();
    let mut answer = String::new();
    within(established.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "one got old");
    assert!(metric(&gateway, "dunlin_gateway_acme_challenges_total{challenge=\"tls-alpn-01\"}") >= 2.0);
    assert!(metric(&gateway, "dunlin_gateway_acme_expiry_seconds") > 1e9);
    assert_eq!(metric(&gateway, FAILED), 0.0);
}

#[tokio::test]
async fn orders_with_a_policy_and_answers_over_plain_http() {
    let place = Place::new();
    place.write("policy.toml", "[profile.all]\nrank = 1\nclient = \"none\"\ncertificates = [\"web\"]\n");
    let redirect = "[listener.redirect]\nlisten = \"127.0.0.1:0\"\nnames = \"*.example.org\"\n";
    let policy = "policy = \"policy.toml\"";
    let with_file = place::listener(policy) + "name = \"web\"\n" + redirect + &route(1, "");
    let (gateway, port) = place.start(&with_file).await;
    let http = gateway.redirect_addresses()[0].1.port();
    let pebble = Pebble::start(&place, [1, http], DAY, None);
    let text = listener(pebble.port, "\"www.example.org\"", policy) + "challenge = \"http-01\"\n" + redirect;
    let text = text + &route(backend("one").await, "");
    gateway.reload(place.config(&text)).await.unwrap();
    metric_becomes(&gateway, ISSUED, 1.0).await;
    let client = client(&place, &file(&place, pebble.port, "www.example.org"));
    assert_eq!(client.exchange(port, "www.example.org", "").await.unwrap(), "one got ");
    assert!(metric(&gateway, "dunlin_gateway_acme_challenges_total{challenge=\"http-01\"}") >= 1.0);
    // The next start has it without an order.
    gateway.end().await;
    drop(pebble);
    let (gateway, port) = place.start(&text).await;
    assert_eq!(client.exchange(port, "www.example.org", "").await.unwrap(), "one got ");
    assert_eq!(metric(&gateway, ISSUED), 0.0);
}

/// The configuration for the challenge is none of the policy's.
#[tokio::test]
async fn a_listener_with_a_policy_answers_tls_alpn_01() {
    let place = Place::new();
    place.write("policy.toml", "[profile.all]\nrank = 1\nclient = \"none\"\ncertificates = [\"web\"]\n");
    let directory = free_port();
    let text = listener(directory, "\"www.example.org\"", "policy = \"policy.toml\"") + &route(1, "");
    let (gateway, port) = place.start(&text).await;
    // The answer that an order would write.
    let answers = place.path(&format!("acme/localhost_{directory}_dir/challenges"));
    std::fs::create_dir_all(&answers).unwrap();
    std::fs::write(answers.join("tls-alpn-01.www.example.org"), "token.thumbprint").unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-servername", "www.example.org", "-alpn", "acme-tls/1", "-connect"]);
    openssl.arg(format!("127.0.0.1:{port}")).stdin(Stdio::null()).kill_on_drop(true);
    let said = String::from_utf8(within(openssl.output()).await.unwrap().stdout).unwrap();
    assert!(said.contains("ALPN protocol: acme-tls/1"), "{said}");
    let challenges = "dunlin_gateway_acme_challenges_total{challenge=\"tls-alpn-01\"}";
    metric_becomes(&gateway, challenges, 1.0).await;
}

#[tokio::test]
async fn a_refused_order_names_the_check_and_serves_no_client() {
    let place = Place::new();
    let (log, _guard) = Log::start();
    // It looks for the answer at another port.
    let pebble = Pebble::start(&place, [1, 1], DAY, None);
    let text = listener(pebble.port, "\"www.example.org\"", "") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let [line] = &log.lines("there is no certificate")[..] else { panic!("{:?}", log.lines("")) };
    assert!(line.contains("listener[0].certificate[0].acme") && line.contains("www.example.org"), "{line}");
    metric_becomes(&gateway, FAILED, 1.0).await;
    let [line] = &log.lines("no new certificate by ACME")[..] else { panic!("{:?}", log.lines("")) };
    assert!(line.contains("tls-alpn-01 of www.example.org failed: unauthorized: "), "{line}");
    assert!(line.contains("retry_s=60"), "{line}");
    let refused = place.client("root.pem").exchange(port, "www.example.org", "").await.unwrap_err();
    assert!(refused.to_string().contains("alert"), "{refused}");
    // A name that the authority never certifies.
    gateway.reload(place.config(&text.replace("www.example.org", "blocked.example"))).await.unwrap();
    metric_becomes(&gateway, FAILED, 2.0).await;
    let [line] = &log.lines("the order was refused: rejectedIdentifier: ")[..] else {
        panic!("{:?}", log.lines(""))
    };
    assert!(line.contains("certificate=\"blocked.example\""), "{line}");
}

#[tokio::test]
async fn a_directory_that_is_down_is_asked_again_after_a_reload() {
    let place = Place::new();
    let (log, _guard) = Log::start();
    let down = free_port();
    let text = listener(down, "\"www.example.org\"", "") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    metric_becomes(&gateway, FAILED, 1.0).await;
    let [line] = &log.lines("no new certificate by ACME")[..] else { panic!("{:?}", log.lines("")) };
    let expected = format!("the directory cannot be used: localhost:{down}: not connected: ");
    assert!(line.contains(&expected), "{line}");
    let _pebble = Pebble::start(&place, [port, 1], DAY, Some(down));
    gateway.reload(place.config(&text)).await.unwrap();
    metric_becomes(&gateway, ISSUED, 1.0).await;
    let client = client(&place, &file(&place, down, "www.example.org"));
    assert_eq!(client.exchange(port, "www.example.org", "").await.unwrap(), "one got ");
}

#[tokio::test]
async fn gateways_that_share_a_store_order_once() {
    let place = Place::new();
    let [(first, port), (second, other)] = [start(&place).await, start(&place).await];
    let gateways = [first, second];
    let ports = [port, other];
    let pebble = Pebble::start(&place, [port, 1], DAY, None);
    let text = listener(pebble.port, "\"www.example.org\"", "") + &route(backend("one").await, "");
    for gateway in &gateways {
        gateway.reload(place.config(&text)).await.unwrap();
    }
    // The authority asks the first one, whichever of them orders.
    let expiry = "dunlin_gateway_acme_expiry_seconds{certificate=\"www.example.org\"}";
    for gateway in &gateways {
        let begin = std::time::Instant::now();
        while metric(gateway, expiry) == 0.0 {
            assert!(begin.elapsed() < place::PATIENCE, "{}", gateway.metrics());
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(metric(&gateways[0], ISSUED) + metric(&gateways[1], ISSUED), 1.0);
    let client = client(&place, &file(&place, pebble.port, "www.example.org"));
    for port in ports {
        assert_eq!(client.exchange(port, "www.example.org", "").await.unwrap(), "one got ");
    }
}

#[test]
fn checks_a_certificate_by_acme_without_network_and_files() {
    let place = Place::new();
    let text = listener(1, "\"www.example.org\"", "") + &route(1, "");
    let warnings = Gateway::check(place.config(&text)).unwrap_or_else(|faults| panic!("{faults}"));
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.to_string().contains("there is no certificate for www.example.org yet"), "{warning}");
    assert!(!place.path("acme").exists());
    for (from, to, says) in [
        (
            "https://",
            "http://",
            "acme.directory: \"http://localhost:1/dir\" is not the URL of an ACME directory",
        ),
        ("\"www.example.org\"", "\"*.example.org\"", "acme.names[0]: \"*.example.org\" is not a host name"),
        ("\"www.example.org\"", "\"192.0.2.1\"", "acme.names[0]: \"192.0.2.1\" is not a host name"),
        ("\"www.example.org\"", "", "acme: 0 names in names"),
        ("terms_agreed = true", "", "agree to its terms of service"),
        ("mailto:", "", "is not a contact"),
        ("[listener.certificate.acme]", "chain = \"a\"\n[listener.certificate.acme]", "chain has no effect"),
        ("127.0.0.1:0\"\n", "127.0.0.1:0\"\nraw_public_key = true\n", "each renewal changes the key"),
        ("terms_agreed", "challenge = \"http-01\"\nterms_agreed", "http-01 needs a listener with"),
        ("terms_agreed", "challenge = \"dns-01\"\nterms_agreed", "write \"tls-alpn-01\" or \"http-01\""),
        ("terms_agreed", "key_type = \"ed25519\"\nterms_agreed", "is none of the allowed words"),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        let faults = Config::parse(Path::new("gateway.toml"), &changed).unwrap_err().to_string();
        assert!(faults.contains(says) && faults.lines().count() == 1, "{to}: {faults}");
    }
}
