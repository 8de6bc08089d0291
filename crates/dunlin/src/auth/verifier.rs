//! The interface between handshakes and certificate types. A handshake reaches a type only through the verifier in its
//! profile. A program therefore does not link the code of a type that it does not trust.

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

/// The algorithms that may verify a signature.
pub(crate) type Algorithms<'a> = &'a [&'static dyn SignatureVerificationAlgorithm];

/// The use of a certificate's key in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyUse {
    /// The key signs.
    Sign,
    /// The client encrypts a secret with the key (RFC 5246 §7.4.7.1).
    Encrypt,
}

/// Trust in certificates of one type.
pub(crate) trait Verifier: Send + Sync + fmt::Debug {
    fn certificate_type(&self) -> CertificateType;

    /// Checks the settings.
    ///
    /// # Errors
    /// A text that says what is missing.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Whether the caller gives the verdict. The engine must then not assume that the next verdict is the same.
    fn asks(&self) -> bool {
        false
    }

    /// Passes everything that distinguishes these settings to `add`, for the digest of settings.
    fn settings(&self, add: &mut dyn FnMut(&[u8]));

    /// The distinguished names of the trust anchors in DER, for certificate_authorities (RFC 8446 §4.2.4).
    fn authorities(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Verifies the chain (or the raw key); `None` if the engine must ask the caller. `algorithms` must cover its
    /// signatures, and a server's leaf must contain `name`. An unparsable leaf is rejected without asking.
    fn believes(
        &self,
        algorithms: Algorithms<'_>,
        chain: &[CertificateDer<'_>],
        peer: Side,
        name: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Option<Result<(), AuthenticationFailure>>;

    /// Whether the certificate allows this use of its key.
    fn allows(&self, _leaf: &CertificateDer<'_>, _usage: KeyUse) -> bool {
        true
    }

    /// The latest notBefore in `chain`, in seconds since 1970.
    fn not_before_s(&self, _chain: &[CertificateDer<'_>]) -> u64 {
        0
    }

    /// The distinguished name of the issuer of `leaf`, in DER; `None` for types without issuers.
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

    /// The identity of a peer that has proved possession of the key in `chain`.
    fn identity(
        &self,
        provider: &CryptoProvider,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<PeerIdentity, AuthenticationFailure>;
}

/// Tries `algorithms` until one verifies; a scheme has several if it leaves the curve open. If none verifies, `key` gives
/// the key to explain the error.
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

/// The verifiers of a profile, in order of preference. The type with the smaller messages comes first.
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

    /// The certificate types that this side can verify.
    pub(crate) fn types(&self) -> Vec<CertificateType> {
        self.iter().map(Verifier::certificate_type).collect()
    }

    /// The verifier of this type.
    ///
    /// # Errors
    /// This side has no verifier for the type.
    pub(crate) fn of(&self, typ: CertificateType) -> Result<&dyn Verifier, AuthenticationFailure> {
        let found = self.iter().find(|verifier| verifier.certificate_type() == typ);
        found.ok_or(AuthenticationFailure::UnsupportedType(typ))
    }

    /// The names of all trust anchors.
    pub(crate) fn authorities(&self) -> Vec<Vec<u8>> {
        self.iter().flat_map(Verifier::authorities).collect()
    }
}
