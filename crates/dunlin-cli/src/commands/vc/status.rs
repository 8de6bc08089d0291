//! `dunlin vc revoke`, and the file of an issuer's status list.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, value_parser};
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::{Error, count};
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::Relationship;
use dunlin_identity::credential::status::{Bitstring, StatusEntry, StatusLists, StatusPurpose};
use dunlin_identity::credential::{Contexts, CredentialError, Issuer, Seconds};
use dunlin_setup::did::{OwnDid, credential, now_s};

use super::time_text;
use crate::did;
use crate::tls::lists;

/// For how many days a status list is valid, unless the issuer says otherwise.
const LIST_DAYS: u32 = 30;

/// How often a free place is sought. In a list that is half full, the search fails once in 2^128 times.
const ATTEMPTS: usize = 128;

/// Revoke credentials permanently in the issuer's status list, or renew the list.
///
/// Give the new list to every peer that verifies credentials, or publish it under its URL. Verifiers refuse a
/// list that is older than 24 hours: run this command at least once a day, without credentials if there is
/// nothing to revoke.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin vc revoke device.vc --issuer operator --status-list status.vc
  dunlin vc revoke --issuer operator --status-list status.vc")]
pub(super) struct Revoke {
    /// The credentials to revoke.
    #[arg(value_name = "FILE")]
    credentials: Vec<PathBuf>,
    /// The DID of the issuer: its directory, or the key of a did:key.
    #[arg(long, value_name = "DIR|FILE")]
    issuer: PathBuf,
    /// The status list.
    #[arg(long, value_name = "FILE")]
    status_list: PathBuf,
    /// For how many days the list is valid. Verifiers want a newer one each day nevertheless.
    #[arg(long, value_name = "N", default_value_t = LIST_DAYS, value_parser = value_parser!(u32).range(1..=3650))]
    days: u32,
}

/// Runs `dunlin vc revoke`.
pub(super) fn revoke(args: &Revoke, out: &mut dyn Write) -> Result<(), Error> {
    let provider = lists::provider();
    let issuer = OwnDid::load(&did::file(&args.issuer), &provider)?;
    // Another run must not put its older list in the place of this one.
    let _lock = files::lock_directory_of(&args.status_list)?;
    let mut list = List::read(&args.status_list, &issuer, &provider)?;
    let mut before = 0;
    for path in &args.credentials {
        let credential = credential(&did::file(path))?;
        // Others' credentials may name places in this list, too.
        let entry = list.entry(0);
        let now = now_s();
        let verified = issuer
            .verify(|verifier| verifier.statuses(&provider, &credential, now))
            .map_err(|error| Error::failed(path.display(), error, "give a credential of this issuer"))?;
        let mut here =
            verified.into_iter().filter(|own| own.list == entry.list && own.purpose == entry.purpose);
        let own = here.next().ok_or_else(|| {
            let why = format!("it has no place in the status list {}", entry.list);
            Error::failed(path.display(), why, "issue it with --status-list, or give another list")
        })?;
        if !list.set(own.index)? {
            before += 1;
        }
    }
    let until = list.write(args.days, &issuer, &provider)?;
    let credentials = |number: u64| count(number, "credential");
    let revoked = match (args.credentials.len() as u64, before) {
        (0, _) => String::new(),
        (all, 0) => format!(", revoked {}", credentials(all)),
        (all, before) => {
            format!(
                ", revoked {}; {} had been revoked before",
                credentials(all - before),
                credentials(before)
            )
        }
    };
    let path = args.status_list.display();
    writeln!(out, "{path}: status list, renewed until {}{revoked}", time_text(until))?;
    Ok(())
}

/// An issuer's status list, in a file.
pub(super) struct List {
    path: PathBuf,
    url: String,
    bits: Bitstring,
    /// When the present list was made.
    made: Option<Seconds>,
    /// Whether the issuer has rotated the key of the present list, so that verifiers refuse it.
    pub(super) is_outdated: bool,
}

impl List {
    /// Reads a list of this issuer.
    pub(super) fn read(path: &Path, issuer: &OwnDid, provider: &CryptoProvider) -> Result<Self, Error> {
        let list = did::own_status_list(path, issuer, provider)?;
        let url = list.url().to_owned();
        let bits = list.bits().clone();
        let is_outdated = !list.is_by(&issuer.document);
        Ok(Self { path: path.to_owned(), url, bits, made: Some(list.made()), is_outdated })
    }

    /// A new list, which the issuer will publish at `url`.
    pub(super) fn new(path: &Path, url: &str) -> Self {
        Self {
            path: path.to_owned(),
            url: url.to_owned(),
            bits: Bitstring::default(),
            made: None,
            is_outdated: false,
        }
    }

    /// The entry of a credential.
    pub(super) fn entry(&self, index: u64) -> StatusEntry {
        StatusEntry { list: self.url.clone(), index, purpose: StatusPurpose::Revocation }
    }

    /// Sets the bit of a credential. Returns whether it was not set before.
    pub(super) fn set(&mut self, index: u64) -> Result<bool, Error> {
        let set = self.bits.get(index).and_then(|is_set| self.bits.set(index, true).map(|()| !is_set));
        set.map_err(|error| Error::failed(self.path.display(), error, "give another list"))
    }

    /// Takes a free place, at random, and notes it in a file beside the list.
    pub(super) fn take(&self, provider: &CryptoProvider) -> Result<u64, Error> {
        let mut path = OsString::from(&self.path);
        path.push(".taken");
        let path = PathBuf::from(path);
        let damaged = |error: &dyn std::fmt::Display| {
            Error::failed(path.display(), error, "restore the file from a backup, or start another list")
        };
        let mut taken = match path.symlink_metadata() {
            Err(_) => Bitstring::new(self.bits.entries()).map_err(|error| damaged(&error))?,
            Ok(_) => {
                let content = files::read(&path)?;
                let text = str::from_utf8(content.trim_ascii()).map_err(|error| damaged(&error))?;
                Bitstring::decode(text).map_err(|error| damaged(&error))?
            }
        };
        for _ in 0..ATTEMPTS {
            let mut random = [0; 8];
            let drawn = provider.random.fill(&mut random);
            drawn.map_err(|_| Error::failed("the list", "no randomness", "try again"))?;
            let index = u64::from_be_bytes(random) % self.bits.entries();
            if !taken.get(index).map_err(|error| damaged(&error))? {
                taken.set(index, true).map_err(|error| damaged(&error))?;
                files::write(&path, (taken.encode() + "\n").as_bytes(), Access::Public, Existing::Replace)?;
                return Ok(index);
            }
        }
        let why = "almost every place in it is taken";
        Err(Error::failed(self.path.display(), why, "start another list, with another --status-url"))
    }

    /// Signs the list and writes it. Returns until when it is valid.
    pub(super) fn write(
        &self,
        days: u32,
        issuer: &OwnDid,
        provider: &CryptoProvider,
    ) -> Result<Seconds, Error> {
        let now = now_s();
        if let Some(made) = self.made.filter(|made| *made > now) {
            let why = format!("it was made at {}, after the present time", time_text(made));
            return Err(Error::failed(self.path.display(), why, "set the clock"));
        }
        let failed = |error: CredentialError| Error::failed(self.path.display(), error, "report it");
        let until = now + Seconds::from(days) * 24 * 3600;
        let credential = self.bits.credential(issuer.did(), &self.url, StatusPurpose::Revocation, now, until);
        let method = issuer.method(Relationship::AssertionMethod)?;
        let signer = Issuer { provider, signer: &*issuer.key, method: &method };
        let text = signer.issue(&credential.map_err(failed)?, &Contexts::default(), now).map_err(failed)?;
        files::write(&self.path, (text + "\n").as_bytes(), Access::Public, Existing::Replace)?;
        Ok(until)
    }

    /// As [`Self::write`], for the usual time.
    pub(super) fn write_default(&self, issuer: &OwnDid, provider: &CryptoProvider) -> Result<(), Error> {
        self.write(LIST_DAYS, issuer, provider).map(drop)
    }
}

/// The list in a file, as verifiers keep it.
pub(super) fn lists_of(
    path: Option<&Path>,
    issuer: &OwnDid,
    provider: &CryptoProvider,
) -> Result<StatusLists, Error> {
    let mut lists = StatusLists::default();
    if let Some(path) = path {
        let list = did::own_status_list(path, issuer, provider)?;
        lists.insert(list).map_err(|error| Error::failed(path.display(), error, "report it"))?;
    }
    Ok(lists)
}
