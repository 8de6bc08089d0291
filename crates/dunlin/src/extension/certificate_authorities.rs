//! `certificate_authorities` (RFC 8446 §4.2.4): the distinguished names of the sender's trust anchors, in
//! DER.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Field, Reader, Writer};

pub(crate) struct CertificateAuthorities(pub(crate) Vec<Vec<u8>>);

impl Extension for CertificateAuthorities {
    const TYPE: ExtensionType = ExtensionType::CERTIFICATE_AUTHORITIES;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Reader::items(r.vec16(3)?, Field::Extension(ExtensionType::CERTIFICATE_AUTHORITIES), |r| {
            Ok(r.vec16(1)?.to_vec())
        })
        .map(Self)
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| self.0.iter().for_each(|name| w.vec16(|w| w.put(name))));
    }
}
