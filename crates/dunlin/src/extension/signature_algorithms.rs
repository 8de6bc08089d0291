//! `signature_algorithms` and `signature_algorithms_cert` (RFC 8446 §4.2.3).

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Reader, SignatureScheme, Writer};

/// What the sender verifies in CertificateVerify, and in chains unless it says otherwise.
pub(crate) struct SignatureAlgorithms(pub(crate) Vec<SignatureScheme>);

/// What the sender verifies in chains.
pub(crate) struct SignatureAlgorithmsCert(pub(crate) Vec<SignatureScheme>);

fn read(r: &mut Reader<'_>) -> Result<Vec<SignatureScheme>, Error> {
    Reader::items(r.vec16(2)?, "signature_algorithms", |r| r.u16().map(SignatureScheme))
}

fn write(schemes: &[SignatureScheme], w: &mut Writer) {
    w.vec16(|w| schemes.iter().for_each(|s| w.u16(s.0)));
}

impl Extension for SignatureAlgorithms {
    const TYPE: ExtensionType = ExtensionType::SIGNATURE_ALGORITHMS;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest];

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
