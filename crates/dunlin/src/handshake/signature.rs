//! The signature over the handshake in CertificateVerify (RFC 8446 §4.4.3).

use alloc::vec::Vec;

use crate::protocol::Side;

/// The content that `signer` signs: a preamble that no other protocol uses, followed by the transcript hash.
pub(crate) fn content(signer: Side, transcript_hash: &[u8]) -> Vec<u8> {
    let context: &[u8] = match signer {
        Side::Client => b"TLS 1.3, client CertificateVerify",
        Side::Server => b"TLS 1.3, server CertificateVerify",
    };
    [&[0x20; 64], context, &[0], transcript_hash].concat()
}
