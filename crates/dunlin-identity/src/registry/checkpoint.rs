//! Checkpoints (C2SP tlog-checkpoint): what a registry states about its log at one moment, and whom a verifier believes it. The last entry
//! of the log states the states of all DIDs ([`super::proof`]).

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use base64ct::{Base64, Encoding};
use dunlin::auth::KnownRegistry;
use dunlin::crypto::CryptoProvider;

use super::chain::{ChainError, ChainTrust};
use super::note::{MAX_NOTE_SIGNATURES, Note, NoteError, NoteKey, NoteKeyKind, NoteSigner, Signed};
use crate::merkle::NodeHash;

/// The longest time, in seconds, for which a verifier believes a checkpoint unless it says otherwise: 24 hours.
pub const DEFAULT_CHECKPOINT_AGE: u64 = 24 * 60 * 60;

/// A witness's clock may be ahead of the verifier's by this, in seconds.
pub const MAX_WITNESS_CLOCK_SKEW: u64 = 300;

/// The beginning of a line that checkpoints had before the log stated the root of the state map.
const EARLIER_LINE: &str = "dunlin-map ";

/// Why a checkpoint is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The note is malformed, or a signature is wrong.
    #[error("checkpoint: {0}")]
    Note(#[from] NoteError),
    /// The text is not that of a registry's checkpoint: origin, size and root.
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
    /// The log is smaller than that of a checkpoint that this verifier has accepted.
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
    /// The registry's key is not for notes.
    #[error("trust in a registry: the registry's key must be of the type for notes, 1")]
    LogKey,
    /// The validators of a replicated registry have not signed the checkpoint.
    #[error("checkpoint: {0}")]
    Chain(#[from] ChainError),
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
    /// The number after `needed` on this line is malformed.
    #[error("line {0}: write \"needed\" and how many of the witnesses must sign")]
    Needed(usize),
    /// The genesis file of a replicated registry is refused.
    #[error("{0}")]
    Chain(#[from] ChainError),
    /// There is no key of a registry, or a second one on this line.
    #[error("it has not exactly one key of a registry (type 1)")]
    Registry,
    /// The keys make no trust together.
    #[error("{0}")]
    Trust(#[from] CheckpointError),
}

/// What a registry states.
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

    /// A checkpoint of a replicated registry, to which [`Chain::line`](super::chain::Chain::line) adds the validators' signatures.
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

    /// What the registry states.
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
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note.fmt(f)
    }
}

/// Whom a verifier believes about one registry, and for how long signatures count. Of a registry with one operator, these are the registry's
/// key, and witnesses of which some must have signed. If the registry is the only witness, the verifier trusts it wholly: it would not notice
/// that the registry shows other verifiers another history. Of a replicated registry, they are the validators of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryTrust {
    signers: Signers,
    max_age_s: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Signers {
    Log { log: NoteKey, witnesses: Vec<NoteKey>, needed: usize },
    Chain(ChainTrust),
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
    /// Trusts the registry with this key, whose name is its origin, if one of the witnesses has signed within the last 24 hours
    /// ([`DEFAULT_CHECKPOINT_AGE`]). The registry may be a witness, with its key for cosignatures.
    ///
    /// # Errors
    /// [`CheckpointError::LogKey`], [`CheckpointError::Witnesses`].
    pub fn new(log: NoteKey, witnesses: Vec<NoteKey>) -> Result<Self, CheckpointError> {
        if log.kind() != NoteKeyKind::Note {
            return Err(CheckpointError::LogKey);
        }
        // Witnesses are told apart by their keys: under two names, one of them would count twice.
        let twice = |(number, witness): (usize, &NoteKey)| {
            witnesses.iter().take(number).any(|other| other.public_key() == witness.public_key())
        };
        let wrong = |witness: &NoteKey| witness.kind() != NoteKeyKind::Cosignature;
        if witnesses.is_empty()
            || witnesses.len() > MAX_NOTE_SIGNATURES
            || witnesses.iter().any(wrong)
            || witnesses.iter().enumerate().any(twice)
        {
            return Err(CheckpointError::Witnesses);
        }
        Ok(Self { signers: Signers::Log { log, witnesses, needed: 1 }, max_age_s: DEFAULT_CHECKPOINT_AGE })
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
        match self.signers {
            Signers::Log { log, witnesses, .. } if (1..=witnesses.len()).contains(&wanted) => {
                Ok(Self { signers: Signers::Log { log, witnesses, needed: wanted }, ..self })
            }
            _ => Err(CheckpointError::Witnesses),
        }
    }

    /// Lets signatures count for this many seconds. It is the longest time for which a verifier can miss a deactivation.
    #[must_use]
    pub fn with_max_age(self, max_age_s: u64) -> Self {
        Self { max_age_s, ..self }
    }

    /// Reads a trust: C2SP verifier keys, one on each line, of the registry (type 1) and of its witnesses (type 4), the registry's own
    /// among them if it is one. A line `needed NUMBER` says how many witnesses must sign, otherwise 1. Empty lines and those that
    /// begin with `#` are skipped.
    ///
    /// # Errors
    /// [`TrustTextError`].
    pub fn read(provider: &CryptoProvider, text: &str) -> Result<Self, TrustTextError> {
        let (mut log, mut witnesses, mut needed) = (None, Vec::new(), 1);
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(count) = line.strip_prefix("needed ") {
                needed = count.trim().parse().map_err(|_| TrustTextError::Needed(number))?;
                continue;
            }
            let key = NoteKey::read(provider, line).map_err(|error| TrustTextError::Key(number, error))?;
            match key.kind() {
                NoteKeyKind::Cosignature => witnesses.push(key),
                NoteKeyKind::Note if log.is_none() => log = Some(key),
                NoteKeyKind::Note => return Err(TrustTextError::Registry),
            }
        }
        let trust = Self::new(log.ok_or(TrustTextError::Registry)?, witnesses)?;
        Ok(trust.with_needed(needed)?)
    }

    /// Reads a file with whom to believe: the genesis file of a chain in JSON ([`ChainTrust::from_genesis`]), or the keys of a registry
    /// ([`Self::read`]). `now_s` is in seconds since 1970: by giving the file now, its reader confirms that the validators are still those.
    ///
    /// # Errors
    /// [`TrustTextError`].
    pub fn read_file(provider: &CryptoProvider, file: &[u8], now_s: u64) -> Result<Self, TrustTextError> {
        if file.trim_ascii_start().starts_with(b"{") {
            return Ok(Self::replicated(ChainTrust::from_genesis(provider, file, now_s)?));
        }
        Self::read(provider, str::from_utf8(file).map_err(|_| TrustTextError::Text)?)
    }

    /// Takes over from the same trust, read again, when the validators of a replicated registry were confirmed, if that is later. Another trust
    /// says nothing.
    pub fn confirm(&mut self, again: &Self) {
        if let (Signers::Chain(trust), Signers::Chain(again)) = (&mut self.signers, &again.signers) {
            trust.confirm(again);
        }
    }

    /// Passes everything on which a verdict by this trust rests to `add`, except for times.
    pub fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        match &self.signers {
            Signers::Log { log, witnesses, needed } => {
                for key in [log].into_iter().chain(witnesses) {
                    add(key.to_string().as_bytes());
                }
                add(&(*needed as u64).to_be_bytes());
            }
            Signers::Chain(trust) => trust.settings(add),
        }
        add(&self.max_age_s.to_be_bytes());
    }

    /// The keys of the witnesses; none of a replicated registry.
    pub fn witnesses(&self) -> &[NoteKey] {
        match &self.signers {
            Signers::Log { witnesses, .. } => witnesses,
            Signers::Chain(_) => &[],
        }
    }

    /// How many of the witnesses must sign, or 1 block of a replicated registry.
    pub fn needed(&self) -> usize {
        match &self.signers {
            Signers::Log { needed, .. } => *needed,
            Signers::Chain(_) => 1,
        }
    }

    /// The registry's key; `None` for a replicated registry.
    pub fn log(&self) -> Option<&NoteKey> {
        match &self.signers {
            Signers::Log { log, .. } => Some(log),
            Signers::Chain(_) => None,
        }
    }

    /// The registry's origin.
    pub fn origin(&self) -> &str {
        match &self.signers {
            Signers::Log { log, .. } => log.name(),
            Signers::Chain(trust) => trust.chain().origin(),
        }
    }

    /// Whether a checkpoint has a later block than another one of the same state.
    pub fn is_later(&self, checkpoint: &SignedCheckpoint, than: &SignedCheckpoint) -> bool {
        match &self.signers {
            Signers::Log { .. } => false,
            Signers::Chain(trust) => {
                checkpoint.checkpoint == than.checkpoint && trust.height(checkpoint) > trust.height(than)
            }
        }
    }

    /// What a handshake tells the peer about this registry, after `newest` was accepted.
    pub fn known(&self, newest: Option<&SignedCheckpoint>) -> KnownRegistry {
        let oldest_size = newest.map_or(0, |newest| newest.checkpoint.size);
        let key_id = match &self.signers {
            Signers::Log { log, .. } => log.id(),
            Signers::Chain(trust) => trust.chain().key_id(),
        };
        KnownRegistry { key_id, oldest_size }
    }

    /// Checks a checkpoint against this trust and `newest`, the largest one that this verifier has accepted. `now_s` is in seconds since
    /// 1970.
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

    /// Makes the same checks without those of the witnesses, for a checkpoint that only acknowledges an operation: witnesses sign it
    /// later.
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

    /// A checkpoint that the registry has signed and that does not contradict `newest`, and when it was signed.
    fn checked(
        &self,
        provider: &CryptoProvider,
        note: &[u8],
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Result<(SignedCheckpoint, Vec<u64>), CheckpointError> {
        let signed = SignedCheckpoint::read(note)?;
        let checkpoint = &signed.checkpoint;
        if checkpoint.origin != self.origin() {
            return Err(CheckpointError::OtherRegistry(checkpoint.origin.chars().take(64).collect()));
        }
        let times = self.times(provider, &signed, newest, now_s)?;
        // The registry's signature alone makes a second history evidence, however old it is.
        if let Some(SignedCheckpoint { checkpoint: accepted, .. }) = newest {
            let (offered, size) = (checkpoint.size, accepted.size);
            if offered < size {
                return Err(CheckpointError::Rollback { offered, accepted: size });
            }
            if offered == size && *accepted != *checkpoint {
                return Err(CheckpointError::SplitView { size });
            }
        }
        Ok((signed, times))
    }

    /// Checks that the registry has signed a checkpoint, and returns when: the times of its witnesses, or that of its block.
    fn times(
        &self,
        provider: &CryptoProvider,
        signed: &SignedCheckpoint,
        newest: Option<&SignedCheckpoint>,
        now_s: u64,
    ) -> Result<Vec<u64>, CheckpointError> {
        let (log, witnesses) = match &self.signers {
            Signers::Chain(trust) => {
                return Ok(vec![trust.verify(provider, signed, newest, now_s)?.time_s()]);
            }
            Signers::Log { log, witnesses, .. } => (log, witnesses),
        };
        if signed.note.signed_by(provider, log)? == Signed::No {
            return Err(CheckpointError::NotTheRegistry(signed.checkpoint.origin.clone()));
        }
        let mut times = Vec::new();
        for witness in witnesses {
            if let Signed::At(time_s) = signed.note.signed_by(provider, witness)? {
                times.push(time_s);
            }
        }
        Ok(times)
    }

    /// Until when enough of these times are recent.
    fn fresh_until(&self, times: &[u64], now_s: u64) -> Result<u64, CheckpointError> {
        let past = times.iter().filter(|time_s| **time_s <= now_s.saturating_add(MAX_WITNESS_CLOCK_SKEW));
        let ends = past.map(|time_s| time_s.saturating_add(self.max_age_s)).filter(|end| now_s <= *end);
        let mut ends: Vec<_> = ends.collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let needed = self.needed();
        ends.get(needed - 1).copied().ok_or(CheckpointError::Stale { found: ends.len(), needed })
    }
}
