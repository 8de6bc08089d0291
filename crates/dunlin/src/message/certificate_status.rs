//! `CertificateStatus` (RFC 6066 §8): the message that carries a TLS 1.2 server's OCSP response.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::{Extension, status_request};
use crate::wire::HandshakeType;

/// Reads the message and gives the OCSPResponse in DER.
pub(crate) fn read(body: &[u8]) -> Result<Vec<u8>, Error> {
    decode(body, HandshakeType::CERTIFICATE_STATUS, |r| {
        status_request::CertificateStatus::read(r).map(|s| s.0)
    })
}

pub(crate) fn write(response: &[u8]) -> Result<Vec<u8>, Error> {
    let status = status_request::CertificateStatus(response.to_vec());
    encode(HandshakeType::CERTIFICATE_STATUS, |w| status.write(w))
}
