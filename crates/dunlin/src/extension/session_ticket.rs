//! `session_ticket` (RFC 5077 §3.2): the client's ticket, or its request for one.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

/// The client's ticket; empty if it asks for a new one.
pub(crate) struct Ticket(pub(crate) Vec<u8>);

/// The server will send a NewSessionTicket.
pub(crate) struct Promised;

impl Extension for Ticket {
    const TYPE: ExtensionType = ExtensionType::SESSION_TICKET;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.rest().to_vec()))
    }

    fn write(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}

impl Extension for Promised {
    const TYPE: ExtensionType = ExtensionType::SESSION_TICKET;
    const IN: &'static [Context] = &[Context::Tls12ServerHello];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}
