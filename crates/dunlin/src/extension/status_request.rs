//! `status_request` (RFC 6066 §8): a stapled OCSP response for a certificate (RFC 8446 §4.4.2.1).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// `CertificateStatusType` of OCSP, the only defined one.
const OCSP: u8 = 1;

/// The client asks for an OCSP response. This engine's clients accept any responder and send no request
/// extensions. A server answers whatever details a client asks for, so the reader does not keep them.
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
            // RFC 6066 §8: the format of the request depends on the type.
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

/// The answer of a TLS 1.2 server that may send a CertificateStatus message (RFC 6066 §8).
pub(crate) struct Acknowledged;

impl Extension for Acknowledged {
    const TYPE: ExtensionType = ExtensionType::STATUS_REQUEST;
    const IN: &'static [Context] = &[Context::Tls12ServerHello];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}

/// `CertificateStatus`: an OCSPResponse in DER.
pub(crate) struct CertificateStatus(pub(crate) Vec<u8>);

impl Extension for CertificateStatus {
    const TYPE: ExtensionType = ExtensionType::STATUS_REQUEST;
    const IN: &'static [Context] = &[Context::Certificate];

    /// Also reads the body of the TLS 1.2 CertificateStatus message (RFC 6066 §8).
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u8()? {
            OCSP => Ok(Self(r.vec24(1)?.to_vec())),
            _ => Err(Malformed::Value(Field::Extension(ExtensionType::STATUS_REQUEST)).into()),
        }
    }

    fn write(&self, w: &mut Writer) {
        w.u8(OCSP);
        w.vec24(|w| w.put(&self.0));
    }
}
