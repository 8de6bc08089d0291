//! The identifiers of keys with the OID id-RSASSA-PSS and of their signatures (RFC 4055 §3.1), for providers.
//!
//! Such a key leaves the hash open, or its parameters name one. TLS allows parameters only if MGF1 uses the
//! same hash, the salt is as long as the hash, and the signature has the same parameters (RFC 8446 §4.2.3).
//! The identifier of the hash has NULL as its own parameter or none; both are valid (RFC 4055 §2.1).

use pki_types::{AlgorithmIdentifier, alg_id};

use crate::wire::SignatureScheme;

/// A key that may sign with every hash.
pub const ANY_HASH: AlgorithmIdentifier =
    AlgorithmIdentifier::from_slice(b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a");

/// [`alg_id::RSA_PSS_SHA256`] without NULL.
pub const SHA256_WITHOUT_NULL: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x30\
      \xa0\x0d\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\
      \xa1\x1a\x30\x18\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
      \x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\xa2\x03\x02\x01\x20",
);

/// [`alg_id::RSA_PSS_SHA384`] without NULL.
pub const SHA384_WITHOUT_NULL: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x30\
      \xa0\x0d\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\
      \xa1\x1a\x30\x18\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
      \x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\xa2\x03\x02\x01\x30",
);

/// [`alg_id::RSA_PSS_SHA512`] without NULL.
pub const SHA512_WITHOUT_NULL: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x30\
      \xa0\x0d\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\
      \xa1\x1a\x30\x18\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
      \x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\xa2\x03\x02\x01\x40",
);

/// The signature schemes of a key, in order of preference. `algorithm` is the content of its
/// AlgorithmIdentifier, without the header of the SEQUENCE. `None` for other types of keys, and for
/// parameters that TLS does not allow.
pub fn schemes(algorithm: &[u8]) -> Option<&'static [SignatureScheme]> {
    const OF_ANY_HASH: &[SignatureScheme] = &[
        SignatureScheme::RSA_PSS_PSS_SHA256,
        SignatureScheme::RSA_PSS_PSS_SHA384,
        SignatureScheme::RSA_PSS_PSS_SHA512,
    ];
    let is_one_of = |ids: [AlgorithmIdentifier; 2]| ids.iter().any(|id| id.as_ref() == algorithm);
    if algorithm == ANY_HASH.as_ref() {
        Some(OF_ANY_HASH)
    } else if is_one_of([alg_id::RSA_PSS_SHA256, SHA256_WITHOUT_NULL]) {
        Some(&[SignatureScheme::RSA_PSS_PSS_SHA256])
    } else if is_one_of([alg_id::RSA_PSS_SHA384, SHA384_WITHOUT_NULL]) {
        Some(&[SignatureScheme::RSA_PSS_PSS_SHA384])
    } else if is_one_of([alg_id::RSA_PSS_SHA512, SHA512_WITHOUT_NULL]) {
        Some(&[SignatureScheme::RSA_PSS_PSS_SHA512])
    } else {
        None
    }
}
