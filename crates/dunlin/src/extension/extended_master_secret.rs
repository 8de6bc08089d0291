//! `extended_master_secret` (RFC 7627 §5.1), which binds the master secret to the whole handshake.

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

pub(crate) struct ExtendedMasterSecret;

impl Extension for ExtendedMasterSecret {
    const TYPE: ExtensionType = ExtensionType::EXTENDED_MASTER_SECRET;
    const IN: &'static [Context] = &[Context::ClientHello, Context::Tls12ServerHello];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}
