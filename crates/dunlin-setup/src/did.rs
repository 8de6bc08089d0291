//! Decentralised identities in files: own DIDs, documents, trust lists, credentials, status lists and proofs
//! of membership.

use std::sync::Arc;
use std::time::SystemTime;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::DidMethod;
use dunlin_identity::credential::status::{StatusList, StatusLists};
use dunlin_identity::credential::{self, CredentialError, Seconds, Verifier, of_file};
use dunlin_identity::encoding::json::Value;
use dunlin_identity::handshake::{ListedIssuers, PinnedDocuments, Resolver, Unresolvable};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::directory::{self, DOCUMENT, OPERATIONS};
use dunlin_identity::method::dunlin::{Operation, OperationError, State};
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{Did, DidDocument, DidUrl, Relationship, TrustList, read_membership};

use crate::files::{content, in_file, signing_key, text};
use crate::place::{Fault, FileField};

const OWN_DID: &str = "give the directory that `dunlin did create` has made, or its private key";

const LIST: &str = "write a DID on each line, for a did:dunlin also the hash of its document";

pub(crate) const GET_LIST: &str = "get the newest list from its issuer (`dunlin vc revoke`)";

/// The time now, in seconds since 1970.
pub fn now_s() -> Seconds {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Seconds::try_from(now.as_secs()).unwrap_or(Seconds::MAX)
}

/// A DID of this side, with its key.
pub struct OwnDid {
    /// The key.
    pub key: Arc<dyn SigningKey>,
    /// The latest document.
    pub document: DidDocument,
    /// The documents before a rotation, the newest first.
    earlier: Vec<DidDocument>,
    /// The file of the key.
    pub file: FileField,
}

impl OwnDid {
    /// Reads the directory of a DID, as `dunlin did create` makes it, or a key, whose DID is its `did:key`.
    ///
    /// # Errors
    /// The files are unusable, the DID is deactivated, or there is no `did:key` of such a key.
    pub fn load(field: &FileField, provider: &CryptoProvider) -> Result<Self, Fault> {
        if field.value.is_dir() {
            return Self::of_directory(field, provider);
        }
        let key = signing_key(field, provider)?;
        let advice = "give an Ed25519, P-256, P-384 or RSA key, as `dunlin did create` makes it";
        let failed = |error: &dyn std::fmt::Display| in_file(field, error, advice);
        let public = PublicKey::from_spki(key.public_key()).map_err(|error| failed(&error))?;
        let document = KEY
            .create(&public)
            .and_then(|did| Method::resolve(&KEY, &did))
            .map_err(|error| failed(&error))?;
        Ok(Self { key, document, earlier: vec![], file: field.clone() })
    }

    /// Reads the directory of a DID.
    pub(crate) fn of_directory(field: &FileField, provider: &CryptoProvider) -> Result<Self, Fault> {
        let (document, version, earlier) = match history(field, provider)? {
            Some(state) if state.is_active() => {
                (state.document().clone(), state.sequence(), earlier(field, provider)?)
            }
            Some(state) => return Err(deactivated(field, state.did())),
            None => {
                let file = field.join(DOCUMENT);
                if file.value.symlink_metadata().is_err() {
                    return Err(in_file(field, &format!("it has no {DOCUMENT}"), OWN_DID));
                }
                (document(&file)?, 0, vec![])
            }
        };
        let file = field.join(directory::key_file(version));
        Ok(Self { key: signing_key(&file, provider)?, document, earlier, file })
    }

    /// Verifies what this DID has issued, now or before a rotation.
    ///
    /// # Errors
    /// The error with the latest document.
    pub fn verify<T>(
        &self,
        check: impl Fn(&Verifier) -> Result<T, CredentialError>,
    ) -> Result<T, CredentialError> {
        let by = |document: &DidDocument| check(&Verifier::new([document.clone()]));
        let refused = match by(&self.document) {
            Ok(checked) => return Ok(checked),
            Err(error) => error,
        };
        self.earlier.iter().find_map(|document| by(document).ok()).ok_or(refused)
    }

    /// The DID.
    pub fn did(&self) -> &Did {
        self.document.id()
    }

    /// The verification method of the key, for this use.
    ///
    /// # Errors
    /// The document does not list the key.
    pub fn method(&self, relationship: Relationship) -> Result<DidUrl, Fault> {
        let mut keys = self.document.keys(relationship);
        let own = self.key.public_key();
        let found = keys.find(|(_, key)| key.spki() == own).map(|(id, _)| id.clone());
        found.ok_or_else(|| {
            let name = relationship.name();
            let why = format!("the document of {} does not list this key under {name:?}", self.did());
            in_file(&self.file, &why, OWN_DID)
        })
    }
}

/// The operations of the `did:dunlin` in a directory, the oldest first; `None` if the DID is of another
/// method.
///
/// # Errors
/// The file cannot be read, or has another content.
pub fn operations(directory: &FileField) -> Result<Option<Vec<Operation>>, Fault> {
    let file = directory.join(OPERATIONS);
    if file.value.symlink_metadata().is_err() {
        return Ok(None);
    }
    let operations = directory::read_operations(text(&file)?.as_bytes());
    operations.map(Some).map_err(|error| bad_operations(directory, &error))
}

/// The state of the `did:dunlin` in a directory; `None` if the DID is of another method.
///
/// # Errors
/// As for [`operations`], or one does not follow the other.
pub fn history(directory: &FileField, provider: &CryptoProvider) -> Result<Option<State>, Fault> {
    let Some(operations) = operations(directory)? else { return Ok(None) };
    let state = State::replay(provider, &operations);
    state.map(Some).map_err(|error| bad_operations(directory, &error))
}

/// The documents of the `did:dunlin` in a directory but for the latest, the newest first.
fn earlier(directory: &FileField, provider: &CryptoProvider) -> Result<Vec<DidDocument>, Fault> {
    let operations = operations(directory)?.unwrap_or_default();
    let all = || {
        let mut operations = operations.iter();
        let Some(first) = operations.next() else { return Ok(vec![]) };
        let mut state = State::create(provider, first)?;
        let mut documents = vec![];
        for operation in operations {
            documents.insert(0, state.document().clone());
            state = state.apply(provider, operation)?;
        }
        Ok(documents)
    };
    all().map_err(|error| bad_operations(directory, &error))
}

/// The fault of a directory with bad operations.
pub fn bad_operations(directory: &FileField, error: &OperationError) -> Fault {
    in_file(&directory.join(OPERATIONS), error, "restore the file from a backup")
}

/// The fault of a directory whose DID has ended.
pub fn deactivated(directory: &FileField, did: &Did) -> Fault {
    let what = format!("{did} is deactivated, for ever");
    in_file(directory, &what, "make a new DID with `dunlin did create`")
}

/// Reads a DID document, which itself names its DID.
///
/// # Errors
/// The file cannot be read, or has no document.
pub fn document(field: &FileField) -> Result<DidDocument, Fault> {
    DidDocument::read_any(text(field)?.as_bytes())
        .map_err(|error| in_file(field, &error, "give a DID document in JSON"))
}

/// Reads DID documents.
///
/// # Errors
/// As for [`document`].
pub fn documents(fields: &[FileField]) -> Result<Vec<DidDocument>, Fault> {
    fields.iter().map(document).collect()
}

/// Reads a list of DIDs.
fn trust_list(field: &FileField) -> Result<TrustList, Fault> {
    let list = TrustList::read(&text(field)?).map_err(|error| in_file(field, &error, LIST))?;
    if list.is_empty() { Err(in_file(field, &"no DID in it, so no peer is trusted", LIST)) } else { Ok(list) }
}

/// Reads a list of DIDs without roots over others.
///
/// # Errors
/// The file cannot be read, or has another content.
pub fn written_out(field: &FileField) -> Result<TrustList, Fault> {
    let list = trust_list(field)?;
    if list.roots().is_empty() {
        return Ok(list);
    }
    let [peers, dids] = ["vc_peers", "dids"].map(|key| field.place.word(key));
    Err(in_file(field, &format!("\"members\" is for {peers} and {dids}"), "write the DIDs out"))
}

/// The remedy for DIDs on this list that do not resolve.
fn resolvable(list: &FileField) -> String {
    let [registry, documents] = ["registry", "did_documents"].map(|key| list.place.word(key));
    let of_web = if list.place.is_option() { "; for a did:web add --did-web" } else { "" };
    format!(
        "for a did:dunlin add {registry}, or its document in {documents} and the hash on the list (`dunlin did resolve --line`){of_web}"
    )
}

/// The documents among `documents` that the list pins.
fn pinned(
    list: &TrustList,
    of: &FileField,
    documents: &[DidDocument],
    provider: &CryptoProvider,
) -> Result<Arc<dyn Resolver>, Fault> {
    let of_list = documents.iter().filter(|document| list.pin(document.id()).is_some()).cloned();
    let pinned = PinnedDocuments::new(provider, list, of_list);
    let advice = || format!("correct its line, or {}", of.place.word("did_documents"));
    Ok(Arc::new(pinned.map_err(|error| in_file(of, &error, &advice()))?))
}

/// Reads a list of issuers, and resolves them. Issuers of the methods `later` may have no document at hand.
///
/// # Errors
/// The file is unusable, or an issuer does not resolve.
pub fn issuers(
    field: &FileField,
    documents: &[DidDocument],
    later: &[DidMethod],
    provider: &CryptoProvider,
) -> Result<ListedIssuers, Fault> {
    let list = written_out(field)?;
    let resolvers = [pinned(&list, field, documents, provider)?];
    let listed = ListedIssuers::of(provider, &list, &resolvers, later, now_s());
    listed.map_err(|error| in_file(field, &error, &resolvable(field)))
}

/// Reads a list of the DIDs that peers may have, and the documents among `documents` that it pins. Other
/// programs, which resolve more, may have the same list, so a DID that can never authenticate here gives a
/// warning. The list has roots over others only if proofs of a registry count.
pub(crate) fn peers(
    field: &FileField,
    documents: &[DidDocument],
    later: &[DidMethod],
    provider: &CryptoProvider,
    warnings: &mut Vec<Fault>,
) -> Result<(TrustList, Arc<dyn Resolver>), Fault> {
    let list = trust_list(field)?;
    if !list.roots().is_empty() && !later.contains(&DidMethod::DUNLIN) {
        let advice = format!("add {}, or write the DIDs out", field.place.word("registry"));
        return Err(field.place.fault("proofs for \"members\" come with those of a registry", advice));
    }
    let pinned = pinned(&list, field, documents, provider)?;
    let dids = Unresolvable::on(&list, std::slice::from_ref(&pinned), later, now_s());
    warnings.extend(dids.map(|dids| in_file(field, &dids, &resolvable(field))));
    Ok((list, pinned))
}

/// Reads a credential or a status list.
///
/// # Errors
/// The file cannot be read.
pub fn credential(field: &FileField) -> Result<Vec<u8>, Fault> {
    Ok(of_file(&content(field)?).to_vec())
}

/// The content of a credential, before anything is verified.
///
/// # Errors
/// The file cannot be read, or has no credential.
pub fn unverified(field: &FileField) -> Result<Value, Fault> {
    let refused = |error: &dyn std::fmt::Display| {
        in_file(field, error, "give a credential as `dunlin vc issue` makes it")
    };
    let said = credential::unverified(&credential(field)?).map_err(|error| refused(&error))?;
    match said.get("credentialSubject") {
        Some(_) => Ok(said),
        None => Err(refused(&"it is no credential: it has no member \"credentialSubject\"")),
    }
}

/// The DID that a credential names as its issuer, before anything is verified.
///
/// # Errors
/// As for [`unverified`].
pub fn issuer(field: &FileField) -> Result<Option<Did>, Fault> {
    let said = unverified(field)?;
    let issuer = said.get("issuer").map(|issuer| issuer.get("id").unwrap_or(issuer));
    Ok(issuer.and_then(Value::as_str).and_then(|did| did.parse().ok()))
}

/// The fault of a refused status list, whose issuer is not among those of the setting `issuers`.
pub fn refused_list(field: &FileField, error: &CredentialError, issuers: &str) -> Fault {
    let advice = match error {
        CredentialError::UntrustedIssuer(_) => {
            format!("give a list of an issuer in {}", field.place.word(issuers))
        }
        _ => GET_LIST.to_owned(),
    };
    in_file(field, error, &advice)
}

/// Reads and verifies status lists of these issuers.
///
/// # Errors
/// A file cannot be read, a list is refused, or two lists have the same name.
pub fn status_lists(
    fields: &[FileField],
    issuers: &Verifier,
    provider: &CryptoProvider,
) -> Result<StatusLists, Fault> {
    let mut lists = StatusLists::default();
    for field in fields {
        let list = StatusList::verify_file(issuers, provider, &content(field)?, now_s());
        let list = list.map_err(|error| refused_list(field, &error, "vc_issuers"))?;
        lists.insert(list).map_err(|error| in_file(field, &error, "name each list once"))?;
    }
    Ok(lists)
}

/// The proof of membership of this DID, from the file of all that `dunlin did members` writes.
pub(crate) fn membership(field: &FileField, did: &Did) -> Result<Vec<u8>, Fault> {
    let proof = read_membership(&text(field)?, did);
    let advice = "give the file that `dunlin did members` has made, or its line";
    proof.ok_or_else(|| in_file(field, &format!("it has no proof that {did} is a member"), advice))
}
