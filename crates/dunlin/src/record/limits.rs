//! The limits on the use of one key (RFC 8446 §5.5, RFC 9147 §4.5.3).

use crate::crypto::AeadAlgorithm;

/// The records that one key may seal before its replacement. An attacker's advantage stays below 2^-57 with
/// AES-GCM (2^24.5 full records), and below 2^-60 with AES-CCM (2^23). ChaCha20-Poly1305 runs out of sequence
/// numbers first.
pub(crate) const fn confidentiality(algorithm: AeadAlgorithm) -> u64 {
    match algorithm {
        AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm => 23_726_566,
        AeadAlgorithm::Aes128Ccm | AeadAlgorithm::Aes128Ccm8 => 1 << 23,
        AeadAlgorithm::ChaCha20Poly1305 => u64::MAX - 1,
    }
}

/// The records that may fail to open with one key before a DTLS connection closes. A TLS connection ends at
/// the first one. RFC 9147 §4.5.3 sets all limits but the one for 8-byte tags. There, 2^7 would give the same
/// margin, but an attacker could end the connection with a few forgeries. With 2^20, an attacker's chance of
/// success is 2^-44.
pub(crate) const fn integrity(algorithm: AeadAlgorithm) -> u64 {
    match algorithm {
        AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm | AeadAlgorithm::ChaCha20Poly1305 => 1 << 36,
        AeadAlgorithm::Aes128Ccm => 11_863_283,
        AeadAlgorithm::Aes128Ccm8 => 1 << 20,
    }
}
