//! `CertificateVerify` (RFC 8446 §4.4.3): a signature over the handshake so far.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::wire::{HandshakeType, SignatureScheme};

pub(crate) struct CertificateVerify<'a> {
    pub(crate) scheme: SignatureScheme,
    pub(crate) signature: &'a [u8],
}

impl<'a> CertificateVerify<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::CERTIFICATE_VERIFY, |r| {
            Ok(Self { scheme: SignatureScheme(r.u16()?), signature: r.vec16(0)? })
        })
    }

    pub(crate) fn write(scheme: SignatureScheme, signature: &[u8]) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CERTIFICATE_VERIFY, |w| {
            w.u16(scheme.0);
            w.vec16(|w| w.put(signature));
        })
    }
}
