//! Tests `dunlin-lab up`: all devices authenticate, and the process ends on time or on a signal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use dunlin_tests::place::{Place, send_signal};
use serde_json::Value;

/// The devices in turn: name, authentication, protocol. Devices with MQTT need Mosquitto, which `tools/setup
/// test` installs.
const DEVICES: [(&str, &str, &str); 15] = [
    ("sensor-1", "X.509 P-256", "HTTP"),
    ("camera-2", "X.509 Ed25519", "HTTP"),
    ("lock-3", "raw key", "HTTP"),
    ("lamp-4", "PSK + ECDHE", "HTTP"),
    ("meter-5", "PSK", "HTTP"),
    ("display-6", "X.509, resumed", "HTTP"),
    ("pump-7", "X.509, cached", "TCP"),
    ("tracker-8", "PSK, moving", "CoAP"),
    ("turbine-9", "X.509, TLS 1.2", "HTTP"),
    ("truck-10", "X.509, TCS", "CoAP"),
    ("boiler-11", "plain, tunnel", "HTTP"),
    ("valve-12", "X.509", "MQTT"),
    ("fridge-13", "plain, tunnel", "MQTT"),
    ("robot-14", "VC, did:dunlin", "TCP"),
    ("drone-15", "DID, did:key", "TCP"),
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
    let json = Place::new().lab("up --rounds 2 --interval 0.05 --json");
    let devices = by_device(&json);
    assert_eq!(devices.len(), DEVICES.len(), "{json}");
    for (name, way, speaks) in DEVICES {
        let [first, second] = &devices[name][..] else { panic!("not two connections: {json}") };
        for report in [first, second] {
            assert_eq!((text(report, "event"), text(report, "side")), ("connection", "client"));
            assert_eq!((text(report, "way"), text(report, "speaks")), (way, speaks));
            assert!(report["echoed_bytes"].as_u64().unwrap() > 0);
            let client = text(report, "client_identity");
            let server = text(report, "peer");
            if way == "X.509, TCS" {
                // A CoAP server beside the gateway.
                assert_eq!((client, server), (&*format!("X.509 {name}"), "X.509 localhost"));
            } else if way.starts_with("X.509") || way == "plain, tunnel" {
                assert_eq!((client, server), (&*format!("x509:dns:{name}"), "X.509 localhost"));
            } else if way.starts_with("PSK") {
                assert_eq!((client, server), (&*format!("psk:{name}"), &*format!("PSK {name}")));
            } else if way.starts_with("VC") {
                assert!(client.starts_with("vc:did:dunlin:") && server == "X.509 localhost", "{report}");
            } else if way.starts_with("DID") {
                assert!(client.starts_with("did:key:") && server == "X.509 localhost", "{report}");
            } else {
                assert!(client.starts_with("raw_key:sha256:") && server.starts_with("raw key sha256:"));
            }
            assert_eq!(client, text(first, "client_identity"));
            assert_eq!(server, text(first, "peer"));
            let chosen = match way {
                "PSK" => ("meter", "meters"),
                "X.509, TLS 1.2" => ("controller", "controllers"),
                _ => ("strong", "default"),
            };
            if way == "X.509, TCS" {
                assert!(report["rule"].is_null() && report["association_port"].is_u64(), "{report}");
            } else {
                assert_eq!((text(report, "profile"), text(report, "rule")), chosen, "{report}");
            }
        }
        let is_moving = speaks == "CoAP";
        let is_tls12 = way == "X.509, TLS 1.2";
        let version = match () {
            () if is_moving => "DTLSv1.3",
            () if is_tls12 => "TLSv1.2",
            () => "TLSv1.3",
        };
        assert_eq!(text(first, "version"), version);
        // The gateway knows the device by its address in the second connection.
        assert_eq!([&first["renegotiated"], &second["renegotiated"]], [is_tls12, false], "{first} {second}");
        let moved = first["moved_to"].as_str().is_some_and(|to| to.starts_with("127.0.0.3:"));
        assert_eq!(moved, is_moving, "{first}");
        assert_eq!(first["resumed"], false);
        let resumes = ["X.509, resumed", "plain, tunnel"].contains(&way);
        assert_eq!(second["resumed"], resumes, "{second}");
        assert!(bytes(second) > 0);
        for side in ["server_certificate_cached", "client_certificate_cached"] {
            assert_eq!(first[side], false);
            assert_eq!(second[side], way == "X.509, cached", "{second}");
        }
        assert_eq!([&first["number"], &second["number"]], [1, 2]);
        // The key of a DID changes, and its name stays.
        match way {
            "VC, did:dunlin" => assert_eq!([&first["key_version"], &second["key_version"]], [0, 1]),
            _ => assert!(first["key_version"].is_null(), "{first}"),
        }
    }
    let first = |name: &str| bytes(&devices[name][0]);
    let [x509, raw_key, psk_ecdhe, psk] = ["sensor-1", "lock-3", "lamp-4", "meter-5"].map(first);
    assert!(x509 > raw_key && raw_key > psk_ecdhe && psk_ecdhe > psk, "{x509} {raw_key} {psk_ecdhe} {psk}");
    let [full, resumed] = [0, 1].map(|n| bytes(&devices["display-6"][n]));
    assert!(resumed * 2 < full, "{resumed} bytes resumed, {full} in full");
    let [full, cached] = [0, 1].map(|n| bytes(&devices["pump-7"][n]));
    assert!(cached * 5 < full * 3, "{cached} bytes cached, {full} in full");
}

#[test]
fn devices_take_the_ways_in_turn() {
    let json = Place::new().lab("up --rounds 1 --devices 15 --interval 0.05 --json");
    let devices = by_device(&json);
    assert_eq!(devices.len(), 15);
    assert_eq!(json.lines().filter(|line| line.contains("\"event\":\"connection\"")).count(), 15, "{json}");
    for n in 1..=15 {
        let (name, way, _) = DEVICES[(n - 1) % DEVICES.len()];
        let (noun, _) = name.split_once('-').unwrap();
        assert_eq!(text(&devices[&format!("{noun}-{n}")][0], "way"), way);
    }
}

#[test]
fn tables_and_lines_are_plain() {
    let place = Place::new();
    let table = place.lab("up --rounds 2 --interval 0.05");
    let ready: Vec<_> =
        table.lines().filter(|line| line.starts_with("dunlin-lab up: ready on 127.0.0.1:")).collect();
    assert_eq!(ready.len(), 1, "{table}");
    assert!(!table.contains("by hand"), "the server ends before a user could connect: {table}");
    // The last table; on a slow machine there are earlier ones.
    let row = |device: &str| table.lines().rfind(|line| line.starts_with(&format!("{device} "))).unwrap();
    for (device, way, _) in DEVICES {
        assert!(row(device).contains(&format!("{way}  ")), "{table}");
    }
    assert!(row("meter-5").contains("  meter "), "{table}");
    let of_table = table.lines().skip_while(|line| !line.starts_with("device "));
    assert!(of_table.clone().count() > DEVICES.len());
    assert!(of_table.clone().all(|line| line.chars().count() <= 100), "{table}");
    assert!(row("tracker-8").contains(" moved "), "{table}");
    for (device, how) in [("display-6", "resumed "), ("pump-7", "cached ")] {
        let row = row(device);
        assert!(row.contains(how), "{row}");
        let saved = row.split_whitespace().rev().nth(1).unwrap();
        assert!(saved.parse::<u64>().is_ok_and(|saved| saved > 300), "{row}");
    }

    let log = place.lab("up --rounds 2 --interval 0.05 --log");
    assert_eq!(log.lines().filter(|line| line.contains(": ok, ")).count(), 2 * DEVICES.len());
    for (device, way, speaks) in DEVICES {
        let is_of = |line: &str| line.starts_with(&format!("{device} #1 {way}, {speaks}: ok, "));
        assert!(log.lines().any(is_of), "{device}: {log}");
    }
    assert!(
        log.lines().any(|line| line.starts_with("meter-5 #2 ") && line.ends_with("meter, meters")),
        "{log}"
    );
    assert!(log.lines().any(|line| line.contains(": ok, moved to 127.0.0.3:")), "{log}");
    assert!(!table.contains('\x1b') && !log.contains('\x1b'));
    assert_eq!(place.files(), [""; 0], "no file is written");
}

/// The directory for temporary files is empty when the command has ended, and the command names its
/// dashboard.
#[test]
fn leaves_nothing_behind() {
    let place = Place::new();
    let mut command = place.lab_command("up --duration 0.2 --devices 2");
    std::fs::create_dir(place.path("tmp")).unwrap();
    let output = command.env("TMPDIR", place.path("tmp")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("\ndashboard: http://127.0.0.1:"));
    assert_eq!(std::fs::read_dir(place.path("tmp")).unwrap().count(), 0);
}

/// A closed terminal ends the command, and the broker with it.
#[test]
fn hangup_ends_the_broker_too() {
    let place = Place::new();
    let mut running = Running::start(&place, "up --devices 13 --dir kept --interval 0.2 --log");
    running.wait_for("valve-12 #1 X.509, MQTT: ok, ");
    let config = place.read("kept/mosquitto.conf");
    let port = config.lines().find_map(|line| line.strip_prefix("listener ")).unwrap();
    let port = port.split_whitespace().next().unwrap().parse().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    running.stop("-HUP");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

/// A `dunlin-lab up` that runs until it is stopped.
struct Running {
    child: Child,
    ready: String,
}

impl Running {
    fn start(place: &Place, arguments: &str) -> Self {
        let mut child = place.lab_command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("dunlin-lab up: ready on 127.0.0.1:"), "{ready}");
        Self { child, ready }
    }

    /// Waits for a line that begins with `beginning`, and returns it.
    fn wait_for(&mut self, beginning: &str) -> String {
        let mut lines = BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap()).lines();
        let found = lines.find_map(|line| line.ok().filter(|line| line.starts_with(beginning)));
        found.unwrap_or_else(|| panic!("no line begins with {beginning}"))
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
        // Killed, it would leave the broker and its files behind.
        drop(self.child.stdout.take());
        if matches!(self.child.try_wait(), Ok(None)) {
            send_signal(&self.child, "-TERM");
        }
        let _ = self.child.wait();
    }
}

#[test]
fn signal_ends_it_with_a_summary() {
    let place = Place::new();
    for signal in ["-INT", "-TERM"] {
        let rest = Running::start(&place, "up --devices 2").stop(signal);
        let summary = rest.lines().last().unwrap();
        assert!(summary.starts_with("dunlin-lab up: ") && summary.contains("0 failed"), "{rest}");
    }
}

#[test]
fn keeps_files_that_serve_clients_by_hand() {
    let place = Place::new();
    let mut running = Running::start(&place, "up --devices 3 --dir hand --log");
    let web = running.ready.split([':', ',']).nth(2).unwrap().to_owned();
    let lines = running.wait_for("     or: dunlin client 127.0.0.1:");
    let lines = lines.split_whitespace().nth(3).unwrap().to_owned();
    let certificate = "--cacert hand/root.pem --cert hand/client.pem --key hand/client.key";
    let answer = place.tool("curl", &format!("-sS {certificate} --data hello https://localhost:{web}/"));
    assert_eq!(answer, "x509:dns:guest\nhello");
    running.wait_for("by hand: joined as X.509 guest");
    let psk = place.read("hand/keys.psk");
    let key = psk.lines().find_map(|line| line.strip_prefix("guest:")).unwrap();
    // OpenSSL's client connects with the key.
    place
        .tool("openssl", &format!("s_client -connect {lines} -tls1_3 -brief -psk_identity guest -psk {key}"));
    running.wait_for("by hand: joined as PSK guest");
    for name in ["client.key", "keys.psk", "strong.key", "fast.key"] {
        assert_eq!(place.mode(&format!("hand/{name}")), 0o600, "{name}");
    }
    running.stop("-INT");
    let checked = place.dunlin("gateway -c hand/gateway.toml --check");
    assert!(checked.contains("4 listeners, 4 routes"), "{checked}");
    let explained = place.dunlin("gateway explain -c hand/policy.toml --psk-identity meter-5");
    assert!(explained.contains("meters"), "{explained}");
    Running::start(&place, "up --devices 1").wait_for("--dir DIR keeps the gateway's configuration");

    let line = place.lab_fails("up --rounds 1 --devices 1 --dir hand", 1);
    assert!(line.contains("exists already") && line.contains("--force"), "{line}");
    let before = place.read("hand/root.pem");
    place.lab("up --rounds 1 --devices 1 --interval 0.01 --dir hand --force");
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
        "up --port 65532",
        "up --rounds 0",
        "up --duration 0",
        "up --log --json",
        "up --force",
        "up extra",
    ] {
        place.lab_fails(arguments, 2);
    }
}

#[test]
fn names_a_port_in_use() {
    let place = Place::new();
    let running = Running::start(&place, "up --devices 1");
    let port = running.ready.split([':', ',']).nth(2).unwrap();
    let line = place.lab_fails(&format!("up --rounds 1 --port {port}"), 1);
    assert!(line.contains(port) && line.contains("--port"), "{line}");
}
