//! `supported_groups` (RFC 8446 §4.2.7): groups for key exchange, in order of preference.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Field, NamedGroup, Reader, Writer};

pub(crate) struct SupportedGroups(pub(crate) Vec<NamedGroup>);

impl Extension for SupportedGroups {
    const TYPE: ExtensionType = ExtensionType::SUPPORTED_GROUPS;
    const IN: &'static [Context] = &[Context::ClientHello, Context::EncryptedExtensions];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let groups = Reader::items(r.vec16(2)?, Field::Extension(ExtensionType::SUPPORTED_GROUPS), |r| {
            r.u16().map(NamedGroup)
        })?;
        Ok(Self(groups))
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| self.0.iter().for_each(|g| w.u16(g.0)));
    }
}
