//! TLS 1.2: the server's identity hint (RFC 4279 §5.2), and the client's choice of a key by it.

use std::sync::{Arc, Mutex};

use dunlin::auth::{ExternalPsk, Psk, PskTable};
use dunlin::crypto::{HashAlgorithm, Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::error::{Misuse, PeerIncompatible};
use dunlin::wire::{AlertDescription, HandshakeType};
use dunlin::{
    Answer, ClientConfig, Error, Now, Profile, ProfileBuilder, PskChoice, PskSource, Question, ServerConfig,
    TlsConnection, TransportKind,
};
use dunlin_awslc::tls12::{
    TLS12_CIPHER_SUITES, TLS12_DHE_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES, TLS12_PSK_WITH_AES_128_CCM_8,
};
use dunlin_tests::ends::PSK;
use dunlin_tests::peer::{Files, Link, Process, Server, listen, now};
use dunlin_tests::{NOW, Pair, awslc};

fn profile() -> ProfileBuilder {
    let groups = [&awslc().groups[..], &[dunlin_legacy::ffdhe::FFDHE2048]].concat();
    Profile::builder(awslc()).groups(groups).cipher_suites(vec![])
}

/// Every suite with a pre-shared key, with and without a share of the server.
fn suites() -> Vec<&'static Tls12CipherSuite> {
    let all = [TLS12_CIPHER_SUITES, TLS12_DHE_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES].concat();
    all.into_iter().filter(|s| s.authentication == Tls12Authentication::Psk).collect()
}

fn with(suite: &'static Tls12CipherSuite) -> Profile {
    profile().tls12_cipher_suites(vec![suite]).build().unwrap()
}

fn psk(identity: &str, byte: u8) -> Psk {
    Psk::new(identity, &[byte; 32]).unwrap()
}

fn server(profile: Profile, hint: &[u8]) -> Arc<ServerConfig> {
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk("of a", 1), psk("of b", 2)])));
    Arc::new(ServerConfig::psk_only(profile, keys).unwrap().with_psk_identity_hint(hint).unwrap())
}

/// The identity that the client showed to the server.
fn shown(pair: &Pair) -> String {
    pair.server.negotiated().unwrap().peer.as_ref().unwrap().to_string()
}

/// The hints that the client's choice has received.
type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

fn choosing(profile: Profile) -> (Arc<ClientConfig>, Heard) {
    let heard = Heard::default();
    let hears = heard.clone();
    let choose = move |hint: &[u8], _: Now| {
        hears.lock().unwrap().push(hint.to_vec());
        let of = |hint: &[u8]| match hint {
            b"a" => Some(psk("of a", 1)),
            b"b" => Some(psk("of b", 2)),
            _ => None,
        };
        of(hint).map(Arc::new)
    };
    let config = ClientConfig::new(profile).with_psk_choice(PskChoice::Here(Arc::new(choose)));
    (Arc::new(config), heard)
}

#[test]
fn client_chooses_its_key_by_the_hint() {
    for suite in suites() {
        for hint in ["a", "b"] {
            let (client, heard) = choosing(with(suite));
            let mut pair = Pair::new(&client, &server(with(suite), hint.as_bytes()));
            pair.connect().unwrap_or_else(|e| panic!("{}: {e}", suite.id));
            pair.echo(b"hello").unwrap();
            assert_eq!(*heard.lock().unwrap(), [hint.as_bytes()]);
            assert_eq!(shown(&pair), format!("PSK of {hint}"));
        }
        // Without a hint, the server omits a ServerKeyExchange that would be empty.
        let (client, heard) = choosing(with(suite));
        let mut pair = Pair::new(&client, &server(with(suite), b""));
        let error = pair.run().unwrap_err();
        // The server is not at fault, and nothing failed to decrypt.
        assert_eq!(
            (error.alert(), error),
            (Some(AlertDescription::HANDSHAKE_FAILURE), PeerIncompatible::NoPskForHint.into())
        );
        assert_eq!(*heard.lock().unwrap(), [b""]);
        let says = pair.server.messages().iter().any(|m| m.typ == HandshakeType::SERVER_KEY_EXCHANGE);
        assert_eq!(says, suite.key_exchange != Tls12KeyExchange::Psk, "{}", suite.id);
    }
}

/// RFC 4279 §5.2: the client ignores hints unless its application has defined their meaning.
#[test]
fn client_ignores_hints_by_default() {
    let suite = &TLS12_PSK_WITH_AES_128_CCM_8;
    let keys = [psk("of a", 1), psk("of b", 2)].map(Arc::new).to_vec();
    let client = Arc::new(ClientConfig::new(with(suite)).with_psks(keys));
    let mut pair = Pair::new(&client, &server(with(suite), b"b"));
    pair.connect().unwrap();
    assert_eq!(shown(&pair), "PSK of a");
}

#[test]
fn client_asks_the_caller_for_the_choice() {
    let suite = &TLS12_PSK_WITH_AES_128_CCM_8;
    let client = Arc::new(ClientConfig::new(with(suite)).with_psk_choice(PskChoice::Ask));
    let external =
        ExternalPsk { identity: b"of b", key: &[2; 32], hash: HashAlgorithm::Sha256, context: b"" };
    let imported = Psk::import(&awslc(), &external, TransportKind::Stream).unwrap().swap_remove(0);
    let no_psk = Err(PeerIncompatible::NoPskForHint.into());
    for (answer, result) in [(Some(psk("of b", 2)), Ok(())), (Some(imported), no_psk.clone()), (None, no_psk)]
    {
        let mut pair = Pair::new(&client, &server(with(suite), b"b"));
        pair.run().unwrap();
        let (id, question) = pair.client_question().unwrap();
        assert!(matches!(question, Question::ChoosePsk { hint } if hint == b"b"));
        assert_eq!(pair.client.answer(NOW, id, Answer::Psk(answer.map(Arc::new))), result);
        if result.is_ok() {
            pair.connect().unwrap();
            assert_eq!(shown(&pair), "PSK of b");
        }
    }
}

#[test]
fn hint_has_at_most_65535_bytes() {
    let with_hint = |len| {
        ServerConfig::psk_only(with(&TLS12_PSK_WITH_AES_128_CCM_8), PskSource::Ask)
            .unwrap()
            .with_psk_identity_hint(vec![7; len])
    };
    assert!(matches!(with_hint(65536), Err(Error::Misuse(Misuse::Config(_)))));
    with_hint(65535).unwrap();
    let (client, heard) = choosing(with(&TLS12_PSK_WITH_AES_128_CCM_8));
    let mut pair = Pair::new(&client, &server(with(&TLS12_PSK_WITH_AES_128_CCM_8), &[7; 2000]));
    assert_eq!(pair.run(), Err(PeerIncompatible::NoPskForHint.into()));
    assert_eq!(*heard.lock().unwrap(), [[7; 2000]]);
}

fn of_openssl() -> Psk {
    let key: Vec<u8> = (0..32).collect();
    Psk::new("device-1", &key).unwrap()
}

const OPENSSL: [&str; 8] = ["-tls1_2", "-cipher", "", "-psk_identity", "device-1", "-psk", PSK, "-quiet"];

/// OpenSSL's names for suites with and without a share of the server.
const CIPHERS: [&str; 3] =
    ["PSK-AES128-GCM-SHA256", "ECDHE-PSK-CHACHA20-POLY1305", "DHE-PSK-AES128-GCM-SHA256"];

#[test]
fn client_receives_hints_of_openssl() {
    // The last suite is left out: OpenSSL's finite field is not of RFC 7919.
    for cipher in &CIPHERS[..2] {
        let mut args = vec!["s_server", "-accept", "127.0.0.1:4433", "-nocert", "-psk_hint", "gateway"];
        args.extend(OPENSSL.map(|arg| if arg.is_empty() { cipher } else { arg }));
        let peer = Server::start(Files::default(), "openssl", &args);
        let heard = Heard::default();
        let hears = heard.clone();
        let choose = move |hint: &[u8], _: Now| {
            hears.lock().unwrap().push(hint.to_vec());
            Some(Arc::new(of_openssl()))
        };
        let profile = profile().tls12_cipher_suites(suites()).build().unwrap();
        let config = Arc::new(ClientConfig::new(profile).with_psk_choice(PskChoice::Here(Arc::new(choose))));
        let connection = TlsConnection::client(&config, dunlin_tests::localhost(), now()).unwrap();
        let mut link = Link::to_server(connection, &peer);
        link.handshake().unwrap_or_else(|e| panic!("{cipher}: {e} / {}", peer.process.errors()));
        assert_eq!(*heard.lock().unwrap(), [b"gateway"], "{cipher}");
    }
}

#[test]
fn openssls_client_receives_the_hint() {
    for cipher in CIPHERS {
        let (listener, port) = listen();
        let connect = format!("127.0.0.1:{port}");
        let mut args = vec!["s_client", "-connect", &connect, "-debug"];
        args.extend(OPENSSL.map(|arg| if arg.is_empty() { cipher } else { arg }));
        let mut peer = Process::client("openssl", &args);
        let profile = profile().tls12_cipher_suites(suites()).build().unwrap();
        let keys = PskSource::Here(Arc::new(PskTable::from_iter([of_openssl()])));
        let config = ServerConfig::psk_only(profile, keys).unwrap();
        let config = Arc::new(config.with_psk_identity_hint("gateway").unwrap());
        let mut link = Link::accept(TlsConnection::server(&config, now()), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{cipher}: {e} / {}", peer.errors()));
        let says = b"Received PSK identity hint 'gateway'";
        peer.output_until("the hint", |o| o.windows(says.len()).any(|w| w == says));
    }
}
