//! `dunlin client` and `dunlin server` with TLS 1.2.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod common;

use common::peers::{CLIENT, KEY, OWN, SERVER, Server, place};

#[test]
fn certificates_on_both_sides() {
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
fn suites_by_name() {
    let place = place();
    let psk = format!("--psk {KEY} --psk-identity d1");
    for (suite, more, group) in [
        ("TLS_PSK_WITH_AES_128_CCM_8", "", "-"),
        ("TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384", "", "x25519"),
        ("TLS_DHE_PSK_WITH_AES_128_CCM", "--groups ffdhe3072", "ffdhe3072"),
    ] {
        let options = format!("{psk} --tls1-2 --cipher {suite} {more}");
        let server = Server::new(&place, &format!("{options} --echo"));
        let told = server.echo(&place, &format!("{options} --brief"), "hello\n");
        assert!(told.contains(&format!("TLSv1.2, {suite}, {group}, PSK d1")), "{told}");
    }
    // Without forward secrecy only where it is asked for.
    let server = Server::new(&place, &format!("{psk} --tls1-2 --psk-ke --echo"));
    let told = server.echo(&place, &format!("{psk} --tls1-2 --psk-ke --brief"), "hello\n");
    assert!(told.contains("TLS_PSK_WITH_AES_128_GCM_SHA256, -, PSK d1"), "{told}");
    let told = server.echo(&place, &format!("{psk} --tls1-2 --brief"), "hello\n");
    assert!(told.contains("TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256, x25519, PSK d1"), "{told}");
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

#[test]
fn another_handshake_within_a_connection() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2 --renegotiation"));
    let told = server.echo(&place, &format!("{CLIENT} --tls1-2 --brief"), "before\nR\nafter\n");
    assert!(told.ends_with("before\nafter\n"), "{told}");
}

#[test]
fn versions_that_differ_are_told() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let (client, log) = server.refused(&place, &format!("{CLIENT} --tls1-2"));
    assert!(client.contains("the server does not speak TLS 1.2"), "{client}");
    assert!(
        log.contains("the client speaks TLS 1.2 at most; use one that speaks TLS 1.3, or add --tls1-2"),
        "{log}"
    );
    let server = Server::new(&place, &format!("{SERVER} --tls1-2"));
    let (client, _) = server.refused(&place, CLIENT);
    assert!(client.contains("does not speak TLS 1.3"), "{client}");
}

#[test]
fn a_wrong_key_and_an_unknown_identity_are_told_alike() {
    let place = place();
    let server = Server::new(&place, &format!("--psk {KEY} --psk-identity d1 --tls1-2 --echo"));
    let other = KEY.replace("00", "ff");
    let mut told = Vec::new();
    for (identity, key) in [("d1", other.as_str()), ("d2", KEY)] {
        let (client, log) =
            server.refused(&place, &format!("--psk {key} --psk-identity {identity} --tls1-2"));
        assert!(log.contains("has another identity or pre-shared key than"), "{log}");
        told.push(client.replace(&server.port.to_string(), ""));
    }
    assert_eq!(told[0], told[1]);
}

#[test]
fn options_that_contradict_each_other() {
    let place = place();
    let output = place.command("client localhost:1 --tls1-2 --ciphersuites TLS_AES_128_GCM_SHA256").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("they are of TLS 1.3, which --tls1-2 leaves out"), "{stderr}");
    let output = place.command("client localhost:1 --cipher TLS_PSK_WITH_AES_128_CCM").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
