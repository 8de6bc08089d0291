//! `pre_shared_key` (RFC 8446 §4.2.11): the last extension of a ClientHello, because its binders cover all
//! bytes before them.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// The most identities in one offer, more than real clients send. It limits the work for one ClientHello.
/// OpenSSL and BoringSSL set no limit.
const MAX_IDENTITIES: usize = 64;

/// `PskIdentity`
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) identity: Vec<u8>,
    pub(crate) obfuscated_ticket_age: u32,
}

/// The client's identities with their binders.
pub(crate) struct Offer {
    pub(crate) identities: Vec<Identity>,
    pub(crate) binders: Vec<Vec<u8>>,
}

impl Offer {
    /// The length of the binders with their length field, in bytes. The transcript of a binder ends before
    /// them (RFC 8446 §4.2.11.2).
    pub(crate) fn binders_len(&self) -> usize {
        2 + self.binders.iter().map(|b| 1 + b.len()).sum::<usize>()
    }
}

impl Extension for Offer {
    const TYPE: ExtensionType = ExtensionType::PRE_SHARED_KEY;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let identities = Reader::items(r.vec16(7)?, Field::Extension(ExtensionType::PRE_SHARED_KEY), |r| {
            Ok::<_, Error>(Identity { identity: r.vec16(1)?.to_vec(), obfuscated_ticket_age: r.u32()? })
        })?;
        let binders = Reader::items(r.vec16(33)?, Field::Extension(ExtensionType::PRE_SHARED_KEY), |r| {
            r.vec8(32).map(<[u8]>::to_vec)
        })?;
        // RFC 8446 §4.2.11: one binder for each identity, in the same order.
        if identities.len() != binders.len() {
            return Err(Error::PeerMisbehaved(crate::error::PeerMisbehaved::IllegalParameter(
                Field::BinderCount,
            )));
        }
        if identities.is_empty() {
            return Err(Malformed::Length(Field::Extension(ExtensionType::PRE_SHARED_KEY)).into());
        }
        r.limit(identities.len(), MAX_IDENTITIES)?;
        Ok(Self { identities, binders })
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| {
            for identity in &self.identities {
                w.vec16(|w| w.put(&identity.identity));
                w.u32(identity.obfuscated_ticket_age);
            }
        });
        w.vec16(|w| self.binders.iter().for_each(|b| w.vec8(|w| w.put(b))));
    }
}

/// The index of the identity that the server chose.
pub(crate) struct Selected(pub(crate) u16);

impl Extension for Selected {
    const TYPE: ExtensionType = ExtensionType::PRE_SHARED_KEY;
    const IN: &'static [Context] = &[Context::ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.u16()?))
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.0);
    }
}
