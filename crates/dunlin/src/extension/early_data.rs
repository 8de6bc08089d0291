//! `early_data` (RFC 8446 §4.2.10).

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

/// The empty form: the client's offer and the server's acceptance.
pub(crate) struct EarlyData;

impl Extension for EarlyData {
    const TYPE: ExtensionType = ExtensionType::EARLY_DATA;
    const IN: &'static [Context] = &[Context::ClientHello, Context::EncryptedExtensions];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}

/// The early data that a ticket allows, in bytes of content.
pub(crate) struct MaxEarlyDataSize(pub(crate) u32);

impl Extension for MaxEarlyDataSize {
    const TYPE: ExtensionType = ExtensionType::EARLY_DATA;
    const IN: &'static [Context] = &[Context::NewSessionTicket];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.u32()?))
    }

    fn write(&self, w: &mut Writer) {
        w.u32(self.0);
    }
}
