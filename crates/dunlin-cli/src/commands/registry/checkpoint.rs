//! `dunlin registry checkpoint`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::transparency::SignedCheckpoint;
use dunlin_registry::client::RegistryClient;

use crate::registry::{AccessOptions, block_on, failed};
use crate::tls::lists;

/// Fetch the newest checkpoint of a registry, verify it, and print it.
///
/// A checkpoint is what the registry states about its log and the states of all DIDs. Keep the newest one:
/// with --since, this command proves that the log still begins with what it was then, so the registry cannot
/// show you a second history.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry checkpoint https://registry.example --registry-key registry.pub --out newest
  dunlin registry checkpoint https://registry.example --registry-key registry.pub --since newest --out newest --force")]
pub(super) struct Checkpoint {
    /// The registry.
    #[arg(value_name = "URL")]
    registry: String,
    #[command(flatten)]
    access: AccessOptions,
    /// An earlier checkpoint of this registry.
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    /// Write the checkpoint into this file instead.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long, requires = "out")]
    force: bool,
}

/// Runs `dunlin registry checkpoint`.
pub(super) fn run(args: &Checkpoint, out: &mut dyn Write) -> Result<(), Error> {
    let client = args.access.client(&args.registry)?;
    if let Some(path) = &args.since {
        client.documents().accept(&earlier(path, &client)?, None);
    }
    let existing = Existing::from_force(args.force);
    if let Some(path) = &args.out {
        files::check_new(&[path], existing)?;
    }
    let checkpoint = block_on(client.checkpoint())?.map_err(|error| failed(&error))?.checkpoint;
    match &args.out {
        Some(path) => files::write(path, checkpoint.to_string().as_bytes(), Access::Public, existing)?,
        None => write!(out, "{checkpoint}")?,
    }
    Ok(())
}

/// The registry must have signed it, however long ago.
fn earlier(path: &Path, client: &RegistryClient) -> Result<SignedCheckpoint, Error> {
    let now = u64::try_from(client.now()).unwrap_or(0);
    let note = files::text(path)?;
    let signed = client.documents().trust().signed(&lists::provider(), note.as_bytes(), None, now);
    signed.map_err(|error| {
        Error::failed(path.display(), error, "give a checkpoint of this registry, as this command prints it")
    })
}
