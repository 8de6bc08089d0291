//! Checkpoints of replicated registries: the blocks that prove them, and a verifier's refusals.
//! dunlin-registry's tests have blocks of CometBFT.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod keys;

use std::sync::Arc;
use std::sync::mpsc::channel;

use dunlin::auth::KnownRegistry;
use dunlin_identity::Sha256Hash;
use dunlin_identity::encoding::protobuf::{Message, MessageWriter, varint};
use dunlin_identity::handshake::{RegistryDocuments, ResolveError, Resolver};
use dunlin_identity::method::dunlin::{MAX_DOCUMENT, MAX_ORIGIN, first_document};
use dunlin_identity::transparency::{
    Chain, ChainError, ChainTrust, Checkpoint, CheckpointError, DEFAULT_CHECKPOINT_AGE,
    DEFAULT_TRUSTING_PERIOD, Hasher, LightBlock, MAX_CHAIN_ID, MAX_STAPLE, MAX_VALIDATORS,
    MAX_WITNESS_CLOCK_SKEW, MapLeaf, RegistryTrust, SignedCheckpoint, Staple, StateMap, StateProof,
    TrustTextError, ValidatorSet, map_key, root_entry,
};
use keys::{ed25519, p256, provider, public};

const ORIGIN: &str = "registry.example/1";
const CHAIN: &str = "example-1";
const NOW: u64 = 1_800_000_000;

/// The flags of CometBFT's signatures.
const ABSENT: u64 = 1;
const COMMIT: u64 = 2;
const NIL: u64 = 3;

fn new() -> MessageWriter {
    MessageWriter::default()
}

fn chain(origin: &str, id: &str) -> Chain {
    Chain::new(&provider(), origin, id).unwrap()
}

fn checkpoint(size: u64) -> Checkpoint {
    Checkpoint { origin: ORIGIN.to_owned(), size, root: [size.to_be_bytes()[7]; 32] }
}

fn state(checkpoint: &Checkpoint) -> Vec<u8> {
    Sha256Hash::of(&provider(), checkpoint.to_string().as_bytes()).unwrap().as_bytes().to_vec()
}

/// Validators by the numbers of their keys, with 10 of voting power each.
fn set(numbers: &[u8]) -> ValidatorSet {
    ValidatorSet::new(numbers.iter().map(|number| (public(&*ed25519(*number)), 10)).collect()).unwrap()
}

fn hash(numbers: &[u8]) -> Vec<u8> {
    set(numbers).hash(Hasher(provider().sha256)).unwrap().to_vec()
}

/// The parts of a block. A test changes a part before the validators sign, or afterwards.
#[derive(Clone)]
struct Spec {
    chain: &'static str,
    height: u64,
    time_s: u64,
    state: Vec<u8>,
    validators: Vec<u8>,
    /// The hash of the validators, in the header.
    announced: Vec<u8>,
    next: Vec<u8>,
    flags: Vec<u64>,
    /// The height in the signatures.
    signed_height: u64,
    /// The hash that is signed, instead of the header's.
    signed_hash: Option<Vec<u8>>,
}

impl Spec {
    /// A block of four validators, of whom three have signed.
    fn new(height: u64, checkpoint: &Checkpoint) -> Self {
        let validators = vec![1, 2, 3, 4];
        Self {
            chain: CHAIN,
            height,
            time_s: NOW - 100 + height,
            state: state(checkpoint),
            announced: hash(&validators),
            next: hash(&validators),
            validators,
            flags: vec![COMMIT, COMMIT, COMMIT, ABSENT],
            signed_height: height,
            signed_hash: None,
        }
    }

    fn of(self, validators: &[u8]) -> Self {
        let flags = vec![COMMIT; validators.len()];
        Self { announced: hash(validators), validators: validators.to_vec(), flags, ..self }
    }

    fn bytes(&self, hash: &[u8], signatures: &[Vec<u8>]) -> Vec<u8> {
        let time = new().number(1, self.time_s).number(2, 5).finish();
        let parts = new().number(1, 1).bytes(2, &[3; 32]).finish();
        let header = new()
            .message(1, &new().number(1, 11).number(2, 1).finish())
            .bytes(2, self.chain.as_bytes())
            .number(3, self.height)
            .message(4, &time)
            .message(5, &new().bytes(1, &[2; 32]).message(2, &parts).finish())
            .bytes(6, &[6; 32])
            .bytes(7, &[7; 32])
            .bytes(8, &self.announced)
            .bytes(9, &self.next)
            .bytes(10, &[10; 32])
            .bytes(11, &self.state)
            .bytes(12, &[12; 32])
            .bytes(13, &[13; 32])
            .bytes(14, &[14; 20])
            .finish();
        let id = new().bytes(1, hash).message(2, &parts).finish();
        let mut commit = new().number(1, self.signed_height).number(2, 3).message(3, &id);
        for (flag, signature) in self.flags.iter().zip(signatures) {
            commit =
                commit.message(4, &new().number(1, *flag).message(3, &time).bytes(4, signature).finish());
        }
        let mut validators = new();
        for number in &self.validators {
            let key = new().bytes(1, &public(&*ed25519(*number)).spki()[12..]).finish();
            validators = validators.message(1, &new().message(2, &key).number(3, 10).finish());
        }
        let signed = new().message(1, &header).message(2, &commit.finish()).finish();
        new().message(1, &signed).message(2, &validators.finish()).finish()
    }

    fn signed(&self) -> LightBlock {
        self.signed_but(|_| ())
    }

    /// With these bytes in place of a validator's signature.
    fn with_signature(&self, validator: usize, signature: &[u8]) -> LightBlock {
        self.signed_but(|signatures| signatures[validator] = signature.to_vec())
    }

    /// With signatures that the test changes.
    fn signed_but(&self, change: impl FnOnce(&mut Vec<Vec<u8>>)) -> LightBlock {
        let provider = provider();
        let unsigned = vec![Vec::new(); self.flags.len()];
        let hash =
            LightBlock::read(&self.bytes(&[], &unsigned)).unwrap().hash(Hasher(provider.sha256)).unwrap();
        let hash = self.signed_hash.clone().unwrap_or_else(|| hash.to_vec());
        let block = LightBlock::read(&self.bytes(&hash, &unsigned)).unwrap();
        let sign = |(index, number): (usize, &u8)| {
            let Some(vote) = block.vote(index) else { return Vec::new() };
            let scheme = dunlin::wire::SignatureScheme::ED25519;
            dunlin_identity::key::sign(&*ed25519(*number), &provider, scheme, &vote).unwrap()
        };
        let mut signatures: Vec<_> = self.validators.iter().enumerate().map(sign).collect();
        change(&mut signatures);
        LightBlock::read(&self.bytes(&hash, &signatures)).unwrap()
    }

    /// The checkpoint with this block.
    fn proves(&self, checkpoint: Checkpoint) -> SignedCheckpoint {
        let mut signed = SignedCheckpoint::unsigned(checkpoint).unwrap();
        signed.note_mut().add(chain(ORIGIN, CHAIN).line(&self.signed()));
        signed
    }
}

fn trust() -> ChainTrust {
    ChainTrust::new(chain(ORIGIN, CHAIN), set(&[1, 2, 3, 4]), NOW)
}

fn verify(
    trust: ChainTrust,
    signed: &SignedCheckpoint,
    newest: Option<&SignedCheckpoint>,
    now_s: u64,
) -> Result<u64, CheckpointError> {
    let trust = RegistryTrust::replicated(trust);
    let fresh = trust.verify(&provider(), signed.to_string().as_bytes(), newest, now_s)?;
    assert_eq!(&fresh.checkpoint, signed);
    Ok(fresh.fresh_until_s)
}

fn refused(spec: &Spec, checkpoint: Checkpoint) -> ChainError {
    match verify(trust(), &spec.proves(checkpoint), None, NOW) {
        Err(CheckpointError::Chain(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_block_with_more_than_two_thirds_of_the_power_proves_a_checkpoint() {
    let spec = Spec::new(9, &checkpoint(5));
    let signed = spec.proves(checkpoint(5));
    assert_eq!(verify(trust(), &signed, None, NOW), Ok(spec.time_s + DEFAULT_CHECKPOINT_AGE));
    // All of them, and with a vote for nothing.
    for flags in [[COMMIT; 4], [NIL, COMMIT, COMMIT, COMMIT]] {
        let spec = Spec { flags: flags.to_vec(), ..spec.clone() };
        assert!(verify(trust(), &spec.proves(checkpoint(5)), None, NOW).is_ok());
    }
    let known = RegistryTrust::replicated(trust()).known(Some(&signed));
    assert_eq!(known, [KnownRegistry { key_id: chain(ORIGIN, CHAIN).key_id(), oldest_size: 5 }]);
    assert_eq!(RegistryTrust::replicated(trust()).origin(), ORIGIN);
    assert_eq!(RegistryTrust::replicated(trust()).with_needed(1).unwrap_err(), CheckpointError::Witnesses);
}

/// A registry must be able to prove each document that it accepts.
#[test]
fn the_longest_document_fits_a_staple_with_the_block_of_the_most_validators() {
    let origin = "o".repeat(MAX_ORIGIN);
    let id = "chain".repeat(MAX_CHAIN_ID / 5);
    let numbers: Vec<u8> = (1..=u8::try_from(MAX_VALIDATORS).unwrap()).collect();
    let checkpoint = Checkpoint { origin: origin.clone(), ..checkpoint(1_000_000) };
    let spec = Spec::new(100_000_000, &checkpoint).of(&numbers);
    let spec = Spec { chain: id.clone().leak(), time_s: NOW, ..spec };
    let mut signed = SignedCheckpoint::unsigned(checkpoint).unwrap();
    signed.note_mut().add(chain(&origin, &id).line(&spec.signed()));
    let trust = ChainTrust::new(chain(&origin, &id), set(&numbers), NOW);
    assert!(verify(trust, &signed, None, NOW).is_ok());
    // docs/registry.md: with a million DIDs, no proof is longer.
    let proof = vec![0; 781 + 12 * 32];
    let document = vec![0; MAX_DOCUMENT];
    let checkpoint = signed.note().to_string().into_bytes();
    let staple = Staple { document, checkpoint, proof, membership: Vec::new() }.write().unwrap();
    // Voting powers can take 8 bytes more than here, and nanoseconds 4; Base64 makes a third more of them.
    assert!(staple.len() + (8 + 4) * (MAX_VALIDATORS + 1) * 4 / 3 <= MAX_STAPLE);
}

#[test]
fn two_thirds_are_too_few() {
    let spec = Spec { flags: vec![COMMIT, NIL, COMMIT, ABSENT], ..Spec::new(9, &checkpoint(5)) };
    assert_eq!(refused(&spec, checkpoint(5)), ChainError::Power { signed: 20, total: 40 });
    let spec = Spec::new(9, &checkpoint(5)).of(&[1, 2, 3]);
    let spec = Spec { flags: vec![COMMIT, COMMIT, NIL], ..spec };
    assert_eq!(refused(&spec, checkpoint(5)), ChainError::Power { signed: 20, total: 30 });
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let good = Spec::new(9, &checkpoint(5));
    assert_eq!(refused(&good, checkpoint(6)), ChainError::State);
    let other = Spec { chain: "example-2", ..good.clone() };
    assert_eq!(refused(&other, checkpoint(5)), ChainError::OtherChain("example-2".to_owned()));
    let other = Spec { announced: hash(&[1, 2, 3, 5]), ..good.clone() };
    assert_eq!(refused(&other, checkpoint(5)), ChainError::Validators);
    for other in
        [Spec { signed_height: 8, ..good.clone() }, Spec { signed_hash: Some(vec![9; 32]), ..good.clone() }]
    {
        assert_eq!(refused(&other, checkpoint(5)), ChainError::Commit);
    }
    let future = Spec { time_s: NOW + MAX_WITNESS_CLOCK_SKEW + 1, ..good };
    assert_eq!(refused(&future, checkpoint(5)), ChainError::Future);
}

/// Every byte of a block counts, or says nothing.
#[test]
fn a_changed_block_proves_nothing_else() {
    let spec = Spec::new(9, &checkpoint(5));
    let bytes = {
        let signed = spec.signed();
        let unchanged = SignedCheckpoint::unsigned(checkpoint(5)).unwrap();
        let mut note = unchanged.clone();
        note.note_mut().add(chain(ORIGIN, CHAIN).line(&signed));
        assert!(verify(trust(), &note, None, NOW).is_ok());
        let block = chain(ORIGIN, CHAIN).block(note.note()).unwrap();
        assert_eq!(block, signed);
        spec_bytes(&note)
    };
    let mut refusals = 0;
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 4;
        let Ok(block) = LightBlock::read(&changed) else { continue };
        let mut note = SignedCheckpoint::unsigned(checkpoint(5)).unwrap();
        note.note_mut().add(chain(ORIGIN, CHAIN).line(&block));
        match verify(trust(), &note, None, NOW) {
            Err(_) => refusals += 1,
            // The time and the signature of the validator that has none.
            Ok(_) => assert_eq!(
                block.hash(Hasher(provider().sha256)),
                spec.signed().hash(Hasher(provider().sha256))
            ),
        }
    }
    assert!(refusals > 300, "{refusals}");
}

/// The bytes of the block in a note.
fn spec_bytes(signed: &SignedCheckpoint) -> Vec<u8> {
    use base64ct::{Base64, Encoding};
    let note = signed.to_string();
    let line = note.lines().last().unwrap().rsplit(' ').next().unwrap();
    Base64::decode_vec(line).unwrap()[4..].to_vec()
}

/// CometBFT accepts signatures that strict verifiers refuse, so a validator could put one into each block.
#[test]
fn a_wrong_signature_does_not_count() {
    let noted = |block: &LightBlock| {
        let mut note = SignedCheckpoint::unsigned(checkpoint(5)).unwrap();
        note.note_mut().add(chain(ORIGIN, CHAIN).line(block));
        verify(trust(), &note, None, NOW).map(drop)
    };
    let power = |signed| Err(ChainError::Power { signed, total: 40 }.into());
    let three = Spec::new(9, &checkpoint(5));
    let four = Spec { flags: vec![COMMIT; 4], ..three.clone() };
    // The signatures of the first and the second validator change places.
    let swap = |signatures: &mut Vec<Vec<u8>>| signatures.swap(0, 1);
    assert_eq!(noted(&three.signed_but(swap)), power(10));
    assert_eq!(noted(&four.signed_but(swap)), power(20));
    // One of four with a wrong signature, or with none, ends nothing for the three others.
    for (wrong, length) in [(0, 64), (3, 64), (1, 0)] {
        assert_eq!(noted(&four.with_signature(wrong, &vec![0x5a; length])), Ok(()), "{wrong}");
    }
    assert_eq!(noted(&three.with_signature(0, &[0x5a; 64])), power(20));
}

#[test]
fn other_validators_need_the_support_of_more_than_a_third_of_the_known_ones() {
    let good = Spec::new(9, &checkpoint(5));
    // One of four known validators is a quarter; two are more than a third.
    assert_eq!(refused(&good.clone().of(&[1, 5, 6, 7]), checkpoint(5)), ChainError::Unsupported);
    let two = good.clone().of(&[1, 2, 6, 7]);
    assert!(verify(trust(), &two.proves(checkpoint(5)), None, NOW).is_ok());
    // They must have signed, not only be there.
    let two = good.of(&[1, 2, 6, 7, 8]);
    let without = Spec { flags: vec![COMMIT, ABSENT, COMMIT, COMMIT, COMMIT], ..two };
    assert_eq!(refused(&without, checkpoint(5)), ChainError::Unsupported);
}

#[test]
fn a_validator_counts_once() {
    let spec = Spec::new(9, &checkpoint(5));
    let twice = Spec { validators: vec![1, 1, 1, 1], flags: vec![COMMIT; 4], ..spec };
    let refused = LightBlock::read(&twice.bytes(&[9; 32], &vec![vec![1; 64]; 4])).unwrap_err();
    assert_eq!(refused, ChainError::Malformed("validators"));
}

#[test]
fn the_newest_block_says_whom_to_believe_next() {
    let mut known = Spec::new(9, &checkpoint(5));
    known.next = hash(&[5, 6, 7, 8]);
    let known = known.proves(checkpoint(5));
    let after = |height: u64, validators: &[u8]| {
        let spec = Spec::new(height, &checkpoint(6)).of(validators);
        verify(trust(), &spec.proves(checkpoint(6)), Some(&known), NOW)
    };
    // The next block has the announced validators, and no others.
    assert!(after(10, &[5, 6, 7, 8]).is_ok());
    assert_eq!(after(10, &[1, 2, 3, 4]), Err(ChainError::Unsupported.into()));
    // A later one has those that enough of the known ones support.
    assert_eq!(after(11, &[5, 6, 7, 8]), Err(ChainError::Unsupported.into()));
    assert!(after(11, &[1, 2, 7, 8]).is_ok());

    // A block of the new validators confirms them, although the configured ones would not.
    let known = Spec::new(10, &checkpoint(6)).of(&[5, 6, 7, 8]).proves(checkpoint(6));
    let later = Spec::new(12, &checkpoint(7)).of(&[5, 6, 7, 9]).proves(checkpoint(7));
    assert!(verify(trust(), &later, Some(&known), NOW).is_ok());
    assert_eq!(verify(trust(), &later, None, NOW), Err(ChainError::Unsupported.into()));
}

#[test]
fn an_older_state_or_block_is_refused() {
    let known = Spec::new(9, &checkpoint(5)).proves(checkpoint(5));
    let older = Spec::new(8, &checkpoint(4)).proves(checkpoint(4));
    let rollback = CheckpointError::Rollback { offered: 4, accepted: 5 };
    assert_eq!(verify(trust(), &older, Some(&known), NOW), Err(rollback));
    // An older block that states the same is good.
    let same = Spec::new(8, &checkpoint(5)).proves(checkpoint(5));
    assert!(verify(trust(), &same, Some(&known), NOW).is_ok());
    assert!(verify(trust(), &known, Some(&known), NOW).is_ok());
    // Two blocks at one height, and two states of one size.
    let fork = Spec { time_s: NOW - 50, ..Spec::new(9, &checkpoint(6)) }.proves(checkpoint(6));
    assert_eq!(verify(trust(), &fork, Some(&known), NOW), Err(ChainError::Fork(9).into()));
    let others = Spec::new(9, &checkpoint(6)).of(&[5, 6, 7, 8]).proves(checkpoint(6));
    assert_eq!(verify(trust(), &others, Some(&known), NOW), Err(ChainError::Unsupported.into()));
    let other = Checkpoint { root: [8; 32], ..checkpoint(5) };
    let split = Spec::new(12, &other).proves(other.clone());
    let expected = Err(CheckpointError::SplitView { size: 5 });
    assert_eq!(verify(trust(), &split, Some(&known), NOW), expected);
}

/// Validators whom the verifier believes have signed both blocks, so they are evidence.
#[test]
fn blocks_that_contradict_each_other_are_reported() {
    let contradicting = |height, time_s, size| {
        let (reports, reported) = channel();
        let report = move |accepted: &_, other: &_| {
            reports.send((SignedCheckpoint::clone(accepted), SignedCheckpoint::clone(other))).unwrap();
        };
        let documents = documents().with_report(report);
        accept(&documents, &at(20, NOW - 20, 5), 5, NOW).unwrap();
        let known = documents.newest().unwrap();
        let spec = at(height, time_s, size);
        let error = accept(&documents, &spec, size, NOW).unwrap_err();
        // The accepted checkpoint stays in force.
        assert_eq!(documents.newest().as_ref(), Some(&known));
        let reports: Vec<_> = reported.try_iter().collect();
        assert!(reports.is_empty() || reports == [(known, spec.proves(checkpoint(size)))]);
        (error, reports.len())
    };
    let order = |height| (ChainError::Order { height, accepted: 20 }.into(), 1);
    // An earlier block with a larger log or a later time, and a later one with a smaller log or an earlier
    // time.
    for (height, time_s, size) in [(15, NOW - 30, 6), (15, NOW - 10, 4), (15, NOW - 20, 5)] {
        assert_eq!(contradicting(height, time_s, size), order(15));
    }
    for (height, time_s, size) in [(21, NOW - 10, 4), (25, NOW - 10, 4), (21, NOW - 20, 6), (25, NOW - 30, 5)]
    {
        assert_eq!(contradicting(height, time_s, size), order(height));
    }
    assert_eq!(contradicting(20, NOW - 10, 6), (ChainError::Fork(20).into(), 1));
    assert_eq!(contradicting(15, NOW - 30, 4), (CheckpointError::Rollback { offered: 4, accepted: 5 }, 0));

    // A block by foreign validators alone proves nothing against the registry.
    let documents = documents().with_report(|_, _| panic!("reported"));
    accept(&documents, &at(20, NOW - 20, 5), 5, NOW).unwrap();
    for (height, time_s, size) in [(15, NOW - 30, 6), (21, NOW - 10, 4), (25, NOW - 30, 6), (20, NOW - 10, 6)]
    {
        let foreign = at(height, time_s, size).of(&[5, 6, 7, 8]);
        let unsupported = Err(ChainError::Unsupported.into());
        assert_eq!(accept(&documents, &foreign, size, NOW), unsupported, "{height}");
    }
}

/// A watch takes what the known validators have signed for an answer, whatever it contradicts, and nothing
/// else.
#[test]
fn a_block_by_known_validators_is_an_answer() {
    let documents = documents();
    accept(&documents, &at(20, NOW - 20, 5), 5, NOW).unwrap();
    let answer = |spec: &Spec, size| {
        let note = spec.proves(checkpoint(size)).to_string();
        documents.check_answer(note.as_bytes(), NOW.try_into().unwrap())
    };
    for (height, time_s, size) in [
        (21, NOW - 10, 6),
        // A block before, a second block of one height, a smaller log, and a state of yesterday.
        (15, NOW - 30, 4),
        (20, NOW - 10, 6),
        (21, NOW - 10, 4),
        (15, NOW - DEFAULT_CHECKPOINT_AGE - 1, 5),
    ] {
        assert_eq!(answer(&at(height, time_s, size), size), Ok(()), "{height}");
    }
    let foreign = at(21, NOW - 10, 6).of(&[5, 6, 7, 8]);
    assert_eq!(answer(&foreign, 6), Err(ChainError::Unsupported.into()));
    let too_few = Spec { flags: vec![COMMIT, COMMIT, ABSENT, ABSENT], ..at(21, NOW - 10, 6) };
    assert_eq!(answer(&too_few, 6), Err(ChainError::Power { signed: 20, total: 40 }.into()));
    assert_eq!(answer(&at(21, NOW - 10, 6), 7), Err(ChainError::State.into()));
    assert_eq!(height(&documents), 20);
}

#[test]
fn trust_in_validators_and_blocks_ends() {
    let spec = Spec::new(9, &checkpoint(5));
    let signed = spec.proves(checkpoint(5));
    // The state must be recent.
    let end = spec.time_s + DEFAULT_CHECKPOINT_AGE;
    assert!(verify(trust(), &signed, None, end).is_ok());
    let stale = Err(CheckpointError::Stale { found: 0, needed: 1 });
    assert_eq!(verify(trust(), &signed, None, end + 1), stale);
    // The validators must be confirmed.
    let end = NOW + DEFAULT_TRUSTING_PERIOD;
    let late = |time_s| Spec { time_s, ..Spec::new(99, &checkpoint(6)) }.proves(checkpoint(6));
    assert!(verify(trust(), &late(end), None, end).is_ok());
    let expired = Err(ChainError::Expired.into());
    assert_eq!(verify(trust(), &late(end), None, end + 1), expired);
    assert_eq!(verify(trust().with_period(10), &late(NOW), None, NOW + 11), expired);
    // A block that was accepted confirms them.
    let known = Spec { time_s: end - 10, ..Spec::new(98, &checkpoint(5)) }.proves(checkpoint(5));
    assert!(verify(trust(), &late(end), Some(&known), end + 1).is_ok());
}

#[test]
fn a_note_has_one_block_of_the_chain() {
    let spec = Spec::new(9, &checkpoint(5));
    let unsigned = SignedCheckpoint::unsigned(checkpoint(5)).unwrap();
    let mut other = unsigned;
    let mut twice = spec.proves(checkpoint(5));
    other.note_mut().add(chain("registry.example/2", CHAIN).line(&spec.signed()));
    twice.note_mut().add(chain(ORIGIN, CHAIN).line(&spec.signed()));
    for note in [other, twice] {
        assert_eq!(verify(trust(), &note, None, NOW), Err(ChainError::Missing.into()));
    }
}

#[test]
fn malformed_blocks_are_refused() {
    let spec = Spec::new(9, &checkpoint(5));
    let signatures = vec![vec![1; 64]; 4];
    let read = |spec: &Spec| LightBlock::read(&spec.bytes(&[9; 32], &signatures)).map(drop);
    assert!(read(&spec).is_ok());
    let few = Spec { flags: vec![COMMIT; 3], ..spec.clone() };
    assert_eq!(read(&few), Err(ChainError::Malformed("signatures")));
    for other in [
        Spec { height: 0, ..spec.clone() },
        Spec { height: 1 << 63, ..spec.clone() },
        Spec { time_s: 1 << 63, ..spec.clone() },
        Spec { chain: "a chain whose name has more than fifty characters in all", ..spec.clone() },
        Spec { state: vec![1; 31], ..spec.clone() },
        Spec { next: Vec::new(), ..spec.clone() },
    ] {
        assert_eq!(read(&other), Err(ChainError::Malformed("header")));
    }
    let none = Spec { validators: Vec::new(), flags: Vec::new(), ..spec.clone() };
    assert_eq!(read(&none), Err(ChainError::Malformed("validators")));
    let bytes = spec.bytes(&[9; 32], &signatures);
    assert!(LightBlock::read(&bytes[..bytes.len() - 1]).is_err());
    assert!(LightBlock::read(&[bytes.as_slice(), &bytes].concat()).is_err());
}

#[test]
fn sets_of_validators_have_bounds() {
    let key = |number| public(&*ed25519(number));
    let wrong = Err(ChainError::Malformed("validators"));
    let most = (1..=u8::try_from(MAX_VALIDATORS).unwrap()).map(|number| (key(number), 1)).collect::<Vec<_>>();
    assert!(ValidatorSet::new(most.clone()).is_ok());
    let too_many = [most, vec![(key(200), 1)]].concat();
    assert_eq!(ValidatorSet::new(too_many), wrong);
    let most_power = i64::MAX as u64 / 8;
    assert!(ValidatorSet::new(vec![(key(1), most_power - 1), (key(2), 1)]).is_ok());
    for powers in [vec![], vec![0], vec![most_power, 1], vec![u64::MAX, 1]] {
        let set = (1..).zip(powers).map(|(number, power)| (key(number), power)).collect();
        assert_eq!(ValidatorSet::new(set), wrong);
    }
    assert_eq!(ValidatorSet::new(vec![(key(1), 1), (key(1), 2)]), wrong);
}

fn genesis(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    use base64ct::{Base64, Encoding};
    let validator = |number| {
        let key = Base64::encode_string(&public(&*ed25519(number)).spki()[12..]);
        serde_json::json!({"address": "", "pub_key": {"type": "tendermint/PubKeyEd25519", "value": key}, "power": "10"})
    };
    let validators = [1, 2, 3, 4].map(validator);
    let mut genesis = serde_json::json!({
        "genesis_time": "2027-01-15T08:00:00Z",
        "chain_id": CHAIN,
        "validators": validators,
        "app_state": {"origin": ORIGIN},
    });
    change(&mut genesis);
    genesis.to_string().into_bytes()
}

#[test]
fn a_genesis_file_names_the_registry_and_the_validators() {
    let read = |genesis: &[u8]| ChainTrust::from_genesis(&provider(), genesis, NOW);
    assert_eq!(read(&genesis(|_| {})), Ok(trust()));
    let wrong = |name| Err(ChainError::Genesis(name));
    assert_eq!(read(b"{"), wrong("JSON"));
    assert_eq!(read(&genesis(|json| json["chain_id"] = 5.into())), wrong("chain_id"));
    assert_eq!(read(&genesis(|json| json["app_state"] = "x".into())), wrong("app_state.origin"));
    assert_eq!(read(&genesis(|json| json["validators"] = "x".into())), wrong("validators"));
    for (member, value) in
        [("/pub_key/type", "tendermint/PubKeySecp256k1"), ("/pub_key/value", "AA=="), ("/power", "-1")]
    {
        let changed = genesis(|json| *json["validators"][2].pointer_mut(member).unwrap() = value.into());
        assert_eq!(read(&changed), wrong("validators"), "{member}");
    }
    let none = genesis(|json| json["validators"] = serde_json::json!([]));
    assert_eq!(read(&none), Err(ChainError::Malformed("validators")));
    assert_eq!(read(&genesis(|json| json["app_state"]["origin"] = "a b".into())), Err(ChainError::Name));
}

#[test]
fn names_have_bounds() {
    let new = |origin: &str, id: &str| Chain::new(&provider(), origin, id).map(drop);
    assert!(new(&"o".repeat(255), &"c".repeat(MAX_CHAIN_ID)).is_ok());
    let long = "c".repeat(MAX_CHAIN_ID + 1);
    for (origin, id) in [("", CHAIN), (ORIGIN, ""), (ORIGIN, &long), ("a+b", CHAIN), (ORIGIN, "a b")] {
        assert_eq!(new(origin, id), Err(ChainError::Name));
    }
    assert_ne!(chain(ORIGIN, "a").key_id::<8>(), chain(ORIGIN, "b").key_id());
}

#[test]
fn a_key_of_another_type_signs_no_blocks() {
    // Its raw form does not fit, either.
    let set = ValidatorSet::new(vec![(public(&*p256(1)), 1)]);
    assert_eq!(set, Err(ChainError::Malformed("validators")));
}

#[test]
fn protobuf_messages_are_read_strictly() {
    let message = new().number(1, 300).bytes(2, b"text").message(3, &[]).fixed(4, 5).finish();
    // The encoding guide of Protocol Buffers has 150 as 08 96 01, and "testing" as 12 07 and its bytes.
    assert_eq!(new().number(1, 150).finish(), [8, 0x96, 1]);
    assert_eq!(new().bytes(2, b"testing").finish(), b"\x12\x07testing");
    let read = Message::read(&message).unwrap();
    assert_eq!((read.number(1), read.text(2), read.bytes(3)), (Ok(300), Ok("text"), Ok([].as_slice())));
    assert_eq!((read.number(9), read.bytes(9)), (Ok(0), Ok([].as_slice())));
    assert!(read.number(2).is_err() && read.bytes(1).is_err() && read.number(4).is_err());
    assert!(read.all(1).is_err() && read.choice().is_err());
    // Twice, cut off, of a type that ended long ago, and beyond 64 bits.
    let twice = [message.as_slice(), &message].concat();
    assert!(Message::read(&twice).unwrap().number(1).is_err());
    for wrong in [&message[..message.len() - 1], &[8], &[0x0b], &[0x12, 5, 1], &[0x0d, 1], &[9, 1]] {
        assert!(Message::read(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(
        varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7]),
        Ok((u64::MAX, [7].as_slice()))
    );
    assert!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).is_err());
    assert!(varint(&[0x80; 11]).is_err());
    let field = new().message(7, &message).finish();
    assert_eq!(Message::read(&field).unwrap().choice(), Ok((7, read)));
    assert_eq!(new().bytes(1, &[5; 200]).delimited()[..2], [0xcb, 1]);
}

/// A verifier that has accepted nothing yet.
fn documents() -> RegistryDocuments {
    RegistryDocuments::new(Arc::new(provider()), RegistryTrust::replicated(trust()))
}

/// Verifies a checkpoint at this time, and keeps it.
fn accept(documents: &RegistryDocuments, spec: &Spec, size: u64, now_s: u64) -> Result<(), CheckpointError> {
    let note = spec.proves(checkpoint(size)).to_string();
    let newest = documents.newest();
    let fresh = documents.checkpoint(note.as_bytes(), newest.as_ref(), now_s.try_into().unwrap())?;
    assert!(documents.accept(&fresh.checkpoint, newest.as_ref()));
    Ok(())
}

/// The number of the block that confirms the validators now.
fn height(documents: &RegistryDocuments) -> u64 {
    chain(ORIGIN, CHAIN).block(documents.newest().unwrap().note()).unwrap().height()
}

fn at(height: u64, time_s: u64, size: u64) -> Spec {
    Spec { time_s, ..Spec::new(height, &checkpoint(size)) }
}

#[test]
fn blocks_without_operations_confirm_the_validators() {
    let documents = documents();
    let later = [NOW, NOW + DEFAULT_TRUSTING_PERIOD - 60, NOW + 2 * DEFAULT_TRUSTING_PERIOD - 120];
    for (number, now_s) in (9..).step_by(1000).zip(later) {
        assert_eq!(accept(&documents, &at(number, now_s - 1, 5), 5, now_s), Ok(()));
        assert_eq!(height(&documents), number);
    }
    // The configured validators count no longer. Another honest peer has an earlier block of the same state.
    let now_s = later[2];
    assert_eq!(accept(&documents, &at(2008, now_s - 2, 5), 5, now_s), Ok(()));
    assert_eq!(height(&documents), 2009);
    let expired = Err(ChainError::Expired.into());
    assert_eq!(accept(&documents, &at(2008, now_s - 2, 4), 4, now_s), expired);
    assert_eq!(accept(&documents, &at(2008, now_s - 2, 5).of(&[5, 6, 7, 8]), 5, now_s), expired);
    let too_few = Spec { flags: vec![COMMIT, COMMIT, ABSENT, ABSENT], ..at(2008, now_s - 2, 5) };
    let power = ChainError::Power { signed: 20, total: 40 };
    assert_eq!(accept(&documents, &too_few, 5, now_s), Err(power.into()));
}

/// A registry works again after the trusting period has expired without a block.
#[test]
fn the_same_trust_read_again_confirms_the_validators() {
    let read_at = |confirmed_s| ChainTrust::new(chain(ORIGIN, CHAIN), set(&[1, 2, 3, 4]), confirmed_s);
    let late = NOW + DEFAULT_TRUSTING_PERIOD + 1;
    for knows in [false, true] {
        let documents = documents();
        if knows {
            accept(&documents, &at(9, NOW - 1, 5), 5, NOW).unwrap();
        }
        let spec = at(2000, late - 1, 6);
        let expired = Err(ChainError::Expired.into());
        assert_eq!(accept(&documents, &spec, 6, late), expired);
        // Other validators, another chain, and an earlier time confirm nothing.
        for other in [
            ChainTrust::new(chain(ORIGIN, CHAIN), set(&[1, 2, 3, 5]), late),
            ChainTrust::new(chain(ORIGIN, "example-2"), set(&[1, 2, 3, 4]), late),
            read_at(late).with_period(DEFAULT_TRUSTING_PERIOD - 1),
            read_at(NOW - 1),
        ] {
            documents.confirm(&RegistryTrust::replicated(other));
            assert_eq!(accept(&documents, &spec, 6, late), expired);
        }
        documents.confirm(&RegistryTrust::replicated(read_at(late)));
        assert_eq!(accept(&documents, &spec, 6, late), Ok(()));
        assert_eq!(height(&documents), 2000);
    }
}

/// The program looks the DID up.
#[test]
fn a_proof_by_unknown_validators_is_an_old_one() {
    let (provider, hasher) = (provider(), Hasher(provider().sha256));
    let [current, next, recovery] = [10, 11, 12].map(|number| public(&*ed25519(number)));
    let hash = |key| Sha256Hash::of_key(&provider, key).unwrap();
    let document = first_document(&provider, ORIGIN, &current, hash(&next), hash(&recovery)).unwrap();
    let did = document.id().clone();
    let text = document.canonical().to_owned();
    let leaf = Sha256Hash::of(&provider, text.as_bytes()).unwrap();
    let key = map_key(&provider, &did).unwrap();
    let map = StateMap::default();
    let map = map.with(hasher, key, MapLeaf { document: leaf, sequence: 0, active: true }).unwrap();
    let log = [[5; 32], hasher.leaf(&root_entry(&map.root(hasher)))];
    let root = log.into_iter().rev().reduce(|right, left| hasher.node(&left, &right)).unwrap();
    let state = Checkpoint { size: 2, root, ..checkpoint(2) };
    let path = log[..1].to_vec();
    let resolve = |documents: &RegistryDocuments, spec: &Spec, now_s: u64| {
        let proof = StateProof { map: map.prove(&key), path: path.clone() }.write();
        let checkpoint = spec.proves(state.clone()).to_string().into_bytes();
        let staple =
            Staple { document: text.clone().into_bytes(), checkpoint, proof, membership: Vec::new() };
        let staple = staple.write().unwrap();
        documents
            .resolve(&did, Some(&staple), now_s.try_into().unwrap())
            .map(|resolution| resolution.document)
    };
    let spec = |height: u64, time_s: u64| Spec { time_s, ..Spec::new(height, &state) };
    assert_eq!(resolve(&documents(), &spec(9, NOW), NOW), Ok(document));
    let late = NOW + DEFAULT_TRUSTING_PERIOD + 1;
    for (documents, spec, now_s, error) in [
        (documents(), spec(9, late), late, ChainError::Expired),
        (documents(), spec(9, NOW).of(&[5, 6, 7, 8]), NOW, ChainError::Unsupported),
    ] {
        let old = Err(ResolveError::OldProof(did.clone(), CheckpointError::from(error).into()));
        assert_eq!(resolve(&documents, &spec, now_s), old);
    }
    // A block that contradicts an accepted one is evidence, not an old proof.
    let knows = documents();
    assert_eq!(accept(&knows, &at(9, NOW - 1, 1), 1, NOW), Ok(()));
    let order = CheckpointError::from(ChainError::Order { height: 10, accepted: 9 });
    assert_eq!(resolve(&knows, &spec(10, NOW - 1), NOW), Err(ResolveError::Proof(order.into())));
}

#[test]
fn a_genesis_file_is_a_file_of_trust() {
    let genesis = String::from_utf8(genesis(|_| ())).unwrap();
    let read = |file: &str| RegistryTrust::read_file(&provider(), file.as_bytes(), NOW);
    assert_eq!(read(&format!("\n{genesis}")), Ok(RegistryTrust::replicated(trust())));
    assert_eq!(read("{}"), Err(ChainError::Genesis("app_state.origin").into()));
    assert_eq!(read("\n"), Err(TrustTextError::Registry));
    assert_eq!(RegistryTrust::read_file(&provider(), b"\xff", NOW), Err(TrustTextError::Text));
}
