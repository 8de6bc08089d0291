//! `Certificate` (RFC 8446 §4.4.2), also with a raw public key (RFC 7250 §3).

use alloc::vec::Vec;

use super::{HEADER_LEN, decode, encode};
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::extension::{Context, Extensions, ExtensionsWriter, rules, status_request};
use crate::wire::{CertificateType, ExtensionType, HandshakeType, Reader, What};

/// The most certificates in one message, more than any real chain has. webpki limits the work of path building itself.
const MAX_ENTRIES: usize = 64;

pub(crate) struct Certificate<'a> {
    pub(crate) context: &'a [u8],
    /// cert_data of each entry: a certificate or a SubjectPublicKeyInfo, in DER.
    pub(crate) entries: Vec<&'a [u8]>,
    /// The OCSP response for the first entry.
    pub(crate) ocsp_response: Option<Vec<u8>>,
    /// Whether its only entry has empty cert_data, because the receiver has the certificate in its cache
    /// (docs/handshake-cache.md §3).
    pub(crate) is_abbreviated: bool,
}

impl<'a> Certificate<'a> {
    /// Reads the message of TLS 1.3. Entries may only carry extensions that are in `offered`. `may_be_abbreviated` says
    /// whether both sides have negotiated the handshake cache for this message.
    pub(crate) fn read(
        body: &'a [u8],
        typ: CertificateType,
        offered: &[ExtensionType],
        may_be_abbreviated: bool,
    ) -> Result<Self, Error> {
        decode(body, HandshakeType::CERTIFICATE, |r| {
            let context = r.vec8(0)?;
            let mut list = Reader::new(r.vec24(0)?, What::CertificateList);
            let mut entries = Vec::new();
            let mut ocsp_response = None;
            while !list.is_empty() {
                list.limit(entries.len() + 1, MAX_ENTRIES)?;
                entries.push(list.vec24(usize::from(!may_be_abbreviated))?);
                let extensions = Extensions::read(&mut list, const { &rules(Context::Certificate) })?;
                extensions.answer(offered)?;
                if entries.len() == 1 {
                    ocsp_response = extensions.get::<status_request::CertificateStatus>()?.map(|s| s.0);
                }
            }
            let is_abbreviated = matches!(entries[..], [[]]);
            if !is_abbreviated && entries.iter().any(|entry| entry.is_empty()) {
                return Err(Malformed::Length(What::CertificateList).into());
            }
            // RFC 8446 §4.4.2: "If the RawPublicKey certificate type was negotiated, then the
            // certificate_list MUST contain no more than one CertificateEntry".
            if typ == CertificateType::RAW_PUBLIC_KEY && entries.len() > 1 {
                return Err(PeerMisbehaved::IllegalParameter(What::CertificateListRawKey).into());
            }
            Ok(Self { context, entries, ocsp_response, is_abbreviated })
        })
    }

    /// Reads the message of TLS 1.2: a list of certificates without extensions (RFC 5246 §7.4.2), or one raw public key
    /// outside a list (RFC 7250 §3).
    pub(crate) fn read_tls12(body: &'a [u8], typ: CertificateType) -> Result<Self, Error> {
        decode(body, HandshakeType::CERTIFICATE, |r| {
            let entries = match typ {
                // A client without a key sends an empty one.
                CertificateType::RAW_PUBLIC_KEY => {
                    let key = r.vec24(0)?;
                    if key.is_empty() { Vec::new() } else { [key].to_vec() }
                }
                _ => {
                    let mut list = Reader::new(r.vec24(0)?, What::CertificateList);
                    let mut entries = Vec::new();
                    while !list.is_empty() {
                        list.limit(entries.len() + 1, MAX_ENTRIES)?;
                        entries.push(list.vec24(1)?);
                    }
                    entries
                }
            };
            Ok(Self { context: &[], entries, ocsp_response: None, is_abbreviated: false })
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

    /// The bytes that abbreviation saves in TLS 1.3: the length of a message with these entries minus that of an
    /// abbreviated one, which has one empty entry.
    pub(crate) fn beyond_abbreviated<'e>(entries: impl Iterator<Item = &'e [u8]>) -> usize {
        // RFC 8446 §4.4.2: the length fields of cert_data and of the extensions.
        const FRAME: usize = 3 + 2;
        entries.fold(0, |len, entry| len + FRAME + entry.len()).saturating_sub(FRAME)
    }

    /// Writes the message, with an OCSP response for the first entry.
    pub(crate) fn write<'e>(
        context: &[u8],
        entries: impl Iterator<Item = &'e [u8]>,
        ocsp_response: Option<&[u8]>,
    ) -> Result<Vec<u8>, Error> {
        let mut status = ExtensionsWriter::default();
        status.put_some(ocsp_response.map(|r| status_request::CertificateStatus(r.to_vec())).as_ref());
        encode(HandshakeType::CERTIFICATE, |w| {
            w.vec8(|w| w.put(context));
            w.vec24(|w| {
                for (i, entry) in entries.enumerate() {
                    w.vec24(|w| w.put(entry));
                    match i {
                        0 => status.write(w),
                        _ => w.u16(0),
                    }
                }
            });
        })
    }
}
