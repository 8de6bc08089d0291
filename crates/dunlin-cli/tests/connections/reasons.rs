//! Tests the output of `dunlin client` and `dunlin server` on each stream, above all their explanations of
//! failures.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::mpsc::channel;

use crate::peers::{CLIENT, KEY, OWN, Running, SERVER, Server, events, json, kinds, lines, place, port_in};
use dunlin_tests::place::send_signal;

#[test]
fn each_side_names_the_check_that_failed() {
    let place = place();
    place.dunlin("pki demo --out others --key-type ed25519");
    // The demonstration's authorities all have the same name; this authority has another one.
    place.dunlin("pki ca --name Stranger --out stranger");
    let server =
        Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify --alpn h2 --groups x25519"));
    for (client, says, logs) in [
        (
            "--CAfile stranger/ca.pem",
            "this client refused the server: its chain leads to no trusted CA in stranger/ca.pem; \
             give the root that issued it with --ca",
            "the client refused the credential of this server, pki/server.pem (alert unknown_ca)",
        ),
        (
            "--CAfile pki/root.pem -verify_depth 0",
            "this client refused the server: its chain has more authorities than allowed: more than 0; raise --verify-depth",
            "the client refused the credential of this server, pki/server.pem (alert unknown_ca)",
        ),
        (
            "--CAfile pki/root.pem --servername example.org",
            "this client refused the server: its certificate is not for example.org but for localhost, 127.0.0.1; ",
            "the client refused the credential of this server, pki/server.pem (alert bad_certificate)",
        ),
        (
            "--CAfile pki/root.pem",
            "the server refused this client, which sent no certificate (alert certificate_required)",
            "this server refused the client: it sent no certificate",
        ),
        (
            "--CAfile pki/root.pem --cert others/client.pem --key others/client.key",
            "the server refused the credential of this client, others/client.pem (alert ",
            "this server refused the client: ",
        ),
        (
            "--CAfile pki/root.pem --cert pki/server.pem --key pki/server.key",
            "the server refused the credential of this client, pki/server.pem (alert certificate_unknown)",
            "this server refused the client: its certificate may not be used for this role",
        ),
        (
            "--CAfile pki/root.pem --alpn http/1.1",
            "the server speaks none of these application protocols (alert no_application_protocol)",
            "this server finds no common application protocol",
        ),
        (
            "--CAfile pki/root.pem --groups P-384",
            "the server shares no parameters with this client (alert handshake_failure)",
            "this server finds no common group",
        ),
    ] {
        let (client_said, log) = server.refused(&place, &format!("{client} --quiet"));
        let last = client_said.lines().last().unwrap_or_default();
        assert!(last.starts_with("dunlin: server localhost:"), "{client_said}");
        assert!(client_said.contains(says), "{client}\n{client_said}");
        assert!(log.contains(logs), "{client}\n{log}");
    }
    // A client that accepts every certificate connects to the same server.
    let output = server.client(&place, &format!("--insecure {OWN} --brief"), "");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("warning: --insecure"));
}

/// In TLS 1.3 a server may refuse the client after the client's last flight (RFC 8446 §4.4.2.4).
#[test]
fn reports_a_refusal_after_the_connection_event_as_json() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify --json"));
    let output = server.client(&place, &format!("{CLIENT} --json"), "hello\n");
    assert_eq!(output.status.code(), Some(1));
    let told = events(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(kinds(&told), ["connection", "failure"]);
    let [connection, failure] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&connection["accepted"], &connection["side"]), (&false.into(), &"client".into()));
    assert_eq!((&failure["code"], &failure["alert"]), (&"alert".into(), &"certificate_required".into()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(failure["why"].as_str().unwrap()), "{stderr}");
    let log = json(&server.process.line());
    assert_eq!(
        (&log["event"], &log["side"], &log["code"]),
        (&"failure".into(), &"server".into(), &"authentication".into())
    );

    // Without JSON, the report says so.
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify"));
    for (options, says) in [
        ("", "\nAccepted           not known yet: the server may still refuse this client; "),
        ("--brief", " (acceptance not known yet): "),
    ] {
        let output = server.client(&place, &format!("{CLIENT} {options}"), "");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.code() == Some(1) && stdout.contains(says), "{stdout}");
    }
}

/// A script reads the reason of a failure on stdout, like the negotiated parameters.
#[test]
fn prints_failures_as_json() {
    let place = place();
    place.dunlin("pki ca --name Stranger --out stranger");
    let server = Server::new(&place, SERVER);
    for (arguments, status, code, what, why) in [
        (
            format!("localhost:{} --CAfile stranger/ca.pem", server.port),
            1,
            "authentication",
            "server localhost:",
            "its chain leads to no trusted CA",
        ),
        ("localhost:0 --CAfile pki/root.pem".to_owned(), 1, "failed", "server localhost:0", "os error"),
        (
            "localhost --CAfile pki/root.pem --lean --crl-check".to_owned(),
            2,
            "usage",
            "--crl-check",
            "there is no CRL",
        ),
    ] {
        let output = place.command(&format!("client {arguments} --json")).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let told = json(stdout.strip_suffix('\n').unwrap());
        let field = |name: &str| told[name].as_str().unwrap().to_owned();
        assert_eq!((field("event"), field("side")), ("failure".to_owned(), "client".to_owned()));
        assert_eq!(field("code"), code);
        assert!(field("what").starts_with(what) && field("why").contains(why), "{told}");
        assert_eq!(stderr, format!("dunlin: {}: {}; {}\n", field("what"), field("why"), field("advice")));
    }
}

/// Explains faults of a server's certificate, and names the files.
#[test]
fn explains_why_a_certificate_is_refused() {
    let place = place();
    place.dunlin("pki demo --out ed --key-type ed25519");
    let own = "--cert x.pem --key x.key --echo";
    let leaf = "pki leaf --issuer pki/root.pem --issuer-key pki/root.key --server --san localhost --force \
                --cert x.pem --key x.key";
    let refused = |make: &str, trusted: &str| {
        place.dunlin(make);
        Server::new(&place, own).refused(&place, &format!("--CAfile {trusted}"))
    };
    let root = "pki/root.pem";
    let expired = "--not-before 2025-01-01 --not-after 2025-01-02";
    let (said, _) = refused(&format!("{leaf} {expired}"), root);
    assert!(said.contains("its certificate has expired, at 2025-01-02T00:00:00Z; "), "{said}");
    let warning = Server::new(&place, &format!("{own} --CAfile {root}")).warnings;
    assert!(
        warning.contains("warning: x.pem: a certificate expired at 2025-01-02T00:00:00Z; clients"),
        "{warning}"
    );
    assert!(warning.contains("warning: --ca: the server requests no client certificates; add"), "{warning}");
    let future = "--not-before 2090-01-01 --not-after 2090-01-02";
    let (said, _) = refused(&format!("{leaf} {future}"), root);
    assert!(said.contains("its certificate is not valid yet, but from 2090-01-01T00:00:00Z on; "), "{said}");
    // The server does not use the certificate of an authority for itself.
    let (_, log) = refused("pki ca --name localhost --cert x.pem --key x.key --force", root);
    assert!(
        log.contains("finds no suitable credential: the keyUsage of its certificate forbids it; "),
        "{log}"
    );
    assert!(log.contains("dunlin pki leaf"), "{log}");
    // An authority with the same name and a key of another type.
    let (said, _) = refused(leaf, "ed/root.pem");
    assert!(said.contains("it was not issued by the CA of this name in ed/root.pem; "), "{said}");
    let said = place.dunlin_fails("pki verify --ca ed/root.pem x.pem", 1);
    assert!(said.contains("it was not issued by the CA of this name in ed/root.pem; "), "{said}");
    // The server does not send the intermediate certificate.
    let sub = leaf.replace("pki/root", "pki/intermediate");
    let (said, _) = refused(&format!("{sub} --no-chain"), root);
    assert!(said.ends_with("or make the server send its intermediate certificates"), "{said}");
    // The intermediate authority has expired.
    place.dunlin(&format!(
        "pki intermediate --issuer {root} --issuer-key pki/root.key --name Between --cert b.pem --key b.key {expired}"
    ));
    let (said, _) = refused(&format!("{} --days 30", leaf.replace("pki/root.", "b.")), root);
    assert!(said.contains("the certificate of Between in its chain has expired, at 2025-01-02"), "{said}");
}

/// Warns of options that have little effect.
#[test]
fn warns_of_options_with_little_effect() {
    let place = place();
    let server = Server::new(&place, "--cert pki/client.pem --key pki/client.key --echo --psk-ke");
    let warnings = &server.warnings;
    let says = "pki/client.pem: the certificate is not for a server: its purposes lack serverAuth; clients will refuse it";
    assert!(warnings.contains(says), "{warnings}");
    let says = "--psk-ke: without a pre-shared key it affects only resumed sessions; add --psk-file";
    assert!(warnings.contains(says), "{warnings}");
    let good = Server::new(&place, &format!("{SERVER} --psk {KEY} --psk-ke"));
    assert_eq!(good.warnings, "");
}

/// A client that has only a pre-shared key, and a server that has only a certificate.
#[test]
fn explains_that_the_server_has_no_pre_shared_key() {
    let place = place();
    for version in ["-tls1_2", "-tls1_2 -tls1_3"] {
        let server = Server::new(&place, &format!("{SERVER} {version}"));
        let (client, log) = server.refused(&place, &format!("--psk {KEY} -tls1_2"));
        let says =
            "the client offers only cipher suites for pre-shared keys, and this server has no such key";
        assert!(log.contains(says), "{log}");
        assert!(client.contains("; add this PSK and identity to the server"), "{client}");
    }
    for version in ["--tls1-3", "--udp"] {
        let server = Server::new(&place, &format!("{SERVER} {version}"));
        let (client, log) = server.refused(&place, &format!("--psk {KEY} {version}"));
        let says = "this server has no pre-shared keys, and the client offers nothing else; \
                    give this server --psk-file, or let the client use certificates";
        assert!(log.contains(says), "{log}");
        assert!(client.ends_with("; if the server has no pre-shared keys, use certificates"), "{client}");
    }
}

#[test]
fn refuses_unusable_options_before_connecting() {
    let place = place();
    place.write("short", "d1:00\n");
    place.write("empty", "\n");
    place.write("garbage.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    place.write("short.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n");
    place.write("cut.pem", &place.read("pki/root.pem")[..200]);
    place.write("two", format!("d1:{KEY}\nd2:{KEY}\n"));
    for (arguments, says) in [
        ("client --CAfile nothing.pem", "dunlin: nothing.pem: no such file; "),
        ("client --CAfile pki/root.key", "dunlin: pki/root.key: no certificate in it, only PRIVATE KEY; "),
        (
            "client --cert pki/client.pem --key pki/server.key",
            "pki/server.key: not the key of the first certificate in pki/client.pem; ",
        ),
        ("client --psk-file short", "dunlin: short: line 1: the key has 1 byte instead of"),
        ("client --psk-file two --psk-identity d3", "dunlin: two: no key of d3; "),
        (
            "client --sess-in pki/root.pem --CAfile pki/root.pem",
            "dunlin: pki/root.pem: not a session file of dunlin; ",
        ),
        ("client localhost:0 --CAfile pki/root.pem", "dunlin: server localhost:0: "),
        ("client --rpk-file pki/root.pem", "dunlin: pki/root.pem: no public key in it, only CERTIFICATE; "),
        ("server --cert nothing.pem", "dunlin: nothing.pem: no such file; "),
        (
            "server --cert pki/server.pem",
            "no private key in it, only CERTIFICATE; give it with --key, or a file that holds both",
        ),
        (
            "client --CAfile garbage.pem",
            "garbage.pem: malformed PEM (the text between its BEGIN and END lines is not base64); ",
        ),
        (
            "client --CAfile cut.pem",
            "cut.pem: malformed PEM (the line -----END CERTIFICATE----- is missing); ",
        ),
        ("client --CAfile short.pem", "short.pem: malformed certificate ("),
        ("server --psk-file empty", "dunlin: empty: no key in it; "),
        ("client --psk-file empty", "dunlin: empty: no key in it; "),
        ("client --CAfile pki/root.pem --sess-out pki", "dunlin: pki: a directory; "),
        (
            "client --CAfile pki/root.pem --sess-out no/session",
            "no/session: there is no directory no; make it",
        ),
        ("client --CAfile pki/root.pem --keylogfile no/log", "no/log: there is no directory no; make it"),
    ] {
        let said = place.dunlin_fails(arguments, 1);
        assert!(said.contains(says), "{arguments}\n{said}");
    }
}

#[test]
fn refuses_wrong_use_before_connecting() {
    let place = place();
    place.write("two", format!("d1:{KEY}\nd2:{KEY}\n"));
    place.dunlin("pki raw-key --key raw.key --public raw.pub");
    for (arguments, says) in [
        ("client a b", "unexpected argument"),
        ("client --insecre", "unexpected argument '--insecre' found; add --help to see the usage"),
        ("client -tls1_1", "TLS 1.1 is not supported: it is insecure (RFC 8996, RFC 7568); use --tls1-2 or"),
        ("server --tls1", "TLS 1.0 is not supported: "),
        (
            "client -psk_identitty x",
            "unexpected argument '-psk_identitty' found; a similar argument exists: ",
        ),
        ("client -psk 00 -psk_file two", "the argument '-psk <HEX>' cannot be used with '-psk_file <FILE>'"),
        ("client ::1:443", "write [::1]:443"),
        ("client --psk 00 --psk-file two", "cannot be used with"),
        ("server --psk 00 --psk-file two", "cannot be used with"),
        ("client --insecure --CAfile pki/root.pem", "cannot be used with"),
        ("client localhost:99999", "the port is not a number up to 65535"),
        ("client --groups P-999", "\"P-999\" is not one of x25519, secp256r1, secp384r1"),
        ("client --ciphersuites TLS_RSA_WITH_RC4_128_MD5", "is not one of TLS_AES_128_GCM_SHA256"),
        ("client --psk xyz", "--psk: not hexadecimal; "),
        ("client --psk 00", "--psk: the key has 1 byte instead of 16 to 512; use a longer key"),
        ("client --psk-file two", "two has several keys; choose one with --psk-identity"),
        ("client --key raw.key --CAfile pki/root.pem", "--key: no certificate belongs to it; "),
        ("client --enable-client-rpk --CAfile pki/root.pem", "--enable-client-rpk: this side has no key; "),
        ("client --enable-server-rpk", "--enable-server-rpk: no trusted keys; "),
        (
            "client --record-size-limit 63 --CAfile pki/root.pem",
            "invalid value '63' for '--record-size-limit <BYTES>': not a number of bytes from 64 to 16385",
        ),
        (
            "client --maxfraglen 3",
            "invalid value '3' for '--maxfraglen <BYTES>': not 512, 1024, 2048 or 4096",
        ),
        ("client --key-update 0", "invalid value '0' for '--key-update <RECORDS>'"),
        ("server --naccept 0", "invalid value '0' for '--naccept <N>': not a number from 1 on"),
        ("server -Verify 3", "-Verify takes no depth; leave the number out, or give it with --verify-depth"),
        ("client -verify 3", "-verify is not needed: a server is always verified; "),
        ("client --verify-depth 1 --insecure", "--verify-depth: no chain is verified; "),
        (
            "client --verify-depth 1 --psk 000102030405060708090a0b0c0d0e0f",
            "--verify-depth: no certificates are verified; ",
        ),
        ("client --timeout 0", "not a number of seconds from 1 on"),
        ("server", "server: no certificate, key or PSK; "),
        (
            "server --cert pki/server.pem --key pki/server.key --Verify",
            "--Verify: no trusted authorities or keys for clients; ",
        ),
        ("server --psk-file two --ticket-lifetime 604801", "tickets live for at most seven days"),
        ("server --accept localhost:1", "neither a port nor an IP address with a port"),
        ("server --cert a --cert b --key c", "--key: 1 keys for 2 certificates; "),
    ] {
        let said = place.dunlin_fails(arguments, 2);
        assert!(said.contains(says), "{arguments}\n{said}");
    }
}

#[test]
fn truncated_data_is_an_error() {
    let place = place();
    let mut server = Server::new(&place, SERVER);
    let mut client = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
    client.write("hello\n");
    assert_eq!(client.line(), "hello");
    server.process.child.kill().unwrap();
    let stderr = client.log();
    assert_eq!(client.child.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("the connection ended without close_notify") || stderr.contains("reset"),
        "{stderr}"
    );
}

#[test]
fn server_gives_up_a_silent_client() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --timeout 1 --naccept 1 --json"));
    let mut idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "the server closes");
    let failure = json(&server.process.line());
    assert_eq!(failure["event"], "failure");
    assert_eq!(failure["why"], "the handshake was not complete after 1s");
    let (status, _, stderr) = server.process.end();
    assert_eq!(status, 1);
    assert!(stderr.contains("1 of 1 connections failed"), "{stderr}");
}

/// A client in a handshake gets close_notify when the server is stopped.
#[test]
fn stopping_server_sends_close_notify_in_handshakes() {
    let place = place();
    let mut server = Server::new(&place, SERVER);
    let mut idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    // The server accepted the idle client first, so it serves a later client only after that.
    server.echo(&place, CLIENT, "");
    send_signal(&server.process.child, "-TERM");
    let mut told = vec![];
    idle.read_to_end(&mut told).unwrap();
    assert_eq!(told[..], [21, 3, 3, 0, 2, 1, 0], "close_notify");
    assert!(server.process.child.wait().unwrap().success());
}

/// Only data is written to stdout, and --quiet prints only failures.
#[test]
fn writes_only_data_to_stdout() {
    let place = place();
    let pair = "--cert pki/server.pem --key pki/server.key --naccept 2";
    let server = Server::new(&place, &format!("{pair} --json"));
    server.echo(&place, &format!("{CLIENT} --quiet"), "one\n");
    assert_eq!(server.process.line(), "one");
    assert_eq!(json(&server.process.log())["event"], "connection");
    server.client(&place, "--CAfile pki/root.pem --servername example.org", "");
    let (status, stdout, stderr) = server.process.end();
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.contains("\"event\":\"failure\""), "{stderr}");

    // A quiet server does not print its port, so the test chooses one.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for json in ["", "--json"] {
        let process = Running::new(&place, &format!("server --accept {port} {pair} --quiet {json}"));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::yield_now();
        }
        let server = Server { process, port, warnings: String::new() };
        server.echo(&place, &format!("{CLIENT} --quiet"), "data\n");
        let (status, stdout, stderr) = server.process.end();
        // The first connection sent nothing and counts as a failure.
        assert_eq!((status, stdout.as_str()), (1, "data"), "{stderr}");
        let first = stderr.lines().next().unwrap();
        assert!(
            first.contains(if json.is_empty() { "Z warn 127.0.0.1:" } else { "\"level\":\"warn\"" }),
            "{stderr}"
        );
        assert!(!stderr.contains("listening") && !stderr.contains("TLSv1.3,"), "{stderr}");
    }
}

/// A server that cannot write its data ends.
#[test]
fn server_without_stdout_ends() {
    let place = place();
    let arguments = "server --accept 0 --cert pki/server.pem --key pki/server.key";
    let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let stderr = lines(child.stderr.take().unwrap());
    let process = Running { child, stdin: None, keyboard: None, lines: channel().1, stderr };
    let server = Server { port: port_in(&process.log()), process, warnings: String::new() };
    server.client(&place, CLIENT, "hello\n");
    let (status, _, stderr) = server.process.end();
    let last = stderr.lines().last().unwrap();
    assert!(status == 1 && last.starts_with("dunlin: stdout: Broken pipe"), "{stderr}");
    assert!(!stderr.contains("failed"), "{stderr}");
}

/// Input that the server did not accept is an error; a pipe without data is not.
#[test]
fn unsent_input_is_an_error() {
    let place = place();
    let pair = "--cert pki/server.pem --key pki/server.key";
    let closing = || {
        let mut server = Server::new(&place, pair);
        let client = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
        server.process.log_with("connected");
        // At the end of its input the server sends close_notify and continues to read.
        drop(server.process.stdin.take());
        (server, client)
    };
    let (server, mut client) = closing();
    send_signal(&server.process.child, "-INT");
    while client.child.try_wait().unwrap().is_none() {
        if client.stdin.as_mut().unwrap().write_all(&[b'x'; 1000]).is_err() {
            break;
        }
    }
    let (status, _, stderr) = client.end();
    assert_eq!(status, 1, "{stderr}");
    assert!(
        stderr.contains("of the input, before it received the rest") || stderr.contains("reset"),
        "{stderr}"
    );

    let (server, mut client) = closing();
    client.write("hello\n");
    assert_eq!(server.process.line(), "hello");
    send_signal(&server.process.child, "-INT");
    let stdin = client.stdin.take();
    let (status, _, stderr) = client.end();
    assert_eq!((status, stderr.as_str()), (0, ""));
    drop(stdin);
}
