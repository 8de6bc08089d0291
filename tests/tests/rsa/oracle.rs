//! Probes of Bleichenbacher (1998) and ROBOT (2017): a server reacts alike to every fault of the encrypted
//! secret.

use std::sync::Arc;

use dunlin::crypto::{RsaEncryption, RsaPublicKey};
use dunlin::pki_types::SubjectPublicKeyInfoDer;
use dunlin::{ClientConfig, Error, ServerConfig, TlsConnection};
use dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES;
use dunlin_tests::tamper::{message, messages, records};
use dunlin_tests::{NOW, Pair};

use super::{pki, profile, psk_pair, serving, trusting};

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

fn record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 3], &(content.len() as u16).to_be_bytes()[..], content].concat()
}

/// Returns the server's output after each record of the client's second flight with this encrypted secret,
/// and its error. In RSA_PSK an identity precedes the secret.
pub(super) fn answers(mut pair: Pair, has_identity: bool, ciphertext: &[u8]) -> (Vec<Vec<u8>>, Error) {
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    pair.client.receive(NOW, &flight).unwrap();
    let flight = records(&take(&mut pair.client));
    let [key_exchange, change_cipher_spec, finished] = &flight[..] else {
        panic!("{} records", flight.len())
    };
    let key_exchange = &messages(&key_exchange[5..])[0];
    // The identity and the secret, each after its length.
    let identity_len = if has_identity { 2 + usize::from(key_exchange[5]) } else { 0 };
    let identity = &key_exchange[4..4 + identity_len];
    let changed = [identity, &(ciphertext.len() as u16).to_be_bytes(), ciphertext].concat();
    let changed = record(&message(key_exchange[0], &changed));
    let mut result = Ok(0);
    let said = [&changed, change_cipher_spec, finished].map(|record| {
        assert!(result.is_ok(), "the server ends early");
        result = pair.server.receive(NOW, record);
        take(&mut pair.server)
    });
    (said.to_vec(), result.unwrap_err())
}

fn key() -> Box<dyn RsaPublicKey> {
    let spki: &SubjectPublicKeyInfoDer<'static> = &pki().server.public_key;
    let rsa: &dyn RsaEncryption = dunlin_legacy::rsa::ENCRYPTION;
    rsa.public_key(spki).unwrap()
}

/// Encrypts padding and a secret of 48 bytes after this edit, as a client would.
fn encrypted(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let key = key();
    let len = key.modulus_len();
    let mut block = vec![0xa5; len];
    (block[0], block[1], block[len - 49], block[len - 48], block[len - 47]) = (0, 2, 0, 3, 3);
    edit(&mut block);
    assert_eq!(block.len(), len);
    key.encrypt(&block).unwrap()
}

/// All probes. The first is well-formed but holds another secret than the client's.
fn probes() -> Vec<(&'static str, Vec<u8>)> {
    let good = encrypted(|_| {});
    let longer = [&[0], &good[..]].concat();
    vec![
        ("another secret", good.clone()),
        ("first byte 1", encrypted(|b| b[0] = 1)),
        ("second byte 1", encrypted(|b| b[1] = 1)),
        ("second byte 0", encrypted(|b| b[1] = 0)),
        ("zero in the first eight", encrypted(|b| b[5] = 0)),
        (
            "zero in the padding: 49 bytes",
            encrypted(|b| {
                let at = b.len() - 50;
                b[at] = 0;
            }),
        ),
        ("zero in the padding: a long secret", encrypted(|b| b[20] = 0)),
        (
            "no zero: 47 bytes",
            encrypted(|b| {
                let at = b.len() - 49;
                b[at] = 1;
                b[at + 1] = 0;
            }),
        ),
        ("no zero at all", encrypted(|b| b[2..].fill(0xa5))),
        (
            "nothing after the zero",
            encrypted(|b| {
                b[2..].fill(0xa5);
                let at = b.len() - 1;
                b[at] = 0;
            }),
        ),
        (
            "version 3.2",
            encrypted(|b| {
                let at = b.len() - 47;
                b[at] = 2;
            }),
        ),
        (
            "version 3.4",
            encrypted(|b| {
                let at = b.len() - 47;
                b[at] = 4;
            }),
        ),
        (
            "version 2.3",
            encrypted(|b| {
                let at = b.len() - 48;
                b[at] = 2;
            }),
        ),
        ("zero", vec![0; good.len()]),
        ("one", [vec![0; good.len() - 1], vec![1]].concat()),
        ("not below the modulus", vec![0xff; good.len()]),
        ("too short", good[1..].to_vec()),
        ("too long", longer),
        ("empty", Vec::new()),
    ]
}

/// Static RSA, for the laboratory only.
fn static_pair() -> Pair {
    let profile = || profile(&[&dunlin_legacy::lab::TLS12_RSA_WITH_AES_128_GCM_SHA256]).danger_legacy_lab();
    let client = ClientConfig::new(trusting(profile()).build().unwrap());
    let server = ServerConfig::new(serving(profile()).build().unwrap()).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server))
}

#[test]
fn server_answers_every_probe_alike() {
    let probes = probes();
    let psk_pair: fn() -> Pair = || psk_pair(TLS12_RSA_PSK_CIPHER_SUITES);
    // The alert is decrypt_error if the PSK may be wrong (RFC 4279 §2), otherwise bad_record_mac.
    for (pair, has_identity, alert) in [(psk_pair, true, 51), (static_pair, false, 20)] {
        let expected = answers(pair(), has_identity, &probes[0].1);
        // The server sends nothing before it has Finished, then a plaintext alert.
        assert_eq!(expected.0, [vec![], vec![], vec![21, 3, 3, 0, 2, 2, alert]]);
        for (what, ciphertext) in &probes {
            assert_eq!(answers(pair(), has_identity, ciphertext), expected, "{what}");
        }
    }
}
