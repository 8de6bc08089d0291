//! `rrc` (RFC 9853 §3): its sender takes part in return routability checks.

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

pub(crate) struct Rrc;

impl Extension for Rrc {
    const TYPE: ExtensionType = ExtensionType::RRC;
    const IN: &'static [Context] = &[Context::ClientHello, Context::ServerHello, Context::Tls12ServerHello];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}
