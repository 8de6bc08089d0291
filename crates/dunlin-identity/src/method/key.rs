//! `did:key`: the identifier is the key as a Multikey in base58btc (W3C CCG, The did:key Method §3).

use alloc::format;

use super::{Method, MethodError};
use crate::did::Did;
use crate::document::DidDocument;
use crate::key::{KeyError, PublicKey};

/// `did:key` with Ed25519, P-256, P-384 and RSA. Its documents have one Multikey, for authentication and
/// assertions. They have no key for key agreement, which TLS does not need.
#[derive(Debug)]
pub struct Key;

impl Key {
    /// The key that a DID of this method is, without a document.
    ///
    /// # Errors
    /// The DID belongs to another method, or does not contain a usable key.
    pub fn public_key(did: &Did) -> Result<PublicKey, MethodError> {
        KEY.check(did)?;
        let identifier = did.identifier();
        if !identifier.starts_with('z') {
            return Err(MethodError::Encoding("key"));
        }
        PublicKey::from_multikey(identifier).map_err(|error| match error {
            KeyError::Multibase => MethodError::Encoding("key"),
            error => MethodError::Key("key", error),
        })
    }
}

/// The method, for [`Methods`](super::Methods).
pub static KEY: Key = Key;

impl Method for Key {
    fn name(&self) -> &'static str {
        "key"
    }

    fn create(&self, key: &PublicKey) -> Result<Did, MethodError> {
        // §3.1 of the method: base58btc alone.
        let multikey = key.to_multikey_base58().ok_or(MethodError::Key("key", KeyError::UnknownType))?;
        Ok(format!("did:key:{multikey}").parse()?)
    }

    fn resolve(&self, did: &Did) -> Result<DidDocument, MethodError> {
        Ok(DidDocument::of_key(did, did.identifier(), &Self::public_key(did)?)?)
    }
}
