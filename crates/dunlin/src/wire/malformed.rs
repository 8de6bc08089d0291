//! Why bytes do not parse, and why a value cannot be written.

use core::fmt;

/// Bytes that do not parse, or are more than this side takes. Each names the structure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The structure ends too early.
    Truncated(&'static str),
    /// Something follows the end of the structure.
    TrailingBytes(&'static str),
    /// A length outside what the definition allows.
    Length(&'static str),
    /// A value that makes the rest unreadable.
    Value(&'static str),
    /// More than this side takes, though the protocol allows it; docs/security.md lists the limits.
    AboveLimit {
        /// The message or list.
        what: &'static str,
        /// How much of it this side takes.
        max: usize,
        /// What is counted: "bytes" or "entries".
        unit: &'static str,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(what) => write!(f, "{what} ends too early"),
            Self::TrailingBytes(what) => write!(f, "bytes after the end of {what}"),
            Self::Length(what) => write!(f, "a length in {what} is not allowed"),
            Self::Value(what) => write!(f, "a value in {what} is not allowed"),
            Self::AboveLimit { what, max, unit } => write!(f, "{what} has more than {max} {unit}"),
        }
    }
}

/// A value is longer than the length prefix of its field can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldTooLong;
