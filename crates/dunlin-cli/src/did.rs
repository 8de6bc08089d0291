//! Files of decentralised identities: own DIDs in directories, documents, trust lists, credentials and status
//! lists.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::DidMethod;
use dunlin_command::error::{Error, warn_once};
use dunlin_command::files;
use dunlin_identity::credential::status::{self, StatusList, StatusLists};
use dunlin_identity::credential::{self, CredentialError, Seconds, Verifier};
use dunlin_identity::encoding::json::Value;
use dunlin_identity::handshake::{ListedIssuers, PinnedDocuments, Resolver, Unresolvable};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::directory::{self, DOCUMENT, OPERATIONS};
use dunlin_identity::method::dunlin::{Operation, OperationError, State};
use dunlin_identity::method::{KEY, Method, MethodError, Methods};
use dunlin_identity::{Did, DidDocument, DidUrl, Relationship, TrustList};
use dunlin_pki::KeyPair;

/// The file of the key of a version.
pub(crate) fn key_file(directory: &Path, version: u64) -> PathBuf {
    directory.join(directory::key_file(version))
}

/// The files in a directory that have the name of a version's key.
pub(crate) fn key_files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_key = |name: &OsStr| name.to_str().and_then(directory::version_of).is_some();
    let entries = std::fs::read_dir(directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = entries
        .map_err(|error| Error::failed(directory.display(), error, "give a directory that can be read"))?;
    Ok(entries.into_iter().filter(|entry| is_key(&entry.file_name())).map(|entry| entry.path()).collect())
}

/// The time now, in seconds since 1970.
pub(crate) fn now_s() -> Seconds {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Seconds::try_from(now.as_secs()).unwrap_or(Seconds::MAX)
}

/// Reads a DID on the command line.
pub(crate) fn did(text: &str) -> Result<Did, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// A DID of this side, with its key.
pub(crate) struct Own {
    pub(crate) key: Arc<dyn SigningKey>,
    pub(crate) document: DidDocument,
    /// The documents before a rotation, the newest first.
    earlier: Vec<DidDocument>,
    /// The file of the key.
    pub(crate) file: PathBuf,
}

impl Own {
    /// Reads the directory of a DID, as `dunlin did create` makes it, or the key of a DID. The DID of a key
    /// alone is `did`, whose document is among `documents` if it does not follow from the DID; or by default
    /// its `did:key`.
    pub(crate) fn load(
        path: &Path,
        did: Option<&Did>,
        documents: &[DidDocument],
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        if path.is_dir() {
            let (document, version, earlier) = match history(path, provider)? {
                Some(state) if state.is_active() => {
                    (state.document().clone(), state.sequence(), earlier(path, provider)?)
                }
                Some(state) => return Err(deactivated(path, state.did())),
                None => (document(&path.join(DOCUMENT))?, 0, vec![]),
            };
            let file = key_file(path, version);
            let key = signing_key(&file, provider)?;
            return Ok(Self { key, document, earlier, file });
        }
        let key = signing_key(path, provider)?;
        let failed = |error: &dyn std::fmt::Display| {
            Error::failed(
                path.display(),
                error,
                "give an Ed25519, P-256, P-384 or RSA key, as `dunlin did create` makes it",
            )
        };
        let did = match did {
            Some(did) => did.clone(),
            None => {
                let public = PublicKey::from_spki(key.public_key()).map_err(|error| failed(&error))?;
                KEY.create(&public).map_err(|error| failed(&error))?
            }
        };
        let document = match documents.iter().find(|document| *document.id() == did) {
            Some(document) => document.clone(),
            None => resolve(&did)?,
        };
        Ok(Self { key, document, earlier: vec![], file: path.to_owned() })
    }

    /// Verifies what this DID has issued, now or before a rotation.
    ///
    /// # Errors
    /// The error with the latest document.
    pub(crate) fn verify<T>(
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

    pub(crate) fn did(&self) -> &Did {
        self.document.id()
    }

    /// The verification method of the key, for this use.
    pub(crate) fn method(&self, relationship: Relationship) -> Result<DidUrl, Error> {
        let mut keys = self.document.keys(relationship);
        let own = self.key.public_key();
        let found = keys.find(|(_, key)| key.spki() == own).map(|(id, _)| id.clone());
        found.ok_or_else(|| {
            let why = format!(
                "the document of {} does not list this key under {:?}",
                self.did(),
                relationship.name()
            );
            Error::failed(
                self.file.display(),
                why,
                "give the key of the DID, or the directory that `dunlin did create` has made",
            )
        })
    }
}

/// The operations of the `did:dunlin` in a directory, the oldest first; `None` if the DID is of another
/// method.
pub(crate) fn operations(directory: &Path) -> Result<Option<Vec<Operation>>, Error> {
    let path = directory.join(OPERATIONS);
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let operations = directory::read_operations(files::text(&path)?.as_bytes());
    operations.map(Some).map_err(|error| bad_operations(directory, &error))
}

/// The state of the `did:dunlin` in a directory; `None` if the DID is of another method.
pub(crate) fn history(directory: &Path, provider: &CryptoProvider) -> Result<Option<State>, Error> {
    let Some(operations) = operations(directory)? else { return Ok(None) };
    let state = State::replay(provider, &operations);
    state.map(Some).map_err(|error| bad_operations(directory, &error))
}

/// The documents of the `did:dunlin` in a directory but for the latest, the newest first.
fn earlier(directory: &Path, provider: &CryptoProvider) -> Result<Vec<DidDocument>, Error> {
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

pub(crate) fn bad_operations(directory: &Path, error: &OperationError) -> Error {
    Error::failed(directory.join(OPERATIONS).display(), error, "restore the file from a backup")
}

pub(crate) fn deactivated(path: &Path, did: &Did) -> Error {
    let why = format!("{did} is deactivated, for ever");
    Error::failed(path.display(), why, "make a new DID with `dunlin did create`")
}

pub(crate) fn signing_key(path: &Path, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, Error> {
    key_of(&files::private_key(path)?, path, provider)
}

pub(crate) fn key_of(
    pair: &KeyPair,
    path: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<dyn SigningKey>, Error> {
    pair.signing_key(provider).map_err(|error| Error::in_file(path, &error))
}

/// The document of a DID that contains it.
pub(crate) fn resolve(did: &Did) -> Result<DidDocument, Error> {
    Methods::default().resolve(did).map_err(|error| match error {
        MethodError::Unknown(_) => {
            let why = "its document does not follow from the DID, and no registry or web server is asked";
            Error::failed(did, why, "give the document with --document, or the registry with --registry")
        }
        error => Error::failed(did, error, "check the DID"),
    })
}

/// Reads a DID document from a file. The document itself names its DID.
pub(crate) fn document(path: &Path) -> Result<DidDocument, Error> {
    DidDocument::read_any(files::text(path)?.as_bytes())
        .map_err(|error| Error::failed(path.display(), error, "give a DID document in JSON"))
}

/// Reads DID documents from files.
pub(crate) fn documents(paths: &[PathBuf]) -> Result<Vec<DidDocument>, Error> {
    paths.iter().map(|path| document(path)).collect()
}

/// Reads a list of DIDs.
pub(crate) fn trust_list(path: &Path) -> Result<TrustList, Error> {
    let refused = |error: &dyn std::fmt::Display, advice| Error::failed(path.display(), error, advice);
    let list =
        TrustList::read(&files::text(path)?).map_err(|error| refused(&error, "write a DID on each line"))?;
    if list.is_empty() {
        Err(refused(&"no DID in it, so nobody is trusted", "write a DID on each line"))
    } else {
        Ok(list)
    }
}

/// Reads a list of DIDs without roots over others.
pub(crate) fn written_out(path: &Path) -> Result<TrustList, Error> {
    let list = trust_list(path)?;
    if list.roots().is_empty() {
        Ok(list)
    } else {
        Err(Error::failed(path.display(), "\"members\" is for --peers alone", "write the DIDs out"))
    }
}

const UNRESOLVABLE: &str = "list DIDs of did:key and did:jwk; for did:dunlin add --registry, or the hash of the document and --document; for \
                            did:web add --did-web";

/// The documents that the list pins.
fn pinned(
    list: &TrustList,
    documents: &[DidDocument],
    provider: &CryptoProvider,
) -> Result<Arc<dyn Resolver>, Error> {
    let of_list = documents.iter().filter(|document| list.pin(document.id()).is_some()).cloned();
    let pinned = PinnedDocuments::new(provider, list, of_list);
    let refused = |error| Error::failed("--document", error, "give the document whose hash is on the list");
    Ok(Arc::new(pinned.map_err(refused)?))
}

/// The resolved issuers of a list. Issuers of the methods `later` may have no document at hand.
pub(crate) fn issuers(
    path: &Path,
    documents: &[DidDocument],
    later: &[DidMethod],
    provider: &CryptoProvider,
) -> Result<ListedIssuers, Error> {
    let list = written_out(path)?;
    let resolvers = [pinned(&list, documents, provider)?];
    let listed = ListedIssuers::of(provider, &list, &resolvers, later, now_s());
    listed.map_err(|error| Error::failed(path.display(), error, UNRESOLVABLE))
}

/// A list of peers, and the documents among `documents` that it pins. Other programs, which resolve more, may
/// have the same list, so a DID that can never authenticate here gives a warning.
pub(crate) fn peers(
    path: &Path,
    documents: &[DidDocument],
    later: &[DidMethod],
    provider: &CryptoProvider,
) -> Result<(TrustList, Arc<dyn Resolver>), Error> {
    let list = trust_list(path)?;
    let pinned = pinned(&list, documents, provider)?;
    if let Some(dids) = Unresolvable::on(&list, std::slice::from_ref(&pinned), later, now_s()) {
        warn_once(format!("{}: {dids}; {UNRESOLVABLE}", path.display()));
    }
    Ok((list, pinned))
}

/// Reads a credential.
pub(crate) fn credential(path: &Path) -> Result<Vec<u8>, Error> {
    Ok(credential::of_file(&files::read(path)?).to_vec())
}

/// The content of a credential or status list, before anything is verified.
pub(crate) fn unverified(path: &Path) -> Result<Value, Error> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::failed(path.display(), error, "give a credential as `dunlin vc issue` makes it")
    };
    let said = credential::unverified(&credential(path)?).map_err(|error| refused(&error))?;
    match said.get("credentialSubject") {
        Some(_) => Ok(said),
        None => Err(refused(&"it is no credential: it has no member \"credentialSubject\"")),
    }
}

/// The DID that a credential names as its issuer, before anything is verified.
pub(crate) fn issuer(path: &Path) -> Result<Option<Did>, Error> {
    let said = unverified(path)?;
    let issuer = said.get("issuer").map(|issuer| issuer.get("id").unwrap_or(issuer));
    Ok(issuer.and_then(Value::as_str).and_then(|did| did.parse().ok()))
}

/// The DID of the subject.
pub(crate) fn subject(path: &Path, credential: &Value) -> Result<Did, Error> {
    let id =
        credential.get("credentialSubject").and_then(|subject| subject.get("id")).and_then(Value::as_str);
    let did = id.and_then(|id| id.parse().ok());
    did.ok_or_else(|| {
        Error::failed(
            path.display(),
            "its subject has no DID",
            "issue a credential about a DID with `dunlin vc issue`",
        )
    })
}

const GET_LIST: &str = "get the newest list from its issuer (`dunlin vc revoke`)";

/// Reads and verifies a status list of one of the issuers.
pub(crate) fn status_list(
    path: &Path,
    issuers: &[DidDocument],
    provider: &CryptoProvider,
) -> Result<StatusList, Error> {
    let verifier = Verifier::new(issuers.iter().cloned());
    let content = files::read(path)?;
    let list = StatusList::verify_file(&verifier, provider, &content, now_s());
    list.map_err(|error| {
        let advice = match error {
            CredentialError::UntrustedIssuer(_) => "give a list of an issuer in --trust",
            _ => GET_LIST,
        };
        Error::failed(path.display(), error, advice)
    })
}

/// Reads and verifies a status list of this issuer, made now or before a rotation.
pub(crate) fn own_status_list(
    path: &Path,
    issuer: &Own,
    provider: &CryptoProvider,
) -> Result<StatusList, Error> {
    let content = files::read(path)?;
    let list = issuer.verify(|verifier| StatusList::verify_file(verifier, provider, &content, now_s()));
    list.map_err(|error| {
        let advice = match error {
            CredentialError::UntrustedIssuer(_) => "give a list of --issuer",
            _ => GET_LIST,
        };
        Error::failed(path.display(), error, advice)
    })
}

/// Reads status lists. None may be older than the one of the same name in `newest`, which takes them. Also
/// returns lists of issuers whose documents are not at hand.
pub(crate) fn newest_status_lists(
    paths: &[PathBuf],
    issuers: &ListedIssuers,
    newest: &mut StatusLists,
    provider: &CryptoProvider,
) -> Result<(StatusLists, Vec<Vec<u8>>), Error> {
    let documents: Vec<_> = issuers.resolved.iter().map(|issuer| issuer.document.clone()).collect();
    let mut known = vec![];
    let mut unverified = vec![];
    for path in paths {
        let content = credential(path)?;
        if status::is_old(&content, now_s()) {
            let what =
                "older than 24 hours, so credentials with a status in it are refused without a newer one";
            warn_once(format!("{}: {what}; {GET_LIST}", path.display()));
        }
        let issuer = status::list_issuer(&content).unwrap_or_default();
        if issuers.others.iter().any(|other| other.did.as_str() == issuer) {
            unverified.push(content);
            continue;
        }
        let list = status_list(path, &documents, provider)?;
        newest.insert(list).map_err(|error| Error::failed(path.display(), error, GET_LIST))?;
        known.push(path.clone());
    }
    Ok((status_lists(&known, &documents, provider)?, unverified))
}

/// Reads status lists.
pub(crate) fn status_lists(
    paths: &[PathBuf],
    issuers: &[DidDocument],
    provider: &CryptoProvider,
) -> Result<StatusLists, Error> {
    let mut lists = StatusLists::default();
    for path in paths {
        let list = status_list(path, issuers, provider)?;
        lists.insert(list).map_err(|error| Error::failed(path.display(), error, "give each list once"))?;
    }
    Ok(lists)
}
