//! What is wrong with a key, a line or a store. No text repeats what may be a secret.

use super::{MAX_KEY_LEN, MIN_KEY_LEN};

/// What is wrong, and in which line of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct PskError {
    /// Which line, from 1, where it is one.
    pub line: Option<usize>,
    /// What is wrong.
    pub fault: PskFault,
}

impl From<PskFault> for PskError {
    fn from(fault: PskFault) -> Self {
        Self { line: None, fault }
    }
}

/// What is wrong with a key, a line or a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PskFault {
    /// No colon in the line.
    #[error("no colon between identity and key")]
    NoColon,
    /// What follows `#` is not hexadecimal.
    #[error("the identity after # is not hexadecimal")]
    HexIdentity,
    /// No identity, or one too long; its length in bytes.
    #[error("an identity of {}, where 1 to 65535 are possible", bytes(*.0))]
    IdentityLength(usize),
    /// The key is not hexadecimal.
    #[error("the key is not hexadecimal")]
    HexKey,
    /// A key that is too short or too long; its length in bytes.
    #[error("a key of {}, where {MIN_KEY_LEN} to {MAX_KEY_LEN} are allowed", bytes(*.0))]
    KeyLength(usize),
    /// The same, where the key's own entry could allow it.
    #[error("a key of {}, where {MIN_KEY_LEN} to {MAX_KEY_LEN} are allowed", bytes(*.0))]
    ShortByName(usize),
    /// The identity stands on another line already; its number.
    #[error("the same identity as on line {0}")]
    Duplicate(usize),
    /// Not TOML, or not with our fields; in the parser's words.
    #[error("{0}")]
    Toml(String),
    /// Not one of `key` and `key_file`.
    #[error("a key is given by one of key and key_file")]
    KeyOrFile,
    /// A file with a key cannot be read; which one, and why.
    #[error("key_file {0}: {1}")]
    KeyFile(String, String),
    /// Not a time; the field.
    #[error("{0} is not a time")]
    Time(&'static str),
    /// It ends before it begins.
    #[error("not_after is before not_before")]
    EmptyValidity,
    /// A text that is empty, too long or has control characters; the field.
    #[error("{0} is empty, too long, or has control characters")]
    Text(&'static str),
    /// More than is read.
    #[error("larger than {0} MiB")]
    TooLarge(u64),
    /// A psktool file has no room for something.
    #[error("a psktool file has no room for {0}")]
    NoRoom(&'static str),
    /// Neither an identity nor a device.
    #[error("no key of {0}")]
    Unknown(String),
    /// There is a key of that identity.
    #[error("{0} has a key already")]
    Exists(String),
    /// There is a key of that identity, and it was revoked.
    #[error("{0} was revoked")]
    Revoked(String),
    /// Nothing to rotate.
    #[error("{0} has no valid key")]
    NoneValid(String),
    /// Nothing left to revoke.
    #[error("{0} is revoked already")]
    AlreadyRevoked(String),
    /// A file cannot be read; why.
    #[error("{0}")]
    Unreadable(String),
    /// The database failed; in its words.
    #[error("{0}")]
    Database(String),
    /// Another program's database.
    #[error("not a database of keys")]
    Foreign,
    /// Made by a later version; its number.
    #[error("a database of version {0}, which this program does not know")]
    Newer(i64),
}

impl PskFault {
    /// What the user can do about it.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NoColon => "write identity:key with the key in hexadecimal",
            Self::HexKey => "write the key in hexadecimal, two digits a byte",
            Self::HexIdentity => "write an even number of hexadecimal digits after #",
            Self::IdentityLength(_) => "give an identity",
            Self::KeyLength(1..MIN_KEY_LEN) => {
                "take a longer key, or add --allow-short if the peer can do no better"
            }
            Self::ShortByName(1..MIN_KEY_LEN) => {
                "take a longer key, or write allow_short = true for it if the peer can do no better"
            }
            Self::KeyLength(_) | Self::ShortByName(_) => "take a key of another length",
            Self::Duplicate(_) => "remove one of the two",
            Self::Toml(_) => "write a [[psk]] table for each key, with identity and key",
            Self::KeyOrFile => "write one of them",
            Self::KeyFile(..) => {
                "name a file with the key in hexadecimal, seen from the directory of this one"
            }
            Self::Time(_) => "write it as 2027-01-31T12:00:00Z",
            Self::EmptyValidity => "exchange or correct them",
            Self::Text(_) => "write at most 255 bytes of plain text",
            Self::TooLarge(_) => "use a database",
            Self::NoRoom(_) => "name a .toml or .db file instead; `dunlin psk convert` makes one of this",
            Self::Unknown(_) => "see `dunlin psk list`",
            Self::Exists(_) => "choose another identity, or add --force to replace its key",
            Self::Revoked(_) => {
                "choose another identity, or take this one away with `dunlin psk remove` first"
            }
            Self::NoneValid(_) => "make a new key with `dunlin psk new`",
            Self::AlreadyRevoked(_) => "nothing is left to do",
            Self::Unreadable(_) => "give a file that can be read",
            Self::Database(_) => "check the file, its directory and the space on the disk",
            Self::Foreign => "name a database that `dunlin psk` made, or a new file",
            Self::Newer(_) => "use a newer dunlin",
        }
    }
}

fn bytes(n: usize) -> String {
    format!("{n} byte{}", if n == 1 { "" } else { "s" })
}
