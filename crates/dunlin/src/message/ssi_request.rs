//! `SSIRequest` (docs/identity.md): a server asks the client for a decentralised identity.

use alloc::vec::Vec;

use super::{decode, empty_context, encode};
use crate::error::Error;
use crate::extension::{Context, Extensions, ExtensionsWriter, rules};
use crate::wire::HandshakeType;

pub(crate) struct SsiRequest<'a> {
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> SsiRequest<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::SSI_REQUEST, |r| {
            empty_context(r)?;
            let extensions = Extensions::read(r, const { &rules(Context::SsiRequest) })?;
            Ok(Self { extensions })
        })
    }

    pub(crate) fn write(extensions: &ExtensionsWriter) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::SSI_REQUEST, |w| {
            w.u8(0);
            extensions.write(w);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PeerMisbehaved;
    use crate::extension::signature_algorithms::SignatureAlgorithms;
    use crate::extension::ssi_parameters::{LinksParameters, SsiParameters};
    use crate::message::HEADER_LEN;
    use crate::wire::{CertificateType, DidMethod, ExtensionType, Field, SignatureScheme};

    /// A message that the public implementation has sent (the list of its signature schemes is shortened).
    #[test]
    fn writes_and_reads_the_bytes_of_the_public_implementation() {
        let bytes = [0x20, 0, 0, 0x13, 0, 0, 0x10, 0, 0x0d, 0, 4, 0, 2, 4, 3, 0, 0x3c, 0, 4, 2, 2, 1, 3];
        let mut w = ExtensionsWriter::default();
        w.put(&SignatureAlgorithms([SignatureScheme::ECDSA_SECP256R1_SHA256].to_vec()));
        let credential = CertificateType::VERIFIABLE_CREDENTIAL;
        let methods = [DidMethod::OTT, DidMethod::ETH];
        let asks = SsiParameters { asks_for: credential, did_methods: methods.to_vec() };
        w.put(&LinksParameters(asks));
        assert_eq!(SsiRequest::write(&w).unwrap(), bytes);
        let request = SsiRequest::read(&bytes[HEADER_LEN..]).unwrap();
        let LinksParameters(asks) = request.extensions.require().unwrap();
        assert_eq!((asks.asks_for, &*asks.did_methods), (credential, &methods[..]));
    }

    #[test]
    fn refuses_a_context_and_extensions_of_other_messages() {
        let read = |body: &[u8]| SsiRequest::read(body).map(|_| ());
        let context = PeerMisbehaved::IllegalParameter(Field::CertificateRequestContext);
        assert_eq!(read(&[1, 9, 0, 0]), Err(context.into()));
        let misplaced = PeerMisbehaved::MisplacedExtension(ExtensionType::KEY_SHARE);
        assert_eq!(read(&[0, 0, 4, 0, 51, 0, 0]), Err(misplaced.into()));
    }
}
