//! Tests `dunlin registry`, and `--registry` of `dunlin did`, `dunlin client` and `dunlin server`.

mod operation;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use dunlin::{Credential, Profile, ServerConfig};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::transparency::DEFAULT_CHECKPOINT_AGE;
use dunlin_pki::{Item, KeyPair, KeyType};
use dunlin_registry::server::{Limits, serve};
use dunlin_registry::{Registry as Stored, Settings};
use dunlin_tokio::TlsAcceptor;

use crate::dtls::stop;
use crate::peers::{CLIENT, Running, SERVER, Server, json, place, port_in};
use dunlin_tests::place::{Place, send_signal};

const ORIGIN: &str = "registry.example/1";

/// A registry that runs, and the options that name it.
struct Registry {
    process: Running,
    port: u16,
    access: String,
}

impl Registry {
    fn new(place: &Place) -> Self {
        place.dunlin(&format!("registry init --origin {ORIGIN} --out registry"));
        Self::at(place, 0)
    }

    /// On the port of an earlier one.
    fn at(place: &Place, port: u16) -> Self {
        let files = "--cert pki/server.pem --key pki/server.key";
        let process = Running::new(place, &format!("registry serve registry --accept {port} {files}"));
        let port = port_in(&process.log_with("the registry answers"));
        Self { process, port, access: access(port) }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Stops it in an orderly way.
    fn stop(self) {
        send_signal(&self.process.child, "-TERM");
        let (status, _, stderr) = self.process.end();
        assert_eq!(status, 0, "{stderr}");
    }
}

fn access(port: u16) -> String {
    format!(
        "--registry https://localhost:{port} --registry-key registry/registry.pub --https-CAfile pki/root.pem"
    )
}

/// A published DID with a credential by the operator.
fn party(place: &Place, registry: &Registry, name: &str) -> String {
    let did = place.dunlin(&format!("did create --method dunlin --out {name} {}", registry.access));
    let did = did.trim_end().to_owned();
    place.dunlin(&format!("vc issue --issuer operator --subject {did} --claim role={name} --out {name}.vc"));
    did
}

pub(crate) fn operator(place: &Place) {
    let operator = place.dunlin("did create --out operator");
    place.write("trusted", &operator);
}

fn copy(place: &Place, from: &str, to: &str) {
    place.tool("cp", &format!("-r {from} {to}"));
}

#[test]
fn a_did_is_published_rotated_and_ended() {
    let place = place();
    let registry = Registry::new(&place);
    let access = &registry.access;
    let did = place.dunlin(&format!("did create --method dunlin --out device {access}"));
    let did = did.trim_end();
    let resolved = || json(&place.dunlin(&format!("did resolve {did} {access}")));
    let own = || json(&place.read("device/did.json"));
    assert_eq!(resolved(), own());
    assert_eq!(own()["dunlin"]["registry"], ORIGIN);
    copy(&place, "device", "old");

    assert_eq!(place.dunlin(&format!("did update device {access}")), format!("{did}: version 1\n"));
    assert_eq!(resolved(), own());
    // Operations that a registry already has are not submitted again.
    assert_eq!(place.dunlin(&format!("did publish device {access}")), format!("{did}: version 1\n"));
    let line = place.dunlin_fails(&format!("did publish old {access}"), 1);
    assert!(
        line.contains(&format!("{}: the registry has other operations of {did}", registry.url())),
        "{line}"
    );

    // Changes without the registry follow later, in their order.
    place.dunlin("did update device");
    place.dunlin("did update device");
    assert_ne!(resolved(), own());
    assert_eq!(place.dunlin(&format!("did publish device {access}")), format!("{did}: version 3\n"));
    assert_eq!(resolved(), own());

    place.dunlin(&format!("did deactivate device --key device/recovery.key {access}"));
    let line = place.dunlin_fails(&format!("did resolve device {access}"), 1);
    assert!(line.contains(&format!("{did} is deactivated")) && line.contains(&registry.url()), "{line}");
    let told = place.dunlin(&format!("did publish device {access}"));
    assert_eq!(told, format!("{did}: version 4, deactivated\n"));

    let other = place.dunlin(&format!("did create --method dunlin --registry {ORIGIN} --out other"));
    let line = place.dunlin_fails(&format!("did resolve {} {access}", other.trim_end()), 1);
    assert!(line.contains("the registry does not have did:dunlin:"), "{line}");
    registry.stop();
}

#[test]
fn documents_of_both_sides_come_from_the_registry() {
    let place = place();
    operator(&place);
    let registry = Registry::new(&place);
    let [hub, device] = ["hub", "device"].map(|name| party(&place, &registry, name));
    for transport in ["", "--udp"] {
        let port = registry.port;
        let both = format!("--trust trusted {} {transport}", access(port));
        let server = Server::new(&place, &format!("--did hub --vc hub.vc --Verify --echo {both}"));
        let client = format!("--did device --vc device.vc {both}");
        let told = server.echo(&place, &client, "hello\n");
        assert!(told.contains(&format!("\nServer             VC {hub}\n")), "{told}");
        assert!(server.process.log().contains(&format!("VC {device}, issued by did:key:")));
        // A client without a registry of its own sends no proof: the server asks the registry.
        let plain = format!("--CAfile pki/root.pem --did device --vc device.vc {transport}");
        let hybrid = Server::new(&place, &format!("{SERVER} --Verify {both}"));
        hybrid.echo(&place, &plain, "");
        assert!(hybrid.process.log().contains(&format!("VC {device}")));
    }
    registry.stop();
}

/// Without credentials, a list says whose DIDs count, and the registry which keys they have.
#[test]
fn bare_dids_have_the_keys_of_the_registry() {
    let place = place();
    let registry = Registry::new(&place);
    let create = |name: &str| {
        let did = place.dunlin(&format!("did create --method dunlin --out {name} {}", registry.access));
        place.write(&format!("{name}.did"), did.trim_end());
        did.trim_end().to_owned()
    };
    let [hub, device] = ["hub", "device"].map(create);
    copy(&place, "device", "old");
    let server = format!("--did hub --peers device.did --Verify --echo {}", registry.access);
    let server = Server::new(&place, &server);
    let client = format!("--peers hub.did {}", registry.access);
    let told = server.echo(&place, &format!("{client} --did device"), "hello\n");
    assert!(told.contains(&format!("\nServer             DID {hub}\n")), "{told}");
    assert!(server.process.log().contains(&format!("DID {device}")));
    // Another key, whose document the client does not send along: the server asks the registry.
    place.dunlin(&format!("did update device {}", registry.access));
    let fresh = Server::new(
        &place,
        &format!(
            "--cert pki/server.pem --key pki/server.key --peers device.did --Verify {}",
            registry.access
        ),
    );
    fresh.echo(&place, "--CAfile pki/root.pem --did device", "");
    let (client, log) = fresh.refused(&place, "--CAfile pki/root.pem --did old");
    assert!(client.contains("decrypt_error"), "{client}");
    assert!(log.contains("the signature over the handshake does not verify"), "{log}");
    place.dunlin(&format!("did deactivate device {}", registry.access));
    let later = Server::new(&place, &format!("{SERVER} --peers device.did --Verify {}", registry.access));
    let (client, log) = later.refused(&place, "--CAfile pki/root.pem --did old");
    assert!(client.contains("(alert certificate_revoked)"), "{client}");
    assert!(log.contains("is deactivated") && log.contains("give the client a new DID"), "{log}");
    registry.stop();
}

/// A session of a bare DID ends with its key, over TCP and UDP. Its peer's knowledge of the end lasts over a
/// resumption.
#[test]
fn sessions_of_bare_dids_end_with_their_keys() {
    let place = place();
    let registry = Registry::new(&place);
    let did = place.dunlin(&format!("did create --method dunlin --out device {}", registry.access));
    place.write("device.did", did.trim_end());
    for transport in ["", "--udp"] {
        let trust = format!("{SERVER} --peers device.did --Verify --json {transport}");
        let server = Server::new(&place, &format!("{trust} {}", registry.access));
        let client = format!("{CLIENT} {transport} --sess-out session");
        for (more, resumed) in [("", false), ("--sess-in session", true)] {
            let told = server.echo(&place, &format!("{client} --did device {more}"), "");
            assert!(
                told.contains(&format!("\nResumed            {}\n", if resumed { "yes" } else { "no" })),
                "{told}"
            );
            let event = json(&server.process.line());
            assert_eq!((&event["resumed"], &event["peer_did"]), (&resumed.into(), &did.trim_end().into()));
        }
        // The server learns of the new key by its proof.
        let old = format!("old{}", transport.len());
        copy(&place, "device", &old);
        place.dunlin(&format!("did update device {}", registry.access));
        server.echo(&place, &format!("{CLIENT} {transport} --did device {}", registry.access), "");
        server.process.line();
        let output = server.client(&place, &format!("{client} --did {old} --sess-in session"), "");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && told.contains("(alert decrypt_error)"), "{told}");
        let event = json(&server.process.line());
        assert!(
            event["why"].to_string().contains("the signature over the handshake does not verify"),
            "{event}"
        );
    }
    // A peer that resolves no did:dunlin does not ask for one.
    let server = Server::new(&place, &format!("{SERVER} --peers device.did --Verify"));
    let (told, log) = server.refused(&place, &format!("{CLIENT} --did device"));
    assert!(told.contains("this client has sent no certificate") || told.contains("certificate"), "{told}");
    assert!(log.contains("no certificate"), "{log}");
    let access = registry.access.clone();
    let port = registry.port;
    registry.stop();
    let server = Server::new(&place, &format!("{SERVER} --peers device.did --Verify {access}"));
    let (told, log) = server.refused(&place, &format!("{CLIENT} --did device"));
    assert!(told.contains("(alert bad_certificate)"), "{told}");
    let why = format!("{} cannot be looked up: localhost:{port}: not connected: ", did.trim_end());
    assert!(log.contains(&why), "{log}");
}

/// The next server knows nothing of the client, so it asks the registry.
#[test]
fn a_thawed_association_ends_with_the_did_of_its_client() {
    let place = place();
    let registry = Registry::new(&place);
    let did = place.dunlin(&format!("did create --method dunlin --out device {}", registry.access));
    place.write("device.did", did.trim_end());
    let options = format!(
        "{SERVER} --peers device.did --Verify --udp --cid 8 --frozen server.frozen --frozen-store ids {}",
        registry.access
    );
    let server = Server::new(&place, &options);
    let port = server.port;
    let own = format!("client localhost:{port} {CLIENT} --udp --cid --did device --quiet");
    let mut client = Running::new(&place, &own);
    client.write("before\n");
    assert_eq!(client.line(), "before");
    stop(server);
    let server = Server::at(&place, port, &options);
    client.write("after\n");
    assert_eq!(client.line(), "after");
    stop(server);
    place.dunlin(&format!("did deactivate device {}", registry.access));
    let server = Server::at(&place, port, &options);
    server
        .process
        .log_with("the client has lost its identity: its DID has another document by now or has ended");
    client.log_with("certificate_revoked");
}

/// The registry does not run any more when the next process asks.
#[test]
fn each_side_knows_after_a_restart_which_dids_have_ended() {
    let place = place();
    let registry = Registry::new(&place);
    for name in ["hub", "device"] {
        let did = place.dunlin(&format!("did create --method dunlin --out {name} {}", registry.access));
        place.write(&format!("{name}.did"), did.trim_end());
        copy(&place, name, &format!("old-{name}"));
        place.dunlin(&format!("did deactivate {name} {}", registry.access));
    }
    let access = registry.access.clone();
    let options = |known: &str| format!("{SERVER} --peers device.did --Verify {access} {known}");
    // Neither side sends a proof.
    let shows = Server::new(&place, "--did old-hub --echo");
    let asks = |known: &str| {
        let (told, _) = shows.refused(&place, &format!("--peers hub.did {access} {known}"));
        told
    };
    let server = Server::new(&place, &options("--known of-server"));
    let (told, log) = server.refused(&place, &format!("{CLIENT} --did old-device"));
    assert!(told.contains("(alert certificate_revoked)") && log.contains("is deactivated"), "{told}\n{log}");
    drop(server);
    let told = asks("--known of-client");
    assert!(told.contains("is deactivated"), "{told}");
    registry.stop();
    for (known, of_server, of_client) in
        [(true, "is deactivated", "is deactivated"), (false, "cannot be looked up", "cannot be looked up")]
    {
        let file = |name: &str| if known { format!("--known {name}") } else { String::new() };
        let server = Server::new(&place, &options(&file("of-server")));
        let (_, log) = server.refused(&place, &format!("{CLIENT} --did old-device"));
        assert!(log.contains(of_server), "{log}");
        let told = asks(&file("of-client"));
        assert!(told.contains(of_client), "{told}");
    }
    // Another file is not overwritten.
    place.write("notes", "notes");
    let told = place.dunlin_fails(&format!("server --accept 0 {}", options("--known notes")), 1);
    assert!(told.contains("--known: ") && told.contains("notes: not a file of records"), "{told}");
}

/// A client is short-lived, so it learns at its start that an operator has ended its DID.
#[test]
fn a_client_looks_issuers_up_before_it_connects() {
    let place = place();
    let registry = Registry::new(&place);
    place.dunlin(&format!("did create --method dunlin --out operator {}", registry.access));
    place.write("trusted", place.dunlin("did resolve operator --line"));
    place.tool("cp", "operator/did.json operator.json");
    let hub = place.dunlin("did create --out hub");
    place.write("hubs", &hub);
    place.dunlin(&format!("vc issue --issuer operator --subject {} --out hub.vc", hub.trim_end()));
    let server = Server::new(&place, "--did hub --vc hub.vc --echo");
    let client = format!("--trust trusted --document operator.json --peers hubs {}", registry.access);
    server.echo(&place, &client, "");
    place.dunlin(&format!("did deactivate operator {}", registry.access));
    let (client, _) = server.refused(&place, &client);
    assert!(client.contains("is no longer the latest"), "{client}");
    for document in ["", "--document operator.json"] {
        let verify = format!("vc verify hub.vc --trust trusted {document} {}", registry.access);
        let line = place.dunlin_fails(&verify, 1);
        assert!(line.contains("is deactivated"), "{line}");
    }
    // An issuer that has ended its DID is no obstacle for the others.
    place.write("both", format!("{}{}", place.read("trusted"), place.dunlin("did create --out other")));
    place.dunlin(&format!("vc issue --issuer other --subject {} --out other.vc", hub.trim_end()));
    place.dunlin(&format!("vc verify other.vc --trust both {}", registry.access));
    // The owner publishes the DID later, when the registry answers again.
    let port = registry.port;
    let access = registry.access.clone();
    registry.stop();
    let line = place.dunlin_fails(&format!("did create --method dunlin --out later {access}"), 1);
    assert!(
        line.contains(&format!("localhost:{port}")) && line.contains("then run `dunlin did publish later`"),
        "{line}"
    );
    let registry = Registry::at(&place, port);
    place.dunlin(&format!("did publish later {access}"));
    registry.stop();
}

/// The list names the operator's DID alone, and the registry has its document, also after a rotation.
#[test]
fn documents_of_issuers_come_from_the_registry() {
    let place = place();
    let registry = Registry::new(&place);
    let access = &registry.access;
    let operator = place.dunlin(&format!("did create --method dunlin --out operator {access}"));
    place.write("trusted", &operator);
    let hub = place.dunlin("did create --out hub");
    place.write("hubs", &hub);
    let issue = || {
        let list = "--status-list status.vc --status-url https://operator.example/1 --force";
        place.dunlin(&format!("vc issue --issuer operator --subject {} --out hub.vc {list}", hub.trim_end()))
    };
    issue();
    place.write("pinned", place.dunlin("did resolve operator --line"));
    let line = place.dunlin_fails("vc verify hub.vc --trust trusted", 1);
    assert!(line.contains("trusted: ") && line.contains("add --registry"), "{line}");
    let staple = "--staple-status status.vc";
    let server = Server::new(&place, &format!("--did hub --vc hub.vc {staple} --echo"));
    let client = format!("--trust trusted --peers hubs {access}");
    let told = server.echo(&place, &client, "");
    assert!(told.contains(&format!("\nIssuer             {operator}")), "{told}");
    let pinned = client.replace("trusted", "pinned");
    server.echo(&place, &pinned, "");
    // The server of this client asks during the handshake.
    let asking = Server::new(&place, &format!("{SERVER} --Verify {client}"));
    let shows = format!("{CLIENT} --did hub --vc hub.vc {staple}");
    asking.echo(&place, &shows, "");
    // A list of this side's own counts, too, although the document of its issuer comes later.
    let plain = Server::new(&place, "--did hub --vc hub.vc --echo");
    plain.echo(&place, &format!("{client} --status-list status.vc"), "");
    let (refused, _) = plain.refused(&place, &client);
    assert!(refused.contains("is not at hand"), "{refused}");

    place.tool("cp", "hub.vc old.vc");
    // The operator can still revoke credentials that it has issued before, and goes on with its list.
    place.dunlin(&format!("did update operator {access}"));
    let (refused, _) = server.refused(&place, &client);
    assert!(refused.contains("the DID document has no verification method"), "{refused}");
    issue();
    place.dunlin(&format!("vc verify hub.vc --trust trusted --status-list status.vc {access}"));
    place.dunlin("vc revoke old.vc --issuer operator --status-list status.vc");
    // A thief of the previous key may have signed it.
    let line = place.dunlin_fails(
        "did update hub --new-id --out hub-2 --vc old.vc --issuer operator --vc-out hub-2.vc --status-list status.vc",
        1,
    );
    assert!(line.contains("old.vc: ") && line.contains("by the present key of --issuer"), "{line}");
    let told = place.dunlin(&format!("vc verify hub.vc --trust trusted --status-list status.vc {access}"));
    assert!(told.starts_with("hub.vc: valid\n"), "{told}");
    let again = Server::new(&place, &format!("--did hub --vc hub.vc {staple} --echo"));
    again.echo(&place, &client, "");
    // A pinned document never changes.
    let (refused, _) = again.refused(&place, &pinned);
    assert!(refused.contains("is no longer the latest"), "{refused}");
    let verify = format!("vc verify hub.vc --trust pinned --status-list status.vc {access}");
    let line = place.dunlin_fails(&verify, 1);
    assert!(line.contains("is no longer the latest; leave its hash and"), "{line}");
    registry.stop();
}

#[test]
fn a_registry_that_does_not_run_is_named() {
    let place = place();
    operator(&place);
    let registry = Registry::new(&place);
    let [device, stranger] = ["device", "stranger"].map(|name| party(&place, &registry, name));
    let server = Server::new(&place, &format!("{SERVER} --Verify --trust trusted {}", registry.access));
    let shows = |name: &str| format!("{CLIENT} --did {name} --vc {name}.vc");
    server.echo(&place, &shows("device"), "");
    assert!(server.process.log().contains(&device));
    let port = registry.port;
    let access = registry.access.clone();
    registry.stop();
    // The server's look-ups stay valid for some minutes.
    server.echo(&place, &shows("device"), "");
    let (client, log) = server.refused(&place, &shows("stranger"));
    let why = format!("{stranger} cannot be looked up: localhost:{port}: not connected: ");
    assert!(log.contains(&why) && log.contains("check that the registry runs"), "{log}");
    assert!(client.contains("(alert bad_certificate)"), "{client}");
    for command in ["did resolve device", "did publish device"] {
        let line = place.dunlin_fails(&format!("{command} {access}"), 1);
        assert!(line.contains(&format!("localhost:{port}: not connected: ")), "{line}");
    }
    // The own proof is missing, too, which is no obstacle here.
    let output = server.client(&place, &format!("{} {access}", shows("device")), "");
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && warning.contains("no new proof of the own DID"), "{warning}");

    let registry = Registry::at(&place, port);
    // A failure serves for a quarter of a second.
    std::thread::sleep(Duration::from_millis(300));
    server.echo(&place, &shows("stranger"), "");
    registry.stop();
}

/// A false node, which has the address and certificate of the registry but another key.
#[test]
fn a_document_of_a_false_node_is_refused() {
    let place = place();
    operator(&place);
    let registry = Registry::new(&place);
    let did = party(&place, &registry, "device");
    place.dunlin(&format!("registry init --origin {ORIGIN} --out other"));
    let access = registry.access.replace("registry/registry.pub", "other/registry.pub");
    let server = Server::new(&place, &format!("{SERVER} --Verify --trust trusted {access}"));
    let (client, log) = server.refused(&place, &format!("{CLIENT} --did device --vc device.vc"));
    let why = format!("{did} cannot be looked up: {}/", registry.url());
    assert!(log.contains(&why) && log.contains("registry.example/1 has not signed"), "{log}");
    assert!(client.contains("(alert bad_certificate)"), "{client}");
    registry.stop();
}

/// The server knows only the root over its peers.
#[test]
fn members_of_a_list_prove_their_membership() {
    let place = place();
    operator(&place);
    let registry = Registry::new(&place);
    let [device, other, stranger] =
        ["device", "other", "stranger"].map(|name| party(&place, &registry, name));
    place.write("devices", format!("# hall 3\n{device}\n{other}\n"));
    let line = place.dunlin_fails("did members trusted --out proofs", 1);
    assert!(line.contains("trusted: did:key:") && line.contains("is in no registry"), "{line}");
    let root = place.dunlin("did members devices --out proofs");
    assert!(root.starts_with("members 2 ") && root.lines().count() == 1, "{root}");
    place.write("peers", root);
    let peers = format!("{SERVER} --Verify --trust trusted --peers peers");
    let line = place.dunlin_fails(&format!("server --accept 0 {peers}"), 2);
    assert!(line.contains("--peers: proofs for \"members\" come with those of a registry"), "{line}");
    let server = Server::new(&place, &format!("{peers} {}", registry.access));
    let shows = |name: &str| format!("{CLIENT} --did {name} --vc {name}.vc {}", registry.access);
    for (name, did) in [("device", &device), ("other", &other)] {
        server.echo(&place, &format!("{} --membership proofs", shows(name)), "");
        assert!(server.process.log().contains(&format!("VC {did}")));
    }
    // Without a proof, and with the proof of another member.
    let proofs = place.read("proofs").replace(other.as_str(), &stranger);
    place.write("stolen", proofs);
    for (own, why) in [
        (shows("device"), "is not on the list of trusted DIDs"),
        (format!("{} --membership stolen", shows("stranger")), "proof of membership: "),
    ] {
        let (client, log) = server.refused(&place, &own);
        assert!(client.contains("(alert unknown_ca)") && log.contains(why), "{client}\n{log}");
    }
    let output = server.client(&place, &format!("{} --membership proofs", shows("stranger")), "");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(&format!("proofs: it has no proof that {stranger} is a member")), "{told}");
    registry.stop();
}

/// Starts a registry whose clock is late by more than a checkpoint may be old, with the DID of this
/// directory. It runs as long as the test.
fn late_registry(place: &Place, did: &str) -> u16 {
    let provider = Arc::new(dunlin_awslc::provider());
    let late = DEFAULT_CHECKPOINT_AGE + 60;
    let key = KeyPair::generate(KeyType::Ed25519).unwrap().signing_key(&provider).unwrap();
    let clock = Arc::new(move || UNIX_EPOCH.elapsed().unwrap().as_secs() - late);
    let settings = Settings { clock, ..Settings::new(Arc::clone(&provider), ORIGIN, key) };
    Stored::create(&place.path("late.db"), &settings).unwrap();
    let registry = Arc::new(Stored::open(&place.path("late.db"), &settings).unwrap());
    let [log, witness] = registry.keys();
    place.write("late.pub", format!("{log}\n{witness}\n"));
    let operation = Operation::read(place.read(&format!("{did}/operations.jsonl")).trim_end().as_bytes());
    registry.submit(operation.unwrap()).unwrap();

    let items = |name: &str| dunlin_pki::parse(place.read(name).as_bytes()).unwrap();
    let chain = items("pki/server.pem").into_iter().filter_map(|item| match item {
        Item::Certificate(der) => Some(der),
        _ => None,
    });
    let own = items("pki/server.key").into_iter().find_map(|item| match item {
        Item::PrivateKey(pair) => Some(pair),
        _ => None,
    });
    let credential = Credential::x509(chain.collect(), own.unwrap().signing_key(&provider).unwrap());
    let profile = Profile::builder(provider).credentials(vec![credential]).build().unwrap();
    let acceptor = TlsAcceptor::new(Arc::new(ServerConfig::new(profile).unwrap()));
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = tokio::net::TcpListener::from_std(socket).unwrap();
            serve(registry, socket, acceptor, Limits::default(), std::future::pending()).await
        })
    });
    port
}

#[test]
fn a_stale_answer_is_refused() {
    let place = place();
    operator(&place);
    let did = place.dunlin(&format!("did create --method dunlin --registry {ORIGIN} --out device"));
    let did = did.trim_end();
    place.dunlin(&format!("vc issue --issuer operator --subject {did} --out device.vc"));
    let port = late_registry(&place, "device");
    let access = access(port).replace("registry/registry.pub", "late.pub");
    let server = Server::new(&place, &format!("{SERVER} --Verify --trust trusted {access}"));
    let (client, log) = server.refused(&place, &format!("{CLIENT} --did device --vc device.vc"));
    let why = format!("{did} cannot be looked up: https://localhost:{port}/");
    assert!(log.contains(&why), "{log}");
    assert!(log.contains("0 of 1 trusted witnesses have signed it within the maximum age"), "{log}");
    assert!(client.contains("(alert bad_certificate)"), "{client}");
}

/// A registry that was restored from an early backup has signed two histories.
#[test]
fn a_second_history_is_refused_and_reported() {
    let place = place();
    operator(&place);
    let registry = Registry::new(&place);
    place.dunlin("registry backup registry --out early.db");
    party(&place, &registry, "device");
    let server = Server::new(&place, &format!("{SERVER} --Verify --trust trusted {}", registry.access));
    let shows = |name: &str| format!("{CLIENT} --did {name} --vc {name}.vc");
    server.echo(&place, &shows("device"), "");
    let port = registry.port;
    registry.stop();
    place.tool("mkdir", "second");
    place.tool("mv", "registry/registry.key registry/registry.pub second");
    place.dunlin("registry restore early.db --unpublished --out second");
    place.tool("rm", "-r registry");
    place.tool("mv", "second registry");
    let registry = Registry::at(&place, port);
    let did = party(&place, &registry, "stranger");
    let output = server.client(&place, &shows("stranger"), "");
    let client = String::from_utf8(output.stderr).unwrap();
    let report = server.process.log_with("the registry shows different histories: keep these checkpoints");
    assert_eq!(report.matches("\u{2014} registry.example/1 ").count(), 4, "{report}");
    let log = server.process.log_with(" failed: ");
    let why = format!("{did} cannot be looked up: {}/", registry.url());
    assert!(log.contains(&why) && log.contains("has signed two histories of 2 entries"), "{log}");
    assert!(client.contains("(alert bad_certificate)"), "{client}");
    registry.stop();
}

#[test]
fn a_rotated_key_counts_with_the_next_proof() {
    let place = place();
    operator(&place);
    let registry = Registry::new(&place);
    let did = party(&place, &registry, "device");
    copy(&place, "device", "old");
    let server = Server::new(&place, &format!("{SERVER} --Verify --trust trusted {}", registry.access));
    let shows = |name: &str| format!("{CLIENT} --did {name} --vc device.vc");
    server.echo(&place, &shows("device"), "");
    assert!(server.process.log().contains(&did));
    place.dunlin(&format!("did update device {}", registry.access));
    // The proof tells the server about the new key, and that the previous one no longer counts.
    server.echo(&place, &format!("{} {}", shows("device"), registry.access), "");
    assert!(server.process.log().contains(&did));
    let (client, log) = server.refused(&place, &shows("old"));
    assert!(client.contains("decrypt_error"), "{client}");
    assert!(log.contains("the signature over the handshake does not verify"), "{log}");

    place.dunlin(&format!("did deactivate device {}", registry.access));
    let server = Server::new(&place, &format!("{SERVER} --Verify --trust trusted {}", registry.access));
    let (client, log) = server.refused(&place, &shows("old"));
    assert!(
        client.contains("(alert certificate_revoked)") && log.contains("is deactivated"),
        "{client}\n{log}"
    );
    registry.stop();
}
