//! `ssi_parameters` (docs/identity.md): the decentralised identity for which the sender asks, and the methods
//! of identifiers that it resolves. The messages VC and DID answer it.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{CertificateType, DidMethod, ExtensionType, Field, Reader, Writer};

/// The values of the first byte.
const X509: u8 = 0;
const DID: u8 = 1;
const VC: u8 = 2;

#[derive(Clone)]
pub(crate) struct SsiParameters {
    /// The type of identity that the peer shall send: a credential, a bare identifier, or a certificate.
    pub(crate) asks_for: CertificateType,
    /// The methods that the sender resolves. Empty if it asks for a certificate.
    pub(crate) did_methods: Vec<DidMethod>,
}

/// The same under the number that the public implementation uses.
pub(crate) struct LinksParameters(pub(crate) SsiParameters);

impl SsiParameters {
    fn parse(r: &mut Reader<'_>, typ: ExtensionType) -> Result<Self, Error> {
        let asks_for = match r.u8()? {
            X509 => CertificateType::X509,
            DID => CertificateType::DECENTRALISED_IDENTIFIER,
            VC => CertificateType::VERIFIABLE_CREDENTIAL,
            _ => return Err(PeerMisbehaved::IllegalParameter(Field::Extension(typ)).into()),
        };
        let did_methods: Vec<_> = r.vec8(0)?.iter().copied().map(DidMethod::from_byte).collect();
        // A sender that asks for a certificate resolves nothing.
        if asks_for == CertificateType::X509 && !did_methods.is_empty() {
            Err(r.bad_value().into())
        } else {
            Ok(Self { asks_for, did_methods })
        }
    }

    fn put(&self, w: &mut Writer) {
        w.u8(match self.asks_for {
            CertificateType::VERIFIABLE_CREDENTIAL => VC,
            CertificateType::DECENTRALISED_IDENTIFIER => DID,
            _ => X509,
        });
        w.vec8(|w| self.did_methods.iter().filter_map(|method| method.to_byte()).for_each(|byte| w.u8(byte)));
    }
}

impl Extension for SsiParameters {
    const TYPE: ExtensionType = ExtensionType::SSI_PARAMETERS;
    const IN: &'static [Context] = &[Context::ClientHello, Context::SsiRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Self::parse(r, Self::TYPE)
    }

    fn write(&self, w: &mut Writer) {
        self.put(w);
    }
}

impl Extension for LinksParameters {
    const TYPE: ExtensionType = ExtensionType::SSI_PARAMETERS_LINKS;
    const IN: &'static [Context] = SsiParameters::IN;

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        SsiParameters::parse(r, Self::TYPE).map(Self)
    }

    fn write(&self, w: &mut Writer) {
        self.0.put(w);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Malformed;

    fn read(body: &[u8]) -> Result<(CertificateType, Vec<DidMethod>), Error> {
        let what = Field::Extension(ExtensionType::SSI_PARAMETERS);
        let read = Reader::all(body, what, SsiParameters::read)?;
        let mut w = Writer::new();
        read.write(&mut w);
        assert_eq!(w.finish().unwrap(), body);
        Ok((read.asks_for, read.did_methods))
    }

    #[test]
    fn reads_what_the_sender_asks_for_and_its_methods() {
        let credential = CertificateType::VERIFIABLE_CREDENTIAL;
        // As the public implementation sends them.
        assert_eq!(read(&[2, 2, 1, 3]), Ok((credential, [DidMethod::OTT, DidMethod::ETH].to_vec())));
        assert_eq!(read(&[0, 0]), Ok((CertificateType::X509, Vec::new())));
        let did = CertificateType::DECENTRALISED_IDENTIFIER;
        assert_eq!(read(&[1, 2, 0xe0, 0xe3]), Ok((did, [DidMethod::DUNLIN, DidMethod::WEB].to_vec())));
    }

    #[test]
    fn refuses_unknown_modes_and_methods_of_a_sender_that_resolves_none() {
        let what = Field::Extension(ExtensionType::SSI_PARAMETERS);
        assert_eq!(read(&[3, 1, 1]), Err(PeerMisbehaved::IllegalParameter(what).into()));
        assert_eq!(read(&[0, 1, 1]), Err(Malformed::Value(what).into()));
        assert_eq!(read(&[2, 2, 1]), Err(Malformed::Truncated(what).into()));
        assert_eq!(read(&[2, 1, 1, 3]), Err(Malformed::TrailingBytes(what).into()));
    }

    #[test]
    fn methods_without_a_byte_are_left_out() {
        let did_methods = [DidMethod::IOTA, DidMethod::KEY].to_vec();
        let mut w = Writer::new();
        SsiParameters { asks_for: CertificateType::DECENTRALISED_IDENTIFIER, did_methods }.write(&mut w);
        assert_eq!(w.finish().unwrap(), [1, 1, 0xe1]);
    }
}
