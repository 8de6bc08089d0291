//! A registry that several operators replicate, none of whom clients must trust.
//!
//! Each operator runs a CometBFT node (0.38) and a [`Replica`] beside it. The nodes agree on the order of the
//! operations, and each replica applies them: the state machine of a [`Registry`](crate::Registry), without a
//! clock and without a key. The hash of the state is the hash of the checkpoint's text. It is in the header
//! of the next block, which more than two thirds of the validators sign; this block, in place of a registry's
//! signature, proves the checkpoint ([`dunlin_identity::transparency`]).
//!
//! Node and replica talk over two sockets in the file system: CometBFT's requests (ABCI) come in over one,
//! and the replica asks for blocks and passes operations on over the other, CometBFT's RPC. [`Replica::run`]
//! does both. [`serve`](crate::operator::server::serve) answers clients, as for a registry.

mod abci;
mod application;
mod ledger;
mod node;
mod waiting;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use dunlin::crypto::CryptoProvider;
use dunlin_identity::Sha256Hash;
use dunlin_identity::method::dunlin::{Operation, OperationError};
use dunlin_identity::transparency::{Chain, Hasher, LightBlock};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::operator::database::{self, CHECKPOINT, KEY};
use crate::operator::error::RegistryError;
use crate::operator::reader::Reader;
use crate::operator::room::Room;
use crate::operator::server::Source;
use crate::operator::writer::{Answer, MAX_QUEUE, Receipt, check};
use ledger::Ledger;
use node::Node;
use waiting::Waiting;

pub use abci::MAX_MESSAGE;
pub use application::{MAX_BLOCK, MAX_OPERATIONS};
pub use ledger::{GROWTH_PER_MINUTE, MAX_GROWTH, MAX_LOG};

/// How long an operation may take from its submission to a proven state.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// How often the replica looks for operations that have waited too long, and asks a node again that has not
/// answered.
const PAUSE: Duration = Duration::from_millis(200);

/// After this time without the proof of a block the replica says in its log that it is cut off from its node.
const SILENCE: Duration = Duration::from_secs(30);

/// After this time without a block the replica says in its log that the chain stands still: docs/registry.md
/// recommends an empty block after 10 minutes at most, and nodes may need a few more.
const STANDSTILL: Duration = Duration::from_secs(15 * 60);

/// The row in `setting` with the number of the latest block.
const HEIGHT: &str = "height";

/// The row in `setting` with the length of the log's operations, in bytes.
const LOG: &str = "log";

/// Where a replica meets its CometBFT node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// The socket that the replica opens: `proxy_app = "unix://…"` in CometBFT's configuration. The directory
    /// must keep others out: who reaches the socket can end the replica's agreement with the chain.
    pub application: PathBuf,
    /// The socket of CometBFT's RPC: `laddr = "unix://…"` in its section `rpc`.
    pub rpc: PathBuf,
}

/// A replica. It is the only one that writes to its database.
pub struct Replica {
    reader: Arc<Reader>,
    provider: Arc<CryptoProvider>,
    chain: Chain,
    ledger: Mutex<Ledger>,
    waiting: Mutex<Waiting>,
    /// The number of the latest block.
    committed: watch::Sender<u64>,
    /// Operations for the node. [`Replica::run`] takes the receiver.
    outgoing: mpsc::Sender<Vec<u8>>,
    queue: tokio::sync::Mutex<mpsc::Receiver<Vec<u8>>>,
    _lock: database::Lock,
}

/// The text in a replica's database in place of a registry's key.
fn key(chain: &Chain) -> String {
    format!("CometBFT {} {}", chain.id(), chain.origin())
}

impl Replica {
    /// Creates the database of a new replica, which gets its content from the chain.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn create(path: &Path, provider: &CryptoProvider, chain: &Chain) -> Result<(), RegistryError> {
        let empty = ledger::empty(Hasher(provider.sha256), chain)?;
        database::create(path, |connection| {
            database::set(connection, KEY, &key(chain))?;
            for (name, value) in ledger::rows()? {
                database::set(connection, name, &value.to_string())?;
            }
            Ok(database::set(connection, CHECKPOINT, &empty.to_string())?)
        })
    }

    /// Opens the database of a replica, and checks that its log, its state map and its checkpoint belong
    /// together.
    ///
    /// # Errors
    /// [`RegistryError::InUse`], [`RegistryError::Foreign`], [`RegistryError::Newer`],
    /// [`RegistryError::OtherKey`] for another chain, [`RegistryError::Damaged`]; the database cannot be
    /// read.
    pub fn open(path: &Path, provider: Arc<CryptoProvider>, chain: Chain) -> Result<Self, RegistryError> {
        // One file has one lock, under whatever name it is opened.
        let path = &path.canonicalize().map_err(|error| RegistryError::file(path, &error))?;
        let lock = database::Lock::take(path)?;
        let connection = database::writer(path)?;
        let found = database::setting(&connection, KEY)?;
        let wanted = key(&chain);
        if found != wanted {
            return Err(RegistryError::OtherKey { found, wanted });
        }
        let ledger = Ledger::open(connection, Arc::clone(&provider), chain.origin())?;
        let (committed, _) = watch::channel(ledger.height());
        let (outgoing, queue) = mpsc::channel(MAX_QUEUE);
        Ok(Self {
            reader: Arc::new(Reader::new(Arc::clone(&provider), path, true, ledger.newest().clone())),
            provider,
            chain,
            ledger: Mutex::new(ledger),
            waiting: Mutex::default(),
            committed,
            outgoing,
            queue: tokio::sync::Mutex::new(queue),
            _lock: lock,
        })
    }

    /// The registry and its chain.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The number of the latest block whose operations are on the disk.
    pub fn height(&self) -> u64 {
        *self.committed.borrow()
    }

    /// The receipt of an operation that is the latest of its DID; `None` if it would be valid now.
    fn known(&self, operation: &Operation) -> Result<Option<Receipt>, RegistryError> {
        let origin = self.chain.origin();
        let provider = &self.provider;
        self.reader.read(|connection| check(origin, provider, connection, operation))
    }

    fn ledger<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        act(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn waiting<T>(&self, act: impl FnOnce(&mut Waiting) -> T) -> T {
        act(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Works with the CometBFT node until the caller drops it: answers its requests, brings operations to it,
    /// and takes the proof of each state from it. The node may come and go.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub async fn run(self: &Arc<Self>, sockets: &Sockets) -> io::Result<Infallible> {
        let node = Node::new(&sockets.rpc);
        tokio::select! {
            ended = abci::serve(self, &sockets.application) => ended,
            never = self.submit_all(&node) => match never {},
            never = self.follow(&node) => match never {},
            never = self.give_up() => match never {},
        }
    }

    /// Brings operations to the node.
    async fn submit_all(&self, node: &Node) -> Infallible {
        let mut queue = self.queue.lock().await;
        loop {
            // The replica holds the sender.
            let Some(operation) = queue.recv().await else { std::future::pending().await };
            if let Err(error) = node.submit(&operation).await
                && let Ok(hash) = Sha256Hash::of(&self.provider, &operation)
            {
                self.waiting(|waiting| waiting.refuse(&hash, &error));
            }
        }
    }

    /// Takes the block that proves a state from the node, after each block.
    async fn follow(&self, node: &Node) -> Infallible {
        let mut committed = self.committed.subscribe();
        let mut proven_at = Instant::now();
        let mut told = false;
        loop {
            let height = *committed.borrow_and_update();
            let proof = match node.block(height).await {
                Ok(block) if self.prove(&block) => Ok(()),
                Ok(_) => {
                    Err("the CometBFT node shows a block that does not prove this replica's state".to_owned())
                }
                Err(error) => Err(error.to_string()),
            };
            match &proof {
                Ok(()) if told => {
                    tracing::warn!(height, "the replica shows proven states again");
                    told = false;
                }
                Err(why) if !told && proven_at.elapsed() >= SILENCE => {
                    tracing::warn!(height, %why, "the replica shows an old state, since its CometBFT node does not prove a newer one");
                    told = true;
                }
                _ => {}
            }
            // The replica holds the sender.
            let limit = if proof.is_ok() { STANDSTILL } else { PAUSE };
            let changed = timeout(limit, committed.changed()).await.is_ok();
            if proof.is_ok() {
                if !changed {
                    tracing::warn!(
                        height,
                        "no block for {STANDSTILL:?}: the chain has halted, or its interval of empty blocks is longer"
                    );
                    told = true;
                    let _ = committed.changed().await;
                }
                proven_at = Instant::now();
            }
        }
    }

    /// Shows readers the state that a block commits to, with the block. Returns whether it is one of the last
    /// two.
    fn prove(&self, block: &LightBlock) -> bool {
        let Some(state) = self.ledger(|ledger| ledger.state(block.state()).cloned()) else { return false };
        let mut checkpoint = state.checkpoint().clone();
        checkpoint.note_mut().add(self.chain.line(block));
        let size = state.size();
        self.reader.publish(state.with_signatures(checkpoint));
        self.waiting(|waiting| waiting.proven(size));
        true
    }

    /// Answers those whose operations have waited for too long. Says once for each block in the log that they
    /// have.
    async fn give_up(&self) -> Infallible {
        let mut told = None;
        loop {
            sleep(PAUSE).await;
            for (operation, answer) in self.waiting(|waiting| waiting.expire(Instant::now())) {
                // Another operation may have come first. The nodes then drop this one without a word.
                let error = self.known(&operation).err();
                let height = self.height();
                if error.is_none() && told != Some(height) {
                    tracing::warn!(
                        height,
                        "no block takes an operation that has waited for {MAX_WAIT:?}: the chain may have halted"
                    );
                    told = Some(height);
                }
                let late = || RegistryError::Node("no block has the operation yet".to_owned());
                answer(Err(error.unwrap_or_else(late)));
            }
        }
    }
}

impl Source for Replica {
    /// The answer comes when a block with the operation is on the disk, and readers see it with its proof.
    /// The replicas agree on the room: one server's room counts for creations alone.
    fn submit_within(&self, operation: Operation, _: Room, answer: Answer) -> Result<(), RegistryError> {
        let bytes = operation.canonical()?.into_bytes();
        let hash = Sha256Hash::of(&self.provider, &bytes).map_err(OperationError::from)?;
        // First of all, so that no block with the operation escapes it.
        let until = Instant::now() + MAX_WAIT;
        self.waiting(|waiting| waiting.add(hash, until, operation.clone(), answer))?;
        match self.known(&operation) {
            Ok(None) => {
                if self.outgoing.try_send(bytes).is_err() {
                    self.waiting(|waiting| waiting.refuse(&hash, &RegistryError::Busy));
                }
            }
            Ok(Some(receipt)) => {
                self.waiting(|waiting| {
                    waiting.committed(&hash, &Ok(receipt));
                    // Inside the lock: a proof that comes now is seen here, or finds the operation.
                    if self.reader.shown().is_signed() {
                        waiting.proven(self.reader.shown().size());
                    }
                });
            }
            Err(error) => self.waiting(|waiting| waiting.refuse(&hash, &error)),
        }
        Ok(())
    }

    fn now_s(&self) -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
    }

    /// [`Replica::run`] says when it ends.
    fn ended(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    fn signers(&self) -> Vec<(&'static str, String)> {
        vec![("The validators of the chain", self.chain.id().to_owned())]
    }
}

impl Deref for Replica {
    type Target = Arc<Reader>;

    fn deref(&self) -> &Arc<Reader> {
        &self.reader
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("chain", &self.chain.id())
            .field("height", &self.height())
            .finish_non_exhaustive()
    }
}
