//! What a handshake does with the peer's certificates, whatever their type. A type is reached through the value that a
//! profile was given for it, and in no other way: what a program does not trust is not linked into it.

use crate::sync::{Arc, share};
use alloc::vec::Vec;
use core::fmt;

use pki_types::{
    CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};

use super::der::tlv;
use super::{PeerIdentity, Trust, chain};
use crate::crypto::CryptoProvider;
use crate::error::{AuthenticationFailure, Error, PeerMisbehaved, ShortKey};
use crate::proof::SignatureValid;
use crate::protocol::Side;
use crate::wire::{CertificateType, What};

/// The algorithms with which a signature may be verified.
pub(crate) type Algorithms<'a> = &'a [&'static dyn SignatureVerificationAlgorithm];

/// What the key of a certificate does in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyUse {
    /// It signs.
    Sign,
    /// A secret is encrypted with it (RFC 5246 §7.4.7.1).
    Encrypt,
}

/// Trust in certificates of one type.
pub(crate) trait Verifier: Send + Sync + fmt::Debug {
    fn certificate_type(&self) -> CertificateType;

    /// Whether the settings can work.
    ///
    /// # Errors
    /// What they lack, in words.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Whether the verdict is that of somebody else, who may come to another one for reasons that are not known here.
    fn asks(&self) -> bool {
        false
    }

    /// Gives `add` what tells these settings from others, for the digest of settings.
    fn settings(&self, add: &mut dyn FnMut(&[u8]));

    /// The distinguished names of its anchors in DER, for certificate_authorities (RFC 8446 §4.2.4).
    fn authorities(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Whether the chain (or the one key) is believed; `None` if that must be asked. Its signatures must be of
    /// `algorithms`, and a server's must be for `name`. Nobody is asked of a leaf that cannot be read.
    fn believes(
        &self,
        algorithms: Algorithms<'_>,
        chain: &[CertificateDer<'_>],
        peer: Side,
        name: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Option<Result<(), AuthenticationFailure>>;

    /// Whether the certificate lets its key do this.
    fn allows(&self, _leaf: &CertificateDer<'_>, _usage: KeyUse) -> bool {
        true
    }

    /// From when on all certificates of `chain` are valid, in seconds since 1970.
    fn not_before_s(&self, _chain: &[CertificateDer<'_>]) -> u64 {
        0
    }

    /// The distinguished name of the issuer of `leaf`, in DER; `None` where nobody issues.
    fn issuer<'l>(&self, _leaf: &'l CertificateDer<'_>) -> Option<&'l [u8]> {
        None
    }

    /// The key in `leaf`.
    fn public_key(
        &self,
        leaf: &CertificateDer<'_>,
    ) -> Result<SubjectPublicKeyInfoDer<'static>, AuthenticationFailure>;

    /// Verifies `signature` over `content` with the key in `leaf` and one of `algorithms`.
    fn verify_signature(
        &self,
        algorithms: Algorithms<'_>,
        leaf: &CertificateDer<'_>,
        content: &[u8],
        signature: &[u8],
    ) -> Result<SignatureValid, Error>;

    /// Who has proven to be the subject of `chain`.
    fn identity(
        &self,
        provider: &CryptoProvider,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<PeerIdentity, AuthenticationFailure>;
}

/// A scheme has several algorithms where it leaves the curve open: one of them has to fit the key, and to verify. `key` is asked for
/// if none does.
pub(super) fn verify_with<'k>(
    algorithms: Algorithms<'_>,
    key: impl FnOnce() -> SubjectPublicKeyInfoDer<'k>,
    verify: impl Fn(&dyn SignatureVerificationAlgorithm) -> Result<(), webpki::Error>,
) -> Result<SignatureValid, Error> {
    let mut fits = algorithms.is_empty();
    for algorithm in algorithms {
        match verify(*algorithm) {
            Ok(()) => return Ok(SignatureValid::assert()),
            Err(webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)) => {}
            Err(_) => fits = true,
        }
    }
    if let Some(bits) = tlv(&key()).and_then(|(_, key, _)| chain::short_rsa(key)) {
        return Err(AuthenticationFailure::KeyTooShort(ShortKey { bits, common_name: None }).into());
    }
    match fits {
        true => Err(PeerMisbehaved::BadSignature.into()),
        // RFC 8446 §4.4.3: the algorithm must fit the key of the certificate.
        false => Err(PeerMisbehaved::IllegalParameter(What::SchemeOfOtherKey).into()),
    }
}

/// The verifiers of a profile, in order of preference: the type with the smaller messages first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verifiers(Vec<Arc<dyn Verifier>>);

impl From<Trust> for Verifiers {
    fn from(Trust { x509, raw_key }: Trust) -> Self {
        let raw_key = raw_key.map(|trust| share!(trust => dyn Verifier));
        let x509 = x509.map(|trust| share!(trust => dyn Verifier));
        Self(raw_key.into_iter().chain(x509).collect())
    }
}

impl Verifiers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Verifier> {
        self.0.iter().map(|verifier| &**verifier)
    }

    /// The types that can be verified.
    pub(crate) fn types(&self) -> Vec<CertificateType> {
        self.iter().map(Verifier::certificate_type).collect()
    }

    /// The verifier of this type.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn of(&self, typ: CertificateType) -> Result<&dyn Verifier, AuthenticationFailure> {
        let found = self.iter().find(|verifier| verifier.certificate_type() == typ);
        found.ok_or(AuthenticationFailure::UnsupportedType(typ))
    }

    /// The names of all anchors.
    pub(crate) fn authorities(&self) -> Vec<Vec<u8>> {
        self.iter().flat_map(Verifier::authorities).collect()
    }
}
