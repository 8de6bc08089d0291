//! Runs the commands of README.md and docs/, as they stand there, in network namespaces: a document's ports
//! are free there, and its names are this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dunlin_tests::mounts::beside_mount;
use dunlin_tests::place::program;

/// The documents whose commands run, and their prerequisites, as commands. A document not listed here has
/// none that can run.
const RUN: [(&str, &str); 20] = [
    ("README.md", "ln -s $source/docs docs"),
    ("docs/association-ports.md", "dunlin psk new --identity sensor-7 --out keys.psk"),
    ("docs/frozen-associations.md", "dunlin pki demo --out demo"),
    (
        "docs/gateway.md",
        "ln -s $source/docs docs; cp docs/samples/coap/gateway.toml .; dunlin pki demo --out .; cp root.pem devices.pem; dunlin psk new --identity a --out keys.psk",
    ),
    ("docs/identity.md", ""),
    (
        "docs/json.md",
        "dunlin pki demo --out demo; echo hello > request; dunlin server --cert demo/server.pem --key demo/server.key --echo & sleep 1",
    ),
    ("docs/policy.md", "dunlin-lab up --rounds 1 --dir up >/dev/null; cd up"),
    ("docs/psk.md", "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > key"),
    ("docs/registry.md", ""),
    ("docs/stores.md", "dunlin pki demo --out demo"),
    (
        "docs/tasks/read-a-capture.md",
        "dunlin pki demo --out demo; dunlin server --cert demo/server.pem --key demo/server.key --echo & sleep 1",
    ),
    (
        "docs/tasks/revoke-a-device.md",
        "dunlin pki demo --out .; cp root.pem devices.pem; dunlin psk new --identity a --out keys.psk; \
         dunlin psk new --identity sensor-7 --out keys.toml; dunlin did create --out operator; \
         dunlin vc issue --issuer operator --subject $(dunlin did create --out device) --out device.vc \
         --status-list status.vc --status-url https://operator.example/status/1; \
         sed 's/^ca = .*/&\\ncrl = [\"crl.pem\", \"root-crl.pem\"]/' $source/docs/samples/mosquitto/gateway.toml >gateway.toml",
    ),
    (
        "docs/tasks/rotate-a-certificate.md",
        "dunlin pki demo --out .; cp root.pem devices.pem; dunlin psk new --identity a --out keys.psk; \
         cp $source/docs/samples/mosquitto/gateway.toml .",
    ),
    ("docs/tasks/rotate-a-psk.md", "dunlin psk new --identity 7f3a --name sensor-7 --out keys.toml"),
    (
        "docs/tasks/second-gateway.md",
        "dunlin pki demo --out .; cp root.pem devices.pem; dunlin psk new --identity a --out keys.psk; \
         cp $source/docs/samples/coap/gateway.toml .",
    ),
    (
        "docs/tunnel.md",
        "dunlin pki demo --out .; cp root.pem ca.pem; cp client.pem device.pem; cp client.key device.key; dunlin did create --out operator; \
         dunlin vc issue --issuer operator --subject $(dunlin did create --out device) --out device.vc; cp $source/docs/samples/tunnel/tunnel.toml .; \
         cp ca.pem gateway-ca.pem; dunlin psk new --identity device --out device.psk; sed -i s#/var/lib/dunlin-tunnel/## tunnel.toml",
    ),
    ("docs/tutorials/coap-fleet.md", "ln -s $source/docs docs"),
    ("docs/tutorials/mosquitto.md", "ln -s $source/docs docs"),
    ("docs/tutorials/rust.md", ""),
    ("docs/tutorials/tour.md", ""),
];

/// The beginnings of commands that do not run here, and why.
const LEFT_OUT: [(&str, &str); 24] = [
    ("make ", "builds the project; CI runs `make test`"),
    ("cargo ", "builds the project"),
    ("cd race", "builds the project"),
    ("cd firmware", "builds the project; firmware runs its programs"),
    ("valgrind ", "needs a build of the race"),
    ("DUNLIN_DIDS=", "a benchmark of many minutes"),
    ("sudo apt ", "installs the package; files::deb does it below a directory"),
    ("sudo cp ", "installs the package"),
    ("sudo install ", "installs the package"),
    ("sudo systemctl ", "needs systemd; connections::service runs its units' parts"),
    ("dunlin gateway explain -c policy.toml --hello", "needs a capture; files::gateway_explain has some"),
    ("sudo tcpdump ", "no package of the tests; files::explain captures with dumpcap"),
    ("dunlin explain capture.pcap", "needs the capture above"),
    ("sudo dunlin-lab ", "an experiment of minutes; the tests of dunlin-lab run them with --quick"),
    ("dunlin-lab run ", "as above"),
    ("dunlin-lab report", "as above"),
    ("scp ", "needs a second machine"),
    ("cometbft ", "several operators; registry::replica runs them"),
    ("dunlin registry replica ", "as above"),
    ("dunlin did create --method dunlin --registry https://one.example", "as above"),
    ("tools/", "replaces tables by figures of an experiment"),
    ("sudo target/", "an experiment of minutes"),
    ("sudo env ", "as above"),
    ("out=", "a library for the experiment above"),
];

/// The beginning of each script. `serve` starts a program in the background, and returns when its port is
/// taken, or its file is there.
const PRELUDE: &str = r#"
set -euo pipefail
exec </dev/null
export HOME=$PWD PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
sudo() { "$@"; }
declare -A serving=()
serve() {
    if [ -n "${serving[$1]:-}" ]; then
        kill "${serving[$1]}"
        wait "${serving[$1]}" || true
    fi
    bash -c "$2" >"$HOME/served" 2>&1 &
    serving[$1]=$!
    for _ in $(seq 600); do
        case $1 in
        */*) [ ! -e "$1" ] || return 0 ;;
        *) [ -z "$(ss -Hlntu "sport = :$1")" ] || return 0 ;;
        esac
        kill -0 ${serving[$1]} 2>/dev/null || break
        sleep 0.1
    done
    cat "$HOME/served"
    return 1
}
"#;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands in the blocks of a document, with their lines. A line that ends in `\` goes on in the next
/// one.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut commands = vec![];
    let mut is_inside = false;
    let mut begun = None::<(usize, String)>;
    for (number, line) in (1..).zip(text.lines()) {
        match line {
            "```sh" => is_inside = true,
            "```" => is_inside = false,
            _ if is_inside => {
                let (first, mut command) = begun.take().unwrap_or((number, String::new()));
                command.push_str(line.trim_end_matches('\\'));
                if line.ends_with('\\') {
                    begun = Some((first, command));
                } else {
                    commands.push((first, command));
                }
            }
            _ => {}
        }
    }
    commands
}

/// The port at which this command goes on serving; `None` for one that ends.
fn port(command: &str) -> Option<&str> {
    let option = |name: &str| {
        let (_, rest) = command.split_once(&format!("{name} "))?;
        rest.split(' ').next()?.rsplit(':').next()
    };
    let kinds = [
        ("dunlin server", option("--accept").unwrap_or("4433")),
        ("dunlin registry serve", option("--accept").unwrap_or("8443")),
        ("dunlin registry watch run", option("--accept").unwrap_or("8443")),
        ("dunlin tunnel --listen", option("--listen").unwrap_or_default()),
        ("dunlin tunnel -c", "1883"),
        ("dunlin gateway -c", "5684"),
        ("/usr/sbin/mosquitto", "8883"),
        ("coap-server-notls", "5684"),
        ("dunlin-lab up --dir", "demo-gateway/policy.toml"),
    ];
    kinds.into_iter().find_map(|(begin, port)| command.starts_with(begin).then_some(port))
}

fn left_out(command: &str) -> Option<&'static str> {
    LEFT_OUT.iter().find_map(|(begin, _)| command.starts_with(begin).then_some(*begin))
}

/// Runs the commands of a document one after the other, in one directory.
fn run(name: &str) {
    let given = RUN.iter().find_map(|(document, given)| (*document == name).then_some(*given)).unwrap();
    let text = fs::read_to_string(source().join(name)).unwrap();
    let mut script = format!("{PRELUDE}source={}\n{given}\n", source().display());
    let mut number = 0;
    for (line, command) in commands(&text) {
        if left_out(&command).is_some() {
            continue;
        }
        let _ = writeln!(script, "echo '{name}:{line}' >\"$HOME/at\"");
        let command = command.split("  #").next().unwrap_or_default();
        let _ = match port(command) {
            Some(port) => writeln!(script, "serve {port} '{}'", command.replace('\'', "'\\''")),
            None => writeln!(script, "{command}"),
        };
        number += 1;
    }
    assert!(number > 0, "{name}: nothing runs");

    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let names = ["localhost", "registry.example", "gw.example", "gateway.example"].join(" ");
    fs::write(path("hosts"), format!("127.0.0.1 {names}\n")).unwrap();
    fs::write(path("script"), script).unwrap();
    let home = path("home");
    fs::create_dir_all(home.join("bin")).unwrap();
    for name in ["dunlin", "dunlin-lab"] {
        std::os::unix::fs::symlink(program(name), home.join("bin").join(name)).unwrap();
    }
    let programs = std::env::var("PATH").unwrap_or_default();
    let mut command: Command = beside_mount("--bind ../hosts", "/etc/hosts");
    // All processes end with the first one of the namespace.
    command.args(["unshare", "--net", "--pid", "--fork", "--kill-child", "timeout", "300", "bash"]);
    command.arg(path("script")).current_dir(&home);
    let output = command.env("PATH", format!("{}:{programs}", home.join("bin").display())).output().unwrap();
    let at = fs::read_to_string(home.join("at")).unwrap_or_else(|_| format!("{name}: {given}"));
    let served = fs::read_to_string(home.join("served")).unwrap_or_default();
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success(), "{at}{}{}\nserved: {served}", said[0], said[1]);
}

macro_rules! documents {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            run($name);
        })*
        /// The documents that a test runs.
        const TESTED: &[&str] = &[$($name),*];
    };
}

documents! {
    readme: "README.md",
    association_ports: "docs/association-ports.md",
    frozen_associations: "docs/frozen-associations.md",
    gateway: "docs/gateway.md",
    identity: "docs/identity.md",
    json: "docs/json.md",
    policy: "docs/policy.md",
    psk: "docs/psk.md",
    registry: "docs/registry.md",
    stores: "docs/stores.md",
    read_a_capture: "docs/tasks/read-a-capture.md",
    revoke_a_device: "docs/tasks/revoke-a-device.md",
    rotate_a_certificate: "docs/tasks/rotate-a-certificate.md",
    rotate_a_psk: "docs/tasks/rotate-a-psk.md",
    second_gateway: "docs/tasks/second-gateway.md",
    tunnel: "docs/tunnel.md",
    coap_fleet: "docs/tutorials/coap-fleet.md",
    mosquitto: "docs/tutorials/mosquitto.md",
    rust: "docs/tutorials/rust.md",
    tour: "docs/tutorials/tour.md",
}

/// Every command of every document runs, or is left out for a reason, and every reason is needed.
#[test]
fn no_command_is_forgotten() {
    assert_eq!(RUN.map(|(name, _)| name).as_slice(), TESTED);
    let mut documents = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/tasks", "docs/tutorials"] {
        documents.extend(fs::read_dir(source().join(folder)).unwrap().filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.ends_with(".md").then(|| format!("{folder}/{name}"))
        }));
    }
    let mut used = BTreeSet::new();
    for document in documents {
        let text = fs::read_to_string(source().join(&document)).unwrap();
        for (line, command) in commands(&text) {
            match left_out(&command) {
                Some(begin) => drop(used.insert(begin)),
                None => assert!(TESTED.contains(&&*document), "{document}:{line}: {command}"),
            }
        }
    }
    assert_eq!(used, LEFT_OUT.map(|(begin, _)| begin).into_iter().collect());
}
