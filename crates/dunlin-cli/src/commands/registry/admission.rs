//! `--admit`: the DIDs that a registry lets be created.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::files;
use dunlin_identity::{Did, TrustList};
use dunlin_registry::server::{Admission, Limits};
use dunlin_store::psk::file::Stamp;

/// The DIDs that the registry admits.
#[derive(ClapArgs)]
pub(super) struct Admit {
    /// Let only the DIDs in this file be created, one on each line; the file is read again when it changes
    /// [default: let strangers create DIDs]. `dunlin did create` without --registry-key prints a DID before
    /// `dunlin did publish` brings it to the registry.
    #[arg(long, value_name = "FILE")]
    admit: Option<PathBuf>,
}

/// The list, and the state of its file when it was read.
struct List {
    dids: BTreeSet<Did>,
    stamp: Option<Stamp>,
}

impl List {
    fn read(path: &Path) -> Result<Self, Error> {
        // Before the content: a change in between makes the next look read it again.
        let stamp = Stamp::of(path);
        let advice = "write a DID on each line";
        let refused = |why: &dyn std::fmt::Display| Error::failed(path.display(), why, advice);
        let list = TrustList::read(&files::text(path)?).map_err(|error| refused(&error))?;
        if list.roots().is_empty() {
            Ok(Self { dids: list.dids().cloned().collect(), stamp })
        } else {
            Err(refused(&"a creation does not prove membership"))
        }
    }
}

impl Admit {
    /// The limits of a server with this admission.
    pub(super) fn limits(&self) -> Result<Limits, Error> {
        let Some(path) = self.admit.clone() else { return Ok(Limits::default()) };
        let list = Mutex::new(List::read(&path)?);
        let admits = move |did: &Did| {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            if Stamp::of(&path) != list.stamp {
                match List::read(&path) {
                    Ok(read) => *list = read,
                    Err(error) => {
                        let [what, why, _] = error.parts();
                        tracing::warn!(file = what, why, "the list of admitted DIDs stays as it was");
                        list.stamp = Stamp::of(&path);
                    }
                }
            }
            list.dids.contains(did)
        };
        Ok(Limits { admission: Admission::Listed(Arc::new(admits)), ..Limits::default() })
    }
}
