//! DTLS 1.2 with OpenSSL's and GnuTLS's command lines, in both roles.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::crypto::Tls12CipherSuite;
use dunlin::wire::ProtocolVersion;
use dunlin::{ClientAuth, ClientConfig, DtlsConnection, Profile, ProfileBuilder, PskSource, ServerConfig};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_tests::datagram::{Relay, UdpLink, next_sender, socket};
use dunlin_tests::ends::{KEYS, PSK, client_profile, server_profile, tickets, wait_for_file, with_sessions};
use dunlin_tests::peer::{Files, Process, Server, now};
use dunlin_tests::{KeyType, Pki, awslc, full_awslc, localhost};

const GNUTLS: &str = "NORMAL:-VERS-ALL:+VERS-DTLS1.2:+AES-128-CCM:+PSK:+ECDHE-PSK";

/// The smallest MTU that OpenSSL accepts from its user.
const SMALL: usize = 256;

fn suites() -> Vec<&'static Tls12CipherSuite> {
    [TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES].concat()
}

fn psk() -> Psk {
    let key: Vec<u8> = (0..32).collect();
    Psk::new("device-1", &key).unwrap()
}

fn tls12(profile: ProfileBuilder) -> Profile {
    // RFC 8422 §5.1: a client's groups also limit the curves of the server's key.
    profile.groups(full_awslc().groups.clone()).tls12_cipher_suites(suites()).build().unwrap()
}

/// A Dunlin client with X.509 of this kind, or with the PSK.
fn client(typ: Option<KeyType>) -> ClientConfig {
    match typ {
        Some(typ) => ClientConfig::new(tls12(client_profile(typ))),
        None => ClientConfig::new(tls12(Profile::builder(awslc()))).with_psks(vec![Arc::new(psk())]),
    }
}

/// A Dunlin server with X.509 of this kind, which requires a client certificate, or with the PSK.
fn server(typ: Option<KeyType>) -> ServerConfig {
    match typ {
        Some(typ) => {
            let config = ServerConfig::new(tls12(server_profile(typ))).unwrap();
            config.with_client_auth(ClientAuth::Required).unwrap()
        }
        None => {
            let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
            ServerConfig::psk_only(tls12(Profile::builder(awslc())), keys).unwrap()
        }
    }
}

fn identity(files: &Files, typ: Option<KeyType>, is_server: bool) -> Vec<String> {
    let Some(typ) = typ else {
        let nocert = is_server.then_some("-nocert");
        return nocert
            .into_iter()
            .chain(["-psk_identity", "device-1", "-psk", PSK])
            .map(str::to_owned)
            .collect();
    };
    let pki = Pki::shared(typ);
    let own = if is_server { &pki.server } else { &pki.client };
    let cert = files.write("cert.pem", own.chain_pem());
    let key = files.write("key.pem", own.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    let args = ["-cert", &cert, "-cert_chain", &cert, "-key", &key, "-CAfile", &root, "-verify_return_error"];
    let verify = is_server.then_some(["-Verify", "3"]).into_iter().flatten();
    args.into_iter().chain(verify).map(str::to_owned).collect()
}

/// OpenSSL's server, and the way to it.
fn s_server(typ: Option<KeyType>, more: &[&str]) -> (Server, Relay) {
    let files = Files::default();
    let identity = identity(&files, typ, true);
    let mut args = vec!["s_server", "-accept", "127.0.0.1:4433", "-dtls1_2", "-quiet"];
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    let server = Server::start(files, "openssl", &args);
    let relay = Relay::new(&server);
    (server, relay)
}

/// A Dunlin client of the peer behind this relay.
fn link(config: ClientConfig, relay: &Relay) -> UdpLink {
    let connection = DtlsConnection::client(&Arc::new(config), localhost(), relay.address, now()).unwrap();
    UdpLink::new(connection, socket())
}

/// OpenSSL's client, and a Dunlin server that has got its first datagram.
fn s_client(config: &ServerConfig, typ: Option<KeyType>, more: &[&str]) -> (Process, UdpLink, Files) {
    let files = Files::default();
    let socket = socket();
    let identity = identity(&files, typ, false);
    let connect = socket.local_addr().unwrap().to_string();
    let mut args = vec!["s_client", "-connect", &connect, "-servername", "localhost", "-dtls1_2"];
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    let peer = Process::client("openssl", &args);
    let from = next_sender(&socket, None);
    let connection = DtlsConnection::server(&Arc::new(config.clone()), from, now());
    (peer, UdpLink::new(connection, socket), files)
}

/// Completes the handshake, and exchanges lines.
fn converse(link: &mut UdpLink, peer: &mut Process, expected: &str) {
    link.handshake().unwrap_or_else(|e| panic!("{expected}: {e} / {}", peer.errors()));
    let negotiated = link.connection.negotiated().unwrap();
    assert_eq!(negotiated.version, Some(ProtocolVersion::DTLS1_2));
    assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), expected);
    let max = link.connection.max_data().min(200);
    for line in [vec![b'a'; 5], vec![b'b'; max - 1]] {
        let line = [&line[..], b"\n"].concat();
        link.send(&line).unwrap();
        peer.output_until("line", |o| o.ends_with(&line));
        peer.type_line(std::str::from_utf8(&line).unwrap().trim_end());
        let mut received = Vec::new();
        while received.len() < line.len() {
            received.extend(link.receive().unwrap());
        }
        assert_eq!(received, line);
    }
}

/// The kinds of X.509, and the PSK.
fn ways() -> impl Iterator<Item = (Option<KeyType>, [&'static str; 2])> {
    let x509 = KEYS.into_iter().map(|typ| (Some(typ), ["X.509 localhost", "X.509 device-1"]));
    x509.chain([(None, ["PSK device-1"; 2])])
}

#[test]
fn connects_to_openssls_server_in_every_way_and_size() {
    // Over DTLS, OpenSSL 3.0's server finds no suite for an Ed25519 key, not even with its own client.
    for (typ, [expected, _]) in ways().filter(|(typ, _)| *typ != Some(KeyType::Ed25519)) {
        for (mtu, options) in
            [(1200, &[][..]), (SMALL, &["-mtu", "256"]), (SMALL, &["-listen", "-mtu", "256"])]
        {
            let (mut peer, relay) = s_server(typ, options);
            let mut link = link(client(typ).with_mtu(mtu).unwrap(), &relay);
            converse(&mut link, &mut peer.process, expected);
            assert!(link.longest <= mtu, "{} bytes", link.longest);
            link.connection.close();
            link.flush();
        }
    }
}

#[test]
fn accepts_openssls_client_in_every_way_and_size() {
    for (typ, [_, expected]) in ways() {
        for (mtu, options) in [(1200, &[][..]), (SMALL, &["-mtu", "256"])] {
            let config = server(typ).with_mtu(mtu).unwrap();
            let (mut peer, mut link, _files) = s_client(&config, typ, options);
            converse(&mut link, &mut peer, expected);
            assert!(link.longest <= mtu, "{} bytes", link.longest);
            // The peer closes, and this side learns of it.
            peer.type_line("Q");
            link.until(|link| link.connection.peer_has_closed()).unwrap();
        }
    }
}

/// Sessions by ID and by ticket.
#[test]
fn resumes_sessions_of_openssls_server() {
    for (options, is_resumed) in
        [(&[][..], true), (&["-no_ticket"][..], true), (&["-no_ticket", "-no_cache"], false)]
    {
        let (mut peer, relay) = s_server(Some(KeyType::P256), options);
        let config = client(Some(KeyType::P256)).with_sessions(with_sessions());
        for expected in [false, is_resumed] {
            let mut link = link(config.clone(), &relay);
            converse(&mut link, &mut peer.process, "X.509 localhost");
            assert_eq!(link.connection.negotiated().unwrap().is_resumed(), expected, "{options:?}");
            link.connection.close();
            link.flush();
        }
    }
}

#[test]
fn openssls_client_resumes_our_sessions() {
    for tickets in tickets() {
        let config = server(Some(KeyType::P256)).with_tickets(tickets).with_mtu(SMALL).unwrap();
        let kept = Files::default();
        let session = kept.path("session");
        for options in [["-sess_out", &session], ["-sess_in", &session]] {
            let (mut peer, mut link, _files) = s_client(&config, Some(KeyType::P256), &options);
            converse(&mut link, &mut peer, "X.509 device-1");
            let is_resumed = link.connection.negotiated().unwrap().is_resumed();
            assert_eq!(is_resumed, options[0] == "-sess_in");
            wait_for_file(&session);
            peer.type_line("Q");
            link.until(|link| link.connection.peer_has_closed()).unwrap();
        }
    }
}

fn gnutls_identity(files: &Files, typ: Option<KeyType>, is_server: bool) -> Vec<String> {
    let Some(typ) = typ else {
        return if is_server {
            vec!["--pskpasswd".to_owned(), files.write("psk.txt", format!("device-1:{PSK}\n"))]
        } else {
            ["--pskusername", "device-1", "--pskkey", PSK].map(str::to_owned).to_vec()
        };
    };
    let pki = Pki::shared(typ);
    let own = if is_server { &pki.server } else { &pki.client };
    let cert = files.write("cert.pem", own.chain_pem());
    let key = files.write("key.pem", own.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    let args = ["--x509certfile", &cert, "--x509keyfile", &key, "--x509cafile", &root];
    let verify = is_server.then_some(["--require-client-cert", "--verify-client-cert"]).into_iter().flatten();
    args.into_iter().chain(verify).map(str::to_owned).collect()
}

#[test]
fn connects_to_gnutlss_server_in_every_way_and_size() {
    for (typ, [expected, _]) in ways() {
        for mtu in ["1200", "256"] {
            let files = Files::default();
            let identity = gnutls_identity(&files, typ, true);
            let mut args = vec!["--port", "4433", "--udp", "--mtu", mtu, "--priority", GNUTLS];
            args.extend(identity.iter().map(String::as_str));
            let peer = Server::start(files, "gnutls-serv", &args);
            let relay = Relay::new(&peer);
            let mtu = mtu.parse().unwrap();
            let mut link = link(client(typ).with_mtu(mtu).unwrap(), &relay);
            link.handshake().unwrap_or_else(|e| panic!("{expected}: {e} / {}", peer.process.errors()));
            assert_eq!(link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string(), expected);
            link.echo(b"hello\n").unwrap();
            link.echo(&[b'a'; 150]).unwrap();
            assert!(link.longest <= mtu, "{} bytes", link.longest);
            link.connection.close();
            link.flush();
        }
    }
}

#[test]
fn accepts_gnutlss_client_in_every_way_and_size() {
    for (typ, [_, expected]) in ways() {
        for mtu in ["1200", "256"] {
            let files = Files::default();
            let socket = socket();
            let identity = gnutls_identity(&files, typ, false);
            // gnutls-cli 3.7.9 crashes after a handshake with a PSK and ephemeral keys.
            let priority = GNUTLS.replace(":+ECDHE-PSK", "");
            let log = files.path("log");
            let port = socket.local_addr().unwrap().port().to_string();
            let mut args = vec!["--udp", "--mtu", mtu, "--port", &port, "--priority", &priority];
            args.extend(["--logfile", &log, "--sni-hostname", "localhost", "--verify-hostname", "localhost"]);
            args.extend(identity.iter().map(String::as_str));
            args.push("127.0.0.1");
            let mut peer = Process::client("gnutls-cli", &args);
            let from = next_sender(&socket, None);
            let mtu = mtu.parse().unwrap();
            let config = Arc::new(server(typ).with_mtu(mtu).unwrap());
            let mut link = UdpLink::new(DtlsConnection::server(&config, from, now()), socket);
            converse(&mut link, &mut peer, expected);
            assert!(link.longest <= mtu, "{} bytes", link.longest);
        }
    }
}
