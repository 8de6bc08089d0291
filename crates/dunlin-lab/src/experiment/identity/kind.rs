//! The kinds of identities.

/// The kind of identity that a side shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A certificate, with the intermediate authority's certificate.
    X509,
    /// A verifiable credential, in the message VC.
    Vc,
    /// A bare DID, in the message DID.
    Did,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::X509, Self::Vc, Self::Did];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::X509 => "x509",
            Self::Vc => "vc",
            Self::Did => "did",
        }
    }
}
