//! `CertificateRequest` (RFC 8446 §4.3.2).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::{Context, Extensions, ExtensionsWriter, rules, signature_algorithms};
use crate::wire::{ExtensionType, Field, HandshakeType, Reader, SignatureScheme};

pub(crate) struct CertificateRequest<'a> {
    pub(crate) context: &'a [u8],
    pub(crate) extensions: Extensions<'a>,
}

/// The message of TLS 1.2 (RFC 5246 §7.4.4), which has fields instead of extensions.
pub(crate) struct Tls12CertificateRequest {
    /// The values of ClientCertificateType that the server accepts.
    pub(crate) types: Vec<u8>,
    pub(crate) schemes: Vec<SignatureScheme>,
    /// Distinguished names in DER.
    pub(crate) authorities: Vec<Vec<u8>>,
}

impl Tls12CertificateRequest {
    /// The ClientCertificateType of a key for `scheme`: `rsa_sign`, `dss_sign` or `ecdsa_sign` (RFC 5246
    /// §7.4.4, RFC 8422 §5.5).
    pub(crate) fn type_of(scheme: SignatureScheme) -> u8 {
        match scheme {
            SignatureScheme::DSA_SHA256 => 2,
            scheme if scheme.is_rsa() => 1,
            _ => 64,
        }
    }

    pub(crate) fn read(body: &[u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::CERTIFICATE_REQUEST, |r| {
            let types = r.vec8(1)?.to_vec();
            let schemes = signature_algorithms::read(r)?;
            let authorities =
                Reader::items(r.vec16(0)?, Field::Extension(ExtensionType::CERTIFICATE_AUTHORITIES), |r| {
                    r.vec16(1).map(<[u8]>::to_vec)
                })?;
            Ok(Self { types, schemes, authorities })
        })
    }

    pub(crate) fn write(&self) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CERTIFICATE_REQUEST, |w| {
            w.vec8(|w| w.put(&self.types));
            w.vec16(|w| self.schemes.iter().for_each(|s| w.u16(s.0)));
            w.vec16(|w| self.authorities.iter().for_each(|a| w.vec16(|w| w.put(a))));
        })
    }
}

impl<'a> CertificateRequest<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::CERTIFICATE_REQUEST, |r| {
            let context = r.vec8(0)?;
            let extensions = Extensions::read(r, const { &rules(Context::CertificateRequest) })?;
            Ok(Self { context, extensions })
        })
    }

    /// Writes the message of the main handshake, whose context is empty.
    pub(crate) fn write(extensions: &ExtensionsWriter) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CERTIFICATE_REQUEST, |w| {
            w.u8(0);
            extensions.write(w);
        })
    }
}
