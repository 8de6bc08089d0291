//! Tests the log of `dunlin server`, and how it ends silent connections.

use std::io::{Read, Write};
use std::net::TcpStream;

use dunlin_tests::place::{Place, send_signal};

use crate::peers::{CLIENT, OWN, Running, SERVER, Server, json, place};

/// Returns time, level, address and text of a line.
fn parts(line: &str) -> [&str; 4] {
    line.splitn(4, ' ').collect::<Vec<_>>().try_into().unwrap()
}

/// Returns whether this is a time like 2026-03-01T00:00:00.007Z.
fn is_time(text: &str) -> bool {
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    text.chars().map(shape).collect::<String>() == "0000-00-00T00:00:00.000Z"
}

/// Returns the numbers in a text.
fn numbers(text: &str) -> Vec<u64> {
    text.split([' ', ';']).filter_map(|word| word.parse().ok()).collect()
}

/// The serial number of the client's certificate as OpenSSL prints it.
fn serial(place: &Place) -> String {
    let told = place.tool("openssl", "x509 -in pki/client.pem -noout -serial");
    told.trim().strip_prefix("serial=").unwrap().to_lowercase()
}

#[test]
fn every_line_has_time_level_and_client() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify"));
    server.echo(&place, &format!("{CLIENT} {OWN}"), "hello\n");
    let connected = server.process.log_with(" connected: ");
    let [time, level, address, text] = parts(&connected);
    assert!(is_time(time) && level == "info" && address.starts_with("127.0.0.1:"), "{connected}");
    let told = text.split("; ").find_map(|part| part.strip_prefix("certificate serial ")).unwrap();
    assert_eq!(told.replace(':', "").to_lowercase(), serial(&place), "{connected}");

    let ended = server.process.log_with(" ended: ");
    let [_, level, client, text] = parts(&ended);
    assert_eq!((level, client), ("info", address));
    assert!(text.ends_with("; orderly, by the client"), "{ended}");
    let handshake = numbers(&connected);
    let all = numbers(&ended);
    let [read, written] = handshake[handshake.len() - 2..] else { panic!("{connected}") };
    // Each side sends at least a record of 6 bytes and a close_notify.
    assert!(all[0] > read + 6 && all[1] > written + 6, "{connected}\n{ended}");
}

#[test]
fn json_has_the_same_contents() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify --json"));
    server.echo(&place, &format!("{CLIENT} {OWN}"), "hello\n");
    let connection = json(&server.process.line());
    assert!(is_time(connection["time"].as_str().unwrap()), "{connection}");
    assert_eq!((&connection["event"], &connection["level"]), (&"connection".into(), &"info".into()));
    let told = connection["peer_serial"].as_str().unwrap().replace(':', "").to_lowercase();
    assert_eq!(told, serial(&place));
    let fingerprint = place.tool("openssl", "x509 -in pki/client.pem -noout -sha256 -fingerprint");
    let fingerprint = fingerprint.trim().split_once('=').unwrap().1.replace(':', "").to_lowercase();
    assert_eq!(connection["peer_sha256"], fingerprint);
    let ended = json(&server.process.lines.recv_timeout(crate::peers::PATIENCE).unwrap());
    assert_eq!((&ended["event"], &ended["orderly"]), (&"ended".into(), &true.into()));
    assert_eq!(ended["address"], connection["address"]);
    for (all, handshake) in
        [("bytes_read", "handshake_bytes_read"), ("bytes_written", "handshake_bytes_written")]
    {
        assert!(ended[all].as_u64() > connection[handshake].as_u64(), "{ended}");
    }
}

#[test]
fn end_without_close_notify_is_not_orderly() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let mut client = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
    client.write("hello\n");
    assert_eq!(client.line(), "hello");
    client.child.kill().unwrap();
    let failed = server.process.log_with(" failed: ");
    assert_eq!(parts(&failed)[1], "warn", "{failed}");
    let ended = server.process.log_with(" ended: ");
    assert!(ended.ends_with("; not orderly"), "{ended}");
}

#[test]
fn debug_level_adds_accepted_connections_and_messages() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --log-level debug"));
    server.echo(&place, CLIENT, "");
    let accepted = server.process.log();
    assert!(accepted.contains(" debug 127.0.0.1:") && accepted.ends_with(" accepted"), "{accepted}");
    let hello = server.process.log();
    assert!(hello.contains(" debug 127.0.0.1:") && hello.contains(" received  ClientHello "), "{hello}");
}

#[test]
fn advice_fits_the_input_that_is_not_tls() {
    let place = place();
    let server = Server::new(&place, SERVER);
    for (sent, advice) in [
        (
            &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
            "; the client speaks another protocol than TLS: ",
        ),
        (b"\x16", "; no ClientHello came, as with port scans and health checks; "),
    ] {
        let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        client.write_all(sent).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end(&mut vec![]).unwrap();
        let log = server.process.log_with(" failed: ");
        assert!(log.contains(advice), "{log}");
    }
}

/// A probe makes neither noise nor, with --naccept, a riddle of the exit status.
#[test]
fn a_client_that_sends_nothing_is_a_debug_line() {
    let place = place();
    for (options, level) in [("--log-level debug", "debug"), ("--naccept 1", "warn")] {
        let server = Server::new(&place, &format!("{SERVER} {options}"));
        drop(TcpStream::connect(("127.0.0.1", server.port)).unwrap());
        let failed = server.process.log_with(" failed: ");
        assert_eq!(parts(&failed)[1], level, "{failed}");
        assert!(failed.contains("the client sent nothing: "), "{failed}");
        assert!(failed.contains("as with port scans and health checks"), "{failed}");
    }
}

#[test]
fn silent_clients_lose_their_slots() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --max-connections 1 --idle-timeout 1"));
    let mut silent = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
    silent.write("hello\n");
    assert_eq!(silent.line(), "hello");
    let failed = server.process.log_with(" failed: ");
    assert!(failed.contains("no byte has passed for 1 second; raise --idle-timeout"), "{failed}");
    // The only slot is free again, and the client has received close_notify.
    server.echo(&place, CLIENT, "");
    assert_eq!(silent.child.wait().unwrap().code(), Some(0));
}

/// A client that stays connected, without an identity.
fn anonymous(place: &Place, server: &Server) -> Running {
    let mut client = Running::new(place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
    client.write("hello\n");
    assert_eq!(client.line(), "hello");
    client
}

#[test]
fn an_anonymous_client_gives_way_to_one_with_an_identity() {
    let place = place();
    let options = "--CAfile pki/root.pem --verify --max-connections 2";
    let server = Server::new(&place, &format!("{SERVER} {options}"));
    let mut anonymous = [(); 2].map(|()| anonymous(&place, &server));
    server.echo(&place, &format!("{CLIENT} {OWN}"), "hello\n");
    let failed = server.process.log_with(" failed: ");
    assert!(failed.contains("it gave way to another client (anonymous)"), "{failed}");
    // It has received close_notify.
    assert_eq!(anonymous[0].child.wait().unwrap().code(), Some(0));
    anonymous[1].write("again\n");
    assert_eq!(anonymous[1].line(), "again");
}

#[test]
fn clients_beyond_the_limit_are_refused_and_the_log_says_so_once() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --max-connections 1"));
    let first = anonymous(&place, &server);
    let (told, failed) = server.refused(&place, CLIENT);
    assert!(told.contains("internal_error"), "{told}");
    assert!(failed.contains("the limit --max-connections-per-host was reached; raise"), "{failed}");
    assert_eq!(server.client(&place, CLIENT, "").status.code(), Some(1));
    drop(first);
    // Its place is free once the server has noticed its end.
    server.process.log_where(|line| line.contains(" failed: ") && !line.contains("per-host"));
    server.echo(&place, CLIENT, "");
    let next =
        || server.process.log_where(|line| line.contains(" failed: ") || line.contains(" connected: "));
    assert!(next().contains(" connected: "));
}

/// Clients that send nothing have all open files. Their handshakes would last for an hour.
#[test]
fn without_open_files_the_server_goes_on_and_the_log_says_so_once() {
    let place = place();
    let dunlin = place.command(&format!("server --accept 0 {SERVER} --timeout 3600"));
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg("ulimit -n 60; exec \"$0\" \"$@\"").arg(dunlin.get_program());
    shell.args(dunlin.get_args()).current_dir(dunlin.get_current_dir().unwrap());
    let process = Running::start(&mut shell);
    let port = crate::peers::port_in(&process.log_with("listening"));
    let server = Server { process, port, warnings: String::new() };
    let silent: Vec<_> = (0..80).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let line = server.process.log_with("a connection was not accepted");
    assert!(line.contains("free file descriptors or memory"), "{line}");
    drop(silent);
    server.echo(&place, CLIENT, "");
    send_signal(&server.process.child, "-TERM");
    let (status, _, rest) = server.process.end();
    assert!(status == 0 && !rest.contains("not accepted"), "{rest}");
}

/// A client that failed may take two seconds to close. Its slot is free meanwhile.
#[test]
fn failed_clients_do_not_keep_their_slots() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --max-connections 1"));
    // On a busy machine, the next client may take more than these two seconds; so try again.
    let overtakes = || {
        let mut failed = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        failed.write_all(&[99, 3, 3, 0, 1, 0]).unwrap();
        // The alert, and the end of the server's direction. This client stays.
        failed.read_to_end(&mut vec![]).unwrap();
        server.echo(&place, CLIENT, "");
        let next =
            || server.process.log_where(|line| line.contains(" failed: ") || line.contains(" connected: "));
        let [first, _] = [next(), next()];
        first.contains(" connected: ")
    };
    assert!((0..5).any(|_| overtakes()));
}
