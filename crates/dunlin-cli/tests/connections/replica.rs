//! Tests `dunlin registry replica` beside a CometBFT node (tests/peers/cometbft), and commands that trust its
//! chain.

use std::fs::{File, Permissions, create_dir, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::peers::{CLIENT, Running, SERVER, Server, json, place, port_in};
use crate::registry::operator;
use dunlin_tests::place::{Place, send_signal};

const ORIGIN: &str = "registry.example/1";

/// A node of CometBFT, which ends with the test.
struct Comet(Child);

impl Drop for Comet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The path of CometBFT, which is built first.
fn cometbft() -> &'static str {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/cometbft");
    let mut build = Command::new(root.join("tools/go"));
    build.arg("build").arg("-C").arg(root.join("tests/peers/cometbft"));
    let built = build.args(["-o", program, "github.com/cometbft/cometbft/cmd/cometbft"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

impl Comet {
    fn command(place: &Place, arguments: &[&str]) -> Command {
        let mut command = Command::new(cometbft());
        command.args(arguments).arg("--home").arg(place.path("comet")).stdin(Stdio::null());
        command
    }

    /// Makes the keys of a validator, and the genesis file of a chain with this validator alone.
    fn init(place: &Place) {
        let made = Self::command(place, &["init"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut genesis = json(&place.read("comet/config/genesis.json"));
        genesis["chain_id"] = "dunlin-test".into();
        place.write("stateless.json", genesis.to_string());
        genesis["app_state"] = json!({"origin": ORIGIN});
        place.write("genesis.json", genesis.to_string());
        place.write("comet/config/genesis.json", genesis.to_string());
        genesis["chain_id"] = "other".into();
        place.write("other.json", genesis.to_string());
    }

    /// Starts with the configuration that `dunlin registry replica init` has printed, and shorter times than
    /// in production.
    fn start(place: &Place, configuration: &str) -> Self {
        // It ends in the table p2p.
        let rest = r#"
laddr = "tcp://127.0.0.1:0"

[consensus]
timeout_commit = "100ms"
create_empty_blocks_interval = "1s"

[tx_index]
indexer = "null"
"#;
        place.write("comet/config/config.toml", format!("{configuration}{rest}"));
        let log = File::create(place.path("comet.log")).unwrap();
        let mut command = Self::command(place, &["start"]);
        Self(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }
}

#[test]
fn a_replica_serves_a_registry_of_several_operators() {
    let place = place();
    operator(&place);
    Comet::init(&place);
    let configuration = place.dunlin("registry replica init --genesis genesis.json --out replica");
    // No other node connects, only those that the operator names.
    assert!(
        configuration.contains("\nmax_num_inbound_peers = 0\nunconditional_peer_ids = \"\""),
        "{configuration}"
    );
    // No other user reaches the sockets in it.
    let mode = place.path("replica").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let serve = "registry replica run replica --accept 0 --cert pki/server.pem --key pki/server.key";
    let process = Running::new(&place, serve);
    let port = port_in(&process.log_with("the registry answers"));
    let comet = Comet::start(&place, &configuration);
    let https = "--https-CAfile pki/root.pem";
    let fetch = format!("registry checkpoint https://localhost:{port} {https} --registry-key");
    // The chain is about to begin.
    while !place.command(&format!("{fetch} genesis.json --out first")).output().unwrap().status.success() {}
    assert_eq!(place.read("first").lines().take(2).collect::<Vec<_>>(), [ORIGIN, "0"]);

    // The first node does not answer.
    let nodes = format!("--registry https://localhost:1 --registry-node https://localhost:{port}");
    let access = format!("{nodes} --registry-key genesis.json {https}");
    let did = place.dunlin(&format!("did create --method dunlin --out device {access}"));
    let did = did.trim_end();
    assert_eq!(place.dunlin(&format!("did update device {access}")), format!("{did}: version 1\n"));
    let resolved = json(&place.dunlin(&format!("did resolve {did} {access}")));
    assert_eq!(resolved, json(&place.read("device/did.json")));
    let newest = place.dunlin(&format!("{fetch} genesis.json --since first"));
    assert_eq!(newest.lines().nth(1), Some("4"));

    // The proof in a handshake has a block of the chain.
    place.dunlin(&format!("vc issue --issuer operator --subject {did} --claim role=sensor --out device.vc"));
    let server = Server::new(&place, &format!("{SERVER} --Verify --trust trusted {access}"));
    server.echo(&place, &format!("{CLIENT} --did device --vc device.vc {access}"), "");
    assert!(server.process.log().contains(&format!("VC {did}, issued by did:key:")));

    let line = place.dunlin_fails(&format!("{fetch} other.json"), 1);
    let what = "the note has not exactly one block of the registry's chain";
    assert!(line.contains(what) && line.contains("belong to the same registry"), "{line}");
    let dead = fetch.replace(&port.to_string(), "1");
    let line = place.dunlin_fails(&format!("{dead} genesis.json --registry-node https://localhost:2"), 1);
    assert!(line.contains("no node of the registry has given a proven answer: localhost:1: "), "{line}");
    assert!(line.contains("; localhost:2: not connected: "), "{line}");
    let line = place.dunlin_fails(serve, 1);
    assert!(line.contains("another process runs this registry"), "{line}");
    // Its operator audits and copies the database while it runs.
    place.dunlin(&format!("{fetch} genesis.json --out newest"));
    let sound = "sound: 2 operations, 1 DID";
    let audit = "registry audit replica --checkpoint first --checkpoint newest";
    assert_eq!(place.dunlin(audit), format!("replica: {sound}\n"));
    place.dunlin("registry backup replica --out backup.db");
    let line = place.dunlin_fails("registry export replica --out tiles", 1);
    assert!(line.contains("the database of a replica has no signed checkpoint"), "{line}");
    place.dunlin(&format!("did update device {access}"));
    place.dunlin(&format!("{fetch} genesis.json --out later"));
    send_signal(&process.child, "-TERM");
    let (status, _, stderr) = process.end();
    assert_eq!(status, 0, "{stderr}");
    // A copy without all published operations is refused; without that knowledge, the chain brings them.
    std::fs::remove_file(place.path("replica/registry.db")).unwrap();
    let line = place.dunlin_fails("registry restore backup.db --checkpoint later --out replica", 1);
    assert!(line.contains("backup.db") && line.contains("of 6 entries"), "{line}");
    let told = place.dunlin("registry restore backup.db --checkpoint newest --out replica");
    assert_eq!(told, format!("replica: restored: {sound}\n"));
    drop(comet);
    let process = Running::new(&place, serve);
    let port = port_in(&process.log_with("the registry answers"));
    // A killed node leaves its socket behind.
    let _ = std::fs::remove_file(place.path("replica/rpc.sock"));
    let comet = Comet::start(&place, &configuration);
    let fetch = format!("registry checkpoint https://localhost:{port} {https} --registry-key genesis.json");
    while !place.command(&format!("{fetch} --since later")).output().unwrap().status.success() {}
    assert_eq!(
        place.dunlin("registry audit replica --checkpoint later"),
        "replica: sound: 3 operations, 1 DID\n"
    );
    drop(comet);
    send_signal(&process.child, "-TERM");
    let (status, _, stderr) = process.end();
    assert_eq!(status, 0, "{stderr}");
}

#[test]
fn refuses_what_makes_no_replica() {
    let place = place();
    Comet::init(&place);
    place.dunlin("registry replica init --genesis genesis.json --out replica");
    place.dunlin("registry replica init --genesis other.json --out mixed");
    place.tool("cp", "genesis.json mixed/genesis.json");
    create_dir(place.path("open")).unwrap();
    set_permissions(place.path("open"), Permissions::from_mode(0o750)).unwrap();
    let files = "--accept 0 --cert pki/server.pem --key pki/server.key";
    for (arguments, status, told) in [
        ("registry replica init --genesis genesis.json --out open".to_owned(), 1, "open: other users can reach it"),
        ("registry replica init --genesis genesis.json --out replica".to_owned(), 1, "exists already"),
        (
            "registry replica init --genesis stateless.json --out new".to_owned(),
            1,
            "genesis file: missing or malformed app_state.origin",
        ),
        (
            format!("registry replica run mixed {files}"),
            1,
            "the database belongs to the registry key CometBFT other registry.example/1",
        ),
        (
            "registry checkpoint https://localhost:1 --registry-node http://a --registry-key genesis.json --https-CAfile pki/root.pem"
                .to_owned(),
            2,
            "http://a: not a URL of HTTPS",
        ),
        (
            "registry checkpoint https://localhost:1 --registry-key stateless.json --https-CAfile pki/root.pem".to_owned(),
            1,
            "genesis file: missing or malformed app_state.origin",
        ),
    ] {
        let line = place.dunlin_fails(&arguments, status);
        assert!(line.contains(told), "{arguments}: {line}");
    }
    assert!(!place.path("new").exists());
}
