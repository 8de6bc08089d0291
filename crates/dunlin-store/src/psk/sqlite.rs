//! Keys in an SQLite database, for large numbers. A change is a transaction. A server reads a key when a
//! client names it.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin::auth::{FindPsk, Psk};
use dunlin::crypto::{CryptoProvider, HashAlgorithm};
use dunlin::error::Internal;
use dunlin::{Error, Now};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params,
};
use zeroize::Zeroizing;

use super::{Identity, PskError, PskFault, PskRecord, PskRecords, PskSet, Revoked, hash_name};

/// "DUNL": tells our databases from other programs' (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x4455_4e4c;

/// The version of the tables (`PRAGMA user_version`).
const VERSION: i64 = 1;

/// How long a writer waits for another one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
CREATE TABLE psk (
    identity BLOB NOT NULL UNIQUE CHECK (length(identity) BETWEEN 1 AND 65535),
    key BLOB NOT NULL,
    hash TEXT NOT NULL CHECK (hash IN ('sha256', 'sha384')),
    name TEXT,
    not_before INTEGER,
    not_after INTEGER,
    revoked_at INTEGER,
    revoked_reason TEXT,
    allow_short INTEGER NOT NULL DEFAULT 0,
    import_context BLOB
) STRICT;
CREATE INDEX psk_name ON psk (name);
CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL) STRICT;
";

const COLUMNS: &str = "identity, key, hash, name, not_before, not_after, revoked_at, revoked_reason, \
                       allow_short, import_context";

/// A database of keys.
pub struct SqlitePsks {
    connection: Mutex<Connection>,
}

impl SqlitePsks {
    /// Opens an existing database.
    ///
    /// # Errors
    /// The database cannot be opened; [`PskFault::Foreign`]; [`PskFault::Newer`].
    pub fn open(path: &Path) -> Result<Self, PskError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        match pragma("application_id") {
            Ok(APPLICATION_ID) => {}
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::NotADatabase) => {
                return Err(error.into());
            }
            _ => return Err(PskFault::Foreign.into()),
        }
        // A reported commit survives a power failure, and a removed key leaves no bytes in the file.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "secure_delete", true)?;
        match pragma("user_version")? {
            VERSION => Ok(Self { connection: Mutex::new(connection) }),
            version => Err(PskFault::Newer(version).into()),
        }
    }

    /// Opens a database, or creates it with mode 0600 if it does not exist.
    ///
    /// # Errors
    /// Those of [`SqlitePsks::open`]; the database cannot be created.
    pub fn open_or_create(path: &Path) -> Result<Self, PskError> {
        if path.symlink_metadata().is_err() {
            create(path)?;
        }
        Self::open(path)
    }

    /// All keys, the oldest first.
    ///
    /// # Errors
    /// The database cannot be read, or a record in it is invalid.
    pub fn keys(&self) -> Result<PskSet, PskError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let changes = Changes(&transaction);
        let mut set = PskSet::default();
        set.set_identity_hint(changes.identity_hint()?)?;
        for record in changes.select("TRUE", &[])? {
            set.put(record)?;
        }
        Ok(set)
    }

    /// Makes changes in one transaction: all of them, or none if `change` fails. Other writers wait.
    ///
    /// # Errors
    /// Those of `change` and of the database.
    pub fn change<T, E: From<PskError>>(
        &self,
        change: impl FnOnce(&mut dyn PskRecords) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = self.lock();
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(PskError::from)?;
        let result = change(&mut Changes(&transaction))?;
        transaction.commit().map_err(PskError::from)?;
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a database under a temporary name and renames it. So readers never see a partial one, and if two
/// processes create it at once, one of the two stays.
fn create(path: &Path) -> Result<(), PskError> {
    let unwritable = |e: std::io::Error| PskError::from(PskFault::Database(e.to_string()));
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new()
        .prefix(".dunlin-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory)
        .map_err(unwritable)?
        .into_temp_path();
    let connection = Connection::open(&file)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    connection.execute_batch(SCHEMA)?;
    // WAL lets readers continue during a write. The database file keeps the setting.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.close().map_err(|(_, e)| e)?;
    File::open(&file).and_then(|f| f.sync_all()).map_err(unwritable)?;
    match file.persist_noclobber(path) {
        Err(e) if e.error.kind() != std::io::ErrorKind::AlreadyExists => Err(unwritable(e.error)),
        _ => File::open(directory).and_then(|d| d.sync_all()).map_err(unwritable),
    }
}

/// The inside of a transaction.
struct Changes<'a>(&'a Transaction<'a>);

impl Changes<'_> {
    fn select(&self, condition: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<PskRecord>, PskError> {
        select(self.0, condition, values)
    }
}

fn select(
    connection: &Connection,
    condition: &str,
    values: &[&dyn rusqlite::ToSql],
) -> Result<Vec<PskRecord>, PskError> {
    let sql = format!("SELECT {COLUMNS} FROM psk WHERE {condition} ORDER BY rowid");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(values, |row| Ok(record(row)))?;
    rows.map(|row| row?).collect()
}

fn record(row: &Row<'_>) -> Result<PskRecord, PskError> {
    let identity = Identity::from_bytes(row.get("identity")?)?;
    let mut record = PskRecord::new(identity, Zeroizing::new(row.get("key")?));
    record.hash = match row.get_ref("hash")?.as_str() {
        Ok("sha384") => HashAlgorithm::Sha384,
        _ => HashAlgorithm::Sha256,
    };
    record.name = row.get("name")?;
    record.not_before_s = row.get::<_, Option<i64>>("not_before")?.map(clamped);
    record.not_after_s = row.get::<_, Option<i64>>("not_after")?.map(clamped);
    let reason = row.get("revoked_reason")?;
    let revoked_at: Option<i64> = row.get("revoked_at")?;
    record.revoked = revoked_at.map(|at| Revoked { at_s: clamped(at), reason });
    record.allow_short = row.get("allow_short")?;
    record.import = row.get("import_context")?;
    record.check()?;
    Ok(record)
}

/// Times before 1970, which another program may have written, become 1970.
fn clamped(time: i64) -> u64 {
    u64::try_from(time).unwrap_or(0)
}

fn signed(time: Option<u64>) -> Option<i64> {
    time.map(|time| i64::try_from(time).unwrap_or(i64::MAX))
}

impl PskRecords for Changes<'_> {
    fn get(&self, identity: &Identity) -> Result<Option<PskRecord>, PskError> {
        Ok(self.select("identity = ?1", &[&identity.as_bytes()])?.pop())
    }

    fn of_device(&self, name: &str) -> Result<Vec<PskRecord>, PskError> {
        self.select("name = ?1", &[&name])
    }

    fn put(&mut self, record: PskRecord) -> Result<(), PskError> {
        record.check()?;
        let sql = format!(
            "INSERT INTO psk ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (identity) DO UPDATE SET key = excluded.key, hash = excluded.hash, name = excluded.name,
                 not_before = excluded.not_before, not_after = excluded.not_after,
                 revoked_at = excluded.revoked_at, revoked_reason = excluded.revoked_reason,
                 allow_short = excluded.allow_short, import_context = excluded.import_context"
        );
        self.0.prepare_cached(&sql)?.execute(params![
            record.identity.as_bytes(),
            record.key.as_slice(),
            hash_name(record.hash),
            record.name,
            signed(record.not_before_s),
            signed(record.not_after_s),
            signed(record.revoked.as_ref().map(|r| r.at_s)),
            record.revoked.as_ref().and_then(|r| r.reason.as_deref()),
            record.allow_short,
            record.import,
        ])?;
        Ok(())
    }

    fn remove(&mut self, identity: &Identity) -> Result<bool, PskError> {
        Ok(self.0.execute("DELETE FROM psk WHERE identity = ?1", [identity.as_bytes()])? > 0)
    }

    fn identity_hint(&self) -> Result<Option<Vec<u8>>, PskError> {
        identity_hint(self.0)
    }

    fn set_identity_hint(&mut self, hint: Option<Vec<u8>>) -> Result<(), PskError> {
        match hint {
            Some(hint) => {
                let sql = "INSERT OR REPLACE INTO setting (name, value) VALUES ('identity_hint', ?1)";
                self.0.execute(sql, [hint])?;
            }
            None => drop(self.0.execute("DELETE FROM setting WHERE name = 'identity_hint'", [])?),
        }
        Ok(())
    }
}

/// A function that is called when a database cannot be read. It must not block, since a handshake waits for
/// it.
pub type Report = Box<dyn Fn(&PskError) + Send + Sync>;

/// The keys of a database for a server. Each key is read when a client names it, so changes count at once. If
/// the database cannot be read, the key counts as unknown and the fault is reported. Change the database in
/// place: a file that replaces it is not noticed.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use dunlin::crypto::CryptoProvider;
/// use dunlin::{Profile, PskSource, ServerConfig};
/// use dunlin_store::psk::sqlite::{LiveSqlitePsks, SqlitePsks};
///
/// # fn server(provider: Arc<CryptoProvider>) -> Result<ServerConfig, Box<dyn std::error::Error>> {
/// let keys = SqlitePsks::open(Path::new("keys.db"))?;
/// let keys = LiveSqlitePsks::new(keys, provider.clone(), Box::new(|fault| eprintln!("{fault}")));
/// let profile = Profile::builder(provider).build()?;
/// let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(keys)))?;
/// # Ok(server)
/// # }
/// ```
pub struct LiveSqlitePsks {
    psks: SqlitePsks,
    provider: Arc<CryptoProvider>,
    report: Report,
}

impl LiveSqlitePsks {
    /// Follows this database.
    pub const fn new(psks: SqlitePsks, provider: Arc<CryptoProvider>, report: Report) -> Self {
        Self { psks, provider, report }
    }

    /// The current record of this identity, whether valid or not; `None` if the database cannot be read.
    pub fn record(&self, identity: &[u8]) -> Option<PskRecord> {
        select(&self.psks.lock(), "identity = ?1", &[&identity]).ok()?.pop()
    }

    /// The current identity hint for TLS 1.2 clients (RFC 4279 §5.2); empty if there is none. If the database
    /// cannot be read, it is empty too, and the fault is reported.
    pub fn identity_hint(&self) -> Vec<u8> {
        let hint = identity_hint(&self.psks.lock()).unwrap_or_else(|fault| {
            (self.report)(&fault);
            None
        });
        hint.unwrap_or_default()
    }
}

fn identity_hint(connection: &Connection) -> Result<Option<Vec<u8>>, PskError> {
    let sql = "SELECT value FROM setting WHERE name = 'identity_hint'";
    Ok(connection.query_row(sql, [], |row| row.get(0)).optional()?)
}

impl FindPsk for LiveSqlitePsks {
    fn find(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>> {
        self.find_for_thaw(identity, now).unwrap_or_default()
    }

    fn find_for_thaw(&self, identity: &[u8], now: Now) -> Result<Option<Arc<Psk>>, Error> {
        let connection = self.psks.lock();
        let get = |identity: &[u8]| Ok(select(&connection, "identity = ?1", &[&identity])?.pop());
        super::find(identity, now, &self.provider, get).map_err(|fault: PskError| {
            (self.report)(&fault);
            Internal::QuestionFailed.into()
        })
    }
}

impl From<rusqlite::Error> for PskError {
    fn from(error: rusqlite::Error) -> Self {
        // Only the first line: the next ones quote the statement.
        let text = error.to_string();
        PskFault::Database(text.lines().next().unwrap_or_default().to_owned()).into()
    }
}
