//! `connection_id` (RFC 9146 §3, RFC 9147 §9): the ID that its sender wants to receive. An empty one only
//! offers to send the peer's.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

pub(crate) struct ConnectionId(pub(crate) Vec<u8>);

impl Extension for ConnectionId {
    const TYPE: ExtensionType = ExtensionType::CONNECTION_ID;
    const IN: &'static [Context] = &[Context::ClientHello, Context::ServerHello, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.vec8(0)?.to_vec()))
    }

    fn write(&self, w: &mut Writer) {
        w.vec8(|w| w.put(&self.0));
    }
}
