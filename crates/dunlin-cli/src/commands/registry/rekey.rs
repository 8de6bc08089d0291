//! `dunlin registry rekey`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::transparency::NoteKey;
use dunlin_pki::{KeyPair, KeyType};
use dunlin_registry::Settings;

use super::RegistryDirectory;
use crate::did::key_of;

/// Replace the key of a registry, in two steps.
///
/// The first step makes a new key (next.key) and adds its lines to registry.pub. Restart the registry, which
/// then signs with both keys, and give registry.pub to all verifiers and witnesses. When all of them have it,
/// --finish removes the old key. A registry whose key was stolen needs another origin: its thief can sign
/// whatever the log says.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry rekey registry
  dunlin registry rekey registry --finish")]
pub(super) struct Rekey {
    /// The directory of the registry.
    dir: PathBuf,
    /// Remove the old key, after all verifiers have the new one.
    #[arg(long)]
    finish: bool,
}

/// Runs `dunlin registry rekey`.
pub(super) fn run(args: &Rekey, out: &mut dyn Write) -> Result<(), Error> {
    let place = RegistryDirectory::new(&args.dir);
    let trust = place.trust()?;
    place.own(&trust)?;
    let key = place.key();
    let next = place.next_key();
    let public = place.public();
    let keys = |key| {
        let keys = Settings::new(place.provider.clone(), trust.origin(), key).keys();
        keys.map_err(|error| Error::failed(public.display(), error, "give the directory of a registry"))
    };
    let text = files::text(&public)?;
    if args.finish {
        if !next.exists() {
            let why = "there is no new key";
            return Err(Error::failed(next.display(), why, "make one without --finish first"));
        }
        let old: [NoteKey; 2] = keys(place.signing_key(&key)?)?;
        let is_old = |line: &&str| old.iter().any(|old| old.to_string() == line.trim());
        let kept: String =
            text.lines().filter(|line| !is_old(line)).map(|line| format!("{line}\n")).collect();
        files::write(&public, kept.as_bytes(), Access::Public, Existing::Replace)?;
        std::fs::rename(&next, &key).map_err(|error| files::unwritable(&key, &error))?;
        write!(out, "{kept}")?;
        return Ok(());
    }
    files::check_new(&[&next], Existing::Keep)?;
    let pair = KeyPair::generate(KeyType::Ed25519)?;
    let [log, witness] = keys(key_of(&pair, &next, &place.provider)?)?;
    let text = format!("{}\n# The next key of the registry.\n{log}\n{witness}\n", text.trim_end());
    files::write(&next, pair.to_pem()?.as_bytes(), Access::Secret, Existing::Keep)?;
    files::write(&public, text.as_bytes(), Access::Public, Existing::Replace)?;
    write!(out, "{text}")?;
    Ok(())
}
