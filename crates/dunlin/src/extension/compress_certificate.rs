//! `compress_certificate` (RFC 8879 §3): the algorithms that the sender can decompress.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{CertificateCompressionAlgorithm, ExtensionType, Field, Reader, Writer};

pub(crate) struct CompressCertificate(pub(crate) Vec<CertificateCompressionAlgorithm>);

impl Extension for CompressCertificate {
    const TYPE: ExtensionType = ExtensionType::COMPRESS_CERTIFICATE;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let algorithms = r.vec8(2)?;
        if algorithms.len() % 2 != 0 {
            return Err(Malformed::Length(Field::Extension(ExtensionType::COMPRESS_CERTIFICATE)).into());
        }
        Reader::items(algorithms, Field::Extension(ExtensionType::COMPRESS_CERTIFICATE), |r| {
            Ok(CertificateCompressionAlgorithm(r.u16()?))
        })
        .map(Self)
    }

    fn write(&self, w: &mut Writer) {
        w.vec8(|w| self.0.iter().for_each(|a| w.u16(a.0)));
    }
}
