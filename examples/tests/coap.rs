//! The CoAP examples with each other, and with libcoap's client and server, which speak DTLS 1.2.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::process::Command;

use dunlin_examples::DemoFiles;
use dunlin_pki::{KeyType, Tree, TreeSpec, certificates_to_pem};
use dunlin_tests::datagram::Relay;
use dunlin_tests::peer::{Files, Process, Server};

/// The TLS libraries of libcoap's programs.
const LIBRARIES: [&str; 2] = ["openssl", "gnutls"];

/// The key of [`psk`], as libcoap's programs want it.
const KEY: &str = "sixteen letters.";

/// The arguments after the address on both command lines.
fn psk() -> Vec<String> {
    ["psk", "sensor-7", "7369787465656e206c6574746572732e"].map(str::to_owned).to_vec()
}

fn x509(directory: &str) -> Vec<String> {
    vec!["x509".to_owned(), directory.to_owned()]
}

/// The command line of an example.
fn line<'a>(address: &'a str, credentials: &'a [String], rest: &[&'a str]) -> Vec<&'a str> {
    [&[address], &credentials.iter().map(String::as_str).collect::<Vec<_>>()[..], rest].concat()
}

/// Starts the server and returns its address.
fn serve(credentials: &[String]) -> (Process, String) {
    let mut server =
        Process::client(env!("CARGO_BIN_EXE_coap_server"), &line("127.0.0.1:0", credentials, &[]));
    let said = server.output_until("address", |output| output.contains(&b'\n')).to_vec();
    let said = String::from_utf8(said).unwrap();
    let address = said.trim_end().strip_prefix("listening on ").unwrap().to_owned();
    (server, address)
}

/// The client's output for a request.
fn ask(address: &str, credentials: &[String], request: &[&str]) -> String {
    let mut client = Command::new(env!("CARGO_BIN_EXE_coap_client"));
    let output = client.args(line(address, credentials, request)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_client_with_a_pre_shared_key_switches_the_lamp() {
    let (_server, address) = serve(&psk());
    let who = "the server is PSK sensor-7\n";
    assert_eq!(ask(&address, &psk(), &["get", "/light"]), format!("{who}Content: off\n"));
    assert_eq!(ask(&address, &psk(), &["put", "/light", "on"]), format!("{who}Changed: \n"));
    assert_eq!(ask(&address, &psk(), &["get", "/light"]), format!("{who}Content: on\n"));
    assert_eq!(ask(&address, &psk(), &["get", "/"]), format!("{who}Content: Dunlin\n"));
    assert_eq!(ask(&address, &psk(), &["get", "/whoami"]), format!("{who}Content: PSK sensor-7\n"));
    assert_eq!(ask(&address, &psk(), &["get", "/nothing"]), format!("{who}NotFound: \n"));
    assert_eq!(ask(&address, &psk(), &["delete", "/light"]), format!("{who}MethodNotAllowed: \n"));
}

#[test]
fn the_server_knows_a_client_by_its_certificate() {
    let files = DemoFiles::new().unwrap();
    let credentials = x509(files.path("").to_str().unwrap());
    let (_server, address) = serve(&credentials);
    let told = ask(&address, &credentials, &["get", "/whoami"]);
    assert_eq!(told, "the server is X.509 localhost\nContent: X.509 CN=device-1\n");
}

#[test]
fn a_client_observes_what_another_switches() {
    let (_server, address) = serve(&psk());
    let credentials = psk();
    let arguments = line(&address, &credentials, &["observe", "/light"]);
    let mut observer = Process::client(env!("CARGO_BIN_EXE_coap_client"), &arguments);
    let mut until = |text: &str| {
        observer.output_until(text, |output| output.ends_with(text.as_bytes()));
    };
    until("Content: off\n");
    for state in ["on", "dim", "off"] {
        ask(&address, &credentials, &["put", "/light", state]);
        until(&format!("Content: {state}\n"));
    }
}

#[test]
fn a_wrong_command_line_is_explained() {
    for (arguments, reason) in [
        (&["127.0.0.1:1", "psk", "a", "00", "get", "/"][..], "at least 16 bytes"),
        (&["localhost", "psk"], "ADDRESS: invalid socket address syntax; use: ADDRESS psk IDENTITY KEY"),
        (&["127.0.0.1:1", "psk", "a", "0x"], "Error: KEY is not hexadecimal; use: ADDRESS psk"),
        (&["127.0.0.1:1", "key"], "Error: use: ADDRESS psk"),
        (&["127.0.0.1:1", "psk", "a", "000102030405060708090a0b0c0d0e0f", "get"], "no method or no path"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_coap_client")).args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{errors}");
    }
}

/// Files for both sides. libcoap's programs send no intermediate certificate with OpenSSL, so both sides
/// trust it.
fn files() -> Files {
    let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 1).unwrap()).unwrap();
    let files = Files::default();
    let authorities = [tree.root.chain(), tree.intermediate.chain()].concat();
    files.write("root.pem", certificates_to_pem(&authorities).unwrap());
    for (name, identity) in [("server", &tree.server), ("client", &tree.client)] {
        files.write(&format!("{name}.pem"), certificates_to_pem(&identity.chain).unwrap());
        files.write(&format!("{name}.key"), identity.key.to_pem().unwrap().as_bytes());
    }
    files
}

/// The arguments of libcoap's client or server with certificates.
fn certificates(files: &Files, name: &str) -> Vec<String> {
    let path = |end: &str| files.path(&format!("{name}.{end}"));
    ["-c", &path("pem"), "-j", &path("key"), "-R", &files.path("root.pem")].map(str::to_owned).to_vec()
}

/// Starts libcoap's client.
fn coap_client(library: &str, arguments: &[&[&str]], uri: &str) -> Process {
    Process::client(&format!("coap-client-{library}"), &[&arguments.concat()[..], &[uri]].concat())
}

/// Checks the output of libcoap's client for a request.
fn ask_by_libcoap(library: &str, arguments: &[&[&str]], uri: &str, answer: &str) {
    let mut client = coap_client(library, &[&["-w"], &arguments.concat()], uri);
    let output = client.output_until(answer, |output| output.ends_with(b"\n"));
    assert_eq!(String::from_utf8_lossy(output).trim_end(), answer, "{library}");
}

#[test]
fn libcoaps_client_switches_the_lamp_with_a_pre_shared_key() {
    let (_server, address) = serve(&psk());
    let uri = |path: &str| format!("coaps://{address}/{path}");
    let key = ["-u", "sensor-7", "-k", KEY];
    for library in LIBRARIES {
        ask_by_libcoap(library, &[&key], &uri("whoami"), "PSK sensor-7");
        ask_by_libcoap(library, &[&key, &["-N"]], &uri(""), "Dunlin");
        let mut observer = coap_client(library, &[&key, &["-w", "-s", "60"]], &uri("light"));
        observer.output_until("off", |output| output == b"off\n");
        for (state, so_far) in [("on", "off\non\n"), ("off", "off\non\noff\n")] {
            // The client prints nothing about it, and ends after the response.
            let put = coap_client(library, &[&key, &["-m", "put", "-e", state]], &uri("light"));
            observer.output_until(state, |output| output == so_far.as_bytes());
            drop(put);
        }
    }
}

#[test]
fn libcoaps_client_authenticates_by_a_certificate() {
    let files = files();
    let (_server, address) = serve(&x509(&files.path("")));
    for library in LIBRARIES {
        let own = certificates(&files, "client");
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        ask_by_libcoap(library, &[&own], &format!("coaps://{address}/whoami"), "X.509 CN=device-1");
    }
}

#[test]
fn libcoaps_client_repeats_a_lost_datagram() {
    let (_server, address) = serve(&psk());
    let key = ["-u", "sensor-7", "-k", KEY, "-l", "1"];
    ask_by_libcoap("openssl", &[&key], &format!("coaps://{address}/whoami"), "PSK sensor-7");
}

/// Puts to and gets from libcoap's server in a namespace of its own.
fn use_libcoaps_server(library: &str, files: Files, arguments: &[&str], credentials: &[String], who: &str) {
    let arguments = [&["-A", "127.0.0.1", "-p", "4432", "-d", "10"], arguments].concat();
    let server = Server::start(files, &format!("coap-server-{library}"), &arguments);
    let relay = Relay::new(&server);
    let address = relay.address.to_string();
    let ask = |request: &[&str]| ask(&address, credentials, request);
    let who = format!("the server is {who}\n");
    assert_eq!(ask(&["put", "/letter", "hello"]), format!("{who}Created: \n"));
    assert_eq!(ask(&["get", "/letter"]), format!("{who}Content: hello\n"));
    assert_eq!(ask(&["get", "/nothing"]), format!("{who}NotFound: Not Found\n"));
    // This resource tells observers when it changes.
    ask(&["put", "/example_data", "first"]);
    let second = Relay::new(&server);
    let address = second.address.to_string();
    let observe = line(&address, credentials, &["observe", "/example_data"]);
    let mut observer = Process::client(env!("CARGO_BIN_EXE_coap_client"), &observe);
    observer.output_until("first", |output| output.ends_with(b"Content: first\n"));
    ask(&["put", "/example_data", "second"]);
    observer.output_until("second", |output| output.ends_with(b"Content: first\nContent: second\n"));
    // This resource acknowledges the request first, and answers a second later.
    assert_eq!(ask(&["get", "/async?1"]), format!("{who}Content: done\n"));
}

#[test]
fn libcoaps_server_answers_a_client_with_a_pre_shared_key() {
    for library in LIBRARIES {
        use_libcoaps_server(library, Files::default(), &["-k", KEY, "-h", "hint"], &psk(), "PSK sensor-7");
    }
}

#[test]
fn libcoaps_server_answers_a_client_with_a_certificate() {
    for library in LIBRARIES {
        let files = files();
        let own = certificates(&files, "server");
        let credentials = x509(&files.path(""));
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        use_libcoaps_server(library, files, &own, &credentials, "X.509 localhost");
    }
}
