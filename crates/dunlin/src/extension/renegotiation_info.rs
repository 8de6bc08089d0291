//! `renegotiation_info` (RFC 5746 §3.2): the verify_data of the previous handshake, empty in the first
//! handshake.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

pub(crate) struct RenegotiationInfo(pub(crate) Vec<u8>);

impl Extension for RenegotiationInfo {
    const TYPE: ExtensionType = ExtensionType::RENEGOTIATION_INFO;
    const IN: &'static [Context] = &[Context::ClientHello, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.vec8(0)?.to_vec()))
    }

    fn write(&self, w: &mut Writer) {
        w.vec8(|w| w.put(&self.0));
    }
}
