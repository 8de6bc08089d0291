//! The reasons for a revocation and their names.

use x509_cert::ext::pkix::CrlReason;

/// Why a certificate is revoked (RFC 5280 §5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevocationReason {
    /// The private key of a server or client is no longer secret.
    KeyCompromise,
    /// The private key of an authority is no longer secret.
    CaCompromise,
    /// The holder's name or other data in the certificate has changed.
    AffiliationChanged,
    /// Another certificate replaces it.
    Superseded,
    /// The certificate is no longer needed.
    CessationOfOperation,
    /// The holder no longer has the privilege that the certificate grants.
    PrivilegeWithdrawn,
}

impl RevocationReason {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::KeyCompromise,
        Self::CaCompromise,
        Self::AffiliationChanged,
        Self::Superseded,
        Self::CessationOfOperation,
        Self::PrivilegeWithdrawn,
    ];

    /// The name in RFC 5280 §5.3.1.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyCompromise => "keyCompromise",
            Self::CaCompromise => "cACompromise",
            Self::AffiliationChanged => "affiliationChanged",
            Self::Superseded => "superseded",
            Self::CessationOfOperation => "cessationOfOperation",
            Self::PrivilegeWithdrawn => "privilegeWithdrawn",
        }
    }

    pub(crate) const fn encoded(self) -> CrlReason {
        match self {
            Self::KeyCompromise => CrlReason::KeyCompromise,
            Self::CaCompromise => CrlReason::CaCompromise,
            Self::AffiliationChanged => CrlReason::AffiliationChanged,
            Self::Superseded => CrlReason::Superseded,
            Self::CessationOfOperation => CrlReason::CessationOfOperation,
            Self::PrivilegeWithdrawn => CrlReason::PrivilegeWithdrawn,
        }
    }
}
