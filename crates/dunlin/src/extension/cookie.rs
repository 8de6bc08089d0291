//! `cookie` (RFC 8446 §4.2.2): data that the client must return to the server in its second ClientHello.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

#[derive(Clone)]
pub(crate) struct Cookie(pub(crate) Vec<u8>);

impl Extension for Cookie {
    const TYPE: ExtensionType = ExtensionType::COOKIE;
    const IN: &'static [Context] = &[Context::ClientHello, Context::HelloRetryRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.vec16(1)?.to_vec()))
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| w.put(&self.0));
    }
}
