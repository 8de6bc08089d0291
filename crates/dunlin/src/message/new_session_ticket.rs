//! `NewSessionTicket` (RFC 8446 §4.6.1).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::{Context, Extensions};
use crate::wire::HandshakeType;

pub(crate) struct NewSessionTicket<'a> {
    /// In seconds.
    pub(crate) lifetime: u32,
    pub(crate) age_add: u32,
    pub(crate) nonce: &'a [u8],
    pub(crate) ticket: &'a [u8],
}

impl<'a> NewSessionTicket<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, "NewSessionTicket", |r| {
            let lifetime = r.u32()?;
            let age_add = r.u32()?;
            let nonce = r.vec8(0)?;
            let ticket = r.vec16(1)?;
            Extensions::read(r, Context::NewSessionTicket)?;
            Ok(Self { lifetime, age_add, nonce, ticket })
        })
    }

    pub(crate) fn write(&self) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::NEW_SESSION_TICKET, |w| {
            w.u32(self.lifetime);
            w.u32(self.age_add);
            w.vec8(|w| w.put(self.nonce));
            w.vec16(|w| w.put(self.ticket));
            w.u16(0);
        })
    }
}
