//! `dunlin registry audit`, `backup`, `restore` and `export`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use dunlin_command::error::{Error, count};
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::credential::unsigned;
use dunlin_identity::transparency::{NoteKey, RegistryTrust, SignedCheckpoint};
use dunlin_registry::audit::Log;
use dunlin_registry::{audit as audits, copy};
use dunlin_setup::did::now_s;

use super::{RegistryDirectory, failed};

/// Replay the whole log of a registry, and compare the database, every root and the given checkpoints with
/// the result.
///
/// It also works while the registry runs. The database of a replica has no signatures: give a checkpoint that
/// its nodes have proven.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry audit registry
  dunlin registry audit registry --checkpoint newest --checkpoint of-a-year-ago")]
pub(super) struct Audit {
    /// The directory of the registry.
    dir: PathBuf,
    /// An earlier checkpoint of the registry (`dunlin registry checkpoint`). May be repeated.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
}

/// Copy the database of a registry into a new file, also while the registry runs.
///
/// The copy has no secret. Keep registry.key and registry.pub elsewhere, too: without the key there is no
/// registry. A replica has genesis.json instead.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry backup registry --out backup.db")]
pub(super) struct Backup {
    /// The directory of the registry.
    dir: PathBuf,
    /// The file for the copy.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Make a registry's database from a backup, after an audit.
///
/// The directory has the registry's registry.key and registry.pub, and no database. The directory of a
/// replica has genesis.json; its CometBFT node then brings the blocks that the backup lacks. Give the newest
/// checkpoint that others have, of a client, a mirror or a witness: a backup without all published operations
/// would make the registry sign a second history.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry restore backup.db --checkpoint newest --out registry")]
pub(super) struct Restore {
    /// The backup.
    backup: PathBuf,
    /// A checkpoint that the registry has published (`dunlin registry checkpoint`). May be repeated.
    #[arg(long, value_name = "FILE", required_unless_present = "unpublished")]
    checkpoint: Vec<PathBuf>,
    /// No client, mirror or witness has a checkpoint that is newer than the backup. If that is wrong,
    /// verifiers will refuse the registry permanently.
    #[arg(long)]
    unpublished: bool,
    /// The directory of the registry.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Write the log into a directory as tiles (C2SP tlog-tiles), which any web server can serve and any mirror
/// can check.
///
/// It also works while the registry runs. A second export adds what is new.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry export registry --out tiles")]
pub(super) struct Export {
    /// The directory of the registry.
    dir: PathBuf,
    /// The directory for the tiles.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs `dunlin registry audit`.
pub(super) fn audit(args: &Audit, out: &mut dyn Write) -> Result<(), Error> {
    let place = RegistryDirectory::new(&args.dir);
    let database = place.database();
    let trust = place.trust()?;
    let published = checkpoints(&args.checkpoint, &trust, &place)?;
    let keys: Vec<_> = trust.logs().cloned().collect();
    let found = audits::audit(&place.provider, &database, log(&trust, &keys), &published);
    let found = found.map_err(|error| failed(&database, &error))?;
    writeln!(out, "{}: {}", args.dir.display(), sound(&found))?;
    Ok(())
}

/// Runs `dunlin registry backup`.
pub(super) fn backup(args: &Backup, out: &mut dyn Write) -> Result<(), Error> {
    files::check_new(&[&args.out], Existing::Keep)?;
    let database = RegistryDirectory::new(&args.dir).database();
    copy::backup(&database, &args.out).map_err(|error| failed(&database, &error))?;
    writeln!(out, "{}: written", args.out.display())?;
    Ok(())
}

/// Runs `dunlin registry restore`.
pub(super) fn restore(args: &Restore, out: &mut dyn Write) -> Result<(), Error> {
    let place = RegistryDirectory::new(&args.out);
    let database = place.database();
    let trust = place.trust()?;
    files::check_new(&[&database], Existing::Keep)?;
    let published = checkpoints(&args.checkpoint, &trust, &place)?;
    let keys: Vec<_> = trust.logs().cloned().collect();
    let found = copy::restore(&place.provider, &args.backup, &database, log(&trust, &keys), &published);
    let found = found.map_err(|error| failed(&args.backup, &error))?;
    writeln!(out, "{}: restored: {}", args.out.display(), sound(&found))?;
    Ok(())
}

/// Runs `dunlin registry export`.
pub(super) fn export(args: &Export, out: &mut dyn Write) -> Result<(), Error> {
    let place = RegistryDirectory::new(&args.dir);
    let database = place.database();
    if place.trust()?.log().is_none() {
        let why = "the database of a replica has no signed checkpoint";
        let advice = "mirror the tiles that its HTTPS server answers with";
        return Err(Error::failed(args.dir.display(), why, advice));
    }
    let entries = copy::export(&database, &args.out).map_err(|error| failed(&database, &error))?;
    // Readers of the tiles need the key, which is public.
    let keys = files::read(&place.public())?;
    files::write(&args.out.join("registry.pub"), &keys, Access::Public, Existing::Replace)?;
    writeln!(out, "{}: {entries} entries", args.out.display())?;
    Ok(())
}

/// The signers of the log in the directory. `keys` are the registry's keys; a replicated registry has none.
fn log<'l>(trust: &'l RegistryTrust, keys: &'l [NoteKey]) -> Log<'l> {
    if keys.is_empty() { Log::Replicated(trust.origin()) } else { Log::Signed(keys) }
}

/// Reads checkpoints that the registry has signed.
fn checkpoints(
    paths: &[PathBuf],
    trust: &RegistryTrust,
    place: &RegistryDirectory,
) -> Result<Vec<SignedCheckpoint>, Error> {
    let now_s = unsigned(now_s());
    let read = |path: &PathBuf| {
        let advice = "give a checkpoint as `dunlin registry checkpoint` prints it";
        let note = files::text(path)?;
        let read = match trust.log() {
            Some(_) => SignedCheckpoint::read(note.as_bytes()),
            None => trust.signed(&place.provider, note.as_bytes(), None, now_s),
        };
        read.map_err(|error| Error::failed(path.display(), error, advice))
    };
    paths.iter().map(read).collect()
}

/// The line about an audit that found no fault.
fn sound(found: &audits::Audit) -> String {
    format!("sound: {}, {}", count(found.operations, "operation"), count(found.dids, "DID"))
}
