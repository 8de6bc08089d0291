//! `cached_info` (RFC 7924 §3): the fingerprints of server messages that the client has cached.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// `cert(1)`: the server's Certificate.
pub(crate) const CERT: u8 = 1;
/// `cert_req(2)`: its CertificateRequest.
pub(crate) const CERT_REQ: u8 = 2;

/// The most objects in one offer, more than a client caches for one server. It limits the work for one
/// message.
const MAX_OBJECTS: usize = 64;

/// The client's offer: types and fingerprints. The server ignores an unknown type or a fingerprint of another
/// length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer(pub(crate) Vec<(u8, Vec<u8>)>);

impl Offer {
    /// The fingerprints of objects of this type.
    pub(crate) fn of_type(&self, typ: u8) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(t, _)| *t == typ).map(|(_, fingerprint)| fingerprint.as_slice())
    }
}

impl Extension for Offer {
    const TYPE: ExtensionType = ExtensionType::CACHED_INFO;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let list = r.vec16(1)?;
        let objects = Reader::items(list, Field::Extension(ExtensionType::CACHED_INFO), |r| {
            Ok::<_, Error>((r.u8()?, r.vec8(1)?.to_vec()))
        })?;
        r.limit(objects.len(), MAX_OBJECTS)?;
        Ok(Self(objects))
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| {
            for (typ, fingerprint) in &self.0 {
                w.u8(*typ);
                w.vec8(|w| w.put(fingerprint));
            }
        });
    }
}

/// The server's answer: the types whose messages it replaces by their fingerprints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed(pub(crate) Vec<u8>);

impl Extension for Confirmed {
    const TYPE: ExtensionType = ExtensionType::CACHED_INFO;
    // RFC 7924 defines the extension for TLS 1.2. docs/handshake-cache.md §3 adds EncryptedExtensions.
    const IN: &'static [Context] = &[Context::EncryptedExtensions, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let types = r.vec16(1)?.to_vec();
        let is_twice = |(i, typ): (usize, &u8)| types.iter().take(i).any(|t| t == typ);
        if types.iter().enumerate().any(is_twice) {
            Err(PeerMisbehaved::IllegalParameter(Field::CachedInfoTwice).into())
        } else {
            Ok(Self(types))
        }
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| w.put(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::error::Malformed;

    fn read<T: Extension>(body: &[u8]) -> Result<T, Error> {
        Reader::all(body, Field::Extension(ExtensionType::CACHED_INFO), |r| T::read(r))
    }

    fn written(extension: &impl Extension) -> Vec<u8> {
        let mut w = Writer::new();
        extension.write(&mut w);
        w.finish().unwrap()
    }

    /// RFC 7924 §3, encoded by hand: the offer has a type, a length and a fingerprint; the answer has types
    /// only.
    #[test]
    fn encodes_as_in_the_rfc() {
        let offer = Offer(vec![(CERT, vec![7; 32]), (CERT_REQ, vec![8; 32]), (200, vec![9])]);
        let bytes = [&[0, 71, 1, 32][..], &[7; 32], &[2, 32], &[8; 32], &[200, 1, 9]].concat();
        assert_eq!(written(&offer), bytes);
        assert_eq!(read(&bytes), Ok(offer));
        assert_eq!(written(&Confirmed(vec![CERT, CERT_REQ])), [0, 2, 1, 2]);
        assert_eq!(read(&[0, 2, 1, 2]), Ok(Confirmed(vec![CERT, CERT_REQ])));
    }

    #[test]
    fn rejects_malformed_forms() {
        let malformed: &[&[u8]] =
            &[&[], &[0, 0], &[0, 1, 1], &[0, 2, 1, 0], &[0, 3, 1, 2, 9], &[0, 3, 1, 1, 9, 0]];
        for body in malformed {
            assert!(matches!(read::<Offer>(body), Err(Error::Malformed(_))), "{body:?}");
        }
        for (count, is_ok) in [(MAX_OBJECTS, true), (MAX_OBJECTS + 1, false)] {
            let offer = Offer(vec![(CERT, vec![1]); count]);
            assert_eq!(read::<Offer>(&written(&offer)).is_ok(), is_ok);
        }
        assert!(matches!(read::<Confirmed>(&[0, 0]), Err(Error::Malformed(Malformed::Length(_)))));
        assert!(matches!(read::<Confirmed>(&[0, 1]), Err(Error::Malformed(_))));
        assert!(matches!(
            read::<Confirmed>(&[0, 2, 1, 1]),
            Err(Error::PeerMisbehaved(PeerMisbehaved::IllegalParameter(_)))
        ));
    }
}
