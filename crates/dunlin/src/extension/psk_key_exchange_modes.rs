//! `psk_key_exchange_modes` (RFC 8446 §4.2.9).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, PskKeyExchangeMode, Reader, Writer};

pub(crate) struct PskKeyExchangeModes(pub(crate) Vec<PskKeyExchangeMode>);

impl Extension for PskKeyExchangeModes {
    const TYPE: ExtensionType = ExtensionType::PSK_KEY_EXCHANGE_MODES;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let modes = r.vec8(1)?;
        Ok(Self(modes.iter().copied().map(PskKeyExchangeMode).collect()))
    }

    fn write(&self, w: &mut Writer) {
        w.vec8(|w| self.0.iter().for_each(|m| w.u8(m.0)));
    }
}
