//! Values that only a passed check makes: their constructors are what a review searches for.

/// A Finished was compared with what it should be.
#[must_use]
#[derive(Debug)]
pub(crate) struct FinishedValid(());

impl FinishedValid {
    pub(crate) const fn assert() -> Self {
        Self(())
    }
}

/// The signature in CertificateVerify was verified with the key of the peer's certificate.
#[must_use]
#[derive(Debug)]
pub(crate) struct SignatureValid(());

impl SignatureValid {
    pub(crate) const fn assert() -> Self {
        Self(())
    }
}

/// The peer is who the trust settings demand: its chain or key was verified, or it proved a PSK, or the settings
/// want no proof.
#[must_use]
#[derive(Debug)]
pub(crate) struct PeerVerified(());

impl PeerVerified {
    pub(crate) const fn assert() -> Self {
        Self(())
    }
}
