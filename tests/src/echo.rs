//! Peers that are programs over other libraries (`tests/peers`). They print the address, what was agreed and
//! the end, a line each, and echo data.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use dunlin::auth::PskTable;
use dunlin::{
    ClientAuth, ClientConfig, ConnectionIds, DtlsConnection, NodeIds, Profile, ProfileBuilder, PskSource,
    ServerConfig,
};

use crate::datagram::{UdpLink, next_sender, socket};
use crate::ends::{client_profile, psk, server_profile};
use crate::peer::{Files, Process, now};
use crate::{KeyType, Pki, awslc, localhost};

/// The lengths of a side's connection IDs: none, an empty one, one of 8 bytes.
pub const IDS: [Option<usize>; 3] = [None, Some(0), Some(8)];

/// A process of such a program.
pub struct EchoPeer {
    /// The process.
    pub process: Process,
    lines: usize,
    _files: Files,
}

impl EchoPeer {
    /// Starts a program with these arguments. `files` live as long as the process.
    pub fn new(program: &str, files: Files, args: &[String]) -> Self {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Self { process: Process::client(program, &args), lines: 0, _files: files }
    }

    /// Returns its next line.
    pub fn line(&mut self) -> String {
        let n = self.lines;
        self.lines += 1;
        let output = self.process.output_until("line", |o| o.iter().filter(|b| **b == b'\n').count() > n);
        String::from_utf8_lossy(output).lines().nth(n).expect("line").to_owned()
    }

    /// Returns the address at which a server listens.
    pub fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let port = line.strip_prefix("listening ").unwrap_or_else(|| panic!("{line}"));
        format!("127.0.0.1:{port}").parse().expect("address")
    }

    /// Returns its report of a connection, by name.
    pub fn connected(&mut self) -> HashMap<String, String> {
        let line = self.line();
        let values = line.strip_prefix("connected ").unwrap_or_else(|| panic!("{line}"));
        let pair = |value: &str| value.split_once('=').map(|(k, v)| (k.into(), v.into())).expect("pair");
        values.split(' ').map(pair).collect()
    }

    /// Completes the handshake. Returns the peer's report of the connection.
    pub fn handshake(&mut self, link: &mut UdpLink) -> HashMap<String, String> {
        link.handshake().unwrap_or_else(|e| panic!("{e} / {}", self.process.errors()));
        let values = self.connected();
        let mut exported = [0; 32];
        link.connection.export(b"EXPORTER-of-a-test", None, &mut exported).expect("key");
        assert_eq!(values["exported"], hex(&exported));
        values
    }

    /// Exchanges records, and closes the connection.
    pub fn exchange(&mut self, link: &mut UdpLink) {
        for data in [&b"ping"[..], &[7; 150], &[8; 150]] {
            link.echo(data).unwrap_or_else(|e| panic!("{e} / {}", self.process.errors()));
        }
        link.close().expect("close");
        assert_eq!(self.line(), "closed");
    }

    /// Completes the handshake, exchanges records and closes. Returns the peer's report of the connection.
    pub fn converse(&mut self, link: &mut UdpLink) -> HashMap<String, String> {
        let values = self.handshake(link);
        self.exchange(link);
        values
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Writes the files of a peer in this role: the root, its chain, and its key.
pub fn certificates(files: &Files, typ: KeyType, role: &str) -> [String; 3] {
    let pki = Pki::shared(typ);
    let leaf = if role == "server" { &pki.server } else { &pki.client };
    [
        files.write("roots.pem", pki.root_pem()),
        files.write("cert.pem", leaf.chain_pem()),
        files.write("key.pem", leaf.key_pem()),
    ]
}

/// Issues connection IDs of this length.
pub fn ids(len: usize) -> Arc<dyn ConnectionIds> {
    Arc::new(NodeIds::new(&[], len, awslc().random.clone()).expect("length"))
}

/// A client with a certificate of this type, or with the PSK, and with connection IDs of this length.
/// `suites` sets the profile's cipher suites.
pub fn client(
    authentication: Option<KeyType>,
    id: Option<usize>,
    suites: impl FnOnce(ProfileBuilder) -> ProfileBuilder,
) -> ClientConfig {
    let profile = |from: ProfileBuilder| suites(from).build().expect("profile");
    let config = match authentication {
        None => ClientConfig::new(profile(Profile::builder(awslc()))).with_psks(vec![Arc::new(psk())]),
        Some(typ) => ClientConfig::new(profile(client_profile(typ))),
    };
    match id {
        None => config,
        Some(len) => config.with_connection_ids(ids(len)),
    }
}

/// The server for such a client, whose certificate it requires.
pub fn server(
    authentication: Option<KeyType>,
    id: Option<usize>,
    suites: impl FnOnce(ProfileBuilder) -> ProfileBuilder,
) -> ServerConfig {
    let profile = |from: ProfileBuilder| suites(from).build().expect("profile");
    let config = match authentication {
        None => {
            let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
            ServerConfig::psk_only(profile(Profile::builder(awslc())), keys)
        }
        Some(typ) => ServerConfig::new(profile(server_profile(typ)))
            .and_then(|config| config.with_client_auth(ClientAuth::Required)),
    };
    match (config.expect("configuration"), id) {
        (config, None) => config,
        (config, Some(len)) => config.with_connection_ids(ids(len)),
    }
}

/// Connects to a server.
pub fn connect(address: SocketAddr, config: ClientConfig) -> UdpLink {
    let connection = DtlsConnection::client(&Arc::new(config), localhost(), address, now()).expect("client");
    UdpLink::new(connection, socket())
}

/// Accepts the client that sends to this socket.
pub fn accept(socket: UdpSocket, config: &ServerConfig) -> UdpLink {
    let peer = next_sender(&socket, None);
    let connection = DtlsConnection::server(&Arc::new(config.clone()), peer, now());
    UdpLink::new(connection, socket)
}

/// The lengths of our own and the peer's connection ID in use.
pub fn lengths(link: &UdpLink) -> (usize, usize) {
    let own = link.connection.connection_ids().next().map_or(0, <[u8]>::len);
    (own, link.connection.peer_connection_id().len())
}

/// The result of [`lengths`] if the sides want IDs of these lengths.
pub fn agreed(ours: Option<usize>, theirs: Option<usize>) -> (usize, usize) {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours, theirs),
        _ => (0, 0),
    }
}
