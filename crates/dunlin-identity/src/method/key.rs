//! `did:key`: the identifier is the key as a Multikey in base58btc (W3C CCG, The did:key Method §3).

use super::{Method, MethodError};
use crate::did::Did;
use crate::document::DidDocument;
use crate::key::{KeyError, PublicKey};

/// `did:key` with Ed25519, P-256, P-384 and RSA. Its documents have one Multikey, for authentication and assertions. They have no key
/// for key agreement, which TLS does not need.
#[derive(Debug)]
pub struct Key;

/// The method, for [`Methods`](super::Methods).
pub static KEY: Key = Key;

impl Method for Key {
    fn name(&self) -> &'static str {
        "key"
    }

    fn create(&self, key: &PublicKey) -> Result<Did, MethodError> {
        Ok(format!("did:key:{}", key.to_multikey()).parse()?)
    }

    fn resolve(&self, did: &Did) -> Result<DidDocument, MethodError> {
        self.check(did)?;
        let identifier = did.identifier();
        if !identifier.starts_with('z') {
            return Err(MethodError::Encoding("key"));
        }
        let key = PublicKey::from_multikey(identifier).map_err(|error| match error {
            KeyError::Multibase => MethodError::Encoding("key"),
            error => MethodError::Key("key", error),
        })?;
        Ok(DidDocument::of_key(did, identifier, &key)?)
    }
}
