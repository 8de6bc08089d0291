//! Tests `dunlin up`: all devices authenticate, and the process ends on time or on a signal.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use crate::common::{Place, send_signal};
use serde_json::Value;

const WAYS: [&str; 8] = [
    "X.509 P-256",
    "X.509 Ed25519",
    "raw key",
    "PSK + ECDHE",
    "PSK",
    "X.509, resumed",
    "X.509, cached",
    "PSK, moving",
];

/// The connections of each device, in order.
fn by_device(json: &str) -> BTreeMap<String, Vec<Value>> {
    let mut devices = BTreeMap::<_, Vec<Value>>::new();
    for line in json.lines() {
        let report: Value = serde_json::from_str(line).unwrap();
        devices.entry(text(&report, "device").to_owned()).or_default().push(report);
    }
    devices
}

fn text<'a>(report: &'a Value, name: &str) -> &'a str {
    report[name].as_str().unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn bytes(report: &Value) -> u64 {
    let read = report["handshake_bytes_read"].as_u64().unwrap();
    let written = report["handshake_bytes_written"].as_u64().unwrap();
    assert!(read > 0 && written > 0, "{report}");
    read + written
}

#[test]
fn every_way_authenticates_both_sides() {
    let json = Place::new().dunlin("up --once --devices 8 --interval 0.05 --json");
    let devices = by_device(&json);
    assert_eq!(devices.len(), WAYS.len(), "{json}");
    for ((name, connections), way) in devices.iter().zip(WAYS) {
        let [first, second] = &connections[..] else { panic!("not two connections: {connections:?}") };
        for report in [first, second] {
            assert_eq!((text(report, "event"), text(report, "side")), ("connection", "client"));
            assert_eq!(text(report, "way"), way);
            assert!(report["echoed_bytes"].as_u64().unwrap() > 0);
            let (client, server) = (text(report, "client_identity"), text(report, "peer"));
            if way.starts_with("X.509") {
                assert_eq!((client, server), (&*format!("X.509 {name}"), "X.509 localhost"));
            } else if way.starts_with("PSK") {
                assert_eq!((client, server), (&*format!("PSK {name}"), &*format!("PSK {name}")));
            } else {
                assert!(client.starts_with("raw key sha256:") && server.starts_with("raw key sha256:"));
                assert_ne!(client, server);
            }
            assert_eq!(client, text(first, "client_identity"));
            assert_eq!(server, text(first, "peer"));
        }
        let is_moving = way == "PSK, moving";
        assert_eq!(text(first, "version"), if is_moving { "DTLSv1.3" } else { "TLSv1.3" });
        let moved = first["moved_to"].as_str().is_some_and(|to| to.starts_with("127.0.0.3:"));
        assert_eq!(moved, is_moving, "{first}");
        assert_eq!(first["resumed"], false);
        assert_eq!(second["resumed"], way == "X.509, resumed", "{second}");
        for side in ["server_certificate_cached", "client_certificate_cached"] {
            assert_eq!(first[side], false);
            assert_eq!(second[side], way == "X.509, cached", "{second}");
        }
        assert_eq!([&first["number"], &second["number"]], [1, 2]);
    }
}

#[test]
fn lighter_ways_take_fewer_bytes() {
    let json = Place::new().dunlin("up --once --devices 7 --interval 0.05 --json");
    let devices = by_device(&json);
    let first = |n: usize| bytes(&devices[&format!("device-{n}")][0]);
    let [x509, raw_key, psk_ecdhe, psk] = [1, 3, 4, 5].map(first);
    assert!(x509 > raw_key && raw_key > psk_ecdhe && psk_ecdhe > psk, "{x509} {raw_key} {psk_ecdhe} {psk}");
    let [full, resumed] = [0, 1].map(|n| bytes(&devices["device-6"][n]));
    assert!(resumed * 2 < full, "{resumed} bytes resumed, {full} in full");
    let [full, cached] = [0, 1].map(|n| bytes(&devices["device-7"][n]));
    assert!(cached * 5 < full * 3, "{cached} bytes cached, {full} in full");
}

#[test]
fn devices_take_the_ways_in_turn() {
    let json = Place::new().dunlin("up --once --devices 15 --interval 0.05 --json");
    let devices = by_device(&json);
    assert_eq!(devices.len(), 15);
    for n in 1..=15 {
        assert_eq!(text(&devices[&format!("device-{n}")][0], "way"), WAYS[(n - 1) % WAYS.len()]);
    }
}

#[test]
fn tables_and_lines_are_plain() {
    let place = Place::new();
    let table = place.dunlin("up --once --interval 0.05");
    let ready: Vec<_> =
        table.lines().filter(|line| line.starts_with("dunlin up: ready on 127.0.0.1:")).collect();
    assert_eq!(ready.len(), 1, "{table}");
    assert!(!table.contains("by hand"), "the server ends before a user could connect: {table}");
    for (n, way) in (1..).zip(WAYS) {
        let row = table.lines().find(|line| line.starts_with(&format!("device-{n} "))).unwrap();
        assert!(row.contains(way), "{row}");
    }
    let moving = table.lines().find(|line| line.starts_with("device-8 ")).unwrap();
    assert!(moving.contains(" moved "), "{moving}");
    for (device, how) in [("device-6 ", "resumed "), ("device-7 ", "cached ")] {
        let row = table.lines().find(|line| line.starts_with(device)).unwrap();
        assert!(row.contains(how), "{row}");
        let saved = row.split_whitespace().rev().nth(1).unwrap();
        assert!(saved.parse::<u64>().is_ok_and(|saved| saved > 300), "{row}");
    }

    let log = place.dunlin("up --once --interval 0.05 --log");
    assert_eq!(log.lines().filter(|line| line.starts_with("device-") && line.contains(": ok, ")).count(), 16);
    assert!(log.lines().any(|line| line.contains(": ok, moved to 127.0.0.3:")), "{log}");
    assert!(!table.contains('\x1b') && !log.contains('\x1b'));
    assert_eq!(place.files(), [""; 0], "no file is written");
}

/// A `dunlin up` that runs until it is stopped.
struct Running {
    child: Child,
    ready: String,
}

impl Running {
    fn start(place: &Place, arguments: &str) -> Self {
        let mut child = place.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("dunlin up: ready on 127.0.0.1:"), "{ready}");
        Self { child, ready }
    }

    /// Waits for a line that begins with `beginning`.
    fn wait_for(&mut self, beginning: &str) {
        let lines = BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap()).lines();
        let found = lines.map(Result::unwrap).any(|line| line.starts_with(beginning));
        assert!(found, "no line begins with {beginning}");
    }

    /// Sends a signal, after which the process must end with status 0, and returns the rest of its output.
    fn stop(mut self, signal: &str) -> String {
        send_signal(&self.child, signal);
        let mut rest = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn signal_ends_it_with_a_summary() {
    let place = Place::new();
    for signal in ["-INT", "-TERM"] {
        let rest = Running::start(&place, "up --devices 2").stop(signal);
        let summary = rest.lines().last().unwrap();
        assert!(summary.starts_with("dunlin up: ") && summary.contains("0 failed"), "{rest}");
    }
}

#[test]
fn writes_the_files_for_joining_by_hand() {
    let place = Place::new();
    let mut running = Running::start(&place, "up --devices 1 --dir hand --log");
    let address = running.ready.split([' ', ',']).find(|word| word.starts_with("127.")).unwrap().to_owned();
    running
        .wait_for(&format!("by hand: dunlin client {address} --CAfile hand/root.pem --cert hand/client.pem"));
    place.tool(
        "openssl",
        "verify -purpose sslclient -CAfile hand/root.pem -untrusted hand/client.pem hand/client.pem",
    );
    // OpenSSL's client connects with the certificate and with the key.
    let common = format!("s_client -connect {address} -tls1_3 -brief");
    let certificate = "-CAfile hand/root.pem -verify_return_error -verify_ip 127.0.0.1 -cert hand/client.pem -cert_chain hand/client.pem -key hand/client.key";
    place.tool("openssl", &format!("{common} {certificate}"));
    running.wait_for("by hand: joined as X.509 guest");
    let psk = place.read("hand/psk.txt");
    let (identity, key) = psk.trim_end().split_once(':').unwrap();
    place.tool("openssl", &format!("{common} -psk_identity {identity} -psk {key}"));
    running.wait_for("by hand: joined as PSK guest");
    for name in ["hand/client.key", "hand/psk.txt"] {
        assert_eq!(place.mode(name), 0o600, "{name}");
    }
    running.stop("-INT");
    Running::start(&place, "up --devices 1").wait_for("--dir DIR writes certificates to connect by hand");

    let line = place.dunlin_fails("up --once --devices 1 --dir hand", 1);
    assert!(line.contains("exists already") && line.contains("--force"), "{line}");
    let before = place.read("hand/root.pem");
    place.dunlin("up --once --devices 1 --interval 0.01 --dir hand --force");
    assert_ne!(place.read("hand/root.pem"), before);
}

#[test]
fn refuses_wrong_options() {
    let place = Place::new();
    for arguments in [
        "up --devices 0",
        "up --devices 1001",
        "up --devices many",
        "up --interval 0",
        "up --interval -1",
        "up --interval nan",
        "up --interval 1e99",
        "up --port 65536",
        "up --log --json",
        "up --force",
        "up extra",
    ] {
        place.dunlin_fails(arguments, 2);
    }
}

#[test]
fn names_a_port_in_use() {
    let place = Place::new();
    let running = Running::start(&place, "up --devices 1");
    let port = running.ready.split([':', ',']).nth(2).unwrap();
    let line = place.dunlin_fails(&format!("up --once --port {port}"), 1);
    assert!(line.contains(port) && line.contains("--port"), "{line}");
}
