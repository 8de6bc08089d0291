//! `dunlin client` and `dunlin server`, one against the other over loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{Place, send_signal};
use serde_json::Value;

/// Longer than anything here takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

const KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// The options of the two sides of a connection with certificates.
const SERVER: &str = "--cert pki/server.pem --key pki/server.key --echo";
const CLIENT: &str = "--CAfile pki/root.pem";
const OWN: &str = "--cert pki/client.pem --key pki/client.key";

/// A place with certificates in it.
fn place() -> Place {
    let place = Place::new();
    place.dunlin("pki demo --out pki");
    place
}

/// A process whose output is read line by line.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Receiver<String>,
}

/// The lines of `output`, as they come.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
    });
    lines
}

impl Running {
    fn new(place: &Place, arguments: &str) -> Self {
        let mut command = place.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Self { stdin: child.stdin.take(), child, lines: stdout, stderr }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line on stdout")
    }

    /// The next line on stderr.
    fn log(&self) -> String {
        self.stderr.recv_timeout(PATIENCE).expect("another line on stderr")
    }

    /// The next line on stderr with `text` in it.
    fn log_with(&self, text: &str) -> String {
        std::iter::repeat_with(|| self.log()).find(|line| line.contains(text)).unwrap()
    }

    fn write(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Closes stdin and waits for the end: the status, the rest of stdout, and stderr.
    fn end(mut self) -> (i32, String, String) {
        drop(self.stdin.take());
        let rest: Vec<_> = self.lines.iter().collect();
        let stderr: Vec<_> = self.stderr.iter().collect();
        (self.child.wait().unwrap().code().unwrap(), rest.join("\n"), stderr.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port that a server says it listens on.
fn port_in(line: &str) -> u16 {
    let port = line.split_once("127.0.0.1:").unwrap().1;
    port.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A server on a port of its own.
struct Server {
    process: Running,
    port: u16,
    /// What it said before.
    warnings: String,
}

impl Server {
    fn new(place: &Place, arguments: &str) -> Self {
        let process = Running::new(place, &format!("server --accept 0 {arguments}"));
        // Objects are on stdout where no data goes there.
        let next = || match arguments.contains("--json") && arguments.contains("--echo") {
            true => process.line(),
            false => process.log(),
        };
        let mut warnings = String::new();
        let listening = loop {
            match next() {
                line if line.contains("listening") => break line,
                line => warnings += &(line + "\n"),
            }
        };
        Self { port: port_in(&listening), process, warnings }
    }

    /// What the client says that connects with these options and sends `input`.
    fn client(&self, place: &Place, arguments: &str, input: &str) -> Output {
        let mut command = place.command(&format!("client localhost:{} {arguments}", self.port));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // One that was refused reads nothing more.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// The same, which has to succeed.
    fn echo(&self, place: &Place, arguments: &str, input: &str) -> String {
        let output = self.client(place, arguments, input);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What both sides say of a connection that fails.
    fn refused(&self, place: &Place, arguments: &str) -> (String, String) {
        let output = self.client(place, arguments, "");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {stderr}");
        (stderr.trim_end().to_owned(), self.process.log_with(" failed: "))
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

#[test]
fn certificates_on_both_sides() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify --alpn h2,x"));
    let told = server.echo(&place, &format!("{CLIENT} {OWN} --alpn x"), "hello\n");
    for line in [
        "Version            TLSv1.3",
        "Cipher suite       TLS_AES_128_GCM_SHA256",
        "Group              x25519",
        "Server             X.509 localhost",
        "Peer signature     ecdsa_secp256r1_sha256",
        "Own signature      ecdsa_secp256r1_sha256",
        "ALPN               x",
        "Resumed            no",
        "HelloRetryRequest  no",
    ] {
        assert!(told.lines().any(|l| l == line), "no {line:?} in\n{told}");
    }
    assert!(told.ends_with("---\nhello\n"), "{told}");
    let log = server.process.log();
    assert!(
        log.contains("connected: TLSv1.3, TLS_AES_128_GCM_SHA256, x25519, X.509 CN=device-1, ALPN x;"),
        "{log}"
    );
}

/// The two sides count the same bytes, and the records make up the difference to the messages.
#[test]
fn bytes_are_exact() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --json"));
    let told = server.echo(&place, &format!("{CLIENT} --json"), "hello\n");
    let client = json(told.lines().next().unwrap());
    let server = json(&server.process.line());
    assert_eq!((&server["event"], &server["peer"]), (&"connection".into(), &Value::Null));
    assert_eq!(client["handshake_bytes_read"], server["handshake_bytes_written"]);
    assert_eq!(client["handshake_bytes_written"], server["handshake_bytes_read"]);
    let messages = client["messages"].as_array().unwrap();
    let names: Vec<_> =
        messages.iter().map(|m| (m["sent"].as_bool().unwrap(), m["name"].as_str().unwrap())).collect();
    assert_eq!(
        names,
        [
            (true, "ClientHello"),
            (false, "ServerHello"),
            (false, "EncryptedExtensions"),
            (false, "Certificate"),
            (false, "CertificateVerify"),
            (false, "Finished"),
            (true, "Finished"),
        ]
    );
    let total = |sent| {
        messages.iter().filter(|m| m["sent"] == sent).map(|m| m["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    // Records: two in the clear with 5 bytes each, one with 5 + 1 + 16, and ChangeCipherSpec with 6.
    assert_eq!(client["handshake_bytes_written"], total(true) + 5 + 22 + 6);
    assert_eq!(client["handshake_bytes_read"], total(false) + 5 + 22 + 6);

    let place = self::place();
    let server = Server::new(&place, SERVER);
    let told = server.echo(&place, CLIENT, "");
    let line = told.lines().find(|l| l.starts_with("SSL handshake has read ")).unwrap();
    let numbers: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
    let log = server.process.log();
    assert!(
        log.ends_with(&format!("handshake read {} bytes, wrote {}", numbers[1], numbers[0])),
        "{line}\n{log}"
    );
}

#[test]
fn raw_public_keys() {
    let place = Place::new();
    for (name, typ) in [("server", "ed25519"), ("client", "p256")] {
        place.dunlin(&format!("pki raw-key --key-type {typ} --key {name}.key --public {name}.pub"));
    }
    let server =
        "--enable-server-rpk --key server.key --enable-client-rpk --rpk-file client.pub --Verify --rev";
    let server = Server::new(&place, server);
    let told = server.echo(&place, "--rpk-file server.pub --enable-client-rpk --key client.key", "abc\ndef");
    assert!(told.contains("\nServer             raw key sha256:"), "{told}");
    assert!(
        told.contains("\nPeer signature     ed25519\nOwn signature      ecdsa_secp256r1_sha256\n"),
        "{told}"
    );
    assert!(told.ends_with("cba\nfed"), "{told}");
    assert!(server.process.log().contains("raw key sha256:"));

    let (client, log) = server.refused(&place, "--rpk-file client.pub --enable-client-rpk --key client.key");
    assert!(
        client.contains("this client refused the server") && client.contains("in client.pub;"),
        "{client}"
    );
    assert!(log.contains("the client refused what this server proves itself with, server.key"), "{log}");
    let (client, log) = server.refused(&place, "--insecure");
    assert!(
        client.contains(
            "the server has or wants another certificate type (alert unsupported_certificate); try"
        ),
        "{client}"
    );
    assert!(log.contains("no common certificate type: RawPublicKey here, X.509 there; "), "{log}");
    let (client, log) = server.refused(&place, "--rpk-file server.pub --enable-client-rpk --key server.key");
    assert!(log.contains("this server refused the client") && log.contains("in client.pub;"), "{log}");
    assert!(
        client.contains("the server refused what this client proves itself with, server.key"),
        "{client}"
    );
}

#[test]
fn pre_shared_keys() {
    let place = Place::new();
    place.write("keys", format!("d1:{KEY}\nd2:{KEY}00\n"));
    let server = Server::new(&place, "--psk-file keys --psk-ke --echo");
    let told = server.echo(&place, "--psk-file keys --psk-identity d2 --brief", "hello\n");
    assert!(told.contains("x25519, PSK d2;") && told.ends_with("\nhello\n"), "{told}");
    // Without key exchange, and OpenSSL's spelling.
    let told = server.echo(&place, &format!("-psk {KEY} -psk_identity d1 -psk_ke -lean -brief"), "hello\n");
    assert!(told.contains("TLS_AES_128_GCM_SHA256, -, PSK d1;"), "{told}");
    assert!(server.process.log().contains("PSK d2") && server.process.log().contains("PSK d1"));

    let (client, log) = server.refused(&place, &format!("--psk {KEY}00 --psk-identity d1"));
    assert!(
        client.contains("does not know this identity with the key of --psk (alert decrypt_error)"),
        "{client}"
    );
    assert!(log.contains("the client has another pre-shared key under this identity than keys"), "{log}");
    let (client, log) = server.refused(&place, &format!("--psk {KEY}"));
    assert!(client.contains("does not know this identity"), "{client}");
    assert!(log.contains("the client offers no pre-shared key of keys"), "{log}");

    // A key without a hash of its own goes with SHA-256.
    for side in ["server", "client localhost:1 --psk-identity d1"] {
        let said =
            place.dunlin_fails(&format!("{side} --psk-file keys --ciphersuites TLS_AES_256_GCM_SHA384"), 2);
        assert!(said.contains("goes with SHA-256") && said.ends_with("add TLS_AES_128_GCM_SHA256"), "{said}");
    }
    let server = Server::new(
        &place,
        "--psk-file keys --echo --ciphersuites TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256",
    );
    server.echo(&place, "--psk-file keys --psk-identity d1", "");
    // One side alone without (EC)DHE.
    let (client, log) = server.refused(&place, "--psk-file keys --psk-identity d1 --psk-ke");
    assert!(
        log.contains("the client wants pre-shared keys without (EC)DHE; start this server with --psk-ke")
    );
    assert!(client.contains("let it allow --psk-ke, too; else it is often a wrong PSK"), "{client}");
    let (_, log) = server.refused(&place, "--insecure");
    assert!(log.contains("this server has only pre-shared keys, and the client offers none; "), "{log}");
}

#[test]
fn sessions_outlive_the_process() {
    for kind in ["", "--stateful-tickets", "--stateless-cookie --num-tickets 1"] {
        let place = place();
        let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --verify {kind}"));
        let client = format!("{CLIENT} {OWN} --brief");
        let told = server.echo(&place, &format!("{client} --sess-out session"), "hello\n");
        assert!(!told.contains("resumed"), "{told}");
        assert_eq!(place.mode("session"), 0o600);
        for _ in 0..2 {
            let told =
                server.echo(&place, &format!("{client} --sess-in session --sess-out session"), "hello\n");
            assert!(told.contains(", resumed"), "{kind}: {told}");
            let log = server.process.log_with(", resumed");
            assert!(log.contains("X.509 CN=device-1, resumed"), "{kind}: {log}");
        }
        // Who trusts somebody else, or asks for another name, does not resume.
        place.dunlin("pki demo --out others");
        let mixed = place.read("pki/root.pem") + &place.read("others/root.pem");
        place.write("mixed.pem", mixed);
        let output =
            server.client(&place, &format!("--CAfile mixed.pem {OWN} --brief --sess-in session"), "");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("resumed"));
        assert!(
            String::from_utf8_lossy(&output.stderr)
                .contains("dunlin: session: the session is not used: it was made with other")
        );
        let output = server.client(&place, &format!("{client} --servername 127.0.0.1 --sess-in session"), "");
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stderr).contains("it is for localhost"));
        // Another server, which knows nothing of it.
        let other = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --verify {kind}"));
        let output = other.client(&place, &format!("{client} --sess-in session"), "");
        assert_eq!(output.status.code(), Some(0));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("dunlin: session: the session is not used: the server declined it"), "{told}");
    }
}

#[test]
fn reconnections_resume() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let told = server.echo(&place, &format!("{CLIENT} --reconnect --brief"), "hello\n");
    let resumed: Vec<_> = told.lines().map(|line| line.contains(", resumed")).collect();
    assert_eq!(resumed, [false, true, true, true, true, true, false], "the last line is data: {told}");
    let server = Server::new(&place, &format!("{SERVER} --num-tickets 0"));
    let told = server.echo(&place, &format!("{CLIENT} --reconnect --brief"), "");
    assert!(!told.contains("resumed"), "{told}");
}

#[test]
fn hello_retry_requests() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --groups P-256"));
    let told = server.echo(&place, &format!("{CLIENT} --groups x25519:secp256r1"), "hello\n");
    assert!(told.contains("\nGroup              secp256r1\n"), "{told}");
    assert!(told.contains("\nHelloRetryRequest  yes\n"), "{told}");
    let retry = told.lines().filter(|l| l.starts_with("received  HelloRetryRequest ")).count();
    assert_eq!((retry, told.matches("sent      ClientHello").count()), (1, 2), "{told}");
}

#[test]
fn certificates_are_compressed_where_both_sides_say_so() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem -Verify -cert_comp"));
    let told = server.echo(&place, &format!("{CLIENT} {OWN} -cert_comp"), "hello\n");
    for direction in ["received", "sent"] {
        let compressed = |l: &str| l.starts_with(direction) && l.contains(" CompressedCertificate ");
        assert!(told.lines().any(compressed), "none {direction} in\n{told}");
    }
    let told = server.echo(&place, &format!("{CLIENT} {OWN}"), "hello\n");
    assert!(!told.contains("CompressedCertificate"), "{told}");
}

#[test]
fn the_credential_that_suits_is_used() {
    let place = Place::new();
    let types = ["rsa2048", "p256", "ed25519", "mldsa44"];
    for typ in types {
        place.dunlin(&format!("pki demo --out {typ} --key-type {typ}"));
    }
    let pair = |typ| format!("--cert {typ}/server.pem --key {typ}/server.key");
    let server = types.map(pair).join(" ");
    let server = Server::new(&place, &format!("{server} --echo"));
    for (typ, schemes, signature) in [
        ("rsa2048", "rsa_pss_rsae_sha256:rsa_pkcs1_sha256", "rsa_pss_rsae_sha256"),
        ("p256", "ecdsa_secp256r1_sha256", "ecdsa_secp256r1_sha256"),
        ("ed25519", "ed25519", "ed25519"),
        ("mldsa44", "MLDSA44", "mldsa44"),
    ] {
        let told = server.echo(&place, &format!("--CAfile {typ}/root.pem --sigalgs {schemes} --json"), "");
        assert_eq!(json(told.lines().next().unwrap())["peer_signature"], signature);
    }
}

#[test]
fn revoked_certificates_are_refused_by_either_side() {
    let place = place();
    let sub = "--issuer pki/intermediate.pem --issuer-key pki/intermediate.key";
    place.dunlin(&format!("pki crl {sub} --crl pki/none.pem"));
    place.dunlin(&format!("pki crl {sub} --crl pki/server-crl.pem --revoke pki/server.pem"));
    place.dunlin(&format!("pki crl {sub} --crl pki/client-crl.pem --revoke pki/client.pem"));

    let server = format!("{SERVER} --CAfile pki/root.pem --Verify -crl_check -CRL");
    let good = Server::new(&place, &format!("{server} pki/none.pem"));
    good.echo(&place, &format!("{CLIENT} {OWN} -crl_check -CRL pki/none.pem"), "hello\n");
    for (options, why) in [
        ("-crl_check -CRL pki/server-crl.pem", "its certificate is revoked"),
        // There is no list of the root.
        ("-crl_check_all -CRL pki/none.pem", "there is no revocation list of an issuer"),
        ("-CRL pki/none.pem", "nothing says what to check with it"),
        ("-crl_check", "there is no revocation list"),
        ("-crl_check -CRL pki/root.pem", "no revocation list in it"),
    ] {
        let output = good.client(&place, &format!("{CLIENT} {OWN} {options}"), "");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{options}: {told}");
    }
    let strict = Server::new(&place, &format!("{server} pki/client-crl.pem"));
    let (told, log) = strict.refused(&place, &format!("{CLIENT} {OWN}"));
    assert!(told.contains("certificate_revoked"), "{told}");
    assert!(log.contains("this server refused the client: its certificate is revoked"), "{log}");
}

#[test]
fn post_quantum_groups_by_name() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} -groups X25519MLKEM768:MLKEM768:x25519"));
    let client = "--CAfile pki/root.pem --json -groups";
    for (groups, group) in [
        ("x25519mlkem768:x25519", "X25519MLKEM768"),
        ("MLKEM768", "MLKEM768"),
        ("x25519:X25519MLKEM768", "x25519"),
    ] {
        let told = server.echo(&place, &format!("{client} {groups}"), "");
        assert_eq!(json(told.lines().next().unwrap())["group"], group);
    }
}

#[test]
fn a_list_for_chains_decides_between_credentials() {
    let place = Place::new();
    for typ in ["p256", "p384"] {
        place.dunlin(&format!("pki demo --out {typ} --key-type {typ}"));
    }
    let pair = |typ| format!("--cert {typ}/server.pem --key {typ}/server.key");
    let server = Server::new(&place, &format!("{} {} --echo", pair("p256"), pair("p384")));
    let told = server.echo(&place, "--CAfile p384/root.pem -sigalgs_cert ecdsa_secp384r1_sha384 --json", "");
    assert_eq!(json(told.lines().next().unwrap())["peer_signature"], "ecdsa_secp384r1_sha384");
}

#[test]
fn each_side_says_which_check_failed() {
    let place = place();
    place.dunlin("pki demo --out others --key-type ed25519");
    // The other authority has the same name; this one has not.
    place.dunlin("pki ca --name Stranger --out stranger");
    let server =
        Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify --alpn h2 --groups x25519"));
    for (client, says, logs) in [
        (
            "--CAfile stranger/ca.pem",
            "this client refused the server: its chain leads to no trusted CA in stranger/ca.pem; \
             give the root that issued it with --CAfile",
            "the client refused what this server proves itself with, pki/server.pem (alert unknown_ca)",
        ),
        (
            "--CAfile pki/root.pem --servername example.org",
            "this client refused the server: its certificate is not for example.org but for localhost, 127.0.0.1; ",
            "the client refused what this server proves itself with, pki/server.pem (alert bad_certificate)",
        ),
        (
            "--CAfile pki/root.pem",
            "the server refused this client, which showed no certificate (alert certificate_required)",
            "this server refused the client: it sent no certificate",
        ),
        (
            "--CAfile pki/root.pem --cert others/client.pem --key others/client.key",
            "the server refused what this client proves itself with, others/client.pem (alert ",
            "this server refused the client: ",
        ),
        (
            "--CAfile pki/root.pem --cert pki/server.pem --key pki/server.key",
            "the server refused what this client proves itself with, pki/server.pem (alert certificate_unknown)",
            "this server refused the client: its certificate may not be used for this role",
        ),
        (
            "--CAfile pki/root.pem --alpn http/1.1",
            "the server speaks none of these application protocols (alert no_application_protocol)",
            "this server finds no common application protocol",
        ),
        (
            "--CAfile pki/root.pem --groups P-384",
            "the server finds nothing in common (alert handshake_failure)",
            "this server finds no common group",
        ),
    ] {
        let (client_said, log) = server.refused(&place, &format!("{client} --quiet"));
        assert!(client_said.starts_with("dunlin: server localhost:"), "{client_said}");
        assert!(client_said.contains(says), "{client}\n{client_said}");
        assert!(log.contains(logs), "{client}\n{log}");
    }
    // Believing everybody, the first of them gets a connection.
    let output = server.client(&place, &format!("--insecure {OWN} --brief"), "");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("warning: --insecure"));
}

/// What is wrong with a server's certificate, by the files that it was made of.
#[test]
fn certificates_that_do_not_serve_are_explained() {
    let place = place();
    place.dunlin("pki demo --out ed --key-type ed25519");
    let own = "--cert x.pem --key x.key --echo";
    let leaf = "pki leaf --issuer pki/root.pem --issuer-key pki/root.key --server --san localhost --force \
                --cert x.pem --key x.key";
    let refused = |make: &str, trusted: &str| {
        place.dunlin(make);
        Server::new(&place, own).refused(&place, &format!("--CAfile {trusted}"))
    };
    let root = "pki/root.pem";
    let expired = "--not-before 2025-01-01 --not-after 2025-01-02";
    let (said, _) = refused(&format!("{leaf} {expired}"), root);
    assert!(said.contains("its certificate has expired at 2025-01-02T00:00:00Z; "), "{said}");
    let warning = Server::new(&place, &format!("{own} --CAfile {root}")).warnings;
    assert!(
        warning.contains("warning: x.pem: a certificate expired at 2025-01-02T00:00:00Z: peers"),
        "{warning}"
    );
    assert!(warning.contains("warning: --CAfile: no client is asked to prove who it is; add"), "{warning}");
    let future = "--not-before 2090-01-01 --not-after 2090-01-02";
    let (said, _) = refused(&format!("{leaf} {future}"), root);
    assert!(said.contains("its certificate is not valid yet before 2090-01-01T00:00:00Z; "), "{said}");
    let (said, _) = refused("pki ca --name localhost --cert x.pem --key x.key --force", root);
    assert!(said.contains("an authority's, which serves as no leaf; ") && said.contains("dunlin pki leaf"));
    // The same name, and a key of another type.
    let (said, _) = refused(leaf, "ed/root.pem");
    assert!(said.contains("it was not issued by the CA of this name in ed/root.pem; "), "{said}");
    let said = place.dunlin_fails("pki verify --ca ed/root.pem x.pem", 1);
    assert!(said.contains("by a key of another type than its authority has; "), "{said}");
    // The intermediate certificate is not sent.
    let sub = leaf.replace("pki/root", "pki/intermediate");
    let (said, _) = refused(&format!("{sub} --no-chain"), root);
    assert!(said.ends_with("or let the server send its intermediate certificates"), "{said}");
    // An authority in between that has expired.
    place.dunlin(&format!(
        "pki intermediate --issuer {root} --issuer-key pki/root.key --name Between --cert b.pem --key b.key {expired}"
    ));
    let (said, _) = refused(&format!("{} --days 30", leaf.replace("pki/root.", "b.")), root);
    assert!(said.contains("the certificate of Between in its chain has expired at 2025-01-02"), "{said}");
}

/// One scheme is enough where it is that of the keys that are trusted.
#[test]
fn lean_sides_verify_what_they_trust() {
    let place = Place::new();
    for typ in ["ed25519", "p384", "rsa2048", "mldsa44"] {
        place.dunlin(&format!("pki demo --out {typ} --key-type {typ} --lean"));
        let side = |name: &str| {
            format!("--lean --CAfile {typ}/root.pem --cert {typ}/{name}.pem --key {typ}/{name}.key")
        };
        let server = Server::new(&place, &format!("{} --Verify --echo", side("server")));
        server.echo(&place, &side("client"), "hello\n");
    }
    let server = Server::new(&place, "--cert ed25519/server.pem --key ed25519/server.key --echo");
    let (_, log) = server.refused(&place, "--CAfile p384/root.pem --lean");
    assert!(log.contains("no signature scheme of the client for ed25519/server.key (ed25519); "), "{log}");
}

#[test]
fn what_cannot_work_is_said_before_connecting() {
    let place = place();
    place.write("short", "d1:00\n");
    place.write("empty", "\n");
    place.write("garbage.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    place.write("short.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n");
    place.write("cut.pem", &place.read("pki/root.pem")[..200]);
    place.write("two", format!("d1:{KEY}\nd2:{KEY}\n"));
    place.dunlin("pki raw-key --key raw.key --public raw.pub");
    for (arguments, says) in [
        ("client --CAfile nothing.pem", "dunlin: nothing.pem: no such file; "),
        ("client --CAfile pki/root.key", "dunlin: pki/root.key: no certificate in it; "),
        (
            "client --cert pki/client.pem --key pki/server.key",
            "pki/server.key: not the key of the first certificate in pki/client.pem; ",
        ),
        ("client --psk-file short", "dunlin: short: line 1: a key of 1 byte,"),
        ("client --psk-file two --psk-identity d3", "dunlin: two: no key of d3; "),
        (
            "client --sess-in pki/root.pem --CAfile pki/root.pem",
            "dunlin: pki/root.pem: not a session of this program; ",
        ),
        ("client localhost:0 --CAfile pki/root.pem", "dunlin: server localhost:0: "),
        ("client --rpk-file pki/root.pem", "dunlin: pki/root.pem: no public key in it; "),
        ("server --cert nothing.pem", "dunlin: nothing.pem: no such file; "),
        (
            "server --cert pki/server.pem",
            "no private key in it; give it with --key, or a file that holds both",
        ),
        (
            "client --CAfile garbage.pem",
            "garbage.pem: malformed PEM (what stands between its lines is not base64); ",
        ),
        (
            "client --CAfile cut.pem",
            "cut.pem: malformed PEM (the line -----END CERTIFICATE----- is missing); ",
        ),
        ("client --CAfile short.pem", "short.pem: malformed certificate ("),
        ("server --psk-file empty", "dunlin: empty: no key in it; "),
        ("client --psk-file empty", "dunlin: empty: no key in it; "),
        ("client --CAfile pki/root.pem --sess-out pki", "dunlin: pki: a directory; "),
        (
            "client --CAfile pki/root.pem --sess-out no/session",
            "no/session: there is no directory no; make it",
        ),
        ("client --CAfile pki/root.pem --keylogfile no/log", "no/log: there is no directory no; make it"),
    ] {
        let said = place.dunlin_fails(arguments, 1);
        assert!(said.contains(says), "{arguments}\n{said}");
    }
    for (arguments, says) in [
        ("client a b", "unexpected argument"),
        ("client -tls1_2", "unexpected argument '-tls1_2' found; add --help"),
        (
            "client -psk_identitty x",
            "unexpected argument '-psk_identitty' found; a similar argument exists: ",
        ),
        ("client -psk 00 -psk_file two", "the argument '-psk <HEX>' cannot be used with '-psk_file <FILE>'"),
        ("client ::1:443", "write [::1]:443"),
        ("client --psk 00 --psk-file two", "cannot be used with"),
        ("server --psk 00 --psk-file two", "cannot be used with"),
        ("client --insecure --CAfile pki/root.pem", "cannot be used with"),
        ("client localhost:99999", "the port is no number up to 65535"),
        ("client --groups P-999", "\"P-999\" is none of x25519, secp256r1, secp384r1"),
        ("client --ciphersuites TLS_RSA_WITH_RC4_128_MD5", "is none of TLS_AES_128_GCM_SHA256"),
        ("client --psk xyz", "--psk: not hexadecimal; "),
        ("client --psk 00", "a pre-shared key needs at least 16 bytes, this one has 1"),
        ("client --psk-file two", "two has several keys; choose one with --psk-identity"),
        ("client --key raw.key --CAfile pki/root.pem", "--key: there is no certificate for it; "),
        (
            "client --enable-client-rpk --CAfile pki/root.pem",
            "--enable-client-rpk: there is no key of our own; ",
        ),
        ("client --enable-server-rpk", "--enable-server-rpk: nothing says which keys to trust; "),
        (
            "client --record-size-limit 63 --CAfile pki/root.pem",
            "record_size_limit is 64 to 16385 bytes, not 63",
        ),
        ("client --timeout 0", "not a number of seconds from 1 on"),
        ("server", "server: nothing to prove itself with; "),
        (
            "server --cert pki/server.pem --key pki/server.key --Verify",
            "--verify: nothing says which clients to trust; ",
        ),
        ("server --psk-file two --ticket-lifetime 604801", "tickets live for at most seven days"),
        ("server --accept localhost:1", "neither a port nor an IP address with a port"),
        ("server --cert a --cert b --key c", "--key: 1 keys for 2 certificates; "),
    ] {
        let said = place.dunlin_fails(arguments, 2);
        assert!(said.contains(says), "{arguments}\n{said}");
    }
}

#[test]
fn lines_of_one_letter_are_commands() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let told = server.echo(&place, &format!("{CLIENT} --msg --brief"), "K\nafter\nk\nQ\nnever\n");
    let updates = |line: &str| told.lines().filter(|l| l.starts_with(line)).count();
    assert_eq!(updates("sent      KeyUpdate"), 2, "{told}");
    assert!(!told.contains("never"), "{told}");
    for switch in ["--nocommands --brief", "--quiet"] {
        let told = server.echo(&place, &format!("{CLIENT} {switch}"), "K\nQ\nmore\n");
        assert!(told.ends_with("K\nQ\nmore\n"), "{told}");
    }
    let told = server.echo(&place, &format!("{CLIENT} --quiet"), "only data");
    assert_eq!(told, "only data");
}

#[test]
fn keys_are_updated_after_so_many_records() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let data = "x".repeat(100_000);
    let told = server.echo(&place, &format!("{CLIENT} --key-update 2 --msg --brief"), &data);
    assert!(told.contains("sent      KeyUpdate"), "{}", &told[..2000]);
    assert!(told.matches('x').count() >= data.len());
}

#[test]
fn the_key_log_is_for_its_owner() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let output = server.client(&place, &format!("{CLIENT} --keylogfile log"), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("dunlin: warning: whoever reads log can read"));
    assert_eq!(place.mode("log"), 0o600);
    let log = place.read("log");
    for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"] {
        let line =
            log.lines().find(|l| l.starts_with(label)).unwrap_or_else(|| panic!("no {label} in {log}"));
        let lengths: Vec<_> = line.split(' ').skip(1).map(str::len).collect();
        assert_eq!(lengths, [64, 64], "{line}");
    }
}

#[test]
fn stdin_and_stdout_of_both_sides_are_joined() {
    let place = place();
    let mut server = Server::new(&place, "--cert pki/server.pem --key pki/server.key --naccept 1");
    let mut client = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
    client.write("to the server\n");
    server.process.log_with("connected");
    assert_eq!(server.process.line(), "to the server");
    server.process.write("to the client\n");
    assert_eq!(client.line(), "to the client");
    let (status, _, stderr) = client.end();
    assert_eq!((status, stderr.as_str()), (0, ""));
    let (status, rest, stderr) = server.process.end();
    assert_eq!((status, rest.as_str(), stderr.as_str()), (0, "", ""));
}

#[test]
fn clients_do_not_wait_for_each_other() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let client = format!("client localhost:{} {CLIENT} --quiet", server.port);
    let mut clients: Vec<_> = (0..4).map(|_| Running::new(&place, &client)).collect();
    // The last one is served first.
    for (i, client) in clients.iter_mut().enumerate().rev() {
        client.write(&format!("client {i}\n"));
        assert_eq!(client.line(), format!("client {i}"));
    }
    drop(idle);
    for client in clients {
        assert_eq!(client.end().0, 0);
    }
}

/// Whoever is connected hears of the end in the protocol.
#[test]
fn signals_end_both_sides_well() {
    let place = place();
    for signal in ["-INT", "-TERM"] {
        let server = Server::new(&place, &format!("{SERVER} --naccept 1"));
        let options = format!("client localhost:{} {CLIENT} --quiet", server.port);
        let mut client = Running::new(&place, &options);
        client.write("hello\n");
        assert_eq!(client.line(), "hello");
        let stdin = client.stdin.take();
        send_signal(&client.child, signal);
        assert_eq!(client.end(), (0, String::new(), String::new()));
        drop(stdin);
        let (status, _, log) = server.process.end();
        assert!(status == 0 && !log.contains("failed"), "{log}");

        let server = Server::new(&place, SERVER);
        let options = format!("client localhost:{} {CLIENT} --quiet", server.port);
        let mut client = Running::new(&place, &options);
        client.write("hello\n");
        assert_eq!(client.line(), "hello");
        // One that never says a word is not waited for.
        let idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        send_signal(&server.process.child, signal);
        assert_eq!(client.end(), (0, String::new(), String::new()));
        assert_eq!(server.process.end().0, 0);
        drop(idle);
    }
}

#[test]
fn data_that_is_cut_off_is_an_error() {
    let place = place();
    let mut server = Server::new(&place, SERVER);
    let mut client = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
    client.write("hello\n");
    assert_eq!(client.line(), "hello");
    server.process.child.kill().unwrap();
    let stderr = client.log();
    assert_eq!(client.child.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("the connection ended without close_notify") || stderr.contains("reset"),
        "{stderr}"
    );
}

#[test]
fn who_says_nothing_is_given_up() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --timeout 1 --naccept 1 --json"));
    let mut idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "the server closes");
    let failure = json(&server.process.line());
    assert_eq!(failure["event"], "failure");
    assert_eq!(failure["why"], "the handshake was not complete after 1s");
    let (status, _, stderr) = server.process.end();
    assert_eq!(status, 1);
    assert!(stderr.contains("1 of 1 connections failed"), "{stderr}");
}

#[test]
fn openssl_connects() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify"));
    let told = place.tool(
        "openssl",
        &format!(
            "s_client -connect 127.0.0.1:{} -servername localhost -CAfile pki/root.pem -verify_return_error -cert pki/client.pem \
             -cert_chain pki/client.pem -key pki/client.key",
            server.port
        ),
    );
    assert!(told.contains("Verification: OK"), "{told}");
    assert!(server.process.log().contains("X.509 CN=device-1"));
}

/// Data alone is on stdout, and with --quiet nothing but failures is said.
#[test]
fn stdout_is_for_data() {
    let place = place();
    let pair = "--cert pki/server.pem --key pki/server.key --naccept 2";
    let server = Server::new(&place, &format!("{pair} --json"));
    server.echo(&place, &format!("{CLIENT} --quiet"), "one\n");
    assert_eq!(server.process.line(), "one");
    assert_eq!(json(&server.process.log())["event"], "connection");
    server.client(&place, "--CAfile pki/root.pem --servername example.org", "");
    let (status, stdout, stderr) = server.process.end();
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.contains("\"event\":\"failure\""), "{stderr}");

    // The port of one that says nothing has to be known.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for json in ["", "--json"] {
        let process = Running::new(&place, &format!("server --accept {port} {pair} --quiet {json}"));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::yield_now();
        }
        let server = Server { process, port, warnings: String::new() };
        server.echo(&place, &format!("{CLIENT} --quiet"), "data\n");
        let (status, stdout, stderr) = server.process.end();
        // The first connection said nothing and is a failure.
        assert_eq!((status, stdout.as_str()), (1, "data"), "{stderr}");
        assert!(stderr.starts_with(if json.is_empty() { "127.0.0.1:" } else { "{" }), "{stderr}");
        assert!(!stderr.contains("listening") && !stderr.contains("TLSv1.3,"), "{stderr}");
    }
}

/// A server whose data nobody takes serves nobody.
#[test]
fn a_server_without_stdout_ends() {
    let place = place();
    let arguments = "server --accept 0 --cert pki/server.pem --key pki/server.key";
    let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let stderr = lines(child.stderr.take().unwrap());
    let process = Running { child, stdin: None, lines: channel().1, stderr };
    let server = Server { port: port_in(&process.log()), process, warnings: String::new() };
    server.client(&place, CLIENT, "hello\n");
    let (status, _, stderr) = server.process.end();
    let last = stderr.lines().last().unwrap();
    assert!(status == 1 && last.starts_with("dunlin: stdout: Broken pipe"), "{stderr}");
    assert!(!stderr.contains("failed"), "{stderr}");
}

/// Input that the server did not take is missed; that of a silent pipe is none.
#[test]
fn input_that_is_left_is_an_error() {
    let place = place();
    let pair = "--cert pki/server.pem --key pki/server.key";
    let closing = || {
        let mut server = Server::new(&place, pair);
        let client = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
        server.process.log_with("connected");
        // At its end the server says close_notify, and goes on reading.
        drop(server.process.stdin.take());
        (server, client)
    };
    let (server, mut client) = closing();
    send_signal(&server.process.child, "-INT");
    while client.child.try_wait().unwrap().is_none() {
        if client.stdin.as_mut().unwrap().write_all(&[b'x'; 1000]).is_err() {
            break;
        }
    }
    let (status, _, stderr) = client.end();
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("of the input, and there are more") || stderr.contains("reset"), "{stderr}");

    let (server, mut client) = closing();
    client.write("hello\n");
    assert_eq!(server.process.line(), "hello");
    send_signal(&server.process.child, "-INT");
    let stdin = client.stdin.take();
    let (status, _, stderr) = client.end();
    assert_eq!((status, stderr.as_str()), (0, ""));
    drop(stdin);
}

#[test]
fn key_updates_are_messages() {
    let place = place();
    for answer in ["--echo", "--rev"] {
        let server = Server::new(&place, &format!("{} --msg", SERVER.replace("--echo", answer)));
        server.echo(&place, &format!("{CLIENT} --brief"), "K\nafter\n");
        for direction in ["received", "sent    "] {
            server.process.log_with(&format!("{direction}  KeyUpdate"));
        }
    }
}
