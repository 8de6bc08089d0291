//! The state machine between two blocks: a block that CometBFT has decided goes into a transaction, which
//! ends when CometBFT says so.

use std::sync::Arc;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::Sha256Hash;
use dunlin_identity::method::dunlin::{MAX_OPERATION, Operation, OperationError, OperationKind};
use dunlin_identity::transparency::{Chain, Checkpoint, Hasher, NodeHash, SignedCheckpoint, map_key};
use rusqlite::Connection;
use serde_json::Value;

use super::{HEIGHT, LOG};
use crate::operator::database::{self, CHECKPOINT, Stored};
use crate::operator::error::RegistryError;
use crate::operator::head::Head;
use crate::operator::reader::Snapshot;
use crate::operator::room::{Room, is_own, with_room};
use crate::operator::writer::{Append, Receipt};

/// When the operations of the log take this many bytes, with the space reserved for its DIDs, only
/// deactivations and one more update of each DID are valid: the log can never become shorter.
pub const MAX_LOG: u64 = 8 << 30;

/// The most bytes by which a block makes the log longer, without deactivations. A single operator that lies
/// makes blocks, too.
pub const MAX_GROWTH: u64 = 512 * 1024;

/// The bytes by which the log may grow in a minute of the headers' time, after it has grown by [`MAX_GROWTH`]
/// at once. So strangers need three months to fill [`MAX_LOG`].
pub const GROWTH_PER_MINUTE: u64 = 64 * 1024;

/// The bounds of a log, in bytes. All replicas must agree, so the genesis file sets them.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    log: u64,
    growth: u64,
    per_minute: u64,
}

impl Bounds {
    /// Reads them from `app_state`; the constants stand for missing members.
    pub(super) fn read(state: &Value) -> Result<Self, RegistryError> {
        let wrong = "app_state of the genesis file has a limit that is not a number, or is too small";
        let number = |name, default, least| match state.get(name) {
            None => Ok(default),
            Some(number) => {
                number.as_u64().filter(|number| *number >= least).ok_or(RegistryError::Request(wrong))
            }
        };
        let operation = MAX_OPERATION as u64;
        Ok(Self {
            log: number("max_log", MAX_LOG, operation)?,
            growth: number("max_growth", MAX_GROWTH, operation)?,
            per_minute: number("growth_per_minute", GROWTH_PER_MINUTE, 60)?,
        })
    }

    /// Their rows in `setting`.
    fn rows(&self) -> [(&'static str, u64); 3] {
        [("max_log", self.log), ("max_growth", self.growth), ("growth_per_minute", self.per_minute)]
    }
}

/// How far the log has grown.
#[derive(Clone, Copy)]
struct Grown {
    /// The length of the log, in bytes.
    log: u64,
    /// The part of [`Bounds::growth`] in use at the time.
    recent: u64,
    /// The time of the latest block, in seconds since 1970.
    time_s: u64,
}

impl Grown {
    /// At the time of the next block.
    fn at(self, time_s: u64, bounds: &Bounds) -> Self {
        let passed = time_s.saturating_sub(self.time_s);
        let free = passed.saturating_mul(bounds.per_minute) / 60;
        Self { recent: self.recent.saturating_sub(free), time_s: time_s.max(self.time_s), ..self }
    }

    /// How many bytes an operation counts of the growth, and the room that it has, in a log where `reserved`
    /// bytes belong to the DIDs that it has. A DID ends once, so deactivations alone cannot fill a disk, and
    /// the owner of a stolen key must never wait for others. Nor must the holder of a DID that has not
    /// changed for a while ([`is_own`]).
    fn by(
        &self,
        operation: &Operation,
        before: Option<&Stored>,
        bytes: &[u8],
        (reserved, bounds): (u64, &Bounds),
    ) -> Result<(u64, Room), RegistryError> {
        let kind = operation.kind();
        let length = bytes.len() as u64;
        let needed = if kind == OperationKind::Create { with_room(length) } else { length };
        let is_full = self.log.saturating_add(reserved).saturating_add(needed) > bounds.log;
        let room = if is_full { Room::Reserved } else { Room::Free };
        match kind {
            OperationKind::Deactivate => Ok((0, Room::Free)),
            OperationKind::Create if is_full => Err(RegistryError::Full),
            OperationKind::Update if is_full && before.is_none_or(|stored| length > stored.room) => {
                Err(RegistryError::Full)
            }
            _ if is_own(kind, before, self.time_s) => Ok((0, room)),
            _ if self.recent.saturating_add(length) > bounds.growth => Err(RegistryError::Busy),
            _ => Ok((length, room)),
        }
    }

    /// Their rows in `setting`.
    fn rows(&self) -> [(&'static str, u64); 3] {
        [(LOG, self.log), ("grown", self.recent), ("time", self.time_s)]
    }
}

/// The rows in `setting` of a replica without blocks.
pub(super) fn rows() -> Result<impl Iterator<Item = (&'static str, u64)>, RegistryError> {
    let grown = Grown { log: 0, recent: 0, time_s: 0 };
    Ok([(HEIGHT, 0)].into_iter().chain(grown.rows()).chain(Bounds::read(&Value::Null)?.rows()))
}

/// An operation in a block: the hash of its text, and its result.
pub(super) type Applied = (Sha256Hash, Result<Receipt, RegistryError>);

/// The latest state after a block. The block's transaction is open.
struct Block {
    head: Head,
    grown: Grown,
    results: Vec<Applied>,
}

/// The checkpoint of an empty log.
pub(super) fn empty(hasher: Hasher<'_>, chain: &Chain) -> Result<Checkpoint, RegistryError> {
    Head::default().checkpoint(hasher, chain.origin())
}

pub(super) struct Ledger {
    connection: Connection,
    provider: Arc<CryptoProvider>,
    origin: String,
    height: u64,
    head: Head,
    bounds: Bounds,
    grown: Grown,
    /// The bytes that operations take which wait for the next block. After each block, CometBFT asks about
    /// those that are left again.
    waiting: u64,
    /// The newest state, and the one a block before, which the newest block's header commits to.
    states: [(NodeHash, Snapshot); 2],
    /// A block that CometBFT has decided and not yet committed, with its number, and the state after it.
    decided: Option<(u64, Block, (NodeHash, Snapshot))>,
}

impl Ledger {
    pub(super) fn open(
        connection: Connection,
        provider: Arc<CryptoProvider>,
        origin: &str,
    ) -> Result<Self, RegistryError> {
        let newest = Checkpoint::read(&database::setting(&connection, CHECKPOINT)?)?;
        let number = |name| {
            let number = database::setting(&connection, name)?.parse();
            number.map_err(|_| RegistryError::damaged(format!("the setting {name} is not a number")))
        };
        let height = number(HEIGHT)?;
        let grown = Grown { log: number(LOG)?, recent: number("grown")?, time_s: number("time")? };
        let [log, growth, per_minute] = ["max_log", "max_growth", "growth_per_minute"].map(number);
        let bounds = Bounds { log: log?, growth: growth?, per_minute: per_minute? };
        if newest.origin != origin {
            return Err(RegistryError::damaged("its newest checkpoint is not that of its log"));
        }
        let head = Head::load(&connection, Hasher(provider.sha256), &newest)?;
        let state = state(&provider, newest, &head)?;
        let origin = origin.to_owned();
        let states = [state.clone(), state];
        let waiting = 0;
        let decided = None;
        Ok(Self { connection, provider, origin, height, head, bounds, grown, waiting, states, decided })
    }

    /// The number of the latest block on the disk.
    pub(super) fn height(&self) -> u64 {
        self.height
    }

    pub(super) fn newest(&self) -> &Snapshot {
        let [(_, newest), _] = &self.states;
        newest
    }

    /// The hash of the newest state.
    pub(super) fn hash(&self) -> &NodeHash {
        let [(hash, _), _] = &self.states;
        hash
    }

    /// One of the last two states, by its hash.
    pub(super) fn state(&self, hash: &NodeHash) -> Option<&Snapshot> {
        self.states.iter().find(|(found, _)| found == hash).map(|(_, state)| state)
    }

    /// Forgets a block that was decided. CometBFT will bring it again.
    fn roll_back(&mut self) -> Result<(), RegistryError> {
        if self.decided.take().is_some() || !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        Ok(())
    }

    /// Whether there is room for an operation in the next block, after those that wait for it. Otherwise
    /// strangers' creations would fill the places of all that wait in the nodes.
    pub(super) fn has_room(&mut self, operation: &Operation, bytes: &[u8]) -> Result<(), RegistryError> {
        let before = stored(&self.provider, &self.connection, operation)?;
        let bounds = (self.head.room, &self.bounds);
        let grown = Grown { recent: self.grown.recent.saturating_add(self.waiting), ..self.grown };
        let (growth, _) = grown.by(operation, before.as_ref(), bytes, bounds)?;
        self.waiting = self.waiting.saturating_add(growth);
        Ok(())
    }

    /// Sets the bounds at the begin of the chain.
    pub(super) fn bound(&mut self, bounds: Bounds) -> Result<(), RegistryError> {
        for (name, value) in bounds.rows() {
            database::set(&self.connection, name, &value.to_string())?;
        }
        self.bounds = bounds;
        Ok(())
    }

    /// Applies the operations of a block with this time inside a new transaction, which stays open. Ends
    /// early if `goes_on` says so, which learns whether the log took the operation. A repeated one is not
    /// taken again.
    fn apply(
        &mut self,
        time_s: u64,
        operations: &[&[u8]],
        mut goes_on: impl FnMut(bool) -> bool,
    ) -> Result<Block, RegistryError> {
        self.roll_back()?;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        // The lock is beside the file, so it cannot see a process that reaches the file by another mount.
        let latest = self.newest().checkpoint().checkpoint().to_string();
        for (name, known) in [(HEIGHT, self.height.to_string()), (CHECKPOINT, latest)] {
            if database::setting(&self.connection, name)? != known {
                return Err(RegistryError::InUse(self.connection.path().unwrap_or_default().to_owned()));
            }
        }
        let mut head = self.head.clone();
        let mut grown = self.grown.at(time_s, &self.bounds);
        let provider = &*self.provider;
        let origin = self.origin.as_str();
        let mut append = Append::new(provider, origin, &self.connection, &mut head, grown.time_s);
        let mut results = Vec::new();
        for bytes in operations {
            let hash = Sha256Hash::of(provider, bytes).map_err(OperationError::from)?;
            let size = append.size();
            let operation = read(bytes).map_err(RegistryError::from);
            let (growth, result) = match operation {
                Ok(operation) => {
                    let before = stored(provider, &self.connection, &operation)?;
                    let bounds = (append.room(), &self.bounds);
                    match grown.by(&operation, before.as_ref(), bytes, bounds) {
                        Ok((growth, room)) => (growth, append.apply(&operation, room)?),
                        Err(error) => (0, Err(error)),
                    }
                }
                Err(error) => (0, Err(error)),
            };
            // A replica that goes on with a damaged database would have another state than the others.
            if let Err(error @ RegistryError::Damaged(_)) = result {
                return Err(error);
            }
            results.push((hash, result));
            let taken = append.size() > size;
            if taken {
                grown.log = grown.log.saturating_add(bytes.len() as u64);
                grown.recent = grown.recent.saturating_add(growth);
            }
            if !goes_on(taken) {
                break;
            }
        }
        append.finish()?;
        Ok(Block { head, grown, results })
    }

    /// Which of these operations would be valid, one after the other, after the latest block. A repeated one
    /// would not.
    pub(super) fn trial(&mut self, time_s: u64, operations: &[&[u8]]) -> Result<Vec<bool>, RegistryError> {
        let mut valid = Vec::new();
        let applied = self.apply(time_s, operations, |taken| {
            valid.push(taken);
            true
        });
        self.roll_back()?;
        applied.map(|_| valid)
    }

    /// Whether all of these operations would be valid, as by [`Self::trial`]. Stops at the first invalid one,
    /// so that a bad proposal costs little.
    pub(super) fn all_valid(&mut self, time_s: u64, operations: &[&[u8]]) -> Result<bool, RegistryError> {
        let mut all_valid = true;
        let applied = self.apply(time_s, operations, |taken| {
            all_valid = taken;
            taken
        });
        self.roll_back()?;
        applied.map(|_| all_valid)
    }

    /// Applies the operations of a decided block. Returns the hash of the state after it, and the results.
    pub(super) fn decide(
        &mut self,
        height: u64,
        time_s: u64,
        operations: &[&[u8]],
    ) -> Result<(NodeHash, &[Applied]), RegistryError> {
        if height != self.height + 1 {
            return Err(RegistryError::Request("its block is not the next one"));
        }
        let block = match self.apply(time_s, operations, |_| true) {
            Ok(applied) => applied,
            Err(error) => {
                self.roll_back()?;
                return Err(error);
            }
        };
        let newest = block.head.checkpoint(Hasher(self.provider.sha256), &self.origin)?;
        let newest = state(&self.provider, newest, &block.head)?;
        database::set(&self.connection, CHECKPOINT, newest.1.checkpoint().note().text())?;
        database::set(&self.connection, HEIGHT, &height.to_string())?;
        for (name, value) in block.grown.rows() {
            database::set(&self.connection, name, &value.to_string())?;
        }
        let hash = newest.0;
        let (_, block, _) = self.decided.insert((height, block, newest));
        Ok((hash, &block.results))
    }

    /// Brings the decided block to the disk. Returns the results.
    pub(super) fn commit(&mut self) -> Result<Vec<Applied>, RegistryError> {
        let (height, block, newest) =
            self.decided.take().ok_or(RegistryError::Request("no block is decided"))?;
        self.connection.execute_batch("COMMIT")?;
        (self.height, self.head, self.grown, self.waiting) = (height, block.head, block.grown, 0);
        let [before, _] = std::mem::replace(&mut self.states, [newest.clone(), newest]);
        let [_, previous] = &mut self.states;
        *previous = before;
        Ok(block.results)
    }
}

/// An operation in a block is in canonical form, so it has one hash.
pub(super) fn read(bytes: &[u8]) -> Result<Operation, OperationError> {
    let operation = Operation::read(bytes)?;
    if operation.canonical()?.as_bytes() == bytes { Ok(operation) } else { Err(OperationError::NotCanonical) }
}

/// The stored state of an operation's DID.
fn stored(
    provider: &CryptoProvider,
    connection: &Connection,
    operation: &Operation,
) -> Result<Option<Stored>, RegistryError> {
    database::state(connection, &map_key(provider, operation.did()).map_err(OperationError::from)?)
}

/// A state and its hash.
fn state(
    provider: &CryptoProvider,
    checkpoint: Checkpoint,
    head: &Head,
) -> Result<(NodeHash, Snapshot), RegistryError> {
    let checkpoint = SignedCheckpoint::unsigned(checkpoint)?;
    let hash = Sha256Hash::of(provider, checkpoint.note().text().as_bytes()).map_err(OperationError::from)?;
    Ok((*hash.as_bytes(), Snapshot::new(checkpoint, head)))
}
