//! Finite fields: the same secrets as OpenSSL's, and invalid shares.

use std::process::Command;

use dunlin::crypto::{CryptoError, KeyExchangeGroup, SecureRandom};
use dunlin::error::PeerMisbehaved;
use dunlin::wire::AlertDescription;
use dunlin::{Error, TlsConnection};
use dunlin_legacy::lab::{LAB_512, LAB_1024, LAB_2048, TLS12_DH_ANON_WITH_AES_128_GCM_SHA256};
use dunlin_tests::peer::Files;
use dunlin_tests::tamper::{message, messages, records};
use dunlin_tests::{NOW, Pair};

use super::peers::{der, dhparam};
use super::{pair, profile};

const FIELDS: [&dyn KeyExchangeGroup; 6] = [
    LAB_512,
    LAB_1024,
    LAB_2048,
    dunlin_legacy::ffdhe::FFDHE2048,
    dunlin_legacy::ffdhe::FFDHE3072,
    dunlin_legacy::ffdhe::FFDHE4096,
];

fn openssl(args: &[&str]) {
    let output = Command::new("openssl").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[derive(Debug)]
struct Fixed(u8);

impl SecureRandom for Fixed {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        buf.iter_mut().enumerate().for_each(|(i, byte)| *byte = self.0.wrapping_mul(i as u8 + 1));
        Ok(())
    }
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().position(|b| *b != 0).unwrap()..]
}

/// A positive INTEGER in DER.
fn number(bytes: &[u8]) -> Vec<u8> {
    let bytes = without_zeros(bytes);
    let sign: &[u8] = if bytes[0] >= 0x80 { &[0] } else { &[] };
    der(2, &[sign, bytes].concat())
}

/// The number at the end of a DER element, of at most `most` bytes.
fn last_number(of: &[u8], most: usize) -> &[u8] {
    let number = |len: usize| {
        let (before, number) = of.split_at(of.len() - len);
        let header = der(2, &vec![0; len]);
        before.ends_with(&header[..header.len() - len]).then_some(number)
    };
    without_zeros((1..=most + 1).rev().find_map(number).unwrap())
}

/// Wycheproof has no vectors for finite fields, so OpenSSL computes the expected secret.
#[test]
fn computes_the_same_secrets_as_openssl() {
    // dhKeyAgreement (PKCS #3 §9).
    const OID: [u8; 11] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x03, 0x01];
    for field in FIELDS {
        let prime = field.finite_field().unwrap().prime;
        let files = Files::default();
        let params = files.write("field.pem", dhparam(field));
        let key = files.path("key.pem");
        let theirs = files.path("theirs.der");
        let secret = files.path("secret");
        openssl(&["genpkey", "-paramfile", &params, "-out", &key]);
        openssl(&["pkey", "-in", &key, "-pubout", "-outform", "DER", "-out", &theirs]);
        let theirs = std::fs::read(&theirs).unwrap();
        for random in [3, 0x55, 0xc9] {
            let active = field.start(&Fixed(random)).unwrap();
            // The engine's share as a public key.
            let algorithm =
                der(0x30, &[&OID[..], &der(0x30, &[number(prime), number(&[2])].concat())].concat());
            let share = der(3, &[&[0][..], &number(active.share())].concat());
            let ours = files.write("ours.der", der(0x30, &[algorithm, share].concat()));
            openssl(&[
                "pkeyutl",
                "-derive",
                "-inkey",
                &key,
                "-peerkey",
                &ours,
                "-peerform",
                "DER",
                "-out",
                &secret,
            ]);
            let theirs = last_number(&theirs, prime.len());
            let theirs = [&vec![0; prime.len() - theirs.len()], theirs].concat();
            let agreed = active.complete(&theirs).unwrap();
            // OpenSSL omits leading zeros, as TLS 1.2 does (RFC 5246 §8.1.2).
            let agreed = without_zeros(agreed.as_bytes());
            assert_eq!(agreed, std::fs::read(&secret).unwrap(), "{}", field.name());
        }
    }
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

fn anonymous(field: &'static dyn KeyExchangeGroup) -> Pair {
    let profile = || profile(&TLS12_DH_ANON_WITH_AES_128_GCM_SHA256).groups(vec![field]);
    pair(profile(), profile())
}

/// Replaces the share of one side and returns the other side's result.
fn with_share(field: &'static dyn KeyExchangeGroup, of_server: bool, share: &[u8]) -> Result<usize, Error> {
    let mut pair = anonymous(field);
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let mut flight = take(&mut pair.server);
    if !of_server {
        pair.client.receive(NOW, &flight).unwrap();
        flight = take(&mut pair.client);
    }
    let len = field.finite_field().unwrap().prime.len();
    let records = records(&flight);
    let edited = messages(&records[0][5..]).into_iter().map(|m| match m[0] {
        // Both messages end with the length of the share and the share.
        12 | 16 => {
            let before = &m[4..m.len() - len - 2];
            message(m[0], &[before, &(share.len() as u16).to_be_bytes(), share].concat())
        }
        _ => m,
    });
    let content: Vec<u8> = edited.flatten().collect();
    let first = [&[22, 3, 3], &(content.len() as u16).to_be_bytes()[..], &content].concat();
    let to = if of_server { &mut pair.client } else { &mut pair.server };
    to.receive(NOW, &first)
}

/// RFC 7919 §3, §5.1: a share is greater than 1 and less than p - 1. The primes are safe, so no other small
/// subgroup exists.
#[test]
fn invalid_shares_end_the_handshake() {
    for field in [LAB_512, LAB_1024, LAB_2048, dunlin_legacy::ffdhe::FFDHE2048] {
        let prime = field.finite_field().unwrap().prime;
        let less = |n: u8| [&prime[..prime.len() - 1], &[prime[prime.len() - 1] - n]].concat();
        let more = vec![0xff; prime.len()];
        for of_server in [false, true] {
            let fine = [vec![2], less(2), [vec![0; prime.len() - 1], vec![2]].concat()];
            for share in fine {
                with_share(field, of_server, &share).unwrap();
            }
            let longer = [&[1][..], prime].concat();
            for share in [vec![0], vec![1], less(1), less(0), more.clone(), vec![0; prime.len()], longer] {
                let error = with_share(field, of_server, &share).unwrap_err();
                assert_eq!(error, Error::PeerMisbehaved(PeerMisbehaved::BadFieldShare), "{share:02x?}");
                assert_eq!(error.alert(), Some(AlertDescription::HANDSHAKE_FAILURE));
            }
        }
    }
}
