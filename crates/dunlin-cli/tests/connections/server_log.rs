//! Tests the log of `dunlin server`, and how it ends silent connections.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::peers::{CLIENT, OWN, Running, SERVER, Server, json, place};

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
fn serial(place: &crate::common::Place) -> String {
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
    let (handshake, all) = (numbers(&connected), numbers(&ended));
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
    let ended = json(&server.process.lines.recv_timeout(crate::common::peers::PATIENCE).unwrap());
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
        (b"", "; no ClientHello came, as with port scans and health checks; "),
    ] {
        let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        client.write_all(sent).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end(&mut vec![]).unwrap();
        let log = server.process.log_with(" failed: ");
        assert!(log.contains(advice), "{log}");
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
