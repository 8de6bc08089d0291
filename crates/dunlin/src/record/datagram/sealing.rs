//! The header fields of a record that this side seals, in any version.

use crate::wire::ContentType;

/// The header fields of a record that this side seals.
pub(super) struct Sealing<'a> {
    pub(super) epoch: u64,
    pub(super) typ: ContentType,
    /// The peer's connection ID, or empty.
    pub(super) id: &'a [u8],
    /// Whether the record is the last one of its datagram.
    pub(super) is_last: bool,
    /// Whether its header in DTLS 1.3 has all 16 bits of the number and a length in any case.
    pub(super) is_full: bool,
}
