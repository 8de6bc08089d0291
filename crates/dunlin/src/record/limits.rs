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

/// Records that may fail to open with one key before a datagram connection is closed; on a stream the first one
/// ends it. RFC 9147 §4.5.3 sets all but the one for the 8-byte tag: 2^7 would keep the margin of the others but
/// let anybody end the connection with a handful of forgeries. With 2^20 an attacker's chance is 2^-44.
pub(crate) const fn integrity(algorithm: AeadAlgorithm) -> u64 {
    match algorithm {
        AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm | AeadAlgorithm::ChaCha20Poly1305 => 1 << 36,
        AeadAlgorithm::Aes128Ccm => 11_863_283,
        AeadAlgorithm::Aes128Ccm8 => 1 << 20,
    }
}
