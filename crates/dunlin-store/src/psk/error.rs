//! Errors of keys, their files and databases. No text quotes what may be a secret.

use super::{MAX_KEY_LEN, MIN_KEY_LEN};
use crate::text::NotText;

/// A fault, and the line of the file where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct PskError {
    /// The number of the line, from 1; `None` if the fault is not in a line.
    pub line: Option<usize>,
    /// The fault.
    pub fault: PskFault,
}

impl From<PskFault> for PskError {
    fn from(fault: PskFault) -> Self {
        Self { line: None, fault }
    }
}

/// Why a key, a line or a store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PskFault {
    /// The line has no colon.
    #[error("no colon between identity and key")]
    NoColon,
    /// The text after `#` is not hexadecimal.
    #[error("the identity after # is not hexadecimal")]
    HexIdentity,
    /// The identity is empty or too long; its length in bytes.
    #[error("the identity has {} instead of 1 to 65535", bytes(*.0))]
    IdentityLength(usize),
    /// The key is not hexadecimal.
    #[error("the key is not hexadecimal")]
    HexKey,
    /// The key is too short or too long; its length in bytes.
    #[error("the key has {} instead of {MIN_KEY_LEN} to {MAX_KEY_LEN}", bytes(*.0))]
    KeyLength(usize),
    /// The key is too short, but its entry could allow that; its length in bytes.
    #[error("the key has {} instead of {MIN_KEY_LEN} to {MAX_KEY_LEN}", bytes(*.0))]
    ShortByName(usize),
    /// Another line has the same identity; the number of that line.
    #[error("the same identity as on line {0}")]
    Duplicate(usize),
    /// The file is not TOML, or has wrong fields; the parser's message.
    #[error("{0}")]
    Toml(String),
    /// The entry has neither or both of `key` and `key_file`.
    #[error("a key needs exactly one of key and key_file")]
    KeyOrFile,
    /// The file with a key cannot be used; its path, and why.
    #[error("key_file {0}: {1}")]
    KeyFile(String, String),
    /// The value is not a time; the field.
    #[error("{0} is not a time")]
    Time(&'static str),
    /// The validity ends before it begins.
    #[error("not_after is before not_before")]
    EmptyValidity,
    /// The text is empty, too long or has control characters; the field.
    #[error("{0} is empty, too long, or has control characters")]
    Text(&'static str),
    /// The file is not text.
    #[error("{0}")]
    NotText(NotText),
    /// The file is too large; the limit in MiB.
    #[error("larger than {0} MiB")]
    TooLarge(u64),
    /// A psktool file cannot hold this property.
    #[error("a psktool file cannot hold {0}")]
    NoRoom(&'static str),
    /// No key has this identity or device.
    #[error("no key of {0}")]
    Unknown(String),
    /// The identity has a key already.
    #[error("{0} has a key already")]
    Exists(String),
    /// The identity has a key, and it was revoked.
    #[error("{0} was revoked")]
    Revoked(String),
    /// The device has no valid key to rotate.
    #[error("{0} has no valid key")]
    NoneValid(String),
    /// All keys of the device are revoked already.
    #[error("{0} is revoked already")]
    AlreadyRevoked(String),
    /// The file cannot be read; why.
    #[error("{0}")]
    Unreadable(String),
    /// The database failed; its message.
    #[error("{0}")]
    Database(String),
    /// The file is not a database, or another program's.
    #[error("not a key database of dunlin")]
    Foreign,
    /// A later version of this program made the database; the database's version.
    #[error("the database has version {0}, which this program does not support")]
    Newer(i64),
}

impl PskFault {
    /// Advice to the user, as an imperative clause.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NoColon => "write identity:key with the key in hexadecimal",
            Self::HexKey => "write the key in hexadecimal, two digits for each byte",
            Self::HexIdentity => "write an even number of hexadecimal digits after #",
            Self::IdentityLength(_) => "give an identity of that length",
            Self::KeyLength(1..MIN_KEY_LEN) => {
                "use a longer key, or add --allow-short if the peer supports no longer one"
            }
            Self::ShortByName(1..MIN_KEY_LEN) => {
                "use a longer key, or write allow_short = true for it if the peer supports no longer one"
            }
            Self::KeyLength(_) | Self::ShortByName(_) => "use a key of another length",
            Self::Duplicate(_) => "remove one of the two",
            Self::Toml(_) => "write a [[psk]] table for each key, with identity and key",
            Self::KeyOrFile => "write one of them",
            Self::KeyFile(..) => {
                "name a file with the key in hexadecimal, relative to the directory of this file"
            }
            Self::Time(_) => "write it as 2027-01-31T12:00:00Z",
            Self::EmptyValidity => "swap or correct them",
            Self::Text(_) => "write at most 255 bytes of plain text",
            Self::NotText(why) => why.advice(),
            Self::TooLarge(_) => "use a database",
            Self::NoRoom(_) => "name a .toml or .db file instead; `dunlin psk convert` converts this one",
            Self::Unknown(_) => "see `dunlin psk list`",
            Self::Exists(_) => "choose another identity, or add --force to replace its key",
            Self::Revoked(_) => {
                "choose another identity, or remove the revoked one with `dunlin psk remove` first"
            }
            Self::NoneValid(_) => "make a new key with `dunlin psk new`",
            Self::AlreadyRevoked(_) => "leave it as it is: its keys are refused",
            Self::Unreadable(_) => "give a readable file",
            Self::Database(_) => "check the file, its directory and the free space on the disk",
            Self::Foreign => "name a database that `dunlin psk` made, or a new file",
            Self::Newer(_) => "use a newer dunlin",
        }
    }
}

fn bytes(n: usize) -> String {
    format!("{n} byte{}", if n == 1 { "" } else { "s" })
}
