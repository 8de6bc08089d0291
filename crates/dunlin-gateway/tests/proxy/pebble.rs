//! Let's Encrypt's test server Pebble, and a DNS server that answers it with the address of this machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::place::Place;

/// A server that ends with the test.
pub(crate) struct Pebble {
    child: Child,
    pub(crate) port: u16,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/pebble");
        let mut build = Command::new(root.join("tools/go"));
        build.arg("build").arg("-C").arg(root.join("tests/peers/pebble"));
        let output = build.args(["-o", target, "github.com/letsencrypt/pebble/v2/cmd/pebble"]).output();
        let output = output.expect("tools/go");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.to_owned()
    })
}

/// Answers all questions for addresses of IPv4 with 127.0.0.1, and all others with nothing. Pebble asks over
/// TCP. Returns its port.
fn dns() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || while answer(&mut stream).is_ok() {});
        }
    });
    port
}

/// Answers one question.
fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut query = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut query)?;
    // RFC 1035 §4.1: a header of 12 bytes, and a question that ends with type and class.
    let name = query[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[12..12 + name + 5];
    let is_v4 = question[name + 1..name + 3] == [0, 1];
    let counts = [0, 1, 0, u8::from(is_v4), 0, 0, 0, 0];
    let mut answer = [&query[..2], &[0x81, 0x80], &counts, question].concat();
    if is_v4 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    let len = u16::try_from(answer.len()).unwrap().to_be_bytes();
    stream.write_all(&[&len[..], &answer].concat())
}

/// A port that is free now. Another program may take it first.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Pebble {
    /// Starts it with the server certificate of `place`. It validates names at the ports `tls` and `http`,
    /// and its certificates are valid for `validity` seconds. `port` is its own; `None`: a free one.
    pub(crate) fn start(place: &Place, [tls, http]: [u16; 2], validity: u32, port: Option<u16>) -> Self {
        let resolver = format!("127.0.0.1:{}", dns());
        loop {
            // Pebble chooses no free port itself.
            let own = port.unwrap_or_else(free_port);
            let config = format!(
                r#"{{"pebble": {{"listenAddress": "127.0.0.1:{own}", "managementListenAddress": "",
                "certificate": "server.pem", "privateKey": "server.key", "httpPort": {http}, "tlsPort": {tls},
                "keyAlgorithm": "ecdsa", "domainBlocklist": ["blocked.example"],
                "retryAfter": {{"authz": 1, "order": 1}},
                "profiles": {{"default": {{"description": "default", "validityPeriod": {validity}}}}}}}}}"#
            );
            place.write("pebble.json", &config);
            let mut command = Command::new(program());
            command.args(["-config", "pebble.json", "-dnsserver", &resolver]).current_dir(place.path(""));
            // It would otherwise wait before each validation.
            command.env("PEBBLE_VA_NOSLEEP", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let log = BufReader::new(child.stdout.take().unwrap());
            let pebble = Self { child, port: own };
            // It listens a moment after it has said so; the connection of the test tells whether it does.
            let mut lines = log.lines().map_while(Result::ok);
            assert!(lines.any(|line| line.contains("ACME directory available")), "Pebble does not start");
            std::thread::spawn(move || lines.for_each(drop));
            if pebble.listens() {
                return pebble;
            }
        }
    }

    /// Waits until it listens. `false` if it has ended, since another program has its port.
    fn listens(&self) -> bool {
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            if !Path::new(&format!("/proc/{}/exe", self.child.id())).exists() {
                return false;
            }
            std::thread::yield_now();
        }
    }
}
