//! Certificate compression (RFC 8879): each direction separately, and peers that send invalid compressed
//! messages.

use std::sync::Arc;

use dunlin::compression::{
    CertificateCompressor, CertificateDecompressor, CompressionFailed, ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR,
};
use dunlin::error::PeerMisbehaved;
use dunlin::wire::{AlertDescription as Alert, CertificateCompressionAlgorithm as Algorithm, HandshakeType};
use dunlin::{ClientAuth, ClientConfig, Error, Profile, ProfileBuilder, ServerConfig, Trust};
use dunlin_tests::tamper::{Secrets, message, rewrite};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, providers};

fn profile(pki: &Pki, own: &Leaf) -> ProfileBuilder {
    Profile::builder(awslc())
        .trust(Trust { x509: Some(pki.trust()), raw_key: None })
        .credentials(vec![own.x509(&awslc())])
}

/// Compresses and decompresses zlib.
fn both(builder: ProfileBuilder) -> ProfileBuilder {
    reads(builder).certificate_compressors(vec![ZLIB_COMPRESSOR])
}

fn reads(builder: ProfileBuilder) -> ProfileBuilder {
    builder.certificate_decompressors(vec![ZLIB_DECOMPRESSOR])
}

fn mutual(client: ProfileBuilder, server: ProfileBuilder) -> Pair {
    let client = ClientConfig::new(client.build().unwrap());
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
}

/// Returns the length of the Certificate message that each side received, and its compression.
fn received(pair: &Pair) -> [(usize, Option<Algorithm>); 2] {
    [&pair.client, &pair.server].map(|side| {
        let is_certificate =
            |t| matches!(t, HandshakeType::CERTIFICATE | HandshakeType::COMPRESSED_CERTIFICATE);
        let message = side.messages().iter().find(|m| !m.sent && is_certificate(m.typ)).unwrap();
        (message.len, side.negotiated().unwrap().peer_certificate_compression)
    })
}

#[test]
fn compresses_both_directions_with_every_key() {
    for typ in dunlin_tests::KEY_TYPES {
        let pki = Pki::shared(typ);
        let mut plain = mutual(profile(pki, &pki.client), profile(pki, &pki.server));
        plain.connect().unwrap();
        let mut pair = mutual(both(profile(pki, &pki.client)), both(profile(pki, &pki.server)));
        pair.connect().unwrap();
        pair.echo(b"hello").unwrap();
        for ((plain, none), (compressed, zlib)) in received(&plain).into_iter().zip(received(&pair)) {
            assert_eq!((none, zlib), (None, Some(Algorithm::ZLIB)));
            assert!(compressed < plain, "{typ:?}: {compressed} bytes instead of {plain}");
        }
        let server = pair.server.negotiated().unwrap();
        assert_eq!(server.own_certificate_compression, Some(Algorithm::ZLIB));
        assert_eq!(server.peer.as_ref().unwrap().to_string(), "X.509 device-1");
    }
}

#[test]
fn compresses_each_direction_separately() {
    let pki = Pki::shared(KeyType::P256);
    let client = profile(pki, &pki.client);
    let server = profile(pki, &pki.server);
    let zlib = Some(Algorithm::ZLIB);
    for (client, server, expected) in [
        (reads(client.clone()), both(server.clone()), [zlib, None]),
        (both(client.clone()), reads(server.clone()), [None, zlib]),
        (reads(client.clone()), server.clone(), [None, None]),
        (client, both(server), [None, None]),
    ] {
        let mut pair = mutual(client, server);
        pair.connect().unwrap();
        assert_eq!(received(&pair).map(|(_, algorithm)| algorithm), expected);
    }
}

#[test]
fn compresses_after_a_retry_and_with_every_provider() {
    let pki = Pki::shared(KeyType::P256);
    for provider in providers() {
        let profile = |own: &Leaf| {
            both(Profile::builder(provider.clone()))
                .trust(Trust { x509: Some(pki.trust()), raw_key: None })
                .credentials(vec![own.x509(&provider)])
                .build()
                .unwrap()
        };
        let client = ClientConfig::new(profile(&pki.client)).with_key_shares(vec![]).unwrap();
        let server = ServerConfig::new(profile(&pki.server)).unwrap().with_cookies(true);
        let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
        pair.connect().unwrap();
        let negotiated = pair.client.negotiated().unwrap();
        assert!(negotiated.retried && negotiated.peer_certificate_compression == Some(Algorithm::ZLIB));
    }
}

/// A compressor that makes every message longer, and its decompressor.
#[derive(Debug)]
struct Inflating;

impl CertificateCompressor for Inflating {
    fn algorithm(&self) -> Algorithm {
        Algorithm(0xff01)
    }

    fn compress(&self, message: &[u8]) -> Result<Vec<u8>, CompressionFailed> {
        Ok([message, b"!"].concat())
    }
}

impl CertificateDecompressor for Inflating {
    fn algorithm(&self) -> Algorithm {
        Algorithm(0xff01)
    }

    fn decompress(&self, compressed: &[u8], message: &mut [u8]) -> Result<(), CompressionFailed> {
        message.copy_from_slice(&compressed[..message.len()]);
        Ok(())
    }
}

#[test]
fn compresses_only_if_the_message_becomes_smaller() {
    let pki = Pki::shared(KeyType::P256);
    let client = profile(pki, &pki.client).certificate_decompressors(vec![&Inflating, ZLIB_DECOMPRESSOR]);
    let server = profile(pki, &pki.server).certificate_compressors(vec![&Inflating, ZLIB_COMPRESSOR]);
    let mut pair = mutual(client.clone(), server);
    pair.connect().unwrap();
    assert_eq!(pair.client.negotiated().unwrap().peer_certificate_compression, Some(Algorithm::ZLIB));
    let server = profile(pki, &pki.server).certificate_compressors(vec![&Inflating]);
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    assert_eq!(pair.client.negotiated().unwrap().peer_certificate_compression, None);
}

#[test]
fn profile_refuses_duplicate_algorithms() {
    let pki = Pki::shared(KeyType::P256);
    let twice = vec![ZLIB_DECOMPRESSOR, ZLIB_DECOMPRESSOR];
    let error = profile(pki, &pki.client).certificate_decompressors(twice).build().unwrap_err();
    assert!(error.to_string().contains("compression algorithm stands twice"), "{error}");
}

/// Returns the client's result for a changed CompressedCertificate, and its alert. The client offers zlib.
fn edited(edit: impl Fn(Vec<u8>) -> Vec<u8>) -> (Result<(), Error>, Option<Alert>) {
    let pki = Pki::shared(KeyType::P256);
    let secrets = Arc::new(Secrets::default());
    let server = both(profile(pki, &pki.server)).key_log(Some(secrets.clone()));
    let mut pair = mutual(both(profile(pki, &pki.client)), server);
    let hello = pair.client.transmit().to_vec();
    pair.server.receive(NOW, &hello).unwrap();
    let flight = pair.server.transmit().to_vec();
    let suite = awslc().cipher_suites[0].id;
    let secret = secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    let flight = rewrite(&awslc(), suite, &secret, &flight, |mut messages| {
        let at = messages.iter().position(|m| m[0] == HandshakeType::COMPRESSED_CERTIFICATE.0).unwrap();
        messages[at] = message(messages[at][0], &edit(messages[at][4..].to_vec()));
        messages
    });
    let result = pair.client.receive(NOW, &flight).map(|_| ());
    let alert = result.as_ref().err().and_then(Error::alert);
    (result, alert)
}

#[test]
fn client_rejects_wrong_lengths_and_damaged_contents() {
    // algorithm (2), uncompressed_length (3), length (3), content
    type Lie = (&'static str, fn(Vec<u8>) -> Vec<u8>);
    let lies: [Lie; 6] = [
        ("one byte longer", |mut m| {
            m[4] = m[4].wrapping_add(1);
            m
        }),
        ("one byte shorter", |mut m| {
            m[4] = m[4].wrapping_sub(1);
            m
        }),
        ("nothing at all", |mut m| {
            m[2..5].fill(0);
            m
        }),
        ("16 MiB", |mut m| {
            m[2..5].fill(0xff);
            m
        }),
        ("a damaged content", |mut m| {
            m[20] ^= 0x40;
            m
        }),
        ("a byte after the content", |mut m| {
            let len = u32::from_be_bytes([0, m[5], m[6], m[7]]) + 1;
            m[5..8].copy_from_slice(&len.to_be_bytes()[1..]);
            m.push(0);
            m
        }),
    ];
    assert_eq!(edited(|m| m), (Ok(()), None));
    for (what, lie) in lies {
        let expected = Err(PeerMisbehaved::BadCompression.into());
        assert_eq!(edited(lie), (expected, Some(Alert::BAD_CERTIFICATE)), "{what}");
    }
}

#[test]
fn client_rejects_an_algorithm_that_it_did_not_offer() {
    let (result, alert) = edited(|mut m| {
        m[1] = Algorithm::BROTLI.0 as u8;
        m
    });
    assert!(matches!(result, Err(Error::PeerMisbehaved(PeerMisbehaved::NotOffered(_)))), "{result:?}");
    assert_eq!(alert, Some(Alert::ILLEGAL_PARAMETER));
}

#[test]
fn client_checks_the_decompressed_message() {
    let (result, alert) = edited(|_| {
        let plain = [0, 0, 0, 1];
        let compressed = ZLIB_COMPRESSOR.compress(&plain).unwrap();
        let length = compressed.len() as u8;
        [&[0, 1, 0, 0, plain.len() as u8, 0, 0, length][..], &compressed].concat()
    });
    assert!(matches!(result, Err(Error::Malformed(_))), "{result:?}");
    assert_eq!(alert, Some(Alert::DECODE_ERROR));
}
