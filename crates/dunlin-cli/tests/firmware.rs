//! Devices in QEMU connect to `dunlin server`: their handshakes, their costs, and the crates linked into them.
//!
//! With `DUNLIN_FIRMWARE_TABLES` in the environment (`make firmware` sets it), the figures go into docs/firmware.md.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{SystemTime, UNIX_EPOCH};

use common::Place;
use common::peers::{KEY, PATIENCE, Running, Server};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivateKeyDer};

const TARGET: &str = "thumbv7em-none-eabihf";
const IDENTITY: &str = "device-1";

#[test]
fn devices_complete_their_handshakes() {
    let place = Place::new();
    let psk = format!("--psk {KEY} --psk-identity {IDENTITY}");
    let psk_parameters = || vec![IDENTITY.as_bytes().to_vec(), base16ct::lower::decode_vec(KEY).unwrap()];
    place.dunlin("pki ca --name Root --lean");
    let issuer = "--issuer ca.pem --issuer-key ca.key --lean";
    place.dunlin(&format!("pki leaf {issuer} --server --san localhost --cert server.pem --key server.key"));
    place.dunlin(&format!("pki leaf {issuer} --client --name {IDENTITY} --cert device.pem --key device.key"));
    let ecdsa = vec![
        CertificateDer::from_pem_file(place.path("device.pem")).unwrap().to_vec(),
        PrivateKeyDer::from_pem_file(place.path("device.key")).unwrap().secret_der().to_vec(),
        CertificateDer::from_pem_file(place.path("ca.pem")).unwrap().to_vec(),
    ];
    let runs = [
        run(&place, "psk", &format!("{psk} --psk-ke"), psk_parameters(), "-, PSK device-1;"),
        run(&place, "psk-x25519", &psk, psk_parameters(), "x25519, PSK device-1;"),
        run(
            &place,
            "ecdsa",
            "--cert server.pem --key server.key --CAfile ca.pem --Verify",
            ecdsa,
            "secp256r1, X.509 CN=device-1;",
        ),
    ];
    if std::env::var_os("DUNLIN_FIRMWARE_TABLES").is_some() {
        write_tables(&runs);
    }
}

#[test]
fn links_only_the_configured_parts() {
    let certificates = ["webpki", "p256", "ecdsa", "der", "dunlin::auth::x509", "dunlin::handshake::verify"];
    let curve = ["x25519_dalek", "curve25519_dalek"];
    let cache = "dunlin::handshake::client::cache";
    let unused = ["rsa", "p384", "ed25519_dalek", "aes_gcm", "chacha20poly1305", "ml_kem", "ml_dsa", cache];
    let images = ["psk", "psk-x25519", "ecdsa"].map(|name| (name, Image::read(name)));
    let images = BTreeMap::from(images);
    let is_linked = |image: &str, name: &str| images[image].links(name);
    // The names of linked parts are found, so the search for absent parts is valid.
    for name in certificates {
        assert!(is_linked("ecdsa", name), "{name} is not found in ecdsa");
    }
    assert!(curve.iter().any(|name| is_linked("psk-x25519", name)), "psk-x25519 contains no curve");

    let absent = [
        ("psk", [&certificates[..], &curve, &unused].concat()),
        ("psk-x25519", [&certificates[..], &unused].concat()),
        ("ecdsa", [&curve[..], &unused].concat()),
    ];
    for (image, names) in absent {
        for name in names {
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
        // The necessary flags are in the firmware's own configuration, which an environment variable would override.
        for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            cargo.env_remove(variable);
        }
        let output = cargo.current_dir(firmware()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    firmware().join("target").join(TARGET).join("release").join(name)
}

/// The costs of a device's handshake.
struct Run {
    name: &'static str,
    /// In bytes, as the device measured it.
    memory: BTreeMap<String, u64>,
    image: Image,
}

/// Starts a server, lets the device connect to it, and reads the device's output. The server must report the client as
/// `seen`.
fn run(place: &Place, name: &'static str, server: &str, parameters: Vec<Vec<u8>>, seen: &str) -> Run {
    let image_file = image(name);
    let server = Server::new(place, &format!("{server} --echo"));
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-machine", "mps2-an386", "-display", "none", "-monitor", "none", "-icount", "shift=0"]);
    qemu.args(["-semihosting-config", "enable=on,target=native", "-serial"]);
    qemu.arg(format!("tcp:127.0.0.1:{}", server.port)).args(["-serial", "stdio", "-kernel"]);
    let mut device = Running::start(qemu.arg(image_file));

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    // Sufficient for a simulation: the device has no source of randomness.
    let seed = b"every run of this device is the same".to_vec();
    let parameters = [vec![seed, now.to_be_bytes().to_vec()], parameters].concat();
    for parameter in parameters {
        let len = u16::try_from(parameter.len()).unwrap().to_be_bytes();
        device.stdin.as_mut().unwrap().write_all(&[&len, &*parameter].concat()).unwrap();
    }
    let mut memory = BTreeMap::new();
    loop {
        match device.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let (what, bytes) = line.split_once(' ').unwrap_or_else(|| panic!("{name}: {line}"));
                let bytes = bytes.parse().unwrap_or_else(|_| panic!("{name}: {line}"));
                memory.insert(what.to_owned(), bytes);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("{name} does not end; so far: {memory:?}"),
        }
    }
    let (status, _, stderr) = device.end();
    assert_eq!(status, 0, "{name}: {stderr}");
    let line = server.process.log_with("connected: ");
    assert!(line.contains(seen), "{name}: {line}");
    Run { name, memory, image: Image::read(name) }
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

/// Returns the paths in a demangled name; each begins with a crate. Traits behind `dyn` are left out: drop glue of
/// `Option<Box<dyn Trait>>` names the trait even if no implementation is linked.
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
        "| image | flash | of it rodata | RAM | of it static | heap, span | stack | heap, peak |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for Run { name, memory, image } in runs {
        let (flash, rodata, fixed) = (image.flash(), image.rodata, image.data + image.bss);
        let [heap, span, stack] = ["heap", "heap_span", "stack"].map(|what| memory[what]);
        let ram = fixed + span + stack;
        let row = [flash, rodata, ram, fixed, span, stack, heap].map(|bytes| bytes.to_string());
        writeln!(tables, "| `{name}` | {} |", row.join(" | ")).unwrap();
    }
    tables += "\nFunctions and constants by the crate that their name begins with, in bytes:\n\n| crate |";
    for run in runs {
        write!(tables, " `{}` |", run.name).unwrap();
    }
    tables += &format!("\n| --- |{}\n", " ---: |".repeat(runs.len()));
    let of = |run: &Run, name: &String| run.image.by_crate.get(name).copied().unwrap_or(0);
    let mut names: Vec<_> = runs.iter().flat_map(|run| run.image.by_crate.keys()).collect();
    names.sort_by_key(|name| (std::cmp::Reverse(runs.iter().map(|run| of(run, name)).max()), *name));
    names.dedup();
    for name in names.into_iter().take(16) {
        write!(tables, "| {name} |").unwrap();
        for run in runs {
            write!(tables, " {} |", of(run, name)).unwrap();
        }
        tables.push('\n');
    }
    let (begin, end) = ("<!-- measured -->\n", "<!-- end -->");
    let path = root().join("docs/firmware.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    fs::write(path, format!("{before}{begin}{tables}{end}{after}")).unwrap();
}
