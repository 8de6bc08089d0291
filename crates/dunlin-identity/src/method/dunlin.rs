//! `did:dunlin`: DIDs whose documents change by signed operations, as a pure state machine.
//!
//! A DID is the hash of its first document. That document commits to the next key and to a recovery key by
//! their hashes. An update reveals the next key and commits to another one, so a stolen current key does not
//! suffice to change the DID. A registry orders the operations and proves the latest state: see
//! [`crate::transparency`].

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use dunlin::crypto::{CryptoProvider, SigningKey};
use serde_json::{Map, Value, json};

use crate::did::Did;
use crate::document::{DID_CONTEXT, DidDocument, DocumentError, MULTIKEY_CONTEXT, Relationship};
use crate::encoding::json::{self, JsonError, JsonFault};
use crate::hash::Sha256Hash;
use crate::key::{self, KeyError, KeyType, PublicKey};

/// The longest document in canonical form, in bytes: 11.5 KiB. A staple
/// ([`MAX_STAPLE`](crate::transparency::MAX_STAPLE)) has 4.5 KiB more.
pub const MAX_DOCUMENT: usize = 11776;

/// The longest operation, in bytes: a document, and 8.5 KiB for the rest, of which a key and a signature can
/// take 2850 (RSA) or 5050 (ML-DSA-44).
pub const MAX_OPERATION: usize = MAX_DOCUMENT + 8704;

/// The longest origin of a registry, in bytes.
pub const MAX_ORIGIN: usize = 255;

/// The placeholder for the DID in the text whose hash makes the DID.
const PLACEHOLDER: &str = "did:dunlin:";

/// The document's member for the registry and the hashes of keys.
const MEMBER: &str = "dunlin";

/// Separates signatures of operations from all others by the same keys.
const DOMAIN: &[u8] = b"dunlin did operation 1\0";

/// Why an operation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The text is not acceptable JSON.
    #[error("operation: {0}")]
    Json(#[from] JsonError),
    /// The text is not in canonical form, as a replicated registry wants it.
    #[error("operation: the text is not in canonical form")]
    NotCanonical,
    /// A value cannot be written in canonical form.
    #[error("operation: {0}")]
    Canonical(#[from] JsonFault),
    /// A member is missing or malformed.
    #[error("operation: missing or malformed member {0:?}")]
    Member(&'static str),
    /// The operation has a member that its type does not have.
    #[error("operation: unexpected member {0:?}")]
    Unexpected(String),
    /// The document is refused.
    #[error("operation: {0}")]
    Document(#[from] DocumentError),
    /// The document is longer than [`MAX_DOCUMENT`] in canonical form.
    #[error("operation: the document is longer than {MAX_DOCUMENT} bytes")]
    LongDocument,
    /// The document contains the text that stands for the DID while it is hashed.
    #[error("operation: the document contains the placeholder {PLACEHOLDER:?}")]
    Placeholder,
    /// A key is malformed, or a signature wrong.
    #[error("operation: {0}")]
    Key(#[from] KeyError),
    /// The first document does not hash to the DID.
    #[error("operation: the DID is not the hash of the first document")]
    NotItsHash,
    /// A creation was signed with a key that the document does not list under `authentication`.
    #[error("operation: the document's authentication does not list the signing key")]
    NotListed,
    /// The first operation is not a creation, or a later one is.
    #[error("operation: a DID begins with one creation, and has no other")]
    Creation,
    /// The operation is of another DID.
    #[error("operation: it changes another DID, {0}")]
    OtherDid(Did),
    /// The operation, or its document, is for another registry.
    #[error("operation: it is for another registry, {0:?}")]
    OtherRegistry(String),
    /// The sequence number is not the next one.
    #[error("operation: sequence number {found} instead of {expected}")]
    Sequence {
        /// The next sequence number.
        expected: u64,
        /// The operation's sequence number.
        found: u64,
    },
    /// The operation does not follow the latest one.
    #[error("operation: it does not follow the latest operation of the DID")]
    Previous,
    /// An update was not signed with the key that the previous operation committed to, or a deactivation
    /// neither with it nor with the recovery key.
    #[error("operation: the signing key is not the one that the previous operation committed to")]
    NotCommitted,
    /// The document commits to a key that it already shows.
    #[error("operation: the document commits to a key that is already in use")]
    KnownNextKey,
    /// The document names another recovery key.
    #[error("operation: an update cannot change the recovery key")]
    Recovery,
    /// The DID is deactivated, for ever.
    #[error("operation: the DID is deactivated")]
    Deactivated,
}

/// The one base of multibase in which a key of this type writes its signature. Base58 is too slow for those
/// of ML-DSA.
fn signature_base(typ: KeyType) -> char {
    if typ == KeyType::MlDsa44 { 'u' } else { 'z' }
}

fn read_hash(value: Option<&Value>, name: &'static str) -> Result<Sha256Hash, OperationError> {
    let hash = value.and_then(Value::as_str).and_then(|text| text.parse().ok());
    hash.ok_or(OperationError::Member(name))
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Makes the DID.
    Create,
    /// Replaces the document.
    Update,
    /// Ends the DID, for ever.
    Deactivate,
}

impl OperationKind {
    const ALL: [Self; 3] = [Self::Create, Self::Update, Self::Deactivate];

    /// The name in the operation's text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Deactivate => "deactivate",
        }
    }

    /// The members besides `document` and `previous`, which not all kinds have.
    fn has(self, member: &str) -> bool {
        match member {
            "type" | "registry" | "did" | "sequence" | "key" | "signature" => true,
            "document" => self != Self::Deactivate,
            "previous" => self != Self::Create,
            _ => false,
        }
    }
}

/// A signed operation. It is well-formed, but [`State`] alone says whether it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    kind: OperationKind,
    registry: String,
    did: Did,
    sequence: u64,
    previous: Option<Sha256Hash>,
    document: Option<DidDocument>,
    key: PublicKey,
    signature: Vec<u8>,
    value: Value,
}

impl Operation {
    /// Reads an operation of at most [`MAX_OPERATION`] bytes.
    ///
    /// # Errors
    /// [`OperationError`], up to the checks of the document alone.
    pub fn read(text: &[u8]) -> Result<Self, OperationError> {
        Self::from_value(json::read_bounded(text, MAX_OPERATION)?)
    }

    fn from_value(value: Value) -> Result<Self, OperationError> {
        let object = value.as_object().ok_or(OperationError::Member("type"))?;
        let text = |name| object.get(name).and_then(Value::as_str).ok_or(OperationError::Member(name));
        let typ = text("type")?;
        let kind = OperationKind::ALL.into_iter().find(|kind| kind.name() == typ);
        let kind = kind.ok_or(OperationError::Member("type"))?;
        if let Some(name) = object.keys().find(|name| !kind.has(name)) {
            return Err(OperationError::Unexpected(name.chars().take(64).collect()));
        }
        let registry = origin(text("registry")?)?;
        let did: Did = text("did")?.parse().map_err(|_| OperationError::Member("did"))?;
        let sequence =
            object.get("sequence").and_then(Value::as_u64).ok_or(OperationError::Member("sequence"))?;
        let previous = match kind {
            OperationKind::Create => None,
            _ => Some(read_hash(object.get("previous"), "previous")?),
        };
        let document = match kind {
            OperationKind::Deactivate => None,
            _ => {
                let document = object.get("document").ok_or(OperationError::Member("document"))?;
                let document = DidDocument::from_value(document.clone(), &did)?;
                if document.canonical().len() > MAX_DOCUMENT {
                    return Err(OperationError::LongDocument);
                }
                Some(document)
            }
        };
        let key = PublicKey::from_multikey(text("key")?)?;
        let signature = text("signature")?;
        let signature = if signature.starts_with(signature_base(key.key_type())) {
            key::multibase_decode(signature)?
        } else {
            return Err(KeyError::Multibase.into());
        };
        Ok(Self { kind, registry, did, sequence, previous, document, key, signature, value })
    }

    /// Signs the creation of the DID of `document`, with a key that the document lists under
    /// `authentication`.
    ///
    /// # Errors
    /// [`OperationError`], also from [`State::create`]: an operation that it would refuse is not signed.
    pub fn create(
        provider: &CryptoProvider,
        signer: &dyn SigningKey,
        document: &DidDocument,
    ) -> Result<Self, OperationError> {
        let registry = Commitments::read(document)?.registry;
        let members = json!({"type": "create", "registry": registry, "did": document.id().as_str(), "sequence": 0,
            "document": document.value()});
        let operation = Self::sign(provider, signer, members)?;
        State::create(provider, &operation)?;
        Ok(operation)
    }

    /// Signs an update to `document`, with the key that `state` is committed to.
    ///
    /// # Errors
    /// [`OperationError`], also from [`State::apply`]: an operation that it would refuse is not signed.
    pub fn update(
        provider: &CryptoProvider,
        signer: &dyn SigningKey,
        state: &State,
        document: &DidDocument,
    ) -> Result<Self, OperationError> {
        let mut members = state.following("update");
        members["document"] = document.value().clone();
        let operation = Self::sign(provider, signer, members)?;
        state.apply(provider, &operation)?;
        Ok(operation)
    }

    /// Signs a deactivation, with the key that `state` is committed to or with the recovery key.
    ///
    /// # Errors
    /// [`OperationError`], also from [`State::apply`]: an operation that it would refuse is not signed.
    pub fn deactivate(
        provider: &CryptoProvider,
        signer: &dyn SigningKey,
        state: &State,
    ) -> Result<Self, OperationError> {
        let operation = Self::sign(provider, signer, state.following("deactivate"))?;
        state.apply(provider, &operation)?;
        Ok(operation)
    }

    fn sign(
        provider: &CryptoProvider,
        signer: &dyn SigningKey,
        mut value: Value,
    ) -> Result<Self, OperationError> {
        let key = PublicKey::from_spki(signer.public_key())?;
        value["key"] = key.to_multikey().into();
        let scheme = key.key_type().default_scheme();
        let signature = key::sign(signer, provider, scheme, &signed_bytes(&value)?)?;
        value["signature"] = match signature_base(key.key_type()) {
            'z' => key::base58btc(&signature),
            _ => key::multibase(key.key_type(), &signature),
        }
        .into();
        Self::from_value(value)
    }

    /// The kind of the operation.
    pub fn kind(&self) -> OperationKind {
        self.kind
    }

    /// The origin of the registry that it is for.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The DID that it concerns.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// Its number among the operations of the DID: 0 for the creation.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The operation in canonical form, as a registry appends it to its log.
    ///
    /// # Errors
    /// [`OperationError::Canonical`].
    pub fn canonical(&self) -> Result<String, OperationError> {
        Ok(json::canonical(&self.value)?)
    }

    /// The hash by which the next operation names this one. It leaves out the signature: anyone can turn an
    /// ECDSA signature into another valid one.
    ///
    /// # Errors
    /// [`OperationError::Canonical`], [`KeyError::Provider`].
    pub fn hash(&self, provider: &CryptoProvider) -> Result<Sha256Hash, OperationError> {
        Ok(Sha256Hash::of(provider, json::canonical(&self.unsigned())?.as_bytes())?)
    }

    fn unsigned(&self) -> Value {
        let mut unsigned = self.value.clone();
        if let Some(members) = unsigned.as_object_mut() {
            members.remove("signature");
        }
        unsigned
    }

    fn verify_signature(&self, provider: &CryptoProvider) -> Result<(), OperationError> {
        let message = signed_bytes(&self.unsigned())?;
        Ok(self.key.verify(provider, self.key.key_type().default_scheme(), &message, &self.signature)?)
    }
}

fn signed_bytes(value: &Value) -> Result<Vec<u8>, OperationError> {
    Ok([DOMAIN, json::canonical(value)?.as_bytes()].concat())
}

/// An origin is a name in printable ASCII without spaces, as in a C2SP checkpoint.
fn origin(text: &str) -> Result<String, OperationError> {
    let good = (1..=MAX_ORIGIN).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if good { Ok(text.to_owned()) } else { Err(OperationError::Member("registry")) }
}

/// The registry that a document names, and the hashes of its keys to come.
struct Commitments {
    registry: String,
    next: Sha256Hash,
    recovery: Sha256Hash,
}

impl Commitments {
    fn read(document: &DidDocument) -> Result<Self, OperationError> {
        let member =
            document.value().get(MEMBER).and_then(Value::as_object).ok_or(OperationError::Member(MEMBER))?;
        let registry =
            member.get("registry").and_then(Value::as_str).ok_or(OperationError::Member("registry"))?;
        Ok(Self {
            registry: origin(registry)?,
            next: read_hash(member.get("next"), "next")?,
            recovery: read_hash(member.get("recovery"), "recovery")?,
        })
    }

    /// Reads the commitments of an operation's document, and checks them against the operation and the
    /// document.
    fn checked(
        provider: &CryptoProvider,
        operation: &Operation,
        document: &DidDocument,
    ) -> Result<Self, OperationError> {
        let commitments = Self::read(document)?;
        if commitments.registry != operation.registry {
            return Err(OperationError::OtherRegistry(commitments.registry));
        }
        let shown = document.methods().iter().filter_map(|method| method.key.as_ref());
        for key in shown.chain([&operation.key]) {
            let hash = Sha256Hash::of_key(provider, key)?;
            if [commitments.next, commitments.recovery].contains(&hash) {
                return Err(OperationError::KnownNextKey);
            }
        }
        // Otherwise a thief of the next key would have the recovery key, too.
        if commitments.next == commitments.recovery {
            return Err(OperationError::KnownNextKey);
        }
        Ok(commitments)
    }
}

/// The origin of the registry that a document names.
///
/// # Errors
/// [`OperationError::Member`].
pub fn registry_of(document: &DidDocument) -> Result<String, OperationError> {
    Ok(Commitments::read(document)?.registry)
}

/// The first document of a new DID with one key. The document names the registry, and commits to the next key
/// and the recovery key.
///
/// # Errors
/// [`OperationError::Member`] if the origin of the registry is malformed, and what a document's checks say.
pub fn first_document(
    provider: &CryptoProvider,
    registry: &str,
    current: &PublicKey,
    next: Sha256Hash,
    recovery: Sha256Hash,
) -> Result<DidDocument, OperationError> {
    let template = document_of_key(PLACEHOLDER, 0, registry, current, next, recovery);
    let did = did_of(provider, &template)?;
    Ok(DidDocument::from_value(replace_own_id(&template, PLACEHOLDER, did.as_str()), &did)?)
}

/// Checks that a document is the first one of its DID, which is the document's hash. It may have been
/// replaced since.
///
/// # Errors
/// [`OperationError::NotItsHash`], [`OperationError::Placeholder`], [`OperationError::Member`].
pub fn check_first_document(provider: &CryptoProvider, document: &DidDocument) -> Result<(), OperationError> {
    Commitments::read(document)?;
    check_hash(provider, document)
}

/// Checks that the DID of a document is the document's hash.
fn check_hash(provider: &CryptoProvider, document: &DidDocument) -> Result<(), OperationError> {
    let did = document.id();
    // With the placeholder in a document, two documents would have one hash.
    if replace_own_id(document.value(), PLACEHOLDER, did.as_str()) != *document.value() {
        return Err(OperationError::Placeholder);
    }
    if did_of(provider, &replace_own_id(document.value(), did.as_str(), PLACEHOLDER))? != *did {
        return Err(OperationError::NotItsHash);
    }
    Ok(())
}

fn document_of_key(
    did: &str,
    sequence: u64,
    registry: &str,
    key: &PublicKey,
    next: Sha256Hash,
    recovery: Sha256Hash,
) -> Value {
    let id = format!("{did}#key-{sequence}");
    json!({
        "@context": [DID_CONTEXT, MULTIKEY_CONTEXT],
        "id": did,
        "verificationMethod":
            [{"id": id, "type": "Multikey", "controller": did, "publicKeyMultibase": key.to_multikey()}],
        "authentication": [id],
        "assertionMethod": [id],
        MEMBER: {"registry": registry, "next": next.to_string(), "recovery": recovery.to_string()},
    })
}

/// The DID of a first document in which [`PLACEHOLDER`] stands for the DID.
fn did_of(provider: &CryptoProvider, template: &Value) -> Result<Did, OperationError> {
    let hash = Sha256Hash::of(provider, json::canonical(template)?.as_bytes())?;
    let text = hash.to_string();
    let base58 = text.strip_prefix('z').unwrap_or(&text);
    format!("{PLACEHOLDER}{base58}").parse().map_err(|error| DocumentError::Did("id", error).into())
}

/// Replaces the DID `from` by `to` in every string that is the DID or a DID URL of it.
fn replace_own_id(value: &Value, from: &str, to: &str) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with(['#', '/', '?']) => {
                format!("{to}{rest}").into()
            }
            _ => text.as_str().into(),
        },
        Value::Array(elements) => elements.iter().map(|element| replace_own_id(element, from, to)).collect(),
        Value::Object(members) => {
            let replaced = |(name, value): (&String, &Value)| (name.clone(), replace_own_id(value, from, to));
            Value::Object(members.iter().map(replaced).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// A DID after its operations so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    did: Did,
    registry: String,
    document: DidDocument,
    sequence: u64,
    active: bool,
    latest: Sha256Hash,
    next: Sha256Hash,
    recovery: Sha256Hash,
}

impl State {
    /// The state after a creation.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn create(provider: &CryptoProvider, operation: &Operation) -> Result<Self, OperationError> {
        let Some(document) = operation.document.as_ref().filter(|_| operation.kind == OperationKind::Create)
        else {
            return Err(OperationError::Creation);
        };
        if operation.sequence != 0 {
            return Err(OperationError::Sequence { expected: 0, found: operation.sequence });
        }
        check_hash(provider, document)?;
        if !document.keys(Relationship::Authentication).any(|(_, key)| *key == operation.key) {
            return Err(OperationError::NotListed);
        }
        operation.verify_signature(provider)?;
        let Commitments { registry, next, recovery } = Commitments::checked(provider, operation, document)?;
        Ok(Self {
            did: operation.did.clone(),
            registry,
            document: document.clone(),
            sequence: 0,
            active: true,
            latest: operation.hash(provider)?,
            next,
            recovery,
        })
    }

    /// The state after another operation.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn apply(&self, provider: &CryptoProvider, operation: &Operation) -> Result<Self, OperationError> {
        if operation.did != self.did {
            return Err(OperationError::OtherDid(operation.did.clone()));
        }
        if !self.active {
            return Err(OperationError::Deactivated);
        }
        if operation.kind == OperationKind::Create {
            return Err(OperationError::Creation);
        }
        if operation.registry != self.registry {
            return Err(OperationError::OtherRegistry(operation.registry.clone()));
        }
        if operation.sequence != self.sequence + 1 {
            return Err(OperationError::Sequence { expected: self.sequence + 1, found: operation.sequence });
        }
        if operation.previous != Some(self.latest) {
            return Err(OperationError::Previous);
        }
        let signer = Sha256Hash::of_key(provider, &operation.key)?;
        let deactivates = operation.kind == OperationKind::Deactivate;
        if signer != self.next && !(deactivates && signer == self.recovery) {
            return Err(OperationError::NotCommitted);
        }
        operation.verify_signature(provider)?;
        let latest = operation.hash(provider)?;
        let mut state = Self { sequence: operation.sequence, latest, active: !deactivates, ..self.clone() };
        if let Some(document) = &operation.document {
            let Commitments { next, recovery, .. } = Commitments::checked(provider, operation, document)?;
            if recovery != self.recovery {
                return Err(OperationError::Recovery);
            }
            state.document = document.clone();
            state.next = next;
        }
        Ok(state)
    }

    /// A state that a registry has stored: the latest document, the sequence number, whether the DID is
    /// active, and the hash of the latest operation. The registry has checked the operations; this checks
    /// only the document's form.
    ///
    /// # Errors
    /// [`OperationError::Member`].
    pub fn restore(
        document: DidDocument,
        sequence: u64,
        active: bool,
        latest: Sha256Hash,
    ) -> Result<Self, OperationError> {
        let Commitments { registry, next, recovery } = Commitments::read(&document)?;
        let did = document.id().clone();
        Ok(Self { did, registry, document, sequence, active, latest, next, recovery })
    }

    /// The state after all operations of a DID, the oldest first.
    ///
    /// # Errors
    /// The first check that fails; [`OperationError::Creation`] if there is no operation.
    pub fn replay<'o>(
        provider: &CryptoProvider,
        operations: impl IntoIterator<Item = &'o Operation>,
    ) -> Result<Self, OperationError> {
        let mut operations = operations.into_iter();
        let first = operations.next().ok_or(OperationError::Creation)?;
        operations
            .try_fold(Self::create(provider, first)?, |state, operation| state.apply(provider, operation))
    }

    /// A document with one key for an update: `current` instead of the keys so far, and the hash of the next
    /// key.
    ///
    /// # Errors
    /// The first check of the document that fails.
    pub fn rotated(&self, current: &PublicKey, next: Sha256Hash) -> Result<DidDocument, OperationError> {
        let did = self.did.as_str();
        let value = document_of_key(did, self.sequence + 1, &self.registry, current, next, self.recovery);
        Ok(DidDocument::from_value(value, &self.did)?)
    }

    /// The members that every operation has that follows this state.
    fn following(&self, kind: &str) -> Value {
        json!({"type": kind, "registry": self.registry, "did": self.did.as_str(), "sequence": self.sequence + 1,
            "previous": self.latest.to_string()})
    }

    /// The DID.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// The latest document, also of a deactivated DID.
    pub fn document(&self) -> &DidDocument {
        &self.document
    }

    /// The number of operations after the creation.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the DID may be used: a deactivated one never again.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// The hash of the latest operation ([`Operation::hash`]).
    pub fn latest(&self) -> Sha256Hash {
        self.latest
    }
}
