//! The registry's SQLite file: how it is created, opened and read.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dunlin_identity::method::dunlin::State;
use dunlin_identity::transparency::{Hasher, MapLeaf, StateMap};
use dunlin_identity::{DidDocument, Sha256Hash};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row};

use crate::operator::error::RegistryError;

/// "DUNR" tells our databases from other programs' (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x4455_4e52;

/// The version of the tables (`PRAGMA user_version`). The logs of versions 1 and 2 do not have the roots of
/// the state map.
const VERSION: i64 = 3;

/// How long a connection waits for another one, for example for a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// `entry` and `tile` are the log, `did` and `document` the state, and `history` has the entry of each
/// operation, by the DID's place in the state map and the number among the DID's operations. A document stays
/// when a newer one replaces it, because a reader may still answer from an earlier checkpoint. `room` is the
/// space reserved for further operations of the DID, in bytes, and `time` the time of the latest one, in
/// seconds since 1970.
const SCHEMA: &str = "
CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE entry (number INTEGER NOT NULL PRIMARY KEY, content BLOB NOT NULL) STRICT;
CREATE TABLE tile (
    level INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hashes BLOB NOT NULL,
    PRIMARY KEY (level, number)
) STRICT;
CREATE TABLE document (hash BLOB NOT NULL PRIMARY KEY, text BLOB NOT NULL) STRICT;
CREATE TABLE did (
    key BLOB NOT NULL PRIMARY KEY,
    did TEXT NOT NULL,
    document BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    active INTEGER NOT NULL,
    latest BLOB NOT NULL,
    entry INTEGER NOT NULL,
    room INTEGER NOT NULL,
    time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE history (
    key BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (key, sequence)
) STRICT, WITHOUT ROWID;
";

/// SQLite's integers are signed; no number in a registry exceeds 2^63 - 1.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from the database. A negative one, which we never write, becomes 0.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Checks that the database has the tables of a registry and nothing else. A backup needs no secret, so its
/// keeper could have put in a trigger that changes later writes.
pub(crate) fn check_schema(connection: &Connection) -> Result<(), RegistryError> {
    type Item = (String, String, Option<String>);
    // `ANALYZE` adds these tables. Anything else can have such a name as well, by `PRAGMA writable_schema`.
    let sql = "SELECT type, name, sql FROM sqlite_schema
        WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4')) ORDER BY type, name";
    let items = |connection: &Connection| -> rusqlite::Result<Vec<Item>> {
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect()
    };
    let expected = Connection::open_in_memory()?;
    expected.execute_batch(SCHEMA)?;
    let expected = items(&expected)?;
    let found = items(connection)?;
    let stray = found.iter().find(|item| !expected.contains(item));
    match stray.or_else(|| expected.iter().find(|item| !found.contains(item))) {
        None => Ok(()),
        Some((typ, name, _)) => {
            Err(RegistryError::damaged(format!("its {typ} {name:?} is not that of a registry")))
        }
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Opens a connection to an existing database of a registry.
fn connect(path: &Path, access: OpenFlags) -> Result<Connection, RegistryError> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    match pragma(&connection, "application_id") {
        Ok(APPLICATION_ID) => {}
        Err(error) if error.sqlite_error_code() != Some(ErrorCode::NotADatabase) => return Err(error.into()),
        _ => return Err(RegistryError::Foreign(path.display().to_string())),
    }
    match pragma(&connection, "user_version")? {
        VERSION => Ok(connection),
        version if version < VERSION => Err(RegistryError::Older(version)),
        version => Err(RegistryError::Newer(version)),
    }
}

/// A connection that only reads.
pub(crate) fn reader(path: &Path) -> Result<Connection, RegistryError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// The connection that writes. A commit that it reports survives a power failure, and readers go on during a
/// transaction.
pub(crate) fn writer(path: &Path) -> Result<Connection, RegistryError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    check_schema(&connection)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Creates a database under a temporary name, lets `fill` write into it, and renames it. So no other process
/// sees a partial one.
pub(crate) fn create(
    path: &Path,
    fill: impl FnOnce(&mut Connection) -> Result<(), RegistryError>,
) -> Result<(), RegistryError> {
    let file = temporary(path)?;
    let mut connection = Connection::open(&file)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    connection.execute_batch(SCHEMA)?;
    fill(&mut connection)?;
    connection.close().map_err(|(_, error)| error)?;
    persist(file, path)
}

/// A new empty file beside `path`, with mode 0600.
pub(crate) fn temporary(path: &Path) -> Result<tempfile::TempPath, RegistryError> {
    let file = tempfile::Builder::new()
        .prefix(".dunlin-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory(path));
    Ok(file.map_err(|error| RegistryError::file(path, &error))?.into_temp_path())
}

/// Brings a complete file to the disk and gives it its name, unless another file has it, or an earlier
/// database has left a journal there, which SQLite would play back into this one.
pub(crate) fn persist(file: tempfile::TempPath, path: &Path) -> Result<(), RegistryError> {
    let failed = |error: std::io::Error| RegistryError::file(path, &error);
    for suffix in ["-wal", "-shm", "-journal"] {
        let name = beside(path, suffix);
        if name.symlink_metadata().is_ok() {
            let why = "an earlier database has left it; move it away together with that database".to_owned();
            return Err(RegistryError::File { path: name.display().to_string(), why });
        }
    }
    File::open(&file).and_then(|file| file.sync_all()).map_err(failed)?;
    file.persist_noclobber(path).map_err(|error| failed(error.error))?;
    File::open(directory(path)).and_then(|directory| directory.sync_all()).map_err(failed)
}

/// The path with something at its end.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes this process the only one that writes, until it ends or drops this value. The lock is on a file of
/// its own, because closing a file takes SQLite's locks off it.
pub(crate) struct Lock(File);

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Self, RegistryError> {
        let name = beside(path, "-lock");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&name);
        let file = file.map_err(|error| RegistryError::file(&name, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(std::fs::TryLockError::WouldBlock) => Err(RegistryError::InUse(path.display().to_string())),
            Err(std::fs::TryLockError::Error(error)) => Err(RegistryError::file(&name, &error)),
        }
    }
}

impl Drop for Lock {
    /// A child that another thread has forked still has the file open until it runs its program, so closing
    /// would not unlock it. If unlocking fails, the file is closed nevertheless.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Names of rows in `setting`.
pub(crate) const KEY: &str = "key";
pub(crate) const CHECKPOINT: &str = "checkpoint";

pub(crate) fn setting(connection: &Connection, name: &str) -> Result<String, RegistryError> {
    let sql = "SELECT value FROM setting WHERE name = ?1";
    let value = connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?;
    value.ok_or_else(|| RegistryError::damaged(format!("the setting {name} is missing")))
}

pub(crate) fn set(connection: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO setting (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
    connection.prepare_cached(sql)?.execute((name, value)).map(drop)
}

/// How many entries the log has. Their numbers begin with 0 and have no gaps, which an audit checks.
pub(crate) fn log_size(connection: &Connection) -> Result<u64, RegistryError> {
    let sql = "SELECT coalesce(max(number) + 1, 0) FROM entry";
    Ok(unsigned(connection.query_row(sql, [], |row| row.get(0))?))
}

/// The entries from `first` up to but not including `end`.
pub(crate) fn entries(connection: &Connection, first: u64, end: u64) -> Result<Vec<Vec<u8>>, RegistryError> {
    let sql = "SELECT content FROM entry WHERE number >= ?1 AND number < ?2 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map((signed(first), signed(end)), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The first DID whose place in the state map is this one or a later one, with its place.
pub(crate) fn did_from(
    connection: &Connection,
    key: &Sha256Hash,
) -> Result<Option<(Sha256Hash, String)>, RegistryError> {
    let sql = "SELECT key, did FROM did WHERE key >= ?1 ORDER BY key LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([key.as_bytes()], |row| Ok((hash(row, "key")?, row.get("did")?)));
    Ok(row.optional()?)
}

/// The DIDs whose latest entry has this number or a later one, at most `most` of them.
pub(crate) fn dids_since(
    connection: &Connection,
    number: u64,
    most: usize,
) -> Result<Vec<String>, RegistryError> {
    let mut statement = connection.prepare_cached("SELECT did FROM did WHERE entry >= ?1 LIMIT ?2")?;
    let rows = statement.query_map((signed(number), signed(most as u64)), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// How many bytes the bundle of these entries has, with a length of two bytes before each.
pub(crate) fn bundle_length(connection: &Connection, first: u64, end: u64) -> Result<u64, RegistryError> {
    let sql = "SELECT coalesce(sum(length(content) + 2), 0) FROM entry WHERE number >= ?1 AND number < ?2";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(unsigned(statement.query_row((signed(first), signed(end)), |row| row.get(0))?))
}

/// How many bytes the database takes on the disk, with the pages that SQLite has not yet moved into its main
/// file.
pub(crate) fn size_on_disk(path: &Path) -> Result<u64, RegistryError> {
    let main = std::fs::metadata(path).map_err(|error| RegistryError::file(path, &error))?;
    let wal = std::fs::metadata(beside(path, "-wal")).map_or(0, |wal| wal.len());
    Ok(main.len().saturating_add(wal))
}

/// A document by its hash.
pub(crate) fn document(connection: &Connection, hash: &Sha256Hash) -> Result<Option<String>, RegistryError> {
    let sql = "SELECT text FROM document WHERE hash = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let text: Option<Vec<u8>> = statement.query_row([hash.as_bytes()], |row| row.get(0)).optional()?;
    let text = text.map(String::from_utf8).transpose();
    text.map_err(|_| RegistryError::damaged(format!("the document {hash} is not UTF-8")))
}

fn hash(row: &Row<'_>, column: &str) -> rusqlite::Result<Sha256Hash> {
    row.get(column).map(Sha256Hash::from_bytes)
}

fn leaf(row: &Row<'_>) -> rusqlite::Result<MapLeaf> {
    let sequence = unsigned(row.get("sequence")?);
    Ok(MapLeaf { document: hash(row, "document")?, sequence, active: row.get("active")? })
}

/// The state map over the DIDs in the database.
pub(crate) fn state_map(connection: &Connection, hasher: Hasher<'_>) -> Result<StateMap, RegistryError> {
    let mut statement = connection.prepare("SELECT key, document, sequence, active FROM did ORDER BY key")?;
    let rows = statement.query_map([], |row| Ok((hash(row, "key")?, leaf(row)?)))?;
    let mut map = StateMap::default();
    for row in rows {
        let (key, leaf) = row?;
        map = map.with(hasher, key, leaf)?;
    }
    Ok(map)
}

/// How many bytes are reserved for further operations of all DIDs.
pub(crate) fn room(connection: &Connection) -> Result<u64, RegistryError> {
    let sql = "SELECT coalesce(sum(room), 0) FROM did";
    Ok(unsigned(connection.query_row(sql, [], |row| row.get(0))?))
}

/// A DID in the database.
pub(crate) struct Stored {
    pub(crate) state: State,
    /// The number of its latest entry.
    pub(crate) entry: u64,
    /// The bytes that are reserved for its further operations.
    pub(crate) room: u64,
    /// The time of its latest operation, in seconds since 1970.
    pub(crate) time_s: u64,
}

/// The state of a DID.
pub(crate) fn state(connection: &Connection, key: &Sha256Hash) -> Result<Option<Stored>, RegistryError> {
    let sql = "SELECT did, document, sequence, active, latest, entry, room, time FROM did WHERE key = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([key.as_bytes()], |row| {
        let did: String = row.get("did")?;
        let numbers = [row.get("entry")?, row.get("room")?, row.get("time")?].map(unsigned);
        Ok((did, leaf(row)?, hash(row, "latest")?, numbers))
    });
    let Some((did, leaf, latest, [entry, room, time_s])) = row.optional()? else { return Ok(None) };
    let damaged = || RegistryError::damaged(format!("the state of {did} cannot be read"));
    let text = document(connection, &leaf.document)?.ok_or_else(damaged)?;
    let id = did.parse().map_err(|_| damaged())?;
    let document = DidDocument::read(text.as_bytes(), &id).map_err(|_| damaged())?;
    let state = State::restore(document, leaf.sequence, leaf.active, latest).map_err(|_| damaged())?;
    Ok(Some(Stored { state, entry, room, time_s }))
}
