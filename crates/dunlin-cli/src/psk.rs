//! Reads and changes files and databases of pre-shared keys, and turns their faults into errors of one line.

use std::path::Path;
use std::time::SystemTime;

use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_store::psk::file::{Format, parse};
use dunlin_store::psk::sqlite::SqlitePsks;
use dunlin_store::psk::{Identity, PskError, PskRecords, PskSet, ShortKeys, psktool, toml};
use dunlin_store::text;

use crate::did::file;

/// Why a change was not made.
pub(crate) enum Refused {
    /// The keys do not allow it.
    Psk(PskError),
    /// Something else went wrong.
    Other(Error),
}

impl From<PskError> for Refused {
    fn from(error: PskError) -> Self {
        Self::Psk(error)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// All keys of a file or a database. Warns if other users can read them.
pub(crate) fn read(path: &Path, short: ShortKeys) -> Result<PskSet, Error> {
    files::warn_of_access(path, "the keys");
    Ok(dunlin_setup::psk::read(&file(path), short)?)
}

/// Changes a file or a database; creates it if it does not exist and `create` is set. The change is atomic,
/// and excludes other changes by this program.
pub(crate) fn change<T>(
    path: &Path,
    create: bool,
    change: impl FnOnce(&mut dyn PskRecords) -> Result<T, Refused>,
) -> Result<T, Error> {
    let refused = |why| match why {
        Refused::Psk(error) => unusable(path, &error),
        Refused::Other(error) => error,
    };
    let _lock = files::lock_directory_of(path)?;
    if !create && !path.exists() {
        // Reading the missing file gives the error.
        files::read(path)?;
    }
    let format = Format::of(path);
    if format == Format::Sqlite {
        let psks = SqlitePsks::open_or_create(path).map_err(|e| unusable(path, &e))?;
        return psks.change(change).map_err(refused);
    }
    let before = if path.exists() { files::read(path)? } else { Default::default() };
    // Keep existing keys of any length.
    let (mut set, _) =
        parse(&before, format, directory_of(path), ShortKeys::Allow).map_err(|e| unusable(path, &e))?;
    let result = change(&mut set).map_err(refused)?;
    let text = match format {
        Format::Toml => {
            let before = text::text(&before).unwrap_or_default();
            toml::render(&before, directory_of(path), &set)
        }
        _ => psktool::render(&set).map_err(PskError::from),
    };
    let text = text.map_err(|e| unusable(path, &e))?;
    files::write(path, text.as_bytes(), Access::Secret, Existing::Replace)?;
    Ok(result)
}

/// The error of one line for a key, a line or a store that cannot be used.
pub(crate) fn unusable(path: &Path, error: &PskError) -> Error {
    Error::failed(path.display(), error, error.fault.advice())
}

/// Reads the identity in an argument.
pub(crate) fn identity(text: &str, what: &str) -> Result<Identity, Error> {
    Identity::parse(text.as_bytes()).map_err(|fault| Error::usage(what, &fault, fault.advice()))
}

/// The time in seconds since 1970, by the system's clock.
pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}
