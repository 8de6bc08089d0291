//! `CompressedCertificate` (RFC 8879 §4): the compressed body of a Certificate message.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::{Error, Misuse};
use crate::wire::{CertificateCompressionAlgorithm, HandshakeType};

pub(crate) struct CompressedCertificate<'a> {
    pub(crate) algorithm: CertificateCompressionAlgorithm,
    /// The length of the Certificate message without its header, in bytes.
    pub(crate) uncompressed_length: usize,
    pub(crate) compressed: &'a [u8],
}

impl<'a> CompressedCertificate<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::COMPRESSED_CERTIFICATE, |r| {
            let algorithm = CertificateCompressionAlgorithm(r.u16()?);
            let uncompressed_length = r.u24()?;
            Ok(Self { algorithm, uncompressed_length, compressed: r.vec24(1)? })
        })
    }

    pub(crate) fn write(&self) -> Result<Vec<u8>, Error> {
        let length = u32::try_from(self.uncompressed_length).map_err(|_| Misuse::FieldTooLong)?;
        let [0, length @ ..] = length.to_be_bytes() else { return Err(Misuse::FieldTooLong.into()) };
        encode(HandshakeType::COMPRESSED_CERTIFICATE, |w| {
            w.u16(self.algorithm.0);
            w.put(&length);
            w.vec24(|w| w.put(self.compressed));
        })
    }
}
