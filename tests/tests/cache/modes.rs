//! The bytes of each mode and version on the wire.

use std::sync::Arc;

use dunlin::auth::{PrivateKey, Psk, PskTable};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::CryptoProvider;
use dunlin::wire::{HandshakeType as T, ProtocolVersion, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, Credential, DtlsConnection, Event, ProfileBuilder, PskSource, ServerConfig,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES;
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::tamper::{extension, message, messages, records};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, carry, localhost};
use sha2::{Digest, Sha256};

use crate::hostile::{sent, server_after, set_extension};
use crate::{Setup, cached, connect, lengths, of_version, profile_of, setups};

const MODES: [CacheMode; 3] = [CacheMode::Rfc7924, CacheMode::Bithac, CacheMode::Compact];
const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::TLS1_2, ProtocolVersion::TLS1_3];
const P256: KeyType = KeyType::P256;

/// A server whose CertificateRequest is so long that every mode abbreviates it.
fn asking(version: ProtocolVersion) -> ProfileBuilder {
    let name = [&[0x30, 0x40][..], &[7; 64]].concat();
    of_version(version, profile_of(P256, false)).send_authorities(true).named_authorities(vec![name])
}

#[test]
fn abbreviated_messages_have_the_specified_sizes() {
    /// The header of a TLS 1.2 record: each of these messages has a record of its own.
    const RECORD: usize = 5;
    for (mode, [server, request, client]) in [
        (CacheMode::Rfc7924, [42, 42, usize::MAX]),
        (CacheMode::Bithac, [42, 42, 9]),
        (CacheMode::Compact, [9, 9, 9]),
    ] {
        let setup = Setup { version: ProtocolVersion::TLS1_2, mode };
        let ends = (
            setup.client(setup.profile(P256, true)),
            setup.server(asking(setup.version), ClientAuth::Required).0,
        );
        let (full, _) = connect(&ends.0, &ends.1);
        let (pair, what) = connect(&ends.0, &ends.1);
        assert_eq!(what, [true, mode != CacheMode::Rfc7924]);
        let certificates = lengths(&pair, T::CERTIFICATE);
        assert_eq!(certificates[0] + RECORD, server, "{mode:?}");
        assert_eq!(lengths(&pair, T::CERTIFICATE_REQUEST)[0] + RECORD, request, "{mode:?}");
        match mode {
            CacheMode::Rfc7924 => assert_eq!(certificates[1], lengths(&full, T::CERTIFICATE)[1]),
            _ => assert_eq!(certificates[1] + RECORD, client, "{mode:?}"),
        }
        // The client's cache extension costs less than the cache saves.
        assert!(pair.client_sent + pair.server_sent < full.client_sent + full.server_sent);
    }
}

/// The cache extensions of the Hellos take at most 8 bytes in a first handshake and 36 in a repeated one (the
/// paper: 8 and 111).
#[test]
fn cache_extensions_are_short() {
    for version in VERSIONS {
        let hellos = |pair: &Pair| -> usize {
            let types = [T::CLIENT_HELLO, T::SERVER_HELLO, T::ENCRYPTED_EXTENSIONS];
            types.into_iter().flat_map(|typ| lengths(pair, typ)).sum()
        };
        let plain = ServerConfig::new(asking(version).build().unwrap()).unwrap();
        let plain = Arc::new(plain.with_client_auth(ClientAuth::Required).unwrap());
        let profile = of_version(version, profile_of(P256, true)).build().unwrap();
        let (pair, _) = connect(&Arc::new(ClientConfig::new(profile)), &plain);
        let without = hellos(&pair);

        let setup = Setup { version, mode: CacheMode::Compact };
        let client = setup.client(setup.profile(P256, true));
        let (server, _) = setup.server(asking(version), ClientAuth::Required);
        for (bar, what) in [(8, [false; 2]), (36, [true; 2])] {
            let (pair, cached) = connect(&client, &server);
            assert_eq!(cached, what);
            let with = hellos(&pair);
            assert!(without < with && with <= without + bar, "{version}: {with} and {without} bytes");
        }
    }
}

/// BiTHaC does not abbreviate a short CertificateRequest: its fingerprint would cost more bytes than it
/// saves.
#[test]
fn bithac_does_not_abbreviate_a_short_request() {
    for (mode, is_abbreviated) in [(CacheMode::Bithac, false), (CacheMode::Compact, true)] {
        let (client, server, _) = Setup { version: ProtocolVersion::TLS1_2, mode }.ends(P256);
        let full = lengths(&connect(&client, &server).0, T::CERTIFICATE_REQUEST);
        assert!((13..=4 + 68).contains(&full[0]), "{full:?}");
        let repeated = lengths(&connect(&client, &server).0, T::CERTIFICATE_REQUEST);
        assert_eq!(repeated != full, is_abbreviated);
    }
}

/// A changed CertificateRequest is sent in full once; certificates stay omitted.
#[test]
fn changed_request_is_sent_in_full() {
    for setup in setups().filter(|setup| setup.is_tls12()) {
        let client = setup.client(setup.profile(P256, true));
        let store = Arc::new(MemoryServerCache::new(4));
        let server = |profile| Arc::new(setup.server_config(profile, ClientAuth::Required, &store));
        let [one, other] = [asking(setup.version), asking(setup.version).send_authorities(false)].map(server);
        let request = |server| {
            let (pair, what) = connect(&client, server);
            (lengths(&pair, T::CERTIFICATE_REQUEST)[0], what)
        };
        let (full, _) = request(&one);
        let (short, what) = request(&one);
        assert!(short < full && what == [true; 2]);
        let (changed, what) = request(&other);
        assert!(changed > short && what == [true; 2]);
        assert_eq!(request(&other), (short, [true; 2]));
    }
}

/// Two sides in different modes use what both modes support; no handshake fails.
#[test]
fn mixed_modes_use_what_both_support() {
    let names = |mode| mode != CacheMode::Compact;
    let tickets = |mode| mode != CacheMode::Rfc7924;
    for version in VERSIONS {
        for client_mode in MODES {
            for server_mode in MODES {
                let client = Setup { version, mode: client_mode };
                let server = Setup { version, mode: server_mode };
                let client = client.client(client.profile(P256, true));
                let (server, _) = server.server(asking(version), ClientAuth::Required);
                let both =
                    [names(client_mode) == names(server_mode), tickets(client_mode) && tickets(server_mode)];
                assert_eq!(connect(&client, &server).1, [false; 2]);
                for _ in 0..3 {
                    let what = connect(&client, &server).1;
                    assert_eq!(what, both, "{version} {client_mode:?} with {server_mode:?}");
                }
            }
        }
    }
}

/// A handshake of one version can use an entry from the other version.
#[test]
fn entries_serve_both_versions() {
    for mode in [CacheMode::Bithac, CacheMode::Compact] {
        for first in [0, 1] {
            let known = Arc::new(MemoryServerCache::new(4));
            let servers = VERSIONS.map(|version| {
                let setup = Setup { version, mode };
                Arc::new(setup.server_config(setup.profile(P256, false), ClientAuth::Required, &known))
            });
            let both = profile_of(P256, true).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec());
            let client = Setup { version: VERSIONS[1], mode }.client(both);
            for i in 0..6 {
                let at = (first + i) % 2;
                let (pair, what) = connect(&client, &servers[at]);
                assert_eq!(pair.client.negotiated().unwrap().version, Some(VERSIONS[at]));
                assert_eq!(what, [i > 0; 2], "handshake {i}");
                assert_eq!(known.len(), 1);
            }
        }
    }
}

/// The fingerprint of the Certificate message with this chain (RFC 5246 §7.4.2).
fn fingerprint(leaf: &Leaf) -> Vec<u8> {
    let u24 = |len: usize| (len as u32).to_be_bytes()[1..].to_vec();
    let list: Vec<u8> = leaf.chain.iter().flat_map(|c| [u24(c.len()), c.to_vec()].concat()).collect();
    Sha256::digest(message(11, &[&u24(list.len()), &list[..]].concat())).to_vec()
}

/// docs/handshake-cache.md §4, TLS 1.2: the client signs the transcript with the synthetic messages in their
/// places, and no others.
#[test]
fn client_signs_omitted_messages() {
    for mode in [CacheMode::Bithac, CacheMode::Compact] {
        let setup = Setup { version: ProtocolVersion::TLS1_2, mode };
        let pki = Pki::shared(KeyType::Ed25519);
        let client = setup.client(setup.profile(KeyType::Ed25519, true));
        let profile = setup.profile(KeyType::Ed25519, false);
        let names = vec![[&[0x30, 0x40][..], &[7; 64]].concat()];
        let (server, _) = setup.server(profile.named_authorities(names), ClientAuth::Required);
        let flights = || {
            let mut pair = Pair::new(&client, &server);
            let hello = pair.client.transmit().to_vec();
            carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
            let answer = pair.server.transmit().to_vec();
            carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
            let proof = pair.client.transmit().to_vec();
            pair.connect().unwrap();
            [hello, answer, proof].map(|flight| plaintext_messages(&flight))
        };
        let [_, full, _] = flights();
        let request =
            Sha256::digest(full.iter().find(|m| m[0] == T::CERTIFICATE_REQUEST.0).unwrap()).to_vec();
        let [hello, answer, proof] = flights();
        let cached_object = |fingerprint: &[u8]| [&[0xfd, 0, 0, 0x20][..], fingerprint].concat();
        let mut signed = hello.concat();
        for m in &answer {
            signed.extend(m);
            let typ = T(m[0]);
            let fingerprint = if typ == T::CERTIFICATE { fingerprint(&pki.server) } else { request.clone() };
            if [T::CERTIFICATE, T::CERTIFICATE_REQUEST].contains(&typ) {
                match mode {
                    CacheMode::Compact => {
                        assert_eq!(m.len(), 4);
                        signed.extend(cached_object(&fingerprint));
                    }
                    _ => assert_eq!(m[4..], [&[32], &fingerprint[..]].concat()),
                }
            }
        }
        let [certificate, exchange, verify] = &proof[..] else { panic!("{proof:?}") };
        assert_eq!(certificate[..], [T::CERTIFICATE.0, 0, 0, 0]);
        signed.extend(certificate);
        signed.extend(cached_object(&fingerprint(&pki.client)));
        signed.extend(exchange);
        let schemes = awslc().signatures.schemes;
        let (_, algorithms) = schemes.iter().find(|(s, _)| *s == SignatureScheme::ED25519).unwrap();
        let key = &pki.client.public_key;
        // A scheme and a length precede the signature.
        let key = &key[key.len() - 32..];
        assert!(algorithms[0].verify_signature(key, &signed, &verify[8..]).is_ok(), "{mode:?}");
    }
}

/// Returns the plaintext messages at the beginning of a flight.
fn plaintext_messages(flight: &[u8]) -> Vec<Vec<u8>> {
    let clear = records(flight).into_iter().take_while(|record| record[0] == 22);
    messages(&clear.flat_map(|record| record[5..].to_vec()).collect::<Vec<_>>())
}

/// RFC 7924 §3 and §4, byte for byte: the client's offer, the server's answer, and its Certificate. The test
/// computes the fingerprint itself, over the message of RFC 5246 §7.4.2.
#[test]
fn tls12_matches_rfc7924_byte_for_byte() {
    let setup = Setup { version: ProtocolVersion::TLS1_2, mode: CacheMode::Rfc7924 };
    let (client, server, store) = setup.ends(P256);
    let mut first = Pair::new(&client, &server);
    let hello = first.client.transmit().to_vec();
    assert_eq!(extension(&hello, 25), None, "the cache is empty");
    first.connect().unwrap();

    let fingerprint = fingerprint(&Pki::shared(P256).server);

    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.transmit().to_vec();
    let offer = [&[0, 25, 0, 36, 0, 34, 1, 32][..], &fingerprint].concat();
    assert!(hello.windows(offer.len()).any(|w| w == offer));
    pair.server.receive(NOW, &hello).unwrap();
    let flight = pair.server.transmit().to_vec();
    assert!(flight.windows(7).any(|w| w == [0, 25, 0, 3, 0, 1, 1]));
    let abbreviated = [&[11, 0, 0, 33, 32][..], &fingerprint].concat();
    assert!(flight.windows(abbreviated.len()).any(|w| w == abbreviated));
    pair.client.transmitted(hello.len());
    pair.connect().unwrap();
    assert_eq!(cached(&pair), [true, false]);
    // RFC 7924 alone does not cache clients.
    assert!(store.is_empty());
}

/// The certificate of RFC 7924, appendix A, figure 6.
const RFC_7924_CERTIFICATE: &str = "\
    3082022c308201b2a00302010202010d300a06082a8648ce3d040302303e310b3009060355040613024e4c3111300f060355040a1308506f\
    6c617253534c311c301a06035504031313506f6c617273736c2054657374204543204341301e170d3133303932343135353230345a170d32\
    33303932323135353230345a3041310b3009060355040613024e4c3111300f060355040a1308506f6c617253534c311f301d060355040313\
    16506f6c617253534c205465737420436c69656e7420323059301306072a8648ce3d020106082a8648ce3d0301070342000457e5aeb173df\
    d3acbb93b881ff12aeeee653acce5553f6340ecc2ee363250bdf98e2f35c603696c0d5181470e57f9fd54b4518e5b06cd55cf8968f8770a3\
    e4c7a3819d30819a30090603551d1304023000301d0603551d0e041604147a005f8664fce05de511103bb2e63bc4263fcfe2306e0603551d\
    230467306580149d6d202449013f2bcb78b519bc7e24c9dbfb367ca142a440303e310b3009060355040613024e4c3111300f060355040a13\
    08506f6c617253534c311c301a06035504031313506f6c617273736c2054657374204543204341820900c143e27e6243cce8300a06082a86\
    48ce3d040302036800306502304a650d7b2083a299b9a80ffc8dee8f3dbb704c9603ac8e7870ddf20ea0b216cb658e1ac93f2c617ef83cef\
    ad1cee36200231009df227a6d574b824aee16a3f31a1ca542f08d08dee4f0c61df77787db4fdfc4249eee5b26ac2cd2677628e287c9e5745";
/// The fingerprint of the Certificate message with this certificate.
const RFC_7924_FINGERPRINT: &str = "086eefb4859adfe977defac494fff6b73033b4ce1f86b8f2a9fc0c6bf98605af";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// A server with the certificate of the RFC's example accepts the fingerprint of the RFC's example.
#[test]
fn server_accepts_the_fingerprint_of_rfc7924() {
    let setup = Setup { version: ProtocolVersion::TLS1_2, mode: CacheMode::Rfc7924 };
    let key = PrivateKey::Elsewhere {
        schemes: vec![SignatureScheme::ECDSA_SECP256R1_SHA256],
        label: "unavailable".to_owned(),
    };
    let chain = vec![bytes(RFC_7924_CERTIFICATE).into()];
    let profile = setup.profile(P256, false).credentials(vec![Credential::X509 { chain, key }]);
    let (server, _) = setup.server(profile, ClientAuth::None);
    let client = setup.client(setup.profile(P256, true));
    let pair = Pair::new(&client, &server);
    let mut offer = [&[0, 34, 1, 32][..], &bytes(RFC_7924_FINGERPRINT)].concat();
    for certificate in [4 + 33, 4 + 3 + 3 + 560] {
        let says = server_after(&pair, &server, |hello| set_extension(hello, 25, Some(&offer)));
        assert_eq!(sent(&says, T::CERTIFICATE), certificate);
        // The second offer has a wrong fingerprint.
        offer[35] ^= 1;
    }
}

/// A handshake whose key exchange is not signed by a certificate neither uses nor changes the cache.
#[test]
fn psk_handshakes_of_tls12_leave_the_cache_alone() {
    for setup in setups().filter(|setup| setup.is_tls12()) {
        let psk = || Psk::new("device-1", &[7; 32]).unwrap();
        let store = Arc::new(MemoryServerCache::new(4));
        let suites = [TLS12_PSK_CIPHER_SUITES, TLS12_CIPHER_SUITES].concat();
        let profile = |is_client| setup.profile(P256, is_client).tls12_cipher_suites(suites.clone());
        let server = setup.server_config(profile(false), ClientAuth::Required, &store);
        let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
        let server = Arc::new(server.with_psks(keys));
        let known = Arc::new(MemoryClientCache::default());
        let client = setup.client_config(profile(true), &known);
        let by_key = Arc::new(client.clone().with_psks(vec![Arc::new(psk())]));
        let client = Arc::new(client);

        let run = |client: &Arc<ClientConfig>| {
            let mut pair = Pair::new(client, &server);
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
            cached(&pair)
        };
        assert_eq!(run(&by_key), [false; 2]);
        assert!(store.is_empty());
        assert_eq!(run(&client), [false; 2]);
        assert_eq!(run(&client), [true; 2]);
        // The handshake with the PSK leaves the tickets as they are.
        assert_eq!(run(&by_key), [false; 2]);
        assert_eq!(run(&client), [true; 2]);
    }
}

/// In RSA_PSK the certificate does not sign.
#[test]
fn rsa_psk_handshakes_leave_the_cache_alone() {
    for setup in setups().filter(|setup| setup.is_tls12()) {
        let psk = || Psk::new("device-1", &[7; 32]).unwrap();
        let provider = Arc::new(CryptoProvider {
            key_loader: dunlin_legacy::rsa::KEY_LOADER,
            ..dunlin_awslc::provider()
        });
        let pki = Pki::shared(KeyType::Rsa2048);
        let profile = |is_client| {
            let profile =
                setup.profile(KeyType::Rsa2048, is_client).rsa_encryption(dunlin_legacy::rsa::ENCRYPTION);
            let profile = profile.tls12_cipher_suites(TLS12_RSA_PSK_CIPHER_SUITES.to_vec());
            if is_client { profile } else { profile.credentials(vec![pki.server.x509(&provider)]) }
        };
        let server = Arc::new(MemoryServerCache::new(4));
        let store = Arc::new(MemoryClientCache::default());
        let client = setup.client_config(profile(true), &store).with_psks(vec![Arc::new(psk())]);
        let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
        let config = setup.server_config(profile(false), ClientAuth::None, &server).with_psks(keys);
        let client = Arc::new(client);
        let config = Arc::new(config);
        for _ in 0..2 {
            let mut pair = Pair::new(&client, &config);
            pair.connect().unwrap();
            assert!(lengths(&pair, T::CERTIFICATE)[0] > 500);
            assert!(server.is_empty());
        }
    }
}

/// RFC 5746: a renegotiation sends everything, even if the connection's first handshake was abbreviated.
#[test]
fn renegotiation_omits_nothing() {
    for setup in setups().filter(|setup| setup.is_tls12()) {
        let profile = |is_client| setup.profile(P256, is_client).renegotiation(true);
        let client = setup.client(profile(true));
        let (server, store) = setup.server(profile(false), ClientAuth::Required);
        connect(&client, &server);
        let (mut pair, what) = connect(&client, &server);
        assert_eq!(what, [true; 2]);
        pair.client.renegotiate(NOW).unwrap();
        pair.run().unwrap();
        assert!(pair.client_events.iter().any(|event| matches!(event, Event::Renegotiated)));
        assert_eq!(cached(&pair), [false; 2]);
        assert_eq!(store.len(), 1);
        pair.echo(b"again").unwrap();
        // The entries of the first handshake are still valid.
        assert_eq!(connect(&client, &server).1, [true; 2]);
    }
}

/// Nothing is cached if either side has no cache.
#[test]
fn caches_are_unused_if_one_side_has_none() {
    for version in VERSIONS {
        let profile = |is_client| of_version(version, profile_of(P256, is_client)).build().unwrap();
        let plain = Arc::new(ClientConfig::new(profile(true)));
        let hello = Pair::new(&plain, &Arc::new(ServerConfig::new(profile(false)).unwrap()));
        assert_eq!(extension(hello.client.transmit(), 0xff20), None);
        for mode in MODES {
            let setup = Setup { version, mode };
            let (server, store) = setup.server(setup.profile(P256, false), ClientAuth::Required);
            for _ in 0..2 {
                assert_eq!(connect(&plain, &server).1, [false; 2]);
            }
            assert!(store.is_empty());
            let config = ServerConfig::new(profile(false)).unwrap();
            let without = Arc::new(config.with_client_auth(ClientAuth::Required).unwrap());
            let client = ClientConfig::new(profile(true));
            let known = Arc::new(MemoryClientCache::default());
            let client = Arc::new(client.with_handshake_cache(mode, known, DEFAULT_MAX_AGE));
            for _ in 0..3 {
                assert_eq!(connect(&client, &without).1, [false; 2]);
            }
        }
    }
}

/// Streams can use the entries of datagrams and vice versa, also after a HelloRetryRequest.
#[test]
fn entries_serve_streams_and_datagrams() {
    for mode in [CacheMode::Bithac, CacheMode::Compact] {
        let setup = Setup { version: ProtocolVersion::TLS1_3, mode };
        let known = Arc::new(MemoryClientCache::default());
        let client = setup.client_config(setup.profile(P256, true), &known);
        let retried = Arc::new(client.clone().with_key_shares(vec![]).unwrap());
        let client = Arc::new(client);
        let (server, store) = setup.server(setup.profile(P256, false), ClientAuth::Required);
        assert_eq!(connect(&client, &server).1, [false; 2]);
        for client in [&client, &retried] {
            assert_eq!(over_datagrams(client, &server), [true; 2]);
            let (pair, what) = connect(client, &server);
            assert_eq!(what, [true; 2]);
            assert_eq!(pair.client.negotiated().unwrap().retried, Arc::ptr_eq(client, &retried));
            assert_eq!(store.len(), 1);
        }
    }
}

fn over_datagrams(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> [bool; 2] {
    let mut client = DtlsConnection::client(client, localhost(), SERVER_ADDRESS, NOW).unwrap();
    let mut server = DtlsConnection::server(server, CLIENT_ADDRESS, NOW);
    loop {
        let mut silent = true;
        while let Some(sent) = client.poll_transmit(NOW) {
            server.receive(NOW, CLIENT_ADDRESS, &sent.datagram).unwrap();
            silent = false;
        }
        while let Some(sent) = server.poll_transmit(NOW) {
            client.receive(NOW, SERVER_ADDRESS, &sent.datagram).unwrap();
            silent = false;
        }
        if silent {
            break;
        }
    }
    [client, server].map(|end| end.negotiated().unwrap().is_peer_cached())
}
