//! `dunlin did members`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::Members as List;
use dunlin_setup::did::written_out;

use crate::did::file;
use crate::tls::lists;

/// Print the root over the DIDs on a list, a line for --vc-peers or --dids, and write the proof of each.
///
/// Peers that trust the root need no list of all members: a member sends its proof along (--membership). Only
/// a did:dunlin in a registry can do so. A new list needs new proofs for all members.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin did members devices --out proofs >> peers")]
pub(super) struct Members {
    /// The list: a DID on each line.
    #[arg(value_name = "FILE")]
    list: PathBuf,
    /// The new file of the proofs: a DID and its proof in hexadecimal on each line. They are public.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Runs `dunlin did members`.
pub(super) fn run(args: &Members, out: &mut dyn Write) -> Result<(), Error> {
    let existing = Existing::from_force(args.force);
    files::check_new(&[&args.out], existing)?;
    let list = written_out(&file(&args.list))?;
    let provider = lists::provider();
    if let Some(other) = list.dids().find(|did| did.method() != "dunlin") {
        let why = format!("{other} is in no registry, with whose proofs that of its membership would travel");
        return Err(Error::failed(args.list.display(), why, "list DIDs of did:dunlin"));
    }
    let members = List::new(&provider, list.dids().cloned());
    let failed =
        |error: &dyn std::fmt::Display| Error::failed(args.list.display(), error, "correct the list");
    let mut proofs = String::new();
    for did in list.dids() {
        let proof = members.proof(&provider, did).map_err(|error| failed(&error))?;
        proofs += &format!("{did} {}\n", base16ct::lower::encode_string(&proof));
    }
    let root = members.root(&provider).map_err(|error| failed(&error))?;
    files::write(&args.out, proofs.as_bytes(), Access::Public, existing)?;
    writeln!(out, "{root}")?;
    Ok(())
}
