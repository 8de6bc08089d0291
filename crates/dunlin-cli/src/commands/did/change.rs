//! `dunlin did update` and `dunlin did deactivate`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::directory::{DOCUMENT, OPERATIONS};
use dunlin_identity::method::dunlin::{Operation, OperationError, State};
use dunlin_identity::{Did, Sha256Hash};
use dunlin_pki::KeyPair;
use dunlin_registry::client::RegistryClient;
use dunlin_setup::did::{OwnDid, deactivated, document, history};
use dunlin_setup::files::signing_key;

use super::create::{MethodName, New, write_document};
use super::publish::publish;
use crate::commands::vc::reissue;
use crate::did::{self, key_file};
use crate::registry::AccessOptions;
use crate::tls::lists;

/// Give a DID a new key.
///
/// A did:dunlin keeps its name: its next key becomes the current one, and it commits to another next key.
/// With --new-id, a new DID takes the place of the old one, which is deactivated if it is a did:dunlin, and a
/// credential about it is issued again.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin did update device
  dunlin did update device --registry https://registry.example --registry-key registry.pub
  dunlin did update device --new-id --out device-2
  dunlin did update device --new-id --out device-2 --vc device.vc --issuer operator --vc-out device-2.vc")]
pub(super) struct Update {
    /// The directory of the DID.
    dir: PathBuf,
    /// Make a new DID of the same method, with keys of the same type, instead of a new key.
    #[arg(long, requires = "out")]
    new_id: bool,
    /// The directory of the new DID.
    #[arg(long, value_name = "DIR", requires = "new_id")]
    out: Option<PathBuf>,
    /// The credential about the old DID.
    #[arg(long, value_name = "FILE", requires_all = ["new_id", "issuer", "vc_out"])]
    vc: Option<PathBuf>,
    /// The DID of the credential's issuer: its directory, or the key of a did:key.
    #[arg(long, value_name = "DIR|FILE", requires = "vc")]
    issuer: Option<PathBuf>,
    /// The file for the credential about the new DID.
    #[arg(long, value_name = "FILE", requires = "vc")]
    vc_out: Option<PathBuf>,
    /// The status list of the old credential, which is revoked there. The new credential gets another place
    /// in it.
    #[arg(long, value_name = "FILE", requires = "vc")]
    status_list: Option<PathBuf>,
    #[command(flatten)]
    registry: Registry,
}

/// The registry of a did:dunlin.
#[derive(ClapArgs)]
struct Registry {
    /// The registry of a did:dunlin, to publish the change there. Without it, bring the operations there
    /// later, with `publish`.
    #[arg(long, value_name = "URL", requires = "registry_key", help_heading = "Registry")]
    registry: Option<String>,
    #[command(flatten)]
    access: AccessOptions,
}

impl Registry {
    /// Its client, before anything changes.
    fn client(&self) -> Result<Option<RegistryClient>, Error> {
        self.registry.as_ref().map(|url| self.access.client(url)).transpose()
    }
}

/// End a did:dunlin permanently.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin did deactivate device
  dunlin did deactivate device --key backup/recovery.key")]
pub(super) struct Deactivate {
    /// The directory of the DID.
    dir: PathBuf,
    /// The recovery key or the next key [default: the next key in DIR].
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    registry: Registry,
}

/// Runs `dunlin did update`.
pub(super) fn update(args: &Update, out: &mut dyn Write) -> Result<(), Error> {
    let provider = lists::provider();
    let client = args.registry.client()?;
    match &args.out {
        Some(directory) => replace(args, directory, client.as_ref(), &provider, out),
        None => rotate(&args.dir, client.as_ref(), &provider, out),
    }
}

/// Gives a `did:dunlin` its next key.
fn rotate(
    directory: &Path,
    client: Option<&RegistryClient>,
    provider: &CryptoProvider,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let _lock = lock(directory)?;
    let state = state(directory, "its key is the DID: replace it by a new DID with --new-id", provider)?;
    let current_file = key_file(directory, state.sequence() + 1);
    let next_file = key_file(directory, state.sequence() + 2);
    let current = files::private_key(&current_file)?;
    // The key of an earlier attempt that has not been completed serves as well.
    let next = match next_file.symlink_metadata() {
        Ok(_) => files::private_key(&next_file)?,
        Err(_) => {
            let next = KeyPair::generate(current.key_type())?;
            files::write(&next_file, next.to_pem()?.as_bytes(), Access::Secret, Existing::Keep)?;
            next
        }
    };
    let refused = |error: OperationError| refused(&current_file, &error);
    let public = |pair: &KeyPair| PublicKey::from_spki(pair.public_key()).map_err(OperationError::from);
    let document = (|| {
        let hash = Sha256Hash::of_key(provider, &public(&next)?)?;
        state.rotated(&public(&current)?, hash)
    })();
    let document = document.map_err(refused)?;
    let signer = did::key_of(&current, &current_file, provider)?;
    let operation = Operation::update(provider, &*signer, &state, &document).map_err(refused)?;
    append(directory, &operation)?;
    write_document(directory, &document, Existing::Replace)?;
    if let Some(client) = client {
        publish(directory, client, provider)?;
    }
    writeln!(out, "{}: version {}", state.did(), state.sequence() + 1)?;
    Ok(())
}

/// Replaces the DID by a new one.
fn replace(
    args: &Update,
    directory: &Path,
    client: Option<&RegistryClient>,
    provider: &CryptoProvider,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let own = OwnDid::load(&did::file(&args.dir), provider)?;
    let (method, registry) = match own.did().method() {
        "key" => (MethodName::Key, None),
        "jwk" => (MethodName::Jwk, None),
        _ => {
            let member = own.document.value().get("dunlin").and_then(|member| member.get("registry"));
            (MethodName::Dunlin, member.and_then(|registry| registry.as_str()).map(ToOwned::to_owned))
        }
    };
    // Everything that can fail comes before the end of the old DID.
    let credential = match (&args.vc, &args.issuer, &args.vc_out) {
        (Some(vc), Some(issuer), Some(vc_out)) => {
            files::check_new(&[vc_out], Existing::Keep)?;
            let issuer = OwnDid::load(&did::file(issuer), provider)?;
            Some(
                reissue::Reissue::read(vc, issuer, own.did(), args.status_list.as_deref(), provider)?
                    .to(vc_out),
            )
        }
        _ => None,
    };
    let key_type = files::private_key(&own.file.value)?.key_type();
    let document = New { key_type, method, registry }.write(directory, Existing::Keep, provider)?;
    if let Some(credential) = credential {
        credential.write(document.id(), provider)?;
    }
    let _lock = lock(&args.dir)?;
    if method == MethodName::Dunlin {
        end(&args.dir, None, provider)?;
    }
    if let Some(client) = client {
        publish(directory, client, provider)?;
        publish(&args.dir, client, provider)?;
    }
    writeln!(out, "{}", document.id())?;
    Ok(())
}

/// Runs `dunlin did deactivate`.
pub(super) fn deactivate(args: &Deactivate, out: &mut dyn Write) -> Result<(), Error> {
    let provider = lists::provider();
    let client = args.registry.client()?;
    let _lock = lock(&args.dir)?;
    let did = end(&args.dir, args.key.as_deref(), &provider)?;
    if let Some(client) = &client {
        publish(&args.dir, client, &provider)?;
    }
    writeln!(out, "{did}: deactivated")?;
    Ok(())
}

/// Excludes other runs, whose operations would follow the same one, until the operation is written and
/// published.
fn lock(directory: &Path) -> Result<File, Error> {
    files::lock_directory_of(&directory.join(OPERATIONS))
}

fn end(directory: &Path, key: Option<&Path>, provider: &CryptoProvider) -> Result<Did, Error> {
    let state = state(
        directory,
        "it cannot be deactivated: revoke its credentials with `dunlin vc revoke`",
        provider,
    )?;
    let file = key.map_or_else(|| key_file(directory, state.sequence() + 1), Path::to_owned);
    let signer = signing_key(&did::file(&file), provider)?;
    let operation =
        Operation::deactivate(provider, &*signer, &state).map_err(|error| refused(&file, &error))?;
    append(directory, &operation)?;
    Ok(state.did().clone())
}

fn refused(key: &Path, error: &OperationError) -> Error {
    let advice = match error {
        OperationError::NotCommitted => "give the next key or the recovery key of the DID",
        _ => "report it",
    };
    Error::failed(key.display(), error, advice)
}

/// The state of an active `did:dunlin`.
fn state(directory: &Path, of_others: &str, provider: &CryptoProvider) -> Result<State, Error> {
    let files = did::file(directory);
    match history(&files, provider)? {
        Some(state) if state.is_active() => Ok(state),
        Some(state) => Err(deactivated(&files, state.did()).into()),
        None => {
            let document = document(&files.join(DOCUMENT))?;
            let why = format!("{} never changes", document.id());
            Err(Error::failed(directory.display(), why, of_others))
        }
    }
}

/// Appends an operation to the DID's operations.
fn append(directory: &Path, operation: &Operation) -> Result<(), Error> {
    let path = directory.join(OPERATIONS);
    let line = operation.canonical().map_err(|error| Error::failed(path.display(), error, "report it"))?;
    let content = [&**files::read(&path)?, line.as_bytes(), b"\n"].concat();
    files::write(&path, &content, Access::Public, Existing::Replace)
}
