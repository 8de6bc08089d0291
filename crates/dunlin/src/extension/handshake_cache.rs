//! `handshake_cache`: which certificates each side has cached (docs/handshake-cache.md §3).
//!
//! An empty body says only that the sender supports the extension. Otherwise the body begins with flags for
//! the server's messages. The client then names its cached objects and its tickets, in eight bytes each.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// The length of a ticket, and of a shortened fingerprint, in bytes.
pub(crate) const NAME_LEN: usize = 8;

/// A ticket, or the first bytes of a fingerprint.
pub(crate) type Name = [u8; NAME_LEN];

/// The most tickets in one offer: the newest, and the previous one in case the server has not stored the
/// newest yet.
pub(crate) const MAX_TICKETS: usize = 2;

/// The index that means that the server used no ticket.
const NO_TICKET: u8 = 0xff;

/// The flags. Bit 0 is the server's Certificate, bit 1 its CertificateRequest.
const CERTIFICATE: u8 = 1;
const CERTIFICATE_REQUEST: u8 = 2;

/// Rejects undefined flags.
fn check_flags(flags: u8) -> Result<(), Error> {
    match flags & !(CERTIFICATE | CERTIFICATE_REQUEST) {
        0 => Ok(()),
        _ => Err(Malformed::Value(Field::Extension(ExtensionType::HANDSHAKE_CACHE)).into()),
    }
}

fn flags(certificate: bool, certificate_request: bool) -> u8 {
    let flag = |on, flag| if on { flag } else { 0 };
    flag(certificate, CERTIFICATE) | flag(certificate_request, CERTIFICATE_REQUEST)
}

/// The client's offer: the server messages that it has cached, and tickets by which the server may know its
/// Certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The first bytes of the fingerprint of the server's Certificate.
    pub(crate) certificate: Option<Name>,
    /// The first bytes of the fingerprint of the server's CertificateRequest.
    pub(crate) certificate_request: Option<Name>,
    /// The tickets, newest first.
    pub(crate) tickets: Vec<Name>,
}

impl Offer {
    fn is_empty(&self) -> bool {
        self.certificate.is_none() && self.certificate_request.is_none() && self.tickets.is_empty()
    }
}

impl Extension for Offer {
    const TYPE: ExtensionType = ExtensionType::HANDSHAKE_CACHE;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let mut offer = Self::default();
        if r.is_empty() {
            return Ok(offer);
        }
        let flags = r.u8()?;
        check_flags(flags)?;
        if flags & CERTIFICATE != 0 {
            offer.certificate = Some(r.array()?);
        }
        if flags & CERTIFICATE_REQUEST != 0 {
            offer.certificate_request = Some(r.array()?);
        }
        while !r.is_empty() {
            if offer.tickets.len() == MAX_TICKETS {
                return Err(r.bad_length().into());
            }
            let ticket = r.array()?;
            if offer.tickets.contains(&ticket) {
                return Err(PeerMisbehaved::IllegalParameter(Field::CacheTicketTwice).into());
            }
            offer.tickets.push(ticket);
        }
        // docs/handshake-cache.md §3: nothing is written as nothing.
        if offer.is_empty() { Err(r.bad_length().into()) } else { Ok(offer) }
    }

    fn write(&self, w: &mut Writer) {
        if self.is_empty() {
            return;
        }
        w.u8(flags(self.certificate.is_some(), self.certificate_request.is_some()));
        for name in self.certificate.iter().chain(&self.certificate_request).chain(&self.tickets) {
            w.put(name);
        }
    }
}

/// The server's answer: which of its messages it abbreviates, and by which ticket it knows the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Whether the server abbreviates its Certificate.
    pub(crate) certificate: bool,
    /// Whether the server abbreviates its CertificateRequest.
    pub(crate) certificate_request: bool,
    /// The index of the ticket in the offer; `None` if the server knows none of them.
    pub(crate) ticket: Option<u8>,
}

impl Extension for Answer {
    const TYPE: ExtensionType = ExtensionType::HANDSHAKE_CACHE;
    const IN: &'static [Context] = &[Context::EncryptedExtensions, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        if r.is_empty() {
            return Ok(Self::default());
        }
        let flags = r.u8()?;
        check_flags(flags)?;
        let index = r.u8()?;
        let answer = Self {
            certificate: flags & CERTIFICATE != 0,
            certificate_request: flags & CERTIFICATE_REQUEST != 0,
            ticket: (index != NO_TICKET).then_some(index),
        };
        if answer == Self::default() { Err(r.bad_length().into()) } else { Ok(answer) }
    }

    fn write(&self, w: &mut Writer) {
        if *self == Self::default() {
            return;
        }
        w.u8(flags(self.certificate, self.certificate_request));
        w.u8(self.ticket.unwrap_or(NO_TICKET));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Extension>(body: &[u8]) -> Result<T, Error> {
        Reader::all(body, Field::Extension(ExtensionType::HANDSHAKE_CACHE), |r| T::read(r))
    }

    fn written(extension: &impl Extension) -> Vec<u8> {
        let mut w = Writer::new();
        extension.write(&mut w);
        w.finish().unwrap()
    }

    #[test]
    fn reads_its_own_output() {
        let names: [Name; 4] = [[1; 8], [2; 8], [3; 8], [4; 8]];
        for certificate in [None, Some(names[0])] {
            for certificate_request in [None, Some(names[1])] {
                for tickets in [&names[2..2], &names[2..3], &names[2..]] {
                    let offer = Offer { certificate, certificate_request, tickets: tickets.to_vec() };
                    let bytes = written(&offer);
                    assert_eq!(read(&bytes), Ok(offer.clone()));
                    let names =
                        certificate.iter().count() + certificate_request.iter().count() + tickets.len();
                    assert_eq!(bytes.len(), if names == 0 { 0 } else { 1 + 8 * names });
                    // A prefix is valid only if it ends between tickets, and trailing bytes never are.
                    for cut in 1..bytes.len() {
                        assert_eq!(
                            read::<Offer>(&bytes[..cut]).is_ok(),
                            cut % 8 == 1 && cut >= whole(&offer) && cut > 1
                        );
                    }
                    assert!(matches!(
                        read::<Offer>(&[&bytes[..], &[9; 7]].concat()),
                        Err(Error::Malformed(_))
                    ));
                }
            }
        }
        for certificate in [false, true] {
            for certificate_request in [false, true] {
                for ticket in [None, Some(0), Some(1)] {
                    let answer = Answer { certificate, certificate_request, ticket };
                    let bytes = written(&answer);
                    assert_eq!(read(&bytes), Ok(answer));
                    assert!(bytes.is_empty() || bytes.len() == 2);
                }
            }
        }
    }

    /// The length of the flags and the fingerprints that they announce. Tickets are optional after them.
    fn whole(offer: &Offer) -> usize {
        1 + 8 * (offer.certificate.iter().count() + offer.certificate_request.iter().count())
    }

    #[test]
    fn rejects_malformed_forms() {
        for flags in 4..=255 {
            let malformed = Err(Malformed::Value(Field::Extension(ExtensionType::HANDSHAKE_CACHE)).into());
            assert_eq!(read::<Offer>(&[&[flags][..], &[0; 16]].concat()), malformed);
            assert_eq!(read::<Answer>(&[flags, 0]).map(drop), malformed.map(drop));
        }
        assert!(matches!(read::<Answer>(&[1]), Err(Error::Malformed(_))));
        // Nothing has one form, the empty one.
        assert!(matches!(read::<Answer>(&[0, NO_TICKET]), Err(Error::Malformed(Malformed::Length(_)))));
        assert!(matches!(read::<Offer>(&[0]), Err(Error::Malformed(Malformed::Length(_)))));
        assert!(matches!(read::<Answer>(&[1, 0, 0]), Err(Error::Malformed(_))));
        let three = [&[0][..], &[1; 8], &[2; 8], &[3; 8]].concat();
        assert!(matches!(read::<Offer>(&three), Err(Error::Malformed(Malformed::Length(_)))));
        let twice = [&[0][..], &[1; 8], &[1; 8]].concat();
        assert!(matches!(
            read::<Offer>(&twice),
            Err(Error::PeerMisbehaved(PeerMisbehaved::IllegalParameter(_)))
        ));
    }
}
