//! `did_methods` (draft-vesco-vcauthtls): the methods of decentralised identifiers that the sender resolves.
//! It accompanies the certificate type of verifiable credentials.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{DidMethod, ExtensionType, Field, Reader, Writer};

pub(crate) struct DidMethods(pub(crate) Vec<DidMethod>);

impl Extension for DidMethods {
    const TYPE: ExtensionType = ExtensionType::DID_METHODS;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Reader::items(r.vec16(2)?, Field::Extension(ExtensionType::DID_METHODS), |r| Ok(DidMethod(r.u16()?)))
            .map(Self)
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| self.0.iter().for_each(|method| w.u16(method.0)));
    }
}
