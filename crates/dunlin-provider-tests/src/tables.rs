//! The tables of a provider.

use std::collections::HashSet;

use dunlin::crypto::{CryptoProvider, rsa_pss};
use dunlin::wire::{CipherSuite, NamedGroup, SignatureScheme};
use pki_types::{AlgorithmIdentifier, SignatureVerificationAlgorithm, alg_id};

/// The engine's own check of the provider passes.
pub fn check_passes(provider: &CryptoProvider) {
    assert_eq!(provider.check(), Ok(()));
}

/// The provider's default lists, in order of preference. Do not call it for a provider with additions.
pub fn default_lists(provider: &CryptoProvider) {
    let suites: Vec<_> = provider.cipher_suites.iter().map(|suite| suite.id).collect();
    assert_eq!(
        suites,
        [
            CipherSuite::TLS_AES_128_GCM_SHA256,
            CipherSuite::TLS_AES_256_GCM_SHA384,
            CipherSuite::TLS_CHACHA20_POLY1305_SHA256,
            CipherSuite::TLS_AES_128_CCM_SHA256,
        ]
    );
    let groups: Vec<_> = provider.groups.iter().map(|group| group.name()).collect();
    assert_eq!(groups, [NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1]);
    let schemes: Vec<_> = provider.signatures.schemes.iter().map(|(scheme, _)| *scheme).collect();
    assert_eq!(schemes, DEFAULT_SCHEMES.map(|(scheme, ..)| scheme));
}

const RSA: AlgorithmIdentifier = alg_id::RSA_ENCRYPTION;

/// The default schemes with the algorithms of key and signature. The order is the order of
/// signature_algorithms that the engine offers.
const DEFAULT_SCHEMES: [(SignatureScheme, AlgorithmIdentifier, AlgorithmIdentifier); 10] = [
    (SignatureScheme::ECDSA_SECP256R1_SHA256, alg_id::ECDSA_P256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_SECP384R1_SHA384, alg_id::ECDSA_P384, alg_id::ECDSA_SHA384),
    (SignatureScheme::ED25519, alg_id::ED25519, alg_id::ED25519),
    (SignatureScheme::RSA_PSS_RSAE_SHA256, RSA, alg_id::RSA_PSS_SHA256),
    (SignatureScheme::RSA_PSS_RSAE_SHA384, RSA, alg_id::RSA_PSS_SHA384),
    (SignatureScheme::RSA_PSS_RSAE_SHA512, RSA, alg_id::RSA_PSS_SHA512),
    (SignatureScheme::RSA_PKCS1_SHA256, RSA, alg_id::RSA_PKCS1_SHA256),
    (SignatureScheme::RSA_PKCS1_SHA384, RSA, alg_id::RSA_PKCS1_SHA384),
    (SignatureScheme::RSA_PKCS1_SHA512, RSA, alg_id::RSA_PKCS1_SHA512),
    (SignatureScheme::MLDSA44, alg_id::ML_DSA_44, alg_id::ML_DSA_44),
];

/// The schemes that have to be added by name.
const OTHER_SCHEMES: [(SignatureScheme, AlgorithmIdentifier, AlgorithmIdentifier); 2] = [
    (SignatureScheme::ECDSA_SECP521R1_SHA512, alg_id::ECDSA_P521, alg_id::ECDSA_SHA512),
    (SignatureScheme::MLDSA65, alg_id::ML_DSA_65, alg_id::ML_DSA_65),
];

/// The identifiers of key and signature for RSA-PSS keys, which may lack parameters, or have them with or
/// without NULL.
const fn with_pss_key(
    with_null: AlgorithmIdentifier,
    without: AlgorithmIdentifier,
) -> [(AlgorithmIdentifier, AlgorithmIdentifier); 4] {
    let any = rsa_pss::ANY_HASH;
    [(any, with_null), (any, without), (with_null, with_null), (without, without)]
}

/// Every scheme has exactly one algorithm, because TLS 1.3 binds the curve to the hash (RFC 8446 §4.2.3).
/// Only RSA-PSS keys have several identifiers.
pub fn schemes_bind_curve_to_hash(provider: &CryptoProvider) {
    let schemes: Vec<_> = provider
        .signatures
        .schemes
        .iter()
        .map(|(scheme, algorithms)| (*scheme, identifiers(algorithms)))
        .collect();
    let expected = DEFAULT_SCHEMES.into_iter().chain(OTHER_SCHEMES);
    let mut expected: Vec<_> =
        expected.map(|(scheme, key, signature)| (scheme, vec![(key, signature)])).collect();
    for (scheme, with_null, without) in [
        (SignatureScheme::RSA_PSS_PSS_SHA256, alg_id::RSA_PSS_SHA256, rsa_pss::SHA256_WITHOUT_NULL),
        (SignatureScheme::RSA_PSS_PSS_SHA384, alg_id::RSA_PSS_SHA384, rsa_pss::SHA384_WITHOUT_NULL),
        (SignatureScheme::RSA_PSS_PSS_SHA512, alg_id::RSA_PSS_SHA512, rsa_pss::SHA512_WITHOUT_NULL),
    ] {
        expected.push((scheme, with_pss_key(with_null, without).to_vec()));
    }
    assert_eq!(schemes, expected);
}

/// The algorithms for chains: the algorithms of the schemes, and NIST curves with the hashes of other curves.
pub fn chain_algorithms(provider: &CryptoProvider) {
    let all = identifiers(provider.signatures.all);
    let mut expected: Vec<_> =
        provider.signatures.schemes.iter().flat_map(|(_, algorithms)| identifiers(algorithms)).collect();
    expected.push((alg_id::ECDSA_P256, alg_id::ECDSA_SHA384));
    expected.push((alg_id::ECDSA_P384, alg_id::ECDSA_SHA256));
    expected.push((alg_id::ECDSA_P521, alg_id::ECDSA_SHA256));
    expected.push((alg_id::ECDSA_P521, alg_id::ECDSA_SHA384));
    assert_eq!(all.len(), expected.len(), "an algorithm is missing or repeats");
    for algorithm in expected {
        assert!(all.contains(&algorithm), "{algorithm:?}");
    }
}

/// The algorithm identifiers of key and signature.
fn identifiers(
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> Vec<(AlgorithmIdentifier, AlgorithmIdentifier)> {
    algorithms.iter().map(|a| (a.public_key_alg_id(), a.signature_alg_id())).collect()
}

/// Every byte is written, and no two fillings are equal.
pub fn random_fills_the_whole_buffer(provider: &CryptoProvider) {
    provider.random.fill(&mut []).unwrap();
    for len in [1, 31, 32, 33, 1024] {
        // A byte that is zero after 64 fillings was not written; the odds of that by chance are below 2^-500.
        let mut seen = vec![0; len];
        let mut fillings = HashSet::new();
        for _ in 0..64 {
            let mut bytes = vec![0; len];
            provider.random.fill(&mut bytes).unwrap();
            seen.iter_mut().zip(&bytes).for_each(|(seen, byte)| *seen |= byte);
            fillings.insert(bytes);
        }
        assert!(seen.iter().all(|byte| *byte != 0), "{len} bytes");
        assert!(len < 31 || fillings.len() == 64, "{len} bytes repeat");
    }
}
