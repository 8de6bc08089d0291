//! Records in SQLite, for many peers on one machine. A change is a transaction, and several processes may
//! write.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::Side;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::store_error::{
    BUSY_TIMEOUT, INCONSISTENT, LOCKED, NO_STORE, Pause, Reporter, set_aside, side_name,
};
use super::{CacheFault, KeyId, MAX_RECORD_LEN, Owner, Record, RecordName, Records, Report};
use crate::files::{self, NO_FILE};

/// "DUNC" identifies our databases (`PRAGMA application_id`).
const APPLICATION_ID: [u8; 4] = *b"DUNC";

/// Its offset in the file, and the first bytes of every database (SQLite, "Database File Format" §1.3).
const APPLICATION_ID_AT: usize = 68;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// A text on a page of its own, which identifies a database whose beginning was overwritten. The name of its
/// side follows.
const MARK: &str = "dunlin handshake cache of a ";

/// How many bytes are searched for the mark, which is on one of the first pages.
const MARK_WITHIN: u64 = 64 << 10;

/// The version of the tables (`PRAGMA user_version`).
const VERSION: i64 = 2;

/// The endings of a database's files.
const FILES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// How many steps of SQLite's virtual machine a query may take, counted in ticks: a thousand times what our
/// queries take.
const MAX_TICKS: u32 = 100;
const STEPS_IN_A_TICK: i32 = 10_000;

/// How many owners one change evicts at most. After a reduction of the capacity, no handshake has to evict
/// all surplus owners.
const MAX_EVICTED: usize = 100;

/// Owners in order of use, with the number of owners in each group, so that no query has to count.
const SCHEMA: &str = "
CREATE TABLE owner (used INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, grp BLOB NOT NULL) STRICT;
CREATE INDEX owner_grp ON owner (grp, used);
CREATE TABLE record (name BLOB PRIMARY KEY, owner BLOB NOT NULL, bytes BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX record_owner ON record (owner);
CREATE TABLE grp (name BLOB PRIMARY KEY, owners INTEGER NOT NULL, used INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX grp_size ON grp (owners DESC, used);
CREATE TABLE total (owners INTEGER NOT NULL) STRICT;
INSERT INTO total VALUES (0);
CREATE TABLE mark (text TEXT NOT NULL) STRICT;
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

/// These queries find what our statements cannot have made: inconsistent pages, rows, indexes and counts.
const CHECKS: [&str; 4] = [
    "SELECT min(integrity_check = 'ok') FROM pragma_integrity_check",
    "SELECT (SELECT max(owners) FROM total) = count(*) AND ifnull(max(used), 0) < 1 << 62 FROM owner",
    "SELECT count(*) = 0 FROM (SELECT grp, count(*) FROM owner GROUP BY grp EXCEPT SELECT name, owners FROM grp)",
    "SELECT (SELECT count(*) FROM total) = 1
         AND (SELECT count(*) FROM grp) = (SELECT count(DISTINCT grp) FROM owner)
         AND NOT EXISTS (SELECT 1 FROM record WHERE owner NOT IN (SELECT name FROM owner))",
];

/// Records in a database. A damaged database is renamed (`.damaged`, which replaces an older one), and a new
/// one replaces it. A handshake waits a quarter of a second for a database that another process has locked;
/// then the store pauses for a while.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::crypto::CryptoProvider;
/// use dunlin_store::cache::{CacheStore, OpenError};
///
/// # fn open(provider: Arc<CryptoProvider>) -> Result<(), OpenError> {
/// // Creates `clients.db` and its key file `clients.db.key` if they are missing.
/// let store = CacheStore::sqlite("clients.db");
/// // For `with_handshake_cache`.
/// let cache = store.open_server(&provider, Box::new(|fault| eprintln!("{fault}")))?;
/// # drop(cache);
/// # Ok(())
/// # }
/// ```
pub struct SqliteRecords {
    path: PathBuf,
    side: Side,
    capacity: i64,
    /// `None` while the database cannot be opened.
    connection: Mutex<Option<Connection>>,
    /// The ticks of the current query.
    ticks: Arc<AtomicU32>,
    /// Readers continue while another process writes, so reads and writes pause separately.
    reads: Pause,
    writes: Pause,
    reporter: Reporter,
}

impl SqliteRecords {
    /// Opens the database at `path`, or creates it with mode 0600 if it is missing. `side` is the side whose
    /// cache this is. The database has room for `capacity` owners, at least one: servers that a client knows,
    /// or clients that a server knows.
    ///
    /// # Errors
    /// The database cannot be created or opened, belongs to another user, can be written by one, is not a
    /// handshake cache, or belongs to the other side. Damage and a lock are reported, and are no errors.
    pub fn open(path: &Path, side: Side, capacity: usize, report: Report) -> Result<Self, CacheFault> {
        let store = Self {
            path: files::behind_links(path),
            side,
            capacity: i64::try_from(capacity.max(1)).unwrap_or(i64::MAX),
            connection: Mutex::default(),
            ticks: Arc::default(),
            reads: Pause::default(),
            writes: Pause::default(),
            reporter: Reporter::new(report),
        };
        match store.connect() {
            Ok(connection) => *store.lock() = Some(connection),
            Err(Failure::Locked) => store.fails(&store.reads, &Failure::Locked),
            Err(failure) => return Err(store.unusable(&failure)),
        }
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unusable(&self, why: &Failure) -> CacheFault {
        if let Failure::OtherSide = why {
            return CacheFault::OtherSide { store: self.path.clone(), of: self.side.peer() };
        }
        // SQLite reports some effects of a full file system as a general I/O error.
        let full = if let Failure::Other(_) = why { files::lack_of_room(&self.path) } else { None };
        let why = full.unwrap_or_else(|| why.to_string());
        CacheFault::Unusable { store: self.path.display().to_string(), why }
    }

    fn fails(&self, pause: &Pause, why: &Failure) {
        pause.begin();
        self.reporter.fails(|| self.unusable(why));
    }

    /// Opens the database, or a new one if it is damaged.
    fn connect(&self) -> Result<Connection, Failure> {
        let mut connection = match connect(&self.path, self.side) {
            Err(Failure::Damage(why)) => {
                self.reporter.tell(&set_aside(&self.path, &FILES, &why)?);
                connect(&self.path, self.side)
            }
            opened => opened,
        }?;
        // Another process may change the schema while it is open. SQLite's own step count adds up all runs of
        // a statement.
        let ticks = Arc::clone(&self.ticks);
        let is_too_long = move || ticks.fetch_add(1, Ordering::Relaxed) >= MAX_TICKS;
        connection.progress_handler(STEPS_IN_A_TICK, Some(is_too_long))?;
        Ok(connection)
    }

    /// Returns the result of `run`, or `None` after reporting a failure. A damaged database is opened again,
    /// which checks it.
    fn with<T>(&self, pause: &Pause, run: impl Fn(&mut Connection) -> rusqlite::Result<T>) -> Option<T> {
        let mut held = self.lock();
        if pause.is_on() {
            return None;
        }
        let mut ask = || {
            if held.is_none() {
                *held = Some(self.connect()?);
            }
            self.ticks.store(0, Ordering::Relaxed);
            let answer = held.as_mut().map(|connection| run(connection).map_err(Failure::from));
            if let Some(Err(Failure::Damage(_))) = answer {
                *held = None;
            }
            answer.unwrap_or(Err(Failure::Locked))
        };
        match ask() {
            Err(Failure::Damage(_)) => ask(),
            answer => answer,
        }
        .inspect(|_| pause.end())
        .inspect_err(|failure| self.fails(pause, failure))
        .ok()
    }
}

/// Why a database fails.
enum Failure {
    /// The file is damaged.
    Damage(String),
    Locked,
    /// The database belongs to the other side.
    OtherSide,
    Other(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        // Only the first line: the others quote the statement.
        let why = error.to_string().lines().next().unwrap_or_default().to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::DiskFull) => Self::Other(files::FULL.to_owned()),
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OutOfMemory
                | ErrorCode::PermissionDenied
                | ErrorCode::SystemIoFailure,
            ) => Self::Other(why),
            // Our statements are correct, so any other error is damage.
            _ => Self::Damage(why),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(files::why(&error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked => f.write_str(LOCKED),
            Self::OtherSide => f.write_str("the store belongs to the other side"),
            Self::Damage(why) | Self::Other(why) => f.write_str(why),
        }
    }
}

/// Whether the file has a database. A foreign file is an error; one byte of the identifying bytes may be
/// damaged.
fn is_there(path: &Path) -> Result<bool, Failure> {
    // Opening a pipe would wait for a reader.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Other(NO_FILE.to_owned()));
    }
    files::open_own(OpenOptions::new().create(true).append(true).mode(0o600), path)?;
    let mut head = Vec::new();
    File::open(path)?.take(MARK_WITHIN).read_to_end(&mut head)?;
    let magic = head.iter().zip(MAGIC);
    let id = head.iter().skip(APPLICATION_ID_AT).zip(&APPLICATION_ID);
    match magic.chain(id).filter(|(byte, ours)| byte != ours).count() {
        0 | 1 => Ok(!head.is_empty()),
        _ if head.windows(MARK.len()).any(|text| text == MARK.as_bytes()) => Ok(true),
        _ => Err(Failure::Other(NO_STORE.to_owned())),
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Another writer of the file must not make us run code from it.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// The schema of a database, verbatim.
fn schema(connection: &Connection) -> rusqlite::Result<Vec<(String, String, Option<String>)>> {
    let sql = "SELECT name, tbl_name, substr(sql, 1, 4000) FROM sqlite_schema ORDER BY name LIMIT 100";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

fn mark(side: Side) -> String {
    format!("{MARK}{}", side_name(side))
}

fn connect(path: &Path, side: Side) -> Result<Connection, Failure> {
    let is_there = is_there(path)?;
    let mut connection = open(path)?;
    if !is_there {
        // If two processes create it at once, the second one finds the tables.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if schema(&transaction)?.is_empty() {
            transaction.execute_batch(SCHEMA)?;
            transaction.execute("INSERT INTO mark VALUES (?1)", [mark(side)])?;
            transaction.pragma_update(None, "application_id", i32::from_be_bytes(APPLICATION_ID))?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()?;
    }
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(SCHEMA)?;
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if pragma("user_version")? != VERSION
        || pragma("application_id")? != i32::from_be_bytes(APPLICATION_ID).into()
        || schema(&connection)? != schema(&ours)?
        || connection.is_readonly("main")?
    {
        return Err(Failure::Damage("its tables are not those of a handshake cache".to_owned()));
    }
    let of = |side| {
        let sql = "SELECT count(*) = 1 AND min(text) = ?1 FROM mark";
        connection.query_row(sql, [mark(side)], |row| row.get::<_, Option<bool>>(0))
    };
    if of(side)? != Some(true) {
        let is_others = of(side.peer())? == Some(true);
        return Err(if is_others { Failure::OtherSide } else { Failure::Damage(INCONSISTENT.to_owned()) });
    }
    // With a WAL, readers continue while a process writes. A loss of power may lose the last few changes.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    for check in CHECKS {
        if !connection.query_row(check, [], |row| row.get(0))? {
            return Err(Failure::Damage(INCONSISTENT.to_owned()));
        }
    }
    Ok(connection)
}

impl Records for SqliteRecords {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        self.with(&self.reads, |connection| {
            let sql = "SELECT bytes FROM record WHERE name = ?1 AND length(bytes) <= ?2";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_row(params![name, MAX_RECORD_LEN], |row| row.get(0)).optional()
        })?
    }

    fn put(&self, owner: &Owner, records: &[Record], _: &[RecordName]) -> bool {
        let capacity = self.capacity;
        let written = self.with(&self.writes, |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let execute = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
                transaction.prepare_cached(sql).and_then(|mut statement| statement.execute(values))
            };
            // The owner may have a new issuer, and so another group.
            let sql = "DELETE FROM owner WHERE name = ?1 AND (?2 OR grp <> ?3)";
            execute(sql, &[&owner.name, &records.is_empty(), &owner.group])?;
            if records.is_empty() {
                return transaction.commit();
            }
            execute("DELETE FROM record WHERE owner = ?1", &[&owner.name])?;
            let used = "UPDATE owner SET used = (SELECT max(used) + 1 FROM owner) WHERE name = ?1";
            if execute(used, &[&owner.name])? == 0 {
                execute("INSERT INTO owner (name, grp) VALUES (?1, ?2)", &[&owner.name, &owner.group])?;
            }
            for Record { name, bytes } in records {
                let sql = "INSERT OR REPLACE INTO record (name, owner, bytes) VALUES (?1, ?2, ?3)";
                execute(sql, &[name, &owner.name, bytes])?;
            }
            // Evict the oldest owner of the largest group; among equal groups, of the least recently used
            // one.
            let evict = "DELETE FROM owner WHERE used = (SELECT min(used) FROM owner WHERE grp =
                             (SELECT name FROM grp ORDER BY owners DESC, used LIMIT 1))
                         AND (SELECT owners FROM total) > ?1";
            for _ in 0..MAX_EVICTED {
                if execute(evict, &[&capacity])? == 0 {
                    break;
                }
            }
            transaction.commit()
        });
        if written.is_some() {
            self.reporter.works(|| self.path.display().to_string());
        }
        written.is_some()
    }

    fn used_with(&self, key: &KeyId) {
        let of_others = self.with(&self.reads, |connection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM record)
                           AND (SELECT substr(min(name), 1, 4) FROM record WHERE name >= ?1) IS NOT ?1";
            connection.query_row(sql, [key], |row| row.get(0))
        });
        if of_others == Some(true) {
            self.reporter.tell(&CacheFault::OtherKey { store: self.path.display().to_string() });
        }
    }
}

impl fmt::Debug for SqliteRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteRecords").field("path", &self.path).finish_non_exhaustive()
    }
}
