//! `application_layer_protocol_negotiation` (RFC 7301 §3.1).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// The client's protocols, in order of preference.
pub(crate) struct Protocols(pub(crate) Vec<Vec<u8>>);

/// The server's choice.
pub(crate) struct Selected(pub(crate) Vec<u8>);

fn read(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Error> {
    Reader::items(r.vec16(2)?, Field::Alpn, |r| Ok(r.vec8(1)?.to_vec()))
}

impl Extension for Protocols {
    const TYPE: ExtensionType = ExtensionType::APPLICATION_LAYER_PROTOCOL_NEGOTIATION;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        read(r).map(Self)
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| self.0.iter().for_each(|p| w.vec8(|w| w.put(p))));
    }
}

impl Extension for Selected {
    const TYPE: ExtensionType = ExtensionType::APPLICATION_LAYER_PROTOCOL_NEGOTIATION;
    const IN: &'static [Context] = &[Context::EncryptedExtensions, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let mut list = read(r)?;
        // RFC 7301 §3.1: the answer "MUST contain exactly one ProtocolName".
        match (list.pop(), list.is_empty()) {
            (Some(protocol), true) => Ok(Self(protocol)),
            _ => Err(Malformed::Length(Field::Alpn).into()),
        }
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| w.vec8(|w| w.put(&self.0)));
    }
}
