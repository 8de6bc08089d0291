//! Key files in TOML, which people can edit: a table for each key.
//!
//! ```toml
//! identity_hint = "gateway"               # for TLS 1.2 (RFC 4279 §5.2)
//!
//! [[psk]]
//! identity = "sensor-7.2"                 # or #7365…, in hexadecimal
//! key = "8a3f…"                           # in hexadecimal; or key_file, relative to this file's directory
//! hash = "sha256"                         # or sha384
//! name = "sensor-7"                       # the device, which may have several keys
//! not_before = 2027-01-01T00:00:00Z       # or 2027-01-01
//! not_after = 2028-01-01T00:00:00Z        # the key expires at this moment
//! revoked = { at = 2027-05-01, reason = "lost" }
//! allow_short = false                     # true: the key may have less than 16 bytes
//! import_context = ""                     # the key is imported (RFC 9258) and bound to this context
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use dunlin::crypto::HashAlgorithm;
use serde::Deserialize;
use toml::Spanned;
use toml_edit::{DocumentMut, InlineTable, Item, Table, Value, value};
use zeroize::Zeroizing;

use super::time::{format_time, parse_time};
use super::{
    Identity, MAX_KEY_LEN, MIN_KEY_LEN, PskError, PskFault, PskRecord, PskRecords, PskSet, Revoked,
    hash_name, text_of,
};

/// The largest file, in bytes. Parsing takes many times as much memory; a database can hold more keys.
pub const MAX_FILE: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    identity_hint: Option<Spanned<String>>,
    #[serde(default)]
    psk: Vec<Spanned<RawPsk>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPsk {
    identity: Spanned<String>,
    key: Option<Spanned<Hex>>,
    key_file: Option<Spanned<String>>,
    #[serde(default)]
    hash: RawHash,
    name: Option<String>,
    not_before: Option<Spanned<When>>,
    not_after: Option<Spanned<When>>,
    revoked: Option<RawRevoked>,
    #[serde(default)]
    allow_short: bool,
    import_context: Option<Spanned<String>>,
}

/// A key in hexadecimal. The parser's own copies are not wiped.
#[derive(Deserialize)]
#[serde(from = "String")]
struct Hex(Zeroizing<String>);

impl From<String> for Hex {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawHash {
    #[default]
    Sha256,
    Sha384,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRevoked {
    at: Spanned<When>,
    reason: Option<String>,
}

/// TOML has native times, but some editors write them as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum When {
    Native(toml::value::Datetime),
    Text(String),
}

impl When {
    fn unix_s(&self) -> Option<u64> {
        match self {
            Self::Native(time) => parse_time(&time.to_string()),
            Self::Text(text) => parse_time(text),
        }
    }
}

/// Parses a file. Returns its keys and the key files that it names, relative to `directory`.
///
/// # Errors
/// The first fault, and its line.
pub fn parse(file: &[u8], directory: &Path) -> Result<(PskSet, Vec<PathBuf>), PskError> {
    if file.len() as u64 > MAX_FILE {
        return Err(PskFault::TooLarge(MAX_FILE >> 20).into());
    }
    let text = std::str::from_utf8(file).map_err(|e| PskError {
        line: Some(line_of(file, e.valid_up_to())),
        fault: PskFault::Toml("not UTF-8".into()),
    })?;
    let raw: RawFile = toml::from_str(text).map_err(|e| PskError {
        line: e.span().map(|span| line_of(file, span.start)),
        fault: PskFault::Toml(harmless(e.message())),
    })?;
    let mut set = PskSet::default();
    if let Some(hint) = raw.identity_hint {
        let at = line_of(file, hint.span().start);
        let bytes = Identity::parse(hint.as_ref().as_bytes());
        let bytes = bytes.map_err(|fault| PskError { line: Some(at), fault })?;
        set.set_identity_hint(Some(bytes.as_bytes().to_vec()))?;
    }
    let mut seen = HashMap::new();
    let mut key_files = vec![];
    for raw in raw.psk {
        let table = raw.span().start;
        let raw = raw.into_inner();
        let at = |start: usize| move |fault| PskError { line: Some(line_of(file, start)), fault };
        let identity_at = raw.identity.span().start;
        let record =
            record(raw, directory, &mut key_files, table).map_err(|(span, fault)| at(span.start)(fault))?;
        let line = line_of(file, identity_at);
        if let Some(first) = seen.insert(record.identity.clone(), line) {
            return Err(at(identity_at)(PskFault::Duplicate(first)));
        }
        set.put(record).map_err(|e| at(table)(e.fault))?;
    }
    Ok((set, key_files))
}

fn record(
    raw: RawPsk,
    directory: &Path,
    key_files: &mut Vec<PathBuf>,
    table: usize,
) -> Result<PskRecord, (Range<usize>, PskFault)> {
    let here = table..table;
    let identity = Identity::parse(raw.identity.as_ref().as_bytes());
    let identity = identity.map_err(|fault| (raw.identity.span(), fault))?;
    let (span, key) = match (raw.key, raw.key_file) {
        (Some(key), None) => (key.span(), key_of(key.as_ref().0.as_bytes()).map_err(|f| (key.span(), f))?),
        (None, Some(file)) => {
            let path = directory.join(file.as_ref());
            let key = read_key(&path)
                .map_err(|why| (file.span(), PskFault::KeyFile(path.display().to_string(), why)))?;
            key_files.push(path);
            (file.span(), key)
        }
        _ => return Err((here, PskFault::KeyOrFile)),
    };
    let time = |field: Option<Spanned<When>>, name| match field {
        None => Ok(None),
        Some(when) => match when.as_ref().unix_s() {
            Some(time) => Ok(Some(time)),
            None => Err((when.span(), PskFault::Time(name))),
        },
    };
    let mut record = PskRecord::new(identity, key);
    record.hash = match raw.hash {
        RawHash::Sha256 => HashAlgorithm::Sha256,
        RawHash::Sha384 => HashAlgorithm::Sha384,
    };
    record.name = raw.name;
    record.not_before_s = time(raw.not_before, "not_before")?;
    record.not_after_s = time(raw.not_after, "not_after")?;
    if let Some(revoked) = raw.revoked {
        let at_s = time(Some(revoked.at), "revoked.at")?.unwrap_or_default();
        record.revoked = Some(Revoked { at_s, reason: revoked.reason });
    }
    record.allow_short = raw.allow_short;
    record.import = match raw.import_context {
        Some(context) => {
            Some(context_of(context.as_ref()).ok_or((context.span(), PskFault::Text("import_context")))?)
        }
        None => None,
    };
    match record.check() {
        Ok(()) => Ok(record),
        Err(PskFault::KeyLength(length)) => {
            let by_name = (1..MIN_KEY_LEN).contains(&length) && record.import.is_none();
            let fault = if by_name { PskFault::ShortByName(length) } else { PskFault::KeyLength(length) };
            Err((span, fault))
        }
        Err(fault) => Err((here, fault)),
    }
}

/// Reads the context of an imported key (RFC 9258 §4.1): plain text, or hexadecimal after a `#`.
pub fn context_of(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix('#') {
        Some(hex) => base16ct::mixed::decode_vec(hex).ok(),
        None => Some(text.as_bytes().to_vec()),
    }
}

fn key_of(hex: &[u8]) -> Result<Zeroizing<Vec<u8>>, PskFault> {
    base16ct::mixed::decode_vec(hex.trim_ascii()).map(Zeroizing::new).map_err(|_| PskFault::HexKey)
}

/// Reads a key in hexadecimal from a file that holds nothing else.
fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    // The digits of the longest key and a line end. Reserve room for them: a vector that grows leaves copies
    // behind.
    let most = 2 * MAX_KEY_LEN + 2;
    let mut hex = Zeroizing::new(Vec::with_capacity(most + 1));
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(most as u64 + 1).read_to_end(&mut hex).map_err(|e| e.to_string())?;
    if hex.len() > most {
        return Err("the file is longer than any key".into());
    }
    key_of(&hex).map_err(|fault| fault.to_string())
}

fn line_of(file: &[u8], offset: usize) -> usize {
    1 + file.iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// The parser's message in one line, without the values that it quotes, since one of them may be a key.
fn harmless(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    match (line.strip_prefix("invalid "), line.find(", expected ")) {
        // Only times have two forms.
        _ if line.contains("untagged enum") => "a wrong value, expected a time".to_owned(),
        (Some(_), Some(at)) => format!("a wrong value{}", line.get(at..).unwrap_or_default()),
        _ => line.to_owned(),
    }
}

/// Changes the content `before` of a file so that it holds the keys of `set`. Unchanged parts and comments
/// stay.
///
/// # Errors
/// `before` cannot be parsed, or a time is after the year 9999.
pub fn render(before: &str, directory: &Path, set: &PskSet) -> Result<Zeroizing<String>, PskError> {
    let (old, _) = parse(before.as_bytes(), directory)?;
    let mut document: DocumentMut =
        before.parse().map_err(|_| PskFault::Toml("it cannot be edited".into()))?;
    match set.hint() {
        hint if hint == old.hint() => {}
        Some(hint) => *document.entry("identity_hint").or_insert(Item::None) = value(text_of(hint)),
        None => drop(document.remove("identity_hint")),
    }
    let tables = document.remove("psk").map(Item::into_array_of_tables);
    let mut tables = tables.and_then(Result::ok).unwrap_or_default();
    let identity = |table: &Table| {
        table.get("identity").and_then(Item::as_str).and_then(|text| Identity::parse(text.as_bytes()).ok())
    };
    tables.retain(|table| identity(table).is_some_and(|id| set.record(id.as_bytes()).is_some()));
    for table in tables.iter_mut() {
        let Some(id) = identity(table) else { continue };
        let was = old.record(id.as_bytes());
        let is = set.record(id.as_bytes());
        if was != is
            && let Some(is) = is
        {
            write_fields(table, is, was.is_none_or(|was| !was.has_key_of(is)))?;
        }
    }
    for record in set.iter().filter(|r| old.record(r.identity.as_bytes()).is_none()) {
        let mut table = Table::new();
        write_fields(&mut table, record, true)?;
        tables.push(table);
    }
    if !tables.is_empty() {
        document.insert("psk", Item::ArrayOfTables(tables));
    }
    Ok(Zeroizing::new(document.to_string()))
}

fn write_fields(table: &mut Table, record: &PskRecord, new_key: bool) -> Result<(), PskError> {
    let time = |time_s: Option<u64>, field| match time_s {
        None => Ok(None),
        Some(time_s) => {
            let time = format_time(time_s).and_then(|text| text.parse::<toml_edit::Datetime>().ok());
            time.map(|time| Some(Value::from(time))).ok_or(PskFault::Time(field))
        }
    };
    let mut set = |field: &str, new: Option<Value>| match new {
        None => drop(table.remove(field)),
        Some(new) => {
            // Keep the white space and comments around the old value.
            let decor = table.get(field).and_then(Item::as_value).map(|old| old.decor().clone());
            let mut new = new;
            if let Some(decor) = decor {
                *new.decor_mut() = decor;
            }
            table.insert(field, Item::Value(new));
        }
    };
    set("identity", Some(record.identity.to_string().into()));
    if new_key {
        set("key_file", None);
        set("key", Some(record.key_hex().as_str().into()));
    }
    let plain = record.hash == HashAlgorithm::Sha256;
    set("hash", (!plain).then(|| hash_name(record.hash).into()));
    set("name", record.name.as_deref().map(Value::from));
    set("not_before", time(record.not_before_s, "not_before")?);
    set("not_after", time(record.not_after_s, "not_after")?);
    let revoked = match &record.revoked {
        None => None,
        Some(revoked) => {
            let mut inline = InlineTable::new();
            inline.extend(time(Some(revoked.at_s), "revoked.at")?.map(|at| ("at", at)));
            inline.extend(revoked.reason.as_deref().map(|reason| ("reason", reason)));
            Some(Value::InlineTable(inline))
        }
    };
    set("revoked", revoked);
    set("allow_short", record.allow_short.then(|| true.into()));
    set("import_context", record.import.as_deref().map(|context| text_of(context).into()));
    Ok(())
}
