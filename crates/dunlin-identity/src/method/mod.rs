//! DID methods: how a DID is made from a key, and how it leads to its document.
//!
//! A further method is one file with a [`Method`] and a place in the list of the program's [`Methods`].
//! [`dunlin`] and [`web`] need information from elsewhere, and say which.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::did::{Did, DidError};
use crate::document::{DidDocument, DocumentError};
use crate::encoding::json::JsonError;
use crate::key::{KeyError, PublicKey};

pub mod directory;
pub mod dunlin;
mod jwk;
mod key;
pub mod web;

pub use jwk::{JWK, Jwk};
pub use key::{KEY, Key};

/// Why a DID cannot be made or resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// No method of this name is configured.
    #[error("unknown DID method {0:?}")]
    Unknown(String),
    /// The DID is malformed.
    #[error("{0}")]
    Did(#[from] DidError),
    /// The identifier does not have the method's form: base58btc for `did:key`, base64url without padding for
    /// `did:jwk`, an algorithm and its elements for `did:peer`.
    #[error("did:{0}: malformed identifier")]
    Encoding(&'static str),
    /// The identifier does not contain acceptable JSON.
    #[error("the DID contains malformed JSON: {0}")]
    Json(#[from] JsonError),
    /// The key is malformed or unsupported.
    #[error("did:{0}: {1}")]
    Key(&'static str, KeyError),
    /// The document cannot be made.
    #[error("{0}")]
    Document(#[from] DocumentError),
}

/// A method whose DIDs contain all that their documents say.
pub trait Method: Send + Sync + core::fmt::Debug {
    /// The name after `did:`.
    fn name(&self) -> &'static str;

    /// The DID of a key.
    ///
    /// # Errors
    /// The key cannot be part of a DID.
    fn create(&self, key: &PublicKey) -> Result<Did, MethodError>;

    /// The document of a DID of this method.
    ///
    /// # Errors
    /// The DID belongs to another method, or does not contain a usable key.
    fn resolve(&self, did: &Did) -> Result<DidDocument, MethodError>;

    /// Checks that the DID belongs to this method.
    ///
    /// # Errors
    /// [`MethodError::Unknown`].
    fn check(&self, did: &Did) -> Result<(), MethodError> {
        if did.method() == self.name() { Ok(()) } else { Err(MethodError::Unknown(did.method().to_owned())) }
    }
}

/// The methods that a program knows.
#[derive(Clone, Debug)]
pub struct Methods(Vec<&'static dyn Method>);

impl Default for Methods {
    /// `did:key` and `did:jwk`.
    fn default() -> Self {
        Self(vec![&KEY, &JWK])
    }
}

impl Methods {
    /// These methods and no others. The first of several with one name counts.
    pub fn new(methods: impl IntoIterator<Item = &'static dyn Method>) -> Self {
        Self(methods.into_iter().collect())
    }

    /// The method with this name.
    ///
    /// # Errors
    /// [`MethodError::Unknown`].
    pub fn get(&self, name: &str) -> Result<&'static dyn Method, MethodError> {
        let found = self.0.iter().find(|method| method.name() == name);
        found.copied().ok_or_else(|| MethodError::Unknown(name.to_owned()))
    }

    /// The document of a DID.
    ///
    /// # Errors
    /// [`MethodError`].
    pub fn resolve(&self, did: &Did) -> Result<DidDocument, MethodError> {
        self.get(did.method())?.resolve(did)
    }
}
