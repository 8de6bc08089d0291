//! The CoAP examples with each other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::process::Command;

use dunlin_examples::DemoFiles;
use dunlin_tests::peer::Process;

/// What follows the address on both command lines.
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

/// What the client prints about a request.
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
        (&["127.0.0.1:1", "key"], "use: ADDRESS psk"),
        (&["127.0.0.1:1", "psk", "a", "000102030405060708090a0b0c0d0e0f", "get"], "no method or no path"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_coap_client")).args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{errors}");
    }
}
