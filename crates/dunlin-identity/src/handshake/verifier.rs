//! The verifier of peers with credentials.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use dunlin::auth::{AskAgain, Belief, Claim, KnownRegistry, Validity, Verdict, Verified};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use dunlin::wire::{AlertDescription as Alert, CertificateType, DidMethod};
use dunlin::{Now, PeerIdentity};
use serde_json::Value;

use super::holding::issuer_name;
use super::known::Known;
use super::refusal::of_credential;
use super::resolve::{ListedIssuer, Resolution, Resolver, Standing};
use super::subject::{Subject, Subjects};
use super::{CredentialIdentity, Judge, Refusal, Stapled};
use crate::credential::status::{SentList, StatusEntry, StatusError, StatusList, StatusLists, list_issuer};
use crate::credential::{self, CredentialError, Seconds, VerifiedCredential, Verifier, unsigned};
use crate::did::Did;
use crate::document::DidDocument;
use crate::hash::Sha256Hash;
use crate::knowledge::{Knowledge, Learnt};
use crate::trust::TrustList;

/// Verifies peers by their credentials (docs/identity.md). [`Verifiers::with`](dunlin::auth::Verifiers::with)
/// adds it to a profile.
///
/// It trusts these issuers' claims about any subject, unless [`Self::with_peers`] names the peers. A
/// credential is not bound to a host name: without such names, a client accepts every holder as its server.
///
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::Verifiers;
/// use dunlin::crypto::CryptoProvider;
/// use dunlin_identity::TrustList;
/// use dunlin_identity::handshake::{CredentialVerifier, ListedIssuers};
///
/// /// Trusts the issuers on this list.
/// fn trust(
///     provider: Arc<CryptoProvider>,
///     list: &str,
///     now_s: i64,
/// ) -> Result<Verifiers, Box<dyn std::error::Error>> {
///     let issuers = ListedIssuers::of(&provider, &TrustList::read(list)?, &[], &[], now_s)?;
///     Ok(Verifiers::default().with(Arc::new(CredentialVerifier::new(provider, issuers.resolved))))
/// }
/// ```
#[derive(Debug)]
pub struct CredentialVerifier {
    issuers: Verifier,
    /// The resolutions of the issuers: their documents, and until when these are the latest.
    resolved: Vec<Resolution>,
    /// The issuers whose documents the resolvers have.
    looked_up: Vec<ListedIssuer>,
    subjects: Subjects,
    status: RwLock<StatusLists>,
    known: Arc<Known>,
    /// Lists whose issuers' documents were not at hand.
    waiting: Mutex<Vec<WaitingList>>,
    asks: bool,
}

/// A status list in a file, not verified yet.
#[derive(Debug)]
struct WaitingList {
    content: Vec<u8>,
    /// The issuer that it names.
    issuer: String,
    /// The document by which it could not be verified.
    refused_by: Option<Sha256Hash>,
}

impl CredentialVerifier {
    /// Trusts the issuers with these documents, and resolves peers of `did:key` and `did:jwk`. An issuer's
    /// resolution ([`ListedIssuers`](super::ListedIssuers)) counts as long as it is the latest, as far as the
    /// resolvers know; a document alone has no end of its own.
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
        let known = Arc::new(Known::new(Knowledge::default()));
        let subjects = Subjects::new(provider);
        let looked_up = Vec::new();
        let status = RwLock::default();
        let waiting = Mutex::default();
        Self { issuers, resolved, looked_up, subjects, status, known, waiting, asks: false }
    }

    /// Shares permanent knowledge with other verifiers and registries.
    #[must_use]
    pub fn with_known(self, known: Arc<Known>) -> Self {
        let verifier = Self { known, ..self };
        verifier.learn_lists();
        verifier
    }

    /// Trusts these issuers, too. The resolvers have their documents, and the latest one counts: an issuer
    /// may change its key, and issues its credentials again then. One that is pinned to a document may not.
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

    /// Resolves the DIDs of further methods. Of several resolvers for one method, the first that has an
    /// answer counts.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.subjects.add_resolver(resolver);
        self.keep_issuers();
        self
    }

    /// Accepts only peers with these DIDs. An empty list accepts no peer.
    #[must_use]
    pub fn with_peers(self, peers: TrustList) -> Self {
        Self { subjects: self.subjects.only(peers), ..self }
    }

    /// Starts with these status lists.
    #[must_use]
    pub fn with_status(self, lists: StatusLists) -> Self {
        let verifier = Self { status: RwLock::new(lists), ..self };
        verifier.learn_lists();
        verifier
    }

    /// Starts with these status lists of issuers whose documents the resolvers have, as
    /// [`StatusList::verify_file`] takes them. Each counts from the first credential on at which its issuer's
    /// document is at hand.
    #[must_use]
    pub fn with_unverified_status(self, lists: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let waiting = lists.into_iter().map(|content| WaitingList {
            issuer: list_issuer(credential::of_file(&content)).unwrap_or_default(),
            content,
            refused_by: None,
        });
        Self { waiting: Mutex::new(waiting.collect()), ..self }
    }

    /// Asks the caller ([`dunlin::Question::Verify`]) where a document or status list is not at hand. The
    /// caller looks it up, adds it, and answers with the result of [`Self::judge`]. Without this such a peer
    /// is refused.
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
        let changed = change(&mut self.status.write().unwrap_or_else(PoisonError::into_inner));
        self.learn_lists();
        changed
    }

    /// Learns which lists at hand are the newest.
    fn learn_lists(&self) {
        for list in self.lists().iter() {
            // A list that is not the newest counts for no credential.
            let _ = self.learn_list(list);
        }
    }

    /// Verifies the credential in a Certificate message: everything but the peer's possession of the key in
    /// the result. `algorithms` are those that may verify the issuer's signatures. It keeps the status lists
    /// beside the credential that are newer than those at hand, once all checks are made or the lists have
    /// revoked the credential.
    ///
    /// # Errors
    /// [`Refusal`]. The program can look up a missing document or list ([`Refusal::is_missing`]) and try
    /// again.
    pub fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        stapled: Stapled<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        let [credential] = entries else { return Err(Refusal::Entries) };
        let provider = &self.subjects.provider;
        let listed = self.check_parties(credential, stapled.did_proof)?;
        let shown = listed.map(|listed| self.subjects.resolve_issuer(listed, now)).transpose()?;
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
        // After the other checks, so that only a trusted issuer can make this side look up the DID of a peer.
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
        self.keep_sent(&news).map_err(CredentialError::from)?;
        Ok(Verified::new(key, identity, validity))
    }

    /// Checks what a credential and the proof beside it say by themselves about the subject, so that
    /// strangers cost no look-up of an issuer and leave nothing here. Returns the issuer that the credential
    /// names if a resolver has its document.
    fn check_parties(
        &self,
        credential: &[u8],
        proof: Option<&[u8]>,
    ) -> Result<Option<&ListedIssuer>, Refusal> {
        if self.looked_up.is_empty() && self.subjects.peers().is_none() {
            return Ok(None);
        }
        let (issuer, subject) = credential::named(credential, self.issuers.contexts())?;
        let subject = subject.and_then(|subject| subject.parse().ok());
        let subject = subject.ok_or(CredentialError::Member("credentialSubject"))?;
        self.subjects.check(&subject, proof)?;
        Ok(self.looked_up.iter().find(|listed| listed.did.as_str() == issuer))
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
            if list.issuer != issuer.id().as_str() || list.refused_by == Some(hash) {
                return true;
            }
            match StatusList::verify_file(verifier, &self.subjects.provider, &list.content, now) {
                Ok(list) => {
                    // An older list than the one at hand is not needed.
                    let _ = self.update_status(|lists| lists.insert(list));
                    false
                }
                Err(_) => {
                    // It may be by the key of a later document.
                    list.refused_by = Some(hash);
                    true
                }
            }
        });
        Ok(())
    }

    /// Takes the waiting lists of an issuer, if there are any and a resolver has its document. Returns
    /// whether none is left that the document might verify.
    fn takes_lists_of(&self, issuer: &Did, now: Seconds) -> bool {
        let is_waiting = || {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.iter().any(|list| list.issuer == issuer.as_str())
        };
        if !is_waiting() {
            return true;
        }
        let Some(listed) = self.looked_up.iter().find(|listed| listed.did == *issuer) else { return true };
        let Ok(Resolution { document, .. }) = self.subjects.resolve_issuer(listed, now) else { return false };
        let verifier = Verifier::new([document.clone()]).with_contexts(self.issuers.contexts().clone());
        self.take_waiting_lists(&verifier, &document, now).is_ok()
    }

    /// Whether this list is the newest of its issuer and URL that is known, and from now on the newest that
    /// is known.
    ///
    /// # Errors
    /// [`StatusError::TooManyLists`].
    fn learn_list(&self, list: &StatusList) -> Result<bool, StatusError> {
        match self.known.learn(list.subject(&self.subjects.provider), *list.mark()) {
            Learnt::Later | Learnt::Known => Ok(true),
            Learnt::Earlier | Learnt::Other => Ok(false),
            Learnt::Full => Err(StatusError::TooManyLists),
        }
    }

    /// Whether no newer list than this one is known.
    fn is_newest(&self, list: &StatusList) -> bool {
        let subject = list.subject(&self.subjects.provider);
        !matches!(self.known.compare(&subject, list.mark()), Learnt::Earlier | Learnt::Other)
    }

    /// Whether a credential with these statuses still holds, by the lists at hand.
    fn belief_in_status(&self, issuer: &Did, statuses: &[StatusEntry], now: Seconds) -> Belief {
        if statuses.is_empty() {
            return Belief::Holds;
        }
        let is_complete = self.takes_lists_of(issuer, now);
        let lists = self.lists();
        if lists.refuses(issuer, statuses) {
            return Belief::Ended;
        }
        if is_complete && lists.vouch(issuer, statuses, now, |list| self.is_newest(list)) {
            Belief::Holds
        } else {
            Belief::Unknown
        }
    }

    /// Whether the issuer's document behind an earlier verdict still holds.
    fn belief_in_issuer(&self, peer: &CredentialIdentity, now: Seconds) -> Belief {
        let issuer = &peer.issuer;
        if let Some((document, sequence)) = peer.issuer_document {
            let mut listed = self.looked_up.iter().filter(|listed| listed.did == *issuer);
            return if listed.any(|listed| listed.check(&document).is_ok()) {
                self.subjects.standing(issuer, &document, sequence, now).into()
            } else {
                Belief::Ended
            };
        }
        let Some(Resolution { document, sequence, .. }) = self.given(issuer) else { return Belief::Ended };
        let Ok(hash) = self.subjects.hash(document) else { return Belief::Unknown };
        match self.subjects.standing(issuer, &hash, *sequence, now) {
            // The program vouches for it.
            Standing::Unknown if !self.subjects.can_ask(issuer, now) => Belief::Holds,
            standing => standing.into(),
        }
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

    /// Checks the status of a credential by the lists at hand and those that its holder has sent. Returns
    /// until when the answer holds, and what of the latter is news.
    fn check_status(
        &self,
        issuers: &Verifier,
        verified: &VerifiedCredential,
        sent: &[u8],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<(Option<Seconds>, Vec<StatusList>), Refusal> {
        let provider = &self.subjects.provider;
        let issuer = verified.issuer.as_str();
        let mut sent = SentList::read_all(sent, &verified.statuses).map_err(Refusal::StatusList)?;
        if !sent.is_empty() {
            let lists = self.lists();
            sent.retain(|sent| !lists.have(provider, issuer, sent));
        }
        let mut news = Vec::new();
        let mut old = Vec::new();
        for SentList { url, credential, .. } in sent {
            match StatusList::verify(issuers, provider, credential, &url, now) {
                Ok(list) if list.issuer() != issuer => {
                    return Err(Refusal::StatusList(StatusError::OtherIssuer(url).into()));
                }
                Ok(list) if !self.subjects.accepts(list.scheme(), algorithms) => {
                    return Err(Refusal::Algorithm(list.scheme()));
                }
                Ok(list) => news.push(list),
                // The issuer has removed the key that has signed it, so it says as little as one that has
                // expired.
                Err(CredentialError::IssuerKey(_)) => old.push(url),
                // It says nothing any more, or not yet; the list at hand may.
                Err(error) if of_credential(&error) == Alert::CERTIFICATE_EXPIRED => old.push(url),
                Err(error) => return Err(Refusal::StatusList(error)),
            }
        }
        let is_newest = |list: &StatusList| self.is_newest(list);
        let error = match self.lists().check(&news, issuer, &verified.statuses, now, is_newest) {
            Ok(until) => return Ok((until, news)),
            Err(StatusError::Missing(url)) if old.contains(&url) => StatusError::Stale(url),
            Err(error) => error,
        };
        if let StatusError::Revoked | StatusError::Suspended = error {
            // The issuer has signed the revocation, so it does not matter who brings it.
            self.keep_sent(&news).map_err(CredentialError::from)?;
        }
        Err(CredentialError::from(error).into())
    }

    /// Keeps lists that a holder has sent.
    fn keep_sent(&self, news: &[StatusList]) -> Result<(), StatusError> {
        for list in news {
            if self.learn_list(list)? {
                self.update_status(|lists| lists.merge([list]));
            }
        }
        Ok(())
    }
}

/// The peer's identity, with the facts that the verdict rests on.
fn identity(
    verified: VerifiedCredential,
    document: Sha256Hash,
    sequence: u64,
    resolved: Seconds,
) -> CredentialIdentity {
    let claims = verified.credential.get("credentialSubject").and_then(Value::as_object).cloned();
    let mut claims = claims.unwrap_or_default();
    claims.remove("id");
    let claims = Some(claims);
    let statuses = verified.statuses;
    let did = verified.subject;
    let issuer = verified.issuer;
    let valid_until = verified.valid_until;
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

/// The time, in seconds since 1970.
pub(super) fn of_clock(now: Now) -> Seconds {
    Seconds::try_from(now.unix_s()).unwrap_or(Seconds::MAX)
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
            // The DID alone would not change with its keys. A document without a canonical form verifies
            // nothing.
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
        let now = of_clock(claim.now);
        let stapled = Stapled { did_proof: claim.did_proof, credential_status: claim.credential_status };
        match self.judge(claim.entries, stapled, claim.algorithms, now) {
            Ok(verified) => Ok(Verdict::Accepted(verified)),
            Err(refusal) if self.asks && refusal.is_missing() => Ok(Verdict::Ask),
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.issuers.issuers().is_empty() && self.looked_up.is_empty() {
            Err("no issuers of verifiable credentials are trusted")
        } else {
            Ok(())
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

    /// Whether the peer and the issuer still have the same documents, and the issuer has not revoked the
    /// credential, as far as this side knows.
    fn still_believes(&self, identity: &PeerIdentity, now: Now) -> Belief {
        let Some(peer) = CredentialIdentity::of(identity) else { return Belief::Ended };
        let now = of_clock(now);
        let of_peer = self.subjects.standing(&peer.did, &peer.document, peer.sequence, now).into();
        let of_issuer = self.belief_in_issuer(&peer, now);
        self.belief_in_status(&peer.issuer, &peer.statuses, now).max(of_issuer).max(of_peer)
    }
}
