//! Credentials in handshakes: the verifier for the engine's certificate type 224, and the identity that it gives a peer.
//!
//! [`CredentialVerifier`] trusts issuers, and resolves the DID of a peer by its [`Resolver`]s, of which [`RegistryDocuments`] believes a
//! registry of `did:dunlin`. [`Holding::to_tls`](crate::holding::Holding::to_tls)
//! is the other side: the credential that this program shows.

mod identity;
mod registry;
mod resolve;
mod verifier;

use dunlin::wire::DidMethod;

pub use identity::{CredentialIdentity, MAX_SHOWN_DID};
pub use registry::{LOOK_UP_AGE, RegistryDocuments};
pub use resolve::{
    DocumentCache, MAX_CACHED_DOCUMENTS, PinnedDocuments, Resolution, ResolveError, Resolver, resolve_listed,
};
pub use verifier::{CredentialVerifier, Refusal};

use crate::did::Did;

/// The number of a DID's method in handshakes; `None` if it has none.
pub fn did_method(did: &Did) -> Option<DidMethod> {
    DidMethod::from_name(&format!("did:{}", did.method()))
}
