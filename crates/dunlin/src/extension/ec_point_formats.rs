//! `ec_point_formats` (RFC 8422 §5.1.2), whose only remaining format is uncompressed.

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, Reader, Writer};

const UNCOMPRESSED: u8 = 0;

pub(crate) struct EcPointFormats;

impl Extension for EcPointFormats {
    const TYPE: ExtensionType = ExtensionType::EC_POINT_FORMATS;
    const IN: &'static [Context] = &[Context::ClientHello, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        // RFC 8422 §5.1.2: a list without the uncompressed format is illegal_parameter.
        if r.vec8(1)?.contains(&UNCOMPRESSED) {
            Ok(Self)
        } else {
            Err(PeerMisbehaved::IllegalParameter(Field::Extension(ExtensionType::EC_POINT_FORMATS)).into())
        }
    }

    fn write(&self, w: &mut Writer) {
        w.vec8(|w| w.u8(UNCOMPRESSED));
    }
}
