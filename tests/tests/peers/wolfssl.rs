//! wolfSSL as the peer, in both roles and both versions: a program over Debian's library
//! (`tests/peers/wolfssl`), which echoes.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use dunlin::auth::{Psk, PskTable};
use dunlin::crypto::{KeyExchangeGroup, Tls12CipherSuite, Tls13CipherSuite};
use dunlin::wire::{CipherSuite, ProtocolVersion, PskKeyExchangeMode};
use dunlin::{ClientConfig, Event, Profile, ProfileBuilder, PskSource, ServerConfig, TlsConnection};
use dunlin_awslc::tls12::{
    TLS12_CIPHER_SUITES, TLS12_DHE_CIPHER_SUITES, TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8,
    TLS12_PSK_CIPHER_SUITES,
};
use dunlin_awslc::{
    TLS13_AES_128_CCM_8_SHA256, TLS13_AES_128_CCM_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384,
    TLS13_CHACHA20_POLY1305_SHA256,
};
use dunlin_tests::ends::{client_profile, client_with, server_config_with, server_profile};
use dunlin_tests::peer::{Files, Link, Process, listen, now, text};
use dunlin_tests::{KeyType, Pki, awslc, localhost};

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/wolfssl/peer.c");
        let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/wolfssl-peer");
        let mut build = Command::new("cc");
        build.args(["-O1", "-Wall", "-o", program]).arg(source).arg("-lwolfssl");
        let output = build.output().expect("cc: `tools/setup test` installs what the tests take");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program.to_owned()
    })
}

/// A suite of both sides by wolfSSL's name and number, with certificates of a kind, or with the PSK.
#[derive(Clone, Copy, Debug)]
struct Case(&'static str, CipherSuite, Option<KeyType>);

const P256: Option<KeyType> = Some(KeyType::P256);
const RSA: Option<KeyType> = Some(KeyType::Rsa2048);

const TLS12: [Case; 13] = [
    Case("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, P256),
    Case("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, P256),
    Case("ECDHE-ECDSA-AES128-CCM", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_CCM, P256),
    Case("ECDHE-ECDSA-AES128-CCM-8", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8, P256),
    Case("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, P256),
    Case("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, RSA),
    Case("DHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_DHE_RSA_WITH_AES_256_GCM_SHA384, RSA),
    // Debian's wolfSSL has no other suite with PSKs alone.
    Case("PSK-CHACHA20-POLY1305", CipherSuite::TLS_PSK_WITH_CHACHA20_POLY1305_SHA256, None),
    Case("DHE-PSK-AES128-GCM-SHA256", CipherSuite::TLS_DHE_PSK_WITH_AES_128_GCM_SHA256, None),
    Case("DHE-PSK-AES256-GCM-SHA384", CipherSuite::TLS_DHE_PSK_WITH_AES_256_GCM_SHA384, None),
    Case("DHE-PSK-AES128-CCM", CipherSuite::TLS_DHE_PSK_WITH_AES_128_CCM, None),
    // RFC 8442, which neither OpenSSL nor GnuTLS supports.
    Case("ECDHE-PSK-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256, None),
    Case("ECDHE-PSK-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256, None),
];

const TLS13: [Case; 6] = [
    Case("TLS13-AES128-GCM-SHA256", CipherSuite::TLS_AES_128_GCM_SHA256, P256),
    Case("TLS13-AES256-GCM-SHA384", CipherSuite::TLS_AES_256_GCM_SHA384, RSA),
    Case("TLS13-CHACHA20-POLY1305-SHA256", CipherSuite::TLS_CHACHA20_POLY1305_SHA256, P256),
    Case("TLS13-AES128-CCM-SHA256", CipherSuite::TLS_AES_128_CCM_SHA256, P256),
    Case("TLS13-AES128-CCM-8-SHA256", CipherSuite::TLS_AES_128_CCM_8_SHA256, P256),
    Case("TLS13-AES128-GCM-SHA256", CipherSuite::TLS_AES_128_GCM_SHA256, None),
];

const TLS13_SUITES: [&Tls13CipherSuite; 5] = [
    &TLS13_AES_128_GCM_SHA256,
    &TLS13_AES_256_GCM_SHA384,
    &TLS13_CHACHA20_POLY1305_SHA256,
    &TLS13_AES_128_CCM_SHA256,
    &TLS13_AES_128_CCM_8_SHA256,
];

fn tls12_suite(id: CipherSuite) -> Option<&'static Tls12CipherSuite> {
    let others = [&TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8];
    [TLS12_CIPHER_SUITES, TLS12_DHE_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES, &others]
        .concat()
        .into_iter()
        .find(|suite| suite.id == id)
}

/// A profile with only this suite of TLS 1.2 or 1.3.
fn with_suite(profile: ProfileBuilder, id: CipherSuite) -> ProfileBuilder {
    match tls12_suite(id) {
        Some(suite) => {
            // With ECDHE_PSK, wolfSSL's client refuses shares on X25519: "Bad ECC Peer Key".
            let groups: [&dyn KeyExchangeGroup; 2] =
                [dunlin_awslc::SECP256R1, dunlin_legacy::ffdhe::FFDHE2048];
            profile.groups(groups.to_vec()).cipher_suites(vec![]).tls12_cipher_suites(vec![suite])
        }
        None => {
            let suite = TLS13_SUITES.into_iter().find(|suite| suite.id == id).unwrap();
            profile.cipher_suites(vec![suite]).psk_modes(vec![PskKeyExchangeMode::PSK_DHE_KE])
        }
    }
}

fn psk() -> Psk {
    Psk::new("device-1", &(0..32).collect::<Vec<u8>>()).unwrap()
}

fn client(Case(_, id, typ): Case) -> TlsConnection {
    if let Some(typ) = typ {
        return client_with(with_suite(client_profile(typ), id), |c| c);
    }
    let profile = with_suite(Profile::builder(awslc()), id).build().unwrap();
    let config = ClientConfig::new(profile).with_psks(vec![Arc::new(psk())]);
    TlsConnection::client(&Arc::new(config), localhost(), now()).unwrap()
}

fn server(Case(_, id, typ): Case) -> TlsConnection {
    if let Some(typ) = typ {
        return TlsConnection::server(&server_config_with(with_suite(server_profile(typ), id), |s| s), now());
    }
    let profile = with_suite(Profile::builder(awslc()), id).build().unwrap();
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    TlsConnection::server(&Arc::new(ServerConfig::psk_only(profile, keys).unwrap()), now())
}

/// Connects to the peer in this role, exchanges data in both directions, and closes both sides.
fn converse(role: &str, version: ProtocolVersion, case: Case, own: TlsConnection) {
    let Case(name, id, typ) = case;
    let (listener, port) = listen();
    let number = if version == ProtocolVersion::TLS1_3 { "1.3" } else { "1.2" };
    let files = Files::default();
    let mut args = vec![role.to_owned(), port, number.to_owned(), name.to_owned()];
    if let Some(typ) = typ {
        let pki = Pki::shared(typ);
        let leaf = if role == "server" { &pki.server } else { &pki.client };
        args.push(files.write("root.pem", pki.root_pem()));
        args.push(files.write("chain.pem", leaf.chain_pem()));
        args.push(files.write("key.pem", leaf.key_pem()));
    }
    let mut peer = Process::client(program(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut link = Link::accept(own, &listener);
    link.handshake().unwrap_or_else(|e| panic!("{role} {case:?}: {e} / {}", peer.errors()));
    let connected = format!("connected TLSv{number}\n");
    peer.output_until(&connected, |o| o == connected.as_bytes());
    let negotiated = link.connection.negotiated().unwrap();
    assert_eq!((negotiated.version, negotiated.cipher_suite), (Some(version), Some(id)));
    let expected = match (typ, role) {
        (None, _) => "PSK device-1",
        (Some(_), "server") => "X.509 localhost",
        (Some(_), _) => "X.509 device-1",
    };
    assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), expected);
    // More than a record, but no more than both sides buffer while neither reads.
    let data = text(40_000);
    link.send(&data).unwrap();
    assert!(link.receive(data.len()).unwrap() == data, "the echo differs");
    link.close();
    link.wait_for(|e| matches!(e, Event::PeerClosed)).unwrap();
    peer.output_until("closed", |o| o.ends_with(b"closed\n"));
}

#[test]
fn connects_to_its_server_with_tls12() {
    for case in TLS12 {
        converse("server", ProtocolVersion::TLS1_2, case, client(case));
    }
}

#[test]
fn connects_to_its_client_with_tls12() {
    for case in TLS12 {
        converse("client", ProtocolVersion::TLS1_2, case, server(case));
    }
}

#[test]
fn connects_to_its_server_with_tls13() {
    for case in TLS13 {
        converse("server", ProtocolVersion::TLS1_3, case, client(case));
    }
}

#[test]
fn connects_to_its_client_with_tls13() {
    for case in TLS13 {
        converse("client", ProtocolVersion::TLS1_3, case, server(case));
    }
}
