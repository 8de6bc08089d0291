//! `status_request` (RFC 6066 §8): the OCSP response that comes with a certificate (RFC 8446 §4.4.2.1).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{ExtensionType, Reader, What, Writer};

/// `CertificateStatusType` of OCSP, the only one there is.
const OCSP: u8 = 1;

/// The client wants a status: of any responder, without request extensions. Whatever else one asks for is no reason to
/// send nothing, so nothing is kept of it.
pub(crate) struct StatusRequest;

impl Extension for StatusRequest {
    const TYPE: ExtensionType = ExtensionType::STATUS_REQUEST;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u8()? {
            OCSP => {
                r.vec16(0)?;
                r.vec16(0)?;
            }
            // RFC 6066 §8: other types have other requests.
            _ => drop(r.rest()),
        }
        Ok(Self)
    }

    fn write(&self, w: &mut Writer) {
        w.u8(OCSP);
        w.u16(0);
        w.u16(0);
    }
}

/// A server of TLS 1.2 may send a CertificateStatus message (RFC 6066 §8).
pub(crate) struct Acknowledged;

impl Extension for Acknowledged {
    const TYPE: ExtensionType = ExtensionType::STATUS_REQUEST;
    const IN: &'static [Context] = &[Context::Tls12ServerHello];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}

/// `CertificateStatus`: the DER of an OCSPResponse.
pub(crate) struct CertificateStatus(pub(crate) Vec<u8>);

impl Extension for CertificateStatus {
    const TYPE: ExtensionType = ExtensionType::STATUS_REQUEST;
    const IN: &'static [Context] = &[Context::Certificate];

    /// Also the body of the message of TLS 1.2 (RFC 6066 §8).
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u8()? {
            OCSP => Ok(Self(r.vec24(1)?.to_vec())),
            _ => Err(Malformed::Value(What::Extension(ExtensionType::STATUS_REQUEST)).into()),
        }
    }

    fn write(&self, w: &mut Writer) {
        w.u8(OCSP);
        w.vec24(|w| w.put(&self.0));
    }
}
