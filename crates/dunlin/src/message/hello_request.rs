//! `HelloRequest` (RFC 5246 §7.4.1.1): an empty message, which does not enter the transcript.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::wire::HandshakeType;

pub(crate) fn read(body: &[u8]) -> Result<(), Error> {
    decode(body, HandshakeType::HELLO_REQUEST, |_| Ok(()))
}

pub(crate) fn write() -> Result<Vec<u8>, Error> {
    encode(HandshakeType::HELLO_REQUEST, |_| {})
}
