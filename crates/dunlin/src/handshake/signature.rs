//! The signature over the handshake in CertificateVerify (RFC 8446 §4.4.3) and DIDVerify (docs/identity.md).

use alloc::vec::Vec;

use crate::protocol::Side;
use crate::wire::HandshakeType;

/// The content that `signer` signs in a message of this type: a preamble that no other protocol and no other
/// message uses, followed by the transcript hash. The preamble of DIDVerify is taken from the public
/// implementation; the paper prints another one.
pub(crate) fn content(typ: HandshakeType, signer: Side, transcript_hash: &[u8]) -> Vec<u8> {
    let context: &[u8] = match (signer, typ) {
        (Side::Client, HandshakeType::DID_VERIFY) => b"TLS 1.3, client DidVerify",
        (Side::Server, HandshakeType::DID_VERIFY) => b"TLS 1.3, server DidVerify",
        (Side::Client, _) => b"TLS 1.3, client CertificateVerify",
        (Side::Server, _) => b"TLS 1.3, server CertificateVerify",
    };
    [&[0x20; 64], context, &[0], transcript_hash].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ssi-openssl signs 64 spaces, this text, a zero byte and the transcript hash.
    #[test]
    fn did_verify_signs_the_input_of_the_public_implementation() {
        let hash = [0xab; 32];
        for (side, text) in
            [(Side::Server, &b"TLS 1.3, server DidVerify"[..]), (Side::Client, b"TLS 1.3, client DidVerify")]
        {
            let content = content(HandshakeType::DID_VERIFY, side, &hash);
            assert_eq!(content.len(), 64 + 25 + 1 + 32);
            assert_eq!(content, [&[b' '; 64][..], text, b"\0", &hash].concat());
        }
    }
}
