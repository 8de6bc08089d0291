//! The verifier of peers with credentials.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use dunlin::PeerIdentity;
use dunlin::auth::{AskAgain, Claim, KnownRegistry, Validity, Verdict, Verified};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use dunlin::wire::{AlertDescription as Alert, CertificateType, DidMethod, SignatureScheme};
use serde_json::Value;

use super::resolve::{ListedIssuer, Resolution, ResolveError, Resolver};
use super::subject::{Subject, Subjects};
use super::{CredentialIdentity, Judge, Stapled};
use crate::credential::cose::CoseError;
use crate::credential::jwt::JwtError;
use crate::credential::links::LinksError;
use crate::credential::proof::ProofError;
use crate::credential::status::{SentList, StatusError, StatusList, StatusLists};
use crate::credential::{self, CredentialError, Seconds, VerifiedCredential, Verifier, unsigned};
use crate::did::{Did, DidError};
use crate::document::{DidDocument, DocumentError};
use crate::holding::issuer_name;
use crate::key::KeyError;
use crate::method::MethodError;
use crate::method::dunlin::Sha256Hash;
use crate::registry::chain::ChainError;
use crate::registry::checkpoint::CheckpointError;
use crate::registry::map::MapError;
use crate::registry::note::NoteError;
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
    /// The credential of the public implementation is refused ([`super::LinksVerifier`]).
    #[error("{0}")]
    Links(#[from] LinksError),
    /// A status list beside the credential is refused.
    #[error("status list beside the credential: {0}")]
    StatusList(CredentialError),
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
            Self::Credential(error) | Self::StatusList(error) => of_credential(error),
            Self::Links(error) => of_links(error),
            Self::Algorithm(_) | Self::TooLong => Alert::UNSUPPORTED_CERTIFICATE,
            Self::Peer(_) => Alert::UNKNOWN_CA,
            Self::Resolve(ResolveError::Deactivated(_) | ResolveError::Outdated(_)) => {
                Alert::CERTIFICATE_REVOKED
            }
            Self::Resolve(ResolveError::OldProof(..)) => Alert::CERTIFICATE_EXPIRED,
            Self::Resolve(ResolveError::Proof(error)) => of_staple(error),
            Self::Resolve(ResolveError::Unsupported(_)) => Alert::UNSUPPORTED_CERTIFICATE,
            Self::Resolve(ResolveError::Method(error)) => of_method(error),
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
        C::TooLong | C::Form | C::Json(_) | C::Status(StatusError::Staple) => Alert::DECODE_ERROR,
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
        C::Proof(P::Expired | P::Future) | C::Status(StatusError::Stale(_)) => Alert::CERTIFICATE_EXPIRED,
        C::Status(StatusError::Revoked | StatusError::Suspended) => Alert::CERTIFICATE_REVOKED,
        C::Context(_) | C::Type | C::Unchecked(_) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Status(StatusError::Type(_) | StatusError::Purpose) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Proof(P::Type(_) | P::Cryptosuite(_) | P::Chain) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Jwt(J::Algorithm(_)) | C::Cose(O::Algorithm(_)) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Proof(P::Key(key)) | C::Jwt(J::Key(key)) | C::Cose(O::Key(key)) => of_key(key),
        _ => Alert::BAD_CERTIFICATE,
    }
}

/// As [`of_credential`].
fn of_links(error: &LinksError) -> Alert {
    match error {
        LinksError::Json(_) => Alert::DECODE_ERROR,
        LinksError::UntrustedIssuer => Alert::UNKNOWN_CA,
        LinksError::Expired | LinksError::NotYetValid => Alert::CERTIFICATE_EXPIRED,
        LinksError::Key(key) => of_key(key),
        LinksError::Member(_) | LinksError::Subject(_) => Alert::BAD_CERTIFICATE,
    }
}

/// A proof of a DID that cannot be read is a decode error; one that is wrong is not.
fn of_staple(error: &StapleError) -> Alert {
    use {CheckpointError as C, DocumentError as D, NoteError as N, StapleError as S};
    match error {
        S::TooLong | S::Field(_) | S::Map(MapError::Malformed) => Alert::DECODE_ERROR,
        S::Document(
            D::Json(_)
            | D::Canonical(_)
            | D::Member(_)
            | D::Did(..)
            | D::TooManyMethods
            | D::TooManyEntries(_),
        ) => Alert::DECODE_ERROR,
        S::Checkpoint(
            C::Malformed | C::Note(N::TooLong | N::Text | N::Unsigned | N::Line(_) | N::TooManySignatures),
        ) => Alert::DECODE_ERROR,
        S::Checkpoint(C::Chain(ChainError::Malformed(_))) => Alert::DECODE_ERROR,
        _ => Alert::BAD_CERTIFICATE,
    }
}

fn of_method(error: &MethodError) -> Alert {
    match error {
        MethodError::Unknown(_) => Alert::UNSUPPORTED_CERTIFICATE,
        MethodError::Did(_) | MethodError::Encoding(_) | MethodError::Json(_) => Alert::DECODE_ERROR,
        MethodError::Key(_, error) => of_key(error),
        MethodError::Document(_) => Alert::BAD_CERTIFICATE,
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
/// use dunlin_identity::handshake::{CredentialVerifier, ListedIssuers};
/// use dunlin_identity::trust::TrustList;
///
/// /// Trusts the issuers on this list.
/// fn trust(provider: Arc<CryptoProvider>, list: &str, now_s: i64) -> Result<Verifiers, Box<dyn std::error::Error>> {
///     let issuers = ListedIssuers::of(&provider, &TrustList::read(list)?, &[], &[], now_s)?;
///     Ok(Verifiers::default().with(Arc::new(CredentialVerifier::new(provider, issuers.resolved))))
/// }
/// ```
#[derive(Debug)]
pub struct CredentialVerifier {
    issuers: Verifier,
    /// What the issuers have resolved to: their documents, and until when these are the latest.
    resolved: Vec<Resolution>,
    /// The issuers whose documents the resolvers have.
    looked_up: Vec<ListedIssuer>,
    subjects: Subjects,
    status: RwLock<StatusLists>,
    /// Lists whose issuers' documents were not at hand.
    waiting: Mutex<Vec<WaitingList>>,
    asks: bool,
}

/// A status list in a file, not verified yet.
#[derive(Debug)]
struct WaitingList {
    content: Vec<u8>,
    /// The document by which it could not be verified.
    refused_by: Option<Sha256Hash>,
}

impl CredentialVerifier {
    /// Trusts the issuers with these documents, and resolves peers of `did:key` and `did:jwk`. What an issuer has resolved to
    /// ([`ListedIssuers`](super::ListedIssuers)) counts as long as it is the latest, as far as the resolvers know; a document alone has no
    /// end of its own.
    pub fn new(
        provider: Arc<CryptoProvider>,
        issuers: impl IntoIterator<Item = impl Into<Resolution>>,
    ) -> Self {
        let resolved: Vec<Resolution> = issuers.into_iter().map(Into::into).collect();
        let issuers = Verifier::new(resolved.iter().map(|issuer| issuer.document.clone()));
        Self { resolved, ..Self::of(provider, issuers) }
    }

    /// As [`Self::new`], with the contexts and issuers of `issuers`.
    pub fn of(provider: Arc<CryptoProvider>, issuers: Verifier) -> Self {
        let resolved = issuers.issuers().iter().cloned().map(Resolution::constant).collect();
        let (subjects, looked_up) = (Subjects::new(provider), Vec::new());
        let (status, waiting) = (RwLock::default(), Mutex::default());
        Self { issuers, resolved, looked_up, subjects, status, waiting, asks: false }
    }

    /// Trusts these issuers, too. The resolvers have their documents, of which the latest counts: an issuer may change its key, and issues
    /// its credentials again then. One that is pinned to a document may not.
    #[must_use]
    pub fn with_resolved_issuers(
        mut self,
        issuers: impl IntoIterator<Item = impl Into<ListedIssuer>>,
    ) -> Self {
        self.looked_up.extend(issuers.into_iter().map(Into::into));
        self.keep_issuers();
        self
    }

    /// Many peers must not make a resolver forget what it knows of an issuer.
    fn keep_issuers(&self) {
        self.issuers().for_each(|issuer| self.subjects.keep(issuer));
    }

    /// Resolves the DIDs of further methods. Of several resolvers for one method, the first that has an answer counts.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.subjects.add_resolver(resolver);
        self.keep_issuers();
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

    /// Starts with these status lists of issuers whose documents the resolvers have, as [`StatusList::verify_file`] takes them. Each counts
    /// from the first credential on at which its issuer's document is at hand.
    #[must_use]
    pub fn with_unverified_status(self, lists: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let waiting = lists.into_iter().map(|content| WaitingList { content, refused_by: None }).collect();
        Self { waiting: Mutex::new(waiting), ..self }
    }

    /// Asks the caller ([`dunlin::Question::Verify`]) where a document or status list is not at hand. The caller looks it up, adds it, and
    /// answers with the result of [`Self::judge`]. Without this such a peer is refused.
    #[must_use]
    pub fn asking(self) -> Self {
        Self { asks: true, ..self }
    }

    /// The issuers that it trusts.
    pub fn issuers(&self) -> impl Iterator<Item = &Did> {
        let given = self.issuers.issuers().iter().map(DidDocument::id);
        given.chain(self.looked_up.iter().map(|issuer| &issuer.did))
    }

    /// Changes the status lists, for example by a list that the program has fetched.
    pub fn update_status<R>(&self, change: impl FnOnce(&mut StatusLists) -> R) -> R {
        change(&mut self.status.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Verifies the credential in a Certificate message: everything but the peer's possession of the key in the result. `algorithms` are
    /// those that may verify the issuer's signatures. It keeps the status lists beside the credential that are newer than those at hand, once all
    /// checks are made or the lists have revoked the credential.
    ///
    /// # Errors
    /// [`Refusal`]. What [`Refusal::is_missing`] names can be looked up.
    pub fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        stapled: Stapled<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        let [credential] = entries else { return Err(Refusal::Entries) };
        let provider = &self.subjects.provider;
        let shown = self.resolve_issuer(credential, now)?;
        let issuers = match &shown {
            Some(issuer) => {
                let issuers = Verifier::new([issuer.document.clone()]);
                &issuers.with_contexts(self.issuers.contexts().clone())
            }
            None => &self.issuers,
        };
        let mut verified = issuers.verify_but_for_status(provider, credential, None, now)?;
        if !self.subjects.accepts(verified.scheme, algorithms) {
            return Err(Refusal::Algorithm(verified.scheme));
        }
        let issuer_until = match (&shown, self.given(&verified.issuer)) {
            (Some(issuer), _) => issuer.until,
            (None, Some(issuer)) => self.subjects.issuer_until(issuer, now)?,
            (None, None) => None,
        };
        if let Some(issuer) = &shown {
            self.forget_lists_of_others(&issuer.document);
            self.take_waiting_lists(issuers, &issuer.document, now)?;
        }
        let sent = stapled.credential_status.unwrap_or_default();
        let (status_until, news) = self.check_status(issuers, &verified, sent, algorithms, now)?;
        verified.status_until = status_until;
        // After the other checks, so that only a trusted issuer can make this side look a DID up.
        let Subject { key, document, sequence, until } =
            self.subjects.resolve(&verified.subject, stapled.did_proof, now)?;
        let limit = |validity: Validity, reason, until: Option<Seconds>| match until {
            Some(until) => validity.limited(reason, unsigned(until)),
            None => validity,
        };
        let validity = Validity::new(verified.valid_from.map_or(0, unsigned), u64::MAX);
        let validity = limit(validity, AskAgain::Expiry, verified.valid_until);
        let validity = limit(validity, AskAgain::Status, verified.status_until);
        let validity = limit(validity, AskAgain::Resolution, until);
        let validity = limit(validity, AskAgain::Resolution, issuer_until);
        let mut identity = identity(verified, document, sequence, now);
        if let Some(Resolution { document, sequence, .. }) = &shown {
            let hash = self.subjects.hash(document).map_err(Refusal::from)?;
            identity.issuer_document = Some((hash, *sequence));
        }
        let identity = identity.to_engine().ok_or(Refusal::TooLong)?;
        if !news.is_empty() {
            self.update_status(|lists| lists.merge(&news));
        }
        Ok(Verified::new(key, identity, validity))
    }

    /// What the issuer of a credential resolves to, if the resolvers have its document. Nothing of the credential is verified yet.
    fn resolve_issuer(&self, credential: &[u8], now: Seconds) -> Result<Option<Resolution>, Refusal> {
        if self.looked_up.is_empty() {
            return Ok(None);
        }
        let issuer = credential::issuer(credential, self.issuers.contexts())?;
        match self.looked_up.iter().find(|listed| listed.did.as_str() == issuer) {
            Some(listed) => Ok(Some(self.subjects.resolve_issuer(listed, now)?)),
            None => Ok(None),
        }
    }

    /// Forgets the status lists that an issuer has signed with a key which its document no longer has.
    fn forget_lists_of_others(&self, issuer: &DidDocument) {
        let is_old = |list: &StatusList| list.issuer() == issuer.id().as_str() && !list.is_by(issuer);
        if self.lists().iter().any(is_old) {
            self.update_status(|lists| lists.retain(|list| !is_old(list)));
        }
    }

    /// Takes the waiting lists that the document of an issuer verifies.
    fn take_waiting_lists(
        &self,
        verifier: &Verifier,
        issuer: &DidDocument,
        now: Seconds,
    ) -> Result<(), Refusal> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            return Ok(());
        }
        let hash = self.subjects.hash(issuer)?;
        waiting.retain_mut(|list| {
            if list.refused_by == Some(hash) {
                return true;
            }
            match StatusList::verify_file(verifier, &self.subjects.provider, &list.content, now) {
                Ok(list) => {
                    self.update_status(|lists| lists.merge([&list]));
                    false
                }
                Err(error) => {
                    // It may be by the key of a later document. That of another issuer has not been asked.
                    if !matches!(error, CredentialError::UntrustedIssuer(_)) {
                        list.refused_by = Some(hash);
                    }
                    true
                }
            }
        });
        Ok(())
    }

    /// The issuer with this DID, if the program has given its document.
    fn given(&self, issuer: &Did) -> Option<&Resolution> {
        self.resolved.iter().find(|resolved| resolved.document.id() == issuer)
    }

    /// The status lists at hand.
    pub fn status_lists(&self) -> StatusLists {
        self.lists().clone()
    }

    fn lists(&self) -> RwLockReadGuard<'_, StatusLists> {
        self.status.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the status of a credential by the lists at hand and those that its holder has sent. Returns until when the answer holds, and what
    /// of the latter is news.
    fn check_status(
        &self,
        issuers: &Verifier,
        verified: &VerifiedCredential,
        sent: &[u8],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<(Option<Seconds>, Vec<StatusList>), Refusal> {
        let (provider, issuer) = (&self.subjects.provider, verified.issuer.as_str());
        let mut sent = SentList::read_all(sent, &verified.statuses).map_err(Refusal::StatusList)?;
        if !sent.is_empty() {
            let lists = self.lists();
            sent.retain(|sent| !lists.have(provider, issuer, sent));
        }
        let (mut news, mut old) = (Vec::new(), Vec::new());
        for SentList { url, credential, .. } in sent {
            match StatusList::verify(issuers, provider, credential, &url, now) {
                Ok(list) if list.issuer() != issuer => {
                    return Err(Refusal::StatusList(StatusError::OtherIssuer(url).into()));
                }
                Ok(list) if !self.subjects.accepts(list.scheme(), algorithms) => {
                    return Err(Refusal::Algorithm(list.scheme()));
                }
                Ok(list) => news.push(list),
                // It says nothing any more, or not yet; the list at hand may.
                Err(error) if of_credential(&error) == Alert::CERTIFICATE_EXPIRED => old.push(url),
                Err(error) => return Err(Refusal::StatusList(error)),
            }
        }
        let error = match self.lists().check(&news, issuer, &verified.statuses, now) {
            Ok(until) => return Ok((until, news)),
            Err(StatusError::Missing(url)) if old.contains(&url) => StatusError::Stale(url),
            Err(error) => error,
        };
        if let StatusError::Revoked | StatusError::Suspended = error {
            // The issuer has signed the revocation, so it does not matter who brings it.
            self.update_status(|lists| lists.merge(&news));
        }
        Err(CredentialError::from(error).into())
    }

    /// Whether no resolver knows of a later document of this issuer, or of its end.
    fn is_latest_issuer(&self, issuer: &Did) -> bool {
        self.given(issuer).is_some_and(|Resolution { document, sequence, .. }| {
            self.subjects.hash(document).is_ok_and(|hash| self.subjects.is_latest(issuer, &hash, *sequence))
        })
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
    let issuer_document = None;
    CredentialIdentity {
        did,
        issuer,
        issuer_document,
        claims,
        document,
        sequence,
        resolved,
        valid_until,
        statuses,
    }
}

/// The time of the handshake.
pub(super) fn seconds(claim: &Claim<'_>) -> Seconds {
    Seconds::try_from(claim.now.unix_ms / 1000).unwrap_or(Seconds::MAX)
}

impl Judge for CredentialVerifier {
    fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        stapled: Stapled<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        Self::judge(self, entries, stapled, algorithms, now)
    }

    fn asking_with(self, resolvers: Vec<Arc<dyn Resolver>>) -> Self {
        resolvers.into_iter().fold(self.asking(), Self::with_resolver)
    }
}

impl dunlin::auth::Verifier for CredentialVerifier {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::VERIFIABLE_CREDENTIAL
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        for issuer in self.issuers.issuers() {
            // The DID alone would not change with its keys. A document without a canonical form verifies nothing.
            add(issuer.canonical().as_bytes());
        }
        for ListedIssuer { did, pin } in &self.looked_up {
            add(b"resolved issuer");
            add(did.as_str().as_bytes());
            add(pin.as_ref().map_or(&[][..], |pin| pin.as_bytes()));
        }
        for context in self.issuers.contexts().all() {
            add(context.url.as_bytes());
            add(context.sha256.as_bytes());
        }
        let age = self.lists().max_age();
        add(&age.to_be_bytes());
        self.subjects.settings(add);
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let now = seconds(claim);
        let stapled = Stapled { did_proof: claim.did_proof, credential_status: claim.credential_status };
        match self.judge(claim.entries, stapled, claim.algorithms, now) {
            Ok(verified) => Ok(Verdict::Accepted(verified)),
            Err(refusal) if self.asks && refusal.is_missing() => Ok(Verdict::Ask),
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        match self.issuers.issuers().is_empty() && self.looked_up.is_empty() {
            true => Err("no issuers of verifiable credentials are trusted"),
            false => Ok(()),
        }
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        self.issuers().map(|issuer| issuer_name(&self.subjects.provider, issuer.as_str()).to_vec()).collect()
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        self.subjects.did_methods()
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        self.subjects.registries()
    }

    fn accepts_status(&self) -> bool {
        true
    }

    /// Whether nothing that this side has learned since contradicts the verdict: the peer and the issuer have the same documents, and the
    /// issuer has not revoked the credential.
    fn still_believes(&self, identity: &PeerIdentity) -> bool {
        let Some(peer) = CredentialIdentity::of(identity) else { return false };
        self.subjects.is_latest(&peer.did, &peer.document, peer.sequence)
            && match peer.issuer_document {
                Some((document, sequence)) => {
                    let mut listed = self.looked_up.iter().filter(|listed| listed.did == peer.issuer);
                    listed.any(|listed| listed.check(&document).is_ok())
                        && self.subjects.is_latest(&peer.issuer, &document, sequence)
                }
                None => self.is_latest_issuer(&peer.issuer),
            }
            && !self.lists().refuses(&peer.issuer, &peer.statuses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Method;
    use crate::method::{JWK, KEY};
    use crate::registry::chain::LightBlock;
    use crate::registry::checkpoint::SignedCheckpoint;
    use crate::registry::proof::StateProof;
    use crate::registry::staple::{MAX_STAPLE, Staple};

    /// docs/identity.md: a malformed DID or proof of a DID is a decode error, a wrong one is not.
    #[test]
    fn malformed_identifiers_and_proofs_are_decode_errors() {
        let staple = |error: StapleError| Refusal::from(ResolveError::Proof(error)).alert();
        let did: Did = "did:dunlin:device".parse().unwrap();
        let document = |text: &[u8]| staple(DidDocument::read(text, &did).unwrap_err().into());
        let note = |text: &[u8]| match SignedCheckpoint::read(text) {
            Err(error) => staple(error.into()),
            Ok(_) => panic!("{text:?}"),
        };
        let many = |text: &str, count: usize| vec![text; count].join(",");
        let methods = format!(r#"{{"id":"did:dunlin:device","verificationMethod":[{}]}}"#, many("{}", 17));
        let entries =
            format!(r#"{{"id":"did:dunlin:device","authentication":[{}]}}"#, many(r#""did:a:b#c""#, 17));
        let signature = "\u{2014} a AAAAAAAAAAAA\n";
        let malformed = [
            staple(Staple::read(&[0; MAX_STAPLE + 1]).unwrap_err()),
            staple(Staple::read(&[]).unwrap_err()),
            staple(StateProof::read(&[9]).unwrap_err().into()),
            document(b"{"),
            document(b"{}"),
            document(br#"{"id":"did:dunlin:device","authentication":[{"id":"x"}]}"#),
            document(methods.as_bytes()),
            document(entries.as_bytes()),
            note(b"\xff"),
            note(b"text\n"),
            note(b"text\n\n\xe2\x80\x94 x\n"),
            note(&[b'a'; 1 << 15]),
            note(format!("text\n\n{}", signature.repeat(65)).as_bytes()),
            note(b"one line\n\n\xe2\x80\x94 name AAAAAAAAAAAA\n"),
            staple(CheckpointError::Chain(LightBlock::read(&[9]).unwrap_err()).into()),
        ];
        for (number, alert) in malformed.into_iter().enumerate() {
            assert_eq!(alert, Alert::DECODE_ERROR, "{number}");
        }
        let of_did = |method: &dyn Method, did: &str| {
            let refused = method.resolve(&did.parse().unwrap()).unwrap_err();
            Refusal::from(ResolveError::from(refused)).alert()
        };
        for (method, did) in [
            (&KEY as &dyn Method, "did:key:abc"),
            (&KEY, "did:key:z0OIl"),
            (&JWK, "did:jwk:e30x"),
            (&JWK, "did:jwk:a"),
        ] {
            assert_eq!(of_did(method, did), Alert::DECODE_ERROR, "{did}");
        }
        // A key of an unknown type, another document, and what is well-formed but wrong.
        assert_eq!(of_did(&KEY, "did:key:z11"), Alert::UNSUPPORTED_CERTIFICATE);
        assert_eq!(document(br#"{"id":"did:dunlin:other"}"#), Alert::BAD_CERTIFICATE);
        let wrong = [
            StapleError::from(MapError::Root),
            MapError::Absent.into(),
            CheckpointError::NotTheRegistry("registry.example".to_owned()).into(),
            CheckpointError::Note(NoteError::Signature("registry.example".to_owned())).into(),
            StapleError::OtherRegistry("other.example".to_owned()),
        ];
        for error in wrong {
            assert_eq!(staple(error.clone()), Alert::BAD_CERTIFICATE, "{error}");
        }
    }
}
