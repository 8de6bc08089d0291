//! `tls_cert_with_extern_psk` (RFC 8773 §4; its successor is RFC 9973).

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

/// The empty body: the client's offer and the server's acceptance.
pub(crate) struct TlsCertWithExternPsk;

impl Extension for TlsCertWithExternPsk {
    const TYPE: ExtensionType = ExtensionType::TLS_CERT_WITH_EXTERN_PSK;
    const IN: &'static [Context] = &[Context::ClientHello, Context::ServerHello];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}
