//! `DID` (docs/identity.md): a bare decentralised identifier in place of a Certificate.

use alloc::vec::Vec;

use super::{decode, empty_context, encode};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{DidMethod, Field, HandshakeType, Reader};

/// The longest decentralised identifier, in bytes: room for any in use.
pub(crate) const MAX_IDENTIFIER: usize = 2048;

pub(crate) struct Did<'a> {
    pub(crate) method: DidMethod,
    pub(crate) did: &'a [u8],
}

impl<'a> Did<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::DID, |r| {
            empty_context(r)?;
            let method = DidMethod::from_byte(r.u8()?);
            let did = Reader::new(r.vec16(1)?, Field::Identifier).rest_up_to(MAX_IDENTIFIER)?;
            // The method stands twice in the message, and both must agree.
            if method.may_have(did) {
                Ok(Self { method, did })
            } else {
                Err(PeerMisbehaved::IllegalParameter(Field::DidMethod).into())
            }
        })
    }

    /// Writes the message. `method` is the method's number in ssi_parameters.
    pub(crate) fn write(method: u8, did: &[u8]) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::DID, |w| {
            w.u8(0);
            w.u8(method);
            w.vec16(|w| w.put(did));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Malformed;
    use crate::message::HEADER_LEN;
    use crate::wire::Unit;

    fn read(method: u8, did: &[u8]) -> Result<(DidMethod, Vec<u8>), Error> {
        let message = Did::write(method, did)?;
        Did::read(&message[HEADER_LEN..]).map(|read| (read.method, read.did.to_vec()))
    }

    #[test]
    fn reads_an_identifier_of_limited_length_and_of_its_method() {
        let of_dunlin = b"did:dunlin:x".to_vec();
        assert_eq!(read(0xe0, &of_dunlin), Ok((DidMethod::DUNLIN, of_dunlin.clone())));
        let other = PeerMisbehaved::IllegalParameter(Field::DidMethod);
        assert_eq!(read(0xe1, &of_dunlin), Err(other.clone().into()));
        assert_eq!(read(0xe0, b"did:dunlinx:y"), Err(other.into()));
        // A method without a name here is for verifiers to judge.
        assert_eq!(read(0x77, b"did:other:x"), Ok((DidMethod(0xff77), b"did:other:x".to_vec())));
        let long = [b"did:web:".to_vec(), alloc::vec![b'a'; 2048 - 8]].concat();
        assert_eq!(read(0xe3, &long), Ok((DidMethod::WEB, long.clone())));
        let above = Malformed::AboveLimit { what: Field::Identifier, max: 2048, unit: Unit::Bytes };
        assert_eq!(read(0xe3, &[&*long, b"a"].concat()), Err(above.into()));
        assert_eq!(read(0xe0, b""), Err(Malformed::Length(Field::Message(HandshakeType::DID)).into()));
        let context = PeerMisbehaved::IllegalParameter(Field::CertificateRequestContext);
        assert_eq!(Did::read(&[1, 9, 1, 0, 1, 7]).map(|_| ()), Err(context.into()));
    }

    /// The public implementation: `did:ott` has number 1.
    #[test]
    fn writes_the_bytes_of_the_public_implementation() {
        let message = Did::write(1, b"did:ott:A:b").unwrap();
        assert_eq!(message, [&[30, 0, 0, 15, 0, 1, 0, 11][..], b"did:ott:A:b"].concat());
        assert_eq!(Did::read(&message[HEADER_LEN..]).unwrap().method, DidMethod::OTT);
    }
}
