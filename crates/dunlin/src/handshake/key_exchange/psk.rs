//! A pre-shared key (RFC 4279 §2), alone or with another secret: (EC)DHE or RSA (RFC 4279 §3, §4, RFC 5489
//! §2).

use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::Premaster;

/// The other secret and the key, each with its length in front. Without another secret, zeros take its place.
pub(super) fn premaster(other: Option<&[u8]>, key: &[u8]) -> Premaster {
    let other_len = other.map_or(key.len(), <[u8]>::len);
    // Allocated at full size: a vector that grows copies its bytes and leaves the old ones in memory.
    let mut premaster = Zeroizing::new(Vec::with_capacity(4 + other_len + key.len()));
    // Keys for TLS 1.2 are shorter than 2^16 bytes, so the cast loses nothing.
    premaster.extend_from_slice(&(other_len as u16).to_be_bytes());
    match other {
        Some(other) => premaster.extend_from_slice(other),
        None => premaster.resize(2 + other_len, 0),
    }
    premaster.extend_from_slice(&(key.len() as u16).to_be_bytes());
    premaster.extend_from_slice(key);
    premaster
}
