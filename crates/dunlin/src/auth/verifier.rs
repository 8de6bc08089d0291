//! The interface between handshakes and certificate types. A handshake reaches a type only through the
//! verifier in its profile. A program therefore does not link the code of a type that it does not trust.

use crate::sync::{Arc, share};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;

use super::credential::AcceptedStaples;
use super::der::tlv;
use super::{PeerIdentity, Trust, chain};
use crate::crypto::{Algorithms, Hash};
use crate::error::{AuthenticationFailure, Error, Misuse, OutOfDate, PeerMisbehaved, ShortKey};
use crate::extension::did_proof::{KnownRegistry, MAX_REGISTRIES};
use crate::proof::SignatureValid;
use crate::protocol::Side;
use crate::time::Now;
use crate::wire::{CertificateType, DidMethod, Field};

/// The use of a certificate's key in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// The key signs.
    Sign,
    /// The client encrypts a secret with the key (RFC 5246 §7.4.7.1).
    Encrypt,
}

/// A peer's claim to an identity: the content of its Certificate message, and the context of the handshake.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// The entries of the message, at least one and none empty: a chain with the leaf first, one
    /// SubjectPublicKeyInfo, or whatever the certificate type defines.
    pub entries: &'a [CertificateDer<'static>],
    /// The role of the peer.
    pub peer: Side,
    /// The name that the client wants to connect to. `None` if the peer is a client.
    pub name: Option<&'a ServerName<'static>>,
    /// The OCSP response that came with the first entry. The engine does not check it.
    pub ocsp_response: Option<&'a [u8]>,
    /// The proof of what the peer's decentralised identifier resolves to, if the peer has sent it. The engine
    /// does not check it.
    pub did_proof: Option<&'a [u8]>,
    /// The status lists of the issuer of the peer's verifiable credential, if the peer has sent them. The
    /// engine does not check them.
    pub credential_status: Option<&'a [u8]>,
    /// The algorithms that may verify signatures in the credential. The profile determines them.
    pub algorithms: &'a [&'static dyn SignatureVerificationAlgorithm],
    /// The use of the peer's key in the handshake.
    pub usage: KeyUse,
    /// Whether the profile keeps the details of X.509 identities. Otherwise nothing reads
    /// [`Verified::issuer_key`].
    pub keeps_details: bool,
    /// SHA-256 of the profile's provider.
    pub sha256: &'a dyn Hash,
    /// The caller's time.
    pub now: Now,
}

/// Trust in credentials of one certificate type (RFC 7250). [`X509Trust`](super::X509Trust) and
/// [`RawKeyTrust`](super::RawKeyTrust) are such verifiers. An application can have its own, for a type of its
/// own or in place of these two; [`Verifiers`] takes it.
///
/// A verifier decides to which identity a key belongs. The engine then verifies the peer's CertificateVerify
/// with the key that the verifier returns, so a verifier never sees the handshake.
///
/// The handshake waits for [`Verifier::verify`], so it must not block. A verifier that has to look something
/// up answers [`Verdict::Ask`]. The connection then raises [`crate::Question::Verify`], and the caller
/// answers in its own time.
///
/// ```
/// use dunlin::auth::{Claim, SubjectName, Verdict, Verifier, X509Trust};
/// use dunlin::error::AuthenticationFailure;
/// use dunlin::wire::CertificateType;
/// use dunlin::PeerIdentity;
///
/// /// Trusts a chain if its first name is below a domain, too.
/// #[derive(Debug)]
/// struct Devices {
///     anchors: X509Trust,
///     domain: String,
/// }
///
/// impl Verifier for Devices {
///     fn certificate_type(&self) -> CertificateType {
///         CertificateType::X509
///     }
///
///     fn settings(&self, add: &mut dyn FnMut(&[u8])) {
///         self.anchors.settings(add);
///         add(self.domain.as_bytes());
///     }
///
///     fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
///         let verdict = self.anchors.verify(claim)?;
///         if let Verdict::Accepted(peer) = &verdict {
///             let PeerIdentity::X509(id) = &peer.identity else {
///                 return Err(AuthenticationFailure::BadEncoding);
///             };
///             let is_ours = |name: &SubjectName| match name {
///                 SubjectName::Dns(name) => {
///                     name.strip_suffix(&self.domain).is_some_and(|host| host.ends_with('.'))
///                 }
///                 _ => false,
///             };
///             if !id.names.first().is_some_and(is_ours) {
///                 return Err(AuthenticationFailure::Rejected("its name is not in our domain".into()));
///             }
///         }
///         Ok(verdict)
///     }
/// }
/// ```
pub trait Verifier: Send + Sync + fmt::Debug {
    /// The certificate type that it verifies.
    fn certificate_type(&self) -> CertificateType;

    /// Passes everything that distinguishes these settings to `add`. Sessions and cache entries are bound to
    /// a digest of it. The verifier must therefore pass everything that may change a verdict: keys that it
    /// trusts, lists, rules. Data that changes without a new configuration must end the verdict by its
    /// [`Validity`].
    fn settings(&self, add: &mut dyn FnMut(&[u8]));

    /// Judges the claim. The verifier must check everything on which its trust rests: that the credential is
    /// genuine, in date, not revoked, for this peer's role, for the name if there is one, and that the
    /// credential allows [`Claim::usage`]. It need not check that the peer has the private key.
    ///
    /// # Errors
    /// The reason why the peer is rejected. It decides about the alert;
    /// [`AuthenticationFailure::RejectedWith`] names one.
    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure>;

    /// Reads the key and the identity from the credential, without a judgement. The engine calls it after the
    /// caller has accepted the peer, unless the caller's answer contains both ([`Acceptance::with_peer`]). By
    /// default they cannot be read.
    ///
    /// # Errors
    /// The credential does not parse, or does not allow [`Claim::usage`].
    fn read(&self, _claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        Err(AuthenticationFailure::BadEncoding)
    }

    /// Checks the settings when a profile is built.
    ///
    /// # Errors
    /// A text that says what is missing.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// The distinguished names of the trust anchors in DER, for certificate_authorities (RFC 8446 §4.2.4).
    fn authorities(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// The methods of decentralised identifiers that it resolves, for verifiable credentials and bare
    /// identifiers (docs/identity.md).
    fn did_methods(&self) -> Vec<DidMethod> {
        Vec::new()
    }

    /// The registries whose proofs it accepts beside decentralised identities, at most 64. The engine calls
    /// it once in each handshake.
    fn registries(&self) -> Vec<KnownRegistry> {
        Vec::new()
    }

    /// Whether it accepts the status lists of issuers beside verifiable credentials. The engine calls it once
    /// in each handshake.
    fn accepts_status(&self) -> bool {
        false
    }

    /// Whether an earlier verdict on this peer still holds, as far as this side knows now. The engine asks
    /// before it resumes a session of the peer or uses a cache entry, which needs [`Belief::Holds`];
    /// otherwise the handshake is full. It also asks before it thaws an association with the peer, which
    /// [`Belief::Ended`] prevents. Dates and [`Self::settings`] are checked already. The handshake waits for
    /// it, so it must not block.
    fn still_believes(&self, _identity: &PeerIdentity, _now: Now) -> Belief {
        Belief::Holds
    }

    /// The identifier of the credential's issuer, if there is one. Stores count peers by it, so that the
    /// peers of one issuer do not evict the peers of another.
    fn issuer<'c>(&self, _entries: &'c [CertificateDer<'_>]) -> Option<&'c [u8]> {
        None
    }
}

/// A verifier's present belief in an earlier verdict of its own. The variants are in the order of increasing
/// doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Belief {
    /// The verdict holds.
    Holds,
    /// The verifier cannot tell, for example because it has forgotten the peer or has not heard of it yet.
    Unknown,
    /// The peer has another key by now, or its credential was revoked.
    Ended,
}

/// A verifier's answer.
#[derive(Debug)]
pub enum Verdict {
    /// The peer is trusted, if it has the private key.
    Accepted(Box<Verified>),
    /// The caller must decide, by its answer to [`crate::Question::Verify`].
    Ask,
}

/// A peer that was verified, but has not yet proved that it has the private key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// The peer's key.
    pub public_key: SubjectPublicKeyInfoDer<'static>,
    /// The peer's identity. It must be of the claim's certificate type. The engine adds the entries of the
    /// Certificate message.
    pub identity: PeerIdentity,
    /// The time span in which the verdict holds.
    pub validity: Validity,
    /// SHA-256 of the SubjectPublicKeyInfo of the authority that issued the peer's certificate, if the
    /// verifier has verified a path that leads over it
    /// ([`X509Details::issuer_key`](super::X509Details::issuer_key)).
    pub issuer_key: Option<[u8; 32]>,
}

impl Verified {
    /// A peer with this key and identity, in this time span. It is boxed, since it moves through several
    /// answers.
    pub fn new(
        public_key: SubjectPublicKeyInfoDer<'static>,
        identity: PeerIdentity,
        validity: Validity,
    ) -> Box<Self> {
        Box::new(Self { public_key, identity, validity, issuer_key: None })
    }

    /// Adds what the engine knows to the identity.
    ///
    /// # Errors
    /// The identity is not of this certificate type, or the key is not the one in the identity's entries.
    pub(crate) fn complete(
        &mut self,
        certificate_type: CertificateType,
        entries: Vec<CertificateDer<'static>>,
        sha256: &dyn Hash,
    ) -> Result<(), Error> {
        if self.identity.certificate_type() != Some(certificate_type) {
            return Err(Misuse::WrongAnswer.into());
        }
        self.identity.complete(entries, &self.public_key, self.validity.until_s, sha256);
        if self.identity.public_key().is_none_or(|key| *key == *self.public_key) {
            Ok(())
        } else {
            Err(Misuse::WrongAnswer.into())
        }
    }
}

/// Why a verdict does not hold for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AskAgain {
    /// The credential expires.
    Expiry,
    /// This side's revocation data gets too old.
    Revocation,
    /// The resolution of the peer's identity, for example of a DID, gets too old.
    Resolution,
    /// The credential's status gets too old.
    Status,
}

/// The time span in which a verdict holds, in seconds since 1970, including both ends. Cache entries and
/// sessions end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub(crate) from_s: u64,
    pub(crate) until_s: u64,
    reason: AskAgain,
}

impl Validity {
    /// Without limits.
    pub const ALWAYS: Self = Self::new(0, u64::MAX);

    /// The dates of a credential.
    pub const fn new(from_s: u64, until_s: u64) -> Self {
        Self { from_s, until_s, reason: AskAgain::Expiry }
    }

    /// Ends it no later than `until_s`, for this reason. Of several limits the earliest counts.
    #[must_use]
    pub const fn limited(mut self, reason: AskAgain, until_s: u64) -> Self {
        if until_s < self.until_s {
            (self.until_s, self.reason) = (until_s, reason);
        }
        self
    }

    /// The time span in which both hold.
    pub(crate) const fn within(mut self, other: Self) -> Self {
        if other.from_s > self.from_s {
            self.from_s = other.from_s;
        }
        self.limited(other.reason, other.until_s)
    }

    /// Checks that it holds now.
    ///
    /// # Errors
    /// It has not begun, or has ended. The error names no certificate, because a verdict can have other
    /// limits than its chain.
    pub(crate) fn check(&self, now: Now) -> Result<(), AuthenticationFailure> {
        let out_of_date = |limit_s| OutOfDate { index: None, common_name: None, limit_s };
        match now.unix_s() {
            now_s if now_s < self.from_s => Err(AuthenticationFailure::NotValidYet(out_of_date(self.from_s))),
            now_s if now_s > self.until_s => Err(AuthenticationFailure::Expired(out_of_date(self.until_s))),
            _ => Ok(()),
        }
    }

    /// The first second.
    pub const fn from_s(&self) -> u64 {
        self.from_s
    }

    /// The last second. `u64::MAX` means that there is no limit.
    pub const fn until_s(&self) -> u64 {
        self.until_s
    }

    /// The reason why the verdict does not hold after the last second.
    pub const fn reason(&self) -> AskAgain {
        self.reason
    }
}

/// The caller's acceptance of a peer, in its answer to [`crate::Question::Verify`].
///
/// ```
/// use dunlin::auth::{Acceptance, AskAgain, Validity};
/// use dunlin::Answer;
///
/// // The caller would ask its directory again in an hour.
/// let now_s = 1_800_000_000;
/// let validity = Validity::ALWAYS.limited(AskAgain::Status, now_s + 3600);
/// let answer = Answer::Verified(Ok(Acceptance::within(validity)));
/// ```
#[derive(Debug)]
pub struct Acceptance {
    peer: Option<Box<Verified>>,
    validity: Option<Validity>,
}

impl Acceptance {
    /// For as long as the caller may decide differently the next time. The handshake cache keeps nothing. The
    /// connection's sessions still resume without a question, until the credential or their lifetime ends; a
    /// server whose callers must decide each time issues no tickets.
    pub const fn once() -> Self {
        Self { peer: None, validity: None }
    }

    /// For this time span, or the shorter one of the credential's own dates. The handshake cache may keep the
    /// peer until then, and the connection's sessions end with it. Outside the time span, the answer rejects
    /// the peer.
    pub const fn within(validity: Validity) -> Self {
        Self { peer: None, validity: Some(validity) }
    }

    /// Adds the peer's key and identity, for certificate types whose credentials do not contain them. The
    /// engine takes them as they are, so the caller must check that the key belongs to the identity and may
    /// be used as [`KeyUse`] says.
    #[must_use]
    pub fn with_peer(mut self, peer: Box<Verified>) -> Self {
        self.peer = Some(peer);
        self
    }

    /// The acceptance by a verifier.
    pub(crate) const fn by_verifier(peer: Box<Verified>) -> Self {
        Self { peer: Some(peer), validity: Some(Validity::ALWAYS) }
    }

    /// The peer, as far as the answer contains it, and the time span.
    pub(crate) fn into_parts(self) -> (Option<Box<Verified>>, Option<Validity>) {
        (self.peer, self.validity)
    }
}

/// Verifies `signature` over `content` with the peer's `key` and one of `algorithms`. A scheme has several if
/// it leaves the curve open.
pub(crate) fn verify_signature(
    algorithms: Algorithms<'_>,
    key: &SubjectPublicKeyInfoDer<'_>,
    content: &[u8],
    signature: &[u8],
) -> Result<SignatureValid, Error> {
    let entity = RawPublicKeyEntity::try_from(key).map_err(|_| AuthenticationFailure::BadRawKey)?;
    let mut fits = algorithms.is_empty();
    for algorithm in algorithms {
        match entity.verify_signature(*algorithm, content, signature) {
            Ok(()) => return Ok(SignatureValid::assert()),
            Err(webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)) => {}
            Err(_) => fits = true,
        }
    }
    if let Some(bits) = tlv(key).and_then(|(_, key, _)| chain::short_rsa(key)) {
        return Err(AuthenticationFailure::KeyTooShort(ShortKey { bits, common_name: None }).into());
    }
    if fits {
        return Err(PeerMisbehaved::BadSignature.into());
    }
    // RFC 8446 §4.4.3: the algorithm must fit the key of the certificate.
    Err(PeerMisbehaved::IllegalParameter(Field::SchemeOfOtherKey).into())
}

/// The verifiers of a profile, in order of preference. [`Trust`] converts into them.
///
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::{RawKeyTrust, Trust, Verifier, Verifiers};
///
/// fn trust(own: Arc<dyn Verifier>) -> Verifiers {
///     Verifiers::from(Trust { x509: None, raw_key: Some(RawKeyTrust::Ask) }).with(own)
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Verifiers(Vec<Arc<dyn Verifier>>);

/// The type with the smaller messages comes first.
impl From<Trust> for Verifiers {
    fn from(Trust { x509, raw_key }: Trust) -> Self {
        let raw_key = raw_key.map(|trust| share!(trust => dyn Verifier));
        let x509 = x509.map(|trust| share!(trust => dyn Verifier));
        Self(raw_key.into_iter().chain(x509).collect())
    }
}

impl Verifiers {
    /// Adds a verifier, which is preferred to the others. It replaces one of the same certificate type.
    #[must_use]
    pub fn with(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.0.retain(|other| other.certificate_type() != verifier.certificate_type());
        self.0.insert(0, verifier);
        self
    }

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

    /// Whether an earlier verdict on a peer still holds. Peers without a certificate have none.
    pub(crate) fn still_believe(&self, peer: Option<&PeerIdentity>, now: Now) -> Belief {
        let typed = peer.and_then(|peer| Some((peer, peer.certificate_type()?)));
        let Some((peer, typ)) = typed else { return Belief::Holds };
        self.of(typ).map_or(Belief::Ended, |verifier| verifier.still_believes(peer, now))
    }

    /// The methods of decentralised identifiers that this side resolves for credentials of this type.
    pub(crate) fn did_methods(&self, typ: CertificateType) -> Vec<DidMethod> {
        self.of(typ).map_or_else(|_| Vec::new(), Verifier::did_methods)
    }

    /// The staples that this side accepts beside decentralised identities. Only credentials have a status.
    pub(crate) fn staples(&self, of_credentials: bool) -> AcceptedStaples {
        AcceptedStaples {
            registries: self.iter().flat_map(Verifier::registries).take(MAX_REGISTRIES).collect(),
            status: of_credentials && self.iter().any(Verifier::accepts_status),
        }
    }

    /// The names of all trust anchors.
    pub(crate) fn authorities(&self) -> Vec<Vec<u8>> {
        self.iter().flat_map(Verifier::authorities).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_ends_with_the_earliest_limit() {
        let dates = Validity::new(10, 100);
        let limited = dates.limited(AskAgain::Status, 50).limited(AskAgain::Revocation, 60);
        assert_eq!((limited.from_s(), limited.until_s(), limited.reason()), (10, 50, AskAgain::Status));
        assert_eq!(dates.limited(AskAgain::Status, 100), dates);
        let both = Validity::new(20, u64::MAX).limited(AskAgain::Resolution, 70).within(dates);
        assert_eq!((both.from_s(), both.until_s(), both.reason()), (20, 70, AskAgain::Resolution));
        assert_eq!(Validity::ALWAYS.within(dates), dates);
        assert_eq!(dates.within(Validity::ALWAYS), dates);
    }
}
