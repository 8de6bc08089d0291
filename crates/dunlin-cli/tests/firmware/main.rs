//! Devices in QEMU connect to `dunlin server`: their handshakes, their costs, and the crates linked into
//! them.
//!
//! With `DUNLIN_FIRMWARE_TABLES` in the environment (`make firmware` sets it), the figures go into
//! docs/firmware.md.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod identity;
#[path = "../common/peers.rs"]
mod peers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_tests::place::Place;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use peers::{KEY, PATIENCE, Running, Server, json};
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

const TARGET: &str = "thumbv7em-none-eabihf";
const IDENTITY: &str = "device-1";

#[test]
fn devices_complete_their_handshakes() {
    let place = Place::new();
    let psk = format!("--psk {KEY} --psk-identity {IDENTITY}");
    let psk_parameters = [IDENTITY.as_bytes().to_vec(), base16ct::lower::decode_vec(KEY).unwrap()];
    place.dunlin("pki ca --name Root --lean");
    let issuer = "--issuer ca.pem --issuer-key ca.key --lean";
    place.dunlin(&format!("pki leaf {issuer} --server --san localhost --cert server.pem --key server.key"));
    place.dunlin(&format!("pki leaf {issuer} --client --name {IDENTITY} --cert device.pem --key device.key"));
    let certificates = [
        CertificateDer::from_pem_file(place.path("device.pem")).unwrap().to_vec(),
        PrivateKeyDer::from_pem_file(place.path("device.key")).unwrap().secret_der().to_vec(),
        CertificateDer::from_pem_file(place.path("ca.pem")).unwrap().to_vec(),
    ];
    let server = |options: &str| Server::new(&place, &format!("{options} --echo --json"));
    let ecdsa = "--cert server.pem --key server.key --CAfile ca.pem --Verify";
    // One server for both boots: it keeps its cache in memory.
    let caching = server(&format!("{ecdsa} --cache compact"));
    let boot_caching = |nth, entry: &[u8]| {
        let parameters = [&certificates[..], &[entry.to_vec()]].concat();
        boot(&caching, "ecdsa-cached", nth, &parameters)
    };
    let first = boot_caching("first", &[]);
    let second = boot_caching("second", &first.entry);
    let runs = [
        boot(&server(&format!("{psk} --psk-ke")), "psk", "", &psk_parameters),
        boot(&server(&psk), "psk-x25519", "", &psk_parameters),
        boot(&server(ecdsa), "ecdsa", "", &certificates),
        first,
        second,
    ];
    let [psk, x25519, ecdsa, first, second] = &runs;
    for (run, group, peer) in [
        (psk, None, "PSK device-1"),
        (x25519, Some("x25519"), "PSK device-1"),
        (ecdsa, Some("secp256r1"), "X.509 CN=device-1"),
        (first, Some("secp256r1"), "X.509 CN=device-1"),
        (second, Some("secp256r1"), "X.509 CN=device-1"),
    ] {
        let Run { name, connection, .. } = run;
        assert_eq!((connection["group"].as_str(), &connection["peer"]), (group, &peer.into()), "{name}");
    }
    assert_is_cached(first, second);
    let runs: Vec<_> = runs.into_iter().chain(identity::runs()).collect();
    if std::env::var_os("DUNLIN_FIRMWARE_TABLES").is_some() {
        write_tables(&runs);
    }
}

/// Checks that the first handshake of the image with the cache was full. In the second one, with new keys,
/// both sides must sign but send no certificates.
fn assert_is_cached(first: &Run, second: &Run) {
    for (run, handshake, code, is_cached) in
        [(first, "full", "unknown", false), (second, "cached", "complete", true)]
    {
        let Run { device, connection, .. } = run;
        assert_eq!(connection["handshake"], handshake, "{connection}");
        assert_eq!(connection["cache_code"], code, "{connection}");
        for certificate in ["server_certificate_cached", "client_certificate_cached"] {
            assert_eq!(connection[certificate], is_cached, "{connection}");
        }
        for signature in ["own_signature", "peer_signature"] {
            assert_eq!(connection[signature], "ecdsa_secp256r1_sha256", "{connection}");
        }
        // The device agrees.
        for certificate in ["own_cached", "peer_cached"] {
            assert_eq!(device[certificate], u64::from(is_cached), "{device:?}");
        }
    }
    // A message without its certificates has a header, a context, and one empty entry.
    let messages = second.connection["messages"].as_array().unwrap();
    let certificates = messages.iter().filter(|message| message["name"] == "Certificate");
    assert_eq!(certificates.map(|message| message["bytes"].as_u64()).collect::<Vec<_>>(), [Some(13); 2]);
    assert!(second.sent < first.sent && second.received < first.received);
    // Each connection renews the ticket.
    assert_ne!(first.entry, second.entry);
}

#[test]
fn links_only_the_configured_parts() {
    let certificates = ["webpki", "p256", "ecdsa", "der", "dunlin::auth::x509", "dunlin::handshake::verify"];
    let curve = ["x25519_dalek", "curve25519_dalek"];
    let cache = ["dunlin::handshake::client::cache", "dunlin_firmware::cache"];
    let unused = ["rsa", "p384", "ed25519_dalek", "aes_gcm", "chacha20poly1305", "ml_kem", "ml_dsa"];
    let identity = ["dunlin_identity::key", "dunlin::handshake::ssi"];
    let registry =
        ["dunlin_identity::transparency::staple", "dunlin_identity::transparency::note", "serde_json"];
    let images = ["psk", "psk-x25519", "ecdsa", "ecdsa-cached", "did-key", "did-dunlin"];
    let images = images.map(|name| (name, Image::read(name)));
    let images = BTreeMap::from(images);
    let is_linked = |image: &str, name: &str| images[image].links(name);
    // The names of linked parts are found, so the search for absent parts is valid.
    for name in certificates {
        assert!(is_linked("ecdsa", name), "{name} is not found in ecdsa");
    }
    for name in certificates.into_iter().chain(cache) {
        assert!(is_linked("ecdsa-cached", name), "{name} is not found in ecdsa-cached");
    }
    for (image, names) in [("did-key", &identity[..]), ("did-dunlin", &registry)] {
        for name in names {
            assert!(is_linked(image, name), "{name} is not found in {image}");
        }
    }
    assert!(curve.iter().any(|name| is_linked("psk-x25519", name)), "psk-x25519 contains no curve");

    let absent = [
        ("psk", [&certificates[..], &curve, &cache, &unused, &["dunlin_identity"]].concat()),
        ("psk-x25519", [&certificates[..], &cache, &unused, &["dunlin_identity"]].concat()),
        ("ecdsa", [&curve[..], &cache, &unused, &["dunlin_identity"]].concat()),
        ("ecdsa-cached", [&curve[..], &unused, &["dunlin_identity"]].concat()),
        ("did-key", [&["webpki::verify_cert", "rsa"][..], &cache, &registry].concat()),
        ("did-dunlin", [&["webpki::verify_cert", "rsa"][..], &cache].concat()),
    ];
    // Parts of the feature `association-ports`, which no device switches on.
    let ports = ["dunlin::extension::association_port", "dunlin::handshake::negotiate::association_port"];
    for (image, names) in absent {
        for name in names.into_iter().chain(ports) {
            assert!(!is_linked(image, name), "{name} is linked into {image}");
        }
    }
}

/// The firmware's own workspace.
fn firmware() -> PathBuf {
    root().join("firmware")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the path of an image, after one build of all of them.
fn image(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = Command::new(root().join("tools/cargo"));
        cargo.args(["build", "--release", "--locked", "--target", TARGET, "--target-dir", "target"]);
        // The necessary flags are in the firmware's own configuration, which an environment variable would
        // override.
        for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            cargo.env_remove(variable);
        }
        let output = cargo.current_dir(firmware()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    firmware().join("target").join(TARGET).join("release").join(name)
}

/// A device's connection and its costs.
struct Run {
    name: &'static str,
    /// The ordinal of this boot of the image, if there are several.
    nth: &'static str,
    /// The numbers that the device printed, among them its memory in bytes.
    device: BTreeMap<String, u64>,
    /// The entry that the device wants to keep in its cache.
    entry: Vec<u8>,
    /// The event of the server.
    connection: Value,
    /// The bytes that the device sent and received in the whole connection, as the server counted them.
    sent: u64,
    received: u64,
    image: Image,
}

/// The output of a device, and its exit status.
struct Output {
    numbers: BTreeMap<String, u64>,
    entry: Vec<u8>,
    failed: String,
    status: i32,
    stderr: String,
}

/// Lets a device with these parameters connect to this port, and reads what it prints.
fn start(port: u16, name: &str, nth: &str, parameters: &[Vec<u8>]) -> Output {
    let image_file = image(name);
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-machine", "mps2-an386", "-display", "none", "-monitor", "none", "-icount", "shift=0"]);
    qemu.args(["-semihosting-config", "enable=on,target=native", "-serial"]);
    qemu.arg(format!("tcp:127.0.0.1:{port}")).args(["-serial", "stdio", "-kernel"]);
    let mut running = Running::start(qemu.arg(image_file));

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    // Sufficient for a simulation: the device has no source of randomness.
    let seed = format!("every run of this device is the same{nth}").into_bytes();
    for parameter in [seed, now.to_be_bytes().to_vec()].iter().chain(parameters) {
        let len = u16::try_from(parameter.len()).unwrap().to_be_bytes();
        running.stdin.as_mut().unwrap().write_all(&[&len, &**parameter].concat()).unwrap();
    }
    let mut numbers = BTreeMap::new();
    let mut entry = Vec::new();
    let mut failed = String::new();
    loop {
        match running.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let (what, value) = line.split_once(' ').unwrap_or_else(|| panic!("{name}: {line}"));
                match what {
                    "entry" => entry = base16ct::lower::decode_vec(value).unwrap(),
                    "failed:" => failed = value.to_owned(),
                    _ => {
                        let value = value.parse().unwrap_or_else(|_| panic!("{name}: {line}"));
                        numbers.insert(what.to_owned(), value);
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("{name} does not end; so far: {numbers:?}"),
        }
    }
    let (status, _, stderr) = running.end();
    Output { numbers, entry, failed, status, stderr }
}

/// Lets a device with these parameters connect to the server, and reads its output and the server's events.
fn boot(server: &Server, name: &'static str, nth: &'static str, parameters: &[Vec<u8>]) -> Run {
    let Output { numbers: device, entry, failed, status, stderr } = start(server.port, name, nth, parameters);
    assert_eq!(status, 0, "{name}: {failed} {stderr}");
    let event = |kind| {
        let event = json(&server.process.lines.recv_timeout(PATIENCE).expect("another event"));
        assert_eq!(event["event"], kind, "{name}: {event}");
        event
    };
    let connection = event("connection");
    let ended = event("ended");
    assert_eq!(ended["orderly"], true, "{name}: {ended}");
    let [sent, received] = ["bytes_read", "bytes_written"].map(|what| ended[what].as_u64().unwrap());
    Run { name, nth, device, entry, connection, sent, received, image: Image::read(name) }
}

/// The sizes of a device's program, in bytes.
#[derive(Default)]
struct Image {
    text: u64,
    rodata: u64,
    data: u64,
    bss: u64,
    /// The paths in the names of functions and constants.
    paths: BTreeSet<String>,
    /// The size of functions and constants by the crate in their names.
    by_crate: BTreeMap<String, u64>,
}

impl Image {
    fn read(name: &str) -> Self {
        let file = fs::read(image(name)).unwrap();
        let elf = object::File::parse(&*file).unwrap();
        let mut image = Self::default();
        for section in elf.sections() {
            match section.kind() {
                SectionKind::Text => image.text += section.size(),
                SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => image.rodata += section.size(),
                SectionKind::Data => image.data += section.size(),
                SectionKind::UninitializedData => image.bss += section.size(),
                _ => {}
            }
        }
        for symbol in elf.symbols().filter(|symbol| symbol.is_definition()) {
            let name = format!("{:#}", rustc_demangle::demangle(symbol.name().unwrap()));
            let mut paths = paths(&name).peekable();
            let first = paths.peek().and_then(|path| path.split("::").next()).unwrap_or("other");
            *image.by_crate.entry(first.to_owned()).or_default() += symbol.size();
            image.paths.extend(paths.map(str::to_owned));
        }
        image
    }

    /// Returns whether the image contains parts of this crate or module.
    fn links(&self, module: &str) -> bool {
        self.paths.iter().any(|path| path.strip_prefix(module).is_some_and(|rest| rest.starts_with("::")))
    }

    const fn flash(&self) -> u64 {
        self.text + self.rodata + self.data
    }
}

/// Returns the paths in a demangled name; each begins with a crate. Traits behind `dyn` are left out: drop
/// glue of `Option<Box<dyn Trait>>` names the trait even if no implementation is linked.
fn paths(name: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
    let mut before = "";
    name.split(move |c: char| !is_part(c))
        .filter(move |part| std::mem::replace(&mut before, part) != "dyn")
        .filter(|path| path.contains("::") && !path.starts_with(':'))
}

/// Writes the tables of docs/firmware.md between their marks.
fn write_tables(runs: &[Run]) {
    let mut tables = String::from(
        "| image | flash | of it rodata | RAM | of it static | heap, span | stack | heap, peak | sent | received |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for Run { name, nth, device, sent, received, image, .. } in runs {
        let flash = image.flash();
        let rodata = image.rodata;
        let fixed = image.data + image.bss;
        let [heap, span, stack] = ["heap", "heap_span", "stack"].map(|what| device[what]);
        let ram = fixed + span + stack;
        let row = [flash, rodata, ram, fixed, span, stack, heap, *sent, *received];
        let row = row.map(|bytes| bytes.to_string()).join(" | ");
        let nth = if nth.is_empty() { String::new() } else { format!(", {nth} boot") };
        writeln!(tables, "| `{name}`{nth} | {row} |").unwrap();
    }
    tables += "\nFunctions and constants by the crate that their name begins with, in bytes:\n\n| crate |";
    let mut images: Vec<_> = runs.iter().map(|run| (run.name, &run.image)).collect();
    images.dedup_by_key(|(name, _)| *name);
    for (name, _) in &images {
        write!(tables, " `{name}` |").unwrap();
    }
    tables += &format!("\n| --- |{}\n", " ---: |".repeat(images.len()));
    let of = |image: &Image, name: &String| image.by_crate.get(name).copied().unwrap_or(0);
    let mut names: Vec<_> = images.iter().flat_map(|(_, image)| image.by_crate.keys()).collect();
    let largest = |name| images.iter().map(|(_, image)| of(image, name)).max();
    names.sort_by_key(|name| (std::cmp::Reverse(largest(name)), *name));
    names.dedup();
    for name in names.into_iter().take(16) {
        write!(tables, "| {name} |").unwrap();
        for (_, image) in &images {
            write!(tables, " {} |", of(image, name)).unwrap();
        }
        tables.push('\n');
    }
    let begin = "<!-- measured -->\n";
    let end = "<!-- end -->";
    let path = root().join("docs/firmware.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    fs::write(path, format!("{before}{begin}{tables}{end}{after}")).unwrap();
}
