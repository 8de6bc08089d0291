//! A replica as CometBFT sees it: requests over its socket (ABCI), in order and out of order, and crashes
//! between them.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{Holder, ORIGIN, provider};
use dunlin_identity::Sha256Hash;
use dunlin_identity::encoding::protobuf::{Message, MessageWriter, varint};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{Operation, first_document};
use dunlin_identity::transparency::Chain;
use dunlin_pki::{KeyPair, KeyType};
use dunlin_registry::replica::{
    MAX_BLOCK, MAX_GROWTH, MAX_LOG, MAX_MESSAGE, MAX_OPERATIONS, Replica, Sockets,
};
use dunlin_registry::{OWN_INTERVAL, Registry, RegistryError};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

const CHAIN: &str = "dunlin-test";

const EXCEPTION: u64 = 1;
const INFO: u64 = 3;
const INIT_CHAIN: u64 = 5;
const QUERY: u64 = 6;
const CHECK_TX: u64 = 8;
const COMMIT: u64 = 11;
const OFFER_SNAPSHOT: u64 = 13;
const PREPARE_PROPOSAL: u64 = 16;
const PROCESS_PROPOSAL: u64 = 17;
const FINALIZE_BLOCK: u64 = 20;

fn new() -> MessageWriter {
    MessageWriter::default()
}

fn chain(id: &str) -> Chain {
    Chain::new(&provider(), ORIGIN, id).unwrap()
}

fn database(place: &TempDir) -> PathBuf {
    place.path().join("registry")
}

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    Replica::create(&database(&place), &provider(), &chain(CHAIN)).unwrap();
    place
}

fn text(operation: &Operation) -> Vec<u8> {
    operation.canonical().unwrap().into_bytes()
}

/// A replica that runs, and a connection to it.
struct Running {
    replica: Arc<Replica>,
    task: JoinHandle<()>,
    socket: UnixStream,
}

impl Running {
    async fn start(place: &Path) -> Self {
        let replica = Arc::new(Replica::open(&place.join("registry"), provider(), chain(CHAIN)).unwrap());
        let sockets = Sockets { application: place.join("app"), rpc: place.join("rpc") };
        let running = Arc::clone(&replica);
        let path = sockets.application.clone();
        let _ = std::fs::remove_file(&path);
        let task = tokio::spawn(async move { drop(running.run(&sockets).await) });
        let socket = loop {
            match UnixStream::connect(&path).await {
                Ok(socket) => break socket,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        Self { replica, task, socket }
    }

    async fn send(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.socket.write_all(bytes).await?;
        let mut length = Vec::new();
        while length.last().is_none_or(|byte| byte & 0x80 != 0) {
            length.push(self.socket.read_u8().await?);
        }
        let mut answer = vec![0; usize::try_from(varint(&length).unwrap().0).unwrap()];
        self.socket.read_exact(&mut answer).await?;
        Ok(answer)
    }

    /// The number and the content of the answer to a request.
    async fn ask(&mut self, number: u64, request: MessageWriter) -> (u64, Vec<u8>) {
        let answer = self.send(&new().message(number, &request.finish()).delimited()).await.unwrap();
        let message = Message::read(&answer).unwrap();
        let (number, _) = message.choice().unwrap();
        (number, message.bytes(number).unwrap().to_vec())
    }

    /// The content of the answer, which is no exception.
    async fn good(&mut self, number: u64, request: MessageWriter) -> Vec<u8> {
        let (answered, content) = self.ask(number, request).await;
        assert_eq!(answered, number + 1, "{}", String::from_utf8_lossy(&content));
        content
    }

    /// The reason of the exception.
    async fn exception(&mut self, number: u64, request: MessageWriter) -> String {
        let (answered, content) = self.ask(number, request).await;
        assert_eq!(answered, EXCEPTION);
        Message::read(&content).unwrap().text(1).unwrap().to_owned()
    }

    /// The height and the hash of the latest state.
    async fn info(&mut self) -> (u64, Vec<u8>) {
        let info = self.good(INFO, new()).await;
        let info = Message::read(&info).unwrap();
        (info.number(4).unwrap(), info.bytes(5).unwrap().to_vec())
    }

    /// Decides a block. Returns the codes of its operations, and the hash of the state.
    async fn decide(&mut self, height: u64, operations: &[Vec<u8>]) -> (Vec<u64>, Vec<u8>) {
        let block = operations.iter().fold(new(), |block, operation| block.message(1, operation));
        let answer = self.good(FINALIZE_BLOCK, block.number(5, height)).await;
        let answer = Message::read(&answer).unwrap();
        let code = |result: &&[u8]| Message::read(result).unwrap().number(1).unwrap();
        (answer.all(2).unwrap().iter().map(code).collect(), answer.bytes(5).unwrap().to_vec())
    }

    /// The code and the reason with which an operation may wait, or is refused.
    async fn check(&mut self, operation: &[u8]) -> (u64, String) {
        let checked = self.good(CHECK_TX, new().bytes(1, operation)).await;
        let checked = Message::read(&checked).unwrap();
        (checked.number(1).unwrap(), checked.text(3).unwrap().to_owned())
    }

    /// Ends as by SIGKILL: nothing is committed that was not before.
    async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
        drop(self.socket);
        // A request may be in progress; it keeps the database open.
        let replica = self.replica;
        while Arc::strong_count(&replica) > 1 {
            tokio::task::yield_now().await;
        }
    }
}

/// The genesis file's part of the first request.
fn genesis(id: &str, origin: &str) -> MessageWriter {
    let state = format!("{{\"origin\": \"{origin}\"}}");
    new().bytes(2, id.as_bytes()).bytes(5, state.as_bytes()).number(6, 1)
}

#[tokio::test]
async fn a_block_counts_when_it_is_committed() {
    let (place, other_place) = (place(), place());
    let mut holder = Holder::new(&provider(), [1, 1]);
    let blocks = [vec![text(&holder.next())], vec![], vec![text(&holder.next()), b"nonsense".to_vec()]];
    let mut replica = Running::start(place.path()).await;
    let (height, first) = replica.info().await;
    assert_eq!(height, 0);
    let begun = replica.good(INIT_CHAIN, genesis(CHAIN, ORIGIN)).await;
    assert_eq!(Message::read(&begun).unwrap().bytes(3), Ok(first.as_slice()));
    let mut hashes = vec![first.clone()];
    for (height, block) in (1..).zip(&blocks) {
        // The replica dies after it has decided the block; after the restart CometBFT brings the block again.
        let decided = replica.decide(height, block).await;
        replica.end().await;
        replica = Running::start(place.path()).await;
        let before = hashes.last().unwrap().clone();
        assert_eq!(replica.info().await, (height - 1, before));
        assert_eq!(replica.decide(height, block).await, decided);
        // CometBFT alone has died: it asks, and brings the block again.
        assert_eq!(replica.info().await.0, height - 1);
        assert_eq!(replica.decide(height, block).await, decided);
        replica.good(COMMIT, new()).await;
        let (codes, hash) = decided;
        assert_eq!(replica.info().await, (height, hash.clone()));
        assert_eq!(codes, [vec![0], vec![], vec![0, 1]][usize::try_from(height).unwrap() - 1]);
        hashes.push(hash);
        // It dies after the commit.
        replica.end().await;
        replica = Running::start(place.path()).await;
        assert_eq!(replica.info().await, (height, hashes.last().unwrap().clone()));
    }
    // An empty block changes nothing.
    assert!(hashes[1] != hashes[0] && hashes[2] == hashes[1] && hashes[3] != hashes[2]);
    // Without a block of the chain, there is no proof to show.
    let resolution = replica.replica.resolve(holder.state().did()).unwrap();
    assert_eq!(resolution.snapshot.checkpoint().note().to_string().lines().count(), 4);
    assert_eq!(replica.replica.height(), 3);

    // Another replica has the same states.
    let mut other = Running::start(other_place.path()).await;
    other.good(INIT_CHAIN, genesis(CHAIN, ORIGIN)).await;
    for (height, block) in (1..).zip(&blocks) {
        let (_, hash) = other.decide(height, block).await;
        other.good(COMMIT, new()).await;
        assert_eq!(hash, hashes[usize::try_from(height).unwrap()]);
    }
}

#[tokio::test]
async fn requests_that_do_not_fit_stop_the_node() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    for (id, origin) in [("other", ORIGIN), (CHAIN, "registry.example/2")] {
        assert!(replica.exception(INIT_CHAIN, genesis(id, origin)).await.contains("genesis file"));
    }
    let later = new().bytes(2, CHAIN.as_bytes()).bytes(5, format!("{{\"origin\":\"{ORIGIN}\"}}").as_bytes());
    assert!(replica.exception(INIT_CHAIN, later.number(6, 5)).await.contains("initial_height"));
    assert!(replica.exception(COMMIT, new()).await.contains("no block is decided"));
    assert!(replica.exception(FINALIZE_BLOCK, new().number(5, 2)).await.contains("not the next one"));
    assert!(replica.exception(FINALIZE_BLOCK, new().bytes(5, b"1")).await.contains("malformed"));
    assert!(replica.exception(18, new()).await.contains("does not know its type"));
    replica.decide(1, &[]).await;
    replica.good(COMMIT, new()).await;
    assert!(replica.exception(INIT_CHAIN, genesis(CHAIN, ORIGIN)).await.contains("has blocks"));
    let offered = replica.good(OFFER_SNAPSHOT, new()).await;
    assert_eq!(Message::read(&offered).unwrap().number(1), Ok(2));
    // A message beyond the limit ends the connection before its content arrives.
    let too_long = new().bytes(1, &vec![0; MAX_MESSAGE]).delimited();
    assert!(replica.send(&too_long[..10]).await.is_err());
}

#[tokio::test]
async fn proposals_have_valid_operations_alone() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let mut holder = Holder::new(&provider(), [2, 1]);
    let [create, update] = [text(&holder.next()), text(&holder.next())];
    let padded = [create.as_slice(), b" "].concat();
    let operations = [&update, &create, &padded, &create, &update];
    let request =
        operations.iter().fold(new().number(1, MAX_BLOCK), |request, bytes| request.message(2, bytes));
    let prepared = replica.good(PREPARE_PROPOSAL, request).await;
    assert_eq!(Message::read(&prepared).unwrap().all(1), Ok(vec![create.as_slice(), update.as_slice()]));
    // Only as much as a block holds.
    let request = new().number(1, create.len() as u64 + 5).message(2, &create).message(2, &update);
    let prepared = replica.good(PREPARE_PROPOSAL, request).await;
    assert_eq!(Message::read(&prepared).unwrap().all(1), Ok(vec![create.as_slice()]));

    for (proposal, status) in [
        (vec![&create, &update], 1),
        (vec![], 1),
        (vec![&update, &create], 2),
        (vec![&create, &create], 2),
        (vec![&create, &padded], 2),
    ] {
        let request = proposal.into_iter().fold(new(), |request, bytes| request.message(1, bytes));
        let judged = replica.good(PROCESS_PROPOSAL, request).await;
        assert_eq!(Message::read(&judged).unwrap().number(1), Ok(status));
    }
    // None of them has changed the state.
    assert_eq!(replica.info().await.0, 0);
    assert!(replica.replica.resolve(holder.state().did()).unwrap().state.is_none());
}

/// The status of a proposal: 1 accepts it, 2 rejects it.
async fn judged<'o>(replica: &mut Running, operations: impl IntoIterator<Item = &'o Vec<u8>>) -> u64 {
    let proposal = operations.into_iter().fold(new(), |request, bytes| request.message(1, bytes));
    let judged = replica.good(PROCESS_PROPOSAL, proposal).await;
    Message::read(&judged).unwrap().number(1).unwrap()
}

/// The operations that are left of a proposal.
async fn prepared<'o>(replica: &mut Running, operations: impl IntoIterator<Item = &'o Vec<u8>>) -> usize {
    let request = new().number(1, MAX_BLOCK);
    let request = operations.into_iter().fold(request, |request, bytes| request.message(2, bytes));
    let prepared = replica.good(PREPARE_PROPOSAL, request).await;
    Message::read(&prepared).unwrap().all(1).unwrap().len()
}

/// No proposer makes the other nodes read a long proposal to its end.
#[tokio::test]
async fn a_proposal_has_at_most_so_many_operations() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let create = text(&Holder::new(&provider(), [6, 1]).next());
    let junk = vec![b"x".to_vec(); MAX_OPERATIONS];
    // Those after the limit wait for the next block.
    assert_eq!(prepared(&mut replica, junk.iter().chain([&create])).await, 0);
    assert_eq!(prepared(&mut replica, junk.iter().skip(1).chain([&create])).await, 1);
    assert_eq!(judged(&mut replica, [&create]).await, 1);
    assert_eq!(judged(&mut replica, [&create].into_iter().chain(&junk)).await, 2);
    // The first invalid operation decides: a damaged database after it goes unnoticed.
    let mut holder = Holder::new(&provider(), [6, 2]);
    let [first, second] = [text(&holder.next()), text(&holder.next())];
    replica.decide(1, std::slice::from_ref(&first)).await;
    replica.good(COMMIT, new()).await;
    rusqlite::Connection::open(database(&place)).unwrap().execute("DELETE FROM document", ()).unwrap();
    let proposal = new().message(1, &second).message(1, b"x");
    assert!(replica.exception(PROCESS_PROPOSAL, proposal).await.contains("damaged"));
    assert_eq!(judged(&mut replica, [&b"x".to_vec(), &second]).await, 2);
}

/// A lying operator fills neither a block nor the log with what is for ever.
#[tokio::test]
async fn the_log_has_a_limit_for_all_but_the_ends_of_identifiers() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let mut holder = Holder::new(&provider(), [7, 0]);
    let mut first = text(&holder.next());
    // One more than a block takes.
    let count = usize::try_from(MAX_GROWTH).unwrap() / first.len() + 1;
    let mut creations: Vec<_> =
        (1..).map(|number| text(&Holder::new(&provider(), [7, number]).next())).take(count).collect();
    let fit = prepared(&mut replica, &creations).await;
    let length: usize = creations.iter().take(fit).map(Vec::len).sum();
    assert!(fit < count && length as u64 <= MAX_GROWTH);
    assert!((length + creations[fit].len()) as u64 > MAX_GROWTH);
    assert_eq!(judged(&mut replica, &creations[..fit]).await, 1);
    assert_eq!(judged(&mut replica, &creations[..=fit]).await, 2);
    assert_eq!(replica.check(&creations[fit]).await.0, 0);

    // The log's length is kept in the database.
    let [one, two] = [creations.swap_remove(0), creations.swap_remove(0)];
    replica.decide(1, &[std::mem::take(&mut first), one.clone()]).await;
    replica.good(COMMIT, new()).await;
    replica.end().await;
    let connection = rusqlite::Connection::open(database(&place)).unwrap();
    let stored: String = "SELECT value FROM setting WHERE name = 'log'".to_owned();
    let stored: String = connection.query_row(&stored, (), |row| row.get(0)).unwrap();
    assert!(stored.parse::<usize>().unwrap() > one.len());
    let almost = (MAX_LOG - two.len() as u64 + 1).to_string();
    connection.execute("UPDATE setting SET value = ?1 WHERE name = 'log'", [almost]).unwrap();
    drop(connection);

    let mut replica = Running::start(place.path()).await;
    let (code, why) = replica.check(&two).await;
    assert_eq!((code, why.contains("only deactivations")), (1, true), "{why}");
    let end = text(&holder.deactivate());
    assert_eq!(replica.check(&end).await, (0, String::new()));
    assert_eq!(prepared(&mut replica, [&two, &end]).await, 1);
    assert_eq!(judged(&mut replica, [&two]).await, 2);
    assert_eq!(judged(&mut replica, [&end]).await, 1);
    // Each DID has room for one update.
    let mut other = Holder::new(&provider(), [7, 1]);
    other.next();
    let [update, next] = [text(&other.next()), text(&other.next())];
    assert_eq!(replica.check(&update).await, (0, String::new()));
    assert_eq!(judged(&mut replica, [&update]).await, 1);
    assert_eq!(judged(&mut replica, [&update, &next]).await, 2);
    assert_eq!(replica.decide(2, &[two, update, next, end]).await.0, [1, 0, 1, 0]);
}

/// The time of the block that a request is about.
fn at(request: MessageWriter, time_s: u64) -> MessageWriter {
    request.message(6, &new().number(1, time_s).finish())
}

/// Strangers cannot fill the log faster than the genesis file allows.
#[tokio::test]
async fn the_log_grows_with_the_time_of_the_blocks() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let begin = |limits: &str| {
        let state = format!("{{\"origin\": \"{ORIGIN}\", {limits}}}");
        new().bytes(2, CHAIN.as_bytes()).bytes(5, state.as_bytes()).number(6, 1)
    };
    for wrong in ["\"max_log\": \"9\"", "\"max_growth\": 0", "\"growth_per_minute\": 0"] {
        assert!(replica.exception(INIT_CHAIN, begin(wrong)).await.contains("limit"), "{wrong}");
    }
    let creations: Vec<_> =
        (1..).map(|number| text(&Holder::new(&provider(), [11, number]).next())).take(90).collect();
    let longest = creations.iter().map(Vec::len).max().unwrap();
    let limits = format!("\"max_growth\": 30000, \"growth_per_minute\": {}", longest * 2);
    replica.good(INIT_CHAIN, begin(&limits)).await;
    let block = |operations: &[Vec<u8>], time_s| {
        at(operations.iter().fold(new(), |block, operation| block.message(1, operation)), time_s)
    };
    let mut fit = 0;
    let accepts = async |replica: &mut Running, operations: &[Vec<u8>], time_s| {
        let judged = replica.good(PROCESS_PROPOSAL, block(operations, time_s)).await;
        Message::read(&judged).unwrap().number(1) == Ok(1)
    };
    while accepts(&mut replica, &creations[..=fit], 1000).await {
        fit += 1;
    }
    let length: usize = creations[..fit].iter().map(Vec::len).sum();
    assert!(length <= 30000 && length + creations[fit].len() > 30000);
    replica.good(FINALIZE_BLOCK, block(&creations[..fit], 1000).number(5, 1)).await;
    replica.good(COMMIT, new()).await;
    // As much stays taken after a restart.
    replica.end().await;
    replica = Running::start(place.path()).await;
    let rest = &creations[fit..];
    for (count, time_s, accepted) in
        [(1, 1000, false), (1, 900, false), (2, 1060, true), (4, 1060, false), (4, 1120, true)]
    {
        assert_eq!(accepts(&mut replica, &rest[..count], time_s).await, accepted, "{count} at {time_s}");
    }
    // Their submitters wait meanwhile.
    let (code, why) = replica.check(&rest[0]).await;
    assert_eq!((code, why.contains("submit the operation again later")), (1, true), "{why}");
    // A DID that has not changed for a while need not wait for strangers.
    let mut holder = Holder::new(&provider(), [11, 1]);
    holder.next();
    let [update, next] = [text(&holder.next()), text(&holder.next())];
    let later = 1000 + OWN_INTERVAL;
    replica.good(FINALIZE_BLOCK, block(&[], later - 1).number(5, 2)).await;
    replica.good(COMMIT, new()).await;
    // No more wait in the nodes than a block takes.
    let mut waiting = 0;
    while replica.check(&rest[waiting]).await.0 == 0 {
        waiting += 1;
    }
    let mut fit = 0;
    while accepts(&mut replica, &rest[..=fit], later).await {
        fit += 1;
    }
    assert!(waiting > 0 && (waiting..=waiting + 1).contains(&fit), "{waiting} {fit}");
    let full = |more: &[Vec<u8>]| [&rest[..fit], more].concat();
    assert!(accepts(&mut replica, &full(std::slice::from_ref(&update)), later).await);
    assert!(!accepts(&mut replica, &full(&[update.clone(), next]), later).await);
    assert!(!accepts(&mut replica, &full(&rest[fit..=fit]), later).await);
    assert!(!accepts(&mut replica, &full(std::slice::from_ref(&update)), later - 1).await);
    // Nor do creations that wait in the nodes keep it out.
    replica.good(FINALIZE_BLOCK, block(&[], later).number(5, 3)).await;
    replica.good(COMMIT, new()).await;
    for creation in rest {
        replica.check(creation).await;
    }
    assert_ne!(replica.check(&rest[0]).await.0, 0);
    assert_eq!(replica.check(&update).await, (0, String::new()));
}

#[tokio::test]
async fn operations_wait_only_if_they_are_valid_now() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let mut holder = Holder::new(&provider(), [3, 1]);
    let [create, update] = [text(&holder.next()), text(&holder.next())];
    let mut codes = Vec::new();
    for height in [1, 2] {
        for operation in [&create, &update, &[create.as_slice(), b" "].concat()] {
            codes.push(replica.check(operation).await.0);
        }
        replica.decide(height, std::slice::from_ref(&create)).await;
        replica.good(COMMIT, new()).await;
    }
    assert_eq!(codes, [0, 1, 1, 1, 0, 1]);
    // Queries ask for a DID. A replica that has just been opened answers with what it has.
    replica.end().await;
    replica = Running::start(place.path()).await;
    let did = holder.state().did().as_str().as_bytes();
    for (path, data, code, found) in [
        ("/dids", did, 0, true),
        ("/dids", b"did:key:z".as_slice(), 0, false),
        ("/dids", b"x", 1, false),
        ("/", did, 1, false),
    ] {
        let answer = replica.good(QUERY, new().bytes(1, data).bytes(2, path.as_bytes())).await;
        let answer = Message::read(&answer).unwrap();
        assert_eq!((answer.number(1), answer.bytes(7).map(|value| !value.is_empty())), (Ok(code), Ok(found)));
    }
}

/// Any client may ask for the height at any time, by CometBFT's RPC (`abci_info`).
#[tokio::test]
async fn a_question_for_the_height_leaves_the_decided_block() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let create = text(&Holder::new(&provider(), [5, 1]).next());
    let before = replica.info().await;
    let (_, hash) = replica.decide(1, &[create]).await;
    assert_eq!(replica.info().await, before);
    replica.good(COMMIT, new()).await;
    assert_eq!(replica.info().await, (1, hash));
}

#[tokio::test]
async fn only_damage_stops_the_node_between_blocks() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let mut holder = Holder::new(&provider(), [8, 1]);
    let [create, update] = [text(&holder.next()), text(&holder.next())];
    replica.decide(1, &[create]).await;
    replica.good(COMMIT, new()).await;
    replica.end().await;
    replica = Running::start(place.path()).await;
    let did = holder.state().did().as_str().as_bytes();
    let query = || new().bytes(1, did).bytes(2, b"/dids");
    let connection = rusqlite::Connection::open(database(&place)).unwrap();
    // As if the database could not be opened for a while.
    connection.execute("ALTER TABLE document RENAME TO gone", ()).unwrap();
    let (code, why) = replica.check(&update).await;
    assert_eq!((code, why.contains("no such table")), (1, true), "{why}");
    let answer = replica.good(QUERY, query()).await;
    assert_eq!(Message::read(&answer).unwrap().number(1), Ok(1));
    connection.execute("ALTER TABLE gone RENAME TO document", ()).unwrap();
    assert_eq!(replica.check(&update).await, (0, String::new()));
    connection.execute("DELETE FROM document", ()).unwrap();
    assert!(replica.exception(CHECK_TX, new().bytes(1, &update)).await.contains("damaged"));
    assert!(replica.exception(QUERY, query()).await.contains("damaged"));
}

/// No client stops a node with an operation, whatever its signature is. The hash in the log does not cover
/// the signature.
#[tokio::test]
async fn an_operation_of_the_log_with_another_signature_is_refused() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let provider = dunlin_awslc::provider();
    let [own, next, recovery] = [(); 3].map(|()| KeyPair::generate(KeyType::P256).unwrap());
    let public = |pair: &KeyPair| PublicKey::from_spki(pair.public_key()).unwrap();
    let hash = |pair| Sha256Hash::of_key(&provider, &public(pair)).unwrap();
    let document = first_document(&provider, ORIGIN, &public(&own), hash(&next), hash(&recovery)).unwrap();
    let signer = own.signing_key(&provider).unwrap();
    // A signature with ECDSA is another one each time.
    let [first, second] = [(); 2].map(|()| text(&Operation::create(&provider, &*signer, &document).unwrap()));
    assert_ne!(first, second);
    let signed: serde_json::Value = serde_json::from_slice(&first).unwrap();
    let signature = signed["signature"].as_str().unwrap();
    let junk = std::str::from_utf8(&first).unwrap().replace(signature, &format!("z{}", "1".repeat(64)));
    assert_eq!(replica.check(&first).await, (0, String::new()));
    assert_eq!(replica.check(&second).await, (0, String::new()));
    assert_eq!(replica.decide(1, &[first.clone(), second.clone()]).await.0, [0, 1]);
    replica.good(COMMIT, new()).await;
    for operation in [&second, junk.as_bytes()] {
        let (code, why) = replica.check(operation).await;
        assert_eq!((code, why.contains("with another signature")), (1, true), "{why}");
    }
}

/// Two processes that reach the file by different mounts must not both write.
#[tokio::test]
async fn a_block_on_what_another_process_has_written_stops_the_node() {
    let place = place();
    let mut replica = Running::start(place.path()).await;
    let connection = rusqlite::Connection::open(database(&place)).unwrap();
    let set = |name, value: &str| {
        let sql = "UPDATE setting SET value = ?2 WHERE name = ?1";
        connection.execute(sql, (name, value)).unwrap();
    };
    let get = |name| {
        let sql = "SELECT value FROM setting WHERE name = ?1";
        connection.query_row(sql, [name], |row| row.get::<_, String>(0)).unwrap()
    };
    for name in ["height", "checkpoint"] {
        let before = get(name);
        set(name, "7");
        for (request, block) in [(FINALIZE_BLOCK, new().number(5, 1)), (PROCESS_PROPOSAL, new())] {
            let why = replica.exception(request, block).await;
            assert!(why.contains("another process runs this registry"), "{why}");
        }
        set(name, &before);
    }
    replica.decide(1, &[]).await;
    replica.good(COMMIT, new()).await;
}

/// Clients may take all file descriptors for a while. The limit is the process's, so this test runs in one of
/// its own.
#[test]
fn a_want_of_file_descriptors_passes() {
    const CHILD: &str = "DUNLIN_FEW_FILES";
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new("sh");
        child.args(["-c", "ulimit -n 64 && exec \"$0\" --exact a_want_of_file_descriptors_passes"]);
        let ended = child.arg(std::env::current_exe().unwrap()).env(CHILD, "").output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let place = place();
        let mut replica = Running::start(place.path()).await;
        // It waits until the replica accepts it.
        let second = std::os::unix::net::UnixStream::connect(place.path().join("app")).unwrap();
        let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert!(!files.is_empty());
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(!replica.task.is_finished());
        drop(files);
        second.set_nonblocking(true).unwrap();
        replica.socket = UnixStream::from_std(second).unwrap();
        assert_eq!(replica.info().await.0, 0);
    });
}

#[test]
fn a_replica_and_a_registry_keep_their_databases_apart() {
    let replica = place();
    let path = database(&replica);
    let refused = Replica::open(&path, provider(), chain("other")).unwrap_err();
    assert!(matches!(refused, RegistryError::OtherKey { .. }), "{refused}");
    let open = Replica::open(&path, provider(), chain(CHAIN)).unwrap();
    let refused = Replica::open(&path, provider(), chain(CHAIN)).unwrap_err();
    assert!(matches!(refused, RegistryError::InUse(_)), "{refused}");
    drop(open);

    let registry = common::RegistryDirectory::new();
    let refused = Registry::open(&path, &registry.settings()).unwrap_err();
    assert!(matches!(refused, RegistryError::OtherKey { .. }), "{refused}");
    let refused = Replica::open(&registry.path("registry"), provider(), chain(CHAIN)).unwrap_err();
    assert!(matches!(refused, RegistryError::OtherKey { .. }), "{refused}");
}
