//! Policies in an SQLite database, which several gateways share and programs can change row by row.
//!
//! | table | columns |
//! | --- | --- |
//! | `setting` | `name` is `policy`; `value` is TOML with the keys outside of profiles and rules, such as `floor` |
//! | `profile` | `name`; `settings`, TOML with the keys of a `[profile.NAME]` |
//! | `rule` | `position`, the order; `settings`, TOML with the keys of a `[[rule]]` |
//! | `client` | the client table: `position`; a column for each attribute, NULL if it does not matter; `profile`, NULL to refuse |
//!
//! Values of the client table are literal: they have no wildcards.

use std::cell::RefCell;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use super::Policy;
use super::check::{self, Draft, DraftRule};
use super::client::ATTRIBUTES;
use super::condition::{Condition, Test};
use super::load::{self, MAX_FILE};
use super::pattern::Pattern;
use crate::document::{Fault, Faults, Field, Place, Section, Source};

/// "DUNP" tells our databases from other programs' (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x4455_4e50;

/// The version of the tables (`PRAGMA user_version`).
const VERSION: i64 = 2;

/// The version whose client table lacks the column `issuer_key`.
const WITHOUT_ISSUER_KEY: i64 = 1;

/// The most entries of the client table. Each takes some 300 bytes of memory.
pub const MAX_CLIENTS: usize = 1_000_000;

const SCHEMA: &str = "
CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY CHECK (name = 'policy'), value TEXT NOT NULL) STRICT;
CREATE TABLE profile (name TEXT NOT NULL PRIMARY KEY, settings TEXT NOT NULL) STRICT;
CREATE TABLE rule (position INTEGER PRIMARY KEY, settings TEXT NOT NULL) STRICT;
CREATE TABLE client (
    position INTEGER PRIMARY KEY, kind TEXT, name TEXT, email TEXT, subject TEXT, issuer TEXT, issuer_key TEXT, dns TEXT,
    uri TEXT, fingerprint TEXT, key TEXT, psk TEXT, device TEXT, id TEXT, profile TEXT
) STRICT;
";

/// Creates an empty database. It is no policy yet: it needs a profile.
///
/// # Errors
/// The file exists, or SQLite's message.
pub fn create(path: &Path) -> Result<(), Faults> {
    let failed = |error: rusqlite::Error| failed(path, &error);
    if path.symlink_metadata().is_ok() {
        return Err(Faults::one(Fault::of_file(path, "the file exists", "name a new one")));
    }
    let connection = Connection::open(path).map_err(failed)?;
    let make = || {
        connection.execute_batch(&format!("BEGIN; {SCHEMA}"))?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        connection.execute_batch("COMMIT")
    };
    make().map_err(failed)
}

/// Reads a policy from a database.
///
/// # Errors
/// SQLite's message, or all faults of the policy. The place of a fault names the row.
pub fn load(path: &Path) -> Result<Policy, Faults> {
    let connection = open(path)?;
    read(&connection, path)
}

pub(super) fn open(path: &Path) -> Result<Connection, Faults> {
    let failed = |error: rusqlite::Error| failed(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    if pragma("application_id")? != APPLICATION_ID {
        return Err(Faults::one(Fault::of_file(
            path,
            "not a policy database of dunlin",
            "name another file",
        )));
    }
    match pragma("user_version")? {
        VERSION | WITHOUT_ISSUER_KEY => Ok(connection),
        version => {
            let what = format!("version {version} of the tables");
            Err(Faults::one(Fault::of_file(path, what, "use a newer dunlin")))
        }
    }
}

/// A number that changes when another connection changes the database.
pub(super) fn data_version(connection: &Connection) -> Option<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
}

pub(super) fn read(connection: &Connection, path: &Path) -> Result<Policy, Faults> {
    let faults = RefCell::default();
    let name = path.display().to_string();
    let mut draft = Draft { place: Some(place(&name, "")), ..Draft::default() };
    let mut rows = Rows { name: &name, faults: &faults, draft: &mut draft };
    // One snapshot of all tables.
    let all = connection.unchecked_transaction().and_then(|snapshot| rows.read(&snapshot));
    match all {
        Err(error) => Err(failed(path, &error)),
        Ok(()) => check::build(draft, faults.take()),
    }
}

/// The place of a row, or of the whole database.
fn place(row: &str, key: &str) -> Place {
    Place { file: Path::new(row).into(), line: 0, key: key.to_owned() }
}

/// Reads the tables into a draft.
struct Rows<'a> {
    name: &'a str,
    faults: &'a RefCell<Vec<Fault>>,
    draft: &'a mut Draft,
}

impl Rows<'_> {
    fn read(&mut self, database: &Connection) -> rusqlite::Result<()> {
        self.each(
            database,
            "SELECT name, value FROM setting",
            |draft, _, mut section| {
                load::settings(&mut section, draft);
                section.end();
            },
            "setting",
        )?;
        self.each(
            database,
            "SELECT name, settings FROM profile ORDER BY name",
            |draft, name, section| load::profile(name, section, draft),
            "profile",
        )?;
        let rules = "SELECT CAST(position AS TEXT), settings FROM rule ORDER BY position";
        self.each(
            database,
            rules,
            |draft, position, section| {
                let mut rule = load::rule(section);
                if let Some(rule) = &mut rule {
                    rule.name.get_or_insert_with(|| format!("rule {position}"));
                }
                draft.rules.extend(rule);
            },
            "rule",
        )?;
        self.clients(database)
    }

    /// Reads rows of a name and a text of TOML.
    fn each(
        &mut self,
        database: &Connection,
        query: &str,
        take: impl Fn(&mut Draft, String, Section<'_>),
        table: &str,
    ) -> rusqlite::Result<()> {
        let mut statement = database.prepare(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (name, text): (String, String) = (row.get(0)?, row.get(1)?);
            let file = format!("{}, {table} {}", self.name, name.escape_debug());
            if text.len() > MAX_FILE {
                let what = format!("larger than {} MiB", MAX_FILE >> 20);
                self.tell(place(&file, "").fault(what, "write a shorter text"));
                continue;
            }
            let source = Source::new(Path::new(&file), text);
            let mut of_syntax = vec![];
            let root = source.parse(&mut of_syntax);
            if of_syntax.is_empty() {
                take(self.draft, name, Section::top(&source, root.get_ref(), self.faults).named(table));
            }
            of_syntax.into_iter().for_each(|fault| self.tell(fault));
        }
        Ok(())
    }

    fn clients(&mut self, database: &Connection) -> rusqlite::Result<()> {
        let has_column = |name: &str| database.column_exists(None::<&str>, "client", name);
        let is_old = !has_column("issuer_key")?;
        let column = |name: &'static str| if is_old && name == "issuer_key" { "NULL" } else { name };
        let columns: Vec<&str> = ATTRIBUTES.iter().map(|(name, _)| column(name)).collect();
        let query = format!("SELECT position, profile, {} FROM client ORDER BY position", columns.join(", "));
        let mut statement = database.prepare(&query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if self.draft.clients.len() == MAX_CLIENTS {
                let what = format!("more than {MAX_CLIENTS} clients");
                self.tell(place(self.name, "client").fault(what, "describe groups of them by rules"));
                break;
            }
            if let Some(client) = self.client(row)? {
                self.draft.clients.push(client);
            }
        }
        Ok(())
    }

    /// An entry of the client table; `None` if it has a fault.
    fn client(&self, row: &Row<'_>) -> rusqlite::Result<Option<DraftRule>> {
        let position: i64 = row.get(0)?;
        let name = format!("client {position}");
        let row_place = place(&format!("{}, {name}", self.name), &name);
        let of = |column: &str| Place { key: column.to_owned(), ..row_place.clone() };
        let mut conditions = Vec::new();
        for (i, (column, attribute)) in ATTRIBUTES.iter().enumerate() {
            let Some(value) = row.get::<_, Option<String>>(i + 2)? else { continue };
            match load::checked(&value, attribute) {
                Err(advice) => self.tell(of(column).fault(format!("wrong value {value:?}"), advice)),
                Ok(value) => {
                    let test = Test::Attribute(attribute.clone(), vec![Pattern::literal(value)]);
                    conditions.push(Field { value: Condition { test }, place: of(column) });
                }
            }
        }
        if conditions.is_empty() {
            self.tell(row_place.fault("no attribute of the client", "give one, such as dns or psk"));
            return Ok(None);
        }
        let profile = row.get::<_, Option<String>>(1)?;
        let profile = profile.map(|value| Field { value, place: of("profile") });
        let name = Some(name);
        let place = row_place;
        Ok(Some(DraftRule { place, name, conditions, profile, renegotiates: true }))
    }

    fn tell(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }
}

/// The fault of a database that cannot be read.
fn failed(path: &Path, error: &rusqlite::Error) -> Faults {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "end the program that holds it",
        _ => "give a database that `dunlin` can read",
    };
    Faults::one(Fault::of_file(path, first_line(error), advice))
}

/// SQLite's message without the statement, which stands on further lines.
fn first_line(error: &rusqlite::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
