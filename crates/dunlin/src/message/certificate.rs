//! `Certificate` (RFC 8446 §4.4.2), also with a raw public key (RFC 7250 §3).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::extension::{Context, Extensions};
use crate::wire::{CertificateType, ExtensionType, HandshakeType, Reader};

/// More certificates than any chain has; a bound on the work for path building.
const MAX_ENTRIES: usize = 16;

pub(crate) struct Certificate<'a> {
    pub(crate) context: &'a [u8],
    /// cert_data of each entry: DER of a certificate, or of a SubjectPublicKeyInfo.
    pub(crate) entries: Vec<&'a [u8]>,
}

impl<'a> Certificate<'a> {
    /// Reads the message, whose entries may carry answers to the extensions in `offered` only.
    pub(crate) fn read(
        body: &'a [u8],
        typ: CertificateType,
        offered: &[ExtensionType],
    ) -> Result<Self, Error> {
        decode(body, "Certificate", |r| {
            let context = r.vec8(0)?;
            let mut list = Reader::new(r.vec24(0)?, "certificate_list");
            let mut entries = Vec::new();
            while !list.is_empty() {
                if entries.len() == MAX_ENTRIES {
                    return Err(Malformed::Length("certificate_list").into());
                }
                entries.push(list.vec24(1)?);
                let extensions = Extensions::read(&mut list, Context::Certificate)?;
                extensions.answer(offered)?;
            }
            // RFC 8446 §4.4.2: "If the RawPublicKey certificate type was negotiated, then the
            // certificate_list MUST contain no more than one CertificateEntry".
            if typ == CertificateType::RAW_PUBLIC_KEY && entries.len() > 1 {
                return Err(PeerMisbehaved::IllegalParameter("certificate_list: one raw key only").into());
            }
            Ok(Self { context, entries })
        })
    }

    pub(crate) fn write<'e>(
        context: &[u8],
        entries: impl Iterator<Item = &'e [u8]>,
    ) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CERTIFICATE, |w| {
            w.vec8(|w| w.put(context));
            w.vec24(|w| {
                for entry in entries {
                    w.vec24(|w| w.put(entry));
                    w.u16(0);
                }
            });
        })
    }
}
