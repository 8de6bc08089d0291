//! Go's crypto/tls as the peer, in both roles: a program over Go's library (`tests/peers/go`), which echoes.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock};

use dunlin::wire::{AlertDescription, NamedGroup};
use dunlin::{Error, Event, ServerConfig, TlsConnection};
use dunlin_tests::echo::{EchoPeer, certificates};
use dunlin_tests::ends::{
    KEYS, MIB, client, client_profile, client_with, server, server_config, server_config_with,
    server_profile, with_sessions,
};
use dunlin_tests::peer::{Files, Link, build_go, listen, now, text};
use dunlin_tests::{KeyType, awslc, ends};

/// The groups that both sides support. For a retry, the client's first share is of another group.
const GROUPS: [NamedGroup; 3] = [NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1];

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| build_go("go", concat!(env!("CARGO_TARGET_TMPDIR"), "/go-peer")))
}

/// A process of the peer. It connects to the test by TCP in either TLS role.
struct Go {
    peer: EchoPeer,
    listener: TcpListener,
}

impl Go {
    fn new(role: &str, typ: KeyType, more: &[&str]) -> Self {
        let files = Files::default();
        let [roots, cert, key] = certificates(&files, typ, role);
        let (listener, port) = listen();
        let address = format!("127.0.0.1:{port}");
        let args = ["-role", role, "-connect", &address, "-cert", &cert, "-key", &key, "-roots", &roots];
        let args: Vec<String> = args.iter().chain(more).map(|&arg| arg.to_owned()).collect();
        Self { peer: EchoPeer::new(program(), files, &args), listener }
    }

    /// Accepts its next connection as the other side.
    fn accept(&self, connection: TlsConnection) -> Link {
        Link::accept(connection, &self.listener)
    }

    /// Connects, echoes `data` and closes. Returns the connection and the peer's report.
    fn converse(&mut self, connection: TlsConnection, data: &[u8]) -> (Link, HashMap<String, String>) {
        let mut link = self.accept(connection);
        let result = link.handshake();
        result.unwrap_or_else(|e| panic!("{e} / {} {}", self.peer.line(), self.peer.process.errors()));
        let said = self.peer.connected();
        link.send(data).unwrap();
        assert!(link.receive(data.len()).unwrap() == data, "the echo differs");
        link.close();
        link.wait_for(|e| matches!(e, Event::PeerClosed)).unwrap();
        assert_eq!(self.peer.line(), "closed");
        (link, said)
    }
}

/// Dunlin and Go in each role: first with Dunlin's client.
fn both(typ: KeyType, more: &[&str]) -> [(TlsConnection, Go, &'static str, &'static str); 2] {
    [
        (client(typ, |c| c), Go::new("server", typ, more), "localhost", "device-1"),
        (server(typ, |s| s), Go::new("client", typ, more), "device-1", "localhost"),
    ]
}

fn peer(link: &Link) -> String {
    link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string()
}

fn from(config: &Arc<ServerConfig>) -> TlsConnection {
    TlsConnection::server(config, now())
}

#[test]
fn exchanges_a_mebibyte_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521]) {
        for (ours, mut go, theirs, own) in both(typ, &[]) {
            let (link, said) = go.converse(ours, &text(MIB));
            assert_eq!(peer(&link), format!("X.509 {theirs}"));
            assert_eq!(said["peer"], own);
            assert_eq!(link.connection.negotiated().unwrap().server_name.as_deref(), Some("localhost"));
            assert_eq!(said["name"], "localhost");
        }
    }
}

#[test]
fn connects_with_every_group_and_after_a_retry() {
    let typ = KeyType::P256;
    for group in GROUPS {
        for other in GROUPS {
            let retried = other != group;
            let mut go = Go::new("server", typ, &["-groups", &group.to_string()]);
            let ours = client(typ, |c| c.with_key_shares(vec![other]).unwrap());
            let (at_client, _) = go.converse(ours, b"data");
            assert_eq!(at_client.connection.negotiated().unwrap().retried, retried, "{group}, not {other}");
            assert_eq!(at_client.connection.negotiated().unwrap().group, Some(group));
        }
        // Go's client chooses the group of its first share itself: X25519 if it supports that.
        let profile = server_profile(typ).groups(vec![awslc().group(group).unwrap()]);
        let config = server_config_with(profile, |s| s);
        let mut retries = 0;
        for groups in std::iter::once(group.to_string()).chain([GROUPS.map(|g| g.to_string()).join(",")]) {
            let mut go = Go::new("client", typ, &["-groups", &groups]);
            let (at_server, _) = go.converse(from(&config), b"data");
            assert_eq!(at_server.connection.negotiated().unwrap().group, Some(group));
            retries += usize::from(at_server.connection.negotiated().unwrap().retried);
        }
        assert_eq!(retries, usize::from(group != NamedGroup::X25519), "{group}");
    }
}

/// A side without the hybrid uses the share of its curve, which the client offers separately.
#[test]
fn connects_with_the_hybrid_or_its_curve() {
    let typ = KeyType::P256;
    let x25519 = dunlin_awslc::X25519;
    let hybrid = dunlin_awslc::X25519MLKEM768;
    let p256 = dunlin_awslc::SECP256R1;
    let nist = dunlin_awslc::SECP256R1MLKEM768;
    for (ours, theirs, group) in [
        (vec![hybrid, x25519], "X25519MLKEM768,x25519", NamedGroup::X25519MLKEM768),
        (vec![hybrid], "X25519MLKEM768", NamedGroup::X25519MLKEM768),
        (vec![hybrid, x25519], "x25519", NamedGroup::X25519),
        (vec![x25519], "X25519MLKEM768,x25519", NamedGroup::X25519),
        (vec![nist, p256], "SecP256r1MLKEM768,secp256r1", NamedGroup::SECP256R1MLKEM768),
        (vec![nist], "SecP256r1MLKEM768", NamedGroup::SECP256R1MLKEM768),
        (vec![nist, p256], "secp256r1", NamedGroup::SECP256R1),
    ] {
        let connected = |mut go: Go, ours| {
            let (link, _) = go.converse(ours, b"data");
            let negotiated = link.connection.negotiated().unwrap();
            assert_eq!((negotiated.group, negotiated.retried), (Some(group), false), "{theirs}");
        };
        let client = client_with(client_profile(typ).groups(ours.clone()), |c| c);
        connected(Go::new("server", typ, &["-groups", theirs]), client);
        let server = server_config_with(server_profile(typ).groups(ours), |s| s);
        connected(Go::new("client", typ, &["-groups", theirs]), from(&server));
    }
}

#[test]
fn sends_a_cookie_to_its_client() {
    let config = server_config(KeyType::P256, |s| s.with_cookies(true));
    let (link, _) = Go::new("client", KeyType::P256, &[]).converse(from(&config), b"data");
    assert!(link.connection.negotiated().unwrap().retried);
}

#[test]
fn resumes_with_its_server() {
    let typ = KeyType::P256;
    let sessions = with_sessions();
    let mut go = Go::new("server", typ, &["-connections", "3"]);
    for resumed in [false, true, true] {
        let ours = client(typ, |c| c.with_sessions(sessions.clone()));
        let (link, said) = go.converse(ours, b"data");
        assert_eq!(link.connection.negotiated().unwrap().is_resumed(), resumed);
        assert_eq!(said["resumed"], resumed.to_string());
        assert_eq!((peer(&link).as_str(), said["peer"].as_str()), ("X.509 localhost", "device-1"));
    }
}

#[test]
fn resumes_with_its_client() {
    for tickets in ends::tickets() {
        let config = server_config(KeyType::P256, |s| s.with_tickets(tickets));
        let mut go = Go::new("client", KeyType::P256, &["-connections", "3"]);
        for resumed in [false, true, true] {
            let (link, said) = go.converse(from(&config), b"data");
            assert_eq!(link.connection.negotiated().unwrap().is_resumed(), resumed);
            assert_eq!(said["resumed"], resumed.to_string());
            assert_eq!((peer(&link).as_str(), said["peer"].as_str()), ("X.509 device-1", "localhost"));
        }
    }
}

#[test]
fn updates_keys() {
    for (ours, mut go, ..) in both(KeyType::P256, &[]) {
        let mut link = go.accept(ours);
        link.handshake().unwrap();
        go.peer.connected();
        // The echo is under the new keys of both sides.
        link.connection.update_keys(true).unwrap();
        let data = text(MIB);
        link.send(&data).unwrap();
        assert!(link.receive(data.len()).unwrap() == data);
        assert!(link.events.iter().any(|e| matches!(e, Event::PeerUpdatedKeys)));
        link.close();
        assert_eq!(go.peer.line(), "closed");
    }
}

#[test]
fn agrees_on_alpn_and_exporters() {
    let ours = || vec![b"ours".to_vec(), b"common".to_vec()];
    let client = client_with(client_profile(KeyType::P256).alpn(ours()), |c| c);
    let server = from(&server_config_with(server_profile(KeyType::P256).alpn(ours()), |s| s));
    for (ours, role) in [(client, "server"), (server, "client")] {
        let mut go = Go::new(role, KeyType::P256, &["-alpn", "theirs,common"]);
        let mut link = go.accept(ours);
        link.handshake().unwrap();
        let said = go.peer.connected();
        assert_eq!(link.connection.negotiated().unwrap().alpn.as_deref(), Some(&b"common"[..]));
        assert_eq!(said["alpn"], "common");
        let mut exported = [0; 100];
        link.connection.export(b"EXPORTER-of-a-test", Some(b"context"), &mut exported).unwrap();
        let exported: String = exported.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(said["exported"], exported);
    }
}

#[test]
fn each_side_reports_a_refusal() {
    let known = KeyType::P256;
    let unknown = KeyType::Ed25519;
    // A server and a client of Go that Dunlin does not trust.
    for (ours, role) in [(client(known, |c| c), "server"), (server(known, |s| s), "client")] {
        let mut go = Go::new(role, unknown, &[]);
        let mut link = go.accept(ours);
        let result = link.handshake();
        // Go's client refuses the server before the server can refuse it.
        match role {
            "server" => assert!(matches!(result, Err(Error::Authentication(_))), "{result:?}"),
            _ => assert_eq!(result, Err(Error::AlertReceived(AlertDescription::BAD_CERTIFICATE))),
        }
        let said = go.peer.line();
        assert!(said.starts_with("failed: ") && said.contains("unknown"), "{said}");
    }
    // A Dunlin client without certificate.
    let mut go = Go::new("server", known, &[]);
    let mut link = go.accept(ends::anonymous_client(known));
    let refused = link.handshake().and_then(|()| link.receive(1).map(drop));
    assert_eq!(refused, Err(Error::AlertReceived(AlertDescription::CERTIFICATE_REQUIRED)));
    assert!(go.peer.line().contains("client didn't provide a certificate"));
}
