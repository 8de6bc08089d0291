//! Tests `dunlin client` and `dunlin server` with TLS 1.2.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use crate::peers::{CLIENT, KEY, OWN, Running, SERVER, Server, json, place};

#[test]
fn certificates_authenticate_both_sides() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify -tls1_2 -tls1_3"));
    for (versions, lines) in [
        (
            "-tls1_2",
            ["Version            TLSv1.2", "Cipher suite       TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
        ),
        ("-tls1_2 -tls1_3", ["Version            TLSv1.3", "Cipher suite       TLS_AES_128_GCM_SHA256"]),
        ("-tls1_3", ["Version            TLSv1.3", "Cipher suite       TLS_AES_128_GCM_SHA256"]),
        ("", ["Version            TLSv1.3", "Cipher suite       TLS_AES_128_GCM_SHA256"]),
    ] {
        let told = server.echo(&place, &format!("{CLIENT} {OWN} {versions}"), "hello\n");
        for line in lines.iter().chain(&["Server             X.509 localhost", "Group              x25519"]) {
            assert!(told.lines().any(|l| l == *line), "{versions}: no {line:?} in\n{told}");
        }
        assert_eq!(versions == "-tls1_2", told.contains("ServerHelloDone"), "{told}");
        assert!(told.ends_with("---\nhello\n"), "{told}");
    }
}

#[test]
fn accepts_suites_by_name() {
    let place = place();
    let psk = format!("--psk {KEY} --psk-identity d1");
    for (suite, more, group) in [
        ("TLS_PSK_WITH_AES_128_CCM_8", "", "-"),
        ("TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384", "", "x25519"),
        ("TLS_DHE_PSK_WITH_AES_128_CCM", "--groups ffdhe3072", "ffdhe3072"),
        ("TLS_DHE_PSK_WITH_AES_128_CCM", "", "ffdhe2048"),
    ] {
        let options = format!("{psk} --tls1-2 --cipher {suite} {more}");
        let server = Server::new(&place, &format!("{options} --echo"));
        let told = server.echo(&place, &format!("{options} --brief"), "hello\n");
        assert!(told.contains(&format!("TLSv1.2, {suite}, {group}, PSK d1")), "{told}");
    }
    // Suites without forward secrecy must be named.
    let server = Server::new(&place, &format!("{psk} --tls1-2 --psk-ke --echo"));
    let told = server.echo(&place, &format!("{psk} --tls1-2 --psk-ke --brief"), "hello\n");
    assert!(told.contains("TLS_PSK_WITH_AES_128_GCM_SHA256, -, PSK d1"), "{told}");
    let told = server.echo(&place, &format!("{psk} --tls1-2 --brief"), "hello\n");
    assert!(told.contains("TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256, x25519, PSK d1"), "{told}");
}

/// A pre-shared key authenticates both sides, so the server prefers it to a certificate, with which the
/// client would stay anonymous.
#[test]
fn server_with_certificate_and_key_prefers_the_key() {
    let place = place();
    let both = format!("{SERVER} --psk {KEY} --psk-identity d1 --tls1-2");
    let client = format!("{CLIENT} --tls1-2 --brief");
    let keyed = format!("{client} --psk {KEY} --psk-identity d1");
    let key = "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256";
    let certificate = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    for more in ["", "--allow-no-dhe-kex"] {
        let server = Server::new(&place, &format!("{both} {more}"));
        assert!(server.echo(&place, &keyed, "").contains(&format!("{key}, x25519, PSK d1")), "{more}");
        let log = server.process.log_with(" connected: ");
        assert!(log.contains("PSK d1") && !log.contains("anonymous"), "{log}");
        assert!(
            server.echo(&place, &client, "").contains(&format!("{certificate}, x25519, X.509")),
            "{more}"
        );
    }
    // With an explicit list of suites, its order decides.
    let server = Server::new(&place, &format!("{both} --cipher {certificate}:{key}"));
    assert!(server.echo(&place, &keyed, "").contains(certificate));
}

/// RSA_PSK authenticates the server by certificate and key, and the client reports both.
#[test]
fn rsa_psk_needs_a_trust_anchor() {
    let place = place();
    place.dunlin("pki demo --out rsa --key-type rsa2048");
    let psk = format!("--psk {KEY} --psk-identity d1 --tls1-2 --cipher RSA-PSK-AES128-GCM-SHA256");
    let line = place.dunlin_fails(&format!("client {psk}"), 2);
    let says = "--cipher: TLS_RSA_PSK_WITH_AES_128_GCM_SHA256 uses a server certificate, and no trusted authority is given; give --ca";
    assert!(line.contains(says), "{line}");
    let server = Server::new(&place, &format!("--cert rsa/server.pem --key rsa/server.key --echo {psk}"));
    let told = server.echo(&place, &format!("{psk} --CAfile rsa/root.pem"), "hello\n");
    assert!(told.contains("Server             PSK d1 and X.509 localhost\n"), "{told}");
    let told = server.echo(&place, &format!("{psk} --insecure"), "hello\n");
    assert!(told.contains("Server             PSK d1 and X.509 localhost (not verified)\n"), "{told}");
}

/// An error names the option that would enable a suite of this server.
#[test]
fn error_names_the_option_that_enables_a_suite() {
    let place = place();
    let psk = format!("--psk {KEY} --psk-identity d1 --tls1-2");
    for (server, client, says) in [
        (
            psk.clone(),
            format!("{psk} --psk-ke"),
            "the client offers pre-shared keys only without (EC)DHE; start this server with --psk-ke or --allow-no-dhe-kex",
        ),
        (
            psk.clone(),
            format!("{psk} --cipher ECDHE-PSK-AES128-CCM8-SHA256"),
            "this server supports the client's TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256, but only by name; add --cipher TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256",
        ),
        (
            format!("{psk} --psk-ke"),
            format!("{psk} --cipher PSK-AES128-CCM8"),
            "this server supports the client's TLS_PSK_WITH_AES_128_CCM_8, but only by name; add --cipher",
        ),
        (
            format!("{SERVER} --tls1-2"),
            format!("{CLIENT} --tls1-2 --cipher ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-CCM8"),
            "this server supports the client's TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8, but only by name; add --cipher",
        ),
        // This server has no key for that suite.
        (
            format!("{SERVER} --tls1-2"),
            format!("{psk} --cipher PSK-AES128-CCM8"),
            "this server finds no common cipher suite; compare",
        ),
    ] {
        let server = Server::new(&place, &server);
        let (told, log) = server.refused(&place, &client);
        assert!(log.contains(says), "{client}: {log}");
        if client.contains("--psk-ke") {
            assert!(
                told.contains("start the server with --psk-ke or --allow-no-dhe-kex, or leave --psk-ke out"),
                "{told}"
            );
        }
    }
}

/// With a plain pre-shared key, ServerKeyExchange holds only the hint.
#[test]
fn server_sends_the_hint_of_its_key_file() {
    let place = place();
    let file = |hint| format!("{hint}[[psk]]\nidentity = \"d1\"\nkey = \"{KEY}\"\n");
    place.write("keys.toml", file("identity_hint = \"gateway\"\n"));
    let server = Server::new(&place, "--psk-file keys.toml --tls1-2 --psk-ke --echo");
    let client = format!("--psk {KEY} --psk-identity d1 --tls1-2 --psk-ke");
    for says in [true, false] {
        let told = server.echo(&place, &client, "hello\n");
        assert!(told.contains("ServerHelloDone") && told.contains("PSK d1"), "{told}");
        assert_eq!(told.contains("ServerKeyExchange"), says, "{told}");
        place.write("keys.toml", file(""));
    }
}

#[test]
fn sessions_outlive_the_process() {
    for kind in ["", "--stateful-tickets"] {
        let place = place();
        let server = Server::new(&place, &format!("{SERVER} --tls1-2 {kind}"));
        let client = format!("{CLIENT} --tls1-2 --brief");
        let told = server.echo(&place, &format!("{client} --sess-out session"), "hello\n");
        assert!(!told.contains("resumed"), "{told}");
        for _ in 0..2 {
            let told =
                server.echo(&place, &format!("{client} --sess-in session --sess-out session"), "hello\n");
            assert!(told.contains(", resumed"), "{kind}: {told}");
        }
    }
}

/// A proxy to the server on `port` that damages the server's first record after the handshake. Returns the
/// proxy's port.
fn noisy(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let noisy = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut from = client.try_clone().unwrap();
        let mut to = server.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut header = [0; 5];
        while server.read_exact(&mut header).is_ok() {
            let mut body = vec![0; u16::from_be_bytes([header[3], header[4]]).into()];
            server.read_exact(&mut body).unwrap();
            if header[0] == 23 {
                body[0] ^= 1;
            }
            client.write_all(&[&header[..], &body].concat()).unwrap();
        }
    });
    noisy
}

/// RFC 5246 §7.2.2: a session that ended with a fatal alert is not resumed, even by another process.
#[test]
fn failed_connection_leaves_no_session() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2"));
    let client = format!("client localhost:{} {CLIENT} --tls1-2 --sess-out session", noisy(server.port));
    let mut client = Running::new(&place, &client);
    client.write("hello\n");
    let (status, _, stderr) = client.end();
    assert_eq!(status, 1, "{stderr}");
    let says = "dunlin: session: removed, because the session's connection failed";
    assert!(stderr.lines().any(|line| line == says), "{stderr}");
    assert!(!place.path("session").exists());
}

#[test]
fn either_side_can_renegotiate() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2 --renegotiation"));
    let (stdout, stderr) = server.typed(&place, &format!("{CLIENT} --tls1-2 --brief"), "before\nR\nafter\n");
    assert!(stdout.ends_with("before\nafter\n"), "{stdout}");
    let parameters = "TLSv1.2, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, x25519, ";
    assert_eq!(stderr, format!("dunlin: renegotiated: {parameters}X.509 localhost"));
    assert!(
        server.process.log_with("renegotiated").ends_with(&format!(" renegotiated: {parameters}anonymous"))
    );
}

/// The server reports each handshake as soon as it is complete, whether or not it reads data.
#[test]
fn server_reports_each_renegotiation() {
    let place = place();
    for mode in ["--echo", "--rev", ""] {
        let own = "--cert pki/server.pem --key pki/server.key --tls1-2 --renegotiation";
        let server = Server::new(&place, &format!("{own} {mode}"));
        let client = format!("client localhost:{} {CLIENT} --tls1-2 --brief", server.port);
        let mut client = Running::at_terminal(&place, &client);
        server.process.log_with(" connected: ");
        for _ in 0..3 {
            client.write("R\n");
            let told = server.process.log();
            assert!(told.contains(" renegotiated: TLSv1.2, "), "{mode}: {told}");
            assert!(client.log().starts_with("dunlin: renegotiated: "));
        }
    }
}

#[test]
fn error_names_the_limit_of_renegotiations() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2 --renegotiation"));
    let client = format!("client localhost:{} {CLIENT} --tls1-2 --brief", server.port);
    let mut client = Running::at_terminal(&place, &client);
    for _ in 0..32 {
        client.write("R\n");
        assert!(client.log().starts_with("dunlin: renegotiated: "));
    }
    client.write("R\n");
    let log = server.process.log_with(" failed: ");
    assert!(log.contains("the client renegotiated too often in a row; make the client send data"), "{log}");
    let (status, _, stderr) = client.end();
    let says = "the server refused a renegotiation (alert unexpected_message); start the server with --renegotiation, and";
    assert!(status == 1 && stderr.contains(says), "{stderr}");
    assert!(place.dunlin("server --help").contains("at most 32 times without data in between"));
}

/// OpenSSL's client closes if the server refuses a renegotiation.
#[test]
fn server_reports_a_refused_renegotiation() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2"));
    let mut client = Command::new("openssl");
    client.args(["s_client", "-tls1_2", "-connect", &format!("127.0.0.1:{}", server.port)]);
    let mut client = Running::start(&mut client);
    server.process.log_with(" connected: ");
    client.write("R\n");
    let log = server.process.log_with(" failed: ");
    let says = "the client requested a renegotiation, which this server refuses (alert handshake_failure); add --renegotiation";
    assert!(log.contains(says), "{log}");
}

/// A TLS 1.2 session that the server stores can be used more than once.
#[test]
fn help_explains_sessions_of_tls_1_2() {
    let help = place().dunlin("server --help").replace('\n', " ");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("each works once in TLS 1.3, and until it expires in TLS 1.2, which gets no new ones"),
        "{help}"
    );
}

/// The client reports that the server refuses a renegotiation, and continues.
#[test]
fn client_reports_a_refused_renegotiation() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2"));
    let (stdout, stderr) =
        server.typed(&place, &format!("{CLIENT} --tls1-2 --brief"), "before\nR\nafter\nR\n");
    assert!(stdout.ends_with("before\nafter\n"));
    let told = "dunlin: R: the server refuses a renegotiation; start the server with --renegotiation\n";
    assert!(stderr.contains(told), "{stderr}");
}

/// An impossible command gets a message, and the input around it arrives.
#[test]
fn impossible_commands_do_no_harm() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} -tls1_2 -tls1_3"));
    for (version, command, says) in [
        ("-tls1_2", "k", "dunlin: K, k: in TLS 1.2 only a renegotiation replaces keys; type R "),
        ("-tls1_2", "K", "dunlin: K, k: in TLS 1.2 only a renegotiation replaces keys; type R "),
        ("-tls1_3", "R", "dunlin: R: a renegotiation needs TLS 1.2, a peer "),
    ] {
        let (stdout, stderr) = server.typed(
            &place,
            &format!("{CLIENT} {version} --brief"),
            &format!("before\n{command}\nafter\n"),
        );
        assert!(stderr.starts_with(says) && stderr.lines().count() == 1, "{stderr}");
        assert!(stdout.ends_with("before\nafter\n"), "{version} {command}");
    }
}

/// Each side reads exactly the bytes that the other has written.
#[test]
fn both_sides_count_the_same_bytes() {
    let place = place();
    for (server, client) in [
        (SERVER.to_owned(), CLIENT.to_owned()),
        (format!("{SERVER} --CAfile pki/root.pem --Verify"), format!("{CLIENT} {OWN}")),
        (format!("--psk {KEY} --psk-ke --echo --num-tickets 0"), format!("--psk {KEY} --psk-ke")),
    ] {
        let server = Server::new(&place, &format!("{server} -tls1_2 --json"));
        for resumption in ["--sess-out session", "--sess-in session"] {
            let told = server.echo(&place, &format!("{client} -tls1_2 --json {resumption}"), "");
            let ours = json(told.lines().next().unwrap());
            let theirs = json(&server.process.line());
            assert_eq!(ours["handshake_bytes_read"], theirs["handshake_bytes_written"], "{resumption}");
            assert_eq!(ours["handshake_bytes_written"], theirs["handshake_bytes_read"], "{resumption}");
            if !place.path("session").exists() {
                break;
            }
        }
    }
}

/// Even the smallest ClientHello names the curve of the trusted keys (RFC 8422 §5.1).
#[test]
fn lean_client_names_the_curve_of_the_server() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2"));
    let told = server.echo(&place, &format!("{CLIENT} --tls1-2 --lean --brief"), "hello\n");
    assert!(
        told.contains("TLSv1.2, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, x25519, X.509 localhost"),
        "{told}"
    );
    let (_, log) = server.refused(&place, &format!("{CLIENT} --tls1-2 --groups x25519"));
    let says = "the client does not support secp256r1, the curve of pki/server.key (p256); add secp256r1 to --groups of";
    assert!(log.contains(says), "{log}");
}

#[test]
fn explains_suites_that_suit_no_key() {
    let place = place();
    let psk = format!("--psk {KEY} --psk-identity d1");
    let refused = |server: &str, client: &str, says: &str| {
        let server = Server::new(&place, &format!("{server} --tls1-2 --echo"));
        let (_, log) = server.refused(&place, &format!("{client} --tls1-2"));
        assert!(log.contains(says), "{client}: {log}");
    };
    let own = "--cert pki/server.pem --key pki/server.key";
    let none = "failed: no cipher suite of the client suits pki/server.key (p256); add one to --cipher of the client";
    refused(own, &format!("{CLIENT} --cipher ECDHE-RSA-AES128-GCM-SHA256"), none);
    refused(
        own,
        &psk,
        "failed: the client offers only cipher suites for pre-shared keys, and this server has no",
    );
    refused(
        &psk,
        CLIENT,
        "this server has only pre-shared keys, and the client offers no cipher suite for them; give the client a key with --psk-file",
    );
    let cipher = "--cipher DHE-PSK-AES128-GCM-SHA256 --groups";
    refused(
        &format!("{psk} {cipher} ffdhe2048"),
        &format!("{psk} {cipher} ffdhe3072"),
        "this server finds no common finite-field group; compare --groups of both sides; suites with DHE need a finite field",
    );
}

#[test]
fn explains_a_missing_client_certificate() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify --tls1-2"));
    let (client, log) = server.refused(&place, &format!("{CLIENT} --tls1-2"));
    let says = "the server refused this client, which sent no certificate (alert handshake_failure); give --chain and --key";
    assert!(client.ends_with(says), "{client}");
    assert!(log.contains("this server refused the client: it sent no certificate"), "{log}");
}

/// A server with both versions does not resume a TLS 1.2 session with TLS 1.3, and accepts no early data.
#[test]
fn server_with_both_versions_accepts_no_early_data_of_tls_1_2() {
    let place = place();
    place.write("request", "early\n");
    let server = Server::new(&place, &format!("{SERVER} -tls1_2 -tls1_3 --early-data 100"));
    server.echo(&place, &format!("{CLIENT} -tls1_2 --sess-out session"), "");
    let old = Server::new(&place, &format!("{SERVER} -tls1_2"));
    let options = format!("{CLIENT} -tls1_2 -tls1_3 --sess-in session --early-data request");
    let output = old.client(&place, &options, "");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("took 0 of 6 bytes of early data: TLS 1.2 has no early data; the rest is not sent; "),
        "{stderr}"
    );
}

#[test]
fn explains_different_versions() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let (client, log) = server.refused(&place, &format!("{CLIENT} --tls1-2"));
    let says =
        "the server does not speak TLS 1.2 (alert protocol_version); enable TLS 1.2 on it, or add --tls1-3";
    assert!(client.ends_with(says), "{client}");
    assert!(
        log.contains("the client speaks at most TLS 1.2; enable TLS 1.3 on it, or add --tls1-2"),
        "{log}"
    );
    let server = Server::new(&place, &format!("{SERVER} --tls1-2"));
    let (client, log) = server.refused(&place, CLIENT);
    assert!(
        client.ends_with(
            "does not speak TLS 1.3 (alert protocol_version); enable TLS 1.3 on it, or add --tls1-2 --tls1-3"
        ),
        "{client}"
    );
    assert!(
        log.ends_with("the client speaks only TLS 1.3; add --tls1-3, or enable TLS 1.2 on the client"),
        "{log}"
    );
}

#[test]
fn wrong_key_and_unknown_identity_look_alike_to_the_client() {
    let place = place();
    let server = Server::new(&place, &format!("--psk {KEY} --psk-identity d1 --tls1-2 --echo"));
    let other = KEY.replace("00", "ff");
    let mut told = Vec::new();
    for (identity, key, says) in [
        ("d1", other.as_str(), "the client's pre-shared key for the identity d1 differs from --psk"),
        ("d2", KEY, "--psk has no key of the client's identity d2"),
    ] {
        let (client, log) =
            server.refused(&place, &format!("--psk {key} --psk-identity {identity} --tls1-2"));
        assert!(log.contains(says), "{log}");
        told.push(client.replace(&server.port.to_string(), ""));
    }
    assert_eq!(told[0], told[1]);
}

/// OpenSSL's server reports only that it cannot read the first protected record.
#[test]
fn explains_a_wrong_key_at_openssl() {
    let place = place();
    let mut server = Command::new("openssl");
    server.args(format!("s_server -accept 0 -nocert -psk {KEY} -psk_identity d1 -rev").split(' '));
    let server = Running::start(&mut server);
    let listening = std::iter::repeat_with(|| server.line()).find(|line| line.starts_with("ACCEPT")).unwrap();
    let port = listening.rsplit(':').next().unwrap();
    let key = KEY.replace("00", "ff");
    for more in ["", "--psk-ke"] {
        let client = format!("client localhost:{port} --psk {key} --psk-identity d1 --tls1-2 {more}");
        let told = place.dunlin_fails(&client, 1);
        let says = "cannot decrypt records under the key of --psk (alert bad_record_mac); its key for this identity may differ";
        assert!(told.contains(says), "{told}");
    }
}

/// If the client was to store a session, it reports that it received none.
#[test]
fn client_reports_a_server_without_tickets() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} -tls1_2 -tls1_3 --num-tickets 0"));
    for version in ["-tls1_2", "-tls1_3"] {
        let output = server.client(&place, &format!("{CLIENT} {version} --quiet --sess-out session"), "");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let says = "dunlin: session: no session was stored: the server sent no ticket or session ID for resumption\n";
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), says), "{version}");
        assert!(!place.path("session").exists());
    }
    let server = Server::new(&place, &format!("{SERVER} -tls1_2 -tls1_3"));
    for version in ["-tls1_2", "-tls1_3"] {
        let output = server.client(&place, &format!("{CLIENT} {version} --quiet --sess-out session"), "");
        assert_eq!(output.stderr, b"", "{version}");
    }
}

/// TLS 1.2 has no HelloRetryRequest.
#[test]
fn omits_fields_that_the_version_lacks() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} -tls1_2 -tls1_3"));
    for (version, has) in [("-tls1_2", false), ("-tls1_3", true)] {
        let told = server.echo(&place, &format!("{CLIENT} {version}"), "");
        assert_eq!(told.contains("HelloRetryRequest"), has, "{told}");
    }
}

#[test]
fn spells_max_fragment_length_as_openssl_does() {
    let place = place();
    let mut server = Command::new("openssl");
    server.current_dir(place.path("")).args(
        "s_server -accept 0 -tlsextdebug -rev -cert pki/server.pem -cert_chain pki/server.pem -key pki/server.key"
            .split(' '),
    );
    let server = Running::start(&mut server);
    let listening = std::iter::repeat_with(|| server.line()).find(|line| line.starts_with("ACCEPT")).unwrap();
    let port = listening.rsplit(':').next().unwrap();
    for (version, length, code) in [("-tls1_2", 512, "01"), ("-tls1_3", 4096, "04")] {
        let client = format!("client localhost:{port} {CLIENT} {version} -maxfraglen {length}");
        place.dunlin_with(&client, b"hello\n");
        let offered =
            |line: &String| line.starts_with("TLS client extension \"max fragment length\" (id=1), len=1");
        std::iter::repeat_with(|| server.line()).find(offered).unwrap();
        let value = server.line();
        assert!(value.starts_with(&format!("0000 - {code} ")), "{value}");
    }
    let line = place.dunlin_fails(&format!("client {CLIENT} --maxfraglen 1000"), 2);
    assert!(line.contains("for '--maxfraglen <BYTES>': not 512, 1024, 2048 or 4096; "), "{line}");
}

#[test]
fn refuses_contradictory_options() {
    let place = place();
    let own = format!("server {SERVER}");
    for (arguments, says) in [
        (
            "client --tls1-2 --ciphersuites TLS_AES_128_GCM_SHA256",
            "they are for TLS 1.3, which --tls1-2 alone disables",
        ),
        ("client --cipher TLS_PSK_WITH_AES_128_CCM", "--tls1-2"),
        (
            "client --tls1-2 --cipher HIGH",
            "\"HIGH\" is not a supported TLS 1.2 cipher suite; --help lists them; add --help",
        ),
        (
            "client --tls1-2 --cipher DHE-RSA-AES128-CCM --groups x25519 --CAfile pki/root.pem",
            "--groups: TLS_DHE_RSA_WITH_AES_128_CCM needs a finite field; add ffdhe2048, or",
        ),
        (
            "client --tls1-2 --key-update 9 --CAfile pki/root.pem",
            "--key-update: in TLS 1.2 only a renegotiation replaces keys; add",
        ),
        (
            &format!("{own} --tls1-2 --cipher ECDHE-RSA-AES128-GCM-SHA256"),
            "--cipher: none of its suites suits pki/server.key (p256); add a suitable one, or give a key of",
        ),
        (
            &format!("{own} --tls1-2 --cipher PSK-AES128-CCM8"),
            "--cipher: none of its suites suits pki/server.key (p256); add a suitable one, or give a key of",
        ),
        (
            &format!("server --psk {KEY} --tls1-2 --cipher ECDHE-ECDSA-AES128-GCM-SHA256"),
            "--cipher: none of its suites suits a pre-shared key; add a suitable one",
        ),
        (
            &format!("{own} --tls1-2 --key-update 9"),
            "--key-update: in TLS 1.2 only a renegotiation replaces keys; add",
        ),
        (
            &format!("{own} --tls1-2 --early-data 9"),
            "--early-data: TLS 1.2 has no early data; add --tls1-3, or leave it out",
        ),
    ] {
        let line = place.dunlin_fails(arguments, 2);
        assert!(line.contains(says) && line.len() < 250, "{arguments}: {line}");
    }
    let help = place.dunlin("client --help");
    assert!(
        help.contains("ECDHE-ECDSA-{AES128-GCM-SHA256, ") && help.contains(" PSK-{AES128-GCM-SHA256, "),
        "{help}"
    );
    let (defaults, by_name) = help.split_once("Only by name:").unwrap();
    assert!(!defaults.contains("CCM8") && by_name.contains("CCM8"), "{help}");
}

/// RFC 7627 §5.2: required unless an option allows its absence.
#[test]
fn accepts_peers_without_extended_master_secret_only_if_allowed() {
    let place = place();
    place.write(
        "openssl.cnf",
        "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = default\n[default]\nOptions = -ExtendedMasterSecret\n",
    );
    for (allow, says) in
        [("", "the client does not support extended master secret"), ("--allow-no-ems", " connected: ")]
    {
        let server = Server::new(&place, &format!("{SERVER} -tls1_2 {allow}"));
        let mut client = Command::new("openssl");
        client.env("OPENSSL_CONF", place.path("openssl.cnf"));
        client.args(["s_client", "-tls1_2", "-connect", &format!("127.0.0.1:{}", server.port)]);
        let _client = Running::start(&mut client);
        let log = server.process.log_with(if allow.is_empty() { " failed: " } else { " connected: " });
        assert!(log.contains(says), "{log}");
        assert!(!allow.is_empty() || log.contains("--allow-no-ems"), "{log}");
    }
}
