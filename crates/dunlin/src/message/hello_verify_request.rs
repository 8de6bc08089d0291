//! `HelloVerifyRequest` (RFC 6347 §4.2.1): a server demands a cookie, by which a client proves that it
//! receives at its address.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::wire::{HandshakeType, ProtocolVersion};

/// The most of them that a client answers in one handshake. RFC 6347 §4.2.1: a server demands a new cookie if
/// the client's is invalid, for example too old.
pub(crate) const MAX_VERIFY_REQUESTS: usize = 4;

/// The cookie. RFC 6347 §4.2.1: the version in front of it means nothing for the negotiation.
pub(crate) fn read(body: &[u8]) -> Result<&[u8], Error> {
    decode(body, HandshakeType::HELLO_VERIFY_REQUEST, |r| {
        r.u16()?;
        // The type allows an empty cookie, which would demand nothing, for ever.
        Ok::<_, Error>(r.vec8(1)?)
    })
}

pub(crate) fn write(cookie: &[u8]) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::HELLO_VERIFY_REQUEST, |w| {
        // RFC 6347 §4.2.1: a server may name DTLS 1.0 here whatever it will choose. Clients that know better
        // ignore it.
        w.u16(ProtocolVersion::DTLS1_0.0);
        w.vec8(|w| w.put(cookie));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_cookie_as_written() {
        let message = write(&[7; 20]).unwrap();
        assert_eq!(message[..7], [3, 0, 0, 23, 0xfe, 0xff, 20]);
        assert_eq!(read(&message[4..]).unwrap(), [7; 20]);
        assert!(read(&message[4..26]).is_err() && read(&[]).is_err());
        assert!(read(&[0xfe, 0xff, 0]).is_err(), "an empty cookie");
    }
}
