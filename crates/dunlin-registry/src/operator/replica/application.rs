//! The answers to CometBFT's requests (ABCI 2.0, `tendermint.abci`).

use dunlin_identity::Did;
use dunlin_identity::encoding::protobuf::{Message, MessageWriter, ProtobufError};
use dunlin_identity::method::dunlin::OperationError;
use serde_json::Value;

use super::Replica;
use super::ledger::{Applied, Bounds, read};
use crate::operator::error::RegistryError;

/// The version of the state machine. CometBFT writes it into the headers of a new chain, and does not compare
/// it later.
const APP_VERSION: u64 = 2;

/// The code of an operation or a query that is refused. 0 means that all is well.
const REFUSED: u64 = 1;

/// How a replica judges the proposal of another one (`ResponseProcessProposal.ProposalStatus`).
const ACCEPT: u64 = 1;
const REJECT: u64 = 2;

/// The numbers of an exception, which ends CometBFT, and of requests (`Request`); an answer has the number of
/// its request plus 1.
const EXCEPTION: u64 = 1;
const ECHO: u64 = 1;
const FLUSH: u64 = 2;
const INFO: u64 = 3;
const INIT_CHAIN: u64 = 5;
const QUERY: u64 = 6;
const CHECK_TX: u64 = 8;
const COMMIT: u64 = 11;
const LIST_SNAPSHOTS: u64 = 12;
const OFFER_SNAPSHOT: u64 = 13;
const PREPARE_PROPOSAL: u64 = 16;
const PROCESS_PROPOSAL: u64 = 17;
const FINALIZE_BLOCK: u64 = 20;

/// The longest block, in bytes. The replicas set it when the chain begins.
pub const MAX_BLOCK: u64 = 4 * 1024 * 1024;

/// The most operations of a block.
pub const MAX_OPERATIONS: usize = 4096;

/// Snapshots of other replicas are refused: a new replica replays the chain (`ResponseOfferSnapshot.Result`).
const ABORT: u64 = 2;

impl From<ProtobufError> for RegistryError {
    fn from(_: ProtobufError) -> Self {
        Self::Request("it is malformed")
    }
}

impl Replica {
    /// Answers a request.
    pub(super) fn answer(&self, request: &[u8]) -> Vec<u8> {
        let answer = MessageWriter::default();
        let answered =
            Message::read(request).and_then(|request| request.choice()).map_err(RegistryError::from);
        let answered = answered.and_then(|(number, request)| Ok((number, self.answer_to(number, &request)?)));
        match answered {
            Ok((number, content)) => answer.message(number + 1, &content.finish()),
            Err(error) => {
                tracing::error!(%error, "the replica stops its CometBFT node");
                let error = MessageWriter::default().bytes(1, error.to_string().as_bytes());
                answer.message(EXCEPTION, &error.finish())
            }
        }
        .delimited()
    }

    fn answer_to(&self, number: u64, request: &Message<'_>) -> Result<MessageWriter, RegistryError> {
        let answer = MessageWriter::default();
        Ok(match number {
            ECHO => answer.bytes(1, request.bytes(1)?),
            FLUSH | LIST_SNAPSHOTS => answer,
            // The state on the disk. CometBFT also asks on behalf of its clients, at any time, so this must
            // not touch a block that is decided.
            INFO => self.ledger(|ledger| {
                let answer = answer.bytes(1, b"dunlin-registry").number(3, APP_VERSION);
                answer.number(4, ledger.height()).bytes(5, ledger.hash())
            }),
            INIT_CHAIN => self.begin(request)?,
            QUERY => unless_damaged(self.query(request))?,
            CHECK_TX => unless_damaged(self.check(request.bytes(1)?).map(|()| answer))?,
            PREPARE_PROPOSAL => self.propose(request)?,
            PROCESS_PROPOSAL => {
                let operations = request.all(1)?;
                let accepted = operations.len() <= MAX_OPERATIONS
                    && self.ledger(|ledger| ledger.all_valid(time(request)?, &operations))?;
                answer.number(1, if accepted { ACCEPT } else { REJECT })
            }
            FINALIZE_BLOCK => self.ledger(|ledger| {
                report(request)?;
                let (hash, results) = ledger.decide(request.number(5)?, time(request)?, &request.all(1)?)?;
                let answer =
                    results.iter().fold(answer, |answer, applied| answer.message(2, &result(applied)));
                Ok::<_, RegistryError>(answer.bytes(5, &hash))
            })?,
            COMMIT => {
                let (results, height) =
                    self.ledger(|ledger| ledger.commit().map(|results| (results, ledger.height())))?;
                for (hash, result) in &results {
                    self.waiting(|waiting| waiting.committed(hash, result));
                }
                self.committed.send_replace(height);
                answer
            }
            OFFER_SNAPSHOT => answer.number(1, ABORT),
            _ => return Err(RegistryError::Request("this replica does not know its type")),
        })
    }

    /// The first block of the chain comes next. The genesis file names the registry, so that all replicas
    /// mean the same.
    fn begin(&self, request: &Message<'_>) -> Result<MessageWriter, RegistryError> {
        let state: Option<Value> = serde_json::from_slice(request.bytes(5)?).ok();
        let origin = state.as_ref().and_then(|state| state.get("origin")?.as_str());
        if request.text(2)? != self.chain.id() || origin != Some(self.chain.origin()) {
            return Err(RegistryError::Request("the genesis file has another chain_id or app_state.origin"));
        }
        // Blocks have the numbers from 1.
        if request.number(6)? > 1 {
            return Err(RegistryError::Request("the genesis file has another initial_height than 1"));
        }
        let bounds = Bounds::read(&state.unwrap_or_default())?;
        self.ledger(|ledger| match ledger.height() {
            0 => {
                ledger.bound(bounds)?;
                // `ConsensusParams.block`: as much gas as there is (-1), since operations cost none.
                let block = MessageWriter::default().number(1, MAX_BLOCK).number(2, u64::MAX).finish();
                let parameters = MessageWriter::default().message(1, &block).finish();
                Ok(MessageWriter::default().message(1, &parameters).bytes(3, ledger.hash()))
            }
            _ => Err(RegistryError::Request("it begins the chain, but the replica has blocks")),
        })
    }

    /// Whether an operation may wait for a block.
    fn check(&self, bytes: &[u8]) -> Result<(), RegistryError> {
        let operation = read(bytes)?;
        match self.known(&operation)? {
            None => self.ledger(|ledger| ledger.has_room(&operation, bytes)),
            // It is in the log.
            Some(_) => Err(OperationError::Sequence {
                expected: operation.sequence() + 1,
                found: operation.sequence(),
            }
            .into()),
        }
    }

    /// Leaves out of a proposal the operations that would not be valid, or that exceed the block's limits.
    fn propose(&self, request: &Message<'_>) -> Result<MessageWriter, RegistryError> {
        let mut room = request.number(1)?;
        let mut operations = Vec::new();
        for operation in request.all(2)?.into_iter().take(MAX_OPERATIONS) {
            // Each is a field: a tag of one byte, and its length in up to four.
            let Some(rest) = room.checked_sub(operation.len() as u64 + 5) else { break };
            room = rest;
            operations.push(operation);
        }
        let valid = self.ledger(|ledger| ledger.trial(time(request)?, &operations))?;
        let kept = operations.iter().zip(valid).filter(|(_, valid)| *valid);
        Ok(kept.fold(MessageWriter::default(), |answer, (operation, _)| answer.message(1, operation)))
    }

    /// The staple of the DID in the query's data: its document with all proofs.
    fn query(&self, request: &Message<'_>) -> Result<MessageWriter, RegistryError> {
        let answer = MessageWriter::default();
        let did: Option<Did> = request.text(1).ok().and_then(|did| did.parse().ok());
        let Some(did) = did.filter(|_| request.text(2) == Ok("/dids")) else {
            return Err(RegistryError::Request("ask for the path /dids with a DID"));
        };
        let staple = self.resolve(&did)?.staple().and_then(|staple| staple.write().ok());
        Ok(answer.bytes(6, did.as_str().as_bytes()).bytes(7, &staple.unwrap_or_default()))
    }
}

/// Writes into the log which validators have been convicted of two votes for one height, or the like
/// (`Misbehavior`).
fn report(request: &Message<'_>) -> Result<(), RegistryError> {
    for convicted in request.all(3)? {
        let convicted = Message::read(convicted)?;
        let address = base16ct::upper::encode_string(convicted.message(2)?.bytes(1)?);
        let height = convicted.number(3)?;
        tracing::error!(%address, height, "a validator of the chain has broken its rules: ask its operator");
    }
    Ok(())
}

/// The time of the block that a request is about, in seconds since 1970.
fn time(request: &Message<'_>) -> Result<u64, RegistryError> {
    // Times before 1970 are negative, and large numbers here.
    Ok(request.message(6)?.number(1).map(|time_s| if time_s > i64::MAX as u64 { 0 } else { time_s })?)
}

/// Refuses what fails. Nothing that a stranger sends stops the node, nor does a fault that passes: it would
/// end all nodes together.
fn unless_damaged(answered: Result<MessageWriter, RegistryError>) -> Result<MessageWriter, RegistryError> {
    match answered {
        Err(error) if !matches!(error, RegistryError::Damaged(_)) => {
            Ok(refused(MessageWriter::default(), &error))
        }
        answered => answered,
    }
}

fn refused(answer: MessageWriter, error: &RegistryError) -> MessageWriter {
    answer.number(1, REFUSED).bytes(3, error.to_string().as_bytes())
}

/// The result of an operation in a block (`ExecTxResult`), the same on every replica: the number of the
/// entry, or a refusal.
fn result((_, result): &Applied) -> Vec<u8> {
    let answer = MessageWriter::default();
    match result {
        Ok(receipt) => answer.bytes(2, &receipt.number.to_be_bytes()),
        Err(error) => refused(answer, error),
    }
    .finish()
}
