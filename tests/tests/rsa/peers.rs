//! OpenSSL and GnuTLS as peers, in both roles.

use std::sync::Arc;

use dunlin::auth::Psk;
use dunlin::crypto::Tls12CipherSuite;
use dunlin::{ClientConfig, ServerConfig, TlsConnection};
use dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES;
use dunlin_tests::ends::PSK;
use dunlin_tests::localhost;
use dunlin_tests::peer::{Files, Link, Process, Server, listen, now};

use super::{client_config, pki, profile, server_config, serving, trusting};

const GNUTLS: &str = "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+RSA-PSK";

/// OpenSSL's name for a suite.
fn openssl_name(suite: &Tls12CipherSuite) -> String {
    let name = suite.id.name().unwrap().replace("TLS_", "").replace("_WITH_", "_").replace("AES_", "AES");
    name.replace("POLY1305_SHA256", "POLY1305").replace('_', "-")
}

fn psk() -> Psk {
    let key: Vec<u8> = (0..32).collect();
    Psk::new("device-1", &key).unwrap()
}

fn client(config: &Arc<ClientConfig>, peer: &Server) -> Link {
    Link::to_server(TlsConnection::client(config, localhost(), now()).unwrap(), peer)
}

fn our_client(suite: &'static Tls12CipherSuite) -> Arc<ClientConfig> {
    client_config(trusting(profile(&[suite])), psk())
}

fn our_server(suite: &'static Tls12CipherSuite) -> Arc<ServerConfig> {
    server_config(serving(profile(&[suite])), psk())
}

/// Files with the identity of the peer's server.
struct Identity {
    cert: String,
    key: String,
    root: String,
}

impl Identity {
    fn new(files: &Files) -> Self {
        Self {
            cert: files.write("cert.pem", pki().server.chain_pem()),
            key: files.write("key.pem", pki().server.key_pem()),
            root: files.write("root.pem", pki().root_pem()),
        }
    }
}

/// Sends a greeting, which the peer prints, and checks the suite.
fn greet(link: &mut Link, peer: &mut Process, suite: &Tls12CipherSuite) {
    link.handshake().unwrap_or_else(|e| panic!("{}: {e} / {}", suite.id, peer.errors()));
    let negotiated = link.connection.negotiated().unwrap();
    assert_eq!(negotiated.cipher_suite, Some(suite.id));
    assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), "PSK device-1");
    link.send(b"hello\n").unwrap();
    peer.output_until("hello", |o| o.ends_with(b"hello\n"));
}

#[test]
fn interoperates_with_openssl() {
    for suite in TLS12_RSA_PSK_CIPHER_SUITES {
        let cipher = openssl_name(suite);
        let common = ["-quiet", "-tls1_2", "-cipher", &cipher, "-psk", PSK];
        let files = Files::default();
        let Identity { cert, key, .. } = Identity::new(&files);
        let own = ["-accept", "127.0.0.1:4433", "-cert", &cert, "-cert_chain", &cert, "-key", &key];
        let args = [&["s_server"], &own[..], &common, &["-psk_hint", "a hint"]].concat();
        let mut peer = Server::start(files, "openssl", &args);
        let mut link = client(&our_client(suite), &peer);
        greet(&mut link, &mut peer.process, suite);

        let (listener, port) = listen();
        let files = Files::default();
        let Identity { root, .. } = Identity::new(&files);
        let connect = format!("127.0.0.1:{port}");
        let own = ["-connect", &connect, "-psk_identity", "device-1", "-CAfile", &root];
        let verify = ["-verify_return_error", "-verify_hostname", "localhost"];
        let args = [&["s_client"], &own[..], &verify, &common].concat();
        let mut peer = Process::client("openssl", &args);
        let mut link = Link::accept(TlsConnection::server(&our_server(suite), now()), &listener);
        greet(&mut link, &mut peer, suite);
    }
}

#[test]
fn interoperates_with_gnutls() {
    for suite in TLS12_RSA_PSK_CIPHER_SUITES {
        let files = Files::default();
        let Identity { cert, key, .. } = Identity::new(&files);
        let keys = files.write("psk.txt", format!("device-1:{PSK}\n"));
        let args = [
            ["--port", "4433", "--echo", "--priority", GNUTLS],
            ["--x509certfile", &cert, "--x509keyfile", &key, "--pskpasswd"],
        ]
        .concat();
        let args = [&args[..], &[&keys]].concat();
        let peer = Server::start(files, "gnutls-serv", &args);
        let mut link = client(&our_client(suite), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{}: {e} / {}", suite.id, peer.process.errors()));
        assert_eq!(link.connection.negotiated().unwrap().cipher_suite, Some(suite.id));
        link.send(b"hello\n").unwrap();
        assert_eq!(link.receive(6).unwrap(), b"hello\n");

        let (listener, port) = listen();
        let files = Files::default();
        let (log, Identity { root, .. }) = (files.path("log"), Identity::new(&files));
        let args = [
            ["--port", &port, "--priority", GNUTLS, "--logfile", &log, "--x509cafile", &root],
            [
                "--pskusername",
                "device-1",
                "--pskkey",
                PSK,
                "--sni-hostname",
                "localhost",
                "--verify-hostname",
                "localhost",
            ],
        ];
        let args = [&args.concat()[..], &["127.0.0.1"]].concat();
        let mut peer = Process::client("gnutls-cli", &args);
        let mut link = Link::accept(TlsConnection::server(&our_server(suite), now()), &listener);
        greet(&mut link, &mut peer, suite);
    }
}
