//! DID documents (W3C DID Core §5): verification methods, and the relationships for which each may be used.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use crate::did::{Did, DidError, DidUrl};
use crate::encoding::json::{self, JsonError, JsonFault};
use crate::key::{KeyError, PublicKey};

/// How many verification methods a document may have. Each costs the parsing of a key.
pub const MAX_VERIFICATION_METHODS: usize = 16;

/// How many entries a verification relationship may have.
pub const MAX_RELATIONSHIP_ENTRIES: usize = 16;

/// The context of DID documents.
pub const DID_CONTEXT: &str = "https://www.w3.org/ns/did/v1";
/// The context of Multikey.
pub const MULTIKEY_CONTEXT: &str = "https://w3id.org/security/multikey/v1";
/// The context of JsonWebKey2020, which `did:jwk` uses.
pub const JWS_2020_CONTEXT: &str = "https://w3id.org/security/suites/jws-2020/v1";

/// Why a DID document is refused, or does not contain the key that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The text is not acceptable JSON.
    #[error("DID document: {0}")]
    Json(#[from] JsonError),
    /// A value cannot be written in canonical form.
    #[error("DID document: {0}")]
    Canonical(#[from] JsonFault),
    /// A member is missing or has the wrong type.
    #[error("DID document: missing or malformed member {0:?}")]
    Member(&'static str),
    /// A DID or DID URL in the document is malformed.
    #[error("DID document, member {0:?}: {1}")]
    Did(&'static str, DidError),
    /// The document belongs to another DID, which is given.
    #[error("DID document: its id is {0}, which is not the DID asked for")]
    OtherDid(Did),
    /// A key is malformed, or is a private key; the id of its verification method.
    #[error("DID document, verification method {0}: {1}")]
    Key(DidUrl, KeyError),
    /// A verification method contains its private key, in the named member.
    #[error("DID document: a verification method contains a private key, in its member {0:?}")]
    PrivateKey(&'static str),
    /// The document has too many verification methods.
    #[error("DID document: more than {MAX_VERIFICATION_METHODS} verification methods")]
    TooManyMethods,
    /// A relationship has too many entries.
    #[error("DID document: more than {MAX_RELATIONSHIP_ENTRIES} entries in {0:?}")]
    TooManyEntries(&'static str),
    /// Two verification methods have the same id.
    #[error("DID document: two verification methods {0}")]
    Duplicate(DidUrl),
    /// A relationship names a verification method of this DID that the document does not have.
    #[error("DID document: {0:?} names {1}, which the document does not have")]
    Dangling(&'static str, DidUrl),
    /// The document has no such verification method.
    #[error("the DID document has no verification method {0}")]
    Unknown(DidUrl),
    /// The verification method is not listed under the relationship.
    #[error("the DID document does not list {0} under {1:?}")]
    NotAuthorised(DidUrl, &'static str),
    /// The verification method belongs to another DID, or another one controls it.
    #[error("the verification method {0} belongs to another DID, or another one controls it")]
    Controller(DidUrl),
    /// The type of the verification method is not supported.
    #[error("the verification method {0} has a type other than Multikey and JsonWebKey")]
    UnknownType(DidUrl),
}

/// A permitted use of a key: a verification relationship (DID Core §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relationship {
    /// To prove that the DID's subject is present, as in a handshake.
    Authentication,
    /// To sign statements, such as credentials.
    AssertionMethod,
}

impl Relationship {
    /// The name of the document's member.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::AssertionMethod => "assertionMethod",
        }
    }
}

/// A key in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationMethod {
    /// Its id.
    pub id: DidUrl,
    /// The DID that controls the key.
    pub controller: Did,
    /// The key; `None` if the type is not supported.
    pub key: Option<PublicKey>,
}

/// A checked DID document. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DidDocument(Arc<Parts>);

#[derive(Debug, PartialEq, Eq)]
struct Parts {
    id: Did,
    value: Value,
    canonical: String,
    methods: Vec<VerificationMethod>,
    authentication: Vec<DidUrl>,
    assertion: Vec<DidUrl>,
}

impl DidDocument {
    /// Reads the document of `did` from at most [`json::MAX_JSON`] bytes.
    ///
    /// # Errors
    /// Every [`DocumentError`] of a document.
    pub fn read(text: &[u8], did: &Did) -> Result<Self, DocumentError> {
        Self::from_value(json::read(text)?, did)
    }

    /// Reads the document of the DID that it names itself, from a file of the program.
    ///
    /// # Errors
    /// Every [`DocumentError`] of a document.
    pub fn read_any(text: &[u8]) -> Result<Self, DocumentError> {
        let value = json::read(text)?;
        let did = parsed::<Did>(value.as_object().ok_or(DocumentError::Member("id"))?, "id")?;
        Self::from_value(value, &did)
    }

    /// Checks the document of `did`.
    ///
    /// # Errors
    /// Every [`DocumentError`] of a document.
    pub fn from_value(value: Value, did: &Did) -> Result<Self, DocumentError> {
        let object = value.as_object().ok_or(DocumentError::Member("id"))?;
        let id = parsed::<Did>(object, "id")?;
        if id != *did {
            return Err(DocumentError::OtherDid(id));
        }
        let mut methods = Vec::new();
        for entry in array(object, "verificationMethod", usize::MAX)? {
            let entry = entry.as_object().ok_or(DocumentError::Member("verificationMethod"))?;
            add(&mut methods, VerificationMethod::read(entry, did)?)?;
        }
        let authentication = relationship(object, Relationship::Authentication, did, &mut methods)?;
        let assertion = relationship(object, Relationship::AssertionMethod, did, &mut methods)?;
        let canonical = json::canonical(&value)?;
        Ok(Self(Arc::new(Parts { id, value, canonical, methods, authentication, assertion })))
    }

    /// The document of a DID with one key for authentication and assertions, as a Multikey.
    ///
    /// # Errors
    /// [`DocumentError::Did`] if the fragment is malformed.
    pub fn of_key(did: &Did, fragment: &str, key: &PublicKey) -> Result<Self, DocumentError> {
        let id = did.with_fragment(fragment).map_err(|error| DocumentError::Did("id", error))?.to_string();
        let value = json!({
            "@context": [DID_CONTEXT, MULTIKEY_CONTEXT],
            "id": did.as_str(),
            "verificationMethod": [{
                "id": id,
                "type": "Multikey",
                "controller": did.as_str(),
                "publicKeyMultibase": key.to_multikey(),
            }],
            "authentication": [id],
            "assertionMethod": [id],
        });
        Self::from_value(value, did)
    }

    /// The DID whose document this is.
    pub fn id(&self) -> &Did {
        &self.0.id
    }

    /// The whole document, with members that this crate does not interpret.
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// All keys, also those that no relationship lists.
    pub fn methods(&self) -> &[VerificationMethod] {
        &self.0.methods
    }

    /// The document in canonical form, whose hash identifies this version.
    pub fn canonical(&self) -> &str {
        &self.0.canonical
    }

    /// The usable keys of a relationship, in the document's order: those that the DID itself controls.
    pub fn keys(&self, relationship: Relationship) -> impl Iterator<Item = (&DidUrl, &PublicKey)> {
        self.listed(relationship).iter().filter_map(move |id| Some((id, self.find(id, relationship).ok()?)))
    }

    /// The key with this id, for this use.
    ///
    /// # Errors
    /// [`DocumentError::Unknown`], [`DocumentError::NotAuthorised`], [`DocumentError::Controller`] or
    /// [`DocumentError::UnknownType`].
    pub fn find(&self, id: &DidUrl, relationship: Relationship) -> Result<&PublicKey, DocumentError> {
        let found = self.0.methods.iter().find(|method| method.id == *id);
        let method = found.ok_or_else(|| DocumentError::Unknown(id.clone()))?;
        if !self.listed(relationship).contains(id) {
            return Err(DocumentError::NotAuthorised(id.clone(), relationship.name()));
        }
        // Controlled Identifiers §3.3: the document's subject must control the method. A document cannot
        // speak for the keys of another DID, whose own document may have removed them.
        if method.controller != self.0.id || *id.did() != self.0.id {
            return Err(DocumentError::Controller(id.clone()));
        }
        method.key.as_ref().ok_or_else(|| DocumentError::UnknownType(id.clone()))
    }

    fn listed(&self, relationship: Relationship) -> &[DidUrl] {
        match relationship {
            Relationship::Authentication => &self.0.authentication,
            Relationship::AssertionMethod => &self.0.assertion,
        }
    }
}

impl VerificationMethod {
    fn read(object: &Map<String, Value>, did: &Did) -> Result<Self, DocumentError> {
        const PRIVATE: [&str; 4] =
            ["privateKeyJwk", "privateKeyMultibase", "secretKeyJwk", "secretKeyMultibase"];
        if let Some(name) = PRIVATE.into_iter().find(|name| object.contains_key(*name)) {
            return Err(DocumentError::PrivateKey(name));
        }
        let id =
            DidUrl::relative(text(object, "id")?, did).map_err(|error| DocumentError::Did("id", error))?;
        let controller = parsed(object, "controller")?;
        let multibase = object.get("publicKeyMultibase");
        let jwk = object.get("publicKeyJwk");
        // DID Core §5.2.1: the same material does not appear in several forms.
        if multibase.is_some() && jwk.is_some() {
            return Err(DocumentError::Member("publicKeyJwk"));
        }
        let key = match text(object, "type")? {
            "Multikey" => {
                let key = text(object, "publicKeyMultibase")?;
                Some(PublicKey::from_multikey(key))
            }
            "JsonWebKey" | "JsonWebKey2020" => {
                let jwk = jwk.and_then(Value::as_object).ok_or(DocumentError::Member("publicKeyJwk"))?;
                Some(PublicKey::from_jwk(jwk))
            }
            _ => None,
        };
        // Keys for other purposes, such as key agreement, are none of ours.
        let key = key.filter(|key| !matches!(key, Err(KeyError::UnknownType | KeyError::Use)));
        let key = key.transpose().map_err(|error| DocumentError::Key(id.clone(), error))?;
        Ok(Self { id, controller, key })
    }
}

fn add(methods: &mut Vec<VerificationMethod>, method: VerificationMethod) -> Result<(), DocumentError> {
    if methods.iter().any(|other| other.id == method.id) {
        return Err(DocumentError::Duplicate(method.id));
    }
    if methods.len() == MAX_VERIFICATION_METHODS {
        return Err(DocumentError::TooManyMethods);
    }
    methods.push(method);
    Ok(())
}

/// Reads a relationship, whose entries are ids of verification methods or whole ones, which are added to
/// `methods`.
fn relationship(
    object: &Map<String, Value>,
    relationship: Relationship,
    did: &Did,
    methods: &mut Vec<VerificationMethod>,
) -> Result<Vec<DidUrl>, DocumentError> {
    let name = relationship.name();
    let mut ids = Vec::new();
    for entry in array(object, name, MAX_RELATIONSHIP_ENTRIES)? {
        let id = match entry {
            Value::String(id) => {
                let id = DidUrl::relative(id, did).map_err(|error| DocumentError::Did(name, error))?;
                if id.did() == did && !methods.iter().any(|method| method.id == id) {
                    return Err(DocumentError::Dangling(name, id));
                }
                id
            }
            Value::Object(method) => {
                let method = VerificationMethod::read(method, did)?;
                let id = method.id.clone();
                add(methods, method)?;
                id
            }
            _ => return Err(DocumentError::Member(name)),
        };
        ids.push(id);
    }
    Ok(ids)
}

fn text<'v>(object: &'v Map<String, Value>, name: &'static str) -> Result<&'v str, DocumentError> {
    object.get(name).and_then(Value::as_str).ok_or(DocumentError::Member(name))
}

fn parsed<T: core::str::FromStr<Err = DidError>>(
    object: &Map<String, Value>,
    name: &'static str,
) -> Result<T, DocumentError> {
    text(object, name)?.parse().map_err(|error| DocumentError::Did(name, error))
}

/// An optional array; a missing one is empty.
fn array<'v>(
    object: &'v Map<String, Value>,
    name: &'static str,
    limit: usize,
) -> Result<&'v [Value], DocumentError> {
    match object.get(name) {
        None => Ok(&[]),
        Some(Value::Array(entries)) if entries.len() > limit => Err(DocumentError::TooManyEntries(name)),
        Some(Value::Array(entries)) => Ok(entries),
        Some(_) => Err(DocumentError::Member(name)),
    }
}
