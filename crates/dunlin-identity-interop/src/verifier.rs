//! The verifier of peers with credentials of the paper's public implementation.

use std::sync::Arc;

use dunlin::auth::{AskAgain, Belief, Claim, Validity, Verdict, Verified};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use dunlin::wire::{AlertDescription as Alert, CertificateType, DidMethod};
use dunlin::{Now, PeerIdentity};
use dunlin_identity::credential::{Seconds, unsigned};
use dunlin_identity::handshake::{CredentialIdentity, Refusal, Resolver, Subject, Subjects};
use dunlin_identity::key::KeyError;
use dunlin_identity::{Did, TrustList};
use serde_json::Map;

use crate::credential::{self, LinksError, LinksIssuer};

/// Why a peer is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinksRefusal {
    /// The credential is refused.
    #[error("{0}")]
    Credential(#[from] LinksError),
    /// The subject is refused.
    #[error("{0}")]
    Subject(#[from] Refusal),
}

impl LinksRefusal {
    /// Whether the program could look a document up and try again.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Subject(refusal) if refusal.is_missing())
    }

    /// The DID whose document is missing.
    pub fn wanted(&self) -> Option<&Did> {
        if let Self::Subject(refusal) = self { refusal.wanted() } else { None }
    }

    /// The alert that tells the peer.
    pub fn alert(&self) -> Alert {
        match self {
            Self::Subject(refusal) => refusal.alert(),
            Self::Credential(LinksError::Json(_)) => Alert::DECODE_ERROR,
            Self::Credential(LinksError::UntrustedIssuer) => Alert::UNKNOWN_CA,
            Self::Credential(LinksError::Expired | LinksError::NotYetValid) => Alert::CERTIFICATE_EXPIRED,
            Self::Credential(LinksError::Key(
                KeyError::UnknownType | KeyError::Use | KeyError::Provider(_),
            )) => Alert::UNSUPPORTED_CERTIFICATE,
            Self::Credential(_) => Alert::BAD_CERTIFICATE,
        }
    }
}

impl From<LinksRefusal> for AuthenticationFailure {
    fn from(refusal: LinksRefusal) -> Self {
        Self::RejectedWith(refusal.alert(), refusal.to_string())
    }
}

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
    /// [`LinksRefusal`]. The program can look up a missing document ([`LinksRefusal::is_missing`]) and try
    /// again.
    pub fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, LinksRefusal> {
        let [credential] = entries else { return Err(Refusal::Entries.into()) };
        let verified = credential::verify(self.subjects.provider(), &self.issuers, credential, now)?;
        if !self.subjects.accepts(verified.scheme, algorithms) {
            return Err(Refusal::Algorithm(verified.scheme).into());
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

/// The time, in seconds since 1970.
fn of_clock(now: Now) -> Seconds {
    Seconds::try_from(now.unix_ms / 1000).unwrap_or(Seconds::MAX)
}
