//! `credential_status` (docs/identity.md): the holder of a verifiable credential staples the status lists of
//! its issuer, so that the peer need not fetch them.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, Writer};

/// The longest status lists beside one credential, in bytes together.
pub(crate) const MAX_CREDENTIAL_STATUS: usize = 16 * 1024;

/// The sender accepts status lists.
pub(crate) struct Accepted;

impl Extension for Accepted {
    const TYPE: ExtensionType = ExtensionType::CREDENTIAL_STATUS;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest, Context::SsiRequest];

    fn read(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}

/// The lists, beside the first entry of a Certificate message. Only verifiers read their content.
pub(crate) struct Lists(pub(crate) Vec<u8>);

impl Extension for Lists {
    const TYPE: ExtensionType = ExtensionType::CREDENTIAL_STATUS;
    const IN: &'static [Context] = &[Context::Certificate];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        if r.is_empty() {
            Err(r.bad_length().into())
        } else {
            Ok(Self(r.rest_up_to(MAX_CREDENTIAL_STATUS)?.to_vec()))
        }
    }

    fn write(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}
