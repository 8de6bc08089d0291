//! The one thread that writes. It commits all operations that wait in one transaction, since a transaction
//! costs a write to the disk.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::Sha256Hash;
use dunlin_identity::method::dunlin::{Operation, OperationError, State};
use dunlin_identity::transparency::{
    Hasher, MAX_WITNESS_CLOCK_SKEW, MapLeaf, NodeHash, NoteSigner, Signed, SignedCheckpoint, map_key,
    root_entry,
};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::watch;

use crate::operator::database::{self, CHECKPOINT, KEY, Stored, set, signed};
use crate::operator::error::RegistryError;
use crate::operator::head::Head;
use crate::operator::history;
use crate::operator::reader::{Reader, Snapshot};
use crate::operator::room::{Room, left};

/// The most operations of one transaction. The first of them waits for the last.
pub const MAX_BATCH: usize = 256;

/// The most operations that wait for the writer. Each can take some 100 kB.
pub const MAX_QUEUE: usize = 1024;

/// The most creations among them: strangers make them, and holders of DIDs must not wait for strangers.
pub const MAX_CREATIONS: usize = MAX_QUEUE / 2;

/// The place of an acknowledged operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The number of its entry in the log, from 0. The registry's snapshot has it.
    pub number: u64,
}

/// The callback for when an operation is on the disk, or is refused. It must not block.
pub type Answer = Box<dyn FnOnce(Result<Receipt, RegistryError>) + Send>;

/// An operation, and the callback for its answer.
pub(crate) struct Submission {
    pub(crate) operation: Operation,
    pub(crate) room: Room,
    pub(crate) answer: Answer,
}

/// A key of the registry, as log and as witness.
pub(crate) type Pair = [NoteSigner; 2];

/// The registry's signing keys: its key, and the next one if it is about to replace its key.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) key: Pair,
    pub(crate) next: Option<Pair>,
}

impl Keys {
    fn all(&self) -> impl Iterator<Item = &Pair> {
        [&self.key].into_iter().chain(&self.next)
    }

    fn origin(&self) -> &str {
        let [log, _] = &self.key;
        log.key().name()
    }

    /// The keys as log, one on each line, as the database notes them ([`KEY`]).
    pub(crate) fn logs(&self) -> String {
        self.all().map(|[log, _]| log.key().to_string()).collect::<Vec<_>>().join("\n")
    }
}

/// The state of the thread.
pub(crate) struct Writer {
    connection: Connection,
    shared: Arc<Reader>,
    keys: Keys,
    /// Whether the database notes other keys yet. Then it is time for another checkpoint.
    has_new_keys: bool,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    refresh: Duration,
    head: Head,
    /// The text of the latest checkpoint.
    newest: String,
    /// The time of the latest checkpoint, in seconds since 1970.
    signed_s: u64,
}

/// Makes the first checkpoint of an empty log.
pub(crate) fn first_checkpoint(
    provider: &CryptoProvider,
    keys: &Keys,
    now_s: u64,
) -> Result<SignedCheckpoint, RegistryError> {
    sign(provider, keys, &Head::default(), now_s)
}

fn sign(
    provider: &CryptoProvider,
    keys: &Keys,
    head: &Head,
    now_s: u64,
) -> Result<SignedCheckpoint, RegistryError> {
    let checkpoint = head.checkpoint(Hasher(provider.sha256), keys.origin())?;
    let signers: Vec<_> = keys.all().flatten().cloned().collect();
    Ok(SignedCheckpoint::sign(provider, checkpoint, &signers, now_s)?)
}

/// Reads the database, and checks that its pieces belong together.
fn load(
    provider: &CryptoProvider,
    connection: &Connection,
    keys: &Keys,
) -> Result<(Head, SignedCheckpoint, u64), RegistryError> {
    let newest = SignedCheckpoint::read(database::setting(connection, CHECKPOINT)?.as_bytes())?;
    let mut latest = None;
    for [log, witness] in keys.all() {
        let is_signed = newest.note().signed_by(provider, log.key())? != Signed::No;
        if let (true, Signed::At(signed_s)) = (is_signed, newest.note().signed_by(provider, witness.key())?) {
            latest = latest.max(Some(signed_s));
        }
    }
    let unsigned = || RegistryError::damaged("its newest checkpoint is not signed with the registry's key");
    let signed_s = latest.ok_or_else(unsigned)?;
    if newest.checkpoint().origin != keys.origin() {
        return Err(RegistryError::damaged("its newest checkpoint is not that of its log"));
    }
    let head = Head::load(connection, Hasher(provider.sha256), newest.checkpoint())?;
    Ok((head, newest, signed_s))
}

impl Writer {
    /// Reads the database. Returns the writer and the first snapshot.
    pub(crate) fn open(
        connection: Connection,
        provider: &CryptoProvider,
        keys: Keys,
        clock: Arc<dyn Fn() -> u64 + Send + Sync>,
        refresh: Duration,
        share: impl FnOnce(Snapshot) -> Arc<Reader>,
    ) -> Result<Self, RegistryError> {
        let (head, newest, signed_s) = load(provider, &connection, &keys)?;
        let text = newest.to_string();
        let has_new_keys = database::setting(&connection, KEY)? != keys.logs();
        let shared = share(Snapshot::new(newest, &head));
        Ok(Self { connection, shared, keys, has_new_keys, clock, refresh, head, newest: text, signed_s })
    }

    pub(crate) fn shared(&self) -> &Arc<Reader> {
        &self.shared
    }

    /// Writes until the registry is closed. `ended` tells those who wait for it by its end.
    pub(crate) fn run(mut self, queue: &Receiver<Submission>, ended: watch::Sender<()>) {
        // The registry may have been closed for long.
        let mut working = self.write(Vec::new());
        while working {
            let mut batch = Vec::new();
            match queue.recv_timeout(self.refresh) {
                Ok(first) => {
                    batch.push(first);
                    batch.extend(queue.try_iter().take(MAX_BATCH - 1));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            working = self.write(batch);
        }
        drop(ended);
    }

    /// Whether the newest checkpoint is so old that it is time for another one.
    fn is_due(&self) -> bool {
        self.has_new_keys || (self.clock)() >= self.last_signed_s().saturating_add(self.refresh.as_secs())
    }

    /// The latest time that this witness has signed, which never goes back. Ignores a last time so far in the
    /// future that every verifier has refused it: the clock was wrong then.
    fn last_signed_s(&self) -> u64 {
        let latest = (self.clock)().saturating_add(MAX_WITNESS_CLOCK_SKEW);
        if self.signed_s > latest { 0 } else { self.signed_s }
    }

    /// Commits the valid operations of the batch, and answers all of them. Returns whether the writer can go
    /// on.
    fn write(&mut self, batch: Vec<Submission>) -> bool {
        let split = |Submission { operation, room, answer }| ((operation, room), answer);
        let (operations, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(split).unzip();
        let outcome = self.commit(&operations);
        // After a failure, memory must follow the disk again, whatever SQLite has done.
        let reloaded = match &outcome {
            Ok(_) => Ok(()),
            Err(error) => {
                // Without operations no submitter hears of the error, and verifiers refuse the checkpoint
                // that is not signed again.
                tracing::error!(%error, operations = operations.len(), "the registry could not sign a checkpoint");
                self.reload()
            }
        };
        if let Err(error) = &reloaded {
            tracing::error!(%error, "the registry no longer writes, since it cannot read its database");
        }
        let working = reloaded.is_ok();
        let results = match outcome {
            Ok(results) => results,
            Err(error) => operations.iter().map(|_| Err(error.clone())).collect(),
        };
        answers.into_iter().zip(results).for_each(|(answer, result)| answer(result));
        working
    }

    fn reload(&mut self) -> Result<(), RegistryError> {
        let (head, newest, signed_s) = load(self.shared.provider(), &self.connection, &self.keys)?;
        self.newest = newest.to_string();
        self.shared.publish(Snapshot::new(newest, &head));
        (self.head, self.signed_s) = (head, signed_s);
        Ok(())
    }

    /// Appends the valid operations, and makes the new snapshot visible after the commit.
    ///
    /// # Errors
    /// Nothing was committed.
    fn commit(
        &mut self,
        operations: &[(Operation, Room)],
    ) -> Result<Vec<Result<Receipt, RegistryError>>, RegistryError> {
        let provider = Arc::clone(self.shared.provider());
        let is_due = self.is_due();
        let last_s = self.last_signed_s();
        if operations.is_empty() && !is_due {
            return Ok(Vec::new());
        }
        let now_s = (self.clock)().max(last_s);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // The lock is beside the file, so it cannot see a process that reaches the file by another mount. Two
        // that both write would sign two histories.
        if database::setting(&transaction, CHECKPOINT)? != self.newest {
            return Err(self.shared.in_use());
        }
        let mut head = self.head.clone();
        let mut append = Append::new(&provider, self.keys.origin(), &transaction, &mut head, now_s);
        let results = operations.iter().map(|(operation, room)| append.apply(operation, *room));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        if append.size() == self.head.edge.size() && !is_due {
            return Ok(results);
        }
        append.finish()?;
        let newest = sign(&provider, &self.keys, &head, now_s)?;
        let text = newest.to_string();
        set(&transaction, CHECKPOINT, &text)?;
        if self.has_new_keys {
            set(&transaction, KEY, &self.keys.logs())?;
        }
        transaction.commit()?;
        self.has_new_keys = false;
        self.newest = text;
        self.shared.publish(Snapshot::new(newest, &head));
        (self.head, self.signed_s) = (head, now_s);
        Ok(results)
    }
}

fn put_tile(transaction: &Connection, level: u8, number: u64, hashes: &[NodeHash]) -> rusqlite::Result<()> {
    let sql = "INSERT INTO tile (level, number, hashes) VALUES (?1, ?2, ?3) \
               ON CONFLICT (level, number) DO UPDATE SET hashes = ?3";
    let mut statement = transaction.prepare_cached(sql)?;
    statement.execute((level, signed(number), hashes.as_flattened())).map(drop)
}

/// The place of a DID in the map, and its stored state.
type Before = (Sha256Hash, Option<Stored>);

/// The state of the operation's DID before it, and its place in the map.
fn before(
    origin: &str,
    provider: &CryptoProvider,
    connection: &Connection,
    operation: &Operation,
) -> Result<Before, RegistryError> {
    if operation.registry() != origin {
        return Err(OperationError::OtherRegistry(operation.registry().to_owned()).into());
    }
    let key = map_key(provider, operation.did()).map_err(OperationError::from)?;
    Ok((key, database::state(connection, &key)?))
}

/// The state of a DID after an operation, if the operation is valid. An operation that is the latest of its
/// DID is acknowledged again: its submitter may have missed the first answer.
fn after(
    provider: &CryptoProvider,
    connection: &Connection,
    before: Option<&Stored>,
    operation: &Operation,
) -> Result<ControlFlow<Receipt, State>, RegistryError> {
    Ok(ControlFlow::Continue(match before {
        None => State::create(provider, operation)?,
        Some(stored) if operation.hash(provider)? == stored.state.latest() => {
            return repeated(connection, stored.entry, operation).map(ControlFlow::Break);
        }
        Some(stored) => stored.state.apply(provider, operation)?,
    }))
}

/// Acknowledges an entry again. Its hash does not cover the signature, but the proof for its submitter does.
fn repeated(connection: &Connection, number: u64, operation: &Operation) -> Result<Receipt, RegistryError> {
    let entry = operation.canonical()?;
    let stored = database::entries(connection, number, number.saturating_add(1))?;
    if stored.iter().any(|stored| stored == entry.as_bytes()) {
        Ok(Receipt { number })
    } else {
        Err(RegistryError::OtherSignature(number))
    }
}

/// Whether an operation would be valid now. Returns the receipt if it is the latest of its DID already.
///
/// # Errors
/// The reason why it is not; the database cannot be read.
pub(crate) fn check(
    origin: &str,
    provider: &CryptoProvider,
    connection: &Connection,
    operation: &Operation,
) -> Result<Option<Receipt>, RegistryError> {
    let (_, before) = before(origin, provider, connection, operation)?;
    Ok(after(provider, connection, before.as_ref(), operation)?.break_value())
}

/// The most hashes in the path of a log's last entry, which has this number: two more than the mean.
const fn longest_path(last: u64) -> u32 {
    2 + (u64::BITS - last.leading_zeros()) / 2
}

/// The inside of a transaction.
pub(crate) struct Append<'t> {
    provider: &'t CryptoProvider,
    origin: &'t str,
    transaction: &'t Connection,
    head: &'t mut Head,
    /// The size of the log before.
    begin: u64,
    now_s: u64,
}

impl<'t> Append<'t> {
    /// The beginning of a transaction that appends to this log at this time, in seconds since 1970.
    pub(crate) fn new(
        provider: &'t CryptoProvider,
        origin: &'t str,
        transaction: &'t Connection,
        head: &'t mut Head,
        now_s: u64,
    ) -> Self {
        let begin = head.edge.size();
        Self { provider, origin, transaction, head, begin, now_s }
    }

    /// How many bytes are reserved for further operations of all DIDs.
    pub(crate) fn room(&self) -> u64 {
        self.head.room
    }

    /// The size of the log now.
    pub(crate) fn size(&self) -> u64 {
        self.head.edge.size()
    }

    /// Appends an operation if it is valid. A fault of one operation or DID does not hold up the others.
    ///
    /// # Errors
    /// The transaction must not be committed.
    pub(crate) fn apply(
        &mut self,
        operation: &Operation,
        room: Room,
    ) -> Result<Result<Receipt, RegistryError>, RegistryError> {
        let before = match before(self.origin, self.provider, self.transaction, operation) {
            Err(error @ (RegistryError::Operation(_) | RegistryError::Damaged(_))) => return Ok(Err(error)),
            before => before?,
        };
        match self.operation(operation, room, before) {
            Err(
                error @ (RegistryError::Operation(_)
                | RegistryError::Map(_)
                | RegistryError::Full
                | RegistryError::OtherSignature(_)),
            ) => Ok(Err(error)),
            appended => Ok(Ok(appended?)),
        }
    }

    /// Appends the root of the state map after the operations, if there are any, and writes the partial
    /// tiles. The root comes again as long as its path, which all staples contain, is long: the path has one
    /// hash for each 1 in the binary number of the entry.
    pub(crate) fn finish(&mut self) -> Result<(), RegistryError> {
        while self.size() > self.begin {
            let last = self.root()?;
            if last.count_ones() <= longest_path(last) {
                break;
            }
        }
        Ok(self.tiles()?)
    }

    /// The root of the state map.
    pub(crate) fn map_root(&self) -> NodeHash {
        self.head.map.root(Hasher(self.provider.sha256))
    }

    /// Appends the root of the state map, and returns the number of the entry.
    pub(crate) fn root(&mut self) -> Result<u64, RegistryError> {
        self.head.path = self.head.edge.peaks(Hasher(self.provider.sha256))?;
        self.entry(&root_entry(&self.map_root()))
    }

    /// Writes the partial tiles.
    pub(crate) fn tiles(&self) -> rusqlite::Result<()> {
        let mut tiles = self.head.edge.partial();
        tiles.try_for_each(|(level, number, hashes)| put_tile(self.transaction, level, number, hashes))
    }

    /// Appends an entry, and returns its number.
    fn entry(&mut self, content: &[u8]) -> Result<u64, RegistryError> {
        let hasher = Hasher(self.provider.sha256);
        let number = self.size();
        let sql = "INSERT INTO entry (number, content) VALUES (?1, ?2)";
        self.transaction.prepare_cached(sql)?.execute((signed(number), content))?;
        for (level, number, hashes) in self.head.edge.push(hasher, hasher.leaf(content)) {
            put_tile(self.transaction, level, number, &hashes)?;
        }
        Ok(number)
    }

    /// Appends an operation if it is valid.
    fn operation(
        &mut self,
        operation: &Operation,
        room: Room,
        (key, before): Before,
    ) -> Result<Receipt, RegistryError> {
        let state = match after(self.provider, self.transaction, before.as_ref(), operation)? {
            ControlFlow::Break(receipt) => return Ok(receipt),
            ControlFlow::Continue(state) => state,
        };
        let entry = operation.canonical()?;
        // Nothing enters the log, which is for ever, that an auditor cannot read.
        Operation::read(entry.as_bytes())?;
        let had = before.map_or(0, |stored| stored.room);
        let left = left(operation.kind(), room, had, entry.len() as u64)?;
        let text = state.document().canonical();
        let document = Sha256Hash::of(self.provider, text.as_bytes()).map_err(OperationError::from)?;
        let leaf = MapLeaf { document, sequence: state.sequence(), active: state.is_active() };
        let map = self.head.map.with(Hasher(self.provider.sha256), key, leaf)?;
        let number = self.entry(entry.as_bytes())?;
        self.write(&state, &key, &document, text, [number, left])?;
        self.head.room = self.head.room.saturating_sub(had).saturating_add(left);
        history::put(self.transaction, &key, state.sequence(), number)?;
        self.head.map = map;
        Ok(Receipt { number })
    }

    /// Writes the state of the DID.
    fn write(
        &self,
        state: &State,
        key: &Sha256Hash,
        document: &Sha256Hash,
        text: &str,
        [entry, room]: [u64; 2],
    ) -> rusqlite::Result<()> {
        let sql = "INSERT INTO document (hash, text) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING";
        self.transaction.prepare_cached(sql)?.execute((document.as_bytes(), text.as_bytes()))?;
        let sql = "INSERT INTO did (key, did, document, sequence, active, latest, entry, room, time) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (key) DO UPDATE \
                   SET document = ?3, sequence = ?4, active = ?5, latest = ?6, entry = ?7, room = ?8, time = ?9";
        let [sequence, entry, room, time] = [state.sequence(), entry, room, self.now_s].map(signed);
        let did = state.did().as_str();
        let latest = state.latest();
        self.transaction
            .prepare_cached(sql)?
            .execute((
                key.as_bytes(),
                did,
                document.as_bytes(),
                sequence,
                state.is_active(),
                latest.as_bytes(),
                entry,
                room,
                time,
            ))
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With 100,000 DIDs, the log has a root after each operation at most.
    #[test]
    fn staples_grow_little_by_the_path_of_the_last_entry() {
        const LINE: u32 = 55; // The line that checkpoints had instead.
        for last in [100_000, 131_071, 200_000, 262_143] {
            assert!(32 * longest_path(last) - LINE <= 300, "{last}");
        }
    }
}
