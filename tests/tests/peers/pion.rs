//! Pion's DTLS 1.2 as the peer, in both roles: a program over Pion's library (`tests/peers/pion`), which echoes records. It is the
//! peer for connection IDs (RFC 9146).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use dunlin::auth::{Psk, PskTable};
use dunlin::resume::Tickets;
use dunlin::{
    ClientAuth, ClientConfig, ConnectionIds, DtlsConnection, NodeIds, Profile, ProfileBuilder, PskSource,
    ServerConfig,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tests::datagram::{UdpLink, next_sender, socket};
use dunlin_tests::ends::{PSK, client_profile, server_profile};
use dunlin_tests::peer::{Files, Process, build_go, now};
use dunlin_tests::{KeyType, Pki, awslc, localhost};

/// The key types of certificates that both sides support.
const KEYS: [KeyType; 2] = [KeyType::P256, KeyType::Rsa2048];

/// The lengths of both sides' connection IDs: none, only the peer's, its own and the peer's.
const IDS: [Option<usize>; 3] = [None, Some(0), Some(8)];

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| build_go("pion", concat!(env!("CARGO_TARGET_TMPDIR"), "/pion-peer")))
}

/// A process of the peer.
struct Pion {
    process: Process,
    lines: usize,
    _files: Files,
}

impl Pion {
    fn new(role: &str, authentication: Option<KeyType>, more: &[String]) -> Self {
        let files = Files::default();
        let mut args = vec!["-role".to_owned(), role.to_owned()];
        match authentication {
            None => args.extend(["-psk", PSK, "-identity", "device-1"].map(str::to_owned)),
            Some(typ) => {
                let pki = Pki::shared(typ);
                let leaf = if role == "server" { &pki.server } else { &pki.client };
                let (cert, key) =
                    (files.write("cert.pem", leaf.chain_pem()), files.write("key.pem", leaf.key_pem()));
                let roots = files.write("roots.pem", pki.root_pem());
                args.extend(["-cert", &cert, "-key", &key, "-roots", &roots].map(str::to_owned));
            }
        }
        args.extend_from_slice(more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Self { process: Process::client(program(), &args), lines: 0, _files: files }
    }

    /// Returns its next line.
    fn line(&mut self) -> String {
        let n = self.lines;
        self.lines += 1;
        let output = self.process.output_until("line", |o| o.iter().filter(|b| **b == b'\n').count() > n);
        String::from_utf8(output.to_vec()).unwrap().lines().nth(n).unwrap().to_owned()
    }

    /// Returns the address at which a server listens.
    fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let port = line.strip_prefix("listening ").unwrap_or_else(|| panic!("{line}"));
        format!("127.0.0.1:{port}").parse().unwrap()
    }

    /// Completes the handshake, exchanges records and closes. Returns the peer's report of the connection.
    fn converse(&mut self, link: &mut UdpLink) -> HashMap<String, String> {
        link.handshake().unwrap_or_else(|e| panic!("{e} / {}", self.process.errors()));
        let line = self.line();
        let values = line.strip_prefix("connected ").unwrap_or_else(|| panic!("{line}"));
        let values = values.split(' ').map(|v| v.split_once('=').map(|(k, v)| (k.into(), v.into())).unwrap());
        let values: HashMap<String, String> = values.collect();
        for data in [&b"ping"[..], &[7; 150], &[8; 150]] {
            link.echo(data).unwrap();
        }
        let mut exported = [0; 32];
        link.connection.export(b"EXPORTER-of-a-test", None, &mut exported).unwrap();
        assert_eq!(values["exported"], base16(&exported));
        link.close().unwrap();
        assert_eq!(self.line(), "closed");
        values
    }
}

fn base16(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn ids(len: usize) -> Arc<dyn ConnectionIds> {
    Arc::new(NodeIds::new(&[], len, awslc().random.clone()).unwrap())
}

fn cid(len: Option<usize>) -> [String; 2] {
    ["-cid".to_owned(), len.map_or(-1, |len| len as i32).to_string()]
}

fn tls12(profile: ProfileBuilder) -> Profile {
    profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec()).build().unwrap()
}

fn psk_profile() -> Profile {
    let suites: Vec<_> = TLS12_PSK_CIPHER_SUITES
        .iter()
        .copied()
        .filter(|suite| {
            ["TLS_PSK_WITH_AES_128_GCM_SHA256", "TLS_PSK_WITH_AES_128_CCM"].contains(&&*suite.id.to_string())
        })
        .collect();
    Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(suites).build().unwrap()
}

fn psk() -> Psk {
    let key: Vec<u8> = (0..32).collect();
    Psk::new("device-1", &key).unwrap()
}

/// A configuration with certificates of this kind, or with a PSK.
fn client(authentication: Option<KeyType>, id: Option<usize>) -> ClientConfig {
    let config = match authentication {
        None => ClientConfig::new(psk_profile()).with_psks(vec![Arc::new(psk())]),
        Some(typ) => ClientConfig::new(tls12(client_profile(typ))),
    };
    match id {
        None => config,
        Some(len) => config.with_connection_ids(ids(len)),
    }
}

fn server(authentication: Option<KeyType>, id: Option<usize>) -> ServerConfig {
    let config = match authentication {
        None => {
            let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
            ServerConfig::psk_only(psk_profile(), keys).unwrap()
        }
        Some(typ) => ServerConfig::new(tls12(server_profile(typ)))
            .and_then(|config| config.with_client_auth(ClientAuth::Required))
            .unwrap(),
    };
    match id {
        None => config,
        Some(len) => config.with_connection_ids(ids(len)),
    }
}

/// Connects to the peer's server.
fn to(address: SocketAddr, config: ClientConfig) -> UdpLink {
    let connection = DtlsConnection::client(&Arc::new(config), localhost(), address, now()).unwrap();
    UdpLink::new(connection, socket())
}

/// Starts the peer's client, and accepts it.
fn from(authentication: Option<KeyType>, config: &ServerConfig, more: &[String]) -> (Pion, UdpLink) {
    let socket = socket();
    let address = ["-connect".to_owned(), socket.local_addr().unwrap().to_string()];
    let pion = Pion::new("client", authentication, &[&address, more].concat());
    let peer = next_sender(&socket, None);
    let connection = DtlsConnection::server(&Arc::new(config.clone()), peer, now());
    (pion, UdpLink::new(connection, socket))
}

/// The lengths of our own and the peer's connection ID in use.
fn lengths(link: &UdpLink) -> (usize, usize) {
    let own = link.connection.connection_ids().next().map_or(0, <[u8]>::len);
    (own, link.connection.peer_connection_id().len())
}

fn agreed(ours: Option<usize>, theirs: Option<usize>) -> (usize, usize) {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours, theirs),
        _ => (0, 0),
    }
}

#[test]
fn connects_to_its_server_with_and_without_connection_ids() {
    for theirs in IDS {
        for ours in IDS {
            let mut pion = Pion::new("server", Some(KeyType::P256), &cid(theirs));
            let mut link = to(pion.address(), client(Some(KeyType::P256), ours));
            let said = pion.converse(&mut link);
            assert_ne!(said["certificates"], "0");
            assert_eq!(lengths(&link), agreed(ours, theirs));
        }
    }
}

#[test]
fn accepts_its_client_with_and_without_connection_ids() {
    for theirs in IDS {
        for ours in IDS {
            let (mut pion, mut link) =
                from(Some(KeyType::P256), &server(Some(KeyType::P256), ours), &cid(theirs));
            let said = pion.converse(&mut link);
            assert_ne!(said["certificates"], "0");
            assert_eq!(lengths(&link), agreed(ours, theirs));
        }
    }
}

#[test]
fn authenticates_by_certificates_of_both_types_and_by_a_psk() {
    for authentication in KEYS.map(Some).into_iter().chain([None]) {
        let mut pion = Pion::new("server", authentication, &cid(Some(4)));
        let mut link = to(pion.address(), client(authentication, Some(4)));
        pion.converse(&mut link);
        let (mut pion, mut link) = from(authentication, &server(authentication, Some(4)), &cid(Some(4)));
        pion.converse(&mut link);
    }
}

#[test]
fn both_sides_fragment_to_small_datagrams() {
    let typ = Some(KeyType::Rsa2048);
    let mtu = |mtu: usize| ["-mtu".to_owned(), mtu.to_string()];
    let mut pion = Pion::new("server", typ, &mtu(256));
    let mut link = to(pion.address(), client(typ, None).with_mtu(256).unwrap());
    pion.converse(&mut link);
    assert!((200..=256).contains(&link.longest), "{} bytes", link.longest);
    let (mut pion, mut link) = from(typ, &server(typ, None).with_mtu(256).unwrap(), &mtu(256));
    pion.converse(&mut link);
    assert!((200..=256).contains(&link.longest), "{} bytes", link.longest);
}

/// Sessions by ID, since Pion has no tickets.
#[test]
fn resumes_sessions_in_both_roles() {
    let typ = Some(KeyType::P256);
    let twice = ["-connections".to_owned(), "2".to_owned()];
    // Pion's server resumes no session of a client with a certificate. No side has connection IDs: Pion 3.1.15 negotiates them in a
    // resumption, but sends its Finished without one, which RFC 9146 §3 forbids.
    let mut pion = Pion::new("server", typ, &[&twice[..], &["-open".to_owned()]].concat());
    let config = client(typ, None).with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
    let address = pion.address();
    for is_resumed in [false, true] {
        let mut link = to(address, config.clone());
        pion.converse(&mut link);
        assert_eq!(link.connection.negotiated().unwrap().is_resumed(), is_resumed);
    }
    let sessions = Tickets::stateful(Arc::new(MemoryServerSessions::new(4)));
    let config = server(typ, None).with_tickets(sessions);
    let (mut pion, mut link) = from(typ, &config, &twice);
    pion.converse(&mut link);
    let (socket, before) = (link.socket, link.connection.peer_address());
    let peer = next_sender(&socket, Some(before));
    let connection = DtlsConnection::server(&Arc::new(config), peer, now());
    let mut link = UdpLink::new(connection, socket);
    pion.converse(&mut link);
    assert!(link.connection.negotiated().unwrap().is_resumed());
}
