//! `dunlin did`: makes, resolves, changes and ends decentralised identifiers.

mod change;
mod create;
mod members;
mod publish;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::{Error, warn};
use dunlin_identity::method::directory::DOCUMENT;
use dunlin_identity::method::dunlin::{State, check_first_document};
use dunlin_identity::{DidDocument, Sha256Hash};
use dunlin_registry::lookup::WebDocuments;
use dunlin_setup::did as setup;

use crate::did;
use crate::registry::{AccessOptions, block_on, failed};
use crate::tls::lists;

const EXAMPLES: &str = "\
Examples:
  dunlin did create --out device                           a did:key
  dunlin did create --method dunlin --registry https://registry.example --registry-key registry.pub --out device
  dunlin did resolve device
  dunlin did resolve device --line >> trusted              a line for --vc-issuers or --dids
  dunlin did update device                                 a new key for a did:dunlin
  dunlin did update device --new-id --out device-2 --vc device.vc --issuer operator --vc-out device-2.vc
  dunlin did deactivate device
  dunlin did members devices --out proofs >> peers         a line for --vc-peers in place of all devices

A DID is a directory. It contains the document (did.json), and the key of each version (key-0.key, key-1.key, …). That of a did:dunlin
also contains its next key, its recovery key (recovery.key) and its operations (operations.jsonl), which a registry orders: create,
update and deactivate bring them there if they get --registry and --registry-key, and publish does so later. Keep the
next and the recovery key somewhere else: a thief of the current key alone cannot change the DID.";

/// Make, resolve, change and end decentralised identifiers (DIDs).
#[derive(ClapArgs)]
#[command(arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(create::Create),
    Resolve(Resolve),
    Update(change::Update),
    Deactivate(change::Deactivate),
    Publish(publish::Publish),
    Members(members::Members),
}

/// Print the document of a DID.
///
/// A did:key or did:jwk contains its document. The document of a did:dunlin comes from its registry, with a
/// proof that it is the latest one. Without a registry it is read from the DID's directory, or from a file,
/// where it must be the first document of the DID: this command then does not know whether the DID has
/// changed elsewhere since. With --did-web, the document of a did:web is fetched from its web server.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin did resolve did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp
  dunlin did resolve did:dunlin:4zvw… --registry https://registry.example --registry-key registry.pub
  dunlin did resolve device --line")]
struct Resolve {
    /// A DID, or its directory.
    #[arg(value_name = "DID|DIR")]
    what: String,
    /// The first document of a did:dunlin.
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// Print a line for a trust list instead: the DID, and the hash of the document of a did:dunlin.
    #[arg(long, conflicts_with_all = ["registry", "did_web"])]
    line: bool,
    /// The registry of a did:dunlin.
    #[arg(
        long,
        value_name = "URL",
        requires = "registry_key",
        conflicts_with = "document",
        help_heading = "Registry"
    )]
    registry: Option<String>,
    /// Fetch the document of a did:web over HTTPS.
    #[arg(long, conflicts_with_all = ["registry", "document"], help_heading = "Registry")]
    did_web: bool,
    #[command(flatten)]
    access: AccessOptions,
}

/// Runs `dunlin did`.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.command {
        Command::Create(args) => create::run(&args, out),
        Command::Resolve(args) => resolve(&args, out),
        Command::Update(args) => change::update(&args, out),
        Command::Deactivate(args) => change::deactivate(&args, out),
        Command::Publish(args) => publish::run(&args, out),
        Command::Members(args) => members::run(&args, out),
    }
}

fn resolve(args: &Resolve, out: &mut dyn Write) -> Result<(), Error> {
    let provider = lists::provider();
    if let Some(document) = looked_up(args)? {
        return write_document(&document, out);
    }
    let document = document(args, &provider)?;
    let hashed = |document: &DidDocument| {
        check_first_document(&provider, document).map_err(|error| error.to_string())?;
        let text = document.canonical();
        Sha256Hash::of(&provider, text.as_bytes()).map_err(|error| error.to_string())
    };
    let did = document.id();
    if did.method() == "dunlin" {
        let advice = "a list pins a DID to its first document: give that with --document";
        match (hashed(&document), args.line) {
            (Ok(hash), true) => writeln!(out, "{did} {hash}")?,
            (Err(error), _) if args.line || args.document.is_some() => {
                return Err(Error::failed(did, error, advice));
            }
            _ => write_document(&document, out)?,
        }
    } else if args.line {
        writeln!(out, "{did}")?;
    } else {
        write_document(&document, out)?;
    }
    Ok(())
}

/// The latest document of a DID, from a registry or a web server; `None` if neither is asked.
fn looked_up(args: &Resolve) -> Result<Option<DidDocument>, Error> {
    let did = || {
        if args.what.starts_with("did:") {
            did::did(&args.what).map_err(|why| Error::usage(&args.what, why, "check the DID"))
        } else {
            Ok(setup::document(&did::file(Path::new(&args.what)).join(DOCUMENT))?.id().clone())
        }
    };
    if let Some(url) = &args.registry {
        let did = did()?;
        let client = args.access.client(url)?;
        if did.method() != "dunlin" {
            return Err(Error::usage("--registry", format!("{did} is in no registry"), "leave it out"));
        }
        let (_, resolved) = block_on(client.resolve(&did))?.map_err(|error| failed(&error))?;
        return Ok(Some(resolved.document));
    }
    if !args.did_web {
        return Ok(None);
    }
    let provider = Arc::new(lists::provider());
    let did = did()?;
    let web = WebDocuments::new(provider.clone(), args.access.https(&provider)?);
    let document = block_on(web.resolve(&did))?;
    let advice = "check the DID, and that its web server has the document";
    document.map(Some).map_err(|error| Error::failed(did, error, advice))
}

fn document(args: &Resolve, provider: &CryptoProvider) -> Result<DidDocument, Error> {
    if !args.what.starts_with("did:") {
        if args.document.is_some() {
            let why = "a directory has its own document";
            return Err(Error::usage(
                "--document",
                why,
                "give a DID instead of the directory, or leave it out",
            ));
        }
        return of_directory(Path::new(&args.what), args.line, provider);
    }
    let did = did::did(&args.what).map_err(|why| Error::usage(&args.what, why, "check the DID"))?;
    let Some(path) = &args.document else { return did::resolve(&did) };
    let document = setup::document(&did::file(path))?;
    if *document.id() == did {
        Ok(document)
    } else {
        let why = format!("it is the document of {}", document.id());
        Err(Error::failed(path.display(), why, format!("give that of {did}")))
    }
}

/// The latest document of the DID in a directory; for a line, the first one.
fn of_directory(directory: &Path, line: bool, provider: &CryptoProvider) -> Result<DidDocument, Error> {
    let files = did::file(directory);
    let Some(state) = setup::history(&files, provider)? else {
        return Ok(setup::document(&files.join(DOCUMENT))?);
    };
    if !state.is_active() {
        return Err(setup::deactivated(&files, state.did()).into());
    }
    if !line || state.sequence() == 0 {
        return Ok(state.document().clone());
    }
    warn(&format!(
        "{}: the key has changed since the first document, to which the line pins the DID: where a registry is asked, list the DID alone",
        directory.display()
    ));
    let first = setup::operations(&files)?.unwrap_or_default().into_iter().take(1).collect::<Vec<_>>();
    let first = State::replay(provider, &first).map_err(|error| setup::bad_operations(&files, &error))?;
    Ok(first.document().clone())
}

fn write_document(document: &DidDocument, out: &mut dyn Write) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(document.value());
    writeln!(out, "{}", text.map_err(|error| Error::failed("output", error, "report it"))?)?;
    Ok(())
}
