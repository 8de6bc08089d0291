//! Records in SQLite, for many of them on one machine: a change is a transaction, and several processes may make them.

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::{CacheFault, MAX_RECORD_LEN, Owner, Record, RecordName, Records, Report, Reporter, set_aside};

/// "DUNC": tells our databases from those of others (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x4455_4e43;

/// The version of the tables (`PRAGMA user_version`).
const VERSION: i64 = 1;

/// How long a handshake waits for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_millis(250);

/// What a database has beside its file.
const FILES: [&str; 3] = ["", "-wal", "-shm"];

/// Owners in the order of use, and how many of them each group has, so that nothing has to be counted.
const SCHEMA: &str = "
CREATE TABLE owner (used INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, grp BLOB NOT NULL) STRICT;
CREATE INDEX owner_grp ON owner (grp, used);
CREATE TABLE record (name BLOB PRIMARY KEY, owner BLOB NOT NULL, bytes BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX record_owner ON record (owner);
CREATE TABLE grp (name BLOB PRIMARY KEY, owners INTEGER NOT NULL, used INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX grp_size ON grp (owners DESC, used);
CREATE TABLE total (owners INTEGER NOT NULL) STRICT;
INSERT INTO total VALUES (0);
CREATE TRIGGER owner_comes AFTER INSERT ON owner BEGIN
    INSERT INTO grp VALUES (new.grp, 1, new.used)
        ON CONFLICT (name) DO UPDATE SET owners = owners + 1, used = excluded.used;
    UPDATE total SET owners = owners + 1;
END;
CREATE TRIGGER owner_is_used AFTER UPDATE ON owner BEGIN
    UPDATE grp SET used = new.used WHERE name = new.grp;
END;
CREATE TRIGGER owner_goes AFTER DELETE ON owner BEGIN
    DELETE FROM record WHERE owner = old.name;
    UPDATE grp SET owners = owners - 1 WHERE name = old.grp;
    DELETE FROM grp WHERE name = old.grp AND owners = 0;
    UPDATE total SET owners = owners - 1;
END;
";

/// Records in a database. A damaged one is set aside (`.damaged`, in place of an older one), and a new one stands in its place.
pub struct SqliteRecords {
    path: PathBuf,
    capacity: i64,
    /// None while it cannot be opened.
    connection: Mutex<Option<Connection>>,
    reporter: Reporter,
}

impl SqliteRecords {
    /// In the database at `path`, which is made with mode 0600 if it is not there, with room for so many owners, at least one:
    /// servers or clients.
    ///
    /// # Errors
    /// There can be no database at `path`, or it is another program's, or of another version. Damage is no error, but reported.
    pub fn open(path: &Path, capacity: usize, report: Report) -> Result<Self, CacheFault> {
        let store = Self {
            path: path.to_owned(),
            capacity: i64::try_from(capacity.max(1)).unwrap_or(i64::MAX),
            connection: Mutex::default(),
            reporter: Reporter::new(report),
        };
        let connection = store.connect()?;
        *store.lock() = Some(connection);
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unusable(&self, why: &dyn fmt::Display) -> CacheFault {
        // The first line: what follows quotes the statement.
        let why = why.to_string().lines().next().unwrap_or_default().to_owned();
        CacheFault::Unusable { store: self.path.display().to_string(), why }
    }

    /// Opens the database, or a new one if that is damaged.
    fn connect(&self) -> Result<Connection, CacheFault> {
        match connect(&self.path) {
            Err(OpenError::Sqlite(error)) if is_damage(&error) => {
                self.set_aside(&error)?;
                connect(&self.path).map_err(|error| self.unusable(&error))
            }
            opened => opened.map_err(|error| self.unusable(&error)),
        }
    }

    fn set_aside(&self, error: &rusqlite::Error) -> Result<(), CacheFault> {
        let why = format!("damaged, or no database ({error})");
        let fault = set_aside(&self.path, &FILES, &why).map_err(|error| self.unusable(&error))?;
        self.reporter.fault(fault);
        Ok(())
    }

    /// What `run` gives; `None` if the database fails, which is reported. After damage there is a new one for the next.
    fn with<T>(&self, run: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Option<T> {
        let mut held = self.lock();
        let failed = match &mut *held {
            Some(connection) => match run(connection) {
                Ok(value) => {
                    self.reporter.works();
                    return Some(value);
                }
                Err(error) => error,
            },
            None => match self.connect() {
                Ok(connection) => return run(held.insert(connection)).ok(),
                Err(fault) => {
                    self.reporter.fault(fault);
                    return None;
                }
            },
        };
        if is_damage(&failed) {
            *held = None;
            let opened = self.set_aside(&failed).and_then(|()| self.connect());
            match opened {
                Ok(connection) => *held = Some(connection),
                Err(fault) => self.reporter.fault(fault),
            }
        } else {
            self.reporter.fault(self.unusable(&failed));
        }
        None
    }
}

/// Why a database cannot be opened.
enum OpenError {
    Sqlite(rusqlite::Error),
    Other(String),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(error) => error.fmt(f),
            Self::Other(why) => f.write_str(why),
        }
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn connect(path: &Path) -> Result<Connection, OpenError> {
    let made = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    made.map_err(|error| OpenError::Other(error.to_string()))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Who can write the file must not have us run anything by a trigger.
    connection.pragma_update(None, "trusted_schema", false)?;
    // Of two that make one at once, the second one finds it made.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pragma = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let is_new = transaction.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION_ID, VERSION) => {}
        (APPLICATION_ID, version) => {
            return Err(OpenError::Other(format!(
                "a handshake cache of version {version}: use another file"
            )));
        }
        (0, 0) if is_new => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        _ => return Err(OpenError::Other("the database of another program: use another file".into())),
    }
    transaction.commit()?;
    // Readers go on while somebody writes. What the last moments before a loss of power had kept may be lost with it.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let checked: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if checked != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(checked)).into());
    }
    Ok(connection)
}

impl Records for SqliteRecords {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        self.with(|connection| {
            let sql = "SELECT bytes FROM record WHERE name = ?1 AND length(bytes) <= ?2";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_row(params![name, MAX_RECORD_LEN], |row| row.get(0)).optional()
        })?
    }

    fn put(&self, owner: &Owner, records: &[Record], stale: &[RecordName]) {
        let capacity = self.capacity;
        self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let execute = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
                transaction.prepare_cached(sql).and_then(|mut statement| statement.execute(values))
            };
            for name in stale {
                execute("DELETE FROM record WHERE name = ?1", &[name])?;
            }
            // It may have another issuer now, and then all its records are new.
            execute("DELETE FROM owner WHERE name = ?1 AND grp <> ?2", &[&owner.name, &owner.group])?;
            let used = "UPDATE owner SET used = (SELECT max(used) + 1 FROM owner) WHERE name = ?1";
            if execute(used, &[&owner.name])? == 0 {
                execute("INSERT INTO owner (name, grp) VALUES (?1, ?2)", &[&owner.name, &owner.group])?;
            }
            for Record { name, bytes } in records {
                let sql = "INSERT OR REPLACE INTO record (name, owner, bytes) VALUES (?1, ?2, ?3)";
                execute(sql, &[name, &owner.name, bytes])?;
            }
            // The oldest of the largest group; of groups that are as large, of the one that nobody came to for longest.
            let evict = "DELETE FROM owner WHERE used = (SELECT min(used) FROM owner WHERE grp =
                             (SELECT name FROM grp ORDER BY owners DESC, used LIMIT 1))
                         AND (SELECT owners FROM total) > ?1";
            while execute(evict, &[&capacity])? > 0 {}
            transaction.commit()
        });
    }
}

impl fmt::Debug for SqliteRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteRecords").field("path", &self.path).finish_non_exhaustive()
    }
}
