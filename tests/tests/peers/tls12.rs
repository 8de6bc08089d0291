//! TLS 1.2 with OpenSSL's and GnuTLS's command lines, in both roles.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable, RawKeyTrust};
use dunlin::crypto::{Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::error::{Misuse, PeerIncompatible};
use dunlin::wire::{CipherSuite, ProtocolVersion};
use dunlin::{
    ClientAuth, ClientConfig, Error, Profile, ProfileBuilder, PskSource, ServerConfig, TlsConnection, Trust,
};
use dunlin_awslc::tls12::{
    TLS12_CIPHER_SUITES, TLS12_DHE_CIPHER_SUITES, TLS12_DHE_RSA_WITH_AES_128_CCM_8,
    TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8, TLS12_PSK_CIPHER_SUITES, TLS12_PSK_DHE_WITH_AES_128_CCM_8,
    TLS12_PSK_WITH_AES_128_CCM_8,
};
use dunlin_tests::ends::{KEYS, MIB, PSK, client_profile, client_with, server_config_with, server_profile};
use dunlin_tests::peer::{Files, Link, Process, Server, listen, now, text};
use dunlin_tests::{KeyType, Pki, awslc, full_awslc, localhost};

const GNUTLS: &str = "NORMAL:-VERS-ALL:+VERS-TLS1.2:+AES-128-CCM:+AES-128-CCM-8:+PSK:+ECDHE-PSK:+DHE-PSK:+DHE-RSA:+GROUP-FFDHE2048";

/// Every suite that the peers support. They have one AEAD suite with ECDHE_PSK.
fn suites() -> Vec<&'static Tls12CipherSuite> {
    let others = [
        &TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8,
        &TLS12_PSK_WITH_AES_128_CCM_8,
        &TLS12_DHE_RSA_WITH_AES_128_CCM_8,
        &TLS12_PSK_DHE_WITH_AES_128_CCM_8,
    ];
    let all = [TLS12_CIPHER_SUITES, TLS12_DHE_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES, &others].concat();
    let rfc8442 = |s: &&Tls12CipherSuite| (0xd001..=0xd005).contains(&s.id.0);
    all.into_iter().filter(|s| !rfc8442(s)).collect()
}

/// OpenSSL's name: without prefixes, and without hyphens inside algorithm names.
fn openssl_name(suite: CipherSuite) -> String {
    let name = suite.name().unwrap().strip_prefix("TLS_").unwrap();
    let name = name.replace("PSK_DHE_", "DHE_PSK_").replace("_WITH_", "_").replace("AES_", "AES");
    let name = name.replace("POLY1305_SHA256", "POLY1305");
    name.replace("CCM_8", "CCM8").replace('_', "-")
}

/// The kind of key for the suite's certificate.
fn key_type(suite: &Tls12CipherSuite) -> KeyType {
    match suite.authentication {
        Tls12Authentication::Ecdsa => KeyType::P256,
        _ => KeyType::Rsa2048,
    }
}

fn identity_args(files: &Files, typ: KeyType, is_server: bool) -> Vec<String> {
    let pki = Pki::shared(typ);
    let own = if is_server { &pki.server } else { &pki.client };
    let cert = files.write("cert.pem", own.chain_pem());
    let key = files.write("key.pem", own.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    ["-cert", &cert, "-cert_chain", &cert, "-key", &key, "-CAfile", &root, "-verify_return_error"]
        .map(str::to_owned)
        .to_vec()
}

/// A server with mutual X.509 of this kind, or with the PSK.
fn s_server(typ: Option<KeyType>, more: &[&str]) -> Server {
    let files = Files::default();
    let identity = match typ {
        Some(typ) => [identity_args(&files, typ, true), vec!["-Verify".to_owned(), "3".to_owned()]].concat(),
        None => ["-nocert", "-psk_identity", "device-1", "-psk", PSK].map(str::to_owned).to_vec(),
    };
    let mut args = vec!["s_server", "-accept", "127.0.0.1:4433"];
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    Server::start(files, "openssl", &args)
}

fn s_client(typ: Option<KeyType>, port: &str, more: &[&str]) -> (Process, Files) {
    let files = Files::default();
    let identity = match typ {
        Some(typ) => identity_args(&files, typ, false),
        None => ["-psk_identity", "device-1", "-psk", PSK].map(str::to_owned).to_vec(),
    };
    let connect = format!("127.0.0.1:{port}");
    let mut args = vec!["s_client", "-connect", &connect, "-servername", "localhost"];
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    (Process::client("openssl", &args), files)
}

/// Adds TLS 1.2 with these suites to a TLS 1.3 profile.
fn with_tls12(profile: ProfileBuilder, suites: Vec<&'static Tls12CipherSuite>) -> ProfileBuilder {
    let groups = [&full_awslc().groups[..], &[dunlin_legacy::ffdhe::FFDHE2048]].concat();
    profile.groups(groups).tls12_cipher_suites(suites)
}

fn psk() -> Psk {
    let key: Vec<u8> = (0..32).collect();
    Psk::new("device-1", &key).unwrap()
}

/// A Dunlin client with X.509 of this kind, or with the PSK.
fn client(typ: Option<KeyType>, suites: Vec<&'static Tls12CipherSuite>) -> TlsConnection {
    match typ {
        Some(typ) => client_with(with_tls12(client_profile(typ), suites), |c| c),
        None => {
            let profile = with_tls12(Profile::builder(awslc()), suites).build().unwrap();
            let config = ClientConfig::new(profile).with_psks(vec![Arc::new(psk())]);
            TlsConnection::client(&Arc::new(config), localhost(), now()).unwrap()
        }
    }
}

/// A Dunlin server with X.509 of this kind, which requires a client certificate, or with the PSK.
fn server(typ: Option<KeyType>, suites: Vec<&'static Tls12CipherSuite>) -> TlsConnection {
    match typ {
        Some(typ) => {
            let config = server_config_with(with_tls12(server_profile(typ), suites), |s| s);
            TlsConnection::server(&config, now())
        }
        None => {
            let profile = with_tls12(Profile::builder(awslc()), suites).build().unwrap();
            let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
            let config = ServerConfig::psk_only(profile, keys).unwrap();
            TlsConnection::server(&Arc::new(config), now())
        }
    }
}

fn assert_tls12(link: &Link, peer: &str) {
    let negotiated = link.connection.negotiated().unwrap();
    assert_eq!(negotiated.version, Some(ProtocolVersion::TLS1_2));
    assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), peer);
}

#[test]
fn exchanges_a_mebibyte_with_openssl_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521, KeyType::RsaPss2048]) {
        let mut peer = s_server(Some(typ), &["-quiet", "-tls1_2"]);
        let mut link = Link::to_server(client(Some(typ), suites()), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.process.errors()));
        assert_tls12(&link, "X.509 localhost");
        let data = text(MIB);
        link.send(&data).unwrap();
        assert!(peer.process.output_until("mebibyte", |o| o.len() >= MIB) == data);
        peer.process.feed(data.clone());
        assert!(link.receive(MIB).unwrap() == data);
        link.close();

        let (listener, port) = listen();
        let (mut peer, _files) = s_client(Some(typ), &port, &["-quiet", "-tls1_2"]);
        let mut link = Link::accept(server(Some(typ), suites()), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.errors()));
        assert_tls12(&link, "X.509 device-1");
        peer.feed(data.clone());
        assert!(link.receive(MIB).unwrap() == data);
        link.send(&data).unwrap();
        assert!(peer.output_until("mebibyte", |o| o.len() >= MIB) == data);
    }
}

#[test]
fn connects_to_openssl_with_every_suite() {
    for suite in suites() {
        let name = openssl_name(suite.id);
        let typ = Some(key_type(suite));
        let typ = typ.filter(|_| suite.authentication != Tls12Authentication::Psk);
        // OpenSSL's security level excludes tags of 8 bytes.
        let cipher = format!("{name}:@SECLEVEL=0");
        let options = ["-quiet", "-tls1_2", "-cipher", &cipher];
        // OpenSSL's finite fields are not those of RFC 7919.
        let kept = Files::default();
        let field = kept.path("field.pem");
        let made =
            ["genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe2048", "-out", &field];
        assert!(std::process::Command::new("openssl").args(made).output().unwrap().status.success());
        let mut peer = s_server(typ, &[&options[..], &["-dhparam", &field]].concat());
        let mut link = Link::to_server(client(typ, vec![suite]), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{name}: {e} / {}", peer.process.errors()));
        link.send(b"hello\n").unwrap();
        assert_eq!(peer.process.output_until("hello", |o| o.len() >= 6), b"hello\n");
        assert_eq!(link.connection.negotiated().unwrap().cipher_suite, Some(suite.id));

        let (listener, port) = listen();
        let (mut peer, _files) = s_client(typ, &port, &options);
        let mut link = Link::accept(server(typ, vec![suite]), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{name}: {e} / {}", peer.errors()));
        link.send(b"hello\n").unwrap();
        peer.output_until("hello", |o| o.ends_with(b"hello\n"));
    }
}

/// RFC 7919 §3: a server's field outside the RFC ends the handshake, and the error gives its length.
#[test]
fn client_refuses_openssls_own_fields() {
    let mut suites = TLS12_DHE_CIPHER_SUITES.iter().copied();
    let suite = suites.find(|s| s.authentication == Tls12Authentication::Psk).unwrap();
    let peer = s_server(None, &["-quiet", "-tls1_2", "-cipher", &openssl_name(suite.id)]);
    let mut link = Link::to_server(client(None, vec![suite]), &peer);
    link.handshake().unwrap_err();
    let error = link.connection.error().unwrap();
    let is_told = matches!(error, Error::PeerIncompatible(PeerIncompatible::FiniteField(2048..=8192)));
    assert!(is_told, "{error}");
}

#[test]
fn exporters_agree_with_openssl() {
    let (listener, port) = listen();
    let options = ["-tls1_2", "-keymatexport", "EXPORTER-of-a-test", "-keymatexportlen", "70"];
    let (mut peer, _files) = s_client(Some(KeyType::P256), &port, &options);
    let mut link = Link::accept(server(Some(KeyType::P256), suites()), &listener);
    link.handshake().unwrap();
    let mut ours = [0; 70];
    link.connection.export(b"EXPORTER-of-a-test", None, &mut ours).unwrap();
    let hex: String = ours.iter().map(|b| format!("{b:02X}")).collect();
    peer.output_until("keying material", |o| o.windows(140).any(|w| w == hex.as_bytes()));
    let mut with_context = [0; 70];
    link.connection.export(b"EXPORTER-of-a-test", Some(b""), &mut with_context).unwrap();
    assert_ne!(ours, with_context);
}

#[test]
fn peers_with_tls13_use_it() {
    let peer = s_server(Some(KeyType::P256), &["-quiet"]);
    let mut link = Link::to_server(client(Some(KeyType::P256), suites()), &peer);
    link.handshake().unwrap();
    let (listener, port) = listen();
    let (_peer, _files) = s_client(Some(KeyType::P256), &port, &["-quiet"]);
    let mut accepted = Link::accept(server(Some(KeyType::P256), suites()), &listener);
    accepted.handshake().unwrap();
    for link in [link, accepted] {
        assert_eq!(link.connection.negotiated().unwrap().version, Some(ProtocolVersion::TLS1_3));
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
    let mut args =
        ["--x509certfile", &cert, "--x509keyfile", &key, "--x509cafile", &root].map(str::to_owned).to_vec();
    if is_server {
        args.extend(["--require-client-cert", "--verify-client-cert"].map(str::to_owned));
    }
    args
}

fn gnutls_serv(typ: Option<KeyType>, priority: &str, more: &[&str]) -> Server {
    let files = Files::default();
    let identity = gnutls_identity(&files, typ, true);
    let mut args = vec!["--port", "4433", "--echo", "--priority", priority];
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    Server::start(files, "gnutls-serv", &args)
}

fn gnutls_cli(typ: Option<KeyType>, port: &str, priority: &str, more: &[&str]) -> (Process, Files) {
    let files = Files::default();
    let identity = gnutls_identity(&files, typ, false);
    let log = files.path("log");
    let mut args = vec!["--port", port, "--priority", priority, "--logfile", &log];
    args.extend(["--sni-hostname", "localhost", "--verify-hostname", "localhost"]);
    args.extend(identity.iter().map(String::as_str));
    args.extend(more);
    args.push("127.0.0.1");
    (Process::client("gnutls-cli", &args), files)
}

/// GnuTLS splits the echo into lines as it likes, so the test compares all bytes.
fn echo(link: &mut Link, data: &[u8]) {
    for part in data.chunks(8 * 1024) {
        link.send(part).unwrap();
        assert!(link.receive(part.len()).unwrap() == part, "the echo differs");
    }
}

#[test]
fn exchanges_a_mebibyte_with_gnutls_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521, KeyType::RsaPss2048]) {
        let peer = gnutls_serv(Some(typ), GNUTLS, &[]);
        let mut link = Link::to_server(client(Some(typ), suites()), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.process.errors()));
        assert_tls12(&link, "X.509 localhost");
        echo(&mut link, &text(MIB));
        link.close();

        let (listener, port) = listen();
        let (mut peer, _files) = gnutls_cli(Some(typ), &port, GNUTLS, &[]);
        let mut link = Link::accept(server(Some(typ), suites()), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.errors()));
        assert_tls12(&link, "X.509 device-1");
        let data = text(MIB);
        peer.feed(data.clone());
        assert!(link.receive(MIB).unwrap() == data);
        link.send(&data).unwrap();
        assert!(peer.output_until("mebibyte", |o| o.len() >= MIB).ends_with(&data));
    }
}

/// RFC 7627 §5.4: a connection without extended master secret has no exporter.
#[test]
fn exporter_requires_extended_master_secret() {
    for (priority, expected) in [(GNUTLS.to_owned(), true), (format!("{GNUTLS}:%NO_SESSION_HASH"), false)] {
        let peer = gnutls_serv(Some(KeyType::P256), &priority, &[]);
        let profile =
            with_tls12(client_profile(KeyType::P256), suites()).extended_master_secret_required(false);
        let client = client_with(profile, |c| c);
        let mut link = Link::to_server(client, &peer);
        link.handshake().unwrap();
        echo(&mut link, b"hello\n");
        let exported = link.connection.export(b"EXPORTER-test", None, &mut [0; 32]);
        let refused = matches!(exported, Err(Error::Misuse(Misuse::NotSupported(_))));
        assert_eq!((exported.is_ok(), refused), (expected, !expected));
    }
}

#[test]
fn connects_to_gnutls_with_every_suite() {
    for suite in suites() {
        let typ = Some(key_type(suite)).filter(|_| suite.authentication != Tls12Authentication::Psk);
        let name = suite.id;
        let peer = gnutls_serv(typ, GNUTLS, &[]);
        let mut link = Link::to_server(client(typ, vec![suite]), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{name}: {e} / {}", peer.process.errors()));
        echo(&mut link, b"hello\n");
        assert_eq!(link.connection.negotiated().unwrap().cipher_suite, Some(suite.id));

        // gnutls-cli 3.7.9 crashes after a handshake with a PSK and ephemeral keys, also with its own server.
        if typ.is_none() && suite.key_exchange != Tls12KeyExchange::Psk {
            continue;
        }
        let (listener, port) = listen();
        let (mut peer, _files) = gnutls_cli(typ, &port, GNUTLS, &[]);
        let mut link = Link::accept(server(typ, vec![suite]), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{name}: {e} / {}", peer.errors()));
        link.send(b"hello\n").unwrap();
        peer.output_until(&format!("hello over {name}"), |o| o.ends_with(b"hello\n"));
    }
}

#[test]
fn connects_to_gnutls_with_raw_keys() {
    let pki = Pki::shared(KeyType::P256);
    let provider = awslc();
    let profile = |is_client: bool| {
        let (own, peer) = if is_client { (&pki.client, &pki.server) } else { (&pki.server, &pki.client) };
        let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![peer.public_key.clone()])) };
        let profile = with_tls12(Profile::builder(provider.clone()), suites());
        profile.trust(trust).credentials(vec![own.raw_key(&provider)]).build().unwrap()
    };
    let files = |own: &dunlin_tests::Leaf| {
        let files = Files::default();
        let args = [
            "--rawpkfile".to_owned(),
            files.write("key.pub", own.public_key_pem()),
            "--rawpkkeyfile".to_owned(),
            files.write("key.pem", own.key_pem()),
        ];
        (files, args)
    };
    let priority = format!("{GNUTLS}:-CTYPE-ALL:+CTYPE-SRV-RAWPK:+CTYPE-CLI-RAWPK");
    let (kept, args) = files(&pki.server);
    let mut all = vec!["--port", "4433", "--echo", "--priority", &priority, "--require-client-cert"];
    all.extend(args.iter().map(String::as_str));
    let peer = Server::start(kept, "gnutls-serv", &all);
    let client = ClientConfig::new(profile(true));
    let client = TlsConnection::client(&Arc::new(client), localhost(), now()).unwrap();
    let mut link = Link::to_server(client, &peer);
    link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.process.errors()));
    assert_eq!(link.connection.negotiated().unwrap().version, Some(ProtocolVersion::TLS1_2));
    echo(&mut link, b"hello\n");

    let (listener, port) = listen();
    let (kept, args) = files(&pki.client);
    let log = kept.path("log");
    let mut all = vec!["--port", &port, "--priority", &priority, "--insecure", "--logfile", &log];
    all.extend(args.iter().map(String::as_str));
    all.push("127.0.0.1");
    let mut peer = Process::client("gnutls-cli", &all);
    let server = ServerConfig::new(profile(false)).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let mut link = Link::accept(TlsConnection::server(&Arc::new(server), now()), &listener);
    link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
    assert!(link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string().starts_with("raw key"));
    link.send(b"hello\n").unwrap();
    peer.output_until("hello", |o| o.ends_with(b"hello\n"));
}
