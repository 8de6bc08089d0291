//! `record_size_limit` (RFC 8449 §4): the largest record that the sender will receive, in bytes of plaintext
//! with its content type.

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Reader, Writer};

/// RFC 8449 §4: a smaller value is illegal.
pub(crate) const MIN: u16 = 64;

pub(crate) struct RecordSizeLimit(pub(crate) u16);

impl RecordSizeLimit {
    /// The bytes of application data or handshake that one protected record towards this peer can carry: the
    /// limit counts the content type (RFC 8449 §4), and no value raises the protocol's own limit.
    pub(crate) fn content(&self) -> usize {
        usize::from(self.0).saturating_sub(1).min(crate::record::MAX_PLAINTEXT)
    }
}

impl Extension for RecordSizeLimit {
    const TYPE: ExtensionType = ExtensionType::RECORD_SIZE_LIMIT;
    const IN: &'static [Context] = &[Context::ClientHello, Context::EncryptedExtensions];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let limit = r.u16()?;
        if limit < MIN {
            return Err(PeerMisbehaved::IllegalParameter("record_size_limit").into());
        }
        Ok(Self(limit))
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.0);
    }
}
