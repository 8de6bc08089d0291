//! `KeyUpdate` (RFC 8446 §4.6.3).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{HandshakeType, KeyUpdateRequest};

pub(crate) fn read(body: &[u8]) -> Result<KeyUpdateRequest, Error> {
    let request = decode(body, "KeyUpdate", |r| Ok(KeyUpdateRequest(r.u8()?)))?;
    // RFC 8446 §4.6.3: any other value: illegal_parameter.
    match request.name() {
        Some(_) => Ok(request),
        None => Err(PeerMisbehaved::IllegalParameter("request_update").into()),
    }
}

pub(crate) fn write(request: KeyUpdateRequest) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::KEY_UPDATE, |w| w.u8(request.0))
}
