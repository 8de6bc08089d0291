//! `CertificateStatus` (RFC 6066 §8): the OCSP response of a server of TLS 1.2, a message of its own.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::{Extension, status_request};
use crate::wire::HandshakeType;

/// The DER of the OCSPResponse.
pub(crate) fn read(body: &[u8]) -> Result<Vec<u8>, Error> {
    decode(body, HandshakeType::CERTIFICATE_STATUS, |r| {
        status_request::CertificateStatus::read(r).map(|s| s.0)
    })
}

pub(crate) fn write(response: &[u8]) -> Result<Vec<u8>, Error> {
    let status = status_request::CertificateStatus(response.to_vec());
    encode(HandshakeType::CERTIFICATE_STATUS, |w| status.write(w))
}
