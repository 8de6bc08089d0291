//! The space of the log that an operation may take, and the rate of a DID's operations.

use dunlin_identity::method::dunlin::OperationKind;

use crate::operator::database::Stored;
use crate::operator::error::RegistryError;

/// The space reserved for a DID at its creation beside another operation of the creation's length, in bytes:
/// an update can have longer keys, and a deactivation takes about 600.
pub const ROOM_MARGIN: u64 = 2048;

/// A DID that has not changed for this many seconds may change, whatever limits other DIDs have used up: 10
/// minutes.
pub const OWN_INTERVAL: u64 = 600;

/// Whether an operation is within its DID's own rate, which no other client can use up.
pub(crate) fn is_own(kind: OperationKind, before: Option<&Stored>, now_s: u64) -> bool {
    kind == OperationKind::Update
        && before.is_some_and(|stored| now_s >= stored.time_s.saturating_add(OWN_INTERVAL))
}

/// The bytes that a creation of this length takes, with the space that it reserves for an update and a
/// deactivation of its DID.
pub(crate) const fn with_room(creation: u64) -> u64 {
    creation.saturating_mul(2).saturating_add(ROOM_MARGIN)
}

/// How much of the log an operation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The log has room for all.
    Free,
    /// Only the space reserved for the operation's DID is left.
    Reserved,
}

/// The space reserved for a DID after an operation of this length, if there is room for it. A DID ends once,
/// so deactivations alone cannot fill a disk, and the owner of a stolen key must never wait for others.
pub(crate) fn left(kind: OperationKind, room: Room, had: u64, length: u64) -> Result<u64, RegistryError> {
    match (kind, room) {
        (OperationKind::Deactivate, _) => Ok(0),
        (OperationKind::Create | OperationKind::Update, Room::Free) => Ok(with_room(length) - length),
        (OperationKind::Update, Room::Reserved) if length <= had => Ok(0),
        (OperationKind::Create | OperationKind::Update, Room::Reserved) => Err(RegistryError::Full),
    }
}
