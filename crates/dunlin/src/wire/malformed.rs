//! The errors of the codec: bytes that do not parse, and a value that does not fit its field.

use super::{Field, Unit};

/// Bytes that do not parse, or that exceed a limit of this side. Each variant names the structure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The structure ends too early.
    Truncated(Field),
    /// Something follows the end of the structure.
    TrailingBytes(Field),
    /// A length that the structure's definition does not allow.
    Length(Field),
    /// A value that makes the rest unreadable.
    Value(Field),
    /// The protocol allows it, but it exceeds a limit of this side. docs/security.md lists the limits.
    AboveLimit {
        /// The message or list.
        what: Field,
        /// The limit, in `unit`.
        max: usize,
        /// The unit of `max`.
        unit: Unit,
    },
}

/// A value is too long for the length prefix of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldTooLong;
