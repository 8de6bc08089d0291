//! `KeyUpdate` (RFC 8446 §4.6.3).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{Field, HandshakeType, KeyUpdateRequest};

pub(crate) fn read(body: &[u8]) -> Result<KeyUpdateRequest, Error> {
    let request = decode(body, HandshakeType::KEY_UPDATE, |r| Ok(KeyUpdateRequest(r.u8()?)))?;
    // RFC 8446 §4.6.3: any other value is illegal_parameter.
    match request {
        KeyUpdateRequest::UPDATE_NOT_REQUESTED | KeyUpdateRequest::UPDATE_REQUESTED => Ok(request),
        _ => Err(PeerMisbehaved::IllegalParameter(Field::RequestUpdate).into()),
    }
}

pub(crate) fn write(request: KeyUpdateRequest) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::KEY_UPDATE, |w| w.u8(request.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_only_the_two_values_of_the_protocol() {
        for value in 0..=u8::MAX {
            let expected = match value {
                0 | 1 => Ok(KeyUpdateRequest(value)),
                _ => Err(PeerMisbehaved::IllegalParameter(Field::RequestUpdate).into()),
            };
            assert_eq!(read(&[value]), expected);
        }
    }
}
