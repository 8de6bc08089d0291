//! Each provider understands the output of the other.

use std::sync::Arc;

use dunlin::crypto::{CryptoProvider, HashAlgorithm};
use dunlin_provider_tests::fixture::FIXTURES;
use dunlin_provider_tests::random::Reproducible;
use dunlin_provider_tests::{aead, group, hash, kem, verify};

/// Both providers, in both orders.
fn pairs() -> [(CryptoProvider, CryptoProvider); 2] {
    let mut awslc = dunlin_awslc::provider();
    awslc.cipher_suites.push(&dunlin_awslc::TLS13_AES_128_CCM_8_SHA256);
    awslc.groups.push(dunlin_awslc::SECP521R1);
    awslc.signatures = dunlin_awslc::ALL_SIGNATURES;
    let mut rustcrypto = dunlin_rustcrypto::provider(Arc::new(dunlin_rustcrypto::OsRandom));
    rustcrypto.cipher_suites.push(&dunlin_rustcrypto::TLS13_AES_128_CCM_8_SHA256);
    rustcrypto.groups.push(dunlin_rustcrypto::SECP521R1);
    rustcrypto.signatures = dunlin_rustcrypto::ALL_SIGNATURES;
    [(awslc.clone(), rustcrypto.clone()), (rustcrypto, awslc)]
}

#[test]
fn opens_ciphertexts_of_the_other_provider() {
    let random = Reproducible::new(11);
    for (sealer, opener) in pairs() {
        for algorithm in aead::ALL {
            let secret = random.bytes(algorithm.key_len());
            let sealing = aead::find(&sealer, algorithm).key(&secret).unwrap();
            let opening = aead::find(&opener, algorithm).key(&secret).unwrap();
            for len in (0..=130).chain([1000, 16_384 + 256]) {
                let nonce = random.bytes(12).try_into().unwrap();
                let aad = random.bytes(len % 29);
                let plain = random.bytes(len);
                let mut data = plain.clone();
                let mut tag = vec![0; algorithm.tag_len()];
                sealing.seal(&nonce, &aad, &mut data, &mut tag).unwrap();
                opening.open(&nonce, &aad, &mut data, &tag).unwrap();
                assert_eq!(data, plain, "{algorithm:?}, {len} bytes");
            }
        }
    }
}

#[test]
fn both_compute_the_same_record_number_masks() {
    let random = Reproducible::new(12);
    let [(a, b), _] = pairs();
    for algorithm in aead::ALL {
        for _ in 0..100 {
            let secret = random.bytes(algorithm.key_len());
            let sample = random.bytes(16).try_into().unwrap();
            let [a, b] = [&a, &b].map(|provider| {
                aead::find(provider, algorithm).record_number_key(&secret).unwrap().mask(&sample)
            });
            assert_eq!(a, b, "{algorithm:?}");
        }
    }
}

#[test]
fn both_compute_the_same_hashes_and_hmacs() {
    let random = Reproducible::new(13);
    let [(a, b), _] = pairs();
    for algorithm in [HashAlgorithm::Sha256, HashAlgorithm::Sha384] {
        let a = hash::find(&a, algorithm);
        let b = hash::find(&b, algorithm);
        for len in 0..300 {
            let key = random.bytes(len);
            let data = random.bytes(len);
            assert_eq!(a.hash(&[&data]).as_ref(), b.hash(&[&data]).as_ref(), "{len} bytes");
            assert_eq!(
                a.hmac(&key).sign(&[&data]).as_ref(),
                b.hmac(&key).sign(&[&data]).as_ref(),
                "{len} bytes"
            );
        }
    }
}

/// Equal randomness also gives equal shares.
#[test]
fn both_derive_the_same_secret() {
    for (a, b) in pairs() {
        for name in group::ALL {
            let a = group::find(&a, name);
            let b = group::find(&b, name);
            for seed in 0..20 {
                let initiator = a.start(&Reproducible::new(seed)).unwrap();
                assert_eq!(initiator.share(), b.start(&Reproducible::new(seed)).unwrap().share());
                let (share, secret) = b.respond(&Reproducible::new(seed + 100), initiator.share()).unwrap();
                assert_eq!(initiator.complete(&share).unwrap().as_bytes(), secret.as_bytes(), "{name}");
            }
        }
    }
}

#[test]
fn decapsulates_ciphertexts_of_the_other_provider() {
    let groups = [
        (dunlin_awslc::ML_KEM_512, dunlin_rustcrypto::ML_KEM_512),
        (dunlin_awslc::ML_KEM_768, dunlin_rustcrypto::ML_KEM_768),
        (dunlin_awslc::SECP256R1MLKEM768, dunlin_rustcrypto::SECP256R1MLKEM768),
        (dunlin_awslc::X25519MLKEM768, dunlin_rustcrypto::X25519MLKEM768),
    ];
    for (a, b) in groups {
        for seed in 0..20 {
            kem::agree(a, b, seed);
            kem::agree(b, a, seed);
        }
    }
}

#[test]
fn verifies_signatures_of_the_other_provider() {
    let random = Reproducible::new(14);
    for (signer, verifier) in pairs() {
        for fixture in FIXTURES {
            let key = fixture.load(&signer);
            for &scheme in key.schemes() {
                let message = random.bytes(130);
                let signature = key.sign(scheme, &message, &random).unwrap();
                assert!(
                    verify::verifies(&verifier, scheme, fixture.public, &message, &signature),
                    "{scheme}"
                );
            }
        }
    }
}
