//! `VC` (docs/identity.md): a verifiable credential in place of a Certificate.

use alloc::vec::Vec;

use super::certificate::MAX_VERIFIABLE_CREDENTIAL;
use super::{decode, empty_context, encode};
use crate::error::Error;
use crate::wire::{Field, HandshakeType, Reader};

/// Reads the credential, which is not empty.
pub(crate) fn read(body: &[u8]) -> Result<&[u8], Error> {
    decode(body, HandshakeType::VC, |r| {
        empty_context(r)?;
        let credential = r.vec16(1)?;
        Ok(Reader::new(credential, Field::VerifiableCredential).rest_up_to(MAX_VERIFIABLE_CREDENTIAL)?)
    })
}

pub(crate) fn write(credential: &[u8]) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::VC, |w| {
        w.u8(0);
        w.vec16(|w| w.put(credential));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Malformed, PeerMisbehaved};
    use crate::message::HEADER_LEN;
    use crate::wire::Unit;

    /// docs/identity.md: one credential of 1 byte to 16 KiB, and an empty context.
    #[test]
    fn reads_a_credential_of_limited_length() {
        let whole = |credential: &[u8]| read(&write(credential).unwrap()[HEADER_LEN..]).map(<[u8]>::len);
        let what = Field::VerifiableCredential;
        assert_eq!(whole(&[1; 16384]), Ok(16384));
        let above = Malformed::AboveLimit { what, max: 16384, unit: Unit::Bytes };
        assert_eq!(whole(&[1; 16385]), Err(above.into()));
        let in_vc = Field::Message(HandshakeType::VC);
        assert_eq!(whole(&[]), Err(Malformed::Length(in_vc).into()));
        let context = PeerMisbehaved::IllegalParameter(Field::CertificateRequestContext);
        assert_eq!(read(&[1, 9, 0, 1, 7]), Err(context.into()));
        assert_eq!(read(&[0, 0, 1, 7, 8]), Err(Malformed::TrailingBytes(in_vc).into()));
        assert_eq!(read(&[0, 0, 2, 7]), Err(Malformed::Truncated(in_vc).into()));
    }

    /// The bytes of the public implementation: no terminating zero, and one byte for the empty context.
    #[test]
    fn writes_the_bytes_of_the_public_implementation() {
        assert_eq!(write(b"{}").unwrap(), [&[31, 0, 0, 5, 0, 0, 2][..], b"{}"].concat());
    }
}
