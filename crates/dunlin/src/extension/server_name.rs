//! `server_name` (RFC 6066 §3): the DNS name that the client wants.

use alloc::string::{String, ToString};

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{ExtensionType, Field, Reader, Writer};

const HOST_NAME: u8 = 0;

/// The client's offer: one name of the type host_name, with the case as sent.
pub(crate) struct HostName(pub(crate) String);

impl Extension for HostName {
    const TYPE: ExtensionType = ExtensionType::SERVER_NAME;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Reader::all(r.vec16(1)?, Field::Extension(ExtensionType::SERVER_NAME), |list| {
            // RFC 6066 §3: one name for each type, and host_name is the only type ever defined.
            if list.u8()? != HOST_NAME {
                return Err(Malformed::Value(Field::Extension(ExtensionType::SERVER_NAME)).into());
            }
            let name = core::str::from_utf8(list.vec16(1)?)
                .map_err(|_| Malformed::Value(Field::Extension(ExtensionType::SERVER_NAME)))?;
            let plain = name.bytes().all(|b| b.is_ascii_graphic());
            if !plain || name.len() > 255 {
                return Err(Malformed::Value(Field::Extension(ExtensionType::SERVER_NAME)).into());
            }
            Ok(Self(name.to_string()))
        })
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| {
            w.u8(HOST_NAME);
            w.vec16(|w| w.put(self.0.as_bytes()));
        });
    }
}

/// The server's empty answer: the server used the name.
pub(crate) struct Acknowledged;

impl Extension for Acknowledged {
    const TYPE: ExtensionType = ExtensionType::SERVER_NAME;
    const IN: &'static [Context] = &[Context::EncryptedExtensions, Context::Tls12ServerHello];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}
