//! `CertificateVerify` (RFC 8446 §4.4.3) and `DIDVerify` (docs/identity.md): a signature over the handshake
//! so far.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::wire::{HandshakeType, SignatureScheme};

pub(crate) struct CertificateVerify<'a> {
    pub(crate) scheme: SignatureScheme,
    pub(crate) signature: &'a [u8],
}

impl<'a> CertificateVerify<'a> {
    /// Reads the body of a message of the type `typ`: both have the same form.
    pub(crate) fn read(typ: HandshakeType, body: &'a [u8]) -> Result<Self, Error> {
        decode(body, typ, |r| Ok(Self { scheme: SignatureScheme(r.u16()?), signature: r.vec16(0)? }))
    }

    pub(crate) fn write(
        typ: HandshakeType,
        scheme: SignatureScheme,
        signature: &[u8],
    ) -> Result<Vec<u8>, Error> {
        encode(typ, |w| {
            w.u16(scheme.0);
            w.vec16(|w| w.put(signature));
        })
    }
}
