//! Runs the suite for dunlin-rustcrypto.

use std::sync::Arc;

use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;
use dunlin_provider_tests::fixture::FIXTURES;
use dunlin_provider_tests::hex;
use dunlin_provider_tests::kem::agree;
use dunlin_provider_tests::random::{Broken, Reproducible};
use dunlin_provider_tests::verify::verifies;
use dunlin_rustcrypto::{
    ALL_SIGNATURES, ML_KEM_512, ML_KEM_768, OsRandom, SECP256R1MLKEM768, SECP521R1,
    TLS13_AES_128_CCM_8_SHA256, X25519MLKEM768, provider,
};

dunlin_provider_tests::suite!(everything());

fn everything() -> CryptoProvider {
    let mut provider = provider(Arc::new(OsRandom));
    provider.cipher_suites.push(&TLS13_AES_128_CCM_8_SHA256);
    provider.groups.extend([SECP521R1, X25519MLKEM768, SECP256R1MLKEM768, ML_KEM_512, ML_KEM_768]);
    provider.signatures = ALL_SIGNATURES;
    provider
}

/// Unlike AWS-LC, this provider takes the randomness for ML-KEM from the caller.
#[test]
fn key_encapsulation_is_reproducible() {
    for group in [ML_KEM_512, ML_KEM_768, SECP256R1MLKEM768, X25519MLKEM768] {
        assert_eq!(agree(group, group, 1), agree(group, group, 1));
        assert!(group.start(&Broken).is_err());
        let share = group.start(&Reproducible::new(1)).unwrap().share().to_vec();
        assert!(group.respond(&Broken, &share).is_err());
    }
}

#[test]
fn default_lists() {
    dunlin_provider_tests::tables::default_lists(&provider(Arc::new(OsRandom)));
}

/// Unlike AWS-LC, this provider also takes the randomness for signatures from the caller.
#[test]
fn signatures_are_reproducible() {
    let provider = provider(Arc::new(OsRandom));
    for fixture in FIXTURES {
        let key = fixture.load(&provider);
        let sign = |seed| key.sign(key.schemes()[0], b"message", &Reproducible::new(seed)).unwrap();
        assert_eq!(sign(1), sign(1));
        let is_deterministic = key.schemes() == [SignatureScheme::ED25519];
        assert_eq!(sign(1) == sign(2), is_deterministic, "{key:?}");
        assert_eq!(key.sign(key.schemes()[0], b"message", &Broken).is_ok(), is_deterministic, "{key:?}");
    }
}

/// If the public key is the neutral element, one signature verifies for every message. AWS-LC accepts such
/// keys.
#[test]
fn refuses_an_ed25519_key_of_small_order() {
    let neutral = hex("0100000000000000000000000000000000000000000000000000000000000000");
    let spki = [hex("302a300506032b6570032100"), neutral.clone()].concat();
    let signature = [neutral, vec![0; 32]].concat();
    let [rustcrypto, awslc] = [everything(), dunlin_awslc::provider()]
        .map(|provider| verifies(&provider, SignatureScheme::ED25519, &spki, b"anything", &signature));
    assert!(awslc && !rustcrypto);
}
