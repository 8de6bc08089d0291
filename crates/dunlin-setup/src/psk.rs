//! Pre-shared keys in files and databases.

use std::path::Path;
use std::sync::Arc;

use dunlin::Now;
use dunlin::auth::{FindPsk, Psk};
use dunlin::crypto::CryptoProvider;
use dunlin_store::psk::file::{self, Format, PskFile};
use dunlin_store::psk::sqlite::{LiveSqlitePsks, SqlitePsks};
use dunlin_store::psk::{self, Identity, PskError, PskRecord, PskSet, ShortKeys, State, lifecycle};

use crate::did::now_s;
use crate::files::{content_up_to, in_file};
use crate::place::{Fault, Field, FileField};

/// The largest file of keys, in bytes: enough for half a million.
const MAX_FILE: u64 = 64 << 20;

/// The source of a server's keys.
pub enum Psks {
    /// Keys that were read once, from the command line or a pipe.
    Fixed(PskSet, Arc<CryptoProvider>),
    /// A key file. Changes apply to the next handshake.
    File(PskFile),
    /// A key database. Changes apply to the next handshake.
    Database(LiveSqlitePsks),
}

impl Psks {
    /// Opens the file or database of keys, and returns the keys in it, too: of a database, perhaps why they
    /// cannot be read now. `report` gets later faults, each with its consequence.
    ///
    /// # Errors
    /// The keys of a file cannot be read, or there is no database.
    pub fn open(
        field: &FileField,
        short: ShortKeys,
        provider: &Arc<CryptoProvider>,
        report: impl Fn(&PskError, &str) + Send + Sync + 'static,
    ) -> Result<(Self, Result<PskSet, Fault>), Fault> {
        let path = &field.value;
        let failed = |error| unusable(field, &error);
        if Format::of(path) == Format::Sqlite && path.exists() {
            let psks = SqlitePsks::open(path).map_err(failed)?;
            let keys = psks.keys().map_err(failed);
            let report = move |error: &_| report(error, "the server refuses all keys until it can be read");
            let live = LiveSqlitePsks::new(psks, provider.clone(), Box::new(report));
            return Ok((Self::Database(live), keys));
        }
        if !path.is_file() {
            // A pipe can be read only once. A missing file gives the usual fault.
            let keys = read(field, short)?;
            return Ok((Self::Fixed(keys.clone(), provider.clone()), Ok(keys)));
        }
        let report = move |error: &_| report(error, "the previous keys stay in force");
        let file = PskFile::open(path, short, provider.clone(), Box::new(report)).map_err(failed)?;
        let keys = file.keys();
        Ok((Self::File(file), Ok(keys)))
    }

    /// The record of this identity, valid or not.
    pub fn record(&self, identity: &[u8]) -> Option<PskRecord> {
        match self {
            Self::Fixed(set, _) => set.record(identity).cloned(),
            Self::File(file) => file.record(identity),
            Self::Database(database) => database.record(identity),
        }
    }

    /// The identity hint for TLS 1.2 clients; empty without a hint.
    pub fn identity_hint(&self) -> Vec<u8> {
        match self {
            Self::Fixed(set, _) => set.hint().unwrap_or_default().to_vec(),
            Self::File(file) => file.identity_hint(),
            Self::Database(database) => database.identity_hint(),
        }
    }
}

impl FindPsk for Psks {
    fn find(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>> {
        match self {
            Self::Fixed(set, provider) => {
                let get = |identity: &[u8]| Ok::<_, PskError>(set.record(identity).cloned());
                psk::find(identity, now, provider, get).ok().flatten()
            }
            Self::File(file) => file.find(identity, now),
            Self::Database(database) => database.find(identity, now),
        }
    }

    fn find_for_thaw(&self, identity: &[u8], now: Now) -> Result<Option<Arc<Psk>>, dunlin::Error> {
        match self {
            Self::Database(database) => database.find_for_thaw(identity, now),
            // Keys that were read once, or that stay in force, are always at hand.
            Self::Fixed(..) | Self::File(_) => Ok(self.find(identity, now)),
        }
    }
}

/// The fault of a file or database of keys.
pub fn unusable(field: &FileField, error: &PskError) -> Fault {
    in_file(field, error, error.fault.advice())
}

/// All keys of a file or a database.
///
/// # Errors
/// The keys cannot be read.
pub fn read(field: &FileField, short: ShortKeys) -> Result<PskSet, Fault> {
    let path = &field.value;
    let set = match Format::of(path) {
        Format::Sqlite if path.exists() => SqlitePsks::open(path).and_then(|psks| psks.keys()),
        format => {
            let content = content_up_to(field, MAX_FILE)?;
            let is_pipe = !path.is_file() || path.starts_with("/dev");
            let format = if is_pipe { Format::of_text(&content) } else { format };
            let directory = path.parent().unwrap_or(Path::new(""));
            file::parse(&content, format, directory, short).map(|(set, _)| set)
        }
    };
    set.map_err(|error| unusable(field, &error))
}

/// The key of a client among the keys of a file: that of the identity or device `wanted`, or the only one.
///
/// # Errors
/// There is no such valid key, or there are several and none is wanted.
pub fn choose(field: &FileField, keys: &PskSet, wanted: Option<&Field<String>>) -> Result<PskRecord, Fault> {
    let now_s = u64::try_from(now_s()).unwrap_or(0);
    let is_valid = |record: &&PskRecord| record.state(now_s) == State::Valid;
    let current = |who: &str| lifecycle::current(keys, who, now_s).map_err(|e| unusable(field, &e));
    if let Some(Field { value, place }) = wanted {
        // During an overlap this is the wanted key, afterwards the device's current one.
        let identity = Identity::parse(value.as_bytes());
        let identity = identity.map_err(|fault| place.fault(fault.to_string(), fault.advice()))?;
        return match keys.record(identity.as_bytes()).filter(is_valid) {
            Some(record) => Ok(record.clone()),
            None => current(value),
        };
    }
    let mut valid = keys.iter().filter(is_valid);
    let is_one_device = |first: &PskRecord| keys.iter().all(|r| r.name.is_some() && r.name == first.name);
    match (valid.next(), valid.next(), keys.iter().next()) {
        (Some(only), None, _) => Ok(only.clone()),
        (Some(first), Some(_), _) if !is_one_device(first) => {
            let what = format!("{} has several keys", field.value.display());
            let setting = if field.place.is_option() { "--psk-identity" } else { "identity" };
            Err(field.place.fault(what, format!("choose one with {setting}")))
        }
        // If none is valid, the error names the first.
        (_, _, Some(first)) => current(&first.identity.to_string()),
        (_, _, None) => Err(no_key(field)),
    }
}

/// The fault of a file without keys.
pub fn no_key(field: &FileField) -> Fault {
    in_file(field, &"no key in it", "add one with `dunlin psk`")
}

#[cfg(test)]
mod tests {
    use dunlin_store::psk::sqlite::SqlitePsks;

    use super::*;

    #[test]
    fn a_database_that_cannot_be_read_says_nothing_about_the_key_of_a_frozen_association() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.db");
        let keys = SqlitePsks::open_or_create(&path).unwrap();
        let provider = Arc::new(dunlin_awslc::provider());
        let psks = Psks::Database(LiveSqlitePsks::new(keys, provider, Box::new(|_| {})));
        let is_found = || psks.find_for_thaw(b"sensor", dunlin_tokio::now()).map(|key| key.is_some());
        assert_eq!(is_found(), Ok(false));
        std::fs::write(&path, "no database").unwrap();
        assert!(matches!(is_found(), Err(dunlin::Error::Internal(_))));
    }
}
