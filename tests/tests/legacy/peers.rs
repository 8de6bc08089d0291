//! OpenSSL as peer in both roles, at security level 0.

use std::sync::Arc;

use dunlin::crypto::{Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::{ClientConfig, ServerConfig, TlsConnection};
use dunlin_legacy::lab::identity::Identity;
use dunlin_legacy::lab::{LAB_512, LAB_1024, LAB_2048, TLS12_LEGACY_CIPHER_SUITES};
use dunlin_tests::localhost;
use dunlin_tests::peer::{Files, Link, Process, Server, listen, now};

use super::{FIELDS, client_profile, identities, profile, server_profile};

/// OpenSSL's name for a suite.
fn openssl_name(suite: &Tls12CipherSuite) -> String {
    let name = suite.id.name().unwrap().strip_prefix("TLS_").unwrap();
    let name = name.replace("DH_anon_", "ADH_").replace("_WITH_", "_").replace("AES_", "AES");
    let name = name.strip_prefix("RSA_").unwrap_or(&name);
    name.replace("CCM_8", "CCM8").replace('_', "-")
}

/// Writes the identity to files, and returns OpenSSL's options for them.
fn args(files: &Files, identity: Option<&Identity>, is_server: bool) -> Vec<String> {
    let Some(identity) = identity else {
        return if is_server { vec!["-nocert".to_owned()] } else { Vec::new() };
    };
    let write = |name: &str, pem: &str| files.write(name, pem);
    if is_server {
        let cert = write("cert.pem", identity.cert_pem);
        let key = write("key.pem", identity.key_pem);
        ["-cert", &cert, "-key", &key].map(str::to_owned).to_vec()
    } else {
        let root = write("root.pem", identity.root_pem);
        ["-CAfile", &root, "-verify_return_error", "-verify_hostname", "localhost"]
            .map(str::to_owned)
            .to_vec()
    }
}

/// Encodes an element in DER.
pub(super) fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let header = match len {
        0..128 => vec![tag, len as u8],
        128..256 => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [&header[..], content].concat()
}

/// Returns the parameters of a field in PEM, as `openssl dhparam` writes them.
pub(super) fn dhparam(field: &dyn dunlin::crypto::KeyExchangeGroup) -> String {
    let prime = der(2, &[&[0], field.finite_field().unwrap().prime].concat());
    pem::encode(&pem::Pem::new("DH PARAMETERS", der(0x30, &[&prime[..], &[2, 1, 2]].concat())))
}

fn greet(mut link: Link, peer: &mut Process, what: &str, suite: &Tls12CipherSuite) {
    link.handshake().unwrap_or_else(|e| panic!("{what}: {e} / {}", peer.errors()));
    assert_eq!(link.connection.negotiated().unwrap().cipher_suite, Some(suite.id), "{what}");
    link.send(b"hello\n").unwrap();
    peer.output_until("hello", |o| o.ends_with(b"hello\n"));
}

#[test]
fn interoperates_with_openssl_in_every_suite_and_key() {
    for suite in TLS12_LEGACY_CIPHER_SUITES {
        let cipher = format!("{}:@SECLEVEL=0", openssl_name(suite));
        for identity in identities(suite) {
            let what = format!("{} with {:?}", suite.id, identity.map(|i| i.name));
            let files = Files::default();
            let field = files.write("field.pem", dhparam(LAB_1024));
            let own = args(&files, identity, true);
            let mut all =
                vec!["s_server", "-accept", "127.0.0.1:4433", "-quiet", "-tls1_2", "-cipher", &cipher];
            // A static RSA key exchange needs no field.
            if suite.key_exchange == Tls12KeyExchange::Dhe {
                all.extend(["-dhparam", &field]);
            }
            all.extend(own.iter().map(String::as_str));
            let mut peer = Server::start(files, "openssl", &all);
            let client = ClientConfig::new(client_profile(suite, identity).build().unwrap());
            let client = TlsConnection::client(&Arc::new(client), localhost(), now()).unwrap();
            greet(Link::to_server(client, &peer), &mut peer.process, &what, suite);

            let (listener, port) = listen();
            let files = Files::default();
            let connect = format!("127.0.0.1:{port}");
            let own = args(&files, identity, false);
            let mut all = vec!["s_client", "-connect", &connect, "-quiet", "-tls1_2", "-cipher", &cipher];
            all.extend(own.iter().map(String::as_str));
            // With a key of 512 bits, OpenSSL must name the signature algorithms explicitly.
            if suite.authentication != Tls12Authentication::Anonymous {
                all.extend(["-sigalgs", "RSA+SHA256:DSA+SHA256"]);
            }
            let mut peer = Process::client("openssl", &all);
            let profile = server_profile(suite, identity).groups(vec![LAB_1024]);
            let server = ServerConfig::new(profile.build().unwrap()).unwrap();
            let server = TlsConnection::server(&Arc::new(server), now());
            greet(Link::accept(server, &listener), &mut peer, &what, suite);
        }
    }
}

#[test]
fn interoperates_with_gnutls_in_a_field_of_512_bits() {
    const PRIORITY: &str = "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ANON-DH:-GROUP-DH-ALL";
    let suite = &dunlin_legacy::lab::TLS12_DH_ANON_WITH_AES_128_GCM_SHA256;
    let files = Files::default();
    let params = files.write("field.pem", dhparam(LAB_512));
    let all = ["--port", "4433", "--echo", "--priority", PRIORITY, "--dhparams", &params];
    let peer = Server::start(files, "gnutls-serv", &all);
    let client = ClientConfig::new(profile(suite).build().unwrap());
    let client = TlsConnection::client(&Arc::new(client), localhost(), now()).unwrap();
    let mut link = Link::to_server(client, &peer);
    link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.process.errors()));
    assert_eq!(link.connection.negotiated().unwrap().group, Some(LAB_512.name()));

    let (listener, port) = listen();
    let files = Files::default();
    let log = files.path("log");
    let all = ["--port", &port, "--priority", PRIORITY, "--dh-bits", "512", "--logfile", &log, "127.0.0.1"];
    let mut peer = Process::client("gnutls-cli", &all);
    let server = ServerConfig::new(profile(suite).groups(vec![LAB_512]).build().unwrap()).unwrap();
    let link = Link::accept(TlsConnection::server(&Arc::new(server), now()), &listener);
    greet(link, &mut peer, "gnutls", suite);
}

#[test]
fn interoperates_with_openssl_in_every_field() {
    let suite = &dunlin_legacy::lab::TLS12_DH_ANON_WITH_AES_128_GCM_SHA256;
    // OpenSSL refuses fields of less than 1024 bits at every level.
    for field in [LAB_1024, LAB_2048] {
        let files = Files::default();
        let params = files.write("field.pem", dhparam(field));
        let cipher = "ADH-AES128-GCM-SHA256:@SECLEVEL=0";
        let all = ["s_server", "-accept", "127.0.0.1:4433", "-nocert", "-quiet", "-tls1_2"];
        let all = [&all[..], &["-cipher", cipher, "-dhparam", &params]].concat();
        let mut peer = Server::start(files, "openssl", &all);
        let client = ClientConfig::new(profile(suite).groups(FIELDS.to_vec()).build().unwrap());
        let client = TlsConnection::client(&Arc::new(client), localhost(), now()).unwrap();
        let link = Link::to_server(client, &peer);
        greet(link, &mut peer.process, &field.name().to_string(), suite);

        let (listener, port) = listen();
        let connect = format!("127.0.0.1:{port}");
        let all = ["s_client", "-connect", &connect, "-quiet", "-tls1_2", "-cipher", cipher];
        let mut peer = Process::client("openssl", &all);
        let server = ServerConfig::new(profile(suite).groups(vec![field]).build().unwrap()).unwrap();
        let link = Link::accept(TlsConnection::server(&Arc::new(server), now()), &listener);
        greet(link, &mut peer, &field.name().to_string(), suite);
    }
}
