//! The signature over the handshake in CertificateVerify (RFC 8446 §4.4.3).

use alloc::vec::Vec;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use webpki::{EndEntityCert, RawPublicKeyEntity};

use crate::crypto::CryptoProvider;
use crate::error::{AuthenticationFailure, Error, PeerMisbehaved};
use crate::proof::SignatureValid;
use crate::role::Side;
use crate::wire::{CertificateType, SignatureScheme};

/// What `signer` signs: a preamble that no other protocol's message has, and the transcript hash.
pub(crate) fn content(signer: Side, transcript_hash: &[u8]) -> Vec<u8> {
    let context: &[u8] = match signer {
        Side::Client => b"TLS 1.3, client CertificateVerify",
        Side::Server => b"TLS 1.3, server CertificateVerify",
    };
    [&[0x20; 64], context, &[0], transcript_hash].concat()
}

/// Verifies `signature` over `content` with the key in `leaf`.
pub(crate) fn verify(
    provider: &CryptoProvider,
    scheme: SignatureScheme,
    typ: CertificateType,
    leaf: &CertificateDer<'_>,
    content: &[u8],
    signature: &[u8],
) -> Result<SignatureValid, Error> {
    let mut result = Err(webpki::Error::InvalidSignatureForPublicKey);
    for algorithm in provider.signatures.for_scheme(scheme) {
        result = match typ {
            CertificateType::RAW_PUBLIC_KEY => {
                let key = SubjectPublicKeyInfoDer::from(&**leaf);
                RawPublicKeyEntity::try_from(&key)
                    .map_err(|_| AuthenticationFailure::BadEncoding)?
                    .verify_signature(*algorithm, content, signature)
            }
            _ => EndEntityCert::try_from(leaf)
                .map_err(|_| AuthenticationFailure::BadEncoding)?
                .verify_signature(*algorithm, content, signature),
        };
        if result.is_ok() {
            return Ok(SignatureValid::assert());
        }
    }
    match result {
        // RFC 8446 §4.4.3: the algorithm must fit the key of the certificate.
        Err(webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)) => {
            Err(PeerMisbehaved::IllegalParameter("signature scheme: it does not fit the key").into())
        }
        _ => Err(PeerMisbehaved::BadSignature.into()),
    }
}
