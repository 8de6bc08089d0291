//! `CertificateRequest` (RFC 8446 §4.3.2).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::{Context, Extensions, ExtensionsWriter};
use crate::wire::HandshakeType;

pub(crate) struct CertificateRequest<'a> {
    pub(crate) context: &'a [u8],
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> CertificateRequest<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, "CertificateRequest", |r| {
            let context = r.vec8(0)?;
            let extensions = Extensions::read(r, Context::CertificateRequest)?;
            Ok(Self { context, extensions })
        })
    }

    /// The one in the main handshake, whose context is empty.
    pub(crate) fn write(extensions: &ExtensionsWriter) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CERTIFICATE_REQUEST, |w| {
            w.u8(0);
            extensions.write(w);
        })
    }
}
