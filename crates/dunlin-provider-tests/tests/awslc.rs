//! Runs the suite for dunlin-awslc.

use dunlin::crypto::CryptoProvider;

dunlin_provider_tests::suite!(everything());

fn everything() -> CryptoProvider {
    let mut provider = dunlin_awslc::provider();
    provider.cipher_suites.push(&dunlin_awslc::TLS13_AES_128_CCM_8_SHA256);
    provider.groups.extend([
        dunlin_awslc::SECP521R1,
        dunlin_awslc::X25519MLKEM768,
        dunlin_awslc::SECP256R1MLKEM768,
        dunlin_awslc::ML_KEM_512,
        dunlin_awslc::ML_KEM_768,
    ]);
    provider.signatures = dunlin_awslc::ALL_SIGNATURES;
    provider
}

#[test]
fn default_lists() {
    dunlin_provider_tests::tables::default_lists(&dunlin_awslc::provider());
}
