//! Why bytes do not parse, and why a value cannot be written.

use super::{Unit, What};

/// Bytes that do not parse, or are more than this side takes. Each names the structure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The structure ends too early.
    Truncated(What),
    /// Something follows the end of the structure.
    TrailingBytes(What),
    /// A length outside what the definition allows.
    Length(What),
    /// A value that makes the rest unreadable.
    Value(What),
    /// More than this side takes, though the protocol allows it; docs/security.md lists the limits.
    AboveLimit {
        /// The message or list.
        what: What,
        /// How much of it this side takes.
        max: usize,
        /// What is counted.
        unit: Unit,
    },
}

/// A value is longer than the length prefix of its field can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldTooLong;
