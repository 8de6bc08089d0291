//! Authentication of a peer from the handshake cache (docs/handshake-cache.md). The peer's key must sign this handshake, as
//! in a full one.

use pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;

use super::verifier::{Algorithms, verify_with};
use crate::error::{AuthenticationFailure, Error};
use crate::proof::SignatureValid;

/// Verifies `signature` over `content` with `key` and one of `algorithms`.
pub(crate) fn verify_signature(
    algorithms: Algorithms<'_>,
    key: &SubjectPublicKeyInfoDer<'_>,
    content: &[u8],
    signature: &[u8],
) -> Result<SignatureValid, Error> {
    let entity = RawPublicKeyEntity::try_from(key).map_err(|_| AuthenticationFailure::BadRawKey)?;
    let verify = |algorithm: &dyn SignatureVerificationAlgorithm| {
        entity.verify_signature(algorithm, content, signature)
    };
    verify_with(algorithms, || key.clone(), verify)
}
