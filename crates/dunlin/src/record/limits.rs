//! How much one key may protect (RFC 8446 §5.5, RFC 9147 §4.5.3).

use crate::crypto::AeadAlgorithm;

/// Records that one key may seal before it must be replaced. The numbers leave an attacker an advantage below
/// 2^-57 (AES-GCM, 2^24.5 full records) and 2^-60 (AES-CCM, 2^23); a ChaCha20-Poly1305 key outlives its sequence
/// numbers.
pub(crate) const fn confidentiality(algorithm: AeadAlgorithm) -> u64 {
    match algorithm {
        AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm => 23_726_566,
        AeadAlgorithm::Aes128Ccm | AeadAlgorithm::Aes128Ccm8 => 1 << 23,
        AeadAlgorithm::ChaCha20Poly1305 => u64::MAX - 1,
    }
}
