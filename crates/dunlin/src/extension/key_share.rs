//! `key_share` (RFC 8446 §4.2.8).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, NamedGroup, Reader, Writer};

/// The most shares in one offer. Real clients send one to four. It limits the work, because the server
/// compares each share with every other. OpenSSL and BoringSSL compare shares with their own groups only, and
/// set no limit.
const MAX_SHARES: usize = 64;

/// `KeyShareEntry`
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) group: NamedGroup,
    pub(crate) share: Vec<u8>,
}

impl Entry {
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self { group: NamedGroup(r.u16()?), share: r.vec16(1)?.to_vec() })
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.group.0);
        w.vec16(|w| w.put(&self.share));
    }
}

/// The client's shares. With an empty list the client asks for a HelloRetryRequest.
pub(crate) struct Offer(pub(crate) Vec<Entry>);

impl Offer {
    pub(crate) fn share(&self, group: NamedGroup) -> Option<&[u8]> {
        self.0.iter().find(|e| e.group == group).map(|e| &*e.share)
    }
}

impl Extension for Offer {
    const TYPE: ExtensionType = ExtensionType::KEY_SHARE;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let entries =
            Reader::items(r.vec16(0)?, Field::Extension(ExtensionType::KEY_SHARE), |r| Entry::read(r))?;
        r.limit(entries.len(), MAX_SHARES)?;
        // RFC 8446 §4.2.8: "Clients MUST NOT offer multiple KeyShareEntry values for the same group".
        for (i, entry) in entries.iter().enumerate() {
            if entries.iter().skip(i + 1).any(|e| e.group == entry.group) {
                return Err(PeerMisbehaved::IllegalParameter(Field::GroupTwice).into());
            }
        }
        Ok(Self(entries))
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| self.0.iter().for_each(|e| e.write(w)));
    }
}

/// The server's share.
pub(crate) struct Selected(pub(crate) Entry);

impl Extension for Selected {
    const TYPE: ExtensionType = ExtensionType::KEY_SHARE;
    const IN: &'static [Context] = &[Context::ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Entry::read(r).map(Self)
    }

    fn write(&self, w: &mut Writer) {
        self.0.write(w);
    }
}

/// The group for which the server wants a share.
pub(crate) struct Retry(pub(crate) NamedGroup);

impl Extension for Retry {
    const TYPE: ExtensionType = ExtensionType::KEY_SHARE;
    const IN: &'static [Context] = &[Context::HelloRetryRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(NamedGroup(r.u16()?)))
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.0.0);
    }
}
