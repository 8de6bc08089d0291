//! Runs each example to its end, and checks what it prints.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::process::Command;

use dunlin_examples::DemoFiles;
use dunlin_tests::peer::Process;

/// The standard output of the program at `path`, which must succeed.
fn run(path: &str) -> String {
    let output = Command::new(path).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{path}: {}: {errors}", output.status);
    assert_eq!(errors, "", "{path}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn mutual_tls_authenticates_both_sides() {
    let output = run(env!("CARGO_BIN_EXE_mutual_tls"));
    for line in [
        "server: the client is X.509 CN=device-1",
        "client: the server is X.509 localhost",
        "client: the answer is HELLO",
    ] {
        assert!(output.lines().any(|l| l == line), "no line {line:?} in {output}");
    }
}

#[test]
fn the_client_of_the_tutorial_gets_an_answer_of_its_server() {
    let files = DemoFiles::new().unwrap();
    let directory = files.path("").to_str().unwrap().to_owned();
    let mut server = Process::client(env!("CARGO_BIN_EXE_tls_server"), &[&directory, "127.0.0.1:0"]);
    let said = server.output_until("address", |output| output.contains(&b'\n')).to_vec();
    let address =
        String::from_utf8(said).unwrap().trim_end().strip_prefix("listening on ").unwrap().to_owned();
    let output =
        Command::new(env!("CARGO_BIN_EXE_tls_client")).args([&directory, &address]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.ends_with("the answer is HELLO\n"), "{output:?}");
    let name = b"the client is X.509 CN=device-1\n";
    server.output_until("identity", |output| output.windows(name.len()).any(|part| part == name));
}

/// The whole handshake takes fewer bytes than certificates alone would.
#[test]
fn a_psk_authenticates_a_device_in_few_bytes() {
    let output = run(env!("CARGO_BIN_EXE_psk"));
    assert!(output.lines().any(|l| l == "server: PSK sensor-7 says 21.5 C"), "{output}");
    let bytes: Vec<u32> = output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(bytes[..], [sent, received] if sent + received < 500), "{output}");
}

#[test]
fn the_cache_saves_bytes_after_a_restart() {
    let output = run(env!("CARGO_BIN_EXE_persistent_cache"));
    assert!(output.contains("kind Full"), "{output}");
    assert!(output.contains("kind Cached { own: true, peer: true }"), "{output}");
    let words = output.lines().last().unwrap().split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
    let [first, second, saved] = numbers[..] else { panic!("{output}") };
    assert!(second < first / 2 && saved == first - second, "{output}");
}

#[test]
fn a_handler_of_axum_knows_its_client() {
    let output = run(env!("CARGO_BIN_EXE_axum_https"));
    assert!(output.starts_with("HTTP/1.1 200 OK\r\n"), "{output}");
    assert!(output.ends_with("\r\n\r\nhello, X.509 CN=device-1\n"), "{output}");
}

#[test]
fn blocking_sockets_need_no_tokio() {
    let output = run(env!("CARGO_BIN_EXE_blocking"));
    assert_eq!(output, "server: the client is X.509 CN=device-1\nclient: the answer is HELLO\n");
}

#[test]
fn blocking_datagrams_need_no_tokio() {
    let output = run(env!("CARGO_BIN_EXE_blocking_dtls"));
    assert_eq!(output, "client: the answer is HELLO\nclient: the answer is GOODBYE\n");
}

#[test]
fn the_no_std_program_sends_its_reading() {
    assert_eq!(run(env!("CARGO_BIN_EXE_no_std")), "the server received 21.5 C\n");
}
