//! The state machine between two blocks: what CometBFT decides goes into a transaction, which ends when CometBFT says so.

use std::sync::Arc;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::merkle::{Hasher, NodeHash};
use dunlin_identity::method::dunlin::{Operation, OperationError, Sha256Hash};
use dunlin_identity::registry::chain::Chain;
use dunlin_identity::registry::checkpoint::{Checkpoint, SignedCheckpoint};
use rusqlite::Connection;

use super::HEIGHT;
use crate::database::{self, CHECKPOINT};
use crate::error::RegistryError;
use crate::reader::Snapshot;
use crate::writer::{Append, Head, Receipt};

/// An operation in a block: the hash of its text, and what has become of it.
pub(super) type Applied = (Sha256Hash, Result<Receipt, RegistryError>);

/// A block that CometBFT has decided and not yet committed. Its transaction is open.
struct Decided {
    height: u64,
    head: Head,
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
    /// The newest state, and the one a block before, which the newest block's header commits to.
    states: [(NodeHash, Snapshot); 2],
    decided: Option<Decided>,
}

impl Ledger {
    pub(super) fn open(
        connection: Connection,
        provider: Arc<CryptoProvider>,
        origin: &str,
    ) -> Result<Self, RegistryError> {
        let newest = Checkpoint::read(&database::setting(&connection, CHECKPOINT)?)?;
        let height = database::setting(&connection, HEIGHT)?.parse();
        let height = height.map_err(|_| RegistryError::damaged("its height is not a number"))?;
        if newest.origin != origin {
            return Err(RegistryError::damaged("its newest checkpoint is not that of its log"));
        }
        let head = Head::load(&connection, Hasher(provider.sha256), &newest)?;
        let state = state(&provider, newest, &head)?;
        let (origin, states) = (origin.to_owned(), [state.clone(), state]);
        Ok(Self { connection, provider, origin, height, head, states, decided: None })
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

    /// Applies the operations inside a new transaction, which stays open.
    fn apply(&mut self, operations: &[&[u8]]) -> Result<(Head, Vec<Applied>), RegistryError> {
        self.roll_back()?;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut head = self.head.clone();
        let (provider, origin) = (&*self.provider, self.origin.as_str());
        let mut append = Append { provider, origin, transaction: &self.connection, head: &mut head };
        let mut results = Vec::new();
        for bytes in operations {
            let hash = Sha256Hash::of(provider, bytes).map_err(OperationError::from)?;
            let result = match read(bytes) {
                Ok(operation) => append.apply(&operation)?,
                Err(error) => Err(error.into()),
            };
            // A replica that goes on with a damaged database would have another state than the others.
            if let Err(error @ RegistryError::Damaged(_)) = result {
                return Err(error);
            }
            results.push((hash, result));
        }
        append.finish()?;
        Ok((head, results))
    }

    /// Which of these operations would be valid, one after the other, after the latest block. A repeated one would not.
    pub(super) fn trial(&mut self, operations: &[&[u8]]) -> Result<Vec<bool>, RegistryError> {
        let first = self.head.edge.size();
        let applied = self.apply(operations);
        self.roll_back()?;
        let mut next = first;
        let valid = |(_, result): Applied| {
            let appended = result.is_ok_and(|receipt| receipt.number == next);
            next += u64::from(appended);
            appended
        };
        Ok(applied?.1.into_iter().map(valid).collect())
    }

    /// Applies the operations of a decided block. Returns the hash of the state after it, and the results.
    pub(super) fn decide(
        &mut self,
        height: u64,
        operations: &[&[u8]],
    ) -> Result<(NodeHash, &[Applied]), RegistryError> {
        if height != self.height + 1 {
            return Err(RegistryError::Request("its block is not the next one"));
        }
        let (head, results) = match self.apply(operations) {
            Ok(applied) => applied,
            Err(error) => {
                self.roll_back()?;
                return Err(error);
            }
        };
        let checkpoint = head.checkpoint(Hasher(self.provider.sha256), &self.origin)?.to_string();
        database::set(&self.connection, CHECKPOINT, &checkpoint)?;
        database::set(&self.connection, HEIGHT, &height.to_string())?;
        let hash = Sha256Hash::of(&self.provider, checkpoint.as_bytes()).map_err(OperationError::from)?;
        let decided = self.decided.insert(Decided { height, head, results });
        Ok((*hash.as_bytes(), &decided.results))
    }

    /// Brings the decided block to the disk. Returns the results.
    pub(super) fn commit(&mut self) -> Result<Vec<Applied>, RegistryError> {
        let decided = self.decided.take().ok_or(RegistryError::Request("no block is decided"))?;
        let newest = decided.head.checkpoint(Hasher(self.provider.sha256), &self.origin)?;
        let newest = state(&self.provider, newest, &decided.head)?;
        self.connection.execute_batch("COMMIT")?;
        (self.height, self.head) = (decided.height, decided.head);
        let [before, _] = std::mem::replace(&mut self.states, [newest.clone(), newest]);
        let [_, previous] = &mut self.states;
        *previous = before;
        Ok(decided.results)
    }
}

/// An operation in a block is in canonical form, so it has one hash.
pub(super) fn read(bytes: &[u8]) -> Result<Operation, OperationError> {
    let operation = Operation::read(bytes)?;
    if operation.canonical()?.as_bytes() == bytes { Ok(operation) } else { Err(OperationError::NotCanonical) }
}

/// A state and its hash.
fn state(
    provider: &CryptoProvider,
    checkpoint: Checkpoint,
    head: &Head,
) -> Result<(NodeHash, Snapshot), RegistryError> {
    let checkpoint = SignedCheckpoint::unsigned(checkpoint)?;
    let hash = Sha256Hash::of(provider, checkpoint.note().text().as_bytes()).map_err(OperationError::from)?;
    Ok((*hash.as_bytes(), Snapshot::new(checkpoint, head.map.clone())))
}
