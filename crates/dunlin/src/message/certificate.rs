//! `Certificate` (RFC 8446 §4.4.2), also with a raw public key (RFC 7250 §3).

use alloc::vec::Vec;

use super::{HEADER_LEN, decode, encode};
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::extension::{
    Context, Extensions, ExtensionsWriter, credential_status, did_proof, rules, status_request,
};
use crate::wire::{CertificateType, ExtensionType, Field, HandshakeType, Reader};

/// The most certificates in one message, more than any real chain has. webpki limits the work of path
/// building itself.
const MAX_ENTRIES: usize = 64;

/// The longest verifiable credential, in bytes. Its claims fit, but no collection of them.
pub(crate) const MAX_VERIFIABLE_CREDENTIAL: usize = 16 * 1024;

/// The staples of the first entry, as the receiver has requested.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staples {
    /// An OCSP response in DER.
    pub(crate) ocsp_response: Option<Vec<u8>>,
    /// The proof of what the identifier of a verifiable credential resolves to.
    pub(crate) did_proof: Option<Vec<u8>>,
    /// The status lists of a verifiable credential's issuer.
    pub(crate) credential_status: Option<Vec<u8>>,
}

impl Staples {
    pub(crate) const fn is_empty(&self) -> bool {
        self.ocsp_response.is_none() && self.did_proof.is_none() && self.credential_status.is_none()
    }
}

pub(crate) struct Certificate<'a> {
    pub(crate) context: &'a [u8],
    /// cert_data of each entry: a certificate or a SubjectPublicKeyInfo, in DER.
    pub(crate) entries: Vec<&'a [u8]>,
    pub(crate) staples: Staples,
    /// Whether its only entry has empty cert_data, because the receiver has the certificate in its cache
    /// (docs/handshake-cache.md §3).
    pub(crate) is_abbreviated: bool,
}

impl<'a> Certificate<'a> {
    /// Reads the message of TLS 1.3. Entries may only carry extensions that are in `offered`.
    /// `may_be_abbreviated` says whether both sides have negotiated the handshake cache for this message.
    pub(crate) fn read(
        body: &'a [u8],
        typ: CertificateType,
        offered: &[ExtensionType],
        may_be_abbreviated: bool,
    ) -> Result<Self, Error> {
        decode(body, HandshakeType::CERTIFICATE, |r| {
            let context = r.vec8(0)?;
            let mut list = Reader::new(r.vec24(0)?, Field::CertificateList);
            let mut entries = Vec::new();
            let mut staples = Staples::default();
            while !list.is_empty() {
                list.limit(entries.len() + 1, MAX_ENTRIES)?;
                entries.push(list.vec24(usize::from(!may_be_abbreviated))?);
                let extensions = Extensions::read(&mut list, const { &rules(Context::Certificate) })?;
                extensions.answer(offered)?;
                if entries.len() == 1 {
                    staples = Staples {
                        ocsp_response: extensions.get::<status_request::CertificateStatus>()?.map(|s| s.0),
                        did_proof: extensions.get::<did_proof::DidProof>()?.map(|proof| proof.0),
                        credential_status: extensions.get::<credential_status::Lists>()?.map(|lists| lists.0),
                    };
                }
            }
            let is_abbreviated = matches!(entries[..], [[]]);
            if !is_abbreviated && entries.iter().any(|entry| entry.is_empty()) {
                return Err(Malformed::Length(Field::CertificateList).into());
            }
            if typ == CertificateType::VERIFIABLE_CREDENTIAL {
                check_credential(&entries)?;
            }
            // RFC 8446 §4.4.2: "If the RawPublicKey certificate type was negotiated, then the
            // certificate_list MUST contain no more than one CertificateEntry".
            if typ == CertificateType::RAW_PUBLIC_KEY && entries.len() > 1 {
                return Err(PeerMisbehaved::IllegalParameter(Field::CertificateListRawKey).into());
            }
            Ok(Self { context, entries, staples, is_abbreviated })
        })
    }

    /// Reads the message of TLS 1.2: a list of certificates without extensions (RFC 5246 §7.4.2), or one raw
    /// public key outside a list (RFC 7250 §3).
    pub(crate) fn read_tls12(body: &'a [u8], typ: CertificateType) -> Result<Self, Error> {
        decode(body, HandshakeType::CERTIFICATE, |r| {
            let entries = match typ {
                // A client without a key sends an empty one.
                CertificateType::RAW_PUBLIC_KEY => {
                    let key = r.vec24(0)?;
                    if key.is_empty() { Vec::new() } else { [key].to_vec() }
                }
                _ => {
                    let mut list = Reader::new(r.vec24(0)?, Field::CertificateList);
                    let mut entries = Vec::new();
                    while !list.is_empty() {
                        list.limit(entries.len() + 1, MAX_ENTRIES)?;
                        entries.push(list.vec24(1)?);
                    }
                    entries
                }
            };
            Ok(Self { context: &[], entries, staples: Staples::default(), is_abbreviated: false })
        })
    }

    /// Writes the message of TLS 1.2.
    pub(crate) fn write_tls12<'e>(
        typ: CertificateType,
        mut entries: impl Iterator<Item = &'e [u8]>,
    ) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CERTIFICATE, |w| match typ {
            CertificateType::RAW_PUBLIC_KEY => w.vec24(|w| w.put(entries.next().unwrap_or_default())),
            _ => w.vec24(|w| entries.for_each(|entry| w.vec24(|w| w.put(entry)))),
        })
    }

    /// The length of the message that [`Self::write_tls12`] writes, in bytes with its header.
    pub(crate) fn tls12_len<'e>(typ: CertificateType, entries: impl Iterator<Item = &'e [u8]>) -> usize {
        let frame = if typ == CertificateType::RAW_PUBLIC_KEY { 0 } else { 3 };
        entries.fold(HEADER_LEN + 3, |len, entry| len + frame + entry.len())
    }

    /// The bytes that abbreviation saves in TLS 1.3: the length of a message with these entries minus the
    /// length of an abbreviated one, which has one empty entry.
    pub(crate) fn beyond_abbreviated<'e>(entries: impl Iterator<Item = &'e [u8]>) -> usize {
        // RFC 8446 §4.4.2: the length fields of cert_data and of the extensions.
        const FRAME: usize = 3 + 2;
        entries.fold(0, |len, entry| len + FRAME + entry.len()).saturating_sub(FRAME)
    }

    /// Writes the message, with what the first entry needs beside it.
    pub(crate) fn write<'e>(
        context: &[u8],
        entries: impl Iterator<Item = &'e [u8]>,
        staples: Staples,
    ) -> Result<Vec<u8>, Error> {
        let mut beside = ExtensionsWriter::default();
        beside.put_some(staples.ocsp_response.map(status_request::CertificateStatus).as_ref());
        beside.put_some(staples.did_proof.map(did_proof::DidProof).as_ref());
        beside.put_some(staples.credential_status.map(credential_status::Lists).as_ref());
        encode(HandshakeType::CERTIFICATE, |w| {
            w.vec8(|w| w.put(context));
            w.vec24(|w| {
                for (i, entry) in entries.enumerate() {
                    w.vec24(|w| w.put(entry));
                    match i {
                        0 => beside.write(w),
                        _ => w.u16(0),
                    }
                }
            });
        })
    }
}

/// Checks the entries of a verifiable credential: there is one, of limited length (docs/identity.md).
fn check_credential(entries: &[&[u8]]) -> Result<(), Error> {
    let r = Reader::new(entries.first().copied().unwrap_or_default(), Field::VerifiableCredential);
    r.limit(entries.len(), 1)?;
    { r }.rest_up_to(MAX_VERIFIABLE_CREDENTIAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Unit;

    /// docs/identity.md: one credential, of at most 16 KiB.
    #[test]
    fn reads_one_verifiable_credential_of_limited_length() {
        let read = |entries: &[&[u8]]| {
            let message = Certificate::write(&[], entries.iter().copied(), Staples::default()).unwrap();
            let typ = CertificateType::VERIFIABLE_CREDENTIAL;
            Certificate::read(&message[HEADER_LEN..], typ, &[], false).map(|read| read.entries.len())
        };
        let above =
            |max, unit| Err(Malformed::AboveLimit { what: Field::VerifiableCredential, max, unit }.into());
        assert_eq!(read(&[]), Ok(0));
        assert_eq!(read(&[&[1; 16384]]), Ok(1));
        assert_eq!(read(&[&[1; 16385]]), above(16384, Unit::Bytes));
        assert_eq!(read(&[&[1], &[2]]), above(1, Unit::Entries));
    }
}
