//! `max_fragment_length` (RFC 6066 §4): the largest content of a record in both directions. RFC 8449 replaces
//! it.

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// The defined lengths, in bytes. The code of a length is its index plus 1.
pub(crate) const LENGTHS: [u16; 4] = [512, 1024, 2048, 4096];

/// The length that the client asks for, or that the server confirms, in bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxFragmentLength(pub(crate) u16);

impl Extension for MaxFragmentLength {
    const TYPE: ExtensionType = ExtensionType::MAX_FRAGMENT_LENGTH;
    const IN: &'static [Context] =
        &[Context::ClientHello, Context::EncryptedExtensions, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let code = usize::from(r.u8()?);
        // RFC 6066 §4: any other value is illegal_parameter.
        let length = code.checked_sub(1).and_then(|i| LENGTHS.get(i));
        length.map(|l| Self(*l)).ok_or(
            PeerMisbehaved::IllegalParameter(Field::Extension(ExtensionType::MAX_FRAGMENT_LENGTH)).into(),
        )
    }

    fn write(&self, w: &mut Writer) {
        let code = LENGTHS.iter().position(|l| *l == self.0).map_or(0, |i| i + 1);
        w.u8(code as u8);
    }
}
