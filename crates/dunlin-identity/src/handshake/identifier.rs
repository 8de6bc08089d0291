//! The verifier of peers with bare DIDs, and the identity that it gives them.

use std::sync::Arc;

use dunlin::auth::{AskAgain, Belief, Claim, KnownRegistry, Validity, Verdict, Verified};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use dunlin::wire::{CertificateType, DidMethod};
use dunlin::{Now, PeerIdentity};
use serde_json::{Value, json};

use super::identity::{engine_identity, id_and_details};
use super::resolve::Resolver;
use super::subject::{Subject, Subjects};
use super::verifier::of_clock;
use super::{Judge, Refusal, Stapled};
use crate::credential::{Seconds, unsigned};
use crate::did::Did;
use crate::encoding::json;
use crate::hash::Sha256Hash;
use crate::trust::TrustList;

/// A peer that has proven a bare DID: the DID, and the facts that the verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdentifierIdentity {
    /// The peer's DID.
    pub did: Did,
    /// The hash of its document, in canonical form.
    pub document: Sha256Hash,
    /// The version of the document.
    pub sequence: u64,
    /// When the DID was resolved.
    pub resolved: Seconds,
}

impl IdentifierIdentity {
    /// The identity of a peer that has proven a bare DID; `None` for other peers.
    pub fn of(identity: &PeerIdentity) -> Option<Self> {
        let (did, details) = id_and_details(identity, CertificateType::DECENTRALISED_IDENTIFIER)?;
        let text = |name| details.get(name).and_then(Value::as_str);
        Some(Self {
            did,
            document: text("document")?.parse().ok()?,
            sequence: text("sequence")?.parse().ok()?,
            resolved: text("resolved")?.parse().ok()?,
        })
    }

    /// The identity for the engine.
    fn to_engine(&self) -> Option<PeerIdentity> {
        let details = json::canonical(&json!({
            "document": self.document.to_string(),
            // As texts, since JSON does not represent large integers exactly.
            "sequence": self.sequence.to_string(),
            "resolved": self.resolved.to_string(),
        }));
        engine_identity(CertificateType::DECENTRALISED_IDENTIFIER, &self.did, details.ok()?)
    }
}

/// Verifies peers by their bare DIDs, which they show in the message DID ([`dunlin::SsiMessages`]). Anybody
/// can make a DID, so a list says which count (§V of the paper in docs/identity.md). A root over members
/// counts only where the peer sends a proof of its membership.
///
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::Verifiers;
/// use dunlin::crypto::CryptoProvider;
/// use dunlin_identity::TrustList;
/// use dunlin_identity::handshake::IdentifierVerifier;
///
/// /// Trusts the DIDs on this list.
/// fn trust(provider: Arc<CryptoProvider>, list: &str) -> Result<Verifiers, Box<dyn std::error::Error>> {
///     let peers = TrustList::read(list)?;
///     Ok(Verifiers::default().with(Arc::new(IdentifierVerifier::new(provider, peers))))
/// }
/// ```
#[derive(Debug)]
pub struct IdentifierVerifier {
    subjects: Subjects,
    asks: bool,
}

impl IdentifierVerifier {
    /// Trusts the DIDs on this list, and resolves those of `did:key` and `did:jwk`.
    pub fn new(provider: Arc<CryptoProvider>, peers: TrustList) -> Self {
        Self { subjects: Subjects::new(provider).only(peers), asks: false }
    }

    /// Resolves the DIDs of further methods. Of several resolvers for one method, the first that has an
    /// answer counts.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.subjects.add_resolver(resolver);
        self
    }

    /// Asks the caller ([`dunlin::Question::Verify`]) where a document is not at hand. The caller looks it
    /// up, adds it, and answers with the result of [`Self::judge`]. Without this such a peer is refused.
    #[must_use]
    pub fn asking(self) -> Self {
        Self { asks: true, ..self }
    }

    /// Verifies the DID in a peer's message: everything but the peer's possession of the key in the result.
    /// `proof` is what the peer has sent beside it.
    ///
    /// # Errors
    /// [`Refusal`]. The program can look up a missing document or list ([`Refusal::is_missing`]) and try
    /// again.
    pub fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        proof: Option<&[u8]>,
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        let [did] = entries else { return Err(Refusal::Entries) };
        // A DID is ASCII, so lossy text that differs from the bytes is refused, too.
        let did: Did = String::from_utf8_lossy(did).parse()?;
        let Subject { key, document, sequence, until } = self.subjects.resolve(&did, proof, now)?;
        let validity = until.map_or(Validity::ALWAYS, |until| {
            Validity::ALWAYS.limited(AskAgain::Resolution, unsigned(until))
        });
        let identity = IdentifierIdentity { did, document, sequence, resolved: now };
        Ok(Verified::new(key, identity.to_engine().ok_or(Refusal::TooLong)?, validity))
    }
}

impl Judge for IdentifierVerifier {
    fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        stapled: Stapled<'_>,
        _: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal> {
        Self::judge(self, entries, stapled.did_proof, now)
    }

    fn asking_with(self, resolvers: Vec<Arc<dyn Resolver>>) -> Self {
        resolvers.into_iter().fold(self.asking(), Self::with_resolver)
    }
}

impl dunlin::auth::Verifier for IdentifierVerifier {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::DECENTRALISED_IDENTIFIER
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.subjects.settings(add);
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        match self.judge(claim.entries, claim.did_proof, of_clock(claim.now)) {
            Ok(verified) => Ok(Verdict::Accepted(verified)),
            Err(refusal) if self.asks && refusal.is_missing() => Ok(Verdict::Ask),
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.subjects.peers().is_none_or(TrustList::is_empty) {
            Err("no decentralised identifiers are trusted")
        } else {
            Ok(())
        }
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        self.subjects.did_methods()
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        self.subjects.registries()
    }

    /// Whether the DID still has the same document, as far as this side knows.
    fn still_believes(&self, identity: &PeerIdentity, now: Now) -> Belief {
        let Some(peer) = IdentifierIdentity::of(identity) else { return Belief::Ended };
        self.subjects.standing(&peer.did, &peer.document, peer.sequence, of_clock(now)).into()
    }
}
