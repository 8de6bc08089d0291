//! `dunlin did create`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueEnum};
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::directory::{DOCUMENT, OPERATIONS, RECOVERY};
use dunlin_identity::method::dunlin::{Operation, first_document};
use dunlin_identity::method::{JWK, KEY, Method};
use dunlin_identity::{Did, DidDocument, Sha256Hash};
use dunlin_pki::{KeyPair, KeyType};

use super::publish;
use crate::did::{key_file, key_files, key_of};
use crate::registry::AccessOptions;
use crate::tls::lists;

/// Make a DID with a new key, in a new directory, and print it.
///
/// With the URL of a registry, a did:dunlin is published there, too. Without it, bring its operations there
/// later, with `publish`.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin did create --out device
  dunlin did create --method dunlin --registry https://registry.example --registry-key registry.pub --out device
  dunlin did create --method dunlin --registry registry.example/1 --key-type p256 --out device")]
pub(super) struct Create {
    /// The method.
    #[arg(long, value_enum, default_value = "key")]
    method: MethodName,
    /// The registry that orders the operations of a did:dunlin: its URL to publish the DID there, or its
    /// origin alone.
    #[arg(long, value_name = "URL|ORIGIN", required_if_eq("method", "dunlin"))]
    registry: Option<String>,
    #[command(flatten)]
    access: AccessOptions,
    /// The type of the keys.
    #[arg(long, value_name = "TYPE", default_value = "ed25519", value_parser = key_types())]
    key_type: KeyType,
    /// The directory, which is created.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MethodName {
    /// did:key: the DID is the key. It never changes.
    Key,
    /// did:jwk: as did:key, for programs that want JSON Web Keys.
    Jwk,
    /// did:dunlin: the DID keeps its name when its key changes.
    Dunlin,
}

/// The types of keys that DID documents have.
const KEY_TYPES: [KeyType; 7] = [
    KeyType::Ed25519,
    KeyType::P256,
    KeyType::P384,
    KeyType::Rsa2048,
    KeyType::Rsa3072,
    KeyType::Rsa4096,
    KeyType::MlDsa44,
];

fn key_types() -> impl TypedValueParser<Value = KeyType> {
    PossibleValuesParser::new(KEY_TYPES.map(KeyType::name)).try_map(|name| name.parse::<KeyType>())
}

/// Runs `dunlin did create`.
pub(super) fn run(args: &Create, out: &mut dyn Write) -> Result<(), Error> {
    if args.registry.is_some() && args.method != MethodName::Dunlin {
        let why = "DIDs of this method are in no registry";
        return Err(Error::usage("--registry", why, "add --method dunlin, or leave it out"));
    }
    if args.key_type == KeyType::MlDsa44 && args.method != MethodName::Dunlin {
        let why = "a DID of this method contains its key, and such keys are too long";
        return Err(Error::usage(
            "--key-type",
            why,
            "add --method dunlin, whose DIDs have the key in their document",
        ));
    }
    // An origin has no scheme.
    let url = args.registry.as_ref().filter(|registry| registry.contains("://"));
    let client = url.map(|url| args.access.client(url)).transpose()?;
    let registry = match &client {
        Some(client) => Some(client.documents().trust().origin().to_owned()),
        None => args.registry.clone(),
    };
    let new = New { key_type: args.key_type, method: args.method, registry };
    let provider = lists::provider();
    let is_new = args.out.symlink_metadata().is_err();
    // With --force there may be a DID that another run is changing.
    files::create_directory(&args.out)?;
    let _lock = files::lock_directory_of(&args.out.join(OPERATIONS))?;
    let document = new.write(&args.out, Existing::from_force(args.force), &provider).inspect_err(|_| {
        if is_new {
            // An empty directory is of no use. One with keys in it stays.
            let _ = fs::remove_dir(&args.out);
        }
    })?;
    if let Some(client) = &client {
        publish::publish(&args.out, client, &provider).map_err(|error| {
            let ([what, why, advice], out) = (error.parts(), args.out.display());
            let later = format!(
                "{advice}; the keys of {} are in {out}: then run `dunlin did publish {out}`",
                document.id()
            );
            Error::failed(what, why, later)
        })?;
    }
    writeln!(out, "{}", document.id())?;
    Ok(())
}

/// A new DID.
pub(super) struct New {
    pub(super) key_type: KeyType,
    pub(super) method: MethodName,
    pub(super) registry: Option<String>,
}

impl New {
    /// Makes the DID and writes its files.
    pub(super) fn write(
        &self,
        directory: &Path,
        existing: Existing,
        provider: &CryptoProvider,
    ) -> Result<DidDocument, Error> {
        files::create_directory(directory)?;
        let document_file = directory.join(DOCUMENT);
        let operations_file = directory.join(OPERATIONS);
        let keys = match self.method {
            MethodName::Dunlin => {
                vec![key_file(directory, 0), key_file(directory, 1), directory.join(RECOVERY)]
            }
            MethodName::Key | MethodName::Jwk => vec![key_file(directory, 0)],
        };
        let mut all: Vec<_> = keys.iter().map(PathBuf::as_path).collect();
        // A DID of another method leaves none there.
        all.extend([document_file.as_path(), operations_file.as_path()]);
        files::check_new(&all, existing)?;
        // `update` takes an existing next key as left by an interrupted attempt. A key of an earlier DID may
        // be in other hands.
        let mut others = key_files(directory)?;
        others.extend([directory.join(RECOVERY)].into_iter().filter(|file| file.symlink_metadata().is_ok()));
        others.retain(|file| !keys.contains(file));
        files::check_new(&others.iter().map(PathBuf::as_path).collect::<Vec<_>>(), existing)?;
        others.iter().try_for_each(|other| files::remove(other))?;
        let pairs: Vec<_> =
            keys.iter().map(|_| KeyPair::generate(self.key_type)).collect::<Result<_, _>>()?;
        let (document, operation) = self.document(&pairs, directory, provider)?;
        // Keys first: a document whose key is lost would be of no use.
        for (file, pair) in keys.iter().zip(&pairs) {
            files::write(file, pair.to_pem()?.as_bytes(), Access::Secret, existing)?;
        }
        match operation {
            Some(line) => files::write(&operations_file, line.as_bytes(), Access::Public, existing)?,
            None if existing == Existing::Replace && operations_file.exists() => {
                files::remove(&operations_file)?;
            }
            None => {}
        }
        write_document(directory, &document, existing)?;
        Ok(document)
    }

    /// The document, and the operation that creates a `did:dunlin`.
    fn document(
        &self,
        pairs: &[KeyPair],
        directory: &Path,
        provider: &CryptoProvider,
    ) -> Result<(DidDocument, Option<String>), Error> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::usage(directory.display(), error, "give --registry as the registry writes its origin")
        };
        let public = |pair: &KeyPair| PublicKey::from_spki(pair.public_key()).map_err(|error| failed(&error));
        let hash =
            |pair: &KeyPair| Sha256Hash::of_key(provider, &public(pair)?).map_err(|error| failed(&error));
        let of = |method: &dyn Method, pair: &KeyPair| -> Result<DidDocument, Error> {
            let did: Did = method.create(&public(pair)?).map_err(|error| failed(&error))?;
            method.resolve(&did).map_err(|error| failed(&error))
        };
        match (self.method, pairs) {
            (MethodName::Key, [pair]) => Ok((of(&KEY, pair)?, None)),
            (MethodName::Jwk, [pair]) => Ok((of(&JWK, pair)?, None)),
            (_, [current, next, recovery]) => {
                let registry = self.registry.as_deref().unwrap_or_default();
                let document =
                    first_document(provider, registry, &public(current)?, hash(next)?, hash(recovery)?);
                let document = document.map_err(|error| failed(&error))?;
                let signer = key_of(current, directory, provider)?;
                let operation =
                    Operation::create(provider, &*signer, &document).map_err(|error| failed(&error))?;
                let line = operation.canonical().map_err(|error| failed(&error))?;
                Ok((document, Some(line + "\n")))
            }
            _ => Err(failed(&"the method has other keys")),
        }
    }
}

/// Writes the document of a DID into its directory.
pub(super) fn write_document(
    directory: &Path,
    document: &DidDocument,
    existing: Existing,
) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(document.value());
    let text = text.map_err(|error| Error::failed("the document", error, "report it"))? + "\n";
    files::write(&directory.join(DOCUMENT), text.as_bytes(), Access::Public, existing)
}
