//! The IDs of files in a SQLite database, for the processes of one machine.

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::{FileId, FrozenIds, IdsFault};
use crate::files;

/// "DUNF" identifies our databases (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x4455_4e46;

/// The version of the table (`PRAGMA user_version`).
const VERSION: i64 = 1;

/// How long a change waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SCHEMA: &str = "CREATE TABLE file (id BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;";

/// The IDs in a database. Every change is on the disk when it is done.
pub struct SqliteIds {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl SqliteIds {
    /// Opens the database at `path`, or creates it with mode 0600 if it is missing.
    ///
    /// # Errors
    /// It cannot be created or opened, belongs to another user, can be written by one, or is another
    /// program's database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, IdsFault> {
        let path = files::behind_links(path.as_ref());
        let fault = |why: String| IdsFault { store: path.display().to_string(), why };
        files::open_own(OpenOptions::new().create(true).append(true).mode(0o600), &path)
            .map_err(|error| fault(files::why(&error)))?;
        let connection = connect(&path).map_err(|error| fault(first_line(&error)))?;
        let connection = connection.ok_or_else(|| fault("not a store of IDs".to_owned()))?;
        Ok(Self { path, connection: Mutex::new(connection) })
    }

    /// Runs a statement with this ID, and returns the number of changed rows.
    fn change(&self, sql: &str, id: &FileId) -> Result<usize, IdsFault> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .execute(sql, [&id.0])
            .map_err(|error| IdsFault { store: self.path.display().to_string(), why: first_line(&error) })
    }
}

/// The error without the statement.
fn first_line(error: &rusqlite::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Opens the database, and makes the table in an empty one. `None` if it is another program's.
fn connect(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // A removed ID must not come back after a loss of power, so the directory of the journal is synchronised,
    // too.
    connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "EXTRA")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pragma = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let sql = "SELECT count(*) FROM sqlite_schema";
    if transaction.query_row(sql, [], |row| row.get::<_, i64>(0))? == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    let is_ours = pragma("application_id")? == APPLICATION_ID && pragma("user_version")? == VERSION;
    if is_ours {
        transaction.commit()?;
    } else {
        transaction.rollback()?;
    }
    Ok(is_ours.then_some(connection))
}

impl FrozenIds for SqliteIds {
    fn put(&self, id: &FileId) -> Result<(), IdsFault> {
        self.change("INSERT INTO file (id) VALUES (?1)", id).map(drop)
    }

    fn take(&self, id: &FileId) -> Result<bool, IdsFault> {
        self.change("DELETE FROM file WHERE id = ?1", id).map(|rows| rows == 1)
    }
}

impl fmt::Debug for SqliteIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteIds").field("path", &self.path).finish_non_exhaustive()
    }
}
