//! Masks for DTLS 1.3 record numbers, which are computed as in QUIC's header protection (RFC 9147 §4.2.3).

use dunlin::crypto::{AeadAlgorithm, CryptoProvider};

use crate::aead::{ALL, find};
use crate::hex;

fn mask(provider: &CryptoProvider, algorithm: AeadAlgorithm, key: &str, sample: &str) -> Vec<u8> {
    let key = find(provider, algorithm).record_number_key(&hex(key)).unwrap();
    key.mask(&hex(sample).try_into().unwrap()).to_vec()
}

/// RFC 9001 appendix A.2 (client), A.3 (server) and A.5 (ChaCha20).
pub fn answers_of_rfc_9001(provider: &CryptoProvider) {
    for aes_128 in [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes128Ccm, AeadAlgorithm::Aes128Ccm8] {
        for (key, sample, expected) in [
            ("9f50449e04a0e810283a1e9933adedd2", "d1b1c98dd7689fb8ec11d242b123dc9b", "437b"),
            ("c206b8d9b9f0f37644430b490eeaa314", "2cd0991cd25b0aac406a5816b6394100", "2ec0"),
        ] {
            assert_eq!(mask(provider, aes_128, key, sample), hex(expected), "{aes_128:?}");
        }
    }
    let chacha20 = mask(
        provider,
        AeadAlgorithm::ChaCha20Poly1305,
        "25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4",
        "5e5cd55c41f69080575d7999c25a5bfb",
    );
    assert_eq!(chacha20, hex("aefe"));
}

/// FIPS 197 appendix C.1 and C.3. With AES the mask is the encrypted sample.
pub fn answers_of_fips_197(provider: &CryptoProvider) {
    let sample = "00112233445566778899aabbccddeeff";
    let key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    assert_eq!(mask(provider, AeadAlgorithm::Aes128Gcm, &key[..32], sample), hex("69c4"));
    assert_eq!(mask(provider, AeadAlgorithm::Aes256Gcm, key, sample), hex("8ea2"));
}

/// The peer chooses the sample, so it can select the last block of ChaCha20's key stream. The answer is
/// OpenSSL's.
pub fn last_block_of_chacha20(provider: &CryptoProvider) {
    let answer = mask(
        provider,
        AeadAlgorithm::ChaCha20Poly1305,
        "25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4",
        "ffffffff41f69080575d7999c25a5bfb",
    );
    assert_eq!(answer, hex("4db4"));
}

/// Only keys with the length of the AEAD's key are accepted.
pub fn refuses_keys_of_other_lengths(provider: &CryptoProvider) {
    for algorithm in ALL {
        let aead = find(provider, algorithm);
        assert!(aead.record_number_key(&vec![0; algorithm.key_len()]).is_ok());
        for len in (0..=64).filter(|len| *len != algorithm.key_len()) {
            assert!(aead.record_number_key(&vec![0; len]).is_err(), "{algorithm:?} took {len} bytes");
        }
    }
}
