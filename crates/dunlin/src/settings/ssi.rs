//! How decentralised identities travel.

use crate::wire::CertificateType;

/// Whether a profile uses `ssi_parameters` (docs/identity.md). With it, the messages VC and DID show
/// decentralised identities, and DIDVerify proves their keys. It needs TLS 1.3 or DTLS 1.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SsiMessages {
    /// The profile does not use it. A verifiable credential is a certificate of the type 224.
    #[default]
    Off,
    /// The profile uses it beside the certificate type 224, which wins for credentials where both sides know
    /// it. Bare identifiers have only these messages.
    Beside,
    /// The profile uses it in place of the certificate type 224.
    Alone,
    /// As [`Self::Alone`], but as the public implementation of the paper expects it: the extension has the
    /// number 60, a server asks for the kind of identity for which the client asks, and nothing is stapled.
    /// Only for interoperation: it needs the cargo feature `links`.
    #[cfg(feature = "links")]
    Links,
}

impl SsiMessages {
    pub(crate) const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    pub(crate) const fn is_links(self) -> bool {
        match self {
            #[cfg(feature = "links")]
            Self::Links => true,
            _ => false,
        }
    }

    /// Whether a Certificate message of TLS 1.3 may have this type.
    pub(crate) fn leaves(self, typ: CertificateType) -> bool {
        match typ {
            CertificateType::DECENTRALISED_IDENTIFIER => false,
            CertificateType::VERIFIABLE_CREDENTIAL => matches!(self, Self::Off | Self::Beside),
            _ => true,
        }
    }
}
