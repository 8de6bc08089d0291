//! Californium's Scandium as the peer, in both roles: a Java program over its library
//! (`tests/peers/scandium`), which echoes records. Its DTLS 1.2 has connection IDs (RFC 9146) and raw public
//! keys, which devices with CoAP use.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use dunlin::auth::RawKeyTrust;
use dunlin::resume::Tickets;
use dunlin::{ClientAuth, ClientConfig, Profile, ServerConfig, Trust};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tests::datagram::{UdpLink, socket};
use dunlin_tests::echo::{EchoPeer, IDS, accept, agreed, certificates, connect, hex, ids, lengths};
use dunlin_tests::ends::PSK;
use dunlin_tests::peer::{Files, build_java};
use dunlin_tests::{KeyType, Pki, awslc};

use crate::pion;

/// How both sides authenticate each other.
#[derive(Clone, Copy)]
enum Way {
    Psk,
    X509,
    RawKey,
}

/// The ways of authentication that both sides support, with Scandium's name for the peer's identity.
const WAYS: [(Way, &str); 3] =
    [(Way::Psk, "PreSharedKeyIdentity"), (Way::X509, "X509CertPath"), (Way::RawKey, "RawPublicKeyIdentity")];

/// The first message of Scandium's client.
const HELLO: &[u8] = b"hello";

/// The class path of the program, which is compiled once.
fn classes() -> &'static str {
    static CLASSES: OnceLock<String> = OnceLock::new();
    CLASSES.get_or_init(|| build_java("scandium", concat!(env!("CARGO_TARGET_TMPDIR"), "/scandium-peer")))
}

/// Starts the peer. `id` is the length of its connection IDs.
fn start(role: &str, way: Way, id: Option<usize>, more: &[String]) -> EchoPeer {
    let files = Files::default();
    let typ = KeyType::P256;
    let [roots, cert, key] = certificates(&files, typ, role);
    // Our program reads the key and the chain from one file.
    let both = [&key, &cert].map(|path| std::fs::read_to_string(path).unwrap()).concat();
    let own = format!("own={}", files.write("own.pem", both));
    // A short life is not worth the better compiler.
    let mut args = ["-XX:TieredStopAtLevel=1", "-cp", classes(), "Peer", role].map(str::to_owned).to_vec();
    match way {
        Way::Psk => args.extend([format!("psk={PSK}"), "identity=device-1".to_owned()]),
        Way::X509 => args.extend([own, format!("roots={roots}")]),
        Way::RawKey => {
            let pki = Pki::shared(typ);
            let [server, client] = [&pki.server, &pki.client].map(|leaf| hex(&leaf.public_key));
            let (key, trust) = if role == "server" { (server, client) } else { (client, server) };
            args.extend([own, format!("key={key}"), format!("trust={trust}")]);
        }
    }
    args.extend(id.map(|len| format!("cid={len}")));
    args.extend_from_slice(more);
    EchoPeer::new("java", files, &args)
}

/// Starts its server.
fn start_server(way: Way, id: Option<usize>) -> (EchoPeer, SocketAddr) {
    let mut scandium = start("server", way, id, &[]);
    let address = scandium.address();
    (scandium, address)
}

/// Starts its client, and accepts it.
fn start_client(way: Way, id: Option<usize>, config: &ServerConfig) -> (EchoPeer, UdpLink) {
    let socket = socket();
    let port = format!("connect={}", socket.local_addr().unwrap().port());
    (start("client", way, id, &[port]), accept(socket, config))
}

/// A profile with raw public keys.
fn raw_profile(is_client: bool) -> Profile {
    let pki = Pki::shared(KeyType::P256);
    let (own, peer) = if is_client { (&pki.client, &pki.server) } else { (&pki.server, &pki.client) };
    let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![peer.public_key.clone()])) };
    let profile = Profile::builder(awslc()).trust(trust).credentials(vec![own.raw_key(&awslc())]);
    pion::tls12(profile).build().unwrap()
}

fn client(way: Way, id: Option<usize>) -> ClientConfig {
    match (way, id) {
        (Way::Psk, _) => pion::client(None, id),
        (Way::X509, _) => pion::client(Some(KeyType::P256), id),
        (Way::RawKey, None) => ClientConfig::new(raw_profile(true)),
        (Way::RawKey, Some(len)) => ClientConfig::new(raw_profile(true)).with_connection_ids(ids(len)),
    }
}

/// A server with session IDs: Scandium deletes the master secret of a session without one, and then cannot
/// export keys.
fn server(way: Way, id: Option<usize>) -> ServerConfig {
    let config = match way {
        Way::Psk => pion::server(None, id),
        Way::X509 => pion::server(Some(KeyType::P256), id),
        Way::RawKey => {
            let config = ServerConfig::new(raw_profile(false)).unwrap();
            let config = config.with_client_auth(ClientAuth::Required).unwrap();
            id.into_iter().fold(config, |config, len| config.with_connection_ids(ids(len)))
        }
    };
    config.with_tickets(Tickets::stateful(Arc::new(MemoryServerSessions::new(4))))
}

/// Completes the handshake with its client, takes its first record, exchanges others and closes. Returns the
/// peer's report.
fn converse(scandium: &mut EchoPeer, link: &mut UdpLink) -> std::collections::HashMap<String, String> {
    let said = scandium.handshake(link);
    assert_eq!(link.receive().unwrap(), HELLO);
    scandium.exchange(link);
    said
}

#[test]
fn connects_to_its_server_with_and_without_connection_ids() {
    for theirs in [None, Some(0), Some(6)] {
        let (mut scandium, address) = start_server(Way::Psk, theirs);
        for ours in IDS {
            let mut link = connect(address, client(Way::Psk, ours));
            scandium.converse(&mut link);
            assert_eq!(lengths(&link), agreed(ours, theirs));
        }
    }
}

#[test]
fn accepts_its_client_with_and_without_connection_ids() {
    let [none, empty, own, its] = [None, Some(0), Some(8), Some(6)];
    for (ours, theirs) in [(own, none), (none, its), (own, empty), (empty, its), (own, its)] {
        let (mut scandium, mut link) = start_client(Way::Psk, theirs, &server(Way::Psk, ours));
        converse(&mut scandium, &mut link);
        assert_eq!(lengths(&link), agreed(ours, theirs));
    }
}

/// Our messages are fragments. Scandium drops what follows the last fragment of a message in the same record.
#[test]
fn authenticates_by_psk_certificate_and_raw_key_in_small_datagrams() {
    for (way, identity) in WAYS {
        let (mut scandium, address) = start_server(way, Some(4));
        let mut link = connect(address, client(way, Some(4)).with_mtu(256).unwrap());
        assert_eq!(scandium.converse(&mut link)["peer"], identity);
        assert!(link.longest <= 256);
        let (mut scandium, mut link) =
            start_client(way, Some(4), &server(way, Some(4)).with_mtu(256).unwrap());
        assert_eq!(converse(&mut scandium, &mut link)["peer"], identity);
        assert!(link.longest <= 256);
    }
}

/// Sessions by ID. A resumption negotiates new connection IDs.
#[test]
fn resumes_sessions_in_both_roles() {
    let (mut scandium, address) = start_server(Way::X509, Some(6));
    let config = client(Way::X509, Some(8)).with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
    for expected in [false, true] {
        let mut link = connect(address, config.clone());
        assert_eq!(scandium.converse(&mut link)["resumed"], expected.to_string());
        assert_eq!(link.connection.negotiated().unwrap().is_resumed(), expected);
        assert_eq!(lengths(&link), (8, 6));
    }
    let config = server(Way::X509, Some(8));
    let (mut scandium, mut link) = start_client(Way::X509, Some(6), &config);
    assert_eq!(scandium.handshake(&mut link)["resumed"], "false");
    assert_eq!(link.receive().unwrap(), HELLO);
    scandium.process.type_line("resume");
    let mut link = accept(link.socket, &config);
    assert_eq!(converse(&mut scandium, &mut link)["resumed"], "true");
    assert!(link.connection.negotiated().unwrap().is_resumed());
    assert_eq!(lengths(&link), (8, 6));
}
