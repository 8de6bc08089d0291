//! `record_size_limit` (RFC 8449 §4): the largest record that the sender will receive, in bytes of plaintext
//! with its content type.

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, ProtocolVersion, Reader, What, Writer};

/// RFC 8449 §4: a smaller value is illegal.
pub(crate) const MIN: u16 = 64;

pub(crate) struct RecordSizeLimit(pub(crate) u16);

impl RecordSizeLimit {
    /// RFC 8449 §4: no larger than the version's records, which have one byte less before TLS 1.3.
    pub(crate) fn of(limit: u16, version: ProtocolVersion) -> Self {
        Self(if version == ProtocolVersion::TLS1_2 {
            limit.min(crate::wire::MAX_PLAINTEXT as u16)
        } else {
            limit
        })
    }

    /// The bytes of application data or handshake that one protected record can carry: TLS 1.3 counts the content type,
    /// too (RFC 8449 §4), and no value raises the protocol's own limit.
    pub(crate) fn content(&self, version: ProtocolVersion) -> usize {
        let has_inner_type = version != ProtocolVersion::TLS1_2;
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
                PeerMisbehaved::IllegalParameter(What::Extension(ExtensionType::RECORD_SIZE_LIMIT)).into()
            );
        }
        Ok(Self(limit))
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.0);
    }
}
