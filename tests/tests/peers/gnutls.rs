//! GnuTLS's command line as the peer, in both roles, also with raw public keys.

use dunlin::Event;
use dunlin_tests::ends::{KEYS, MIB, PSK, client, psk_client, psk_server, server, with_sessions};
use dunlin_tests::peer::{Files, Link, Process, Server, listen, text};
use dunlin_tests::{KeyType, Pki, ends};

const TLS13: &str = "NORMAL:-VERS-ALL:+VERS-TLS1.3";

/// A server with X.509 of this kind that requires a client certificate and echoes.
fn gnutls_serv(typ: KeyType, priority: &str, more: &[&str]) -> Server {
    let pki = Pki::shared(typ);
    let files = Files::default();
    let cert = files.write("cert.pem", pki.server.chain_pem());
    let key = files.write("key.pem", pki.server.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    let mut args = vec!["--port", "4433", "--echo", "--priority", priority, "--x509certfile", &cert];
    args.extend([
        "--x509keyfile",
        &key,
        "--x509cafile",
        &root,
        "--require-client-cert",
        "--verify-client-cert",
    ]);
    args.extend(more);
    Server::start(files, "gnutls-serv", &args)
}

fn gnutls_cli(typ: KeyType, port: &str, priority: &str, more: &[&str]) -> (Process, Files) {
    let pki = Pki::shared(typ);
    let files = Files::default();
    let cert = files.write("cert.pem", pki.client.chain_pem());
    let key = files.write("key.pem", pki.client.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    let log = files.path("log");
    let mut args =
        vec!["--port", port, "--priority", priority, "--x509certfile", &cert, "--x509keyfile", &key];
    args.extend(["--x509cafile", &root, "--sni-hostname", "localhost", "--verify-hostname", "localhost"]);
    args.extend(["--logfile", &log]);
    args.extend(more);
    args.push("127.0.0.1");
    (Process::client("gnutls-cli", &args), files)
}

/// GnuTLS splits the echo into lines as it likes, so the test compares all bytes.
fn echo(link: &mut Link, data: &[u8]) {
    for part in data.chunks(8 * 1024) {
        link.send(part).unwrap();
        assert!(link.receive(part.len()).unwrap() == part, "the echo differs");
    }
}

#[test]
fn exchanges_a_mebibyte_with_its_server_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521, KeyType::RsaPss2048]) {
        let peer = gnutls_serv(typ, TLS13, &[]);
        let mut link = Link::to_server(client(typ, |c| c), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.process.errors()));
        echo(&mut link, &text(MIB));
        link.close();
    }
}

#[test]
fn exchanges_a_mebibyte_with_its_client_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521, KeyType::RsaPss2048]) {
        let (listener, port) = listen();
        let (mut peer, _files) = gnutls_cli(typ, &port, TLS13, &[]);
        let mut link = Link::accept(server(typ, |s| s), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.errors()));
        assert_eq!(
            link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string(),
            "X.509 device-1"
        );
        let data = text(MIB);
        peer.feed(data.clone());
        assert!(link.receive(MIB).unwrap() == data);
        link.send(&data).unwrap();
        let whole = |o: &[u8]| o.len() >= MIB;
        assert!(peer.output_until("mebibyte", whole).ends_with(&data));
    }
}

#[test]
fn accepts_a_hello_retry_request_of_its_server() {
    let peer = gnutls_serv(KeyType::P256, &format!("{TLS13}:-GROUP-ALL:+GROUP-SECP384R1"), &[]);
    let mut link = Link::to_server(client(KeyType::P256, |c| c), &peer);
    link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.process.errors()));
    assert!(link.connection.negotiated().unwrap().retried);
    echo(&mut link, b"hello\n");
}

#[test]
fn sends_a_hello_retry_request_and_cookie_to_its_client() {
    for cookies in [false, true] {
        let (listener, port) = listen();
        let priority = format!("{TLS13}:-GROUP-ALL:+GROUP-SECP521R1:+GROUP-SECP256R1");
        let (peer, _files) = gnutls_cli(KeyType::P256, &port, &priority, &["--single-key-share"]);
        let mut link = Link::accept(server(KeyType::P256, |s| s.with_cookies(cookies)), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
        assert!(link.connection.negotiated().unwrap().retried);
    }
}

#[test]
fn resumes_with_its_server() {
    let peer = gnutls_serv(KeyType::P256, TLS13, &[]);
    let sessions = with_sessions();
    for resumed in [false, true, true] {
        let mut link = Link::to_server(client(KeyType::P256, |c| c.with_sessions(sessions.clone())), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.process.errors()));
        assert_eq!(link.connection.negotiated().unwrap().is_resumed(), resumed);
        link.wait_for(|e| matches!(e, Event::TicketReceived)).unwrap();
        link.close();
    }
}

#[test]
fn resumes_with_its_client() {
    for tickets in ends::tickets() {
        let (listener, port) = listen();
        let config = ends::server_config(KeyType::P256, |s| s.with_tickets(tickets.clone()));
        let (mut peer, _files) = gnutls_cli(KeyType::P256, &port, TLS13, &["--resume", "--waitresumption"]);
        for resumed in [false, true] {
            let connection = dunlin::TlsConnection::server(&config, dunlin_tests::peer::now());
            let mut link = Link::accept(connection, &listener);
            link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
            let negotiated = link.connection.negotiated().unwrap();
            assert_eq!(negotiated.is_resumed(), resumed);
            assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), "X.509 device-1");
            if !resumed {
                link.wait_for(|e| matches!(e, Event::PeerClosed)).unwrap();
                link.close();
            } else {
                peer.type_line("hello");
                assert_eq!(link.receive(6).unwrap(), b"hello\n");
            }
        }
    }
}

#[test]
fn connects_to_its_server_with_an_external_psk() {
    for (mode, kx) in [("psk_dhe_ke", "+ECDHE-PSK"), ("psk_ke", "+PSK")] {
        let files = Files::default();
        let keys = files.write("keys", format!("device-1:{PSK}\n"));
        let priority = format!("{TLS13}:-KX-ALL:{kx}");
        let args = ["--port", "4433", "--echo", "--priority", &priority, "--pskpasswd", &keys];
        let peer = Server::start(files, "gnutls-serv", &args);
        let mut link = Link::to_server(psk_client(mode), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{mode}: {e} / {}", peer.process.errors()));
        assert_eq!(link.connection.negotiated().unwrap().group.is_none(), mode == "psk_ke");
        echo(&mut link, b"hello\n");
    }
}

#[test]
fn connects_to_its_client_with_an_external_psk() {
    for (mode, kx) in [("psk_dhe_ke", "+ECDHE-PSK"), ("psk_ke", "+PSK")] {
        let (listener, port) = listen();
        let priority = format!("{TLS13}:-KX-ALL:{kx}");
        let args = [
            "--port",
            &port,
            "--priority",
            &priority,
            "--pskusername",
            "device-1",
            "--pskkey",
            PSK,
            "127.0.0.1",
        ];
        let mut peer = Process::client("gnutls-cli", &args);
        let mut link = Link::accept(psk_server(mode), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{mode}: {e} / {}", peer.errors()));
        assert_eq!(link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string(), "PSK device-1");
        peer.type_line("hello");
        assert_eq!(link.receive(6).unwrap(), b"hello\n");
    }
}

#[test]
fn connects_to_its_server_with_raw_keys() {
    for typ in KEYS {
        let pki = Pki::shared(typ);
        let files = Files::default();
        let key = files.write("key.pem", pki.server.key_pem());
        let public = files.write("public.pem", pki.server.public_key_pem());
        let priority = format!("{TLS13}:+CTYPE-CLI-RAWPK:+CTYPE-SRV-RAWPK");
        let mut args = vec!["--port", "4433", "--echo", "--priority", &priority, "--require-client-cert"];
        args.extend(["--rawpkkeyfile", &key, "--rawpkfile", &public]);
        let peer = Server::start(files, "gnutls-serv", &args);
        let mut link = Link::to_server(ends::raw_client(typ), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.process.errors()));
        echo(&mut link, b"hello\n");
    }
}

#[test]
fn connects_to_its_client_with_raw_keys() {
    for typ in KEYS {
        let (listener, port) = listen();
        let pki = Pki::shared(typ);
        let files = Files::default();
        let key = files.write("key.pem", pki.client.key_pem());
        let public = files.write("public.pem", pki.client.public_key_pem());
        let priority = format!("{TLS13}:+CTYPE-CLI-RAWPK:+CTYPE-SRV-RAWPK");
        let mut args = vec!["--port", &port, "--priority", &priority, "--no-ca-verification"];
        args.extend(["--rawpkkeyfile", &key, "--rawpkfile", &public, "127.0.0.1"]);
        let mut peer = Process::client("gnutls-cli", &args);
        let mut link = Link::accept(ends::raw_server(typ), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.errors()));
        assert!(
            link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string().starts_with("raw key")
        );
        peer.type_line("hello");
        assert_eq!(link.receive(6).unwrap(), b"hello\n");
    }
}

#[test]
fn updates_keys_with_its_server() {
    let peer = gnutls_serv(KeyType::P256, TLS13, &[]);
    let mut link = Link::to_server(client(KeyType::P256, |c| c), &peer);
    link.handshake().unwrap();
    for _ in 0..3 {
        link.connection.update_keys(true).unwrap();
        echo(&mut link, b"after an update\n");
    }
    link.wait_for(|e| matches!(e, Event::PeerUpdatedKeys)).unwrap();
}

#[test]
fn updates_keys_with_its_client() {
    let (listener, port) = listen();
    let (mut peer, _files) = gnutls_cli(KeyType::P256, &port, TLS13, &["--inline-commands"]);
    let mut link = Link::accept(server(KeyType::P256, |s| s), &listener);
    link.handshake().unwrap();
    link.connection.update_keys(true).unwrap();
    link.send(b"after ours\n").unwrap();
    peer.output_until("data", |o| o.windows(10).any(|w| w == b"after ours"));
    peer.type_line("hello");
    assert_eq!(link.receive(6).unwrap(), b"hello\n");
    link.wait_for(|e| matches!(e, Event::PeerUpdatedKeys)).unwrap();
    link.events.clear();
    peer.type_line("^rekey^");
    peer.type_line("after its own");
    assert_eq!(link.receive(14).unwrap(), b"after its own\n");
    assert!(link.events.iter().any(|e| matches!(e, Event::PeerUpdatedKeys)));
}
