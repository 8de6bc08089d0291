//! Mbed TLS 3.6.5 as the peer for DTLS 1.2, in both roles: a program over the library, which cargo downloads
//! (`tests/peers/mbedtls`). It is a peer for connection IDs (RFC 9146), also in resumptions.

use std::sync::{Arc, OnceLock};

use dunlin::crypto::Tls12CipherSuite;
use dunlin::resume::Tickets;
use dunlin::{ClientConfig, ProfileBuilder, ServerConfig};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::datagram::{UdpLink, next_sender, socket};
use dunlin_tests::echo::{self, EchoPeer, IDS, accept, agreed, certificates, connect, hex, lengths};
use dunlin_tests::peer::{Files, build_c, now};
use dunlin_tests::{KeyType, awslc};

const P256: Option<KeyType> = Some(KeyType::P256);
const RSA: Option<KeyType> = Some(KeyType::Rsa2048);

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| build_c("mbedtls", "peer", env!("CARGO_TARGET_TMPDIR")))
}

/// The settings of both sides: certificates of a kind or the PSK, the only suite if it is not open, the
/// lengths of both sides' connection IDs, the largest datagram, and the number of connections.
#[derive(Clone, Copy)]
struct Case {
    authentication: Option<KeyType>,
    suite: Option<&'static Tls12CipherSuite>,
    ours: Option<usize>,
    theirs: Option<usize>,
    mtu: u16,
    connections: usize,
}

const DEFAULT: Case =
    Case { authentication: P256, suite: None, ours: None, theirs: None, mtu: 1200, connections: 1 };

impl Case {
    fn profile(self, profile: ProfileBuilder) -> ProfileBuilder {
        let all = if self.authentication.is_some() { TLS12_CIPHER_SUITES } else { TLS12_PSK_CIPHER_SUITES };
        let suites = self.suite.map_or_else(|| all.to_vec(), |suite| vec![suite]);
        profile.cipher_suites(vec![]).tls12_cipher_suites(suites)
    }

    fn client(self) -> ClientConfig {
        echo::client(self.authentication, self.ours, |profile| self.profile(profile))
            .with_mtu(self.mtu.into())
            .unwrap()
            .with_sessions(Arc::new(MemoryClientSessions::new(1, 4)))
    }

    fn server(self) -> ServerConfig {
        let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
        let config = echo::server(self.authentication, self.ours, |profile| self.profile(profile));
        config.with_mtu(self.mtu.into()).unwrap().with_tickets(tickets)
    }

    fn start(self, role: &str, port: u16) -> EchoPeer {
        let files = Files::default();
        let id = self.theirs.map_or(-1, |len| i32::try_from(len).unwrap());
        let mut args = vec![role.to_owned()];
        args.extend([port.to_string(), id.to_string(), self.mtu.to_string(), self.connections.to_string()]);
        if let Some(typ) = self.authentication {
            args.extend(certificates(&files, typ, role));
        }
        EchoPeer::new(program(), files, &args)
    }

    /// Connects to the peer's server.
    fn connect_to_server(self) -> (EchoPeer, UdpLink) {
        let mut peer = self.start("server", 0);
        let address = peer.address();
        (peer, connect(address, self.client()))
    }

    /// Accepts the peer's client.
    fn accept_client(self) -> (EchoPeer, UdpLink) {
        let socket = socket();
        let peer = self.start("client", socket.local_addr().unwrap().port());
        (peer, accept(socket, &self.server()))
    }

    /// Both roles.
    fn both(self) -> [(EchoPeer, UdpLink); 2] {
        [self.connect_to_server(), self.accept_client()]
    }
}

/// Checks that the sides agree on their connection IDs.
fn check_ids(case: Case, said_id: &str, link: &UdpLink) {
    assert_eq!(lengths(link), agreed(case.ours, case.theirs), "{:?} {:?}", case.ours, case.theirs);
    let own = link.connection.connection_ids().next().map(hex).unwrap_or_default();
    assert_eq!(said_id, own);
}

#[test]
fn connects_with_and_without_connection_ids() {
    for theirs in IDS {
        for ours in IDS {
            let case = Case { ours, theirs, ..DEFAULT };
            for (mut peer, mut link) in case.both() {
                let said = peer.converse(&mut link);
                check_ids(case, &said["id"], &link);
            }
        }
    }
}

#[test]
fn authenticates_by_certificates_of_both_types_and_by_a_psk() {
    for authentication in [P256, RSA, None] {
        for (mut peer, mut link) in
            (Case { authentication, ours: Some(4), theirs: Some(4), ..DEFAULT }).both()
        {
            peer.converse(&mut link);
        }
    }
}

#[test]
fn protects_records_with_every_common_suite() {
    let named = |suites: &[&'static Tls12CipherSuite], names: &[&str]| {
        let is_named = |suite: &&&Tls12CipherSuite| names.contains(&&*suite.id.to_string());
        suites.iter().filter(is_named).copied().collect::<Vec<_>>()
    };
    let ecdsa = named(
        TLS12_CIPHER_SUITES,
        &[
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_AES_128_CCM",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ],
    );
    let psk = named(
        TLS12_PSK_CIPHER_SUITES,
        &[
            "TLS_PSK_WITH_AES_128_GCM_SHA256",
            "TLS_PSK_WITH_AES_128_CCM",
            "TLS_PSK_WITH_CHACHA20_POLY1305_SHA256",
        ],
    );
    assert_eq!((ecdsa.len(), psk.len()), (4, 3));
    for (authentication, suites) in [(P256, ecdsa), (None, psk)] {
        for suite in suites {
            let case = Case { authentication, suite: Some(suite), ours: Some(2), theirs: Some(6), ..DEFAULT };
            for (mut peer, mut link) in case.both() {
                peer.converse(&mut link);
                assert_eq!(link.connection.negotiated().unwrap().cipher_suite, Some(suite.id));
            }
        }
    }
}

#[test]
fn both_sides_fragment_to_small_datagrams() {
    let case = Case { authentication: RSA, mtu: 256, ours: Some(8), theirs: Some(8), ..DEFAULT };
    for (mut peer, mut link) in case.both() {
        peer.converse(&mut link);
        assert!((200..=256).contains(&link.longest), "{} bytes", link.longest);
    }
}

/// Each connection has its own IDs (RFC 9146 §3). A fault of other implementations was to keep those of the
/// session.
#[test]
fn resumes_sessions_with_new_connection_ids() {
    let case = Case { ours: Some(5), theirs: Some(5), connections: 2, ..DEFAULT };
    let mut peer = case.start("server", 0);
    let config = case.client();
    let address = peer.address();
    let mut seen = Vec::new();
    for is_resumed in [false, true] {
        let mut link = connect(address, config.clone());
        let said = peer.converse(&mut link);
        assert_eq!(link.connection.negotiated().unwrap().is_resumed(), is_resumed);
        check_ids(case, &said["id"], &link);
        seen.push(said["id"].clone());
    }
    let config = case.server();
    let first = socket();
    let mut peer = case.start("client", first.local_addr().unwrap().port());
    let mut link = accept(first, &config);
    for is_resumed in [false, true] {
        let said = peer.converse(&mut link);
        assert_eq!(link.connection.negotiated().unwrap().is_resumed(), is_resumed);
        check_ids(case, &said["id"], &link);
        seen.push(said["id"].clone());
        if !is_resumed {
            let next = next_sender(&link.socket, Some(link.connection.peer_address()));
            let connection = dunlin::DtlsConnection::server(&Arc::new(config.clone()), next, now());
            link = UdpLink::new(connection, link.socket);
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4, "{seen:?}");
}
