//! Registries that several operators replicate with CometBFT: a verifier of block headers, as CometBFT's
//! light clients check them.
//!
//! Each block's header has the hash of the state before it (`app_hash`). For a registry, that is the SHA-256
//! of the text of its checkpoint. More than two thirds of the validators sign the header. So a note with a
//! checkpoint carries a [`LightBlock`] in place of the registry's signature, and no single operator can forge
//! it.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use base64ct::{Base64, Encoding};
use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;
use serde_json::Value;

use super::note::{MAX_WITNESS_CLOCK_SKEW, Note, NoteSignature, is_key_name};
use crate::encoding::json;
use crate::encoding::protobuf::{Message, MessageWriter, ProtobufError};
use crate::hash::Sha256Hash;
use crate::key::{KeyError, KeyType, PublicKey};
use crate::merkle::{Hasher, NodeHash, Nodes, Tree};

/// The most validators. A staple has room for the longest document, a checkpoint with the block of 10 of
/// them, and a proof of about 800 bytes, also if all names have their greatest length.
pub const MAX_VALIDATORS: usize = 10;

/// How long a verifier believes the validators of a block, in seconds, unless it says otherwise: 14 days.
pub const DEFAULT_TRUSTING_PERIOD: u64 = 14 * 24 * 60 * 60;

/// The longest name of a chain, in bytes, which is CometBFT's limit.
pub const MAX_CHAIN_ID: usize = 50;

/// The longest genesis file, in bytes.
pub const MAX_GENESIS: usize = 64 * 1024;

/// The largest voting power of all validators together, which is CometBFT's limit.
const MAX_POWER: u64 = i64::MAX as u64 / 8;

/// How many fields a header has.
const HEADER_FIELDS: u64 = 14;

/// A precommit vote (`SIGNED_MSG_TYPE_PRECOMMIT`).
const PRECOMMIT: u64 = 2;

/// The flag of a signature for the block; other validators are absent or have voted for none
/// (`BLOCK_ID_FLAG_COMMIT`).
const COMMIT: u64 = 2;

/// The type of a chain's signature line: one of our own (0xff, C2SP signed-note), so its name follows.
const LINE_TYPE: &[u8] = b"\xffdunlin CometBFT LightBlock 1\n";

/// Why a block, or trust in a chain, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The note has no block of the chain, or several.
    #[error("block: the note has not exactly one block of the registry's chain")]
    Missing,
    /// This part of a block is malformed, too long, or beyond its bounds.
    #[error("block: malformed {0}")]
    Malformed(&'static str),
    /// The block belongs to another chain.
    #[error("block: it is of another chain, {0:?}")]
    OtherChain(String),
    /// The header has the hash of another state than the checkpoint.
    #[error("block: its header does not commit to this checkpoint")]
    State,
    /// The validators do not match the header.
    #[error("block: its header has other validators")]
    Validators,
    /// The signatures are of another block.
    #[error("block: the signatures are for another block")]
    Commit,
    /// Not more than two thirds of the validators, by voting power, have signed. Wrong signatures do not
    /// count.
    #[error(
        "block: validators with a voting power of {signed} of {total} have signed; it takes more than two thirds"
    )]
    Power {
        /// The voting power of those that have signed.
        signed: u64,
        /// The voting power of all.
        total: u64,
    },
    /// Not more than a third of the validators that the verifier knows have signed, or they have announced
    /// other validators.
    #[error(
        "block: it has other validators, whom too few known ones support: show a block between, or configure the new validators"
    )]
    Unsupported,
    /// The header's time is ahead of the verifier's clock.
    #[error("block: its time is in the future: check the clocks")]
    Future,
    /// Of two blocks, the later one has an earlier time or a smaller log.
    #[error(
        "block: at height {height} its time or its log contradicts the accepted block at height {accepted}: keep both and report them"
    )]
    Order {
        /// The height of this block.
        height: u64,
        /// The height of the block that was accepted before.
        accepted: u64,
    },
    /// The known validators may have been replaced since.
    #[error("block: nothing has confirmed the known validators for too long: configure the current ones")]
    Expired,
    /// There are two blocks at one height.
    #[error("block: the chain has two blocks at height {0}: keep both and report them")]
    Fork(u64),
    /// The genesis file is not one of a registry; the member that is missing or malformed.
    #[error("genesis file: missing or malformed {0}")]
    Genesis(&'static str),
    /// The origin or the chain's name is empty, too long, or has a character that no name has.
    #[error(
        "chain: an origin has 1 to 255 printable ASCII characters without space and \"+\", a chain's name 1 to {MAX_CHAIN_ID}"
    )]
    Name,
    /// The provider lacks an algorithm.
    #[error("block: {0}")]
    Key(#[from] KeyError),
}

fn malformed(part: &'static str) -> impl Fn(ProtobufError) -> ChainError {
    move |ProtobufError| ChainError::Malformed(part)
}

/// The names of a replicated registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    origin: String,
    id: String,
    hash: Sha256Hash,
}

impl Chain {
    /// The registry with this origin on the chain with this name (`chain_id`).
    ///
    /// # Errors
    /// [`ChainError::Name`], [`ChainError::Key`].
    pub fn new(provider: &CryptoProvider, origin: &str, chain_id: &str) -> Result<Self, ChainError> {
        let good = (1..=MAX_CHAIN_ID).contains(&chain_id.len());
        if !good || !chain_id.bytes().all(|byte| byte.is_ascii_graphic()) || !is_key_name(origin) {
            return Err(ChainError::Name);
        }
        let hashed = [origin.as_bytes(), b"\n", LINE_TYPE, chain_id.as_bytes()].concat();
        let hash = Sha256Hash::of(provider, &hashed)?;
        Ok(Self { origin: origin.to_owned(), id: chain_id.to_owned(), hash })
    }

    /// The registry's origin.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The chain's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first `N` bytes of the hash of both names: four in notes, eight in a handshake's `did_proof`.
    pub fn key_id<const N: usize>(&self) -> [u8; N] {
        let mut id = [0; N];
        id.iter_mut().zip(self.hash.as_bytes()).for_each(|(byte, hashed)| *byte = *hashed);
        id
    }

    /// The signature line of a checkpoint: a block whose header commits to it.
    pub fn line(&self, block: &LightBlock) -> NoteSignature {
        NoteSignature::new(self.origin.clone(), self.key_id(), block.bytes.clone())
    }

    /// Reads the block in a note.
    ///
    /// # Errors
    /// [`ChainError::Missing`], [`ChainError::Malformed`].
    pub fn block(&self, note: &Note) -> Result<LightBlock, ChainError> {
        let mut lines = note.lines(&self.origin, self.key_id());
        match (lines.next(), lines.next()) {
            (Some(line), None) => LightBlock::read(line),
            _ => Err(ChainError::Missing),
        }
    }
}

/// The validators of a block with their voting power, in CometBFT's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatorSet {
    validators: Vec<(PublicKey, u64)>,
    total: u64,
}

impl ValidatorSet {
    /// Validators with Ed25519 keys and their voting power.
    ///
    /// # Errors
    /// [`ChainError::Malformed`]: there are none or too many, one is there twice, or the voting powers exceed
    /// CometBFT's bounds.
    pub fn new(validators: Vec<(PublicKey, u64)>) -> Result<Self, ChainError> {
        let wrong = ChainError::Malformed("validators");
        if !(1..=MAX_VALIDATORS).contains(&validators.len()) {
            return Err(wrong);
        }
        let mut seen = BTreeSet::new();
        let mut total = 0_u64;
        for (key, power) in &validators {
            total = total.saturating_add(*power);
            // Under two numbers, one validator would count twice.
            let good = key.key_type() == KeyType::Ed25519 && *power != 0 && total <= MAX_POWER;
            if !good || !seen.insert(key.raw()) {
                return Err(wrong);
            }
        }
        Ok(Self { validators, total })
    }

    /// Reads a `ValidatorSet`. Addresses and priorities, which it may have, say nothing.
    fn read(message: &Message<'_>) -> Result<Self, ChainError> {
        let wrong = malformed("validators");
        let validators = message.all(1).map_err(&wrong)?;
        if validators.len() > MAX_VALIDATORS {
            return Err(ChainError::Malformed("validators"));
        }
        let read = |validator| {
            let validator = Message::read(validator).map_err(&wrong)?;
            let key = validator.message(2).and_then(|key| key.bytes(1)).map_err(&wrong)?;
            let key = PublicKey::ed25519(key).map_err(|_| ChainError::Malformed("validators"))?;
            Ok::<_, ChainError>((key, validator.number(3).map_err(&wrong)?))
        };
        Self::new(validators.into_iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The hash that headers have: the root over the keys and powers.
    ///
    /// # Errors
    /// [`ChainError::Key`] if the provider's SHA-256 does not have 32 bytes.
    pub fn hash(&self, hasher: Hasher<'_>) -> Result<NodeHash, ChainError> {
        root(
            hasher,
            self.validators.iter().map(|(key, power)| {
                let key = MessageWriter::default().message(1, key.raw()).finish();
                MessageWriter::default().message(1, &key).number(2, *power).finish()
            }),
        )
    }

    fn power_of(&self, key: &PublicKey) -> u64 {
        let found = self.validators.iter().find(|(known, _)| known == key);
        found.map_or(0, |(_, power)| *power)
    }
}

/// The root of the tree with these leaves. CometBFT's trees are those of RFC 9162.
fn root(hasher: Hasher<'_>, leaves: impl Iterator<Item = Vec<u8>>) -> Result<NodeHash, ChainError> {
    let mut tree = Tree::default();
    leaves.for_each(|leaf| tree.push(hasher, hasher.leaf(&leaf)));
    tree.root(hasher, tree.size()).map_err(|_| ChainError::Key(KeyError::Provider("SHA-256")))
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timestamp(u64, u64);

/// The header of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    /// The fields as CometBFT hashes them.
    leaves: Vec<Vec<u8>>,
    chain_id: String,
    height: u64,
    time: Timestamp,
    validators: NodeHash,
    next_validators: NodeHash,
    state: NodeHash,
}

impl Header {
    fn read(message: &Message<'_>) -> Result<Self, ChainError> {
        let wrong = malformed("header");
        let leaf = |field| {
            Ok(match field {
                // Messages: they are their own encoding.
                1 | 4 | 5 => message.bytes(field)?.to_vec(),
                3 => MessageWriter::default().number(1, message.number(field)?).finish(),
                _ => MessageWriter::default().bytes(1, message.bytes(field)?).finish(),
            })
        };
        let leaves = (1..=HEADER_FIELDS).map(leaf).collect::<Result<_, _>>().map_err(&wrong)?;
        let hash = |field| {
            let hash = message.bytes(field).map_err(&wrong)?;
            NodeHash::try_from(hash).map_err(|_| ChainError::Malformed("header"))
        };
        let time = message.message(4).map_err(&wrong)?;
        let time = Timestamp(time.number(1).map_err(&wrong)?, time.number(2).map_err(&wrong)?);
        let chain_id = message.text(2).map_err(&wrong)?;
        let height = message.number(3).map_err(&wrong)?;
        // Negative numbers are large ones here.
        if height == 0
            || height > i64::MAX as u64
            || time.0 > i64::MAX as u64
            || chain_id.len() > MAX_CHAIN_ID
        {
            return Err(ChainError::Malformed("header"));
        }
        Ok(Self {
            leaves,
            chain_id: chain_id.to_owned(),
            height,
            time,
            validators: hash(8)?,
            next_validators: hash(9)?,
            state: hash(11)?,
        })
    }
}

/// The signatures of the validators.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Commit {
    height: u64,
    round: u64,
    /// The `BlockID`, as it is signed.
    id: Vec<u8>,
    hash: Vec<u8>,
    /// The time and signature of each validator that has voted for the block.
    votes: Vec<Option<(Vec<u8>, Vec<u8>)>>,
}

impl Commit {
    fn read(message: &Message<'_>) -> Result<Self, ProtobufError> {
        let id = message.bytes(3)?;
        let vote = |signature| {
            let signature = Message::read(signature)?;
            let vote = (signature.bytes(3)?.to_vec(), signature.bytes(4)?.to_vec());
            Ok((signature.number(1)? == COMMIT).then_some(vote))
        };
        Ok(Self {
            height: message.number(1)?,
            round: message.number(2)?,
            id: id.to_vec(),
            hash: Message::read(id)?.bytes(1)?.to_vec(),
            votes: message.all(4)?.into_iter().map(vote).collect::<Result<_, _>>()?,
        })
    }
}

/// A header, the validators' signatures, and the validators: CometBFT's message `LightBlock`. It says nothing
/// before [`RegistryTrust::verify`](super::checkpoint::RegistryTrust::verify) has checked it.
#[derive(Clone, PartialEq, Eq)]
pub struct LightBlock {
    bytes: Vec<u8>,
    header: Header,
    commit: Commit,
    validators: ValidatorSet,
}

impl LightBlock {
    /// Reads a block, which the caller bounds.
    ///
    /// # Errors
    /// [`ChainError::Malformed`].
    pub fn read(bytes: &[u8]) -> Result<Self, ChainError> {
        let wrong = malformed("block");
        let message = Message::read(bytes).map_err(&wrong)?;
        let signed = message.message(1).map_err(&wrong)?;
        let validators = message.message(2).map_err(&wrong)?;
        let header = Header::read(&signed.message(1).map_err(&wrong)?)?;
        let commit = signed.message(2).and_then(|commit| Commit::read(&commit));
        let commit = commit.map_err(malformed("signatures"))?;
        let validators = ValidatorSet::read(&validators)?;
        if commit.votes.len() != validators.validators.len() {
            return Err(ChainError::Malformed("signatures"));
        }
        Ok(Self { bytes: bytes.to_vec(), header, commit, validators })
    }

    /// The number of the block.
    pub fn height(&self) -> u64 {
        self.header.height
    }

    /// The time in the header, in seconds since 1970.
    pub fn time_s(&self) -> u64 {
        self.header.time.0
    }

    /// The hash of the state before the block: of the text of a checkpoint.
    pub fn state(&self) -> &NodeHash {
        &self.header.state
    }

    /// The hash of the header.
    ///
    /// # Errors
    /// [`ChainError::Key`].
    pub fn hash(&self, hasher: Hasher<'_>) -> Result<NodeHash, ChainError> {
        root(hasher, self.header.leaves.iter().cloned())
    }

    /// The message that the validator with this number has signed (`CanonicalVote`); `None` if it has not
    /// voted for the block.
    pub fn vote(&self, validator: usize) -> Option<Vec<u8>> {
        let (time, _) = self.commit.votes.get(validator)?.as_ref()?;
        let vote = MessageWriter::default().number(1, PRECOMMIT).fixed(2, self.commit.height);
        let vote = vote.fixed(3, self.commit.round).message(4, &self.commit.id).message(5, time);
        Some(vote.bytes(6, self.header.chain_id.as_bytes()).delimited())
    }

    /// Checks that the parts belong together and that more than two thirds of the validators have signed.
    /// Returns the voting power of those that have, by `weigh`. A wrong signature does not count, but refuses
    /// nothing: CometBFT's verification (ZIP 215) accepts some that RFC 8032 §5.1.7 without cofactors does
    /// not, and one validator with such a signature must not make a block of the others worthless.
    fn signed(
        &self,
        provider: &CryptoProvider,
        weigh: impl Fn(&PublicKey) -> u64,
    ) -> Result<u64, ChainError> {
        let hasher = Hasher(provider.sha256);
        if self.validators.hash(hasher)? != self.header.validators {
            return Err(ChainError::Validators);
        }
        if self.commit.height != self.header.height || self.commit.hash != self.hash(hasher)? {
            return Err(ChainError::Commit);
        }
        let mut signed = 0;
        let mut weight = 0;
        let total = self.validators.total;
        for (number, ((key, power), vote)) in
            self.validators.validators.iter().zip(&self.commit.votes).enumerate()
        {
            let (Some((_, signature)), Some(message)) = (vote, self.vote(number)) else { continue };
            match key.verify(provider, SignatureScheme::ED25519, &message, signature) {
                Ok(()) => {}
                Err(KeyError::Signature) => continue,
                Err(error) => return Err(error.into()),
            }
            (signed, weight) = (signed + power, weight + weigh(key));
        }
        if signed * 3 > total * 2 { Ok(weight) } else { Err(ChainError::Power { signed, total }) }
    }
}

impl fmt::Debug for LightBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LightBlock").field("height", &self.height()).finish_non_exhaustive()
    }
}

/// A verifier's trust in a replicated registry: the validators of its chain. The verifier assumes that fewer
/// than a third of them, by voting power, work together against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainTrust {
    chain: Chain,
    validators: ValidatorSet,
    confirmed_s: u64,
    period_s: u64,
}

impl ChainTrust {
    /// Trusts these validators, which the chain had at the time `confirmed_s`, in seconds since 1970, for 14
    /// days ([`DEFAULT_TRUSTING_PERIOD`]). A later block that the verifier has accepted confirms its own
    /// validators.
    pub fn new(chain: Chain, validators: ValidatorSet, confirmed_s: u64) -> Self {
        Self { chain, validators, confirmed_s, period_s: DEFAULT_TRUSTING_PERIOD }
    }

    /// Reads the genesis file of the chain, of at most [`MAX_GENESIS`] bytes: `chain_id`, `validators` and,
    /// in `app_state`, the registry's `origin`. `confirmed_s` is the time, in seconds since 1970, at which
    /// the program has learned that these still are the validators.
    ///
    /// # Errors
    /// [`ChainError::Genesis`], [`ChainError::Malformed`], [`ChainError::Name`].
    pub fn from_genesis(
        provider: &CryptoProvider,
        genesis: &[u8],
        confirmed_s: u64,
    ) -> Result<Self, ChainError> {
        let genesis = json::read_bounded(genesis, MAX_GENESIS).map_err(|_| ChainError::Genesis("JSON"))?;
        let text = |value: Option<&Value>, name| {
            value.and_then(Value::as_str).map(str::to_owned).ok_or(ChainError::Genesis(name))
        };
        let origin = text(genesis.pointer("/app_state/origin"), "app_state.origin")?;
        let chain = Chain::new(provider, &origin, &text(genesis.get("chain_id"), "chain_id")?)?;
        let validators = genesis.get("validators").and_then(Value::as_array);
        let validator = |value: &Value| {
            let wrong = ChainError::Genesis("validators");
            let typ = value.pointer("/pub_key/type").and_then(Value::as_str);
            let key = typ.filter(|typ| *typ == "tendermint/PubKeyEd25519");
            let key = key.and_then(|_| Base64::decode_vec(value.pointer("/pub_key/value")?.as_str()?).ok());
            let power = value.get("power").and_then(Value::as_str).and_then(|power| power.parse().ok());
            let (Some(key), Some(power)) = (key, power) else { return Err(wrong) };
            Ok((PublicKey::ed25519(&key).map_err(|_| wrong)?, power))
        };
        let validators = validators.ok_or(ChainError::Genesis("validators"))?.iter().map(validator);
        let validators = ValidatorSet::new(validators.collect::<Result<_, _>>()?)?;
        Ok(Self::new(chain, validators, confirmed_s))
    }

    /// Believes the validators for this many seconds. It must be shorter than the time in which their
    /// operators answer for what they have signed: the keys of former validators could sign another history.
    #[must_use]
    pub fn with_period(self, period_s: u64) -> Self {
        Self { period_s, ..self }
    }

    /// Takes over from the same trust, read again, when the validators were confirmed, if that is later.
    pub(super) fn confirm(&mut self, again: &Self) {
        if *self == (Self { confirmed_s: self.confirmed_s, ..again.clone() }) {
            self.confirmed_s = self.confirmed_s.max(again.confirmed_s);
        }
    }

    /// Passes everything on which a verdict by this trust rests to `add`, except for times.
    pub(super) fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(self.chain.origin.as_bytes());
        add(self.chain.id.as_bytes());
        for (key, power) in &self.validators.validators {
            add(key.raw());
            add(&power.to_be_bytes());
        }
        add(&self.period_s.to_be_bytes());
    }

    /// The number of the block in a checkpoint's note.
    pub(super) fn height(&self, note: &Note) -> Option<u64> {
        self.chain.block(note).ok().map(|block| block.height())
    }

    /// The registry and its chain.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Checks the block of a checkpoint, and returns it. The checkpoint is its note and the size of its log.
    /// `newest` is the newest one that the verifier has accepted; its block confirms its validators.
    pub(super) fn verify(
        &self,
        provider: &CryptoProvider,
        (note, size): (&Note, u64),
        newest: Option<(&Note, u64)>,
        now_s: u64,
    ) -> Result<LightBlock, ChainError> {
        let block = self.chain.block(note)?;
        if block.header.chain_id != self.chain.id {
            return Err(ChainError::OtherChain(block.header.chain_id));
        }
        let state = Sha256Hash::of(provider, note.text().as_bytes())?;
        if block.header.state != *state.as_bytes() {
            return Err(ChainError::State);
        }
        if block.time_s() > now_s.saturating_add(MAX_WITNESS_CLOCK_SKEW) {
            return Err(ChainError::Future);
        }
        let known = newest.map(|(note, _)| self.chain.block(note)).transpose()?;
        let current = |confirmed_s: u64| now_s <= confirmed_s.saturating_add(self.period_s);
        match known.as_ref().filter(|known| current(known.time_s())) {
            Some(known) if known.height() <= block.height() => after(provider, &block, known)?,
            // An earlier block of the same validators that states the same.
            Some(known)
                if known.header.state == block.header.state
                    && known.header.validators == block.header.validators =>
            {
                block.signed(provider, |_| 0)?;
            }
            // Another block before the known one counts if the configured validators support it.
            _ if current(self.confirmed_s) => {
                let weight = block.signed(provider, |key| self.validators.power_of(key))?;
                supported(weight, self.validators.total)?;
            }
            _ => return Err(ChainError::Expired),
        }
        if let (Some(known), Some((_, known_size))) = (known, newest) {
            in_order(provider, &block, &known, [size, known_size])?;
        }
        Ok(block)
    }
}

/// Checks whether the validators of a block follow from an earlier one that the verifier has accepted, or
/// from the same.
fn after(provider: &CryptoProvider, block: &LightBlock, known: &LightBlock) -> Result<(), ChainError> {
    let weight = block.signed(provider, |key| known.validators.power_of(key))?;
    let follows = match block.height() - known.height() {
        // Only the height's own validators can make a fork.
        0 => block.header.validators == known.header.validators,
        1 => block.header.validators == known.header.next_validators,
        _ => return supported(weight, known.validators.total),
    };
    if follows { Ok(()) } else { Err(ChainError::Unsupported) }
}

/// More than a third of the known voting power has signed, so at least one honest known validator has.
fn supported(weight: u64, total: u64) -> Result<(), ChainError> {
    if weight * 3 > total { Ok(()) } else { Err(ChainError::Unsupported) }
}

/// Checks that a block and the one that was accepted before belong to one history: a height has one block,
/// times grow with heights, and logs do not become shorter. Validators whom the verifier believes have signed
/// both, so an error is evidence against them.
fn in_order(
    provider: &CryptoProvider,
    block: &LightBlock,
    known: &LightBlock,
    [size, known_size]: [u64; 2],
) -> Result<(), ChainError> {
    let hasher = Hasher(provider.sha256);
    let (height, accepted) = (block.height(), known.height());
    let (time, known_time) = (block.header.time, known.header.time);
    let good = match height.cmp(&accepted) {
        Ordering::Less => time < known_time && size <= known_size,
        Ordering::Equal if block.hash(hasher)? == known.hash(hasher)? => true,
        Ordering::Equal => return Err(ChainError::Fork(height)),
        Ordering::Greater => time > known_time && size >= known_size,
    };
    if good { Ok(()) } else { Err(ChainError::Order { height, accepted }) }
}
