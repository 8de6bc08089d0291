//! The verifier of peers with credentials.

use std::sync::{Arc, PoisonError, RwLock};

use dunlin::PeerIdentity;
use dunlin::auth::{AskAgain, Claim, KnownRegistry, Validity, Verdict, Verified};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use dunlin::wire::{AlertDescription as Alert, CertificateType, DidMethod, SignatureScheme};
use serde_json::Value;

use super::CredentialIdentity;
use super::resolve::{ResolveError, Resolver};
use super::subject::{Subject, Subjects};
use crate::credential::cose::CoseError;
use crate::credential::jwt::JwtError;
use crate::credential::proof::ProofError;
use crate::credential::status::{StatusError, StatusLists};
use crate::credential::{CredentialError, Seconds, VerifiedCredential, Verifier};
use crate::did::{Did, DidError};
use crate::document::DidDocument;
use crate::holding::issuer_name;
use crate::key::KeyError;
use crate::method::MethodError;
use crate::method::dunlin::Sha256Hash;
use crate::registry::staple::StapleError;
use crate::trust::{TrustError, TrustList};

/// Why a peer's credential or DID is refused in a handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The Certificate message has several entries.
    #[error("the peer has sent several entries instead of one credential")]
    Entries,
    /// What the peer has sent as its DID is none.
    #[error("the peer's identifier: {0}")]
    Identifier(#[from] DidError),
    /// The credential is refused.
    #[error("{0}")]
    Credential(#[from] CredentialError),
    /// The profile does not allow the issuer's signature in chains.
    #[error("credential: the issuer has signed with {0}, which is not accepted here")]
    Algorithm(SignatureScheme),
    /// The peer's DID is not among those that this side talks to.
    #[error("{0}")]
    Peer(#[from] TrustError),
    /// The peer's DID does not resolve.
    #[error("{0}")]
    Resolve(#[from] ResolveError),
    /// The peer's document has no usable key for authentication.
    #[error("the document of {0} has no key for authentication that is supported here")]
    NoKey(Did),
    /// The peer's identity is too long for sessions and cache entries.
    #[error("the names of the credential's issuer and status lists are too long together")]
    TooLong,
}

impl Refusal {
    /// Whether the program could look something up and try again: a document or a status list.
    pub fn is_missing(&self) -> bool {
        use StatusError as S;
        match self {
            Self::Resolve(_) => self.wanted().is_some(),
            Self::Credential(CredentialError::Status(error)) => {
                matches!(error, S::Missing(_) | S::Stale(_))
            }
            _ => false,
        }
    }

    /// The DID that the program could look up to try again.
    pub fn wanted(&self) -> Option<&Did> {
        match self {
            Self::Resolve(ResolveError::NotAtHand(did) | ResolveError::OldProof(did, _)) => Some(did),
            _ => None,
        }
    }

    /// The alert that tells the peer.
    pub fn alert(&self) -> Alert {
        match self {
            Self::Entries | Self::Identifier(_) => Alert::DECODE_ERROR,
            Self::Credential(error) => of_credential(error),
            Self::Algorithm(_) | Self::TooLong => Alert::UNSUPPORTED_CERTIFICATE,
            Self::Peer(_) => Alert::UNKNOWN_CA,
            Self::Resolve(ResolveError::Deactivated(_) | ResolveError::Outdated(_)) => {
                Alert::CERTIFICATE_REVOKED
            }
            Self::Resolve(ResolveError::OldProof(..)) => Alert::CERTIFICATE_EXPIRED,
            Self::Resolve(ResolveError::Proof(StapleError::TooLong | StapleError::Field(_))) => {
                Alert::DECODE_ERROR
            }
            Self::Resolve(ResolveError::Unsupported(_) | ResolveError::Method(MethodError::Unknown(_))) => {
                Alert::UNSUPPORTED_CERTIFICATE
            }
            Self::Resolve(ResolveError::Method(MethodError::Key(_, error))) => of_key(error),
            Self::Resolve(_) | Self::NoKey(_) => Alert::BAD_CERTIFICATE,
        }
    }
}

impl From<Refusal> for AuthenticationFailure {
    fn from(refusal: Refusal) -> Self {
        Self::RejectedWith(refusal.alert(), refusal.to_string())
    }
}

/// Syntax is a decode error; the rest is what RFC 8446 §6.2 says of certificates.
fn of_credential(error: &CredentialError) -> Alert {
    use CredentialError as C;
    use {CoseError as O, JwtError as J, ProofError as P};
    match error {
        C::TooLong | C::Form | C::Json(_) => Alert::DECODE_ERROR,
        C::Jwt(J::Parts | J::Json(_)) => Alert::DECODE_ERROR,
        C::Cose(
            O::Message(_)
            | O::Header(_)
            | O::Content(_)
            | O::Structure
            | O::Members
            | O::Payload
            | O::NotShort,
        ) => Alert::DECODE_ERROR,
        C::UntrustedIssuer(_) => Alert::UNKNOWN_CA,
        C::Expired | C::NotYetValid => Alert::CERTIFICATE_EXPIRED,
        C::Jwt(J::Expired | J::NotYetValid) => Alert::CERTIFICATE_EXPIRED,
        C::Proof(P::Expired | P::Future) => Alert::CERTIFICATE_EXPIRED,
        C::Status(StatusError::Revoked | StatusError::Suspended) => Alert::CERTIFICATE_REVOKED,
        C::Context(_) | C::Type | C::Unchecked(_) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Status(StatusError::Type(_) | StatusError::Purpose) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Proof(P::Type(_) | P::Cryptosuite(_) | P::Chain) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Jwt(J::Algorithm(_)) | C::Cose(O::Algorithm(_)) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Proof(P::Key(key)) | C::Jwt(J::Key(key)) | C::Cose(O::Key(key)) => of_key(key),
        _ => Alert::BAD_CERTIFICATE,
    }
}

fn of_key(error: &KeyError) -> Alert {
    match error {
        KeyError::UnknownType | KeyError::Use | KeyError::Provider(_) => Alert::UNSUPPORTED_CERTIFICATE,
        _ => Alert::BAD_CERTIFICATE,
    }
}

/// Verifies peers by their credentials (docs/identity.md). [`Verifiers::with`](dunlin::auth::Verifiers::with) adds it to a profile.
///
/// It trusts what these issuers say about anybody, unless [`Self::with_peers`] names the peers. A credential is not bound to a host name:
/// without such names, a client accepts every holder as its server.
///
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::Verifiers;
/// use dunlin::crypto::CryptoProvider;
/// use dunlin_identity::handshake::{CredentialVerifier, resolve_listed};
/// use dunlin_identity::trust::TrustList;
///
/// /// Trusts the issuers on this list.
/// fn trust(provider: Arc<CryptoProvider>, list: &str, now_s: i64) -> Result<Verifiers, Box<dyn std::error::Error>> {
///     let issuers = resolve_listed(&TrustList::read(list)?, &[], now_s)?;
///     Ok(Verifiers::default().with(Arc::new(CredentialVerifier::new(provider, issuers))))
/// }
/// ```
#[derive(Debug)]
pub struct CredentialVerifier {
    issuers: Verifier,
    subjects: Subjects,
    status: RwLock<StatusLists>,
    asks: bool,
}

impl CredentialVerifier {
    /// Trusts the issuers with these documents, and resolves peers of `did:key` and `did:jwk`.
    pub fn new(provider: Arc<CryptoProvider>, issuers: impl IntoIterator<Item = DidDocument>) -> Self {
        Self::of(provider, Verifier::new(issuers))
    }

    /// As [`Self::new`], with the contexts and issuers of `issuers`.
    pub fn of(provider: Arc<CryptoProvider>, issuers: Verifier) -> Self {
        Self { issuers, subjects: Subjects::new(provider), status: RwLock::default(), asks: false }
    }

    /// Resolves the DIDs of further methods. Of several resolvers for one method, the first that has an answer counts.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.subjects.add_resolver(resolver);
        self
    }

    /// Accepts only peers with these DIDs. An empty list accepts nobody.
    #[must_use]
    pub fn with_peers(self, peers: TrustList) -> Self {
        Self { subjects: self.subjects.only(peers), ..self }
    }

    /// Starts with these status lists.
    #[must_use]
    pub fn with_status(self, lists: StatusLists) -> Self {
        Self { status: RwLock::new(lists), ..self }
    }

    /// Asks the caller ([`dunlin::Question::Verify`]) where a document or status list is not at hand. The caller looks it up, adds it, and
    /// answers with the result of [`Self::judge`]. Without this such a peer is refused.
    #[must_use]
    pub fn asking(self) -> Self {
        Self { asks: true, ..self }
    }

    /// Changes the status lists, for example by a list that the program has fetched.
    pub fn update_status<R>(&self, change: impl FnOnce(&mut StatusLists) -> R) -> R {
        change(&mut self.status.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Verifies the credential in a Certificate message: everything but the peer's possession of the key in the result. `proof` is what
    /// the peer has sent beside it, and `algorithms` are those that may verify the issuer's signature.
    ///
    /// # Errors
    /// [`Refusal`]. What [`Refusal::is_missing`] names can be looked up.
    pub fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        proof: Option<&[u8]>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        let [credential] = entries else { return Err(Refusal::Entries) };
        let verified = {
            let lists = self.status.read().unwrap_or_else(PoisonError::into_inner);
            self.issuers.verify_presented(&self.subjects.provider, credential, &lists, now)?
        };
        if !self.is_accepted(verified.scheme, algorithms) {
            return Err(Refusal::Algorithm(verified.scheme));
        }
        // After the other checks, so that only a trusted issuer can make this side look a DID up.
        let Subject { key, document, sequence, until } =
            self.subjects.resolve(&verified.subject, proof, now)?;
        let limit = |validity: Validity, reason, until: Option<Seconds>| match until {
            Some(until) => validity.limited(reason, unsigned(until)),
            None => validity,
        };
        let validity = Validity::new(verified.valid_from.map_or(0, unsigned), u64::MAX);
        let validity = limit(validity, AskAgain::Expiry, verified.valid_until);
        let validity = limit(validity, AskAgain::Status, verified.status_until);
        let validity = limit(validity, AskAgain::Resolution, until);
        let identity = identity(verified, document, sequence, now);
        let identity = identity.to_engine().ok_or(Refusal::TooLong)?;
        Ok(Verified::new(key, identity, validity))
    }

    /// Whether a chain may have signatures of this scheme: with its type of key, hash and padding.
    fn is_accepted(
        &self,
        scheme: SignatureScheme,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        let ids = |algorithm: &dyn SignatureVerificationAlgorithm| {
            (algorithm.public_key_alg_id(), algorithm.signature_alg_id())
        };
        let schemes = self.subjects.provider.signatures.schemes.iter();
        let mut of_scheme = schemes.filter(|(candidate, _)| *candidate == scheme).flat_map(|(_, all)| *all);
        of_scheme.any(|one| algorithms.iter().any(|algorithm| ids(*algorithm) == ids(*one)))
    }
}

/// What the verdict rests on.
fn identity(
    verified: VerifiedCredential,
    document: Sha256Hash,
    sequence: u64,
    resolved: Seconds,
) -> CredentialIdentity {
    let claims = verified.credential.get("credentialSubject").and_then(Value::as_object).cloned();
    let mut claims = claims.unwrap_or_default();
    claims.remove("id");
    let (claims, statuses) = (Some(claims), verified.statuses);
    let (did, issuer, valid_until) = (verified.subject, verified.issuer, verified.valid_until);
    CredentialIdentity { did, issuer, claims, document, sequence, resolved, valid_until, statuses }
}

/// The time of the handshake.
pub(super) fn seconds(claim: &Claim<'_>) -> Seconds {
    Seconds::try_from(claim.now.unix_ms / 1000).unwrap_or(Seconds::MAX)
}

/// Times before 1970 are long past.
pub(super) fn unsigned(time: Seconds) -> u64 {
    u64::try_from(time).unwrap_or(0)
}

impl dunlin::auth::Verifier for CredentialVerifier {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::VERIFIABLE_CREDENTIAL
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        for issuer in self.issuers.issuers() {
            // The DID alone would not change with its keys. A document without a canonical form verifies nothing.
            add(issuer.canonical().unwrap_or_default().as_bytes());
        }
        let age = self.status.read().unwrap_or_else(PoisonError::into_inner).max_age();
        add(&age.to_be_bytes());
        self.subjects.settings(add);
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let now = seconds(claim);
        match self.judge(claim.entries, claim.did_proof, claim.algorithms, now) {
            Ok(verified) => Ok(Verdict::Accepted(verified)),
            Err(refusal) if self.asks && refusal.is_missing() => Ok(Verdict::Ask),
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        match self.issuers.issuers().is_empty() {
            true => Err("no issuers of verifiable credentials are trusted"),
            false => Ok(()),
        }
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        let name = |issuer: &DidDocument| issuer_name(&self.subjects.provider, issuer.id().as_str()).to_vec();
        self.issuers.issuers().iter().map(name).collect()
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        self.subjects.did_methods()
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        self.subjects.registries()
    }

    /// Whether nothing that this side has learned since contradicts the verdict: the DID has the same document, and the issuer has not
    /// revoked the credential.
    fn still_believes(&self, identity: &PeerIdentity) -> bool {
        let Some(peer) = CredentialIdentity::of(identity) else { return false };
        let lists = self.status.read().unwrap_or_else(PoisonError::into_inner);
        self.subjects.is_latest(&peer.did, &peer.document, peer.sequence)
            && !lists.refuses(&peer.issuer, &peer.statuses)
    }
}
