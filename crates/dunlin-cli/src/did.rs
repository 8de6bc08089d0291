//! DIDs, keys and lists in files that commands name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_command::error::Error;
use dunlin_identity::credential::status::StatusList;
use dunlin_identity::method::{MethodError, Methods, directory};
use dunlin_identity::{Did, DidDocument};
use dunlin_pki::KeyPair;
use dunlin_setup::did::{OwnDid, now_s, refused_list};
use dunlin_setup::files::content;
use dunlin_setup::place::{Field, FileField};

/// The file that an argument names. Faults in its content name the file alone.
pub(crate) fn file(path: &Path) -> FileField {
    Field::option("file", path.to_owned())
}

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

/// Reads a DID on the command line.
pub(crate) fn did(text: &str) -> Result<Did, String> {
    text.parse().map_err(|error| format!("{error}"))
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

/// Reads and verifies a status list of this issuer, made now or before a rotation.
pub(crate) fn own_status_list(
    path: &Path,
    issuer: &OwnDid,
    provider: &CryptoProvider,
) -> Result<StatusList, Error> {
    let field = file(path);
    let content = content(&field)?;
    let list = issuer.verify(|verifier| StatusList::verify_file(verifier, provider, &content, now_s()));
    Ok(list.map_err(|error| refused_list(&field, &error, "issuer"))?)
}
