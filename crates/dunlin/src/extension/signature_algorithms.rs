//! `signature_algorithms` and `signature_algorithms_cert` (RFC 8446 §4.2.3).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Field, Reader, SignatureScheme, Writer};

/// The schemes that the sender verifies in CertificateVerify, and in chains unless it sends
/// [`SignatureAlgorithmsCert`].
pub(crate) struct SignatureAlgorithms(pub(crate) Vec<SignatureScheme>);

/// The schemes that the sender verifies in chains.
pub(crate) struct SignatureAlgorithmsCert(pub(crate) Vec<SignatureScheme>);

/// The most schemes in one list. IANA lists fewer than 100, including TLS 1.2 and GREASE. It limits the work,
/// because the engine compares each with its own for every suite and credential. OpenSSL and BoringSSL set no
/// limit.
const MAX_SCHEMES: usize = 256;

/// Reads the schemes of either extension, or of a TLS 1.2 CertificateRequest (RFC 5246 §7.4.4).
pub(crate) fn read(r: &mut Reader<'_>) -> Result<Vec<SignatureScheme>, Error> {
    let schemes = Reader::items(r.vec16(2)?, Field::Extension(ExtensionType::SIGNATURE_ALGORITHMS), |r| {
        r.u16().map(SignatureScheme)
    })?;
    r.limit(schemes.len(), MAX_SCHEMES)?;
    Ok(schemes)
}

fn write(schemes: &[SignatureScheme], w: &mut Writer) {
    w.vec16(|w| schemes.iter().for_each(|s| w.u16(s.0)));
}

impl Extension for SignatureAlgorithms {
    const TYPE: ExtensionType = ExtensionType::SIGNATURE_ALGORITHMS;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest, Context::SsiRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        read(r).map(Self)
    }

    fn write(&self, w: &mut Writer) {
        write(&self.0, w);
    }
}

impl Extension for SignatureAlgorithmsCert {
    const TYPE: ExtensionType = ExtensionType::SIGNATURE_ALGORITHMS_CERT;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        read(r).map(Self)
    }

    fn write(&self, w: &mut Writer) {
        write(&self.0, w);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_a_list_above_the_limit() {
        for (len, is_read) in [(MAX_SCHEMES, true), (MAX_SCHEMES + 1, false)] {
            let mut w = Writer::new();
            write(&alloc::vec![SignatureScheme::ED25519; len], &mut w);
            let body = w.finish().unwrap();
            assert_eq!(
                Reader::all(&body, Field::Extension(ExtensionType::SIGNATURE_ALGORITHMS), |r| read(r))
                    .is_ok(),
                is_read
            );
        }
    }
}
