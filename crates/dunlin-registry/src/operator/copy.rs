//! Copies of a registry: the log as public files, and backups for its operator.

use std::fs;
use std::io::Write;
use std::path::Path;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::transparency::SignedCheckpoint;

use crate::operator::audit::{Audit, Log, audit};
use crate::operator::database::{self, CHECKPOINT};
use crate::operator::error::RegistryError;
use crate::operator::reader;
use crate::operator::tile::Tile;

/// Writes the log into a directory as C2SP tlog-tiles lays it out, also while the registry runs. A web server
/// can serve the directory, and a mirror can compare it. A second export adds what is new; the checkpoint
/// comes last. Returns the number of entries.
///
/// # Errors
/// The database cannot be read, or a file cannot be written.
pub fn export(path: &Path, directory: &Path) -> Result<u64, RegistryError> {
    let mut connection = database::reader(path)?;
    let transaction = connection.transaction()?;
    let note = database::setting(&transaction, CHECKPOINT)?;
    let size = SignedCheckpoint::read(note.as_bytes())?.checkpoint().size;
    for tile in Tile::all(size) {
        let file = directory.join(tile.to_string());
        // A tile of a width never changes. An empty one is what a power failure has left of an export by an
        // earlier version.
        if fs::metadata(&file).is_ok_and(|file| file.len() > 0) {
            continue;
        }
        let missing = || RegistryError::damaged(format!("{tile} is missing"));
        write(&file, &reader::read(&transaction, &tile, size)?.ok_or_else(missing)?)?;
    }
    write(&directory.join("checkpoint"), note.as_bytes())?;
    Ok(size)
}

/// Replaces a file as a whole, so that no reader sees a part of it, also after a power failure.
fn write(path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
    let written = || {
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let mut file = tempfile::Builder::new().prefix(".dunlin-").tempfile_in(directory)?;
        file.write_all(bytes)?;
        fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        fs::File::open(directory)?.sync_all()
    };
    written().map_err(|error: std::io::Error| RegistryError::file(path, &error))
}

/// Writes a copy of the database into a new file, also while the registry runs. It has no secret.
///
/// # Errors
/// The database cannot be read, or the file exists or cannot be written.
pub fn backup(path: &Path, copy: &Path) -> Result<(), RegistryError> {
    let file = database::temporary(copy)?;
    write_copy(path, &file)?;
    database::persist(file, copy)
}

/// Writes the database as a reader sees it into an empty file, also the pages that SQLite has not yet moved
/// into its main file.
fn write_copy(path: &Path, into: &Path) -> Result<(), RegistryError> {
    let name = into.to_str().ok_or_else(|| RegistryError::File {
        path: into.display().to_string(),
        why: "the path is not UTF-8".to_owned(),
    })?;
    database::reader(path)?.execute("VACUUM INTO ?1", [name])?;
    Ok(())
}

/// Makes a registry's database from a backup, after an [`audit`]. `published` are checkpoints that others
/// have; give at least the newest one, from a client, mirror or witness. If the backup lacks operations that
/// the registry has acknowledged, the registry would sign a second history, and every verifier would refuse
/// it.
///
/// # Errors
/// [`RegistryError::OldBackup`], the errors of [`audit`]; the file `path` exists or cannot be written.
pub fn restore(
    provider: &CryptoProvider,
    copy: &Path,
    path: &Path,
    log: Log<'_>,
    published: &[SignedCheckpoint],
) -> Result<Audit, RegistryError> {
    let file = database::temporary(path)?;
    write_copy(copy, &file)?;
    // The audit is of the file that gets the name, not of one that may be another by then.
    let found = audit(provider, &file, log, published)?;
    database::persist(file, path)?;
    Ok(found)
}
