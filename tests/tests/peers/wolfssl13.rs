//! wolfSSL 5.9.4 as the peer for DTLS 1.3, in both roles: a program over the library, which cargo downloads
//! (`tests/peers/wolfssl`). It is a peer for connection IDs, and takes NewConnectionId.

use std::sync::OnceLock;

use dunlin::crypto::Tls13CipherSuite;
use dunlin::resume::Tickets;
use dunlin::{ClientConfig, ServerConfig};
use dunlin_awslc::{
    TLS13_AES_128_CCM_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384,
    TLS13_CHACHA20_POLY1305_SHA256,
};
use dunlin_tests::KeyType;
use dunlin_tests::datagram::{UdpLink, socket};
use dunlin_tests::echo::{self, EchoPeer, IDS, accept, agreed, certificates, connect, hex, lengths};
use dunlin_tests::peer::{Files, build_c};

const P256: Option<KeyType> = Some(KeyType::P256);
const RSA: Option<KeyType> = Some(KeyType::Rsa2048);

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| build_c("wolfssl", "dtls13", env!("CARGO_TARGET_TMPDIR")))
}

/// The settings of both sides: certificates of a kind or the PSK, the suite and its name in wolfSSL, the
/// lengths of both sides' connection IDs, and the largest datagram.
#[derive(Clone, Copy)]
struct Case {
    authentication: Option<KeyType>,
    suite: (&'static Tls13CipherSuite, &'static str),
    ours: Option<usize>,
    theirs: Option<usize>,
    mtu: u16,
}

const DEFAULT: Case = Case {
    authentication: P256,
    suite: (&TLS13_AES_128_GCM_SHA256, "TLS13-AES128-GCM-SHA256"),
    ours: None,
    theirs: None,
    mtu: 1200,
};

const SUITES: [(&Tls13CipherSuite, &str); 4] = [
    DEFAULT.suite,
    (&TLS13_AES_256_GCM_SHA384, "TLS13-AES256-GCM-SHA384"),
    (&TLS13_CHACHA20_POLY1305_SHA256, "TLS13-CHACHA20-POLY1305-SHA256"),
    (&TLS13_AES_128_CCM_SHA256, "TLS13-AES128-CCM-SHA256"),
];

impl Case {
    fn client(self) -> ClientConfig {
        echo::client(self.authentication, self.ours, |profile| profile.cipher_suites(vec![self.suite.0]))
            .with_mtu(self.mtu.into())
            .unwrap()
    }

    fn server(self) -> ServerConfig {
        // wolfSSL keeps no session here.
        echo::server(self.authentication, self.ours, |profile| profile.cipher_suites(vec![self.suite.0]))
            .with_mtu(self.mtu.into())
            .unwrap()
            .with_tickets(Tickets::none())
    }

    fn start(self, role: &str, port: u16) -> EchoPeer {
        let files = Files::default();
        let id = self.theirs.map_or(-1, |len| i32::try_from(len).unwrap());
        let mut args = vec![role.to_owned()];
        args.extend([port.to_string(), id.to_string(), self.mtu.to_string(), self.suite.1.to_owned()]);
        if let Some(typ) = self.authentication {
            args.extend(certificates(&files, typ, role));
        }
        EchoPeer::new(program(), files, &args)
    }

    /// Connects to wolfSSL's server.
    fn connect_to_server(self) -> (EchoPeer, UdpLink) {
        let mut peer = self.start("server", 0);
        let address = peer.address();
        (peer, connect(address, self.client()))
    }

    /// Accepts wolfSSL's client.
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

#[test]
fn connects_with_and_without_connection_ids() {
    for theirs in IDS {
        for ours in IDS {
            for (mut peer, mut link) in (Case { ours, theirs, ..DEFAULT }).both() {
                let said = peer.converse(&mut link);
                assert_eq!(said["version"], "DTLSv1.3");
                assert_eq!(lengths(&link), agreed(ours, theirs), "{ours:?} {theirs:?}");
                let own = link.connection.connection_ids().next().map(hex).unwrap_or_default();
                assert_eq!(said["id"], own);
            }
        }
    }
}

#[test]
fn authenticates_by_certificates_of_both_types_and_by_a_psk() {
    for authentication in [P256, RSA, None] {
        for id in [None, Some(8)] {
            let case = Case { authentication, ours: id, theirs: id, ..DEFAULT };
            for (mut peer, mut link) in case.both() {
                peer.converse(&mut link);
            }
        }
    }
}

#[test]
fn protects_records_with_every_common_suite() {
    for suite in SUITES {
        let case = Case { suite, ours: Some(4), theirs: Some(3), ..DEFAULT };
        for (mut peer, mut link) in case.both() {
            let said = peer.converse(&mut link);
            assert_eq!(said["suite"], suite.0.id.to_string());
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

/// RFC 9147 §9: the peer uses the new ID at once.
#[test]
fn the_peer_uses_a_new_connection_id() {
    for (mut peer, mut link) in (Case { ours: Some(5), theirs: Some(5), ..DEFAULT }).both() {
        let first = peer.handshake(&mut link)["id"].clone();
        let mut seen = vec![first];
        for _ in 0..3 {
            link.connection.replace_connection_id().unwrap();
            link.flush();
            link.send(b"id").unwrap();
            let used = String::from_utf8(link.receive().unwrap()).unwrap();
            assert!(link.connection.connection_ids().map(hex).any(|id| id == used), "{used}");
            assert!(!seen.contains(&used), "{used} {seen:?}");
            seen.push(used);
        }
        peer.exchange(&mut link);
    }
}

/// wolfSSL sends no spare IDs, but accepts the request.
#[test]
fn the_peer_ignores_a_request_for_spare_connection_ids() {
    for (mut peer, mut link) in (Case { ours: Some(5), theirs: Some(5), ..DEFAULT }).both() {
        peer.handshake(&mut link);
        link.connection.request_connection_ids(2).unwrap();
        link.flush();
        peer.exchange(&mut link);
        assert!(!link.connection.use_spare_connection_id());
    }
}

#[test]
fn both_sides_update_their_keys() {
    for (mut peer, mut link) in (Case { ours: Some(0), theirs: Some(6), ..DEFAULT }).both() {
        peer.handshake(&mut link);
        for _ in 0..2 {
            link.connection.update_keys(true).unwrap();
            link.echo(b"before and after").unwrap();
        }
        peer.exchange(&mut link);
    }
}
