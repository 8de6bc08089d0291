//! `ServerHelloDone` (RFC 5246 §7.4.5): an empty message.

use alloc::vec::Vec;

use super::{Message, decode, encode};
use crate::error::Error;
use crate::wire::HandshakeType;

pub(crate) fn read(message: &Message) -> Result<(), Error> {
    let body = message.expect(HandshakeType::SERVER_HELLO_DONE)?;
    decode(body, HandshakeType::SERVER_HELLO_DONE, |_| Ok(()))
}

pub(crate) fn write() -> Result<Vec<u8>, Error> {
    encode(HandshakeType::SERVER_HELLO_DONE, |_| {})
}
