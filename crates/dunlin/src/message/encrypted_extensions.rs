//! `EncryptedExtensions` (RFC 8446 §4.3.1).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::{Context, Extensions, ExtensionsWriter, rules};
use crate::wire::HandshakeType;

pub(crate) fn read(body: &[u8]) -> Result<Extensions<'_>, Error> {
    decode(body, HandshakeType::ENCRYPTED_EXTENSIONS, |r| {
        Extensions::read(r, const { &rules(Context::EncryptedExtensions) })
    })
}

pub(crate) fn write(extensions: &ExtensionsWriter) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::ENCRYPTED_EXTENSIONS, |w| extensions.write(w))
}
