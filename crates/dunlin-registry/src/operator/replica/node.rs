//! The replica's CometBFT node, asked over its RPC: for blocks, and to take operations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use dunlin_identity::encoding::protobuf::MessageWriter;
use dunlin_identity::transparency::{LightBlock, MAX_VALIDATORS};
use dunlin_tokio::https::{HttpsError, exchange};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderValue};
use hyper::{Method, Request};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::operator::error::RegistryError;

/// How long the node may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The longest answer, in bytes: about 400 for each of the signatures or validators.
const MAX_ANSWER: usize = 256 * 1024;

pub(super) struct Node {
    socket: PathBuf,
}

impl Node {
    pub(super) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    async fn ask(&self, method: &str, parameters: Value) -> Result<Value, RegistryError> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).to_string();
        let mut request = Request::new(Full::<Bytes>::from(body));
        *request.method_mut() = Method::POST;
        request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
        let address = self.socket.display().to_string();
        let asked = async {
            let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
                HttpsError::Unreachable { address: address.clone(), why: error.to_string() }
            })?;
            exchange(stream, &address, request, MAX_ANSWER).await
        };
        let failed = |why: &str| RegistryError::Node(why.to_owned());
        let answered = timeout(ANSWER_TIME, asked).await.map_err(|_| failed("it does not answer in time"))?;
        let body = answered.map_err(|error| failed(&error.to_string()))?.into_body();
        let answer: Value = serde_json::from_slice(&body).map_err(|_| failed("its answer is not JSON"))?;
        match (answer.get("result"), answer.pointer("/error/data").and_then(Value::as_str)) {
            (Some(result), None) => Ok(result.clone()),
            (_, Some(why)) => Err(failed(why)),
            (None, None) => Err(failed("its answer has no result")),
        }
    }

    /// Brings an operation to the node, which passes it on to the others.
    pub(super) async fn submit(&self, operation: &[u8]) -> Result<(), RegistryError> {
        let parameters = json!({"tx": Base64::encode_string(operation)});
        let result = match self.ask("broadcast_tx_sync", parameters).await {
            // Another client has been faster with the same operation.
            Err(RegistryError::Node(why)) if why.contains("already exists in cache") => return Ok(()),
            result => result?,
        };
        match result.get("code").and_then(Value::as_u64) {
            Some(0) => Ok(()),
            _ => Err(RegistryError::Node(
                text(&result, "log").unwrap_or("it refuses the operation").to_owned(),
            )),
        }
    }

    /// The block with this number, its signatures and its validators.
    pub(super) async fn block(&self, height: u64) -> Result<LightBlock, RegistryError> {
        let height = height.to_string();
        let signed = self.ask("commit", json!({"height": height})).await?;
        let page = MAX_VALIDATORS.to_string();
        let validators = self.ask("validators", json!({"height": height, "per_page": page})).await?;
        let block = light_block(&signed, &validators);
        let block = block.ok_or_else(|| RegistryError::Node("its answer is not a block".to_owned()))?;
        Ok(LightBlock::read(&block)?)
    }
}

/// Writes the RPC's JSON as the protobuf message `LightBlock`. Addresses and priorities of validators, which
/// follow from the rest, stay out.
fn light_block(signed: &Value, validators: &Value) -> Option<Vec<u8>> {
    let header = signed.pointer("/signed_header/header")?;
    let commit = signed.pointer("/signed_header/commit")?;
    let signed =
        MessageWriter::default().message(1, &self::header(header)?).message(2, &self::commit(commit)?);
    let mut set = MessageWriter::default();
    for validator in validators.get("validators")?.as_array()? {
        let key = MessageWriter::default().bytes(1, &base64(validator.get("pub_key")?, "value")?).finish();
        let power = number(validator, "voting_power")?;
        set = set.message(1, &MessageWriter::default().message(2, &key).number(3, power).finish());
    }
    Some(MessageWriter::default().message(1, &signed.finish()).message(2, &set.finish()).finish())
}

fn header(json: &Value) -> Option<Vec<u8>> {
    let version = json.get("version")?;
    let block = number(version, "block")?;
    let version =
        MessageWriter::default().number(1, block).number(2, number(version, "app").unwrap_or_default());
    let mut header = MessageWriter::default()
        .message(1, &version.finish())
        .bytes(2, text(json, "chain_id")?.as_bytes())
        .number(3, number(json, "height")?)
        .message(4, &timestamp(json, "time")?)
        .message(5, &block_id(json.get("last_block_id")?)?);
    let hashes = [
        "last_commit_hash",
        "data_hash",
        "validators_hash",
        "next_validators_hash",
        "consensus_hash",
        "app_hash",
        "last_results_hash",
        "evidence_hash",
        "proposer_address",
    ];
    for (field, name) in (6..).zip(hashes) {
        header = header.bytes(field, &hex(json, name)?);
    }
    Some(header.finish())
}

fn commit(json: &Value) -> Option<Vec<u8>> {
    let mut commit = MessageWriter::default()
        .number(1, number(json, "height")?)
        .number(2, json.get("round")?.as_u64()?)
        .message(3, &block_id(json.get("block_id")?)?);
    for signature in json.get("signatures")?.as_array()? {
        let flag = signature.get("block_id_flag")?.as_u64()?;
        let mut written = MessageWriter::default().number(1, flag);
        // An absent validator has neither.
        if let Some(bytes) = base64(signature, "signature") {
            written = written.message(3, &timestamp(signature, "timestamp")?).bytes(4, &bytes);
        }
        commit = commit.message(4, &written.finish());
    }
    Some(commit.finish())
}

fn block_id(json: &Value) -> Option<Vec<u8>> {
    let parts = json.get("parts")?;
    let set =
        MessageWriter::default().number(1, parts.get("total")?.as_u64()?).bytes(2, &hex(parts, "hash")?);
    Some(MessageWriter::default().bytes(1, &hex(json, "hash")?).message(2, &set.finish()).finish())
}

fn timestamp(json: &Value, name: &str) -> Option<Vec<u8>> {
    let time = OffsetDateTime::parse(text(json, name)?, &Rfc3339).ok()?;
    let seconds = u64::try_from(time.unix_timestamp()).ok()?;
    Some(MessageWriter::default().number(1, seconds).number(2, time.nanosecond().into()).finish())
}

fn text<'j>(json: &'j Value, name: &str) -> Option<&'j str> {
    json.get(name)?.as_str()
}

/// The RPC writes numbers of 64 bits as strings.
fn number(json: &Value, name: &str) -> Option<u64> {
    text(json, name)?.parse().ok()
}

fn base64(json: &Value, name: &str) -> Option<Vec<u8>> {
    Base64::decode_vec(text(json, name)?).ok()
}

fn hex(json: &Value, name: &str) -> Option<Vec<u8>> {
    base16ct::mixed::decode_vec(text(json, name)?).ok()
}
