//! Where the log has the operations of a DID.

use dunlin_identity::Sha256Hash;
use rusqlite::{Connection, OptionalExtension};

use crate::operator::database::{signed, unsigned};
use crate::operator::error::RegistryError;

/// The most operations of one answer: together at most 640 kB, and for most DIDs a few kilobytes.
pub const MAX_HISTORY: u64 = 32;

/// An operation of a DID in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the entry in the log, from 0.
    pub number: u64,
    /// The operation in canonical form.
    pub operation: String,
}

/// Notes the entry of an operation.
pub(crate) fn put(
    connection: &Connection,
    key: &Sha256Hash,
    sequence: u64,
    entry: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO history (key, sequence, entry) VALUES (?1, ?2, ?3) \
               ON CONFLICT (key, sequence) DO UPDATE SET entry = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute((key.as_bytes(), signed(sequence), signed(entry))).map(drop)
}

/// The entry of an operation.
pub(crate) fn entry(
    connection: &Connection,
    key: &Sha256Hash,
    sequence: u64,
) -> Result<Option<u64>, RegistryError> {
    let sql = "SELECT entry FROM history WHERE key = ?1 AND sequence = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let entry = statement.query_row((key.as_bytes(), signed(sequence)), |row| row.get(0)).optional()?;
    Ok(entry.map(unsigned))
}

/// How many operations the table has.
pub(crate) fn count(connection: &Connection) -> Result<u64, RegistryError> {
    Ok(unsigned(connection.query_row("SELECT count(*) FROM history", [], |row| row.get(0))?))
}

/// The operations of a DID in order, from this one on, at most [`MAX_HISTORY`], in the log of this size.
pub(crate) fn operations(
    connection: &Connection,
    key: &Sha256Hash,
    first: u64,
    size: u64,
) -> Result<Vec<Entry>, RegistryError> {
    let sql = "SELECT number, content FROM history JOIN entry ON number = entry \
               WHERE key = ?1 AND sequence >= ?2 AND number < ?3 ORDER BY sequence LIMIT ?4";
    let mut statement = connection.prepare_cached(sql)?;
    let parameters = (key.as_bytes(), signed(first), signed(size), signed(MAX_HISTORY));
    let rows = statement.query_map(parameters, |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?;
    let read = |row: rusqlite::Result<(u64, Vec<u8>)>| {
        let (number, operation) = row?;
        let operation = String::from_utf8(operation).map_err(|_| unreadable(number))?;
        Ok(Entry { number, operation })
    };
    rows.map(read).collect()
}

/// The number of the operation after these, which begin with `first`, if the DID has one.
pub(crate) fn after(first: u64, entries: &[Entry], latest: u64) -> Option<u64> {
    let next = first.saturating_add(entries.len() as u64);
    (!entries.is_empty() && next <= latest).then_some(next)
}

fn unreadable(number: u64) -> RegistryError {
    RegistryError::damaged(format!("the entry {number} cannot be read"))
}
