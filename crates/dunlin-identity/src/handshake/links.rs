//! The verifier of peers with credentials of the paper's public implementation.

use std::sync::Arc;

use dunlin::auth::{AskAgain, Belief, Claim, Validity, Verdict, Verified};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use dunlin::wire::{CertificateType, DidMethod};
use dunlin::{Now, PeerIdentity};
use serde_json::Map;

use super::identity::CredentialIdentity;
use super::resolve::Resolver;
use super::subject::{Subject, Subjects};
use super::verifier::of_clock;
use super::{Judge, Refusal, Stapled};
use crate::credential::links::{self, LinksError, LinksIssuer};
use crate::credential::{Seconds, unsigned};
use crate::trust::TrustList;

/// Verifies peers by credentials of the paper's public implementation, for profiles of
/// [`dunlin::SsiMessages::Links`] alone (docs/identity.md): these credentials have no status, and the issuer
/// signs no canonical form.
///
/// It trusts these issuers' claims about any subject, unless [`Self::with_peers`] names the peers.
#[derive(Debug)]
pub struct LinksVerifier {
    issuers: Vec<LinksIssuer>,
    subjects: Subjects,
    asks: bool,
}

impl LinksVerifier {
    /// Trusts these issuers, and resolves peers of `did:key` and `did:jwk`.
    pub fn new(provider: Arc<CryptoProvider>, issuers: Vec<LinksIssuer>) -> Self {
        Self { issuers, subjects: Subjects::new(provider), asks: false }
    }

    /// Resolves the DIDs of further methods. Of several resolvers for one method, the first that has an
    /// answer counts.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.subjects.add_resolver(resolver);
        self
    }

    /// Accepts only peers with these DIDs. An empty list accepts no peer.
    #[must_use]
    pub fn with_peers(self, peers: TrustList) -> Self {
        Self { subjects: self.subjects.only(peers), ..self }
    }

    /// Asks the caller ([`dunlin::Question::Verify`]) where a document is not at hand. The caller looks it
    /// up, adds it, and answers with the result of [`Self::judge`]. Without this such a peer is refused.
    #[must_use]
    pub fn asking(self) -> Self {
        Self { asks: true, ..self }
    }

    /// Verifies the credential in a VC message: everything but the peer's possession of the key in the
    /// result. `algorithms` are those that may verify the issuer's signature.
    ///
    /// # Errors
    /// [`Refusal`]. The program can look up a missing document or list ([`Refusal::is_missing`]) and try
    /// again.
    pub fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        let [credential] = entries else { return Err(Refusal::Entries) };
        let verified = links::verify(&self.subjects.provider, &self.issuers, credential, now)?;
        if !self.subjects.accepts(verified.scheme, algorithms) {
            return Err(Refusal::Algorithm(verified.scheme));
        }
        let issuer = verified.credential.issuer.parse().map_err(|_| LinksError::Member("issuer"))?;
        // After the other checks, so that only a trusted issuer can make this side look a DID up.
        let Subject { key, document, sequence, until } =
            self.subjects.resolve(&verified.subject, None, now)?;
        let validity = Validity::new(unsigned(verified.valid_from), unsigned(verified.valid_until));
        let validity =
            until.map_or(validity, |until| validity.limited(AskAgain::Resolution, unsigned(until)));
        let identity = CredentialIdentity {
            did: verified.subject,
            issuer,
            issuer_document: None,
            // Such a credential says nothing else about its subject.
            claims: Some(Map::new()),
            document,
            sequence,
            resolved: now,
            valid_until: Some(verified.valid_until),
            statuses: Vec::new(),
        };
        Ok(Verified::new(key, identity.to_engine().ok_or(Refusal::TooLong)?, validity))
    }
}

impl Judge for LinksVerifier {
    fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        _: Stapled<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        Self::judge(self, entries, algorithms, now)
    }

    fn asking_with(self, resolvers: Vec<Arc<dyn Resolver>>) -> Self {
        resolvers.into_iter().fold(self.asking(), Self::with_resolver)
    }
}

impl dunlin::auth::Verifier for LinksVerifier {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::VERIFIABLE_CREDENTIAL
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        for issuer in &self.issuers {
            add(issuer.method.as_bytes());
            add(issuer.key.spki());
        }
        self.subjects.settings(add);
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        match self.judge(claim.entries, claim.algorithms, of_clock(claim.now)) {
            Ok(verified) => Ok(Verdict::Accepted(verified)),
            Err(refusal) if self.asks && refusal.is_missing() => Ok(Verdict::Ask),
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.issuers.is_empty() { Err("no issuers of verifiable credentials are trusted") } else { Ok(()) }
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        self.subjects.did_methods()
    }

    /// Whether the DID still has the same document, as far as this side knows.
    fn still_believes(&self, identity: &PeerIdentity, now: Now) -> Belief {
        let Some(peer) = CredentialIdentity::of(identity) else { return Belief::Ended };
        self.subjects.standing(&peer.did, &peer.document, peer.sequence, of_clock(now)).into()
    }
}
