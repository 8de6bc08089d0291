//! Checkpoints (C2SP tlog-checkpoint): a registry's statements about its log at one moment, and a verifier's
//! trust in them. The last entry of the log states the states of all DIDs ([`super::proof`]).

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use base64ct::{Base64, Encoding};
use dunlin::auth::KnownRegistry;
use dunlin::crypto::CryptoProvider;

use super::chain::{ChainError, ChainTrust};
use super::note::{
    MAX_NOTE_SIGNATURES, MAX_WITNESS_CLOCK_SKEW, Note, NoteError, NoteKey, NoteKeyKind, NoteSigner, Signed,
};
use crate::merkle::NodeHash;

/// The longest time, in seconds, for which a verifier believes a checkpoint unless it says otherwise: 24
/// hours.
pub const DEFAULT_CHECKPOINT_AGE: u64 = 24 * 60 * 60;

/// The beginning of a line that checkpoints had before the log stated the root of the state map.
const EARLIER_LINE: &str = "dunlin-map ";

/// Why a checkpoint is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The note is malformed, or a signature is wrong.
    #[error("checkpoint: {0}")]
    Note(#[from] NoteError),
    /// The text is not a registry's checkpoint: origin, size and root.
    #[error("checkpoint: malformed text; a registry's has the lines origin, size and root")]
    Malformed,
    /// The checkpoint has the format of an earlier version, which states the root of the state map itself.
    #[error(
        "checkpoint: format of an earlier version (line \"{EARLIER_LINE}\"), whose state map no witness has checked: \
             update the registry, and fetch a new proof"
    )]
    Earlier,
    /// The checkpoint is of another log.
    #[error("checkpoint: it is of another registry, {0:?}")]
    OtherRegistry(String),
    /// The registry has not signed it.
    #[error("checkpoint: the registry {0} has not signed it")]
    NotTheRegistry(String),
    /// Too few trusted witnesses have signed it, or did so too long ago.
    #[error(
        "checkpoint: {found} of {needed} trusted witnesses have signed it within the maximum age: fetch a newer one"
    )]
    Stale {
        /// How many have.
        found: usize,
        /// How many must have.
        needed: usize,
    },
    /// Too few of those that replay the log have signed it, or did so too long ago. Its state map may be
    /// false.
    #[error(
        "checkpoint: {found} of {needed} trusted keys of `dunlin registry watch` have signed it within the maximum age, so its state map may be false: \
             fetch a newer one"
    )]
    Unwatched {
        /// How many have.
        found: usize,
        /// How many must have.
        needed: usize,
    },
    /// The log is smaller than in a checkpoint that this verifier has accepted.
    #[error(
        "checkpoint: its log has {offered} entries, but the registry has already shown {accepted}: fetch a newer one"
    )]
    Rollback {
        /// The size in this checkpoint.
        offered: u64,
        /// The largest size accepted before.
        accepted: u64,
    },
    /// The registry has signed two histories. Both checkpoints together prove it.
    #[error(
        "checkpoint: the registry has signed two histories of {size} entries: keep both checkpoints and report them"
    )]
    SplitView {
        /// The size of both.
        size: u64,
    },
    /// The trust is without witnesses, has one twice, or needs more of them than it has.
    #[error(
        "trust in a registry: name at least as many witnesses as must sign, each once, with a key for cosignatures"
    )]
    Witnesses,
    /// The registry's key is not for notes, or its second key is the same one, of another origin, or a third
    /// one.
    #[error(
        "trust in a registry: the registry has one key of the type for notes, 1, or an old and a new one with the same name"
    )]
    LogKey,
    /// The keys of those that replay the log are not for cosignatures, are also others' keys, or more must
    /// sign than there are.
    #[error(
        "trust in a registry: name at least as many keys of `watch` as must sign, each once, with a key for cosignatures that is neither the \
             registry's nor a witness's"
    )]
    Watches,
    /// The validators of a replicated registry have not signed the checkpoint.
    #[error("checkpoint: {0}")]
    Chain(#[from] ChainError),
}

impl CheckpointError {
    /// Whether the registry has signed the refused checkpoint all the same. Every check behind these errors
    /// follows the check of the registry's signature, or of its validators' signatures. Without their
    /// support, nothing shows who has made a block.
    pub const fn is_signed(&self) -> bool {
        matches!(
            self,
            Self::Stale { .. }
                | Self::Unwatched { .. }
                | Self::Rollback { .. }
                | Self::SplitView { .. }
                | Self::Chain(ChainError::Fork(_) | ChainError::Order { .. })
        )
    }
}

/// Why the text of a trust in a registry is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustTextError {
    /// The file is not text.
    #[error("it is not text")]
    Text,
    /// The line, counted from 1, is no key.
    #[error("line {0}: {1}")]
    Key(usize, NoteError),
    /// The number after `needed` or `needed-watch` on this line is malformed.
    #[error(
        "line {0}: write \"needed\" and how many of the witnesses must sign, or \"needed-watch\" and how many of the keys of watch"
    )]
    Needed(usize),
    /// The genesis file of a replicated registry is refused.
    #[error("{0}")]
    Chain(#[from] ChainError),
    /// There is no key of a registry.
    #[error("it has no key of a registry (type 1)")]
    Registry,
    /// The keys make no trust together.
    #[error("{0}")]
    Trust(#[from] CheckpointError),
}

/// The state of a registry's log, as the registry states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the registry.
    pub origin: String,
    /// How many entries the log has.
    pub size: u64,
    /// The root of the log (RFC 9162 §2.1).
    pub root: NodeHash,
}

impl Checkpoint {
    /// Reads the text of a checkpoint, without signatures.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`], [`CheckpointError::Earlier`].
    pub fn read(text: &str) -> Result<Self, CheckpointError> {
        let is_earlier = || text.lines().nth(3).is_some_and(|line| line.starts_with(EARLIER_LINE));
        let error = || if is_earlier() { CheckpointError::Earlier } else { CheckpointError::Malformed };
        Self::parse(text).ok_or_else(error)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split_terminator('\n');
        let origin = lines.next().filter(|origin| !origin.is_empty())?.to_owned();
        let size = lines.next()?.parse().ok()?;
        let root = NodeHash::try_from(Base64::decode_vec(lines.next()?).ok()?).ok()?;
        let checkpoint = Self { origin, size, root };
        // One checkpoint has one text: no leading zeros, no other lines.
        (checkpoint.to_string() == text).then_some(checkpoint)
    }
}

impl fmt::Display for Checkpoint {
    /// The text that is signed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}\n", self.origin, self.size, Base64::encode_string(&self.root))
    }
}

/// A checkpoint with its signatures. Its text is a signed note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint {
    checkpoint: Checkpoint,
    note: Note,
}

impl SignedCheckpoint {
    /// Reads a checkpoint, whose signatures [`RegistryTrust::verify`] checks.
    ///
    /// # Errors
    /// [`CheckpointError::Note`], [`CheckpointError::Malformed`], [`CheckpointError::Earlier`].
    pub fn read(note: &[u8]) -> Result<Self, CheckpointError> {
        let note = Note::read(note)?;
        let checkpoint = Checkpoint::read(note.text())?;
        Ok(Self { checkpoint, note })
    }

    /// Signs a checkpoint. The time is in seconds since 1970.
    ///
    /// # Errors
    /// [`CheckpointError::Note`], [`CheckpointError::Malformed`] if the origin is not one line.
    pub fn sign(
        provider: &CryptoProvider,
        checkpoint: Checkpoint,
        signers: &[NoteSigner],
        now_s: u64,
    ) -> Result<Self, CheckpointError> {
        let mut signed = Self::unsigned(checkpoint)?;
        for signer in signers {
            let signature = signer.sign(provider, signed.note.text(), now_s)?;
            signed.note.add(signature);
        }
        Ok(signed)
    }

    /// A checkpoint of a replicated registry, to which [`Chain::line`](super::chain::Chain::line) adds the
    /// validators' signatures.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`] if the origin is not one line.
    pub fn unsigned(checkpoint: Checkpoint) -> Result<Self, CheckpointError> {
        let text = checkpoint.to_string();
        if Checkpoint::parse(&text).as_ref() != Some(&checkpoint) {
            return Err(CheckpointError::Malformed);
        }
        Ok(Self { checkpoint, note: Note::new(text, Vec::new()) })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The note, to which witnesses add their signatures.
    pub fn note_mut(&mut self) -> &mut Note {
        &mut self.note
    }

    /// The note.
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// The note, and the size of the log that it states.
    fn stated(&self) -> (&Note, u64) {
        (&self.note, self.checkpoint.size)
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note.fmt(f)
    }
}

/// A verifier's trust in one registry, and for how long signatures count. For a registry with one operator,
/// it is in the registry's key, and in witnesses, some of which must have signed. If the registry is the only
/// witness, the verifier trusts it wholly: it would not notice that the registry shows other verifiers
/// another history. Witnesses check only that the log grows. Watches also replay it, and sign only state maps
/// that follow from the operations. For a replicated registry, the trust is in the validators of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryTrust {
    signers: Signers,
    max_age_s: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Signers {
    Log(LogTrust),
    Chain(ChainTrust),
}

/// The required signers of a checkpoint of a registry with one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogTrust {
    /// The registry's key.
    key: NoteKey,
    /// The other key of a registry that is about to replace its key. Either signature suffices.
    other: Option<NoteKey>,
    witnesses: Quorum,
    watches: Quorum,
}

/// Keys for cosignatures, `needed` of which must have signed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quorum {
    keys: Vec<NoteKey>,
    needed: usize,
}

impl LogTrust {
    /// The registry's keys.
    fn keys(&self) -> impl Iterator<Item = &NoteKey> {
        [&self.key].into_iter().chain(&self.other)
    }

    /// Whether this is a key of the registry itself, which has one place among its witnesses.
    fn is_own(&self, key: &NoteKey) -> bool {
        self.keys().any(|own| own.public_key() == key.public_key())
    }

    /// How many witnesses there are.
    fn signers(&self) -> usize {
        let (own, others): (Vec<_>, Vec<_>) = self.witnesses.keys.iter().partition(|key| self.is_own(key));
        own.len().min(1) + others.len()
    }

    /// Checks that every key is there once and has its place.
    fn checked(self) -> Result<Self, CheckpointError> {
        let witnesses = &self.witnesses.keys;
        let watches = &self.watches.keys;
        let is_for_notes = |key: &NoteKey| key.kind() == NoteKeyKind::Note;
        let is_other = |other: &NoteKey| {
            is_for_notes(other)
                && other.name() == self.key.name()
                && other.public_key() != self.key.public_key()
        };
        if !is_for_notes(&self.key) || !self.other.iter().all(is_other) {
            return Err(CheckpointError::LogKey);
        }
        // Witnesses are told apart by their keys: under two names, one of them would count twice.
        let twice = |(number, witness): (usize, &NoteKey)| {
            witnesses.iter().take(number).any(|other| other.public_key() == witness.public_key())
        };
        if witnesses.len() > MAX_NOTE_SIGNATURES
            || witnesses.iter().any(is_for_notes)
            || witnesses.iter().enumerate().any(twice)
            || !(1..=self.signers()).contains(&self.witnesses.needed)
        {
            return Err(CheckpointError::Witnesses);
        }
        let has_other_place = |(number, watch): (usize, &NoteKey)| {
            let others = witnesses.iter().chain(watches.iter().take(number));
            self.is_own(watch) || others.map(NoteKey::public_key).any(|other| other == watch.public_key())
        };
        if watches.len() > MAX_NOTE_SIGNATURES
            || watches.iter().any(is_for_notes)
            || watches.iter().enumerate().any(has_other_place)
            || !(watches.len().min(1)..=watches.len()).contains(&self.watches.needed)
        {
            return Err(CheckpointError::Watches);
        }
        Ok(self)
    }

    /// Checks that the registry has signed a checkpoint, and returns when witnesses and watches have.
    fn times(&self, provider: &CryptoProvider, signed: &SignedCheckpoint) -> Result<Times, CheckpointError> {
        let mut is_signed = false;
        for key in self.keys() {
            is_signed |= signed.note.signed_by(provider, key)? != Signed::No;
        }
        if !is_signed {
            return Err(CheckpointError::NotTheRegistry(signed.checkpoint.origin.clone()));
        }
        let time = |key| signed.note.signed_by(provider, key);
        let mut own = None;
        let mut witnesses = Vec::new();
        let mut watches = Vec::new();
        for key in &self.witnesses.keys {
            match time(key)? {
                Signed::At(time_s) if self.is_own(key) => own = own.max(Some(time_s)),
                Signed::At(time_s) => witnesses.push(time_s),
                _ => {}
            }
        }
        witnesses.extend(own);
        for key in &self.watches.keys {
            if let Signed::At(time_s) = time(key)? {
                watches.push(time_s);
            }
        }
        Ok(Times { witnesses, watches })
    }
}

/// When a checkpoint was signed: by its witnesses, or in its block; and by those that replay the log.
struct Times {
    witnesses: Vec<u64>,
    watches: Vec<u64>,
}

/// A checkpoint that a verifier has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreshCheckpoint {
    /// The checkpoint. The verifier keeps the largest.
    pub checkpoint: SignedCheckpoint,
    /// Until when its signatures are recent enough, in seconds since 1970.
    pub fresh_until_s: u64,
}

impl RegistryTrust {
    /// Trusts the registry with this key, whose name is its origin, if one of the witnesses has signed within
    /// the last 24 hours ([`DEFAULT_CHECKPOINT_AGE`]). The registry may be a witness, with its key for
    /// cosignatures.
    ///
    /// # Errors
    /// [`CheckpointError::LogKey`], [`CheckpointError::Witnesses`].
    pub fn new(log: NoteKey, witnesses: Vec<NoteKey>) -> Result<Self, CheckpointError> {
        let witnesses = Quorum { keys: witnesses, needed: 1 };
        let watches = Quorum { keys: Vec::new(), needed: 0 };
        Self::of(LogTrust { key: log, other: None, witnesses, watches }, DEFAULT_CHECKPOINT_AGE)
    }

    fn of(trust: LogTrust, max_age_s: u64) -> Result<Self, CheckpointError> {
        Ok(Self { signers: Signers::Log(trust.checked()?), max_age_s })
    }

    /// The same trust with a change, or an error for a replicated registry.
    fn with(
        self,
        error: CheckpointError,
        change: impl FnOnce(&mut LogTrust),
    ) -> Result<Self, CheckpointError> {
        let Signers::Log(mut trust) = self.signers else { return Err(error) };
        change(&mut trust);
        Self::of(trust, self.max_age_s)
    }

    /// Trusts a replicated registry, if the block of its chain has a time within the last 24 hours.
    pub fn replicated(chain: ChainTrust) -> Self {
        Self { signers: Signers::Chain(chain), max_age_s: DEFAULT_CHECKPOINT_AGE }
    }

    /// Demands the signatures of this many witnesses.
    ///
    /// # Errors
    /// [`CheckpointError::Witnesses`] if it is 0, or if there are fewer. A replicated registry has none.
    pub fn with_needed(self, wanted: usize) -> Result<Self, CheckpointError> {
        self.with(CheckpointError::Witnesses, |trust| trust.witnesses.needed = wanted)
    }

    /// Demands also the signatures of this many of these keys, which belong to those that replay the log
    /// (`dunlin registry watch`).
    ///
    /// # Errors
    /// [`CheckpointError::Watches`].
    pub fn with_watches(self, keys: Vec<NoteKey>, needed: usize) -> Result<Self, CheckpointError> {
        self.with(CheckpointError::Watches, |trust| trust.watches = Quorum { keys, needed })
    }

    /// Believes another key of the same registry as well, which is about to replace its key. As witnesses,
    /// the two count as one.
    ///
    /// # Errors
    /// [`CheckpointError::LogKey`].
    pub fn with_other_key(self, other: NoteKey) -> Result<Self, CheckpointError> {
        self.with(CheckpointError::LogKey, |trust| trust.other = Some(other))
    }

    /// Lets signatures count for this many seconds. It is the longest time for which a verifier can miss a
    /// deactivation.
    #[must_use]
    pub fn with_max_age(self, max_age_s: u64) -> Self {
        Self { max_age_s, ..self }
    }

    /// Reads a trust: C2SP verifier keys, one on each line, of the registry (type 1) and of its witnesses
    /// (type 4), the registry's own among them if it is one. A second key of the registry is its next or
    /// previous one. After `watch `, a line has the key of one that replays the log. A line `needed NUMBER`
    /// says how many witnesses must sign, and `needed-watch NUMBER` how many watches; otherwise 1 of each
    /// that the file names. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`TrustTextError`].
    pub fn read(provider: &CryptoProvider, text: &str) -> Result<Self, TrustTextError> {
        let mut logs = Vec::new();
        let mut witnesses = Vec::new();
        let mut watches = Vec::new();
        let mut needed = 1;
        let mut needed_watches = None;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let count = |count: &str| count.trim().parse().map_err(|_| TrustTextError::Needed(number));
            let key =
                |key: &str| NoteKey::read(provider, key).map_err(|error| TrustTextError::Key(number, error));
            match line.split_once(' ') {
                Some(("needed", number)) => needed = count(number)?,
                Some(("needed-watch", number)) => needed_watches = Some(count(number)?),
                Some(("watch", line)) => watches.push(key(line.trim())?),
                _ => match key(line)? {
                    key if key.kind() == NoteKeyKind::Note => logs.push(key),
                    key => witnesses.push(key),
                },
            }
        }
        let mut logs = logs.into_iter();
        let key = logs.next().ok_or(TrustTextError::Registry)?;
        let needed_watches = needed_watches.unwrap_or_else(|| watches.len().min(1));
        let witnesses = Quorum { keys: witnesses, needed };
        let watches = Quorum { keys: watches, needed: needed_watches };
        let trust = LogTrust { key, other: logs.next(), witnesses, watches };
        match logs.next() {
            None => Ok(Self::of(trust, DEFAULT_CHECKPOINT_AGE)?),
            Some(_) => Err(CheckpointError::LogKey.into()),
        }
    }

    /// Reads the trust from a file: the genesis file of a chain in JSON ([`ChainTrust::from_genesis`]), or
    /// the keys of a registry ([`Self::read`]). `now_s` is in seconds since 1970: by giving the file now, its
    /// reader confirms that the validators are still those.
    ///
    /// # Errors
    /// [`TrustTextError`].
    pub fn read_file(provider: &CryptoProvider, file: &[u8], now_s: u64) -> Result<Self, TrustTextError> {
        if file.trim_ascii_start().starts_with(b"{") {
            return Ok(Self::replicated(ChainTrust::from_genesis(provider, file, now_s)?));
        }
        Self::read(provider, str::from_utf8(file).map_err(|_| TrustTextError::Text)?)
    }

    /// Takes over from the same trust, read again, when the validators of a replicated registry were
    /// confirmed, if that is later. Another trust says nothing, and no key is added.
    pub fn confirm(&mut self, again: &Self) {
        if let (Signers::Chain(trust), Signers::Chain(again)) = (&mut self.signers, &again.signers) {
            trust.confirm(again);
        }
    }

    /// Passes everything on which a verdict by this trust rests to `add`, except for times, and for the
    /// second key of a registry: what rests on its first key goes on when the second one is added.
    pub fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        match &self.signers {
            Signers::Log(trust) => {
                let LogTrust { key, witnesses, watches, .. } = trust;
                // Beside the first key, the second one is no further witness.
                let has_own = witnesses.keys.iter().any(|witness| trust.is_own(witness));
                let others = witnesses.keys.iter().filter(|witness| !trust.is_own(witness));
                let lists =
                    [[key].into_iter().chain(others).collect(), watches.keys.iter().collect::<Vec<_>>()];
                for (keys, needed) in lists.into_iter().zip([witnesses.needed, watches.needed]) {
                    keys.iter().for_each(|key| add(key.to_string().as_bytes()));
                    add(&(needed as u64).to_be_bytes());
                }
                add(&[u8::from(has_own)]);
            }
            Signers::Chain(trust) => trust.settings(add),
        }
        add(&self.max_age_s.to_be_bytes());
    }

    fn of_log(&self) -> Option<&LogTrust> {
        match &self.signers {
            Signers::Log(trust) => Some(trust),
            Signers::Chain(_) => None,
        }
    }

    /// The keys of the witnesses; none of a replicated registry.
    pub fn witnesses(&self) -> &[NoteKey] {
        self.of_log().map_or(&[], |trust| &trust.witnesses.keys)
    }

    /// How many of the witnesses must sign, or 1 block of a replicated registry.
    pub fn needed(&self) -> usize {
        self.of_log().map_or(1, |trust| trust.witnesses.needed)
    }

    /// The keys of those that replay the log; none of a replicated registry.
    pub fn watches(&self) -> &[NoteKey] {
        self.of_log().map_or(&[], |trust| &trust.watches.keys)
    }

    /// How many of those that replay the log must sign.
    pub fn needed_watches(&self) -> usize {
        self.of_log().map_or(0, |trust| trust.watches.needed)
    }

    /// A warning to the operator, in one line, if the trust names witnesses but one signature suffices.
    pub fn warning(&self) -> Option<&'static str> {
        let trust = self.of_log()?;
        let one_suffices = trust.witnesses.needed == 1 && trust.signers() > 1;
        one_suffices.then_some(
            "it names witnesses, but one signature suffices, also the registry's own: write \"needed 2\" or more",
        )
    }

    /// The registry's key, the first one of two; `None` for a replicated registry.
    pub fn log(&self) -> Option<&NoteKey> {
        self.logs().next()
    }

    /// The registry's keys, one of which suffices; none of a replicated registry.
    pub fn logs(&self) -> impl Iterator<Item = &NoteKey> {
        self.of_log().into_iter().flat_map(LogTrust::keys)
    }

    /// The registry's origin.
    pub fn origin(&self) -> &str {
        match &self.signers {
            Signers::Log(trust) => trust.key.name(),
            Signers::Chain(trust) => trust.chain().origin(),
        }
    }

    /// Whether a checkpoint has a later block than another one of the same state.
    pub fn is_later(&self, checkpoint: &SignedCheckpoint, than: &SignedCheckpoint) -> bool {
        match &self.signers {
            Signers::Log(_) => false,
            Signers::Chain(trust) => {
                checkpoint.checkpoint == than.checkpoint
                    && trust.height(&checkpoint.note) > trust.height(&than.note)
            }
        }
    }

    /// The entries that a handshake sends the peer about this registry after `newest` was accepted: one for
    /// each of the registry's keys.
    pub fn known(&self, newest: Option<&SignedCheckpoint>) -> Vec<KnownRegistry> {
        let oldest_size = newest.map_or(0, |newest| newest.checkpoint.size);
        let known = |key_id| KnownRegistry { key_id, oldest_size };
        match &self.signers {
            Signers::Log(trust) => trust.keys().map(|key| known(key.id())).collect(),
            Signers::Chain(trust) => vec![known(trust.chain().key_id())],
        }
    }

    /// Checks a checkpoint against this trust and `newest`, the largest one that this verifier has accepted.
    /// `now_s` is in seconds since 1970.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn verify(
        &self,
        provider: &CryptoProvider,
        note: &[u8],
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Result<FreshCheckpoint, CheckpointError> {
        let (checkpoint, times) = self.checked(provider, note, newest, now_s)?;
        let fresh_until_s = self.fresh_until(&times, now_s)?;
        Ok(FreshCheckpoint { checkpoint, fresh_until_s })
    }

    /// Makes the same checks, except for the witnesses' signatures, for a checkpoint that only acknowledges
    /// an operation: witnesses sign it later.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn signed(
        &self,
        provider: &CryptoProvider,
        note: &[u8],
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Result<SignedCheckpoint, CheckpointError> {
        self.checked(provider, note, newest, now_s).map(|(signed, _)| signed)
    }

    /// A checkpoint that the registry has signed and that does not contradict `newest`, and when it was
    /// signed.
    fn checked(
        &self,
        provider: &CryptoProvider,
        note: &[u8],
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Result<(SignedCheckpoint, Times), CheckpointError> {
        let signed = SignedCheckpoint::read(note)?;
        let checkpoint = &signed.checkpoint;
        if checkpoint.origin != self.origin() {
            return Err(CheckpointError::OtherRegistry(checkpoint.origin.chars().take(64).collect()));
        }
        let times = self.times(provider, &signed, newest, now_s)?;
        // The registry's signature alone makes a second history evidence, however old it is.
        if let Some(SignedCheckpoint { checkpoint: accepted, .. }) = newest {
            let offered = checkpoint.size;
            let size = accepted.size;
            if offered < size {
                return Err(CheckpointError::Rollback { offered, accepted: size });
            }
            if offered == size && *accepted != *checkpoint {
                return Err(CheckpointError::SplitView { size });
            }
        }
        Ok((signed, times))
    }

    /// Checks that the registry has signed a checkpoint, and returns when: the times of its witnesses, or the
    /// time of its block.
    fn times(
        &self,
        provider: &CryptoProvider,
        signed: &SignedCheckpoint,
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Result<Times, CheckpointError> {
        match &self.signers {
            Signers::Chain(trust) => {
                let newest = newest.map(SignedCheckpoint::stated);
                let witnesses = vec![trust.verify(provider, signed.stated(), newest, now_s)?.time_s()];
                Ok(Times { witnesses, watches: Vec::new() })
            }
            Signers::Log(trust) => trust.times(provider, signed),
        }
    }

    /// Until when enough of these times are recent.
    fn fresh_until(&self, times: &Times, now_s: u64) -> Result<u64, CheckpointError> {
        let latest = |times: &[u64], needed: usize| {
            let past = times.iter().filter(|time_s| **time_s <= now_s.saturating_add(MAX_WITNESS_CLOCK_SKEW));
            let ends = past.map(|time_s| time_s.saturating_add(self.max_age_s)).filter(|end| now_s <= *end);
            let mut ends: Vec<_> = ends.collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            // Without any that must sign, the signatures never end.
            let end = needed.checked_sub(1).map_or(Some(u64::MAX), |last| ends.get(last).copied());
            end.ok_or((ends.len(), needed))
        };
        let witnessed = latest(&times.witnesses, self.needed());
        let witnessed = witnessed.map_err(|(found, needed)| CheckpointError::Stale { found, needed })?;
        let watched = latest(&times.watches, self.needed_watches());
        let watched = watched.map_err(|(found, needed)| CheckpointError::Unwatched { found, needed })?;
        Ok(witnessed.min(watched))
    }
}
