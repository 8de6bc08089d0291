//! Credentials and bare DIDs in handshakes: the engine's verifiers of both, and the identities that they give
//! a peer.
//!
//! [`CredentialVerifier`] trusts issuers, [`IdentifierVerifier`] trusts DIDs. Both resolve the DID of a peer
//! by their [`Resolver`]s, of which [`RegistryDocuments`] believes a registry of `did:dunlin`.
//! [`Subjects`] has the checks of a peer's DID that verifiers of further credentials need, too.
//! [`Holding::to_tls`] is the other side: the credential or DID that this program shows.

mod document_cache;
mod holding;
mod identifier;
mod identity;
mod known;
mod refusal;
mod registry_documents;
mod resolve;
mod subject;
mod verifier;
mod watch;

use std::sync::Arc;

use dunlin::auth::Verified;
use dunlin::pki_types::{CertificateDer, SignatureVerificationAlgorithm};

pub use document_cache::{DocumentCache, MAX_CACHED_DOCUMENTS};
pub use holding::{Holding, HoldingError, ISSUER_NAME_LEN, Request, SelectError, issuer_name, select};
pub use identifier::{IdentifierIdentity, IdentifierVerifier};
pub use identity::{CredentialIdentity, MAX_SHOWN_DID};
pub use known::{Known, KnownStore};
pub use refusal::Refusal;
pub use registry_documents::{DEFAULT_OUTAGE_AGE, LOOK_UP_AGE, RegistryDocuments, RegistryWatch};
pub use resolve::{
    ListedIssuer, ListedIssuers, PinnedDocuments, Resolution, ResolveError, Resolver, Standing, Unresolvable,
};
pub use subject::{Subject, Subjects};
pub use verifier::CredentialVerifier;
pub use watch::SILENT_TIME;

use crate::credential::Seconds;

/// The data that a peer has sent beside its credential or DID. Nothing in it is verified yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stapled<'s> {
    /// The proof of what the DID resolves to ([`Staple`](crate::transparency::Staple)).
    pub did_proof: Option<&'s [u8]>,
    /// The status lists of the credential's issuer ([`crate::credential::status::write_staple`]).
    pub credential_status: Option<&'s [u8]>,
}

/// The common interface of this module's verifiers, for programs that look documents up.
pub trait Judge: dunlin::auth::Verifier {
    /// Verifies a peer's credential or DID: everything but the peer's possession of the key in the result.
    /// `algorithms` are those that may verify the signature of an issuer.
    ///
    /// # Errors
    /// [`Refusal`]. The program can look up a missing document or list ([`Refusal::is_missing`]) and try
    /// again.
    fn judge(
        &self,
        entries: &[CertificateDer<'_>],
        stapled: Stapled<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        now: Seconds,
    ) -> Result<Box<Verified>, Refusal>;

    /// Resolves the DIDs of further methods, and asks the caller where a document is not at hand.
    #[must_use]
    fn asking_with(self, resolvers: Vec<Arc<dyn Resolver>>) -> Self
    where
        Self: Sized;
}
