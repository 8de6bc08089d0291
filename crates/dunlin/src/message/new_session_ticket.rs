//! `NewSessionTicket` (RFC 8446 §4.6.1).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::early_data::MaxEarlyDataSize;
use crate::extension::{Context, Extensions, ExtensionsWriter, rules};
use crate::wire::HandshakeType;

pub(crate) struct NewSessionTicket<'a> {
    /// In seconds.
    pub(crate) lifetime: u32,
    pub(crate) age_add: u32,
    pub(crate) nonce: &'a [u8],
    pub(crate) ticket: &'a [u8],
    /// The early data that the ticket allows, in bytes; zero if it allows none.
    pub(crate) max_early_data: u32,
}

/// The message of TLS 1.2 (RFC 5077 §3.3).
pub(crate) struct Tls12NewSessionTicket<'a> {
    /// In seconds; zero if the server gives no hint.
    pub(crate) lifetime_hint: u32,
    /// Empty if the server has changed its mind and gives no ticket.
    pub(crate) ticket: &'a [u8],
}

impl<'a> Tls12NewSessionTicket<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::NEW_SESSION_TICKET, |r| {
            Ok(Self { lifetime_hint: r.u32()?, ticket: r.vec16(0)? })
        })
    }

    pub(crate) fn write(&self) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::NEW_SESSION_TICKET, |w| {
            w.u32(self.lifetime_hint);
            w.vec16(|w| w.put(self.ticket));
        })
    }
}

impl<'a> NewSessionTicket<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::NEW_SESSION_TICKET, |r| {
            let lifetime = r.u32()?;
            let age_add = r.u32()?;
            let nonce = r.vec8(0)?;
            let ticket = r.vec16(1)?;
            let extensions = Extensions::read(r, const { &rules(Context::NewSessionTicket) })?;
            let max_early_data = extensions.get::<MaxEarlyDataSize>()?.map_or(0, |m| m.0);
            Ok(Self { lifetime, age_add, nonce, ticket, max_early_data })
        })
    }

    pub(crate) fn write(&self) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::NEW_SESSION_TICKET, |w| {
            w.u32(self.lifetime);
            w.u32(self.age_add);
            w.vec8(|w| w.put(self.nonce));
            w.vec16(|w| w.put(self.ticket));
            let mut extensions = ExtensionsWriter::default();
            let size = Some(self.max_early_data).filter(|size| *size > 0).map(MaxEarlyDataSize);
            extensions.put_some(size.as_ref());
            extensions.write(w);
        })
    }
}
