//! The replay of a log: the state that follows from its entries goes into the database, in one transaction
//! for each checkpoint.

use std::sync::Arc;
use std::time::Duration;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::encoding::json;
use dunlin_identity::method::dunlin::MAX_OPERATION;
use dunlin_identity::transparency::{
    Checkpoint, Hasher, LogEntry, MAX_MAP_DEPTH, NodeHash, Nodes, NoteSigner, SignedCheckpoint,
};
use dunlin_identity::{Did, Sha256Hash};
use rusqlite::Connection;
use tokio::time::Instant;

use super::evidence::Evidence;
use super::source::Source;
use super::{Reply, WatchError};
use crate::operator::database::{self, CHECKPOINT};
use crate::operator::error::RegistryError;
use crate::operator::head::Head;
use crate::operator::log::{Edge, StoredNodes};
use crate::operator::room::Room;
use crate::operator::tile::TILE_WIDTH;
use crate::operator::writer::Append;

/// How many DIDs the log names that have changed before a false root, if the registry does not help to find
/// the one that is false.
const MAX_NAMED: usize = 8;

/// The row in `setting` with the latest verified checkpoint as the registry has signed it.
pub(super) const NOTE: &str = "note";

/// The pause before the whole log is read again for one checkpoint, whose entries were others before.
const EXAMINE_PAUSE: Duration = Duration::from_secs(600);

/// The first entry that does not follow.
struct Fault {
    number: u64,
    /// The DID of the operation; `None` for a root of the state map.
    did: Option<String>,
    why: String,
}

/// The state of a watch.
pub(super) struct Replay {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) connection: Connection,
    pub(super) head: Head,
    /// The checkpoint of the head as the registry has signed it. A database of an earlier version does not
    /// have it.
    pub(super) note: Option<String>,
    pub(super) origin: String,
    pub(super) signer: NoteSigner,
    pub(super) clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(super) source: Source,
    pub(super) evidence: Evidence,
    /// The latest log that was read from its beginning.
    pub(super) examined: Option<Examined>,
}

/// A log that does not continue the verified one.
pub(super) struct Examined {
    root: NodeHash,
    at: Instant,
    /// How it parts from the verified one; `None` if the registry has not shown its entries.
    found: Option<WatchError>,
}

impl Replay {
    /// Cosigns a checkpoint whose log follows from the operations, and begins with the `old` entries that are
    /// verified.
    pub(super) async fn cosign(&mut self, old: u64, proof: &[NodeHash], signed: &SignedCheckpoint) -> Reply {
        let size = self.head.edge.size();
        let new = signed.checkpoint();
        if old != size {
            return Reply::Verified(size);
        }
        // A wrong proof says nothing about the registry: anyone can send one.
        if old > 0 && old < new.size && !self.continues(new, proof) {
            return Reply::Unproven;
        }
        match self.derive(signed).await {
            Ok(()) => {}
            Err(error) if error.is_false() => return Reply::False(error),
            Err(error) => {
                tracing::warn!(%error, "the registry's log cannot be verified");
                return Reply::Later;
            }
        }
        let line = self.signer.sign(&self.provider, signed.note().text(), (self.clock)());
        match line {
            Ok(line) => Reply::Cosigned(line.to_string()),
            Err(error) => {
                tracing::error!(%error, "this watch cannot sign");
                Reply::Later
            }
        }
    }

    /// Whether a consistency proof leads from the verified log to this one.
    fn continues(&self, new: &Checkpoint, proof: &[NodeHash]) -> bool {
        let hasher = Hasher(self.provider.sha256);
        let edge = &self.head.edge;
        let Ok(root) = edge.root(hasher) else { return false };
        hasher.verify_consistency((edge.size(), &root), (new.size, &new.root), proof).is_ok()
    }

    /// Verifies all entries of a checkpoint that the registry has signed, as far as they are new, and keeps
    /// the state that follows from them.
    ///
    /// # Errors
    /// [`WatchError`]. Nothing is kept then, except for the evidence that the registry is false.
    pub(super) async fn derive(&mut self, signed: &SignedCheckpoint) -> Result<(), WatchError> {
        let derived = self.try_derive(signed).await;
        if let Err(error) = &derived
            && error.is_false()
        {
            self.evidence.keep(error, signed, self.note.as_deref());
        }
        derived
    }

    async fn try_derive(&mut self, signed: &SignedCheckpoint) -> Result<(), WatchError> {
        self.roll_back()?;
        let size = self.head.edge.size();
        let new = signed.checkpoint();
        if new.size <= size {
            self.compare(new)?;
            if new.size == size && self.note.is_none() {
                database::set(&self.connection, NOTE, &signed.to_string()).map_err(RegistryError::from)?;
                self.note = Some(signed.to_string());
            }
            return Ok(());
        }
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(RegistryError::from)?;
        let replayed = self.replay(signed).await;
        match replayed {
            Ok(head) => {
                self.connection.execute_batch("COMMIT").map_err(RegistryError::from)?;
                (self.head, self.note) = (head, Some(signed.to_string()));
                Ok(())
            }
            Err(error) => {
                self.roll_back()?;
                match error {
                    WatchError::OtherEntries(_) => Err(self.examine(new).await?),
                    error => Err(error),
                }
            }
        }
    }

    /// Forgets the remains of an interrupted replay.
    fn roll_back(&self) -> Result<(), RegistryError> {
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        Ok(())
    }

    /// Compares a checkpoint with the verified log, which is not smaller.
    fn compare(&self, checkpoint: &Checkpoint) -> Result<(), WatchError> {
        let hasher = Hasher(self.provider.sha256);
        let connection = &self.connection;
        let root = StoredNodes { hasher, connection }.root(hasher, checkpoint.size)?;
        if root == checkpoint.root { Ok(()) } else { Err(WatchError::OtherHistory(checkpoint.size)) }
    }

    /// Says why the entries after the verified ones do not lead to the root of a checkpoint. It reads the log
    /// from its beginning: the registry may have signed another history, which is larger by now. A registry
    /// that shows only a part of it is asked again as late as one that shows other entries.
    async fn examine(&mut self, new: &Checkpoint) -> Result<WatchError, WatchError> {
        let others = WatchError::OtherEntries(new.size);
        let known = self.examined.as_ref().filter(|examined| examined.root == new.root);
        if let Some(Examined { at, found, .. }) = known
            && (found.is_some() || at.elapsed() < EXAMINE_PAUSE)
        {
            return Ok(found.clone().unwrap_or(others));
        }
        let parting = self.parting(new).await;
        let fork = |number| WatchError::Fork { size: new.size, number };
        let found = parting.as_ref().ok().copied().flatten().map(fork);
        self.examined = Some(Examined { root: new.root, at: Instant::now(), found: found.clone() });
        parting.map(|_| found.unwrap_or(others))
    }

    /// The first entry at which the log of a checkpoint parts from the verified one, which is smaller; `None`
    /// if the registry shows other entries than those of the checkpoint.
    async fn parting(&mut self, new: &Checkpoint) -> Result<Option<u64>, WatchError> {
        let hasher = Hasher(self.provider.sha256);
        let size = self.head.edge.size();
        let mut edge = Edge::default();
        let mut parting = None;
        while edge.size() < new.size {
            let entries = self.source.bundle_at(edge.size(), new.size).await?;
            let verified = StoredNodes { hasher, connection: &self.connection };
            for entry in entries {
                let number = edge.size();
                let leaf = hasher.leaf(&entry);
                if parting.is_none() && number < size && verified.node(0, number)? != leaf {
                    parting = Some(number);
                }
                edge.push(hasher, leaf);
            }
        }
        let root = edge.root(hasher).map_err(RegistryError::from)?;
        Ok(parting.filter(|_| root == new.root))
    }

    /// Appends the new entries of a checkpoint inside the open transaction.
    async fn replay(&mut self, signed: &SignedCheckpoint) -> Result<Head, WatchError> {
        let hasher = Hasher(self.provider.sha256);
        let new = signed.checkpoint();
        // All entries count for the root, also those after a false one: only what the registry has signed is
        // evidence.
        let mut edge = self.head.edge.clone();
        let mut head = self.head.clone();
        let mut fault = None;
        let mut is_stated = false;
        let width = u64::from(TILE_WIDTH);
        while edge.size() < new.size {
            let entries = self.source.bundle_at(edge.size(), new.size).await?;
            let known = usize::try_from(edge.size() % width).unwrap_or_default();
            for entry in entries.iter().skip(known) {
                if fault.is_none() {
                    match self.apply(&mut head, edge.size(), entry)? {
                        Ok(is_root) => is_stated = is_root,
                        Err(found) => fault = Some(found),
                    }
                }
                edge.push(hasher, hasher.leaf(entry));
            }
        }
        if edge.root(hasher).map_err(RegistryError::from)? != new.root {
            return Err(WatchError::OtherEntries(new.size));
        }
        let unstated = || Fault {
            number: new.size - 1,
            did: None,
            why: "the log does not end with the root of the state map".to_owned(),
        };
        if let Some(fault) = fault.or_else(|| (!is_stated).then(unstated)) {
            return Err(self.explain(fault, &head, signed).await);
        }
        let written = Append::new(&self.provider, &self.origin, &self.connection, &mut head, 0).tiles();
        written
            .and_then(|()| database::set(&self.connection, CHECKPOINT, &new.to_string()))
            .and_then(|()| database::set(&self.connection, NOTE, &signed.to_string()))
            .map_err(RegistryError::from)?;
        Ok(head)
    }

    /// Appends an entry if it follows, and says whether it is the root of the state map.
    fn apply(
        &self,
        head: &mut Head,
        number: u64,
        entry: &[u8],
    ) -> Result<Result<bool, Fault>, RegistryError> {
        let mut append = Append::new(&self.provider, &self.origin, &self.connection, head, 0);
        let fault = |did, why: String| Ok(Err(Fault { number, did, why }));
        let operation = match LogEntry::read(entry) {
            Ok(LogEntry::Operation(operation)) => operation,
            Ok(LogEntry::Root(root)) => {
                return if append.map_root() == root {
                    append.root().map(|_| Ok(true))
                } else {
                    fault(None, "another state map than that of the operations before it".to_owned())
                };
            }
            Err(error) => return fault(did_of(entry), error.to_string()),
        };
        let did = Some(operation.did().to_string());
        match append.apply(&operation, Room::Free)? {
            Ok(receipt) if receipt.number == number => Ok(Ok(false)),
            Ok(_) => fault(did, "operation: the log has it already".to_owned()),
            Err(error @ RegistryError::Damaged(_)) => Err(error),
            Err(error) => fault(did, error.to_string()),
        }
    }

    /// Names the DIDs that do not follow.
    async fn explain(&mut self, fault: Fault, head: &Head, signed: &SignedCheckpoint) -> WatchError {
        let did = match fault.did {
            Some(did) => did,
            None => match self.differing(head, signed).await {
                Some(did) => did,
                None => self.changed().unwrap_or_default(),
            },
        };
        WatchError::False { number: fault.number, origin: self.origin.clone(), did, why: fault.why }
    }

    /// The DID whose state in the registry's map is another one than here, by the registry's own proofs: each
    /// shows in which part of the map it is.
    async fn differing(&mut self, head: &Head, signed: &SignedCheckpoint) -> Option<String> {
        let mut begin = Sha256Hash::from_bytes([0; 32]);
        let mut depth = 0;
        while depth <= MAX_MAP_DEPTH {
            let within = |key: &Sha256Hash| shares(key, &begin, depth);
            let Some((key, did)) =
                database::did_from(&self.connection, &begin).ok()?.filter(|(key, _)| within(key))
            else {
                return Some("a DID that the log does not create".to_owned());
            };
            let did: Did = did.parse().ok()?;
            let (note, document, proof) = self.source.state(&did).await?;
            let stated = SignedCheckpoint::read(&note).ok()?;
            let document = Sha256Hash::of(&self.provider, document.as_bytes()).ok()?;
            let hasher = Hasher(self.provider.sha256);
            let is_of_checkpoint = stated.checkpoint() == signed.checkpoint();
            proof
                .verify_presence(hasher, &key, document, stated.checkpoint())
                .ok()
                .filter(|_| is_of_checkpoint)?;
            match head.map.parting(&key, &proof.map, depth) {
                None => return Some(did.to_string()),
                Some(at) => (begin, depth) = (beside(&key, at), at + 1),
            }
        }
        None
    }

    /// The DIDs that have changed since the verified log.
    fn changed(&self) -> Result<String, RegistryError> {
        let dids = database::dids_since(&self.connection, self.head.edge.size(), MAX_NAMED)?;
        Ok(if dids.is_empty() {
            "unknown DIDs".to_owned()
        } else {
            format!("one that the registry does not show, or of {}", dids.join(", "))
        })
    }
}

/// Whether two keys have the same first bits.
fn shares(one: &Sha256Hash, other: &Sha256Hash, bits: usize) -> bool {
    let whole = bits / 8;
    let rest = bits % 8;
    let mask = !(0xff_u8 >> rest);
    let [one, other] = [one, other].map(|key| key.as_bytes());
    let last = |key: &[u8; 32]| key.get(whole).map(|byte| byte & mask);
    one.get(..whole) == other.get(..whole) && (rest == 0 || last(one) == last(other))
}

/// The first key on the other side at this depth.
fn beside(key: &Sha256Hash, depth: usize) -> Sha256Hash {
    let mut bytes = *key.as_bytes();
    let mask = !(0xff_u8 >> (depth % 8));
    for (number, byte) in bytes.iter_mut().enumerate().skip(depth / 8) {
        *byte = if number == depth / 8 { (*byte & mask) | (!*byte & (0x80 >> (depth % 8))) } else { 0 };
    }
    Sha256Hash::from_bytes(bytes)
}

/// The DID of an entry that is no operation, if it looks like one.
fn did_of(entry: &[u8]) -> Option<String> {
    let value = json::read_bounded(entry, MAX_OPERATION).ok();
    let did = value.as_ref().and_then(|value| value.get("did")?.as_str()?.parse::<Did>().ok());
    Some(did.map_or_else(|| "no DID".to_owned(), |did| did.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_of_a_key_shares_the_bits_before_it() {
        let mut bytes = [0xa5; 32];
        bytes[31] = 0xff;
        let key = Sha256Hash::from_bytes(bytes);
        for depth in 0..256 {
            let other = beside(&key, depth);
            assert!(shares(&key, &other, depth) && !shares(&key, &other, depth + 1), "{depth}");
            let rest: u32 = other.as_bytes().iter().map(|byte| byte.count_ones()).sum();
            let before = (0..depth).filter(|bit| bytes[bit / 8] << (bit % 8) & 0x80 != 0).count() as u32;
            let own = u32::from(bytes[depth / 8] << (depth % 8) & 0x80 == 0);
            assert_eq!(rest, before + own, "{depth}");
        }
    }
}
