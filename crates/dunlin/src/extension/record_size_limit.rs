//! `record_size_limit` (RFC 8449 §4): the largest plaintext of a record that the sender accepts, in bytes. In
//! TLS 1.3 it includes the content type.

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, ProtocolVersion, Reader, Writer};

/// The smallest legal value (RFC 8449 §4).
pub(crate) const MIN: u16 = 64;

pub(crate) struct RecordSizeLimit(pub(crate) u16);

impl RecordSizeLimit {
    /// Caps `limit` at the largest record of the version, which is one byte less before TLS 1.3 (RFC 8449
    /// §4).
    pub(crate) fn of(limit: u16, version: ProtocolVersion) -> Self {
        Self(if version.is_1_2() { limit.min(crate::wire::MAX_PLAINTEXT as u16) } else { limit })
    }

    /// The most content of one protected record, in bytes. In TLS 1.3 the limit also counts the content type
    /// (RFC 8449 §4). No value raises the protocol's own limit.
    pub(crate) fn content(&self, version: ProtocolVersion) -> usize {
        let has_inner_type = !version.is_1_2();
        usize::from(self.0).saturating_sub(has_inner_type.into()).min(crate::wire::MAX_PLAINTEXT)
    }
}

impl Extension for RecordSizeLimit {
    const TYPE: ExtensionType = ExtensionType::RECORD_SIZE_LIMIT;
    const IN: &'static [Context] =
        &[Context::ClientHello, Context::EncryptedExtensions, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let limit = r.u16()?;
        if limit < MIN {
            return Err(
                PeerMisbehaved::IllegalParameter(Field::Extension(ExtensionType::RECORD_SIZE_LIMIT)).into()
            );
        }
        Ok(Self(limit))
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.0);
    }
}
