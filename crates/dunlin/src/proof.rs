//! Proofs that a check has passed. Only the code of that check constructs them, so a review can search for
//! the constructors.

/// The peer's Finished has the expected value.
#[must_use]
#[derive(Debug)]
pub(crate) struct FinishedValid(());

impl FinishedValid {
    pub(crate) const fn assert() -> Self {
        Self(())
    }
}

/// The key in the peer's certificate has verified the signature in its CertificateVerify.
#[must_use]
#[derive(Debug)]
pub(crate) struct SignatureValid(());

impl SignatureValid {
    pub(crate) const fn assert() -> Self {
        Self(())
    }
}

/// The peer satisfies the trust settings: its chain or key was verified, it proved a PSK, or the settings
/// require no proof.
#[must_use]
#[derive(Debug)]
pub(crate) struct PeerVerified(());

impl PeerVerified {
    pub(crate) const fn assert() -> Self {
        Self(())
    }
}
