//! `dunlin registry`: makes, serves, checks and copies a registry of did:dunlin.

mod admission;
mod checkpoint;
mod copies;
mod init;
mod rekey;
mod replica;
mod serve;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_command::error::Error;
use dunlin_command::files;
use dunlin_identity::transparency::{NoteKey, RegistryTrust};
use dunlin_registry::RegistryError;
use dunlin_setup::files::signing_key;

use crate::did::file;
use crate::registry;
use crate::tls::lists;

const EXAMPLES: &str = "\
Examples:
  dunlin registry init --origin registry.example/1 --out registry
  dunlin registry serve registry --accept 0.0.0.0:8443 --cert server.pem --key server.key
  dunlin did create --method dunlin --registry https://registry.example:8443 --registry-key registry.pub --out device
  dunlin registry checkpoint https://registry.example:8443 --registry-key registry.pub --out newest
  dunlin registry audit registry --checkpoint newest
  dunlin registry backup registry --out backup.db
  dunlin registry restore backup.db --checkpoint newest --out restored
  dunlin registry export registry --out tiles
  dunlin registry rekey registry
  dunlin registry watch init --name watch.example/1 --registry-key registry.pub --out watch
  dunlin registry replica init --genesis genesis.json --out replica
  dunlin registry replica run replica --accept 0.0.0.0:8443 --cert server.pem --key server.key

A registry is a directory. It contains the database (registry.db), the private key (registry.key), and the file that verifiers need
(registry.pub): the registry's keys, one on each line. Add the keys of other witnesses there, and a line \"needed 2\" if two must sign.
A line \"watch KEY\" has the key of one that replays the log, and \"needed-watch 2\" says that two of these must sign.
docs/registry.md describes what a registry promises.";

/// Run a registry: the root of trust that orders the operations of did:dunlin.
#[derive(ClapArgs)]
#[command(arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(init::Init),
    Serve(serve::Serve),
    Checkpoint(checkpoint::Checkpoint),
    Audit(copies::Audit),
    Backup(copies::Backup),
    Restore(copies::Restore),
    Export(copies::Export),
    Rekey(rekey::Rekey),
    Watch(watch::Args),
    Replica(replica::Args),
}

/// Runs `dunlin registry`.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.command {
        Command::Init(args) => init::run(&args, out),
        Command::Serve(args) => serve::run(&args),
        Command::Checkpoint(args) => checkpoint::run(&args, out),
        Command::Audit(args) => copies::audit(&args, out),
        Command::Backup(args) => copies::backup(&args, out),
        Command::Restore(args) => copies::restore(&args, out),
        Command::Export(args) => copies::export(&args, out),
        Command::Rekey(args) => rekey::run(&args, out),
        Command::Watch(args) => watch::run(&args, out),
        Command::Replica(args) => replica::run(&args, out),
    }
}

/// The directory of a registry.
struct RegistryDirectory {
    directory: PathBuf,
    provider: Arc<CryptoProvider>,
}

impl RegistryDirectory {
    fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), provider: Arc::new(lists::provider()) }
    }

    fn database(&self) -> PathBuf {
        self.directory.join("registry.db")
    }

    fn key(&self) -> PathBuf {
        self.directory.join("registry.key")
    }

    /// The key that is about to replace [`Self::key`] (`dunlin registry rekey`).
    fn next_key(&self) -> PathBuf {
        self.directory.join("next.key")
    }

    fn watch_key(&self) -> PathBuf {
        self.directory.join("watch.key")
    }

    /// The line of a watch for registry.pub.
    fn watch_public(&self) -> PathBuf {
        self.directory.join("watch.pub")
    }

    /// Reads a key that signs for the registry or for a watch. A file that other users can access is refused.
    fn signing_key(&self, path: &Path) -> Result<Arc<dyn SigningKey>, Error> {
        files::check_private(path)?;
        Ok(signing_key(&file(path), &self.provider)?)
    }

    fn public(&self) -> PathBuf {
        self.directory.join("registry.pub")
    }

    /// The copy of the chain's genesis file, in the directory of a replica.
    fn genesis(&self) -> PathBuf {
        self.directory.join("genesis.json")
    }

    /// The trust that verifiers have in this registry: in the keys of registry.pub, or in the validators of a
    /// replica's chain.
    fn trust(&self) -> Result<RegistryTrust, Error> {
        let public = self.public();
        let genesis = self.genesis();
        let is_replica = !public.exists() && genesis.exists();
        registry::trust(if is_replica { &genesis } else { &public }, &self.provider)
    }

    /// The registry's own key, of those that verifiers know.
    fn own<'a>(&self, trust: &'a RegistryTrust) -> Result<&'a NoteKey, Error> {
        let advice = "give the directory of a registry with one operator";
        trust
            .log()
            .ok_or_else(|| Error::failed(self.public().display(), "it has no key of a registry", advice))
    }
}

/// Explains why a registry or a copy of it cannot be used.
fn failed(path: &Path, error: &RegistryError) -> Error {
    let advice = match error {
        RegistryError::InUse(_) => "stop the other process first",
        RegistryError::OtherKey { .. } => {
            "give the directory whose registry.key and registry.pub, or genesis.json, belong to the database"
        }
        RegistryError::Foreign(_) => {
            "give a registry that `dunlin registry init` or `replica init` has made, or a backup of one"
        }
        RegistryError::File { .. } | RegistryError::Database(_) => {
            "check the path, the disk and the permissions"
        }
        RegistryError::Damaged(_) | RegistryError::OldBackup { .. } => {
            "do not run a registry on this database"
        }
        RegistryError::Checkpoint(_) => "give checkpoints of this registry (`dunlin registry checkpoint`)",
        _ => "see docs/registry.md",
    };
    Error::failed(path.display(), error, advice)
}
