//! `client_certificate_type` and `server_certificate_type` (RFC 7250 §3), negotiated separately for each
//! side.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{CertificateType, ExtensionType, Field, Reader, Writer};

macro_rules! certificate_type {
    ($typ:ident: $(#[$odoc:meta])* $offer:ident, $(#[$sdoc:meta])* $selected:ident) => {
        $(#[$odoc])*
        pub(crate) struct $offer(pub(crate) Vec<CertificateType>);

        $(#[$sdoc])*
        pub(crate) struct $selected(pub(crate) CertificateType);

        impl Extension for $offer {
            const TYPE: ExtensionType = ExtensionType::$typ;
            const IN: &'static [Context] = &[Context::ClientHello];

            fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
                let types = r.vec8(1)?;
                // RFC 7250 §4.1: a client that has nothing but X.509 to offer "MUST omit" the extension.
                if types == [CertificateType::X509.0] {
                    return Err(PeerMisbehaved::IllegalParameter(Field::CertificateTypeX509).into());
                }
                Ok(Self(types.iter().copied().map(CertificateType).collect()))
            }

            fn write(&self, w: &mut Writer) {
                w.vec8(|w| self.0.iter().for_each(|t| w.u8(t.0)));
            }
        }

        impl Extension for $selected {
            const TYPE: ExtensionType = ExtensionType::$typ;
            const IN: &'static [Context] = &[Context::EncryptedExtensions, Context::Tls12ServerHello];

            fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
                Ok(Self(CertificateType(r.u8()?)))
            }

            fn write(&self, w: &mut Writer) {
                w.u8(self.0.0);
            }
        }
    };
}

certificate_type! {
    CLIENT_CERTIFICATE_TYPE:
    /// The types that the client can send, in order of preference.
    ClientTypes,
    /// The type that the client must send.
    ClientType
}

certificate_type! {
    SERVER_CERTIFICATE_TYPE:
    /// The types that the client can verify, in order of preference.
    ServerTypes,
    /// The type that the server sends.
    ServerType
}
