//! Pion's DTLS 1.2 as the peer, in both roles: a program over Pion's library (`tests/peers/pion`), which
//! echoes records. It is the peer for connection IDs (RFC 9146). Pion 3.1.15, the latest release, has no
//! return routability checks (RFC 9853).

use std::sync::{Arc, OnceLock};

use dunlin::resume::Tickets;
use dunlin::{ClientConfig, DtlsConnection, PathChecks, ProfileBuilder, ServerConfig};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tests::KeyType;
use dunlin_tests::datagram::{UdpLink, next_sender, socket};
use dunlin_tests::echo::{self, EchoPeer, IDS, accept, agreed, certificates, connect, lengths};
use dunlin_tests::ends::PSK;
use dunlin_tests::peer::{Files, build_go, now};

/// The key types of certificates that both sides support.
const KEYS: [KeyType; 2] = [KeyType::P256, KeyType::Rsa2048];

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| build_go("pion", concat!(env!("CARGO_TARGET_TMPDIR"), "/pion-peer")))
}

/// Starts the peer, with certificates of this kind or with a PSK.
fn start(role: &str, authentication: Option<KeyType>, more: &[String]) -> EchoPeer {
    let files = Files::default();
    let mut args = vec!["-role".to_owned(), role.to_owned()];
    match authentication {
        None => args.extend(["-psk", PSK, "-identity", "device-1"].map(str::to_owned)),
        Some(typ) => {
            let [roots, cert, key] = certificates(&files, typ, role);
            args.extend(["-cert", &cert, "-key", &key, "-roots", &roots].map(str::to_owned));
        }
    }
    args.extend_from_slice(more);
    EchoPeer::new(program(), files, &args)
}

fn cid(len: Option<usize>) -> [String; 2] {
    ["-cid".to_owned(), len.map_or(-1, |len| len as i32).to_string()]
}

/// The suites that both sides support.
pub(crate) fn tls12(profile: ProfileBuilder) -> ProfileBuilder {
    profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
}

fn suites(authentication: Option<KeyType>) -> impl FnOnce(ProfileBuilder) -> ProfileBuilder {
    let psk_suites = TLS12_PSK_CIPHER_SUITES.iter().copied().filter(|suite| {
        ["TLS_PSK_WITH_AES_128_GCM_SHA256", "TLS_PSK_WITH_AES_128_CCM"].contains(&&*suite.id.to_string())
    });
    move |profile| match authentication {
        None => profile.cipher_suites(vec![]).tls12_cipher_suites(psk_suites.collect()),
        Some(_) => tls12(profile),
    }
}

/// A configuration with certificates of this kind, or with a PSK.
pub(crate) fn client(authentication: Option<KeyType>, id: Option<usize>) -> ClientConfig {
    echo::client(authentication, id, suites(authentication))
}

pub(crate) fn server(authentication: Option<KeyType>, id: Option<usize>) -> ServerConfig {
    echo::server(authentication, id, suites(authentication))
}

/// Starts the peer's client, and accepts it.
fn from(authentication: Option<KeyType>, config: &ServerConfig, more: &[String]) -> (EchoPeer, UdpLink) {
    let socket = socket();
    let address = ["-connect".to_owned(), socket.local_addr().unwrap().to_string()];
    let pion = start("client", authentication, &[&address, more].concat());
    (pion, accept(socket, config))
}

#[test]
fn connects_to_its_server_with_and_without_connection_ids() {
    for theirs in IDS {
        for ours in IDS {
            let mut pion = start("server", Some(KeyType::P256), &cid(theirs));
            let mut link = connect(pion.address(), client(Some(KeyType::P256), ours));
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

/// Our client offers return routability checks, which Pion ignores: it follows a newer record as RFC 9146 §6
/// says.
#[test]
fn its_server_follows_a_client_to_another_address_without_a_check() {
    let mut pion = start("server", None, &cid(Some(8)));
    let mut link = connect(pion.address(), client(None, Some(8)));
    pion.handshake(&mut link);
    link.echo(b"from the first address").unwrap();
    // The first socket stays open, so that no other socket gets its port.
    let first = std::mem::replace(&mut link.socket, socket());
    assert_ne!(first.local_addr().unwrap(), link.socket.local_addr().unwrap());
    pion.exchange(&mut link);
    assert_eq!(link.connection.path_checks(), PathChecks::default());
}

#[test]
fn authenticates_by_certificates_of_both_types_and_by_a_psk() {
    for authentication in KEYS.map(Some).into_iter().chain([None]) {
        let mut pion = start("server", authentication, &cid(Some(4)));
        let mut link = connect(pion.address(), client(authentication, Some(4)));
        pion.converse(&mut link);
        let (mut pion, mut link) = from(authentication, &server(authentication, Some(4)), &cid(Some(4)));
        pion.converse(&mut link);
    }
}

#[test]
fn both_sides_fragment_to_small_datagrams() {
    let typ = Some(KeyType::Rsa2048);
    let mtu = |mtu: usize| ["-mtu".to_owned(), mtu.to_string()];
    let mut pion = start("server", typ, &mtu(256));
    let mut link = connect(pion.address(), client(typ, None).with_mtu(256).unwrap());
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
    // Pion's server resumes no session of a client with a certificate. No side has connection IDs: Pion
    // 3.1.15 negotiates them in a resumption, but sends its Finished without one, which RFC 9146 §3 forbids.
    let mut pion = start("server", typ, &[&twice[..], &["-open".to_owned()]].concat());
    let config = client(typ, None).with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
    let address = pion.address();
    for is_resumed in [false, true] {
        let mut link = connect(address, config.clone());
        pion.converse(&mut link);
        assert_eq!(link.connection.negotiated().unwrap().is_resumed(), is_resumed);
    }
    let sessions = Tickets::stateful(Arc::new(MemoryServerSessions::new(4)));
    let config = server(typ, None).with_tickets(sessions);
    let (mut pion, mut link) = from(typ, &config, &twice);
    pion.converse(&mut link);
    let socket = link.socket;
    let before = link.connection.peer_address();
    let peer = next_sender(&socket, Some(before));
    let connection = DtlsConnection::server(&Arc::new(config), peer, now());
    let mut link = UdpLink::new(connection, socket);
    pion.converse(&mut link);
    assert!(link.connection.negotiated().unwrap().is_resumed());
}
