//! The log of a replica that is cut off from its CometBFT node, or whose chain has halted. The log is the
//! process's, so this test has a process of its own.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use common::{Holder, ORIGIN, key, log, provider};
use dunlin_identity::Sha256Hash;
use dunlin_identity::encoding::protobuf::{Message, MessageWriter, varint};
use dunlin_identity::method::dunlin::OperationError;
use dunlin_identity::transparency::Chain;
use dunlin_registry::replica::{Replica, Sockets};
use dunlin_registry::server::Source;
use dunlin_registry::{RegistryError, Room};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::Level;

const CHAIN: &str = "dunlin-test";

/// Answers the RPC with a block that commits to a state. Replicas do not look at signatures.
async fn node(socket: UnixListener, state: String) {
    let provider = provider();
    let time = "2026-01-01T00:00:00Z";
    let spki = key(&provider, [1, 2, 3]).public_key().to_vec();
    let validator = Base64::encode_string(spki.last_chunk::<32>().unwrap());
    let id = json!({"hash": state, "parts": {"total": 1, "hash": state}});
    let block = json!({"signed_header": {
        "header": {
            "version": {"block": "11"}, "chain_id": CHAIN, "height": "1", "time": time, "last_block_id": id,
            "last_commit_hash": state, "data_hash": state, "validators_hash": state, "next_validators_hash": state,
            "consensus_hash": state, "app_hash": state, "last_results_hash": state, "evidence_hash": state,
            "proposer_address": "",
        },
        "commit": {"height": "1", "round": 0, "block_id": id, "signatures": [
            {"block_id_flag": 2, "timestamp": time, "signature": Base64::encode_string(&[0; 64])},
        ]},
    }});
    let validators = json!({"validators": [{"pub_key": {"value": validator}, "voting_power": "1"}]});
    loop {
        let (stream, _) = socket.accept().await.unwrap();
        answer(stream, &block, &validators).await;
    }
}

async fn answer(stream: UnixStream, block: &Value, validators: &Value) {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while stream.read_line(&mut line).await.unwrap() > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap();
    let taken = json!({"code": 0});
    let result = match request["method"].as_str().unwrap() {
        "commit" => block,
        "broadcast_tx_sync" => &taken,
        _ => validators,
    };
    let body = json!({"result": result}).to_string();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
}

async fn connected(path: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => return stream,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Brings a block to the replica: FinalizeBlock and Commit.
async fn decide(comet: &mut UnixStream, block: MessageWriter) {
    for (number, request) in [(20, block), (11, MessageWriter::default())] {
        let request = MessageWriter::default().message(number, &request.finish()).delimited();
        comet.write_all(&request).await.unwrap();
        let mut length = vec![comet.read_u8().await.unwrap()];
        while length.last().unwrap() & 0x80 != 0 {
            length.push(comet.read_u8().await.unwrap());
        }
        let mut answer = vec![0; usize::try_from(varint(&length).unwrap().0).unwrap()];
        comet.read_exact(&mut answer).await.unwrap();
        assert_eq!(Message::read(&answer).unwrap().choice().unwrap().0, number + 1);
    }
}

/// The next line of the log.
async fn next(lines: &Receiver<String>) -> String {
    loop {
        match lines.try_recv() {
            Ok(line) => return line,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_proofs_or_blocks_says_so_once() {
    let lines = log::lines(Level::WARN);
    let place = tempfile::tempdir().unwrap();
    let provider = provider();
    let path = place.path().join("registry");
    let chain = Chain::new(&provider, ORIGIN, CHAIN).unwrap();
    Replica::create(&path, &provider, &chain).unwrap();
    let replica = Arc::new(Replica::open(&path, Arc::clone(&provider), chain).unwrap());
    let state = replica.shown().checkpoint().note().text().to_owned();
    let state = Sha256Hash::of(&provider, state.as_bytes()).unwrap();
    let state = state.as_bytes().iter().map(|byte| format!("{byte:02X}")).collect();
    let sockets = Sockets { application: place.path().join("app"), rpc: place.path().join("rpc") };
    let running = Arc::clone(&replica);
    let its_sockets = sockets.clone();
    let running = tokio::spawn(async move { drop(running.run(&its_sockets).await) });
    sleep(Duration::from_secs(29)).await;
    assert_eq!(lines.try_iter().collect::<Vec<_>>(), [""; 0]);
    sleep(Duration::from_secs(600)).await;
    let [line] = lines.try_iter().collect::<Vec<_>>().try_into().unwrap();
    assert!(line.contains("shows an old state") && line.contains(sockets.rpc.to_str().unwrap()), "{line}");

    let node = tokio::spawn(node(UnixListener::bind(&sockets.rpc).unwrap(), state));
    let line = next(&lines).await;
    assert!(line.contains("proven states again"), "{line}");
    assert_eq!(replica.shown().checkpoint().note().to_string().lines().count(), 5);

    // No block comes.
    sleep(Duration::from_secs(3600)).await;
    let [line] = lines.try_iter().collect::<Vec<_>>().try_into().unwrap();
    assert!(line.contains("no block for 900s"), "{line}");

    let mut comet = connected(&sockets.application).await;
    let mut holder = Holder::new(&provider, [4, 1]);
    let create = holder.next().canonical().unwrap();
    let block = |height| MessageWriter::default().number(5, height);
    let convicted =
        MessageWriter::default().message(2, &MessageWriter::default().bytes(1, &[0xab; 20]).finish());
    let convicted = block(1).message(1, create.as_bytes()).message(3, &convicted.number(3, 7).finish());
    decide(&mut comet, convicted).await;
    let line = next(&lines).await;
    assert!(line.contains(&"AB".repeat(20)) && line.contains("height: 7"), "{line}");
    let line = next(&lines).await;
    assert!(line.contains("proven states again"), "{line}");

    // Of two operations one comes first. The nodes say nothing about the other.
    let (answer, answered) = oneshot::channel();
    let update = holder.clone().next();
    replica.submit_within(update, Room::Free, Box::new(|result| answer.send(result).unwrap())).unwrap();
    let end = holder.deactivate();
    decide(&mut comet, block(2).message(1, end.canonical().unwrap().as_bytes())).await;
    assert_eq!(answered.await.unwrap().unwrap_err(), OperationError::Deactivated.into());

    // No block has the operation.
    let (answer, answered) = oneshot::channel();
    let create = Holder::new(&provider, [4, 2]).next();
    replica.submit_within(create, Room::Free, Box::new(|result| answer.send(result).unwrap())).unwrap();
    assert!(matches!(answered.await.unwrap(), Err(RegistryError::Node(_))));
    let line = next(&lines).await;
    assert!(line.contains("the chain may have halted"), "{line}");

    // Its connections end with it.
    drop(comet);
    let line = next(&lines).await;
    assert!(line.contains("has left the replica"), "{line}");
    node.abort();
    running.abort();
}
