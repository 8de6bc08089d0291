//! `supported_versions` (RFC 8446 §4.2.1).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{ExtensionType, Field, ProtocolVersion, Reader, Writer};

/// The client's versions, in order of preference.
pub(crate) struct Offer(pub(crate) Vec<ProtocolVersion>);

/// The server's choice.
pub(crate) struct Selected(pub(crate) ProtocolVersion);

impl Extension for Offer {
    const TYPE: ExtensionType = ExtensionType::SUPPORTED_VERSIONS;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let versions = r.vec8(2)?;
        if versions.len() % 2 != 0 {
            return Err(Malformed::Length(Field::Extension(ExtensionType::SUPPORTED_VERSIONS)).into());
        }
        Reader::items(versions, Field::Extension(ExtensionType::SUPPORTED_VERSIONS), |r| {
            Ok(ProtocolVersion(r.u16()?))
        })
        .map(Self)
    }

    fn write(&self, w: &mut Writer) {
        w.vec8(|w| self.0.iter().for_each(|v| w.u16(v.0)));
    }
}

impl Extension for Selected {
    const TYPE: ExtensionType = ExtensionType::SUPPORTED_VERSIONS;
    const IN: &'static [Context] = &[Context::ServerHello, Context::HelloRetryRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(ProtocolVersion(r.u16()?)))
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.0.0);
    }
}
